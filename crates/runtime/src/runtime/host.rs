//! The host of a run: data, devices and memory that live longer than an epoch.
//!
//! `Runtime::open` needs no device; devices are connected when the host's own rate is known,
//! since an emulated device may be set relative to it. Then epochs, one after another.

use std::sync::Arc;

use bothends_core::ids::EpochIdx;
use bothends_core::order::Order;
use bothends_core::plan::{LastPolicy, Plan, PlanConfig, Shuffle};
use bothends_core::select::StrategyConfig;
use bothends_csd::connect::{ConnectOptions, connect};
use bothends_csd::{Capabilities, DeviceStats, Session, Transport};
use bothends_io::Reader;
use bothends_ops::{Finish, Scratch};
use bothends_slots::{Producer, Ring, RingConfig};

use crate::config::run::RunConfig;
use crate::devices::plain::Plain;
use crate::devices::spec::{DeviceProcess, DeviceSpec, SimSetting};
use crate::error::RuntimeError;
use crate::handover::epoch::DeviceThread;
use crate::read::source::Source;
use crate::runtime::memory::{Room, Sizes};

/// A connected device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) capabilities: Capabilities,
    /// `None` while an epoch runs, and when the device is lost.
    pub(crate) transport: Option<Box<dyn Transport>>,
    /// The thread of an earlier epoch that still has the transport.
    pub(crate) busy: Option<DeviceThread>,
    /// It owes an answer from the last epoch that it should have given.
    pub(crate) is_silent: bool,
    /// Mean nanoseconds per batch in the last epoch: the prior of the next.
    pub(crate) prior_ns: Option<u64>,
    /// Behind the transport: it is asked to leave before its process is ended.
    pub(crate) process: Option<DeviceProcess>,
}

impl Device {
    /// The way to the device, if there is one now: the thread of an earlier epoch may have
    /// got its answer meanwhile.
    pub(crate) fn take_transport(&mut self) -> Option<Box<dyn Transport>> {
        if let Some(thread) = self.busy.take_if(|thread| thread.is_finished()) {
            self.transport = thread.join().ok().flatten().and_then(Result::ok);
        }
        self.transport.take()
    }
}

/// What an epoch is told beyond the run's configuration.
#[derive(Debug, Clone)]
pub struct EpochOptions {
    /// Which epoch.
    pub epoch: EpochIdx,
    /// Who claims what, what is delivered next.
    pub strategy: StrategyConfig,
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
}

