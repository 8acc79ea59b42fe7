//! The conformance suite over what needs no server; `tests/tests/stores.rs` runs it over servers.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

use std::fs;
use std::sync::Arc;

use bothends_storage::conformance::{Marks, Subject, all};
use bothends_storage::{Double, Folder};

#[test]
fn the_double_keeps_the_contract() {
    let double = Arc::new(Double::new());
    let objects = Arc::<Double>::clone(&double);
    let put = Box::new(move |name: &str, bytes: &[u8]| double.put(name, bytes.to_vec()));
    all(&Subject { objects, put, marks: Marks::Versions });
}

#[test]
fn a_folder_keeps_the_contract() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().to_owned();
    let put = Box::new(move |name: &str, bytes: &[u8]| {
        let full = path.join(name);
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        fs::write(full, bytes).unwrap();
    });
    let objects = Arc::new(Folder(root.path().to_owned()));
    all(&Subject { objects, put, marks: Marks::Versions });
}
