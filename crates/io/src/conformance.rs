//! The contract of [`Reader`] as functions to call, over any reader, any folder, direct or through the
//! page cache. Every byte is compared with the result of `std::fs::read`.
//!
//! The tests of a reader call [`all`]; each function can also be used separately. A check that fails
//! panics.

#![allow(
    clippy::missing_panics_doc,
    reason = "a check that fails panics: that is its use"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::{
    ALIGNMENT, Buffer, Direct, IoError, OpenFile, ReadDone, ReadInto, ReadRequest,
    Reader, ReaderConfig, ReaderKind, Refusal,
};

/// Longest wait for a read that must end, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to hold against the contract.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Opens the reader with the suite's own numbers.
    pub open: fn(&ReaderConfig) -> Result<Box<dyn Reader>, IoError>,
    /// How files are opened.
    pub direct: Direct,
    /// A folder for files of the suite's making.
    pub folder: PathBuf,
}

impl Subject {
    /// A reader with 8 places, 9 buffers of 64 KiB and records up to 4 MiB.
    fn reader(&self) -> Box<dyn Reader> {
        let config = ReaderConfig {
            kind: ReaderKind::Auto,
            depth: 8,
            buffer_bytes: 64 << 10,
            n_buffers: 9,
            max_record_bytes: 4 << 20,
        };
        (self.open)(&config).expect("the reader opens")
    }

    /// A file of `len` bytes that differ from place to place.
    fn file(&self, name: &str, len: usize) -> (Arc<OpenFile>, Vec<u8>) {
        let path = self.folder.join(name);
        let mut state = len as u64 ^ 0x9E37_79B9_7F4A_7C15;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .take(len)
        .collect();
        fs::write(&path, &bytes).expect("the folder takes files");
        (self.open_file(&path).expect("what was written opens"), bytes)
    }

    fn open_file(&self, path: &Path) -> Result<Arc<OpenFile>, IoError> {
        OpenFile::open(path, self.direct).map(Arc::new)
    }
}

/// All checks.
pub fn all(subject: &Subject) {
    same_bytes_as_the_file_system(subject);
    many_reads_each_end_once(subject);
    a_full_queue_hands_the_request_back(subject);
    bytes_in_hand_hold_their_buffer(subject);
    long_records_get_memory_of_their_own(subject);
    a_file_that_ends_early_is_named(subject);
    what_cannot_be_read_is_named(subject);
    read_into_fills_any_slice(subject);
    read_into_leaves_other_reads_alone(subject);
    read_all_fills_every_place(subject);
    read_all_names_what_fails(subject);
    read_all_leaves_other_reads_alone(subject);
    nothing_on_its_way_means_no_wait(subject);
    dropping_a_reader_is_safe(subject);
}

fn request(file: &Arc<OpenFile>, offset: u64, len: usize, tag: u64) -> ReadRequest {
    let len = u32::try_from(len).expect("records are below 4 GiB");
    ReadRequest { file: Arc::clone(file), offset, len, tag }
}

fn position(offset: u64) -> usize {
    usize::try_from(offset).expect("the suite's files are small")
}

fn next(reader: &mut dyn Reader) -> ReadDone {
    reader.poll(PATIENCE).expect("a read ends")
}

/// Reads one range.
fn read(
    reader: &mut dyn Reader,
    file: &Arc<OpenFile>,
    offset: u64,
    len: usize,
) -> Result<Vec<u8>, IoError> {
    reader.submit(request(file, offset, len, 7)).expect("an idle reader takes a request");
    assert_eq!(reader.in_flight(), 1);
    let done = next(reader);
    assert_eq!((done.tag, reader.in_flight()), (7, 0));
    done.result.map(|bytes| bytes.to_vec())
}

/// Lengths around every boundary, offsets at odd places, up to the last byte.
pub fn same_bytes_as_the_file_system(subject: &Subject) {
    let mut reader = subject.reader();
    let lens = [0, 1, 511, 512, 513, 4095, 4096, 4097, 65_535, 65_536, 65_537, 1_000_003];
    for len in lens {
        let (file, _) = subject.file("same", len);
        let expected = fs::read(file.path()).expect("std reads it");
        for offset in [0, 1, 511, 4095, 4096, 4097, len.saturating_sub(1), len] {
            for len in [0, 1, 3, 4096, 60_000, len] {
                let Some(range) = expected.get(offset..offset.saturating_add(len)) else {
                    continue;
                };
                let bytes = read(&mut *reader, &file, offset as u64, len);
                assert!(bytes.expect("it is there") == range, "{len} from {offset}");
            }
        }
    }
    assert!(reader.bytes_read() > 2_000_000, "{}", reader.bytes_read());
}

