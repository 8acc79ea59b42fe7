//! Warps on x86. The loops that find places are the portable ones, compiled for AVX2 and
//! AVX-512. Blending holds a row of a pixel's window in each 128 bits of a register, the steps
//! being the same for both widths: one macro is given the instructions by name.
#![allow(unsafe_code, reason = "functions for known processors alone are called")]

/// Where the two values of each channel's product are that stand in pixels `first` and
/// `first + 1` of a window's row, as 16-bit numbers; of a fourth channel there are none.
const fn pairs(first: u8) -> [u8; 16] {
    const ZERO: u8 = 0x80;
    let mut places = [ZERO; 16];
    let mut channel = 0;
    while channel < 3 {
        let at = 3 * first + channel;
        places[4 * channel as usize] = at;
        places[4 * channel as usize + 2] = at + 3;
        channel += 1;
    }
    places
}

/// Where the bytes of four pixels of three channels are among four of four.
const THREE_OF_FOUR: [u8; 16] =
    [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 0x80, 0x80, 0x80, 0x80];

/// For blends: `bytes` once for each pixel that a register holds a row of.
const fn repeated<const LEN: usize>(bytes: [u8; 16]) -> [u8; LEN] {
    let mut all = [0; LEN];
    let mut i = 0;
    while i < LEN {
        all[i] = bytes[i % 16];
        i += 1;
    }
    all
}

/// For the vector number `nth` of four: which pixel each of its numbers is of. A register holds
/// rows of pixels that are four apart, so that packing brings them in order.
const fn spread<const LEN: usize>(nth: u32) -> [u32; LEN] {
    let mut pixels = [nth; LEN];
    let mut i = 4;
    while i < LEN {
        pixels[i] = pixels[i - 4] + 4;
        i += 1;
    }
    pixels
}

/// Which 32-bit numbers there are pixels in, once 12 bytes of each 16 hold some.
const fn filled<const LEN: usize>() -> [u32; LEN] {
    let mut numbers = [0; LEN];
    (numbers[1], numbers[2]) = (1, 2);
    let mut i = 3;
    while i < LEN * 3 / 4 {
        numbers[i] = numbers[i - 3] + 4;
        i += 1;
    }
    numbers
}

