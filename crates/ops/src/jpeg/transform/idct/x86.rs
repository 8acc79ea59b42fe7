//! The inverse DCT on x86: a register holds the same row of several blocks, a block to each
//! 128 bits. AVX-512 does four blocks at a time, AVX2 two; the steps are the same, so both
//! are made from one macro, which is given the instructions by name.
#![allow(unsafe_code, reason = "vector loads and stores take addresses")]

/// Two 16-bit factors as the one 32-bit number that is repeated through a register.
pub(in crate::jpeg) const fn factors([a, b]: [i32; 2]) -> i32 {
    (a & 0xffff) | (b << 16)
}

/// Defines `block_row` for the proof `$cpu`, and what its `transform_row` is made of, with the
/// instructions in scope.
macro_rules! islow {
    ($cpu:ident, $features:literal) => {
        use crate::jpeg::block::{Block, BlockRow};
        use crate::jpeg::transform::idct::x86::factors;
        use crate::jpeg::transform::idct::{
            EVEN_2, EVEN_3, ODD_0, ODD_1, ODD_2, ODD_3, SUM_3, SUM_4, Steps, scalar,
        };
        use crate::kernels::$cpu;
        use crate::kernels::compiled::door;

        door!(pub(in crate::jpeg::transform::idct) fn block_row(
            _: $cpu,
            blocks: BlockRow<'_>,
            steps: &Steps,
            out: &mut [u8],
            stride: usize,
        ) = transform_row);

        #[target_feature(enable = $features)]
        #[inline]
        fn pass_down(v: [V; 8]) -> [V; 8] {
            let round = splat32(1 << 10);
            let (low, high) = transform(v, round);
            std::array::from_fn(|i| {
                pack32(shift_right32::<11>(low[i]), shift_right32::<11>(high[i]))
            })
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn pass_along(v: [V; 8]) -> [V; 8] {
            let round = splat32(1 << 17);
            let (low, high) = transform(v, round);
            std::array::from_fn(|i| {
                pack32(shift_right32::<18>(low[i]), shift_right32::<18>(high[i]))
            })
        }

        /// The eight outputs for the lower and the upper four elements of each block's row,
        /// `round` added.
        #[target_feature(enable = $features)]
        #[inline]
        fn transform(v: [V; 8], round: V) -> ([V; 8], [V; 8]) {
            let (sum, difference) = (add16(v[0], v[4]), sub16(v[0], v[4]));
            let (s, r) = (add16(v[7], v[3]), add16(v[5], v[1]));
            let low = half(
                [unpack_low16(zero(), sum), unpack_low16(zero(), difference)],
                [
                    unpack_low16(v[2], v[6]),
                    unpack_low16(s, r),
                    unpack_low16(v[7], v[1]),
                    unpack_low16(v[5], v[3]),
                ],
                round,
            );
            let high = half(
                [unpack_high16(zero(), sum), unpack_high16(zero(), difference)],
                [
                    unpack_high16(v[2], v[6]),
                    unpack_high16(s, r),
                    unpack_high16(v[7], v[1]),
                    unpack_high16(v[5], v[3]),
                ],
                round,
            );
            (low, high)
        }

        /// As `transform` of the scalar meaning, on pairs of 16-bit inputs.
        #[target_feature(enable = $features)]
        #[inline]
        fn half(
            [sum, difference]: [V; 2],
            [v26, sr, v71, v53]: [V; 4],
            round: V,
        ) -> [V; 8] {
            let times = |pair, constants| multiply_add(pair, splat32(factors(constants)));
            // In the upper half of 32 bits they stand 2^16 times too large, and 2^13 is due.
            let t0 = add32(shift_right32::<3>(sum), round);
            let t1 = add32(shift_right32::<3>(difference), round);
            let (t2, t3) = (times(v26, EVEN_2), times(v26, EVEN_3));
            let even = [add32(t0, t3), add32(t1, t2), sub32(t1, t2), sub32(t0, t3)];
            let (z3, z4) = (times(sr, SUM_3), times(sr, SUM_4));
            let odd = [
                add32(times(v71, ODD_3), z4),
                add32(times(v53, ODD_2), z3),
                add32(times(v53, ODD_1), z4),
                add32(times(v71, ODD_0), z3),
            ];
            [
                add32(even[0], odd[0]),
                add32(even[1], odd[1]),
                add32(even[2], odd[2]),
                add32(even[3], odd[3]),
                sub32(even[3], odd[3]),
                sub32(even[2], odd[2]),
                sub32(even[1], odd[1]),
                sub32(even[0], odd[0]),
            ]
        }

        /// Rows become columns, in each block.
        #[target_feature(enable = $features)]
        #[inline]
        pub(in crate::jpeg) fn transpose(v: [V; 8]) -> [V; 8] {
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

        /// Whether every value of the first row is still there after two shifts to the left:
        /// only then is a shift the same as a first pass.
        #[target_feature(enable = $features)]
        #[inline]
        fn is_ordinary(first_row: V) -> bool {
            all_equal16(shift_right16::<2>(shift_left16::<2>(first_row)), first_row)
        }

        /// Dequantised rows to rows of samples less 128, as 16-bit numbers.
        #[target_feature(enable = $features)]
        #[inline]
        fn inverse(rows: [V; 8]) -> [V; 8] {
            transpose(pass_along(transpose(pass_down(rows))))
        }
    };
}

pub(in crate::jpeg) mod avx512 {
    //! Four blocks at a time.

    use std::arch::x86_64::*;

    use crate::jpeg::transform::idct::STORE;
    use crate::kernels::x86::avx512::*;

    islow!(Avx512, "avx512f,avx512bw");

    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn transform_row(blocks: BlockRow<'_>, steps: &Steps, out: &mut [u8], stride: usize) {
        let repeated = repeated(steps);
        for x in (0..blocks.n_blocks).step_by(4) {
            let rows = rows([0, 1, 2, 3].map(|i| blocks.block(x + i)));
            let dequantised: [V; 8] =
                std::array::from_fn(|i| lower16(rows[i], repeated[i]));
            if !is_ordinary(dequantised[0]) {
                scalar(blocks, x..x + 4, steps, (&mut *out, stride));
                continue;
            }
            for (y, row) in inverse(dequantised).into_iter().enumerate() {
                let samples = _mm512_cvtsepi16_epi8(row);
                let samples = _mm256_xor_si256(samples, _mm256_set1_epi8(-128));
                let place = &mut out[y * stride + x * 8..][..STORE];
                // SAFETY: `place` is as long as the register.
                unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), samples) };
            }
        }
    }

    #[target_feature(enable = "avx512bw")]
    #[inline]
    fn all_equal16(a: V, b: V) -> bool {
        _mm512_cmpeq_epi16_mask(a, b) == u32::MAX
    }

    /// Each row of steps, once for each block.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn repeated(Steps(steps): &Steps) -> [V; 8] {
        std::array::from_fn(|i| {
            let row: &[i16] = &steps[8 * i..][..8];
            // SAFETY: `row` is as long as the register.
            let row: __m128i = unsafe { _mm_loadu_si128(row.as_ptr().cast()) };
            repeat(row)
        })
    }

    /// The rows of four blocks: 128 bits of each register are of one block.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn rows(blocks: [&Block; 4]) -> [V; 8] {
        let load = |block: &Block, half: usize| -> V {
            let half: &[i16] = &block[32 * half..][..32];
            // SAFETY: `half` is as long as the register.
            unsafe { _mm512_loadu_si512(half.as_ptr().cast()) }
        };
        let half = |half| {
            let [a, b, c, d] = blocks.map(|block| load(block, half));
            let (ab01, ab23) =
                (_mm512_shuffle_i64x2::<0x44>(a, b), _mm512_shuffle_i64x2::<0xee>(a, b));
            let (cd01, cd23) =
                (_mm512_shuffle_i64x2::<0x44>(c, d), _mm512_shuffle_i64x2::<0xee>(c, d));
            [
                _mm512_shuffle_i64x2::<0x88>(ab01, cd01),
                _mm512_shuffle_i64x2::<0xdd>(ab01, cd01),
                _mm512_shuffle_i64x2::<0x88>(ab23, cd23),
                _mm512_shuffle_i64x2::<0xdd>(ab23, cd23),
            ]
        };
        let ([r0, r1, r2, r3], [r4, r5, r6, r7]) = (half(0), half(1));
        [r0, r1, r2, r3, r4, r5, r6, r7]
    }
}

