//! Samples from plain JPEGs are the host's, whatever the picture, the crop and the order of threads;
//! damage is flagged.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use bothends_core::recipe::{Decision, Interpolation, Numerics, Size};
use bothends_core::sample::{Encoding, Record};
use bothends_gpu_decode::Batch;
use bothends_ops::jpeg::ScanNote;
use bothends_ops::{Pipeline, Scratch};

use support::{Gpu, LIMITS, SMALL, fixtures, key, note_of, pipeline};

fn compare(gpu: &mut Gpu, name: &str, (file, note): (&[u8], &ScanNote<'_>), pipeline: &Pipeline, (numerics, size): (Numerics, Size), n: u64) {
    let mut batch = Batch::new(size, numerics, LIMITS);
    let mut upload = Vec::new();
    let mut need = Vec::new();
    for nth in 0..n {
        let key = key(nth);
        let crop = pipeline.only_crop_of(key, note.size(), &mut Decision::default()).unwrap().unwrap();
        let len = u32::try_from(file.len()).unwrap();
        let placed = match batch.add_jpeg(u32::try_from(nth).unwrap(), (note, len), &crop) {
            Ok(placed) => placed,
            Err(why) => panic!("{name}: {why}"),
        };
        let bytes = &file[placed.bytes.start as usize..placed.bytes.end as usize];
        upload.resize(placed.at as usize, 0xEE);
        upload.extend_from_slice(bytes);
        let mut sample = vec![0; pipeline.sample_bytes()];
        let record = Record::new(file, Encoding::Image);
        pipeline.run(&mut Scratch::default(), key, record, &mut sample).unwrap();
        need.extend(sample);
    }
    let (got, status) = gpu.run(&batch, upload, n as usize);
    for (nth, status) in status.iter().enumerate() {
        assert!(status.is_made(), "{name} crop {nth}: {status:?}");
        let len = pipeline.sample_bytes();
        let (got, need) = (&got[nth * len..][..len], &need[nth * len..][..len]);
        let wrong = got.iter().zip(need).position(|(a, b)| a != b);
        assert!(wrong.is_none(), "{name} {numerics:?} crop {nth}: byte {wrong:?}");
    }
}

#[test]
fn samples_are_the_hosts() {
    let Some(mut gpu) = Gpu::new(0) else { return };
    let mut n_described = 0;
    for numerics in [Numerics::Exact, Numerics::Planar] {
        for size in [SMALL, Size { height: 7, width: 9 }] {
            let pipeline = pipeline(size, numerics, Interpolation::Bilinear);
            for (name, file) in fixtures() {
                let note = note_of(&file);
                let Some(note) = ScanNote::read(&note) else { continue };
                n_described += 1;
                compare(&mut gpu, &name, (&file, &note), &pipeline, (numerics, size), 3);
            }
        }
    }
    assert!(n_described >= 60, "only {n_described} fixtures have notes");
}
