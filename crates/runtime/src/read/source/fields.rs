//! The values of further fields, read for the rows of a batch.
//!
//! Small values are in memory, and others came with the records, where these were fetched from a remote store
//! (`read/remote/fetched_fields.rs`). What is left is read here when the batch is finished, whoever made it: from files
//! by the threads that do chores; and of a remote store from the record cache, or all at once over the network, which
//! takes a round trip for a batch or several.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::sample::{Extent, FileIdx};
use bothends_dataset::FieldPlace;
use bothends_io::{is_of_machine, open_regular};
use bothends_storage::Bytes;

use super::Source;
use crate::handover::batch::fields::FieldColumn;
use crate::make::chores::Chores;
use crate::read::demand::BatchKey;
use crate::read::remote::Remote;
use crate::read::remote::fetched_fields::Entered;
use crate::read::supplied::{Failure, Unmade};
use crate::threads::shutdown::Stop;

/// Extents that are worth a chore.
const RUN: usize = 16;

/// A value of a row that has to be read: the field, the row, and where it is.
#[derive(Debug, Clone, Copy)]
struct Read {
    field: usize,
    row: usize,
    extent: Extent,
}

/// The values that were read, by field and row.
type Values = HashMap<(usize, usize), Result<Bytes, Unmade>>;

/// Files that are open while a run of values is read.
type OpenFiles = HashMap<FileIdx, File>;

/// The fields of a batch, and what of them could not be had.
#[derive(Debug, Default)]
pub(crate) struct RowFields {
    pub(crate) columns: Vec<FieldColumn>,
    /// Rows with a field that is bad, and why, in ascending order.
    pub(crate) bad: Vec<(usize, String)>,
}

impl Source {
    /// Batches of an epoch are finished until the guard is dropped, so that values of remote samples may wait for them.
    pub(crate) fn enter(&self, epoch: EpochIdx) -> Option<Entered> {
        self.remote().map(|remote| remote.fetched_fields.enter(epoch))
    }

    /// The fields of these rows of a batch, as far as any were asked for. Blocks on the storage.
    ///
    /// # Errors
    /// What the machine or the network says, where it is one of them that fails.
    pub(crate) fn row_fields(
        self: &Arc<Self>,
        (batch, rows): (BatchKey, &[Option<SampleId>]),
        chores: &Chores,
        stop: &Stop,
    ) -> Result<RowFields, Failure> {
        if self.fields.is_empty() {
            return Ok(RowFields::default());
        }
        let mut values = self.all_values((batch, rows), chores, stop);
        let mut found = RowFields::default();
        for (nth, field) in self.fields.iter().enumerate() {
            let mut column = FieldColumn::new(field);
            for (row, sample) in rows.iter().enumerate() {
                let Some(sample) = sample else {
                    column.push_none();
                    continue;
                };
                let read;
                let value = match field.place(self.record_of(*sample)) {
                    FieldPlace::Value(value) => Ok(value),
                    FieldPlace::Extent(Extent { len: 0, .. }) => Ok(&[][..]),
                    FieldPlace::Extent(_) => match values.remove(&(nth, row)) {
                        Some(Ok(bytes)) => {
                            read = bytes;
                            Ok(&read[..])
                        }
                        Some(Err(Unmade::Bad(why))) => Err(why),
                        Some(Err(Unmade::Machine(failure))) => return Err(failure),
                        None => Err("was not read".to_owned()),
                    },
                };
                let value = value.and_then(|value| {
                    column.check(value).map(|()| value).map_err(str::to_owned)
                });
                match value {
                    Ok(value) => column.push(value),
                    Err(why) => {
                        column.push_none();
                        found
                            .bad
                            .push((row, format!("its field `{}`: {why}", field.name())));
                    }
                }
            }
            found.columns.push(column);
        }
        found.bad.sort();
        found.bad.dedup_by_key(|(row, _)| *row);
        Ok(found)
    }

    /// In the order of their files, so that neighbours are read together.
    fn to_read(&self, rows: &[Option<SampleId>]) -> Vec<Read> {
        let mut reads = Vec::new();
        for (nth, field) in self.fields.iter().enumerate() {
            for (row, sample) in rows.iter().enumerate() {
                let place = sample.map(|sample| field.place(self.record_of(sample)));
                if let Some(FieldPlace::Extent(extent)) = place
                    && extent.len > 0
                {
                    reads.push(Read { field: nth, row, extent });
                }
            }
        }
        reads.sort_unstable_by_key(|read| (read.extent.file, read.extent.offset));
        reads
    }

