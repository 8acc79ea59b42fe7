//! Manifests from anywhere: what is well made comes back, what is not is refused without a
//! panic and without memory that the bytes do not pay for.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests, and visible skips")]

use bothends_core::blocks::{Colour, Component, GroupLengths, RowLengths, write_profile};
use bothends_core::ids::SampleId;
use bothends_core::recipe::Size;
use bothends_core::sample::{Encoding, Extent};
use bothends_dataset::conformance::survives_encoding;
use bothends_dataset::{DatasetError, Table, TableBuilder};
use proptest::collection::vec;
use proptest::prelude::*;

/// A well made table of up to 40 samples.
fn tables() -> impl Strategy<Value = Table> {
    let encodings = prop_oneof![
        Just(Encoding::Image),
        Just(Encoding::Opaque),
        Just(Encoding::Planar { height: 4, width: 3, channels: 2 }),
    ];
    let sample = (any::<prop::sample::Index>(), 0..1_u64 << 62, any::<u32>(), 0..5_u32);
    let paths = vec("[a-zäö]{1,9}(/[a-z.]{1,9}x){0,3}", 1..9);
    let heads = vec(0..9_u32, 0..40);
    let parts = (encodings, paths, 0..3_usize, vec(sample, 1..40), any::<bool>(), heads);
    parts.prop_map(|(encoding, paths, classes, samples, checksums, heads)| {
        let mut builder = TableBuilder::new(encoding);
        for class in ["ant", "", "cat", "dog", "elk"].iter().take(classes * 3) {
            builder.class(class).unwrap();
        }
        let files: Vec<_> =
            paths.iter().map(|path| builder.file(path).unwrap()).collect();
        let mut heads = heads.iter().filter(|_| encoding == Encoding::Image);
        for (file, offset, len, label) in &samples {
            let len = if matches!(encoding, Encoding::Planar { .. }) { 24 } else { *len };
            let label = if classes == 1 { label % 3 } else { *label };
            let extent = Extent { file: *file.get(&files), offset: *offset, len };
            builder.sample(extent, label);
            if let Some(n_groups) = heads.next().filter(|&n| 0 < *n && *n < len) {
                builder.profile(&grey(7)).unwrap();
                let profile =
                    builder.profile(&grey(u16::try_from(*n_groups).unwrap())).unwrap();
                builder.head(&head(*n_groups, profile)).unwrap();
            }
        }
        if checksums {
            builder.checksums(samples.iter().map(|sample| sample.1 ^ 0xABCD).collect());
        }
        builder.build().unwrap()
    })
}

fn grey(step: u16) -> Vec<u8> {
    let mut profile = Vec::new();
    let component = Component { h: 1, v: 1, table: 0 };
    write_profile(Colour::Grey, &[component], &[[step; 64]], &mut profile);
    profile
}

/// An image with so many row groups of one byte each.
fn head(n_groups: u32, profile: u32) -> Vec<u8> {
    let size = Size { height: 16 * n_groups, width: 8 };
    let lengths = GroupLengths::new(&vec![1; n_groups as usize]).unwrap();
    lengths.head(size, profile, RowLengths::Narrow).unwrap()
}

fn one_image() -> Table {
    let mut builder = TableBuilder::new(Encoding::Image);
    builder.class("cat").unwrap();
    let file = builder.file("cat/1.jpg").unwrap();
    builder.sample(Extent { file, offset: 5, len: 0x1234 }, 0);
    builder.build().unwrap()
}

