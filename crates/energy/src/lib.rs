//! The energy that a run used: meters that count it, and a model for what has no meter.
//!
//! Three kinds of figures, never mixed:
//! * [`Quantities`] are counted (seconds, CPU seconds, bytes) and need no meter;
//! * a [`Meter`] measures: its figures say `measured(rapl:package-0)`;
//! * a [`Profile`] multiplies quantities by coefficients: its figures have a low and a high end
//!   and say `modelled(default@2)`.
//!
//! Reading order: `meters` has a file for each meter; `spec` finds the meter that was asked for;
//! `session` reads meters while something runs; `quantities` and `model`. `conformance` has the contract
//! of a meter as callable checks.
//!
//! It does not touch the data path, does not decide what is worth measuring, and prints
//! nothing. Its one thread belongs to a [`Session`] and is joined by it.

mod error;

mod meters;

mod spec;

mod session;

mod model;
mod quantities;

pub mod conformance;

pub use error::EnergyError;
pub use meters::command::CommandMeter;
pub use meters::device::{DeviceKind, DeviceMeter, Reported};
pub use meters::hwmon::Hwmon;
pub use meters::nvml::NvmlMeter;
pub use meters::perf::{Count, Event, Perf};
pub use meters::rapl::Rapl;
pub use meters::sysfs::Tree;
pub use model::{Coefficient, Figure, Profile};
pub use quantities::{
    AcceleratorQuantities, DeviceQuantities, HostQuantities, LinkBytes, Quantities,
};
pub use session::{Metered, MeteredDomain, Session, Total, total};
pub use spec::{MeterSpec, Opened, Places, open, survey};

use std::fmt::Debug;

/// What a meter's domain is a part of. It decides which figures may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The whole machine, as at the plug: includes all other parts.
    Machine,
    /// The host's processors.
    Processors,
    /// The host's memory, outside of the processors.
    Memory,
    /// An accelerator with all that is on its board.
    Accelerator,
    /// What it includes is unknown, or another domain includes it: never added to anything.
    Other,
}

/// A part of the machine that a meter counts separately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// `package-0`, `gpu-0`, …: unique within the meter.
    pub name: String,
    /// What it is a part of.
    pub part: Part,
    /// `measured(METER:DOMAIN)`, as results print it.
    pub source: String,
}

impl Domain {
    fn measured(meter: &str, name: String, part: Part) -> Self {
        let source = format!("measured({meter}:{name})");
        Self { name, part, source }
    }
}

/// Energy since a moment of the meter's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counter {
    /// Microjoules.
    pub energy_uj: u64,
}

/// Counts energy.
///
/// # Contract
///
/// 1. `read` gives one counter for each domain, in the order of `domains`, which never changes.
/// 2. No counter ever falls. Registers that wrap around are extended.
/// 3. What cannot be read is an error, never a zero or an old figure.
/// 4. An error concerns one reading. The next one may succeed, and includes all energy that the
///    meter itself did not lose.
/// 5. `read` returns within seconds. It may sleep, so it must not be on a hot path.
///
/// `conformance` has these as callable checks.
pub trait Meter: Debug + Send {
    /// `rapl`, `nvml`, …
    fn name(&self) -> &str;

    /// The parts of the machine that it counts.
    fn domains(&self) -> &[Domain];

    /// Reads all counters. A power meter integrates between readings, so these should not be far
    /// apart; a register must be read before it has wrapped around twice.
    ///
    /// # Errors
    /// The meter cannot be read now.
    fn read(&mut self) -> Result<Vec<Counter>, EnergyError>;
}
