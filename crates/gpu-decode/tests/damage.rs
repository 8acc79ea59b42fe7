//! Bytes that are not as they were written: never a wrong pixel without a flag, never a byte outside.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use bothends_core::recipe::{Decision, Interpolation, Numerics};
use bothends_gpu_decode::Batch;
use bothends_ops::jpeg::ScanNote;

use support::{Gpu, Image, LIMITS, SMALL, fixtures, key, note_of, part, pipeline};

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n
    }
}

/// Makes one crop of `data` again and again with changes, and compares with what it was.
fn try_changes(
    gpu: &mut Gpu,
    name: &str,
    batch: &Batch,
    (at, data): (usize, &[u8]),
    n: usize,
) -> usize {
    let mut random = Random(data.len() as u64);
    let place = |data: &[u8]| [&vec![0; at][..], data].concat();
    let (good, status) = gpu.run(batch, place(data), 1);
    assert!(status[0].is_made(), "{name}");
    let mut n_flagged = 0;
    for nth in 0..n {
        let mut changed = data.to_vec();
        match nth % 3 {
            0 => changed[random.below(data.len())] ^= 1 << random.below(8),
            1 => (0..4).for_each(|_| {
                let at = random.below(data.len());
                changed[at] = u8::try_from(random.below(256)).unwrap();
            }),
            _ => changed
                .iter_mut()
                .for_each(|byte| *byte = u8::try_from(random.below(256)).unwrap()),
        }
        let (got, status) = gpu.run(batch, place(&changed), 1);
        assert!(
            !status[0].is_made() || got == good,
            "{name}: change {nth} is not flagged"
        );
        n_flagged += usize::from(!status[0].is_made());
    }
    n_flagged
}

#[test]
fn a_stores_damage_is_flagged() {
    let Some(mut gpu) = Gpu::new(0) else { return };
    let pipeline = pipeline(SMALL, Numerics::Exact, Interpolation::Bilinear);
    let (mut n_flagged, mut n) = (0, 0);
    for (name, file) in fixtures() {
        let Some(image) = Image::of(&file) else { continue };
        let crop =
            pipeline.only_crop_of(key(1), image.packed.size, &mut Decision::default());
        let mut batch = Batch::new(SMALL, Numerics::Exact, LIMITS);
        let Ok(placed) = batch.add_stored(0, image.blocks(), &crop.unwrap().unwrap())
        else {
            continue;
        };
        let data = part(&image.packed.groups, &placed.bytes);
        n_flagged += try_changes(&mut gpu, &name, &batch, (placed.at as usize, data), 12);
        n += 12;
    }
    assert!(n > 300, "only {n} changes");
    assert_eq!(n_flagged, n, "every byte of a row group is under its checksum");
}

#[test]
fn a_files_damage_is_flagged() {
    let Some(mut gpu) = Gpu::new(0) else { return };
    let pipeline = pipeline(SMALL, Numerics::Exact, Interpolation::Bilinear);
    let (mut n_flagged, mut n) = (0, 0);
    for (name, file) in fixtures() {
        let note = note_of(&file);
        let Some(note) = ScanNote::read(&note) else { continue };
        let crop = pipeline.only_crop_of(key(1), note.size(), &mut Decision::default());
        let mut batch = Batch::new(SMALL, Numerics::Exact, LIMITS);
        let len = u32::try_from(file.len()).unwrap();
        let placed = batch.add_jpeg(0, (&note, len), &crop.unwrap().unwrap()).unwrap();
        let data = part(&file, &placed.bytes);
        n_flagged += try_changes(&mut gpu, &name, &batch, (placed.at as usize, data), 12);
        n += 12;
    }
    assert!(n > 300, "only {n} changes");
    // Two bytes after the rows are looked at, and under no checksum.
    assert!(n_flagged > n * 9 / 10, "{n_flagged} of {n}");
}

/// Even where a group's checksum is right: what is hostile in it is flagged or makes pixels, and
/// writes nothing outside.
#[test]
fn hostile_groups_stay_inside() {
    let Some(mut gpu) = Gpu::new(0) else { return };
    let pipeline = pipeline(SMALL, Numerics::Exact, Interpolation::Bilinear);
    let mut random = Random(5);
    for (name, file) in fixtures() {
        let Some(image) = Image::of(&file) else { continue };
        let crop =
            pipeline.only_crop_of(key(1), image.packed.size, &mut Decision::default());
        let mut batch = Batch::new(SMALL, Numerics::Exact, LIMITS);
        let Ok(placed) = batch.add_stored(0, image.blocks(), &crop.unwrap().unwrap())
        else {
            continue;
        };
        let head = image.blocks().head();
        for _ in 0..6 {
            let mut groups = image.packed.groups.clone();
            for _ in 0..3 {
                let at = random.below(groups.len());
                groups[at] = u8::try_from(random.below(256)).unwrap();
            }
            for group in 0..head.n_groups() {
                let range = head.bytes_of(group..group + 1);
                let place = |at: u64| usize::try_from(at).unwrap();
                let group = &mut groups[place(range.start)..place(range.end)];
                let sum = twox_hash::XxHash3_64::oneshot(&group[4..]).to_le_bytes();
                group[..4].copy_from_slice(&sum[..4]);
            }
            let data = part(&groups, &placed.bytes);
            let upload = [&vec![0; placed.at as usize][..], data].concat();
            let (_, status) = gpu.run(&batch, upload, 1);
            assert_eq!(status[0].0 & 2, 0, "{name}: the checksum is right");
        }
    }
}
