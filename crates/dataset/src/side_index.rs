//! The side index: what an earlier epoch learned about the images of a data set.
//!
//! Decoders of compressed images can start in the middle only if they are told how (the entry points of a
//! JPEG). That knowledge is kept in *segments*, files that are written once; only marks change later. Each run
//! that learns something new adds one, so several processes may read and write in parallel, and a missing
//! or broken segment costs only time. One that somebody else made is not believed: notes decide what pixels
//! an image has, so each segment carries a seal, which callers make and check.
//!
//! A note is found by the [`key`] of its record (where it is), and is valid only while the file keeps its
//! length and age ([`stamp`]) and the bytes of the record their hash. Whoever reads only a part of the record cannot
//! compare its bytes: the note must then have the mark of the file, in which the time of its inode's last change
//! counts, too. This file defines the form of a segment, not its life on a disk; nothing here opens a file.
//!
//! ```text
//! 0   "BEINDEX3"                       all numbers little-endian
//! 8   number of notes: u64
//! 16  offset of the directory: u64
//! 24  XXH3-64 of the directory: u64
//! 32  seal of bytes 0 to 31 and of the directory, by a key of whoever wrote it: 32 bytes
//! 64  the notes, one after the other, each: its file's mark, 0 for none: u64; its bytes
//! …   the directory: 40 bytes a note, sorted by key:
//!     key, stamp, content, offset: u64 each; length, check (XXH3-64 of its bytes): u32 each, without the mark
//! ```
//!
//! A mark is rewritten where the same bytes turn out to be those of another file, as after copying the data.
//! Segments of the earlier version, "BEINDEX2", have no marks.

use std::hash::Hasher as _;
use twox_hash::XxHash3_64;

/// Bytes of a segment's header.
pub const HEADER_BYTES: usize = 64;

/// Bytes of a segment's seal, the end of its header.
pub const SEAL_BYTES: usize = 32;

/// Bytes of a note's line in the directory.
pub const LINE_BYTES: usize = 40;

/// Most notes of a segment, and longest note in bytes: what is larger is not believed.
const MAX_NOTES: u64 = 1 << 28;
const MAX_NOTE_BYTES: u32 = 1 << 26;

/// How a segment's name begins. Segments are files in the data's own root, and hidden: a folder
/// there would be a class to other programs that read class folders.
pub const PREFIX: &str = ".bothends-index-";

/// How a segment's name ends.
pub const EXTENSION: &str = "segment";

/// Whether a file of this name is a segment.
#[must_use]
pub fn is_segment(name: &str) -> bool {
    let rest = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(EXTENSION));
    rest.is_some_and(|rest| rest.ends_with('.'))
}

const MAGIC: &[u8; 8] = b"BEINDEX3";
const MAGIC_WITHOUT_MARKS: &[u8; 8] = b"BEINDEX2";

/// What a record is found by: its file's folder below the data root and its name there, its
/// offset and length.
#[must_use]
pub fn key([folder, name]: [&str; 2], offset: u64, len: u32) -> u64 {
    let mut hash = XxHash3_64::new();
    hash.write(&offset.to_le_bytes());
    hash.write(&len.to_le_bytes());
    hash.write(folder.as_bytes());
    // No path has a zero in it.
    hash.write(&[0]);
    hash.write(name.as_bytes());
    hash.finish()
}

/// A file's length in bytes and time of its last change in nanoseconds since 1970, in one
/// number.
#[must_use]
pub fn stamp(len: u64, modified_ns: i128) -> u64 {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&len.to_le_bytes());
    bytes[8..].copy_from_slice(&modified_ns.to_le_bytes());
    XxHash3_64::oneshot(&bytes)
}

/// The hash of a record's bytes.
#[must_use]
pub fn content(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// One note's line in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// The record's [`key`].
    pub key: u64,
    /// Its file's [`stamp`].
    pub stamp: u64,
    /// Its [`content`].
    pub content: u64,
    /// Where in the segment the note lies.
    pub offset: u64,
    /// How long it is.
    pub len: u32,
    /// Low half of the XXH3-64 of the note's bytes.
    pub check: u32,
}

