//! A Parquet file's footer: the columns, and where each row group has those that are read.
//!
//! The file ends with the footer, its length and a magic number (`parquet.thrift`, `FileMetaData`). Pages
//! are not described in it: each has a header of its own, which `pages.rs` reads.

use std::ops::Range;

use super::super::choice::{Column, Features, Holds, MAX_DESCRIPTION_BYTES};
use super::thrift::{BINARY, Compact, I32, I64, LIST, STRUCT};
use crate::error::DatasetError;
use crate::fields::{FieldKind, Kept, Number};
use crate::formats::shards::Window;

const MAGIC: &[u8] = b"PAR1";
/// At the end of a file whose footer is encrypted.
const ENCRYPTED: &[u8] = b"PARE";

/// Columns, with those inside others: more than any data set has.
const MAX_COLUMNS: u64 = 1 << 16;

const DAMAGED: &str = "the footer is damaged; fetch the file again";

/// Physical types.
pub(super) const BOOLEAN: i64 = 0;
pub(super) const INT32: i64 = 1;
pub(super) const INT64: i64 = 2;
pub(super) const FLOAT: i64 = 4;
pub(super) const DOUBLE: i64 = 5;
pub(super) const BYTE_ARRAY: i64 = 6;

/// A column that has values of its own.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    /// Which of all that have values.
    pub(super) nth: usize,
    pub(super) physical: i64,
    /// How many of the levels above it, and itself, may be absent.
    pub(super) max_definition: u32,
}

/// What the footer says first: the columns, and where the rest is.
pub(super) struct Footer {
    pub(super) columns: Vec<Column>,
    /// For each column, the values to read where it is chosen.
    pub(super) leaves: Vec<Option<Leaf>>,
    /// For each column, what it is as a field.
    pub(super) fields: Vec<Option<(FieldKind, Leaf)>>,
    pub(super) features: Features,
    n_rows: u64,
    groups: Option<Range<u64>>,
    end: u64,
}

/// The rows of a group, and where its chosen columns lie.
pub(super) struct Group {
    pub(super) n_rows: u64,
    pub(super) image: Chunk,
    pub(super) label: Option<Chunk>,
    /// Of the fields, in the order in which they were named.
    pub(super) fields: Vec<Chunk>,
}

/// The columns to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) image: &'a Leaf,
    pub(super) label: Option<&'a Leaf>,
    pub(super) fields: &'a [Asked],
}

/// A column that is asked for as a field.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) name: String,
    pub(super) kept: Kept,
    pub(super) leaf: Leaf,
    /// Bytes that a number of this type has.
    pub(super) width: Option<usize>,
}

/// A column in a row group.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) range: Range<u64>,
    pub(super) codec: i64,
    pub(super) n_values: u64,
    pub(super) has_dictionary: bool,
}

fn compact<'w, 'a>(file: &'w mut Window<'a>, range: Range<u64>) -> Compact<'w, 'a> {
    Compact { file, at: range.start, end: range.end, damaged: DAMAGED }
}

/// An element of the schema, which lists parents before their children.
#[derive(Default)]
struct Element {
    physical: Option<i64>,
    repetition: i64,
    name: String,
    n_children: u64,
    is_annotated: bool,
    converted: Option<i64>,
    logical: Option<i64>,
}

impl Element {
    /// What a column without others in it is as a field, if it is one that is read.
    fn field_kind(&self) -> Option<FieldKind> {
        if self.n_children > 0 || self.repetition == 2 {
            return None;
        }
        let number = match (self.physical?, self.converted) {
            (BYTE_ARRAY, converted)
                if self.logical == Some(LOGICAL_TEXT) || converted == Some(0) =>
            {
                return Some(FieldKind::Text);
            }
            (BYTE_ARRAY, _) if !self.is_annotated => return Some(FieldKind::Bytes),
            (BOOLEAN, _) => Number::Bool,
            (FLOAT, _) => Number::F32,
            (DOUBLE, _) => Number::F64,
            (INT32, Some(11)) => Number::U8,
            (INT32, Some(12)) => Number::U16,
            (INT32, Some(13)) => Number::U32,
            (INT64, Some(14)) => Number::U64,
            (INT32, Some(15)) => Number::I8,
            (INT32, Some(16)) => Number::I16,
            (INT32, _) if !self.is_annotated => Number::I32,
            (INT64, _) if !self.is_annotated => Number::I64,
            _ => return None,
        };
        Some(FieldKind::Numbers(number))
    }
}

