//! The host of a run: data, devices and memory that live longer than an epoch.
//!
//! `Runtime::open` needs no device; devices are connected (`runtime/connect.rs`) when the host's own
//! rate is known, since an emulated device may be set relative to it. Then epochs, one after another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bothends_core::digest::StreamDigest;
use bothends_core::ids::EpochIdx;
use bothends_core::order::Order;
use bothends_core::plan::{LastPolicy, Plan, PlanConfig, PlanError, Shuffle};
use bothends_core::select::StrategyConfig;
use bothends_core::setting::{Names, Setting};
use bothends_csd::pool::{Pool, PoolSource};
use bothends_csd::{DeviceStats, Transport};
use bothends_figures::{Fetches, RecordCacheUse};
use bothends_ops::Finish;
use bothends_slots::{Heap, Kind, Ring, RingConfig, SlotError};
use crossbeam::channel::{Receiver, Sender, bounded};

use crate::collect::collector::Rings;
use crate::config::run::{RankConfig, RunConfig};
use crate::devices::emulator::DeviceProcess;
use crate::devices::gpu::wanted_uploads;
use crate::devices::presence::Presence;
use crate::devices::reach::{Reach, Try};
use crate::devices::seat::Seat;
use crate::devices::spec::DeviceSpec;
use crate::error::RuntimeError;
use crate::handover::finish::damages::Damages;
use crate::read::fetching::FetchWatch;
use crate::read::fetching::room::{BatchBytes, FetchRoom};
use crate::read::source::Source;
use crate::runtime::engine::Engine;
use crate::runtime::memory::{Room, Sizes};
use crate::runtime::rates::RememberedRates;
use crate::runtime::target::Ends;
use crate::threads::ulimits::check_addresses;

/// Notes that wait to be read; what comes when they are so many is not kept.
const NOTE_ROOM: usize = 64;

/// A device of the run.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) presence: Presence,
    /// How it is reached again; `None` of one that is not: emulated, or brought by the caller.
    pub(crate) reach: Option<Reach>,
    /// `None` while an engine runs, and when the device is lost.
    pub(crate) transport: Option<Box<dyn Transport>>,
    /// The try to reach it that was under way when the run went on without it.
    pub(crate) begun: Option<Try>,
    /// Mean nanoseconds per batch in the last epoch, perhaps of another run: the prior of the
    /// next.
    pub(crate) prior_ns: Option<u64>,
    /// Bytes that it has read from storage in this process.
    pub(crate) read_bytes: Arc<AtomicU64>,
    /// Behind the transport: it is asked to leave before its process is ended.
    pub(crate) process: Option<DeviceProcess>,
    /// Where it is a place of a pool.
    pub(crate) seat: Option<Seat>,
}

impl Device {
    /// Whether it is a place of a pool that no member has had yet.
    pub(crate) fn is_vacant(&self) -> bool {
        self.seat.is_some() && !self.presence.has_been_here()
    }

    /// What results call it: a place of a pool by the member that had it last.
    pub(crate) fn shown_name(&self) -> String {
        match self.seat {
            Some(_) => self.presence.name(),
            None => self.name.clone(),
        }
    }
}

/// What an epoch is told beyond the run's configuration.
#[derive(Debug, Clone)]
pub struct EpochOptions {
    /// Which epoch.
    pub epoch: EpochIdx,
    /// Who claims what, what is delivered next.
    pub strategy: StrategyConfig,
    /// The part of its plan that this process delivers.
    pub rank: RankConfig,
    /// How often the data set is run in it.
    pub repeat: u32,
    /// Positions of the permutation already delivered (resume).
    pub start: u64,
    /// Batches already delivered, as ranges (resume of a strategy without order).
    pub done: Vec<(u32, u32)>,
    /// Nanoseconds the accelerator takes for a batch, where that is known.
    pub accelerator_ns: Option<u64>,
    /// Consumers that the batches are dealt to, 1 or more.
    pub consumers: u32,
    /// The order of this rank's epoch, where the caller supplies it.
    pub order: Option<Arc<Order>>,
    /// What the digest of the stream goes on from; `None` where batches need no digests.
    pub digest: Option<StreamDigest>,
}

impl EpochOptions {
    /// The epoch after this one, told the same; `None` where that is not known ahead, or the
    /// strategy is to begin when its epoch does, as it was published.
    #[must_use]
    pub fn next(&self) -> Option<Self> {
        self.next_in(None)
    }

    /// As [`Self::next`], in this order where the caller supplies them.
    #[must_use]
    pub fn next_in(&self, order: Option<Arc<Order>>) -> Option<Self> {
        let is_known = self.order.is_some() == order.is_some();
        let is_known = is_known && !self.strategy.is_published();
        let epoch = EpochIdx(self.epoch.0.checked_add(1)?);
        // Each epoch has a digest of its own.
        let digest = self.digest.as_ref().map(|_| StreamDigest::new());
        let (start, done) = (0, Vec::new());
        let next = Self { epoch, start, done, digest, order, ..self.clone() };
        is_known.then_some(next)
    }

