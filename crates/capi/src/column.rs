//! A field of a batch as C sees it.
#![allow(non_camel_case_types, reason = "C's names")]

use std::ffi::{CString, c_char, c_void};
use std::ptr::null;

use bothends_runtime::{FieldColumn, FieldKind, Number};

/// What the values of a field are.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum be_field_kind {
    /// Bytes.
    BE_FIELD_BYTES = 0,
    /// Text in UTF-8, without a zero byte at its end.
    BE_FIELD_TEXT = 1,
    /// Bytes that are 0 or 1.
    BE_FIELD_BOOL = 2,
    /// `uint8_t`.
    BE_FIELD_U8 = 3,
    /// `int8_t`.
    BE_FIELD_I8 = 4,
    /// `uint16_t`.
    BE_FIELD_U16 = 5,
    /// `int16_t`.
    BE_FIELD_I16 = 6,
    /// `uint32_t`.
    BE_FIELD_U32 = 7,
    /// `int32_t`.
    BE_FIELD_I32 = 8,
    /// `uint64_t`.
    BE_FIELD_U64 = 9,
    /// `int64_t`.
    BE_FIELD_I64 = 10,
    /// IEEE 754 binary16.
    BE_FIELD_F16 = 11,
    /// IEEE 754 binary32.
    BE_FIELD_F32 = 12,
    /// IEEE 754 binary64.
    BE_FIELD_F64 = 13,
}

/// A field of a batch: the values of all rows. What it points to is valid until the batch is released.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct be_field {
    /// Its name in UTF-8.
    pub name: *const c_char,
    /// A `be_field_kind`.
    pub kind: i32,
    /// Sides of the array that each row's value is, 0 for one number: the values of all rows are one array then.
    /// -1 if rows have values of different lengths, and for bytes and text.
    pub n_dims: i32,
    /// The sides; NULL if there are none.
    pub dims: *const u32,
    /// All values, one after the other, at a multiple of 8.
    pub data: *const c_void,
    /// Bytes of all values.
    pub len_bytes: usize,
    /// Where each row's value begins in `data`, in bytes, and where the last one ends: rows + 1 numbers. A masked
    /// row has zeros where all values have the same sides, else nothing.
    pub offsets: *const u64,
}

/// A field in memory that C can read.
#[derive(Debug)]
pub(crate) struct Column {
    name: CString,
    kind: be_field_kind,
    dims: Option<Vec<u32>>,
    /// Numbers have to be aligned.
    words: Vec<u64>,
    len_bytes: usize,
    offsets: Vec<u64>,
}

impl Column {
    pub(crate) fn new(field: &FieldColumn) -> Self {
        let words = field.bytes().chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        });
        let name = field.name();
        // A name with a zero byte ends there for C.
        let name = &name[..name.find('\0').unwrap_or(name.len())];
        Self {
            name: CString::new(name).unwrap_or_default(),
            kind: kind(field.kind()),
            dims: field.shape().map(<[u32]>::to_vec),
            words: words.collect(),
            len_bytes: field.bytes().len(),
            offsets: [0].into_iter().chain(field.ends().iter().copied()).collect(),
        }
    }

    pub(crate) fn shown(&self) -> be_field {
        let n_dims = self.dims.as_ref().map(|dims| i32::try_from(dims.len()));
        let dims = self.dims.as_ref().filter(|dims| !dims.is_empty());
        be_field {
            name: self.name.as_ptr(),
            kind: self.kind as i32,
            n_dims: n_dims.map_or(-1, |n| n.unwrap_or(i32::MAX)),
            dims: dims.map_or(null(), |dims| dims.as_ptr()),
            data: self.words.as_ptr().cast(),
            len_bytes: self.len_bytes,
            offsets: self.offsets.as_ptr(),
        }
    }
}

fn kind(kind: FieldKind) -> be_field_kind {
    match kind {
        FieldKind::Bytes => be_field_kind::BE_FIELD_BYTES,
        FieldKind::Text => be_field_kind::BE_FIELD_TEXT,
        FieldKind::Numbers(number) => match number {
            Number::Bool => be_field_kind::BE_FIELD_BOOL,
            Number::U8 => be_field_kind::BE_FIELD_U8,
            Number::I8 => be_field_kind::BE_FIELD_I8,
            Number::U16 => be_field_kind::BE_FIELD_U16,
            Number::I16 => be_field_kind::BE_FIELD_I16,
            Number::U32 => be_field_kind::BE_FIELD_U32,
            Number::I32 => be_field_kind::BE_FIELD_I32,
            Number::U64 => be_field_kind::BE_FIELD_U64,
            Number::I64 => be_field_kind::BE_FIELD_I64,
            Number::F16 => be_field_kind::BE_FIELD_F16,
            Number::F32 => be_field_kind::BE_FIELD_F32,
            Number::F64 => be_field_kind::BE_FIELD_F64,
        },
    }
}
