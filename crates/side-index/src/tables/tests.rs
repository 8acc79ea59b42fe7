//! What is kept is what a walk finds; whatever is wrong with it is a walk.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use bothends_dataset::conformance::MemoryStorage;
use bothends_dataset::{Entry, Kind};
use tempfile::TempDir;

use super::*;

/// Files in memory, and how often they were read.
#[derive(Debug)]
struct Counted(MemoryStorage, AtomicU64);

impl Storage for Counted {
    fn kind(&self, path: &str) -> io::Result<Kind> {
        self.0.kind(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        self.0.list(path)
    }

    fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read(path, offset, dst)
    }

    fn versions(&self, path: &str) -> io::Result<Option<Vec<Version>>> {
        self.0.versions(path)
    }

    fn shown(&self, path: &str) -> String {
        format!("s3://bucket/{path}")
    }
}

/// A file of datadings with so many samples of this label.
fn samples(n: usize, label: u8) -> Vec<u8> {
    [&b"\x82\xa5image\xc4\x02ab\xa5label"[..], &[label]].concat().repeat(n)
}

fn storage(files: &[(&str, &[u8])]) -> Counted {
    let files = files
        .iter()
        .fold(MemoryStorage::new(), |files, (path, bytes)| files.with(path, bytes));
    Counted(files.with_versions(), AtomicU64::new(0))
}

fn cache(root: &TempDir) -> Cache {
    Cache { root: root.path().join("tables"), limit_bytes: 1 << 20 }
}

/// What is found, and whether the shards were walked through.
fn found(storage: &Counted, root: &TempDir) -> (Found, bool) {
    storage.1.store(0, Ordering::Relaxed);
    let found = find(storage, "s", Some(cache(root))).unwrap();
    (found, storage.1.load(Ordering::Relaxed) > 0)
}

fn file(root: &TempDir) -> PathBuf {
    let mut folders = fs::read_dir(root.path().join("tables")).unwrap().flatten();
    let folder = folders.find(|entry| entry.path().is_dir()).unwrap();
    folder.path().join(FILE)
}

#[test]
fn shards_are_walked_through_once() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(&[("s/0.msgpack", &samples(300, 1)), ("s/1.msgpack", b"")]);
    let (first, walked) = found(&storage, &root);
    assert!(walked);
    let (again, walked) = found(&storage, &root);
    assert!(!walked);
    assert_eq!(again.table, first.table);
    assert_eq!(
        (again.format, again.n_ignored, again.note),
        (Format::Datadings, 0, first.note)
    );
    let names = fs::read_dir(file(&root).parent().unwrap()).unwrap().flatten();
    assert_eq!(names.count(), 2, "the table, and whose it is");
    // Who uses it keeps it from making room for others.
    let owner = file(&root).with_file_name("data-set");
    let long_ago = SystemTime::now() - Duration::from_secs(1 << 20);
    fs::File::options().write(true).open(&owner).unwrap().set_modified(long_ago).unwrap();
    found(&storage, &root);
    assert!(
        fs::metadata(owner).unwrap().modified().unwrap()
            > long_ago + Duration::from_secs(1 << 10)
    );
}

#[test]
fn a_changed_file_is_walked_through_again() {
    let root = tempfile::tempdir().unwrap();
    let base = samples(300, 1);
    found(&storage(&[("s/0.msgpack", &base)]), &root);
    let other = samples(300, 2);
    for files in [
        &[("s/0.msgpack", &other[..])][..],
        &[("s/0.msgpack", &base), ("s/1.msgpack", &base)],
        &[("s/2.msgpack", &base)],
    ] {
        let storage = storage(files);
        let (changed, walked) = found(&storage, &root);
        assert!(walked, "{files:?}");
        assert_eq!(changed.table, bothends_dataset::find(&storage, "s").unwrap().table);
        assert!(!found(&storage, &root).1);
    }
}

#[test]
fn damaged_and_foreign_tables_are_walks() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(&[("s/0.msgpack", &samples(300, 1))]);
    let (first, _) = found(&storage, &root);
    let file = file(&root);
    let whole = fs::read(&file).unwrap();
    let walked = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let (found, walked) = found(&storage, &root);
        assert_eq!(found.table, first.table);
        walked
    };
    assert!(!walked(&whole));
    for at in (0..whole.len()).step_by(97).chain([0, 8, 40, 71, 72, whole.len() - 1]) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        assert!(walked(&changed), "byte {at}");
    }
    for end in [0, 7, 71, 72, whole.len() - 1] {
        assert!(walked(&whole[..end]), "{end} bytes");
    }
    // All right but the seal: who may write the file has not the key.
    let theirs = Key::at(&root.path().join("theirs")).unwrap();
    let (begin, body) = (&whole[..SEAL_AT], &whole[HEADER_BYTES..]);
    let seal = theirs.seal(Use::Tables, [begin, body]);
    assert!(walked(&[begin, &seal, body].concat()));
    // Ours, in a file that others may write.
    fs::write(&file, &whole).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    fs::set_permissions(&file, mode).unwrap();
    assert!(found(&storage, &root).1);
    assert!(!found(&storage, &root).1, "it was replaced");
}