    /// Whether an epoch that was begun with these is what is asked for with `other`.
    pub(crate) fn are(&self, other: &Self) -> bool {
        let Self {
            epoch,
            strategy,
            rank,
            repeat,
            start,
            done,
            accelerator_ns,
            consumers,
            order,
            digest,
        } = other;
        let save =
            |digest: &Option<StreamDigest>| digest.as_ref().map(StreamDigest::save);
        (self.epoch, self.strategy, self.repeat) == (*epoch, *strategy, *repeat)
            && self.rank == *rank
            && (self.start, &self.done) == (*start, done)
            && (self.accelerator_ns, self.consumers) == (*accelerator_ns, *consumers)
            && save(&self.digest) == save(digest)
            && self.order == *order
    }
}

/// What happens to devices (one is missing, lost, there again), to be read from any thread.
#[derive(Debug, Clone)]
pub struct Notes(Receiver<String>);

impl Notes {
    /// The oldest that has not been read, in one line; does not wait.
    #[must_use]
    pub fn next(&self) -> Option<String> {
        self.0.try_recv().ok()
    }
}

/// The host's side of a run.
#[derive(Debug)]
pub struct Runtime {
    pub(crate) config: RunConfig,
    pub(crate) source: Arc<Source>,
    /// What is done to samples after the cut.
    pub(crate) delivered: Arc<Finish>,
    /// What the host does of that.
    pub(crate) finish: Arc<Finish>,
    pub(crate) ends: Ends,
    /// Before the devices: their processes end behind the threads that speak to them.
    pub(crate) engine: Option<Engine>,
    /// Bytes that engines before this one have read from storage.
    pub(crate) read_before: u64,
    pub(crate) devices: Vec<Device>,
    pub(crate) notes: (Sender<String>, Receiver<String>),
    /// Damaged samples of all epochs that are over.
    pub(crate) damages: Damages,
    pub(crate) rings: Rings,
    /// The memory of slots that devices fill.
    pub(crate) device_memory: Arc<dyn Kind>,
    pub(crate) sizes: Sizes,
    /// Bytes that GPUs which are devices pin for their uploads.
    pub(crate) uploads: usize,
    /// The memory for remote data that are fetched.
    pub(crate) fetched: FetchRoom,
    /// What was fetched of them, as of a moment ago.
    pub(crate) fetches: FetchWatch,
    /// This process's part of the machine's memory, in bytes, as it was when it was opened.
    pub(crate) available: Option<u64>,
    pub(crate) room: Room,
    /// Devices of the configuration, each place of a pool being one.
    pub(crate) n_devices: u32,
    /// Places of each of its pools at most.
    pub(crate) n_places: u32,
    /// What is kept of them for the next run.
    pub(crate) rates: RememberedRates,
    /// Mean nanoseconds of the host's workers per batch in the last epoch, perhaps of another
    /// run.
    pub(crate) front_prior_ns: Option<u64>,
    /// Engines and epochs started so far.
    pub(crate) n_engines: u64,
    pub(crate) n_started: u64,
}

impl Runtime {
    /// Opens the data and reserves memory. Starts no thread and reaches no device.
    ///
    /// # Errors
    /// Data, recipe or plan that make no sense; a limit of memory that the batches cannot do
    /// with; no memory.
    pub fn open(config: RunConfig) -> Result<Self, RuntimeError> {
        if config.supplied.as_ref().is_some_and(|given| given.records.is_some())
            && !config.devices.is_empty()
        {
            return Err(RuntimeError::Options(format!(
                "{}: a device cannot read samples that the caller gives as bytes; give paths, or \
                 (path, offset, length)",
                (config.names)(Setting::Devices)
            )));
        }
        let source = Arc::new(Source::open(&config)?);
        if source.remote().is_some() {
            devices_of_remote(&config.devices, config.names)?;
        }
        // Refuses impossible batch sizes and ranks before memory is taken for them.
        plan(&config, &source, &options(&config, EpochIdx(0)))?;
        let views = source.pipeline.views();
        let finish = Finish::new(&config.recipe, views, config.output)?;
        let sizes = Sizes::new(&config, views.len(), &finish);
        let available = config.share.memory_bytes();
        let (n_devices, n_places) =
            places(&config.devices, |n| sizes.is_for(config.memory, available, n));
        let wanted = wanted_uploads(config.batch_size, n_gpus(&config.devices));
        let uploads = sizes.uploads_within(config.memory, n_devices, wanted);
        let sizes = sizes.with_uploads(config.memory, uploads);
        let notes = bounded(NOTE_ROOM);
        let fetched = source.remote().map_or_else(FetchRoom::default, |_| {
            let bytes = BatchBytes::of(&source, config.batch_size);
            let memory = (config.memory, available, n_devices);
            sizes.fetch_room(memory, config.read.fetch.reorder_bytes, bytes)
        });
        // The first note has room.
        let _ = fetched.note(config.names).map(|note| notes.0.try_send(note));
        let sizes = sizes.with_fetched(fetched);
        let room = Room::divide(config.memory, available, sizes, n_devices)?;
        let rates = RememberedRates::of(&config, &source);
        check_addresses(slot_bytes(sizes, room), config.workers)?;
        let delivered = Arc::new(finish);
        Ok(Self {
            source,
            finish: Arc::clone(&delivered),
            delivered,
            ends: Ends::default(),
            engine: None,
            read_before: 0,
            devices: Vec::new(),
            notes,
            damages: Damages::default(),
            rings: rings((&Heap, &Heap), sizes, room)?,
            device_memory: Arc::new(Heap),
            sizes,
            available,
            uploads,
            fetched,
            fetches: FetchWatch::default(),
            room,
            n_devices,
            n_places,
            front_prior_ns: rates.front_ns(),
            rates,
            n_engines: 0,
            n_started: 0,
            config,
        })
    }

