//! Names and lengths of the entries of a folder, sorted. Links are followed.
//!
//! It does not read files and checks of a name only that it is UTF-8 (paths are checked by the manifest).
//! A dangling or circular link is listed as a file of no bytes: reading it then reports the problem, under
//! the caller's policy for bad samples.

use std::path::Path;

use bothends_dataset::{Entry, Kind};

use crate::IoError;

/// What `folder` holds, sorted by name. Pipes, sockets and devices are left out. Blocks on
/// the file system: one `stat` per name.
///
/// # Errors
/// [`IoError::Missing`], [`IoError::Unreadable`], [`IoError::Name`], [`IoError::Failed`].
pub fn list(folder: &Path) -> Result<Vec<Entry>, IoError> {
    let mut listed = Vec::new();
    for entry in folder.read_dir().map_err(|e| IoError::at(folder, "list", e))? {
        let path = entry.map_err(|e| IoError::at(folder, "list", e))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(IoError::Name { path });
        };
        let kind = match path.metadata() {
            Ok(metadata) if metadata.is_dir() => Kind::Folder,
            Ok(metadata) if metadata.is_file() => Kind::File { len: metadata.len() },
            Ok(_) => continue,
            Err(_) if path.is_symlink() => Kind::File { len: 0 },
            Err(error) => return Err(IoError::at(&path, "list", error)),
        };
        listed.push(Entry { name: name.to_owned(), kind });
    }
    listed.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn names_come_sorted_with_their_lengths() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("b/deep")).unwrap();
        std::fs::write(root.join("a"), [0; 2]).unwrap();
        for (target, name) in [("nowhere", "c"), ("a", "d"), ("e", "e")] {
            std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        }
        let _pipe = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        let found: Vec<_> =
            list(root).unwrap().into_iter().map(|f| (f.name, f.kind)).collect();
        let file = |len| Kind::File { len };
        let expected = [
            ("a", file(2)),
            ("b", Kind::Folder),
            ("c", file(0)),
            ("d", file(2)),
            ("e", file(0)),
        ];
        assert_eq!(found, expected.map(|(name, kind)| (name.to_owned(), kind)));
    }

    #[test]
    fn what_cannot_be_listed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = list(&folder.path().join("gone")).unwrap_err();
        assert!(missing.to_string().contains("gone"), "{missing}");
        let name = folder.path().join(OsStr::from_bytes(b"caf\xe9.jpg"));
        std::fs::write(&name, "").unwrap();
        let error = list(folder.path()).unwrap_err();
        assert!(matches!(error, IoError::Name { path } if path == name));
    }
}
