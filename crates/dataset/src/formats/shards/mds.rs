//! Shards of MosaicML Streaming (MDS, version 2): a folder with `index.json` and the shards that it names.
//!
//! A shard is a number of samples, a table of their offsets, its description as JSON, and the samples. A
//! sample is the sizes of its columns that vary, then the columns, in the order that the description
//! gives. Numbers are little-endian (`streaming/base/format/mds`, streaming 0.13). The image is the column
//! with the encoding `jpeg` or `png` (or `bytes`, where its name says so); the class is a column of whole
//! numbers called `label`, `class`, `cls` or `target`. Every column is a field that can be asked for. Compressed
//! shards have to be decompressed first.

use std::collections::HashSet;

use bothends_core::sample::{Encoding, Extent};
use serde::Deserialize;

use super::compressed::{Step, Treatment, by_name};
use super::{Labels, Window, class, found, is_shard_in, signed, with_fields};
use crate::error::DatasetError;
use crate::fields::{
    BYTES, FieldKind, FieldsBuilder, Kept, Number as Type, TEXT, scalar,
};
use crate::formats::{Format, Found};
use crate::path;
use crate::storage::{Entry, Kind, Storage, kind, list, read};
use crate::table::TableBuilder;

/// The file that names the shards.
const INDEX: &str = "index.json";

/// Longest index that is read: about a million shards.
const MAX_INDEX_BYTES: u64 = 1 << 29;

/// Bytes of offsets that one read brings.
const OFFSETS_STEP: usize = 1 << 16;

/// Bytes of a sample that one read brings: the sizes of columns and a class.
const SAMPLE_STEP: usize = 128;

/// Columns that a sample may have: their sizes are read for each.
const MAX_COLUMNS: usize = 1024;

/// Numbers of at most so many bytes are kept in memory: an extent takes as much.
const MOST_INLINE: u32 = 16;

const LABELS: [&str; 4] = ["label", "class", "cls", "target"];
const IMAGES: [&str; 4] = ["image", "jpg", "jpeg", "png"];

/// Whether a file's name is that of a shard, compressed or not.
pub(crate) fn is_shard(name: &str) -> bool {
    name.ends_with(".mds") || name.contains(".mds.")
}

/// Folders that are looked into for shards: one of them may have been written without any.
const MOST_LOOKED_INTO: usize = 4;

