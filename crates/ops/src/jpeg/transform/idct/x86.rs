//! The inverse DCT on x86: a register holds the same row of several blocks, a block to each
//! 128 bits. AVX-512 does four blocks at a time, AVX2 two; the steps are the same, so both
//! are made from one macro, which is given the instructions by name.
#![allow(unsafe_code, reason = "vector loads and stores take addresses")]

/// Two 16-bit factors as the one 32-bit number that is repeated through a register.
pub(in crate::jpeg) const fn factors([a, b]: [i32; 2]) -> i32 {
    (a & 0xffff) | (b << 16)
}

/// Where the bytes of eight 16-bit elements of a row come from, so that those that the transform
/// combines are neighbours: 0 and 4, 2 and 6, 7 and 1, 5 and 3. Blocks are kept so.
pub(in crate::jpeg) const PAIRS: [u8; 16] =
    [0, 1, 8, 9, 4, 5, 12, 13, 14, 15, 2, 3, 10, 11, 6, 7];

/// The same, to exchange the elements of each pair.
const SWAP: [u8; 16] = [2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13];

/// The same for 4 × 4 bytes: columns become rows.
const ACROSS: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];

/// Defines `block_row` for the proof `$cpu`, and what its `transform_row` is made of, with the
/// instructions in scope.
macro_rules! islow {
    ($cpu:ident, $features:literal) => {
        use crate::jpeg::block::{Block, BlockRow};
        use crate::jpeg::transform::idct::x86::{ACROSS, SWAP, factors};
        use crate::jpeg::transform::idct::{
            EVEN_2, EVEN_3, ODD_0, ODD_1, ODD_2, ODD_3, SUM_3, SUM_4, Steps, rows, scalar,
        };
        use crate::kernels::$cpu;
        use crate::kernels::compiled::door;
        use crate::kernels::vectors::load_128;

        door!(pub(in crate::jpeg::transform::idct) fn block_row(
            _: $cpu,
            blocks: BlockRow<'_>,
            steps: &Steps,
            out: &mut [u8],
            stride: usize,
        ) = transform_row);

        /// Down the columns: blocks as they are kept, to rows of 16-bit values whose elements lie as [`PAIRS`]
        /// says.
        ///
        /// [`PAIRS`]: crate::jpeg::transform::idct::x86::PAIRS
        #[target_feature(enable = $features)]
        #[inline]
        fn pass_down(kept: [V; 8]) -> [V; 8] {
            let [v0, v4, low_26, high_26, low_71, high_71, low_53, high_53] = kept;
            let (sum, difference) = (add16(v0, v4), sub16(v0, v4));
            let round = splat32(1 << 10);
            let half = |first, v26, v71, v53| {
                let t0 = add_products(round, first, splat32(factors([1 << 13, 0])));
                let t1 = add_products(round, first, splat32(factors([0, 1 << 13])));
                half([t0, t1], [v26, add16(v71, swap(v53)), v71, v53])
            };
            let low = half(unpack_low16(sum, difference), low_26, low_71, low_53);
            let high = half(unpack_high16(sum, difference), high_26, high_71, high_53);
            std::array::from_fn(|i| {
                pack32(shift_right32::<11>(low[i]), shift_right32::<11>(high[i]))
            })
        }

        /// Along four rows of each block, which are given as pairs of their elements, to eight
        /// 32-bit columns.
        #[target_feature(enable = $features)]
        #[inline]
        fn pass_along([v04, v26, v71, v53]: [V; 4]) -> [V; 8] {
            let (v40, v35) = (swap(v04), swap(v53));
            let first = splat32(factors([1 << 13, 0]));
            let round = splat32(1 << 17);
            let t0 = add_products(round, add16(v04, v40), first);
            let t1 = add_products(round, sub16(v04, v40), first);
            let columns = half([t0, t1], [v26, add16(v71, v35), v71, v53]);
            columns.map(|column| shift_right32::<18>(column))
        }

        /// The elements of each pair, exchanged.
        #[target_feature(enable = $features)]
        #[inline]
        fn swap(pairs: V) -> V {
            shuffle8(pairs, repeat(load_128(&SWAP)))
        }

        /// As `transform` of the scalar meaning, on pairs of 16-bit inputs; of elements 0 and
        /// 4, sum and difference times 2^13, with what is due to rounding.
        #[target_feature(enable = $features)]
        #[inline]
        fn half([t0, t1]: [V; 2], [v26, sr, v71, v53]: [V; 4]) -> [V; 8] {
            let plus = |sum, pair, constants| {
                add_products(sum, pair, splat32(factors(constants)))
            };
            let times = |pair, constants| multiply_add(pair, splat32(factors(constants)));
            let even = even([t0, t1], v26);
            let (z3, z4) = (times(sr, SUM_3), times(sr, SUM_4));
            let odd = [
                plus(z4, v71, ODD_3),
                plus(z3, v53, ODD_2),
                plus(z4, v53, ODD_1),
                plus(z3, v71, ODD_0),
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

        /// Four rows of each block, as `pass_down` makes them, to pairs of elements.
        #[target_feature(enable = $features)]
        #[inline]
        fn pairs([a, b, c, d]: [V; 4]) -> [V; 4] {
            let (ab01, ab23) = (unpack_low32(a, b), unpack_high32(a, b));
            let (cd01, cd23) = (unpack_low32(c, d), unpack_high32(c, d));
            [
                unpack_low64(ab01, cd01),
                unpack_high64(ab01, cd01),
                unpack_low64(ab23, cd23),
                unpack_high64(ab23, cd23),
            ]
        }

        /// Eight 32-bit columns of four rows to samples less 128, a byte each: of each block its
        /// four rows to the left, four bytes each, and to the right.
        #[target_feature(enable = $features)]
        #[inline]
        fn halves(columns: [V; 8]) -> [V; 2] {
            let four = |[a, b, c, d]: [V; 4]| {
                let columns = pack_signed16(pack32(a, b), pack32(c, d));
                shuffle8(columns, repeat(load_128(&ACROSS)))
            };
            let [a, b, c, d, e, f, g, h] = columns;
            [four([a, b, c, d]), four([e, f, g, h])]
        }

        /// Whether every value of the first row is still there after two shifts to the left:
        /// only then is a shift the same as a first pass.
        #[target_feature(enable = $features)]
        #[inline]
        fn is_ordinary(first_row: V) -> bool {
            all_equal16(shift_right16::<2>(shift_left16::<2>(first_row)), first_row)
        }

        /// Dequantised blocks to samples less 128, as `halves` has them: of the upper four rows, and of
        /// the lower.
        #[target_feature(enable = $features)]
        #[inline]
        fn inverse(kept: [V; 8]) -> [[V; 2]; 2] {
            let [a, b, c, d, e, f, g, h] = pass_down(kept);
            // Not one closure for both, which the compiler would not inline.
            let (upper, lower) = (pairs([a, b, c, d]), pairs([e, f, g, h]));
            let (upper, lower) = (pass_along(upper), pass_along(lower));
            [halves(upper), halves(lower)]
        }
    };
}

pub(in crate::jpeg) mod avx512 {
    //! Four blocks at a time.

    use std::arch::x86_64::*;

    use crate::jpeg::transform::idct::STORE;
    use crate::kernels::vectors::store_256;
    use crate::kernels::x86::avx512::*;

    islow!(Avx512, "avx512f,avx512bw,avx512vnni");

    /// The even part, of elements 2 and 6 and what came of 0 and 4: adding a product is one instruction,
    /// so the factors of those that are subtracted are negative.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    #[inline]
    fn even([t0, t1]: [V; 2], v26: V) -> [V; 4] {
        let plus = |sum, constants| add_products(sum, v26, splat32(factors(constants)));
        let minus = |[a, b]: [i32; 2]| [-a, -b];
        [
            plus(t0, EVEN_3),
            plus(t1, EVEN_2),
            plus(t1, minus(EVEN_2)),
            plus(t0, minus(EVEN_3)),
        ]
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn transform_row(blocks: BlockRow<'_>, steps: &Steps, out: &mut [u8], stride: usize) {
        let (repeated, mut out) = (repeated(steps), rows::<STORE>(out, stride));
        let mut walk = blocks.walk();
        for part in 0..blocks.n_blocks.div_ceil(4) {
            let four = walk.several();
            let kept = side_by_side(four);
            let dequantised: [V; 8] =
                std::array::from_fn(|i| lower16(kept[i], repeated[i]));
            if !is_ordinary(dequantised[0]) {
                scalar(&four, steps, &mut out, part);
                continue;
            }
            for (four, [left, right]) in inverse(dequantised).into_iter().enumerate() {
                for two in 0..2 {
                    let rows = _mm512_permutex2var_epi32(left, rows_of_four(two), right);
                    let rows = xor(rows, _mm512_set1_epi8(-128));
                    let y = 4 * four + 2 * two;
                    store_256(&mut out[y][part], _mm512_castsi512_si256(rows));
                    let lower = _mm512_extracti64x4_epi64::<1>(rows);
                    store_256(&mut out[y + 1][part], lower);
                }
            }
        }
    }

    /// For rows `2 · two` and `2 · two + 1` of four: where their halves of eight bytes lie in the blocks of
    /// a left and a right register.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn rows_of_four(two: usize) -> V {
        const PLACES: [[u32; 16]; 2] = {
            let mut places = [[0; 16]; 2];
            let mut nth = 0;
            while nth < 32 {
                let (row, block, side) = (nth / 8, nth / 2 % 4, nth % 2);
                places[nth as usize / 16][nth as usize % 16] =
                    16 * side + 4 * block + row;
                nth += 1;
            }
            places
        };
        load(&PLACES[two])
    }

    #[target_feature(enable = "avx512bw")]
    #[inline]
    fn all_equal16(a: V, b: V) -> bool {
        _mm512_cmpeq_epi16_mask(a, b) == u32::MAX
    }

    /// Each eight steps, once for each block.
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

    /// Eight neighbours of each block in a register, 128 bits of one block.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn side_by_side(blocks: [&Block; 4]) -> [V; 8] {
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

    /// The even part, of elements 2 and 6 and what came of 0 and 4.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn even([t0, t1]: [V; 2], v26: V) -> [V; 4] {
        let [t2, t3] = [EVEN_2, EVEN_3]
            .map(|constants| multiply_add(v26, splat32(factors(constants))));
        [add32(t0, t3), add32(t1, t2), sub32(t1, t2), sub32(t0, t3)]
    }

    #[target_feature(enable = "avx2")]
    fn transform_row(blocks: BlockRow<'_>, steps: &Steps, out: &mut [u8], stride: usize) {
        let (mut walk, mut out) = (blocks.walk(), rows::<16>(out, stride));
        for part in 0..blocks.n_blocks.div_ceil(2) {
            let two: [&Block; 2] = walk.several();
            let dequantised: [V; 8] = std::array::from_fn(|i| {
                let [a, b] = two.map(|block| load_eight(block, i));
                let kept = _mm256_set_m128i(b, a);
                lower16(kept, repeat(load_eight(&steps.0, i)))
            });
            if !is_ordinary(dequantised[0]) {
                scalar(&two, steps, &mut out, part);
                continue;
            }
            for (four, [left, right]) in inverse(dequantised).into_iter().enumerate() {
                let rows = [unpack_low32(left, right), unpack_high32(left, right)];
                for (two, rows) in rows.into_iter().enumerate() {
                    let rows = xor(rows, _mm256_set1_epi8(-128));
                    let rows = _mm256_permute4x64_epi64::<0b11_01_10_00>(rows);
                    let y = 4 * four + 2 * two;
                    store_row(&mut out[y][part], _mm256_castsi256_si128(rows));
                    let lower = _mm256_extracti128_si256::<1>(rows);
                    store_row(&mut out[y + 1][part], lower);
                }
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
    fn load_eight(block: &Block, nth: usize) -> __m128i {
        let eight: &[i16] = &block[8 * nth..][..8];
        // SAFETY: `eight` is as long as the register.
        unsafe { _mm_loadu_si128(eight.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn store_row(place: &mut [u8; 16], samples: __m128i) {
        // SAFETY: `place` is as long as the register.
        unsafe { _mm_storeu_si128(place.as_mut_ptr().cast(), samples) };
    }
}
