//! The block cache: JPEGs of a data set, transcoded to the blocks of a store while a host was idle. The cache
//! of fetched records has the same form, with the records themselves in place of row groups ([`Kind`]).
//!
//! Records lie in *segments*, files that are written once and never changed, as those of the side index.
//! A record is found by the [`key`](crate::side_index::key) of where its image is, and is valid only
//! while the image's file keeps its length and both its times ([`stamp`]). Its bytes are the row groups
//! of a record of blocks (`docs/store-format.md`, section 3), each with its own checksum; what is needed
//! to write the file again is left out. Nothing here opens a file: this file defines the form of a
//! segment, not its life on a disk.
//!
//! ```text
//! 0   "BEBLOCK1" or "BERECOR1"         all numbers little-endian
//! 8   number of records: u64
//! 16  offset of the directory: u64
//! 24  XXH3-64 of the directory: u64
//! 32  seal of bytes 0 to 31 and of the directory, by a key of whoever wrote it: 32 bytes
//! 64  the row groups of the records, one record after the other
//! …   the directory, up to the end of the file:
//!     bytes of heads, bytes of profiles: u64 each
//!     32 bytes a record, in the order of their offsets:
//!         key, stamp, offset: u64 each; length, end of its head: u32 each
//!     heads, profiles (section 4)
//! ```
//!
//! A fetched record has no profile, and its head is the XXH3-64 of its bytes: 8 bytes.

use std::collections::HashMap;
use std::ops::Range;

use bothends_core::blocks::{Blocks, Head, Profile};
use twox_hash::XxHash3_64;

/// Bytes of a segment's header.
pub const HEADER_BYTES: usize = 64;

/// Bytes of a segment's seal, the end of its header.
pub const SEAL_BYTES: usize = 32;

/// Bytes of a record's line in the directory.
pub const LINE_BYTES: usize = 32;

/// How a segment's name ends.
pub const EXTENSION: &str = "segment";

/// The longest directory that is believed, and the most records.
const MAX_DIRECTORY_BYTES: u64 = 1 << 31;
const MAX_RECORDS: u64 = 1 << 26;

/// Bytes of a directory before its lines.
const COUNTS_BYTES: usize = 16;

/// What the records of a segment are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// Row groups of transcoded images.
    #[default]
    Blocks,
    /// Records as they were fetched from a remote store.
    Records,
}

impl Kind {
    /// How a segment's name begins.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Blocks => "blocks-",
            Self::Records => "records-",
        }
    }

    /// Whether a file of this name is a segment of this kind.
    #[must_use]
    pub fn is_segment(self, name: &str) -> bool {
        let rest = name.strip_prefix(self.prefix());
        let rest = rest.and_then(|rest| rest.strip_suffix(EXTENSION));
        rest.is_some_and(|rest| rest.ends_with('.'))
    }

    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Blocks => b"BEBLOCK1",
            Self::Records => b"BERECOR1",
        }
    }

    /// Whether these describe a record of `len` bytes.
    fn fits(self, profile: &[u8], head: &[u8], len: u32) -> bool {
        match self {
            Self::Blocks => Profile::read(profile)
                .zip(Head::read(head))
                .and_then(|(profile, head)| Blocks::new(profile, head))
                .is_some_and(|blocks| blocks.head().lies_in(len)),
            Self::Records => profile.is_empty() && head.len() == CHECKSUM_BYTES,
        }
    }
}

/// Bytes of a fetched record's head.
const CHECKSUM_BYTES: usize = 8;

/// The head of a fetched record, which says whether its bytes are whole.
#[must_use]
pub fn checksum(record: &[u8]) -> [u8; CHECKSUM_BYTES] {
    XxHash3_64::oneshot(record).to_le_bytes()
}

/// Whether a file of this name is a segment, of either kind.
#[must_use]
pub fn is_segment(name: &str) -> bool {
    Kind::Blocks.is_segment(name) || Kind::Records.is_segment(name)
}

/// What tells a file from another that has had its name: its length in bytes, and the times at which
/// its contents and its inode were last changed, in nanoseconds since 1970. A program can set the
/// first of these times back, but not the second.
#[must_use]
pub fn stamp(len: u64, modified_ns: i128, changed_ns: i128) -> u64 {
    let mut bytes = [0; 40];
    bytes[..8].copy_from_slice(&len.to_le_bytes());
    bytes[8..24].copy_from_slice(&modified_ns.to_le_bytes());
    bytes[24..].copy_from_slice(&changed_ns.to_le_bytes());
    XxHash3_64::oneshot(&bytes)
}

