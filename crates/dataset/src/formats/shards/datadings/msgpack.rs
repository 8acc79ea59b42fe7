//! MessagePack, as far as a walk needs it: what a value is, where its bytes lie, where the next one begins.
//!
//! Nothing is built from it, and nothing is unpickled. Numbers from the file are held against its length before
//! they are used.

use super::super::Window;
use crate::error::DatasetError;

/// What a value is. Strings and bytes are told by where they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// A whole number from 0.
    Number(u64),
    Bool(bool),
    Text {
        at: u64,
        len: u64,
    },
    Bytes {
        at: u64,
        len: u64,
    },
    /// So many values follow.
    Array(u64),
    /// So many pairs of values follow.
    Map(u64),
    /// Nil, a negative number, a float or an extension.
    Other,
}

impl Value {
    /// How many values belong to it and follow its head.
    fn n_inside(self) -> u64 {
        match self {
            Self::Array(n) => n,
            Self::Map(n) => n.saturating_mul(2),
            Self::Number(_)
            | Self::Bool(_)
            | Self::Text { .. }
            | Self::Bytes { .. }
            | Self::Other => 0,
        }
    }
}

const DAMAGED: &str = "not a MessagePack value, or a damaged one; fetch the file again";

/// The value at `at`, and where its head and bytes end.
pub(super) fn value(
    shard: &mut Window<'_>,
    at: u64,
) -> Result<(Value, u64), DatasetError> {
    let kind = shard.bytes(at, 1)?[0];
    let after = at + 1;
    let sized = |shard: &mut Window<'_>, n: usize| -> Result<(u64, u64), DatasetError> {
        Ok((number(shard.bytes(after, n)?), after + n as u64))
    };
    let (value, next) = match kind {
        0x00..=0x7f => (Value::Number(kind.into()), after),
        0x80..=0x8f => (Value::Map((kind & 0x0f).into()), after),
        0x90..=0x9f => (Value::Array((kind & 0x0f).into()), after),
        0xa0..=0xbf => (Value::Text { at: after, len: (kind & 0x1f).into() }, after),
        0xc2 | 0xc3 => (Value::Bool(kind == 0xc3), after),
        0xc0 | 0xe0..=0xff => (Value::Other, after),
        0xc4..=0xc6 => {
            let (len, at) = sized(shard, 1 << (kind - 0xc4))?;
            (Value::Bytes { at, len }, at)
        }
        0xd9..=0xdb => {
            let (len, at) = sized(shard, 1 << (kind - 0xd9))?;
            (Value::Text { at, len }, at)
        }
        0xcc..=0xcf => {
            let (n, next) = sized(shard, 1 << (kind - 0xcc))?;
            (Value::Number(n), next)
        }
        0xd0..=0xd3 => {
            let (n, next) = sized(shard, 1 << (kind - 0xd0))?;
            let sign = 8 * (1_u64 << (kind - 0xd0)) - 1;
            let is_negative = n >> sign == 1;
            (if is_negative { Value::Other } else { Value::Number(n) }, next)
        }
        0xca => (Value::Other, after + 4),
        0xcb => (Value::Other, after + 8),
        // Extensions: a type and so many bytes.
        0xd4..=0xd8 => (Value::Other, after + 1 + (1 << (kind - 0xd4))),
        0xc7..=0xc9 => {
            let (len, next) = sized(shard, 1 << (kind - 0xc7))?;
            (Value::Other, next.saturating_add(1).saturating_add(len))
        }
        0xdc | 0xdd => {
            let (n, next) = sized(shard, 2 << (kind - 0xdc))?;
            (Value::Array(n), next)
        }
        0xde | 0xdf => {
            let (n, next) = sized(shard, 2 << (kind - 0xde))?;
            (Value::Map(n), next)
        }
        0xc1 => return Err(shard.broken(at, DAMAGED)),
    };
    let next = match value {
        Value::Text { len, .. } | Value::Bytes { len, .. } => next.checked_add(len),
        Value::Number(_)
        | Value::Bool(_)
        | Value::Array(_)
        | Value::Map(_)
        | Value::Other => Some(next),
    };
    // A value has at least one byte.
    let fits = |next: &u64| {
        *next <= shard.len() && value.n_inside() <= shard.len().saturating_sub(*next)
    };
    let next = next.filter(fits).ok_or_else(|| {
        shard.broken(
            at,
            "a value reaches beyond the end of the file; fetch the file again",
        )
    })?;
    Ok((value, next))
}

/// Where the value at `at` ends, with everything in it.
pub(super) fn skip(shard: &mut Window<'_>, mut at: u64) -> Result<u64, DatasetError> {
    let mut left = 1_u64;
    while left > 0 {
        let (value, next) = value(shard, at)?;
        left = (left - 1).saturating_add(value.n_inside());
        at = next;
    }
    Ok(at)
}

/// Big-endian.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, &byte| (sum << 8) | u64::from(byte))
}
