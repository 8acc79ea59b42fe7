//! Gaussian blur: every pixel becomes a weighted mean of its neighbours, vertically, then horizontally.
//!
//! It uses fixed point of 16 bits. A kernel is symmetric, so two values with the same weight are added
//! before they are multiplied, and weights that would round to zero are omitted. Weights are computed in
//! f64, in an order that `core` defines, so every machine gets the same. The image is mirrored at the
//! centre of its outermost pixels, repeatedly if the kernel is larger than the image.
#![allow(clippy::cast_possible_truncation, reason = "halves of words are meant")]

#[cfg(target_arch = "x86_64")]
mod x86;

use std::array::from_ref;
use std::mem::swap;

use bothends_core::recipe::step::{Blur, blur_weights};

#[cfg(target_arch = "x86_64")]
use self::x86::{avx2, avx512};
use crate::image::Image;
use crate::kernels::{Level, starts, x86_kernel};

/// Values that are weighed side by side.
const BLOCK: usize = 64;

/// The most taps of which the upper halves of products are enough: what is cut off of so many
/// comes to less than half a step.
const MAX_TAPS: usize = 64;

/// Taps whose products are summed before the sums are put down.
const SIDE_BY_SIDE: usize = 4;

/// A pair of neighbours, equally far away to both sides.
#[derive(Debug, Clone, Copy)]
struct Tap {
    /// What each of them weighs, in 131072ths.
    weight: u16,
    /// Where they are when the first value of a row is made.
    places: [usize; 2],
}

/// What is kept from image to image.
#[derive(Debug, Default)]
pub(super) struct Blurrer {
    /// Along the columns; the first tap is a pixel and itself.
    column: Vec<Tap>,
    /// Along the rows.
    row: Vec<Tap>,
    /// A row that is blurred along the columns, with what it is mirrored to at its ends, in
    /// 128ths.
    across: Vec<u16>,
    /// The blurred image.
    blurred: Image,
}

impl Blurrer {
    /// Blurs the image: torchvision's `gaussian_blur` on tensors, in fixed point. Tensors
    /// differ by 1 where a mean lies so near to a half that 16 bits do not tell: measured, in
    /// one of 200 values. Pillow has no such op; torchvision makes tensors of its images.
    pub(super) fn blur(&mut self, level: Level, image: &mut Image, blur: &Blur) {
        let (width, channels) = (image.width(), image.channels());
        set_taps(&mut self.column, blur.kernel.height, blur.sigma);
        set_taps(&mut self.row, blur.kernel.width, blur.sigma);
        let reach = self.row.len() - 1;
        self.across.resize((reach + width + reach) * channels, 0);
        self.blur_rows(level, image);
        swap(image, &mut self.blurred);
    }

    fn blur_rows(&mut self, level: Level, image: &Image) {
        let Self { column, row, across, blurred } = self;
        let (height, channels) = (image.height(), image.channels());
        let n = image.width() * channels;
        let reach = row.len() - 1;
        for (away, tap) in row.iter_mut().enumerate() {
            tap.places = [reach - away, reach + away].map(|x| x * channels);
        }
        let out = blurred.reshape(image.size(), image.shape().channels);
        for (y, out) in out.chunks_exact_mut(n).enumerate() {
            for (away, tap) in column.iter_mut().enumerate() {
                // What is mirrored before the first row is so after it.
                let rows = [y.abs_diff(away), y + away];
                tap.places = rows.map(|y| n * mirrored(y, height));
            }
            let inner = &mut across[reach * channels..][..n];
            weigh_rows(level, column, image.pixels(), inner);
            match channels {
                // What is known is compiled to less.
                3 => mirror_ends(across, reach, 3),
                _ => mirror_ends(across, reach, channels),
            }
            weigh_row(level, row, across, out);
        }
    }

    /// Gives memory back if it is more than `keep_bytes`; the bytes that it keeps.
    pub(super) fn release_above(&mut self, keep_bytes: usize) -> usize {
        self.blurred.release_above(keep_bytes)
    }
}

/// The taps of a kernel of `len` pixels, from the middle outwards.
fn set_taps(taps: &mut Vec<Tap>, len: u32, sigma: f64) {
    taps.clear();
    // One pixel alone weighs a little less than one, which rounds to the same bytes.
    taps.extend(blur_weights(len, sigma).map(|weight| Tap { weight, places: [0; 2] }));
}

/// Row or column `at` of an image that has `n`, mirrored beyond its last.
#[inline(always)]
fn mirrored(at: usize, n: usize) -> usize {
    if at < n {
        return at;
    }
    let there_and_back = 2 * (n - 1);
    let at = at.checked_rem(there_and_back).unwrap_or(0);
    at.min(there_and_back - at)
}

/// Fills up a row with its mirror images, `reach` pixels at both ends.
#[inline(always)]
fn mirror_ends(across: &mut [u16], reach: usize, channels: usize) {
    let width = across.len() / channels - 2 * reach;
    let mut copy = |to: usize, from: usize| {
        for channel in 0..channels {
            across[to * channels + channel] = across[from * channels + channel];
        }
    };
    for away in 1..=reach {
        copy(reach - away, reach + mirrored(away, width));
        copy(reach + width - 1 + away, reach + mirrored(width - 1 + away, width));
    }
}

