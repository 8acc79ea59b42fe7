//! A record on its way into a store: what it was, and how it is kept.

use bothends_dataset::store::{NewRecord, RecordKind};

/// What is known of a record before it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The original file's path below the data's root.
    pub path: String,
    /// Whether it is a sample, or what is left of a file without its samples.
    pub is_sample: bool,
    /// A sample's label; of a rest, 1 for an empty folder.
    pub label: u32,
    /// Where it begins in the original file; of a rest, how long the whole file is.
    pub at: u64,
    /// Length of the original bytes.
    pub len: u32,
}

/// A record ready to be written.
#[derive(Debug, Clone)]
pub struct Made {
    /// What it was.
    pub item: Item,
    /// How it is kept.
    pub kind: RecordKind,
    /// What is stored.
    pub stored: Vec<u8>,
    /// A JSON text, or nothing.
    pub metadata: String,
    /// Of a record of blocks.
    pub head: Vec<u8>,
    /// Of a record of blocks.
    pub profile: Vec<u8>,
}

impl Made {
    /// A record that is kept as it was.
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
