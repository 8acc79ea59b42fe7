//! `bothends doctor`: what this machine has for a run, how fast the host and each device are
//! alone, what limits the job, what one device more would bring, and whether to buy one. Rates are
//! measured in rounds until they agree, and the machine is watched meanwhile. What the
//! measurements mean is `simulate`'s (`diagnosis`, `sizing`); `findings.rs` is what is said,
//! `questions.rs` what is asked of them.

pub(crate) mod findings;
pub(crate) mod presets;
pub(crate) mod questions;

use std::fs;
use std::path::Path;
use std::time::Duration;

use bothends_runtime::{
    AccelConfig, DeviceSpec, GpuFound, Gpus, Load, LoadWatch, Machine, Measured,
    Observer, PageCacheUse, Ranks, RunConfig, Runtime, RuntimeError, Share, SideIndexUse,
    is_url, measure_accelerator,
};
use bothends_simulate::Power;
use bothends_simulate::diagnosis::Throughput;
use bothends_simulate::sizing::{
    AcceleratorFigures, Conditions, DeviceFigures, HostFigures, Interval, Question,
    wants_another_round,
};

use self::findings::{
    DataFindings, DeviceFinding, Findings, HostFinding, JobFinding, MachineFindings,
    Together,
};
use self::presets::Speed;
use super::inspect::looking;
use crate::args::{ACCELERATOR, DoctorArgs};
use crate::failed::{Failed, wrong};
use crate::typed::{check_has_devices, recipe};
use crate::watch::bar::Bar;
use crate::watch::date::now;
use crate::{energy, file, say, surroundings};

/// How long each part of the job is measured.
const LASTING: Duration = Duration::from_secs(2);

/// How long a round of a rate lasts that is measured until its rounds agree.
const ROUND: Duration = Duration::from_secs(1);

/// For so long doctor rests and watches what others do: what queues then is not its own doing.
const WATCHING: Duration = Duration::from_secs(1);

/// Samples that are measured again and again: they lie in memory, and the side index knows them.
/// The first quarter of a thousand was 5 % cheaper than 500 photographs are: a data set lies in
/// the order of its classes.
const FEW: u64 = 1024;

/// The longest that the host gets for learning them.
const LEARNING: Duration = Duration::from_secs(10);

/// Storage that brings less than this part of what is decoded on a first visit sets the rate
/// alone; nearer to 1 the two hold each other up.
const SLOW_STORAGE: f64 = 0.6;

/// A rate of an accelerator that takes everything at once, in images per second.
const AT_ONCE: f64 = 1e9;

/// Looks, measures, and prints one finding per line.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<(), Failed> {
    let findings = find(args)?;
    // Said first: what was measured is not lost with a file that cannot be written.
    if args.json.as_deref() != Some(Path::new("-")) {
        say::text(&findings.lines().join("\n"));
        if let Some(verdict) = &findings.verdict {
            say::verdict(verdict);
        }
    }
    if let Some(path) = &args.json {
        file::write(path, &serde_json::to_string_pretty(&findings)?)?;
    }
    Ok(())
}

