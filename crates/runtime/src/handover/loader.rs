//! A loader: epochs one after another, as a training loop asks for them.
//!
//! It owns the runtime, the epoch that runs, and where the next one begins; what a training
//! script does to it (break off, start again, save, load, ask for another epoch) has one
//! meaning, whatever language it is written in:
//!
//! 1. [`Loader::begin`] starts the next epoch: the one that [`Loader::set_epoch`] named, else
//!    the one after the last that delivered a batch. An epoch that was begun before is
//!    cancelled by it, and its consumers are told so ([`RuntimeError::Superseded`]).
//!    [`Loader::begin_order`] does the same in an order that the caller supplies.
//! 2. [`Loader::state`] speaks of batches that consumers have taken, never of those that lie
//!    ready. At an epoch's end it is the beginning of the next.
//! 3. After [`Loader::load_state`] the next epoch goes on from there; `set_epoch` of that same
//!    epoch leaves the place alone, of another one gives it up.
//! 4. In a fork of the process every call says so and nothing is waited for.
//! 5. While an epoch ends, the one that is expected next is made already, in slots that are free;
//!    in an order that the caller supplies, if it names that ([`Loader::begin_order_before`]). Where
//!    another one is asked for, that is thrown away: no stream and no state depends on it.
//!
//! What it delivers is `handover/deal.rs`'s; it has no thread and no queue of its own. Epochs that end
//! in GPU memory are begun in `loader/gpu.rs`; `loader/stats.rs` counts.

mod gpu;
pub(crate) mod stats;

use std::mem::ManuallyDrop;
use std::sync::Arc;

use bothends_accel::Usage;
use bothends_core::ids::{EpochIdx, Label, SampleId};
use bothends_core::order::{Order, OrderConfig};
use bothends_core::plan::Shuffle;
use bothends_core::resume::Resume;
use bothends_core::tensor::{Output, SampleShape};
use bothends_figures::DataSet;
use bothends_side_index::SideIndex;

use crate::config::deliver::Deliver;
use crate::config::run::{RankConfig, RunConfig};
use crate::error::RuntimeError;
use crate::handover::consumer::Consumer;
use crate::handover::deal::{Cancelled, Deal, DealState};
use crate::handover::epoch::Epoch;
use crate::handover::gpu::feed::GpuFeed;
use crate::handover::gpu::target::GpuTarget;
use crate::handover::report::EpochReport;
use crate::read::blocks::BlockSource;
use crate::read::sources::Sources;
use crate::read::supplied::Supplied;
use crate::run::checkpoint::{self, Loaded, Place};
use crate::run::digests::Digests;
use crate::runtime::host::{EpochOptions, Notes, Runtime};
use crate::threads::fork::Home;
use crate::threads::process;

use self::stats::LoaderStats;

/// Feeds a training loop.
#[derive(Debug)]
pub struct Loader {
    home: Home,
    /// Some until it is dropped.
    runtime: Option<Runtime>,
    running: Option<Running>,
    /// The epoch that is expected behind the running one.
    ahead: Option<Ahead>,
    /// Where the next epoch begins.
    next: Place,
    /// What `set_epoch` asked for since.
    asked: Option<EpochIdx>,
    /// What the epochs that are over add up to.
    ended: LoaderStats,
    /// The GPU that the options name.
    gpu: Option<GpuTarget>,
    /// The way to the GPU that epochs were delivered to last.
    feed: Option<Arc<GpuFeed>>,
}

/// An epoch that was begun.
#[derive(Debug)]
struct Running {
    deal: Arc<Deal>,
    options: EpochOptions,
}

/// An epoch that nobody has asked for yet.
#[derive(Debug)]
struct Ahead {
    epoch: Epoch,
    options: EpochOptions,
}

