//! Ops that mix the samples of a batch, at the feed. Labels become pairs of labels.

use serde::{Deserialize, Serialize};

family! {
    /// Stands after the cut and mixes the samples of a batch.
    #[derive(Debug, Clone, Copy, PartialEq, Serialize)]
    pub enum Mixing {
        /// Every sample mixed with another (Zhang et al., arXiv 1710.09412).
        Mixup(Share) = "mixup",
        /// A rectangle of another sample pasted into every one (Yun et al., arXiv 1905.04899).
        Cutmix(Share) = "cutmix",
    }
}

/// The parameters of torchvision's `MixUp` and `CutMix`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// The share of a sample itself is drawn from Beta(alpha, alpha), once for a batch.
    #[serde(default = "super::one")]
    pub alpha: f64,
    /// Length of a soft label; by default one more than the data set's largest label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_classes: Option<u32>,
}
