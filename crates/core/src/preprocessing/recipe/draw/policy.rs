//! The ops that policies draw, and their strengths: torchvision's `AutoAugment`, `RandAugment`,
//! `TrivialAugmentWide` and `AugMix`, and timm's `RandAugment`, each with its own set of ops. A
//! [`Choice`] is one of them with its strength; `decide` turns it into a step.

use crate::recipe::Size;
use crate::recipe::op::{
    Augmix, AutoAugment, AutoAugmentPolicy, RandAugment, TrivialAugmentWide,
};
use crate::rng::Draws;

mod learnt;
mod timm;

pub use timm::timm_rand_augment;

/// An op of a policy and its strength.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Which.
    pub kind: Kind,
    /// How strong, in the op's own measure; signed where the op has two directions. 0 where
    /// there is only one way to do it.
    pub magnitude: f64,
}

/// The ops of policies, by torchvision's names, and the measure of their strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing is done.
    Identity,
    /// Tangent of the shear along rows.
    ShearX,
    /// Tangent of the shear along columns.
    ShearY,
    /// Pixels to the right.
    TranslateX,
    /// Pixels down.
    TranslateY,
    /// Degrees counter-clockwise.
    Rotate,
    /// Factor − 1.
    Brightness,
    /// Factor − 1 of the saturation.
    Color,
    /// Factor − 1.
    Contrast,
    /// Factor − 1.
    Sharpness,
    /// Bits kept.
    Posterize,
    /// First value inverted.
    Solarize,
    /// What is added to values below 128.
    SolarizeAdd,
    /// No strength.
    AutoContrast,
    /// No strength.
    Equalize,
    /// No strength.
    Invert,
}

/// How the strength of an op depends on the number drawn.
#[derive(Debug, Clone, Copy)]
enum Strength {
    /// It has none.
    None,
    /// From 0 to this, in either direction.
    Signed(f64),
    /// From 0 to this whole number of pixels, in either direction.
    Pixels(f64),
    /// Bits, from the first number down by the second.
    Bits(f64, f64),
    /// A threshold, from 255 down to 0.
    Threshold,
}

impl Strength {
    /// The strength number `bin` of `n_bins`. Draws a sign (`uniform`, negative up to ½)
    /// where there are two directions.
    fn at(self, bin: u32, n_bins: u32, draws: &mut Draws) -> f64 {
        let (bin, last) = (f64::from(bin), f64::from(n_bins - 1));
        match self {
            Self::None => 0.0,
            Self::Signed(most) => signed(most * bin / last, draws),
            Self::Pixels(most) => signed(most * bin / last, draws).trunc(),
            Self::Bits(from, by) => (from - by * bin / last).round_ties_even(),
            Self::Threshold => (255.0 - 255.0 * bin / last).ceil(),
        }
    }
}

fn signed(magnitude: f64, draws: &mut Draws) -> f64 {
    if draws.uniform() <= 0.5 { -magnitude } else { magnitude }
}

/// An op and its strength.
type Entry = (Kind, Strength);

/// The space of torchvision's `RandAugment`, in its order; moves are by up to so many pixels.
fn rand_space([move_x, move_y]: [f64; 2]) -> [Entry; 14] {
    [
        (Kind::Identity, Strength::None),
        (Kind::ShearX, Strength::Signed(0.3)),
        (Kind::ShearY, Strength::Signed(0.3)),
        (Kind::TranslateX, Strength::Pixels(move_x)),
        (Kind::TranslateY, Strength::Pixels(move_y)),
        (Kind::Rotate, Strength::Signed(30.0)),
        (Kind::Brightness, Strength::Signed(0.9)),
        (Kind::Color, Strength::Signed(0.9)),
        (Kind::Contrast, Strength::Signed(0.9)),
        (Kind::Sharpness, Strength::Signed(0.9)),
        (Kind::Posterize, Strength::Bits(8.0, 4.0)),
        (Kind::Solarize, Strength::Threshold),
        (Kind::AutoContrast, Strength::None),
        (Kind::Equalize, Strength::None),
    ]
}

/// 150 of 331 pixels of each side, as the policies were learnt.
fn learnt_moves(image: Size) -> [f64; 2] {
    [image.width, image.height].map(|side| 150.0 / 331.0 * f64::from(side))
}

