//! The bytes of `preprocess_batch_v1`, as both sides have them.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use bothends_nvme::Status;
use bothends_nvme::preprocess::{
    Groups, Head, Item, Kind, Made, Outcome, PROGRAM, Parameters, Part, Results,
};

const HEAD: Head = Head {
    kind: Kind::Planar { channels: 3, height: 32, width: 33 },
    n_items: 2,
    sample_bytes: 0x0102_0304,
    seed: 0x1112_1314_1516_1718,
    epoch: 7,
    recipe_hash: 0x2122_2324_2526_2728_292a_2b2c_2d2e_2f20,
    recipe: Part { at: 96, bytes: 1000 },
    items_at: 1096,
    results_at: 64,
};

fn words(bytes: &[u8]) -> Vec<u32> {
    let (words, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    words.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

#[test]
fn a_head_has_these_bytes() {
    let mut expected = vec![
        u32::from_le_bytes(*b"BEPB"),
        0x0001_0001,
        2,
        0x0102_0304,
        0x1516_1718,
        0x1112_1314,
        0x2d2e_2f20,
        0x292a_2b2c,
        0x2526_2728,
        0x2122_2324,
        7,
        96,
        1000,
        1096,
        64,
        3,
        32,
        33,
    ];
    expected.resize(24, 0);
    assert_eq!(words(&HEAD.bytes()), expected);
    let parameters = Parameters(0x1_0000_0002, 0x0102_0304);
    assert_eq!(HEAD.parameters(), parameters);
    assert_eq!(Head::read(&HEAD.bytes(), parameters), Ok(HEAD));
    for kind in [Kind::Image, Kind::Opaque] {
        let head = Head { kind, ..HEAD };
        assert_eq!(Head::read(&head.bytes(), parameters), Ok(head));
    }
    // Magic, version, kind.
    for (at, value) in [(0, 0), (4, 2), (6, 3), (7, 1)] {
        let mut bytes = HEAD.bytes();
        bytes[at] = value;
        assert_eq!(Head::read(&bytes, parameters), Err(Status::INVALID_FIELD));
    }
    assert_eq!(PROGRAM.to_le_bytes(), *b"batch-v1");
}

#[test]
fn an_item_has_these_bytes() {
    let groups = Groups {
        profile: Part { at: 1, bytes: 2 },
        head: Part { at: 3, bytes: 4 },
        first: 5,
    };
    let item = Item {
        sample: 0x1_0000_0009,
        record: Part { at: 4096, bytes: 10 },
        out_at: 8192,
        checksum: Some(0x3132_3334_3536_3738),
        groups: Some(groups),
    };
    assert_eq!(
        words(&item.bytes()),
        [9, 1, 4096, 10, 8192, 3, 0x3536_3738, 0x3132_3334, 1, 2, 3, 4, 5, 0]
    );
    for item in [item, Item { checksum: None, groups: None, ..item }] {
        assert_eq!(Item::read(&item.bytes()), Some(item));
    }
    let mut bytes = item.bytes();
    bytes[20] = 4;
    assert_eq!(Item::read(&bytes), None, "an unknown flag");
    assert_eq!(Item::read(&bytes[1..]), None);
    assert_eq!(HEAD.item(1), Some(Part { at: 1096 + 56, bytes: 56 }));
    assert_eq!(HEAD.item(u32::MAX), None);
}

#[test]
fn results_have_these_bytes() {
    let results = Results {
        n_items: 2,
        n_failed: 1,
        checksum: 3 << 32 | 4,
        coded_bytes: 5,
        pixels: 6 << 32,
    };
    assert_eq!(words(&results.bytes()), [2, 1, 4, 3, 5, 0, 0, 6]);
    assert_eq!(Results::read(&results.bytes()), Some(results));
    assert_eq!(Results::read(&[0; 31]), None);
    let made = Made { outcome: Outcome::Beyond, pixels: 1 << 33 };
    assert_eq!(words(&made.bytes()), [4, 0, 0, 2]);
    assert_eq!(Made::read(&made.bytes()), Some(made));
    let mut bytes = made.bytes();
    bytes[0] = 6;
    assert_eq!(Made::read(&bytes), None, "an outcome that nobody knows");
    assert_eq!(HEAD.made(1), Some(Part { at: 64 + 32 + 16, bytes: 16 }));
}
