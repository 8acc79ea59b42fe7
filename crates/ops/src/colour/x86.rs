//! Colour conversion, and planes to pixels and back, with AVX2 or AVX-512 and VBMI.
//!
//! Products are of 16-bit numbers, so a constant that is too large is taken apart: 1.402 is 1 and
//! a rest, 1.772 is 2 less a rest, -0.714136 is -1 and a rest. Everything is exact, up to the one
//! rounding; bytes are sixty-fourths without a fraction. The steps are the same for both, which is
//! one macro; but AVX2 puts pixels together within its lanes, AVX-512 across all of its bytes. The
//! meaning is in `colour.rs`.

#![allow(unsafe_code, reason = "functions for known processors alone are called")]

/// Defines the kernels for the proof `$cpu`, whose registers hold `$pixels` bytes, with the
/// instructions in scope.
macro_rules! kernels {
    ($cpu:ident, $features:literal, $pixels:literal) => {
        use crate::colour::FINE_BITS;
        use crate::colour::rests::{BLUE_REST, GREEN_PER_CB, GREEN_REST, RED_REST};
        use crate::kernels::compiled::door;
        use crate::kernels::{starts, $cpu};

        /// Pixels that are worked on side by side; the least there may be.
        const PIXELS: usize = $pixels;

        door!(pub(in crate::colour) fn ycc_to_rgb(
            _: $cpu,
            ycc: [&[u8]; 3],
            rgb: [&mut [u8]; 3],
        ) = convert_rows);

        door!(pub(in crate::colour) fn fine_ycc_to_rgb(
            _: $cpu,
            ycc: [&[i16]; 3],
            pixels: &mut [u8],
        ) = convert_fine);

        door!(pub(in crate::colour) fn fine_to_pixels(
            _: $cpu,
            planes: [&[i16]; 3],
            pixels: &mut [u8],
        ) = round_fine);

        door!(pub(in crate::colour) fn interleave(
            _: $cpu,
            planes: [&[u8]; 3],
            pixels: &mut [u8],
        ) = interleave_rows);

        door!(pub(in crate::colour) fn deinterleave(
            _: $cpu,
            pixels: &[u8],
            planes: [&mut [u8]; 3],
        ) = deinterleave_rows);

        #[target_feature(enable = $features)]
        fn convert_rows([y, cb, cr]: [&[u8]; 3], [r, g, b]: [&mut [u8]; 3]) {
            for at in starts(y.len(), PIXELS) {
                let ycc =
                    [widen(block(y, at)), widen(block(cb, at)), widen(block(cr, at))];
                // Packing undoes the order of `widen`.
                let rgb = convert_block(ycc);
                put(r, at, rgb[0]);
                put(g, at, rgb[1]);
                put(b, at, rgb[2]);
            }
        }

        #[target_feature(enable = $features)]
        fn convert_fine([y, cb, cr]: [&[i16]; 3], pixels: &mut [u8]) {
            for at in starts(pixels.len() / 3, PIXELS) {
                let rgb = convert_block([halves(y, at), halves(cb, at), halves(cr, at)]);
                store_packed(rgb, &mut pixels[3 * at..]);
            }
        }

        #[target_feature(enable = $features)]
        fn round_fine([a, b, c]: [&[i16]; 3], pixels: &mut [u8]) {
            for at in starts(pixels.len() / 3, PIXELS) {
                let rgb =
                    [round(halves(a, at)), round(halves(b, at)), round(halves(c, at))];
                store_packed(rgb, &mut pixels[3 * at..]);
            }
        }

        #[target_feature(enable = $features)]
        fn interleave_rows([r, g, b]: [&[u8]; 3], pixels: &mut [u8]) {
            for at in starts(pixels.len() / 3, PIXELS) {
                let rgb = [block(r, at), block(g, at), block(b, at)];
                store_pixels(rgb, &mut pixels[3 * at..]);
            }
        }

        #[target_feature(enable = $features)]
        fn deinterleave_rows(pixels: &[u8], [r, g, b]: [&mut [u8]; 3]) {
            for at in starts(pixels.len() / 3, PIXELS) {
                let thirds = thirds([
                    block(pixels, 3 * at),
                    block(pixels, 3 * at + PIXELS),
                    block(pixels, 3 * at + 2 * PIXELS),
                ]);
                put(r, at, pick(&CHANNELS[0], thirds));
                put(g, at, pick(&CHANNELS[1], thirds));
                put(b, at, pick(&CHANNELS[2], thirds));
            }
        }

        /// The vector of bytes from `at` on.
        #[inline]
        #[target_feature(enable = $features)]
        fn block(bytes: &[u8], at: usize) -> V {
            load::<u8, PIXELS>(bytes[at..].first_chunk().expect("a block inside the row"))
        }

        /// Writes a vector from `at` on.
        #[inline]
        #[target_feature(enable = $features)]
        fn put(bytes: &mut [u8], at: usize, value: V) {
            let place = bytes[at..].first_chunk_mut().expect("a place inside the row");
            store::<u8, PIXELS>(place, value);
        }

        /// Red, green and blue as bytes, in the order of packing.
        #[inline]
        #[target_feature(enable = $features)]
        fn convert_block([y, cb, cr]: [[V; 2]; 3]) -> [V; 3] {
            let low = convert(y[0], cb[0], cr[0]);
            let high = convert(y[1], cb[1], cr[1]);
            [pack16(low[0], high[0]), pack16(low[1], high[1]), pack16(low[2], high[2])]
        }

        /// Red, green and blue in sixty-fourths: rounded, not yet limited to a byte.
        ///
        /// ⌊(2^16 a + b) / 2^22⌋ is ⌊(a + ⌊b / 2^16⌋) / 2^6⌋, so the high halves of products are
        /// enough.
        #[inline]
        #[target_feature(enable = $features)]
        fn convert(y: V, cb: V, cr: V) -> [V; 3] {
            let centre = splat16(128 << FINE_BITS);
            let (cb, cr) = (sub16(cb, centre), sub16(cr, centre));
            let y = add16(y, splat16(1 << (FINE_BITS - 1)));
            let red = add16(add16(y, cr), upper16(cr, splat16(RED_REST)));
            let blue = upper16(cb, splat16(BLUE_REST));
            let blue = add16(add16(y, add16(cb, cb)), blue);
            let green = add16(sub16(y, cr), green_rest(cb, cr));
            [
                shift_right16::<FINE_BITS>(red),
                shift_right16::<FINE_BITS>(green),
                shift_right16::<FINE_BITS>(blue),
            ]
        }

        /// The high half of the sum of two products: the sum of the high halves and what the low
        /// halves carry. These are even, as the constants are, so their mean is exact.
        #[inline]
        #[target_feature(enable = $features)]
        fn green_rest(cb: V, cr: V) -> V {
            let (per_cb, per_cr) = (splat16(-GREEN_PER_CB), splat16(GREEN_REST));
            let high = add16(upper16(cb, per_cb), upper16(cr, per_cr));
            let mean = mean16(lower16(cb, per_cb), lower16(cr, per_cr));
            add16(high, shift_right16_unsigned::<15>(mean))
        }

        /// Bytes as sixty-fourths, in the order of unpacking.
        #[inline]
        #[target_feature(enable = $features)]
        fn widen(bytes: V) -> [V; 2] {
            // Unpacking into the upper half is a shift by 8.
            [
                shift_right16_unsigned::<{ 8 - FINE_BITS }>(unpack_low8(zero(), bytes)),
                shift_right16_unsigned::<{ 8 - FINE_BITS }>(unpack_high8(zero(), bytes)),
            ]
        }

        /// Numbers from `at` on as two vectors.
        #[inline]
        #[target_feature(enable = $features)]
        fn halves(numbers: &[i16], at: usize) -> [V; 2] {
            let block: &[i16; PIXELS] =
                numbers[at..].first_chunk().expect("a block inside the row");
            let (halves, _) = block.as_chunks::<{ PIXELS / 2 }>();
            [load(&halves[0]), load(&halves[1])]
        }

        /// Sixty-fourths rounded to bytes, in the order of packing.
        #[inline]
        #[target_feature(enable = $features)]
        fn round([low, high]: [V; 2]) -> V {
            let half = splat16(1 << (FINE_BITS - 1));
            let low = shift_right16::<FINE_BITS>(add16(low, half));
            let high = shift_right16::<FINE_BITS>(add16(high, half));
            pack16(low, high)
        }
    };
}

