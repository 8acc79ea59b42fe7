//! `bothends doctor`: what this machine has for a run, how fast the host and each device are
//! alone, what limits the job, and what one device more would bring. What the measurements
//! mean is `simulate`'s (`diagnosis`, `sizing`); `findings.rs` is what is said.

pub(crate) mod findings;

use std::fs;
use std::path::Path;
use std::time::Duration;

use bothends_runtime::{
    AccelConfig, DeviceSpec, Machine, Observer, PageCacheUse, RunConfig, Runtime,
    SideIndexUse, measure_accelerator,
};
use bothends_simulate::Power;
use bothends_simulate::diagnosis::Throughput;
use bothends_simulate::sizing::{
    AcceleratorFigures, DeviceFigures, HostFigures, Question,
};
use serde::Deserialize;

use self::findings::{
    DataFindings, DeviceFinding, Findings, HostFinding, JobFinding, MachineFindings,
    Together,
};
use super::inspect::looking;
use crate::args::DoctorArgs;
use crate::failed::{Failed, wrong};
use crate::typed::recipe;
use crate::watch::bar::Bar;
use crate::watch::recorder::now;
use crate::{energy, file, say};

/// How long each thing is measured.
const LASTING: Duration = Duration::from_secs(2);

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

/// Name and text of the device presets, which state what their links carry.
const PRESETS: [(&str, &str); 5] = [
    ("newport", include_str!("../../configs/devices/newport.json")),
    ("smartssd", include_str!("../../configs/devices/smartssd.json")),
    ("dpu-bf2", include_str!("../../configs/devices/dpu-bf2.json")),
    ("storage-server", include_str!("../../configs/devices/storage-server.json")),
    ("ideal", include_str!("../../configs/devices/ideal.json")),
];

/// Looks, measures, and prints one finding per line.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<(), Failed> {
    let findings = find(args)?;
    // Said first: what was measured is not lost with a file that cannot be written.
    if args.json.as_deref() != Some(Path::new("-")) {
        for line in findings.lines() {
            say::line(&line);
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
        machine: machine(),
        data: None,
        host: Vec::new(),
        job: None,
        devices: Vec::new(),
    };
    let specs = specs(args)?;
    let Some(data) = &args.data else { return Ok(findings) };
    let about = bothends_runtime::survey(data)?;
    let mut alone = looking(data.clone(), recipe.clone());
    alone.batch_size = args.batch_size;
    alone.key_file.clone_from(&args.key_file);
    alone.read.page_cache = args.page_cache;
    findings.data = Some(DataFindings {
        path: data.display().to_string(),
        about,
        recipe: recipe.name().to_owned(),
        batch_size: args.batch_size,
        sample_bytes: Runtime::open(alone.clone())?.sample_bytes(),
    });
    let mut bar = Bar::new();
    let n_few = FEW.max(u64::from(args.batch_size) * 2);
    let mut few = RunConfig { limit: Some(n_few), ..alone.clone() };
    bar.phase("a first visit to some samples");
    learn(&few)?;
    hosts(args, &few, &mut bar, &mut findings)?;
    few.workers = findings.host.last().map_or(alone.workers, |host| host.workers);
    alone.workers = few.workers;
    bar.phase("measuring the job, part by part");
    findings.job = job(&alone, &few, &accelerator)?;
    let host_rate = findings.host.iter().filter_map(|host| host.images_per_s).next_back();
    for spec in specs {
        bar.phase(&format!("measuring {spec} alone"));
        let mut found = device(&few, spec, host_rate)?;
        let cores = findings.machine.found.cores;
        let job = findings.job.as_ref();
        found.together =
            job.and_then(|job| together(job, &found, args.batch_size, cores));
        findings.devices.push(found);
    }
    bar.clear();
    Ok(findings)
}

