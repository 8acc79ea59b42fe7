//! The index of a shard: a line for each record, and what is known about the records besides their bytes
//! (profiles, heads, names, metadata).
//!
//! [`IndexBuilder`] writes it and [`Index::decode`] reads it; the output of the one is checked by the
//! rules of the other. A decoded index cannot lead outside itself: every end was checked, every record
//! comes after the one before, and every head names a profile.

use bothends_core::blocks::{Blocks, Head, Profile};
use twox_hash::XxHash3_64;

use super::{Header, MAX_RECORD_BYTES, PAGE_BYTES, Refusal};
use crate::error::DatasetError;
use crate::path;
use crate::table::Profiles;

const LINE_BYTES: usize = 48;
const COUNTS_BYTES: usize = 24;

/// How a record is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RecordKind {
    /// As it was.
    Bytes,
    /// As blocks of coefficients.
    Blocks,
    /// No sample: bytes of an original file that belong to none, or (label 1) a folder.
    #[default]
    Rest,
}

/// What the index says of a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Line {
    /// Its first page.
    pub first_page: u32,
    /// Length of what is stored.
    pub len: u32,
    /// How it is kept.
    pub kind: RecordKind,
    /// A sample's label.
    pub label: u32,
    /// Number of the name of its original file.
    pub name: u32,
    /// Length of the original bytes.
    pub original_len: u32,
    /// Where they began in the original file; of a rest, how long the whole file is.
    pub original_at: u64,
    /// XXH3-64 of what is stored.
    pub checksum: u64,
    metadata_end: u32,
    head_end: u32,
}

impl Line {
    /// Where in the shard it begins, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        u64::from(self.first_page) * PAGE_BYTES
    }

    fn end_page(&self) -> u64 {
        u64::from(self.first_page) + u64::from(self.len).div_ceil(PAGE_BYTES)
    }

    fn encode(&self) -> [u8; LINE_BYTES] {
        let kind = match self.kind {
            RecordKind::Bytes => 0,
            RecordKind::Blocks => 1,
            RecordKind::Rest => 2,
        };
        let numbers = [
            pair(self.first_page, self.len),
            pair(kind, self.label),
            pair(self.name, self.original_len),
            self.original_at,
            self.checksum,
            pair(self.metadata_end, self.head_end),
        ];
        let mut bytes = [0; LINE_BYTES];
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (word, number) in words.iter_mut().zip(numbers) {
            *word = number.to_le_bytes();
        }
        bytes
    }

    fn decode(bytes: &[u8; LINE_BYTES]) -> Result<Self, &'static str> {
        let (halves, _) = bytes.as_chunks::<4>();
        let half = |at: usize| u32::from_le_bytes(halves[at / 4]);
        let word = |at: usize| pair(half(at), half(at + 4));
        let line = Self {
            first_page: half(0),
            len: half(4),
            kind: match half(8) {
                0 => RecordKind::Bytes,
                1 => RecordKind::Blocks,
                2 => RecordKind::Rest,
                _ => return Err("is of an unknown kind"),
            },
            label: half(12),
            name: half(16),
            original_len: half(20),
            original_at: word(24),
            checksum: word(32),
            metadata_end: half(40),
            head_end: half(44),
        };
        line.check_lengths().map(|()| line)
    }

    /// The rules that a line keeps by itself.
    fn check_lengths(&self) -> Result<(), &'static str> {
        if self.len > MAX_RECORD_BYTES || self.original_len > MAX_RECORD_BYTES {
            return Err("is longer than 2^31 bytes");
        }
        if self.kind != RecordKind::Blocks && self.original_len != self.len {
            return Err("is stored as is, but with a different length");
        }
        if self.kind == RecordKind::Rest {
            if self.label > 1 || (self.label == 1 && self.original_at > 0) {
                return Err("is neither the rest of a file nor an empty folder");
            }
            if self.original_at < u64::from(self.len) {
                return Err("is longer than the file that it is the rest of");
            }
        }
        match self.original_at.checked_add(u64::from(self.original_len)) {
            Some(_) => Ok(()),
            None => Err("reaches beyond the largest file offset"),
        }
    }
}

