//! A change of values as a table: the result for each of the 256 values.
//!
//! Tables can be composed, so consecutive adjustments may become one. The kernels look up many values at
//! once. Nothing here looks at an image. Read `grey.rs` next.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

use std::array::from_fn;

use bothends_core::recipe::step::Adjust;

use super::values::{blend, invert, posterize, solarize, solarize_add};
use crate::kernels::{Level, kernel};

/// What each value becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table([u8; 256]);

impl Default for Table {
    /// Every value becomes itself.
    fn default() -> Self {
        Self::new(|value| value)
    }
}

impl Table {
    /// The table of a function.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a table has 256 values")]
    pub fn new(mut change: impl FnMut(u8) -> u8) -> Self {
        Self(from_fn(|value| change(value as u8)))
    }

    /// The table of an adjustment that sees one value at a time; `None` where it sees more.
    #[must_use]
    pub fn of(adjust: &Adjust) -> Option<Self> {
        match *adjust {
            Adjust::Brightness(factor) => Some(Self::away_from(0, factor)),
            Adjust::Invert => Some(Self::new(invert)),
            Adjust::Posterize { bits } => Some(Self::new(posterize(bits))),
            Adjust::Solarize { threshold } => Some(Self::new(solarize(threshold))),
            Adjust::SolarizeAdd { addition } => Some(Self::new(solarize_add(addition))),
            Adjust::Contrast(_)
            | Adjust::Saturation(_)
            | Adjust::Hue(_)
            | Adjust::Grayscale
            | Adjust::Sharpness(_)
            | Adjust::Blur(_)
            | Adjust::Autocontrast
            | Adjust::Equalize
            | Adjust::Jpeg { .. } => None,
        }
    }

    /// Away from one value: brightness from 0, contrast from the mean. Pillow's
    /// `ImageEnhance.Brightness` and `Contrast`, see [`blend`].
    #[expect(clippy::cast_possible_truncation, reason = "Pillow's factor is an f32")]
    pub(super) fn away_from(from: u8, factor: f64) -> Self {
        Self::new(|value| blend(from, value, factor as f32))
    }

    /// What `value` becomes.
    #[must_use]
    pub fn get(&self, value: u8) -> u8 {
        self.0[usize::from(value)]
    }

    /// The table that does this and then `next`.
    #[must_use]
    pub fn then(&self, next: &Self) -> Self {
        Self(self.0.map(|value| next.get(value)))
    }

    /// Replaces every value by what it becomes.
    pub fn apply(&self, level: Level, values: &mut [u8]) {
        kernel!(level, apply(self, values), Self::apply_scalar);
    }

    /// The scalar meaning of [`Self::apply`].
    fn apply_scalar(&self, values: &mut [u8]) {
        for value in values {
            *value = self.get(*value);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tables() -> impl Strategy<Value = Table> {
        any::<[u8; 32]>().prop_map(|seed| {
            Table::new(|value| seed[usize::from(value) % 32].wrapping_mul(value | 1))
        })
    }

    proptest! {
        #[test]
        fn every_level_looks_up_every_value(table in tables(), len in 0..600_usize) {
            let values: Vec<u8> = (0..=255).cycle().step_by(37).take(len).collect();
            let expected: Vec<u8> = values.iter().map(|&value| table.get(value)).collect();
            for level in Level::available() {
                let mut changed = values.clone();
                table.apply(level, &mut changed);
                prop_assert_eq!(&changed, &expected, "{}", level.name());
            }
        }

        #[test]
        fn one_table_does_what_two_do(first in tables(), second in tables(), value: u8) {
            prop_assert_eq!(first.then(&second).get(value), second.get(first.get(value)));
            prop_assert_eq!(first.then(&Table::default()), first);
            prop_assert_eq!(Table::default().then(&first), first);
        }
    }

    #[test]
    fn every_value_of_every_kernel_is_its_own() {
        let values: Vec<u8> = (0..=255).collect();
        for level in Level::available() {
            let mut changed = values.clone();
            Table::new(|value| value.rotate_left(3)).apply(level, &mut changed);
            let expected: Vec<u8> =
                values.iter().map(|value| value.rotate_left(3)).collect();
            assert_eq!(changed, expected, "{}", level.name());
        }
    }
}
