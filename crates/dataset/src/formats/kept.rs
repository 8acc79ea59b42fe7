//! What was found by walking through shards, as bytes to keep, and what decides whether they still hold.
//!
//! Walking reads a header for each sample, so who opens the same shards again keeps the result. This file neither
//! opens a file nor decides where anything is kept (`crates/side-index` does), and knows nothing of a single format:
//! what was found holds as long as every file that was looked at is as it was ([`Format::versions`]).
//!
//! ```text
//! 0   note: u64 (0 for none, else its place in `shards::NOTES` from 1)
//! 8   files that belong to no sample: u64
//! 16  the table, as a manifest
//! ```
//! Numbers are little-endian. Whoever keeps the bytes makes sure that they come back as they were.

use std::collections::BTreeSet;
use std::io;

use bothends_core::sample::FileIdx;

use super::{Format, Found, shards};
use crate::error::DatasetError;
use crate::path;
use crate::storage::{Kind, Storage, Version};
use crate::table::Table;

/// Bytes before the table.
const HEAD_BYTES: usize = 16;

impl Format {
    /// What each file was that finding samples at `target` in this format looks at, by its path in the storage.
    /// `None` where what is found is not worth keeping, or nothing tells whether a file has changed.
    ///
    /// # Errors
    /// The storage's own.
    pub fn versions(
        self,
        storage: &dyn Storage,
        target: &str,
    ) -> io::Result<Option<Vec<Version>>> {
        match self {
            Self::WebDataset
            | Self::Mds
            | Self::TfRecord
            | Self::Datadings
            | Self::Beton
            | Self::Hdf5
            | Self::Parquet
            | Self::Arrow
            | Self::LitData => {}
            // Read as a whole, or not known without listing every folder.
            Self::ClassFolders
            | Self::Cifar10
            | Self::Cifar10Python
            | Self::Store
            | Self::List
            | Self::Rows => return Ok(None),
        }
        let Some(mut versions) = storage.versions(target)? else { return Ok(None) };
        match storage.kind(target)? {
            Kind::Folder => {
                // Our own hidden files come and go next to data, and shards are not hidden.
                versions.retain(|version| !version.name.starts_with('.'));
                for version in &mut versions {
                    version.name = path::join(target, &version.name);
                }
            }
            Kind::File { .. } => {
                let companion = shards::datadings::companion(target);
                if self == Self::Datadings && storage.kind(&companion).is_ok() {
                    let Some(more) = storage.versions(&companion)? else {
                        return Ok(None);
                    };
                    versions.extend(
                        more.into_iter()
                            .map(|more| Version { name: companion.clone(), ..more }),
                    );
                }
                if let Some(first) = versions.first_mut() {
                    target.clone_into(&mut first.name);
                }
            }
        }
        versions.sort_unstable();
        Ok(Some(versions))
    }
}

impl Found {
    /// The bytes to keep of what was found while files were these; `None` where it depends on others.
    #[must_use]
    pub fn to_keep(&self, versions: &[Version]) -> Option<Vec<u8>> {
        let known: BTreeSet<&str> =
            versions.iter().map(|version| version.name.as_str()).collect();
        let n_files = u32::try_from(self.table.n_files()).ok()?;
        let mut files = (0..n_files).map(|file| self.table.file_path(FileIdx(file)));
        if !files.all(|file| known.contains(file.as_str())) {
            return None;
        }
        let note = match self.note {
            None => 0,
            Some(note) => 1 + shards::NOTES.iter().position(|known| *known == note)?,
        };
        let mut bytes = Vec::new();
        bytes.extend((note as u64).to_le_bytes());
        bytes.extend(self.n_ignored.to_le_bytes());
        bytes.extend(self.table.encode());
        Some(bytes)
    }

    /// What was kept of data in this format.
    ///
    /// # Errors
    /// [`DatasetError::Malformed`] and others of [`Table::decode`].
    pub fn kept(format: Format, bytes: &[u8]) -> Result<Self, DatasetError> {
        let malformed = |at| DatasetError::Malformed { what: "what was kept", at };
        let number = |at: usize| {
            let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map(|bytes| u64::from_le_bytes(*bytes)).ok_or(malformed(at))
        };
        let note = match usize::try_from(number(0)?).map_err(|_| malformed(0))? {
            0 => None,
            nth => Some(*shards::NOTES.get(nth - 1).ok_or(malformed(0))?),
        };
        let n_ignored = number(8)?;
        let table = Table::decode(&bytes[HEAD_BYTES..])?;
        Ok(Self::new(format, table, n_ignored, note))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::MemoryStorage;
    use crate::formats::find;

    fn archive() -> MemoryStorage {
        let bytes =
            include_bytes!("../../../../tests/fixtures/shards/tar/shard-000001.tar");
        MemoryStorage::new().with("s/0.tar", bytes).with("s/notes.txt", b"")
    }

    fn version(name: &str) -> Version {
        Version { name: name.to_owned(), len: 1, changed_ns: None, tag: String::new() }
    }

    #[test]
    fn what_is_kept_comes_back_and_damage_does_not() {
        let found = find(&archive(), "s").unwrap();
        let bytes = found.to_keep(&[version("s/0.tar")]).unwrap();
        let again = Found::kept(Format::WebDataset, &bytes).unwrap();
        assert_eq!(again.table, found.table);
        assert_eq!((again.n_ignored, again.note), (1, None));
        let noted = Found { note: Some(shards::NOTES[1]), ..found.clone() };
        let bytes = noted.to_keep(&[version("s/0.tar")]).unwrap();
        assert_eq!(Found::kept(Format::Mds, &bytes).unwrap().note, noted.note);
        for end in 0..bytes.len() {
            Found::kept(Format::Mds, &bytes[..end]).unwrap_err();
        }
        let mut other = bytes;
        other[0] = 9;
        Found::kept(Format::Mds, &other).unwrap_err();
    }

    #[test]
    fn what_depends_on_other_files_or_is_said_otherwise_is_not_kept() {
        let found = find(&archive(), "s").unwrap();
        assert!(found.to_keep(&[version("s/1.tar")]).is_none());
        let noted = Found { note: Some("another"), ..found };
        assert!(noted.to_keep(&[version("s/0.tar")]).is_none());
    }

    #[test]
    fn only_shards_of_a_storage_that_tells_versions_are_kept() {
        let storage = archive();
        assert_eq!(Format::WebDataset.versions(&storage, "s").unwrap(), None);
        let storage = storage.with_versions();
        let versions = Format::WebDataset.versions(&storage, "s").unwrap().unwrap();
        let names: Vec<_> =
            versions.iter().map(|version| version.name.as_str()).collect();
        assert_eq!(names, ["s/0.tar", "s/notes.txt"]);
        let alone = Format::WebDataset.versions(&storage, "s/0.tar").unwrap().unwrap();
        assert_eq!(alone, versions[..1]);
        assert_eq!(Format::ClassFolders.versions(&storage, "s").unwrap(), None);
        let storage = storage.with("d.msgpack", b"1").with("d.msgpack.offsets", b"2");
        let both = Format::Datadings.versions(&storage, "d.msgpack").unwrap().unwrap();
        assert_eq!(both.len(), 2);
    }
}
