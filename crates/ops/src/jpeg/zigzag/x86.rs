//! The order of sending with AVX-512: all coefficients of a block at once, a byte for each.
//! What packs a block and what writes its scan begin with [`sent_at_once`].

use std::arch::x86_64::*;

use super::{Block, PLACES};
use crate::kernels::vectors::load_512;

/// A byte for each coefficient of a block.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Bytes(pub(crate) [u8; 64]);

/// For each coefficient in the order of sending its place.
const FROM: Bytes = Bytes(PLACES);

/// For each place its coefficient's number.
pub(crate) const ZIGZAG: Bytes = {
    let mut numbers = [0; 64];
    let mut number = 0_u8;
    while number < 64 {
        numbers[PLACES[number as usize] as usize] = number;
        number += 1;
    }
    Bytes(numbers)
};

/// The largest magnitude that a byte is trusted with.
const LARGEST: i8 = i8::MAX;

/// The coefficients of a block but DC.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// Those that are not zero, in the order of sending and side by side, a byte of each; of
    /// the large ones -127 or 127. Zeros behind them.
    pub(crate) values: __m512i,
    /// Bit k is set when coefficient number k is not zero.
    pub(crate) not_zero: u64,
    /// Bit p is set when the one at place p is beyond ±127.
    pub(crate) large: u64,
}

/// Coefficients become bytes and come in the order of sending; those that are not zero are
/// moved together. What leads from one step to the next stays in vectors and masks.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2")]
#[inline]
pub(crate) fn sent_at_once(block: &Block) -> Sent {
    let (above, below) = block.split_at(32);
    let above = load_512::<i16, 32>(above.try_into().expect("half a block"));
    let below = load_512::<i16, 32>(below.try_into().expect("half a block"));
    let bytes = [above, below].map(|half| _mm512_cvtsepi16_epi8(half));
    let kept = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(bytes[0]), bytes[1]);
    let sent = _mm512_maskz_permutexvar_epi8(!1, load_512(&FROM.0), kept);
    let not_zero = _mm512_test_epi8_mask(sent, sent);
    let values = _mm512_maskz_compress_epi8(not_zero, sent);
    let smallest = _mm512_set1_epi8(-LARGEST);
    Sent {
        values: _mm512_max_epi8(values, smallest),
        not_zero,
        large: u64::from(large(above) & !1) | u64::from(large(below)) << 32,
    }
}

/// Which of half a block's coefficients are beyond [`LARGEST`].
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn large(half: __m512i) -> u32 {
    let moved = _mm512_add_epi16(half, _mm512_set1_epi16(LARGEST.into()));
    _mm512_cmpgt_epu16_mask(moved, _mm512_set1_epi16(2 * i16::from(LARGEST)))
}
