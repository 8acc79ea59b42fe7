//! Samples that the caller lists, in place of a data set that is found at a path: files,
//! parts of files, or bytes that it gives when asked; and its decoder for records that `ops`
//! refuses, damaged images and formats that it does not read.
//!
//! Files become extents of a table like any other: devices, side index and resuming know no
//! difference. Bytes that are asked for stay with the host.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bothends_core::ids::SampleId;
use bothends_core::sample::{Encoding, Extent, FileIdx};
use bothends_dataset::{DatasetError, Kind, Storage as _, Table, TableBuilder};
use bothends_io::{Folder, is_of_machine};

use crate::error::RuntimeError;

/// Gives a record's bytes. Called by the host's workers, each with one record at a time, and
/// rarely by the feed; a call may block, and holds up its worker only.
pub trait Records: Send + Sync + fmt::Debug {
    /// The whole record of the sample, an image file say, by its number in the data set.
    ///
    /// # Errors
    /// Why there are no bytes. The sample is then a bad one (`on_bad`), unless the error is one of
    /// the machine's ([`Unread`]).
    fn read(&self, sample: u64) -> Result<Vec<u8>, Unread>;
}

/// Why a caller gives no bytes. An [`io::Error`] with a number of the system's keeps it: memory or
/// open files that are missing, say, tell nothing about the sample. It is asked for again for two
/// seconds, and then the run ends, whatever `on_bad` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    why: String,
    errno: Option<i32>,
}

impl Unread {
    /// With one line for the user, and the system's number where it has one (errno(3)).
    #[must_use]
    pub fn new(why: impl Into<String>, errno: Option<i32>) -> Self {
        Self { why: why.into(), errno }
    }

    /// Of the record that messages call `name`.
    pub(crate) fn unmade(self, name: String) -> Unmade {
        let source = self.errno.map(io::Error::from_raw_os_error);
        match source.filter(is_of_machine) {
            Some(source) => Unmade::Machine(Failure::Local { path: name.into(), source }),
            None => Unmade::Bad(self.why),
        }
    }
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self::new(error.to_string(), error.raw_os_error())
    }
}

impl From<String> for Unread {
    fn from(why: String) -> Self {
        Self::new(why, None)
    }
}

/// Why a sample is missing.
#[derive(Debug)]
pub(crate) enum Unmade {
    /// It cannot be read or decoded, whoever tries: the bad-sample policy says what to do.
    Bad(String),
    /// The machine failed: nothing is known of the sample, and no policy makes up for it.
    Machine(Failure),
}

/// What failed, other than the sample.
#[derive(Debug)]
pub(crate) enum Failure {
    /// This machine, at a file.
    Local { path: PathBuf, source: io::Error },
    /// The store that the data are in, or the way to it: one line with the remedy.
    Remote(String),
}

impl Failure {
    /// What ends the run, whatever the policy.
    pub(crate) fn into_error(self) -> RuntimeError {
        match self {
            Self::Local { path, source } => RuntimeError::Unreadable { path, source },
            Self::Remote(why) => RuntimeError::Remote { why },
        }
    }
}

/// One line, for a worker whose row is made again.
impl fmt::Display for Unmade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bad(why) => f.write_str(why),
            Self::Machine(Failure::Local { path, source }) => {
                write!(f, "`{}` cannot be read ({source})", path.display())
            }
            Self::Machine(Failure::Remote(why)) => f.write_str(why),
        }
    }
}

/// Decodes what `ops` does not. Called by the feed, with one record at a time; a call may take
/// long, and holds up the batch that the record is in.
pub trait Redecode: Send + Sync + fmt::Debug {
    /// The record's image as a PNG of its pixels: RGB, 8 bits.
    ///
    /// # Errors
    /// One line: why there is no image. The sample is then a bad one (`on_bad`).
    fn redecode(&self, record: &[u8]) -> Result<Vec<u8>, String>;
}

