//! The records to work on: found as in a run, read once, kept in memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bothends_core::blocks::{Blocks, Head, Profile};
use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::sample::{Encoding, Record, RecordPart, RowGroups, SampleKey};
use bothends_dataset::Table;
use bothends_io::Folder;
use bothends_ops::jpeg::{Decoder, Packed, Packer};
use bothends_ops::{OpsError, Pipeline};

use crate::BenchError;

/// A data set on disk.
#[derive(Debug)]
pub(crate) struct DataSet {
    pub(crate) root: PathBuf,
    pub(crate) table: Table,
}

impl DataSet {
    /// Lists the data set at `path`, its first `limit` samples.
    pub(crate) fn open(path: &Path, limit: Option<u64>) -> Result<Self, BenchError> {
        let failed = |source| BenchError::Data { path: path.to_owned(), source };
        let (folder, target) = Folder::around(path).map_err(failed)?;
        let found = bothends_dataset::find(&folder, &target)?;
        let root = folder.0;
        Ok(Self { root, table: found.table.first(limit.unwrap_or(u64::MAX)) })
    }

    pub(crate) fn path(&self, sample: SampleId) -> String {
        self.table.file_path(self.table.extent(sample).file)
    }
}

/// The records of a data set in memory.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) seed: u64,
    encoding: Encoding,
    bytes: Vec<Vec<u8>>,
    names: Vec<String>,
    /// Notes from an earlier visit; empty without any.
    pub(crate) entry_points: Vec<Vec<u8>>,
    /// Their form in a store, with the head; empty before they are packed.
    packed: Vec<Option<(Packed, Vec<u8>)>>,
}

impl Records {
    /// Reads all records of `data`.
    pub(crate) fn read(data: &DataSet, seed: u64) -> Result<Self, BenchError> {
        let n = data.table.n_samples();
        let names: Vec<String> = (0..n).map(|i| data.path(SampleId(i))).collect();
        let mut bytes = Vec::with_capacity(names.len());
        for (sample, name) in (0..n).map(SampleId).zip(&names) {
            let mut record = Vec::new();
            read_record(data, sample, name, &mut record)?;
            bytes.push(record);
        }
        let encoding = data.table.encoding();
        let entry_points = vec![Vec::new(); bytes.len()];
        Ok(Self { seed, encoding, bytes, names, entry_points, packed: Vec::new() })
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn n_bytes(&self) -> usize {
        self.bytes.iter().map(Vec::len).sum()
    }

    /// Whether all are JPEG files.
    pub(crate) fn are_jpegs(&self) -> bool {
        let is_jpeg = |bytes: &Vec<u8>| bytes.starts_with(&[0xff, 0xd8, 0xff]);
        self.encoding == Encoding::Image && self.bytes.iter().all(is_jpeg)
    }

    pub(crate) fn name(&self, idx: usize) -> &str {
        &self.names[idx]
    }

    /// The error for a sample of record `idx` that cannot be made.
    pub(crate) fn bad_sample(&self, idx: usize) -> impl Fn(OpsError) -> BenchError {
        move |source| BenchError::BadSample { record: self.names[idx].clone(), source }
    }

    /// Record `idx` as if it had never been seen.
    pub(crate) fn record(&self, idx: usize) -> Record<'_> {
        Record::new(&self.bytes[idx], self.encoding)
    }

    /// The record with what an earlier visit left.
    pub(crate) fn visited(&self, idx: usize) -> Record<'_> {
        Record { entry_points: &self.entry_points[idx], ..self.record(idx) }
    }

    /// Packs every record that can be packed.
    pub(crate) fn pack(&mut self) {
        let (mut decoder, mut packer) = (Decoder::default(), Packer::default());
        let packed = self.bytes.iter().map(|bytes| {
            let packed = packer.pack(&mut decoder, bytes, &mut Vec::new())?;
            let head = packed.lengths.head(packed.size, 0, packed.row_lengths)?;
            Some((packed, head))
        });
        self.packed = packed.collect();
    }

    /// The bytes of all row groups and heads; `None` if nothing was packed.
    pub(crate) fn n_packed_bytes(&self) -> Option<usize> {
        let len = |(packed, head): &(Packed, Vec<u8>)| packed.groups.len() + head.len();
        let all = self.packed.iter().flatten().map(len).sum();
        (!self.packed.is_empty()).then_some(all)
    }

    /// The row groups of record `idx` that the sample of `key` needs, or the record itself if it could not
    /// be packed.
    pub(crate) fn stored(
        &self,
        idx: usize,
        pipeline: &Pipeline,
        key: SampleKey,
    ) -> Result<Record<'_>, OpsError> {
        let known = self.packed[idx].as_ref().and_then(|(packed, head)| {
            let profile = Profile::read(&packed.profile)?;
            Some((packed, Blocks::new(profile, Head::read(head)?)?))
        });
        let Some((packed, blocks)) = known else { return Ok(self.record(idx)) };
        let groups = pipeline.groups_for(key, blocks)?;
        let part = RecordPart::RowGroups(RowGroups { blocks, first: groups.start });
        let bytes = blocks.head().part_of(&packed.groups, 0, groups);
        let bytes = bytes.expect("groups of this image");
        Ok(Record { part, ..Record::new(bytes, self.encoding) })
    }

    /// Its random numbers in an epoch.
    pub(crate) fn key(&self, idx: usize, epoch: EpochIdx) -> SampleKey {
        SampleKey { seed: self.seed, epoch, sample: SampleId(idx as u64) }
    }
}

/// Opens a record's file and reads it into `dst`, which keeps its memory.
pub(crate) fn read_record(
    data: &DataSet,
    sample: SampleId,
    name: &str,
    dst: &mut Vec<u8>,
) -> Result<(), BenchError> {
    let extent = data.table.extent(sample);
    let path = data.root.join(name);
    dst.resize(extent.len as usize, 0);
    File::open(&path)
        .and_then(|file| file.read_exact_at(dst, extent.offset))
        .map_err(|source| BenchError::Data { path, source })
}
