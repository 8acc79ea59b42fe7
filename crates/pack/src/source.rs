//! What is packed: records in their order, whoever keeps them.

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
/// The order of records is the source's own and always the same, and so is what
/// [`make`](Self::make) returns: a store's bytes follow from its source. Records are made by
/// several threads at once. Records of one original file follow each other where they can.
pub trait Source: Debug + Sync {
    /// What it is, for messages.
    fn name(&self) -> String;

    /// What every sample is.
    fn encoding(&self) -> Encoding;

    /// The classes' names by label; none where labels have no names.
    fn classes(&self) -> Vec<String>;

    /// Number of records, at least one.
    fn n_records(&self) -> usize;

    /// What is known of a record. Does not block.
    fn item(&self, number: usize) -> Item;

    /// Whether what the record is made of has changed after `time`, as far as that is known.
    /// Blocks on the storage.
    ///
    /// # Errors
    /// [`PackError::Failed`] when it is not there any more.
    fn has_changed_since(
        &self,
        number: usize,
        time: SystemTime,
    ) -> Result<bool, PackError> {
        let _ = (number, time);
        Ok(false)
    }

    /// Reads a record and makes it ready. Blocks on the storage, and for as long as its form
    /// takes to compute.
    ///
    /// # Errors
    /// [`PackError`]: nothing is packed around a record that cannot be read.
    fn make(&self, number: usize, converter: &mut Converter) -> Result<Made, PackError>;
}

/// How far a long step has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Records that are done, those of earlier attempts among them.
    pub n_done: u64,
    /// Those of earlier attempts.
    pub n_found_done: u64,
    /// Records in all.
    pub n_records: u64,
    /// Original bytes of what is done.
    pub original_bytes: u64,
    /// Bytes in the store of what is done.
    pub stored_bytes: u64,
}
