//! The folder of a store: only one process writes to it, it is not inside the data, and what is in it stays.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use crate::PackError;

/// A folder to which only this process writes, as long as this value lives.
#[derive(Debug)]
pub(crate) struct Lock {
    /// The lock on the folder itself; no file remains if this process is killed.
    _folder: File,
}

impl Lock {
    /// Locks the folder, which exists.
    pub(crate) fn take(folder: &Path) -> Result<Self, PackError> {
        let open = File::open(folder).map_err(PackError::at("open", folder))?;
        match open.try_lock() {
            Err(TryLockError::WouldBlock) => {
                Err(PackError::Busy { folder: folder.to_owned() })
            }
            // Some file systems have no locks: there, nobody is kept out.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Self { _folder: open }),
        }
    }
}

/// Makes the folder and those above it that do not exist, all of which stay after a power failure.
pub(crate) fn make(folder: &Path) -> Result<(), PackError> {
    let whole = std::path::absolute(folder).map_err(PackError::at("find", folder))?;
    let is_missing = |part: &&Path| part.symlink_metadata().is_err();
    let missing: Vec<&Path> = whole.ancestors().take_while(is_missing).collect();
    fs::create_dir_all(folder).map_err(PackError::at("make", folder))?;
    missing.iter().filter_map(|made| made.parent()).try_for_each(sync)
}

/// Makes the names that files in the folder have now stay after a power failure, where the file system can.
pub(crate) fn sync(folder: &Path) -> Result<(), PackError> {
    let synced = File::open(folder).and_then(|open| open.sync_all());
    // Some file systems do not sync folders, and one that may only be written to cannot be opened.
    let cannot = |error: &io::Error| {
        use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
        matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported)
    };
    match synced {
        Err(error) if !cannot(&error) => Err(PackError::at("write", folder)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Checks that `folder`, which need not exist yet, is not inside `data`.
///
/// # Errors
/// [`PackError::Inside`]; [`PackError::Failed`] if `data` does not exist.
pub fn check_outside(folder: &Path, data: &Path) -> Result<(), PackError> {
    let real = fs::canonicalize(data).map_err(PackError::at("open", data))?;
    let whole = std::path::absolute(folder).map_err(PackError::at("find", folder))?;
    // The part of its path that exists, with links resolved.
    let there = whole.ancestors().find_map(|part| fs::canonicalize(part).ok());
    if there.is_some_and(|there| there.starts_with(&real)) {
        let (folder, data) = (folder.to_owned(), data.to_owned());
        return Err(PackError::Inside { folder, data });
    }
    Ok(())
}

/// The names in a destination folder, sorted; the folder is created if it does not exist.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>, PackError> {
    fs::create_dir_all(folder).map_err(PackError::at("make", folder))?;
    let entries = fs::read_dir(folder).map_err(PackError::at("list", folder))?;
    let name = |entry: io::Result<fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    let names: io::Result<Vec<String>> = entries.map(name).collect();
    let mut names = names.map_err(PackError::at("list", folder))?;
    names.sort_unstable();
    Ok(names)
}