/// Why a segment is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not a segment of a block cache of this version, or damaged ({0})")]
pub struct Unreadable(&'static str);

/// One record's line in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Where its image is.
    pub key: u64,
    /// The image's file ([`stamp`]).
    pub stamp: u64,
    /// Where in the segment its row groups lie.
    pub offset: u64,
    /// Their length in bytes.
    pub len: u32,
    /// Where its head ends among the heads.
    head_end: u32,
}

/// What a decoder must know of a record besides its row groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// The profile, and behind it the head.
    bytes: Box<[u8]>,
    profile_len: usize,
}

impl Outline {
    /// Of a record with this profile and this head; `None` if they do not fit each other.
    #[must_use]
    pub fn new(profile: &[u8], head: &[u8]) -> Option<Self> {
        let profile = Profile::read(profile)?.bytes();
        let outline = Self {
            bytes: [profile, head].concat().into_boxed_slice(),
            profile_len: profile.len(),
        };
        outline.blocks()?;
        Some(outline)
    }

    /// The record as a decoder takes it.
    #[must_use]
    pub fn blocks(&self) -> Option<Blocks<'_>> {
        let (profile, head) = self.bytes.split_at_checked(self.profile_len)?;
        Blocks::new(Profile::read(profile)?, Head::read(head)?)
    }
}

/// A record about to be kept.
#[derive(Debug, Clone, Copy)]
pub struct NewRecord<'a> {
    /// Where its image is.
    pub key: u64,
    /// The image's file ([`stamp`]).
    pub stamp: u64,
    /// What it may have in common with others.
    pub profile: &'a [u8],
    /// Its head, which names no profile yet.
    pub head: &'a [u8],
    /// Length of its row groups.
    pub len: u32,
}

/// The records of a segment, without their row groups.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    kind: Kind,
    lines: Vec<Line>,
    heads: Vec<u8>,
    profiles: Vec<u8>,
    /// Where each profile begins, while the directory grows.
    known: HashMap<Vec<u8>, u32>,
}

/// Where a head says at which offset its profile begins.
const PROFILE_IN_HEAD: Range<usize> = 4..8;

impl Directory {
    /// One of records of this kind, without any.
    #[must_use]
    pub fn of(kind: Kind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// The lines, in the order of their offsets.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Adds a record whose row groups lie at `offset`, after those of the records before it; false
    /// for one whose head and profile do not fit its length, or that has no room.
    pub fn push(&mut self, record: &NewRecord<'_>, offset: u64) -> bool {
        let NewRecord { key, stamp, profile, head, len } = *record;
        if !self.kind.fits(profile, head, len) || self.lines.len() as u64 >= MAX_RECORDS {
            return false;
        }
        let start = self.heads.len();
        let Ok(head_end) = u32::try_from(start.saturating_add(head.len())) else {
            return false;
        };
        if self.kind == Kind::Records {
            self.heads.extend_from_slice(head);
            self.lines.push(Line { key, stamp, offset, len, head_end });
            return true;
        }
        let at = match self.known.get(profile) {
            Some(at) => *at,
            None => {
                let Ok(at) = u32::try_from(self.profiles.len()) else { return false };
                self.profiles.extend_from_slice(profile);
                self.known.insert(profile.to_vec(), at);
                at
            }
        };
        self.heads.extend_from_slice(head);
        self.heads[start..][PROFILE_IN_HEAD].copy_from_slice(&at.to_le_bytes());
        self.lines.push(Line { key, stamp, offset, len, head_end });
        true
    }

    /// Leaves out the records that do not end by byte `end` of the segment.
    pub fn cut(&mut self, end: u64) {
        let lies_before =
            |line: &Line| line.offset.saturating_add(line.len.into()) <= end;
        let n = self.lines.partition_point(lies_before);
        self.lines.truncate(n);
        let end = self.lines.last().map_or(0, |line| line.head_end);
        self.heads.truncate(end as usize);
    }

    /// What a decoder must know of the record on line `number`.
    #[must_use]
    pub fn outline(&self, number: usize) -> Option<Outline> {
        let (profile, head) = self.parts(number)?;
        Outline::new(profile, head)
    }

    /// What the bytes of the fetched record on line `number` are held against ([`checksum`]).
    #[must_use]
    pub fn checksum(&self, number: usize) -> Option<[u8; CHECKSUM_BYTES]> {
        self.head(number)?.try_into().ok()
    }

    fn head(&self, number: usize) -> Option<&[u8]> {
        let line = self.lines.get(number)?;
        let before = number.checked_sub(1).map_or(0, |n| self.lines[n].head_end);
        self.heads.get(before as usize..line.head_end as usize)
    }

    fn parts(&self, number: usize) -> Option<(&[u8], &[u8])> {
        let head = self.head(number)?;
        if self.kind == Kind::Records {
            return Some((&[], head));
        }
        let profile = self.profiles.get(Head::read(head)?.profile as usize..)?;
        Some((profile, head))
    }

    /// Its bytes in a segment.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.n_bytes());
        let counts = [self.heads.len(), self.profiles.len()];
        bytes.extend(counts.iter().flat_map(|&n| (n as u64).to_le_bytes()));
        for line in &self.lines {
            let last = u64::from(line.len) | u64::from(line.head_end) << 32;
            let words = [line.key, line.stamp, line.offset, last];
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        bytes.extend_from_slice(&self.heads);
        bytes.extend_from_slice(&self.profiles);
        bytes
    }

    /// How many bytes that are.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        let lines = self.lines.len().saturating_mul(LINE_BYTES);
        COUNTS_BYTES
            .saturating_add(lines)
            .saturating_add(self.heads.len())
            .saturating_add(self.profiles.len())
    }