    fn all_values(
        self: &Arc<Self>,
        (batch, rows): (BatchKey, &[Option<SampleId>]),
        chores: &Chores,
        stop: &Stop,
    ) -> Values {
        let mut reads = self.to_read(rows);
        let Some(remote) = self.remote() else {
            return self.read_files(&reads, chores, stop);
        };
        let fetched = remote.fetched_fields.take(batch);
        let mut values = Values::new();
        reads.retain(|Read { field, row, .. }| {
            let value = rows[*row].and_then(|sample| fetched.get(&(sample, *field)));
            values.extend(value.map(|value| ((*field, *row), Ok(value.clone()))));
            value.is_none()
        });
        if remote.cache().is_some() {
            let source = Arc::clone(self);
            let found =
                in_chores(&reads, chores, move |read, _| source.cached_value(read));
            reads.retain(|read| !found.contains_key(&(read.field, read.row)));
            values.extend(found);
        }
        values.extend(self.fetch_values(remote, &reads, stop));
        values
    }

    /// A value that is in the record cache. Blocks on its disk.
    fn cached_value(&self, read: Read) -> Option<Result<Bytes, Unmade>> {
        let remote = self.remote()?;
        let record = self.find_cached_value(remote, read.extent)?;
        remote.cache()?.read(&record).map(|bytes| Ok(Bytes::from(bytes)))
    }

    fn fetch_values(&self, remote: &Remote, reads: &[Read], stop: &Stop) -> Values {
        let object = |read: &Read| self.table.file_path(read.extent.file);
        let objects = reads.iter().map(|read| (object(read), read.extent));
        let fetched = remote.read_all(&objects.collect::<Vec<_>>(), stop);
        let values = fetched.into_iter().zip(reads).map(|(value, read)| {
            let value = value.map(Bytes::from);
            if let Ok(bytes) = &value {
                self.keep_value(remote, read.extent, (bytes, &(0..bytes.len())));
            }
            ((read.field, read.row), value)
        });
        values.collect()
    }

    fn read_files(
        self: &Arc<Self>,
        reads: &[Read],
        chores: &Chores,
        stop: &Stop,
    ) -> Values {
        let (source, stop) = (Arc::clone(self), stop.clone());
        in_chores(reads, chores, move |read, files| {
            let value = source.patiently(&stop, || {
                let value = source.read_value(read.extent, files);
                if matches!(value, Err(Unmade::Machine(_))) {
                    files.clear();
                }
                value
            });
            Some(value.map(Bytes::from))
        })
    }

    fn read_value(
        &self,
        extent: Extent,
        files: &mut OpenFiles,
    ) -> Result<Vec<u8>, Unmade> {
        let path = || self.roots.path(&self.table.file_path(extent.file));
        let mut bytes = vec![0; extent.len as usize];
        let read = (|| {
            let file = match files.entry(extent.file) {
                Entry::Occupied(open) => open.into_mut(),
                Entry::Vacant(missing) => missing.insert(open_regular(&path())?),
            };
            file.read_exact_at(&mut bytes, extent.offset)
        })();
        match read {
            Ok(()) => Ok(bytes),
            Err(source) if is_of_machine(&source) => {
                Err(Unmade::Machine(Failure::Local { path: path(), source }))
            }
            Err(error) => Err(Unmade::Bad(format!("cannot be read ({error})"))),
        }
    }
}

/// What `value` says of each of these, as far as it says anything, by the threads that do chores.
fn in_chores(
    reads: &[Read],
    chores: &Chores,
    value: impl Fn(Read, &mut OpenFiles) -> Option<Result<Bytes, Unmade>>
    + Send
    + Sync
    + 'static,
) -> Values {
    let values: Arc<Mutex<Values>> = Arc::default();
    let value = Arc::new(value);
    let pieces = reads.chunks(RUN).map(|run| {
        let (run, values, value) =
            (run.to_vec(), Arc::clone(&values), Arc::clone(&value));
        move || {
            let mut files = OpenFiles::new();
            for read in run {
                let found = value(read, &mut files);
                let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
                values.extend(found.map(|found| ((read.field, read.row), found)));
            }
        }
    });
    chores.all(pieces.collect::<Vec<_>>());
    let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *values)
}
