//! Arrow IPC: streams, as the `datasets` library stores data (its cache, `save_to_disk`), and files.
//!
//! A stream is messages, each after its length: a schema, then record batches, then a mark of its end. A
//! batch is metadata in FlatBuffers, which say where its buffers lie, and a body of buffers; a column of
//! bytes is a buffer of offsets and one of data (Arrow columnar format, "Serialization and Interprocess
//! Communication"). An IPC file is a stream between two magic numbers with a list of its batches. It is read
//! as the stream that it holds. `flat.rs` reads FlatBuffers, `layout.rs` the schema, `batch.rs` a batch.

mod batch;
mod flat;
mod layout;

use std::ops::Range;

use serde::Deserialize;

use super::super::{Window, find, is_shard_in, one_split};
use super::choice::Choice;
use super::rows::{File, Rows, listed};
use crate::error::DatasetError;
use crate::fields::FieldsBuilder;
use crate::formats::{Format, Found};
use crate::path;
use crate::storage::{Entry, Kind, Storage, read};
use flat::Table;
use layout::Layout;

/// What an IPC file begins and ends with.
const MAGIC: &[u8] = b"ARROW1";

/// What precedes the length of each message.
const CONTINUATION: u32 = u32::MAX;

/// Kinds of messages (`Message.fbs`).
const SCHEMA: u8 = 1;
const RECORD_BATCH: u8 = 3;

/// Longest metadata of a message: those of a schema with some hundred thousand names of classes.
const MAX_METADATA_BYTES: u64 = 1 << 26;

/// Bytes that one read brings: the metadata of a batch.
const STEP: usize = 1 << 12;

/// The file in which `save_to_disk` lists the files of a data set.
const STATE: &str = "state.json";

/// The file in which `save_to_disk` lists the splits, each in a folder.
const SPLITS: &str = "dataset_dict.json";

/// Longest list of files that is read.
const MAX_STATE_BYTES: u64 = 1 << 26;

/// Whether a file's name is that of Arrow data. What `map` and `filter` leave in a cache is not.
pub(crate) fn is_shard(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(".arrow") && !name.starts_with("cache-")
}

/// Whether an entry says that its folder holds the splits of a data set.
pub(crate) fn is_splits(entry: &Entry) -> bool {
    is_shard_in(entry, |name| name == SPLITS)
}

/// Reads the files at `target`: in the order that `save_to_disk` states, else in that of their names.
pub(crate) fn parse(
    storage: &dyn Storage,
    target: &str,
    fields: FieldsBuilder,
) -> Result<Found, DatasetError> {
    let (shards, n_others) = find(storage, target, is_shard)?;
    if shards.is_empty() && storage.kind(&path::join(target, SPLITS)).is_ok() {
        return Err(DatasetError::Shard {
            path: storage.shown(&path::join(target, SPLITS)),
            offset: 0,
            why: "the data set has several splits; give the folder of one of them".into(),
        });
    }
    one_split(storage, target, &shards)?;
    let shards = stated(storage, target)?.unwrap_or(shards);
    let mut rows = Rows::new(storage, fields);
    for path in &shards {
        let mut file = Window::open(storage, path, STEP)?;
        let range = extent(&mut file)?;
        stream(storage, (&mut file, path), range, &mut rows)?;
    }
    rows.found(Format::Arrow, target, n_others)
}

#[derive(Deserialize)]
struct State {
    #[serde(rename = "_data_files")]
    files: Vec<DataFile>,
}

#[derive(Deserialize)]
struct DataFile {
    filename: String,
}

/// The files that `state.json` in the folder lists, where there is one.
fn stated(
    storage: &dyn Storage,
    folder: &str,
) -> Result<Option<Vec<String>>, DatasetError> {
    let at = path::join(folder, STATE);
    let Ok(Kind::File { len }) = storage.kind(&at) else { return Ok(None) };
    let refused =
        |why: String| DatasetError::Shard { path: storage.shown(&at), offset: 0, why };
    let len = usize::try_from(len).ok().filter(|len| *len as u64 <= MAX_STATE_BYTES);
    let len =
        len.ok_or_else(|| refused(format!("it has more than {MAX_STATE_BYTES} bytes")))?;
    let mut text = vec![0; len];
    read(storage, &at, 0, &mut text)?;
    let state: State = serde_json::from_slice(&text).map_err(|error| {
        refused(format!("not the list of a data set's files: {error}"))
    })?;
    let names = state.files.iter().map(|file| file.filename.as_str());
    listed(folder, names).map(Some).map_err(refused)
}

