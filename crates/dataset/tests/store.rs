//! Stores written by `scripts/golden-store`, which shares no code with this crate: what they
//! hold, that nothing that is kept twice is lost to one damage, and that what must be
//! refused is.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use bothends_core::ids::{Label, SampleId};
use bothends_core::sample::{Encoding, FileIdx};
use bothends_dataset::conformance::{MemoryStorage, check};
use bothends_dataset::store::{
    Index, IndexBuilder, IndexIn, Kept, MANIFEST_FILES, Manifest, NewRecord, RecordKind,
    Sealed, Shard, read_manifest, read_sealed,
};
use bothends_dataset::{DatasetError, Format, Storage, Table, find};
use proptest::collection::vec;
use proptest::prelude::*;
use twox_hash::XxHash3_64;

/// A folder next to the tests.
fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(path)
}

/// A golden store's files.
fn files(store: &str) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder("fixtures/store").join(store)).unwrap();
    let file = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read(path).unwrap())
    };
    let mut files: Vec<_> = entries.map(|entry| file(entry.unwrap().path())).collect();
    files.sort();
    files
}

fn storage(files: &[(String, Vec<u8>)]) -> MemoryStorage {
    files.iter().fold(MemoryStorage::new(), |all, (name, bytes)| all.with(name, bytes))
}

fn table(store: &str) -> Table {
    find(&storage(&files(store)), "").unwrap().table
}

/// The bytes of a sample's record have the checksum that the table says.
fn has_its_checksum(storage: &MemoryStorage, table: &Table, sample: u64) -> bool {
    let extent = table.extent(SampleId(sample));
    let mut bytes = vec![0; extent.len as usize];
    storage.read(&table.file_path(extent.file), extent.offset, &mut bytes).unwrap();
    table.checksum(SampleId(sample)) == Some(XxHash3_64::oneshot(&bytes))
}

#[test]
fn photographs_are_found_in_the_order_of_the_shards() {
    let storage = storage(&files("photos")).with("foreign.txt", b"not ours");
    let found = find(&storage, "").unwrap();
    check(&storage, &found);
    assert_eq!((found.format, found.n_ignored, found.note), (Format::Store, 1, None));
    let table = found.table;
    assert_eq!((table.n_samples(), table.n_files()), (4, 2));
    assert_eq!(table.encoding(), Encoding::Image);
    assert_eq!(table.class_names().collect::<Vec<_>>(), ["ant", "bee \u{2603}"]);
    let extents = [(0, 4096, 148), (0, 8192, 5000), (0, 16384, 5000), (1, 4096, 32)];
    for (id, (file, offset, len)) in (0..).zip(extents) {
        let extent = table.extent(SampleId(id));
        assert_eq!(
            (extent.file, extent.offset, extent.len),
            (FileIdx(file), offset, len)
        );
        assert!(has_its_checksum(&storage, &table, id), "sample {id}");
    }
    let labels = [0, 1, 2, 3].map(|id| table.label(SampleId(id)));
    assert_eq!(labels, [Label(0), Label(0), Label(1), Label(1)]);
}

#[test]
fn heads_and_profiles_of_all_shards_become_one_table() {
    let table = table("photos");
    let blocks = [0, 1, 2, 3].map(|id| table.blocks(SampleId(id)));
    let [grey, none, colour, other] = blocks;
    assert_eq!(none, None);
    let sizes = [grey, colour, other].map(|blocks| {
        let size = blocks.unwrap().head().size;
        (size.height, size.width)
    });
    assert_eq!(sizes, [(20, 9), (17, 33), (1, 1)]);
    let profiles = [grey, colour, other].map(|blocks| blocks.unwrap().profile());
    assert_eq!(profiles[0], profiles[2]);
    assert_eq!((profiles[0].steps(0)[63], profiles[1].steps(1)[63]), (1, 164));
    assert_eq!(colour.unwrap().head().bytes_of(0..2), 0..4096);
    let heads = [grey, other].map(|blocks| blocks.unwrap().head().profile);
    assert_eq!(heads, [0, 0], "two shards with the same profile keep it once");
}

