//! A record batch: where the image of each of its rows is, the row's class, and fields that are asked for.

use std::ops::Range;

use super::super::choice::Choice;
use super::super::rows::File;
use super::Message;
use super::flat::{DAMAGED, Table, Vector};
use super::layout::{Buffers, Bytes, FieldBuffers, Form, Layout, Numbers, Place};
use crate::error::DatasetError;
use crate::fields::{FieldKind, Kept, Number};
use crate::formats::shards::{Window, class};
use crate::storage::Storage;

/// Bytes of offsets, numbers or bits that one read brings at most.
const STEP: usize = 1 << 16;

/// Bytes of a node (`FieldNode`) and of a buffer (`Buffer`): two numbers of eight each.
const PAIR_BYTES: usize = 16;

/// The columns that are read.
pub(super) struct Columns {
    image: Buffers,
    label: Option<Numbers>,
    fields: Vec<Asked>,
}

/// A column that is asked for as a field.
struct Asked {
    name: String,
    kept: Kept,
    form: Form,
}

impl Columns {
    pub(super) fn of(
        layout: &Layout,
        choice: &Choice,
        taker: &mut File<'_>,
    ) -> Result<Self, String> {
        let label = choice.label.and_then(|nth| match layout.buffers[nth] {
            Buffers::Numbers(numbers) => Some(numbers),
            Buffers::Bytes(_) | Buffers::Other => None,
        });
        let mut fields = Vec::new();
        for (column, field) in layout.columns.iter().zip(&layout.fields) {
            let Some(FieldBuffers { kind, form }) = *field else { continue };
            let sides;
            let shape: Option<&[u32]> = match form {
                Form::One(_) => Some(&[]),
                Form::Fixed { n, .. } => {
                    sides = [n];
                    Some(&sides)
                }
                Form::Bytes(_) | Form::List { .. } => None,
            };
            if let Some(kept) = taker.fields.field(&column.name, (kind, shape))? {
                fields.push(Asked { name: column.name.clone(), kept, form });
            }
        }
        Ok(Self { image: layout.buffers[choice.image], label, fields })
    }
}

/// Why a batch is not read.
pub(super) enum Refusal {
    Known(DatasetError),
    Here(String),
}

impl Refusal {
    /// The refusal of the batch at that place of the file.
    pub(super) fn at(self, file: &Window<'_>, at: u64) -> DatasetError {
        match self {
            Self::Known(error) => error,
            Self::Here(why) => file.broken(at, why),
        }
    }
}

impl From<DatasetError> for Refusal {
    fn from(error: DatasetError) -> Self {
        Self::Known(error)
    }
}

impl From<&str> for Refusal {
    fn from(why: &str) -> Self {
        Self::Here(why.into())
    }
}