fn find(args: &DoctorArgs) -> Result<Findings, Failed> {
    let recipe = recipe(&args.recipe)?;
    let accelerator: AccelConfig = args.accelerator.parse().map_err(wrong)?;
    let mut findings = Findings {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        date: now(),
        machine: machine(args.data.as_deref()),
        data: None,
        host: Vec::new(),
        job: None,
        devices: Vec::new(),
        fed: None,
        verdict: None,
    };
    let specs = specs(args)?;
    let Some(data) = &args.data else { return Ok(findings) };
    let mut about = bothends_runtime::survey(data)?;
    about.extend(kept(data));
    about.extend(left_out(data, args));
    let mut alone = args.security.applied(looking(data.clone(), recipe.clone()));
    alone.batch_size = args.batch_size;
    alone.read.page_cache = args.page_cache;
    let opened = Runtime::open(alone.clone())?;
    findings.data = Some(DataFindings {
        path: data.display().to_string(),
        about,
        block_cache: opened.source().block_cache(),
        recipe: recipe.name().to_owned(),
        batch_size: args.batch_size,
        sample_bytes: opened.sample_bytes(),
    });
    drop(opened);
    for spec in specs.iter().filter(|_| !args.csd.is_empty()) {
        reach(&alone, spec)?;
    }
    let mut bar = Bar::new();
    bar.phase("watching the machine");
    let before = watched(|| std::thread::sleep(WATCHING)).1;
    let n_few = FEW.max(u64::from(args.batch_size) * 2);
    let mut few = RunConfig { limit: Some(n_few), ..alone.clone() };
    bar.phase("a first visit to some samples");
    learn(&few)?;
    hosts(args, (&few, before), &mut bar, &mut findings)?;
    few.workers = findings.host.last().map_or(alone.workers, |host| host.workers);
    alone.workers = few.workers;
    bar.phase("measuring the job, part by part");
    findings.job = job(&alone, &few, &accelerator)?;
    let host_rate = findings.host.iter().filter_map(|host| host.images_per_s).next_back();
    for spec in specs {
        bar.phase(&format!("measuring {spec} alone"));
        findings.devices.push(device(&few, spec, host_rate)?);
    }
    bar.clear();
    raise_ideal(&mut findings.devices);
    let cores = findings.machine.found.cores;
    if let Some(job) = &findings.job {
        for found in &mut findings.devices {
            found.together = together(job, found, args.batch_size, cores);
        }
    }
    let fed =
        if accelerator == AccelConfig::Host { ACCELERATOR } else { &args.accelerator };
    findings.fed = (accelerator == AccelConfig::Host).then(|| ACCELERATOR.to_owned());
    findings.verdict = questions::verdict(&findings, fed);
    Ok(findings)
}

/// Nobody waits for measurements that come to nothing: whether there is such a device, and whether it can be
/// one of these data.
fn reach(alone: &RunConfig, spec: &DeviceSpec) -> Result<(), Failed> {
    let devices = vec![spec.clone()];
    let config = RunConfig { devices, require_devices: true, ..alone.clone() };
    let mut runtime = Runtime::open(config)?;
    match spec {
        // Its rate may be a part of the host's, which nobody knows yet.
        DeviceSpec::Sim(_) => {}
        DeviceSpec::At { .. } | DeviceSpec::Pool(_) | DeviceSpec::Gpu { .. } => {
            runtime.connect_devices(None)?;
        }
    }
    Ok(())
}

fn is_remote(data: &Path) -> bool {
    data.to_str().is_some_and(is_url)
}

/// Whether the presets are measured, which nobody has named.
fn wants_presets(args: &DoctorArgs) -> bool {
    args.csd.is_empty() && !args.quick
}

/// That no preset is measured, where one would be if the data were on this machine.
fn left_out(data: &Path, args: &DoctorArgs) -> Option<String> {
    let line = "emulated devices read files of this machine, so none is measured; name an agent near the \
                store with --csd, or give the path of a copy";
    (is_remote(data) && wants_presets(args)).then(|| line.to_owned())
}

/// Where the data are fetched from a store: that each epoch fetches them again, and what helps.
fn kept(data: &Path) -> Option<String> {
    let line = "each epoch fetches all records from the store; `bothends run --cache DIR` keeps them on a local disk";
    is_remote(data).then(|| line.to_owned())
}

/// The preset without a model makes whatever the emulation on this machine can make, and each preset
/// that its model does not hold back shows that, at another moment. So what one of them showed,
/// `ideal` could have made: measured a few seconds apart it came out slower than others.
fn raise_ideal(devices: &mut [DeviceFinding]) {
    let most = |of: fn(&DeviceFinding) -> Option<f64>| {
        let emulated = devices.iter().filter(|device| device.preset.is_some());
        emulated.filter_map(of).reduce(f64::max)
    };
    let rate = most(|device| device.images_per_s);
    let low = most(|device| Some(device.ends?.low));
    let high = most(|device| Some(device.ends?.high));
    let ideal = format!("sim:{}", presets::IDEAL);
    for device in devices.iter_mut().filter(|device| device.csd == ideal) {
        device.images_per_s = rate;
        device.ends = low.zip(high).map(|(low, high)| Interval { low, high });
    }
}

