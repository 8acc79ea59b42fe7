//! The results of a run: the types shared by the code that runs it and the code that reports it.
//!
//! There are types, and what one figure says of another: nothing here measures, draws or opens a file. Their JSON is the format of
//! `--json` and of event files, so scripts depend on the names. What an older file lacks is missing
//! or empty. Read `result.rs` (a run and its epochs), then `moment.rs` (what happened when).

mod data;
mod moment;
mod result;
mod settings;
mod stall;

pub use data::DataSet;
pub use moment::{Counted, Moment, UsageSample, What};
pub use result::{
    AcceleratorResult, Alone, Audits, BackResult, BlockCacheUse, Bytes, Cpu, Damaged,
    DamagedSample, Energy, EnergyDomain, EpochResult, FetchWaits, Fetches, FrontResult,
    InjectedFault, Memory, RecordCacheUse, RunResult, Seen, Skipped, SourceSamples,
};
pub use settings::Settings;
pub use stall::Stall;
