//! Shards made by hand, good and bad.

use bothends_core::ids::SampleId;

use super::*;
use crate::conformance::{self, MemoryStorage};

/// A shard with samples of a class (8 bytes) and an image, in this order.
fn shard(samples: &[(i64, &[u8])]) -> Vec<u8> {
    let config = br#"{"version": 2}"#;
    let begin = 4 * (samples.len() + 2) + config.len();
    let mut ends = vec![u32::try_from(begin).unwrap()];
    let mut data = Vec::new();
    for (class, image) in samples {
        data.extend(u32::try_from(image.len()).unwrap().to_le_bytes());
        data.extend(class.to_le_bytes());
        data.extend(*image);
        ends.push(u32::try_from(begin + data.len()).unwrap());
    }
    let mut bytes = u32::try_from(samples.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend(ends.iter().flat_map(|end| end.to_le_bytes()));
    bytes.extend(config);
    bytes.extend(data);
    bytes
}

fn index(n: usize) -> String {
    format!(
        r#"{{"version": 2, "shards": [{{"format": "mds", "version": 2, "samples": {n},
        "column_names": ["class", "image"], "column_encodings": ["int", "jpeg"],
        "column_sizes": [8, null], "compression": null, "zip_data": null,
        "raw_data": {{"basename": "shard.00000.mds", "bytes": 1}}}}]}}"#
    )
}

fn storage(index: &str, shard: &[u8]) -> MemoryStorage {
    MemoryStorage::new()
        .with("d/index.json", index.as_bytes())
        .with("d/shard.00000.mds", shard)
}

fn refusal(index: &str, shard: &[u8]) -> String {
    crate::find(&storage(index, shard), "d").unwrap_err().to_string()
}

#[test]
fn samples_are_found_by_the_shards_own_table() {
    let bytes = shard(&[(3, b"three"), (0, b""), (70_000, &[1; 300])]);
    let storage = storage(&index(3), &bytes);
    let found = crate::find(&storage, "d").unwrap();
    conformance::check(&storage, &found);
    assert_eq!((found.format, found.note), (Format::Mds, None));
    let rows: Vec<_> = (0..3)
        .map(SampleId)
        .map(|id| {
            let extent = found.table.extent(id);
            let start = usize::try_from(extent.offset).unwrap();
            (found.table.label(id).0, &bytes[start..][..extent.len as usize])
        })
        .collect();
    assert_eq!(rows, [(3, &b"three"[..]), (0, b""), (70_000, &[1; 300])]);
}

#[test]
fn columns_without_a_class_are_noted_and_others_are_passed_over() {
    let text = index(1).replace(r#""class""#, r#""weight""#);
    let storage = storage(&text, &shard(&[(3, b"three")]));
    let found = crate::find(&storage, "d").unwrap();
    assert_eq!(found.note, Some("the shards have no labels: every label is 0"));
}

#[test]
fn minus_one_is_no_class() {
    let found = |text: &str| {
        let shard = shard(&[(-1, b"x"), (4, b"y")]);
        crate::find(&storage(text, &shard), "d").map(|found| found.note)
    };
    let note = Some("some samples have no label; it is taken as 0");
    assert_eq!(found(&index(2)).unwrap(), note);
    let error = found(&index(2).replace("\"int\"", "\"uint64\"")).unwrap_err();
    assert!(error.to_string().contains("a class is not a number"), "{error}");
}

/// Spark's partitions, and what `merge_index` makes of them: an index, and folders with the shards.
#[test]
fn a_merged_index_may_name_shards_in_folders() {
    let text = index(1).replace("shard.00000.mds", "0/shard.00000.mds");
    let storage = MemoryStorage::new()
        .with("d/index.json", text.as_bytes())
        .with("d/0/index.json", index(1).as_bytes())
        .with("d/0/shard.00000.mds", &shard(&[(3, b"three")]));
    let found = crate::find(&storage, "d").unwrap();
    conformance::check(&storage, &found);
    assert_eq!((found.format, found.table.n_samples()), (Format::Mds, 1));
    assert_eq!(found.table.label(SampleId(0)).0, 3);
    // Class folders with an index of somebody else's stay what they are.
    let storage = MemoryStorage::new()
        .with("d/index.json", b"{}")
        .with("d/cat/0.jpg", b"image")
        .with("d/dog/0.jpg", b"image");
    assert_eq!(crate::find(&storage, "d").unwrap().format, Format::ClassFolders);
}

#[test]
fn what_cannot_be_read_is_named() {
    let good = shard(&[(3, b"three"), (4, b"four")]);
    let refused = |from: &str, to: &str| refusal(&index(2).replace(from, to), &good);
    assert!(
        refused("\"version\": 2, \"sh", "\"version\": 1, \"sh").contains("version 1")
    );
    assert!(refused("mds\"", "json\"").contains("\"json\""));
    assert!(refused("jpeg\"", "pil\"").contains("class (int), image (pil)"));
    assert!(refused("[8, null]", "[8]").contains("the numbers of names"));
    assert!(refused("\"shard.00000.mds\"", "\"../x.mds\"").contains("leads up"));
    assert!(refused("\"shard.00000.mds\"", "\"other.mds\"").starts_with("cannot open"));
    assert!(refused("{", "[").contains("not the index"));
    assert!(refusal(&index(3), &good).contains("it has 2 samples, and the index says 3"));
    let zipped =
        index(2).replace("\"zip_data\": null", "\"zip_data\": {\"basename\": \"x\"}");
    let zipped = zipped.replace("\"shard.00000.mds\"", "\"gone.mds\"");
    assert!(refusal(&zipped, &good).contains("compressed as a whole"));
    assert!(
        refusal(&index(2), &good[..20]).contains("byte"),
        "{}",
        refusal(&index(2), &good[..20])
    );
    assert!(refusal(&index(2), &good[..good.len() - 1]).contains("beyond the end"));
    assert!(refusal(&index(1), &shard(&[(-2, b"")])).contains("a class is not a number"));
    let mut long = good.clone();
    // The size of the first sample's image.
    let at = 16 + 14;
    long[at] = 200;
    assert!(refusal(&index(2), &long).contains("longer than the shard's table says"));
}
