//! Writing a scan on x86. AVX-512 finds runs, sizes and codes of sixteen coefficients at once
//! and joins the bits of four each before they are put; on AVX2 it is the scalar loop,
//! compiled for a processor that shifts and counts bits in one instruction.
#![allow(unsafe_code, reason = "calls code compiled for a processor known to be there")]

use super::{
    Bits, Block, Codes, Coefficients, MOST_BITS, Opened, PartCodes, SampleFault, Window,
    put_block, write_with,
};
use crate::jpeg::zigzag::x86::{Bytes, Sent, ZIGZAG, sent_at_once};
use crate::kernels::compiled::compiled;
use crate::kernels::vectors::{load_128, load_512, store_512};
use crate::kernels::{Avx2, Avx512};
use std::arch::x86_64::*;

// The scalar loop with BMI2.
compiled!("avx2,bmi1,bmi2,lzcnt,movbe,popcnt",
    pub(super) fn write_avx2(
        _: Avx2,
        coefficients: &Coefficients,
        file: &Opened<'_>,
        fill: u8,
        out: &mut Vec<u8>,
    ) -> Result<(), SampleFault> = write_with, put_block);

// Sixteen coefficients at a time.
compiled!("avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,lzcnt,movbe,popcnt",
pub(super) fn write_avx512(
    _: Avx512,
    coefficients: &Coefficients,
    file: &Opened<'_>,
    fill: u8,
    out: &mut Vec<u8>,
) -> Result<(), SampleFault> = write_with, |block, difference, codes, bits, window| {
    put_at_once(block, difference, codes, bits, window)
});

/// The numbers of the coefficients, and those of the ones before them.
const NUMBERS: Bytes = Bytes(numbers(0));
const BEFORE: Bytes = Bytes(numbers(63));

/// For each magnitude up to 127 its size in bits.
const SIZES: [Bytes; 2] = [Bytes(sizes(0)), Bytes(sizes(64))];

/// For each size its bits; in every part of 16 bytes the same.
const SIZE_BITS: Bytes = {
    let mut bits = [0; 64];
    let mut nth = 0;
    while nth < 64 {
        let size = nth % 16;
        bits[nth] = if size < 8 { (1 << size) - 1 } else { 0 };
        nth += 1;
    }
    Bytes(bits)
};

const fn numbers(first: u8) -> [u8; 64] {
    let mut numbers = [0; 64];
    let mut number = 0;
    while number < 64 {
        numbers[number as usize] = (first + number) & 63;
        number += 1;
    }
    numbers
}

const fn sizes(first: u8) -> [u8; 64] {
    let mut sizes = [0; 64];
    let mut nth = 0;
    while nth < 64 {
        sizes[nth as usize] = (8 - (first + nth).leading_zeros()) as u8;
        nth += 1;
    }
    sizes
}

/// [`put_block`] for blocks without a run of sixteen zeros; the others go the scalar way.
/// Coefficients have at most 7 bits here; what has more is put in its place at the end.
#[target_feature(enable = "avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,lzcnt,movbe,popcnt")]
#[inline]
fn put_at_once(
    block: &Block,
    difference: i32,
    codes: &PartCodes,
    bits: Bits,
    window: &mut Window,
) -> Bits {
    let Sent { values, not_zero, large } = sent_at_once(block);
    let n = not_zero.count_ones();

    let places = _mm512_maskz_compress_epi8(not_zero, load_512(&NUMBERS.0));
    let before = _mm512_maskz_permutexvar_epi8(!1, load_512(&BEFORE.0), places);
    let runs = _mm512_sub_epi8(_mm512_sub_epi8(places, before), _mm512_set1_epi8(1));
    // After the last coefficient stand symbols of no zeros and no number: the first of them
    // is the end of the block.
    let runs = _mm512_maskz_mov_epi8((1 << n) - 1, runs);
    if _mm512_cmpgt_epu8_mask(runs, _mm512_set1_epi8(15)) != 0 {
        return put_block(block, difference, codes, bits, window);
    }
    let [low, high] = [load_512(&SIZES[0].0), load_512(&SIZES[1].0)];
    let sizes = _mm512_permutex2var_epi8(low, _mm512_abs_epi8(values), high);
    // Negative numbers are sent less one.
    let numbers = _mm512_add_epi8(values, _mm512_movm_epi8(_mm512_movepi8_mask(values)));
    let numbers =
        _mm512_and_si512(numbers, _mm512_shuffle_epi8(load_512(&SIZE_BITS.0), sizes));
    // A run has 4 bits, a size here 3.
    let symbols = _mm512_or_si512(_mm512_slli_epi16::<3>(runs), sizes);
    let of_symbols = |table: &[Bytes; 2]| {
        let [low, high] = [load_512(&table[0].0), load_512(&table[1].0)];
        _mm512_permutex2var_epi8(low, symbols, high)
    };
    let mut queue = Queue::NOTHING;
    store_512(&mut queue.low.0, of_symbols(&codes.short.low));
    store_512(&mut queue.high.0, of_symbols(&codes.short.high));
    store_512(&mut queue.lens.0, of_symbols(&codes.short.lens));
    store_512(&mut queue.sizes.0, sizes);
    store_512(&mut queue.numbers.0, numbers);

    let bits = bits.put(codes.dc.bits(0, difference), window);
    let n = n + u32::from(not_zero >> 63 == 0);
    if large == 0 {
        return put_queue(&queue, n, (bits, window), |_, words| words);
    }
    let mut words = LargeWords::NONE;
    words.gather(block, not_zero, large, &codes.ac);
    put_queue(&queue, n, (bits, window), |part, others| words.among(part, others))
}