impl Line {
    /// The line of `note`, which lies at `offset`.
    #[must_use]
    pub fn new(
        [key, stamp, content]: [u64; 3],
        offset: u64,
        note: &[u8],
    ) -> Option<Self> {
        let len = u32::try_from(note.len()).ok().filter(|&len| len <= MAX_NOTE_BYTES)?;
        Some(Self { key, stamp, content, offset, len, check: check(note) })
    }

    /// Whether these are the note's bytes.
    #[must_use]
    pub fn fits(&self, note: &[u8]) -> bool {
        note.len() == self.len as usize && check(note) == self.check
    }

    fn encode(&self) -> [u8; LINE_BYTES] {
        let mut bytes = [0; LINE_BYTES];
        let (words, rest) = bytes.as_chunks_mut::<8>();
        debug_assert!(rest.is_empty());
        let last = u64::from(self.len) | u64::from(self.check) << 32;
        let numbers = [self.key, self.stamp, self.content, self.offset, last];
        for (word, number) in words.iter_mut().zip(numbers) {
            *word = number.to_le_bytes();
        }
        bytes
    }

    fn decode(bytes: &[u8; LINE_BYTES]) -> Self {
        let word = |i: usize| number(&bytes[8 * i..]);
        let last = word(4);
        Self {
            key: word(0),
            stamp: word(1),
            content: word(2),
            offset: word(3),
            len: low(last),
            check: low(last >> 32),
        }
    }
}

