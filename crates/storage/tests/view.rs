//! The view over the double: the same files as a storage in memory, and few requests.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bothends_dataset::conformance::{MemoryStorage, same_storage};
use bothends_dataset::{Kind, Storage};
use bothends_storage::{
    Answer, Arrivals, Double, Identity, Listed, Objects, StorageError, View,
};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};

#[test]
fn a_view_is_a_storage_like_its_twin_in_memory() {
    let (mut double, mut twin) = (Double::new(), MemoryStorage::new());
    let long: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let files: [(&str, &[u8]); 7] = [
        ("a", b"0123"),
        ("b/c", b""),
        ("b/d/\u{e4}.jpg", b"5"),
        ("b-", b"after b and before its files"),
        ("b0", b"x"),
        ("c d/e", b"67"),
        ("long", &long),
    ];
    for (path, bytes) in files {
        double = double.with(path, bytes.to_vec());
        twin = twin.with(path, bytes);
    }
    let view = View::start(Arc::new(double)).unwrap();
    same_storage(&view, &twin);
    for (path, bytes) in files {
        // Without a listing, too.
        assert_eq!(view.kind(path).unwrap(), Kind::File { len: bytes.len() as u64 });
    }
    let error = view.read("a", 2, &mut [0; 3]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    for gone in ["gone", "b/d/gone", "../a", "a/"] {
        assert_eq!(view.kind(gone).unwrap_err().kind(), ErrorKind::NotFound, "{gone}");
    }
}

#[test]
fn one_listing_and_a_few_windows_serve_many_small_reads() {
    let long: Vec<u8> = (0..4_000_000_u32).map(|at| (at % 251) as u8).collect();
    let mut double = Double::new().with("shard", long.clone());
    for class in 0..50 {
        for image in 0..20 {
            double = double.with(&format!("{class:02}/{image}.jpg"), "x");
        }
    }
    let double = Arc::new(double);
    let view = View::start(Arc::<Double>::clone(&double)).unwrap();
    assert_eq!(view.list("").unwrap().len(), 51);
    for class in 0..50 {
        assert_eq!(view.list(&format!("{class:02}")).unwrap().len(), 20);
    }
    assert_eq!(double.n_asked(), 1);
    // As a tar's headers are read: 512 bytes every 5,120.
    for header in 0..780 {
        let mut dst = [0; 512];
        let at = header * 5120;
        view.read("shard", at, &mut dst).unwrap();
        let at = usize::try_from(at).unwrap();
        assert!(dst == long[at..at + 512]);
    }
    assert!(double.n_asked() < 10, "{}", double.n_asked());
}

/// Each keeps its window, as when one is read after another.
#[test]
fn as_many_files_as_are_walked_at_once_have_windows() {
    let long: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    let names: Vec<_> = (0..32).map(|nth| format!("{nth:02}.tar")).collect();
    let double = names.iter().fold(Double::new(), |it, name| it.with(name, long.clone()));
    let double = Arc::new(double);
    let view = View::start(Arc::<Double>::clone(&double)).unwrap();
    assert_eq!(view.list("").unwrap().len(), view.n_at_once());
    // Header by header, so that each file waits for all others.
    let step = Barrier::new(names.len());
    thread::scope(|scope| {
        for name in &names {
            scope.spawn(|| {
                for at in (0..195_usize).map(|header| header * 5120) {
                    step.wait();
                    let mut dst = [0; 512];
                    view.read(name, at as u64, &mut dst).unwrap();
                    assert!(dst == long[at..at + 512]);
                }
            });
        }
    });
    assert!(double.n_asked() <= 1 + 32 * 5, "{}", double.n_asked());
}

#[test]
fn versions_are_those_of_the_files_of_a_folder_without_its_folders() {
    let double =
        Double::new().with("s/0.tar", "x").with("s/1.tar", "yy").with("s/t/2", "");
    let view = View::start(Arc::new(double)).unwrap();
    let versions = view.versions("s").unwrap().unwrap();
    let names: Vec<_> = versions.iter().map(|it| (&*it.name, it.len)).collect();
    assert_eq!(names, [("0.tar", 1), ("1.tar", 2)]);
    assert_eq!(view.versions("s/1.tar").unwrap().unwrap(), versions[1..]);
}

#[test]
fn an_empty_object_with_a_folders_name_is_no_file() {
    let double = Double::new().with("cat", "").with("cat/1.jpg", "x");
    let view = View::start(Arc::new(double)).unwrap();
    let entries = view.list("").unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].kind, Kind::Folder);
    assert_eq!(view.kind("cat").unwrap(), Kind::Folder);
}

