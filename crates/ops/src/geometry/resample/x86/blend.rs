//! The pass along the columns with AVX2 or AVX-512 and VNNI: rows of a chunk, two by two, become
//! one.
//!
//! Two rows are interleaved; products of 16-bit numbers are added by twos, as enlarging needs no
//! more than two rows. Weights of exact numerics come in two parts. (Measured against each other
//! with `examples/resample.rs`: for four taps three digits cost what two parts do.) Functions for
//! few rows have their number written out. The meaning is in `scalar.rs`.

#![allow(unsafe_code, reason = "functions for known processors alone are called")]

/// Rows that lie one after the other, by twos; each `n_parts` vectors of `N` numbers.
#[inline(always)]
fn by_pairs<T, const N: usize, const PAIRS: usize>(
    rows: &[T],
    n_parts: usize,
) -> [[&[[T; N]]; 2]; PAIRS] {
    let (parts, rest) = rows.as_chunks::<N>();
    assert!(rest.is_empty(), "rows of whole vectors");
    let row = |nth: usize| &parts[nth * n_parts..][..n_parts];
    std::array::from_fn(|pair| [row(2 * pair), row(2 * pair + 1)])
}

/// Defines the kernels for the proof `$cpu`, whose registers hold `$bytes` bytes, with the
/// instructions in scope; `bytes` is left to either.
macro_rules! blends {
    ($cpu:ident, $features:literal, $bytes:literal) => {
        use super::by_pairs;
        use crate::geometry::resample::axis::{EACH_BITS, RUNNING_BITS};
        use crate::geometry::resample::x86::{LOW_BITS, low_half, parts_of};
        use crate::kernels::$cpu;
        use crate::kernels::compiled::door;

        /// Columns that are blended side by side, in bytes and in numbers of 16 bits.
        const BYTES: usize = $bytes;
        const NUMBERS: usize = BYTES / 2;

        door!(pub(in crate::geometry::resample) fn blend_sixty_fourths(
            _: $cpu,
            rows: &[i16],
            weights: &[i32],
            out: &mut [i16],
        ) = sixty_fourths);

        #[target_feature(enable = $features)]
        fn sixty_fourths(rows: &[i16], weights: &[i32], out: &mut [i16]) {
            match weights.len() / 2 {
                1 => sixty_fourths_of::<1>(rows, weights, out),
                2 => sixty_fourths_of::<2>(rows, weights, out),
                3 => sixty_fourths_of::<3>(rows, weights, out),
                4 => sixty_fourths_of::<4>(rows, weights, out),
                _ => sixty_fourths_of_any(rows, weights, out),
            }
        }

        #[target_feature(enable = $features)]
        fn sixty_fourths_of<const PAIRS: usize>(
            rows: &[i16],
            weights: &[i32],
            out: &mut [i16],
        ) {
            let (out, _) = out.as_chunks_mut::<NUMBERS>();
            let n_parts = out.len();
            let rows = by_pairs::<_, NUMBERS, PAIRS>(rows, n_parts);
            let mut parts = [zero(); PAIRS];
            for (parts, &[upper, lower]) in
                parts.iter_mut().zip(weights.as_chunks::<2>().0)
            {
                *parts = both(low_half(upper), low_half(lower));
            }
            for nth in 0..n_parts {
                let half = splat32(1 << (RUNNING_BITS - 1));
                let (mut low, mut high) = (half, half);
                for ([upper, lower], &parts) in rows.iter().zip(&parts) {
                    let (upper, lower) = (load(&upper[nth]), load(&lower[nth]));
                    low = add_products(low, unpack_low16(upper, lower), parts);
                    high = add_products(high, unpack_high16(upper, lower), parts);
                }
                store(&mut out[nth], rounded(low, high));
            }
        }

        /// Any number of rows.
        #[inline(never)]
        #[target_feature(enable = $features)]
        fn sixty_fourths_of_any(rows: &[i16], weights: &[i32], out: &mut [i16]) {
            let (out, _) = out.as_chunks_mut::<NUMBERS>();
            let (rows, _) = rows.as_chunks::<NUMBERS>();
            let (weights, _) = weights.as_chunks::<2>();
            let n_parts = out.len();
            for (nth, out) in out.iter_mut().enumerate() {
                let half = splat32(1 << (RUNNING_BITS - 1));
                let (mut low, mut high) = (half, half);
                for (rows, &[upper, lower]) in rows.chunks_exact(2 * n_parts).zip(weights)
                {
                    let parts = both(low_half(upper), low_half(lower));
                    let (upper, lower) = (load(&rows[nth]), load(&rows[n_parts + nth]));
                    low = add_products(low, unpack_low16(upper, lower), parts);
                    high = add_products(high, unpack_high16(upper, lower), parts);
                }
                store(out, rounded(low, high));
            }
        }

        /// Sixty-fourths of their sums.
        #[inline]
        #[target_feature(enable = $features)]
        fn rounded(low: V, high: V) -> V {
            // Packing undoes the order of unpacking.
            pack32(
                shift_right32::<RUNNING_BITS>(low),
                shift_right32::<RUNNING_BITS>(high),
            )
        }

        /// Bytes of the sums that [`by_twos`] gave, in two parts.
        #[inline]
        #[target_feature(enable = $features)]
        fn packed(mut high: [V; 4], low: [V; 4]) -> V {
            for (high, low) in high.iter_mut().zip(low) {
                let sum = add32(shift_left32::<LOW_BITS>(*high), low);
                *high = shift_right32::<EACH_BITS>(sum);
            }
            // Packing undoes the order of `by_twos`.
            pack16(pack32(high[0], high[1]), pack32(high[2], high[3]))
        }

        /// A weight for each of two rows, for all columns.
        #[inline]
        #[target_feature(enable = $features)]
        fn both(upper: i16, lower: i16) -> V {
            splat32(i32::from(upper) & 0xffff | i32::from(lower) << 16)
        }

        /// Columns of two rows, each column's two numbers together. Of every sixteen columns, each
        /// of the four vectors has four.
        #[inline]
        #[target_feature(enable = $features)]
        fn by_twos(upper: V, lower: V) -> [V; 4] {
            let low = unpack_low8(upper, lower);
            let high = unpack_high8(upper, lower);
            [
                unpack_low8(low, zero()),
                unpack_high8(low, zero()),
                unpack_low8(high, zero()),
                unpack_high8(high, zero()),
            ]
        }
    };
}

