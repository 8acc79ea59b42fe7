//! `tf.train.Example`, as far as it is needed: where the image is, and its class.
//!
//! It is a Protocol Buffers message (`tensorflow/core/example/example.proto`, `feature.proto`): a map from
//! names to lists of bytes, floats or whole numbers. Names and classes are read, other values only where they are
//! asked for as fields; else they are skipped by their length.

use std::ops::Range;

use bothends_core::sample::{Extent, FileIdx};

use super::{Window, class};
use crate::error::DatasetError;
use crate::fields::{self, FieldKind, FieldsBuilder, Number};

/// Names of the feature that is the image, the best first.
const IMAGES: [&str; 6] = ["image/encoded", "image", "image_raw", "jpeg", "jpg", "png"];

/// Names of the feature that is the class, the best first.
const LABELS: [&str; 5] = ["image/class/label", "label", "class", "cls", "target"];

/// Longest name of a feature that is looked at.
const MAX_NAME_BYTES: u64 = 256;

/// Longest list of numbers that is read as a field.
const MAX_NUMBERS_BYTES: u64 = 1 << 20;

/// Features that an example may have.
const MAX_FEATURES: usize = 4096;

/// Kinds of fields (the Protocol Buffers encoding, "Message structure").
const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const BYTES: u64 = 2;
const FOUR_BYTES: u64 = 5;

/// What an example holds.
pub(crate) struct Example {
    /// Where the image is, and how long.
    pub(crate) image: (u64, u64),
    pub(crate) label: Option<u32>,
}

/// What is looked for: the image by the name that it has in the first example, so that all examples give the
/// same, and fields.
#[derive(Debug)]
pub(crate) struct Looking {
    image: Option<&'static str>,
    pub(crate) fields: FieldsBuilder,
    n_samples: u64,
}

impl Looking {
    pub(crate) fn new(fields: FieldsBuilder) -> Self {
        Self { image: None, fields, n_samples: 0 }
    }

    /// One that looks for the same and has seen nothing yet.
    pub(crate) fn part(&self) -> Self {
        Self::new(self.fields.part())
    }

    /// Whether `part`, of the examples that follow, is what this one would have found in them.
    pub(crate) fn agrees(&self, part: &Self) -> bool {
        let is_same_image = match (self.image, part.image) {
            (Some(image), Some(other)) => image == other,
            (_, None) | (None, _) => true,
        };
        is_same_image && self.fields.agrees(&part.fields)
    }

    /// Adds a part that agrees, whose files have these numbers now.
    pub(crate) fn append(&mut self, part: Self, files: &[FileIdx]) {
        self.image = self.image.or(part.image);
        self.fields.append(part.fields, files);
        self.n_samples += part.n_samples;
    }
}

/// A feature's value.
enum Value {
    Bytes(Range<u64>),
    Int(i64),
    /// A list that is empty, longer than one, or of a different kind.
    Other,
}

/// Looks into the example that fills `range`.
///
/// # Errors
/// [`DatasetError::Shard`] where it is damaged, or has no image.
pub(crate) fn look(
    shard: &mut Window<'_>,
    (range, file): (Range<u64>, FileIdx),
    looking: &mut Looking,
) -> Result<Example, DatasetError> {
    let at = range.start;
    let mut seen = Seen::default();
    let mut example = Message(range);
    while let Some(features) = example.field(shard, 1)? {
        let mut features = Message(features);
        while let Some(entry) = features.field(shard, 1)? {
            let (name, value, list) = feature(shard, entry)?;
            if looking.fields.looks() {
                let put = put(shard, (&name, &list), file, &mut looking.fields)?;
                put.map_err(|why| shard.broken(at, why))?;
            }
            if seen.names.len() == MAX_FEATURES {
                let why = format!("an example has more than {MAX_FEATURES} features");
                return Err(shard.broken(at, why));
            }
            seen.take(name, value);
        }
    }
    let image = seen.image(looking).map_err(|why| shard.broken(at, why))?;
    let label = seen.labels.into_iter().flatten().next();
    let label = label
        .map_or(Ok(None), |number| class(number).map_err(|why| shard.broken(at, why)));
    looking.n_samples += 1;
    if looking.fields.looks() {
        let n_samples = looking.n_samples;
        looking.fields.check_rows(n_samples).map_err(|why| shard.broken(at, why))?;
    }
    Ok(Example { image: (image.start, image.end - image.start), label: label? })
}

/// What the features of an example are, as far as they have a name that is known.
#[derive(Default)]
struct Seen {
    names: Vec<String>,
    images: [Option<Range<u64>>; IMAGES.len()],
    labels: [Option<i64>; LABELS.len()],
}

