//! Starting an epoch and ending it: what it adds to the engine's threads (`runtime/engine.rs`), a
//! feed of its own, and what is kept of it.

use std::sync::{Arc, Mutex};

use bothends_core::epoch::{DeviceConfig, EpochConfig, FrontConfig, Recovery, Standing};
use bothends_core::plan::Plan;
use bothends_core::recipe::Size;
use bothends_figures::Stall;
use crossbeam::channel::bounded;

use crate::collect::collector::{Command, FEED_ROOM};
use crate::collect::in_flight::Brief;
use crate::collect::log::{EventLog, MOMENT_ROOM};
use crate::collect::producer::LineReport;
use crate::devices::emulator::DeviceProcess;
use crate::error::RuntimeError;
use crate::handover::account::FeedAccount;
use crate::handover::epoch::starvation::Lack;
use crate::handover::epoch::{Epoch, Ways};
use crate::handover::finish::damages::More;
use crate::handover::finish::mix::{MixedBy, Mixing};
use crate::handover::finish::{Feed, FeedLinks};
use crate::handover::mend::Maker;
use crate::handover::report::EpochReport;
use crate::run::checkpoint::Consumed;
use crate::runtime::engine::spawn;
use crate::runtime::host::{EpochOptions, Runtime};
use crate::runtime::memory::MOST_PER_DEVICE;
use crate::threads::fork::Home;
use crate::threads::times::Ends;

/// Batches behind the feed: one ready while the consumer has another.
const READY_ROOM: usize = 1;

impl Runtime {
    /// Starts an epoch, behind those that were started before and are not over. End it with
    /// [`Self::finish_epoch`]; dropping it ends it, too, and forgets what it was.
    ///
    /// # Errors
    /// A plan that makes no sense, or a thread that cannot be started.
    pub fn start_epoch(&mut self, options: &EpochOptions) -> Result<Epoch, RuntimeError> {
        let mut epoch = self.start_ahead(options)?;
        epoch.want();
        Ok(epoch)
    }

    /// Starts an epoch that nobody asks for yet: it is made as far as there are slots when all
    /// of the epochs before it is being made.
    pub(crate) fn start_ahead(
        &mut self,
        options: &EpochOptions,
    ) -> Result<Epoch, RuntimeError> {
        let plan = Arc::new(self.plan(options)?);
        let number = self.next_number();
        let (made_in, made) = bounded(FEED_ROOM + 1);
        let (ready_in, ready) = bounded(READY_ROOM);
        let (moments_in, moments) = bounded(MOMENT_ROOM);
        let account = Arc::new(Mutex::new(FeedAccount::default()));
        let engine = self.engine()?;
        let (shared, commands) = (engine.shared.clone(), engine.commands.clone());
        let stop = shared.stop.of_epoch();
        let feed = Feed {
            maker: Maker {
                source: Arc::clone(&self.source),
                epoch: options.epoch,
                finish: Arc::clone(&self.finish),
                redecoder: self.config.redecoder.clone(),
                account: Arc::clone(&account),
                stop: stop.clone(),
            },
            plan: Arc::clone(&plan),
            mixing: self.mixing(),
            converted: (!self.finish.is_identity()).then(|| self.rings.front.clone()),
            on_bad: self.config.on_bad,
            digest: options.digest.clone(),
            devices: self.devices.iter().map(|d| d.presence.clone()).collect(),
            links: FeedLinks {
                made,
                ready: ready_in,
                returning: shared.returning.clone(),
                commands: commands.clone(),
            },
            waits: shared.waits.feed(number),
            chores: shared.chores.clone(),
            meter: shared.times.meter(Ends::Both),
            _entered: self.source.enter(options.epoch),
            stop: stop.clone(),
        };
        let feed = spawn(&stop, "feed", move || feed.run())?;
        let brief = Brief {
            number,
            config: self.epoch_config(&plan, options),
            plan: Arc::clone(&plan),
            epoch: options.epoch,
            feed: made_in,
            log: EventLog::watched(moments_in),
            is_wanted: false,
            stop: stop.clone(),
        };
        let ways = Ways { commands, bell: shared.bell, number, notes: shared.notes };
        ways.tell(Command::Begin(Box::new(brief)));
        Ok(Epoch {
            ready: Some(ready),
            moments,
            waits: shared.waits,
            returning: shared.returning,
            account,
            stop,
            used_before: shared.times.seconds(),
            times: shared.times,
            ways,
            feed: Some(feed),
            n_batches: plan.n_batches(),
            n_left: n_left(&plan, options),
            slots: self.rings.front.n_slots(),
            stall: Stall::default(),
            home: Home::here(),
            gpu: self.ends.now.target().cloned(),
            waiting_since: None,
            lack: Lack::default(),
            ended: false,
        })
    }