/// Adds the rows of a batch.
pub(super) fn add(
    storage: &dyn Storage,
    path: &str,
    message: &Message,
    (columns, taker): (&Columns, &mut File<'_>),
) -> Result<(), Refusal> {
    let message_table = Table::root(&message.metadata)?;
    let batch = Batch::of(&message_table.table(2)?.ok_or(DAMAGED)?, &message.body)?;
    let Buffers::Bytes(bytes) = columns.image else { return Err(DAMAGED.into()) };
    let step = usize::try_from(batch.n_rows.saturating_mul(8)).unwrap_or(STEP);
    let open = || Window::open(storage, path, step.clamp(64, STEP));
    let mut images = Images::of(&batch, (bytes, None), [open()?, open()?, open()?])?;
    let mut labels = match columns.label {
        Some(numbers) => Some(Labels::of(&batch, numbers, [open()?, open()?])?),
        None => None,
    };
    for row in 0..batch.n_rows {
        let image = images.next(row)?;
        let label = labels.as_mut().map_or(Ok(None), |labels| labels.next(row))?;
        taker.row(image, label);
    }
    for asked in &columns.fields {
        let windows = [open()?, open()?, open()?];
        add_field(&batch, asked, windows, taker)?;
    }
    Ok(())
}

/// Adds a field of every row.
fn add_field(
    batch: &Batch<'_>,
    asked: &Asked,
    [own, outer, file]: [Window<'_>; 3],
    taker: &mut File<'_>,
) -> Result<(), Refusal> {
    let Asked { name, kept, form } = asked;
    let size = match kept.kind {
        FieldKind::Numbers(number) => number.size() as u64,
        FieldKind::Bytes | FieldKind::Text => 1,
    };
    let (place, items) = match *form {
        Form::Bytes(bytes) => {
            let mut cells = Images::of(batch, (bytes, Some(name)), [own, outer, file])?;
            for row in 0..batch.n_rows {
                taker.extent(*kept, cells.next(row)?);
            }
            return Ok(());
        }
        Form::One(place) => (place, place),
        Form::List { own, items, .. } | Form::Fixed { own, items, .. } => (own, items),
    };
    let mut validity = Validity { file: own, bits: batch.validity(place)? };
    let mut lists = Lists { batch, form: *form, size, items, file };
    for row in 0..batch.n_rows {
        if !validity.has(row)? {
            return Err(Refusal::Here(absent(row, name)));
        }
        if let Form::One(place) = *form {
            let value = lists.number(place, (row, kept.kind))?;
            taker.fields.value(*kept, &value).map_err(Refusal::Here)?;
        } else {
            taker.extent(*kept, lists.next(row)?);
        }
    }
    Ok(())
}

fn absent(row: u64, name: &str) -> String {
    format!(
        "row {row} of the record batch has no value in the column `{name}`; leave the field out, or give \
         every row a value"
    )
}

/// A column of numbers, or of lists of them.
struct Lists<'a, 'b> {
    batch: &'a Batch<'b>,
    form: Form,
    /// Bytes of a number.
    size: u64,
    items: Place,
    file: Window<'a>,
}

impl Lists<'_, '_> {
    fn number(
        &mut self,
        place: Place,
        (row, kind): (u64, FieldKind),
    ) -> Result<Vec<u8>, Refusal> {
        let n_rows = self.batch.n_rows;
        if kind == FieldKind::Numbers(Number::Bool) {
            let bits = self.batch.buffer(place, 1, n_rows.div_ceil(8))?.start;
            let byte = self.file.bytes(bits + row / 8, 1)?[0];
            return Ok(vec![byte >> (row % 8) & 1]);
        }
        let n_bytes = n_rows.checked_mul(self.size).ok_or(DAMAGED)?;
        let data = self.batch.buffer(place, 1, n_bytes)?.start;
        let size = usize::try_from(self.size).unwrap_or(8);
        Ok(self.file.bytes(data + row * self.size, size)?.to_vec())
    }

    /// Where the numbers of a row are.
    fn next(&mut self, row: u64) -> Result<(u64, u32), Refusal> {
        let (first, end) = match self.form {
            Form::List { own, offset_bytes, .. } => {
                let width = u64::from(offset_bytes);
                let n_offsets = self.batch.n_rows.checked_add(1).ok_or(DAMAGED)?;
                let n_bytes = n_offsets.checked_mul(width).ok_or(DAMAGED)?;
                let offsets = self.batch.buffer(own, 1, n_bytes)?.start;
                let pair = self
                    .file
                    .bytes(offsets + row * width, 2 * usize::from(offset_bytes))?;
                let (first, end) = pair.split_at(usize::from(offset_bytes));
                (little_endian(first), little_endian(end))
            }
            Form::Fixed { n, .. } => {
                let first = row.checked_mul(n.into()).ok_or(DAMAGED)?;
                (first, first.checked_add(n.into()).ok_or(DAMAGED)?)
            }
            Form::Bytes(_) | Form::One(_) => return Err(DAMAGED.into()),
        };
        let n_bytes =
            end.checked_mul(self.size).filter(|_| end >= first).ok_or(DAMAGED)?;
        if self.batch.nodes.count(self.items.node, (PAIR_BYTES, 8))? != 0 {
            let why = "a list has items without a value; leave the field out, or give every item one";
            return Err(why.into());
        }
        let data = self.batch.buffer(self.items, 1, n_bytes)?.start;
        let offset = data + first * self.size;
        let len = (end - first).checked_mul(self.size).ok_or(DAMAGED)?;
        Ok((offset, self.file.record_len(offset, len)?))
    }
}

/// The metadata of a batch.
struct Batch<'a> {
    n_rows: u64,
    nodes: Vector<'a>,
    buffers: Vector<'a>,
    /// Buffers that the columns of views have beyond two.
    of_views: Vector<'a>,
    body: Range<u64>,
}

impl<'a> Batch<'a> {
    fn of(table: &Table<'a>, body: &Range<u64>) -> Result<Self, Refusal> {
        if table.table(3)?.is_some() {
            return Err(
                "the record batches are compressed, so that no image in them can be \
                        read alone; write the file again without compression"
                    .into(),
            );
        }
        Ok(Self {
            n_rows: table.count(0)?,
            nodes: table.vector(1, PAIR_BYTES)?,
            buffers: table.vector(2, PAIR_BYTES)?,
            of_views: table.vector(4, 8)?,
            body: body.clone(),
        })
    }

    /// Where in the file buffer `nth` of a column is, at least so many bytes.
    fn buffer(
        &self,
        place: Place,
        nth: usize,
        min_bytes: u64,
    ) -> Result<Range<u64>, Refusal> {
        let mut at = (place.buffer + nth) as u64;
        for view in 0..place.views {
            let more = self.of_views.count(view, (8, 0))?;
            at = at.checked_add(more).ok_or(DAMAGED)?;
        }
        let at = usize::try_from(at).map_err(|_| DAMAGED)?;
        let offset = self.buffers.count(at, (PAIR_BYTES, 0))?;
        let len = self.buffers.count(at, (PAIR_BYTES, 8))?;
        let start = self.body.start.checked_add(offset).ok_or(DAMAGED)?;
        let end = start.checked_add(len).filter(|end| *end <= self.body.end);
        let end = end.ok_or("a buffer reaches beyond its record batch")?;
        match len >= min_bytes {
            true => Ok(start..end),
            false => Err("a buffer is too short for the rows of its record batch".into()),
        }
    }

    /// The bits that say which values there are; `None` where all are.
    fn validity(&self, place: Place) -> Result<Option<u64>, Refusal> {
        if self.nodes.count(place.node, (PAIR_BYTES, 0))? != self.n_rows {
            return Err(
                "a column and its record batch have different numbers of rows".into()
            );
        }
        match self.nodes.count(place.node, (PAIR_BYTES, 8))? {
            0 => Ok(None),
            _ => Ok(Some(self.buffer(place, 0, self.n_rows.div_ceil(8))?.start)),
        }
    }
}

/// Which values of a column there are.
struct Validity<'a> {
    file: Window<'a>,
    bits: Option<u64>,
}

