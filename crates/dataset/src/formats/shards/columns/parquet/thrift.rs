//! Thrift's compact protocol, as far as Parquet's footer and page headers need it.
//!
//! Numbers have seven bits to a byte, those with a sign in zigzag; a field begins with the distance of its
//! number from the last one and its kind (Thrift compact protocol, "Struct encoding"). What is not wanted is
//! skipped, strings by their length.

use std::ops::Range;

use crate::error::DatasetError;
use crate::formats::shards::Window;

/// Kinds of values.
pub(super) const FALSE: u8 = 2;
pub(super) const TRUE: u8 = 1;
pub(super) const I32: u8 = 5;
pub(super) const I64: u8 = 6;
pub(super) const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;

/// Structures inside structures: Parquet's have six levels.
const MAX_DEPTH: u32 = 16;

/// Values from a place of a file on.
pub(super) struct Compact<'w, 'a> {
    pub(super) file: &'w mut Window<'a>,
    pub(super) at: u64,
    pub(super) end: u64,
    /// What is said of bytes that are no such values.
    pub(super) damaged: &'static str,
}

impl Compact<'_, '_> {
    pub(super) fn broken(&self) -> DatasetError {
        self.file.broken(self.at, self.damaged)
    }

    fn byte(&mut self) -> Result<u8, DatasetError> {
        if self.at >= self.end {
            return Err(self.broken());
        }
        let byte = self.file.bytes(self.at, 1)?[0];
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<u64, DatasetError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.broken())
    }

    pub(super) fn int(&mut self) -> Result<i64, DatasetError> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// A number that counts something.
    pub(super) fn count(&mut self) -> Result<u64, DatasetError> {
        let number = self.int()?;
        u64::try_from(number).map_err(|_| self.broken())
    }

    /// Where the bytes of a string lie.
    pub(super) fn binary(&mut self) -> Result<Range<u64>, DatasetError> {
        let len = self.varint()?;
        let start = self.at;
        self.move_on(len)?;
        Ok(start..self.at)
    }

    fn move_on(&mut self, len: u64) -> Result<(), DatasetError> {
        let next = self.at.checked_add(len).filter(|next| *next <= self.end);
        self.at = next.ok_or_else(|| self.broken())?;
        Ok(())
    }

    /// The text of a string, or what it begins with.
    pub(super) fn text(&mut self) -> Result<String, DatasetError> {
        const MOST: u64 = 256;
        let range = self.binary()?;
        let len = usize::try_from((range.end - range.start).min(MOST)).unwrap_or(0);
        let bytes = self.file.bytes(range.start, len)?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// The number of a structure's next field and its kind; `last` is the number of the field before.
    pub(super) fn field(
        &mut self,
        last: &mut i64,
    ) -> Result<Option<(i64, u8)>, DatasetError> {
        let head = self.byte()?;
        if head == 0 {
            return Ok(None);
        }
        *last = match head >> 4 {
            0 => self.int()?,
            distance => last.saturating_add(i64::from(distance)),
        };
        Ok(Some((*last, head & 0xf)))
    }

    /// How many elements a list has, and their kind.
    pub(super) fn list(&mut self) -> Result<(u64, u8), DatasetError> {
        let head = self.byte()?;
        let len = match head >> 4 {
            15 => self.varint()?,
            len => u64::from(len),
        };
        // Each has a byte at least.
        match len <= self.end - self.at {
            true => Ok((len, head & 0xf)),
            false => Err(self.broken()),
        }
    }

    /// Goes past a field's value.
    pub(super) fn skip(&mut self, kind: u8) -> Result<(), DatasetError> {
        match kind {
            TRUE | FALSE => Ok(()),
            _ => self.skip_value(kind, 0),
        }
    }

    fn skip_value(&mut self, kind: u8, depth: u32) -> Result<(), DatasetError> {
        if depth > MAX_DEPTH {
            return Err(self.broken());
        }
        match kind {
            // As elements; as fields they are in their kind. A number of eight bits is one byte, too.
            TRUE | FALSE | 3 => self.move_on(1),
            4 | I32 | I64 => self.varint().map(|_| ()),
            7 => self.move_on(8),
            BINARY => self.binary().map(|_| ()),
            LIST | 10 => {
                let (n, kind) = self.list()?;
                (0..n).try_for_each(|_| self.skip_value(kind, depth + 1))
            }
            STRUCT => {
                let mut last = 0;
                while let Some((_, kind)) = self.field(&mut last)? {
                    if kind != TRUE && kind != FALSE {
                        self.skip_value(kind, depth + 1)?;
                    }
                }
                Ok(())
            }
            _ => Err(self.broken()),
        }
    }
}