    /// The options that the run's configuration gives an epoch.
    #[must_use]
    pub fn options(&self, epoch: EpochIdx) -> EpochOptions {
        options(&self.config, epoch)
    }

    /// The order of an epoch.
    ///
    /// # Errors
    /// Numbers that make no plan.
    pub fn plan(&self, options: &EpochOptions) -> Result<Plan, RuntimeError> {
        plan(&self.config, &self.source, options)
    }

    /// Bytes of a sample as a prong makes it and a link carries it.
    #[must_use]
    pub fn sample_bytes(&self) -> usize {
        self.source.pipeline.sample_bytes()
    }

    /// What happens to devices, and what was found in the data; what one reader has had no other
    /// gets.
    #[must_use]
    pub fn notes(&self) -> Notes {
        Notes(self.notes.1.clone())
    }

    /// What happened to a device since the last call, in one line each.
    pub fn next_note(&self) -> Option<String> {
        self.notes().next()
    }
}

/// Devices of this machine read files of this machine.
fn devices_of_remote(devices: &[DeviceSpec], name: Names) -> Result<(), RuntimeError> {
    let who = devices.iter().find_map(|device| match device {
        DeviceSpec::At { .. } | DeviceSpec::Pool(_) => None,
        DeviceSpec::Gpu { .. } => Some("a GPU decodes files of this machine"),
        DeviceSpec::Sim(_) => Some("an emulated device reads files of this machine"),
    });
    who.map_or(Ok(()), |who| {
        Err(RuntimeError::Options(format!(
            "{}: {who}, and the data are in a remote store; give the path of a copy, or the \
             address of an agent that has one",
            name(Setting::Devices)
        )))
    })
}

/// Devices of a run with these, each place of a pool being one, and the places of each pool at most: as many
/// as are of use, and as there is memory for; one at least.
fn places(devices: &[DeviceSpec], is_room_for: impl Fn(u32) -> bool) -> (u32, u32) {
    let all = |most: u32| {
        let places = devices.iter().map(|device| match device {
            DeviceSpec::Pool(pool) => n_places(pool).min(most),
            DeviceSpec::Sim(_) | DeviceSpec::At { .. } | DeviceSpec::Gpu { .. } => 1,
        });
        places.fold(0, u32::saturating_add)
    };
    let pools = devices.iter().filter_map(|device| match device {
        DeviceSpec::Pool(pool) => Some(n_places(pool)),
        DeviceSpec::Sim(_) | DeviceSpec::At { .. } | DeviceSpec::Gpu { .. } => None,
    });
    let most = pools.max().unwrap_or(1);
    let most = (1..=most).rev().find(|most| is_room_for(all(*most))).unwrap_or(1);
    (all(most), most)
}

/// How many of them are GPUs of this machine.
pub(crate) fn n_gpus(devices: &[DeviceSpec]) -> u32 {
    let is_gpu = |device: &&DeviceSpec| matches!(device, DeviceSpec::Gpu { .. });
    u32::try_from(devices.iter().filter(is_gpu).count()).unwrap_or(u32::MAX)
}

/// Places that a pool can use.
pub(crate) fn n_places(pool: &Pool) -> u32 {
    match &pool.source {
        PoolSource::Listed(members) => {
            pool.max.min(u32::try_from(members.len()).unwrap_or(u32::MAX))
        }
        PoolSource::File(_) | PoolSource::Dns { .. } | PoolSource::Registries(_) => {
            pool.max
        }
    }
}