impl Seen {
    fn take(&mut self, name: String, value: Value) {
        let nth = |known: &[&str]| known.iter().position(|known| *known == name);
        match value {
            Value::Bytes(range) => {
                if let Some(nth) = nth(&IMAGES) {
                    self.images[nth] = Some(range);
                }
            }
            Value::Int(class) => {
                if let Some(nth) = nth(&LABELS) {
                    self.labels[nth] = Some(class);
                }
            }
            Value::Other => {}
        }
        self.names.push(name);
    }

    /// The feature that is the image: the best one of the first example, the same of all others.
    fn image(&mut self, wanted: &mut Looking) -> Result<Range<u64>, String> {
        let chosen = match wanted.image {
            Some(known) => IMAGES.iter().position(|name| *name == known),
            None => self.images.iter().position(Option::is_some),
        };
        let image = chosen.and_then(|nth| Some((IMAGES[nth], self.images[nth].take()?)));
        let Some((name, image)) = image else {
            self.names.sort_unstable();
            return Err(format!(
                "no feature with one value of bytes is called {}; there are: {}",
                wanted.image.map_or_else(|| IMAGES.join(", "), str::to_owned),
                self.names.join(", ")
            ));
        };
        wanted.image = Some(name);
        Ok(image)
    }
}

/// A feature's list, by its kind.
enum List {
    Bytes(Range<u64>),
    Floats(Range<u64>),
    Ints(Range<u64>),
    None,
}

/// The name, the value and the list of an entry of the map of features.
fn feature(
    shard: &mut Window<'_>,
    entry: Range<u64>,
) -> Result<(String, Value, List), DatasetError> {
    let Some(name) = Message(entry.clone()).field(shard, 1)? else {
        return Ok((String::new(), Value::Other, List::None));
    };
    let len = name.end - name.start;
    if len > MAX_NAME_BYTES {
        let why =
            format!("the name of a feature has {len} bytes, more than {MAX_NAME_BYTES}");
        return Err(shard.broken(name.start, why));
    }
    let bytes = shard.bytes(name.start, usize::try_from(len).unwrap_or(usize::MAX))?;
    let name = String::from_utf8_lossy(bytes).into_owned();
    let Some(feature) = Message(entry).field(shard, 2)? else {
        return Ok((name, Value::Other, List::None));
    };
    if let Some(list) = Message(feature.clone()).field(shard, 1)? {
        let range = list.clone();
        let mut list = Message(list);
        let first = list.field(shard, 1)?;
        let is_only = list.field(shard, 1)?.is_none();
        let value = first.filter(|_| is_only).map_or(Value::Other, Value::Bytes);
        return Ok((name, value, List::Bytes(range)));
    }
    if let Some(list) = Message(feature.clone()).field(shard, 2)? {
        return Ok((name, Value::Other, List::Floats(list)));
    }
    match Message(feature).field(shard, 3)? {
        Some(list) => Ok((name, only_int(shard, list.clone())?, List::Ints(list))),
        None => Ok((name, Value::Other, List::None)),
    }
}

/// Puts a feature to the fields, if it was asked for; else why it cannot be taken.
fn put(
    shard: &mut Window<'_>,
    (name, list): (&str, &List),
    file: FileIdx,
    fields: &mut FieldsBuilder,
) -> Result<Result<(), String>, DatasetError> {
    let kind = match list {
        List::Bytes(_) => fields::BYTES,
        List::Floats(_) => (FieldKind::Numbers(Number::F32), None),
        List::Ints(_) => (FieldKind::Numbers(Number::I64), None),
        List::None => return Ok(Ok(())),
    };
    let kept = match fields.field(name, kind) {
        Ok(Some(kept)) => kept,
        Ok(None) => return Ok(Ok(())),
        Err(why) => return Ok(Err(why)),
    };
    let value = match list {
        List::Bytes(range) => {
            let mut list = Message(range.clone());
            let (first, second) = (list.field(shard, 1)?, list.field(shard, 1)?);
            let (Some(value), None) = (first, second) else {
                return Ok(Err(format!(
                    "the feature `{name}` must have exactly one value of type bytes; leave it out"
                )));
            };
            let len = shard.record_len(value.start, value.end - value.start)?;
            fields.extent(kept, Extent { file, offset: value.start, len });
            return Ok(Ok(()));
        }
        List::Floats(range) => numbers(shard, range.clone(), FOUR_BYTES)?,
        List::Ints(range) => numbers(shard, range.clone(), VARINT)?,
        List::None => return Ok(Ok(())),
    };
    Ok(fields.value(kept, &value))
}