#[test]
fn what_cannot_be_kept_costs_nothing_but_the_walk() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(&[("s/0.msgpack", &samples(300, 1))]);
    let small = Cache { limit_bytes: 4096, ..cache(&root) };
    let nowhere = Cache { root: "/dev/null/tables".into(), ..cache(&root) };
    for cache in [None, Some(small), Some(nowhere)] {
        for _ in 0..2 {
            let before = storage.1.load(Ordering::Relaxed);
            find(&storage, "s", cache.clone()).unwrap();
            assert!(storage.1.load(Ordering::Relaxed) > before, "{cache:?}");
        }
    }
    let few = self::storage(&[("s/0.msgpack", &samples(255, 1))]);
    assert!(found(&few, &root).1 && found(&few, &root).1);
}

/// What a process left that was killed between the two names of a table goes; two that write at once leave one.
#[test]
fn killed_and_parallel_writers_leave_one_table() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(&[("s/0.msgpack", &samples(300, 1))]);
    found(&storage, &root);
    let file = file(&root);
    fs::rename(&file, file.with_file_name("shards.1-2.table")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| find(&storage, "s", Some(cache(&root))).unwrap());
        }
    });
    assert!(!found(&storage, &root).1);
    let names = fs::read_dir(file.parent().unwrap()).unwrap().flatten();
    assert_eq!(
        names.filter(|entry| is_table(entry.file_name().to_str().unwrap())).count(),
        1
    );
}

/// Files in memory whose first read says so and waits for a word.
#[derive(Debug)]
struct Held(Counted, Mutex<(Sender<()>, Receiver<()>)>);

impl Storage for Held {
    fn kind(&self, path: &str) -> io::Result<Kind> {
        self.0.kind(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        self.0.list(path)
    }

    fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()> {
        if self.0.1.load(Ordering::Relaxed) == 0 {
            let held = self.1.lock().unwrap();
            held.0.send(()).unwrap();
            held.1.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        self.0.read(path, offset, dst)
    }

    fn versions(&self, path: &str) -> io::Result<Option<Vec<Version>>> {
        self.0.versions(path)
    }

    fn shown(&self, path: &str) -> String {
        self.0.shown(path)
    }
}

/// As the ranks of a machine, which start at the same time.
#[test]
fn one_of_several_walks_through_shards_and_the_others_wait_for_its_table() {
    let root = tempfile::tempdir().unwrap();
    let bytes = samples(300, 1);
    let ((begun, begins), (go, held)) = (mpsc::channel(), mpsc::channel());
    let first = Held(storage(&[("s/0.msgpack", &bytes)]), Mutex::new((begun, held)));
    let others = [0; 3].map(|_| storage(&[("s/0.msgpack", &bytes)]));
    let open = |storage: &dyn Storage| find(storage, "s", Some(cache(&root))).unwrap();
    std::thread::scope(|scope| {
        let walk = scope.spawn(|| open(&first));
        begins.recv_timeout(Duration::from_secs(60)).unwrap();
        let waits = others.each_ref().map(|other| scope.spawn(|| open(other)));
        go.send(()).unwrap();
        let table = walk.join().unwrap().table;
        for wait in waits {
            assert_eq!(wait.join().unwrap().table, table);
        }
    });
    assert!(others.iter().all(|other| other.1.load(Ordering::Relaxed) == 0));
    let names = fs::read_dir(file(&root).parent().unwrap()).unwrap().flatten();
    assert_eq!(names.count(), 2, "the table, and whose it is");
}

#[test]
fn a_file_that_has_just_changed_may_change_unseen() {
    let now = SystemTime::now();
    let ns = i128::try_from(now.duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap();
    let changed = |ago_ns: i128| Version {
        name: String::new(),
        len: 0,
        changed_ns: Some(ns - ago_ns),
        tag: String::new(),
    };
    assert!(is_settled(&[changed(2_100_000_000)], now));
    // Some file systems have times of whole seconds.
    assert!(!is_settled(&[changed(2_100_000_000), changed(1_900_000_000)], now));
    assert!(!is_settled(&[changed(-1)], now), "a clock that is ahead");
}
