//! The shutdown contract of `src/threads/shutdown.rs`, number by number.
//!
//! The data are CIFAR-10 records of noise, so that nothing here waits for a decoder. Devices
//! are the agent's server behind `loopback`, or doubles (`doubles/`) that misbehave in one way.

#![allow(clippy::unwrap_used, reason = "tests")]

mod doubles;

use std::alloc::System;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bothends_agent::{FileStore, NoCosts, Server, ServerConfig};
use bothends_core::ids::{BatchIdx, EpochIdx};
use bothends_core::recipe::Recipe;
use bothends_core::tensor::{Dtype, Layout, Output};
use bothends_csd::Transport;
use bothends_csd::loopback::Loopback;
use bothends_runtime::{
    AccelConfig, DriveConfig, EnergyConfig, Epoch, EpochReport, Loader, MemoryBudget,
    Observer, RunConfig, Runtime, RuntimeError, StopRequest, drive,
};
use cap::Cap;

use doubles::{Double, Manner, Mute, Tiring};

/// Counts the bytes that this process owns; which of them are resident is the system's affair.
#[global_allocator]
static OWNED: Cap<System> = Cap::new(System, usize::MAX);

const N_SAMPLES: u32 = 320;
const BATCH_SIZE: u32 = 8;
const N_BATCHES: u32 = N_SAMPLES / BATCH_SIZE;
/// A label, and 3 × 32 × 32 pixels.
const RECORD_BYTES: usize = 3073;
/// The samples from here on are those that `Data::cut` takes away.
const CUT: u32 = N_SAMPLES / 2;

/// Nothing that waits for nobody takes longer, on the busiest machine.
const QUICK: Duration = Duration::from_secs(60);

/// Threads and memory are counted for the whole process: one test at a time.
fn turn() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A data set on disk.
struct Data(tempfile::TempDir);