/// The caller's decoder, shared by whoever makes samples again.
pub type Redecoder = Arc<dyn Redecode>;

/// The samples of a run, as its caller lists them. Clones share them.
#[derive(Debug, Clone)]
pub struct Supplied {
    pub(crate) table: Arc<Table>,
    pub(crate) records: Option<Arc<dyn Records>>,
}

/// A sample in a file.
#[derive(Debug, Clone, Copy)]
pub struct SuppliedFile<'a> {
    /// Relative to the data's root.
    pub path: &'a str,
    /// Offset and length in bytes; `None` is the whole file.
    pub extent: Option<(u64, u32)>,
    /// Its class.
    pub label: u32,
}

impl Supplied {
    /// Samples in files below `root`. Asks for the length of each whole file.
    ///
    /// # Errors
    /// [`RuntimeError::Data`] names the file that does not exist or is not a regular file.
    pub fn files<'a>(
        root: &Path,
        files: impl Iterator<Item = SuppliedFile<'a>>,
    ) -> Result<Self, RuntimeError> {
        let failed = |why| RuntimeError::Data { path: root.to_owned(), why };
        let table = table_of(&Folder(root.to_owned()), files).map_err(failed)?;
        Ok(Self { table: Arc::new(table), records: None })
    }

    /// Samples whose bytes `records` gives, one for each label.
    ///
    /// # Errors
    /// [`RuntimeError::Data`] when there is none.
    pub fn records(
        name: &str,
        labels: &[u32],
        records: Arc<dyn Records>,
    ) -> Result<Self, RuntimeError> {
        let failed = |why: DatasetError| RuntimeError::Data {
            path: name.into(),
            why: why.to_string(),
        };
        let table = numbered(name, labels).map_err(failed)?;
        Ok(Self { table: Arc::new(table), records: Some(records) })
    }
}

fn table_of<'a>(
    folder: &Folder,
    files: impl Iterator<Item = SuppliedFile<'a>>,
) -> Result<Table, String> {
    let said = |error: DatasetError| error.to_string();
    let mut builder = TableBuilder::new(Encoding::Image);
    let mut last: Option<(&str, FileIdx)> = None;
    let mut are_whole_files = true;
    for SuppliedFile { path, extent, label } in files {
        let file = match last {
            Some((known, file)) if known == path => file,
            _ => builder.file(path).map_err(said)?,
        };
        last = Some((path, file));
        are_whole_files &= extent.is_none();
        let (offset, len) = match extent {
            Some(extent) => extent,
            None => (0, length(folder, path)?),
        };
        builder.sample(Extent { file, offset, len }, label);
    }
    if are_whole_files {
        builder.whole_files();
    }
    builder.build().map_err(said)
}

fn length(folder: &Folder, path: &str) -> Result<u32, String> {
    let shown = || folder.shown(path);
    match folder.kind(path) {
        Ok(Kind::File { len }) => u32::try_from(len).map_err(|_| {
            format!("`{}` is longer than 4 GiB, which no image is", shown())
        }),
        Ok(Kind::Folder) => Err(format!("`{}` is a folder; list its files", shown())),
        Err(error) => Err(format!(
            "cannot open `{}`, which the data set lists ({error}); was it moved?",
            shown()
        )),
    }
}

/// Records that lie nowhere: each has its number as its offset, so that no two are one.
fn numbered(name: &str, labels: &[u32]) -> Result<Table, DatasetError> {
    let mut builder = TableBuilder::new(Encoding::Image);
    let file = builder.file(name)?;
    for (offset, &label) in (0..).zip(labels) {
        builder.sample(Extent { file, offset, len: 0 }, label);
    }
    builder.build()
}

/// What messages call such a record.
pub(crate) fn name_of(table: &Table, sample: SampleId) -> String {
    let Extent { file, offset, .. } = table.extent(sample);
    format!("sample {offset} of {}", table.file_path(file))
}
