//! Unpacking on x86. AVX-512 takes all values of a block at once, and puts them where they belong;
//! AVX2 has a file of its own.
#![allow(unsafe_code, reason = "calls code compiled for a processor known to be there")]

mod avx2;

use std::arch::x86_64::*;
use std::ops::Range;

use super::{
    Block, Broken, Header, Numbers, PackedRow, VALUES_ROOM, WINDOW, Written, below,
    exceptions, unpack_with, write_with,
};
use crate::jpeg::zigzag::x86::{Bytes, Sent, ZIGZAG, sent_at_once};
use crate::kernels::compiled::compiled;
use crate::kernels::vectors::{load_512, store_512};
use crate::kernels::{Avx2, Avx512};

/// Defines [`unpack_rows`](super::unpack_rows) for a number of rows, on AVX2 and on AVX-512.
macro_rules! unpack {
    ($n:literal, $avx2:ident, $avx512:ident) => {
        // Thirty-two values of a block at once.
        compiled!("avx2,bmi1,bmi2,lzcnt,popcnt",
            pub(super) fn $avx2(
                _: Avx2,
                rows: [PackedRow<'_>; $n],
                wanted: Range<usize>,
                out: [&mut [Block]; $n],
            ) -> Result<(), Broken> = unpack_with, |window, block| avx2::read_at_once(window, block));

        // All values of a block at once.
        compiled!("avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,lzcnt,popcnt",
            pub(super) fn $avx512(
                _: Avx512,
                rows: [PackedRow<'_>; $n],
                wanted: Range<usize>,
                out: [&mut [Block]; $n],
            ) -> Result<(), Broken> = unpack_with, |window, block| read_at_once(window, block));
    };
}

unpack!(1, unpack_one_avx2, unpack_one_avx512);
unpack!(2, unpack_two_avx2, unpack_two_avx512);

/// The numbers of a block at once.
pub(super) fn write_row_avx512<'a>(
    _: Avx512,
    blocks: impl Iterator<Item = &'a Block>,
    out: &mut Written,
) -> Option<()> {
    #[target_feature(enable = "avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,lzcnt,popcnt")]
    fn compiled<'a>(
        blocks: impl Iterator<Item = &'a Block>,
        out: &mut Written,
    ) -> Option<()> {
        write_with(
            blocks,
            out,
            |block| numbers_at_once(block),
            |numbers, widths, out| press_all(numbers, widths, out),
        )
    }
    // SAFETY: an `Avx512` is only made on a processor that has these instructions.
    unsafe { compiled(blocks, out) }
}

/// A number is a value less one where that is positive.
#[target_feature(enable = "avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn numbers_at_once(block: &Block) -> Numbers {
    let Sent { values, not_zero, large } = sent_at_once(block);
    let one = _mm512_set1_epi8(1);
    let is_positive = _mm512_cmpgt_epi8_mask(values, _mm512_setzero_si512());
    let numbers = _mm512_mask_sub_epi8(values, is_positive, values, one);
    let mut bytes = [0; 64];
    store_512(&mut bytes, numbers);
    // Of both positive and negative numbers; zeros stay after the last one.
    let magnitudes = _mm512_subs_epu8(_mm512_abs_epi8(values), one);
    let first = _mm_cvtsi128_si64(_mm512_castsi512_si128(magnitudes)).cast_unsigned();
    let others = _mm512_maskz_mov_epi64(!1, magnitudes);
    let others = _mm512_reduce_or_epi64(others).cast_unsigned();
    let (groups, _) = bytes.as_chunks::<8>();
    Numbers {
        mask: not_zero >> 1,
        groups: std::array::from_fn(|nth| u64::from_le_bytes(groups[nth])),
        bits: [any_bits(first), any_bits(others)],
        large,
    }
}

/// What any of eight bytes has set.
#[inline(always)]
fn any_bits(bytes: u64) -> u8 {
    let bytes = bytes | bytes >> 32;
    let bytes = bytes | bytes >> 16;
    (bytes | bytes >> 8) as u8
}

