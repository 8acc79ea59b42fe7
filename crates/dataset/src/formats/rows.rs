//! Rows of a database's table: each is a sample, and the storage itself tells their labels.
//!
//! Samples are in the order in which class folders would have them, so that what was uploaded from class folders
//! gives the same stream. Rows are not opened here: an image that is broken is found when it is decoded.

use bothends_core::sample::{Encoding, Extent};

use crate::error::DatasetError;
use crate::formats::{Format, Found};
use crate::path;
use crate::storage::{Kind, Storage, list};
use crate::table::TableBuilder;

/// Parts of a name, at most.
const MAX_DEPTH: u32 = 64;

/// Reads all rows.
pub(crate) fn parse(storage: &dyn Storage) -> Result<Found, DatasetError> {
    let mut rows =
        Rows { storage, builder: TableBuilder::new(Encoding::Image), n: 0, n_labels: 0 };
    let (mut folders, files) = rows.look("")?;
    rows.samples("", &files)?;
    folders.sort_unstable();
    for folder in folders {
        let mut below = Vec::new();
        rows.collect(&folder, 0, &mut below)?;
        below.sort_unstable();
        for (folder, files) in below {
            rows.samples(&folder, &files)?;
        }
    }
    if rows.n == 0 {
        return Err(DatasetError::Empty { path: storage.shown("") });
    }
    rows.builder.whole_files();
    let note = match rows.n_labels {
        0 => Some("no row has a label that is a whole number: every label is 0"),
        n if n < rows.n => Some("some rows have no label; it is taken as 0"),
        _ => None,
    };
    let table = rows.builder.build()?;
    Ok(Found::new(Format::Rows, table, 0, note))
}

/// The table in the making.
struct Rows<'a> {
    storage: &'a dyn Storage,
    builder: TableBuilder,
    n: u64,
    n_labels: u64,
}

/// Names of files with their lengths.
type Files = Vec<(String, u64)>;

impl Rows<'_> {
    /// The folders below a folder, and the files in it.
    fn look(&self, folder: &str) -> Result<(Vec<String>, Files), DatasetError> {
        let (mut folders, mut files) = (Vec::new(), Files::new());
        for entry in list(self.storage, folder)? {
            match entry.kind {
                Kind::Folder => folders.push(path::join(folder, &entry.name)),
                Kind::File { len } => files.push((entry.name, len)),
            }
        }
        Ok((folders, files))
    }

    fn collect(
        &self,
        folder: &str,
        depth: u32,
        found: &mut Vec<(String, Files)>,
    ) -> Result<(), DatasetError> {
        if depth > MAX_DEPTH {
            let path = self.storage.shown(folder);
            return Err(DatasetError::TooDeep { path, max: MAX_DEPTH });
        }
        let (folders, files) = self.look(folder)?;
        found.push((folder.to_owned(), files));
        folders.iter().try_for_each(|folder| self.collect(folder, depth + 1, found))
    }

    fn samples(&mut self, folder: &str, files: &Files) -> Result<(), DatasetError> {
        for (name, len_bytes) in files {
            let path = path::join(folder, name);
            let len_bytes = *len_bytes;
            let len = u32::try_from(len_bytes).map_err(|_| {
                DatasetError::RecordTooLong { path: self.storage.shown(&path), len_bytes }
            })?;
            let label = self.storage.label(&path);
            self.n_labels += u64::from(label.is_some());
            self.n += 1;
            let file = self.builder.file(&path)?;
            let extent = Extent { file, offset: 0, len };
            self.builder.sample(extent, label.unwrap_or_default());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io;

    use bothends_core::ids::SampleId;

    use super::*;
    use crate::conformance::MemoryStorage;
    use crate::storage::Entry;

    #[derive(Debug)]
    struct Labelled(MemoryStorage, BTreeMap<&'static str, u32>);

    impl Storage for Labelled {
        fn kind(&self, path: &str) -> io::Result<Kind> {
            self.0.kind(path)
        }

        fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
            self.0.list(path)
        }

        fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()> {
            self.0.read(path, offset, dst)
        }

        fn has_labels(&self) -> bool {
            true
        }

        fn label(&self, path: &str) -> Option<u32> {
            self.1.get(path).copied()
        }

        fn shown(&self, path: &str) -> String {
            self.0.shown(path)
        }
    }

    fn found(rows: &[(&'static str, Option<u32>)]) -> Found {
        let storage = rows.iter().fold(MemoryStorage::new(), |storage, (name, _)| {
            storage.with(name, name.as_bytes())
        });
        let labels = rows.iter().filter_map(|(name, label)| Some((*name, (*label)?)));
        crate::find(&Labelled(storage, labels.collect()), "").unwrap()
    }

    #[test]
    fn rows_are_samples_in_the_order_of_class_folders_whatever_their_names_end_in() {
        let found = found(&[
            ("b/2", Some(7)),
            ("a-b/1", Some(5)),
            ("a/c/0.jpg", Some(3)),
            ("a/1", Some(4)),
            ("0123", Some(9)),
        ]);
        let rows: Vec<_> = (0..found.table.n_samples())
            .map(SampleId)
            .map(|id| {
                let path = found.table.file_path(found.table.extent(id).file);
                (path, found.table.label(id).0)
            })
            .collect();
        let expected =
            [("0123", 9), ("a/1", 4), ("a/c/0.jpg", 3), ("a-b/1", 5), ("b/2", 7)];
        assert_eq!(rows, expected.map(|(path, label)| (path.to_owned(), label)));
        assert_eq!((found.format, found.note), (Format::Rows, None));
    }

    #[test]
    fn rows_without_labels_are_told() {
        let note = |rows| found(rows).note.unwrap();
        assert!(note(&[("a", None)]).starts_with("no row has a label"));
        assert!(
            note(&[("a", None), ("b", Some(1))]).starts_with("some rows have no label")
        );
    }
}