/// Whether a folder that holds these has a merged index, with the shards in folders next to it (`merge_index` of
/// Streaming, and what Spark writes).
pub(crate) fn is_merged(
    storage: &dyn Storage,
    folder: &str,
    entries: &[Entry],
) -> Result<bool, DatasetError> {
    if !entries.iter().any(|entry| is_shard_in(entry, |name| name == INDEX)) {
        return Ok(false);
    }
    let is_part = |entry: &&Entry| {
        matches!(entry.kind, Kind::Folder) && !entry.name.starts_with(['.', '_'])
    };
    for part in entries.iter().filter(is_part).take(MOST_LOOKED_INTO) {
        let inside = list(storage, &path::join(folder, &part.name))?;
        if inside.iter().any(|entry| is_shard_in(entry, is_shard)) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[derive(Deserialize)]
struct Index {
    version: u32,
    shards: Vec<Shard>,
}

#[derive(Deserialize)]
struct Shard {
    format: String,
    column_names: Vec<String>,
    column_encodings: Vec<String>,
    column_sizes: Vec<Option<u32>>,
    raw_data: Named,
    zip_data: Option<Named>,
    samples: u32,
}

#[derive(Deserialize)]
struct Named {
    basename: String,
}

/// Reads the shards that the index in `folder` names, in its order.
pub(crate) fn parse(
    storage: &dyn Storage,
    folder: &str,
    mut fields: FieldsBuilder,
) -> Result<Found, DatasetError> {
    let at = path::join(folder, INDEX);
    let refused =
        |why: String| DatasetError::Shard { path: storage.shown(&at), offset: 0, why };
    let index = index(storage, folder)?;
    let mut builder = TableBuilder::new(Encoding::Image);
    let mut labels = Labels::default();
    let (mut names, mut n_samples) = (HashSet::new(), 0);
    for shard in &index.shards {
        let name = &shard.raw_data.basename;
        // Else a small index would be a data set of any size.
        if !names.insert(name) {
            let why = format!("a shard is named twice: {name:?}; fetch the index again");
            return Err(refused(why));
        }
        path::check(name).map_err(|why| refused(format!("the shard {name:?} {why}")))?;
        let columns = Columns::of(shard, &mut fields)
            .map_err(|why| refused(format!("the shard `{name}`: {why}")))?;
        let path = path::join(folder, name);
        if shard.zip_data.is_some() && storage.kind(&path).is_err() {
            return Err(DatasetError::CompressedShard { path: storage.shown(&path) });
        }
        let taker =
            Taker { builder: &mut builder, labels: &mut labels, fields: &mut fields };
        add(storage, &path, &columns, taker)?;
        n_samples += u64::from(columns.n_samples);
        fields.check_rows(n_samples).map_err(|why| {
            let path = storage.shown(&path);
            DatasetError::Shard { path, offset: 0, why }
        })?;
    }
    if labels == Labels::default() {
        return Err(DatasetError::Empty { path: storage.shown(folder) });
    }
    let found = found(Format::Mds, builder, 0, labels)?;
    with_fields(found, (storage, folder), fields)
}

/// The index in `folder`.
fn index(storage: &dyn Storage, folder: &str) -> Result<Index, DatasetError> {
    let at = path::join(folder, INDEX);
    let refused =
        |why: String| DatasetError::Shard { path: storage.shown(&at), offset: 0, why };
    let Kind::File { len } = kind(storage, &at)? else {
        return Err(DatasetError::Unrecognised { path: storage.shown(folder) });
    };
    let len = usize::try_from(len).ok().filter(|len| *len as u64 <= MAX_INDEX_BYTES);
    let len =
        len.ok_or_else(|| refused(format!("it has more than {MAX_INDEX_BYTES} bytes")))?;
    let mut text = vec![0; len];
    read(storage, &at, 0, &mut text)?;
    let index: Index = serde_json::from_slice(&text)
        .map_err(|error| refused(format!("not the index of MDS shards: {error}")))?;
    if index.version != 2 {
        let why = format!(
            "version {} is not supported; write the data again with streaming 0.4 or later",
            index.version
        );
        return Err(refused(why));
    }
    Ok(index)
}

/// What makes the shards readable that the index in `folder` names: those without an uncompressed file are
/// decompressed.
pub(crate) fn decompressed(
    storage: &dyn Storage,
    folder: &str,
) -> Result<Vec<Step>, DatasetError> {
    let at = path::join(folder, INDEX);
    let mut steps =
        vec![Step { from: at.clone(), to: INDEX.into(), treatment: Treatment::Copied }];
    for shard in index(storage, folder)?.shards {
        let to = shard.raw_data.basename;
        let raw = path::join(folder, &to);
        let zip = shard.zip_data.filter(|_| storage.kind(&raw).is_err());
        let (name, is_zip) = zip.map_or((to.clone(), false), |zip| (zip.basename, true));
        for name in [&name, &to] {
            path::check(name).map_err(|why| DatasetError::Shard {
                path: storage.shown(&at),
                offset: 0,
                why: format!("the shard {name:?} {why}"),
            })?;
        }
        let from = path::join(folder, &name);
        let treatment = match is_zip {
            true => by_name(storage, &from)?,
            false => Treatment::Copied,
        };
        steps.push(Step { from, to, treatment });
    }
    Ok(steps)
}

/// Whether the first shard has to be decompressed.
pub(crate) fn is_first_compressed(
    storage: &dyn Storage,
    folder: &str,
) -> Result<bool, DatasetError> {
    let index = index(storage, folder)?;
    let first = index.shards.first().filter(|first| first.zip_data.is_some());
    Ok(first.is_some_and(|first| {
        let raw = path::join(folder, &first.raw_data.basename);
        storage.kind(&raw).is_err()
    }))
}

/// Which column is which.
struct Columns {
    n_samples: u32,
    /// `None` for one whose size varies.
    sizes: Vec<Option<u32>>,
    image: usize,
    label: Option<(usize, Number)>,
    fields: Vec<(usize, Kept)>,
}

/// What a shard's samples are put into.
struct Taker<'a> {
    builder: &'a mut TableBuilder,
    labels: &'a mut Labels,
    fields: &'a mut FieldsBuilder,
}

/// How a class is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    /// Little-endian, with a sign or without.
    Binary { is_signed: bool },
    /// Decimal text.
    Text,
}

