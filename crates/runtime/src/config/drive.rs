//! What a run does beyond its data, recipe and devices.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bothends_accel::AccelConfig;
use bothends_core::select::StrategyConfig;
use bothends_energy::{MeterSpec, Profile};

/// What a run does beyond its configuration.
#[derive(Debug, Clone)]
pub struct DriveConfig {
    /// The first epoch, and how many.
    pub epochs: u32,
    /// The strategy of each epoch in turn instead of the run's own, for comparisons: every
    /// one runs epoch 0 again.
    pub compare: Vec<StrategyConfig>,
    /// What consumes batches.
    pub accelerator: AccelConfig,
    /// Whether the stream is digested.
    pub digest: bool,
    /// End the run after so many batches of the first epoch.
    pub stop_after: Option<u32>,
    /// Where the state is written when the run stops or an epoch ends.
    pub checkpoint: Option<PathBuf>,
    /// How often it is written there while an epoch runs; `None` is not at all.
    pub checkpoint_every: Option<CheckpointEvery>,
    /// A state to go on from.
    pub resume: Option<PathBuf>,
    /// How long each prong is measured alone; `None` measures only what a device needs.
    pub measure: Option<Duration>,
    /// How energy is metered and modelled.
    pub energy: EnergyConfig,
    /// Ends the run when somebody asks for it.
    pub stop: StopRequest,
}

/// Asks a run to end after the step that it is at: for a signal, or another thread. The run
/// writes its state and answers with what there is. Clones are one request.
#[derive(Debug, Clone, Default)]
pub struct StopRequest(Arc<AtomicBool>);

impl StopRequest {
    /// Asks; final.
    pub fn ask(&self) {
        // A flag alone; nothing else is published with it.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has asked.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How often a state is written while an epoch runs. It is written between two batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointEvery {
    /// After so many batches, 1 or more.
    Batches(u32),
    /// After the first batch for which this has passed since the last time.
    Time(Duration),
}

/// `100` batches; `30s`, `5m`, `1h`.
impl FromStr for CheckpointEvery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unit_s = text.chars().last().and_then(|unit| match unit {
            's' => Some(1),
            'm' => Some(60),
            'h' => Some(3600),
            _ => None,
        });
        let every = match unit_s {
            None => text.parse().ok().filter(|n| *n > 0).map(Self::Batches),
            Some(unit_s) => {
                let number = text[..text.len() - 1].parse::<u32>().ok();
                let number = number.filter(|number| *number > 0);
                number.map(|n| Self::Time(Duration::from_secs(u64::from(n) * unit_s)))
            }
        };
        every.ok_or_else(|| {
            "give a number of batches, as 500, or a time, as 30s, 5m or 1h".to_owned()
        })
    }
}

/// How energy is metered and modelled.
#[derive(Debug, Clone)]
pub struct EnergyConfig {
    /// The meters to use; none is allowed.
    pub meters: Vec<MeterSpec>,
    /// What makes joules of quantities.
    pub profile: Profile,
    /// How long the idle machine is metered first, for figures net of idle.
    pub idle: Option<Duration>,
}

/// Every meter that can be read, and the default profile.
impl Default for EnergyConfig {
    fn default() -> Self {
        Self { meters: vec![MeterSpec::Auto], profile: Profile::default(), idle: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_of_batches_and_a_unit_makes_it_a_time() {
        let time = |s| Ok(CheckpointEvery::Time(Duration::from_secs(s)));
        assert_eq!("500".parse(), Ok(CheckpointEvery::Batches(500)));
        assert_eq!("30s".parse(), time(30));
        assert_eq!("5m".parse(), time(300));
        assert_eq!("2h".parse(), time(7200));
        for wrong in ["", "0", "0s", "s", "-1", "1.5m", "5 m", "5d", "4294967296", "µ"] {
            assert!(wrong.parse::<CheckpointEvery>().is_err(), "{wrong}");
        }
    }
}
