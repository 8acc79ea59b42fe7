//! Data roots whose shards are compressed: hosts name the files that come of these, so they are made here as well.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use bothends_csd::{Beneath, Links};
use bothends_dataset::{Entry, Kind, Storage, Version};
use bothends_decompress::{
    Compressed, DecompressError, Decompressed, Place, Watch, decompress_needed,
};

use super::{DataRoot, StoreError};

/// Data roots as they are read from.
#[derive(Debug)]
pub struct ReadyRoots {
    /// The folders and URLs.
    pub roots: Vec<DataRoot>,
    /// Those of the folders that others may not remove yet.
    made: Vec<Decompressed>,
}

impl ReadyRoots {
    /// Decompresses each root that is a folder whose first shard is compressed into `place`. Without a place, all
    /// roots stay as they are. Blocks on the file system, for as long as it takes to read and write all of the data.
    ///
    /// # Errors
    /// A data set that cannot be decompressed.
    pub fn of(
        roots: &[DataRoot],
        links: Links,
        (place, watch): (Option<&Place>, &Watch),
    ) -> Result<Self, StoreError> {
        let (roots, mut made) = (roots.to_vec(), Vec::new());
        let Some(place) = place else { return Ok(Self { roots, made }) };
        let roots = roots.into_iter().map(|root| {
            let wrong = |error: DecompressError| StoreError {
                path: root.path.clone(),
                source: io::Error::other(error.to_string()),
            };
            // What is no folder is for whoever opens it to say; of a remote store, a host has the list.
            let Ok(beneath) = Beneath::new(&root.path, links) else { return Ok(root) };
            let files = Files(beneath);
            let data = Compressed { storage: &files, target: "" };
            match decompress_needed(data, place, watch).map_err(wrong)? {
                None => Ok(root),
                Some(ready) => {
                    let path = ready.root().to_owned();
                    made.push(ready);
                    Ok(DataRoot { path, ..root })
                }
            }
        });
        let roots = roots.collect::<Result<_, _>>()?;
        Ok(Self { roots, made })
    }

    /// Where data sets were decompressed, for people.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        self.made.iter().map(|made| {
            format!(
                "the shards are compressed; they are served decompressed: {}, {} MiB",
                made.root().display(),
                made.bytes() >> 20
            )
        })
    }
}

/// The files below a data root: links are followed, or not, as when it is served.
#[derive(Debug)]
struct Files(Beneath);

impl Files {
    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }
}

impl Storage for Files {
    fn kind(&self, path: &str) -> io::Result<Kind> {
        let found = match path {
            "" => fs::metadata(self.0.path())?,
            path => self.0.metadata(path)?,
        };
        Ok(if found.is_dir() { Kind::Folder } else { Kind::File { len: found.len() } })
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.path(path))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let what = entry.file_type()?;
            let kind = if what.is_dir() {
                Some(Kind::Folder)
            } else if what.is_file() {
                Some(Kind::File { len: entry.metadata()?.len() })
            } else {
                // A link that may not be followed is not served, either.
                Path::new(path).join(&name).to_str().and_then(|it| self.kind(it).ok())
            };
            entries.extend(kind.map(|kind| Entry { name, kind }));
        }
        Ok(entries)
    }

    fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()> {
        self.0.open(path)?.read_exact_at(dst, offset)
    }

    fn versions(&self, path: &str) -> io::Result<Option<Vec<Version>>> {
        let mut versions = Vec::new();
        for Entry { name, kind } in self.list(path)? {
            let Kind::File { len } = kind else { continue };
            let full = Path::new(path).join(&name);
            let found = self.0.metadata(full.to_str().unwrap_or_default())?;
            let ns = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
            let tag = format!("{:x}", ns(found.mtime(), found.mtime_nsec()));
            let changed_ns = Some(ns(found.ctime(), found.ctime_nsec()));
            versions.push(Version { name, len, changed_ns, tag });
        }
        Ok(Some(versions))
    }

    fn shown(&self, path: &str) -> String {
        self.path(path).display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use bothends_dataset::conformance::{MemoryStorage, same_storage};

    use super::*;

    #[test]
    fn a_data_root_is_a_storage_and_links_out_of_it_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("b")).unwrap();
        fs::write(root.join("a"), "0123").unwrap();
        fs::write(root.join("b/c"), "4").unwrap();
        let twin = MemoryStorage::new().with("a", b"0123").with("b/c", b"4");
        let files = || Files(Beneath::new(&root, Links::Refused).unwrap());
        same_storage(&files(), &twin);
        fs::write(dir.path().join("secret.tar.gz"), "").unwrap();
        let link = root.join("x.tar.gz");
        std::os::unix::fs::symlink(dir.path().join("secret.tar.gz"), link).unwrap();
        assert_eq!(files().list("").unwrap().len(), 2);
        assert!(files().kind("x.tar.gz").is_err());
    }
}
