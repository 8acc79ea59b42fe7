//! timm's `RandAugment` (`timm/data/auto_augment.py`): fifteen ops, strengths of 0 to 10.

use super::{Choice, Kind, one_of};
use crate::recipe::Size;
use crate::recipe::op::TimmRandAugment;
use crate::rng::Draws;

/// timm's `_RAND_TRANSFORMS`, in its order.
const OPS: [Kind; 15] = [
    Kind::AutoContrast,
    Kind::Equalize,
    Kind::Invert,
    Kind::Rotate,
    Kind::Posterize,
    Kind::Solarize,
    Kind::SolarizeAdd,
    Kind::Color,
    Kind::Contrast,
    Kind::Brightness,
    Kind::Sharpness,
    Kind::ShearX,
    Kind::ShearY,
    Kind::TranslateX,
    Kind::TranslateY,
];

/// Largest strength.
const MOST: f64 = 10.0;

/// Draws one op of `timm_rand_augment`: `below` (which), `uniform` (whether at all), `normal`
/// (how strong) where `magnitude_std` is above 0, then its sign (`uniform`, negative above
/// ½) where it has one. Moves are not whole.
#[must_use]
pub fn timm_rand_augment(
    draws: &mut Draws,
    image: Size,
    op: &TimmRandAugment,
) -> Option<Choice> {
    let kind = one_of(draws, &OPS);
    if draws.uniform() > op.p {
        return None;
    }
    let noise =
        if op.magnitude_std > 0.0 { op.magnitude_std * draws.normal() } else { 0.0 };
    let level = (op.magnitude + noise).clamp(0.0, MOST) / MOST;
    let magnitude = match kind {
        Kind::Identity | Kind::AutoContrast | Kind::Equalize | Kind::Invert => 0.0,
        Kind::Rotate => signed(level * 30.0, draws),
        Kind::ShearX | Kind::ShearY => signed(level * 0.3, draws),
        // timm moves what is looked up, torchvision what is seen.
        Kind::TranslateX => -(signed(level * 0.45, draws) * f64::from(image.width)),
        Kind::TranslateY => -(signed(level * 0.45, draws) * f64::from(image.height)),
        Kind::Posterize if op.increasing => 4.0 - (level * 4.0).trunc(),
        Kind::Posterize => (level * 4.0).trunc(),
        Kind::Solarize if op.increasing => 256.0 - (level * 256.0).trunc(),
        Kind::Solarize => (level * 256.0).trunc(),
        Kind::SolarizeAdd => (level * 110.0).trunc(),
        Kind::Color | Kind::Contrast | Kind::Brightness | Kind::Sharpness => {
            if op.increasing {
                (1.0 + signed(level * 0.9, draws)).max(0.1) - 1.0
            } else {
                (level * 1.8 + 0.1) - 1.0
            }
        }
    };
    Some(Choice { kind, magnitude })
}

fn signed(magnitude: f64, draws: &mut Draws) -> f64 {
    if draws.uniform() > 0.5 { -magnitude } else { magnitude }
}
