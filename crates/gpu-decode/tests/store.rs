//! Samples from a store are the host's, whatever the picture, the crop and the order of threads.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use bothends_core::recipe::{Decision, Interpolation, Numerics, Size};
use bothends_core::sample::{Encoding, Record, RowGroups};
use bothends_gpu_decode::{Batch, NotHere};
use bothends_ops::{Pipeline, Scratch};

use support::{Gpu, Image, LIMITS, SMALL, fixtures, key, pipeline};

/// Crops of one picture with keys from `first` on, by the twin and by the host.
fn compare(gpu: &mut Gpu, name: &str, image: &Image, pipeline: &Pipeline, numerics: Numerics, size: Size, n: u64) {
    let mut batch = Batch::new(size, numerics, LIMITS);
    let mut upload = Vec::new();
    let mut need = Vec::new();
    for nth in 0..n {
        let key = key(nth);
        let crop = pipeline.only_crop_of(key, image.packed.size, &mut Decision::default()).unwrap().unwrap();
        let placed = match batch.add_stored(u32::try_from(nth).unwrap(), image.blocks(), &crop) {
            Ok(placed) => placed,
            Err(NotHere::FourInks) => return,
            Err(why) => panic!("{name}: {why}"),
        };
        let bytes = &image.packed.groups[placed.bytes.start as usize..placed.bytes.end as usize];
        upload.resize(placed.at as usize, 0xEE);
        upload.extend_from_slice(bytes);
        let record = Record {
            row_groups: Some(RowGroups { blocks: image.blocks(), first: 0 }),
            ..Record::new(&image.packed.groups, Encoding::Image)
        };
        let mut sample = vec![0; pipeline.sample_bytes()];
        pipeline.run(&mut Scratch::default(), key, record, &mut sample).unwrap();
        need.extend(sample);
    }
    let (got, status) = gpu.run(&batch, upload, n as usize);
    for (nth, status) in status.iter().enumerate() {
        assert!(status.is_made(), "{name} crop {nth}: {status:?}");
        let len = pipeline.sample_bytes();
        let (got, need) = (&got[nth * len..][..len], &need[nth * len..][..len]);
        let wrong = got.iter().zip(need).position(|(a, b)| a != b);
        assert!(wrong.is_none(), "{name} {numerics:?} crop {nth}: byte {wrong:?}: {} for {}", got[wrong.unwrap()], need[wrong.unwrap()]);
    }
}

#[test]
fn samples_are_the_hosts() {
    let Some(mut gpu) = Gpu::new(0) else { return };
    for numerics in [Numerics::Exact, Numerics::Planar] {
        for interpolation in [Interpolation::Bilinear, Interpolation::Bicubic, Interpolation::Nearest] {
            for size in [SMALL, Size { height: 7, width: 9 }] {
                let pipeline = pipeline(size, numerics, interpolation);
                for (name, file) in fixtures() {
                    let Some(image) = Image::of(&file) else { continue };
                    let what = format!("{name} {interpolation:?}");
                    compare(&mut gpu, &what, &image, &pipeline, numerics, size, 3);
                }
            }
        }
    }
}
