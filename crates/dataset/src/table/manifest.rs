//! The manifest: a table's bytes, as a host sends them to a device. Little endian.
//!
//! ```text
//!  0  magic "BE-TABLE"              40  n_folders u32
//!  8  version u32                   44  n_files   u32
//! 12  encoding u32 (image 0,        48  n_samples u64
//!     planar 1, opaque 2)           56  checksums u32 (0 or 1 per sample)
//! 16  height, width, channels u32   60  flags u32: 1 records are whole files,
//!                                        2 files have marks
//! 28  bytes of profiles u32         64  classes, folders: u16 length + UTF-8 each
//! 32  bytes of heads u32                files: u32 folder, u16 length + UTF-8 each
//! 36  n_classes u32                     columns: file u32, offset u64, len u32,
//!                                                label u32, [checksum u64]
//!                                       profiles, heads; where there are heads,
//!                                       the end of each sample's: u32
//!                                       [per file its mark: u8 with 1 if it has one,
//!                                       2 for a time, 4 for an ETag; length u64,
//!                                       time u64, u16 length + UTF-8 of the ETag]
//! ```
//! Whoever decodes trusts nothing: every count is held against the bytes that are left
//! before anything is allocated, and one manifest has one spelling (accepted bytes encode
//! to themselves). Damage on the way is the transport's business, so there is no checksum.

use bothends_core::sample::{Encoding, FileIdx};
use twox_hash::XxHash3_128;

use super::columns::Heads;
use super::names::Names;
use super::{FileMark, Table};
use crate::error::DatasetError;

/// The version this build writes and reads.
pub const MANIFEST_VERSION: u32 = 2;

const MAGIC: &[u8; 8] = b"BE-TABLE";

/// Flags of the header.
const WHOLE_FILES: u32 = 1;
const MARKED: u32 = 2;

/// What a file's mark has.
const HAS_MARK: u8 = 1;
const HAS_TIME: u8 = 2;
const HAS_ETAG: u8 = 4;

