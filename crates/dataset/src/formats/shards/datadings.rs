//! Data sets of datadings: a file of MessagePack maps, one for each sample, and files about it next to it.
//!
//! `train.msgpack` has the samples one after the other, and `train.msgpack.offsets` where each ends (u64, most
//! significant byte first), which is held against the samples where it is there. The image is the field `image`
//! (or another of [`IMAGES`]) with the bytes of an image file; the class is a whole number called `label`, `class`,
//! `cls` or `target`, plain or a scalar of NumPy. A field that is a pickle is refused, and nothing is ever unpickled.
//! The other files (`.keys`, `.key_hashes`, `.filter`, `.md5`, or the older `.index`) are not needed to read in order.
//! `crates/pack` writes such data sets. Read `msgpack.rs` next.

mod msgpack;

use bothends_core::sample::{Encoding, Extent};

use self::msgpack::{Value, number, skip, value};
use super::{Labels, Window, find, found, one_split};
use crate::error::DatasetError;
use crate::formats::{Format, Found};
use crate::path;
use crate::storage::{Kind, Storage, list};
use crate::table::TableBuilder;

/// Bytes of a sample that one read brings: its key, and the small fields before and after the image.
const STEP: usize = 256;

/// Bytes of offsets that one read brings.
const OFFSETS_STEP: usize = 1 << 16;

/// Longest name of a field that is looked at.
const MAX_NAME_BYTES: u64 = 256;

/// Names of the field that is the image, the best first.
const IMAGES: [&str; 6] = ["image", "jpeg", "jpg", "png", "img", "data"];

/// Names of the field that is the class, the best first.
const LABELS: [&str; 4] = ["label", "class", "cls", "target"];

/// Endings of the files next to the samples.
const BESIDE: [&str; 6] = ["offsets", "keys", "key_hashes", "filter", "md5", "index"];

/// What is said of a field that is a pickle.
const PICKLE: &str = "is a pickle, which may run any program when it is opened and is never opened here; \
                      write the field as bytes, numbers or a plain array";

/// Whether a file's name is that of a file of samples.
pub(crate) fn is_shard(name: &str) -> bool {
    name.ends_with(".msgpack")
}

/// The files next to the samples that are read with them.
pub(crate) fn companion(shard: &str) -> String {
    format!("{shard}.offsets")
}

/// Reads the files at `target`, in the order of their names.
pub(crate) fn parse(storage: &dyn Storage, target: &str) -> Result<Found, DatasetError> {
    let (shards, n_others) = find(storage, target, is_shard)?;
    one_split(storage, target, &shards)?;
    let n_beside = match n_others {
        0 => 0,
        _ => n_beside(storage, target, &shards)?,
    };
    let mut reading = Reading {
        builder: TableBuilder::new(Encoding::Image),
        labels: Labels::default(),
        image: None,
    };
    for shard in &shards {
        reading.shard(storage, shard)?;
    }
    if reading.labels == Labels::default() {
        return Err(DatasetError::Empty { path: storage.shown(target) });
    }
    let n_ignored = n_others.saturating_sub(n_beside);
    found(Format::Datadings, reading.builder, n_ignored, reading.labels)
}

/// How many files of the folder are about the samples in it.
fn n_beside(
    storage: &dyn Storage,
    folder: &str,
    shards: &[String],
) -> Result<u64, DatasetError> {
    let entries = list(storage, folder)?;
    let is_beside = |name: &str| {
        let (of, end) = name.rsplit_once('.').unwrap_or_default();
        BESIDE.contains(&end) && shards.iter().any(|shard| path::split(shard).1 == of)
    };
    Ok(entries.iter().filter(|entry| is_beside(&entry.name)).count() as u64)
}

/// The table in the making.
struct Reading {
    builder: TableBuilder,
    labels: Labels,
    /// Which of [`IMAGES`] is taken: that of the first sample, so that all samples give the same.
    image: Option<usize>,
}

/// What a sample has.
#[derive(Default)]
struct Fields {
    images: [Option<(u64, u64)>; IMAGES.len()],
    labels: [Option<u32>; LABELS.len()],
}

