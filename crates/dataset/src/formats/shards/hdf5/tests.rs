//! Files of h5py: pixels, damage, trees without an end.

use bothends_core::ids::SampleId;

use super::*;
use crate::conformance::{self, MemoryStorage};

/// Superblock 0 with symbol tables, superblock 3 with links, chunks, pixels.
const FILES: [&[u8]; 4] = [
    include_bytes!("../../../../../../tests/fixtures/shards/hdf5/train.h5"),
    include_bytes!("../../../../../../tests/fixtures/shards/hdf5-latest/train.h5"),
    include_bytes!("../../../../../../tests/fixtures/shards/hdf5-chunked/train.h5"),
    include_bytes!("../../../../../../tests/fixtures/shards/hdf5-pixels/train.h5"),
];

fn found(bytes: &[u8]) -> Result<Found, DatasetError> {
    let storage = MemoryStorage::new().with("s/0.h5", bytes);
    let found = crate::find(&storage, "s")?;
    conformance::check(&storage, &found);
    Ok(found)
}

#[test]
fn pixels_are_rows_of_one_array() {
    let table = found(FILES[3]).unwrap().table;
    assert_eq!(table.encoding(), Encoding::Planar { channels: 3, height: 4, width: 5 });
    for sample in 0..3_u8 {
        let extent = table.extent(SampleId(sample.into()));
        let start = usize::try_from(extent.offset).unwrap();
        let bytes: Vec<u8> = (60 * sample..60 * (sample + 1)).collect();
        assert_eq!(FILES[3][start..][..60], bytes);
        assert_eq!(
            (extent.len, table.label(SampleId(sample.into())).0),
            (60, 7 + i64::from(sample))
        );
    }
}

#[test]
fn files_of_different_images_are_not_one_data_set() {
    let both = MemoryStorage::new().with("s/0.h5", FILES[0]).with("s/1.hdf5", FILES[3]);
    let error = crate::find(&both, "s").unwrap_err().to_string();
    assert!(error.contains("1.hdf5` byte 0: its images differ in kind"), "{error}");
    let two = MemoryStorage::new().with("s/0.h5", FILES[0]).with("s/1.h5", FILES[1]);
    assert_eq!(crate::find(&two, "s").unwrap().table.n_samples(), 14);
}

#[test]
fn minus_one_is_no_class() {
    let refused =
        include_bytes!("../../../../../../tests/bad/shards/a-class-is-not-a-number.h5");
    let minus_two = (-2_i64).to_le_bytes();
    let at = refused.windows(8).position(|bytes| bytes == minus_two).unwrap();
    let mut changed = refused.to_vec();
    changed[at] = 0xff;
    let note = Some("some samples have no label; it is taken as 0");
    assert_eq!(found(&changed).unwrap().note, note);
}

/// Collections in the objects of others: the end of each would be walked to from every one.
#[test]
fn collections_in_each_other_are_refused_at_once() {
    const LEN: usize = 1 << 20;
    let n = LEN / (32 + 16);
    let (references, mut bytes) = (LEN - 32 * n, Vec::new());
    for nth in 0..n {
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(((references + 32 * nth + 16) as u64).to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
    }
    bytes.resize(references, 0);
    for nth in 0..n {
        // An object of 16 bytes, which are the header of a collection up to the end.
        bytes.extend([1_u64.to_le_bytes(), 16_u64.to_le_bytes()].concat());
        bytes.extend(b"GCOL\x01\0\0\0");
        bytes.extend(((LEN - references - 32 * nth - 16) as u64).to_le_bytes());
    }
    let storage = MemoryStorage::new().with("f", &bytes);
    let mut windows = [(); 2].map(|()| Window::open(&storage, "f", STEP).unwrap());
    let [rows, in_heap] = &mut windows;
    let mut heap = Heap::default();
    let places = (0..n as u64).map(|nth| heap.object(in_heap, rows, 16 * nth));
    let n_good = places.take_while(Result::is_ok).count();
    // Four walks are as many objects as the file has room for, if none lies in another.
    assert!((1..=4).contains(&n_good), "{n_good}");
}

#[test]
fn damage_is_an_error_and_never_more() {
    for file in FILES {
        found(file).unwrap();
        for end in (0..file.len()).step_by(29) {
            let _ = found(&file[..end]);
        }
        for at in (0..file.len()).step_by(3) {
            for flip in [1, 0x80, 0xff] {
                let mut changed = file.to_vec();
                changed[at] ^= flip;
                let _ = found(&changed);
            }
        }
    }
}

/// Every address in the file led to every structure there is: trees and headers that go in circles end.
#[test]
fn circles_end() {
    for file in FILES {
        let starts: Vec<u64> = (0..file.len() - 8)
            .filter(|&at| {
                matches!(
                    &file[at..][..4],
                    b"TREE" | b"SNOD" | b"HEAP" | b"GCOL" | b"OHDR"
                )
            })
            .map(|at| at as u64)
            .collect();
        let addresses = (0..file.len() - 8).filter(|&at| {
            let address = number(&file[at..][..8]);
            starts.contains(&address)
        });
        for at in addresses {
            for start in &starts {
                let mut changed = file.to_vec();
                changed[at..][..8].copy_from_slice(&start.to_le_bytes());
                let _ = found(&changed);
            }
        }
    }
}