#[test]
fn pixels_are_found_and_the_rest_of_their_file_is_no_sample() {
    let storage = storage(&files("batches"));
    let found = find(&storage, "").unwrap();
    check(&storage, &found);
    let encoding = Encoding::Planar { height: 2, width: 2, channels: 3 };
    assert_eq!(found.table.encoding(), encoding);
    assert_eq!(found.table.n_samples(), 3);
    assert_eq!(found.table.label(SampleId(2)), Label(2));
}

/// The shards of a golden store with their indices, each read from both of its files.
fn shards(store: &str) -> Vec<(Shard, Sealed)> {
    let storage = storage(&files(store));
    let manifest = read_manifest(&storage, "").unwrap().value;
    let sealed = |shard: Shard| {
        let [first, copy] = [IndexIn::Shard, IndexIn::Copy]
            .map(|place| read_sealed(&storage, "", &shard, place).unwrap());
        assert_eq!(first, copy);
        (shard, first)
    };
    manifest.shards.into_iter().map(sealed).collect()
}

#[test]
fn an_index_says_where_records_came_from() {
    let (_, Sealed { header, index }) = shards("photos").swap_remove(0);
    let index = Index::decode(&index, &header).unwrap();
    let origins: Vec<_> = index
        .lines()
        .iter()
        .map(|line| (index.name(line.name), line.original_at, line.original_len))
        .collect();
    let expected = [
        ("ant/1.jpg", 0, 777),
        ("ant/2.png", 0, 5000),
        ("bee \u{2603}/3.jpg", 0, 4000),
        ("README", 8, 8),
        ("empty", 0, 0),
    ];
    assert_eq!(origins, expected);
    let metadata = [0, 1, 2, 3, 4, 5].map(|number| index.metadata(number));
    assert_eq!(metadata, ["{\"by\": \"Zo\u{eb}\"}", "", "[1]", "", "", ""]);
    assert_eq!((index.n_samples(), index.head(1), index.name(5)), (3, &[][..], ""));
    assert_eq!(index.lines()[4].kind, RecordKind::Rest);
    assert_eq!(index.lines()[4].label, 1);
}

/// The golden shard, taken apart and put together by this crate.
#[test]
fn an_index_made_here_has_the_golden_bytes() {
    let files: HashMap<_, _> = files("photos").into_iter().collect();
    for (shard, Sealed { header, index: bytes }) in shards("photos") {
        let golden = &files[&shard.file()];
        let index = Index::decode(&bytes, &header).unwrap();
        let mut builder = IndexBuilder::default();
        for (number, line) in index.lines().iter().enumerate() {
            let start = usize::try_from(line.offset()).unwrap();
            assert_eq!(builder.offset(), line.offset());
            let record = NewRecord {
                kind: line.kind,
                stored: &golden[start..start + line.len as usize],
                label: line.label,
                path: index.name(line.name),
                original_at: line.original_at,
                original_len: line.original_len,
                metadata: index.metadata(number),
                head: index.head(number),
                profile: index.profile(number),
            };
            builder.push(&record).unwrap();
        }
        let (made_header, made) = builder.finish().unwrap();
        assert_eq!(made, bytes);
        assert_eq!(made_header, header);
        assert_eq!(made_header.encode()[..], golden[..48]);
        assert_eq!(
            [&made_header.encode()[..], &made].concat(),
            files[&shard.index_file()]
        );
        assert_eq!(made_header.index_range().end, golden.len() as u64);
    }
}

#[test]
fn a_manifest_made_here_says_the_same() {
    for store in ["photos", "batches"] {
        let storage = storage(&files(store));
        let Kept { value: golden, damage } = read_manifest(&storage, "").unwrap();
        assert!(damage.is_none());
        assert_eq!(Manifest::decode(&golden.encode()), Ok(golden.clone()));
        let hash = |bytes: &[u8]| {
            let text = str::from_utf8(bytes).unwrap();
            text.lines().find(|line| line.contains("hash")).unwrap().trim().to_owned()
        };
        let (_, theirs) = files(store).pop().unwrap();
        assert_eq!(
            hash(&golden.encode()).trim_end_matches(','),
            hash(&theirs).trim_end_matches(',')
        );
        for (shard, Sealed { header, .. }) in shards(store) {
            assert_eq!(shard, Shard::new(&shard.name, &header, shard.n_samples));
        }
    }
}