impl Reading {
    fn shard(&mut self, storage: &dyn Storage, path: &str) -> Result<(), DatasetError> {
        let mut shard = Window::open(storage, path, STEP)?;
        let mut offsets = Offsets::open(storage, path, shard.len())?;
        let file = self.builder.file(path)?;
        let mut at = 0;
        while at < shard.len() {
            let (mut fields, end) = fields(&mut shard, at)?;
            if let Some(offsets) = &mut offsets {
                offsets.check(end)?;
            }
            let nth = self
                .image
                .or_else(|| fields.images.iter().position(Option::is_some))
                .unwrap_or(0);
            let image = fields.images[nth].take();
            let (offset, len) = image.ok_or_else(|| {
                let why = format!(
                    "a sample has no bytes called `{}`; write the image file's bytes under that name",
                    IMAGES[nth]
                );
                shard.broken(at, why)
            })?;
            self.image = Some(nth);
            let len = shard.record_len(offset, len)?;
            let label = self.labels.take(fields.labels.into_iter().flatten().next());
            self.builder.sample(Extent { file, offset, len }, label);
            at = end;
        }
        offsets.map_or(Ok(()), |mut offsets| offsets.finish())
    }
}

/// The fields of the sample at `at`, and where it ends.
fn fields(shard: &mut Window<'_>, at: u64) -> Result<(Fields, u64), DatasetError> {
    let (Value::Map(n), mut at) = value(shard, at)? else {
        let why = "not a sample of datadings: it is not a MessagePack map; fetch the file again";
        return Err(shard.broken(at, why));
    };
    let mut fields = Fields::default();
    for _ in 0..n {
        let (name, inside) = name(shard, at)?;
        let image = IMAGES.iter().position(|known| name == *known);
        let label = LABELS.iter().position(|known| name == *known);
        let (found, next) = value(shard, inside)?;
        at = match (image, label, found) {
            (Some(nth), _, Value::Bytes { at, len }) => {
                fields.images[nth] = Some((at, len));
                next
            }
            (Some(_), _, Value::Map(n)) => {
                let (array, _) = array(shard, inside, (n, next), &name)?;
                if array.is_array {
                    let why = format!(
                        "`{name}` is an array of pixels; write the image file's bytes instead"
                    );
                    return Err(shard.broken(inside, why));
                }
                skip(shard, inside)?
            }
            (_, Some(nth), Value::Number(class)) => {
                fields.labels[nth] = Some(class_of(shard, inside, class)?);
                next
            }
            (_, Some(nth), Value::Map(n)) => {
                let (array, next) = array(shard, inside, (n, next), &name)?;
                if let Some(class) = array.number(shard)? {
                    fields.labels[nth] = Some(class_of(shard, inside, class)?);
                }
                next
            }
            _ => skip(shard, inside)?,
        };
    }
    Ok((fields, at))
}

fn class_of(shard: &Window<'_>, at: u64, class: u64) -> Result<u32, DatasetError> {
    u32::try_from(class).map_err(|_| {
        let why = format!("the class {class} is not a number from 0 to 4294967295");
        shard.broken(at, why)
    })
}

/// The name at `at` (empty where it is too long to be one that is known), and where it ends.
fn name(shard: &mut Window<'_>, at: u64) -> Result<(String, u64), DatasetError> {
    match value(shard, at)? {
        (Value::Text { at, len } | Value::Bytes { at, len }, next)
            if len <= MAX_NAME_BYTES =>
        {
            let bytes = shard.bytes(at, usize::try_from(len).unwrap_or(usize::MAX))?;
            Ok((String::from_utf8_lossy(bytes).into_owned(), next))
        }
        _ => Ok((String::new(), skip(shard, at)?)),
    }
}

/// What msgpack-numpy, which datadings writes NumPy's values with, says of one.
#[derive(Default)]
struct Array {
    /// An array, not a scalar.
    is_array: bool,
    /// NumPy's name of the type, such as `<i8`.
    kind: String,
    data: Option<(u64, u64)>,
}