#[test]
fn a_failure_that_may_pass_is_tried_again_and_another_one_is_told() {
    let broken = || StorageError::Broken { place: "here".into(), why: "reset".into() };
    let denied =
        || StorageError::Denied { place: "here".into(), why: "no".into(), remedy: "ask" };
    let double = Double::answering(move |asked| match (&*asked.object, asked.number) {
        // More often than a few times.
        (_, 1..=4) => Answer::Fails(Duration::ZERO, broken()),
        ("secret", _) => Answer::Fails(Duration::ZERO, denied()),
        _ => Answer::After(Duration::ZERO),
    });
    let view =
        View::start(Arc::new(double.with("a", "0123").with("secret", ""))).unwrap();
    let mut dst = [0; 2];
    view.read("a", 1, &mut dst).unwrap();
    assert_eq!(&dst, b"12");
    let error = view.kind("secret").unwrap_err();
    assert_eq!(error.to_string(), "may not access `here` (no); ask");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
}

#[test]
fn a_store_that_asks_for_a_long_pause_is_not_waited_for() {
    let day = Duration::from_secs(86_400);
    let double = Double::answering(move |asked| match asked.range {
        Some(_) => {
            let (place, retry_after) = ("here".into(), Some(day));
            Answer::Fails(Duration::ZERO, StorageError::Throttled { place, retry_after })
        }
        None => Answer::After(Duration::ZERO),
    });
    let view = View::start(Arc::new(double.with("a", "0123"))).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || tell.send(view.read("a", 1, &mut [0; 2])));
    let error = told.recv_timeout(Duration::from_secs(60)).unwrap().unwrap_err();
    assert!(error.to_string().starts_with("the store limits requests"), "{error}");
}

/// The files that a list names, looked for in turn.
fn look_for_many(double: Double) -> u64 {
    let names: Vec<_> = (0..1000).map(|at| format!("s/{at}.jpg")).collect();
    let double = names.iter().fold(double, |double, name| double.with(name, "x"));
    let double = Arc::new(double);
    let view = View::start(Arc::<Double>::clone(&double)).unwrap();
    for name in names.iter().chain(&names) {
        assert_eq!(view.kind(name).unwrap(), Kind::File { len: 1 });
    }
    let error = view.kind("s/gone").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    double.n_asked()
}

#[test]
fn many_files_that_are_looked_for_cost_one_listing() {
    assert_eq!(look_for_many(Double::new()), 32 + 1);
}

/// All of a bucket was listed for a list that names files of a small part of it.
#[test]
fn of_many_files_that_are_looked_for_only_the_folder_is_listed() {
    for (name, listed) in [
        ((|at| format!("s/a/{at}.jpg")) as fn(u32) -> String, &["s/a/"][..]),
        // The class of an image is a folder: those of all of them are listed together.
        (|at| format!("s/a/{:02}/{at}.jpg", at / 40), &["s/a/00/", "s/a/"]),
        (|at| format!("{}/{at}.jpg", at % 3), &["1/", "2/", "0/"]),
        // So many folders are all that there is.
        (|at| format!("{at}/x.jpg"), &["31/", ""]),
        (|at| format!("{at}.jpg"), &[""]),
    ] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let prefixes = Arc::clone(&asked);
        let double = Double::answering(move |asked| {
            if asked.object.is_empty() || asked.object.ends_with('/') {
                prefixes.lock().unwrap().push(asked.object.clone());
            }
            Answer::After(Duration::ZERO)
        });
        let names: Vec<_> = (0..200).map(name).collect();
        let double = names.iter().fold(double, |double, name| double.with(name, "x"));
        let view = View::start(Arc::new(double.with("raw/0.bin", "x"))).unwrap();
        // A format looks for its index first.
        assert!(view.kind("index.json").is_err());
        asked.lock().unwrap().clear();
        for name in &names {
            assert_eq!(view.kind(name).unwrap(), Kind::File { len: 1 });
        }
        assert_eq!(*asked.lock().unwrap(), listed, "{}", names[0]);
    }
}

