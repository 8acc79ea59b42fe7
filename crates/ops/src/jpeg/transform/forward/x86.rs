//! The way into a JPEG on x86: simple loops compiled for AVX2 and AVX-512, and the forward DCT
//! with a row of several blocks in a register, a block to each 128 bits, as in `idct/x86.rs`.
#![allow(unsafe_code, reason = "functions for known processors alone are called")]

/// Defines the functions for the proof `$cpu`, whose registers hold rows of `$blocks` blocks, with
/// the instructions in scope.
macro_rules! forward {
    ($cpu:ty, $blocks:literal, $features:literal) => {
        use crate::jpeg::transform::forward::{Divisors, RowBlocks};
        use crate::jpeg::transform::idct::x86::{PAIRS, factors};
        use crate::jpeg::transform::idct::{
            EVEN_2, EVEN_3, ODD_0, ODD_1, ODD_2, ODD_3, SUM_3, SUM_4,
        };
        use crate::kernels::compiled::{compiled, door};
        use crate::kernels::vectors::load_128 as load_row;

        compiled!($features, pub(in crate::jpeg::transform::forward) fn convert(
            _: $cpu,
            rgb: [&[u8]; 3],
            ycc: [&mut [u8]; 3],
        ) = crate::jpeg::transform::forward::convert);
        compiled!($features, pub(in crate::jpeg::transform::forward) fn mean(
            _: $cpu,
            rows: [&[u8]; 2],
            out: &mut [u8],
        ) = crate::jpeg::transform::forward::mean);
        door!(pub(in crate::jpeg::transform::forward) fn block_row(
            _: $cpu,
            samples: (&[u8], usize),
            divisors: &Divisors,
            out: &mut RowBlocks,
        ) = transform_row);

        #[target_feature(enable = $features)]
        fn transform_row(
            (samples, n_blocks): (&[u8], usize),
            divisors: &Divisors,
            out: &mut RowBlocks,
        ) {
            let stride = samples.len() / 8;
            out.reserve(n_blocks.next_multiple_of($blocks));
            for first in (0..n_blocks).step_by($blocks) {
                let mut rows = [splat16(0); 8];
                for (y, row) in rows.iter_mut().enumerate() {
                    let samples = samples[y * stride + 8 * first..].first_chunk();
                    let samples: &[u8; 8 * $blocks] =
                        samples.expect("whole rows of blocks");
                    let samples = widen8(load_half(samples));
                    *row = sub16(samples, splat16(128));
                }
                let mut rows = pass_down(transpose(pass_along(transpose(rows))));
                for (y, row) in rows.iter_mut().enumerate() {
                    *row = divide(*row, y, divisors);
                }
                store_blocks(arranged(rows), out, first);
            }
        }

        /// Rows of blocks to what these are kept as: see `zigzag.rs`.
        #[target_feature(enable = $features)]
        #[inline]
        fn arranged(rows: [V; 8]) -> [V; 8] {
            let [r0, r1, r2, r3, r4, r5, r6, r7] =
                rows.map(|row| shuffle8(row, repeat(load_row(&PAIRS))));
            [
                r0,
                r4,
                unpack_low16(r2, r6),
                unpack_high16(r2, r6),
                unpack_low16(r7, r1),
                unpack_high16(r7, r1),
                unpack_low16(r5, r3),
                unpack_high16(r5, r3),
            ]
        }

        /// Rows become columns, in each block.
        #[target_feature(enable = $features)]
        #[inline]
        fn transpose(v: [V; 8]) -> [V; 8] {
            let a = [
                unpack_low16(v[0], v[1]),
                unpack_high16(v[0], v[1]),
                unpack_low16(v[2], v[3]),
                unpack_high16(v[2], v[3]),
                unpack_low16(v[4], v[5]),
                unpack_high16(v[4], v[5]),
                unpack_low16(v[6], v[7]),
                unpack_high16(v[6], v[7]),
            ];
            let b = [
                unpack_low32(a[0], a[2]),
                unpack_high32(a[0], a[2]),
                unpack_low32(a[1], a[3]),
                unpack_high32(a[1], a[3]),
                unpack_low32(a[4], a[6]),
                unpack_high32(a[4], a[6]),
                unpack_low32(a[5], a[7]),
                unpack_high32(a[5], a[7]),
            ];
            [
                unpack_low64(b[0], b[4]),
                unpack_high64(b[0], b[4]),
                unpack_low64(b[1], b[5]),
                unpack_high64(b[1], b[5]),
                unpack_low64(b[2], b[6]),
                unpack_high64(b[2], b[6]),
                unpack_low64(b[3], b[7]),
                unpack_high64(b[3], b[7]),
            ]
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn pass_along(v: [V; 8]) -> [V; 8] {
            let ([sum, difference], v) = transform(v, splat32(1 << 10));
            let of = |[low, high]: [V; 2]| pack32(shift_right32::<11>(low), shift_right32::<11>(high));
            let whole = |v: V| shift_left16::<2>(v);
            let [v1, v2, v3, v5, v6, v7] = v;
            [whole(sum), of(v1), of(v2), of(v3), whole(difference), of(v5), of(v6), of(v7)]
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn pass_down(v: [V; 8]) -> [V; 8] {
            let ([sum, difference], v) = transform(v, splat32(1 << 14));
            let of = |[low, high]: [V; 2]| pack32(shift_right32::<15>(low), shift_right32::<15>(high));
            let whole = |v: V| shift_right16::<2>(add16(v, splat16(2)));
            let [v1, v2, v3, v5, v6, v7] = v;
            [whole(sum), of(v1), of(v2), of(v3), whole(difference), of(v5), of(v6), of(v7)]
        }

        /// As `transform` of the scalar meaning: the first and the fifth element as they are, the
        /// others in 32 bits, `round` added, of the lower and the upper four of each block.
        #[target_feature(enable = $features)]
        #[inline]
        fn transform(v: [V; 8], round: V) -> ([V; 2], [[V; 2]; 6]) {
            let (s0, s1) = (add16(v[0], v[7]), add16(v[1], v[6]));
            let (s2, s3) = (add16(v[2], v[5]), add16(v[3], v[4]));
            let (d0, d1) = (sub16(v[0], v[7]), sub16(v[1], v[6]));
            let (d2, d3) = (sub16(v[2], v[5]), sub16(v[3], v[4]));
            let (s03, s12) = (add16(s0, s3), add16(s1, s2));
            let (d03, d12) = (sub16(s0, s3), sub16(s1, s2));
            let pairs = |a: V, b: V| [unpack_low16(a, b), unpack_high16(a, b)];
            let times = |[low, high]: [V; 2], [p, q]: [i32; 2]| {
                let both = splat32(factors([p, q]));
                [multiply_add(low, both), multiply_add(high, both)]
            };
            let add = |a: [V; 2], b: [V; 2]| [add32(a[0], b[0]), add32(a[1], b[1])];
            let round = [round; 2];
            let even = pairs(d03, d12);
            let sums = pairs(add16(d1, d3), add16(d0, d2));
            let (z3, z4) = (add(times(sums, SUM_3), round), add(times(sums, SUM_4), round));
            let (outer, inner) = (pairs(d3, d0), pairs(d2, d1));
            let products = [
                add(times(outer, ODD_3), z4),
                add(times(even, EVEN_3), round),
                add(times(inner, ODD_2), z3),
                add(times(inner, ODD_1), z4),
                add(times(even, EVEN_2), round),
                add(times(outer, ODD_0), z3),
            ];
            ([add16(s03, s12), sub16(s03, s12)], products)
        }

        /// Row `y` of blocks, quantised.
        #[target_feature(enable = $features)]
        #[inline]
        fn divide(row: V, y: usize, divisors: &Divisors) -> V {
            let of = |table: &[u16; 64]| {
                repeat(load_row(table[8 * y..].first_chunk::<8>().expect("eight rows")))
            };
            // All ones where it is below 0.
            let sign = shift_right16::<15>(row);
            let magnitude = sub16(xor(row, sign), sign);
            let sum = add16(magnitude, of(&divisors.round));
            let product = upper16_unsigned(sum, of(&divisors.reciprocal));
            let quotient = upper16_unsigned(product, of(&divisors.scale));
            sub16(xor(quotient, sign), sign)
        }
    };
}

pub(super) mod avx512 {
    //! Four blocks at a time.

    use std::arch::x86_64::_mm512_shuffle_i64x2;

    use crate::kernels::Avx512;
    use crate::kernels::x86::avx512::*;

    forward!(Avx512, 4, "avx512f,avx512bw,avx512dq,avx512vl");

    /// Stores the rows of blocks `first` and on.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn store_blocks(rows: [V; 8], out: &mut RowBlocks, first: usize) {
        for half in 0..2 {
            let [a, b, c, d] = [0, 1, 2, 3].map(|row| rows[4 * half + row]);
            let (ab01, ab23) =
                (_mm512_shuffle_i64x2::<0x44>(a, b), _mm512_shuffle_i64x2::<0xee>(a, b));
            let (cd01, cd23) =
                (_mm512_shuffle_i64x2::<0x44>(c, d), _mm512_shuffle_i64x2::<0xee>(c, d));
            let blocks = [
                _mm512_shuffle_i64x2::<0x88>(ab01, cd01),
                _mm512_shuffle_i64x2::<0xdd>(ab01, cd01),
                _mm512_shuffle_i64x2::<0x88>(ab23, cd23),
                _mm512_shuffle_i64x2::<0xdd>(ab23, cd23),
            ];
            for (nth, rows) in blocks.into_iter().enumerate() {
                let (halves, _) = out.block_mut(first + nth).as_chunks_mut::<32>();
                store(&mut halves[half], rows);
            }
        }
    }
}

pub(super) mod avx2 {
    //! Two blocks at a time.

    use std::arch::x86_64::_mm256_permute2x128_si256;

    use crate::kernels::Avx2;
    use crate::kernels::x86::avx2::*;

    forward!(Avx2, 2, "avx2");

    /// Stores the rows of blocks `first` and on.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn store_blocks(rows: [V; 8], out: &mut RowBlocks, first: usize) {
        for (nth, rows) in rows.as_chunks::<2>().0.iter().enumerate() {
            let blocks = [
                _mm256_permute2x128_si256::<0x20>(rows[0], rows[1]),
                _mm256_permute2x128_si256::<0x31>(rows[0], rows[1]),
            ];
            for (block, rows) in blocks.into_iter().enumerate() {
                let (quarters, _) = out.block_mut(first + block).as_chunks_mut::<16>();
                store(&mut quarters[nth], rows);
            }
        }
    }
}
