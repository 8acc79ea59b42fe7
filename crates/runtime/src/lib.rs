//! One epoch on the host, from both ends: the only host crate with threads.
//!
//! ```text
//!            ┌────────────── collector: asks core what to do, does it ──────────────┐
//!            │ jobs                            │ orders                        made │
//!  FRONT     ▼                       BACK      ▼                                    ▼
//!  reader ─records─► workers         device threads ─wire─► devices               feed ─► consumer
//!    │ io            │ ops             │ csd                                         │ policy, audit,
//!    └── files       └─ parts of slots └─ results into slots                         │ conversion
//!  ◄─────────────────────── slots go back when the consumer drops a batch ◄──────────┘
//! ```
//!
//! Reading order: `config` is what a run is told; `source` its data, `supplied` those that the caller lists; `device` its devices;
//! `room` the memory of its batches; `runtime` owns these; `start` joins the loops of `collect`, `front`, `back` and `feed`
//! with bounded queues (crossbeam's channels) into an `epoch`; `shutdown` says how that
//! ends; `pin` and `make_way` where and after whom threads run; `stall`, `log`, `report` and `result` say what it was. Two things stand on top:
//! `drive`, with `measure`, `fed`, `usage` and `energy`, makes a whole run of it and counts everything;
//! `loader` deals (`deal`) its batches to a training loop that is somebody else's.
//!
//! Nobody looks a sample up from many threads: a job's progress travels with the job (an
//! `Arc` of atomics), and the ledger has one owner, the collector. So there is no concurrent
//! map here.
//!
//! It does not decide (`core` does), does not know a format or an op by name, has no unsafe
//! code but the system calls of `make_way`, and reads no flag.

mod config;
mod error;
mod home;
mod nearest;
mod options;

mod device;
mod redecode;
mod side_index;
mod source;
mod storage;
mod supplied;

mod room;
mod runtime;
mod start;

mod back;
mod bell;
mod collect;
mod feed;
mod front;
mod line;
mod reader;
mod worker;

mod batch;
mod clock;
mod epoch;
pub mod shutdown;

mod log;
mod look;
mod machine;
mod make_way;
mod pin;
pub mod process;
mod report;
mod stall;
mod survey;
mod thread_time;

mod checkpoint;
mod deal;
mod loader;

mod digests;
mod drive;
mod drive_config;
mod energy;
mod energy_config;
mod fed;
mod measure;
mod observer;
mod result;
mod settings;
mod usage;

pub use batch::{Batch, Mixed, Row, soft_labels};
pub use config::{
    BadPolicy, MemoryBudget, PageCacheUse, RankConfig, ReadConfig, RunConfig,
    SideIndexUse,
};
pub use deal::Deal;
pub use device::{DeviceSpec, SimRate, SimSpec, Via};
pub use drive::drive;
pub use drive_config::{Digesting, DriveConfig};
pub use energy_config::EnergyConfig;
pub use epoch::{Epoch, Polled};
pub use error::{ErrorKind, RuntimeError};
pub use fed::{Connected, Fed};
pub use feed::Skipped;
pub use home::Home;
pub use loader::{DeviceStats, Loader, LoaderStats};
pub use log::{EventLog, LogEntry, MOST_MOMENTS, Moment};
pub use look::{Looked, look};
pub use machine::Machine;
pub use measure::{Alone, Measured, measure_accelerator};
pub use observer::{Ended, Observer, Progress};
pub use options::{in_keys, options};
pub use redecode::{Redecode, Redecoder};
pub use report::{BackReport, EpochReport};
pub use result::{
    AcceleratorResult, BackResult, Bytes, Cpu, Energy, EnergyDomain, EpochResult,
    FrontResult, Memory, RunResult,
};
pub use runtime::{EpochOptions, Runtime};
pub use settings::settings;
pub use side_index::SideIndexStats;
pub use source::Source;
pub use stall::Stall;
pub use supplied::{Records, Supplied, SuppliedFile};
pub use survey::survey;
pub use thread_time::ThreadSeconds;
pub use usage::{UsageSample, byte_seconds};

// What a caller needs from the crates below to say what it wants.
pub use bothends_accel::{AccelConfig, AccelError};
pub use bothends_io::ReaderKind;
