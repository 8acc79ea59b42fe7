//! Ops that mix the samples of a batch, at the feed. Labels become pairs of labels.

use serde::{Deserialize, Serialize};

/// Stands after the cut and mixes the samples of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Mixing {
    /// Every sample mixed with another (Zhang et al., arXiv 1710.09412).
    Mixup(Mixup),
    /// A rectangle of another sample pasted into every one (Yun et al., arXiv 1905.04899).
    Cutmix(Cutmix),
}

impl Mixing {
    /// The op's name in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mixup(_) => "mixup",
            Self::Cutmix(_) => "cutmix",
        }
    }
}

/// torchvision's `MixUp`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixup {
    /// The share of a sample itself is drawn from Beta(alpha, alpha), once for a batch.
    #[serde(default = "one")]
    pub alpha: f64,
    /// Length of a soft label; by default one more than the data set's largest label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_classes: Option<u32>,
}

/// torchvision's `CutMix`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cutmix {
    /// The share of a sample itself is drawn from Beta(alpha, alpha), once for a batch.
    #[serde(default = "one")]
    pub alpha: f64,
    /// Length of a soft label; by default one more than the data set's largest label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_classes: Option<u32>,
}

fn one() -> f64 {
    1.0
}