impl Columns {
    fn of(shard: &Shard, fields: &mut FieldsBuilder) -> Result<Self, String> {
        if shard.format != "mds" {
            return Err(format!(
                "its format is {:?}, not mds; write the data again as mds",
                shard.format
            ));
        }
        let n = shard.column_names.len();
        if n == 0
            || n > MAX_COLUMNS
            || shard.column_encodings.len() != n
            || shard.column_sizes.len() != n
        {
            return Err(
                "its columns differ in the numbers of names, encodings and sizes".into(),
            );
        }
        let columns = || shard.column_names.iter().zip(&shard.column_encodings);
        let is_image = |(name, encoding): (&String, &String)| match encoding.as_str() {
            "jpeg" | "png" => true,
            "bytes" => IMAGES.contains(&name.to_ascii_lowercase().as_str()),
            _ => false,
        };
        let images: Vec<_> =
            (0..).zip(columns()).filter(|(_, it)| is_image(*it)).collect();
        let named = images.iter().filter_map(|&(nth, (name, _))| {
            let name = name.to_ascii_lowercase();
            Some((IMAGES.iter().position(|known| *known == name)?, nth))
        });
        let only = if let &[(image, _)] = &images[..] { Some(image) } else { None };
        let Some(image) = only.or_else(|| named.min().map(|(_, nth)| nth)) else {
            let found = columns().map(|(name, encoding)| format!("{name} ({encoding})"));
            let found: Vec<_> = found.collect();
            return Err(format!(
                "one column must be an image with the encoding jpeg or png, and there are {}, none of them \
                 called {}: {}",
                images.len(),
                IMAGES.join(", "),
                found.join(", ")
            ));
        };
        let label = columns().position(|(name, encoding)| {
            LABELS.contains(&name.to_ascii_lowercase().as_str())
                && number(encoding).is_some()
        });
        let label =
            label.and_then(|nth| Some((nth, number(&shard.column_encodings[nth])?)));
        let sizes = shard.column_sizes.clone();
        let fields = asked(shard, fields)?;
        Ok(Self { n_samples: shard.samples, sizes, image, label, fields })
    }
}

/// The columns that are asked for as fields.
fn asked(
    shard: &Shard,
    fields: &mut FieldsBuilder,
) -> Result<Vec<(usize, Kept)>, String> {
    let mut asked = Vec::new();
    let columns = shard.column_names.iter().zip(&shard.column_encodings).enumerate();
    for (nth, (name, encoding)) in columns {
        let shape;
        let kind = match encoding.as_str() {
            "int" => scalar(Type::I64),
            "str" | "str_int" | "str_float" | "str_decimal" | "json" => TEXT,
            encoding => match (Type::named(encoding), array(encoding)) {
                (Some(number), _) => scalar(number),
                (None, Some((number, of))) => {
                    shape = of;
                    (FieldKind::Numbers(number), Some(&shape[..]))
                }
                (None, None) => BYTES,
            },
        };
        if let Some(kept) = fields.field(name, kind)? {
            check_size(kind, shard.column_sizes[nth])
                .map_err(|why| format!("the column `{name}` ({encoding}) {why}"))?;
            asked.push((nth, kept));
        }
    }
    Ok(asked)
}

/// The type and the shape of an array whose description has both: `ndarray:float32:4,2`. Others have a header
/// of their own in every sample.
fn array(encoding: &str) -> Option<(Type, Vec<u32>)> {
    let mut parts = encoding.strip_prefix("ndarray:")?.split(':');
    let number = Type::named(parts.next()?)?;
    let shape = parts.next()?.split(',').map(|side| side.trim().parse().ok());
    Some((number, shape.collect::<Option<_>>()?))
}

/// That numbers have as many bytes as their type and shape say.
fn check_size(
    (kind, shape): (FieldKind, Option<&[u32]>),
    size: Option<u32>,
) -> Result<(), String> {
    let FieldKind::Numbers(number) = kind else { return Ok(()) };
    let mut sides = shape.unwrap_or_default().iter();
    let bytes = sides.try_fold(number.size() as u64, |product, side| {
        product.checked_mul(u64::from(*side))
    });
    match size.is_some() && bytes == size.map(u64::from) {
        true => Ok(()),
        false => {
            Err("has a size that does not match its type; fetch the index again"
                .to_owned())
        }
    }
}