/// The numbers of a list, packed or not, in eight bytes each, or four where `kind` says so.
fn numbers(
    shard: &mut Window<'_>,
    list: Range<u64>,
    kind: u64,
) -> Result<Vec<u8>, DatasetError> {
    if list.end - list.start > MAX_NUMBERS_BYTES {
        let why = format!(
            "a list of numbers has more than {MAX_NUMBERS_BYTES} bytes; store it as bytes, or leave it out"
        );
        return Err(shard.broken(list.start, why));
    }
    let mut values = Vec::new();
    let Range { start: mut at, end } = list;
    while at < end {
        let (key, from) = varint(shard, at, end)?;
        let run = match (key >> 3, key & 7) {
            (1, BYTES) => {
                let (len, from) = varint(shard, from, end)?;
                let to = from.checked_add(len).filter(|to| *to <= end);
                from..to.ok_or_else(|| shard.broken(at, DAMAGED))?
            }
            (1, own) if own == kind && kind == FOUR_BYTES => from..from.saturating_add(4),
            (1, own) if own == kind => from..varint(shard, from, end)?.1,
            _ => return Err(shard.broken(at, DAMAGED)),
        };
        if run.end > end {
            return Err(shard.broken(at, DAMAGED));
        }
        at = run.end;
        if kind == FOUR_BYTES {
            let len = usize::try_from(run.end - run.start).unwrap_or(usize::MAX);
            if len % 4 != 0 {
                return Err(shard.broken(run.start, DAMAGED));
            }
            values.extend_from_slice(shard.bytes(run.start, len)?);
        } else {
            let mut next = run.start;
            while next < run.end {
                let (number, after) = varint(shard, next, run.end)?;
                values.extend(number.to_le_bytes());
                next = after;
            }
        }
    }
    Ok(values)
}

/// The number in a list of one, packed or not.
fn only_int(shard: &mut Window<'_>, list: Range<u64>) -> Result<Value, DatasetError> {
    let Range { start, end } = list;
    if start == end {
        return Ok(Value::Other);
    }
    let (key, at) = varint(shard, start, end)?;
    let (number, at) = match (key >> 3, key & 7) {
        (1, VARINT) => varint(shard, at, end)?,
        (1, BYTES) => {
            let (len, at) = varint(shard, at, end)?;
            // More than one number is longer than the longest one.
            if at.checked_add(len) != Some(end) || len == 0 || len > 10 {
                return Ok(Value::Other);
            }
            varint(shard, at, end)?
        }
        _ => return Ok(Value::Other),
    };
    Ok(if at == end { Value::Int(number.cast_signed()) } else { Value::Other })
}

/// The bytes of a message that are still to be looked at.
struct Message(Range<u64>);

impl Message {
    /// The bytes of the next field with this number that has bytes; others are skipped.
    fn field(
        &mut self,
        shard: &mut Window<'_>,
        number: u64,
    ) -> Result<Option<Range<u64>>, DatasetError> {
        let Range { start: at, end } = &mut self.0;
        while *at < *end {
            let begin = *at;
            let (key, value) = varint(shard, begin, *end)?;
            let (value, len) = match key & 7 {
                VARINT => (varint(shard, value, *end)?.1, 0),
                EIGHT_BYTES => (value, 8),
                FOUR_BYTES => (value, 4),
                BYTES => {
                    let (len, value) = varint(shard, value, *end)?;
                    (value, len)
                }
                _ => return Err(shard.broken(begin, DAMAGED)),
            };
            let next = value.checked_add(len).filter(|next| *next <= *end);
            *at = next.ok_or_else(|| shard.broken(begin, DAMAGED))?;
            if key >> 3 == number && key & 7 == BYTES {
                return Ok(Some(value..*at));
            }
        }
        Ok(None)
    }
}

const DAMAGED: &str = "not a tf.train.Example, or a damaged one; fetch the file again";

/// A number in base 128, the low bits first, and where it ends.
fn varint(shard: &mut Window<'_>, at: u64, end: u64) -> Result<(u64, u64), DatasetError> {
    let n = end.saturating_sub(at).min(10);
    let bytes = shard.bytes(at, usize::try_from(n).unwrap_or(10))?;
    let mut value = 0_u64;
    for (nth, &byte) in (0..).zip(bytes) {
        value |= u64::from(byte & 0x7f) << (7 * nth).min(63);
        if byte < 0x80 {
            return Ok((value, at + nth + 1));
        }
    }
    Err(shard.broken(at, DAMAGED))
}