    /// Forgets what only a growing directory needs.
    pub fn shrink(&mut self) {
        self.known = HashMap::new();
        self.lines.shrink_to_fit();
        self.heads.shrink_to_fit();
        self.profiles.shrink_to_fit();
    }

    /// Memory in bytes that the records take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>()
            + self.heads.capacity()
            + self.profiles.capacity()
    }
}

/// What a segment with this header has; `None` for one of another version.
fn kind_of(header: &[u8; HEADER_BYTES]) -> Option<Kind> {
    let mut kinds = [Kind::Blocks, Kind::Records].into_iter();
    kinds.find(|kind| header.starts_with(kind.magic()))
}

/// Where a segment's directory lies, in bytes: from its header and the length of its file.
///
/// # Errors
/// [`Unreadable`].
pub fn directory_range(
    header: &[u8; HEADER_BYTES],
    file_bytes: u64,
) -> Result<Range<u64>, Unreadable> {
    if kind_of(header).is_none() {
        return Err(Unreadable("its header"));
    }
    let (n_records, start) = (number(&header[8..]), number(&header[16..]));
    let least = n_records
        .checked_mul(LINE_BYTES as u64)
        .and_then(|n| n.checked_add(COUNTS_BYTES as u64));
    let len = file_bytes.checked_sub(start);
    let fits = least.zip(len).is_some_and(|(least, len)| {
        least <= len && len <= MAX_DIRECTORY_BYTES && n_records <= MAX_RECORDS
    });
    match fits && start >= HEADER_BYTES as u64 {
        true => Ok(start..file_bytes),
        false => Err(Unreadable("its length")),
    }
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
) -> Result<Directory, Unreadable> {
    let (head, seal) = header.split_at(HEADER_BYTES - SEAL_BYTES);
    if !seal.first_chunk().is_some_and(|seal| is_ours([head, bytes], seal)) {
        return Err(Unreadable("its seal, which is not ours"));
    }
    if number(&header[24..]) != XxHash3_64::oneshot(bytes) {
        return Err(Unreadable("its directory"));
    }
    let (n_records, start) = (number(&header[8..]), number(&header[16..]));
    let broken = Unreadable("its directory");
    let kind = kind_of(header).ok_or(Unreadable("its header"))?;
    let directory = split(kind, bytes, n_records).ok_or(broken)?;
    let mut end = HEADER_BYTES as u64;
    for (n, line) in directory.lines.iter().enumerate() {
        let (profile, head) = directory.parts(n).ok_or(broken)?;
        if !kind.fits(profile, head, line.len) || line.offset < end {
            return Err(broken);
        }
        end = line.offset.checked_add(line.len.into()).ok_or(broken)?;
    }
    if end > start { Err(broken) } else { Ok(directory) }
}

/// The parts of a directory's bytes.
fn split(kind: Kind, bytes: &[u8], n_records: u64) -> Option<Directory> {
    let (counts, rest) = bytes.split_first_chunk::<COUNTS_BYTES>()?;
    let length = |at: usize| usize::try_from(number(&counts[at..])).ok();
    let (n_heads, n_profiles) = (length(0)?, length(8)?);
    let n_lines = usize::try_from(n_records).ok()?.checked_mul(LINE_BYTES)?;
    let (lines, rest) = rest.split_at_checked(n_lines)?;
    let (heads, profiles) = rest.split_at_checked(n_heads)?;
    if profiles.len() != n_profiles {
        return None;
    }
    let (lines, _) = lines.as_chunks();
    Some(Directory {
        kind,
        lines: lines.iter().map(decode).collect(),
        heads: heads.to_vec(),
        profiles: profiles.to_vec(),
        known: HashMap::new(),
    })
}

