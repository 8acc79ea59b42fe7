//! The extent table: for every sample its file, offset, length, label and, if the format has them,
//! checksum and head. It is stored by columns, with names in arenas: an ImageNet-like class folder costs
//! at most 64 bytes per sample.
//!
//! It does not know formats or bytes on a wire: formats fill a [`TableBuilder`], and `manifest` encodes.
//! Invariants (checked once, for both builders and decoders, in `Table::check`): at least one sample,
//! every index in range, every path inside the data root.

mod builder;
mod columns;
mod joined;
mod manifest;
mod names;

use std::fmt;
use std::ops::Range;

use bothends_core::blocks::{Blocks, Head, Profile};
use bothends_core::ids::{Label, SampleId};
use bothends_core::recipe::RecordShape;
use bothends_core::sample::{Encoding, Extent, FileIdx, Record, RecordPart, RowGroups};
use twox_hash::XxHash3_64;

use crate::error::DatasetError;
use crate::{path, side_index};
use columns::{Heads, Offsets};
use names::Names;

pub use builder::TableBuilder;
pub(crate) use columns::Profiles;
pub use joined::JoinLabels;
pub use manifest::MANIFEST_VERSION;

/// What is read of a record to make a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where it lies.
    pub extent: Extent,
    part: PiecePart,
}

/// Which part of a record a piece is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PiecePart {
    /// All of one that is not kept as blocks.
    Record,
    /// Row groups, from this one on.
    RowGroups { first: usize },
    /// Rows of a JPEG's scan, from this byte of the record on, which has so many.
    Scan { from: u32, of: u32 },
}

impl Piece {
    /// Whether it is a whole record, which is not kept as blocks.
    #[must_use]
    pub fn is_record(&self) -> bool {
        self.part == PiecePart::Record
    }

    /// Whether it is a part of a JPEG's scan.
    #[must_use]
    pub fn is_scan(&self) -> bool {
        matches!(self.part, PiecePart::Scan { .. })
    }

    /// The part of a JPEG's scan that lies in these bytes of its record; `None` unless this is the whole record, and
    /// has them.
    #[must_use]
    pub fn scan(&self, bytes: Range<u32>) -> Option<Self> {
        let Range { start, end } = bytes;
        let len = end.checked_sub(start).filter(|_| end <= self.extent.len)?;
        let offset = self.extent.offset.checked_add(start.into())?;
        self.is_record().then_some(Self {
            extent: Extent { offset, len, ..self.extent },
            part: PiecePart::Scan { from: start, of: self.extent.len },
        })
    }
}

/// A record is not as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "its bytes have a different checksum than when they were packed; \
     restore the file from a copy, or pack the data again"
)]
pub struct WrongChecksum;

/// Where every sample's bytes lie. Never empty; immutable once made.
#[derive(Clone, PartialEq, Eq)]
pub struct Table {
    encoding: Encoding,
    /// Class names by label; empty when the source names none.
    classes: Names,
    folders: Names,
    /// Per file: its folder, and its own name in `leaves`.
    folder_of: Vec<u32>,
    leaves: Names,
    /// Per sample.
    file: Vec<u32>,
    offset: Offsets,
    len: Vec<u32>,
    label: Vec<u32>,
    /// Per sample, or empty.
    checksum: Vec<u64>,
    heads: Heads,
    /// What the heads of many samples have in common; empty without heads.
    profiles: Vec<u8>,
    /// Whether every record is all of its file.
    are_whole_files: bool,
    /// Per file what it was when it was listed, or empty: only a device that was told keeps it.
    marks: Vec<Option<FileMark>>,
}

/// What a file of a remote store was when it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMark {
    /// Its length in bytes.
    pub len: u64,
    /// When it was last changed, in nanoseconds since 1970, if the store says.
    pub modified_ns: Option<u64>,
    /// The store's own mark of its version, if it has one.
    pub etag: Option<Box<str>>,
}

