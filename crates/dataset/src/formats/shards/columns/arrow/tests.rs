//! Files of the fixtures, in folders as people have them.

use bothends_core::ids::SampleId;

use super::*;
use crate::conformance::{self, MemoryStorage};

const FIRST: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/fixtures/shards/arrow/data-00000-of-00002.arrow"
));
const SECOND: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/fixtures/shards/arrow/data-00001-of-00002.arrow"
));

fn storage(files: &[(&str, &[u8])]) -> MemoryStorage {
    files.iter().fold(MemoryStorage::new(), |all, (name, bytes)| all.with(name, bytes))
}

fn refusal(files: &[(&str, &[u8])]) -> String {
    crate::find(&storage(files), "s").unwrap_err().to_string()
}

#[test]
fn files_come_in_the_order_that_save_to_disk_states_else_by_name() {
    let state = br#"{"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}]}"#;
    let files = [("s/a.arrow", FIRST), ("s/b.arrow", SECOND)];
    let first_file = |files: &[(&str, &[u8])]| {
        let storage = storage(files);
        let found = crate::find(&storage, "s").unwrap();
        conformance::check(&storage, &found);
        assert_eq!((found.format, found.table.n_samples()), (Format::Arrow, 7));
        let classes: Vec<_> = found.table.class_names().collect();
        assert_eq!(classes, ["class-0", "class-1", "class-2"]);
        found.table.file_path(found.table.extent(SampleId(0)).file)
    };
    assert_eq!(first_file(&files), "s/a.arrow");
    let stated = [files[0], files[1], ("s/state.json", state)];
    assert_eq!(first_file(&stated), "s/b.arrow");
    let cached = [files[0], files[1], ("s/cache-0123.arrow", b"of a map")];
    assert_eq!(first_file(&cached), "s/a.arrow");
    let alone = crate::find(&storage(&files), "s/b.arrow").unwrap();
    assert_eq!(alone.table.n_samples(), 3);
}

#[test]
fn folders_that_cannot_be_one_data_set_are_named() {
    let splits = [("s/x-train.arrow", FIRST), ("s/x-test-00000-of-00001.arrow", SECOND)];
    let error = refusal(&splits);
    assert!(error.contains("several splits (test, train)"), "{error}");
    let error = refusal(&[("s/dataset_dict.json", b"{}"), ("s/train/data.arrow", FIRST)]);
    assert!(error.contains("give the folder of one of them"), "{error}");
    let stated = |state: &[u8]| refusal(&[("s/a.arrow", FIRST), ("s/state.json", state)]);
    let twice = br#"{"_data_files": [{"filename": "a.arrow"}, {"filename": "a.arrow"}]}"#;
    assert!(stated(twice).contains("listed twice"));
    assert!(stated(br#"{"_data_files": [{"filename": "../a"}]}"#).contains("leads up"));
    assert!(stated(b"{").contains("not the list"));
    let mut other = SECOND.to_vec();
    let at = other.windows(7).position(|name| name == b"class-2").unwrap();
    other[at + 6] = b'9';
    let error = refusal(&[("s/a.arrow", FIRST), ("s/b.arrow", &other)]);
    assert!(error.starts_with("`/data/s/b.arrow`"), "{error}");
    assert!(error.contains("differ from the 3"), "{error}");
}

/// Two children of each field are the same one, so that thirty fields unfold into a billion.
#[test]
fn a_schema_that_unfolds_without_end_is_refused() {
    const FIELD_VTABLE: u32 = 32;
    const FIELD: u32 = 48;
    let head = [
        // Where the schema is, and its vtable: the fields come second.
        &[16_u8, 0, 0, 0, 8, 0, 8, 0, 0, 0, 4, 0, 0, 0, 0, 0][..],
        // The schema: back to the vtable, on to a vector of one field.
        &[12, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 20, 0, 0, 0],
        // The vtable of every field: its type is third, its children are sixth.
        &[16, 0, 12, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 4, 0],
    ];
    let mut bytes = head.concat();
    for level in 0..30 {
        let at = FIELD + 24 * level;
        // Back to the vtable, on to the children, a structure; of two children both are next. The last
        // is a number.
        let kind = if level < 29 { 13 } else { 2 };
        for number in [at - FIELD_VTABLE, 8, kind, 2, 8, 4] {
            bytes.extend(number.to_le_bytes());
        }
    }
    bytes.extend([0; 64]);
    let table = Table::root(&bytes).unwrap();
    let error = Layout::of(&table).unwrap_err();
    assert!(error.contains("more than 65536 columns"), "{error}");
}