fn decode(bytes: &[u8; LINE_BYTES]) -> Line {
    let word = |i: usize| number(&bytes[8 * i..]);
    let [len, head_end] = halves(word(3));
    Line { key: word(0), stamp: word(1), offset: word(2), len, head_end }
}

/// The low half and the high half.
#[expect(clippy::cast_possible_truncation, reason = "the halves are what is asked for")]
fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

/// The first eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The header of a segment whose row groups end at byte `start`, where this directory lies. `sign`
/// makes the seal of these bytes.
#[must_use]
pub fn header(
    directory: &Directory,
    encoded: &[u8],
    start: u64,
    sign: impl FnOnce([&[u8]; 2]) -> [u8; SEAL_BYTES],
) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(directory.kind.magic());
    header[8..16].copy_from_slice(&(directory.lines.len() as u64).to_le_bytes());
    header[16..24].copy_from_slice(&start.to_le_bytes());
    header[24..32].copy_from_slice(&XxHash3_64::oneshot(encoded).to_le_bytes());
    let seal = sign([&header[..HEADER_BYTES - SEAL_BYTES], encoded]);
    header[HEADER_BYTES - SEAL_BYTES..].copy_from_slice(&seal);
    header
}

#[cfg(test)]
mod tests {
    use bothends_core::blocks::{
        Colour, Component, GroupLengths, RowLengths, write_profile,
    };
    use bothends_core::recipe::Size;
    use proptest::prelude::*;

    use super::*;

    /// A seal, for whoever has no secret.
    fn sign(parts: [&[u8]; 2]) -> [u8; SEAL_BYTES] {
        let mut seal = [0; SEAL_BYTES];
        let hash = parts.map(XxHash3_64::oneshot);
        seal[..8].copy_from_slice(&hash[0].to_le_bytes());
        seal[24..].copy_from_slice(&hash[1].to_le_bytes());
        seal
    }

    fn profile(step: u16) -> Vec<u8> {
        let mut profile = Vec::new();
        let component = Component { h: 1, v: 1, table: 0 };
        write_profile(Colour::Grey, &[component], &[[step; 64]], &mut profile);
        profile
    }

    /// The head of an image with so many row groups of one byte each.
    fn head(n_groups: usize) -> Vec<u8> {
        let size = Size { height: u32::try_from(16 * n_groups).unwrap(), width: 8 };
        let lengths = GroupLengths::new(&vec![1; n_groups]).unwrap();
        lengths.head(size, 0, RowLengths::Narrow).unwrap()
    }

