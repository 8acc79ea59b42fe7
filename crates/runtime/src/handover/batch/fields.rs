//! One further field of a batch's rows, and whatever else only some batches have.

use std::ops::Deref;

use bothends_dataset::{Field, FieldKind, FieldType};

/// A field of a batch: the values of its rows, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldColumn {
    field_type: FieldType,
    bytes: Vec<u8>,
    /// Where each row's value ends.
    ends: Vec<u64>,
}

/// What only some batches have.
#[derive(Debug, Clone)]
pub(crate) struct Further {
    /// The fields that were asked for.
    pub(crate) columns: Vec<FieldColumn>,
    /// Where each row begins and the last one ends, where rows are of their own length.
    pub(crate) starts: Option<Vec<usize>>,
}

impl Further {
    /// `None` without any of it.
    pub(crate) fn of(
        columns: Vec<FieldColumn>,
        starts: Option<Vec<usize>>,
    ) -> Option<Box<Self>> {
        let is_any = !columns.is_empty() || starts.is_some();
        is_any.then(|| Box::new(Self { columns, starts }))
    }
}

impl Deref for FieldColumn {
    type Target = FieldType;

    fn deref(&self) -> &Self::Target {
        &self.field_type
    }
}

impl FieldColumn {
    /// No row yet.
    pub(crate) fn new(field: &Field) -> Self {
        Self { field_type: FieldType::clone(field), bytes: Vec::new(), ends: Vec::new() }
    }

    /// The next row's value.
    pub(crate) fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len() as u64);
    }

    /// The next row has none: zeros where every value has the same shape, else nothing.
    pub(crate) fn push_none(&mut self) {
        self.bytes.resize(self.bytes.len() + self.width().unwrap_or(0), 0);
        self.ends.push(self.bytes.len() as u64);
    }

    /// All rows' values, one after the other.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where the value of each row ends among [`Self::bytes`].
    #[must_use]
    pub fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// The value of row `i`; empty when there is no such row, and mostly in a masked row, which has zeros where
    /// every value has the same shape.
    #[must_use]
    pub fn value(&self, i: usize) -> &[u8] {
        let end = |i: usize| self.ends.get(i).and_then(|end| usize::try_from(*end).ok());
        let start = i.checked_sub(1).map_or(Some(0), end);
        start
            .zip(end(i))
            .and_then(|(start, end)| self.bytes.get(start..end))
            .unwrap_or(&[])
    }

    /// Bytes of every value, where they have a shape.
    fn width(&self) -> Option<usize> {
        let FieldKind::Numbers(number) = self.kind() else { return None };
        let sides = self.shape()?.iter().map(|side| *side as usize);
        Some(sides.fold(number.size(), usize::saturating_mul))
    }

    /// That a value has the bytes and the form that the field says.
    ///
    /// # Errors
    /// What it has not.
    pub(crate) fn check(&self, value: &[u8]) -> Result<(), &'static str> {
        match self.kind() {
            FieldKind::Bytes => Ok(()),
            FieldKind::Text if std::str::from_utf8(value).is_ok() => Ok(()),
            FieldKind::Text => {
                Err("is not text in UTF-8; ask for it with `:bytes` after its name")
            }
            FieldKind::Numbers(number) => {
                let is_whole = value.len().is_multiple_of(number.size());
                match is_whole && self.width().is_none_or(|width| width == value.len()) {
                    true => Ok(()),
                    false => Err("has a length that does not match its type and shape"),
                }
            }
        }
    }

    /// Without these rows.
    pub(crate) fn without(&self, gone: &[usize]) -> Self {
        let mut rest = Self { bytes: Vec::new(), ends: Vec::new(), ..self.clone() };
        for row in (0..self.ends.len()).filter(|row| !gone.contains(row)) {
            rest.push(self.value(row));
        }
        rest
    }
}