impl Leaf {
    fn of(element: &Element, nth: usize, outer: u32) -> Self {
        let max_definition = outer + u32::from(element.repetition == 1);
        Self { nth, physical: element.physical.unwrap_or(-1), max_definition }
    }
}

impl Footer {
    pub(super) fn read(file: &mut Window<'_>) -> Result<Self, DatasetError> {
        let len = file.len();
        if len < 12 || file.bytes(0, 4)? != MAGIC && file.bytes(0, 4)? != ENCRYPTED {
            return Err(file.broken(0, "not a Parquet file, or not all of it"));
        }
        let tail = file.bytes(len - 4, 4)?;
        if tail == ENCRYPTED {
            return Err(file.broken(0, "the file is encrypted; write it again without"));
        }
        if tail != MAGIC {
            let why = "the file does not end as a Parquet file does: it is cut off; fetch it again";
            return Err(file.broken(len, why));
        }
        let footer_len = u64::from(file.u32(len - 8)?);
        let start = (len - 8).checked_sub(footer_len).filter(|start| *start >= 4);
        let Some(start) = start else { return Err(file.broken(len - 8, DAMAGED)) };
        let range = start..len - 8;
        let mut footer = Self {
            columns: Vec::new(),
            leaves: Vec::new(),
            fields: Vec::new(),
            features: Features::default(),
            n_rows: 0,
            groups: None,
            end: start,
        };
        let mut values = compact(file, range.clone());
        let mut last = 0;
        while let Some(field) = values.field(&mut last)? {
            match field {
                (2, LIST) => footer.schema(&mut values)?,
                (3, I64) => footer.n_rows = values.count()?,
                (4, LIST) => {
                    let at = values.at;
                    values.skip(LIST)?;
                    footer.groups = Some(at..values.at);
                }
                (5, LIST) => footer.metadata(&mut values)?,
                (_, kind) => values.skip(kind)?,
            }
        }
        Ok(footer)
    }

    fn schema(&mut self, values: &mut Compact<'_, '_>) -> Result<(), DatasetError> {
        let (n, kind) = values.list()?;
        if kind != STRUCT || n == 0 || n > MAX_COLUMNS {
            return Err(values.broken());
        }
        let elements: Result<Vec<_>, _> = (0..n).map(|_| element(values)).collect();
        let elements = elements?;
        let mut walk = Walk { elements: &elements, at: 1, n_leaves: 0 };
        for _ in 0..elements[0].n_children {
            let element = walk.elements.get(walk.at);
            let kind = element.and_then(Element::field_kind);
            let nth = walk.n_leaves;
            let (column, leaf) = walk.column().ok_or_else(|| values.broken())?;
            let own = element.map(|element| Leaf::of(element, nth, 0));
            self.fields.push(match column.holds {
                Holds::ImageStruct => leaf.clone().map(|leaf| (FieldKind::Bytes, leaf)),
                Holds::Bytes | Holds::Int | Holds::Other => kind.zip(own),
            });
            self.columns.push(column);
            self.leaves.push(leaf);
        }
        Ok(())
    }

    fn metadata(&mut self, values: &mut Compact<'_, '_>) -> Result<(), DatasetError> {
        let (n, kind) = values.list()?;
        if kind != STRUCT && n > 0 {
            return Err(values.broken());
        }
        for _ in 0..n {
            let (mut key, mut value) = (String::new(), 0..0);
            let mut last = 0;
            while let Some(field) = values.field(&mut last)? {
                match field {
                    (1, BINARY) => key = values.text()?,
                    (2, BINARY) => value = values.binary()?,
                    (_, kind) => values.skip(kind)?,
                }
            }
            let len = value.end - value.start;
            if key == "huggingface" && len <= MAX_DESCRIPTION_BYTES {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                let text = values.file.bytes(value.start, len)?;
                self.features = Features::of_metadata(text)
                    .map_err(|why| values.file.broken(value.start, why))?;
            }
        }
        Ok(())
    }