/// Defines `nearest` and `blended` for the proof `$cpu`, whose registers hold `$lanes` windows'
/// rows, with the instructions in scope.
macro_rules! warps {
    ($cpu:ty, $lanes:literal, $features:literal) => {
        use bothends_core::recipe::step::Warp;

        use super::super::blend::{self, Block, RGB};
        use super::super::curve::{Curve, DROPPED};
        use super::super::nearest::{Stepping, runs_of};
        use super::super::points::{N, Points, Seen, runs};

        use super::{THREE_OF_FOUR, filled, pairs, repeated, spread};
        use crate::image::{Image, View};
        use crate::kernels::compiled::compiled;
        use crate::kernels::vectors::load_128;

        /// Pixels that are packed into one register, and its bytes.
        const PACKED: usize = 4 * $lanes;
        const BYTES: usize = 16 * $lanes;

        static SPREAD: [[u32; PACKED]; 4] = [spread(0), spread(1), spread(2), spread(3)];
        static PAIRS: [[u8; BYTES]; 2] = [repeated(pairs(0)), repeated(pairs(2))];
        static PIXELS: [u8; BYTES] = repeated(THREE_OF_FOUR);
        static FILLED: [u32; PACKED] = filled();

        compiled!($features, pub(in crate::geometry::warp) fn nearest(
            _: $cpu,
            src: View<'_>,
            map: (&Stepping, &Warp),
            out: &mut Image,
        ) = runs_of);

        /// Interpolates between pixels of three channels, in images no smaller than windows.
        pub(in crate::geometry::warp) fn blended<const TAPS: usize, C: Curve<TAPS>>(
            _: $cpu,
            src: View<'_>,
            warp: &Warp,
            out: &mut Image,
        ) {
            #[target_feature(enable = $features)]
            fn compiled<const TAPS: usize, C: Curve<TAPS>>(
                src: View<'_>,
                warp: &Warp,
                out: &mut Image,
            ) {
                let (mut points, mut block) = (Points::NONE, Block::NONE);
                let size = [src.width(), src.height()];
                for run in runs(out.size()) {
                    // What is written behind the run is written again by the next one.
                    let out = &mut out.pixels_mut()[run.start * RGB..];
                    let seen = points.find(&warp.map, size, run);
                    if seen != Seen::Nothing {
                        block.set::<C>(src, &points);
                        blend_block::<TAPS>(src, &block, run.n_pixels, out);
                    }
                    let out = &mut out[..run.n_pixels * RGB];
                    points.fill_outside(seen, out, RGB, warp.fill);
                }
            }
            // SAFETY: the proof is only made on a processor that has these instructions.
            unsafe { compiled::<TAPS, C>(src, warp, out) }
        }

        #[target_feature(enable = $features)]
        fn blend_block<const TAPS: usize>(
            src: View<'_>,
            block: &Block<TAPS>,
            n_pixels: usize,
            out: &mut [u8],
        ) {
            let (bytes, stride) = src.bytes();
            let last = block.at.iter().fold(0, |last, &at| at.max(last));
            // From each row of the windows on, so that what is inside one is inside all.
            let len = bytes.len().saturating_sub((TAPS - 1) * stride);
            if last as usize + 16 > len {
                // In the last row a register would be filled from beyond the image.
                return blend::blend_block(src, block, &mut out[..n_pixels * RGB]);
            }
            for first in (0..n_pixels).step_by(PACKED) {
                let weights =
                    [weights(&block.across, first), weights(&block.down, first)];
                let mut quarters = [splat32(0); 4];
                for (nth, quarter) in quarters.iter_mut().enumerate() {
                    let spread = load(&SPREAD[nth]);
                    let at = std::array::from_fn(|lane| block.at[first + 4 * lane + nth]);
                    *quarter = blend_quarter::<TAPS>(
                        ((bytes, stride), len),
                        at,
                        (weights, spread),
                    );
                }
                let low = pack32(quarters[0], quarters[1]);
                let high = pack32(quarters[2], quarters[3]);
                let rgb = shuffle8(pack16(low, high), load(&PIXELS));
                let rgb = permute32(load(&FILLED), rgb);
                let rest = &mut out[RGB * first..];
                if let Some(place) = rest.first_chunk_mut::<BYTES>() {
                    store(place, rgb);
                } else {
                    let mut last = [0; BYTES];
                    store(&mut last, rgb);
                    rest.copy_from_slice(&last[..rest.len()]);
                }
            }
        }

        /// Weights of pixels `first` and on, in pairs of 16-bit numbers; of two taps one pair.
        #[target_feature(enable = $features)]
        #[inline]
        fn weights<const TAPS: usize>(
            weights: &[[i32; N]; TAPS],
            first: usize,
        ) -> [V; 2] {
            let of = |tap: usize| {
                let weights = weights[tap][first..].first_chunk::<PACKED>();
                load(weights.expect("inside the block"))
            };
            let pair = |tap: usize| pair16(of(tap), shift_left32::<16>(of(tap + 1)));
            [pair(0), pair(TAPS - 2)]
        }

        /// Blended pixels, one in each 128 bits, of the windows that begin `at`.
        #[target_feature(enable = $features)]
        #[inline]
        fn blend_quarter<const TAPS: usize>(
            ((bytes, stride), len): ((&[u8], usize), usize),
            at: [u32; $lanes],
            ([across, down], spread): ([[V; 2]; 2], V),
        ) -> V {
            const ROUND: [i32; 2] = [1 << (DROPPED[0] - 1), 1 << (DROPPED[1] - 1)];
            let [low, high] = [load(&PAIRS[0]), load(&PAIRS[1])];
            let across = [permute32(spread, across[0]), permute32(spread, across[1])];
            let mut sums = [splat32(ROUND[0]); TAPS];
            for (nth, sum) in sums.iter_mut().enumerate() {
                let rows = rows(&bytes[nth * stride..][..len], at);
                *sum = add_products(*sum, shuffle8(rows, low), across[0]);
                if TAPS > 2 {
                    *sum = add_products(*sum, shuffle8(rows, high), across[1]);
                }
            }
            let mut sum = splat32(ROUND[1]);
            for nth in 0..TAPS / 2 {
                // Rows two by two, as 16-bit numbers.
                let near = shift_right32::<{ DROPPED[0] }>(sums[2 * nth]);
                let far = shift_left32::<{ 16 - DROPPED[0] }>(sums[2 * nth + 1]);
                let down = permute32(spread, down[nth]);
                sum = add_products(sum, pair16(near, far), down);
            }
            shift_right32::<{ DROPPED[1] }>(sum)
        }

        /// Sixteen bytes from a place on.
        #[target_feature(enable = "avx2")]
        #[inline]
        fn row(bytes: &[u8], at: u32) -> __m128i {
            let at = at as usize;
            load_128(bytes[at..at + 16].first_chunk::<16>().expect("so many"))
        }
    };
}

pub(super) mod avx512 {
    //! Four windows at a time.

    use std::arch::x86_64::_mm512_permutexvar_epi32 as permute32;
    use std::arch::x86_64::*;

    use crate::kernels::Avx512;
    use crate::kernels::x86::avx512::*;

    warps!(Avx512, 4, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni");

    /// The low halves of the numbers of one, the high halves of those of the other.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn pair16(low: V, high: V) -> V {
        _mm512_mask_blend_epi16(0xaaaa_aaaa, low, high)
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn rows(bytes: &[u8], [a, b, c, d]: [u32; 4]) -> V {
        let a = _mm512_castsi128_si512(row(bytes, a));
        let ab = _mm512_inserti32x4::<1>(a, row(bytes, b));
        let abc = _mm512_inserti32x4::<2>(ab, row(bytes, c));
        _mm512_inserti32x4::<3>(abc, row(bytes, d))
    }
}

pub(super) mod avx2 {
    //! Two windows at a time.

    use std::arch::x86_64::*;

    use crate::kernels::Avx2;
    use crate::kernels::x86::avx2::*;

    warps!(Avx2, 2, "avx2");

    /// The low halves of the numbers of one, the high halves of those of the other.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn pair16(low: V, high: V) -> V {
        _mm256_blend_epi16::<0xaa>(low, high)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn permute32(places: V, from: V) -> V {
        _mm256_permutevar8x32_epi32(from, places)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn rows(bytes: &[u8], [a, b]: [u32; 2]) -> V {
        _mm256_set_m128i(row(bytes, b), row(bytes, a))
    }
}