impl Data {
    fn new() -> Self {
        let mut state = 1_u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        let mut bytes: Vec<u8> =
            (0..N_SAMPLES as usize * RECORD_BYTES).map(|_| noise()).collect();
        for label in bytes.iter_mut().step_by(RECORD_BYTES) {
            *label %= 10;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("data_batch_1.bin"), bytes).unwrap();
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// From now on the later half of the samples cannot be read.
    fn cut(&self) {
        let file = self.path().join("data_batch_1.bin");
        let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
        file.set_len(u64::from(CUT) * RECORD_BYTES as u64).unwrap();
    }

    /// The host alone, with the least memory: a slot that does not come back is missed.
    fn host(&self, strategy: &str) -> Runtime {
        Runtime::open(self.config(strategy)).unwrap()
    }

    fn config(&self, strategy: &str) -> RunConfig {
        let recipe = Recipe::builtin("cifar10-train").unwrap();
        RunConfig {
            batch_size: BATCH_SIZE,
            seed: 5,
            workers: 2,
            strategy: strategy.parse().unwrap(),
            memory: MemoryBudget::Slots(0),
            held_batches: 1,
            ..RunConfig::new(self.path().to_owned(), recipe)
        }
    }

    fn server(&self) -> Loopback {
        let config = ServerConfig {
            name: "test".to_owned(),
            emulated: false,
            n_workers: 1,
            n_slots: 2,
        };
        let store = FileStore::new(self.path()).unwrap();
        Loopback::new(Box::new(Server::start(config, store, NoCosts).unwrap()))
    }

    /// The host with one device.
    fn with(&self, strategy: &str, device: impl Transport + 'static) -> Runtime {
        let mut runtime = self.host(strategy);
        runtime.attach("the device", Box::new(device)).unwrap();
        runtime
    }
}

fn start(runtime: &mut Runtime) -> Epoch {
    let options = runtime.options(EpochIdx(0));
    runtime.start_epoch(&options).unwrap()
}

/// Consumes an epoch to its end; the samples it delivered.
fn drain(epoch: &mut Epoch) -> Result<u32, RuntimeError> {
    let mut n_samples = 0;
    while let Some(batch) = epoch.next_batch()? {
        n_samples += batch.n_valid();
    }
    Ok(n_samples)
}

/// One whole epoch.
fn whole(runtime: &mut Runtime) -> EpochReport {
    let mut epoch = start(runtime);
    assert_eq!(drain(&mut epoch).unwrap(), N_SAMPLES);
    runtime.finish_epoch(epoch)
}

/// Every strategy that asks devices, each in a thread: they wait for deadlines of seconds most of the time.
/// Not for what counts the threads or the memory of this process.
fn at_once(check: impl Fn(&'static str) + Sync) {
    thread::scope(|scope| {
        for strategy in ["ordered", "relaxed", "wrr", "mte", "csd"] {
            let check = &check;
            scope.spawn(move || check(strategy));
        }
    });
}

/// Waits until `done` holds, which takes a moment and no more.
fn within_time(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < QUICK, "not in time: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Threads of ours in this process, by name.
fn threads() -> BTreeMap<String, u32> {
    let mut threads = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        // A thread may end while we look.
        let name = std::fs::read_to_string(task.unwrap().path().join("comm"));
        let name = name.unwrap_or_default().trim().to_owned();
        // An agent in this process has threads of its own.
        let is_agents = name.starts_with("be-agent-") || name.starts_with("be-scout-");
        if name.starts_with("be-") && !is_agents {
            *threads.entry(name).or_default() += 1;
        }
    }
    threads
}

/// Fails unless just these threads of ours are there. A thread that was joined may be seen
/// for a moment longer.
fn assert_threads(expected: &BTreeMap<String, u32>, when: &str) {
    let (ends, mut found) = (Instant::now() + QUICK, threads());
    while found != *expected && Instant::now() < ends {
        found = threads();
    }
    assert_eq!(found, *expected, "{when}");
}

/// What outlives an epoch on two workers and one device.
fn engine() -> BTreeMap<String, u32> {
    let threads = [("collector", 1), ("device", 1), ("reader", 1), ("worker", 2)];
    threads.map(|(name, n)| (format!("be-{name}"), n)).into()
}

// ---- end -------------------------------------------------------------------------------

#[test]
fn n1_after_the_last_batch_comes_none_for_ever() {
    let _turn = turn();
    let data = Data::new();
    for strategy in ["ordered", "relaxed", "wrr", "mte", "csd", "cpu"] {
        let mut runtime = data.with(strategy, data.server());
        let mut epoch = start(&mut runtime);
        let mut seen = vec![0; N_BATCHES as usize];
        while let Some(batch) = epoch.next_batch().unwrap() {
            seen[batch.index.0 as usize] += 1;
        }
        assert_eq!(seen, vec![1; N_BATCHES as usize], "{strategy}");
        for _ in 0..3 {
            assert!(epoch.next_batch().unwrap().is_none(), "{strategy}");
        }
        runtime.finish_epoch(epoch);
    }
}

#[test]
fn n2_results_still_under_way_at_the_end_are_given_up() {
    let _turn = turn();
    let data = Data::new();
    let device = Double::new(Manner::Silent);
    let asked = Arc::clone(&device.asked);
    let mut runtime = data.with("relaxed", device);
    for n in 1..=10 {
        let mut epoch = start(&mut runtime);
        within_time("it is asked again", || asked.n_jobs() == n);
        assert_eq!(drain(&mut epoch).unwrap(), N_SAMPLES);
        let report = runtime.finish_epoch(epoch);
        assert_eq!(report.counts.returned, 0, "claims end, they are not dropped");
        assert_eq!(report.counts.front.delivered, N_BATCHES);
        within_time("it is told", || asked.n_abandoned.load(Ordering::Relaxed) == n);
    }
}

// ---- failure of a prong ------------------------------------------------------------------

#[test]
fn n3_a_lost_device_is_named_and_the_epoch_goes_on() {
    let _turn = turn();
    let data = Data::new();
    for after in [0, 1, 5, N_BATCHES - 1] {
        let device = data.server();
        let plug = device.plug();
        let mut runtime = data.with("ordered", device);
        let mut epoch = start(&mut runtime);
        for _ in 0..after {
            epoch.next_batch().unwrap().unwrap();
        }
        plug.pull();
        assert_eq!(drain(&mut epoch).unwrap(), N_SAMPLES - after * BATCH_SIZE);
        let mut report = runtime.finish_epoch(epoch);
        let began = Instant::now();
        // An epoch may be over before the device was asked again.
        while report.back[0].lost.is_none() && began.elapsed() < QUICK {
            report = whole(&mut runtime);
        }
        let why = report.back[0].lost.as_deref().unwrap();
        assert!(why.contains("lost the device"), "after {after}: {why}");
        // Without it from here on.
        assert_eq!(whole(&mut runtime).counts.front.delivered, N_BATCHES);
    }
}

#[test]
fn n4_an_error_comes_once_after_what_was_ready_and_then_none() {
    let _turn = turn();
    for strategy in ["ordered", "relaxed", "cpu"] {
        let data = Data::new();
        let mut runtime = data.with(strategy, data.server());
        data.cut();
        for _ in 0..2 {
            let mut epoch = start(&mut runtime);
            let mut n_batches = 0;
            let error = loop {
                match epoch.next_batch() {
                    Ok(Some(_)) => n_batches += 1,
                    Ok(None) => panic!("{strategy}: an end instead of an error"),
                    Err(error) => break error,
                }
            };
            let RuntimeError::BadSample { sample, file, .. } = error else {
                panic!("{strategy}: {error}")
            };
            assert!(sample.0 >= u64::from(CUT), "{sample:?} can be read");
            assert!(file.contains("data_batch_1.bin"), "{file}");
            if strategy != "relaxed" {
                assert_eq!(n_batches, n_batches_before_the_cut(&runtime), "{strategy}");
            }
            for _ in 0..3 {
                assert!(epoch.next_batch().unwrap().is_none(), "{strategy}");
            }
            runtime.finish_epoch(epoch);
        }
    }
}

/// Batches of the plan before the first with a sample that was cut away.
fn n_batches_before_the_cut(runtime: &Runtime) -> u32 {
    let plan = runtime.plan(&runtime.options(EpochIdx(0))).unwrap();
    let is_cut = |batch: &u32| {
        let mut samples = plan.samples(BatchIdx(*batch)).flatten();
        samples.any(|sample| sample.0 >= u64::from(CUT))
    };
    (0..N_BATCHES).find(is_cut).unwrap()
}

#[test]
fn n5_a_panic_is_an_error_of_its_thread_and_no_hang() {
    let _turn = turn();
    let data = Data::new();
    for strategy in ["csd", "ordered"] {
        let mut runtime = data.with(strategy, Double::new(Manner::Panics));
        let began = Instant::now();
        let mut epoch = start(&mut runtime);
        let mut consumed = drain(&mut epoch);
        // An epoch may be over before the device was asked for its first answer.
        while consumed.is_ok() && began.elapsed() < QUICK {
            runtime.finish_epoch(epoch);
            epoch = start(&mut runtime);
            consumed = drain(&mut epoch);
        }
        let error = consumed.unwrap_err();
        let is_device = matches!(error, RuntimeError::Thread { thread: "device" });
        assert!(is_device, "{strategy}: {error}");
        assert!(epoch.next_batch().unwrap().is_none());
        assert!(began.elapsed() < QUICK, "{:?}", began.elapsed());
        runtime.finish_epoch(epoch);
        // What the thread held is gone; the host goes on without it.
        assert_eq!(whole(&mut runtime).counts.front.delivered, N_BATCHES);
    }
}

// ---- cancel ------------------------------------------------------------------------------

#[test]
fn n6_dropping_an_epoch_waits_for_no_batch() {
    let _turn = turn();
    let data = Data::new();
    for n_consumed in [0, 1, 7, N_BATCHES - 1, N_BATCHES] {
        let mut runtime = data.with("ordered", data.server());
        let mut epoch = start(&mut runtime);
        for _ in 0..n_consumed {
            epoch.next_batch().unwrap().unwrap();
        }
        let began = Instant::now();
        drop(epoch);
        assert!(began.elapsed() < QUICK, "{n_consumed}: {:?}", began.elapsed());
        assert_threads(&engine(), "dropped");
        whole(&mut runtime);
        assert_threads(&engine(), "whole");
        drop(runtime);
        assert_threads(&BTreeMap::new(), "closed");
    }
}

#[test]
fn n6_dropping_an_epoch_waits_for_no_device() {
    let _turn = turn();
    let data = Data::new();
    // Nobody makes a batch before the device is given up, after two seconds. A busy machine may
    // take as long for other things now and then, and not ten times.
    let is_in_time = (0..10).any(|_| {
        let mut runtime = data.with("csd", Double::new(Manner::Silent));
        let began = Instant::now();
        drop(start(&mut runtime));
        let took = began.elapsed();
        assert_threads(&engine(), "dropped");
        drop(runtime);
        assert_threads(&BTreeMap::new(), "closed");
        took < Duration::from_millis(1900)
    });
    assert!(is_in_time, "it waited for the device, ten times");
}

#[test]
fn n7_after_any_end_all_threads_and_slots_are_back() {
    let _turn = turn();
    let data = Data::new();
    let mut runtime = data.with("ordered", data.server());
    whole(&mut runtime);
    let owned = OWNED.allocated();
    for round in 0..20 {
        let mut epoch = start(&mut runtime);
        // To the end, in the middle, at once: with the consumer's hands full or empty.
        let n_consumed = [N_BATCHES, 3, 0, 11][round % 4];
        let mut held = Vec::new();
        for _ in 0..n_consumed {
            held.push(epoch.next_batch().unwrap().unwrap());
            held.truncate(2);
        }
        runtime.finish_epoch(epoch);
        assert_threads(&engine(), &format!("round {round}"));
    }
    whole(&mut runtime);
    let grown = OWNED.allocated().saturating_sub(owned);
    assert!(grown < 256 << 10, "{grown} bytes more after 20 epochs");
}

#[test]
fn n7_n9_a_device_in_the_middle_of_an_answer_holds_nobody_up() {
    let _turn = turn();
    let data = Data::new();
    for closes_before in [true, false] {
        let device = Double::new(Manner::Clings);
        let asked = Arc::clone(&device.asked);
        let mut runtime = data.with("relaxed", device);
        whole(&mut runtime);
        assert_eq!(whole(&mut runtime).counts.front.delivered, N_BATCHES);
        assert_eq!(asked.n_jobs(), 1, "it is not asked meanwhile");
        if closes_before {
            drop(runtime);
            let left = BTreeMap::from([("be-device".to_owned(), 1)]);
            assert_threads(&left, "closed before its answer");
            asked.lets_go.store(true, Ordering::Relaxed);
        } else {
            asked.lets_go.store(true, Ordering::Relaxed);
            within_time("it is asked again", || {
                whole(&mut runtime);
                asked.n_jobs() > 1
            });
            drop(runtime);
        }
        assert_threads(&BTreeMap::new(), "closed");
    }
}

/// What each strategy does next to a device whose thread is in an answer that does not come. In the
/// first epoch all find it out in two seconds at most: its batch is overdue, the host makes it, and
/// nothing else is claimed for a device that is silent. In the next ones it has no room for a job;
/// whatever is free the host makes at once, but under `csd`, where a device that is thought to be well
/// is waited for: that epoch had no end. It is given up there after ten seconds, is named, and takes
/// part again as soon as it takes a job.
#[test]
fn n7_a_device_that_takes_no_job_is_given_up_and_taken_again() {
    let _turn = turn();
    at_once(|strategy| {
        let data = Data::new();
        let device = Double::new(Manner::Clings);
        let asked = Arc::clone(&device.asked);
        let mut runtime = data.with(strategy, device);
        let (tell, told) = std::sync::mpsc::channel();
        let make = thread::spawn(move || {
            for _ in 0..3 {
                tell.send(whole(&mut runtime)).unwrap();
            }
            let note = runtime.next_note();
            let n_jobs = asked.n_jobs();
            asked.lets_go.store(true, Ordering::Relaxed);
            let began = Instant::now();
            while asked.n_jobs() == n_jobs {
                assert!(began.elapsed() < QUICK, "{strategy}: it is not asked again");
                whole(&mut runtime);
            }
            (note, runtime.next_note())
        });
        for n in 0..3 {
            let report = told.recv_timeout(QUICK);
            let report = report.unwrap_or_else(|_| panic!("{strategy}: epoch {n} hangs"));
            assert_eq!(report.counts.front.delivered, N_BATCHES, "{strategy}");
            let why = report.back[0].lost.as_deref().unwrap_or_default();
            let is_given_up = why.starts_with("it has taken no job for ");
            assert!(is_given_up || strategy != "csd" || n == 0, "epoch {n}: {why}");
        }
        let (given_up, taken_again) = make.join().unwrap();
        if strategy == "csd" {
            let (given_up, taken_again) = (given_up.unwrap(), taken_again.unwrap());
            assert!(given_up.starts_with("device the device: it has taken no job for 1"));
            assert!(
                given_up.ends_with("continues without it and asks again"),
                "{given_up}"
            );
            assert_eq!(taken_again, "device the device: it takes jobs again");
        }
    });
}

/// Watches, and wants to know what devices have used after every epoch.
struct Asks;

impl Observer for Asks {
    fn asks_for_energy(&self) -> bool {
        true
    }
}

/// A run asks its devices what they have counted before its epochs, after each and at its end. Those
/// that do not say hold it up for one deadline of the runtime's each time, whatever their number,
/// and are asked once: the transport's deadline, 20 s each time and for each, would be 320 s here.
#[test]
fn devices_that_do_not_say_what_they_counted_hold_nobody_up() {
    let _turn = turn();
    let data = Data::new();
    let mut runtime = data.host("ordered");
    let asked: Vec<Arc<doubles::Asked>> = (0..4).map(|_| Arc::default()).collect();
    for asked in &asked {
        let device = Mute { device: data.server(), asked: Arc::clone(asked) };
        runtime.attach("mute", Box::new(device)).unwrap();
    }
    let how = DriveConfig {
        epochs: 2,
        compare: Vec::new(),
        accelerator: AccelConfig::Host,
        digest: false,
        stop_after: None,
        checkpoint: None,
        checkpoint_every: None,
        stop: StopRequest::default(),
        resume: None,
        measure: None,
        energy: EnergyConfig { meters: Vec::new(), ..EnergyConfig::default() },
    };
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut loader = Loader::over(runtime);
        tell.send(drive(&mut loader, &how, &mut Asks).map(|result| result.epochs.len()))
    });
    let n_epochs = told.recv_timeout(QUICK).expect("it waits for the devices");
    assert_eq!(n_epochs.unwrap(), 2);
    for asked in &asked {
        assert_eq!(asked.n_stats.load(Ordering::Relaxed), 1, "it owes that answer");
        asked.lets_go.store(true, Ordering::Relaxed);
    }
    assert_threads(&BTreeMap::new(), "closed");
}