impl Table {
    /// How many records there are, at least 1. Sample ids may go beyond it (a repeated
    /// data set): every id names the record `id % n_samples`.
    #[must_use]
    pub fn n_samples(&self) -> u64 {
        self.len.len() as u64
    }

    /// How many files the samples lie in.
    #[must_use]
    pub fn n_files(&self) -> usize {
        self.leaves.len()
    }

    /// Where the sample's record lies.
    #[must_use]
    pub fn extent(&self, sample: SampleId) -> Extent {
        let row = self.row(sample);
        Extent {
            file: FileIdx(self.file[row]),
            offset: self.offset.get(row),
            len: self.len[row],
        }
    }

    /// How long the sample's file is, where the record is all of it: a file of a different length is
    /// another file. `None` for a record that may be a part of its file.
    #[must_use]
    pub fn file_len(&self, sample: SampleId) -> Option<u64> {
        self.are_whole_files.then(|| u64::from(self.extent(sample).len))
    }

    /// The same of a file, where each has one sample and both are in one order, as in class folders; else `None`.
    #[must_use]
    pub fn whole_file_len(&self, file: FileIdx) -> Option<u64> {
        let row = file.0 as usize;
        let is_its = self.are_whole_files && self.file.get(row) == Some(&file.0);
        is_its.then(|| u64::from(self.len[row]))
    }

    /// What the file was when the sender of the manifest listed it; `None` where it did not say.
    #[must_use]
    pub fn mark(&self, file: FileIdx) -> Option<&FileMark> {
        self.marks.get(file.0 as usize)?.as_ref()
    }

    /// What the side index knows the sample's record by.
    #[must_use]
    pub fn index_key(&self, sample: SampleId) -> u64 {
        self.key_of(self.extent(sample))
    }

    /// What these bytes of a file are known by: a record, or the value of a field.
    #[must_use]
    pub fn key_of(&self, Extent { file, offset, len }: Extent) -> u64 {
        let folder = self.folders.get(self.folder_of[file.0 as usize] as usize);
        side_index::key([folder, self.leaves.get(file.0 as usize)], offset, len)
    }

    /// The sample's class.
    #[must_use]
    pub fn label(&self, sample: SampleId) -> Label {
        Label(i64::from(self.label[self.row(sample)]))
    }

    /// XXH3-64 of the record's bytes, where the format stores one.
    #[must_use]
    pub fn checksum(&self, sample: SampleId) -> Option<u64> {
        self.checksum.get(self.row(sample)).copied()
    }

