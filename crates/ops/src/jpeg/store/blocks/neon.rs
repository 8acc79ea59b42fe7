//! Unpacking with NEON: all values of a block at once, sixteen to a vector.
//!
//! Instead of moving values to their places, every place finds its own: the bits of the mask
//! up to it are counted. Counted in the order of places, values need no second move. No branch
//! depends on what values there are: a block takes 50 cycles, the scalar code 59 with 6
//! values and 125 with 16 (not measured but modelled: llvm-mca 19, Neoverse N1; wrong guesses
//! of the scalar loop come on top). Blocks are written by the scalar code. The meaning is in
//! `blocks.rs`.
#![allow(unsafe_code, reason = "calls code compiled for a processor known to be there")]

use std::arch::aarch64::*;
use std::ops::Range;

use super::places::{Places, places};
use super::{Block, Broken, Header, PackedRow, WINDOW, exceptions, unpack_with};
use crate::kernels::Neon;
use crate::kernels::compiled::compiled;
use crate::kernels::vectors::{load_i16, load_u8, store_i16};

compiled!("neon",
    pub(super) fn unpack_one(
        _: Neon,
        rows: [PackedRow<'_>; 1],
        wanted: Range<usize>,
        out: [&mut [Block]; 1],
    ) -> Result<(), Broken> = unpack_with, |window, block| read_at_once(window, block));

compiled!("neon",
    pub(super) fn unpack_two(
        _: Neon,
        rows: [PackedRow<'_>; 2],
        wanted: Range<usize>,
        out: [&mut [Block]; 2],
    ) -> Result<(), Broken> = unpack_with, |window, block| read_at_once(window, block));

/// [`super::read`].
#[inline]
#[target_feature(enable = "neon")]
fn read_at_once(window: &[u8; WINDOW], block: &mut Block) -> Result<usize, Broken> {
    let header = Header::read(window)?;
    let packed = window[header.values..].first_chunk().expect("in the window");
    let values = values(packed, header.widths.map(|width| width as usize));
    let numbers = value_numbers(header.mask << 1);
    let (sixteens, _) = block.as_chunks_mut::<16>();
    for (sixteen, number) in sixteens.iter_mut().zip(numbers) {
        let bytes = vqtbl4q_s8(values, number);
        let (low, high) = sixteen.split_at_mut(8);
        let (low, high) = (low.try_into(), high.try_into());
        store_i16(low.expect("half of them"), vmovl_s8(vget_low_s8(bytes)));
        store_i16(high.expect("half of them"), vmovl_high_s8(bytes));
    }
    block[0] = header.dc;
    if header.has_exceptions {
        return exceptions(window, header.end, block);
    }
    Ok(header.end)
}

/// How eight values of one width lie in as many bytes as the width has bits.
#[derive(Debug)]
struct Group {
    /// For each value the two bytes it lies in.
    bytes: [u8; 16],
    /// By how much these, as one number, are moved for the value to come to its top.
    to_top: [i16; 8],
}

/// For each width.
static GROUPS: [Group; 9] = {
    let mut groups = [const { Group { bytes: [0; 16], to_top: [0; 8] } }; 9];
    let mut width = 0;
    while width < 9 {
        let mut nth = 0;
        while nth < 8 {
            let bit = nth * width;
            groups[width].bytes[2 * nth] = (bit / 8) as u8;
            groups[width].bytes[2 * nth + 1] = (bit / 8 + 1) as u8;
            groups[width].to_top[nth] = (16 - width - bit % 8) as u8 as i16;
            nth += 1;
        }
        width += 1;
    }
    groups
};

/// The values of a block, in the order of sending. What is after the last one means nothing.
#[inline]
#[target_feature(enable = "neon")]
fn values(packed: &[u8; 64], widths: [usize; 2]) -> int8x16x4_t {
    let [first, others] = widths;
    let groups = widths.map(|width| &GROUPS[width]);
    let bytes = groups.map(|group| load_u8(&group.bytes));
    let to_top = groups.map(|group| load_i16(&group.to_top));
    // The second of two groups lies as many bytes after the first as that is wide.
    let behind = |width: usize| vaddq_u8(bytes[1], vdupq_n_u8(width as u8));
    let to_width = widths.map(|width| vdup_n_s8(width as i8 - 8));

    let packed = |at: usize| load_u8(packed[at..].first_chunk().expect("two groups"));
    let top = tops(packed(0), [bytes[0], behind(first)], to_top);
    let head = numbered(top, vcombine_s8(to_width[0], to_width[1]));
    let behind = behind(others);
    let pair = |at: usize| {
        let top = tops(packed(at), [bytes[1], behind], [to_top[1]; 2]);
        numbered(top, vcombine_s8(to_width[1], to_width[1]))
    };
    let nth = |n: usize| pair(first + n * others);
    int8x16x4_t(head, nth(1), nth(3), nth(5))
}

/// The sixteen values of two groups, each in the highest bits of its byte.
#[inline]
#[target_feature(enable = "neon")]
fn tops(packed: uint8x16_t, bytes: [uint8x16_t; 2], to_top: [int16x8_t; 2]) -> int8x16_t {
    let top = |bytes, to_top| {
        let pairs = vreinterpretq_u16_u8(vqtbl1q_u8(packed, bytes));
        vreinterpretq_s8_u16(vshlq_u16(pairs, to_top))
    };
    vuzp2q_s8(top(bytes[0], to_top[0]), top(bytes[1], to_top[1]))
}

/// The values that are written in the highest bits of bytes: moved down, and without a zero.
#[inline]
#[target_feature(enable = "neon")]
fn numbered(top: int8x16_t, to_width: int8x16_t) -> int8x16_t {
    let written = vshlq_s8(top, to_width);
    // Where it is true, a comparison gives −1.
    vsubq_s8(written, vreinterpretq_s8_u8(vcgezq_s8(written)))
}

static PLACES: [Places<16>; 4] = places();

/// For each place which value comes there; 64 or more where none does. Bit k of the
/// mask stands for coefficient k.
#[inline]
#[target_feature(enable = "neon")]
fn value_numbers(mask: u64) -> [uint8x16_t; 4] {
    // Byte by byte, the bits in all bytes below.
    const BELOW: u64 = 0x0101_0101_0101_0100;
    let bytes = vcreate_u8(mask);
    let counts = vget_lane_u64::<0>(vreinterpret_u64_u8(vcnt_u8(bytes)));
    let counts = vcreate_u8(counts.wrapping_mul(BELOW));
    // A place's own bit is counted with those below, and values are counted from 0.
    let counts = vsub_u8(counts, vdup_n_u8(1));
    let (bytes, counts) = (vcombine_u8(bytes, bytes), vcombine_u8(counts, counts));
    PLACES.each_ref().map(|places| {
        let [byte, bit, up_to] =
            [&places.byte, &places.bit, &places.up_to].map(|bytes| load_u8(bytes));
        let bits = vandq_u8(vqtbl1q_u8(bytes, byte), up_to);
        let number = vaddq_u8(vqtbl1q_u8(counts, byte), vcntq_u8(bits));
        // Its own bit is the highest that can be left.
        vornq_u8(number, vcgeq_u8(bits, bit))
    })
}