// ---- slots -------------------------------------------------------------------------------

/// Keeps every batch of an epoch until it is told that it may not.
fn starve(mut runtime: Runtime) {
    let mut epoch = start(&mut runtime);
    let mut held = Vec::new();
    let error = loop {
        match epoch.next_batch() {
            Ok(Some(batch)) => held.push(batch),
            Ok(None) => panic!("there are fewer slots than batches"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, RuntimeError::Starved { .. }), "{error}");
    runtime.finish_epoch(epoch);
    drop(held);
    whole(&mut runtime);
}

#[test]
fn n8_a_consumer_that_keeps_every_slot_is_told_so() {
    let _turn = turn();
    let data = Data::new();
    let converted = Output { dtype: Dtype::F32, layout: Layout::Nchw };
    let converted = RunConfig { output: converted, ..data.config("cpu") };
    // A device that owes an answer is no reason to wait.
    let device = Tiring { device: data.server(), n_left: 2 };
    thread::scope(|scope| {
        scope.spawn(|| starve(data.host("cpu")));
        scope.spawn(|| starve(Runtime::open(converted).unwrap()));
        scope.spawn(|| starve(data.with("ordered", device)));
    });
}

#[test]
fn devices_that_fall_silent_do_not_take_the_hosts_slots() {
    let _turn = turn();
    at_once(|strategy| {
        let data = Data::new();
        let mut runtime = data.host(strategy);
        for _ in 0..8 {
            let device = Tiring { device: data.server(), n_left: 1 };
            runtime.attach("tired", Box::new(device)).unwrap();
        }
        let (tell, told) = std::sync::mpsc::channel();
        thread::spawn(move || tell.send(whole(&mut runtime).counts.returned));
        let returned = told.recv_timeout(4 * QUICK);
        assert_eq!(returned, Ok(0), "{strategy} does not end");
    });
}

/// Further batches lie ready in the meantime, on their way to nobody.
#[test]
fn an_epoch_that_is_broken_off_counts_what_was_taken() {
    let _turn = turn();
    let data = Data::new();
    let config = RunConfig { memory: MemoryBudget::Auto, ..data.config("ordered") };
    let mut loader = Loader::open(config).unwrap();
    for n_epochs in 1..=3 {
        let deal = loader.begin(1).unwrap();
        deal.batches(0).take(2).for_each(|batch| drop(batch.unwrap()));
        assert_eq!(loader.stats().front_batches, 2 * n_epochs, "while it runs");
    }
    let state = loader.state().unwrap();
    loader.load_state(&state).unwrap();
    assert_eq!(loader.stats().front_batches, 6);
}