    /// What is known of a sample that is kept as blocks of coefficients: its record begins
    /// with the row groups that this tells. `None` for one whose bytes are as they were.
    #[must_use]
    pub fn blocks(&self, sample: SampleId) -> Option<Blocks<'_>> {
        self.blocks_of(self.row(sample))
    }

    /// How every record's bytes are to be read.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The part of a record to read for one sample: the row groups that `choose` names where
    /// it is kept as blocks (all of them if it names none), else all of it.
    pub fn piece(
        &self,
        sample: SampleId,
        choose: impl FnOnce(Blocks<'_>) -> Option<Range<usize>>,
    ) -> Piece {
        let extent = self.extent(sample);
        let Some(blocks) = self.blocks(sample) else {
            return Piece { extent, part: PiecePart::Record };
        };
        let head = blocks.head();
        let groups = choose(blocks).filter(|groups| groups.end <= head.n_groups());
        let groups = groups.unwrap_or(0..head.n_groups());
        let bytes = head.bytes_of(groups.clone());
        let len = u32::try_from(bytes.end - bytes.start).unwrap_or(u32::MAX);
        let extent = Extent { offset: extent.offset + bytes.start, len, ..extent };
        Piece { extent, part: PiecePart::RowGroups { first: groups.start } }
    }

    /// The bytes of a piece as a record. Those of a whole record are held against its
    /// checksum, if it has one; row groups have their own, and so have rows of a scan in their note, which
    /// who decodes them looks at.
    ///
    /// # Errors
    /// [`WrongChecksum`].
    pub fn record<'a>(
        &'a self,
        sample: SampleId,
        piece: Piece,
        bytes: &'a [u8],
    ) -> Result<Record<'a>, WrongChecksum> {
        let mut record = Record::new(bytes, self.encoding);
        match (piece.part, self.blocks(sample)) {
            (PiecePart::RowGroups { first }, Some(blocks)) => {
                record.part = RecordPart::RowGroups(RowGroups { blocks, first });
            }
            (PiecePart::Scan { from, of }, _) => {
                record.part = RecordPart::Scan { from, of };
            }
            (PiecePart::RowGroups { .. }, None) | (PiecePart::Record, _) => {
                let known = self.checksum(sample);
                if known.is_some_and(|known| known != XxHash3_64::oneshot(bytes)) {
                    return Err(WrongChecksum);
                }
            }
        }
        Ok(record)
    }

    /// What a recipe may know of the records without reading one. Looks at every length
    /// when records are opaque, else at none.
    ///
    /// # Errors
    /// [`DatasetError::UnequalLengths`] when opaque records differ in length.
    pub fn record_shape(&self) -> Result<RecordShape, DatasetError> {
        match self.encoding {
            Encoding::Image => Ok(RecordShape::Image),
            Encoding::Planar { height, width, channels } => {
                Ok(RecordShape::Planar { height, width, channels })
            }
            Encoding::Opaque => {
                let first = self.len[0];
                match self.len.iter().position(|&len| len != first) {
                    None => Ok(RecordShape::Opaque { len_bytes: first }),
                    Some(row) => Err(DatasetError::UnequalLengths {
                        first,
                        other: self.len[row],
                        path: self.file_path(FileIdx(self.file[row])),
                    }),
                }
            }
        }
    }

    /// The file's path relative to the data root, parts joined by `/`; empty for a number
    /// that is not in this table.
    #[must_use]
    pub fn file_path(&self, file: FileIdx) -> String {
        let file = file.0 as usize;
        let Some(&folder) = self.folder_of.get(file) else { return String::new() };
        path::join(self.folders.get(folder as usize), self.leaves.get(file))
    }

    /// The classes' names by label; none when the source names no classes.
    pub fn class_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.classes.iter()
    }

    /// Memory in bytes, heap and all.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.classes.memory_bytes()
            + self.folders.memory_bytes()
            + self.leaves.memory_bytes()
            + (self.folder_of.capacity() + self.file.capacity()) * size_of::<u32>()
            + (self.len.capacity() + self.label.capacity()) * size_of::<u32>()
            + self.checksum.capacity() * size_of::<u64>()
            + self.offset.memory_bytes()
            + self.heads.memory_bytes()
            + self.profiles.capacity()
    }

    /// The table of the first `n` samples, at least one: what `--limit` leaves of it, on the
    /// host and in the manifest that devices get. Files and classes keep their numbers.
    #[must_use]
    pub fn first(mut self, n: u64) -> Self {
        let n = usize::try_from(n.max(1)).unwrap_or(usize::MAX);
        self.file.truncate(n);
        self.offset.truncate(n);
        self.len.truncate(n);
        self.label.truncate(n);
        self.checksum.truncate(n);
        self.heads.resize(self.len.len());
        if self.heads.bytes.is_empty() {
            self.profiles.clear();
        }
        self
    }

    fn blocks_of(&self, row: usize) -> Option<Blocks<'_>> {
        let head = Head::read(self.heads.get(row))?;
        let profile = self.profiles.get(head.profile as usize..)?;
        Blocks::new(Profile::read(profile)?, head)
    }

    fn row(&self, sample: SampleId) -> usize {
        usize::try_from(sample.0 % self.n_samples())
            .expect("a row of a table that is in memory has an index")
    }

    /// Holds the table's invariants; `at` is what a malformed manifest reports as place.
    fn check(&self, at: usize) -> Result<(), DatasetError> {
        let malformed = |what| Err(DatasetError::Malformed { what, at });
        if self.len.is_empty() {
            return malformed("there is no sample");
        }
        if !self.checksum.is_empty() && self.checksum.len() != self.len.len() {
            return malformed("some samples have a checksum and some have none");
        }
        if !self.heads.is_sound(self.len.len()) {
            return malformed("the ends of the heads do not fit them");
        }
        if self.heads.bytes.is_empty() != self.profiles.is_empty() {
            return malformed("heads without profiles, or profiles without heads");
        }
        if !self.profiles.is_empty() && self.encoding != Encoding::Image {
            return malformed("samples that are not images have heads");
        }
        self.check_names(at)?;
        let record_bytes = planar_bytes(self.encoding)
            .map_err(|what| DatasetError::Malformed { what, at })?;
        for row in 0..self.len.len() {
            let len = self.len[row];
            if self.file[row] as usize >= self.n_files() {
                return malformed("a sample is in a file that is not listed");
            }
            if self.are_whole_files && self.offset.get(row) != 0 {
                return malformed("a record that is a whole file does not begin with it");
            }
            if self.offset.get(row).checked_add(u64::from(len)).is_none() {
                return malformed("a sample reaches beyond the largest file offset");
            }
            if record_bytes.is_some_and(|expected| expected != len) {
                return malformed(
                    "the length of a planar sample does not match its planes",
                );
            }
            let is_kept = |blocks: Blocks<'_>| blocks.head().lies_in(len);
            if !self.heads.get(row).is_empty()
                && !self.blocks_of(row).is_some_and(is_kept)
            {
                return malformed("a head does not fit its profile or its record");
            }
            self.check_label(row)?;
        }
        Ok(())
    }

    fn check_names(&self, at: usize) -> Result<(), DatasetError> {
        if self.classes.iter().any(|class| class.len() > path::MAX_PATH_BYTES) {
            let what = "a class name is longer than 4095 bytes";
            return Err(DatasetError::Malformed { what, at });
        }
        let refuse = |path: &str, why| {
            Err(DatasetError::Path { path: path.escape_debug().to_string(), why })
        };
        for folder in self.folders.iter().filter(|folder| !folder.is_empty()) {
            if let Err(why) = path::check(folder) {
                return refuse(folder, why);
            }
        }
        for (leaf, &folder) in self.leaves.iter().zip(&self.folder_of) {
            if folder as usize >= self.folders.len() {
                let what = "a file is in a folder that is not listed";
                return Err(DatasetError::Malformed { what, at });
            }
            if let Err(why) = path::check(leaf) {
                return refuse(leaf, why);
            }
            if leaf.contains('/') {
                return refuse(leaf, "has a slash in its file name");
            }
            let folder = self.folders.get(folder as usize);
            if folder.len() + 1 + leaf.len() > path::MAX_PATH_BYTES {
                return refuse(leaf, "is longer than 4095 bytes with its folder");
            }
        }
        Ok(())
    }

    fn check_label(&self, row: usize) -> Result<(), DatasetError> {
        let (label, n_classes) = (self.label[row], self.classes.len());
        if n_classes == 0 || (label as usize) < n_classes {
            return Ok(());
        }
        Err(DatasetError::LabelOutOfRange {
            path: self.file_path(FileIdx(self.file[row])),
            record: row as u64,
            label: u64::from(label),
            n_classes: n_classes as u64,
        })
    }
}