/// What something came to, and what the machine did meanwhile.
fn watched<T>(does: impl FnOnce() -> T) -> (T, Load) {
    let watch = LoadWatch::begin();
    let came = does();
    (came, watch.end())
}

/// A rate that was measured in rounds.
struct Rounds {
    /// Of each round.
    rates: Vec<f64>,
    cpu_ms: Vec<Option<f64>>,
    busy_rates: Vec<Option<f64>>,
    loads: Vec<Load>,
}

impl Rounds {
    /// Measures until the rounds agree, or for as many as are worth while; until one says
    /// nothing.
    fn measure(
        mut round: impl FnMut() -> Result<Option<Measured>, RuntimeError>,
    ) -> Result<Self, RuntimeError> {
        let (rates, cpu_ms) = (Vec::new(), Vec::new());
        let mut rounds =
            Self { rates, cpu_ms, busy_rates: Vec::new(), loads: Vec::new() };
        while wants_another_round(&rounds.rates) {
            let (measured, load) = watched(&mut round);
            let Some(measured) = measured? else { break };
            rounds.rates.push(measured.images_per_s);
            rounds.cpu_ms.push(measured.cpu_ms_per_image);
            rounds.busy_rates.push(measured.busy_images_per_s);
            rounds.loads.push(load);
        }
        Ok(rounds)
    }

    /// The mean and where it lies.
    fn rate(&self) -> Option<(f64, Interval)> {
        Interval::of_rounds(&self.rates)
    }

    fn n(&self) -> u32 {
        u32::try_from(self.rates.len()).unwrap_or(u32::MAX)
    }

    /// How busy the machine was, where it was `before` while doctor rested.
    fn conditions(&self, before: Load, processors: u32) -> Conditions {
        let of = |what: fn(&Load) -> Option<f64>| {
            mean(&self.loads.iter().map(what).collect::<Vec<_>>())
        };
        Conditions {
            processors,
            others: of(|load| load.others),
            stolen: of(|load| load.stolen),
            cpu_pressure: before.cpu_pressure,
            io_pressure: of(|load| load.io_pressure),
        }
    }
}

/// The mean; `None` where one is missing, or there is none.
fn mean(values: &[Option<f64>]) -> Option<f64> {
    let known: Option<Vec<f64>> = values.iter().copied().collect();
    let known = known.filter(|known| !known.is_empty())?;
    Some(known.iter().sum::<f64>() / known.len() as f64)
}

/// The devices to measure.
fn specs(args: &DoctorArgs) -> Result<Vec<DeviceSpec>, Failed> {
    check_has_devices(&args.csd, args.security.given())?;
    let presets = || presets::names().map(|name| format!("sim:{name}"));
    let has_files = !args.data.as_deref().is_some_and(is_remote);
    let texts: Vec<String> = match wants_presets(args) {
        true if has_files => presets().collect(),
        true => Vec::new(),
        false => args.csd.clone(),
    };
    texts.iter().map(|text| Ok(text.parse()?)).collect()
}

/// Reads the few samples once: every epoch except the first has only samples that the host has seen
/// before.
fn learn(few: &RunConfig) -> Result<(), Failed> {
    let mut runtime = Runtime::open(in_memory(few))?;
    let fed = runtime.feed(&AccelConfig::Host, LASTING / 2)?;
    let n_seen = f64::from(fed.n_steps) * f64::from(few.batch_size);
    let n_few = few.limit.map_or(0.0, |n| n as f64);
    if n_seen < n_few && fed.images_per_s > 0.0 {
        // From the beginning: a measurement is always of the same epoch.
        let all = Duration::try_from_secs_f64(n_few / fed.images_per_s);
        runtime.feed(&AccelConfig::Host, all.unwrap_or(LEARNING).min(LEARNING))?;
    }
    Ok(())
}