/// Two halves as one number, the low one first.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// A shard's index, found good.
#[derive(Debug)]
pub struct Index<'a> {
    lines: Vec<Line>,
    profiles: &'a [u8],
    heads: &'a [u8],
    name_ends: &'a [[u8; 4]],
    names: &'a str,
    metadata: &'a str,
}

impl<'a> Index<'a> {
    /// Reads an index from untrusted bytes. Allocates in proportion to their number.
    ///
    /// # Errors
    /// [`Refusal::Damaged`].
    pub fn decode(bytes: &'a [u8], header: &Header) -> Result<Self, Refusal> {
        if XxHash3_64::oneshot(bytes) != header.index_checksum() {
            return Err(Refusal::damaged("the checksum of its index does not match"));
        }
        let index = Self::sections(bytes)?;
        index.check_names().map_err(Refusal::damaged)?;
        let profile_starts = index.profile_starts().map_err(Refusal::damaged)?;
        // A rest of nothing stands before the first line.
        let mut before = Line { first_page: 1, ..Line::default() };
        for (number, line) in index.lines.iter().enumerate() {
            index.check_line(line, &before, &profile_starts).map_err(|what| {
                Refusal::damaged(format_args!("its record {number} {what}"))
            })?;
            before = *line;
        }
        if before.end_page() != header.end_page() {
            return Err(Refusal::damaged("its index does not follow its last record"));
        }
        if (before.metadata_end as usize, before.head_end as usize)
            != (index.metadata.len(), index.heads.len())
        {
            return Err(Refusal::damaged("heads or metadata are left over"));
        }
        Ok(index)
    }

    /// How many of the records are samples.
    #[must_use]
    pub fn n_samples(&self) -> u64 {
        let samples = self.lines.iter().filter(|line| line.kind != RecordKind::Rest);
        samples.count() as u64
    }

