//! Arrow's schema: which columns there are, and which buffers of a record batch are theirs.
//!
//! A batch lists nodes and buffers of all columns in one sequence, parents before children; how many of
//! them a column has follows from its type (Arrow columnar format, "Buffer listing for each layout").

use super::super::choice::{Column, Features, Holds, MAX_DESCRIPTION_BYTES};
use super::flat::{DAMAGED, Table};
use crate::fields::{FieldKind, Number};

/// Columns, with those inside others: more than any data set has, and a bound on the time for a schema
/// whose parts name each other again and again.
const MAX_FIELDS: usize = 1 << 16;

/// Bytes of a column's name that are looked at.
const MAX_NAME_BYTES: usize = 256;

/// Columns inside columns inside columns.
const MAX_DEPTH: usize = 32;

/// The types of `Schema.fbs` that are told apart.
mod types {
    pub(super) const NULL: u8 = 1;
    pub(super) const INT: u8 = 2;
    pub(super) const FLOAT: u8 = 3;
    pub(super) const BINARY: u8 = 4;
    pub(super) const UTF8: u8 = 5;
    pub(super) const BOOL: u8 = 6;
    pub(super) const LIST: u8 = 12;
    pub(super) const STRUCT: u8 = 13;
    pub(super) const UNION: u8 = 14;
    pub(super) const FIXED_SIZE_LIST: u8 = 16;
    pub(super) const MAP: u8 = 17;
    pub(super) const LARGE_BINARY: u8 = 19;
    pub(super) const LARGE_UTF8: u8 = 20;
    pub(super) const LARGE_LIST: u8 = 21;
    pub(super) const RUN_END_ENCODED: u8 = 22;
    pub(super) const BINARY_VIEW: u8 = 23;
    pub(super) const UTF8_VIEW: u8 = 24;
    pub(super) const LIST_VIEW: u8 = 25;
    pub(super) const LARGE_LIST_VIEW: u8 = 26;
    pub(super) const LAST: u8 = 26;
}

/// A place among the nodes and buffers of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) node: usize,
    /// Not counting the buffers of views, whose number each batch states.
    pub(crate) buffer: usize,
    /// Columns of views before this one.
    pub(crate) views: usize,
}

/// Where the bytes of a column of images are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bytes {
    pub(crate) place: Place,
    /// Of the structure around them.
    pub(crate) outer: Option<Place>,
    /// Bytes of an offset.
    pub(crate) offset_bytes: u8,
}

/// Where the numbers of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) place: Place,
    /// Bytes of a number.
    pub(crate) width: u8,
    pub(crate) is_signed: bool,
}

/// A column as a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FieldBuffers {
    pub(crate) kind: FieldKind,
    pub(crate) form: Form,
}

/// Where the values of a field are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Text or bytes of any length.
    Bytes(Bytes),
    /// One number.
    One(Place),
    /// A list of numbers: its own place and that of the numbers, and bytes of an offset.
    List { own: Place, items: Place, offset_bytes: u8 },
    /// As many numbers in every row.
    Fixed { own: Place, items: Place, n: u32 },
}

/// Where a column is that may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buffers {
    Bytes(Bytes),
    Numbers(Numbers),
    Other,
}

/// What a schema says.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) columns: Vec<Column>,
    pub(crate) buffers: Vec<Buffers>,
    /// What of each column can be had as a field.
    pub(crate) fields: Vec<Option<FieldBuffers>>,
    pub(crate) features: Features,
}

impl Layout {
    /// Reads a message's header that is a schema.
    pub(crate) fn of(schema: &Table<'_>) -> Result<Self, String> {
        if schema.i16(0)? != 0 {
            return Err("big-endian data are not supported; write the file again".into());
        }
        let fields = schema.vector(1, 4)?;
        let mut walk = Walk { next: Place::default(), n_left: MAX_FIELDS };
        let (mut columns, mut buffers) = (Vec::new(), Vec::new());
        let mut asked = Vec::new();
        for nth in 0..fields.len {
            let begin = walk.next;
            let (column, place) = walk.column(&fields.table(nth)?)?;
            asked.push(field(&fields.table(nth)?, begin, place)?);
            columns.push(column);
            buffers.push(place);
        }
        let features = features(schema)?;
        Ok(Self { columns, buffers, fields: asked, features })
    }
}

