//! Epochs on the host, from both ends: the only host crate with threads.
//!
//! ```text
//!          ┌──────── collector: asks core what to do next, hands out jobs with slots ────────┐
//!          │ job + slot                    │ job + slot                        slot + rows    │
//!          ▼                               ▼                                                  ▼
//!  make    reader ─records─► workers       device threads ─wire─► devices             finish ─► consumer
//!            │ io            │ ops ▲         │ csd                                      │ policy, audit
//!            └── files       └─ its part     └─ its slot                                │
//!                                  └─────────────── rows to convert, to mix ────────────┤
//!  ◄──────────────────────── slots go back when the consumer drops a batch ◄────────────┘
//! ```
//!
//! The folders tell it in this order: `config` is what a run is told; `runtime` owns what lives
//! longer than an epoch, its threads among it, and starts one; `read` brings records, `make` and `devices` are the
//! producers; `collect` decides who makes what; `handover` finishes batches and hands them to
//! consumers. On top, `run` makes a whole run of it, and `measure` says what it can do. `threads`
//! is how threads run and end.
//!
//! Nobody looks a sample up from many threads: a job's progress travels with the job (an
//! `Arc` of atomics), and the ledger has one owner, the collector. So there is no concurrent
//! map here.
//!
//! It does not decide (`core` does), does not know a format or an op by name, has no unsafe
//! code but the system calls of `threads::priority`, and reads no flag.

mod collect;
mod config;
mod devices;
mod error;
mod handover;
mod make;
mod measure;
mod read;
mod run;
mod runtime;
mod threads;

pub use collect::log::{EventLog, MOST_MOMENTS};
pub use collect::producer::LineReport;
pub use config::cache::CacheSize;
pub use config::deliver::Deliver;
pub use config::drive::{CheckpointEvery, DriveConfig, EnergyConfig, StopRequest};
pub use config::fetch::FetchBounds;
pub use config::gpus::Gpus;
pub use config::mix::{MixedData, MixedSource, Replacement};
pub use config::options::{options, options_among, rates_folder};
pub use config::run::{
    BadPolicy, MemoryBudget, PageCacheUse, RankConfig, ReadConfig, RunConfig,
    SideIndexUse,
};
pub use config::share::{Ranks, Share};
pub use devices::spec::{DeviceSpec, SimRate, SimSpec, Via};
pub use error::{ErrorKind, RuntimeError, one_line_with};
pub use handover::batch::fields::FieldColumn;
pub use handover::batch::{Batch, BatchHeader, Mixed, Row, soft_labels};
pub use handover::consumer::Consumer;
pub use handover::consumer::conformance;
pub use handover::deal::Deal;
pub use handover::epoch::{Epoch, Polled};
pub use handover::gpu::batch::GpuBatch;
pub use handover::gpu::deal::{GpuDeal, GpuPolled};
pub use handover::gpu::dealt::Dealt;
pub use handover::gpu::target::GpuTarget;
pub use handover::loader::Loader;
pub use handover::loader::stats::{DeviceStats, LoaderStats};
pub use handover::report::EpochReport;
pub use measure::alone::{Measured, measure_accelerator};
pub use measure::gpu::{GpuCard, GpuFound, RefusedPath};
pub use measure::load::{Load, LoadWatch};
pub use measure::machine::Machine;
pub use measure::preview::{Looked, look};
pub use measure::survey::survey;
pub use measure::utilisation::Connected;
pub use read::source::Source;
pub use read::sources::Sources;
pub use read::supplied::{Records, Redecode, Redecoder, Supplied, SuppliedFile, Unread};
pub use run::drive::drive;
pub use run::id::run_id;
pub use run::observer::{Ended, Observer, Progress};
pub use run::settings::settings;
pub use runtime::host::{EpochOptions, Notes, Runtime};
pub use threads::fork::Home;
pub use threads::registration::Registration;
pub use threads::times::ThreadSeconds;
pub use threads::{process, shutdown};

// What a caller needs from the crates below to say what it wants, and what it is told.
pub use bothends_accel::{AccelConfig, AccelError, Step, Usage};
pub use bothends_core::plan::mix::MixStop;
pub use bothends_csd::{Insecure, JobTerms, TlsFiles};
pub use bothends_dataset::{FieldKind, FieldType, JoinLabels, Number};
pub use bothends_decompress::{
    Progress as Decompressing, Stage as DecompressingStage, Watch as DecompressingWatch,
};
pub use bothends_figures::{
    AcceleratorResult, Alone, Audits, BackResult, BlockCacheUse, Bytes, Counted, Cpu,
    Damaged, DamagedSample, DataSet, Energy, EnergyDomain, EpochResult, FetchWaits,
    Fetches, FrontResult, InjectedFault, Memory, Moment, RecordCacheUse, RunResult, Seen,
    Settings, Skipped, SourceSamples, Stall, UsageSample, What,
};
pub use bothends_gpu::GpuError;
pub use bothends_gpu::driver::{Card, Driver};
pub use bothends_gpu::owners::ConsumerStream;
pub use bothends_gpu::path::{Path as GpuPath, Report as PathReport};
pub use bothends_io::{ReaderKind, replace};
pub use bothends_side_index::{BlockCacheStats, SideIndexStats};
pub use bothends_storage::{Objects, is_url, without_secrets};
