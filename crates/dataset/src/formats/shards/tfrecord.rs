//! TFRecord files: records of `tf.train.Example`, each after its length.
//!
//! A record is its length (8 bytes, little-endian), the masked CRC-32C of that, the bytes, and the masked
//! CRC-32C of those (`tensorflow/core/lib/io/record_writer.h`). The first sum is checked for every record;
//! the second would mean to read all data, and is not. `example.rs` finds the image in a record. Files
//! that are compressed as a whole have to be decompressed first, and have no other names.

use bothends_core::sample::{Encoding, Extent};

use super::compressed::Codec;
use super::example::{Looking, look};
use super::walk::{Walk, walk};
use super::{Labels, Window, find, found, one_split, with_fields};
use crate::error::DatasetError;
use crate::fields::FieldsBuilder;
use crate::formats::{Format, Found};
use crate::storage::Storage;
use crate::table::TableBuilder;

/// A record's length and the sum over it; a sum over the bytes follows them.
const HEAD_BYTES: usize = 12;
const TAIL_BYTES: u64 = 4;

/// Bytes that one read brings: a record's head, and the names and small values of an example.
const STEP: usize = 512;

/// Whether a file's name is one that TensorFlow's programs give: `x.tfrecord`, `x.tfrecord-00000-of-00128`
/// or `train-00000-of-01024`.
pub(crate) fn is_shard(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let ends = [".tfrecord", ".tfrecords", ".tfrec"];
    ends.iter().any(|end| name.ends_with(end))
        || name.contains(".tfrecord-")
        || is_numbered(&name)
}

/// `…-00000-of-01024`.
fn is_numbered(name: &str) -> bool {
    let is_number =
        |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.rsplit_once("-of-");
    let parts = parts.and_then(|(begin, of)| Some((begin.rsplit_once('-')?.1, of)));
    parts.is_some_and(|(nth, of)| is_number(nth) && is_number(of))
}

/// Reads the files at `target`, in the order of their names.
pub(crate) fn parse(
    storage: &dyn Storage,
    target: &str,
    fields: FieldsBuilder,
) -> Result<Found, DatasetError> {
    let (shards, n_others) = find(storage, target, is_shard)?;
    one_split(storage, target, &shards)?;
    let mut reading = Reading::new(Looking::new(fields));
    walk(&mut reading, storage, &shards)?;
    let Reading { builder, labels, looking } = reading;
    if labels == Labels::default() {
        return Err(DatasetError::Empty { path: storage.shown(target) });
    }
    let found = found(Format::TfRecord, builder, n_others, labels)?;
    with_fields(found, (storage, target), looking.fields)
}

/// The table in the making.
struct Reading {
    builder: TableBuilder,
    labels: Labels,
    looking: Looking,
}

impl Reading {
    fn new(looking: Looking) -> Self {
        let (builder, labels) = (TableBuilder::new(Encoding::Image), Labels::default());
        Self { builder, labels, looking }
    }
}

impl Walk for Reading {
    fn part(&self) -> Self {
        Self::new(self.looking.part())
    }

    fn shard(&mut self, storage: &dyn Storage, path: &str) -> Result<(), DatasetError> {
        let mut shard = Window::open(storage, path, STEP)?;
        let file = self.builder.file(path)?;
        let mut at = 0;
        while at < shard.len() {
            let len = record(&mut shard, at)?;
            let data = at + HEAD_BYTES as u64;
            let example = look(&mut shard, (data..data + len, file), &mut self.looking)?;
            let (offset, len_bytes) = example.image;
            let len_bytes = shard.record_len(offset, len_bytes)?;
            let label = self.labels.take(example.label);
            self.builder.sample(Extent { file, offset, len: len_bytes }, label);
            at = data + len + TAIL_BYTES;
        }
        Ok(())
    }

    fn agrees(&self, part: &Self) -> bool {
        self.looking.agrees(&part.looking)
    }

    fn append(&mut self, part: Self) -> Result<(), DatasetError> {
        let files = self.builder.append(part.builder)?;
        self.looking.append(part.looking, &files);
        self.labels.append(part.labels);
        Ok(())
    }
}

/// How a file is compressed that does not begin with a record; its name does not tell.
pub(crate) fn codec(
    storage: &dyn Storage,
    path: &str,
) -> Result<Option<Codec>, DatasetError> {
    let mut file = Window::open(storage, path, STEP)?;
    match file.len() {
        len if len < HEAD_BYTES as u64 => Ok(None),
        _ => Ok(packed(file.bytes(0, HEAD_BYTES)?)),
    }
}

/// How what begins like this is compressed, if it is.
fn packed(head: &[u8]) -> Option<Codec> {
    if is_sound(head) { None } else { Codec::of_head([head[0], head[1]]) }
}

/// Whether the length of a record has the right checksum.
fn is_sound(head: &[u8]) -> bool {
    masked_crc32c(&head[..8]).to_le_bytes() == head[8..HEAD_BYTES]
}

/// The length of the record at `at`, checked.
fn record(shard: &mut Window<'_>, at: u64) -> Result<u64, DatasetError> {
    let head = shard.bytes(at, HEAD_BYTES)?;
    if at == 0 && packed(head).is_some() {
        let why = "the file is compressed; write it again without compression";
        return Err(shard.compressed(at, why));
    }
    if !is_sound(head) {
        let why = "not a record of a TFRecord file, or its length is damaged; fetch the file again";
        return Err(shard.broken(at, why));
    }
    let len = head[..8].iter().rev().fold(0, |sum, &byte| (sum << 8) | u64::from(byte));
    let end = at
        .checked_add(len)
        .and_then(|end| end.checked_add(HEAD_BYTES as u64 + TAIL_BYTES));
    match end.is_some_and(|end| end <= shard.len()) {
        true => Ok(len),
        false => Err(shard.broken(
            at,
            "a record reaches beyond the end of the file; fetch the file again",
        )),
    }
}

/// CRC-32C, rotated and shifted so that sums of data which hold sums keep their strength.
fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests;