pub(in crate::jpeg) mod avx2 {
    //! Two blocks at a time.

    use std::arch::x86_64::*;

    use crate::kernels::x86::avx2::*;

    islow!(Avx2, "avx2");

    #[target_feature(enable = "avx2")]
    fn transform_row(blocks: BlockRow<'_>, steps: &Steps, out: &mut [u8], stride: usize) {
        for x in (0..blocks.n_blocks).step_by(2) {
            let (a, b) = (blocks.block(x), blocks.block(x + 1));
            let dequantised: [V; 8] = std::array::from_fn(|i| {
                let row = _mm256_set_m128i(load_row(b, i), load_row(a, i));
                lower16(row, repeat(load_row(&steps.0, i)))
            });
            if !is_ordinary(dequantised[0]) {
                scalar(blocks, x..x + 2, steps, (&mut *out, stride));
                continue;
            }
            let rows = inverse(dequantised);
            for y in (0..8).step_by(2) {
                let mixed = _mm256_packs_epi16(rows[y], rows[y + 1]);
                let samples = xor(mixed, _mm256_set1_epi8(-128));
                let samples = _mm256_permute4x64_epi64::<0b11_01_10_00>(samples);
                let upper = _mm256_castsi256_si128(samples);
                store_row(&mut out[y * stride + x * 8..], upper);
                let lower = _mm256_extracti128_si256::<1>(samples);
                store_row(&mut out[(y + 1) * stride + x * 8..], lower);
            }
        }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn all_equal16(a: V, b: V) -> bool {
        _mm256_movemask_epi8(_mm256_cmpeq_epi16(a, b)) == -1
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn load_row(block: &Block, row: usize) -> __m128i {
        let row: &[i16] = &block[8 * row..][..8];
        // SAFETY: `row` is as long as the register.
        unsafe { _mm_loadu_si128(row.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn store_row(place: &mut [u8], samples: __m128i) {
        let place = &mut place[..16];
        // SAFETY: `place` is as long as the register.
        unsafe { _mm_storeu_si128(place.as_mut_ptr().cast(), samples) };
    }
}