    /// Every record's line, in order.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The head of that record; empty where it has none.
    #[must_use]
    pub fn head(&self, number: usize) -> &'a [u8] {
        let end = |line: &Line| line.head_end as usize;
        self.section(number, end)
            .and_then(|part| self.heads.get(part))
            .unwrap_or_default()
    }

    /// The profile that the record's head names; empty where it has none.
    #[must_use]
    pub fn profile(&self, number: usize) -> &'a [u8] {
        let head = Head::read(self.head(number));
        head.and_then(|head| self.profile_at(head.profile))
            .map(Profile::bytes)
            .unwrap_or_default()
    }

    /// The record's metadata, a JSON text; empty where it has none.
    #[must_use]
    pub fn metadata(&self, number: usize) -> &'a str {
        let end = |line: &Line| line.metadata_end as usize;
        self.section(number, end)
            .and_then(|part| self.metadata.get(part))
            .unwrap_or_default()
    }

    /// The path of the original file of that number.
    #[must_use]
    pub fn name(&self, name: u32) -> &'a str {
        let name = name as usize;
        let end = |name: usize| self.name_ends.get(name).map(|&end| ending(end));
        let start = name.checked_sub(1).map_or(Some(0), end);
        let range = start.zip(end(name)).map(|(start, end)| start..end);
        range.and_then(|range| self.names.get(range)).unwrap_or_default()
    }

    /// Takes the sections apart, each as long as it says.
    fn sections(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let (counts, rest) = bytes
            .split_at_checked(COUNTS_BYTES)
            .ok_or_else(|| Refusal::damaged("its index has no counts"))?;
        let (counts, _) = counts.as_chunks::<4>();
        let [n_records, profiles, heads, n_names, names, metadata] =
            [0, 1, 2, 3, 4, 5].map(|idx| u64::from(u32::from_le_bytes(counts[idx])));
        let lines = n_records * LINE_BYTES as u64;
        let sizes = [lines, profiles, heads, 4 * n_names, names, metadata];
        if sizes.iter().sum::<u64>() != rest.len() as u64 {
            return Err(Refusal::damaged(
                "the length of its index does not match its parts",
            ));
        }
        let mut rest = rest;
        let [lines, profiles, heads, name_ends, names, metadata] = sizes.map(|size| {
            // What adds up to a length that is in memory fits an index.
            let (section, behind) = rest.split_at(usize::try_from(size).unwrap_or(0));
            rest = behind;
            section
        });
        let text = |bytes| {
            str::from_utf8(bytes)
                .map_err(|_| Refusal::damaged("names or metadata are not UTF-8"))
        };
        let (lines, _) = lines.as_chunks::<LINE_BYTES>();
        let line = |(number, line)| {
            Line::decode(line).map_err(|what| {
                Refusal::damaged(format_args!("its record {number} {what}"))
            })
        };
        Ok(Self {
            lines: lines.iter().enumerate().map(line).collect::<Result<_, _>>()?,
            profiles,
            heads,
            name_ends: name_ends.as_chunks().0,
            names: text(names)?,
            metadata: text(metadata)?,
        })
    }

    fn check_names(&self) -> Result<(), &'static str> {
        let mut start = 0;
        for &end in self.name_ends {
            let end = ending(end);
            let name = self.names.get(start..end).ok_or("a name ends nowhere")?;
            path::check(name)
                .map_err(|_| "a name is not a path below the data's folder")?;
            start = end;
        }
        if start == self.names.len() { Ok(()) } else { Err("names are left over") }
    }

    /// Where profiles begin; they follow each other without gaps.
    fn profile_starts(&self) -> Result<Vec<u32>, &'static str> {
        let mut starts = Vec::new();
        let mut at = 0;
        while at < self.profiles.len() {
            starts.push(u32::try_from(at).map_err(|_| "its profiles are too long")?);
            let profile = Profile::read(&self.profiles[at..]);
            at += profile.ok_or("it has a broken profile")?.bytes().len();
        }
        Ok(starts)
    }

    /// The rules that a line keeps with the one before and the other sections.
    fn check_line(
        &self,
        line: &Line,
        before: &Line,
        profile_starts: &[u32],
    ) -> Result<(), &'static str> {
        if u64::from(line.first_page) != before.end_page() {
            return Err("does not come after the previous one");
        }
        if line.name as usize >= self.name_ends.len() {
            return Err("has no name");
        }
        let (start, end) = (before.metadata_end as usize, line.metadata_end as usize);
        if self.metadata.get(start..end).is_none() {
            return Err("has metadata that end nowhere");
        }
        let (start, end) = (before.head_end as usize, line.head_end as usize);
        let head = self.heads.get(start..end).ok_or("has a head that ends nowhere")?;
        match line.kind {
            RecordKind::Bytes | RecordKind::Rest if head.is_empty() => Ok(()),
            RecordKind::Bytes | RecordKind::Rest => Err("has a head, but no blocks"),
            RecordKind::Blocks => {
                let head = Head::read(head).ok_or("has a broken head")?;
                profile_starts
                    .binary_search(&head.profile)
                    .ok()
                    .and_then(|_| Blocks::new(self.profile_at(head.profile)?, head))
                    .filter(|_| head.lies_in(line.len))
                    .map(|_| ())
                    .ok_or("has row groups that do not fit its profile or its length")
            }
        }
    }

    fn profile_at(&self, at: u32) -> Option<Profile<'a>> {
        Profile::read(self.profiles.get(at as usize..)?)
    }

    /// A record's part of a section, by where its line says that it ends.
    fn section(
        &self,
        number: usize,
        end: impl Fn(&Line) -> usize,
    ) -> Option<std::ops::Range<usize>> {
        let line = self.lines.get(number)?;
        let before = number.checked_sub(1).and_then(|before| self.lines.get(before));
        Some(before.map_or(0, &end)..end(line))
    }
}

fn ending(bytes: [u8; 4]) -> usize {
    u32::from_le_bytes(bytes) as usize
}

/// Names another profile in a head.
pub(crate) fn name_profile(head: &mut [u8], profile: u32) {
    // Behind rows and columns.
    if let Some(bytes) = head.get_mut(4..).and_then(<[u8]>::first_chunk_mut) {
        *bytes = profile.to_le_bytes();
    }
}

