//! Archives made by hand: WebDataset's names, the extensions of tar, damage.

use bothends_core::ids::SampleId;

use super::*;
use crate::conformance::{self, MemoryStorage};

/// A header and its payload, filled up to whole blocks.
fn member(name: &str, kind: u8, data: &[u8]) -> Vec<u8> {
    let mut header = [0; BLOCK];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    sealed(header, data)
}

fn sealed(mut header: [u8; BLOCK], data: &[u8]) -> Vec<u8> {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut bytes = [&header, data].concat();
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        members.iter().flat_map(|(name, data)| member(name, b'0', data)).collect();
    bytes.resize(bytes.len() + 2 * BLOCK, 0);
    bytes
}

fn found(bytes: &[u8]) -> Result<Found, DatasetError> {
    let storage = MemoryStorage::new().with("s/0.tar", bytes);
    let found = crate::find(&storage, "s")?;
    conformance::check(&storage, &found);
    Ok(found)
}

/// Bytes and label of each sample.
fn samples(bytes: &[u8]) -> Vec<(Vec<u8>, i64)> {
    let found = found(bytes).unwrap();
    let ids = (0..found.table.n_samples()).map(SampleId);
    ids.map(|id| {
        let extent = found.table.extent(id);
        let start = usize::try_from(extent.offset).unwrap();
        (bytes[start..][..extent.len as usize].to_vec(), found.table.label(id).0)
    })
    .collect()
}

fn refusal(bytes: &[u8]) -> String {
    found(bytes).unwrap_err().to_string()
}

