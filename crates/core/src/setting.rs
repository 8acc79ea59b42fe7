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
    /// Whether connections to other machines may be unencrypted.
    Insecure,
    /// The authorities that may sign the other side's certificate.
    TlsCa,
    /// This side's certificate.
    TlsCert,
    /// Its private key.
    TlsKey,
    /// What becomes of the labels of data sets that are mixed.
    MixLabels,
    /// The limit of the cache.
    CacheSize,
    /// The memory for records that are fetched and not yet with the workers.
    FetchReorder,
    /// Where batches are delivered.
    Deliver,
    /// What writes the state of a run.
    SaveState,
    /// What continues from such a state.
    LoadState,
}

/// What an entry point calls each setting. One that it does not have is `""`, and advice leaves it out.
pub type Names = fn(Setting) -> &'static str;

/// The advice that names settings, each written as `a smaller {}`: of those that the entry point has, joined
/// by `or`; `None` where it has none of them.
#[must_use]
pub fn advice(name: Names, each: &[(Setting, &str)]) -> Option<String> {
    let names = each.iter().map(|(setting, text)| (name(*setting), text));
    let given = names.filter(|(name, _)| !name.is_empty());
    let texts: Vec<_> = given.map(|(name, text)| text.replace("{}", name)).collect();
    (!texts.is_empty()).then(|| texts.join(", or "))
}

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
            Self::Insecure => "insecure",
            Self::TlsCa => "tls_ca",
            Self::TlsCert => "tls_cert",
            Self::TlsKey => "tls_key",
            Self::MixLabels => "labels",
            Self::CacheSize => "cache_size",
            Self::FetchReorder => "fetch_reorder",
            Self::Deliver => "device",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_only_what_there_is() {
        let each = [(Setting::BatchSize, "a smaller {}"), (Setting::Repeat, "{}")];
        let only: Names = |it| if it == Setting::Repeat { "--repeat" } else { "" };
        assert_eq!(
            advice(Setting::key, &each).as_deref(),
            Some("a smaller batch_size, or repeat")
        );
        assert_eq!(advice(only, &each).as_deref(), Some("--repeat"));
        assert_eq!(advice(|_| "", &each), None);
    }
}