const WIDE: [Entry; 14] = [
    (Kind::Identity, Strength::None),
    (Kind::ShearX, Strength::Signed(0.99)),
    (Kind::ShearY, Strength::Signed(0.99)),
    (Kind::TranslateX, Strength::Pixels(32.0)),
    (Kind::TranslateY, Strength::Pixels(32.0)),
    (Kind::Rotate, Strength::Signed(135.0)),
    (Kind::Brightness, Strength::Signed(0.99)),
    (Kind::Color, Strength::Signed(0.99)),
    (Kind::Contrast, Strength::Signed(0.99)),
    (Kind::Sharpness, Strength::Signed(0.99)),
    (Kind::Posterize, Strength::Bits(8.0, 6.0)),
    (Kind::Solarize, Strength::Threshold),
    (Kind::AutoContrast, Strength::None),
    (Kind::Equalize, Strength::None),
];

/// Draws one op of `rand_augment`: `below` (which), then its sign.
#[must_use]
pub fn rand_augment(draws: &mut Draws, image: Size, op: &RandAugment) -> Choice {
    let space = rand_space(learnt_moves(image));
    let (kind, strength) = one_of(draws, &space);
    let magnitude = strength.at(op.magnitude, op.num_magnitude_bins, draws);
    Choice { kind, magnitude }
}

/// Draws the op of `trivial_augment_wide`: `below` (which), `below` (how strong) where it has
/// a strength, then its sign.
#[must_use]
pub fn trivial_augment_wide(draws: &mut Draws, op: &TrivialAugmentWide) -> Choice {
    let (kind, strength) = one_of(draws, &WIDE);
    Choice { kind, magnitude: any_strength(draws, strength, op.num_magnitude_bins, None) }
}

/// Draws one op of a chain of `augmix`: `below` (which), `below` (how strong, of the
/// `severity` least of ten) where it has a strength, then its sign.
#[must_use]
pub fn augmix_chain(draws: &mut Draws, image: Size, op: &Augmix) -> Choice {
    const WITHOUT_COLOUR: usize = 9;
    let thirds = [image.width, image.height].map(|side| f64::from(side) / 3.0);
    let space = augmix_space(thirds);
    let space = if op.all_ops { &space[..] } else { &space[..WITHOUT_COLOUR] };
    let (kind, strength) = one_of(draws, space);
    Choice { kind, magnitude: any_strength(draws, strength, 10, Some(op.severity)) }
}

fn augmix_space([move_x, move_y]: [f64; 2]) -> [Entry; 13] {
    [
        (Kind::ShearX, Strength::Signed(0.3)),
        (Kind::ShearY, Strength::Signed(0.3)),
        (Kind::TranslateX, Strength::Pixels(move_x)),
        (Kind::TranslateY, Strength::Pixels(move_y)),
        (Kind::Rotate, Strength::Signed(30.0)),
        (Kind::Posterize, Strength::Bits(4.0, 4.0)),
        (Kind::Solarize, Strength::Threshold),
        (Kind::AutoContrast, Strength::None),
        (Kind::Equalize, Strength::None),
        (Kind::Brightness, Strength::Signed(0.9)),
        (Kind::Color, Strength::Signed(0.9)),
        (Kind::Contrast, Strength::Signed(0.9)),
        (Kind::Sharpness, Strength::Signed(0.9)),
    ]
}

/// Draws what `auto_augment` does: `below` (the pair of ops), and for each of the two
/// `uniform` (done up to its probability), then its sign.
#[must_use]
pub fn auto_augment(
    draws: &mut Draws,
    image: Size,
    op: &AutoAugment,
) -> [Option<Choice>; 2] {
    let policy = match op.policy {
        AutoAugmentPolicy::Imagenet => &learnt::IMAGENET,
        AutoAugmentPolicy::Cifar10 => &learnt::CIFAR10,
        AutoAugmentPolicy::Svhn => &learnt::SVHN,
    };
    let space = rand_space(learnt_moves(image));
    one_of(draws, policy).map(|(kind, tenths, bin)| {
        if draws.uniform() > f64::from(tenths) / 10.0 {
            return None;
        }
        // Inverting is the one op that `rand_augment` does not have.
        let entry = space.iter().find(|(known, _)| *known == kind);
        let strength = entry.map_or(Strength::None, |(_, strength)| *strength);
        Some(Choice { kind, magnitude: strength.at(u32::from(bin), 10, draws) })
    })
}

fn any_strength(
    draws: &mut Draws,
    strength: Strength,
    n_bins: u32,
    n_least: Option<u32>,
) -> f64 {
    if matches!(strength, Strength::None) {
        return 0.0;
    }
    let bin = draws.below(n_least.unwrap_or(n_bins));
    strength.at(bin, n_bins, draws)
}

/// One of `entries`, each as likely.
fn one_of<T: Copy>(draws: &mut Draws, entries: &[T]) -> T {
    let n = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    entries[draws.below(n) as usize]
}
