//! HDF5 files as h5py writes image data sets: one dataset of images, and one of classes next to it.
//!
//! Images are either image files, each an array of bytes of its own length (`h5py.vlen_dtype(numpy.uint8)`, kept in
//! the file's global heap), or pixels in one array of bytes with the channels before the rows (n, 1 or 3, rows,
//! columns). Classes are whole numbers. Both are datasets of the root group, found by their names ([`IMAGES`],
//! [`LABELS`]). What is read of the format is what places of records need (HDF5 File Format Specification, version
//! 3): superblocks 0 to 3, object headers 1 and 2, groups, contiguous data, and chunks without filters by a version 1
//! B-tree. Compressed chunks are refused with what to do. `objects.rs` finds datasets, `rows.rs` where a
//! row of one lies, `heap.rs` what a row points to.

mod heap;
mod objects;
mod rows;

use bothends_core::sample::{Encoding, Extent, FileIdx};

use self::heap::Heap;
use self::objects::{Object, datasets};
use self::rows::{Element, Rows};
use super::{Labels, Window, find, found, one_split};
use crate::error::DatasetError;
use crate::formats::{Format, Found};
use crate::storage::Storage;
use crate::table::TableBuilder;

/// Bytes that one read brings.
const STEP: usize = 4096;

/// Names of the dataset of images, the best first.
const IMAGES: [&str; 10] =
    ["images", "image", "imgs", "img", "jpegs", "jpeg", "jpg", "pixels", "data", "x"];

/// Names of the dataset of classes, the best first.
const LABELS: [&str; 9] = [
    "labels",
    "label",
    "targets",
    "target",
    "classes",
    "class",
    "cls",
    "y",
    "fine_labels",
];

/// Samples that a file of pixels may have: a file may be almost all holes.
const MAX_ROWS: u64 = 1 << 28;

/// Whether a file's name is that of one.
pub(crate) fn is_shard(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".h5", ".hdf5", ".he5"].iter().any(|end| name.ends_with(end))
}

/// Reads the files at `target`, in the order of their names.
pub(crate) fn parse(storage: &dyn Storage, target: &str) -> Result<Found, DatasetError> {
    let (shards, n_others) = find(storage, target, is_shard)?;
    one_split(storage, target, &shards)?;
    let mut reading: Option<Reading> = None;
    for path in &shards {
        let mut file = Window::open(storage, path.as_str(), STEP)?;
        let data = Data::open(&mut file)?;
        let encoding = data.encoding(&mut file)?;
        let reading = reading.get_or_insert_with(|| Reading {
            builder: TableBuilder::new(encoding),
            labels: Labels::default(),
            encoding,
        });
        if reading.encoding != encoding {
            let why = "its images differ in kind or size from those of earlier files; \
                       keep them in a folder of their own";
            return Err(file.broken(0, why));
        }
        let idx = reading.builder.file(path)?;
        let mut heap = Window::open(storage, path.as_str(), STEP)?;
        let mut labels = Window::open(storage, path.as_str(), STEP)?;
        reading.samples(&data, idx, [&mut file, &mut heap, &mut labels])?;
    }
    match reading.filter(|reading| reading.labels != Labels::default()) {
        Some(reading) => found(Format::Hdf5, reading.builder, n_others, reading.labels),
        None => Err(DatasetError::Empty { path: storage.shown(target) }),
    }
}

/// The table in the making.
struct Reading {
    builder: TableBuilder,
    labels: Labels,
    encoding: Encoding,
}

/// What a file has.
struct Data {
    images: Rows,
    labels: Option<Rows>,
}

impl Data {
    fn open(file: &mut Window<'_>) -> Result<Self, DatasetError> {
        let objects = datasets(file)?;
        let best = |names: &[&str]| -> Option<&Object> {
            let named = |name: &&str| {
                objects.iter().find(|object| object.name.eq_ignore_ascii_case(name))
            };
            names.iter().find_map(named)
        };
        let Some(images) = best(&IMAGES) else {
            let names: Vec<&str> =
                objects.iter().map(|object| object.name.as_str()).collect();
            let why = format!(
                "no dataset of its root group is called {}; there are: {}",
                IMAGES.join(", "),
                names.join(", ")
            );
            return Err(file.broken(0, why));
        };
        let images = Rows::read(file, images)?;
        let labels = best(&LABELS).map(|labels| Rows::read(file, labels)).transpose()?;
        if let Some(labels) = &labels {
            let is_class = matches!(labels.element, Element::Number { .. });
            if labels.n != images.n || labels.n_elements() != Some(1) || !is_class {
                let why = format!(
                    "`{}` is not one whole number for each of the {} images; write the classes as an array of \
                     integers",
                    labels.name, images.n
                );
                return Err(file.broken(labels.at, why));
            }
        }
        Ok(Self { images, labels })
    }

    /// How the images are to be read.
    fn encoding(&self, file: &mut Window<'_>) -> Result<Encoding, DatasetError> {
        let Rows { name, at, shape, element, .. } = &self.images;
        let size = |n: u64| u32::try_from(n).ok().filter(|n| *n > 0);
        let why = match (element, &shape[..]) {
            (Element::Varying, []) => return Ok(Encoding::Image),
            (Element::Number { len: 1, is_signed: false, .. }, &[channels @ (1 | 3), height, width]) => {
                let sides = size(height).zip(size(width));
                if let Some((height, width)) = sides.filter(|_| self.images.n <= MAX_ROWS)
                {
                    let channels = if channels == 3 { 3 } else { 1 };
                    return Ok(Encoding::Planar { channels, height, width });
                }
                "has more pixels or images than are read; split it".to_owned()
            }
            (Element::Number { len: 1, .. }, [_, _, 1 | 3]) => {
                "has the channels after the columns; write it with the shape (n, channels, rows, \
                columns), or as \
                 image files of variable length"
                    .to_owned()
            }
            _ => format!(
                "has rows of the shape {shape:?}; images are arrays of bytes of variable length, or bytes with the \
                 shape (n, channels, rows, columns)"
            ),
        };
        Err(file.broken(*at, format!("the dataset `{name}` {why}")))
    }
}

impl Reading {
    fn samples(
        &mut self,
        data: &Data,
        file: FileIdx,
        [rows, heap_window, label_window]: [&mut Window<'_>; 3],
    ) -> Result<(), DatasetError> {
        let mut heap = Heap::default();
        let Data { images, labels } = data;
        for nth in 0..images.n {
            let (offset, len) = match images.element {
                Element::Varying => {
                    let at = images.place(rows, nth)?;
                    heap.object(heap_window, rows, at)?
                }
                Element::Number { .. } => (images.place(rows, nth)?, images.row_bytes),
            };
            let len = rows.record_len(offset, len)?;
            let label = match labels {
                Some(labels) => labels.class(label_window, nth)?,
                None => None,
            };
            self.builder.sample(Extent { file, offset, len }, self.labels.take(label));
        }
        Ok(())
    }
}

/// The least significant byte first.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, &byte| (sum << 8) | u64::from(byte))
}

/// A number of at most eight bytes at `at`.
fn read(file: &mut Window<'_>, at: u64, n: usize) -> Result<u64, DatasetError> {
    Ok(number(file.bytes(at, n)?))
}

#[cfg(test)]
mod tests;