/// Whatever one byte becomes, the samples are where they were, and what was read instead of
/// the first is told.
#[test]
fn one_changed_byte_loses_nothing() {
    for store in ["photos", "batches"] {
        let (files, whole) = (files(store), table(store));
        for (number, (name, bytes)) in files.iter().enumerate() {
            // Every byte of what is short, and of shards those that mean something.
            let is_shard = name.ends_with(".shard");
            let means_something =
                |at: &usize| !is_shard || bytes[*at] != 0 || at.is_multiple_of(61);
            for at in (0..bytes.len()).filter(means_something) {
                let mut changed = files.clone();
                changed[number].1[at] ^= 1 << (at % 8);
                let found = find(&storage(&changed), "").unwrap();
                assert!(found.table == whole, "{name}: byte {at}");
                if at < 48 && is_shard {
                    assert!(found.note.is_some(), "{name}: byte {at} goes unnoticed");
                }
            }
        }
    }
}

/// Wherever a file is cut, the samples are where they were: those of a shard that lay behind
/// the cut cannot be read, and that is all.
#[test]
fn a_file_cut_short_loses_no_other_sample() {
    let (files, whole) = (files("photos"), table("photos"));
    for (number, (name, bytes)) in files.iter().enumerate() {
        for len in (0..bytes.len()).step_by(97) {
            let mut cut = files.clone();
            cut[number].1.truncate(len);
            let found = find(&storage(&cut), "").unwrap();
            assert!(found.table == whole, "{name} at {len}");
            let is_first = name.ends_with(".shard") || name == MANIFEST_FILES[0];
            assert_eq!(found.note.is_some(), is_first, "{name} at {len}");
        }
    }
}

#[test]
fn a_missing_shard_is_named_and_the_rest_has_copies() {
    for (name, _) in files("photos") {
        let mut left = files("photos");
        left.retain(|(other, _)| *other != name);
        match find(&storage(&left), "") {
            Ok(found) => assert!(!name.ends_with(".shard"), "{name}: {found:?}"),
            Err(error) => {
                assert!(matches!(error, DatasetError::Storage { .. }), "{error}");
                assert!(error.to_string().contains(&name), "{error}");
            }
        }
    }
}

#[test]
fn a_shard_of_another_store_is_refused() {
    let mut mixed: BTreeMap<_, _> = files("photos").into_iter().collect();
    for ending in ["index", "shard"] {
        let other = mixed[&format!("00001.{ending}")].clone();
        mixed.insert(format!("00000.{ending}"), other);
    }
    let mixed: Vec<_> = mixed.into_iter().collect();
    let error = find(&storage(&mixed), "").unwrap_err().to_string();
    assert!(
        error.starts_with("`/data/00000.shard`: it is not the shard that"),
        "{error}"
    );
    assert!(error.contains("verifying the store"), "{error}");
}

/// What is wrong with a shard, to which its manifest would fit.
fn read_alone(shard: &[u8]) -> Result<Sealed, DatasetError> {
    let word = |at: usize| {
        let bytes = shard.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let entry = Shard {
        name: "bad".to_owned(),
        len_bytes: word(16).wrapping_add(word(24)),
        n_samples: 1,
        index_checksum: word(32),
    };
    let storage = MemoryStorage::new().with("bad.shard", shard);
    read_sealed(&storage, "", &entry, IndexIn::Shard)
}

#[test]
fn bad_shards_and_manifests_are_refused() {
    let mut n = 0;
    for entry in std::fs::read_dir(folder("bad/store")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let reason = name.split('.').next().unwrap().replace('-', " ");
        let bytes = std::fs::read(&path).unwrap();
        let error = if name.ends_with(".shard") {
            read_alone(&bytes).unwrap_err().to_string()
        } else {
            Manifest::decode(&bytes).unwrap_err().to_string()
        };
        assert!(error.contains(&reason), "{name}: {error}");
        n += 1;
    }
    assert!(n >= 60, "only {n} bad files found");
}

proptest! {
    /// Several bytes at once may hit a thing and its copy: refused or right, never wrong.
    #[test]
    fn damaged_stores_do_no_harm(
        store in prop_oneof![Just("photos"), Just("batches")],
        hits in vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        let mut files = files(store);
        for (file, at, value) in hits {
            let (_, bytes) = file.get_mut(&mut files);
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(found) = find(&storage(&files), "") {
            prop_assert!(found.table == table(store));
        }
    }
}