/// The devices to measure.
fn specs(args: &DoctorArgs) -> Result<Vec<DeviceSpec>, Failed> {
    let presets = || PRESETS.iter().map(|(name, _)| format!("sim:{name}"));
    let texts: Vec<String> = match (args.csd.is_empty(), args.quick) {
        (false, _) => args.csd.clone(),
        (true, false) => presets().collect(),
        (true, true) => Vec::new(),
    };
    texts.iter().map(|text| Ok(text.parse()?)).collect()
}

/// Visits the few samples once: an epoch is made of what the host has seen before, but for the
/// first one.
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

/// The host alone, with each number of workers.
fn hosts(
    args: &DoctorArgs,
    alone: &RunConfig,
    bar: &mut Bar,
    findings: &mut Findings,
) -> Result<(), Failed> {
    let workers = if args.workers.is_empty() {
        vec![1, findings.machine.found.cores]
    } else {
        args.workers.clone()
    };
    for workers in workers {
        if findings.host.iter().all(|host| host.workers != workers) {
            bar.phase(&format!("measuring the host alone with {workers} workers"));
            let config = RunConfig { workers, ..alone.clone() };
            let measured = Runtime::open(config)?.measure_front(LASTING)?;
            findings.host.push(HostFinding {
                workers,
                images_per_s: measured.map(|it| it.images_per_s),
                cpu_ms_per_image: measured.and_then(|it| it.cpu_ms_per_image),
                source: "measured".to_owned(),
            });
        }
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
            cpu_ms_per_image: None,
            source: job.source.clone(),
        },
        device: DeviceFigures {
            name: device.csd.clone(),
            images_per_s: device.images_per_s?,
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

fn machine() -> MachineFindings {
    let cpu_limit = fs::read_to_string("/sys/fs/cgroup/cpu.max").ok();
    MachineFindings {
        found: Machine::read(),
        cpu_limit: cpu_limit.map(|limit| limit.trim().to_owned()),
        energy: energy::here(),
    }
}

/// Measures one device without the host; a rate given as a part of the host's is taken of the
/// host's last measurement.
fn device(
    alone: &RunConfig,
    spec: DeviceSpec,
    host_rate: Option<f64>,
) -> Result<DeviceFinding, Failed> {
    let (preset, source) = match &spec {
        DeviceSpec::Sim(sim) => {
            (Some(sim.preset.clone()), "modelled: an emulated device was measured")
        }
        DeviceSpec::At { .. } => (None, "measured"),
    };
    let csd = spec.text().to_owned();
    let config =
        RunConfig { devices: vec![spec], require_devices: true, ..alone.clone() };
    let mut runtime = Runtime::open(config)?;
    runtime.connect_devices(host_rate)?;
    let measured = runtime.measure_back(LASTING)?;
    Ok(DeviceFinding {
        csd,
        images_per_s: measured.map(|measured| measured.images_per_s),
        link_bytes_per_s: preset.as_deref().and_then(link_bytes_per_s),
        receiving_cpu_ms_per_image: measured.and_then(|it| it.cpu_ms_per_image),
        together: None,
        preset,
        source: source.to_owned(),
    })
}

/// What the link of a preset carries; `None` where it has no limit, or is no preset of ours.
fn link_bytes_per_s(preset: &str) -> Option<f64> {
    #[derive(Deserialize)]
    struct Preset {
        link: Link,
    }
    #[derive(Deserialize)]
    struct Link {
        bandwidth: Option<Bandwidth>,
    }
    #[derive(Deserialize)]
    struct Bandwidth {
        value: f64,
        unit: String,
    }
    let (_, json) = PRESETS.iter().find(|(name, _)| *name == preset)?;
    let bandwidth = serde_json::from_str::<Preset>(json).ok()?.link.bandwidth?;
    match bandwidth.unit.as_str() {
        "GB/s" => Some(bandwidth.value * 1e9),
        "MB/s" => Some(bandwidth.value * 1e6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_says_what_its_link_carries() {
        let links = PRESETS.map(|(name, _)| link_bytes_per_s(name));
        assert_eq!(links, [Some(1e9), Some(3e9), Some(1e10), Some(1.17e8), None]);
        assert_eq!(link_bytes_per_s("oldport"), None);
    }
}
