//! `tf.train.Example`, as far as it is needed: where the image is, and its class.
//!
//! It is a Protocol Buffers message (`tensorflow/core/example/example.proto`, `feature.proto`): a map from
//! names to lists of bytes, floats or whole numbers. Names and classes are read, and other values are
//! skipped by their length.

use std::ops::Range;

use super::Window;
use crate::error::DatasetError;

/// Names of the feature that is the image, the best first.
const IMAGES: [&str; 6] = ["image/encoded", "image", "image_raw", "jpeg", "jpg", "png"];

/// Names of the feature that is the class, the best first.
const LABELS: [&str; 5] = ["image/class/label", "label", "class", "cls", "target"];

/// Longest name of a feature that is looked at.
const MAX_NAME_BYTES: u64 = 256;

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

/// Which features are taken: those of the first example, so that all examples give the same.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    image: Option<&'static str>,
}

/// A feature's value.
enum Value {
    Bytes(Range<u64>),
    Int(i64),
    /// A list that is empty, longer than one, or of another kind.
    Other,
}

/// Looks into the example that fills `range`.
///
/// # Errors
/// [`DatasetError::Shard`] where it is damaged, or has no image.
pub(crate) fn look(
    shard: &mut Window<'_>,
    range: Range<u64>,
    wanted: &mut Wanted,
) -> Result<Example, DatasetError> {
    let at = range.start;
    let mut seen = Seen::default();
    let mut example = Message(range);
    while let Some(features) = example.field(shard, 1)? {
        let mut features = Message(features);
        while let Some(entry) = features.field(shard, 1)? {
            let (name, value) = feature(shard, entry)?;
            if seen.names.len() == MAX_FEATURES {
                let why = format!("an example has more than {MAX_FEATURES} features");
                return Err(shard.broken(at, why));
            }
            seen.take(name, value);
        }
    }
    let image = seen.image(wanted).map_err(|why| shard.broken(at, why))?;
    let label = seen.labels.into_iter().flatten().next();
    let label = label.map(|class| {
        u32::try_from(class).map_err(|_| {
            let why = format!("the class {class} is not a number from 0 to 4294967295");
            shard.broken(at, why)
        })
    });
    Ok(Example {
        image: (image.start, image.end - image.start),
        label: label.transpose()?,
    })
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
    fn image(&mut self, wanted: &mut Wanted) -> Result<Range<u64>, String> {
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

/// The name and the value of an entry of the map of features.
fn feature(
    shard: &mut Window<'_>,
    entry: Range<u64>,
) -> Result<(String, Value), DatasetError> {
    let Some(name) = Message(entry.clone()).field(shard, 1)? else {
        return Ok((String::new(), Value::Other));
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
        return Ok((name, Value::Other));
    };
    if let Some(list) = Message(feature.clone()).field(shard, 1)? {
        let mut list = Message(list);
        let first = list.field(shard, 1)?;
        let is_only = list.field(shard, 1)?.is_none();
        let value = first.filter(|_| is_only).map_or(Value::Other, Value::Bytes);
        return Ok((name, value));
    }
    match Message(feature).field(shard, 3)? {
        Some(list) => Ok((name, only_int(shard, list)?)),
        None => Ok((name, Value::Other)),
    }
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
