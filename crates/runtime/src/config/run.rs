//! What a run is told: complete, in range, no defaults hidden further down.
//!
//! Text (flags, JSON) is turned into these values by the bindings and programs; nothing here reads an
//! environment variable or a file.

use std::fmt::{self, Debug, Formatter};
use std::path::PathBuf;
use std::sync::Arc;

use bothends_core::objective::Objective;
use bothends_core::plan::{LastPolicy, Shuffle};
use bothends_core::recipe::{MAX_DECODE_BYTES, Recipe};
use bothends_core::select::StrategyConfig;
use bothends_core::setting::{Names, Setting};
use bothends_core::tensor::{Dtype, Layout, Output};
use bothends_csd::{Insecure, JobTerms, TlsFiles};
use bothends_decompress::Watch;
use bothends_io::ReaderKind;
use bothends_ops::{DecodeRoom, PixelLimit};
use bothends_storage::{Objects, without_secrets};

use crate::config::cache::CacheSize;
use crate::config::deliver::Deliver;
use crate::config::fetch::FetchBounds;
use crate::config::gpus::Gpus;
use crate::config::mix::MixedData;
use crate::config::share::{Ranks, Share};
use crate::devices::spec::DeviceSpec;
use crate::read::supplied::{Redecoder, Supplied};

/// What happens to a sample that cannot be read or decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadPolicy {
    /// The run ends with an error that names file and sample.
    Raise,
    /// Its slot is left out: the batch is shorter.
    Skip,
    /// Another sample of the data set, chosen by the sample's key, takes the slot.
    Replace,
    /// The slot is zeros with the sample's own label.
    Zero,
}

impl BadPolicy {
    /// Every policy with its name on the command line.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("raise", Self::Raise),
        ("skip", Self::Skip),
        ("replace", Self::Replace),
        ("zero", Self::Zero),
    ];

    /// The policy's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, policy)| *policy == self)
            .map_or("", |(name, _)| name)
    }
}

impl std::str::FromStr for BadPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::NAMES
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, policy)| *policy)
            .ok_or_else(|| {
                format!(
                    "`{text}` is not a bad-sample policy; use raise, skip, replace or zero"
                )
            })
    }
}

/// How samples are read.
#[derive(Debug, Clone, Copy)]
pub struct ReadConfig {
    /// Which reader; `Auto` takes `io_uring` where the kernel has it, and leaves to the workers what the page cache
    /// has.
    pub kind: ReaderKind,
    /// Reads in flight at most.
    pub depth: u32,
    /// Bytes of one pooled buffer; larger records get an allocation of their own.
    pub buffer_bytes: u32,
    /// Whether workers use and extend the side index.
    pub side_index: SideIndexUse,
    /// Whether the host reads through the page cache.
    pub page_cache: PageCacheUse,
    /// How large the block cache may be.
    pub cache_size: CacheSize,
    /// Bounds of what is fetched of remote data.
    pub fetch: FetchBounds,
}

/// Whether the host reads through the page cache. The bytes are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCacheUse {
    /// When all of the data set takes at most half of the memory that is available: then only
    /// the first epoch waits for the disk. Larger data go past it, for they would push out of
    /// it what others need, and be gone themselves before they are read again.
    Auto,
    /// Always.
    Through,
    /// Never, where the file system allows that (O_DIRECT).
    Past,
}

/// Whether what is learnt about images is kept from epoch to epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideIndexUse {
    /// In the user's cache directory, within a limit.
    Auto,
    /// Next to the data, for storage that several machines share; in the cache directory where
    /// that may not be written.
    Beside,
    /// Neither read nor written.
    Off,
}

impl Default for ReadConfig {
    fn default() -> Self {
        Self {
            kind: ReaderKind::Auto,
            depth: 16,
            buffer_bytes: 256 << 10,
            side_index: SideIndexUse::Auto,
            page_cache: PageCacheUse::Auto,
            cache_size: CacheSize::Auto,
            fetch: FetchBounds::default(),
        }
    }
}

/// Memory that batches may take on the host, in bytes: slots that prongs fill, batches in the
/// output's form, and what mixing keeps. Decoding may take as much again, all workers together
/// ([`RunConfig`] without devices: an image that alone needs more is a bad sample). So is what is
/// fetched ahead of remote data. The reader's buffers and the table of the data set come on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryBudget {
    /// What the machine can spare, an eighth of what is available to this process, for slots
    /// that prongs can use; 160 MiB at least, and a quarter at most, unless nobody could
    /// make progress with that.
    Auto,
    /// So much for slots that prongs fill, and more where they could make no progress with
    /// that; the rest as is needed.
    Slots(usize),
    /// So much for all; a run that needs more is refused.
    Total(usize),
}