    /// Calls `each` with every row group in turn.
    pub(super) fn groups(
        &self,
        file: &mut Window<'_>,
        wanted: Wanted<'_>,
        mut each: impl FnMut(Group) -> Result<(), DatasetError>,
    ) -> Result<(), DatasetError> {
        let Some(range) = self.groups.clone() else {
            return Err(file.broken(self.end, DAMAGED));
        };
        let mut values = compact(file, range);
        let mut n_rows = 0;
        let mut front = vec![0; 2 + wanted.fields.len()];
        for _ in 0..values.list()?.0 {
            let at = values.at;
            let group = self.group(&mut values, wanted)?;
            // Chunks that overlap would let a small file state any number of rows.
            let chunks = [Some(&group.image), group.label.as_ref()];
            let chunks = chunks.into_iter().chain(group.fields.iter().map(Some));
            for (front, chunk) in front.iter_mut().zip(chunks) {
                let Some(chunk) = chunk.filter(|it| it.n_values > 0) else { continue };
                if chunk.range.start < *front {
                    let why = "row groups overlap, or are not in the order of the file";
                    return Err(values.file.broken(at, why));
                }
                *front = chunk.range.end;
            }
            n_rows += group.n_rows;
            each(group)?;
        }
        match n_rows == self.n_rows {
            true => Ok(()),
            false => Err(values.broken()),
        }
    }

    fn group(
        &self,
        values: &mut Compact<'_, '_>,
        Wanted { image, label, fields: asked }: Wanted<'_>,
    ) -> Result<Group, DatasetError> {
        let (mut images, mut labels, mut n_rows) = (None, None, 0);
        let mut fields = vec![None; asked.len()];
        let mut last = 0;
        while let Some(field) = values.field(&mut last)? {
            match field {
                (1, LIST) => {
                    for nth in 0..values.list()?.0 {
                        let is = |leaf: &Leaf| leaf.nth as u64 == nth;
                        let is_label = label.is_some_and(is);
                        if !is(image) && !is_label && !asked.iter().any(|it| is(&it.leaf))
                        {
                            values.skip(STRUCT)?;
                            continue;
                        }
                        let chunk = self.chunk(values)?;
                        for (field, asked) in fields.iter_mut().zip(asked) {
                            if is(&asked.leaf) {
                                *field = Some(chunk.clone());
                            }
                        }
                        match is_label {
                            true => labels = Some(chunk),
                            false if is(image) => images = Some(chunk),
                            false => {}
                        }
                    }
                }
                (3, I64) => n_rows = values.count()?,
                (_, kind) => values.skip(kind)?,
            }
        }
        let fields: Option<Vec<_>> = fields.into_iter().collect();
        match (images, labels, fields) {
            (Some(image), labels, Some(fields))
                if labels.is_some() == label.is_some() =>
            {
                Ok(Group { n_rows, image, label: labels, fields })
            }
            _ => Err(values.broken()),
        }
    }

    /// A `ColumnChunk`, of which the file states where its pages are.
    fn chunk(&self, values: &mut Compact<'_, '_>) -> Result<Chunk, DatasetError> {
        let mut chunk = None;
        let mut last = 0;
        while let Some(field) = values.field(&mut last)? {
            match field {
                (1, BINARY) => {
                    let why = "a column is in another file; write the data into one file";
                    return Err(values.file.broken(values.at, why));
                }
                (3, STRUCT) => chunk = Some(self.column_metadata(values)?),
                (_, kind) => values.skip(kind)?,
            }
        }
        chunk.ok_or_else(|| values.broken())
    }

    fn column_metadata(
        &self,
        values: &mut Compact<'_, '_>,
    ) -> Result<Chunk, DatasetError> {
        let (mut codec, mut n_values, mut len) = (0, 0, 0);
        let (mut data, mut dictionary) = (0, 0);
        let mut last = 0;
        while let Some(field) = values.field(&mut last)? {
            match field {
                (4, I32) => codec = values.int()?,
                (5, I64) => n_values = values.count()?,
                (7, I64) => len = values.count()?,
                (9, I64) => data = values.count()?,
                (11, I64) => dictionary = values.count()?,
                (_, kind) => values.skip(kind)?,
            }
        }
        // An empty column is nowhere.
        if n_values == 0 {
            let range = self.end..self.end;
            return Ok(Chunk { range, codec, n_values, has_dictionary: false });
        }
        let start = if dictionary > 0 { data.min(dictionary) } else { data };
        let end = start.checked_add(len).filter(|end| *end <= self.end);
        let Some(end) = end.filter(|_| start >= 4) else {
            let why = "a column reaches beyond the rows of the file; fetch it again";
            return Err(values.file.broken(values.at, why));
        };
        let has_dictionary = dictionary > 0;
        Ok(Chunk { range: start..end, codec, n_values, has_dictionary })
    }
}

