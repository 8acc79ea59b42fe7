//! Weighing as many values at once as AVX2 or AVX-512 hold bytes.
#![allow(unsafe_code, reason = "functions for known processors alone are called")]

/// Defines the kernels for the proof `$cpu`, whose registers hold `$values` bytes, with the
/// instructions in scope.
macro_rules! kernels {
    ($cpu:ident, $features:literal, $values:literal) => {
        use crate::adjust::blur::{Tap, Value};
        use crate::kernels::compiled::door;
        use crate::kernels::{starts, $cpu};

        /// Values that are weighed side by side; the least there may be.
        const VALUES: usize = $values;

        door!(pub(in crate::adjust::blur) fn weigh_rows(
            _: $cpu,
            taps: &[Tap],
            values: &[u8],
            out: &mut [u16],
        ) = rows);

        door!(pub(in crate::adjust::blur) fn weigh_row(
            _: $cpu,
            taps: &[Tap],
            values: &[u16],
            out: &mut [u8],
        ) = row);

        #[target_feature(enable = $features)]
        fn rows(taps: &[Tap], values: &[u8], out: &mut [u16]) {
            let start = splat16(u8::start(taps).cast_signed());
            for at in starts(out.len(), VALUES) {
                let values = &values[at..];
                let mut sums = [start; 2];
                for tap in taps {
                    let [a, b] = tap.places.map(|place| bytes(values, place));
                    for half in 0..2 {
                        let pair = shift_left16::<6>(add16(a[half], b[half]));
                        sums[half] = add(sums[half], pair, tap);
                    }
                }
                let (halves, _) = out[at..][..VALUES].as_chunks_mut::<{ VALUES / 2 }>();
                store(&mut halves[0], sums[0]);
                store(&mut halves[1], sums[1]);
            }
        }

        #[target_feature(enable = $features)]
        fn row(taps: &[Tap], values: &[u16], out: &mut [u8]) {
            let start = splat16(u16::start(taps).cast_signed());
            for at in starts(out.len(), VALUES) {
                let values = &values[at..];
                let mut sums = [start; 2];
                for tap in taps {
                    let [a, b] = tap.places.map(|place| words(values, place));
                    for half in 0..2 {
                        let pair = add16_unsigned(a[half], b[half]);
                        sums[half] = add(sums[half], pair, tap);
                    }
                }
                let block = out[at..].first_chunk_mut().expect("a block of the row");
                store_upper_bytes(block, sums);
            }
        }

        /// Adds what `pair` weighs.
        #[inline]
        #[target_feature(enable = $features)]
        fn add(sum: V, pair: V, tap: &Tap) -> V {
            let weight = splat16(tap.weight.cast_signed());
            add16_unsigned(sum, upper16_unsigned(pair, weight))
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn bytes(values: &[u8], at: usize) -> [V; 2] {
            let block: &[u8; VALUES] =
                values[at..].first_chunk().expect("a block of the row");
            let (halves, _) = block.as_chunks::<{ VALUES / 2 }>();
            [widen8(load_half(&halves[0])), widen8(load_half(&halves[1]))]
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn words(values: &[u16], at: usize) -> [V; 2] {
            let block: &[u16; VALUES] =
                values[at..].first_chunk().expect("a block of the row");
            let (halves, _) = block.as_chunks::<{ VALUES / 2 }>();
            [load(&halves[0]), load(&halves[1])]
        }
    };
}

pub(super) mod avx512 {
    //! 64 values at once.

    use std::arch::x86_64::_mm512_cvtepi16_epi8;

    use crate::kernels::vectors::store_256;
    use crate::kernels::x86::avx512::*;

    kernels!(Avx512, "avx512f,avx512bw", 64);

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn store_upper_bytes(block: &mut [u8; VALUES], sums: [V; 2]) {
        let (halves, _) = block.as_chunks_mut::<32>();
        let [low, high] = sums.map(|sum| shift_right16_unsigned::<8>(sum));
        store_256(&mut halves[0], _mm512_cvtepi16_epi8(low));
        store_256(&mut halves[1], _mm512_cvtepi16_epi8(high));
    }
}

pub(super) mod avx2 {
    //! 32 values at once.

    use std::arch::x86_64::_mm256_permute4x64_epi64;

    use crate::kernels::x86::avx2::*;

    kernels!(Avx2, "avx2", 32);

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store_upper_bytes(block: &mut [u8; VALUES], sums: [V; 2]) {
        let [low, high] = sums.map(|sum| shift_right16_unsigned::<8>(sum));
        // Packing leaves the quarters as 0, 2, 1, 3.
        store(block, _mm256_permute4x64_epi64::<0xD8>(pack16(low, high)));
    }
}
