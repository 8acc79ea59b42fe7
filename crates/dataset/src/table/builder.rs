//! A table under construction: formats fill it row by row.
//!
//! It checks nothing until the end; `Table::check` does, also for manifests.

use std::collections::HashMap;

use bothends_core::sample::{Encoding, Extent, FileIdx};

use super::Table;
use super::columns::{Heads, Offsets, Profiles};
use super::names::Names;
use crate::error::DatasetError;
use crate::path;

/// A table in the making: name the classes and files, then the samples in order.
#[derive(Debug)]
pub struct TableBuilder {
    table: Table,
    profiles: Profiles,
    folder_idx: HashMap<String, u32>,
}

impl TableBuilder {
    /// An empty table of records of that encoding.
    #[must_use]
    pub fn new(encoding: Encoding) -> Self {
        let table = Table {
            encoding,
            classes: Names::default(),
            folders: Names::default(),
            folder_of: Vec::new(),
            leaves: Names::default(),
            file: Vec::new(),
            offset: Offsets::default(),
            len: Vec::new(),
            label: Vec::new(),
            checksum: Vec::new(),
            heads: Heads::default(),
            profiles: Vec::new(),
            are_whole_files: false,
            marks: Vec::new(),
        };
        Self { table, profiles: Profiles::default(), folder_idx: HashMap::new() }
    }

    /// Names the next class: the first is label 0. A table without classes takes any label.
    ///
    /// # Errors
    /// [`DatasetError::TooMany`].
    pub fn class(&mut self, name: &str) -> Result<u32, DatasetError> {
        self.table.classes.push(name)
    }

    /// Names the next file by its path relative to the data root.
    ///
    /// # Errors
    /// [`DatasetError::TooMany`]. The path itself is judged by [`build`](Self::build).
    pub fn file(&mut self, path: &str) -> Result<FileIdx, DatasetError> {
        let (folder, leaf) = path::split(path);
        let folder = match self.folder_idx.get(folder) {
            Some(&known) => known,
            None => {
                let new = self.table.folders.push(folder)?;
                self.folder_idx.insert(folder.to_owned(), new);
                new
            }
        };
        let file = self.table.leaves.push(leaf)?;
        self.table.folder_of.push(folder);
        Ok(FileIdx(file))
    }

    /// How many files have been named.
    pub(super) fn n_files(&self) -> usize {
        self.table.leaves.len()
    }

    /// Adds the next sample.
    pub fn sample(&mut self, extent: Extent, label: u32) {
        self.table.file.push(extent.file.0);
        self.table.offset.push(extent.offset);
        self.table.len.push(extent.len);
        self.table.label.push(label);
    }

    /// Adds the files and samples of another table in the making, which has nothing but these, and tells which numbers
    /// its files have now.
    ///
    /// # Errors
    /// [`DatasetError::TooMany`].
    pub(crate) fn append(&mut self, part: Self) -> Result<Vec<FileIdx>, DatasetError> {
        let Table { file, offset, len, label, .. } = &part.table;
        let mut files = Vec::with_capacity(part.n_files());
        for number in 0..part.n_files() {
            let number = FileIdx(DatasetError::count(number, "files")?);
            files.push(self.file(&part.table.file_path(number))?);
        }
        for row in 0..len.len() {
            let file = files[file[row] as usize];
            let extent = Extent { file, offset: offset.get(row), len: len[row] };
            self.sample(extent, label[row]);
        }
        Ok(files)
    }

    /// The offset of that profile among the table's; a new one goes to their end.
    ///
    /// # Errors
    /// [`DatasetError::TooMany`].
    pub fn profile(&mut self, profile: &[u8]) -> Result<u32, DatasetError> {
        self.profiles.put(profile)
    }

    /// Gives the sample that was added last its head.
    ///
    /// # Errors
    /// [`DatasetError::TooMany`].
    ///
    /// # Panics
    /// Before the first sample.
    pub fn head(&mut self, head: &[u8]) -> Result<(), DatasetError> {
        let row = self.table.len.len().checked_sub(1).expect("a head follows its sample");
        self.table.heads.put(row, head)
    }

    /// Says that every record is all of its file, so that who reads one may know another file by
    /// its length.
    pub fn whole_files(&mut self) {
        self.table.are_whole_files = true;
    }

    /// Gives every sample, in order, the XXH3-64 of its record's bytes.
    pub fn checksums(&mut self, checksums: Vec<u64>) {
        self.table.checksum = checksums;
    }

    /// The finished table.
    ///
    /// # Errors
    /// [`DatasetError::Path`], [`DatasetError::LabelOutOfRange`], or
    /// [`DatasetError::Malformed`] for another broken invariant (no sample at all, say).
    pub fn build(mut self) -> Result<Table, DatasetError> {
        let table = &mut self.table;
        table.heads.resize(table.len.len());
        table.profiles = self.profiles.bytes;
        table.check(0)?;
        table.classes.shrink_to_fit();
        table.folders.shrink_to_fit();
        table.leaves.shrink_to_fit();
        table.folder_of.shrink_to_fit();
        table.file.shrink_to_fit();
        table.offset.shrink_to_fit();
        table.len.shrink_to_fit();
        table.label.shrink_to_fit();
        table.heads.shrink_to_fit();
        table.profiles.shrink_to_fit();
        Ok(self.table)
    }
}
