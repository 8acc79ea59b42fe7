//! The virtual-time world in which strategies are proved before they meet a clock.
//!
//! [`simulate`] plays one epoch of a [`World`] (host workers, devices with faults, links, an
//! accelerator) as discrete events, [`simulate_ranks`] several that step together. They drive
//! exactly the code that the runtime drives, `bothends_core::epoch::EpochState`; nothing
//! sleeps, nothing is read, and a world and its seed have one outcome. What is not modelled:
//! contention for the host's memory and for a device's flash. Read `world.rs`, then `play.rs`.

pub mod noise;
pub mod play;
pub mod world;

pub use play::{Outcome, simulate, simulate_ranks};
pub use world::{
    Absence, Accelerator, Device, Drift, Fault, Host, Link, Slowdown, World,
};