impl Table {
    /// The table as a manifest.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let is_marked = !self.marks.is_empty();
        self.encoded(is_marked.then_some(|file| self.mark(file).cloned()))
    }

    /// The same, which also says what each file was when it was listed: for data in a remote store, so that
    /// a device that finds another object there says so.
    #[must_use]
    pub fn encode_marked(&self, mark: impl Fn(FileIdx) -> Option<FileMark>) -> Vec<u8> {
        self.encoded(Some(mark))
    }

    fn encoded(&self, mark: Option<impl Fn(FileIdx) -> Option<FileMark>>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let whole_files = if self.are_whole_files { WHOLE_FILES } else { 0 };
        let marked = if mark.is_some() { MARKED } else { 0 };
        self.write(whole_files | marked, &mut |part| bytes.extend_from_slice(part));
        if let Some(mark) = mark {
            let files = 0..count_u32(self.n_files());
            files.for_each(|file| put_mark(mark(FileIdx(file)), &mut bytes));
        }
        bytes
    }

    /// XXH3-128 of the manifest, of which it does not matter whether records are whole files.
    /// Passes over the whole table: ask once and keep it.
    #[must_use]
    pub fn hash(&self) -> u128 {
        let mut state = XxHash3_128::new();
        self.write(0, &mut |part| state.write(part));
        state.finish_128()
    }

    /// Reads a manifest from untrusted bytes. Allocates in proportion to their number.
    ///
    /// # Errors
    /// [`DatasetError::Version`] for another version; else [`DatasetError::Malformed`],
    /// [`DatasetError::Path`] or [`DatasetError::LabelOutOfRange`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DatasetError> {
        let mut fields = Fields { bytes, at: 0 };
        let header = Header::read(&mut fields)?;
        let flags = fields.u32()?;
        if flags > WHOLE_FILES | MARKED {
            return Err(fields.malformed("unknown flags"));
        }
        let classes = fields.names(header.n_classes, "a class name")?;
        let folders = fields.names(header.n_folders, "a folder name")?;
        let (folder_of, leaves) = fields.files(header.n_files)?;
        let n = usize::try_from(header.n_samples)
            .map_err(|_| fields.malformed("more samples than bytes"))?;
        let mut table = Self {
            encoding: header.encoding,
            classes,
            folders,
            folder_of,
            leaves,
            file: fields.column(n, u32::from_le_bytes)?,
            offset: fields.column(n, u64::from_le_bytes)?.into_iter().collect(),
            len: fields.column(n, u32::from_le_bytes)?,
            label: fields.column(n, u32::from_le_bytes)?,
            checksum: fields
                .column(if header.checksums { n } else { 0 }, u64::from_le_bytes)?,
            profiles: fields.take(header.n_profile_bytes as usize)?.to_vec(),
            heads: Heads {
                bytes: fields.take(header.n_head_bytes as usize)?.to_vec(),
                ends: fields.column(
                    if header.n_head_bytes > 0 { n } else { 0 },
                    u32::from_le_bytes,
                )?,
            },
            are_whole_files: flags & WHOLE_FILES != 0,
            marks: Vec::new(),
        };
        if flags & MARKED != 0 {
            for _ in 0..header.n_files {
                table.marks.push(fields.mark()?);
            }
        }
        if fields.at != bytes.len() {
            return Err(fields.malformed("bytes after the last column"));
        }
        table.check(bytes.len())?;
        Ok(table)
    }

    fn write(&self, flags: u32, out: &mut dyn FnMut(&[u8])) {
        let (tag, [height, width, channels]) = match self.encoding {
            Encoding::Image => (0, [0; 3]),
            Encoding::Planar { height, width, channels } => {
                (1, [height, width, channels])
            }
            Encoding::Opaque => (2, [0; 3]),
        };
        out(MAGIC);
        for field in [MANIFEST_VERSION, tag, height, width, channels] {
            out(&field.to_le_bytes());
        }
        for count in [self.profiles.len(), self.heads.bytes.len()] {
            out(&count_u32(count).to_le_bytes());
        }
        for count in [self.classes.len(), self.folders.len(), self.leaves.len()] {
            out(&count_u32(count).to_le_bytes());
        }
        out(&self.n_samples().to_le_bytes());
        out(&u32::from(!self.checksum.is_empty()).to_le_bytes());
        out(&flags.to_le_bytes());
        self.classes
            .iter()
            .chain(self.folders.iter())
            .for_each(|name| put_name(name, out));
        for (leaf, folder) in self.leaves.iter().zip(&self.folder_of) {
            out(&folder.to_le_bytes());
            put_name(leaf, out);
        }
        self.file.iter().for_each(|value| out(&value.to_le_bytes()));
        self.offset.iter().for_each(|value| out(&value.to_le_bytes()));
        self.len.iter().for_each(|value| out(&value.to_le_bytes()));
        self.label.iter().for_each(|value| out(&value.to_le_bytes()));
        self.checksum.iter().for_each(|value| out(&value.to_le_bytes()));
        out(&self.profiles);
        out(&self.heads.bytes);
        self.heads.ends.iter().for_each(|value| out(&value.to_le_bytes()));
    }
}

fn count_u32(count: usize) -> u32 {
    u32::try_from(count).expect("columns count with u32")
}

fn put_name(name: &str, out: &mut dyn FnMut(&[u8])) {
    let len = u16::try_from(name.len()).expect("Table::check bounds every name");
    out(&len.to_le_bytes());
    out(name.as_bytes());
}

/// Marks whose ETag is longer than a name may be go without it.
fn put_mark(mark: Option<FileMark>, out: &mut Vec<u8>) {
    let Some(FileMark { len, modified_ns, etag }) = mark else {
        return out.push(0);
    };
    let etag = etag.filter(|etag| u16::try_from(etag.len()).is_ok());
    let time = if modified_ns.is_some() { HAS_TIME } else { 0 };
    let name = if etag.is_some() { HAS_ETAG } else { 0 };
    out.push(HAS_MARK | time | name);
    out.extend(len.to_le_bytes());
    out.extend(modified_ns.iter().flat_map(|ns| ns.to_le_bytes()));
    if let Some(etag) = etag {
        put_name(&etag, &mut |part| out.extend_from_slice(part));
    }
}

