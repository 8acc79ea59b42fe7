//! Both passes on x86. Along the rows AVX2 and AVX-512 go about it in their own ways (`avx2`,
//! `avx512`); along the columns the steps are mostly the same (`blend`).
//!
//! A weight of exact numerics has more bits than products take: it comes in parts. The meaning is
//! in `scalar.rs`.

pub(super) mod avx2;
pub(super) mod avx512;
pub(super) mod blend;

/// Bits of the low part of an exact weight.
const LOW_BITS: u32 = 8;

/// The byte of an exact sum in range is in its bits 22 to 29. Four times as much has it in the
/// last byte.
const TO_LAST_BYTE: u32 = 2;

/// The high and the low part of a weight.
#[inline(always)]
fn parts_of(weight: i32) -> [i16; 2] {
    [low_half(weight >> LOW_BITS), low_half(weight & ((1 << LOW_BITS) - 1))]
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
fn low_half(number: i32) -> i16 {
    number as i16
}

#[inline(always)]
fn small(place: usize) -> u32 {
    u32::try_from(place).expect("a place in a row")
}
