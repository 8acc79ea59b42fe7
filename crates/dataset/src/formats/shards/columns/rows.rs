//! The table that files of columns become, and the files that an index names.

use std::collections::HashSet;

use bothends_core::sample::{Encoding, Extent, FileIdx};

use super::super::{Labels, found, with_fields};
use super::choice::Choice;
use crate::error::DatasetError;
use crate::fields::{FieldsBuilder, Kept};
use crate::formats::{Format, Found};
use crate::path;
use crate::storage::Storage;
use crate::table::TableBuilder;

/// Rows of files, in the order in which they are read.
pub(crate) struct Rows<'a> {
    storage: &'a dyn Storage,
    builder: TableBuilder,
    labels: Labels,
    /// Of the first file: every other must have the same.
    classes: Option<Vec<String>>,
    fields: FieldsBuilder,
    /// Rows of all files so far, and the last of these.
    n: u64,
    last: String,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(storage: &'a dyn Storage, fields: FieldsBuilder) -> Self {
        Self {
            storage,
            builder: TableBuilder::new(Encoding::Image),
            labels: Labels::default(),
            classes: None,
            fields,
            n: 0,
            last: String::new(),
        }
    }

    /// That the rows so far have the fields, of which the last file's are the first that may not.
    fn check(&self) -> Result<(), DatasetError> {
        let path = || self.storage.shown(&self.last);
        let checked = self.fields.check_rows(self.n);
        checked.map_err(|why| DatasetError::Shard { path: path(), offset: 0, why })
    }

    /// Rows of the next file follow.
    ///
    /// # Errors
    /// [`DatasetError::Shard`] where its classes are not those of the files before it.
    pub(crate) fn file(
        &mut self,
        path: &str,
        choice: &Choice,
    ) -> Result<File<'_>, DatasetError> {
        self.check()?;
        path.clone_into(&mut self.last);
        match &self.classes {
            None => {
                for class in &choice.classes {
                    self.builder.class(class)?;
                }
                self.classes = Some(choice.classes.clone());
            }
            Some(classes) if *classes != choice.classes => {
                return Err(DatasetError::Shard {
                    path: self.storage.shown(path),
                    offset: 0,
                    why: format!(
                        "its column of classes names {} classes, which differ from the {} of \
                        earlier files; put each data set into a folder of its own",
                        choice.classes.len(),
                        classes.len()
                    ),
                });
            }
            Some(_) => {}
        }
        let file = self.builder.file(path)?;
        let Self { builder, labels, fields, n, .. } = self;
        Ok(File { builder, labels, fields, file, n })
    }

    /// The data set; `target` is where the files are from.
    pub(crate) fn found(
        self,
        format: Format,
        target: &str,
        n_ignored: u64,
    ) -> Result<Found, DatasetError> {
        if self.labels == Labels::default() {
            return Err(DatasetError::Empty { path: self.storage.shown(target) });
        }
        self.check()?;
        let found = found(format, self.builder, n_ignored, self.labels)?;
        with_fields(found, (self.storage, target), self.fields)
    }
}

/// Takes the rows of one file.
pub(crate) struct File<'a> {
    builder: &'a mut TableBuilder,
    labels: &'a mut Labels,
    pub(crate) fields: &'a mut FieldsBuilder,
    file: FileIdx,
    n: &'a mut u64,
}

impl File<'_> {
    /// The next row: where its image is, and its class.
    pub(crate) fn row(&mut self, (offset, len): (u64, u32), label: Option<u32>) {
        let extent = Extent { file: self.file, offset, len };
        self.builder.sample(extent, self.labels.take(label));
        *self.n += 1;
    }

    /// The next value of a field: where it is.
    pub(crate) fn extent(&mut self, kept: Kept, (offset, len): (u64, u32)) {
        self.fields.extent(kept, Extent { file: self.file, offset, len });
    }
}

/// The files that an index in `folder` names, each once: a short index could else name one file a million
/// times.
///
/// # Errors
/// What is wrong with a name.
pub(crate) fn listed<'a>(
    folder: &str,
    names: impl Iterator<Item = &'a str>,
) -> Result<Vec<String>, String> {
    let mut seen = HashSet::new();
    let files = names.map(|name| {
        path::check(name).map_err(|why| format!("the file {name:?} {why}"))?;
        match seen.insert(name) {
            true => Ok(path::join(folder, name)),
            false => Err(format!("the file {name:?} is listed twice")),
        }
    });
    files.collect()
}