/// The first 60 bytes, checked.
struct Header {
    encoding: Encoding,
    n_profile_bytes: u32,
    n_head_bytes: u32,
    n_classes: u32,
    n_folders: u32,
    n_files: u32,
    n_samples: u64,
    checksums: bool,
}

impl Header {
    fn read(fields: &mut Fields<'_>) -> Result<Self, DatasetError> {
        if fields.take(MAGIC.len())? != MAGIC {
            return Err(fields.malformed("the first eight bytes are not BE-TABLE"));
        }
        let theirs = fields.u32()?;
        if theirs != MANIFEST_VERSION {
            return Err(DatasetError::Version { ours: MANIFEST_VERSION, theirs });
        }
        let tag = fields.u32()?;
        let planes = [fields.u32()?, fields.u32()?, fields.u32()?];
        let encoding = match (tag, planes) {
            (0, [0, 0, 0]) => Encoding::Image,
            (1, [height, width, channels]) => {
                Encoding::Planar { height, width, channels }
            }
            (2, [0, 0, 0]) => Encoding::Opaque,
            _ => return Err(fields.malformed("unknown encoding")),
        };
        let header = Self {
            encoding,
            n_profile_bytes: fields.u32()?,
            n_head_bytes: fields.u32()?,
            n_classes: fields.u32()?,
            n_folders: fields.u32()?,
            n_files: fields.u32()?,
            n_samples: fields.u64()?,
            checksums: fields.flag("the checksum flag is neither 0 nor 1")?,
        };
        Ok(header)
    }
}

/// Untrusted bytes, read front to back.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn malformed(&self, what: &'static str) -> DatasetError {
        DatasetError::Malformed { what, at: self.at }
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], DatasetError> {
        if n > self.left() {
            return Err(self.malformed("the bytes end too early"));
        }
        let taken = &self.bytes[self.at..self.at + n];
        self.at += n;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DatasetError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u32(&mut self) -> Result<u32, DatasetError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, DatasetError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn flag(&mut self, otherwise: &'static str) -> Result<bool, DatasetError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed(otherwise)),
        }
    }

    fn name(&mut self, what: &'static str) -> Result<&'a str, DatasetError> {
        let len = u16::from_le_bytes(self.array()?);
        let bytes = self.take(usize::from(len))?;
        std::str::from_utf8(bytes)
            .map_err(|_| DatasetError::Malformed { what, at: self.at - bytes.len() })
    }

    fn mark(&mut self) -> Result<Option<FileMark>, DatasetError> {
        let [has] = self.array()?;
        if has == 0 {
            return Ok(None);
        }
        if has & HAS_MARK == 0 || has > HAS_MARK | HAS_TIME | HAS_ETAG {
            return Err(self.malformed("a file's mark of an unknown kind"));
        }
        let len = self.u64()?;
        let modified_ns = match has & HAS_TIME {
            0 => None,
            _ => Some(self.u64()?),
        };
        let etag = match has & HAS_ETAG {
            0 => None,
            _ => Some(self.name("an ETag that is not UTF-8")?.into()),
        };
        Ok(Some(FileMark { len, modified_ns, etag }))
    }

    fn names(&mut self, n: u32, what: &'static str) -> Result<Names, DatasetError> {
        let mut names = Names::default();
        for _ in 0..n {
            names.push(self.name(what)?)?;
        }
        names.shrink_to_fit();
        Ok(names)
    }

    fn files(&mut self, n: u32) -> Result<(Vec<u32>, Names), DatasetError> {
        let (mut folder_of, mut leaves) = (Vec::new(), Names::default());
        for _ in 0..n {
            folder_of.push(self.u32()?);
            leaves.push(self.name("a file name")?)?;
        }
        folder_of.shrink_to_fit();
        leaves.shrink_to_fit();
        Ok((folder_of, leaves))
    }

    fn column<T, const N: usize>(
        &mut self,
        n: usize,
        read: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, DatasetError> {
        let len = n.checked_mul(N).ok_or_else(|| self.malformed("too many samples"))?;
        let (cells, _) = self.take(len)?.as_chunks::<N>();
        Ok(cells.iter().map(|&cell| read(cell)).collect())
    }
}
