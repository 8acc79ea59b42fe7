//! Lists that must be refused, from `tests/bad/dataset`: each file's first line is a good
//! one, and the name says what the error must contain (`-` for a blank).

#![allow(clippy::unwrap_used, reason = "tests")]

use bothends_dataset::conformance::MemoryStorage;
use bothends_dataset::{DatasetError, find};

#[test]
fn the_bad_lists_are_refused_by_line() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/bad/dataset");
    let mut n = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let reason = path.file_stem().unwrap().to_str().unwrap().replace('-', " ");
        let storage = MemoryStorage::new()
            .with("good.jpg", b"image")
            .with("list.jsonl", &std::fs::read(&path).unwrap());
        let error = find(&storage, "list.jsonl").unwrap_err();
        assert!(matches!(error, DatasetError::Line { line: 2, .. }), "{error}");
        assert!(error.to_string().contains(&reason), "{}: {error}", path.display());
        n += 1;
    }
    assert!(n >= 6, "only {n} bad lists found");
}
