//! What every format must guarantee, as a function to call, and a [`Storage`] in memory to call it with.
//!
//! The tests of a format find a data set and pass it to [`check`]. The tests of a storage pass it and its
//! copy in memory to [`same_storage`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use bothends_core::ids::SampleId;
use bothends_core::sample::FileIdx;

use crate::{Entry, Found, Kind, Storage, Table, Version, path};

/// Files in memory, shown below `/data`: the reference [`Storage`].
#[derive(Debug, Clone, Default)]
pub struct MemoryStorage {
    files: BTreeMap<String, Vec<u8>>,
    tells_versions: bool,
}

impl MemoryStorage {
    /// No file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with one more file; its folders come with it.
    #[must_use]
    pub fn with(mut self, path: &str, bytes: &[u8]) -> Self {
        self.files.insert(path.to_owned(), bytes.to_vec());
        self
    }

    /// The same, and it tells the versions of its files, by their bytes.
    #[must_use]
    pub fn with_versions(mut self) -> Self {
        self.tells_versions = true;
        self
    }

    fn below<'a>(&'a self, folder: &str) -> impl Iterator<Item = (&'a str, u64)> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        self.files.iter().filter_map(move |(path, bytes)| {
            Some((path.strip_prefix(&prefix)?, bytes.len() as u64))
        })
    }
}

impl Storage for MemoryStorage {
    fn kind(&self, path: &str) -> io::Result<Kind> {
        if let Some(bytes) = self.files.get(path) {
            return Ok(Kind::File { len: bytes.len() as u64 });
        }
        match path.is_empty() || self.below(path).next().is_some() {
            true => Ok(Kind::Folder),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let mut entries = BTreeMap::new();
        for (rest, len) in self.below(path) {
            match rest.split_once('/') {
                Some((folder, _)) => entries.insert(folder.to_owned(), Kind::Folder),
                None => entries.insert(rest.to_owned(), Kind::File { len }),
            };
        }
        // Backwards, so that nobody leans on an order that the contract does not give.
        let entries = entries.into_iter().rev();
        Ok(entries.map(|(name, kind)| Entry { name, kind }).collect())
    }

    fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()> {
        let bytes = self.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let src = start.checked_add(dst.len()).and_then(|end| bytes.get(start..end));
        dst.copy_from_slice(src.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn versions(&self, path: &str) -> io::Result<Option<Vec<Version>>> {
        if !self.tells_versions {
            return Ok(None);
        }
        let version = |name: &str, bytes: &[u8]| Version {
            name: name.to_owned(),
            len: bytes.len() as u64,
            changed_ns: None,
            tag: format!("{:016x}", twox_hash::XxHash3_64::oneshot(bytes)),
        };
        if let Some(bytes) = self.files.get(path) {
            return Ok(Some(vec![version(path::split(path).1, bytes)]));
        }
        let files = self.below(path).filter(|(name, _)| !name.contains('/'));
        let files =
            files.map(|(name, _)| version(name, &self.files[&path::join(path, name)]));
        Ok(Some(files.collect()))
    }

    fn shown(&self, path: &str) -> String {
        format!("/data/{path}").trim_end_matches('/').to_owned()
    }
}

/// Holds a data set that was found against the storage it was found in.
///
/// # Panics
/// When an extent does not lie in its file, a file does not exist that `found` does not call missing, a label has no class, the table does not
/// survive its own encoding, or finding it again gives another table.
pub fn check(storage: &dyn Storage, found: &Found) {
    let table = &found.table;
    let (mut lens, mut missing) = (BTreeMap::new(), None);
    for id in 0..table.n_samples() {
        let extent = table.extent(SampleId(id));
        let len = *lens.entry(extent.file).or_insert_with(|| {
            let path = table.file_path(extent.file);
            match storage.kind(&path) {
                Ok(Kind::File { len }) => len,
                // Of which no bytes are wanted, then.
                Err(_) if found.missing.is_some() => {
                    missing.get_or_insert(SampleId(id));
                    0
                }
                other => panic!("`{path}` is not a file: {other:?}"),
            }
        });
        assert!(extent.offset + u64::from(extent.len) <= len, "sample {id}: {extent:?}");
        let label = usize::try_from(table.label(SampleId(id)).0);
        let n_classes = table.class_names().len();
        assert!(label.is_ok_and(|label| n_classes == 0 || label < n_classes));
    }
    assert_eq!(missing, found.missing, "the first sample whose file does not exist");
    assert_eq!(table.file_path(FileIdx(u32::MAX)), "");
    survives_encoding(table);
}

/// Encodes and decodes a table.
///
/// # Panics
/// When another table comes back, or its hash differs.
pub fn survives_encoding(table: &Table) {
    let bytes = table.encode();
    let again = Table::decode(&bytes).expect("a table's own encoding decodes");
    assert!(again == *table, "another table came back");
    assert_eq!(again.encode(), bytes);
    assert_eq!(again.hash(), table.hash());
    // The hash does not depend on whether records are whole files.
    let mut hashed = bytes;
    hashed[60] = 0;
    assert_eq!(table.hash(), twox_hash::XxHash3_128::oneshot(&hashed));
}

/// Holds a storage against its twin in memory: same kinds, same names, same bytes.
///
/// # Panics
/// At the first difference.
pub fn same_storage(storage: &dyn Storage, twin: &MemoryStorage) {
    let mut folders = BTreeSet::from([""]);
    for (path, bytes) in &twin.files {
        let len = bytes.len() as u64;
        assert_eq!(
            storage.kind(path).expect("it is there"),
            Kind::File { len },
            "{path}"
        );
        let mut read = vec![0; bytes.len()];
        storage.read(path, 0, &mut read).expect("it can be read");
        assert_eq!(&read, bytes, "{path}");
        let beyond = storage.read(path, len, &mut [0]).expect_err("it ends there");
        assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof, "{path}");
        folders.extend(path.match_indices('/').map(|(end, _)| &path[..end]));
    }
    for folder in folders {
        assert_eq!(storage.kind(folder).expect("it is there"), Kind::Folder, "{folder}");
        let names = |storage: &dyn Storage| {
            let entries = storage.list(folder).expect("it can be listed");
            entries.into_iter().map(|e| (e.name, format!("{:?}", e.kind))).collect()
        };
        let (ours, theirs): (BTreeSet<_>, BTreeSet<_>) = (names(storage), names(twin));
        assert_eq!(ours, theirs, "{folder}");
    }
    let missing = storage.kind("no/such/file").expect_err("it is not there");
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}
