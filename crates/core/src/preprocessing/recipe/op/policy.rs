//! Ops that draw other ops, and erasing.

use serde::{Deserialize, Deserializer, Serialize};

use crate::recipe::Interpolation;
use crate::recipe::step::Fill;

family! {
    /// Draws other ops.
    #[derive(Debug, Clone, Copy, PartialEq, Serialize)]
    pub enum Policy {
        /// A policy learnt from data (Cubuk et al., arXiv 1805.09501).
        AutoAugment(AutoAugment) = "auto_augment",
        /// So many ops of one strength (Cubuk et al., arXiv 1909.13719).
        RandAugment(RandAugment) = "rand_augment",
        /// `RandAugment` as the timm library has it, with its own ops and strengths.
        TimmRandAugment(TimmRandAugment) = "timm_rand_augment",
        /// One op of any strength (Müller and Hutter, arXiv 2103.10158).
        TrivialAugmentWide(TrivialAugmentWide) = "trivial_augment_wide",
        /// A mixture of chains of ops (Hendrycks et al., arXiv 1912.02781).
        Augmix(Augmix) = "augmix",
    }
}

/// torchvision's `AutoAugment`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoAugment {
    /// Whose policy.
    #[serde(default)]
    pub policy: AutoAugmentPolicy,
    /// How pixels between pixels are found.
    #[serde(default = "super::nearest")]
    pub interpolation: Interpolation,
    /// What lies around the image.
    #[serde(default)]
    pub fill: Fill,
}

/// The data set that a policy was learnt on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AutoAugmentPolicy {
    /// ImageNet.
    #[default]
    Imagenet,
    /// CIFAR-10.
    Cifar10,
    /// Street View House Numbers.
    Svhn,
}

/// torchvision's `RandAugment`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandAugment {
    /// Ops in a row.
    #[serde(default = "two")]
    pub num_ops: u32,
    /// Their strength, below `num_magnitude_bins`.
    #[serde(default = "nine")]
    pub magnitude: u32,
    /// Number of strengths, at least 2.
    #[serde(default = "thirty_one")]
    pub num_magnitude_bins: u32,
    /// How pixels between pixels are found.
    #[serde(default = "super::nearest")]
    pub interpolation: Interpolation,
    /// What lies around the image.
    #[serde(default)]
    pub fill: Fill,
}

/// timm's `rand_augment_transform` (`timm/data/auto_augment.py`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimmRandAugment {
    /// Ops in a row (timm's `n`).
    #[serde(default = "two")]
    pub num_layers: u32,
    /// Their strength, 0 to 10 (timm's `m`).
    #[serde(default = "ten")]
    pub magnitude: f64,
    /// Standard deviation of the strength (timm's `mstd`).
    #[serde(default)]
    pub magnitude_std: f64,
    /// Whether every op gets stronger with the strength (timm's `inc1`).
    #[serde(default)]
    pub increasing: bool,
    /// Probability of each op (timm's `p`).
    #[serde(default = "super::half")]
    pub p: f64,
    /// How pixels between pixels are found.
    #[serde(default)]
    pub interpolation: TimmInterpolation,
    /// What lies around the image; by default ImageNet's mean.
    #[serde(default = "imagenet_mean")]
    pub fill: Fill,
}

/// How timm interpolates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimmInterpolation {
    /// Bilinear or bicubic, drawn for every op.
    #[default]
    Random,
    /// Always bilinear.
    Bilinear,
    /// Always bicubic.
    Bicubic,
}

/// torchvision's `TrivialAugmentWide`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrivialAugmentWide {
    /// Number of strengths, at least 2.
    #[serde(default = "thirty_one")]
    pub num_magnitude_bins: u32,
    /// How pixels between pixels are found.
    #[serde(default = "super::nearest")]
    pub interpolation: Interpolation,
    /// What lies around the image.
    #[serde(default)]
    pub fill: Fill,
}

/// torchvision's `AugMix`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Augmix {
    /// Number of strengths drawn from, 1 to 10.
    #[serde(default = "three")]
    pub severity: u32,
    /// Chains.
    #[serde(default = "three")]
    pub mixture_width: u32,
    /// Ops of a chain; `null` draws 1 to 3 (torchvision writes −1).
    #[serde(default, deserialize_with = "chain_depth")]
    pub chain_depth: Option<u32>,
    /// Parameter of the Beta and Dirichlet distributions of the weights.
    #[serde(default = "super::one")]
    pub alpha: f64,
    /// Whether brightness, colour, contrast and sharpness are among the ops.
    #[serde(default = "yes")]
    pub all_ops: bool,
    /// How pixels between pixels are found.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// What lies around the image.
    #[serde(default)]
    pub fill: Fill,
}

/// torchvision's `RandomErasing`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomErasing {
    /// Probability.
    #[serde(default = "super::half")]
    pub p: f64,
    /// Least and greatest share of the image's area.
    #[serde(default = "some_area")]
    pub scale: [f64; 2],
    /// Least and greatest height ÷ width.
    #[serde(default = "wide_ratio")]
    pub ratio: [f64; 2],
    /// What is put there: before the cut 0 to 255, after `normalize` its values.
    #[serde(default)]
    pub value: ErasingValue,
}

/// What is put in place of what is erased.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "`value` must be a number, a list of one number per channel or \"random\""
)]
pub enum ErasingValue {
    /// In every channel.
    All(f64),
    /// One per channel.
    Each(Vec<f64>),
    /// Each element drawn from the normal distribution (0, 1); only after `normalize`.
    Random(RandomWord),
}

/// The word `random`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RandomWord {
    /// It.
    Random,
}

impl Default for ErasingValue {
    fn default() -> Self {
        Self::All(0.0)
    }
}

/// Says what torchvision's −1 is here.
fn chain_depth<'de, D: Deserializer<'de>>(source: D) -> Result<Option<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "`chain_depth` must be a whole number from 1 to 16; leave it out to draw \
                     1 to 3, for which torchvision writes -1"
    )]
    enum Raw {
        Given(u32),
        Drawn(()),
    }
    Ok(match Raw::deserialize(source)? {
        Raw::Given(depth) => Some(depth),
        Raw::Drawn(()) => None,
    })
}

/// ImageNet's mean times 255, as timm rounds it.
fn imagenet_mean() -> Fill {
    Fill([124, 116, 104])
}

fn some_area() -> [f64; 2] {
    [0.02, 0.33]
}

fn wide_ratio() -> [f64; 2] {
    [0.3, 3.3]
}

fn two() -> u32 {
    2
}

fn three() -> u32 {
    3
}

fn nine() -> u32 {
    9
}

fn ten() -> f64 {
    10.0
}

fn thirty_one() -> u32 {
    31
}

fn yes() -> bool {
    true
}