fn check(note: &[u8]) -> u32 {
    low(XxHash3_64::oneshot(note))
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
fn low(number: u64) -> u32 {
    number as u32
}

/// The first eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Why a segment is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not a side index of this version, or damaged ({0})")]
pub struct Unreadable(&'static str);

/// Where a segment's directory lies, in bytes: from its header and the length of its file.
///
/// # Errors
/// [`Unreadable`].
pub fn directory_range(
    header: &[u8; HEADER_BYTES],
    file_bytes: u64,
) -> Result<std::ops::Range<u64>, Unreadable> {
    if !header.starts_with(MAGIC) && !header.starts_with(MAGIC_WITHOUT_MARKS) {
        return Err(Unreadable("its header"));
    }
    let (n_notes, start) = (number(&header[8..]), number(&header[16..]));
    let end = start.checked_add(n_notes.saturating_mul(LINE_BYTES as u64));
    match end {
        Some(end) if end == file_bytes && n_notes <= MAX_NOTES => Ok(start..end),
        _ => Err(Unreadable("its length")),
    }
}

/// Whether the mark of its file precedes each note, as in this version.
#[must_use]
pub fn has_marks(header: &[u8; HEADER_BYTES]) -> bool {
    header.starts_with(MAGIC)
}

/// Reads a directory; `header` has been checked. `is_ours` is asked whether a seal is that of these
/// bytes.
///
/// # Errors
/// [`Unreadable`].
pub fn directory(
    header: &[u8; HEADER_BYTES],
    bytes: &[u8],
    is_ours: impl FnOnce([&[u8]; 2], &[u8; SEAL_BYTES]) -> bool,
) -> Result<Vec<Line>, Unreadable> {
    let (head, seal) = header.split_at(HEADER_BYTES - SEAL_BYTES);
    if !seal.first_chunk().is_some_and(|seal| is_ours([head, bytes], seal)) {
        return Err(Unreadable("its seal, which is not ours"));
    }
    if number(&header[24..]) != XxHash3_64::oneshot(bytes) {
        return Err(Unreadable("its directory"));
    }
    let (lines, rest) = bytes.as_chunks();
    let lines: Vec<Line> = lines.iter().map(Line::decode).collect();
    let start = number(&header[16..]);
    let lies_inside = |line: &Line| {
        line.len <= MAX_NOTE_BYTES
            && line.offset >= HEADER_BYTES as u64
            && line
                .offset
                .checked_add(u64::from(line.len))
                .is_some_and(|end| end <= start)
    };
    if !rest.is_empty() || !lines.iter().all(lies_inside) {
        return Err(Unreadable("its directory"));
    }
    if !lines.is_sorted_by_key(|line| line.key) {
        return Err(Unreadable("the order of its directory"));
    }
    Ok(lines)
}

/// The end of a segment whose notes fill it up to byte `start`: sorts `lines`, and returns the
/// directory and the header that belongs before the notes. `sign` makes the seal of these bytes.
#[must_use]
pub fn seal(
    lines: &mut [Line],
    start: u64,
    sign: impl FnOnce([&[u8]; 2]) -> [u8; SEAL_BYTES],
) -> (Vec<u8>, [u8; HEADER_BYTES]) {
    lines.sort_by_key(|line| line.key);
    let directory: Vec<u8> = lines.iter().flat_map(Line::encode).collect();
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&(lines.len() as u64).to_le_bytes());
    header[16..24].copy_from_slice(&start.to_le_bytes());
    header[24..32].copy_from_slice(&XxHash3_64::oneshot(&directory).to_le_bytes());
    let seal = sign([&header[..HEADER_BYTES - SEAL_BYTES], &directory]);
    header[HEADER_BYTES - SEAL_BYTES..].copy_from_slice(&seal);
    (directory, header)
}

/// The line of `key`, if `lines` (sorted) have one.
#[must_use]
pub fn find(lines: &[Line], key: u64) -> Option<&Line> {
    let idx = lines.binary_search_by_key(&key, |line| line.key).ok()?;
    lines.get(idx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A seal, for whoever has no secret.
    fn sign(parts: [&[u8]; 2]) -> [u8; SEAL_BYTES] {
        let mut seal = [0; SEAL_BYTES];
        let hash = parts.map(XxHash3_64::oneshot);
        seal[..8].copy_from_slice(&hash[0].to_le_bytes());
        seal[24..].copy_from_slice(&hash[1].to_le_bytes());
        seal
    }

    fn segment(notes: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        let mut lines = Vec::new();
        for (key, note) in notes {
            let offset = bytes.len() as u64;
            lines.push(Line::new([*key, key ^ 1, key ^ 2], offset, note).unwrap());
            bytes.extend(note);
        }
        let (directory, header) = seal(&mut lines, bytes.len() as u64, sign);
        bytes[..HEADER_BYTES].copy_from_slice(&header);
        bytes.extend(directory);
        bytes
    }

    fn part(bytes: &[u8], start: u64, end: u64) -> Option<&[u8]> {
        bytes.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    fn note<'a>(bytes: &'a [u8], line: &Line) -> &'a [u8] {
        part(bytes, line.offset, line.offset + u64::from(line.len)).unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Vec<Line>, Unreadable> {
        let header = bytes.first_chunk().ok_or(Unreadable("too short"))?;
        let range = directory_range(header, bytes.len() as u64)?;
        directory(
            header,
            part(bytes, range.start, range.end).ok_or(Unreadable("too short"))?,
            |parts, seal| sign(parts) == *seal,
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_found(
            notes in prop::collection::btree_map(any::<u64>(), prop::collection::vec(any::<u8>(), 0..40), 0..20)
        ) {
            let notes: Vec<_> = notes.into_iter().rev().collect();
            let bytes = segment(&notes);
            let lines = read(&bytes).unwrap();
            prop_assert_eq!(lines.len(), notes.len());
            for (key, written) in &notes {
                let line = find(&lines, *key).unwrap();
                let found = note(&bytes, line);
                prop_assert_eq!(found, written);
                prop_assert!(line.fits(found));
                prop_assert_eq!((line.stamp, line.content), (key ^ 1, key ^ 2));
            }
        }
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let bytes = segment(&[(5, vec![1, 2, 3]), (9, vec![4])]);
        let lines = read(&bytes).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            let still_right = read(&changed).is_ok_and(|lines| {
                lines.iter().all(|line| line.fits(note(&changed, line)))
            });
            assert!(!still_right, "byte {at}");
        }
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn a_segment_cut_short_is_noticed() {
        let bytes = segment(&[(5, vec![1, 2, 3]), (9, vec![4])]);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn another_place_is_another_key() {
        let keys = [
            key(["a", "b"], 0, 1),
            key(["a", "b"], 1, 0),
            key(["a", "b"], 0, 2),
            key(["a", "c"], 0, 1),
            key(["ab", ""], 0, 1),
            key(["", "ab"], 0, 1),
        ];
        for (i, a) in keys.iter().enumerate() {
            assert!(!keys[..i].contains(a));
        }
        assert_ne!(stamp(1, 2), stamp(2, 1));
        assert_ne!(stamp(1, -1), stamp(1, 1));
    }
}