fn element(values: &mut Compact<'_, '_>) -> Result<Element, DatasetError> {
    let mut element = Element::default();
    let mut last = 0;
    while let Some(field) = values.field(&mut last)? {
        match field {
            (1, I32) => element.physical = Some(values.int()?),
            (3, I32) => element.repetition = values.int()?,
            (4, BINARY) => element.name = values.text()?,
            (5, I32) => element.n_children = values.count()?,
            // Only numbers of kinds that matter here: dates and decimals are no classes.
            (6, I32) => {
                let converted = values.int()?;
                element.is_annotated = !(11..=18).contains(&converted);
                element.converted = Some(converted);
            }
            (10, STRUCT) => {
                element.logical = logical(values)?;
                element.is_annotated |= element.logical != Some(LOGICAL_INT);
            }
            (_, kind) => values.skip(kind)?,
        }
    }
    Ok(element)
}

/// The members of the union `LogicalType` that are told apart.
const LOGICAL_TEXT: i64 = 1;
const LOGICAL_INT: i64 = 10;

/// Which `LogicalType` it is.
fn logical(values: &mut Compact<'_, '_>) -> Result<Option<i64>, DatasetError> {
    let (mut which, mut last) = (None, 0);
    while let Some((id, kind)) = values.field(&mut last)? {
        which = Some(id);
        values.skip(kind)?;
    }
    Ok(which)
}

/// Goes through the schema's elements.
struct Walk<'e> {
    elements: &'e [Element],
    at: usize,
    n_leaves: usize,
}

impl Walk<'_> {
    /// The next column, and the values in it that are an image or a class.
    fn column(&mut self) -> Option<(Column, Option<Leaf>)> {
        let root = self.elements.get(self.at)?;
        let name = root.name.clone();
        if root.n_children == 0 {
            let (holds, leaf) = match (self.leaf(0)?, root.is_annotated) {
                (leaf @ Leaf { physical: BYTE_ARRAY, .. }, false) => {
                    (Holds::Bytes, Some(leaf))
                }
                (leaf @ Leaf { physical: INT32 | INT64, .. }, false) => {
                    (Holds::Int, Some(leaf))
                }
                _ => (Holds::Other, None),
            };
            let is_repeated = root.repetition == 2;
            return Some(match is_repeated {
                true => (Column { name, holds: Holds::Other }, None),
                false => (Column { name, holds }, leaf),
            });
        }
        let outer = u32::from(root.repetition == 1);
        let is_repeated = root.repetition == 2;
        let n_children = root.n_children;
        self.at += 1;
        let mut image = None;
        for _ in 0..n_children {
            let child = self.elements.get(self.at)?;
            let is_bytes = child.name == "bytes" && child.repetition != 2;
            if is_bytes && child.n_children == 0 && !is_repeated {
                let leaf = self.leaf(outer)?;
                image = image.or(Some(leaf).filter(|leaf| leaf.physical == BYTE_ARRAY));
            } else {
                self.skip()?;
            }
        }
        let holds = if image.is_some() { Holds::ImageStruct } else { Holds::Other };
        Some((Column { name, holds }, image))
    }

    /// The element here, which has no children; so many levels above it may be absent.
    fn leaf(&mut self, outer: u32) -> Option<Leaf> {
        let element = self.elements.get(self.at)?;
        let nth = self.n_leaves;
        self.at += 1;
        self.n_leaves += 1;
        Some(Leaf::of(element, nth, outer))
    }

    /// Goes past the element here and those inside it.
    fn skip(&mut self) -> Option<()> {
        let mut n_left = 1_u64;
        while n_left > 0 {
            let element = self.elements.get(self.at)?;
            self.at += 1;
            self.n_leaves += usize::from(element.n_children == 0);
            n_left = n_left.checked_add(element.n_children)? - 1;
        }
        Some(())
    }
}
