//! Files made by hand: orders of fields, what is refused, damage.

use bothends_core::ids::SampleId;

use super::*;
use crate::conformance::{self, MemoryStorage};

const FIXTURE: &[u8] =
    include_bytes!("../../../../../../tests/fixtures/shards/beton/train.beton");

/// A file with these fields (kind, name, where in a row of so many bytes), and rows with an image of two bytes.
fn file(fields: &[(u8, &str)], rows: &[Vec<u8>]) -> Vec<u8> {
    let n_fields = u16::try_from(fields.len()).unwrap();
    let mut bytes =
        [&2_u16.to_le_bytes()[..], &n_fields.to_le_bytes(), &[0; 20]].concat();
    for (kind, name) in fields {
        let mut field = vec![0; 1041];
        field[0] = *kind;
        field[1..][..name.len()].copy_from_slice(name.as_bytes());
        bytes.extend(field);
    }
    let data = bytes.len() + rows.iter().map(Vec::len).sum::<usize>();
    for row in rows {
        // What stands for a place is one in the pages.
        let at = row.windows(2).position(|pair| pair == b"@@").unwrap();
        let mut row = row.clone();
        row[at..][..8].copy_from_slice(&(data as u64).to_le_bytes());
        bytes.extend(row);
    }
    bytes.extend(b"ab");
    let table = bytes.len() as u64;
    bytes[8..16].copy_from_slice(&(rows.len() as u64).to_le_bytes());
    bytes[16..24].copy_from_slice(&table.to_le_bytes());
    for number in [0, data as u64, 2] {
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

fn found(bytes: &[u8]) -> Result<Found, DatasetError> {
    let storage = MemoryStorage::new().with("s/0.beton", bytes);
    let found = crate::find(&storage, "s")?;
    conformance::check(&storage, &found);
    Ok(found)
}

fn refusal(bytes: &[u8]) -> String {
    found(bytes).unwrap_err().to_string()
}

const IMAGE_FIELD: &[u8] = b"\x00\x01\x00\x01\x00@@@@@@@@";

#[test]
fn rows_are_aligned_as_numpy_aligns_them() {
    let label = 9_u64.to_le_bytes();
    // An image first, then a number at 16; then a float, an image, bytes, a number at 40.
    let cases = [
        (vec![(2, "image"), (1, "label")], [IMAGE_FIELD, &[0; 3], &label].concat()),
        (
            vec![(0, "weight"), (2, "photo"), (3, "text"), (1, "cls")],
            [&[0; 8], IMAGE_FIELD, &[0; 16], &[0; 3], &label].concat(),
        ),
        (vec![(1, "target"), (2, "x")], [&label, IMAGE_FIELD, &[0; 3]].concat()),
    ];
    for (fields, row) in cases {
        let found = found(&file(&fields, &[row])).unwrap();
        assert_eq!(found.table.label(SampleId(0)).0, 9, "{fields:?}");
        assert_eq!(found.table.extent(SampleId(0)).len, 2);
    }
    let alone = found(&file(&[(2, "image")], &[IMAGE_FIELD.to_vec()])).unwrap();
    assert_eq!(alone.note, Some("the shards have no labels: every label is 0"));
}

#[test]
fn what_cannot_be_read_is_named_with_its_place() {
    let row = |label: i64| [IMAGE_FIELD, &[0; 3], &label.to_le_bytes()].concat();
    let fields = [(2, "image"), (1, "label")];
    let error = refusal(&file(&fields, &[row(-2)]));
    assert!(error.contains("the class -2 is not a number"), "{error}");
    let without = found(&file(&fields, &[row(-1), row(7)])).unwrap();
    assert_eq!(without.note, Some("some samples have no label; it is taken as 0"));
    let mut raw = row(0);
    raw[0] = 1;
    let error = refusal(&file(&fields, &[row(0), raw.clone()]));
    assert!(error.contains("byte 2130: an image is kept as raw pixels"), "{error}");
    assert!(error.contains("write_mode=\"jpg\""), "{error}");
    raw[0] = 2;
    assert!(refusal(&file(&fields, &[raw])).contains("the mode 2"));
    let error = refusal(&file(&[(2, "image"), (255, "boxes")], &[row(0)]));
    assert!(error.contains("the field `boxes` has a custom type"), "{error}");
    let two = refusal(&file(&[(2, "left"), (2, "right")], &[row(0)]));
    assert!(two.contains("2 are for images"), "{two}");
    let mut old = file(&fields, &[row(0)]);
    old[0] = 1;
    assert!(refusal(&old).contains("it says 1"));
    let mut elsewhere = file(&fields, &[row(0)]);
    elsewhere[2106 + 5] ^= 1;
    assert!(refusal(&elsewhere).contains("not in the table of allocations"));
}

/// An empty bytes field has the place of the image that was written after it.
#[test]
fn an_empty_field_does_not_hide_the_image_at_its_place() {
    let row = [&[0; 16], IMAGE_FIELD].concat();
    let fields = [(3, "text"), (2, "image"), (3, "more"), (3, "last")];
    let row = [row, vec![0; 32]].concat();
    let whole = file(&fields, &[row]);
    let place = whole[whole.len() - 16..][..8].to_vec();
    let line = |len: u64| [&[0; 8], &place[..], &len.to_le_bytes()].concat();
    // Whatever the order, and wherever a search in the table begins.
    let (image, rest) = (line(2), whole[..whole.len() - 24].to_vec());
    for nth in 0..4 {
        let mut lines = vec![line(0); 3];
        lines.insert(nth, image.clone());
        let found = found(&[rest.clone(), lines.concat()].concat()).unwrap();
        assert_eq!(found.table.extent(SampleId(0)).len, 2);
    }
    let error = refusal(&[rest, image, line(1)].concat());
    assert!(error.contains("several lengths for the same bytes"), "{error}");
}

#[test]
fn damage_is_an_error_and_never_more() {
    found(FIXTURE).unwrap();
    for end in (0..FIXTURE.len()).step_by(7).chain([FIXTURE.len() - 1]) {
        let _ = found(&FIXTURE[..end]);
    }
    let ends =
        (0..24).chain(2106..2106 + 7 * 24).chain(FIXTURE.len() - 7 * 24..FIXTURE.len());
    for at in ends {
        for flip in [1, 0x80, 0xff] {
            let mut changed = FIXTURE.to_vec();
            changed[at] ^= flip;
            let _ = found(&changed);
        }
    }
    assert!(refusal(&FIXTURE[..4000]).contains("do not fit the file"));
    let mut long = FIXTURE.to_vec();
    long.extend([0; 24 * 8]);
    assert!(refusal(&long).contains("more lines than there are fields"));
}
