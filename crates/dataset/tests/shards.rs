//! Shards written by the programs that people write theirs with (`scripts/golden-shards`): the samples
//! and classes are those of the class folders that they were made from.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

use bothends_core::ids::SampleId;
use bothends_dataset::conformance::{MemoryStorage, check};
use bothends_dataset::{Decompression, Format, Storage, find};

fn fixtures() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/shards"))
}

/// A folder of the fixtures in memory.
fn stored(folder: &str) -> MemoryStorage {
    fn add(storage: MemoryStorage, from: &Path, to: &str) -> MemoryStorage {
        fs::read_dir(from).unwrap().fold(storage, |storage, entry| {
            let path = entry.unwrap().path();
            let to = format!("{to}/{}", path.file_name().unwrap().to_str().unwrap());
            match path.is_dir() {
                true => add(storage, &path, &to),
                false => storage.with(&to, &fs::read(&path).unwrap()),
            }
        })
    }
    add(MemoryStorage::new(), &fixtures().join(folder), folder)
}

/// How the data set is read, and the label and the bytes of each sample.
fn samples(folder: &str) -> (Format, Vec<(i64, Vec<u8>)>) {
    let storage = stored(folder);
    let found = find(&storage, folder).unwrap();
    check(&storage, &found);
    assert_eq!(found.note, None, "{folder}");
    let rows = (0..found.table.n_samples()).map(SampleId).map(|id| {
        let extent = found.table.extent(id);
        let mut bytes = vec![0; extent.len as usize];
        let path = found.table.file_path(extent.file);
        storage.read(&path, extent.offset, &mut bytes).unwrap();
        (found.table.label(id).0, bytes)
    });
    (found.format, rows.collect())
}

/// People keep what they know about images next to their class folders.
#[test]
fn what_is_about_images_does_not_hide_them() {
    for name in ["metadata.parquet", "features.h5", "a.arrow", "a.msgpack", "a.beton"] {
        let storage =
            MemoryStorage::new().with("t/cat/0.jpg", b"x").with("t/dog/1.jpg", b"y");
        let storage = storage.with(&format!("t/{name}"), b"not read");
        let found = find(&storage, "t").unwrap();
        assert_eq!((found.format, found.n_ignored), (Format::ClassFolders, 1), "{name}");
    }
}

#[test]
fn shards_hold_what_the_folder_does() {
    let (format, expected) = samples("folder");
    assert_eq!(format, Format::ClassFolders);
    assert_eq!(expected.len(), 7);
    let shards = [
        ("tar", Format::WebDataset),
        ("mds", Format::Mds),
        ("tfrecord", Format::TfRecord),
        ("datadings", Format::Datadings),
        ("datadings-of-folder", Format::Datadings),
        ("beton", Format::Beton),
        ("hdf5", Format::Hdf5),
        ("hdf5-latest", Format::Hdf5),
        ("hdf5-chunked", Format::Hdf5),
        ("parquet", Format::Parquet),
        ("parquet-v2", Format::Parquet),
        ("arrow", Format::Arrow),
        ("arrow-file", Format::Arrow),
        ("litdata", Format::LitData),
        ("litdata-items", Format::LitData),
    ];
    for (folder, format) in shards {
        let (found, rows) = samples(folder);
        assert_eq!(found, format);
        assert!(rows == expected, "{folder}: other samples");
    }
}

/// Else a validation set would be trained on. The shards themselves are not even opened.
#[test]
fn splits_in_one_folder_are_not_mixed() {
    let names = [
        ["mnist-train.tfrecord-00000-of-00001", "mnist-test.tfrecord-00000-of-00001"],
        ["imagenet-train-000000.tar", "imagenet-val-000000.tar"],
        ["train.msgpack", "val.msgpack"],
        ["train.beton", "val.beton"],
        ["train.h5", "test.h5"],
        ["train-00000-of-00001.parquet", "test-00000-of-00001.parquet"],
        ["train.tar.gz", "val.tar.gz"],
    ];
    for [train, other] in names {
        let storage =
            [train, other].iter().fold(MemoryStorage::new(), |storage, name| {
                storage.with(&format!("d/{name}"), b"not read")
            });
        let error = match train.ends_with(".gz") {
            true => Decompression::check_split(&storage, "d").unwrap_err(),
            false => find(&storage, "d").unwrap_err(),
        };
        let line = error.to_string();
        assert!(
            line.starts_with("`/data/d` byte 0: it holds several splits ("),
            "{line}"
        );
        // One of them is meant if it is named.
        let target = format!("d/{train}");
        let line = match train.ends_with(".gz") {
            true => Decompression::check_split(&storage, &target).map_err(|_| ()),
            false => find(&storage, &target).map(|_| ()).map_err(|error| {
                assert!(error.to_string().starts_with(&format!("`/data/{target}`")));
            }),
        };
        assert_eq!(line.is_ok(), train.ends_with(".gz"), "{train}");
    }
}

/// Shards of one split, with and without others whose names say none.
#[test]
fn one_split_is_a_data_set() {
    let bytes = |name| fs::read(fixtures().join("tar").join(name)).unwrap();
    let [a, b] = ["shard-000000.tar", "shard-000001.tar"].map(bytes);
    for names in [
        ["train-000000.tar", "train-000001.tar"],
        ["a-test-0.tar", "b-test-0.tar"],
        ["train.tar", "more.tar"],
        ["latest-0.tar", "trained-0.tar"],
    ] {
        let [first, second] = names.map(|name| format!("d/{name}"));
        let storage = MemoryStorage::new().with(&first, &a).with(&second, &b);
        assert_eq!(find(&storage, "d").unwrap().table.n_samples(), 7, "{names:?}");
    }
}

/// The file's name says what is wrong, with dashes for blanks.
#[test]
fn bad_shards_are_refused_by_what_is_wrong() {
    let good = |name: &str| fs::read(fixtures().join(name)).unwrap();
    let mds = |name: &str| good(&format!("mds/{name}"));
    let items = |name: &str| good(&format!("litdata-items/{name}"));
    let mut n = 0;
    for entry in fs::read_dir(fixtures().join("../../bad/shards")).unwrap() {
        let path = entry.unwrap().path();
        let bad = fs::read(&path).unwrap();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let storage = MemoryStorage::new();
        let storage = match path.extension().unwrap().to_str().unwrap() {
            "mds" => storage
                .with("s/index.json", &mds("index.json"))
                .with("s/shard.00000.mds", &bad)
                .with("s/shard.00001.mds", &mds("shard.00001.mds")),
            "json" => storage
                .with("s/index.json", &bad)
                .with("s/shard.00000.mds", &mds("shard.00000.mds")),
            "bin" => storage
                .with("s/index.json", &items("index.json"))
                .with("s/chunk-0-0.bin", &bad)
                .with("s/chunk-0-1.bin", &items("chunk-0-1.bin")),
            "litdata" => storage
                .with("s/index.json", &bad)
                .with("s/chunk-0-0.bin", &items("chunk-0-0.bin")),
            kind => storage.with(&format!("s/0.{kind}"), &bad),
        };
        let error = find(&storage, "s").unwrap_err().to_string();
        assert!(error.contains(&stem.replace('-', " ")), "{stem}: {error}");
        assert!(error.starts_with("`/data/s/"), "{error}");
        n += 1;
    }
    assert_eq!(n, 62);
}