/// Words of coefficients that have more than 7 bits, and how many bits these are.
#[derive(Debug)]
struct LargeWords {
    /// Which lanes of each part they belong in.
    lanes: [u16; 4],
    words: [[u32; 16]; 4],
    lens: [[u32; 16]; 4],
}

impl LargeWords {
    const NONE: Self = Self { lanes: [0; 4], words: [[0; 16]; 4], lens: [[0; 16]; 4] };

    /// Makes those of the places `large` of a block.
    fn gather(&mut self, block: &Block, not_zero: u64, mut large: u64, codes: &Codes) {
        while large != 0 {
            let place = large.trailing_zeros() as usize & 63;
            large &= large - 1;
            let number = ZIGZAG.0[place];
            let before = not_zero & ((1 << number) - 1);
            // DC stands before all others.
            let run = u32::from(number) + (before | 1).leading_zeros() - 64;
            let nth = before.count_ones() as usize;
            let (part, lane) = ((nth / 16) & 3, nth % 16);
            let (word, len) = codes.bits(run, block[place].into());
            self.lanes[part] |= 1 << lane;
            self.words[part][lane] = word as u32;
            self.lens[part][lane] = len;
        }
    }

    /// Takes them in among the words of a part, in place of what stands in their lanes.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn among(&self, part: usize, [words, lens]: [__m512i; 2]) -> [__m512i; 2] {
        let lanes = self.lanes[part];
        let own = [&self.words[part], &self.lens[part]].map(|own| load_512(own));
        [
            _mm512_mask_mov_epi32(words, lanes, own[0]),
            _mm512_mask_mov_epi32(lens, lanes, own[1]),
        ]
    }
}

/// What is to be put for the coefficients of a block, one byte of each.
#[derive(Debug)]
struct Queue {
    /// Codes.
    low: Bytes,
    high: Bytes,
    lens: Bytes,
    /// Numbers behind them.
    sizes: Bytes,
    numbers: Bytes,
}

impl Queue {
    const NOTHING: Self =
        Self { low: ZEROS, high: ZEROS, lens: ZEROS, sizes: ZEROS, numbers: ZEROS };
}

/// Puts the first `n`, after `mend` has had a look at the words of each part and their lengths.
#[target_feature(enable = "avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,lzcnt,movbe,popcnt")]
#[inline]
fn put_queue(
    queue: &Queue,
    n: u32,
    (mut bits, window): (Bits, &mut Window),
    mend: impl Fn(usize, [__m512i; 2]) -> [__m512i; 2],
) -> Bits {
    let n_parts = n.div_ceil(16) as usize;
    for part in 0..n_parts {
        let sixteen = |bytes: &Bytes| {
            let (parts, _) = bytes.0.as_chunks::<16>();
            _mm512_cvtepu8_epi32(load_128(&parts[part & 3]))
        };
        let left = n - 16 * part as u32;
        let is_there = (u32::MAX >> (32 - left.min(16))) as u16;
        let sizes = sixteen(&queue.sizes);
        let high = _mm512_slli_epi32::<8>(sixteen(&queue.high));
        let code = _mm512_or_si512(sixteen(&queue.low), high);
        let numbers = sixteen(&queue.numbers);
        let words = _mm512_or_si512(_mm512_sllv_epi32(code, sizes), numbers);
        let lens = _mm512_maskz_add_epi32(is_there, sixteen(&queue.lens), sizes);
        // What is not there has no code in front of it.
        let words = _mm512_maskz_mov_epi32(is_there, words);
        bits = put_words(mend(part & 3, [words, lens]), (bits, window));
    }
    bits
}

/// The codes of an AC symbol whose number has at most 7 bits, by run and size.
#[derive(Debug)]
pub(super) struct ShortCodes {
    low: [Bytes; 2],
    high: [Bytes; 2],
    lens: [Bytes; 2],
}

impl ShortCodes {
    pub(super) const NONE: Self =
        Self { low: [ZEROS; 2], high: [ZEROS; 2], lens: [ZEROS; 2] };

