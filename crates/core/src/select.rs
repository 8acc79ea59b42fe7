//! Who claims what, and what is delivered next: the strategies.

use std::fmt;
use std::str::FromStr;

/// A strategy, with what it can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrategyConfig {
    /// Front only.
    Cpu,
    /// Back only; the host redoes what a device does not answer.
    Csd,
    /// Moving towards each other: a split measured once, one switch of source.
    Mte(MteConfig),
    /// Weighted round robin: alternating sources.
    Wrr(WrrConfig),
    /// Ready first; both ends meet; idle hosts redo the device's last batches.
    Relaxed,
    /// The plan's order; a device claims what it can have ready when it is needed.
    Ordered,
}

/// What `mte` can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MteConfig {
    /// Batches each side makes before the split is fixed.
    pub calibration: u32,
    /// What the measured time of a batch contains.
    pub time: MteTime,
}

/// What `mte` counts as the time of a batch. Sources leave it open, so both exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MteTime {
    /// Preprocessing only.
    Preprocess,
    /// Preprocessing and the accelerator's step.
    WithStep,
}

impl Default for MteConfig {
    fn default() -> Self {
        Self { calibration: 10, time: MteTime::Preprocess }
    }
}

/// What `wrr` can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrrConfig {
    /// Host batches taken for each turn of the devices.
    pub weight: WrrWeight,
}

/// How many host batches `wrr` takes before it looks at the devices again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrrWeight {
    /// So many (at least 1).
    Fixed(u32),
    /// As many as the host makes while the devices make one, by the measured rates.
    ByRates,
}

impl Default for WrrConfig {
    fn default() -> Self {
        Self { weight: WrrWeight::Fixed(1) }
    }
}

impl StrategyConfig {
    /// Every strategy by name, in its default form.
    #[must_use]
    pub fn all() -> [(&'static str, Self); 6] {
        [
            ("cpu", Self::Cpu),
            ("csd", Self::Csd),
            ("mte", Self::Mte(MteConfig::default())),
            ("wrr", Self::Wrr(WrrConfig::default())),
            ("relaxed", Self::Relaxed),
            ("ordered", Self::Ordered),
        ]
    }

    /// The strategy's name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Csd => "csd",
            Self::Mte(_) => "mte",
            Self::Wrr(_) => "wrr",
            Self::Relaxed => "relaxed",
            Self::Ordered => "ordered",
        }
    }

    /// Whether the batches are delivered in the plan's order.
    #[must_use]
    pub fn keeps_order(self) -> bool {
        matches!(self, Self::Ordered)
    }
}

impl fmt::Display for StrategyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no strategy's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is no strategy; use cpu, csd, mte, wrr, relaxed or ordered")]
#[non_exhaustive]
pub struct UnknownStrategy {
    /// As given.
    pub name: String,
}

impl FromStr for StrategyConfig {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, UnknownStrategy> {
        let found = Self::all().into_iter().find(|(known, _)| *known == name);
        found.map(|(_, config)| config).ok_or_else(|| UnknownStrategy { name: name.to_owned() })
    }
}