/// Bytes of all slots.
fn slot_bytes(sizes: Sizes, room: Room) -> u64 {
    let all =
        |n_slots: u32, bytes: usize| u64::from(n_slots).saturating_mul(bytes as u64);
    all(room.front_slots, sizes.front_slot())
        .saturating_add(all(room.back_slots, sizes.cut_slot()))
}

/// The memory that batches are made in: that of delivered ones and that which devices fill, each of its
/// kind. Where there are slots of one kind for all, they are pinned where either is to be.
pub(crate) fn rings(
    (delivered, devices): (&dyn Kind, &dyn Kind),
    sizes: Sizes,
    room: Room,
) -> Result<Rings, SlotError> {
    let n_back = Some(room.back_slots).filter(|n| *n > 0);
    let is_for_all = n_back.is_none() && delivered.name() == Heap.name();
    let of_front = if is_for_all { devices } else { delivered };
    let (n_slots, slot_bytes) = (room.front_slots, sizes.front_slot());
    let front = Ring::of(of_front, RingConfig { n_slots, slot_bytes })?;
    let slot_bytes = sizes.cut_slot();
    let back = |n_slots| Ring::of(devices, RingConfig { n_slots, slot_bytes });
    Ok(Rings { front, back: n_back.map(back).transpose()? })
}

fn options(config: &RunConfig, epoch: EpochIdx) -> EpochOptions {
    EpochOptions {
        epoch,
        strategy: config.strategy,
        rank: config.rank,
        repeat: config.repeat,
        start: 0,
        done: Vec::new(),
        accelerator_ns: None,
        consumers: 1,
        order: None,
        digest: None,
    }
}

fn plan(
    config: &RunConfig,
    source: &Source,
    options: &EpochOptions,
) -> Result<Plan, RuntimeError> {
    let plan_config = PlanConfig {
        n_samples: source.n_samples().saturating_mul(u64::from(options.repeat)),
        batch_size: config.batch_size,
        shuffle: config.shuffle,
        seed: config.seed,
        epoch: options.epoch,
        rank: options.rank.rank,
        world: options.rank.world,
        last: options.rank.last,
        consumers: options.consumers,
        start: options.start,
        repetitions: config.recipe.repeated_augment(),
    };
    if let Some((mix, sources)) = config.mix.as_ref().zip(source.sources()) {
        let mix = sources.mix(mix, config, (options.epoch, options.repeat));
        return Ok(Plan::mixed(plan_config, mix.map_err(PlanError::from)?)?);
    }
    // Nobody has supplied an order yet: every sample is in this one, for what is measured.
    let plan_config = match (config.shuffle, &options.order) {
        (Shuffle::Supplied, None) => PlanConfig {
            shuffle: Shuffle::Full,
            last: LastPolicy::Wrap,
            batch_size: config
                .batch_size
                .min(u32::try_from(source.n_samples()).unwrap_or(1)),
            ..plan_config
        },
        (_, _) => plan_config,
    };
    Ok(match &options.order {
        Some(order) => Plan::supplied(plan_config, Arc::clone(order))?,
        None => Plan::new(plan_config)?,
    })
}

// ---- what the run has used ----------------------------------------------------------------

impl Runtime {
    /// What each device has counted since it started, as it says; `None` of one that does not.
    pub(crate) fn device_stats(&mut self) -> Vec<Option<DeviceStats>> {
        let stats = self.engine().map(Engine::device_stats);
        // Without threads there is nobody who could ask.
        stats.unwrap_or_else(|_| vec![None; self.devices.len()])
    }

    /// Bytes the host has read from storage since it was opened.
    pub(crate) fn storage_read_bytes(&self) -> u64 {
        let devices = self.devices.iter();
        let by_devices: u64 =
            devices.map(|device| device.read_bytes.load(Ordering::Relaxed)).sum();
        let by_engine = self.engine.as_ref().map_or(0, Engine::read_bytes);
        self.read_before + by_engine + by_devices
    }

    /// What was fetched from a remote store, as of a moment ago; `None` where the data are in none.
    #[must_use]
    pub fn fetched(&self) -> Option<Fetches> {
        let fetches = self.source.remote().map(|_| self.fetches.figures())?;
        let Some(cache) = self.record_cache() else { return Some(fetches) };
        let RecordCacheUse { hits: cached, saved_bytes: cached_bytes, .. } = cache;
        let cache_damaged = cache.damaged;
        Some(Fetches { cached, cached_bytes, cache_damaged, ..fetches })
    }

    /// What the cache of fetched records has, and has done; `None` where there is none.
    #[must_use]
    pub fn record_cache(&self) -> Option<RecordCacheUse> {
        let cache = self.source.remote()?.cache()?;
        Some(cache.used())
    }

    /// What this run reads, and how.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }
}