/// Contract 1, with the queue kept full: each tag once, each with its own bytes.
pub fn many_reads_each_end_once(subject: &Subject) {
    let mut reader = subject.reader();
    let (file, expected) = subject.file("many", 3_000_001);
    let mut waiting: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    let settle = |done: ReadDone, waiting: &mut BTreeMap<u64, (usize, usize)>| {
        let (offset, len) = waiting.remove(&done.tag).expect("a tag that waits");
        let bytes = done.result.expect("it is there");
        assert!(*bytes == expected[offset..offset + len], "{len} from {offset}");
    };
    for n in 0..500 {
        let (offset, len) = (n * 49_999_957 % 2_900_000, 1 + n * 7919 % 100_000);
        let tag = n as u64;
        while reader.in_flight() == reader.depth() {
            settle(next(&mut *reader), &mut waiting);
        }
        waiting.insert(tag, (offset, len));
        let taken = reader.submit(request(&file, offset as u64, len, tag));
        taken.expect("there is a place and a buffer");
    }
    while let Some(done) = reader.poll(PATIENCE) {
        settle(done, &mut waiting);
    }
    assert!(waiting.is_empty(), "never ended: {waiting:?}");
}

/// Contract 2.
pub fn a_full_queue_hands_the_request_back(subject: &Subject) {
    let mut reader = subject.reader();
    let (file, expected) = subject.file("full", 10_000);
    for tag in 0..8 {
        reader.submit(request(&file, tag, 1, tag)).expect("there is a place");
    }
    let refused = reader.submit(request(&file, 9, 5, 99)).expect_err("the queue is full");
    assert_eq!((refused.reason, refused.request.tag), (Refusal::QueueFull, 99));
    next(&mut *reader).result.expect("it is there");
    reader.submit(refused.request).expect("there is a place again");
    let mut last = Vec::new();
    while let Some(done) = reader.poll(PATIENCE) {
        let bytes = done.result.expect("it is there");
        if done.tag == 99 {
            last = bytes.to_vec();
        }
    }
    assert_eq!(last, expected[9..14]);
}

/// Contract 4: nine buffers and no more; a dropped one serves again, from any thread.
pub fn bytes_in_hand_hold_their_buffer(subject: &Subject) {
    let mut reader = subject.reader();
    let (file, expected) = subject.file("hold", 20_000);
    let mut held = Vec::new();
    for tag in 0..9 {
        reader.submit(request(&file, tag * 100, 100, tag)).expect("a buffer is free");
        held.push((tag, next(&mut *reader).result.expect("it is there")));
    }
    let refused =
        reader.submit(request(&file, 0, 100, 9)).expect_err("no buffer is free");
    assert_eq!((refused.reason, refused.request.len), (Refusal::NoBuffer, 100));
    let (_, bytes) = held.pop().expect("nine are held");
    std::thread::spawn(move || drop(bytes)).join().expect("dropping does not panic");
    reader.submit(refused.request).expect("a buffer is free again");
    assert!(*next(&mut *reader).result.expect("it is there") == expected[..100]);
    drop(reader);
    for (tag, bytes) in held {
        let start = position(tag * 100);
        assert!(*bytes == expected[start..start + 100], "bytes outlive their reader");
    }
}

/// Records longer than a pool buffer, up to the bound and beyond it.
pub fn long_records_get_memory_of_their_own(subject: &Subject) {
    let mut reader = subject.reader();
    let (file, expected) = subject.file("long", (5 << 20) + 1);
    for (offset, len) in [(1, 70_000), (12_345, 4 << 20), (65_536, 65_536 + 8192)] {
        let bytes = read(&mut *reader, &file, offset, len).expect("it is there");
        let start = position(offset);
        assert!(bytes == expected[start..start + len], "{len} from {offset}");
    }
    let error = read(&mut *reader, &file, 0, (4 << 20) + 1).expect_err("over the bound");
    assert!(matches!(error, IoError::RecordTooLong { max: 4_194_304, .. }), "{error}");
}

