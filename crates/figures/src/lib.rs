//! What a run says of itself: the words that whoever runs it and whoever reports it share.
//!
//! Types alone: nothing here measures, draws or opens a file. Their JSON is what `--json` and
//! event files hold, so scripts depend on the names; what an older file lacks is missing, or
//! empty. Read `result.rs` (a run and its epochs), then `moment.rs` (what happened when).

mod moment;
mod result;
mod settings;
mod stall;

pub use moment::{Counted, Moment, UsageSample, What};
pub use result::{
    AcceleratorResult, Alone, BackResult, Bytes, Cpu, Energy, EnergyDomain, EpochResult,
    FrontResult, Memory, RunResult, Seen, Skipped,
};
pub use settings::Settings;
pub use stall::Stall;
