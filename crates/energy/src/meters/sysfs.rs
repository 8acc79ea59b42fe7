//! The kernel's small files below a root: which there are, what they say, and why they cannot be
//! read. The root is `/` except in tests.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::error::{EnergyError, short};

/// The longest file that is read: the kernel's are shorter.
const MOST_BYTES: u64 = 4096;

/// The error numbers of a device that was removed (`ENXIO`, `ENODEV`).
const GONE: [i32; 2] = [6, 19];

/// Where the kernel's files are.
#[derive(Debug, Clone)]
pub struct Tree {
    root: PathBuf,
    read: fn(&Path) -> io::Result<String>,
}

impl Tree {
    /// This machine's own.
    #[must_use]
    pub fn system() -> Self {
        Self::at("/")
    }

    /// Files below another folder.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), read: read_file }
    }

    /// The same files, read in another way (tests).
    #[must_use]
    pub fn read_by(self, read: fn(&Path) -> io::Result<String>) -> Self {
        Self { read, ..self }
    }
}

/// Reads a file the way meters do.
fn read_file(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The files of one meter.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    tree: Tree,
    pub(crate) meter: &'static str,
    /// How a user gets permission to read them.
    remedy: &'static str,
}

impl Files {
    pub(crate) fn new(tree: &Tree, meter: &'static str, remedy: &'static str) -> Self {
        Self { tree: tree.clone(), meter, remedy }
    }

    pub(crate) fn absent(&self, why: impl Into<String>) -> EnergyError {
        EnergyError::Absent { meter: self.meter.to_owned(), why: why.into() }
    }

    pub(crate) fn denied(&self, place: impl Into<String>) -> EnergyError {
        EnergyError::Denied {
            meter: self.meter.to_owned(),
            place: place.into(),
            remedy: self.remedy,
        }
    }

    pub(crate) fn garbage(
        &self,
        place: &Path,
        said: &str,
        expected: &'static str,
    ) -> EnergyError {
        EnergyError::Garbage {
            meter: self.meter.to_owned(),
            place: place.display().to_string(),
            said: short(said),
            expected,
        }
    }

    /// The entries of a folder, sorted by name. The folder is relative to the root, without a
    /// leading slash.
    pub(crate) fn list(&self, folder: &str) -> Result<Vec<PathBuf>, EnergyError> {
        let folder = self.tree.root.join(folder);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.absent(format!("{} is not there", folder.display())));
            }
            other => other.map_err(|error| self.failed(&folder, error))?,
        };
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        let paths: io::Result<Vec<PathBuf>> = paths.collect();
        let mut paths = paths.map_err(|error| self.failed(&folder, error))?;
        paths.sort();
        Ok(paths)
    }

    /// The text of a file without its newline.
    pub(crate) fn text(&self, path: &Path) -> Result<String, EnergyError> {
        let text = (self.tree.read)(path).map_err(|error| self.failed(path, error))?;
        Ok(text.trim().to_owned())
    }

    /// The text of a file, if it exists.
    pub(crate) fn text_if_there(
        &self,
        path: &Path,
    ) -> Result<Option<String>, EnergyError> {
        match self.text(path) {
            Err(EnergyError::Gone { .. }) => Ok(None),
            other => other.map(Some),
        }
    }

    /// The number in a file.
    pub(crate) fn number(&self, path: &Path) -> Result<u64, EnergyError> {
        let text = self.text(path)?;
        text.parse().map_err(|_| self.garbage(path, &text, "a whole number"))
    }

    fn failed(&self, path: &Path, source: io::Error) -> EnergyError {
        let meter = self.meter.to_owned();
        let place = path.display().to_string();
        if source.kind() == io::ErrorKind::PermissionDenied {
            return self.denied(place);
        }
        let is_gone = source.raw_os_error().is_some_and(|code| GONE.contains(&code));
        if is_gone || source.kind() == io::ErrorKind::NotFound {
            return EnergyError::Gone { meter, place };
        }
        EnergyError::Unreadable { meter, place: path.to_owned(), source }
    }
}