    /// That of the next epoch that is started.
    fn next_number(&mut self) -> u64 {
        self.n_started += 1;
        self.n_started
    }

    fn mixing(&self) -> Mixing {
        let views = self.source.pipeline.views().shapes();
        let size = views.first().map_or(Size { height: 0, width: 0 }, |shape| Size {
            height: shape.height,
            width: shape.width,
        });
        Mixing {
            recipe: self.config.recipe.clone(),
            size,
            delivered: Arc::clone(&self.delivered),
            by: if self.is_finished_by_gpu() { MixedBy::Gpu } else { MixedBy::Workers },
        }
    }

    /// Ends an epoch (cancelling what is left of it). Waits for nothing that is being made.
    pub fn finish_epoch(&mut self, epoch: Epoch) -> EpochReport {
        let mut remains = epoch.end();
        if let Some(index) = self.source.side_index() {
            index.publish();
        }
        if let Some(blocks) = self.source.blocks() {
            blocks.epoch_is_over();
        }
        if let Some(cache) = self.source.remote().and_then(|remote| remote.cache()) {
            cache.epoch_is_over();
        }
        if let Some(collected) = &mut remains.collected {
            self.front_prior_ns = collected.front.mean_ns().or(self.front_prior_ns);
            for (device, line) in self.devices.iter_mut().zip(&mut collected.back) {
                device.prior_ns = line.mean_ns().or(device.prior_ns);
                name_lost_process(device.process.as_mut(), line);
                line.lost = line.lost.take().or_else(|| device.presence.missing());
            }
            let back = self.devices.iter().zip(&collected.back);
            let back = back.filter(|(device, _)| !device.is_vacant());
            let back = back.map(|(device, line)| (device.name.as_str(), line));
            self.rates.keep(&collected.front, back);
        }
        self.tell_damages(&remains.account);
        EpochReport::new(remains)
    }

    /// Each damaged sample is told of once, however many epochs there are.
    fn tell_damages(&mut self, account: &FeedAccount) {
        let more = if self.damages.n() == 0 { More::First } else { More::Another };
        let new = self.damages.add(&account.damages);
        if let Some(line) = new.line(account.n_samples, more) {
            // Who reads no notes keeps the oldest.
            let _ = self.notes.0.try_send(line);
        }
    }

    fn epoch_config(&self, plan: &Plan, options: &EpochOptions) -> EpochConfig {
        // Those of a pool that are there share the slots of those that are not.
        let has_pool = self.devices.iter().any(|device| device.seat.is_some());
        let n_devices = u32::try_from(self.devices.len()).unwrap_or(u32::MAX);
        let quota = self.room.per_device.saturating_mul(n_devices);
        let devices = self.devices.iter().map(|device| DeviceConfig {
            slots: device.presence.depth(),
            buffer: match has_pool {
                true => MOST_PER_DEVICE,
                false => self.room.per_device,
            },
            prior_ns: device.prior_ns,
            shard: None,
            standing: Standing::New,
        });
        EpochConfig {
            n_batches: plan.n_batches(),
            strategy: options.strategy,
            objective: self.config.objective,
            back_quota: has_pool.then_some(quota),
            shards: 1,
            // All workers share a batch, so the front makes one at a time at its full rate.
            front: FrontConfig {
                parallel: 1,
                quota: self.room.front,
                prior_ns: self.front_prior_ns,
            },
            devices: devices.collect(),
            accelerator_ns: options.accelerator_ns,
            done: options.done.clone(),
            recovery: Recovery::On,
        }
    }
}