/// Ranges that reach beyond the end, an empty file, a file that shrank after it was opened.
pub fn a_file_that_ends_early_is_named(subject: &Subject) {
    let mut reader = subject.reader();
    let mut ends_early = |file: &Arc<OpenFile>, offset: u64, len: usize| {
        let error = read(&mut *reader, file, offset, len).expect_err("the file ends");
        let text = error.to_string();
        assert!(matches!(error, IoError::Truncated { .. }), "{text}");
        assert!(text.contains(&*file.path().to_string_lossy()), "{text}");
        let mut dst = vec![0; len];
        let error = reader.read_into(file, offset, &mut dst).expect_err("the file ends");
        assert!(matches!(error, IoError::Truncated { .. }), "{error}");
    };
    let (file, _) = subject.file("ends", 10_000);
    let far = i64::MAX as u64;
    let ranges = [(9999, 2), (10_000, 1), (0, 10_001), (50_000, 1), (4096, 60_000)];
    for (offset, len) in ranges.into_iter().chain([(far - 1, 1), (u64::MAX, 9)]) {
        ends_early(&file, offset, len);
    }
    let (empty, _) = subject.file("empty", 0);
    ends_early(&empty, 0, 1);
    let (shrunk, _) = subject.file("shrunk", 100_000);
    let writer = fs::OpenOptions::new().write(true).open(shrunk.path());
    writer.and_then(|file| file.set_len(50_000)).expect("a file can shrink");
    ends_early(&shrunk, 40_000, 20_000);
    let bytes = read(&mut *reader, &shrunk, 40_000, 10_000).expect("this part is there");
    assert_eq!(bytes.len(), 10_000);
}

/// Missing files, folders, files without permission (not as root, whom all is permitted).
pub fn what_cannot_be_read_is_named(subject: &Subject) {
    use std::os::unix::fs::PermissionsExt;
    let missing = subject.open_file(&subject.folder.join("gone")).expect_err("not there");
    assert!(matches!(missing, IoError::Missing { .. }), "{missing}");
    let folder = subject.open_file(&subject.folder).expect_err("a folder");
    assert!(matches!(folder, IoError::NotAFile { .. }), "{folder}");
    let (file, _) = subject.file("locked", 1);
    let lock = fs::set_permissions(file.path(), fs::Permissions::from_mode(0o000));
    lock.expect("its owner may lock it");
    if fs::File::open(file.path()).is_err() {
        let locked = subject.open_file(file.path()).expect_err("no permission");
        assert!(matches!(locked, IoError::Unreadable { .. }), "{locked}");
    }
    fs::remove_file(file.path()).expect("its owner may remove it");
}

/// Aligned and odd destinations, offsets and lengths; more parts than places.
pub fn read_into_fills_any_slice(subject: &Subject) {
    let mut reader = subject.reader();
    let (file, expected) = subject.file("into", (12 << 20) + 77);
    let mut buffer = Buffer::new(12 << 20);
    let ranges = [
        (0, 0, 12 << 20),
        (4096, 0, 8192),
        (0, 0, 5000),
        (8192, 4096, 1),
        (1, 0, 3_000_000),
        (0, 1, 1_048_577),
        ((11 << 20) - 512, 512, 1 << 20),
        (12 << 20, 0, 77),
        (9, 9, 0),
    ];
    for (offset, at, len) in ranges {
        let memory = buffer.as_mut_slice();
        memory.fill(0xA5);
        let result = reader.read_into(&file, offset as u64, &mut memory[at..at + len]);
        result.expect("it is there");
        assert!(memory[at..at + len] == expected[offset..offset + len], "at {offset}");
        let outside = memory[..at].iter().chain(&memory[at + len..]);
        assert!(
            outside.into_iter().all(|&byte| byte == 0xA5),
            "outside of {len} at {at}"
        );
    }
}

/// Reads on their way stay on their way while `read_into` waits for its own.
pub fn read_into_leaves_other_reads_alone(subject: &Subject) {
    let mut reader = subject.reader();
    let (file, expected) = subject.file("both", 3 << 20);
    for tag in 0..8 {
        reader.submit(request(&file, tag * 4096, 5000, tag)).expect("there is a place");
    }
    let mut buffer = Buffer::new(2 << 20);
    reader.read_into(&file, 4096, buffer.as_mut_slice()).expect("it is there");
    assert!(*buffer.as_slice() == expected[4096..4096 + (2 << 20)]);
    eight_arrive(&mut *reader, &expected);
}

/// The eight reads that another call was to leave alone are still on their way, and arrive.
fn eight_arrive(reader: &mut dyn Reader, expected: &[u8]) {
    assert_eq!(reader.in_flight(), 8);
    let mut n_done = 0;
    while let Some(done) = reader.poll(PATIENCE) {
        let start = position(done.tag * 4096);
        assert!(*done.result.expect("it is there") == expected[start..start + 5000]);
        n_done += 1;
    }
    assert_eq!(n_done, 8);
}