/// The part of the plan this process delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankConfig {
    /// This process's number, from 0.
    pub rank: u32,
    /// How many processes share the epoch.
    pub world: u32,
    /// What becomes of a last, incomplete step.
    pub last: LastPolicy,
}

/// Everything a run needs to know. What is shown of it has no password.
#[derive(Clone)]
pub struct RunConfig {
    /// A folder of class folders, a folder of CIFAR-10 binary batches, or a list; the root
    /// of `supplied` files, or what supplied records are called. Or the URL of such data in a
    /// remote store: `s3://bucket/prefix`.
    pub data: PathBuf,
    /// The objects that the data are in, where the caller brings them; `data` is then what they are
    /// called.
    pub objects: Option<Arc<dyn Objects>>,
    /// The directory for the record cache: records of a remote store that later epochs read from a local
    /// disk. `read.cache_size` bounds it, and 64 GiB where that is `Auto`. The block cache of local data is
    /// kept there, too. Without it nothing of remote data is kept.
    pub cache: Option<PathBuf>,
    /// Who is told how far it is while shards that are compressed are decompressed, before the run. They are kept
    /// in `cache`, or else in the user's cache directory; with `read.cache_size` off, they are refused.
    pub decompressing: Watch,
    /// The data sets that are mixed instead; `data` is then what they are called together.
    pub mix: Option<MixedData>,
    /// The samples, where the caller lists them itself.
    pub supplied: Option<Supplied>,
    /// The further fields of samples that batches have, by name; `name:text` and `name:bytes` say what
    /// the bytes of a field are taken for.
    pub fields: Vec<String>,
    /// What is done to every sample.
    pub recipe: Recipe,
    /// Samples of a batch.
    pub batch_size: u32,
    /// Seed of order and augmentation.
    pub seed: u64,
    /// Order of an epoch.
    pub shuffle: Shuffle,
    /// Only the first so many samples of the data set; `None` = all.
    pub limit: Option<u64>,
    /// How often the data set is run in one epoch, with distinct sample ids.
    pub repeat: u32,
    /// Host worker threads.
    pub workers: u32,
    /// What of this machine this process takes where it is left to choose.
    pub share: Share,
    /// How samples are read.
    pub read: ReadConfig,
    /// The folder in which the prongs' rates are remembered from run to run; `None`: they are
    /// not. Strategies begin with what is known; what is delivered does not depend on it.
    pub rates: Option<PathBuf>,
    /// The devices of the back.
    pub devices: Vec<DeviceSpec>,
    /// Where GPUs among the devices come from.
    pub gpus: Gpus,
    /// Whether a device that is missing at the start ends the run; else it is tried again.
    pub require_devices: bool,
    /// The key that devices and this host share.
    pub key_file: Option<PathBuf>,
    /// The certificates for devices at `tls://`.
    pub tls: Option<TlsFiles>,
    /// Whether devices at `tcp://` may be on other machines.
    pub insecure: Insecure,
    /// The training job that this process is of, for devices that several jobs share; `None`: one of its
    /// own.
    pub job: Option<JobTerms>,
    /// Who claims what, what is delivered next.
    pub strategy: StrategyConfig,
    /// What an epoch is run for.
    pub objective: Objective,
    /// Element type and order of delivered batches.
    pub output: Output,
    /// Rank, world and the policy for a last, incomplete step.
    pub rank: RankConfig,
    /// Who decodes what `ops` refuses, before it is a bad sample.
    pub redecoder: Option<Redecoder>,
    /// What happens to a bad sample.
    pub on_bad: BadPolicy,
    /// Percentage of device batches of which the host recomputes rows, to catch a device that lies:
    /// of 100 all rows, else as large a part of a batch's rows, eight at least. The first two
    /// batches of a device that reads a copy of the data are recomputed in any case.
    pub audit_percent: u8,
    /// What batches may take on the host.
    pub memory: MemoryBudget,
    /// Batches that the consumer may hold at once and still be given the next: 1 or more.
    pub held_batches: u32,
    /// Where batches are delivered.
    pub deliver: Deliver,
    /// What notes, and reasons that errors hold as text, call the settings that they name.
    pub names: Names,
}

