//! A record's form in the store, from its original bytes and back.
//!
//! A record is kept in another form than its own only when its own bytes were made of that
//! form again, here and now. Does not read or write files.

use bothends_core::sample::Encoding;
use bothends_dataset::store::{Index, RecordKind};

use crate::Item;
use crate::source::Made;

/// One worker's memory for making records.
#[derive(Debug, Default)]
pub struct Converter {}

/// A record of a store, with what its index says of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept<'a> {
    pub(crate) kind: RecordKind,
    pub(crate) stored: &'a [u8],
}

impl<'a> Kept<'a> {
    /// Record `number` of a shard with this index.
    pub(crate) fn of(index: &Index<'_>, number: usize, stored: &'a [u8]) -> Self {
        Self { kind: index.lines()[number].kind, stored }
    }
}

impl Converter {
    /// The record of a sample's original bytes.
    #[must_use]
    pub fn convert(&mut self, item: Item, bytes: Vec<u8>, encoding: Encoding) -> Made {
        let _ = encoding;
        Made::bytes(item, bytes)
    }

    /// Writes the original bytes of a record to `out`, in place of what that holds.
    pub(crate) fn restore(
        &mut self,
        kept: Kept<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        match kept.kind {
            RecordKind::Bytes | RecordKind::Rest => {
                out.clear();
                out.extend_from_slice(kept.stored);
                Ok(())
            }
            RecordKind::Blocks => Err("this build writes no file from blocks".to_owned()),
        }
    }
}