/// The host's side of a run.
#[derive(Debug)]
pub struct Runtime {
    pub(crate) config: RunConfig,
    pub(crate) source: Arc<Source>,
    pub(crate) finish: Arc<Finish>,
    pub(crate) reader: Option<Box<dyn Reader>>,
    /// What it had read when the epoch that has it began.
    pub(crate) read_bytes: u64,
    /// What workers keep from sample to sample, between epochs.
    pub(crate) scratches: Vec<Scratch>,
    pub(crate) devices: Vec<Device>,
    pub(crate) ring: Ring,
    pub(crate) converted: Option<Ring>,
    sizes: Sizes,
    pub(crate) room: Room,
    /// Mean nanoseconds of the host's workers per batch in the last epoch.
    pub(crate) front_prior_ns: Option<u64>,
    /// Epochs started so far: no two jobs of a run have one id, or a device's late answer
    /// from one epoch would be taken for another of the next.
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
            let line = "--csd: a device cannot read samples that a Python object gives as \
                        bytes; give paths, or (path, offset, length)";
            return Err(RuntimeError::Options(line.to_owned()));
        }
        let source = Arc::new(Source::open(&config)?);
        // Refuses impossible batch sizes and ranks before memory is taken for them.
        plan(&config, &source, &options(&config, EpochIdx(0)))?;
        let views = source.pipeline.views();
        let finish = Finish::new(&config.recipe, views, config.output)?;
        let sizes = Sizes::new(&config, views.len(), &finish);
        let n_devices = u32::try_from(config.devices.len()).unwrap_or(u32::MAX);
        let room = Room::divide(config.memory, sizes, n_devices)?;
        let ring = |n_slots, slot_bytes| Ring::new(RingConfig { n_slots, slot_bytes });
        let converted =
            sizes.converted_slot().map(|bytes| ring(sizes.n_converted(), bytes));
        Ok(Self {
            source,
            finish: Arc::new(finish),
            reader: None,
            read_bytes: 0,
            scratches: Vec::new(),
            devices: Vec::new(),
            ring: ring(room.total, sizes.slot())?,
            converted: converted.transpose()?,
            sizes,
            room,
            front_prior_ns: None,
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

    /// Starts emulated devices, connects all and agrees on the session.
    ///
    /// # Errors
    /// The first device that cannot be started or reached, or that refuses the session.
    pub fn connect_devices(
        &mut self,
        host_images_per_s: Option<f64>,
    ) -> Result<(), RuntimeError> {
        let n_batches = self.plan(&self.options(EpochIdx(0)))?.n_batches();
        let root = self.source.root.clone();
        for (spec, n) in self.config.devices.clone().into_iter().zip(0_u64..) {
            let setting = SimSetting {
                media: &root,
                host_images_per_s,
                expected_batches: self.expected_batches(&spec, n_batches),
                seed: self.config.seed.wrapping_add(n),
            };
            self.connect(&spec, setting)?;
        }
        Ok(())
    }

    /// Batches of an epoch that a device will make, roughly: what the `P%` of its faults
    /// counts in. Its share by the rates that were asked for, else half.
    fn expected_batches(&self, spec: &DeviceSpec, n_batches: u32) -> u32 {
        if self.config.strategy == StrategyConfig::Csd {
            return n_batches;
        }
        let rates = self.config.devices.iter().filter_map(DeviceSpec::rate_of_host);
        let share =
            spec.rate_of_host().map_or(0.5, |own| own / (1.0 + rates.sum::<f64>()));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a u32"
        )]
        let expected = (f64::from(n_batches) * share) as u32;
        expected.max(1)
    }

    fn connect(
        &mut self,
        spec: &DeviceSpec,
        setting: SimSetting,
    ) -> Result<(), RuntimeError> {
        let (process, address) = match spec {
            DeviceSpec::Sim(sim) => {
                let process = DeviceProcess::spawn(sim, setting)?;
                let address = process.address.clone();
                (Some(process), address)
            }
            DeviceSpec::At { address, .. } => (None, address.clone()),
        };
        let key_file = self.config.key_file.clone();
        let options = ConnectOptions { key_file, ..ConnectOptions::default() };
        let transport = connect(&address, &options).map_err(|source| {
            RuntimeError::Device { device: spec.text().to_owned(), source }
        })?;
        self.attach(spec.text(), transport)?;
        if let Some(device) = self.devices.last_mut() {
            device.process = process;
        }
        Ok(())
    }

    /// Adds a device that the caller has reached by a transport of its own, and agrees with
    /// it on the session.
    ///
    /// # Errors
    /// [`RuntimeError::Device`] when it refuses or does not answer, [`RuntimeError::Memory`]
    /// when the budget's limit leaves it no slots.
    pub fn attach(
        &mut self,
        name: &str,
        mut transport: Box<dyn Transport>,
    ) -> Result<(), RuntimeError> {
        let failed = |source| RuntimeError::Device { device: name.to_owned(), source };
        let capabilities = transport.hello().map_err(failed)?;
        transport.open(&self.session()).map_err(failed)?;
        self.make_room()?;
        self.devices.push(Device {
            name: name.to_owned(),
            capabilities,
            transport: Some(transport),
            busy: None,
            is_silent: false,
            prior_ns: None,
            process: None,
        });
        Ok(())
    }

    /// Adds a producer that the caller brings, which takes `n_jobs` jobs at a time and makes
    /// the run's samples: a device of any kind, in this process.
    ///
    /// # Errors
    /// [`RuntimeError::Memory`] when the budget's limit leaves it no slots.
    pub fn attach_producer(
        &mut self,
        name: &str,
        n_jobs: u32,
        producer: Box<dyn Producer>,
    ) -> Result<(), RuntimeError> {
        let plain = Plain { producer, name: name.to_owned(), n_jobs };
        self.attach(name, Box::new(plain))
    }

    /// Makes sure of slots for one device more; those of the configuration have theirs.
    fn make_room(&mut self) -> Result<(), RuntimeError> {
        let n_devices = self.config.devices.len().max(self.devices.len() + 1);
        let n_devices = u32::try_from(n_devices).unwrap_or(u32::MAX);
        let room = Room::divide(self.config.memory, self.sizes, n_devices)?;
        if room != self.room {
            let slot_bytes = self.ring.slot_bytes();
            self.ring = Ring::new(RingConfig { n_slots: room.total, slot_bytes })?;
            self.room = room;
        }
        Ok(())
    }

    fn session(&self) -> Session {
        let sample_bytes = self.source.pipeline.sample_bytes();
        Session {
            recipe: self.config.recipe.to_json(),
            recipe_hash: self.config.recipe.hash(),
            seed: self.config.seed,
            sample_bytes: u32::try_from(sample_bytes).unwrap_or(u32::MAX),
            max_batch: self.config.batch_size,
            manifest: self.source.table.encode(),
        }
    }
}

fn options(config: &RunConfig, epoch: EpochIdx) -> EpochOptions {
    EpochOptions {
        epoch,
        strategy: config.strategy,
        repeat: config.repeat,
        start: 0,
        done: Vec::new(),
        accelerator_ns: None,
        consumers: 1,
        order: None,
    }
}

fn plan(
    config: &RunConfig,
    source: &Source,
    options: &EpochOptions,
) -> Result<Plan, RuntimeError> {
    let plan_config = PlanConfig {
        n_samples: source.n_samples() * u64::from(options.repeat),
        batch_size: config.batch_size,
        shuffle: config.shuffle,
        seed: config.seed,
        epoch: options.epoch,
        rank: config.rank.rank,
        world: config.rank.world,
        last: config.rank.last,
        consumers: options.consumers,
        start: options.start,
        repetitions: config.recipe.repeated_augment(),
    };
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
        let stats = |device: &mut Device| {
            // One that owes an answer would owe this one too.
            let transport = device.transport.as_mut().filter(|_| !device.is_silent);
            transport.and_then(|t| t.stats().ok())
        };
        self.devices.iter_mut().map(stats).collect()
    }

    /// Bytes the host has read from storage since it was opened.
    pub(crate) fn storage_read_bytes(&self) -> u64 {
        self.reader.as_ref().map_or(self.read_bytes, |reader| reader.bytes_read())
    }

    /// What this run reads, and how.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }
}