/// Bytes of a planar record; `None` for records whose length is not fixed.
fn planar_bytes(encoding: Encoding) -> Result<Option<u32>, &'static str> {
    let Encoding::Planar { height, width, channels } = encoding else { return Ok(None) };
    match height.checked_mul(width).and_then(|plane| plane.checked_mul(channels)) {
        Some(bytes) if bytes > 0 => Ok(Some(bytes)),
        _ => Err("the planes have no bytes or more than 2^32"),
    }
}

impl fmt::Debug for Table {
    /// Sizes, not contents: a table can have millions of rows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("n_samples", &self.n_samples())
            .field("n_files", &self.n_files())
            .field("n_classes", &self.classes.len())
            .field("encoding", &self.encoding)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bothends_core::blocks::{
        Colour, Component, GroupLengths, RowLengths, write_profile,
    };
    use bothends_core::recipe::Size;

    fn one_image() -> TableBuilder {
        let mut builder = TableBuilder::new(Encoding::Image);
        let file = builder.file("a/b.jpg").unwrap();
        builder.sample(Extent { file, offset: 0, len: 10 }, 0);
        builder
    }

    #[test]
    fn an_imagenet_like_class_folder_costs_at_most_64_bytes_per_sample() {
        let mut builder = TableBuilder::new(Encoding::Image);
        for class in 0..100 {
            let wnid = format!("n{:08}", 1_440_764 + class * 317);
            let label = builder.class(&wnid).unwrap();
            for image in 0..1000 {
                let path = format!("{wnid}/{wnid}_{}.JPEG", image * 97);
                let file = builder.file(&path).unwrap();
                builder.sample(Extent { file, offset: 0, len: 110_000 }, label);
            }
        }
        builder.checksums(vec![0; 100_000]);
        let table = builder.build().unwrap();
        let per_sample = table.memory_bytes() as f64 / table.n_samples() as f64;
        assert!(per_sample <= 64.0, "{per_sample} bytes per sample");
        assert!(per_sample > 40.0, "the figure must count the columns: {per_sample}");
        assert_eq!(table.file_path(FileIdx(99_999)), "n01472147/n01472147_96903.JPEG");
    }