impl Loader {
    /// Opens the data, reserves memory, starts and connects devices. Blocks on the file
    /// system and the network, for a device that says nothing two seconds unless devices are
    /// required; with a device whose rate is relative to the host's, up to six seconds more for
    /// measuring that; for a GPU that the options name, a third of a second, and some more the first
    /// time that a machine sees the kernels.
    ///
    /// # Errors
    /// Whatever makes the run impossible, by name.
    pub fn open(config: RunConfig) -> Result<Self, RuntimeError> {
        // First: nothing else is worth beginning without it.
        let gpu = match config.deliver {
            Deliver::Gpu(index) => Some(GpuTarget::cuda(index)?),
            Deliver::Host | Deliver::PageLocked(_) => None,
        };
        let mut runtime = Runtime::open(config)?;
        let host_images_per_s = runtime.host_rate_for_devices(None)?;
        runtime.connect_devices(host_images_per_s)?;
        let mut loader = Self::over(runtime);
        loader.deliver_as_told(gpu)?;
        Ok(loader)
    }

    /// Over a host whose devices are connected, or will be by whoever runs it.
    #[must_use]
    pub fn over(runtime: Runtime) -> Self {
        Self {
            home: Home::here(),
            runtime: Some(runtime),
            running: None,
            ahead: None,
            next: Place::of(EpochIdx(0)),
            asked: None,
            ended: LoaderStats::default(),
            gpu: None,
            feed: None,
        }
    }

    /// Begins the next epoch for `consumers` consumers, each of which gets as many batches as
    /// the others. The one that was begun before is cancelled. Does not wait for a batch.
    ///
    /// # Errors
    /// A plan that makes no sense with so many consumers, or a loaded state whose rest they
    /// cannot share ([`RuntimeError::CannotResume`]); a thread that cannot be started;
    /// [`RuntimeError::Forked`].
    pub fn begin(&mut self, consumers: u32) -> Result<Arc<Deal>, RuntimeError> {
        self.begin_on_host(consumers, None, None)
    }

    /// Begins the next epoch in this order, for one consumer. The order is this rank's alone:
    /// nothing is dealt to ranks any more.
    ///
    /// # Errors
    /// As [`Self::begin`]; [`RuntimeError::Resume`] when a loaded state is in the middle of
    /// an epoch of a different order.
    pub fn begin_order(&mut self, order: Arc<Order>) -> Result<Arc<Deal>, RuntimeError> {
        self.begin_on_host(1, Some(order), None)
    }

    /// As [`Self::begin_order`] where the order of the epoch behind it is known already: that one
    /// is made ahead. Where it is begun in another order all the same, what was made is thrown away.
    ///
    /// # Errors
    /// As [`Self::begin_order`].
    pub fn begin_order_before(
        &mut self,
        order: Arc<Order>,
        next: Arc<Order>,
    ) -> Result<Arc<Deal>, RuntimeError> {
        self.begin_on_host(1, Some(order), Some(next))
    }

    /// Runs the next epoch into a consumer, to its end.
    ///
    /// # Errors
    /// As [`Self::begin`]; what ends the epoch, or the consumer says.
    pub fn feed(&mut self, consumer: &mut dyn Consumer) -> Result<Usage, RuntimeError> {
        let deal = self.begin(1)?;
        let mut usage = Usage::default();
        for batch in deal.batches(0) {
            usage.add(consumer.take(batch?)?);
        }
        Ok(usage)
    }

    /// What a sampler gave as an order of this data set's samples: `records` one behind the
    /// other, `ends` where each batch ends.
    ///
    /// # Errors
    /// [`RuntimeError::Order`].
    pub fn order(
        &self,
        config: OrderConfig,
        records: &[i64],
        ends: Vec<u64>,
    ) -> Result<Order, RuntimeError> {
        let n_records = self.runtime().source.n_ids();
        Ok(Order::new(OrderConfig { n_records, ..config }, records, ends)?)
    }

    fn begin_with(
        &mut self,
        consumers: u32,
        order: Option<Arc<Order>>,
        next_order: Option<Arc<Order>>,
    ) -> Result<Arc<Deal>, RuntimeError> {
        self.home.check()?;
        self.finish(Cancelled::Superseded);
        let start = self.start();
        if order.is_none() && self.runtime().config.shuffle == Shuffle::Supplied {
            let line = "this loader follows orders that are supplied (`shuffle`), and this epoch \
                        has none";
            return Err(RuntimeError::Options(line.to_owned()));
        }
        let options = self.runtime().options(start.epoch);
        let options = EpochOptions { consumers, order, ..options };
        let options = checkpoint::epoch_at(self.runtime(), &start, options)?;
        let next = options.next_in(next_order);
        let deal = self.begin_epoch(options, next)?;
        (self.next, self.asked) = (start, None);
        Ok(deal)
    }