/// Fifty places, more than the reader has: with room for whole blocks as they lie in the file, a byte
/// further, and without room for the last block. Nothing outside the rooms is written.
pub fn read_all_fills_every_place(subject: &Subject) {
    const PLACE: usize = 128 << 10;
    let mut reader = subject.reader();
    let (file, expected) = subject.file("all", 3_000_001);
    let mut ranges: Vec<_> =
        (0..50).map(|n| (n * 49_957, 1 + n * 7919 % 100_000)).collect();
    ranges[7].1 = 0;
    // The file's last bytes, inside a block.
    ranges[49].0 = expected.len() - ranges[49].1;
    let mut buffer = Buffer::new(ranges.len() * PLACE);
    for (shift, unit) in [(0, ALIGNMENT), (1, ALIGNMENT), (0, 1)] {
        let place = |offset: usize, len: usize| {
            let at = offset % ALIGNMENT + shift;
            (at, ALIGNMENT..ALIGNMENT + (at + len).next_multiple_of(unit))
        };
        buffer.as_mut_slice().fill(0xA5);
        let places = buffer.as_mut_slice().chunks_mut(PLACE);
        let mut reads: Vec<_> = ranges
            .iter()
            .zip(places)
            .map(|(&(offset, len), memory)| {
                let (at, room) = place(offset, len);
                let (offset, room) = (offset as u64, &mut memory[room]);
                ReadInto { file: &file, offset, len, room, at }
            })
            .collect();
        let results = reader.read_all(&mut reads);
        assert_eq!(results.len(), ranges.len());
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        let places = buffer.as_slice().chunks(PLACE);
        for (&(offset, len), memory) in ranges.iter().zip(places) {
            let (at, room) = place(offset, len);
            let bytes = &memory[room.start + at..][..len];
            assert!(*bytes == expected[offset..offset + len], "{len} from {offset}");
            let mut outside = memory[..room.start].iter().chain(&memory[room.end..]);
            assert!(outside.all(|&byte| byte == 0xA5), "outside of {len} from {offset}");
        }
    }
}

/// Those that fail are named, and the others are read.
pub fn read_all_names_what_fails(subject: &Subject) {
    let mut reader = subject.reader();
    let (file, expected) = subject.file("all-fails", 100_000);
    let offsets = [0, 99_000, u64::MAX - 1, 200_000, 9001];
    let mut buffer = Buffer::new(offsets.len() << 14);
    let rooms = buffer.as_mut_slice().chunks_mut(1 << 14);
    let mut reads: Vec<_> = offsets
        .iter()
        .zip(rooms)
        .map(|(&offset, room)| {
            let at = position(offset % ALIGNMENT as u64);
            ReadInto { file: &file, offset, len: 5000, room, at }
        })
        .collect();
    let results = reader.read_all(&mut reads);
    assert_eq!(results.len(), reads.len());
    for (read, result) in reads.iter().zip(results) {
        let expected = expected.get(usize::try_from(read.offset).unwrap_or(usize::MAX)..);
        match (expected.and_then(|rest| rest.get(..5000)), result) {
            (Some(expected), Ok(())) => {
                assert!(read.room[read.at..][..5000] == *expected, "at {}", read.offset);
            }
            (None, Err(IoError::Truncated { .. })) => {}
            (_, result) => panic!("at {}: {result:?}", read.offset),
        }
    }
    assert!(reader.read_all(&mut []).is_empty());
}

/// Reads on their way stay on their way, though they have all the places at first.
pub fn read_all_leaves_other_reads_alone(subject: &Subject) {
    const LEN: usize = 65_536;
    let mut reader = subject.reader();
    let (file, expected) = subject.file("all-both", 3 << 20);
    for tag in 0..8 {
        reader.submit(request(&file, tag * 4096, 5000, tag)).expect("there is a place");
    }
    let mut buffer = Buffer::new(20 * LEN);
    let rooms = buffer.as_mut_slice().chunks_mut(LEN).enumerate();
    let mut reads: Vec<_> = rooms
        .map(|(n, room)| {
            let offset = (n * LEN) as u64;
            ReadInto { file: &file, offset, len: LEN, room, at: 0 }
        })
        .collect();
    let results = reader.read_all(&mut reads);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert!(*buffer.as_slice() == expected[..20 * LEN]);
    eight_arrive(&mut *reader, &expected);
}

/// Contract 5: an idle reader answers at once (a wait of [`Duration::MAX`] would show).
pub fn nothing_on_its_way_means_no_wait(subject: &Subject) {
    assert!(subject.reader().poll(Duration::MAX).is_none());
}

/// Contract 6, with reads on their way into pool buffers and into memory of their own.
pub fn dropping_a_reader_is_safe(subject: &Subject) {
    let (file, _) = subject.file("drop", 3 << 20);
    for n in 0..=8_u64 {
        let mut reader = subject.reader();
        for tag in 0..n {
            let len = if tag % 2 == 0 { 50_000 } else { 1 << 20 };
            reader.submit(request(&file, tag * 999, len, tag)).expect("there is a place");
        }
    }
}