    /// Heads as long as those of 500 photographs of ImageNet on average: 25 and 26 row groups.
    #[test]
    fn an_imagenet_like_store_costs_at_most_64_bytes_per_sample() {
        let mut builder = TableBuilder::new(Encoding::Image);
        for shard in 0..10_u32 {
            let file = builder.file(&format!("{shard:05}.shard")).unwrap();
            for image in 0..10_000 {
                let offset = (1 + image * 35) * 4096;
                builder.sample(Extent { file, offset, len: 140_000 }, 0);
                let quality = u16::try_from(1 + image % 50).unwrap();
                let profile = grey(quality);
                let at = builder.profile(&profile).unwrap();
                builder.head(&head(if image % 2 == 0 { 25 } else { 26 }, at)).unwrap();
            }
        }
        builder.checksums(vec![0; 100_000]);
        let table = builder.build().unwrap();
        let per_sample = table.memory_bytes() as f64 / table.n_samples() as f64;
        assert!(per_sample <= 64.0, "{per_sample} bytes per sample");
        assert!(per_sample > 60.0, "the figure must count the heads: {per_sample}");
        let blocks = table.blocks(SampleId(10_003)).unwrap();
        assert_eq!(blocks.head().n_groups(), 26);
        assert_eq!(blocks.profile().steps(0), [4; 64]);
        assert!(one_image().build().unwrap().blocks(SampleId(0)).is_none());
    }

    #[test]
    fn heads_must_fit_their_profile_and_their_record() {
        let with = |profile: &[u8], head: &[u8]| {
            let mut builder = one_image();
            builder.profile(profile).unwrap();
            builder.head(head).unwrap();
            builder.build().map_err(|error| error.to_string())
        };
        assert!(with(&grey(1), &head(10, 0)).is_ok());
        let long = with(&grey(1), &head(11, 0)).unwrap_err();
        assert!(long.contains("a head does not fit"), "{long}");
        assert!(with(&grey(1), &head(10, 1)).is_err(), "no profile begins there");
        assert!(with(&grey(1), &head(10, 0)[..19]).is_err(), "a row group is missing");
        assert!(with(&grey(1)[..99], &head(10, 0)).is_err(), "half a profile");
    }

    fn grey(step: u16) -> Vec<u8> {
        let mut profile = Vec::new();
        let component = Component { h: 1, v: 1, table: 0 };
        write_profile(Colour::Grey, &[component], &[[step; 64]], &mut profile);
        profile
    }

