//! Decides the policies: what they choose becomes steps.

use super::Deciding;
use super::colour::threshold;
use crate::recipe::Interpolation;
use crate::recipe::draw::{self, Choice, Expand, Kind};
use crate::recipe::op::{
    Augmix, ErasingValue, Policy, TimmInterpolation, TimmRandAugment,
};
use crate::recipe::step::{Adjust, Fill, Map, Mix, Step};
use crate::rng::Draws;

/// Most chains of `augmix`.
const MOST_CHAINS: usize = 16;

/// How a policy's ops look pixels up.
#[derive(Debug, Clone, Copy)]
struct Lookup {
    interpolation: Interpolation,
    fill: Fill,
}

impl Deciding<'_> {
    pub(super) fn policy(&mut self, op: &Policy, draws: &mut Draws) {
        match op {
            Policy::AutoAugment(op) => {
                let lookup = Lookup { interpolation: op.interpolation, fill: op.fill };
                for choice in
                    draw::auto_augment(draws, self.size, op).into_iter().flatten()
                {
                    self.choice(choice, lookup);
                }
            }
            Policy::RandAugment(op) => {
                let lookup = Lookup { interpolation: op.interpolation, fill: op.fill };
                for _ in 0..op.num_ops {
                    self.choice(draw::rand_augment(draws, self.size, op), lookup);
                }
            }
            Policy::TrivialAugmentWide(op) => {
                let lookup = Lookup { interpolation: op.interpolation, fill: op.fill };
                self.choice(draw::trivial_augment_wide(draws, op), lookup);
            }
            Policy::TimmRandAugment(op) => {
                for _ in 0..op.num_layers {
                    self.timm_choice(op, draws);
                }
            }
            Policy::Augmix(op) => self.augmix(op, draws),
        }
    }

    /// Draws `timm_rand_augment`, then `below(2)` (bilinear or bicubic) where the op looks
    /// pixels up and both are possible.
    fn timm_choice(&mut self, op: &TimmRandAugment, draws: &mut Draws) {
        let Some(choice) = draw::timm_rand_augment(draws, self.size, op) else { return };
        let interpolation = match op.interpolation {
            TimmInterpolation::Bilinear => Interpolation::Bilinear,
            TimmInterpolation::Random
                if !choice.kind.looks_up() || draws.below(2) == 0 =>
            {
                Interpolation::Bilinear
            }
            TimmInterpolation::Bicubic | TimmInterpolation::Random => {
                Interpolation::Bicubic
            }
        };
        self.choice(choice, Lookup { interpolation, fill: op.fill });
    }

    /// Draws `dirichlet` of two (the image's own weight and all chains'), `dirichlet` of the
    /// chains, then for each chain its depth (`integer` 1 to 3, unless given) and its ops.
    fn augmix(&mut self, op: &Augmix, draws: &mut Draws) {
        let mut own = [0.0; 2];
        draws.dirichlet(op.alpha, &mut own);
        let mut weights = [0.0; MOST_CHAINS];
        let n_chains = (op.mixture_width as usize).min(MOST_CHAINS);
        draws.dirichlet(op.alpha, &mut weights[..n_chains]);
        let lookup = Lookup { interpolation: op.interpolation, fill: op.fill };
        self.push(Step::Mix(Mix::Begin { weight: single(own[0]) }));
        for weight in &weights[..n_chains] {
            let depth = op.chain_depth.unwrap_or_else(|| draws.integer([1, 3]));
            for _ in 0..depth {
                self.choice(draw::augmix_chain(draws, self.size, op), lookup);
            }
            self.push(Step::Mix(Mix::Chain { weight: single(own[1] * weight) }));
        }
        self.push(Step::Mix(Mix::End));
    }

    fn choice(&mut self, Choice { kind, magnitude }: Choice, lookup: Lookup) {
        let m = magnitude;
        match kind {
            Kind::Identity => {}
            Kind::ShearX => self.affine([1.0, m, 0.0, 0.0, 1.0, 0.0], lookup),
            Kind::ShearY => self.affine([1.0, 0.0, 0.0, m, 1.0, 0.0], lookup),
            Kind::TranslateX => self.affine([1.0, 0.0, -m, 0.0, 1.0, 0.0], lookup),
            Kind::TranslateY => self.affine([1.0, 0.0, 0.0, 0.0, 1.0, -m], lookup),
            Kind::Rotate => {
                let (map, _) =
                    draw::rotation_map(m, self.size, self.size.middle(), Expand::No);
                self.warp(map, lookup.interpolation, lookup.fill);
            }
            Kind::Brightness => self.adjust(Adjust::Brightness(1.0 + m)),
            Kind::Color => self.adjust(Adjust::Saturation(1.0 + m)),
            Kind::Contrast => self.adjust(Adjust::Contrast(1.0 + m)),
            Kind::Sharpness => self.adjust(Adjust::Sharpness(1.0 + m)),
            Kind::Posterize => self.adjust(Adjust::Posterize { bits: byte(m) }),
            Kind::Solarize => self.adjust(Adjust::Solarize { threshold: threshold(m) }),
            Kind::SolarizeAdd => self.adjust(Adjust::SolarizeAdd { addition: byte(m) }),
            Kind::AutoContrast => self.adjust(Adjust::Autocontrast),
            Kind::Equalize => self.adjust(Adjust::Equalize),
            Kind::Invert => self.adjust(Adjust::Invert),
        }
    }

    fn affine(&mut self, map: [f64; 6], lookup: Lookup) {
        self.warp(Map::Affine(map), lookup.interpolation, lookup.fill);
    }
}

impl Kind {
    /// Whether it looks pixels up elsewhere.
    fn looks_up(self) -> bool {
        matches!(
            self,
            Self::ShearX
                | Self::ShearY
                | Self::TranslateX
                | Self::TranslateY
                | Self::Rotate
        )
    }
}

impl ErasingValue {
    /// What is put into an image of bytes.
    pub(in crate::preprocessing::recipe) fn as_fill(&self) -> Fill {
        match self {
            Self::All(value) => Fill([byte(*value); 3]),
            Self::Each(values) => {
                let at = |nth: usize| byte(values[nth.min(values.len() - 1)]);
                Fill([at(0), at(1), at(2)])
            }
            Self::Random(_) => Fill::default(),
        }
    }
}

/// The nearest `f32`.
#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest f32")]
fn single(value: f64) -> f32 {
    value as f32
}

/// A whole number of 0 to 255.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "limited to a byte's range"
)]
fn byte(value: f64) -> u8 {
    value.clamp(0.0, 255.0) as u8
}
