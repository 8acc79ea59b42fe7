//! What every strategy must guarantee, as one callable check: the promises of an epoch under adverse
//! schedules.
//!
//! A [`Schedule`] is a plain value: a plan, the parts in which its epoch is run, and what happens in
//! each part. [`Schedule::play`] plays all ranks in virtual time and checks them with its own accounts,
//! not the ledger's. It draws no numbers (`tests/schedules.rs` makes schedules) and measures nothing
//! (`bothends-simulate` does). One rank is in `contract/rank.rs`; `contract/run.rs` joins ranks and
//! parts.

mod accounts;
mod rank;
mod run;

use crate::epoch::{DeviceConfig, FrontConfig};
use crate::objective::Objective;
use crate::plan::PlanConfig;
use crate::select::StrategyConfig;

/// One epoch as all its ranks run it, and everything that happens to them.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// The same in every part.
    pub strategy: StrategyConfig,
    /// The plan; its rank, world and start are those of each part.
    pub plan: PlanConfig,
    /// In order, each but the first resumed from the one before it; at least one.
    pub parts: Vec<Part>,
}

/// From a start, or a resume state, to a stop or the epoch's end.
#[derive(Debug, Clone)]
pub struct Part {
    /// Number of ranks. Where a resume state allows no other number, or the plan has too few
    /// samples, the number stays as it was (at first: 1).
    pub world: u32,
    /// The host of each rank.
    pub front: FrontConfig,
    /// The devices of each rank.
    pub devices: Vec<Device>,
    /// Batches that all devices together may hold, where that is limited.
    pub back_quota: Option<u32>,
    /// Shards that the batches are dealt to; each device's is below it.
    pub shards: u16,
    /// What each rank's epoch is run for.
    pub objective: Objective,
    /// Nanoseconds of the accelerator's step, if known.
    pub accelerator_ns: Option<u64>,
    /// Batches that a rank delivers before it is stopped, unless this is the last part.
    pub stop_after: u32,
    /// What happens, dealt to the ranks; `contract/rank.rs` says what each byte means.
    /// Afterwards all goes calmly to the stop or the end, as far as the devices answer.
    pub events: Vec<u8>,
}

/// A device and its habit.
#[derive(Debug, Clone, Copy)]
pub struct Device {
    /// Its limits.
    pub config: DeviceConfig,
    /// What it does when the events are over.
    pub habit: Habit,
}

/// What a device does when the events are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// It answers.
    Answer,
    /// Its answers are failures.
    Fail,
    /// It takes batches and does not answer.
    Keep,
}

impl Schedule {
    /// Plays it: every position of the plan is delivered once over all ranks and parts, with the
    /// content of a run of the host alone, in the plan's order where the strategy says so,
    /// with no more batches held than the limits allow; nothing hangs, and every count is
    /// right.
    ///
    /// # Panics
    /// When one of these does not hold, and for a plan that is none.
    pub fn play(&self) {
        run::play(self);
    }
}