    /// Begins an epoch with just these options, and prefetches what is expected behind it. The
    /// one that was begun before is cancelled.
    pub(crate) fn begin_epoch(
        &mut self,
        options: EpochOptions,
        next: Option<EpochOptions>,
    ) -> Result<Arc<Deal>, RuntimeError> {
        self.finish(Cancelled::Superseded);
        let epoch = match self.ahead.take_if(|ahead| ahead.is_for(&options)) {
            Some(Ahead { mut epoch, .. }) => {
                epoch.want();
                epoch
            }
            None => {
                self.drop_ahead();
                self.runtime_mut().start_epoch(&options)?
            }
        };
        let deal = Arc::new(Deal::new(epoch, &options, self.sources().cloned()));
        self.running = Some(Running { deal: Arc::clone(&deal), options });
        self.prefetch(next);
        Ok(deal)
    }

    /// Has an epoch made behind the running one, as far as there are slots. Samples that the
    /// caller gives when asked are not asked for ahead: it may not be ready to give them.
    fn prefetch(&mut self, options: Option<EpochOptions>) {
        let runtime = self.runtime_mut();
        let asks = |supplied: &Supplied| supplied.records.is_some();
        if runtime.config.supplied.as_ref().is_some_and(asks) {
            return;
        }
        // What hinders it says so when the epoch is begun.
        let begun = options.and_then(|options| {
            let epoch = runtime.start_ahead(&options).ok()?;
            Some(Ahead { epoch, options })
        });
        self.ahead = begun;
    }

    /// Cancels what was made ahead: another epoch is wanted.
    pub(super) fn drop_ahead(&mut self) {
        let Some(Ahead { epoch, .. }) = self.ahead.take() else { return };
        let number = epoch.ways.number;
        drop(epoch);
        for device in &self.runtime().devices {
            device.presence.trust().was_never_wanted(number);
        }
    }

    /// Ends the epoch that was begun, whatever is left of it; `None` where none was.
    pub(crate) fn end_epoch(&mut self) -> Option<EpochReport> {
        self.finish(Cancelled::Unwanted)
    }

    /// This process is rank `rank` of `world` from the next epoch on.
    ///
    /// # Errors
    /// A rank that makes no plan; another number of ranks than that in whose batches a loaded state counts. The loader
    /// goes on as the rank that it was.
    pub fn set_rank(&mut self, rank: u32, world: u32) -> Result<(), RuntimeError> {
        let was = self.runtime().config.rank;
        if world != was.world && !self.start().done.is_empty() {
            let why = format!(
                "the state that was loaded counts batches of {} ranks, and this run has {world}; load it once the \
                 number of ranks is known, with as many as it was saved with",
                was.world
            );
            return Err(RuntimeError::CannotResume { why });
        }
        self.drop_ahead();
        self.runtime_mut().config.rank = RankConfig { rank, world, ..was };
        let runtime = self.runtime();
        let planned = runtime.plan(&runtime.options(EpochIdx(0))).map(drop);
        if planned.is_err() {
            self.runtime_mut().config.rank = was;
        }
        planned
    }

    /// The next epoch shall be this one.
    pub fn set_epoch(&mut self, epoch: u32) {
        self.asked = Some(EpochIdx(epoch));
    }

    /// The epoch that runs; the next one after its end.
    pub fn epoch(&mut self) -> u32 {
        self.settle();
        match &self.running {
            Some(running) => running.options.epoch.0,
            None => self.start().epoch.0,
        }
    }

    /// Where the consumers are, as JSON of at most 1 kB (with strategy `ordered`).
    ///
    /// # Errors
    /// [`RuntimeError::CannotResume`] while consumers have taken different numbers of batches;
    /// [`RuntimeError::Forked`].
    pub fn state(&mut self) -> Result<String, RuntimeError> {
        self.home.check()?;
        self.settle();
        let resume = self.place(&Digests::default())?;
        if resume.epoch.0 == u32::MAX {
            // Nothing follows it, and no run reaches it.
            let why = "the last epoch there is has no state; name an earlier one";
            return Err(RuntimeError::CannotResume { why: why.to_owned() });
        }
        Ok(resume.to_json())
    }

