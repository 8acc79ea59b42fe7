//! Unpacking with AVX2: thirty-two values at once, and as many places.
//!
//! As with NEON, every place finds its value: the bits of the mask up to it are counted, in the
//! order of places. Values are moved by multiplications, since AVX2 does not shift 16-bit numbers by different
//! counts, and `pdep` takes hundreds of cycles on Zen 1 and 2. The only branch on what values there are
//! is whether there are more than 32. The meaning is in `blocks.rs`.

use std::arch::x86_64::*;

use super::super::places::{Places, places};
use super::super::{Block, Broken, Header, WINDOW, exceptions};
use crate::kernels::vectors::{load_128, load_256, store_256};

/// How eight values of one width lie in as many bytes as the width has bits.
#[derive(Debug)]
struct Group {
    /// For each value the two bytes it lies in.
    bytes: [u8; 16],
    /// What moves these, as one number, so that the value comes to its top.
    to_top: [u16; 8],
    /// What moves the value from there into the upper half of a product.
    down: [u16; 8],
}

/// For each width.
static GROUPS: [Group; 9] = {
    const NONE: [u16; 8] = [0; 8];
    let mut groups = [const { Group { bytes: [0; 16], to_top: NONE, down: NONE } }; 9];
    let mut width = 0;
    while width < 9 {
        let mut nth = 0;
        while nth < 8 {
            let bit = nth * width;
            groups[width].bytes[2 * nth] = (bit / 8) as u8;
            groups[width].bytes[2 * nth + 1] = (bit / 8 + 1) as u8;
            // Nothing comes to the top where there is nothing.
            groups[width].to_top[nth] = (1_u32 << (16 - width - bit % 8)) as u16;
            groups[width].down[nth] = 1 << width;
            nth += 1;
        }
        width += 1;
    }
    groups
};

static PLACES: [Places<32>; 2] = places();

/// [`super::super::read`].
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
pub(super) fn read_at_once(
    window: &[u8; WINDOW],
    block: &mut Block,
) -> Result<usize, Broken> {
    let header = Header::read(window)?;
    let [first, others] = header.widths.map(|width| width as usize % 9);
    let packed = |at: usize| {
        load_128::<u8, 16>(window[at..].first_chunk().expect("in the window"))
    };
    let (mixed, alike) = (Pair::of([first, others]), Pair::of([others, others]));
    let at = header.values;
    let behind = |nth: usize| at + first + (2 * nth - 1) * others;
    let numbers = value_numbers(header.mask << 1);
    let values = numbered(mixed.values(packed(at)), alike.values(packed(behind(1))));
    let mut bytes = numbers.map(|numbers| find::<0>(values, numbers));
    if header.mask.count_ones() > 32 {
        let pairs = [2, 3].map(|nth| alike.values(packed(behind(nth))));
        let values = numbered(pairs[0], pairs[1]);
        for (bytes, numbers) in bytes.iter_mut().zip(numbers) {
            *bytes = _mm256_or_si256(*bytes, find::<32>(values, numbers));
        }
    }
    let (halves, _) = block.as_chunks_mut::<32>();
    for (half, bytes) in halves.iter_mut().zip(bytes) {
        let (sixteens, _) = half.as_chunks_mut::<16>();
        let (low, high) =
            (_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
        store_256(&mut sixteens[0], _mm256_cvtepi8_epi16(low));
        store_256(&mut sixteens[1], _mm256_cvtepi8_epi16(high));
    }
    block[0] = header.dc;
    if header.has_exceptions {
        return exceptions(window, header.end, block);
    }
    Ok(header.end)
}

/// Two groups, one right behind the other.
#[derive(Clone, Copy)]
struct Pair {
    bytes: __m256i,
    to_top: __m256i,
    down: __m256i,
}

impl Pair {
    #[target_feature(enable = "avx2")]
    #[inline]
    fn of(widths: [usize; 2]) -> Self {
        let [a, b] = widths.map(|width| &GROUPS[width]);
        let behind = _mm_add_epi8(load_128(&b.bytes), _mm_set1_epi8(widths[0] as i8));
        Self {
            bytes: _mm256_set_m128i(behind, load_128(&a.bytes)),
            to_top: _mm256_set_m128i(load_128(&b.to_top), load_128(&a.to_top)),
            down: _mm256_set_m128i(load_128(&b.down), load_128(&a.down)),
        }
    }

    /// Its sixteen values as they are written, in the order of sending. What is after the last one
    /// means nothing.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn values(self, packed: __m128i) -> __m256i {
        let pairs = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(packed), self.bytes);
        _mm256_mulhi_epi16(_mm256_mullo_epi16(pairs, self.to_top), self.down)
    }
}

