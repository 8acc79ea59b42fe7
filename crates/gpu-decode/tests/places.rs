//! Where the bytes of crops are placed in an upload.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use bothends_core::recipe::{Decision, Interpolation, Numerics};
use bothends_gpu_decode::{Batch, Limits, NotHere};
use bothends_ops::jpeg::ScanNote;

use support::{Image, LIMITS, SMALL, fixtures, key, note_of, pipeline};

/// Whole blocks of the file have room round them, and no two crops share a block or 16 bytes.
#[test]
fn bytes_are_placed_as_they_lie_in_their_file() {
    let pipeline = pipeline(SMALL, Numerics::Exact, Interpolation::Bilinear);
    for block in [1, 2, 512, 4096] {
        let mut batch = Batch::new(SMALL, Numerics::Exact, LIMITS);
        let (mut end, mut record_at) = (0, 0);
        for (nth, (name, file)) in (0..).zip(fixtures()) {
            let (note, image) = (note_of(&file), Image::of(&file));
            let note = ScanNote::read(&note);
            let size = note.as_ref().map(ScanNote::size);
            let Some(size) = size else { continue };
            let crop = pipeline.only_crop_of(key(nth), size, &mut Decision::default());
            let crop = crop.unwrap().unwrap();
            record_at += 12_345;
            batch.read_by(record_at, block);
            let len = u32::try_from(file.len()).unwrap();
            let of_note = note.map(|note| batch.add_jpeg(0, (&note, len), &crop));
            let of_image = image.map(|image| batch.add_stored(0, image.blocks(), &crop));
            for placed in of_note.into_iter().chain(of_image).flatten() {
                let [at, first, last] =
                    [placed.at, placed.room.start, placed.room.end].map(|n| n as usize);
                let in_file = usize::try_from(record_at + placed.bytes.start).unwrap();
                let len = usize::try_from(placed.bytes.end - placed.bytes.start).unwrap();
                assert_eq!(at % block, in_file % block, "{name}");
                assert!(first <= at && at < first + block, "{name}: {placed:?}");
                assert!(
                    at + len <= last && last < at + len + block,
                    "{name}: {placed:?}"
                );
                assert!(first.is_multiple_of(block) && last.is_multiple_of(block));
                assert!(first.is_multiple_of(16) && first >= end, "{name}: {placed:?}");
                end = last;
            }
        }
        assert!(batch.len() > 60, "only {} crops", batch.len());
        assert!(batch.input_bytes() > end);
        batch.clear();
        assert!(batch.is_empty());
    }
}

/// CUDA launches no grid of more blocks along z: one crop more would have failed the launch, and lost the GPU.
#[test]
fn a_batch_ends_where_a_grid_does() {
    let image = fixtures().iter().find_map(|(_, file)| Image::of(file)).unwrap();
    let pipeline = pipeline(SMALL, Numerics::Exact, Interpolation::Bilinear);
    let size = image.packed.size;
    let crop = pipeline.only_crop_of(key(1), size, &mut Decision::default());
    let crop = crop.unwrap().unwrap();
    let limits = Limits { input_bytes: u32::MAX, scratch_bytes: u64::MAX };
    let mut batch = Batch::new(SMALL, Numerics::Exact, limits);
    for row in 0..65_535 {
        batch.add_stored(row, image.blocks(), &crop).unwrap();
    }
    let refused = batch.add_stored(65_535, image.blocks(), &crop).unwrap_err();
    assert_eq!((refused, batch.len()), (NotHere::NoRoom, 65_535));
}