    /// Where the consumers are, with the digests of what they got.
    pub(crate) fn place(&self, digests: &Digests) -> Result<Resume, RuntimeError> {
        let runtime = self.runtime();
        let Some(running) = &self.running else {
            let rank = runtime.config.rank;
            return checkpoint::at((runtime, rank), self.start(), digests);
        };
        let consumed = running.deal.consumed().ok_or_else(uneven)?;
        checkpoint::state(runtime, &running.options, &consumed, digests)
    }

    /// Continues from a state of this or another process, also with a different number of workers,
    /// devices or ranks. The text is as [`Self::state`] wrote it, byte for byte. What it
    /// returns is a line for the user, about a state of an older version.
    ///
    /// # Errors
    /// [`RuntimeError::Resume`] when the text is damaged or of another run.
    pub fn load_state(
        &mut self,
        json: &str,
    ) -> Result<Option<&'static str>, RuntimeError> {
        self.home.check()?;
        let Loaded { place, note, .. } = checkpoint::resumed(json, self.runtime())?;
        self.finish(Cancelled::Superseded);
        self.drop_ahead();
        self.next = place;
        self.asked = None;
        Ok(note)
    }

    /// Batches that each of `consumers` gets in a whole epoch.
    ///
    /// # Errors
    /// A plan that makes no sense with so many consumers.
    pub fn n_batches(&self, consumers: u32) -> Result<u32, RuntimeError> {
        let runtime = self.runtime();
        let options = EpochOptions { consumers, ..runtime.options(EpochIdx(0)) };
        Ok(runtime.plan(&options)?.n_batches() / consumers.max(1))
    }

    /// Samples of an epoch of all ranks: those of the data set, repetitions included, or as many as
    /// a mix of data sets gives.
    #[must_use]
    pub fn n_samples(&self) -> u64 {
        self.runtime().source.n_in_epoch()
    }

    /// The data set as it was listed. Ranks that share an epoch must have listed the same. Reads all of the
    /// table the first time.
    #[must_use]
    pub fn data_set(&self) -> DataSet {
        self.runtime().source.data_set()
    }

    /// The data sets, where several are mixed.
    #[must_use]
    pub fn sources(&self) -> Option<&Arc<Sources>> {
        self.runtime().source.sources()
    }

    /// Whether files are delivered as they are, each row of its own length ([`crate::BatchHeader::row_starts`]).
    #[must_use]
    pub fn is_undecoded(&self) -> bool {
        self.runtime().source.is_undecoded()
    }

    /// A sample's file, relative to the data set, and its label. Blocks on the storage where
    /// the data are a store.
    #[must_use]
    pub fn sample(&self, sample: SampleId) -> Option<(String, Label)> {
        let source = &self.runtime().source;
        source.has(sample).then(|| (source.file_name(sample), source.label(sample)))
    }

    /// The classes' names by label; empty where the data have none.
    #[must_use]
    pub fn class_names(&self) -> Vec<&str> {
        self.runtime().source.table.class_names().collect()
    }

    /// What the loader was told.
    #[must_use]
    pub fn config(&self) -> &RunConfig {
        &self.runtime().config
    }

    /// Shapes of a sample's views at the cut, in order; the delivered ones have the same, laid
    /// out as [`Self::output`] says.
    #[must_use]
    pub fn views(&self) -> &[SampleShape] {
        self.runtime().source.pipeline.views().shapes()
    }

    /// Element type and layout of what is delivered.
    #[must_use]
    pub fn output(&self) -> Output {
        self.runtime().config.output
    }

    /// Whether labels are shares of classes ([`crate::BatchHeader::soft_labels`]).
    #[must_use]
    pub fn mixes(&self) -> bool {
        self.runtime().delivered.mixes()
    }

    /// One line about how the data were read, or how much of the machine is used, where that
    /// may surprise.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let config = &self.runtime().config;
        let share = config.share.why(config.workers);
        let data = self.runtime().source.notes().iter().cloned();
        let notes: Vec<String> = data.chain(share).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// What happens to its devices, also while an epoch runs, and which samples were found to be
    /// damaged when one is over.
    #[must_use]
    pub fn notes(&self) -> Notes {
        self.runtime().notes()
    }

    /// What it has done.
    pub fn stats(&mut self) -> LoaderStats {
        let epoch = self.epoch();
        let runtime = self.runtime();
        let mut stats = LoaderStats {
            epoch,
            damaged: runtime.damages.figures(),
            storage_read_bytes: runtime.storage_read_bytes(),
            side_index: runtime.source.side_index().map(SideIndex::stats),
            block_cache: runtime.source.blocks().map(BlockSource::stats),
            record_cache: runtime.record_cache(),
            fetches: runtime.fetched(),
            cpu_seconds: process::cpu_seconds(),
            peak_rss_bytes: process::peak_rss_bytes(),
            path: Some(self.path().to_string()),
            ..self.ended.clone()
        };
        // Also before the first epoch: what is missing is known by then.
        for (stats, device) in
            stats.of_devices(&runtime.devices).iter_mut().zip(&runtime.devices)
        {
            stats.slots = runtime.room.per_device;
            stats.slots_needed = runtime.slots_needed(device);
        }
        if let Some(running) = &self.running {
            stats.add_taken(&runtime.devices, &running.deal.taken());
        }
        let mut devices = runtime.devices.iter();
        stats.back.retain(|_| devices.next().is_none_or(|device| !device.is_vacant()));
        stats
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it has it until it is dropped")
    }

    pub(crate) fn runtime_mut(&mut self) -> &mut Runtime {
        self.runtime.as_mut().expect("it has it until it is dropped")
    }

    /// Where the next epoch begins, as things stand.
    fn start(&self) -> Place {
        match self.asked {
            Some(epoch) if epoch != self.next.epoch => Place::of(epoch),
            _ => self.next.clone(),
        }
    }

    /// Ends the running epoch if all of it has been taken.
    fn settle(&mut self) {
        let is_over = |running: &mut Running| running.deal.state() == DealState::Ended;
        if let Some(running) = self.running.take_if(is_over) {
            self.end(&running, Cancelled::Unwanted);
        }
    }

    /// Ends the running epoch, whatever is left of it.
    fn finish(&mut self, why: Cancelled) -> Option<EpochReport> {
        let running = self.running.take()?;
        self.end(&running, why)
    }

    fn end(&mut self, running: &Running, why: Cancelled) -> Option<EpochReport> {
        if running.deal.has_delivered() || running.deal.state() == DealState::Ended {
            self.next = Place::of(EpochIdx(running.options.epoch.0.saturating_add(1)));
        }
        let epoch = running.deal.close(why);
        // What was taken counts, also where a consumer keeps the epoch.
        let taken = running.deal.taken();
        let runtime = self.runtime.as_ref();
        let devices = runtime.map_or(&[][..], |runtime| &runtime.devices);
        self.ended.add_taken(devices, &taken);
        self.ended.add_sources(&taken);
        let report = self.runtime_mut().finish_epoch(epoch?);
        let runtime = self.runtime.as_ref();
        let devices = runtime.map_or(&[][..], |runtime| &runtime.devices);
        self.ended.add(devices, &report);
        Some(report)
    }
}

impl Ahead {
    /// Whether it is what is asked for, and nothing has happened to it.
    fn is_for(&self, options: &EpochOptions) -> bool {
        self.options.are(options) && !self.epoch.stop.is_set()
    }
}

fn uneven() -> RuntimeError {
    let why = "consumers have taken different numbers of batches; \
               save the state when each has taken as many as the others";
    RuntimeError::CannotResume { why: why.to_owned() }
}

impl Drop for Loader {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // The threads, devices and sockets are the parent's, and go on there.
            let all = (self.runtime.take(), self.running.take(), self.ahead.take());
            let _ = ManuallyDrop::new((all, self.feed.take()));
            return;
        }
        self.finish(Cancelled::Closed);
        self.ahead = None;
    }
}
