//! Which accelerator a run feeds: `host`, `sim:NAME`, `sim:RATE`. `model.rs` has the names;
//! `host.rs` and `sim.rs` have the steps.

use std::fmt;
use std::str::FromStr;

use crate::host::Host;
use crate::model::SimModel;
use crate::sim::Sim;
use crate::{AccelError, Accelerator};

/// The accelerator of a run, as `--accelerator` names it.
#[derive(Debug, Clone, PartialEq)]
pub enum AccelConfig {
    /// Takes every batch at once.
    Host,
    /// Consumes a batch in a stated time.
    Sim(SimModel),
}

impl AccelConfig {
    /// Makes the accelerator; it is idle until its first step.
    #[must_use]
    pub fn build(&self) -> Box<dyn Accelerator> {
        match self {
            Self::Host => Box::new(Host::default()),
            Self::Sim(model) => Box::new(Sim::new(model.clone())),
        }
    }

    /// Its name for people and results: `host`, `resnet50-v100`, …
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Host => "host",
            Self::Sim(model) => model.name(),
        }
    }

    /// The most samples per second that it consumes, if it has a rate.
    #[must_use]
    pub fn samples_per_s(&self) -> Option<f64> {
        match self {
            Self::Host => None,
            Self::Sim(model) => Some(model.samples_per_s()),
        }
    }

    /// Nanoseconds that it needs for `n_samples` samples, if it has a rate.
    #[must_use]
    pub fn busy_ns(&self, n_samples: u32) -> Option<u64> {
        match self {
            Self::Host => None,
            Self::Sim(model) => Some(model.busy_ns(n_samples)),
        }
    }
}

impl FromStr for AccelConfig {
    type Err = AccelError;

    fn from_str(spec: &str) -> Result<Self, AccelError> {
        let (kind, argument) = match spec.split_once(':') {
            Some((kind, argument)) => (kind, Some(argument)),
            None => (spec, None),
        };
        match (kind, argument) {
            ("host", None) => Ok(Self::Host),
            ("sim", Some(argument)) => SimModel::from_argument(argument).map(Self::Sim),
            _ => Err(AccelError::Spec { spec: spec.to_owned() }),
        }
    }
}

impl fmt::Display for AccelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Sim(model) => write!(f, "sim:{}", model.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_understood_and_printed_back() {
        for spec in ["host", "sim:resnet50-a100", "sim:328.2", "sim:5000"] {
            let config: AccelConfig = spec.parse().unwrap();
            assert_eq!(config.to_string(), spec);
        }
        assert_eq!(
            "sim:500".parse::<AccelConfig>().unwrap().busy_ns(64),
            Some(128_000_000)
        );
    }

    #[test]
    fn a_bad_spec_says_what_to_write() {
        for spec in [
            "", "gpu", "host:1", "sim", "sim:", "sim:0", "sim:-5", "sim:nan", "sim:inf",
            "sim:1e-9", "cuda:x", "cuda:",
        ] {
            let error = spec.parse::<AccelConfig>().unwrap_err();
            assert!(matches!(error, AccelError::Spec { .. }), "{spec}: {error}");
            assert!(error.to_string().contains("sim:RATE"), "{error}");
        }
        let error = "sim:b200".parse::<AccelConfig>().unwrap_err().to_string();
        assert!(
            error.contains("b200") && error.contains("resnet50-h100 (h100)"),
            "{error}"
        );
    }
}
