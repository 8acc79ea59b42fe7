//! The way into a JPEG on x86: simple loops compiled for AVX2 and AVX-512, and the forward DCT
//! with a row of several blocks in a register, a block to each 128 bits, as in `idct/x86.rs`.
#![allow(unsafe_code, reason = "functions for known processors alone are called")]

/// Has a loop of the parent compiled for a processor.
macro_rules! compiled {
    ($cpu:ty, $features:literal, $name:ident, ($($argument:ident: $type:ty),*)) => {
        pub(in crate::jpeg::forward) fn $name(_: $cpu, $($argument: $type),*) {
            #[target_feature(enable = $features)]
            fn compiled($($argument: $type),*) {
                super::super::$name($($argument),*);
            }
            // SAFETY: the proof is only made on a processor that has these instructions.
            unsafe { compiled($($argument),*) }
        }
    };
}

/// Defines the functions for the proof `$cpu`, whose registers hold rows of `$blocks` blocks, with
/// the instructions in scope.
macro_rules! forward {
    ($cpu:ty, $blocks:literal, $features:literal) => {
        use crate::jpeg::forward::{Divisors, RowBlocks};
        use crate::jpeg::idct::x86::factors;
        use crate::jpeg::idct::{
            EVEN_2, EVEN_3, ODD_0, ODD_1, ODD_2, ODD_3, SUM_3, SUM_4,
        };
        use crate::vectors::load_128;

        compiled!($cpu, $features, convert, (rgb: [&[u8]; 3], ycc: [&mut [u8]; 3]));
        compiled!($cpu, $features, mean, (rows: [&[u8]; 2], out: &mut [u8]));

        pub(in crate::jpeg::forward) fn block_row(
            _: $cpu,
            samples: (&[u8], usize),
            divisors: &Divisors,
            out: &mut RowBlocks,
        ) {
            // SAFETY: the proof is only made on a processor that has these instructions.
            unsafe { transform_row(samples, divisors, out) }
        }

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
                    let samples = widen(samples.expect("whole rows of blocks"));
                    *row = sub16(samples, splat16(128));
                }
                let mut rows = pass_down(transpose(pass_along(transpose(rows))));
                for (y, row) in rows.iter_mut().enumerate() {
                    *row = divide(*row, y, divisors);
                }
                store(rows, out, first);
            }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn pass_along(v: [V; 8]) -> [V; 8] {
            let ([sum, difference], v) = transform(v, splat32(1 << 10));
            let of = |[low, high]: [V; 2]| pack32(shift32::<11>(low), shift32::<11>(high));
            let whole = |v: V| shift_left16::<2>(v);
            let [v1, v2, v3, v5, v6, v7] = v;
            [whole(sum), of(v1), of(v2), of(v3), whole(difference), of(v5), of(v6), of(v7)]
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn pass_down(v: [V; 8]) -> [V; 8] {
            let ([sum, difference], v) = transform(v, splat32(1 << 14));
            let of = |[low, high]: [V; 2]| pack32(shift32::<15>(low), shift32::<15>(high));
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
                repeat(load_128(table[8 * y..].first_chunk::<8>().expect("eight rows")))
            };
            // All ones where it is below 0.
            let sign = shift_right16::<15>(row);
            let magnitude = sub16(xor(row, sign), sign);
            let sum = add16(magnitude, of(&divisors.round));
            let product = upper16(sum, of(&divisors.reciprocal));
            let quotient = upper16(product, of(&divisors.scale));
            sub16(xor(quotient, sign), sign)
        }
    };
}

pub(super) mod avx512 {
    //! Four blocks at a time.

    use std::arch::x86_64::{
        __m512i as V, _mm512_add_epi16 as add16, _mm512_add_epi32 as add32,
        _mm512_broadcast_i32x4 as repeat, _mm512_cvtepu8_epi16,
        _mm512_madd_epi16 as multiply_add, _mm512_mulhi_epu16 as upper16,
        _mm512_packs_epi32 as pack32, _mm512_set1_epi16 as splat16,
        _mm512_set1_epi32 as splat32, _mm512_shuffle_i64x2,
        _mm512_slli_epi16 as shift_left16, _mm512_srai_epi16 as shift_right16,
        _mm512_srai_epi32 as shift32, _mm512_sub_epi16 as sub16,
        _mm512_unpackhi_epi16 as unpack_high16, _mm512_unpacklo_epi16 as unpack_low16,
        _mm512_xor_si512 as xor,
    };

    use crate::jpeg::idct::x86::avx512::transpose;
    use crate::kernels::Avx512;
    use crate::vectors::{load_256, store_512};

    forward!(Avx512, 4, "avx512f,avx512bw,avx512dq,avx512vl");

    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn widen(samples: &[u8; 32]) -> V {
        _mm512_cvtepu8_epi16(load_256(samples))
    }

    /// Stores the rows of blocks `first` and on.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn store(rows: [V; 8], out: &mut RowBlocks, first: usize) {
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
                store_512(&mut halves[half], rows);
            }
        }
    }
}

pub(super) mod avx2 {
    //! Two blocks at a time.

    use std::arch::x86_64::{
        __m256i as V, _mm256_add_epi16 as add16, _mm256_add_epi32 as add32,
        _mm256_broadcastsi128_si256 as repeat, _mm256_cvtepu8_epi16,
        _mm256_madd_epi16 as multiply_add, _mm256_mulhi_epu16 as upper16,
        _mm256_packs_epi32 as pack32, _mm256_permute2x128_si256,
        _mm256_set1_epi16 as splat16, _mm256_set1_epi32 as splat32,
        _mm256_slli_epi16 as shift_left16, _mm256_srai_epi16 as shift_right16,
        _mm256_srai_epi32 as shift32, _mm256_sub_epi16 as sub16,
        _mm256_unpackhi_epi16 as unpack_high16, _mm256_unpacklo_epi16 as unpack_low16,
        _mm256_xor_si256 as xor,
    };

    use crate::jpeg::idct::x86::avx2::transpose;
    use crate::kernels::Avx2;
    use crate::vectors::store_256;

    forward!(Avx2, 2, "avx2");

    #[target_feature(enable = "avx2")]
    #[inline]
    fn widen(samples: &[u8; 16]) -> V {
        _mm256_cvtepu8_epi16(load_128(samples))
    }

    /// Stores the rows of blocks `first` and on.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn store(rows: [V; 8], out: &mut RowBlocks, first: usize) {
        for (nth, rows) in rows.as_chunks::<2>().0.iter().enumerate() {
            let blocks = [
                _mm256_permute2x128_si256::<0x20>(rows[0], rows[1]),
                _mm256_permute2x128_si256::<0x31>(rows[0], rows[1]),
            ];
            for (block, rows) in blocks.into_iter().enumerate() {
                let (quarters, _) = out.block_mut(first + block).as_chunks_mut::<16>();
                store_256(&mut quarters[nth], rows);
            }
        }
    }
}