    /// An image with so many row groups of one byte each.
    fn head(n_groups: usize, profile: u32) -> Vec<u8> {
        let size = Size { height: u32::try_from(16 * n_groups).unwrap(), width: 8 };
        let lengths = GroupLengths::new(&vec![1; n_groups]).unwrap();
        lengths.head(size, profile, RowLengths::Narrow).unwrap()
    }

    #[test]
    fn ids_beyond_the_table_name_its_records_again() {
        let single = one_image().build().unwrap();
        assert_eq!(single.extent(SampleId(1)), single.extent(SampleId(0)));
        let mut builder = one_image();
        let file = builder.file("a/c.jpg").unwrap();
        builder.sample(Extent { file, offset: 7, len: 3 }, 5);
        let table = builder.build().unwrap();
        assert_eq!(table.extent(SampleId(1)), table.extent(SampleId(3)));
        assert_eq!(table.label(SampleId(u64::MAX)), Label(5));
        assert_eq!(table.file_path(FileIdx(9)), "");
    }

    #[test]
    fn a_table_without_samples_is_refused() {
        let error = TableBuilder::new(Encoding::Image).build().unwrap_err();
        assert!(error.to_string().contains("no sample"), "{error}");
    }

    #[test]
    fn broken_invariants_are_refused() {
        let mut elsewhere = one_image();
        elsewhere.sample(Extent { file: FileIdx(1), offset: 0, len: 1 }, 0);
        assert!(elsewhere.build().is_err());

        let mut beyond = one_image();
        beyond.sample(Extent { file: FileIdx(0), offset: u64::MAX, len: 1 }, 0);
        assert!(beyond.build().is_err());

        let mut label = one_image();
        label.class("only").unwrap();
        label.sample(Extent { file: FileIdx(0), offset: 0, len: 1 }, 1);
        assert!(matches!(
            label.build(),
            Err(DatasetError::LabelOutOfRange { label: 1, n_classes: 1, .. })
        ));

        let mut up = TableBuilder::new(Encoding::Image);
        let file = up.file("../b.jpg").unwrap();
        up.sample(Extent { file, offset: 0, len: 10 }, 0);
        assert!(matches!(up.build(), Err(DatasetError::Path { .. })));

        let mut checksums = one_image();
        checksums.checksums(vec![1, 2]);
        assert!(checksums.build().is_err());
    }

    #[test]
    fn opaque_records_have_a_shape_when_their_lengths_agree() {
        let mut builder = TableBuilder::new(Encoding::Opaque);
        let file = builder.file("all.bin").unwrap();
        builder.sample(Extent { file, offset: 0, len: 8 }, 0);
        builder.sample(Extent { file, offset: 8, len: 8 }, 0);
        let equal = builder.build().unwrap();
        assert_eq!(equal.record_shape().unwrap(), RecordShape::Opaque { len_bytes: 8 });

        let mut unequal = TableBuilder::new(Encoding::Opaque);
        let file = unequal.file("all.bin").unwrap();
        unequal.sample(Extent { file, offset: 0, len: 8 }, 0);
        unequal.sample(Extent { file, offset: 8, len: 9 }, 0);
        let error = unequal.build().unwrap().record_shape().unwrap_err();
        assert!(error.to_string().contains("8 and 9 bytes (`all.bin`)"), "{error}");
    }

    #[test]
    fn the_first_samples_are_a_table_of_their_own() {
        let mut builder = TableBuilder::new(Encoding::Image);
        let file = builder.file("a/b.bin").unwrap();
        for len in [8, 9, 10] {
            builder.sample(Extent { file, offset: 0, len }, 0);
        }
        let whole = builder.build().unwrap();
        let first = whole.clone().first(2);
        assert_eq!(first.n_samples(), 2);
        assert_eq!(first.extent(SampleId(3)), whole.extent(SampleId(1)));
        assert_ne!(first.hash(), whole.hash());
        assert_eq!(Table::decode(&first.encode()).unwrap(), first);
        assert_eq!(whole.clone().first(99), whole);
        assert_eq!(whole.first(0).n_samples(), 1);
    }
}