fn in_memory(config: &RunConfig) -> RunConfig {
    let mut through = config.clone();
    through.read.page_cache = PageCacheUse::Through;
    through
}

/// As the first epoch finds the data: nobody has looked at them.
fn unlearnt(config: &RunConfig) -> RunConfig {
    let mut unlearnt = config.clone();
    unlearnt.read.side_index = SideIndexUse::Off;
    unlearnt
}

/// The host alone on samples that lie in memory, with each number of workers; the machine was
/// `before` while doctor rested.
fn hosts(
    args: &DoctorArgs,
    (few, before): (&RunConfig, Load),
    bar: &mut Bar,
    findings: &mut Findings,
) -> Result<(), Failed> {
    let cores = findings.machine.found.cores;
    let workers =
        if args.workers.is_empty() { vec![1, cores] } else { args.workers.clone() };
    for workers in workers {
        if findings.host.iter().any(|host| host.workers == workers) {
            continue;
        }
        bar.phase(&format!("measuring the host alone, workers: {workers}"));
        let mut runtime = Runtime::open(RunConfig { workers, ..in_memory(few) })?;
        let rounds = Rounds::measure(|| runtime.measure_front(ROUND))?;
        let rate = rounds.rate();
        findings.host.push(HostFinding {
            workers,
            images_per_s: rate.map(|(mean, _)| mean),
            ends: rate.map(|(_, ends)| ends),
            rounds: rounds.n(),
            cpu_ms_per_image: mean(&rounds.cpu_ms),
            conditions: Some(rounds.conditions(before, cores)),
            source: "measured".to_owned(),
        });
    }
    Ok(())
}

/// The job put together part by part: the accelerator, with preprocessing of samples that lie in
/// memory, with reading; of epochs after the first. `None` when too little came to say.
fn job(
    whole: &RunConfig,
    few: &RunConfig,
    accelerator: &AccelConfig,
) -> Result<Option<JobFinding>, Failed> {
    let computing = measure_accelerator(accelerator, whole.batch_size, LASTING);
    let prepared = fed(&in_memory(few), accelerator)?;
    let is_in_memory = Runtime::open(whole.clone())?.source().goes_through_page_cache();
    let (read, first_epoch) = if is_in_memory {
        let mut past = unlearnt(whole);
        past.read.page_cache = PageCacheUse::Past;
        (prepared, Some(fed(&past, accelerator)?))
    } else {
        (reading(whole, few, accelerator)?, None)
    };
    if prepared <= 0.0 || read <= 0.0 {
        return Ok(None);
    }
    let images_per_s = Throughput { accelerator: computing, prepared, read };
    Ok(Some(JobFinding {
        accelerator: accelerator.to_string(),
        workers: whole.workers,
        images_per_s,
        first_epoch_images_per_s: first_epoch,
        found: images_per_s.diagnose(),
        source: "measured".to_owned(),
    }))
}

/// What comes through of data that are read from storage in every epoch.
///
/// First of samples that nobody has looked at, as whatever stores them may remember others; they
/// are decoded more slowly than later, so it is compared with decoding such ones. Storage that
/// nearly keeps up with that is measured again, with samples that the host knows: what came
/// through at first may have been the decoding's rate.
fn reading(
    whole: &RunConfig,
    few: &RunConfig,
    accelerator: &AccelConfig,
) -> Result<f64, Failed> {
    let prepared = fed(&unlearnt(&in_memory(few)), accelerator)?;
    let read = fed(&unlearnt(whole), accelerator)?;
    if read < SLOW_STORAGE * prepared {
        return Ok(read);
    }
    fed(few, accelerator)
}