/// The values of two pairs of groups as bytes, without a zero: as `_mm256_packs_epi16` leaves them, the
/// first and the third group in the lower half.
#[target_feature(enable = "avx2")]
#[inline]
fn numbered(first: __m256i, second: __m256i) -> __m256i {
    let written = _mm256_packs_epi16(first, second);
    // Where it is true, a comparison gives −1.
    _mm256_sub_epi8(written, _mm256_cmpgt_epi8(written, _mm256_set1_epi8(-1)))
}

/// For each place its value, among those from number `FROM` on that [`numbered`] gave; 0 where it is none
/// of them.
#[target_feature(enable = "avx2")]
#[inline]
fn find<const FROM: i8>(values: __m256i, numbers: __m256i) -> __m256i {
    // In both halves the first two groups, and the others.
    let first = _mm256_permute4x64_epi64::<0b10_00_10_00>(values);
    let second = _mm256_permute4x64_epi64::<0b11_01_11_01>(values);
    let among_sixteen = |values, from: i8| {
        let numbers = _mm256_sub_epi8(numbers, _mm256_set1_epi8(from));
        // Beyond fifteen the highest bit is set, for which a shuffle gives 0.
        let numbers = _mm256_adds_epu8(numbers, _mm256_set1_epi8(0x70));
        _mm256_shuffle_epi8(values, numbers)
    };
    _mm256_or_si256(among_sixteen(first, FROM), among_sixteen(second, FROM + 16))
}

/// For each place which value comes there; 255 where none does. Bit k of the mask stands for
/// coefficient k.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn value_numbers(mask: u64) -> [__m256i; 2] {
    // Byte by byte, the bits in all bytes below.
    const BELOW: u64 = 0x0101_0101_0101_0100;
    let counts = ones(mask).wrapping_mul(BELOW);
    let both = |eight: u64| _mm256_set1_epi64x(eight.cast_signed());
    let (mask, counts) = (both(mask), both(counts));
    PLACES.each_ref().map(|places| {
        let [byte, bit, up_to] =
            [&places.byte, &places.bit, &places.up_to].map(|bytes| load_256(bytes));
        let own = _mm256_shuffle_epi8(mask, byte);
        let below = _mm256_shuffle_epi8(counts, byte);
        let number = _mm256_add_epi8(below, ones_of_bytes(_mm256_and_si256(own, up_to)));
        // A place's own bit is counted with those below, and values are counted from 0.
        let number = _mm256_sub_epi8(number, _mm256_set1_epi8(1));
        let is_none =
            _mm256_cmpeq_epi8(_mm256_and_si256(own, bit), _mm256_setzero_si256());
        _mm256_or_si256(number, is_none)
    })
}

/// How many bits each byte has set.
#[inline(always)]
fn ones(bytes: u64) -> u64 {
    let twos = bytes - (bytes >> 1 & 0x5555_5555_5555_5555);
    let fours = (twos & 0x3333_3333_3333_3333) + (twos >> 2 & 0x3333_3333_3333_3333);
    (fours + (fours >> 4)) & 0x0f0f_0f0f_0f0f_0f0f
}

/// The same for 32 bytes.
#[target_feature(enable = "avx2")]
#[inline]
fn ones_of_bytes(bytes: __m256i) -> __m256i {
    const ONES: [u8; 16] = [0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4];
    let ones = _mm256_broadcastsi128_si256(load_128(&ONES));
    let four = _mm256_set1_epi8(15);
    let low = _mm256_and_si256(bytes, four);
    let high = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), four);
    _mm256_add_epi8(_mm256_shuffle_epi8(ones, low), _mm256_shuffle_epi8(ones, high))
}
