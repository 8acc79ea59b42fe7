//! Unpacking on x86. AVX-512 takes all values of a block at once; on AVX2 it is the scalar
//! loop, compiled for a processor that shifts and counts bits in one instruction.
#![allow(unsafe_code, reason = "calls code compiled for a processor known to be there")]

use std::arch::x86_64::{
    __m512i, _mm512_and_si512, _mm512_castsi512_si256, _mm512_cmpgt_epi16_mask,
    _mm512_cmpneq_epi16_mask, _mm512_cvtepi8_epi16, _mm512_cvtepi16_epi8,
    _mm512_extracti64x4_epi64, _mm512_mask_add_epi8, _mm512_mask_mov_epi64,
    _mm512_mask_set1_epi8, _mm512_mask_set1_epi16, _mm512_mask_sub_epi16,
    _mm512_maskz_compress_epi16, _mm512_maskz_expand_epi8, _mm512_maskz_mov_epi16,
    _mm512_max_epi16, _mm512_min_epi16, _mm512_movepi8_mask,
    _mm512_multishift_epi64_epi8, _mm512_permutex2var_epi16, _mm512_permutexvar_epi8,
    _mm512_reduce_or_epi32, _mm512_set1_epi8, _mm512_set1_epi16, _mm512_setzero_si512,
    _mm512_srai_epi16, _mm512_sub_epi8, _mm512_test_epi16_mask, _mm512_xor_si512,
};
use std::ops::Range;

use super::{
    Block, Broken, Header, LARGEST, Numbers, PackedRow, WINDOW, exceptions, natural,
    read, unpack_with, write_with,
};
use crate::kernels::{Avx2, Avx512};
use crate::vectors::{load_512, store_256, store_512};

/// The scalar loop with BMI2.
pub(super) fn unpack_row_avx2(
    _: Avx2,
    row: PackedRow<'_>,
    wanted: Range<usize>,
    out: &mut [Block],
) -> Result<(), Broken> {
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn compiled(
        row: PackedRow<'_>,
        wanted: Range<usize>,
        out: &mut [Block],
    ) -> Result<(), Broken> {
        unpack_with(row, wanted, out, read)
    }
    // SAFETY: an `Avx2` is only made on a processor that has these instructions.
    unsafe { compiled(row, wanted, out) }
}

/// All values of a block at once.
pub(super) fn unpack_row_avx512(
    _: Avx512,
    row: PackedRow<'_>,
    wanted: Range<usize>,
    out: &mut [Block],
) -> Result<(), Broken> {
    #[target_feature(
        enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,lzcnt,popcnt"
    )]
    fn compiled(
        row: PackedRow<'_>,
        wanted: Range<usize>,
        out: &mut [Block],
    ) -> Result<(), Broken> {
        unpack_with(row, wanted, out, |window, block| read_at_once(window, block))
    }
    // SAFETY: an `Avx512` is only made on a processor that has these instructions.
    unsafe { compiled(row, wanted, out) }
}

/// The numbers of a block at once.
pub(super) fn write_row_avx512(
    _: Avx512,
    blocks: &[Block],
    out: &mut Vec<u8>,
) -> Option<()> {
    #[target_feature(
        enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,lzcnt,popcnt"
    )]
    fn compiled(blocks: &[Block], out: &mut Vec<u8>) -> Option<()> {
        write_with(blocks, out, |block| numbers_at_once(block))
    }
    // SAFETY: an `Avx512` is only made on a processor that has these instructions.
    unsafe { compiled(blocks, out) }
}

/// For each coefficient in the order of sending its natural place.
const NATURAL: [[i16; 32]; 2] = natural_places();

const fn natural_places() -> [[i16; 32]; 2] {
    let mut places = [[0; 32]; 2];
    let mut number = 0;
    while number < 64 {
        places[number / 32][number % 32] = natural(number) as u8 as i16;
        number += 1;
    }
    places
}

/// Coefficients in the order of sending; those that are not zero moved together; less one
/// where they are positive.
#[target_feature(
    enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,lzcnt,popcnt"
)]
#[inline]
fn numbers_at_once(block: &Block) -> Numbers {
    let (above, below) = block.split_at(32);
    let above = load_512::<i16, 32>(above.try_into().expect("half a block"));
    let below = load_512::<i16, 32>(below.try_into().expect("half a block"));
    let sent = NATURAL.map(|places| {
        _mm512_permutex2var_epi16(above, load_512::<i16, 32>(&places), below)
    });
    let not_zero = sent.map(|values| _mm512_test_epi16_mask(values, values));
    let not_zero = [not_zero[0] & !1, not_zero[1]];
    let n_low = not_zero[0].count_ones() as usize;
    let mut values = [0_i16; 64 + 32];
    let together = [
        _mm512_maskz_compress_epi16(not_zero[0], sent[0]),
        _mm512_maskz_compress_epi16(not_zero[1], sent[1]),
    ];
    store_512::<i16, 32>(values[..32].first_chunk_mut().expect("32 values"), together[0]);
    store_512::<i16, 32>(
        values[n_low..n_low + 32].first_chunk_mut().expect("32 values"),
        together[1],
    );
    let largest = _mm512_set1_epi16(LARGEST);
    let smallest = _mm512_set1_epi16(-LARGEST);
    let mut bytes = [0; 64];
    let mut is_large = false;
    let mut bits = [0; 2];
    for half in 0..2 {
        if half == 1 && n_low + not_zero[1].count_ones() as usize <= 32 {
            break;
        }
        let values = load_512::<i16, 32>(
            values[32 * half..32 * half + 32].try_into().expect("32 values"),
        );
        let clamped = _mm512_max_epi16(_mm512_min_epi16(values, largest), smallest);
        is_large |= _mm512_cmpneq_epi16_mask(values, clamped) != 0;
        let is_positive = _mm512_cmpgt_epi16_mask(clamped, _mm512_setzero_si512());
        let numbers =
            _mm512_mask_sub_epi16(clamped, is_positive, clamped, _mm512_set1_epi16(1));
        let magnitudes = _mm512_xor_si512(numbers, _mm512_srai_epi16::<15>(numbers));
        let first = if half == 0 { 0xff } else { 0 };
        bits[0] |= any_bits(_mm512_maskz_mov_epi16(first, magnitudes));
        bits[1] |= any_bits(_mm512_maskz_mov_epi16(!first, magnitudes));
        let packed = _mm512_cvtepi16_epi8(numbers);
        store_256::<u8, 32>(
            bytes[32 * half..32 * half + 32].first_chunk_mut().expect("32 bytes"),
            packed,
        );
    }
    let (groups, _) = bytes.as_chunks::<8>();
    let mask = (u64::from(not_zero[0]) | u64::from(not_zero[1]) << 32) >> 1;
    Numbers {
        mask,
        groups: std::array::from_fn(|nth| u64::from_le_bytes(groups[nth])),
        bits,
        is_large,
    }
}