impl Debug for RunConfig {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunConfig")
            .field("data", &without_secrets(&self.data.to_string_lossy()))
            .field("objects", &self.objects)
            .field("mix", &self.mix)
            .field("supplied", &self.supplied)
            .field("recipe", &self.recipe)
            .field("batch_size", &self.batch_size)
            .field("seed", &self.seed)
            .field("shuffle", &self.shuffle)
            .field("limit", &self.limit)
            .field("repeat", &self.repeat)
            .field("workers", &self.workers)
            .field("share", &self.share)
            .field("read", &self.read)
            .field("rates", &self.rates)
            .field("devices", &self.devices)
            .field("gpus", &self.gpus)
            .field("require_devices", &self.require_devices)
            .field("key_file", &self.key_file)
            .field("tls", &self.tls)
            .field("insecure", &self.insecure)
            .field("strategy", &self.strategy)
            .field("objective", &self.objective)
            .field("output", &self.output)
            .field("rank", &self.rank)
            .field("redecoder", &self.redecoder)
            .field("on_bad", &self.on_bad)
            .field("audit_percent", &self.audit_percent)
            .field("memory", &self.memory)
            .field("held_batches", &self.held_batches)
            .field("deliver", &self.deliver)
            .finish()
    }
}

impl RunConfig {
    /// The smallest run over a data set: one host worker, no device, batches of 16 `u8`
    /// samples in plan order, every sample delivered, a bad one ends it.
    #[must_use]
    pub fn new(data: PathBuf, recipe: Recipe) -> Self {
        Self {
            data,
            objects: None,
            cache: None,
            decompressing: Watch::default(),
            mix: None,
            supplied: None,
            fields: Vec::new(),
            recipe,
            batch_size: 16,
            seed: 0,
            shuffle: Shuffle::Full,
            limit: None,
            repeat: 1,
            workers: 1,
            share: Share::here(Ranks::ALONE),
            read: ReadConfig::default(),
            rates: None,
            devices: Vec::new(),
            gpus: Gpus::default(),
            require_devices: false,
            key_file: None,
            tls: None,
            insecure: Insecure::Refused,
            job: None,
            strategy: StrategyConfig::Ordered,
            objective: Objective::Throughput,
            output: Output { dtype: Dtype::U8, layout: Layout::Nhwc },
            rank: RankConfig { rank: 0, world: 1, last: LastPolicy::Pad },
            redecoder: None,
            on_bad: BadPolicy::Raise,
            audit_percent: 0,
            memory: MemoryBudget::Auto,
            held_batches: 1,
            deliver: Deliver::Host,
            names: Setting::key,
        }
    }

    /// The smallest run over a mix of data sets.
    #[must_use]
    pub fn mixed(mix: MixedData, recipe: Recipe) -> Self {
        let data = PathBuf::from(mix.to_string());
        Self { mix: Some(mix), ..Self::new(data, recipe) }
    }

    /// What decoding may take besides batches; where nobody says, of the `available` bytes that are
    /// this process's part of the machine's memory. Then it bounds what is decoded at the same
    /// time, and not what one image may take: whether a sample is bad must not depend on how much
    /// memory happened to be free, nor on who makes it, so not where a device may.
    pub(crate) fn decode_room(&self, available: Option<u64>) -> DecodeRoom {
        let n_workers = self.workers;
        let given = match self.memory {
            MemoryBudget::Total(bytes) => Some(bytes as u64),
            MemoryBudget::Auto | MemoryBudget::Slots(_) => None,
        };
        let by_default = available.map_or(MAX_DECODE_BYTES, |bytes| bytes / DECODE_PART);
        DecodeRoom {
            together_bytes: given.unwrap_or(by_default),
            one_bytes: given
                .filter(|_| self.devices.is_empty())
                .map_or(MAX_DECODE_BYTES, |bytes| bytes.min(MAX_DECODE_BYTES)),
            n_workers,
            // The host makes what devices leave.
            pixels: PixelLimit::NONE,
        }
    }
}

/// The part of the memory available to this process that decoding may take where nobody says how
/// much: one in so many. Eight workers with images of 24 megapixels need 0.9 GB.
const DECODE_PART: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_has_no_password() {
        let data = "redis://user:s3cret@host:6379/0?prefix=train/".into();
        let config = RunConfig::new(data, Recipe::builtin("imagenet-eval").unwrap());
        let shown = format!("{config:?}");
        assert!(shown.contains("redis://host:6379/0?prefix=train/"), "{shown}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn decoding_stays_within_what_is_given_and_a_device_changes_no_sample() {
        let mut config =
            RunConfig::new(PathBuf::new(), Recipe::builtin("imagenet-eval").unwrap());
        config.workers = 64;
        let limits = |config: &RunConfig| {
            let room = config.decode_room(Some(8 << 30));
            (room.together_bytes, room.one_bytes, room.n_workers)
        };
        assert_eq!(limits(&config), (2 << 30, MAX_DECODE_BYTES, 64));
        config.memory = MemoryBudget::Total(64 << 20);
        assert_eq!(limits(&config), (64 << 20, 64 << 20, 64));
        config.devices = vec!["sim:ideal".parse().unwrap()];
        assert_eq!(limits(&config), (64 << 20, MAX_DECODE_BYTES, 64));
    }
}
