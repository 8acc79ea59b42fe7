//! Chunks of LitData: a folder with `index.json`, which names the chunks and says what an item is.
//!
//! A chunk is a number of items, their offsets, and the items; an item is the sizes of its leaves, then the
//! leaves (`litdata/streaming/writer.py`, litdata 0.2.76). Where items are dictionaries of bytes and numbers,
//! later versions leave the items empty and put the rows into Arrow IPC at the chunk's end, followed by its
//! length and a magic number. That is looked for first: as items, such a chunk would be empty images.

use std::ops::Range;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::super::compressed::{Codec, Decompression, Step, Treatment};
use super::super::{Window, class};
use super::arrow;
use super::choice::{Choice, Column, Features, Holds};
use super::rows::{Rows, listed};
use crate::error::DatasetError;
use crate::fields::FieldsBuilder;
use crate::formats::{Format, Found};
use crate::path;
use crate::storage::{Kind, Storage, kind, read};

const INDEX: &str = "index.json";

/// Longest index that is read: about a million chunks.
const MAX_INDEX_BYTES: u64 = 1 << 28;

/// What a chunk with rows in Arrow ends with, after their length.
const ARROW_MAGIC: &[u8] = b"LDARW01\0";

/// What a chunk of compressed frames begins with.
const FRAMED_MAGIC: &[u8] = b"LDFZ01\0\0";

/// Bytes of offsets that one read brings.
const OFFSETS_STEP: usize = 1 << 16;

/// Bytes of an item that one read brings: the sizes of leaves and a number.
const ITEM_STEP: usize = 128;

/// Leaves that an item may have: the size of each is read.
const MAX_LEAVES: usize = 1024;

/// Whether a file's name is that of a chunk.
pub(crate) fn is_shard(name: &str) -> bool {
    name.starts_with("chunk-") && name.ends_with(".bin")
}

#[derive(Deserialize)]
struct Index {
    chunks: Vec<Chunk>,
    config: Config,
}

#[derive(Deserialize)]
struct Chunk {
    filename: String,
    chunk_size: u64,
}

#[derive(Deserialize)]
struct Config {
    compression: Option<String>,
    encryption: Option<serde_json::Value>,
    item_loader: Option<String>,
    data_format: Option<Vec<String>>,
    /// JSON in a string.
    data_spec: Option<String>,
}

/// Reads the chunks that the index in `folder` names, in its order.
pub(crate) fn parse(storage: &dyn Storage, folder: &str) -> Result<Found, DatasetError> {
    let at = path::join(folder, INDEX);
    let refused =
        |why: String| DatasetError::Shard { path: storage.shown(&at), offset: 0, why };
    let index: Index = index(storage, folder, &at)?;
    index.config.check().map_err(refused)?;
    if let Some(codec) = &index.config.compression {
        let why = format!(
            "the chunks are compressed ({codec}), so that no image in them can be read alone; write \
             them again without `compression`"
        );
        return Err(DatasetError::Compressed {
            path: storage.shown(&at),
            offset: 0,
            why,
        });
    }
    let mut rows = Rows::new(storage, FieldsBuilder::default());
    let mut leaves = None;
    let names = index.chunks.iter().map(|chunk| chunk.filename.as_str());
    let files = listed(folder, names).map_err(refused)?;
    for (path, chunk) in files.iter().zip(&index.chunks) {
        let mut file = Window::open(storage, path, OFFSETS_STEP)?;
        if let Some(range) = arrow_rows(&mut file)? {
            arrow::stream(storage, (&mut file, path), range, &mut rows)?;
            continue;
        }
        let leaves = match &mut leaves {
            Some(known) => known,
            none => none.insert(Leaves::of(&index.config).map_err(refused)?),
        };
        add(storage, (path, chunk.chunk_size), leaves, &mut rows)?;
    }
    rows.found(Format::LitData, folder, 0)
}

