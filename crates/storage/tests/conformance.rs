//! The conformance suite over what needs no server; `tests/tests/stores.rs` runs it over servers.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

use std::fs;
use std::ops::Range;
use std::sync::Arc;

use bothends_storage::conformance::{Marks, Subject, all, each_listed};
use bothends_storage::{
    Arrivals, BoxFuture, BoxStream, Double, Folder, Identity, Listed, Objects,
    StorageError, Together, View,
};
use futures_util::StreamExt;

#[test]
fn the_double_keeps_the_contract() {
    let double = Arc::new(Double::new());
    let objects = Arc::<Double>::clone(&double);
    let put = Box::new(move |name: &str, bytes: &[u8]| double.put(name, bytes.to_vec()));
    all(&Subject { objects, put, marks: Marks::Versions });
}

#[test]
fn several_locations_together_keep_the_contract() {
    let doubles = [Arc::new(Double::new()), Arc::new(Double::new())];
    let [a, b] = doubles.clone();
    let named = vec![("a".to_owned(), a as Arc<dyn Objects>), ("b".to_owned(), b)];
    let together = Arc::new(Together::new(named));
    doubles[0].put("x/1", "of a");
    doubles[1].put("x/1", "of b, and longer");
    let mut listed = Vec::new();
    for prefix in ["", "a", "b/x", "b/y", "c", "ab/"] {
        let mut names = Vec::new();
        each_listed(&*together, prefix, &mut |one| names.push(one.unwrap().name));
        names.sort();
        listed.push(names.join(" "));
    }
    assert_eq!(listed, ["a/x/1 b/x/1", "a/x/1", "b/x/1", "", "", ""]);
    let view = View::start(Arc::<Together>::clone(&together)).unwrap();
    assert_eq!(view.identity("b/x/1").unwrap().len, 16);
    assert!(view.identity("c/x").is_err() && view.identity("x").is_err());
    // All that a caller may ask of one location holds for it below its name.
    let inside = Arc::new(Inside(together));
    doubles[1].remove("x/1");
    let second = Arc::clone(&doubles[1]);
    let put = Box::new(move |name: &str, bytes: &[u8]| second.put(name, bytes.to_vec()));
    all(&Subject { objects: inside, put, marks: Marks::Versions });
}

/// The second location, as the whole has it.
#[derive(Debug)]
struct Inside(Arc<Together>);

impl Objects for Inside {
    fn get_ranges<'a>(
        &'a self,
        object: &'a str,
        ranges: &'a [Range<u64>],
        expected: Option<&'a Identity>,
    ) -> Arrivals<'a> {
        let full: &'a str = Box::leak(format!("b/{object}").into_boxed_str());
        self.0.get_ranges(full, ranges, expected)
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxStream<'a, Result<Listed, StorageError>> {
        let full: &'a str = Box::leak(format!("b/{prefix}").into_boxed_str());
        let own = |one: Listed| Listed { name: one.name[2..].to_owned(), ..one };
        self.0.list(full).map(move |one| one.map(own)).boxed()
    }

    fn identify<'a>(
        &'a self,
        object: &'a str,
    ) -> BoxFuture<'a, Result<Identity, StorageError>> {
        let full: &'a str = Box::leak(format!("b/{object}").into_boxed_str());
        self.0.identify(full)
    }

    fn shown(&self, object: &str) -> String {
        self.0.shown(&format!("b/{object}"))
    }
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
