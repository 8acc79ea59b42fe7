//! The virtual-time world in which strategies are proved before they meet a clock.
//!
//! [`simulate`] plays one epoch of a [`World`] (host workers, devices with faults, an
//! accelerator) as discrete events. It drives exactly the code that the runtime drives,
//! `bothends_core::epoch::EpochState`; nothing sleeps, nothing is read, and a world and its
//! seed have one outcome. It models no contention for links or flash. Read `world.rs`, then
//! `play.rs`.

pub mod noise;
pub mod play;
pub mod world;

pub use play::{Outcome, simulate};
pub use world::{Accelerator, Device, Fault, Host, Slowdown, World};
