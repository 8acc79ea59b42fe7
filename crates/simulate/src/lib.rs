//! A simulator in virtual time, in which strategies are tested before they run against a clock.
//!
//! [`simulate`] plays one epoch of a [`World`] (host workers, devices with faults, links, an
//! accelerator) as discrete events, [`simulate_epochs`] plays successive epochs, each begun while the
//! previous one drains, and [`simulate_ranks`] plays several ranks that step together. They drive the
//! same code as the runtime, `bothends_core::epoch::EpochState`. Nothing sleeps, and a world and its
//! seed determine the outcome. A [`Scenario`] is a named set of worlds, read from a file;
//! [`Scenario::run`] plays strategies in it, [`table()`] shows the results, [`sizing`] answers whether
//! devices would pay, and [`diagnosis`] what limits a job. [`remote`] plays records that are fetched over
//! a long link, and [`pool`] many jobs that share agents. Contention for the host's memory and for a
//! device's flash is not modelled. Read `world.rs`, then `play.rs`, then `scenario.rs`.

pub mod noise;
pub mod play;
pub mod pool;
pub mod remote;
pub mod world;

pub mod bound;
pub mod energy;
pub mod result;
pub mod scenario;
pub mod sizing;
pub mod table;

pub use energy::Power;
pub use play::{
    Outcome, simulate, simulate_epochs, simulate_epochs_of_ranks, simulate_ranks,
};
pub use result::{Deviation, LABEL, ScenarioResult, SeedResult, StrategyResult};
pub use scenario::{Scenario, ScenarioError};
pub use sizing::diagnosis;
pub use table::table;
pub use world::{
    Absence, Accelerator, Device, Drift, Fault, Host, Link, Records, Slowdown, World,
};