/// What the schema's metadata say of the columns.
fn features(schema: &Table<'_>) -> Result<Features, String> {
    let metadata = schema.vector(2, 4)?;
    for nth in 0..metadata.len {
        let pair = metadata.table(nth)?;
        let text = pair.string(1)?;
        if pair.string(0)? == b"huggingface" && text.len() as u64 <= MAX_DESCRIPTION_BYTES
        {
            return Features::of_metadata(text);
        }
    }
    Ok(Features::default())
}

/// Goes through the fields of a schema and counts their nodes and buffers.
struct Walk {
    next: Place,
    n_left: usize,
}

impl Walk {
    fn column(&mut self, field: &Table<'_>) -> Result<(Column, Buffers), String> {
        let name = field.string(0)?;
        let name = String::from_utf8_lossy(&name[..name.len().min(MAX_NAME_BYTES)]);
        let name = name.into_owned();
        let place = self.next;
        let kind = kind(field)?;
        let (holds, buffers) = match kind {
            types::BINARY | types::LARGE_BINARY => {
                let bytes = Bytes { place, outer: None, offset_bytes: width(kind) };
                (Holds::Bytes, Buffers::Bytes(bytes))
            }
            types::INT => (Holds::Int, Buffers::Numbers(numbers(field, place)?)),
            types::STRUCT => match self.bytes_inside(field, place)? {
                Some(bytes) => (Holds::ImageStruct, Buffers::Bytes(bytes)),
                None => (Holds::Other, Buffers::Other),
            },
            _ => (Holds::Other, Buffers::Other),
        };
        self.next = place;
        self.skip(field, 0)?;
        Ok((Column { name, holds }, buffers))
    }

    /// The field `bytes` of a structure.
    fn bytes_inside(
        &mut self,
        field: &Table<'_>,
        outer: Place,
    ) -> Result<Option<Bytes>, String> {
        let children = field.vector(5, 4)?;
        self.next.node += 1;
        self.next.buffer += 1;
        for nth in 0..children.len {
            let child = children.table(nth)?;
            let place = self.next;
            let kind = kind(&child)?;
            if child.string(0)? == b"bytes"
                && matches!(kind, types::BINARY | types::LARGE_BINARY)
            {
                let offset_bytes = width(kind);
                return Ok(Some(Bytes { place, outer: Some(outer), offset_bytes }));
            }
            self.skip(&child, 1)?;
        }
        Ok(None)
    }

    /// Counts the nodes and buffers of a field and those inside it.
    fn skip(&mut self, field: &Table<'_>, depth: usize) -> Result<(), String> {
        self.n_left = self.n_left.checked_sub(1).filter(|_| depth < MAX_DEPTH).ok_or_else(
            || format!("the schema has more than {MAX_FIELDS} columns, or columns inside each other {MAX_DEPTH} deep"),
        )?;
        let kind = kind(field)?;
        self.next.node += 1;
        self.next.buffer += match kind {
            types::NULL | types::RUN_END_ENCODED => 0,
            types::STRUCT | types::FIXED_SIZE_LIST => 1,
            // Those of sparse ones are their types, and of dense ones their offsets, too.
            types::UNION => 1 + usize::from(union_is_dense(field)?),
            types::BINARY
            | types::UTF8
            | types::LARGE_BINARY
            | types::LARGE_UTF8
            | types::LIST_VIEW
            | types::LARGE_LIST_VIEW => 3,
            _ => 2,
        };
        self.next.views +=
            usize::from(matches!(kind, types::BINARY_VIEW | types::UTF8_VIEW));
        let is_nested = matches!(
            kind,
            types::LIST
                | types::STRUCT
                | types::UNION
                | types::FIXED_SIZE_LIST
                | types::MAP
                | types::LARGE_LIST
                | types::RUN_END_ENCODED
                | types::LIST_VIEW
                | types::LARGE_LIST_VIEW
        );
        let children = field.vector(5, 4)?;
        for nth in (0..children.len).filter(|_| is_nested) {
            self.skip(&children.table(nth)?, depth + 1)?;
        }
        Ok(())
    }
}

