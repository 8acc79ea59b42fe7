//! The further fields of samples: labels of any type, captions, boxes, masks, whatever else a data set keeps
//! next to each image.
//!
//! The table has one image and one class per sample, and devices see nothing else. What is here is kept only
//! for fields that were asked for by name: small values are stored as they are, and others as extents, which
//! are read when a batch is made. `fields/builder.rs` is what formats fill. A field does not say what its
//! values mean; whoever asked for it knows.

mod builder;
mod column;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bothends_core::sample::{Extent, FileIdx};

use crate::error::DatasetError;
use crate::table::Table;

pub use builder::FieldsBuilder;
pub(crate) use builder::{BYTES, Kept, TEXT, scalar};
use column::Places;

/// The type of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Number {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    F32,
    F64,
}

impl Number {
    /// Every type with its name, which is NumPy's.
    pub const NAMES: [(&'static str, Self); 12] = [
        ("bool", Self::Bool),
        ("uint8", Self::U8),
        ("int8", Self::I8),
        ("uint16", Self::U16),
        ("int16", Self::I16),
        ("uint32", Self::U32),
        ("int32", Self::I32),
        ("uint64", Self::U64),
        ("int64", Self::I64),
        ("float16", Self::F16),
        ("float32", Self::F32),
        ("float64", Self::F64),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, number)| *number == self)
            .map_or("", |(name, _)| name)
    }

    /// The type of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
    }

    /// Bytes of one.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

/// What the values of a field are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldKind {
    /// Bytes that only the user's code looks into.
    Bytes,
    /// Text in UTF-8.
    Text,
    /// One number or several, little-endian.
    Numbers(Number),
}

impl fmt::Display for FieldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::Text => "text",
            Self::Numbers(number) => number.name(),
        })
    }
}

/// A field that samples of a data set have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedField {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub kind: FieldKind,
}

/// Which fields are looked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Ask {
    /// None: the image and its class are all that is needed.
    #[default]
    Nothing,
    /// Those with these names. `name:text` and `name:bytes` say what the bytes of a field are taken for.
    Fields(Vec<String>),
    /// The names and types of all that there are, without their values.
    Names,
}

/// Where the value of a sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldPlace<'a> {
    /// Here.
    Value(&'a [u8]),
    /// In a file of the table.
    Extent(Extent),
}

impl FieldPlace<'_> {
    /// Bytes of the value.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Value(bytes) => bytes.len(),
            Self::Extent(extent) => extent.len as usize,
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a field is called, and what its values are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldType {
    name: Arc<str>,
    kind: FieldKind,
    shape: Option<Arc<[u32]>>,
}

/// One field of all samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    field_type: FieldType,
    parts: Vec<Part>,
}

/// The values of one data set. Some of a mix may have them in memory and others in their files, which
/// [`Places`] does not tell apart.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    /// The number of its first row.
    start: usize,
    places: Places,
}

impl FieldType {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its values are. Numbers are little-endian.
    #[must_use]
    pub fn kind(&self) -> FieldKind {
        self.kind
    }

    /// The shape that the value of every sample of the data set has, `[]` for one number: then the values of
    /// all rows are one array. `None` where they differ in length, and for bytes and text.
    #[must_use]
    pub fn shape(&self) -> Option<&[u32]> {
        self.shape.as_deref()
    }
}

impl Deref for Field {
    type Target = FieldType;

    fn deref(&self) -> &Self::Target {
        &self.field_type
    }
}

impl Field {
    /// Where the value of the record with this number is; an empty value beyond the last.
    #[must_use]
    pub fn place(&self, row: u64) -> FieldPlace<'_> {
        let row = usize::try_from(row).unwrap_or(usize::MAX);
        let part = self.parts.iter().rfind(|part| part.start <= row);
        part.map_or(FieldPlace::Value(&[]), |part| part.places.get(row - part.start))
    }
}

/// The fields that were asked for, in the order in which they were.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fields(Vec<Field>);

impl Fields {
    /// Whether none was asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Field> {
        self.0.iter()
    }

    /// Heap memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let parts = self.0.iter().flat_map(|field| &field.parts);
        parts.map(|part| part.places.memory_bytes()).sum()
    }

    /// The fields of data sets whose tables are joined in the same order, of as many rows as these have.
    ///
    /// # Errors
    /// [`DatasetError::Join`] where a field is not the same in all of them.
    pub fn joined(parts: &[(&str, &Self, &Table)]) -> Result<Self, DatasetError> {
        let Some(((_, first, _), others)) = parts.split_first() else {
            return Ok(Self::default());
        };
        for (name, fields, _) in others {
            let is_same =
                |(a, b): (&Field, &Field)| (&a.name, a.kind) == (&b.name, b.kind);
            let are_same = fields.0.len() == first.0.len()
                && first.iter().zip(fields.iter()).all(is_same);
            if !are_same {
                let why = "has a field of a different type from the first data set's; leave the \
                field out, or write it with that type";
                return Err(DatasetError::Join { name: (*name).to_owned(), why });
            }
        }
        let mut joined = Vec::with_capacity(first.0.len());
        for (nth, field) in first.iter().enumerate() {
            let (mut n_files, mut start) = (0, 0);
            let mut shape = field.shape.clone();
            let mut joined_parts = Vec::with_capacity(parts.len());
            for (_, fields, table) in parts {
                let mut places = Places::default();
                let part = &fields.0[nth];
                shape = shape.filter(|shape| part.shape.as_ref() == Some(shape));
                for row in 0..table.n_samples() {
                    match part.place(row) {
                        FieldPlace::Value(bytes) => places.value(bytes),
                        FieldPlace::Extent(extent) => {
                            let file = n_files + extent.file.0 as usize;
                            let file = FileIdx(DatasetError::count(file, "files")?);
                            places.extent(Extent { file, ..extent });
                        }
                    }
                }
                n_files += table.n_files();
                places.shrink_to_fit();
                let n_rows = places.len();
                joined_parts.push(Part { start, places });
                start += n_rows;
            }
            let field_type = FieldType { shape, ..field.field_type.clone() };
            joined.push(Field { field_type, parts: joined_parts });
        }
        Ok(Self(joined))
    }
}
