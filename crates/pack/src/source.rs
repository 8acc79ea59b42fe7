//! What is packed: records in order, wherever they are kept.

pub(crate) mod files;
pub(crate) mod stored;

use std::fmt::Debug;
use std::time::SystemTime;

use bothends_core::sample::Encoding;

use crate::PackError;
use crate::convert::Converter;
use crate::record::{Item, Made};

/// Records to be packed.
///
/// # Contract
///
/// The order of the records is chosen by the source and always the same, and so is what
/// [`make`](Self::make) returns: the source determines the bytes of the store. Several threads make
/// records at once. Records of the same original file follow each other if possible.
pub trait Source: Debug + Sync {
    /// Its name, for messages.
    fn name(&self) -> String;

    /// What every sample is.
    fn encoding(&self) -> Encoding;

    /// The names of the classes by label; empty if labels have no names.
    fn classes(&self) -> Vec<String>;

    /// The number of records, at least one.
    fn n_records(&self) -> usize;

    /// What is known of a record. Does not block.
    fn item(&self, number: usize) -> Item;

    /// Whether the origin of the record has changed after `time`, as far as that is known. Blocks on
    /// storage.
    ///
    /// # Errors
    /// [`PackError::Failed`] if it no longer exists.
    fn has_changed_since(
        &self,
        number: usize,
        time: SystemTime,
    ) -> Result<bool, PackError> {
        let _ = (number, time);
        Ok(false)
    }

    /// Reads and converts a record. Blocks on storage and for the conversion.
    ///
    /// # Errors
    /// [`PackError`]: a record that cannot be read is not skipped.
    fn make(&self, number: usize, converter: &mut Converter) -> Result<Made, PackError>;

    /// Writes the original bytes of a record to `out`, replacing its contents. Blocks on storage and for the
    /// conversion.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    fn original(
        &self,
        number: usize,
        converter: &mut Converter,
        out: &mut Vec<u8>,
    ) -> Result<(), PackError>;
}

/// The progress of a long operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Records that are done, including those of earlier attempts.
    pub n_done: u64,
    /// Those of earlier attempts.
    pub n_found_done: u64,
    /// All records.
    pub n_records: u64,
    /// Original bytes of the records that are done.
    pub original_bytes: u64,
    /// Their bytes in the store.
    pub stored_bytes: u64,
}
