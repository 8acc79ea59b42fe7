//! The virtual-time world in which strategies are proved before they meet a clock.
//!
//! [`simulate`] plays one epoch of a [`World`] (host workers, devices with faults, links, an
//! accelerator) as discrete events, [`simulate_epochs`] one epoch behind the other, each begun
//! while the one before drains, [`simulate_ranks`] several that step together. They drive
//! exactly the code that the runtime drives, `bothends_core::epoch::EpochState`; nothing
//! sleeps, and a world and its seed have one outcome. A [`Scenario`] is worlds with a name,
//! read from a file; [`Scenario::run`] plays strategies in it, [`table()`] shows what came
//! out, [`sizing`] answers whether devices would pay, and [`diagnosis`] what limits a job as it
//! is. What is not modelled: contention for the host's memory and for a device's flash. Read
//! `world.rs`, then `play.rs`, then `scenario.rs`.

pub mod noise;
pub mod play;
pub mod world;

pub mod bound;
pub mod diagnosis;
pub mod energy;
pub mod result;
pub mod scenario;
pub mod sizing;
pub mod table;

pub use energy::Power;
pub use play::{
    Outcome, simulate, simulate_epochs, simulate_epochs_of_ranks, simulate_ranks,
};
pub use result::{LABEL, ScenarioResult, StrategyResult};
pub use scenario::{Scenario, ScenarioError};
pub use table::table;
pub use world::{
    Absence, Accelerator, Device, Drift, Fault, Host, Link, Slowdown, World,
};