/// What any of the numbers, which are not negative, has set.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn any_bits(magnitudes: __m512i) -> i16 {
    let both = _mm512_reduce_or_epi32(magnitudes);
    (both | both >> 16) as i16
}

/// A byte for each value of a block.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Bytes([u8; 64]);

/// For each width of the second values: where the eight bytes lie that hold the eight values
/// of a group. Those of the first group begin at byte 0; the others begin behind the first
/// group, whose length is added.
const GROUPS: [Bytes; 9] = groups();

/// For each width: where a value begins in its group, in bits.
const STARTS: [Bytes; 9] = starts();

/// For each width: the bits of a value, and its sign.
const BITS: [u8; 9] = [0, 1, 3, 7, 15, 31, 63, 127, 255];
const SIGN: [u8; 9] = [0, 1, 2, 4, 8, 16, 32, 64, 128];

/// For each natural place its number in zigzag order.
const ZIGZAG: Bytes = zigzag();

const fn groups() -> [Bytes; 9] {
    let mut all = [Bytes([0; 64]); 9];
    let mut width = 0;
    while width < 9 {
        let mut at = 0;
        while at < 64 {
            let (group, byte) = (at / 8, at % 8);
            let start = if group == 0 { 0 } else { (group - 1) * width };
            all[width].0[at] = (start + byte) as u8;
            at += 1;
        }
        width += 1;
    }
    all
}

const fn starts() -> [Bytes; 9] {
    let mut all = [Bytes([0; 64]); 9];
    let mut width = 0;
    while width < 9 {
        let mut at = 0;
        while at < 64 {
            all[width].0[at] = ((at % 8) * width) as u8;
            at += 1;
        }
        width += 1;
    }
    all
}

const fn zigzag() -> Bytes {
    let mut numbers = [0; 64];
    let mut number = 0;
    while number < 64 {
        numbers[natural(number)] = number as u8;
        number += 1;
    }
    Bytes(numbers)
}

/// The bytes of a group that hold its first value are the lowest; a value has at most 8 bits,
/// so it lies in eight bytes with the seven others. Group 0 has the first width, all groups
/// behind it the second.
#[target_feature(
    enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,lzcnt,popcnt"
)]
#[inline]
fn read_at_once(window: &[u8; WINDOW], block: &mut Block) -> Result<usize, Broken> {
    const FIRST_GROUP: u8 = 1;
    const BEHIND: u64 = !0xff;
    let header = Header::read(window)?;
    let [first, others] = header.widths.map(|width| width as usize % 9);
    let packed: &[u8; 64] = window[header.values..].first_chunk().expect("in the window");
    let from = load_512(&GROUPS[others].0);
    let skip = _mm512_set1_epi8(first as i8);
    let from = _mm512_mask_add_epi8(from, BEHIND, from, skip);
    let grouped = _mm512_permutexvar_epi8(from, load_512(packed));
    let starts = load_512(&STARTS[others].0);
    let starts = _mm512_mask_mov_epi64(starts, FIRST_GROUP, load_512(&STARTS[first].0));
    let shifted = _mm512_multishift_epi64_epi8(starts, grouped);
    let of_widths = |table: &[u8; 9]| {
        let others = _mm512_set1_epi8(table[others].cast_signed());
        _mm512_mask_set1_epi8(others, !BEHIND, table[first].cast_signed())
    };
    let sign = of_widths(&SIGN);
    let bits = _mm512_and_si512(shifted, of_widths(&BITS));
    let values = _mm512_sub_epi8(_mm512_xor_si512(bits, sign), sign);
    let is_positive = !_mm512_movepi8_mask(values);
    let one = _mm512_set1_epi8(1);
    let values = _mm512_mask_add_epi8(values, is_positive, values, one);
    let spread = _mm512_maskz_expand_epi8(header.mask << 1, values);
    let spread = _mm512_permutexvar_epi8(load_512(&ZIGZAG.0), spread);
    let low = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(spread));
    let low = _mm512_mask_set1_epi16(low, 1, header.dc);
    let high = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64::<1>(spread));
    let (above, below) = block.split_at_mut(32);
    store_512::<i16, 32>(above.try_into().expect("half a block"), low);
    store_512::<i16, 32>(below.try_into().expect("half a block"), high);
    if header.has_exceptions {
        return exceptions(window, header.end, block);
    }
    Ok(header.end)
}
