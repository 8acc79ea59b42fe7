//! Names and lengths of what lies in a folder, sorted. Links are followed.
//!
//! Does not read a file and does not judge names beyond their being UTF-8 (a manifest's
//! paths are). A link that leads nowhere is listed as a file of no bytes: reading it then
//! says what is wrong, under the caller's policy for bad samples.

use std::io;
use std::path::Path;

use crate::IoError;

/// One name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The name itself.
    pub name: String,
    /// What it stands for.
    pub kind: ListedKind,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListedKind {
    /// A folder.
    Folder,
    /// A regular file.
    File {
        /// Its length in bytes.
        len: u64,
    },
}

/// A file somewhere below a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkedFile {
    /// Its path relative to that folder, parts joined by `/`.
    pub path: String,
    /// Its length in bytes.
    pub len: u64,
}

/// What `folder` holds, sorted by name. Pipes, sockets and devices are left out. Blocks on
/// the file system: one `stat` per name.
///
/// # Errors
/// [`IoError::Missing`], [`IoError::Unreadable`], [`IoError::Name`], [`IoError::Failed`].
pub fn list(folder: &Path) -> Result<Vec<Listed>, IoError> {
    let mut listed = Vec::new();
    for entry in folder.read_dir().map_err(|e| IoError::at(folder, "list", e))? {
        let path = entry.map_err(|e| IoError::at(folder, "list", e))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(IoError::Name { path });
        };
        let kind = match path.metadata() {
            Ok(metadata) if metadata.is_dir() => ListedKind::Folder,
            Ok(metadata) if metadata.is_file() => {
                ListedKind::File { len: metadata.len() }
            }
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                ListedKind::File { len: 0 }
            }
            Err(error) => return Err(IoError::at(&path, "list", error)),
        };
        listed.push(Listed { name: name.to_owned(), kind });
    }
    listed.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(listed)
}

/// All files below `root`, sorted by path, in folders at most `max_depth` deep (0: those
/// in `root` itself; deeper ones are left out).
///
/// # Errors
/// As [`list`].
pub fn walk(root: &Path, max_depth: u32) -> Result<Vec<WalkedFile>, IoError> {
    let mut files = Vec::new();
    let mut folders = vec![(String::new(), 0)];
    while let Some((prefix, depth)) = folders.pop() {
        for Listed { name, kind } in list(&root.join(&prefix))? {
            match kind {
                ListedKind::File { len } => {
                    files.push(WalkedFile { path: format!("{prefix}{name}"), len });
                }
                ListedKind::Folder if depth < max_depth => {
                    folders.push((format!("{prefix}{name}/"), depth + 1));
                }
                ListedKind::Folder => {}
            }
        }
    }
    files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn files_come_sorted_with_their_lengths() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("b/deep/er")).unwrap();
        for (path, len) in [("b/z", 3), ("b/deep/er/x", 1), ("a", 2), ("b/deep/y", 0)] {
            std::fs::write(root.join(path), vec![0; len]).unwrap();
        }
        std::os::unix::fs::symlink("nowhere", root.join("c")).unwrap();
        std::os::unix::fs::symlink("a", root.join("d")).unwrap();
        let _pipe = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        let found: Vec<_> =
            walk(root, 1).unwrap().into_iter().map(|f| (f.path, f.len)).collect();
        let expected = [("a", 2), ("b/z", 3), ("c", 0), ("d", 2)];
        assert_eq!(found, expected.map(|(path, len)| (path.to_owned(), len)));
        assert_eq!(walk(root, 9).unwrap().len(), 6);
    }

    #[test]
    fn what_cannot_be_listed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = list(&folder.path().join("gone")).unwrap_err();
        assert!(missing.to_string().contains("gone"), "{missing}");
        let name = folder.path().join(OsStr::from_bytes(b"caf\xe9.jpg"));
        std::fs::write(&name, "").unwrap();
        let error = walk(folder.path(), 0).unwrap_err();
        assert!(matches!(error, IoError::Name { path } if path == name));
    }
}
