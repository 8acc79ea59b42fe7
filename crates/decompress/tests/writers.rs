//! Compressed shards as the programs write them that people write theirs with (`scripts/golden-shards`):
//! decompressed, they hold the samples and classes of the class folders that they were made from.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bothends_core::ids::SampleId;
use bothends_dataset::{Ask, FieldPlace, Format, Found, Storage, find_fields};
use bothends_decompress::{
    Compressed, DecompressError, Decompressed, Place, Watch, decompress, find_in,
};
use bothends_io::Folder;

fn fixtures(name: &str) -> PathBuf {
    let shards = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/shards");
    Path::new(shards).join(name).canonicalize().unwrap()
}

fn found(
    data: &Path,
    cache: &Path,
    fields: &[&str],
) -> Result<(Found, Option<Decompressed>), DecompressError> {
    let storage = Folder(data.to_owned());
    let data = Compressed { storage: &storage, target: "" };
    let place = Place::in_cache(cache);
    find_in(data, Some(&place), &Watch::default(), |storage, target| {
        let names = fields.iter().map(|name| (*name).to_owned()).collect();
        find_fields(storage, target, Ask::Fields(names))
    })
}

/// The label and the bytes of each sample.
fn samples(root: &Path, found: &Found) -> Vec<(i64, Vec<u8>)> {
    let rows = (0..found.table.n_samples()).map(SampleId).map(|id| {
        let extent = found.table.extent(id);
        let mut bytes = vec![0; extent.len as usize];
        let path = found.table.file_path(extent.file);
        Folder(root.to_owned()).read(&path, extent.offset, &mut bytes).unwrap();
        (found.table.label(id).0, bytes)
    });
    rows.collect()
}

const WRITTEN: [(&str, Format); 7] = [
    ("compressed-tar", Format::WebDataset),
    ("compressed-tfrecord", Format::TfRecord),
    ("compressed-parquet", Format::Parquet),
    ("compressed-litdata", Format::LitData),
    ("compressed-mds-zstd", Format::Mds),
    ("compressed-mds-gz", Format::Mds),
    ("compressed-mds-snappy", Format::Mds),
];

#[test]
fn compressed_shards_hold_what_the_folder_does() {
    let cache = tempfile::tempdir().unwrap();
    let folder = fixtures("folder");
    let (expected, made) = found(&folder, cache.path(), &[]).unwrap();
    assert!(made.is_none());
    let expected = samples(&folder, &expected);
    assert_eq!(expected.len(), 7);
    for (name, format) in WRITTEN {
        let (found, made) = found(&fixtures(name), cache.path(), &[]).unwrap();
        assert_eq!((found.format, found.note), (format, None), "{name}");
        let rows = samples(made.unwrap().root(), &found);
        assert!(rows == expected, "{name}: other samples");
    }
}

/// All columns of a Parquet file stay, lists and missing values among them.
#[test]
fn fields_are_those_of_the_compressed_file() {
    let cache = tempfile::tempdir().unwrap();
    let data = fixtures("compressed-parquet");
    let (found, made) = found(&data, cache.path(), &["caption", "sharp"]).unwrap();
    let root = made.unwrap().root().to_owned();
    let value = |nth: usize, sample: u64| {
        let field = found.fields.iter().nth(nth).unwrap();
        match field.place(sample) {
            FieldPlace::Value(bytes) => bytes.to_vec(),
            FieldPlace::Extent(extent) => {
                let mut bytes = vec![0; extent.len as usize];
                let path = found.table.file_path(extent.file);
                Folder(root.clone()).read(&path, extent.offset, &mut bytes).unwrap();
                bytes
            }
        }
    };
    for sample in 0..7 {
        assert_eq!(value(0, sample), format!("number {sample}").as_bytes());
        assert_eq!(value(1, sample), [u8::from(sample % 2 == 0)]);
    }
    let names: Vec<_> = found.names.iter().map(|field| &*field.name).collect();
    assert_eq!(names, ["caption", "image", "label", "note", "sharp"]);
}

/// Whatever is wrong with a Parquet file gets one line, and none of it is believed.
#[test]
fn every_changed_byte_of_a_parquet_file_is_refused_or_read() {
    let good = fixtures("compressed-parquet").join("train-00001-of-00003.parquet");
    let good = fs::read(good).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    let mut n_refused = 0;
    for nth in (0..good.len()).step_by(23) {
        let mut bad = good.clone();
        bad[nth] ^= 1 << (nth % 8);
        fs::write(data.join("0.parquet"), &bad).unwrap();
        let storage = Folder(data.clone());
        let compressed = Compressed { storage: &storage, target: "" };
        let cache = dir.path().join(format!("cache-{nth}"));
        let place = Place::in_cache(&cache);
        let done = decompress(compressed, &place, &mut |_| ControlFlow::Continue(()));
        if let Err(error) = done {
            let line = error.to_string();
            assert!(line.contains("0.parquet") && !line.contains('\n'), "{nth}: {line}");
            n_refused += 1;
        }
    }
    // Zstandard's frames have no checksums by default, so some changes are changes of pixels.
    assert!(n_refused > 10, "{n_refused} refused");
}
