//! How a run's energy is metered and modelled.

use std::time::Duration;

use bothends_energy::{MeterSpec, Profile};

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
