//! A store as a data set: the index of every shard becomes rows of the table.
//!
//! `store.rs` says what a store consists of and how it is read.

use std::collections::HashSet;

use bothends_core::sample::Extent;

use crate::error::DatasetError;
use crate::formats::{Format, Found};
use crate::storage::{Entry, Kind, Storage, list};
use crate::store::{
    Index, Kept, MANIFEST_FILES, Manifest, RecordKind, Shard, name_profile, read_index,
    read_manifest, refused,
};
use crate::table::TableBuilder;
use crate::{path, side_index};

/// Whether the entry makes its folder look like this format.
pub(crate) fn is_manifest(entry: &Entry) -> bool {
    entry.kind != Kind::Folder && MANIFEST_FILES.contains(&entry.name.as_str())
}

/// Reads the store in the folder `target`: its manifest and every shard's index.
pub(crate) fn parse(storage: &dyn Storage, target: &str) -> Result<Found, DatasetError> {
    let kept = read_manifest(storage, target)?;
    let manifest = kept.value;
    let mut taking = Taking {
        storage,
        builder: TableBuilder::new(manifest.encoding),
        checksums: Vec::new(),
        is_damaged: kept.damage.is_some(),
    };
    for class in &manifest.classes {
        taking.builder.class(class)?;
    }
    for shard in &manifest.shards {
        taking.shard(target, shard)?;
    }
    let Taking { mut builder, checksums, is_damaged, .. } = taking;
    builder.checksums(checksums);
    let note = is_damaged.then_some(
        "the store is damaged in parts that it keeps twice, and can still be read; \
         verify it to see where",
    );
    let n_ignored = n_foreign(storage, target, &manifest)?;
    Ok(Found::new(Format::Store, builder.build()?, n_ignored, note))
}

/// The table in the making.
struct Taking<'a> {
    storage: &'a dyn Storage,
    builder: TableBuilder,
    checksums: Vec<u64>,
    is_damaged: bool,
}

impl Taking<'_> {
    fn shard(&mut self, target: &str, shard: &Shard) -> Result<(), DatasetError> {
        let Kept { value: sealed, damage } = read_index(self.storage, target, shard)?;
        self.is_damaged |= damage.is_some();
        let path = path::join(target, &shard.file());
        let index = Index::decode(&sealed.index, &sealed.header)
            .map_err(|refusal| refused(self.storage, &path, refusal))?;
        self.samples(&path, &index)
    }

    fn samples(&mut self, path: &str, index: &Index<'_>) -> Result<(), DatasetError> {
        let file = self.builder.file(path)?;
        for (number, line) in index.lines().iter().enumerate() {
            if line.kind == RecordKind::Rest {
                continue;
            }
            let extent = Extent { file, offset: line.offset(), len: line.len };
            self.builder.sample(extent, line.label);
            self.checksums.push(line.checksum);
            if line.kind == RecordKind::Blocks {
                let profile = self.builder.profile(index.profile(number))?;
                let mut head = index.head(number).to_vec();
                name_profile(&mut head, profile);
                self.builder.head(&head)?;
            }
        }
        Ok(())
    }
}

/// How many names in the store's folder are not the store's.
fn n_foreign(
    storage: &dyn Storage,
    target: &str,
    manifest: &Manifest,
) -> Result<u64, DatasetError> {
    let shards: HashSet<String> =
        manifest.shards.iter().flat_map(|s| [s.file(), s.index_file()]).collect();
    let is_foreign = |entry: &&Entry| {
        let name = entry.name.as_str();
        !MANIFEST_FILES.contains(&name)
            && !side_index::is_segment(name)
            && !shards.contains(name)
    };
    Ok(list(storage, target)?.iter().filter(is_foreign).count() as u64)
}