    pub(super) fn set(&mut self, codes: &Codes) {
        for (nth, symbol) in
            (0..16).flat_map(|run| (0..8).map(move |size| run << 4 | size)).enumerate()
        {
            let entry = codes.0[symbol];
            let [len, low, high, _] = entry.to_le_bytes();
            self.low[nth / 64].0[nth % 64] = low;
            self.high[nth / 64].0[nth % 64] = high;
            self.lens[nth / 64].0[nth % 64] = len;
        }
    }
}

const ZEROS: Bytes = Bytes([0; 64]);

/// Puts the low bits of sixteen words, as many of each as `lens` says.
#[target_feature(enable = "avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,lzcnt,movbe,popcnt")]
#[inline]
fn put_words(
    [words, lens]: [__m512i; 2],
    (mut bits, window): (Bits, &mut Window),
) -> Bits {
    let low = _mm512_set1_epi64(0xffff_ffff);
    let second_len = _mm512_srli_epi64::<32>(lens);
    let pair_lens = _mm512_add_epi64(_mm512_and_si512(lens, low), second_len);
    let first = _mm512_sllv_epi64(_mm512_and_si512(words, low), second_len);
    let pairs = _mm512_or_si512(first, _mm512_srli_epi64::<32>(words));

    // The even lanes are joined with their neighbours; the odd ones then mean nothing.
    let second_len = _mm512_unpackhi_epi64(pair_lens, pair_lens);
    let four_lens = _mm512_add_epi64(pair_lens, second_len);
    let first = _mm512_sllv_epi64(pairs, second_len);
    let fours = _mm512_or_si512(first, _mm512_unpackhi_epi64(pairs, pairs));
    let most = _mm512_set1_epi64(i64::from(MOST_BITS));
    let is_long = _mm512_cmpgt_epi64_mask(four_lens, most) & 0b0101_0101 != 0;
    if is_long && _mm512_cmpgt_epi64_mask(pair_lens, most) != 0 {
        return put_singly([words, lens], (bits, window));
    }
    let (mut words, mut lens) = ([0_u64; 8], [0_u64; 8]);
    if is_long {
        store_512(&mut words, pairs);
        store_512(&mut lens, pair_lens);
        for (word, len) in words.into_iter().zip(lens) {
            bits = bits.put((word, len as u32), window);
        }
        return bits;
    }
    store_512(&mut words, fours);
    store_512(&mut lens, four_lens);
    for lane in [0, 2, 4, 6] {
        bits = bits.put((words[lane], lens[lane] as u32), window);
    }
    bits
}

/// [`put_words`] where two of them are too long together: two of the longest codes before the largest
/// numbers have 62 bits.
#[cold]
#[inline(never)]
#[target_feature(enable = "avx512f")]
fn put_singly(
    [words, lens]: [__m512i; 2],
    (mut bits, window): (Bits, &mut Window),
) -> Bits {
    let (mut each, mut each_len) = ([0_u32; 16], [0_u32; 16]);
    store_512(&mut each, words);
    store_512(&mut each_len, lens);
    for (word, len) in each.into_iter().zip(each_len) {
        bits = bits.put((word.into(), len), window);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::super::Writer;
    use super::*;
    use crate::jpeg::zigzag::place_of;

    compiled!("avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,lzcnt,movbe,popcnt",
    fn block_at_once(
        _: Avx512,
        writer: &mut Writer<'_>,
        block: &Block,
        codes: &PartCodes,
    ) = Writer::block, 0, &|block, difference, codes, bits, window| {
        put_at_once(block, difference, codes, bits, window)
    });

    /// Numbers of 13 to 15 bits behind codes of 16: two take up to 62 bits.
    #[test]
    fn pairs_that_no_put_can_take_are_put_singly() {
        let Some(proof) = Avx512::new() else { return };
        let mut codes = PartCodes::NONE;
        codes.ac.0 = [0x5a5a << 8 | 16; 256];
        codes.pairs.set(&codes.ac);
        codes.short.set(&codes.ac);
        for (n_before, sizes) in (0..16).flat_map(|n| {
            [[13, 13], [13, 14], [14, 14], [14, 15], [15, 15]].map(|sizes| (n, sizes))
        }) {
            // One coefficient of one bit moves all that follow by as many bits as DC has.
            codes.dc.0 = [1 << 8 | (n_before + 1); 256];
            let mut block = [0_i16; 64];
            for k in 1..64 {
                let number = (1 << (sizes[k % 2] - 1)) | 0x0b5;
                block[place_of(k)] = if k % 3 == 0 { -number } else { number };
            }
            let [mut one_by_one, mut at_once] = [Vec::new(), Vec::new()];
            let mut writer = Writer::new(&mut one_by_one, 1);
            writer.block(&block, &codes, 0, &put_block);
            writer.end_segment();
            let mut writer = Writer::new(&mut at_once, 1);
            block_at_once(proof, &mut writer, &block, &codes);
            writer.end_segment();
            assert_eq!(at_once, one_by_one, "{n_before} bits before, sizes {sizes:?}");
        }
    }
}