fn number(encoding: &str) -> Option<Number> {
    match encoding {
        "int" | "int8" | "int16" | "int32" | "int64" => {
            Some(Number::Binary { is_signed: true })
        }
        "uint8" | "uint16" | "uint32" | "uint64" => {
            Some(Number::Binary { is_signed: false })
        }
        "str_int" => Some(Number::Text),
        _ => None,
    }
}

/// Adds the samples of a shard.
fn add(
    storage: &dyn Storage,
    path: &str,
    columns: &Columns,
    Taker { builder, labels, fields }: Taker<'_>,
) -> Result<(), DatasetError> {
    let mut offsets = Window::open(storage, path, OFFSETS_STEP)?;
    let mut samples = Window::open(storage, path, SAMPLE_STEP)?;
    let n = offsets.u32(0)?;
    if n != columns.n_samples {
        let why = format!(
            "it has {n} samples, and the index says {}; fetch it again",
            columns.n_samples
        );
        return Err(offsets.broken(0, why));
    }
    let file = builder.file(path)?;
    let mut begin = u64::from(offsets.u32(4)?);
    for nth in 1..=u64::from(n) {
        let end = u64::from(offsets.u32(4 + 4 * nth)?);
        let sample = Sample { begin, end };
        let (offset, len) = sample.column(&mut samples, columns, columns.image)?;
        let len = samples.record_len(offset, len)?;
        let label = match columns.label {
            Some((column, kind)) => {
                sample.class(&mut samples, columns, (column, kind))?
            }
            None => None,
        };
        builder.sample(Extent { file, offset, len }, labels.take(label));
        for &(nth, kept) in &columns.fields {
            let (offset, len) = sample.column(&mut samples, columns, nth)?;
            let len = samples.record_len(offset, len)?;
            if matches!(kept.kind, FieldKind::Numbers(_)) && len <= MOST_INLINE {
                let value = samples.bytes(offset, len as usize)?.to_vec();
                let put = fields.value(kept, &value);
                put.map_err(|why| samples.broken(offset, why))?;
            } else {
                fields.extent(kept, Extent { file, offset, len });
            }
        }
        begin = end;
    }
    Ok(())
}

/// Where a sample is in its shard.
struct Sample {
    begin: u64,
    end: u64,
}

impl Sample {
    /// Where a column is, and how long.
    fn column(
        &self,
        shard: &mut Window<'_>,
        columns: &Columns,
        wanted: usize,
    ) -> Result<(u64, u64), DatasetError> {
        let n_varying = columns.sizes.iter().filter(|size| size.is_none()).count() as u64;
        let mut size_at = self.begin;
        let mut at = self.begin + 4 * n_varying;
        for (nth, size) in columns.sizes.iter().enumerate() {
            let size = match size {
                Some(size) => *size,
                None => {
                    size_at += 4;
                    shard.u32(size_at - 4)?
                }
            };
            let end = at + u64::from(size);
            if end > self.end {
                return Err(shard.broken(
                    self.begin,
                    "a sample is longer than the shard's table says; fetch it again",
                ));
            }
            if nth == wanted {
                return Ok((at, u64::from(size)));
            }
            at = end;
        }
        Err(shard.broken(self.begin, "a column is missing"))
    }

    /// The class, if the sample has one.
    fn class(
        &self,
        shard: &mut Window<'_>,
        columns: &Columns,
        (column, kind): (usize, Number),
    ) -> Result<Option<u32>, DatasetError> {
        let (at, len) = self.column(shard, columns, column)?;
        // The longest number from 0 to 2^64 in decimal.
        let bytes = shard.bytes(at, usize::try_from(len.min(20)).unwrap_or(20))?;
        let number = match kind {
            Number::Text => {
                std::str::from_utf8(bytes).ok().and_then(|text| text.trim().parse().ok())
            }
            Number::Binary { .. } if bytes.len() > 8 => None,
            Number::Binary { is_signed: true } => Some(signed(bytes)),
            Number::Binary { is_signed: false } => {
                let value = bytes
                    .iter()
                    .rev()
                    .fold(0_u64, |sum, &byte| (sum << 8) | u64::from(byte));
                i64::try_from(value).ok()
            }
        };
        let class = number.and_then(|number| class(number).ok());
        class.ok_or_else(|| {
            shard.broken(at, "a class is not a number from 0 to 4294967295")
        })
    }
}

#[cfg(test)]
mod tests;
