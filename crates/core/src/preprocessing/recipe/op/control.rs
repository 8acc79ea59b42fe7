//! Ops made of other ops.

use serde::Serialize;

use super::Op;

family! {
    /// Is made of other ops.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub enum Control {
        /// All of these ops, or none.
        RandomApply(RandomApply) = "random_apply",
        /// One of these ops.
        RandomChoice(RandomChoice) = "random_choice",
        /// These ops in random order.
        RandomOrder(RandomOrder) = "random_order",
    }
}

impl Control {
    /// The ops inside, in order.
    #[must_use]
    pub fn inside(&self) -> &[Op] {
        match self {
            Self::RandomApply(op) => &op.transforms,
            Self::RandomChoice(op) => &op.transforms,
            Self::RandomOrder(op) => &op.transforms,
        }
    }
}

/// torchvision's `RandomApply`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RandomApply {
    /// What is done or not.
    pub transforms: Vec<Op>,
    /// Probability.
    pub p: f64,
}

/// torchvision's `RandomChoice`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RandomChoice {
    /// Of which one is done.
    pub transforms: Vec<Op>,
    /// Weight of each, of which only the ratios count.
    pub p: Vec<f64>,
}

/// torchvision's `RandomOrder`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RandomOrder {
    /// What is done.
    pub transforms: Vec<Op>,
}