pub(super) mod avx512 {
    //! Bytes go anywhere: 64 pixels are three permutations.

    use std::arch::x86_64::{_mm512_mask_permutexvar_epi8, _mm512_permutex2var_epi8};

    use crate::kernels::x86::avx512::*;

    kernels!(Avx512, "avx512f,avx512bw,avx512vbmi", 64);

    /// Writes 64 pixels, whose channels lie in the order of packing.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn store_packed(rgb: [V; 3], pixels: &mut [u8]) {
        store_from(&PACKED, rgb, pixels);
    }

    /// Writes 64 pixels, whose channels lie in order.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn store_pixels(rgb: [V; 3], pixels: &mut [u8]) {
        store_from(&IN_ORDER, rgb, pixels);
    }

    /// Writes 64 pixels, whose channels lie as `places` says.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn store_from(places: &Places, rgb: [V; 3], pixels: &mut [u8]) {
        put(pixels, 0, pick(&places[0], rgb));
        put(pixels, 64, pick(&places[1], rgb));
        put(pixels, 128, pick(&places[2], rgb));
    }

    /// Pixels are picked from as they lie.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn thirds(parts: [V; 3]) -> [V; 3] {
        parts
    }

    /// 64 bytes, each from its place in three vectors.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn pick(places: &Place, [first, second, third]: [V; 3]) -> V {
        let front = _mm512_permutex2var_epi8(first, load(&places.first_two), second);
        let back = load(&places.third);
        _mm512_mask_permutexvar_epi8(front, places.is_third, back, third)
    }

    /// Where each of 64 bytes comes from, of three vectors.
    #[repr(C, align(64))]
    struct Place {
        /// Of the first two, which are one after the other.
        first_two: [u8; 64],
        /// Of the third, where `is_third` has a bit.
        third: [u8; 64],
        is_third: u64,
    }

    type Places = [Place; 3];

    impl Place {
        const NOWHERE: Self = Self { first_two: [0; 64], third: [0; 64], is_third: 0 };

        /// Byte `at` comes from byte `from` of vector `vector`.
        const fn put(&mut self, at: usize, vector: usize, from: u8) {
            match vector {
                0 => self.first_two[at] = from,
                1 => self.first_two[at] = 64 + from,
                _ => {
                    self.third[at] = from;
                    self.is_third |= 1 << at;
                }
            }
        }
    }

    /// Pixels from channels whose bytes are in order.
    static IN_ORDER: Places = pixels_from(Order::Plain);

    /// Pixels from channels whose bytes are in the order of packing.
    static PACKED: Places = pixels_from(Order::Packed);

    /// Channels from pixels.
    static CHANNELS: Places = {
        let mut places = [Place::NOWHERE; 3];
        let (mut i, mut from) = (0, 0);
        while i < 192 {
            places[i % 3].put(i / 3, i / 64, from);
            i += 1;
            from = (from + 1) % 64;
        }
        places
    };

    /// How 64 bytes lie in a vector.
    #[derive(Clone, Copy)]
    enum Order {
        Plain,
        /// As `vpackuswb` leaves two vectors of 32 numbers: by eights in turn.
        Packed,
    }

    const fn pixels_from(order: Order) -> Places {
        let mut places = [Place::NOWHERE; 3];
        let (mut i, mut pixel) = (0, 0);
        while i < 192 {
            let byte = match order {
                Order::Plain => pixel,
                Order::Packed => pixel % 32 / 8 * 16 + pixel / 32 * 8 + pixel % 8,
            };
            places[i / 64].put(i % 64, i % 3, byte);
            i += 1;
            if i % 3 == 0 {
                pixel += 1;
            }
        }
        places
    }
}