/// The pass along the columns: bytes to 128ths.
fn weigh_rows(level: Level, taps: &[Tap], values: &[u8], out: &mut [u16]) {
    if taps.len() > MAX_TAPS {
        return weigh_many(taps, values, out);
    }
    x86_kernel!(level.filled_by(out.len()), weigh_rows(taps, values, out), weigh);
}

/// The pass along the rows: 128ths to bytes.
fn weigh_row(level: Level, taps: &[Tap], values: &[u16], out: &mut [u8]) {
    if taps.len() > MAX_TAPS {
        return weigh_many(taps, values, out);
    }
    x86_kernel!(level.filled_by(out.len()), weigh_row(taps, values, out), weigh);
}

/// The scalar meaning of both passes: pairs of values weighed and summed up.
fn weigh<T: Value>(taps: &[Tap], values: &[T], out: &mut [T::Mean]) {
    let n = out.len();
    if n < BLOCK {
        for (at, mean) in out.iter_mut().enumerate() {
            [*mean] = weigh_block(taps, &values[at..]);
        }
        return;
    }
    for at in starts(n, BLOCK) {
        let means: [_; BLOCK] = weigh_block(taps, &values[at..]);
        out[at..][..BLOCK].copy_from_slice(&means);
    }
}

fn weigh_block<T: Value, const N: usize>(taps: &[Tap], values: &[T]) -> [T::Mean; N] {
    let mut sums = [T::start(taps); N];
    let (groups, rest) = taps.as_chunks::<SIDE_BY_SIDE>();
    for taps in groups {
        add(taps, values, &mut sums);
    }
    for tap in rest {
        add(from_ref(tap), values, &mut sums);
    }
    sums.map(T::mean)
}

#[inline(always)]
fn add<T: Value, const TAPS: usize, const N: usize>(
    taps: &[Tap; TAPS],
    values: &[T],
    sums: &mut [u16; N],
) {
    let block = |place: usize| values[place..].first_chunk::<N>().expect("of the row");
    let pairs = taps.each_ref().map(|tap| tap.places.map(block));
    for i in 0..N {
        for (tap, [a, b]) in taps.iter().zip(pairs) {
            let product = u32::from(T::pair(a[i], b[i])) * u32::from(tap.weight);
            sums[i] = sums[i].saturating_add((product >> 16) as u16);
        }
    }
}

/// The same of more than [`MAX_TAPS`], with whole products, for every level.
fn weigh_many<T: Value>(taps: &[Tap], values: &[T], out: &mut [T::Mean]) {
    for (at, mean) in out.iter_mut().enumerate() {
        let mut sum = u32::from(T::ROUNDING) << 16 | 1 << 15;
        for tap in taps {
            let [a, b] = tap.places.map(|place| values[place + at]);
            sum += u32::from(T::pair(a, b)) * u32::from(tap.weight);
        }
        *mean = T::mean((sum >> 16) as u16);
    }
}

/// What is weighed: bytes along the columns, what they become along the rows.
trait Value: Copy {
    /// What becomes of it.
    type Mean: Copy;

    /// What is added to a sum, so that its mean is rounded.
    const ROUNDING: u16;

    /// The sum of a pair, of which a product has the upper half: one bit, as a pair is one
    /// mean.
    fn pair(a: Self, b: Self) -> u16;

    /// The mean that a sum of products is.
    fn mean(sum: u16) -> Self::Mean;

    /// What a sum of products begins with. Of each the lower half is cut off: half of what
    /// that takes, on average, is added beforehand.
    fn start(taps: &[Tap]) -> u16 {
        let cut_off = u16::try_from(taps.len() / 2).unwrap_or(u16::MAX);
        cut_off.saturating_add(Self::ROUNDING)
    }
}

impl Value for u8 {
    /// In 128ths.
    type Mean = u16;
    const ROUNDING: u16 = 0;

    /// In 64ths.
    #[inline(always)]
    fn pair(a: Self, b: Self) -> u16 {
        (u16::from(a) + u16::from(b)) << 6
    }

    #[inline(always)]
    fn mean(sum: u16) -> u16 {
        sum
    }
}

impl Value for u16 {
    type Mean = u8;
    const ROUNDING: Self = 128;

    /// In 128ths.
    #[inline(always)]
    fn pair(a: Self, b: Self) -> Self {
        a.saturating_add(b)
    }