/// Images per second that come through.
fn fed(config: &RunConfig, accelerator: &AccelConfig) -> Result<f64, Failed> {
    Ok(Runtime::open(config.clone())?.feed(accelerator, LASTING)?.images_per_s)
}

/// The job with one such device, in virtual time, on `processors`.
fn together(
    job: &JobFinding,
    device: &DeviceFinding,
    batch_size: u32,
    processors: u32,
) -> Option<Together> {
    let Throughput { accelerator, read, .. } = job.images_per_s;
    let question = Question {
        host: HostFigures {
            workers: job.workers,
            processors,
            // What the accelerator holds back is the accelerator's.
            images_per_s: read,
            ends: Interval::exact(read),
            cpu_ms_per_image: None,
            conditions: None,
            waits_for_storage: false,
            source: job.source.clone(),
        },
        device: DeviceFigures {
            name: device.csd.clone(),
            images_per_s: device.images_per_s?,
            ends: Interval::exact(device.images_per_s?),
            is_uncalibrated: device.is_uncalibrated,
            link_images_per_s: None,
            receiving_cpu_ms_per_image: device.receiving_cpu_ms_per_image,
            source: device.source.clone(),
        },
        accelerator: AcceleratorFigures {
            name: job.accelerator.clone(),
            images_per_s: accelerator.unwrap_or(AT_ONCE),
        },
        batch_size,
        counts: vec![1],
        power: Power::named("cloud").ok()?,
    };
    let answer = question.answer();
    let row = answer.rows.last()?;
    let (images_per_s, speedup) = (row.images_per_s, row.speedup);
    Some(Together { images_per_s, speedup })
}

fn machine(data: Option<&Path>) -> MachineFindings {
    let cpu_limit = fs::read_to_string("/sys/fs/cgroup/cpu.max").ok();
    MachineFindings {
        found: Machine::read(),
        available_bytes: Share::here(Ranks::ALONE).memory_bytes(),
        cpu_limit: cpu_limit.as_deref().and_then(cpus),
        cache: surroundings::cache(SideIndexUse::Auto),
        energy: energy::here(),
        gpu: Some(GpuFound::look(&Gpus::Installed, 0, data)),
    }
}

/// The limit that cgroups v2 write as microseconds of CPU time in so many (`cpu.max`), in CPUs; `None` of none.
fn cpus(limit: &str) -> Option<String> {
    let (quota, period) = limit.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then(|| format!("{:.2} CPUs (control group)", quota / period))
}