pub(super) mod avx2 {
    //! Bytes stay in their lanes, of sixteen pixels each.

    use std::arch::x86_64::*;

    use crate::kernels::x86::avx2::*;

    kernels!(Avx2, "avx2", 32);

    /// Writes 32 pixels, whose channels lie in the order of packing.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn store_packed([r, g, b]: [V; 3], pixels: &mut [u8]) {
        store_pixels([in_order(r), in_order(g), in_order(b)], pixels);
    }

    /// Undoes what packing does to the order of two vectors.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn in_order(packed: V) -> V {
        _mm256_permute4x64_epi64::<0b11_01_10_00>(packed)
    }

    /// Writes 32 pixels, whose channels lie in order.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn store_pixels(rgb: [V; 3], pixels: &mut [u8]) {
        // Thirds of sixteen pixels, which are a lane.
        let thirds =
            [pick(&THIRDS[0], rgb), pick(&THIRDS[1], rgb), pick(&THIRDS[2], rgb)];
        put(pixels, 0, _mm256_permute2x128_si256::<0x20>(thirds[0], thirds[1]));
        put(pixels, 32, _mm256_permute2x128_si256::<0x30>(thirds[2], thirds[0]));
        put(pixels, 64, _mm256_permute2x128_si256::<0x31>(thirds[1], thirds[2]));
    }

    /// Sixteen pixels to a lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn thirds(parts: [V; 3]) -> [V; 3] {
        [
            _mm256_permute2x128_si256::<0x30>(parts[0], parts[1]),
            _mm256_permute2x128_si256::<0x21>(parts[0], parts[2]),
            _mm256_permute2x128_si256::<0x30>(parts[1], parts[2]),
        ]
    }

    /// In each lane 16 bytes, each from its place in one of three vectors.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn pick(places: &[[u8; 32]; 3], from: [V; 3]) -> V {
        let first = shuffle8(from[0], load(&places[0]));
        let second = shuffle8(from[1], load(&places[1]));
        let third = shuffle8(from[2], load(&places[2]));
        _mm256_or_si256(_mm256_or_si256(first, second), third)
    }

    /// What a shuffle makes 0 of.
    const NOWHERE: u8 = 0x80;

    /// For each third of 16 pixels, where each byte is in the three channels.
    static THIRDS: [[[u8; 32]; 3]; 3] = {
        let mut places = [[[NOWHERE; 32]; 3]; 3];
        let (mut i, mut pixel) = (0, 0);
        while i < 48 {
            let (third, at, channel) = (i / 16, i % 16, i % 3);
            places[third][channel][at] = pixel;
            places[third][channel][at + 16] = pixel;
            i += 1;
            if channel == 2 {
                pixel += 1;
            }
        }
        places
    };

    /// For each channel of 16 pixels, where each byte is in the three thirds.
    static CHANNELS: [[[u8; 32]; 3]; 3] = {
        let mut places = [[[NOWHERE; 32]; 3]; 3];
        let (mut i, mut at) = (0, 0);
        while i < 48 {
            let (third, pixel, channel) = (i / 16, i / 3, i % 3);
            places[channel][third][pixel] = at;
            places[channel][third][pixel + 16] = at;
            i += 1;
            at = (at + 1) % 16;
        }
        places
    };
}