/// The value of NumPy in the map at `at`, whose `n` pairs begin at `inside`; `called` is the field's name.
fn array(
    shard: &mut Window<'_>,
    at: u64,
    (n, inside): (u64, u64),
    called: &str,
) -> Result<(Array, u64), DatasetError> {
    let (mut array, mut next) = (Array::default(), inside);
    for _ in 0..n {
        let (name, value_at) = name(shard, next)?;
        next = skip(shard, value_at)?;
        match (name.as_str(), value(shard, value_at)?.0) {
            ("nd", Value::Bool(is_array)) => array.is_array = is_array,
            ("kind", Value::Bytes { at: kind, len: 1 })
                if shard.bytes(kind, 1)? == b"O" =>
            {
                return Err(shard.broken(at, format!("`{called}` {PICKLE}")));
            }
            ("type", Value::Text { .. } | Value::Bytes { .. }) => {
                array.kind = self::name(shard, value_at)?.0;
            }
            ("data", Value::Text { at, len } | Value::Bytes { at, len }) => {
                array.data = Some((at, len));
            }
            _ => {}
        }
    }
    Ok((array, next))
}

impl Array {
    /// The whole number from 0 that this scalar is; `None` for anything else.
    fn number(&self, shard: &mut Window<'_>) -> Result<Option<u64>, DatasetError> {
        let mut kind = self.kind.chars();
        let (order, class) = (kind.next(), kind.next());
        let len = kind.as_str().parse::<usize>().ok();
        let (Some(order), Some(class), Some(len)) = (order, class, len) else {
            return Ok(None);
        };
        let data = self.data.filter(|(_, bytes)| *bytes == len as u64);
        let is_number = !self.is_array && matches!(class, 'i' | 'u') && len <= 8;
        let Some((at, _)) = data.filter(|_| is_number && len > 0) else {
            return Ok(None);
        };
        let mut bytes = shard.bytes(at, len)?.to_vec();
        if order != '>' {
            bytes.reverse();
        }
        let is_negative = class == 'i' && bytes[0] >= 0x80;
        Ok(Some(number(&bytes)).filter(|_| !is_negative))
    }
}

/// The file that says where each sample ends, held against the samples.
struct Offsets<'a> {
    window: Window<'a>,
    path: String,
    at: u64,
}

impl<'a> Offsets<'a> {
    /// `None` where there is none; `len` is the length of the samples' file.
    fn open(
        storage: &'a dyn Storage,
        shard: &str,
        len: u64,
    ) -> Result<Option<Self>, DatasetError> {
        let path = companion(shard);
        let Ok(Kind::File { .. }) = storage.kind(&path) else { return Ok(None) };
        let window = Window::open(storage, path.clone(), OFFSETS_STEP)?;
        let mut offsets = Self { window, path, at: 0 };
        // The first sample begins at 0; the last one ends with the file.
        offsets.check(0)?;
        let end = offsets.window.len();
        match end.checked_sub(8).filter(|_| end.is_multiple_of(8)) {
            Some(last) if number(offsets.window.bytes(last, 8)?) == len => {
                Ok(Some(offsets))
            }
            last => Err(offsets.differs(last.unwrap_or(0))),
        }
    }

    /// Whether the next sample ends at `end`.
    fn check(&mut self, end: u64) -> Result<(), DatasetError> {
        let at = self.at;
        self.at += 8;
        match at < self.window.len() && number(self.window.bytes(at, 8)?) == end {
            true => Ok(()),
            false => Err(self.differs(at)),
        }
    }

    fn finish(&mut self) -> Result<(), DatasetError> {
        if self.at == self.window.len() { Ok(()) } else { Err(self.differs(self.at)) }
    }

    fn differs(&self, at: u64) -> DatasetError {
        let samples = path::split(&self.path).1.trim_end_matches(".offsets");
        let why = format!(
            "the samples in `{samples}` are not where it says; fetch both files again"
        );
        self.window.broken(at, why)
    }
}

#[cfg(test)]
mod tests;