    #[inline(always)]
    fn mean(sum: Self) -> u8 {
        (sum >> 8) as u8
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::recipe::Size;
    use proptest::prelude::*;

    use super::*;

    /// What the weights of an axis come to, where a pair has one.
    const ONE: f64 = 65_536.0;

    fn blurred(level: Level, image: &Image, kernel: [u32; 2], sigma: f64) -> Image {
        let kernel = Size { height: kernel[0], width: kernel[1] };
        let mut image = image.clone();
        Blurrer::default().blur(level, &mut image, &Blur { kernel, sigma });
        image
    }

    fn image(size: [u32; 2], channels: u32, value: impl Fn(usize) -> u8) -> Image {
        let mut image = Image::default();
        let pixels = image.reshape(Size { height: size[0], width: size[1] }, channels);
        pixels.iter_mut().enumerate().for_each(|(i, pixel)| *pixel = value(i));
        image
    }

    #[test]
    fn a_point_becomes_the_bell() {
        // e^0, e^-½ and e^-2, of 2.48373: 0.40262, 0.24420 and 0.05449 of 255.
        let bell = [0, 0, 14, 62, 103, 62, 14, 0, 0];
        let point = |i| if i == 4 { 255 } else { 0 };
        for level in Level::available() {
            let across = blurred(level, &image([1, 9], 1, point), [1, 5], 1.0);
            assert_eq!(across.pixels(), bell, "{}", level.name());
            let down = blurred(level, &image([9, 1], 1, point), [5, 1], 1.0);
            assert_eq!(down.pixels(), bell, "{}", level.name());
        }
    }

    #[test]
    fn an_image_is_mirrored_at_the_middle_of_its_outermost_pixels() {
        let line = image([1, 3], 1, |i| [0, 255, 0][i]);
        assert_eq!(blurred(Level::best(), &line, [1, 3], 1e9).pixels(), [170, 85, 170]);
        // From the first pixel: 0 | 255 0 255 0 255 and the same to the left.
        assert_eq!(blurred(Level::best(), &line, [1, 11], 1e9).pixels(), [139, 116, 139]);
    }

    #[test]
    fn a_narrow_bell_or_a_kernel_of_one_changes_nothing() {
        let before = image([9, 30], 3, |i| (i * 101 % 256) as u8);
        for level in Level::available() {
            assert_eq!(blurred(level, &before, [23, 23], 0.1), before);
            assert_eq!(blurred(level, &before, [1, 1], 9.0), before);
        }
    }

    #[test]
    fn taps_come_to_one_and_none_is_wasted() {
        let mut taps = Vec::new();
        for (len, sigma) in [(3, 0.5), (23, 2.0), (101, 9.0), (2001, 900.0)] {
            set_taps(&mut taps, len, sigma);
            let sum: u32 = taps.iter().map(|tap| u32::from(tap.weight)).sum();
            assert_eq!(f64::from(sum), ONE, "{len}, {sigma}");
        }
        set_taps(&mut taps, 23, 1.0);
        assert_eq!(taps.len(), 5, "what lies five deviations away weighs nothing");
        // Nobody waits for a kernel of four thousand million pixels.
        set_taps(&mut taps, u32::MAX, f64::MAX);
        assert!(taps.len() < 200_000, "{} taps", taps.len());
    }

    /// What the blur would be without any rounding.
    fn exactly(image: &Image, kernel: [u32; 2], sigma: f64) -> Vec<f64> {
        let (height, width, channels) = (image.height(), image.width(), image.channels());
        let line = |values: Vec<f64>, n: usize, stride: usize, len: u32| -> Vec<f64> {
            let reach = (len / 2) as usize;
            let bell: Vec<f64> =
                (0..=reach).map(|d| (-0.5 * (d as f64 / sigma).powi(2)).exp()).collect();
            let total = bell[0] + 2.0 * bell[1..].iter().sum::<f64>();
            let value = |i: usize| {
                let at = i / stride % n;
                let of = |x| values[i - at * stride + mirrored(x, n) * stride];
                let pair = |d: usize| bell[d] * (of(at.abs_diff(d)) + of(at + d));
                (bell[0] * of(at) + (1..=reach).map(pair).sum::<f64>()) / total
            };
            (0..values.len()).map(value).collect()
        };
        let values = image.pixels().iter().map(|&value| f64::from(value)).collect();
        let down = line(values, height, width * channels, kernel[0]);
        line(down, width, channels, kernel[1])
    }

    proptest! {
        #[test]
        fn it_is_the_mean_at_every_level(
            size in [1..24_u32, 1..60_u32],
            channels in 1..=4_u32,
            halves in [0..20_u32, 0..20_u32],
            sigma in 0.1..20.0_f64,
            seed in 1..255_usize,
        ) {
            let kernel = halves.map(|half| 2 * half + 1);
            let before = image(size, channels, |i| (i * seed * 31 % 257) as u8);
            let after = blurred(Level::Scalar, &before, kernel, sigma);
            for (&got, mean) in after.pixels().iter().zip(exactly(&before, kernel, sigma)) {
                prop_assert!((f64::from(got) - mean).abs() < 0.65, "{} for {}", got, mean);
            }
            for level in Level::available() {
                prop_assert_eq!(&blurred(level, &before, kernel, sigma), &after);
            }
        }

        #[test]
        fn what_is_even_stays(
            value: u8,
            half in 0..300_u32,
            sigma in 0.01..500.0_f64,
            size in [1..10_u32, 1..40_u32],
        ) {
            let before = image(size, 3, |_| value);
            let kernel = [2 * half + 1; 2];
            prop_assert_eq!(blurred(Level::best(), &before, kernel, sigma), before);
        }
    }
}