/// What makes the chunks readable that the index in `folder` names: they are decompressed, and the index says so.
pub(crate) fn decompressed(
    storage: &dyn Storage,
    folder: &str,
) -> Result<Decompression, DatasetError> {
    let at = path::join(folder, INDEX);
    let refused =
        |why: String| DatasetError::Shard { path: storage.shown(&at), offset: 0, why };
    let mut index: serde_json::Value = index(storage, folder, &at)?;
    let of_config = |key: &str| index.pointer(&format!("/config/{key}"));
    let text = |key| of_config(key).and_then(serde_json::Value::as_str).unwrap_or("none");
    let (codec, level) = (text("compression"), text("compression_level"));
    let is_zstd = codec.split(':').next() == Some("zstd");
    if !is_zstd || !["none", "chunk"].contains(&level) {
        let why = format!(
            "the chunks are compressed ({codec}, compression_level {level}); only zstd with the level \"chunk\" is \
             supported: write them again so, or without `compression`"
        );
        return Err(refused(why));
    }
    if let Some(codec) = index.pointer_mut("/config/compression") {
        codec.take();
    }
    let chunks = index["chunks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = chunks.iter().filter_map(|chunk| chunk["filename"].as_str());
    let steps = listed("", names).map_err(refused)?.into_iter().map(|to| Step {
        from: path::join(folder, &to),
        to,
        treatment: Treatment::Decompressed(Codec::Zstd),
    });
    let mut plan = Decompression::of(steps.collect());
    plan.texts.push((INDEX.into(), index.to_string().into_bytes()));
    Ok(plan)
}

/// Whether the index in `folder` says that the chunks are compressed.
pub(crate) fn is_compressed(
    storage: &dyn Storage,
    folder: &str,
) -> Result<bool, DatasetError> {
    let index: Index = index(storage, folder, &path::join(folder, INDEX))?;
    Ok(index.config.compression.is_some())
}

/// The index, as much of it as is asked for.
fn index<T: DeserializeOwned>(
    storage: &dyn Storage,
    folder: &str,
    at: &str,
) -> Result<T, DatasetError> {
    let refused =
        |why: String| DatasetError::Shard { path: storage.shown(at), offset: 0, why };
    let Kind::File { len } = kind(storage, at)? else {
        return Err(DatasetError::Unrecognised { path: storage.shown(folder) });
    };
    let len = usize::try_from(len).ok().filter(|len| *len as u64 <= MAX_INDEX_BYTES);
    let len =
        len.ok_or_else(|| refused(format!("it has more than {MAX_INDEX_BYTES} bytes")))?;
    let mut text = vec![0; len];
    read(storage, at, 0, &mut text)?;
    serde_json::from_slice(&text)
        .map_err(|error| refused(format!("not the index of LitData chunks: {error}")))
}

impl Config {
    /// That samples can be read alone.
    fn check(&self) -> Result<(), String> {
        if self.encryption.is_some() {
            return Err("the chunks are encrypted; write them again without".into());
        }
        match self.item_loader.as_deref() {
            None | Some("PyTreeLoader") => Ok(()),
            Some(other) => Err(format!(
                "its items are those of {other}, which are not images; write them again with \
                 the default item loader"
            )),
        }
    }

    /// The names of the leaves where items are dictionaries; else numbers.
    fn names(&self, n: usize) -> Vec<String> {
        let spec = self.data_spec.as_deref().unwrap_or_default();
        let spec = serde_json::from_str::<serde_json::Value>(spec).unwrap_or_default();
        let context = spec[1]["context"].as_str().unwrap_or_default();
        match serde_json::from_str::<Vec<String>>(context) {
            Ok(names) if names.len() == n => names,
            _ => (0..n).map(|nth| nth.to_string()).collect(),
        }
    }
}

/// Where the rows in Arrow lie, in a chunk that has them.
fn arrow_rows(file: &mut Window<'_>) -> Result<Option<Range<u64>>, DatasetError> {
    let len = file.len();
    if len >= 8 && file.bytes(0, 8)? == FRAMED_MAGIC {
        let why = "the chunk is compressed, so that no image in it can be read alone; write it \
                   again without `compression`";
        return Err(file.broken(0, why));
    }
    if len < 12 || file.bytes(len - 8, 8)? != ARROW_MAGIC {
        return Ok(None);
    }
    let tail = len - 12;
    let rows = u64::from(file.u32(tail)?);
    let Some(start) = tail.checked_sub(rows) else {
        return Err(
            file.broken(tail, "the chunk is shorter than its rows; fetch it again")
        );
    };
    // An IPC file is a stream after eight bytes.
    let is_file = rows >= 8 && file.bytes(start, 6)? == b"ARROW1";
    Ok(Some(if is_file { start + 8..tail } else { start..tail }))
}

/// What an item is.
struct Leaves {
    n: usize,
    choice: Choice,
}

impl Leaves {
    fn of(config: &Config) -> Result<Self, String> {
        let formats = config.data_format.as_deref().unwrap_or_default();
        let n = formats.len();
        if n == 0 || n > MAX_LEAVES {
            return Err(format!("an item has {n} leaves; 1 to {MAX_LEAVES} are read"));
        }
        let names = config.names(n);
        let are_numbered = names[0] == "0";
        let columns = formats.iter().zip(names).map(|(format, name)| {
            let holds = match format.split(':').next().unwrap_or_default() {
                "jpeg" | "image" => Holds::ImageStruct,
                "bytes" | "file" => Holds::Bytes,
                "int" => Holds::Int,
                _ => Holds::Other,
            };
            Column { name, holds }
        });
        let columns: Vec<_> = columns.collect();
        let mut choice = Choice::of(&columns, &Features::default())
            .map_err(|why| format!("{why} (stored as {})", formats.join(", ")))?;
        let mut ints = (0..n).filter(|nth| columns[*nth].holds == Holds::Int);
        if are_numbered && choice.label.is_none() {
            // A tuple has no names: its only number is the class.
            choice.label = ints.next().filter(|_| ints.next().is_none());
        }
        Ok(Self { n, choice })
    }
}

/// Adds the items of a chunk.
fn add(
    storage: &dyn Storage,
    (path, n_stated): (&str, u64),
    leaves: &Leaves,
    rows: &mut Rows<'_>,
) -> Result<(), DatasetError> {
    let mut offsets = Window::open(storage, path, OFFSETS_STEP)?;
    let mut items = Window::open(storage, path, ITEM_STEP)?;
    let n = u64::from(offsets.u32(0)?);
    if n != n_stated {
        let why =
            format!("it has {n} items, and the index says {n_stated}; fetch it again");
        return Err(offsets.broken(0, why));
    }
    let mut taker = rows.file(path, &leaves.choice)?;
    let mut begin = u64::from(offsets.u32(4)?);
    for nth in 1..=n {
        let end = u64::from(offsets.u32(4 + 4 * nth)?);
        let item = Item { begin, end, n_leaves: leaves.n };
        let (offset, len) = item.leaf(&mut items, leaves.choice.image)?;
        let len = items.record_len(offset, len)?;
        let label = match leaves.choice.label {
            Some(label) => item.class(&mut items, label)?,
            None => None,
        };
        taker.row((offset, len), label);
        begin = end;
    }
    Ok(())
}

/// Where an item is in its chunk.
struct Item {
    begin: u64,
    end: u64,
    n_leaves: usize,
}

impl Item {
    /// Where a leaf is, and how long.
    fn leaf(
        &self,
        file: &mut Window<'_>,
        wanted: usize,
    ) -> Result<(u64, u64), DatasetError> {
        let mut at = self.begin + 4 * self.n_leaves as u64;
        for nth in 0..=wanted as u64 {
            let len = match at <= self.end {
                true => u64::from(file.u32(self.begin + 4 * nth)?),
                false => u64::MAX,
            };
            if len > self.end.saturating_sub(at) {
                let why = "an item is longer than the chunk's table says; fetch it again";
                return Err(file.broken(self.begin, why));
            }
            if nth == wanted as u64 {
                return Ok((at, len));
            }
            at += len;
        }
        Err(file.broken(self.begin, "a leaf is missing"))
    }

    fn class(
        &self,
        file: &mut Window<'_>,
        wanted: usize,
    ) -> Result<Option<u32>, DatasetError> {
        let (at, len) = self.leaf(file, wanted)?;
        if len != 8 {
            let why =
                format!("a number has {len} bytes instead of 8; fetch the chunk again");
            return Err(file.broken(at, why));
        }
        let bytes = file.bytes(at, 8)?;
        let number = bytes.iter().rev().fold(0_u64, |sum, &it| sum << 8 | u64::from(it));
        class(number.cast_signed()).map_err(|why| file.broken(at, why))
    }
}

#[cfg(test)]
mod tests;
