//! Files made by hand: every form of MessagePack, values of NumPy, pickles, damage.

use bothends_core::ids::SampleId;

use super::*;
use crate::conformance::{self, MemoryStorage};

/// `{"key": "a", "image": 01 02 03, "label": 0}`, `{…: "b", "", 7}`, `{…: "cat/n01.JPEG", 300 zeros, 1000}`:
/// a test vector recomputed independently of datadings.
fn tiny() -> (Vec<u8>, Vec<u8>) {
    let mut bytes = Vec::new();
    for (key, image, label) in [
        (&b"\xa1a"[..], &b"\xc4\x03\x01\x02\x03"[..], &b"\x00"[..]),
        (b"\xa1b", b"\xc4\x00", b"\x07"),
        (
            b"\xaccat/n01.JPEG",
            &[&b"\xc5\x01\x2c"[..], &[0; 300]].concat(),
            b"\xcd\x03\xe8",
        ),
    ] {
        let parts = [b"\x83\xa3key", key, b"\xa5image", image, b"\xa5label", label];
        bytes.extend(parts.concat());
    }
    let offsets = [0_u64, 25, 47, 383].map(u64::to_be_bytes).concat();
    (bytes, offsets)
}

fn sample(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn found(bytes: &[u8], offsets: Option<&[u8]>) -> Result<Found, DatasetError> {
    let mut storage = MemoryStorage::new().with("s/0.msgpack", bytes);
    if let Some(offsets) = offsets {
        storage = storage.with("s/0.msgpack.offsets", offsets);
    }
    let found = crate::find(&storage, "s")?;
    conformance::check(&storage, &found);
    Ok(found)
}

fn labels(bytes: &[u8]) -> Vec<i64> {
    let found = found(bytes, None).unwrap();
    (0..found.table.n_samples()).map(|id| found.table.label(SampleId(id)).0).collect()
}

fn refusal(bytes: &[u8]) -> String {
    found(bytes, None).unwrap_err().to_string()
}

#[test]
fn samples_lie_where_the_offsets_say() {
    let (bytes, offsets) = tiny();
    for offsets in [None, Some(&offsets[..])] {
        let found = found(&bytes, offsets).unwrap();
        assert_eq!((found.format, found.n_ignored), (Format::Datadings, 0));
        let extents = (0..3).map(|id| {
            let extent = found.table.extent(SampleId(id));
            (extent.offset, extent.len, found.table.label(SampleId(id)).0)
        });
        assert_eq!(
            extents.collect::<Vec<_>>(),
            [(15, 3, 0), (40, 0, 7), (74, 300, 1000)]
        );
    }
}

#[test]
fn offsets_of_other_samples_are_noticed() {
    let (bytes, offsets) = tiny();
    for at in 0..offsets.len() {
        let mut changed = offsets.clone();
        changed[at] ^= 1;
        let error = found(&bytes, Some(&changed)).unwrap_err().to_string();
        assert!(error.contains("0.msgpack.offsets` byte"), "{error}");
        assert!(error.contains("are not where it says"), "{error}");
    }
    for len in [0, 8, 9, 24, 31] {
        found(&bytes, Some(&offsets[..len])).unwrap_err();
    }
    found(&bytes, Some(&[&offsets[..], &offsets[24..]].concat())).unwrap_err();
}

#[test]
fn numbers_of_every_width_and_of_numpy_are_classes() {
    let with = |label: &[u8]| sample(&[b"\x82\xa5image\xc4\x01x\xa5label", label]);
    let scalar = |kind: &str, data: &[u8]| {
        let lens = [0xa0 + u8::try_from(kind.len()).unwrap(), 0xc4];
        let data_len = [u8::try_from(data.len()).unwrap()];
        with(
            &[
                b"\x83\xc4\x02nd\xc2\xc4\x04type",
                &lens[..1],
                kind.as_bytes(),
                b"\xc4\x04data",
                &lens[1..],
                &data_len,
                data,
            ]
            .concat(),
        )
    };
    let samples = [
        with(b"\x7f"),
        with(b"\xcc\x80"),
        with(b"\xcd\x01\x00"),
        with(b"\xce\x00\x01\x00\x00"),
        with(b"\xcf\0\0\0\0\0\0\0\x05"),
        with(b"\xd2\0\0\0\x06"),
        scalar("<i8", &7_u64.to_le_bytes()),
        scalar("|u1", &[200]),
        scalar(">u2", &[1, 0]),
        // Not whole numbers from 0: no class.
        with(b"\xff"),
        with(b"\xd0\x80"),
        with(b"\xcb\0\0\0\0\0\0\0\0"),
        with(b"\xc0"),
        scalar("<i8", &(-1_i64).to_le_bytes()),
        scalar("<f4", &[0; 4]),
    ];
    let expected = [127, 128, 256, 65536, 5, 6, 7, 200, 256, 0, 0, 0, 0, 0, 0];
    assert_eq!(labels(&samples.concat()), expected);
    let error = refusal(&with(b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff"));
    assert!(error.contains("is not a number from 0 to 4294967295"), "{error}");
}

/// Fields that nobody asked for are passed over, whatever they are.
#[test]
fn other_fields_are_passed_over() {
    let bytes = sample(&[
        b"\xde\x00\x06",
        b"\xa3key\xd9\x01k",
        b"\xa5boxes\x92\x93\x01\x02\x03\x81\xa1a\x90",
        b"\xa3ext\xd5\x01\0\0",
        b"\xa4ext8\xc7\x02\x01\0\0",
        b"\x01\xca\0\0\0\0",
        b"\xa5image\xc6\0\0\0\x02ab",
    ]);
    let found = found(&bytes, None).unwrap();
    assert_eq!(found.table.extent(SampleId(0)).len, 2);
    assert_eq!(found.note, Some("the shards have no labels: every label is 0"));
}

#[test]
fn pickles_and_pixels_are_refused_by_name() {
    let array = |field: &[u8], kind: &[u8]| {
        sample(&[
            b"\x81",
            field,
            b"\x85\xc4\x02nd\xc3\xc4\x04type\xa3|u1\xc4\x04kind\xc4",
            kind,
            b"\xc4\x05shape\x91\x01\xc4\x04data\xc4\x01x",
        ])
    };
    for field in [&b"\xa5image"[..], b"\xa5label"] {
        let error = refusal(&array(field, b"\x01O"));
        assert!(
            error.contains("is a pickle") && error.contains("never opened"),
            "{error}"
        );
    }
    let error = refusal(&array(b"\xa5image", b"\x00"));
    assert!(error.contains("`image` is an array of pixels"), "{error}");
    let error = refusal(b"\x81\xa5label\x01");
    assert!(error.contains("a sample has no bytes called `image`"), "{error}");
    // The first sample decides which field is the image.
    let error = refusal(b"\x81\xa3png\xc4\x00\x81\xa3jpg\xc4\x00");
    assert!(error.contains("byte 7: a sample has no bytes called `png`"), "{error}");
    assert!(refusal(b"").contains("is empty"));
}

#[test]
fn damage_is_an_error_and_never_more() {
    let (bytes, _) = tiny();
    for end in 1..bytes.len() {
        assert!(found(&bytes[..end], None).is_err() || [25, 47].contains(&end), "{end}");
    }
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= flip;
            let _ = found(&changed, None);
        }
    }
    for hostile in [
        &b"\xc1"[..],
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa5image\xc6\xff\xff\xff\xff",
        b"\x81\xa1x\xdd\xff\xff\xff\xff",
        b"\x81\xa1x\xc9\xff\xff\xff\xff\x01",
        b"\x90",
    ] {
        found(hostile, None).unwrap_err();
    }
}