/// Names a device that was lost with its process, also where the epoch was over before anybody
/// noticed.
fn name_lost_process(process: Option<&mut DeviceProcess>, line: &mut LineReport) {
    if let Some(status) = process.and_then(DeviceProcess::ended) {
        line.lost.get_or_insert(format!("its process ended ({status})"));
    }
}

/// Batches that an epoch hands over.
fn n_left(plan: &Plan, options: &EpochOptions) -> u32 {
    let n_done = Consumed::new(options).n_below(plan.n_batches());
    plan.n_batches().saturating_sub(n_done)
}

#[cfg(test)]
mod tests {
    use bothends_agent::{FileStore, NoCosts, Server, ServerConfig};
    use bothends_core::ids::EpochIdx;
    use bothends_core::recipe::Recipe;
    use bothends_core::select::StrategyConfig;
    use bothends_csd::loopback::Loopback;

    use super::*;
    use crate::config::run::RunConfig;

    /// A run of ten batches with a device in this process, which remembers rates in `root`.
    fn run(root: &std::path::Path) -> Runtime {
        let data = root.join("data");
        if !data.exists() {
            std::fs::create_dir(&data).unwrap();
            let bytes: Vec<u8> = (0..=9).cycle().take(40 * 3073).collect();
            std::fs::write(data.join("data_batch_1.bin"), bytes).unwrap();
        }
        let recipe = Recipe::builtin("cifar10-train").unwrap();
        let mut runtime = Runtime::open(RunConfig {
            batch_size: 4,
            rates: Some(root.join("rates")),
            ..RunConfig::new(data.clone(), recipe)
        })
        .unwrap();
        let name = "device".to_owned();
        let config = ServerConfig { name, emulated: false, n_workers: 1, n_slots: 2 };
        let server =
            Server::start(config, FileStore::new(&data).unwrap(), NoCosts).unwrap();
        runtime.attach("device", Box::new(Loopback::new(Box::new(server)))).unwrap();
        runtime
    }

    /// What the next epoch is told of the host and the device.
    fn priors(runtime: &Runtime) -> [Option<u64>; 2] {
        let options = runtime.options(EpochIdx(0));
        let config = runtime.epoch_config(&runtime.plan(&options).unwrap(), &options);
        [config.front.prior_ns, config.devices[0].prior_ns]
    }

    /// Runs an epoch until `n_batches` were taken.
    fn epoch(runtime: &mut Runtime, strategy: StrategyConfig, n_batches: usize) {
        let options = EpochOptions { strategy, ..runtime.options(EpochIdx(0)) };
        let mut epoch = runtime.start_epoch(&options).unwrap();
        for _ in 0..n_batches {
            epoch.next_batch().unwrap().unwrap();
        }
        runtime.finish_epoch(epoch);
    }

    #[test]
    fn a_run_begins_with_the_rates_that_the_run_before_it_showed() {
        let root = tempfile::tempdir().unwrap();
        let mut first = run(root.path());
        assert_eq!(priors(&first), [None, None]);
        epoch(&mut first, StrategyConfig::Cpu, 10);
        let [front, device] = priors(&first);
        assert!(front.is_some() && device.is_none());
        assert_eq!(priors(&run(root.path())), [front, None]);
        // On a busy machine the host may make most of an epoch that is the device's.
        let is_known = (0..100).any(|_| {
            epoch(&mut first, StrategyConfig::Csd, 10);
            priors(&run(root.path()))[1].is_some()
        });
        assert!(is_known, "{:?}", priors(&first));
        assert!(priors(&run(root.path()))[0].is_some());
    }
}
