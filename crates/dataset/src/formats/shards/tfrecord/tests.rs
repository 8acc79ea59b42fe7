//! Examples encoded by hand, good and bad.

use bothends_core::ids::SampleId;

use super::*;
use crate::conformance::{self, MemoryStorage};

/// A field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    out.extend(varint(bytes.len() as u64));
    out.extend(bytes);
    out
}

fn varint(mut n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 0x80 {
        out.push(n.to_le_bytes()[0] | 0x80);
        n >>= 7;
    }
    out.push(n.to_le_bytes()[0]);
    out
}

fn bytes_feature(value: &[u8]) -> Vec<u8> {
    field(1, &field(1, value))
}

fn int_feature(value: u64) -> Vec<u8> {
    field(3, &field(1, &varint(value)))
}

/// The same, not packed.
fn plain_int_feature(value: u64) -> Vec<u8> {
    field(3, &[vec![1 << 3], varint(value)].concat())
}

fn example(features: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entry = |(name, value): &(&str, Vec<u8>)| {
        field(1, &[field(1, name.as_bytes()), field(2, value)].concat())
    };
    field(1, &features.iter().flat_map(entry).collect::<Vec<_>>())
}

fn file(records: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        let len = (record.len() as u64).to_le_bytes();
        out.extend(len);
        out.extend(masked_crc32c(&len).to_le_bytes());
        out.extend(record);
        out.extend(masked_crc32c(record).to_le_bytes());
    }
    out
}

fn found(bytes: &[u8]) -> Result<Found, DatasetError> {
    let storage = MemoryStorage::new().with("t/train-00000-of-00001", bytes);
    let found = crate::find(&storage, "t")?;
    conformance::check(&storage, &found);
    Ok(found)
}

fn rows(bytes: &[u8]) -> Vec<(i64, Vec<u8>)> {
    let found = found(bytes).unwrap();
    let ids = (0..found.table.n_samples()).map(SampleId);
    ids.map(|id| {
        let extent = found.table.extent(id);
        let start = usize::try_from(extent.offset).unwrap();
        (found.table.label(id).0, bytes[start..][..extent.len as usize].to_vec())
    })
    .collect()
}

fn refusal(bytes: &[u8]) -> String {
    found(bytes).unwrap_err().to_string()
}

#[test]
fn names_that_tensorflow_gives_are_recognised() {
    for name in [
        "a.tfrecord",
        "a.TFRECORDS",
        "x.tfrec",
        "c.tfrecord-00001-of-00002",
        "train-00000-of-01024",
    ] {
        assert!(is_shard(name), "{name}");
    }
    for name in ["a.tfr", "train-0-of-1024", "a-00000-of-", "00000-of-00001", "x.jpg"] {
        assert!(!is_shard(name), "{name}");
    }
}

#[test]
fn images_and_classes_are_found_whatever_the_order_and_the_other_features() {
    let image = vec![8; 3000];
    let bytes = file(&[
        example(&[
            ("image/encoded", bytes_feature(b"one")),
            ("image/class/label", int_feature(300)),
        ]),
        example(&[
            ("image/class/label", plain_int_feature(2)),
            ("image/object/bbox", field(2, &field(1, &[0; 16]))),
            ("image/encoded", bytes_feature(&image)),
            ("image/filename", bytes_feature(b"x.jpg")),
            ("image", bytes_feature(b"a thumbnail")),
            ("empty", Vec::new()),
        ]),
        example(&[("image/encoded", bytes_feature(b"")), ("label", int_feature(4))]),
    ]);
    assert_eq!(rows(&bytes), [(300, b"one".to_vec()), (2, image), (4, Vec::new())]);
    assert_eq!(found(&bytes).unwrap().format, Format::TfRecord);
}

#[test]
fn minus_one_is_no_class() {
    let bytes = file(&[
        example(&[("image", bytes_feature(b"one")), ("label", int_feature(u64::MAX))]),
        example(&[("image", bytes_feature(b"two")), ("label", int_feature(2))]),
    ]);
    assert_eq!(rows(&bytes), [(0, b"one".to_vec()), (2, b"two".to_vec())]);
    let note = found(&bytes).unwrap().note;
    assert_eq!(note, Some("some samples have no label; it is taken as 0"));
}

#[test]
fn what_cannot_be_read_is_named_with_its_place() {
    let good = file(&[example(&[("image", bytes_feature(b"one"))])]);
    assert_eq!(rows(&good), [(0, b"one".to_vec())]);
    let mut damaged = good.clone();
    damaged[0] ^= 1;
    assert!(
        refusal(&damaged)
            .starts_with("`/data/t/train-00000-of-00001` byte 0: not a record")
    );
    assert!(refusal(&good[..good.len() - 1]).contains("beyond the end"));
    assert!(refusal(&good[..5]).contains("ends too early"));
    assert!(refusal(b"\x1f\x8b\x08\0\0\0\0\0\0\0\0\0").contains("compressed"));
    assert!(refusal(b"").contains("is empty"));
    let none = file(&[example(&[("x", bytes_feature(b"")), ("a", int_feature(1))])]);
    assert!(refusal(&none).contains("there are: a, x"), "{}", refusal(&none));
    let negative =
        example(&[("image", bytes_feature(b"")), ("label", int_feature(u64::MAX - 1))]);
    assert!(refusal(&file(&[negative])).contains("the class -2"));
    assert!(refusal(&file(&[vec![0x0b, 0, 0]])).contains("damaged one"));
    assert!(refusal(&file(&[vec![0x0a, 200, 1]])).contains("damaged one"));
    let two = file(&[
        example(&[("image", bytes_feature(b"one"))]),
        example(&[("jpg", bytes_feature(b"two"))]),
    ]);
    assert!(refusal(&two).contains("is called image;"), "{}", refusal(&two));
}