/// A record on its way into a shard.
#[derive(Debug, Clone, Copy)]
pub struct NewRecord<'a> {
    /// How it is kept.
    pub kind: RecordKind,
    /// What is stored.
    pub stored: &'a [u8],
    /// A sample's label; 1 for an empty folder.
    pub label: u32,
    /// Its original file's path, relative to the data's root.
    pub path: &'a str,
    /// Where it began there; of a rest, how long the whole file is.
    pub original_at: u64,
    /// How long it was.
    pub original_len: u32,
    /// A JSON text, or nothing.
    pub metadata: &'a str,
    /// A record of blocks' head; which profile it names does not matter.
    pub head: &'a [u8],
    /// A record of blocks' profile.
    pub profile: &'a [u8],
}

/// An index in the making: the records come in the order in which they lie in the shard.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    lines: Vec<Line>,
    profiles: Profiles,
    heads: Vec<u8>,
    name_ends: Vec<u32>,
    names: String,
    /// The path that was named last: a file's records come together.
    last_path: String,
    metadata: String,
}

impl IndexBuilder {
    /// Where the next record begins in the shard, in bytes; after the last one, the index.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.lines.last().map_or(1, Line::end_page) * PAGE_BYTES
    }

    /// Adds the next record, which lies at [`offset`](Self::offset).
    ///
    /// # Errors
    /// [`DatasetError::TooMany`] when the shard holds no more.
    pub fn push(&mut self, record: &NewRecord<'_>) -> Result<(), DatasetError> {
        let count = DatasetError::count;
        let n_pages = usize::try_from(self.offset() / PAGE_BYTES).unwrap_or(usize::MAX);
        let first_page = count(n_pages, "pages in a shard")?;
        if record.kind == RecordKind::Blocks {
            let mut head = record.head.to_vec();
            name_profile(&mut head, self.profiles.put(record.profile)?);
            self.heads.extend(head);
        }
        self.metadata.push_str(record.metadata);
        let line = Line {
            first_page,
            len: count(record.stored.len(), "bytes in a record")?,
            kind: record.kind,
            label: record.label,
            name: self.name(record.path)?,
            original_len: record.original_len,
            original_at: record.original_at,
            checksum: XxHash3_64::oneshot(record.stored),
            metadata_end: count(self.metadata.len(), "bytes of metadata")?,
            head_end: count(self.heads.len(), "bytes of heads")?,
        };
        self.lines.push(line);
        Ok(())
    }

    /// The index, and the shard's header with it.
    ///
    /// # Errors
    /// [`Refusal::Damaged`] when a record broke a rule of the format.
    pub fn finish(self) -> Result<(Header, Vec<u8>), Refusal> {
        let sizes = [
            self.lines.len(),
            self.profiles.bytes.len(),
            self.heads.len(),
            self.name_ends.len(),
            self.names.len(),
            self.metadata.len(),
        ];
        let mut bytes = Vec::new();
        for size in sizes.map(|size| DatasetError::count(size, "bytes in an index")) {
            bytes.extend(size.map_err(Refusal::damaged)?.to_le_bytes());
        }
        bytes.extend(self.lines.iter().flat_map(Line::encode));
        bytes.extend(&self.profiles.bytes);
        bytes.extend(&self.heads);
        bytes.extend(self.name_ends.iter().flat_map(|end| end.to_le_bytes()));
        bytes.extend(self.names.as_bytes());
        bytes.extend(self.metadata.as_bytes());
        let header = Header::new(self.offset(), &bytes)?;
        Index::decode(&bytes, &header)?;
        Ok((header, bytes))
    }

    fn name(&mut self, path: &str) -> Result<u32, DatasetError> {
        if self.name_ends.is_empty() || self.last_path != path {
            path.clone_into(&mut self.last_path);
            self.names.push_str(path);
            let end = DatasetError::count(self.names.len(), "bytes of names")?;
            self.name_ends.push(end);
        }
        DatasetError::count(self.name_ends.len() - 1, "names")
    }
}