#[test]
fn members_of_one_name_are_a_sample_and_classes_come_from_cls_or_json() {
    let bytes = archive(&[
        ("a/0.cls", b"7\n"),
        ("a/0.jpg", b"zero"),
        ("a/0.txt", b"a dog"),
        ("a/1.JPEG", &[1; 600]),
        ("a/1.json", br#"{"label": 3, "caption": "a cat"}"#),
        ("a/1.mask.png", b"mask"),
        ("__meta__.json", b"not of a sample"),
        ("2.txt", b"no image"),
        ("3.png", b""),
        ("3.json", br#"{"cls": 9}"#),
        ("4.png", b""),
        ("4.json", br#"{"cls": 8, "label": 5}"#),
    ]);
    let expected =
        [(b"zero".to_vec(), 7), (vec![1; 600], 3), (Vec::new(), 9), (Vec::new(), 5)];
    assert_eq!(samples(&bytes), expected);
    let found = found(&bytes).unwrap();
    assert_eq!(found.format, Format::WebDataset);
    assert_eq!((found.n_ignored, found.note), (2, None));
}

#[test]
fn archives_come_by_name_and_missing_labels_are_noted() {
    let storage = MemoryStorage::new()
        .with("s/b.tar", &archive(&[("1.jpg", b"1"), ("1.cls", b"1")]))
        .with("s/a.tar", &archive(&[("0.jpg", b"0")]))
        .with("s/README", b"text");
    let found = crate::find(&storage, "s").unwrap();
    conformance::check(&storage, &found);
    assert_eq!(found.table.file_path(found.table.extent(SampleId(0)).file), "s/a.tar");
    assert_eq!(found.note, Some("some samples have no label; it is taken as 0"));
    assert_eq!(found.n_ignored, 1);
    let alone = crate::find(&storage, "s/a.tar").unwrap();
    assert_eq!(alone.table.n_samples(), 1);
    assert_eq!(alone.note, Some("the shards have no labels: every label is 0"));
}

/// What WebDataset writes without a complaint is read: NaN of Python, lists, long texts.
#[test]
fn json_without_a_class_is_no_label() {
    let long = [b"{\"label\": 3, \"a\": \"", &vec![b'a'; 1 << 20][..], b"\"}"].concat();
    let nan = br#"{"label": 3, "a": [NaN, -Infinity, "NaN \" Infinity"], "b": Infinity}"#;
    for json in [&b"[1, 2]"[..], b"\"a text\"", b"{not json", b"", &long] {
        let bytes = archive(&[("0.jpg", b"zero"), ("0.json", json), ("1.jpg", b"one")]);
        assert_eq!(samples(&bytes), [(b"zero".to_vec(), 0), (b"one".to_vec(), 0)]);
        let note = found(&bytes).unwrap().note;
        assert_eq!(note, Some("the shards have no labels: every label is 0"));
    }
    let beside = [("0.cls", &b"-1"[..]), ("0.jpg", b""), ("0.json", b"{not json")];
    let bytes = archive(&[&beside[..], &[("1.jpg", b""), ("1.json", nan)]].concat());
    assert_eq!(samples(&bytes), [(Vec::new(), 0), (Vec::new(), 3)]);
    let note = found(&bytes).unwrap().note;
    assert_eq!(note, Some("some samples have no label; it is taken as 0"));
}

/// Else a sample would be of class 0 because its JSON is damaged.
#[test]
fn where_classes_are_in_json_each_must_be_readable() {
    let long = [b"\"", &vec![b'a'; 1 << 20][..], b"\""].concat();
    for (json, why) in [(&b"{not json"[..], "`0.json` is not JSON"), (&long, "at most")] {
        let bytes = archive(&[
            ("0.jpg", b""),
            ("0.json", json),
            ("1.jpg", b""),
            ("1.json", b"{\"cls\": 1}"),
        ]);
        let error = refusal(&bytes);
        assert!(error.starts_with("`/data/s/0.tar` byte 1024: `0.json`"), "{error}");
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn long_names_and_sizes_come_from_gnu_and_pax_headers() {
    let long = format!("{}/x.jpg", "d".repeat(150));
    let mut bytes = member("././@LongLink", b'L', format!("{long}\0").as_bytes());
    bytes.extend(member("cut off", b'0', b"gnu"));
    let record = format!("path={}/y.jpg\n", "e".repeat(120));
    let record = format!("{} {record}", record.len() + 4);
    bytes.extend(member("pax", b'x', record.as_bytes()));
    bytes.extend(member("cut off", b'0', b"pax"));
    bytes.extend(member("global", b'g', b"11 a=bcdefg"));
    // GNU's binary form of a number, and a size that only the extended header has.
    let mut header = [0; BLOCK];
    header[..5].copy_from_slice(b"z.jpg");
    header[124] = 0x80;
    header[135] = 3;
    header[156] = b'0';
    bytes.extend(sealed(header, b"big"));
    bytes.extend(member("pax", b'x', b"9 size=4\n"));
    header[..5].copy_from_slice(b"w.png");
    header[124..136].fill(0);
    bytes.extend(sealed(header, b"four"));
    let payloads: Vec<_> = samples(&bytes).into_iter().map(|it| it.0).collect();
    assert_eq!(payloads, [&b"gnu"[..], b"pax", b"big", b"four"]);
}

#[test]
fn the_prefix_of_ustar_is_a_part_of_the_name() {
    let mut bytes = Vec::new();
    for folder in ["a", "b"] {
        let mut header = [0; BLOCK];
        header[..5].copy_from_slice(b"0.jpg");
        header[124..136].copy_from_slice(b"00000000001\0");
        header[257..263].copy_from_slice(b"ustar\0");
        header[345..346].copy_from_slice(folder.as_bytes());
        bytes.extend(sealed(header, folder.as_bytes()));
    }
    // Two samples, since their folders differ; else it would be one with two images.
    assert_eq!(samples(&bytes), [(b"a".to_vec(), 0), (b"b".to_vec(), 0)]);
}

#[test]
fn what_cannot_be_read_is_named_with_its_place() {
    let good = archive(&[("0.jpg", &[9; 100])]);
    let mut damaged = good.clone();
    damaged[3] ^= 1;
    assert!(refusal(&damaged).starts_with("`/data/s/0.tar` byte 0: not the header"));
    assert!(refusal(&good[..600]).contains("beyond the end of the archive"));
    assert!(refusal(&good[..100]).contains("ends too early"));
    assert!(refusal(&archive(&[("0.jpg", b""), ("0.png", b"")])).contains("two images"));
    assert!(refusal(&archive(&[("0.jpg", b""), ("0.cls", b"-2")])).contains("\"-2\""));
    assert!(refusal(&member("s.jpg", b'S', b"")).contains("sparse"));
    assert!(refusal(&member("pax", b'x', b"99 a=b\n")).contains("extended header"));
    assert!(refusal(&archive(&[("0.txt", b"")])).starts_with("no image in `/data/s`"));
    assert!(refusal(&[0; 1024]).starts_with("no image"));
    // Next to data that can be read, an archive of them is one file more.
    let storage =
        MemoryStorage::new().with("s/0.tar.gz", &good).with("s/a.jpg", b"image");
    assert_eq!(crate::find(&storage, "s").unwrap().n_ignored, 1);
    let storage = MemoryStorage::new().with("s/0.tar.gz", &good);
    for target in ["s", "s/0.tar.gz"] {
        let error = crate::find(&storage, target).unwrap_err().to_string();
        assert!(error.contains("compressed as a whole"), "{error}");
    }
}

/// An archive that was cut after a member, and one without the blocks of zeros, are whole.
#[test]
fn an_archive_may_end_behind_a_member() {
    let bytes = member("0.jpg", b'0', &[5; 512]);
    assert_eq!(samples(&bytes), [(vec![5; 512], 0)]);
    assert_eq!(samples(&member("0.jpg", b'0', b"x")[..513]), [(b"x".to_vec(), 0)]);
}