/// All groups, whether there are values in them or not: what is after the last counts for
/// nothing, and a loop's end would be guessed wrong.
#[target_feature(enable = "bmi2")]
#[inline]
fn press_all(numbers: &Numbers, widths: [u32; 2], out: &mut [u8; VALUES_ROOM]) {
    let [first, others] = widths;
    let lowest = |width: u32| below(width) * 0x0101_0101_0101_0101;
    let [of_first, of_others] = [lowest(first), lowest(others)];
    let (&group, rest) = numbers.groups.split_first().expect("eight groups");
    out[..8].copy_from_slice(&_pext_u64(group, of_first).to_le_bytes());
    let mut at = first as usize;
    for &group in rest {
        let eight: &mut [u8; 8] = out[at & 63..].first_chunk_mut().expect("eight bytes");
        *eight = _pext_u64(group, of_others).to_le_bytes();
        at += others as usize;
    }
}

/// How values of one width are read.
#[derive(Debug)]
struct Width {
    /// Where the eight bytes lie that hold the eight values of a group. All groups but the first count from
    /// the first one's end; it is read by itself.
    groups: Bytes,
    /// Where a value begins in its group, in bits.
    starts: Bytes,
    /// The bits of a value.
    bits: Bytes,
    /// The bit of its sign.
    sign: Bytes,
}

/// For each width.
static WIDTHS: [Width; 9] = {
    const NONE: Bytes = Bytes([0; 64]);
    let mut widths =
        [const { Width { groups: NONE, starts: NONE, bits: NONE, sign: NONE } }; 9];
    let mut width = 0;
    while width < 9 {
        let of_width = &mut widths[width];
        let mut at = 0;
        while at < 64 {
            let (group, nth) = (at / 8, at % 8);
            let start = if group == 0 { 0 } else { (group - 1) * width };
            of_width.groups.0[at] = (start + nth) as u8;
            of_width.starts.0[at] = (nth * width) as u8;
            of_width.bits.0[at] = ((1_u32 << width) - 1) as u8;
            of_width.sign.0[at] = ((1_u32 << width) >> 1) as u8;
            at += 1;
        }
        width += 1;
    }
    widths
};

/// The bytes of a group that hold its first value are the lowest; a value has at most 8 bits,
/// so it lies in eight bytes with the seven others. Group 0 has the first width, all groups
/// behind it the second.
#[target_feature(enable = "avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn read_at_once(window: &[u8; WINDOW], block: &mut Block) -> Result<usize, Broken> {
    const FIRST_GROUP: u8 = 1;
    let header = Header::read(window)?;
    let widths = header.widths.map(|width| width as usize % 9);
    let [first, others] = widths.map(|width| &WIDTHS[width]);
    // Of both widths. What comes from memory needs no shuffle, for which there is one port.
    let both = |first: &Bytes, others: &Bytes| {
        _mm512_mask_mov_epi64(load_512(&others.0), FIRST_GROUP, load_512(&first.0))
    };
    let packed = |at: usize| -> __m512i {
        load_512::<u8, 64>(window[at..].first_chunk().expect("in the window"))
    };
    let behind = packed(header.values + widths[0]);
    let grouped = _mm512_permutexvar_epi8(load_512(&others.groups.0), behind);
    let grouped = _mm512_mask_mov_epi64(grouped, FIRST_GROUP, packed(header.values));
    let starts = both(&first.starts, &others.starts);
    let shifted = _mm512_multishift_epi64_epi8(starts, grouped);
    let sign = both(&first.sign, &others.sign);
    let bits = _mm512_and_si512(shifted, both(&first.bits, &others.bits));
    let values = _mm512_sub_epi8(_mm512_xor_si512(bits, sign), sign);
    let is_positive = !_mm512_movepi8_mask(values);
    let one = _mm512_set1_epi8(1);
    let values = _mm512_mask_add_epi8(values, is_positive, values, one);
    let spread = _mm512_maskz_expand_epi8(header.mask << 1, values);
    let spread = _mm512_permutexvar_epi8(load_512(&ZIGZAG.0), spread);
    let low = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(spread));
    let high = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64::<1>(spread));
    let (above, below) = block.split_at_mut(32);
    store_512::<i16, 32>(above.try_into().expect("half a block"), low);
    store_512::<i16, 32>(below.try_into().expect("half a block"), high);
    block[0] = header.dc;
    if header.has_exceptions {
        return exceptions(window, header.end, block);
    }
    Ok(header.end)
}
