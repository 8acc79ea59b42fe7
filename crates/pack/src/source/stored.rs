//! Stores as a source: their records, unchanged, to join stores, take a part of one, or divide it
//! into other shards.
//!
//! Nothing is decoded: the bytes of a record are verified against their checksum and copied.

use std::collections::HashMap;
use std::ops::Range;

use bothends_core::sample::Encoding;
use bothends_dataset::store::{Index, Line, Manifest, RecordKind};

use crate::convert::Kept;
use crate::opened::read_stored;
use crate::record::{Item, Made};
use crate::source::Source;
use crate::{Converter, OpenStore, PackError};

/// The records of one or several stores, one after the other.
#[derive(Debug)]
pub struct Stored<'a> {
    stores: &'a [OpenStore],
    shards: Vec<Shard<'a>>,
    /// The shard and number of each record.
    records: Vec<(u32, u32)>,
}

#[derive(Debug)]
struct Shard<'a> {
    store: &'a OpenStore,
    number: usize,
    index: Index<'a>,
}

impl<'a> Stored<'a> {
    /// All records of `stores`.
    ///
    /// # Errors
    /// [`PackError::Differ`] for stores of different kinds of samples, [`PackError::SameFile`],
    /// [`PackError::Failed`].
    pub fn all(stores: &'a [OpenStore]) -> Result<Self, PackError> {
        let mut shards = Vec::new();
        for store in stores {
            can_join(&stores[0], store)?;
            for (number, index) in store.indices().into_iter().enumerate() {
                shards.push(Shard { store, number, index });
            }
        }
        let records = (0..).zip(&shards).flat_map(|(shard, Shard { index, .. })| {
            (0..).zip(index.lines()).map(move |(record, _)| (shard, record))
        });
        let records = records.collect();
        let stored = Self { stores, shards, records };
        stored.keeps_files_apart()?;
        Ok(stored)
    }

    /// The samples in this range of the samples of `stores`. Everything else is left out, so files
    /// with more than one sample are not restored completely.
    ///
    /// # Errors
    /// As [`all`](Self::all), and [`PackError::NoSuchSamples`].
    pub fn some(stores: &'a [OpenStore], samples: Range<u64>) -> Result<Self, PackError> {
        let mut stored = Self::all(stores)?;
        let shards = &stored.shards;
        let is_sample = |(shard, record): &(u32, u32)| {
            line(shards, (*shard, *record)).kind != RecordKind::Rest
        };
        stored.records.retain(is_sample);
        let n_samples = stored.records.len() as u64;
        let Range { start, end } = samples;
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let part = range.and_then(|(start, end)| stored.records.get(start..end));
        match part {
            Some(part) if !part.is_empty() => {
                stored.records = part.to_vec();
                Ok(stored)
            }
            _ => {
                let source_name = stored.name();
                Err(PackError::NoSuchSamples { source_name, start, end, n_samples })
            }
        }
    }

    /// Checks that no original file is in two stores.
    fn keeps_files_apart(&self) -> Result<(), PackError> {
        if self.stores.len() < 2 {
            return Ok(());
        }
        let mut owner: HashMap<&str, &OpenStore> = HashMap::new();
        for &record in &self.records {
            let Shard { store, index, .. } = &self.shards[record.0 as usize];
            let path = index.name(line(&self.shards, record).name);
            let first = *owner.entry(path).or_insert(store);
            if !std::ptr::eq(first, *store) {
                return Err(PackError::SameFile {
                    one: shown(first),
                    other: shown(store),
                    path: path.to_owned(),
                });
            }
        }
        Ok(())
    }
}

impl Shard<'_> {
    fn damaged(&self, record: usize, why: String) -> PackError {
        let file = self.store.manifest().shards[self.number].file();
        let shard = self.store.folder().join(file).display().to_string();
        let path = item(&self.index, record).path;
        PackError::Damaged { shard, record, path, why }
    }
}

fn line(shards: &[Shard<'_>], (shard, record): (u32, u32)) -> Line {
    shards[shard as usize].index.lines()[record as usize]
}

fn shown(store: &OpenStore) -> String {
    format!("`{}`", store.folder().display())
}

fn can_join(one: &OpenStore, other: &OpenStore) -> Result<(), PackError> {
    let Manifest { encoding, classes, .. } = other.manifest();
    match differ(one.manifest(), *encoding, classes) {
        Some(what) => {
            Err(PackError::Differ { one: shown(one), other: shown(other), what })
        }
        None => Ok(()),
    }
}

/// How this kind of samples differs from those of a store.
pub(crate) fn differ(
    store: &Manifest,
    encoding: Encoding,
    classes: &[String],
) -> Option<&'static str> {
    if store.encoding != encoding {
        return Some("encoding");
    }
    (store.classes != classes).then_some("classes")
}

impl Source for Stored<'_> {
    fn name(&self) -> String {
        self.stores.iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    fn encoding(&self) -> Encoding {
        self.stores[0].manifest().encoding
    }

    fn classes(&self) -> Vec<String> {
        self.stores[0].manifest().classes.clone()
    }

    fn n_records(&self) -> usize {
        self.records.len()
    }

    fn item(&self, number: usize) -> Item {
        let record = self.records[number];
        item(&self.shards[record.0 as usize].index, record.1 as usize)
    }

    fn make(&self, number: usize, _: &mut Converter) -> Result<Made, PackError> {
        let record = self.records[number];
        let shard = &self.shards[record.0 as usize];
        let (line, index) = (line(&self.shards, record), &shard.index);
        let record = record.1 as usize;
        let item = item(index, record);
        let mut stored = Vec::new();
        let file = shard.store.shard(shard.number)?;
        let why = match read_stored(&file, &line, &mut stored) {
            Err(why) => why,
            Ok(()) => {
                return Ok(Made {
                    item,
                    kind: line.kind,
                    stored,
                    metadata: index.metadata(record).to_owned(),
                    head: index.head(record).to_owned(),
                    profile: index.profile(record).to_owned(),
                });
            }
        };
        Err(shard.damaged(record, why))
    }

    fn original(
        &self,
        number: usize,
        converter: &mut Converter,
        out: &mut Vec<u8>,
    ) -> Result<(), PackError> {
        let (shard, record) = self.records[number];
        let (shard, record) = (&self.shards[shard as usize], record as usize);
        let mut stored = Vec::new();
        let line = shard.index.lines()[record];
        let file = shard.store.shard(shard.number)?;
        read_stored(&file, &line, &mut stored)
            .and_then(|()| {
                converter.restore(Kept::of(&shard.index, record, &stored), out)
            })
            .map_err(|why| shard.damaged(record, why))
    }
}

/// The origin of a record, from its line of the index.
pub(crate) fn item(index: &Index<'_>, record: usize) -> Item {
    let line = index.lines()[record];
    Item {
        path: index.name(line.name).to_owned(),
        is_sample: line.kind != RecordKind::Rest,
        label: line.label,
        at: line.original_at,
        len: line.original_len,
    }
}
