//! A walk through several shards at the same time finds what one after another does, and no more are read at once
//! than the storage says.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::conformance::MemoryStorage;
use crate::{Ask, Found, find_fields};

/// Files in memory, and how many of them are being read.
#[derive(Debug)]
struct Counted {
    files: MemoryStorage,
    n_at_once: usize,
    /// A file's first read waits until so many are being read.
    n_wanted: usize,
    /// How many are, and the most that were.
    n_reads: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Counted {
    fn new(files: &MemoryStorage, n_at_once: usize, n_wanted: usize) -> Self {
        let (n_reads, changed) = (Mutex::default(), Condvar::new());
        Self { files: files.clone(), n_at_once, n_wanted, n_reads, changed }
    }
}

impl Storage for Counted {
    fn kind(&self, path: &str) -> io::Result<Kind> {
        self.files.kind(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        self.files.list(path)
    }

    fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()> {
        let mut n_reads = self.n_reads.lock().unwrap();
        n_reads.0 += 1;
        n_reads.1 = n_reads.1.max(n_reads.0);
        self.changed.notify_all();
        let deadline = Duration::from_secs(60);
        let few = |(_, most): &mut (usize, usize)| *most < self.n_wanted;
        let (mut n_reads, waited) =
            self.changed.wait_timeout_while(n_reads, deadline, few).unwrap();
        assert!(!waited.timed_out(), "{n_reads:?} of {} reads", self.n_wanted);
        n_reads.0 -= 1;
        drop(n_reads);
        self.files.read(path, offset, dst)
    }

    fn n_at_once(&self) -> usize {
        self.n_at_once
    }

    fn shown(&self, path: &str) -> String {
        self.files.shown(path)
    }
}

/// What is found, or the message.
fn found(storage: &dyn Storage, ask: &Ask) -> Result<Found, String> {
    find_fields(storage, "s", ask.clone()).map_err(|error| error.to_string())
}

/// Everything about a data set, to compare.
fn told(found: &Result<Found, String>) -> String {
    format!("{found:?}")
}

fn stored(shards: &[Vec<u8>], kind: &str) -> MemoryStorage {
    let files = shards.iter().enumerate();
    let files = files.map(|(nth, bytes)| (format!("s/{nth:03}.{kind}"), bytes));
    files.fold(MemoryStorage::new(), |storage, (name, bytes)| storage.with(&name, bytes))
}

/// A member of an archive.
fn member(name: &str, data: &[u8]) -> Vec<u8> {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
    header[148..157].copy_from_slice(b"        0");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut bytes = [&header, data].concat();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// Members of samples: name after the first dot, and bytes.
type Members = Vec<(&'static str, &'static str)>;

fn archive(samples: &[Members]) -> Vec<u8> {
    let samples = samples.iter().enumerate();
    let members = samples.flat_map(|(nth, members)| {
        members.iter().flat_map(move |(suffix, data)| match *suffix {
            "broken" => vec![b'x'; 512],
            "stray" => member("stray", b"of no sample"),
            _ => member(&format!("{nth}.{suffix}"), data.as_bytes()),
        })
    });
    let mut bytes: Vec<u8> = members.collect();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

fn archives() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let member = prop_oneof![
        4 => Just(("txt", "a dog")),
        4 => Just(("cls", "7")),
        2 => Just(("json", r#"{"label": 3}"#)),
        1 => Just(("json", "{not json")),
        1 => Just(("id", "12")),
        1 => Just(("id", "one")),
        1 => Just(("mask.png", "mask")),
        1 => Just(("stray", "")),
    ];
    let members = prop::collection::vec(member, 0..3);
    let image = prop_oneof![
        30 => Just(vec![("jpg", "image")]),
        2 => Just(vec![]),
        1 => Just(vec![("broken", "")]),
    ];
    let sample = (image, members).prop_map(|(image, rest)| [image, rest].concat());
    let samples = prop::collection::vec(sample, 0..5);
    prop::collection::vec(samples.prop_map(|samples| archive(&samples)), 1..9)
}

/// A field of a message.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()][..], bytes].concat()
}

/// A record of one example, whose features are bytes or a number.
fn record(features: &[(&str, Result<&str, u8>)]) -> Vec<u8> {
    let value = |value: &Result<&str, u8>| match value {
        Ok(bytes) => field(1, &field(1, bytes.as_bytes())),
        Err(number) => field(3, &field(1, &[*number])),
    };
    let features = features.iter().flat_map(|(name, it)| {
        field(1, &[field(1, name.as_bytes()), field(2, &value(it))].concat())
    });
    let example = field(1, &features.collect::<Vec<_>>());
    let len = (example.len() as u64).to_le_bytes();
    let sum = crc32c::crc32c(&len).rotate_right(15).wrapping_add(0xa282_ead8);
    [&len[..], &sum.to_le_bytes(), &example, &[0; 4]].concat()
}

fn records() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let image = prop_oneof![
        30 => Just(vec![("image", Ok("one"))]),
        3 => Just(vec![("image", Ok("one")), ("image/encoded", Ok("two"))]),
        1 => Just(vec![("jpeg", Ok("three"))]),
    ];
    let other = prop_oneof![
        6 => Just(("label", Err(3))),
        3 => Just(("n", Err(5))),
        1 => Just(("n", Ok("text"))),
    ];
    let features = (image, prop::collection::vec(other, 0..3));
    let record = prop_oneof![
        30 => features.prop_map(|(image, rest)| record(&[image, rest].concat())),
        1 => Just(vec![0; 40]),
    ];
    let records = prop::collection::vec(record, 0..5);
    prop::collection::vec(records.prop_map(|records| records.concat()), 1..9)
}

fn asks() -> impl Strategy<Value = Ask> {
    let named = |names: &[&str]| Ask::Fields(names.iter().map(|&it| it.into()).collect());
    prop_oneof![
        Just(Ask::Nothing),
        Just(Ask::Names),
        Just(named(&["txt"])),
        Just(named(&["cls", "n"])),
        Just(named(&["n"])),
        Just(named(&["label"])),
    ]
}

proptest! {
    #[test]
    fn archives_at_once_are_archives_one_after_another(
        shards in archives(),
        ask in asks(),
        n_at_once in 2..6_usize,
    ) {
        let files = stored(&shards, "tar");
        let [alone, at_once] = [1, n_at_once].map(|n| found(&Counted::new(&files, n, 1), &ask));
        prop_assert_eq!(told(&at_once), told(&alone));
    }

    #[test]
    fn records_at_once_are_records_one_after_another(
        shards in records(),
        ask in asks(),
        n_at_once in 2..6_usize,
    ) {
        let files = stored(&shards, "tfrecord");
        let [alone, at_once] = [1, n_at_once].map(|n| found(&Counted::new(&files, n, 1), &ask));
        prop_assert_eq!(told(&at_once), told(&alone));
    }
}

/// Names beyond those that are kept, in shards of their own.
#[test]
fn names_that_find_no_room_are_the_same() {
    let shard = |nth: usize| {
        let names = (0..2500).map(|n| format!("{nth}.{:04}", (nth * 1500 + n) % 7000));
        let members: Vec<u8> = names.flat_map(|name| member(&name, b"")).collect();
        [member(&format!("{nth}.jpg"), b"image"), members, vec![0; 1024]].concat()
    };
    let files = stored(&(0..4).map(shard).collect::<Vec<_>>(), "tar");
    let [alone, at_once] =
        [1, 3].map(|n| found(&Counted::new(&files, n, 1), &Ask::Names));
    assert_eq!(alone.as_ref().unwrap().names.len(), 4096);
    assert_eq!(told(&at_once), told(&alone));
}

#[test]
fn as_many_shards_are_read_at_once_as_the_storage_says() {
    let shards = vec![archive(&[vec![("jpg", "image"), ("cls", "7")]]); 12];
    let files = stored(&shards, "tar");
    for (n_at_once, n_wanted) in [(1, 1), (5, 5), (32, 12)] {
        // Fewer would wait in vain.
        let storage = Counted::new(&files, n_at_once, n_wanted);
        assert_eq!(found(&storage, &Ask::Nothing).unwrap().table.n_samples(), 12);
        assert_eq!(storage.n_reads.lock().unwrap().1, n_wanted);
    }
    let one = stored(&shards[..1], "tar");
    let storage = Counted::new(&one, 32, 1);
    assert_eq!(found(&storage, &Ask::Nothing).unwrap().table.n_samples(), 1);
}

/// Archives of which the first is bad and the others have no end that a test would live to see.
#[derive(Debug)]
struct Endless(MemoryStorage);

impl Storage for Endless {
    fn kind(&self, path: &str) -> io::Result<Kind> {
        match path {
            "s" | "s/000.tar" => self.0.kind(path),
            _ => Ok(Kind::File { len: 1 << 50 }),
        }
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        self.0.list(path)
    }

    fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()> {
        if path == "s/000.tar" {
            return self.0.read(path, offset, dst);
        }
        let header = member("0.txt", b"");
        dst.chunks_mut(512).for_each(|block| block.copy_from_slice(&header));
        Ok(())
    }

    fn n_at_once(&self) -> usize {
        4
    }

    fn shown(&self, path: &str) -> String {
        self.0.shown(path)
    }
}

#[test]
fn an_error_ends_the_walks_through_the_shards_after_it() {
    let shards = vec![archive(&[vec![("broken", "")]]); 12];
    let storage = Endless(stored(&shards, "tar"));
    let error = found(&storage, &Ask::Nothing).unwrap_err();
    assert!(error.contains("/data/s/000.tar"), "{error}");
}