pub(in crate::geometry::resample) mod avx512 {
    //! Bytes are picked out of sums where these stay in range.

    use std::arch::x86_64::{_mm512_mask_blend_epi8, _mm512_permutex2var_epi8};

    use super::avx2;
    use crate::geometry::resample::x86::TO_LAST_BYTE;
    use crate::kernels::x86::avx512::*;

    blends!(Avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni", 64);

    /// Most rows of bytes that are blended here.
    const MAX_ROWS: usize = 16;

    /// Where the last bytes of the first two of four vectors, made by [`by_twos`], go, and
    /// also those of the last two: each eight columns of every sixteen.
    const LAST_BYTES_BY_TWOS: [u8; 64] = {
        let mut places = [0; 64];
        let mut i = 0;
        while i < 64 {
            let (lane, column) = (i / 16, i % 8);
            places[i as usize] = 64 * (column / 4) + 16 * lane + 4 * (column % 4) + 3;
            i += 1;
        }
        places
    };

    /// `scalar::blend_bytes`.
    pub(in crate::geometry::resample) fn blend_bytes(
        cpu: Avx512,
        rows: &[u8],
        weights: &[i32],
        out: &mut [u8],
    ) {
        if weights.len() > MAX_ROWS {
            return avx2::blend_bytes(cpu.avx2(), rows, weights, out);
        }
        // SAFETY: the proof is only made on a processor that has these instructions.
        unsafe { bytes(rows, weights, out) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
    fn bytes(rows: &[u8], weights: &[i32], out: &mut [u8]) {
        if weights.iter().any(|&weight| weight < 0) {
            return bytes_of_any(rows, weights, out);
        }
        match weights.len() / 2 {
            1 => bytes_of::<1>(rows, weights, out),
            2 => bytes_of::<2>(rows, weights, out),
            3 => bytes_of::<3>(rows, weights, out),
            4 => bytes_of::<4>(rows, weights, out),
            _ => bytes_of_any(rows, weights, out),
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
    fn bytes_of<const PAIRS: usize>(rows: &[u8], weights: &[i32], out: &mut [u8]) {
        const HIGH_EIGHT: u64 = 0xff00_ff00_ff00_ff00;
        let (out, _) = out.as_chunks_mut::<64>();
        let n_parts = out.len();
        let rows = by_pairs::<_, 64, PAIRS>(rows, n_parts);
        let mut parts = [[zero(); 2]; PAIRS];
        for (parts, &[upper, lower]) in parts.iter_mut().zip(weights.as_chunks::<2>().0) {
            let [upper, lower] = [upper, lower].map(parts_of);
            let low = [upper[1], lower[1]].map(|part| part << TO_LAST_BYTE);
            *parts = [both(upper[0], lower[0]), both(low[0], low[1])];
        }
        let last_bytes = load(&LAST_BYTES_BY_TWOS);
        for nth in 0..n_parts {
            let mut inputs = [[zero(); 4]; PAIRS];
            for (inputs, [upper, lower]) in inputs.iter_mut().zip(&rows) {
                *inputs = by_twos(load(&upper[nth]), load(&lower[nth]));
            }
            // One half, in the unit of the high parts.
            let mut sums = [splat32(1 << (EACH_BITS - 1 - LOW_BITS)); 4];
            for (quarter, sum) in sums.iter_mut().enumerate() {
                for (inputs, parts) in inputs.iter().zip(&parts) {
                    *sum = add_products(*sum, inputs[quarter], parts[0]);
                }
                *sum = shift_left32::<{ LOW_BITS + TO_LAST_BYTE }>(*sum);
                for (inputs, parts) in inputs.iter().zip(&parts) {
                    *sum = add_products(*sum, inputs[quarter], parts[1]);
                }
            }
            let low = _mm512_permutex2var_epi8(sums[0], last_bytes, sums[1]);
            let high = _mm512_permutex2var_epi8(sums[2], last_bytes, sums[3]);
            store(&mut out[nth], _mm512_mask_blend_epi8(HIGH_EIGHT, low, high));
        }
    }

    /// Any number of rows, and weights that may be negative: sums may leave the range of a byte.
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
    fn bytes_of_any(rows: &[u8], weights: &[i32], out: &mut [u8]) {
        let (out, _) = out.as_chunks_mut::<64>();
        let (rows, _) = rows.as_chunks::<64>();
        let (weights, _) = weights.as_chunks::<2>();
        let n_parts = out.len();
        let mut parts = [[zero(); 2]; MAX_ROWS / 2];
        for (parts, &[upper, lower]) in parts.iter_mut().zip(weights) {
            let [upper, lower] = [upper, lower].map(parts_of);
            *parts = [both(upper[0], lower[0]), both(upper[1], lower[1])];
        }
        for (nth, out) in out.iter_mut().enumerate() {
            // One half, in the unit of the high parts.
            let mut high = [splat32(1 << (EACH_BITS - 1 - LOW_BITS)); 4];
            let mut low = [zero(); 4];
            for (rows, parts) in rows.chunks_exact(2 * n_parts).zip(&parts) {
                let (upper, lower) = (load(&rows[nth]), load(&rows[n_parts + nth]));
                for (quarter, inputs) in by_twos(upper, lower).into_iter().enumerate() {
                    high[quarter] = add_products(high[quarter], inputs, parts[0]);
                    low[quarter] = add_products(low[quarter], inputs, parts[1]);
                }
            }
            store(out, packed(high, low));
        }
    }
}

pub(in crate::geometry::resample) mod avx2 {
    //! Bytes are packed.

    use crate::kernels::x86::avx2::*;

    blends!(Avx2, "avx2", 32);

    door!(pub(in crate::geometry::resample) fn blend_bytes(
        _: Avx2,
        rows: &[u8],
        weights: &[i32],
        out: &mut [u8],
    ) = bytes);

    #[target_feature(enable = "avx2")]
    fn bytes(rows: &[u8], weights: &[i32], out: &mut [u8]) {
        match weights.len() / 2 {
            1 => bytes_of::<1>(rows, weights, out),
            2 => bytes_of::<2>(rows, weights, out),
            3 => bytes_of::<3>(rows, weights, out),
            4 => bytes_of::<4>(rows, weights, out),
            _ => bytes_of_any(rows, weights, out),
        }
    }

    #[target_feature(enable = "avx2")]
    fn bytes_of<const PAIRS: usize>(rows: &[u8], weights: &[i32], out: &mut [u8]) {
        let (out, _) = out.as_chunks_mut::<32>();
        let n_parts = out.len();
        let rows = by_pairs::<_, 32, PAIRS>(rows, n_parts);
        let mut parts = [[zero(); 2]; PAIRS];
        for (parts, &[upper, lower]) in parts.iter_mut().zip(weights.as_chunks::<2>().0) {
            let [upper, lower] = [upper, lower].map(parts_of);
            *parts = [both(upper[0], lower[0]), both(upper[1], lower[1])];
        }
        for nth in 0..n_parts {
            let mut high = [splat32(1 << (EACH_BITS - 1 - LOW_BITS)); 4];
            let mut low = [zero(); 4];
            for ([upper, lower], parts) in rows.iter().zip(&parts) {
                let inputs = by_twos(load(&upper[nth]), load(&lower[nth]));
                for (quarter, &inputs) in inputs.iter().enumerate() {
                    high[quarter] = add_products(high[quarter], inputs, parts[0]);
                    low[quarter] = add_products(low[quarter], inputs, parts[1]);
                }
            }
            store(&mut out[nth], packed(high, low));
        }
    }

    /// Any number of rows.
    #[inline(never)]
    #[target_feature(enable = "avx2")]
    fn bytes_of_any(rows: &[u8], weights: &[i32], out: &mut [u8]) {
        let (out, _) = out.as_chunks_mut::<32>();
        let (rows, _) = rows.as_chunks::<32>();
        let (weights, _) = weights.as_chunks::<2>();
        let n_parts = out.len();
        for (nth, out) in out.iter_mut().enumerate() {
            let mut high = [splat32(1 << (EACH_BITS - 1 - LOW_BITS)); 4];
            let mut low = [zero(); 4];
            for (rows, &[upper, lower]) in rows.chunks_exact(2 * n_parts).zip(weights) {
                let [upper, lower] = [upper, lower].map(parts_of);
                let parts = [both(upper[0], lower[0]), both(upper[1], lower[1])];
                let (upper, lower) = (load(&rows[nth]), load(&rows[n_parts + nth]));
                for (quarter, inputs) in by_twos(upper, lower).into_iter().enumerate() {
                    high[quarter] = add_products(high[quarter], inputs, parts[0]);
                    low[quarter] = add_products(low[quarter], inputs, parts[1]);
                }
            }
            store(out, packed(high, low));
        }
    }
}