/// The type of a field's values in the batches: indices, for a column with a dictionary.
fn kind(field: &Table<'_>) -> Result<u8, String> {
    // A floating-point number, which has two buffers as indices do, and is not read either.
    const INDICES: u8 = 3;
    if field.table(4)?.is_some() {
        return Ok(INDICES);
    }
    match field.u8(2)? {
        0 => Err(DAMAGED.into()),
        kind if kind > types::LAST => Err(format!(
            "a column has the type {kind}, which Arrow did not have in format version 1.5; \
             write the file again without that column"
        )),
        kind => Ok(kind),
    }
}

/// What a column at `place` is as a field.
fn field(
    column: &Table<'_>,
    place: Place,
    buffers: Buffers,
) -> Result<Option<FieldBuffers>, String> {
    if column.table(4)?.is_some() {
        return Ok(None);
    }
    if let Buffers::Bytes(bytes) = buffers {
        let (kind, form) = (FieldKind::Bytes, Form::Bytes(bytes));
        return Ok(Some(FieldBuffers { kind, form }));
    }
    let kind = kind(column)?;
    let number = |form, number: Option<Number>| {
        number.map(|number| FieldBuffers { kind: FieldKind::Numbers(number), form })
    };
    // The items follow their list.
    let after = |n_buffers| Place {
        node: place.node + 1,
        buffer: place.buffer + n_buffers,
        views: place.views,
    };
    Ok(match kind {
        types::UTF8 | types::LARGE_UTF8 => {
            let offset_bytes = if kind == types::LARGE_UTF8 { 8 } else { 4 };
            let form = Form::Bytes(Bytes { place, outer: None, offset_bytes });
            Some(FieldBuffers { kind: FieldKind::Text, form })
        }
        types::BOOL => number(Form::One(place), Some(Number::Bool)),
        types::INT | types::FLOAT => number(Form::One(place), number_type(column)?),
        types::LIST | types::LARGE_LIST => {
            let offset_bytes = if kind == types::LARGE_LIST { 8 } else { 4 };
            let form = Form::List { own: place, items: after(2), offset_bytes };
            number(form, items(column)?)
        }
        types::FIXED_SIZE_LIST => {
            let n = column.table(3)?.ok_or(DAMAGED)?.i32(0)?;
            let n = u32::try_from(n).map_err(|_| DAMAGED)?;
            number(Form::Fixed { own: place, items: after(1), n }, items(column)?)
        }
        _ => None,
    })
}

/// The type of a list's items, where they are numbers.
fn items(list: &Table<'_>) -> Result<Option<Number>, String> {
    let children = list.vector(5, 4)?;
    match children.len {
        1 => number_type(&children.table(0)?),
        _ => Ok(None),
    }
}

/// The type of numbers, where a column has some.
fn number_type(column: &Table<'_>) -> Result<Option<Number>, String> {
    if column.table(4)?.is_some() {
        return Ok(None);
    }
    let kind = kind(column)?;
    if !matches!(kind, types::INT | types::FLOAT) {
        return Ok(None);
    }
    let details = column.table(3)?.ok_or(DAMAGED)?;
    if kind == types::FLOAT {
        return Ok(match details.i16(0)? {
            0 => Some(Number::F16),
            1 => Some(Number::F32),
            2 => Some(Number::F64),
            _ => None,
        });
    }
    Ok(match (details.i32(0)?, details.u8(1)? != 0) {
        (8, true) => Some(Number::I8),
        (8, false) => Some(Number::U8),
        (16, true) => Some(Number::I16),
        (16, false) => Some(Number::U16),
        (32, true) => Some(Number::I32),
        (32, false) => Some(Number::U32),
        (64, true) => Some(Number::I64),
        (64, false) => Some(Number::U64),
        _ => None,
    })
}

fn width(kind: u8) -> u8 {
    if kind == types::LARGE_BINARY { 8 } else { 4 }
}

fn union_is_dense(field: &Table<'_>) -> Result<bool, String> {
    Ok(field.table(3)?.ok_or(DAMAGED)?.i16(0)? == 1)
}

fn numbers(field: &Table<'_>, place: Place) -> Result<Numbers, String> {
    let int = field.table(3)?.ok_or(DAMAGED)?;
    let is_signed = int.u8(1)? != 0;
    match int.i32(0)? {
        8 => Ok(Numbers { place, width: 1, is_signed }),
        16 => Ok(Numbers { place, width: 2, is_signed }),
        32 => Ok(Numbers { place, width: 4, is_signed }),
        64 => Ok(Numbers { place, width: 8, is_signed }),
        _ => Err(DAMAGED.into()),
    }
}