    /// The whole segment of records that have so many row groups, and steps.
    fn segment(records: &[(u64, usize, u16)]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        let mut directory = Directory::default();
        for &(key, n_groups, step) in records {
            let record = NewRecord {
                key,
                stamp: key ^ 1,
                profile: &profile(step),
                head: &head(n_groups),
                len: u32::try_from(n_groups).unwrap(),
            };
            assert!(directory.push(&record, bytes.len() as u64));
            bytes.extend(vec![7; n_groups]);
        }
        let encoded = directory.encode();
        assert_eq!(encoded.len(), directory.n_bytes());
        let header = header(&directory, &encoded, bytes.len() as u64, sign);
        bytes[..HEADER_BYTES].copy_from_slice(&header);
        bytes.extend(encoded);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Directory, Unreadable> {
        let short = Unreadable("too short");
        let header = bytes.first_chunk().ok_or(short)?;
        let range = directory_range(header, bytes.len() as u64)?;
        let start = usize::try_from(range.start).map_err(|_| short)?;
        let part = bytes.get(start..).ok_or(short)?;
        directory(header, part, |parts, seal| sign(parts) == *seal)
    }

    proptest! {
        #[test]
        fn what_is_written_is_found(
            records in prop::collection::vec((any::<u64>(), 1_usize..40, 1_u16..4), 0..20)
        ) {
            let found = read(&segment(&records)).unwrap();
            prop_assert_eq!(found.lines().len(), records.len());
            let mut offset = HEADER_BYTES as u64;
            for (n, &(key, n_groups, step)) in records.iter().enumerate() {
                let line = found.lines()[n];
                prop_assert_eq!((line.key, line.stamp), (key, key ^ 1));
                prop_assert_eq!((line.offset, line.len as usize), (offset, n_groups));
                offset += n_groups as u64;
                let outline = found.outline(n).unwrap();
                let blocks = outline.blocks().unwrap();
                prop_assert_eq!(blocks.head().n_groups(), n_groups);
                prop_assert_eq!(blocks.profile().steps(0), [step; 64]);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            n_records in 0_u64..9,
        ) {
            let mut header = [0; HEADER_BYTES];
            header[..8].copy_from_slice(Kind::Blocks.magic());
            header[8..16].copy_from_slice(&n_records.to_le_bytes());
            header[16..24].copy_from_slice(&200_u64.to_le_bytes());
            header[24..32].copy_from_slice(&XxHash3_64::oneshot(&bytes).to_le_bytes());
            let found = directory(&header, &bytes, |_, _| true);
            if let Ok(found) = found {
                (0..found.lines().len()).for_each(|n| assert!(found.outline(n).is_some()));
            }
        }
    }

    #[test]
    fn a_changed_byte_of_header_or_directory_is_noticed() {
        let bytes = segment(&[(5, 3, 1), (9, 1, 2)]);
        let groups = HEADER_BYTES..HEADER_BYTES + 4;
        for at in (0..bytes.len()).filter(|at| !groups.contains(at)) {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            assert!(read(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_segment_cut_short_is_noticed() {
        let bytes = segment(&[(5, 3, 1), (9, 1, 2)]);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn equal_profiles_are_kept_once_and_a_cut_leaves_the_first_records() {
        let mut directory = Directory::default();
        for n in 0..5_u64 {
            let (profile, head) = (profile(3), head(2));
            let record =
                NewRecord { key: n, stamp: 0, profile: &profile, head: &head, len: 2 };
            assert!(directory.push(&record, 64 + 2 * n));
        }
        assert_eq!(directory.profiles.len(), profile(3).len());
        directory.cut(64 + 7);
        assert_eq!(directory.lines().len(), 3);
        assert!(directory.outline(2).is_some() && directory.outline(3).is_none());
        directory.cut(0);
        assert!(directory.lines().is_empty());
    }

    #[test]
    fn a_record_that_its_head_does_not_fit_is_not_taken() {
        let (profile, head) = (profile(3), head(4));
        let record =
            NewRecord { key: 1, stamp: 0, profile: &profile, head: &head, len: 3 };
        assert!(!Directory::default().push(&record, 64));
        assert!(!Directory::default().push(&NewRecord { head: &[1], ..record }, 64));
        assert!(!Directory::default().push(&NewRecord { profile: &[], ..record }, 64));
    }

    #[test]
    fn a_segment_of_fetched_records_has_their_checksums() {
        let mut bytes = vec![0; HEADER_BYTES];
        let mut directory = Directory::of(Kind::Records);
        for (key, record) in [(5, &b"first"[..]), (9, b"second")] {
            let head = &checksum(record);
            let len = u32::try_from(record.len()).unwrap();
            let new = NewRecord { key, stamp: 1, profile: &[], head, len };
            assert!(directory.push(&new, bytes.len() as u64));
            assert!(!directory.push(&NewRecord { head: &[1], ..new }, 1 << 20));
            bytes.extend_from_slice(record);
        }
        let encoded = directory.encode();
        let header = header(&directory, &encoded, bytes.len() as u64, sign);
        bytes[..HEADER_BYTES].copy_from_slice(&header);
        bytes.extend(&encoded);
        let found = read(&bytes).unwrap();
        assert_eq!(found.checksum(1), Some(checksum(b"second")));
        assert_eq!((found.checksum(2), found.outline(0)), (None, None));
        // The same bytes as blocks have no profile.
        bytes[..8].copy_from_slice(Kind::Blocks.magic());
        let seal = sign([&bytes[..32], &encoded]);
        bytes[32..64].copy_from_slice(&seal);
        assert!(read(&bytes).is_err());
    }

    #[test]
    fn another_time_is_another_stamp() {
        let stamps = [stamp(1, 2, 3), stamp(2, 2, 3), stamp(1, 3, 3), stamp(1, 2, 4)];
        for (i, a) in stamps.iter().enumerate() {
            assert!(!stamps[..i].contains(a));
        }
        assert!(is_segment("blocks-1-2.segment") && !is_segment("blocks-segment"));
    }
}