impl Validity<'_> {
    fn has(&mut self, row: u64) -> Result<bool, DatasetError> {
        let Some(bits) = self.bits else { return Ok(true) };
        let byte = self.file.bytes(bits + row / 8, 1)?[0];
        Ok(byte >> (row % 8) & 1 == 1)
    }
}

/// The column of images, row by row.
struct Images<'a> {
    own: Validity<'a>,
    outer: Validity<'a>,
    file: Window<'a>,
    offsets: u64,
    offset_bytes: u8,
    data: Range<u64>,
    /// The name of a column that is no image.
    name: Option<&'a str>,
    /// Where the next image begins in `data`.
    begin: u64,
}

impl<'a> Images<'a> {
    fn of(
        batch: &Batch<'_>,
        (bytes, name): (Bytes, Option<&'a str>),
        [own, outer, mut file]: [Window<'a>; 3],
    ) -> Result<Self, Refusal> {
        let width = u64::from(bytes.offset_bytes);
        let n_bytes = match batch.n_rows {
            0 => 0,
            n => n.checked_add(1).and_then(|n| n.checked_mul(width)).ok_or(DAMAGED)?,
        };
        let offsets = batch.buffer(bytes.place, 1, n_bytes)?.start;
        let data = batch.buffer(bytes.place, 2, 0)?;
        let outer_bits = bytes.outer.map_or(Ok(None), |outer| batch.validity(outer))?;
        let begin = match batch.n_rows {
            0 => 0,
            _ => little_endian(file.bytes(offsets, usize::from(bytes.offset_bytes))?),
        };
        Ok(Self {
            own: Validity { file: own, bits: batch.validity(bytes.place)? },
            outer: Validity { file: outer, bits: outer_bits },
            file,
            offsets,
            offset_bytes: bytes.offset_bytes,
            data,
            name,
            begin,
        })
    }

    fn next(&mut self, row: u64) -> Result<(u64, u32), Refusal> {
        if !self.outer.has(row)? || !self.own.has(row)? {
            if let Some(name) = self.name {
                return Err(Refusal::Here(absent(row, name)));
            }
            return Err(Refusal::Here(format!(
                "row {row} has no image bytes: the record batch holds only paths; \
                 embed the images with `datasets.table.embed_table_storage`, or store \
                 the data set with `save_to_disk`, which does it"
            )));
        }
        let width = usize::from(self.offset_bytes);
        let at = self.offsets + (row + 1) * u64::from(self.offset_bytes);
        let end = little_endian(self.file.bytes(at, width)?);
        let len = end.checked_sub(self.begin);
        let len = len.filter(|_| end <= self.data.end - self.data.start);
        let len =
            len.ok_or("the offsets of the images do not ascend within their buffer")?;
        let offset = self.data.start + self.begin;
        self.begin = end;
        Ok((offset, self.file.record_len(offset, len)?))
    }
}

/// The column of classes, row by row.
struct Labels<'a> {
    validity: Validity<'a>,
    file: Window<'a>,
    data: u64,
    numbers: Numbers,
}

impl<'a> Labels<'a> {
    fn of(
        batch: &Batch<'_>,
        numbers: Numbers,
        [validity, file]: [Window<'a>; 2],
    ) -> Result<Self, Refusal> {
        let n_bytes = batch.n_rows.checked_mul(numbers.width.into()).ok_or(DAMAGED)?;
        let data = batch.buffer(numbers.place, 1, n_bytes)?.start;
        let validity = Validity { file: validity, bits: batch.validity(numbers.place)? };
        Ok(Self { validity, file, data, numbers })
    }

    fn next(&mut self, row: u64) -> Result<Option<u32>, Refusal> {
        if !self.validity.has(row)? {
            return Ok(None);
        }
        let width = self.numbers.width;
        let at = self.data + row * u64::from(width);
        let value = little_endian(self.file.bytes(at, width.into())?);
        let unused = 64 - 8 * u32::from(width);
        let number = match self.numbers.is_signed {
            true => (value << unused).cast_signed() >> unused,
            false => i64::try_from(value).unwrap_or(i64::MAX),
        };
        class(number).map_err(Refusal::Here)
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, &byte| (sum << 8) | u64::from(byte))
}
