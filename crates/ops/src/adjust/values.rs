//! Adjustments that depend on one value at a time and nothing else: no other pixel, no other channel.
//!
//! Each is a function from a value to a value. Read `table.rs` next, which applies them to many at once.

use crate::kernels::Level;
use crate::kernels::compiled::{Work, run, truncated};

/// From `from` (at 0) to `to` (at 1) and beyond, cut off at 0 and 255.
///
/// Pillow's `Image.blend` in every bit (Blend.c): f32, product first, then truncated. Every
/// "away from" is this. torchvision's tensors blend by ratio·to + (1 − ratio)·from, which
/// differs by 1 where rounding does.
#[inline(always)]
pub(super) fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let difference = i16::from(to) - i16::from(from);
    truncated(f32::from(from) + factor * f32::from(difference))
}

/// 255 − value: `ImageOps.invert`. The same as torchvision's tensors.
#[inline(always)]
pub(super) fn invert(value: u8) -> u8 {
    !value
}

/// Keeps the upper `bits`: `ImageOps.posterize`. The same as torchvision's tensors.
#[inline(always)]
pub(super) fn posterize(bits: u8) -> impl Fn(u8) -> u8 + Copy {
    let dropped = u32::from(8_u8.saturating_sub(bits));
    let kept = u8::MAX.checked_shl(dropped).unwrap_or(0);
    move |value| value & kept
}

/// Inverts what is not below `threshold`: `ImageOps.solarize`. The same as torchvision's
/// tensors, which do not know 256.
#[inline(always)]
pub(super) fn solarize(threshold: u16) -> impl Fn(u8) -> u8 + Copy {
    // No value reaches 256.
    let (first, flipped) =
        u8::try_from(threshold).map_or((0, 0), |first| (first, u8::MAX));
    move |value| if value >= first { value ^ flipped } else { value }
}

/// Adds to what is below 128, up to 255: timm's `solarize_add` with its threshold. torchvision
/// has no such op.
#[inline(always)]
pub(super) fn solarize_add(addition: u8) -> impl Fn(u8) -> u8 + Copy {
    move |value| if value < 128 { value.saturating_add(addition) } else { value }
}

/// Replaces every value by what `change` makes of it.
pub(super) fn change(level: Level, values: &mut [u8], change: impl Fn(u8) -> u8) {
    run(level, Each { values, change });
}

struct Each<'a, F> {
    values: &'a mut [u8],
    change: F,
}

impl<F: Fn(u8) -> u8> Work for Each<'_, F> {
    #[inline(always)]
    fn run(self) {
        for value in self.values {
            *value = (self.change)(*value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blend_is_truncated_and_cut_off() {
        for (from, to, factor, expected) in [
            (0, 101, 0.5, 50),
            (0, 200, 2.0, 255),
            (20, 10, 3.0, 0),
            (100, 101, 0.999, 100),
            (101, 100, 0.25, 100),
            (7, 9, 0.0, 7),
            (7, 9, 1.0, 9),
        ] {
            assert_eq!(blend(from, to, factor), expected, "{from} to {to}, {factor}");
        }
    }

    #[test]
    fn upper_bits_are_kept() {
        for (bits, expected) in
            [(0, 0), (1, 128), (4, 0xB0), (7, 0xB6), (8, 0xB7), (9, 0xB7)]
        {
            assert_eq!(posterize(bits)(0xB7), expected, "{bits} bits");
        }
    }

    #[test]
    fn values_from_the_threshold_on_are_inverted() {
        for threshold in 0..=256 {
            let solarize = solarize(threshold);
            for value in 0..=255 {
                let stays = u16::from(value) < threshold;
                let expected = if stays { value } else { 255 - value };
                assert_eq!(solarize(value), expected, "{value} from {threshold} on");
            }
        }
    }

    #[test]
    fn only_dark_values_are_added_to() {
        let add = solarize_add(200);
        assert_eq!([0, 55, 56, 127, 128, 255].map(add), [200, 255, 255, 255, 128, 255]);
    }

    #[test]
    fn every_level_changes_every_value() {
        for (level, len) in
            Level::available().into_iter().flat_map(|l| (0..200).map(move |n| (l, n)))
        {
            let mut values: Vec<u8> = (0..len).collect();
            change(level, &mut values, invert);
            let expected: Vec<u8> = (0..len).map(|value| 255 - value).collect();
            assert_eq!(values, expected, "{} of {len}", level.name());
        }
    }
}