/// Written by hand from the layout in `manifest.rs`.
#[test]
fn one_image_has_these_bytes() {
    let mut expected = Vec::new();
    expected.extend(b"BE-TABLE\x02\0\0\0\0\0\0\0");
    expected.extend([0; 20]); // height, width, channels, bytes of profiles, of heads
    expected.extend(b"\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(expected.len(), 64);
    expected.extend(b"\x03\0cat\x03\0cat\0\0\0\0\x05\x001.jpg");
    expected.extend(b"\0\0\0\0\x05\0\0\0\0\0\0\0\x34\x12\0\0\0\0\0\0");
    assert_eq!(one_image().encode(), expected);
}

#[test]
fn every_cut_is_refused() {
    let bytes = one_image().encode();
    for len in 0..bytes.len() {
        let error = Table::decode(&bytes[..len]).unwrap_err();
        assert!(matches!(error, DatasetError::Malformed { .. }), "{len}: {error}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(Table::decode(&longer).unwrap_err().to_string().contains("after the last"));
}

#[test]
fn another_version_is_named() {
    let mut bytes = one_image().encode();
    bytes[8] = 9;
    let error = Table::decode(&bytes).unwrap_err().to_string();
    assert!(
        error.starts_with("the manifest has version 9, this build reads 2"),
        "{error}"
    );
}

/// Counts of four billion in a hundred bytes end at the bytes, not at the allocator.
#[test]
fn huge_counts_cost_nothing() {
    for at in [28, 32, 36, 40, 44, 48, 52] {
        let mut bytes = one_image().encode();
        bytes[at..at + 4].fill(0xFF);
        assert!(Table::decode(&bytes).is_err(), "count at {at}");
    }
}

#[test]
fn paths_that_leave_the_data_folder_are_refused() {
    let bytes = one_image().encode();
    let at = bytes.windows(5).position(|window| window == b"1.jpg").unwrap();
    for name in [b"../xx", b"/etc/", b"a\0b.c", b"a//bc", b"./abc", b"a/b.c"] {
        let mut bytes = bytes.clone();
        bytes[at..at + 5].copy_from_slice(name);
        let error = Table::decode(&bytes).unwrap_err();
        assert!(matches!(error, DatasetError::Path { .. }), "{error}");
    }
    let mut bytes = bytes.clone();
    bytes[at] = 0xFF;
    assert!(Table::decode(&bytes).unwrap_err().to_string().contains("a file name"));
}

/// Files from `tests/bad/dataset`: manifests end in `.manifest`, each with the reason it
/// must be refused for in its name (`-` for a blank).
#[test]
fn the_bad_manifests_are_refused() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/bad/dataset");
    let mut n = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "manifest") {
            continue;
        }
        let reason = path.file_stem().unwrap().to_str().unwrap().replace('-', " ");
        let error =
            Table::decode(&std::fs::read(&path).unwrap()).unwrap_err().to_string();
        assert!(error.contains(&reason), "{}: {error}", path.display());
        n += 1;
    }
    assert!(n >= 8, "only {n} bad manifests found");
}

proptest! {
    #[test]
    fn tables_survive_their_encoding(table in tables()) {
        survives_encoding(&table);
    }

    #[test]
    fn tables_differ_where_their_hashes_do(a in tables(), b in tables()) {
        prop_assert_eq!(a == b, a.hash() == b.hash());
    }

    /// Whatever is accepted is written the same way: one manifest, one spelling.
    #[test]
    fn damaged_manifests_do_no_harm(
        table in tables(),
        hits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = table.encode();
        for (at, value) in hits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(table) = Table::decode(&bytes) {
            prop_assert_eq!(table.encode(), bytes);
        }
    }

    #[test]
    fn noise_does_no_harm(noise in vec(any::<u8>(), 0..300)) {
        let bytes = [b"BE-TABLE\x02\0\0\0".as_slice(), &noise].concat();
        if let Ok(table) = Table::decode(&bytes) {
            prop_assert_eq!(table.encode(), bytes);
        }
    }
}

/// A device tells another file by its length where the record is all of it, and only there.
#[test]
fn the_length_of_a_file_is_known_where_the_record_is_all_of_it() {
    let mut builder = TableBuilder::new(Encoding::Image);
    let file = builder.file("1.jpg").unwrap();
    builder.sample(Extent { file, offset: 0, len: 7 }, 0);
    let part = builder.build().unwrap();
    assert_eq!(part.file_len(SampleId(0)), None);
    let mut builder = TableBuilder::new(Encoding::Image);
    let file = builder.file("1.jpg").unwrap();
    builder.sample(Extent { file, offset: 0, len: 7 }, 0);
    builder.whole_files();
    let whole = builder.build().unwrap();
    assert_eq!(whole.file_len(SampleId(0)), Some(7));
    survives_encoding(&whole);
    // It is the same data set, whichever way it was listed.
    assert_eq!(whole.hash(), part.hash());
}
