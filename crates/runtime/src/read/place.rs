//! Where a data set is that a user names by a path: the folder that its files' paths start from, and
//! what is meant in it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bothends_io::Folder;

/// A folder is its own root; a file is a target in its folder.
pub(crate) fn root_and_target(path: &Path) -> Result<(PathBuf, String), String> {
    match Folder::around(path) {
        Ok((Folder(root), target)) => Ok((root, target)),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            Err("no such file or folder; check the path".to_owned())
        }
        Err(e) => Err(e.to_string()),
    }
}