/// Measures one device without the host; a rate given as a part of the host's is taken of the
/// host's last measurement.
fn device(
    alone: &RunConfig,
    spec: DeviceSpec,
    host_rate: Option<f64>,
) -> Result<DeviceFinding, Failed> {
    let (preset, speed) = match &spec {
        DeviceSpec::Sim(sim) => (Some(sim.preset.clone()), presets::speed(sim)),
        DeviceSpec::At { .. } | DeviceSpec::Pool(_) | DeviceSpec::Gpu { .. } => {
            (None, Speed::MEASURED)
        }
    };
    let csd = spec.text().to_owned();
    let config =
        RunConfig { devices: vec![spec], require_devices: true, ..alone.clone() };
    let mut runtime = Runtime::open(config)?;
    runtime.connect_devices(host_rate)?;
    // An emulator may listen at any address; it says that it is one.
    let is_emulated = runtime.connected().iter().any(|device| device.emulated);
    let source = match is_emulated {
        true => "modelled: an emulated device was measured",
        false => "measured",
    };
    let rounds = Rounds::measure(|| runtime.measure_back(ROUND))?;
    let rate = rounds.rate();
    // An emulation that cannot keep up with its model shows less than the device would.
    let modelled = mean(&rounds.busy_rates).filter(|_| is_emulated).unwrap_or(0.0);
    let ends = rate.map(|(_, ends)| {
        let ends = ends.scaled(speed.ends.low, 1.0);
        Interval { high: ends.high.max(modelled) * speed.ends.high, ..ends }
    });
    Ok(DeviceFinding {
        csd,
        images_per_s: rate.map(|(mean, _)| mean),
        ends,
        // Nothing says where the speed of an emulator at an address comes from.
        is_uncalibrated: speed.is_uncalibrated || is_emulated && preset.is_none(),
        link_bytes_per_s: preset.as_deref().and_then(presets::link_bytes_per_s),
        receiving_cpu_ms_per_image: mean(&rounds.cpu_ms),
        together: None,
        preset,
        source: source.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    /// They were measured last, after half a minute, and refused.
    #[test]
    fn no_preset_is_measured_where_the_data_are_in_a_store() {
        let parsed = |words: &[&str]| {
            let line = ["bothends", "doctor", "--data"].iter().chain(words);
            let Command::Doctor(args) = Args::try_parse_from(line).unwrap().command
            else {
                panic!("another command");
            };
            args
        };
        for (words, n_specs, is_told) in [
            (&["s3://bucket/set"][..], 0, true),
            (&["s3://bucket/set", "--quick"], 0, false),
            (&["s3://bucket/set", "--csd", "tcp://near:1"], 1, false),
            (&["/data", "--csd", "tcp://near:1"], 1, false),
            (&["/data"], presets::names().count(), false),
        ] {
            let args = parsed(words);
            assert_eq!(specs(&args).unwrap().len(), n_specs, "{words:?}");
            let told = left_out(args.data.as_deref().unwrap(), &args);
            assert_eq!(told.is_some(), is_told, "{words:?}");
        }
    }

    #[test]
    fn a_limit_is_told_in_cpus_and_none_is_not() {
        let half = cpus("50000 100000\n");
        assert_eq!(half.as_deref(), Some("0.50 CPUs (control group)"));
        assert_eq!(cpus("max 100000\n"), None);
    }

    fn found(csd: &str, preset: Option<&str>, rate: f64) -> DeviceFinding {
        DeviceFinding {
            csd: csd.to_owned(),
            preset: preset.map(str::to_owned),
            images_per_s: Some(rate),
            ends: Some(Interval { low: rate * 0.9, high: rate * 1.1 }),
            is_uncalibrated: false,
            link_bytes_per_s: None,
            receiving_cpu_ms_per_image: None,
            together: None,
            source: String::new(),
        }
    }

    #[test]
    fn ideal_is_no_slower_than_any_other_preset() {
        let mut devices = [
            found("sim:dpu-bf2", Some("dpu-bf2"), 1002.0),
            found("sim:ideal", Some("ideal"), 350.0),
            found("sim:ideal,rate=100", Some("ideal"), 100.0),
            found("tcp://nas:7070", None, 9000.0),
        ];
        raise_ideal(&mut devices);
        let rates = devices.map(|device| (device.images_per_s, device.ends));
        let of = |rate: f64| Interval { low: rate * 0.9, high: rate * 1.1 };
        assert_eq!(rates[1], (Some(1002.0), Some(of(1002.0))));
        assert_eq!(rates[2], (Some(100.0), Some(of(100.0))), "a rate that was given");
    }

    #[test]
    fn rounds_that_say_nothing_end_the_measurement() {
        let rounds = Rounds::measure(|| Ok(None)).unwrap();
        assert_eq!((rounds.rate(), rounds.n(), mean(&rounds.cpu_ms)), (None, 0, None));
        let mut rates = [100.0, 101.0, 99.0, 5.0].into_iter();
        let rounds = Rounds::measure(|| {
            Ok(rates.next().map(|images_per_s| Measured {
                images_per_s,
                cpu_ms_per_image: Some(2.0),
                busy_images_per_s: None,
            }))
        });
        let rounds = rounds.unwrap();
        assert_eq!((rounds.n(), mean(&rounds.cpu_ms)), (3, Some(2.0)), "they agree");
        assert_eq!(mean(&rounds.busy_rates), None);
    }
}