/// Where the stream of a file lies: an IPC file has it after its magic number.
fn extent(file: &mut Window<'_>) -> Result<Range<u64>, DatasetError> {
    let len = file.len();
    let magic = MAGIC.len();
    if len < 8 || file.bytes(0, magic)? != MAGIC {
        return Ok(0..len);
    }
    if file.bytes(len - magic as u64, magic)? != MAGIC {
        let why = "the file does not end as an Arrow IPC file does: it is cut off; fetch it again";
        return Err(file.broken(len, why));
    }
    Ok(8..len)
}

/// Adds the rows of the stream that fills, or begins, `range` of a file.
pub(super) fn stream(
    storage: &dyn Storage,
    (file, path): (&mut Window<'_>, &str),
    range: Range<u64>,
    rows: &mut Rows<'_>,
) -> Result<(), DatasetError> {
    let Range { start, end } = range;
    let Some(first) = Message::read(file, start, end)?.filter(|it| it.kind == SCHEMA)
    else {
        return Err(file.broken(start, "an Arrow stream must begin with a schema"));
    };
    let layout = Table::root(&first.metadata)
        .map_err(String::from)
        .and_then(|message| Layout::of(&message.table(2)?.ok_or(flat::DAMAGED)?));
    let layout = layout.map_err(|why| file.broken(start, why))?;
    let choice = Choice::of(&layout.columns, &layout.features)
        .map_err(|why| file.broken(start, why))?;
    let mut taker: File<'_> = rows.file(path, &choice)?;
    let columns = batch::Columns::of(&layout, &choice, &mut taker)
        .map_err(|why| file.broken(start, why))?;
    let mut at = first.end;
    while let Some(message) = Message::read(file, at, end)? {
        if message.kind == RECORD_BATCH {
            batch::add(storage, path, &message, (&columns, &mut taker))
                .map_err(|refusal| refusal.at(file, at))?;
        }
        at = message.end;
    }
    Ok(())
}

/// A message: its metadata, and where its body lies.
struct Message {
    kind: u8,
    metadata: Vec<u8>,
    body: Range<u64>,
    /// Where the next message begins.
    end: u64,
}

impl Message {
    /// The message at `at`; `None` at the mark of the stream's end.
    fn read(
        file: &mut Window<'_>,
        at: u64,
        end: u64,
    ) -> Result<Option<Self>, DatasetError> {
        const CUT_OFF: &str =
            "the stream ends without its end mark: the file is cut off; fetch it again";
        if at.checked_add(8).is_none_or(|head| head > end) {
            return Err(file.broken(at, CUT_OFF));
        }
        if file.u32(at)? != CONTINUATION {
            let why = "not a message of an Arrow stream, or one of a version before 0.15; write \
                       the file again with a later version";
            return Err(file.broken(at, why));
        }
        let len = u64::from(file.u32(at + 4)?);
        if len == 0 {
            return Ok(None);
        }
        let start = at + 8;
        if len > MAX_METADATA_BYTES {
            let why = format!(
                "the metadata of a message have {len} bytes, more than {MAX_METADATA_BYTES}"
            );
            return Err(file.broken(at, why));
        }
        let body = start + len;
        if body > end {
            return Err(file.broken(at, CUT_OFF));
        }
        let metadata =
            file.bytes(start, usize::try_from(len).unwrap_or(usize::MAX))?.to_vec();
        let root = Table::root(&metadata);
        let head = root.and_then(|root| Ok((root.u8(1)?, root.count(3)?)));
        let (kind, body_len) = head.map_err(|why| file.broken(at, why))?;
        let next = body.checked_add(body_len).filter(|next| *next <= end);
        let next = next.ok_or_else(|| file.broken(at, CUT_OFF))?;
        Ok(Some(Self { kind, metadata, body: body..next, end: next }))
    }
}

#[cfg(test)]
mod tests;
