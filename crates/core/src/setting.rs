//! The settings of a run, as messages name them. A library error uses the library's names; an entry
//! point with other names prints the same text with its own.
//!
//! `PlanConfig` and the runtime's `RunConfig` define what a setting means; the flags belong to the
//! command line.

use std::error::Error;

/// A setting that an error's text names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Setting {
    /// Where the data set is.
    Data,
    /// Samples of a batch.
    BatchSize,
    /// Times that the data are run in an epoch.
    Repeat,
    /// What happens with the samples that do not fill a step.
    Last,
    /// The seed.
    Seed,
    /// The strategy.
    Strategy,
    /// This process's rank.
    Rank,
    /// The number of ranks.
    World,
    /// What a bad sample does.
    OnBad,
    /// Worker threads of the host.
    Workers,
    /// The limit of memory.
    Memory,
    /// The devices.
    Devices,
    /// What writes the state of a run.
    SaveState,
    /// What continues from such a state.
    LoadState,
}

/// What an entry point calls each setting.
pub type Names = fn(Setting) -> &'static str;

impl Setting {
    /// The library's own name: the key of a loader's options, or its method in Rust. A door to another
    /// language calls methods otherwise.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::BatchSize => "batch_size",
            Self::Repeat => "repeat",
            Self::Last => "last",
            Self::Seed => "seed",
            Self::Strategy => "strategy",
            Self::Rank => "rank",
            Self::World => "world_size",
            Self::OnBad => "on_bad",
            Self::Workers => "workers",
            Self::Memory => "memory",
            Self::Devices => "csds",
            Self::SaveState => "Loader::state",
            Self::LoadState => "Loader::load_state",
        }
    }
}

/// An error whose text names settings. Its `Display` is the text with [`Setting::key`].
pub trait NamesSettings: Error {
    /// The text, without causes, with an entry point's names.
    fn with_names(&self, name: Names) -> String;
}
