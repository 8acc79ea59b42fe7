//! A record on its way into a store: what it was, and how it is kept.

use bothends_dataset::store::{NewRecord, RecordKind};

/// What is known of a record before it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The original file's path, relative to the root of the data.
    pub path: String,
    /// Whether it is a sample, or the rest of a file without its samples.
    pub is_sample: bool,
    /// The label of a sample; for a rest, 1 for an empty folder.
    pub label: u32,
    /// Where it begins in the original file; for a rest, the length of the whole file.
    pub at: u64,
    /// The length of the original bytes.
    pub len: u32,
}

/// A record that is ready to be written.
#[derive(Debug, Clone)]
pub struct Made {
    /// What it was.
    pub item: Item,
    /// How it is kept.
    pub kind: RecordKind,
    /// What is stored.
    pub stored: Vec<u8>,
    /// A JSON text, or empty.
    pub metadata: String,
    /// For a record of blocks.
    pub head: Vec<u8>,
    /// For a record of blocks.
    pub profile: Vec<u8>,
}

impl Made {
    /// A record that is kept unchanged.
    #[must_use]
    pub fn bytes(item: Item, stored: Vec<u8>) -> Self {
        let kind = match item.is_sample {
            true => RecordKind::Bytes,
            false => RecordKind::Rest,
        };
        let (metadata, head, profile) = Default::default();
        Self { item, kind, stored, metadata, head, profile }
    }

    pub(crate) fn record(&self) -> NewRecord<'_> {
        NewRecord {
            kind: self.kind,
            stored: &self.stored,
            label: self.item.label,
            path: &self.item.path,
            original_at: self.item.at,
            original_len: self.item.len,
            metadata: &self.metadata,
            head: &self.head,
            profile: &self.profile,
        }
    }
}