#[test]
fn where_the_store_cannot_list_a_file_is_looked_for_once() {
    let double = Double::answering(|asked| match &*asked.object {
        "s/" | "s/gone/" => {
            let (place, why) = ("here".into(), "no listing".into());
            Answer::Fails(Duration::ZERO, StorageError::Refused { place, why })
        }
        _ => Answer::After(Duration::ZERO),
    });
    // All files, the listing that fails, the file that is not there and what lies below it.
    assert_eq!(look_for_many(double), 1000 + 1 + 2);
}

#[test]
fn a_file_that_was_looked_for_in_vain_has_no_bytes() {
    let view = View::start(Arc::new(Double::new().with("a", "0123"))).unwrap();
    for _ in 0..2 {
        assert_eq!(view.kind("gone").unwrap_err().kind(), ErrorKind::NotFound);
        let identity = view.identity("gone").unwrap();
        assert_eq!(identity, Identity { len: 0, modified: None, etag: None });
        let error = view.read("gone", 0, &mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    let error = view.identity("gone too").unwrap_err();
    assert!(matches!(error, StorageError::NotFound { .. }), "{error}");
    assert_eq!(view.identity("a").unwrap().len, 4);
}

#[test]
fn a_view_may_be_used_inside_a_runtime() {
    let view = View::start(Arc::new(Double::new().with("a", "0123"))).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let kind = runtime.block_on(async { view.kind("a").unwrap() });
    assert_eq!(kind, Kind::File { len: 4 });
}

/// A store whose listing never ends.
#[derive(Debug)]
struct Endless(Double);

impl Objects for Endless {
    fn get_ranges<'a>(
        &'a self,
        object: &'a str,
        ranges: &'a [Range<u64>],
        expected: Option<&'a Identity>,
    ) -> Arrivals<'a> {
        self.0.get_ranges(object, ranges, expected)
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxStream<'a, Result<Listed, StorageError>> {
        // The first name comes once; then the pages behind it forever.
        let first = self.0.list(prefix).take(1);
        let page = move |()| self.0.list(prefix).skip(1);
        Box::pin(first.chain(stream::repeat(()).flat_map(page)))
    }

    fn identify<'a>(
        &'a self,
        object: &'a str,
    ) -> BoxFuture<'a, Result<Identity, StorageError>> {
        self.0.identify(object)
    }

    fn shown(&self, object: &str) -> String {
        self.0.shown(object)
    }
}

#[test]
fn a_listing_that_begins_again_and_again_is_refused() {
    let names = (0..100).map(|n| format!("{n:02}"));
    let double = names.fold(Double::new(), |double, name| double.with(&name, "0"));
    let endless = Endless(double);
    let error = View::start(Arc::new(endless)).unwrap().list("").unwrap_err().to_string();
    assert!(error.contains("again and again"), "{error}");
}

/// It was waited for as long as such an object may take over the slowest link: forty seconds.
#[test]
fn a_store_that_is_silent_is_not_waited_for_however_long_the_object_is() {
    let silent = |asked: &bothends_storage::Asked| match asked.range {
        Some(_) => Answer::Never,
        None => Answer::After(Duration::ZERO),
    };
    let length = 4 << 20;
    let double = Arc::new(Double::answering(silent).with("a", vec![0; length]));
    let view = View::start(Arc::<Double>::clone(&double)).unwrap();
    let began = Instant::now();
    let error = view.read("a", 0, &mut vec![0; length]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // The identity, and three attempts.
    assert_eq!(double.n_asked(), 1 + 3);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}
