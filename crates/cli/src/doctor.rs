//! `bothends doctor`: what this machine has for a run, how fast the host and each device are
//! alone, what limits the job, and what one device more would bring. What the measurements
//! mean is `simulate`'s (`diagnosis`, `sizing`); `findings.rs` is what is said.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bothends_runtime::{
    AccelConfig, DeviceSpec, Machine, Measured, Observer, PageCacheUse, RunConfig,
    Runtime, measure_accelerator,
};
use bothends_simulate::Power;
use bothends_simulate::diagnosis::Throughput;
use bothends_simulate::sizing::{
    AcceleratorFigures, DeviceFigures, HostFigures, Question,
};
use serde::Deserialize;

use crate::args::DoctorArgs;
use crate::findings::{
    DataFindings, DeviceFinding, Findings, HostFinding, JobFinding, MachineFindings,
    Together,
};
use crate::inspect::looking;
use crate::picture::now;
use crate::progress::Bar;
use crate::{Failed, energy, run, say};

/// How long each thing is measured.
const LASTING: Duration = Duration::from_secs(2);

/// Samples that lie in memory once they have been read, whatever the data set. The first quarter of
/// a thousand was 5 % cheaper than 500 photographs are: a data set lies in the order of its classes.
const IN_MEMORY: u64 = 1024;

/// A rate of an accelerator that takes everything at once, in images per second.
const AT_ONCE: f64 = 1e9;

/// Name and text of the device presets, which state what their links carry.
const PRESETS: [(&str, &str); 5] = [
    ("newport", include_str!("../../../configs/devices/newport.json")),
    ("smartssd", include_str!("../../../configs/devices/smartssd.json")),
    ("dpu-bf2", include_str!("../../../configs/devices/dpu-bf2.json")),
    ("storage-server", include_str!("../../../configs/devices/storage-server.json")),
    ("ideal", include_str!("../../../configs/devices/ideal.json")),
];

/// Looks, measures, and prints one finding per line.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<(), Failed> {
    let findings = find(args)?;
    if let Some(path) = &args.json {
        run::write(path, &serde_json::to_string_pretty(&findings)?)?;
    }
    if args.json.as_deref() != Some(Path::new("-")) {
        for line in findings.lines() {
            say::line(&line);
        }
    }
    Ok(())
}

fn find(args: &DoctorArgs) -> Result<Findings, Failed> {
    let recipe = run::recipe(&args.recipe)?;
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
    alone.read.page_cache = run::page_cache(args.page_cache);
    findings.data = Some(DataFindings {
        path: data.display().to_string(),
        about,
        recipe: recipe.name().to_owned(),
        batch_size: args.batch_size,
        sample_bytes: Runtime::open(alone.clone())?.sample_bytes(),
    });
    let mut bar = Bar::new();
    hosts(args, &alone, &mut bar, &mut findings)?;
    alone.workers = findings.host.last().map_or(alone.workers, |host| host.workers);
    bar.phase("measuring the job, part by part");
    findings.job = job(&alone, &accelerator)?;
    let host_rate = findings.host.iter().filter_map(|host| host.images_per_s).next_back();
    for spec in specs {
        bar.phase(&format!("measuring {spec} alone"));
        let mut found = device(&alone, spec, host_rate)?;
        let cores = findings.machine.cores;
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
    texts.iter().map(|text| text.parse().map_err(wrong)).collect()
}

fn wrong(error: impl std::fmt::Display) -> Failed {
    Failed::Arguments(error.to_string())
}

/// The host alone, with each number of workers.
fn hosts(
    args: &DoctorArgs,
    alone: &RunConfig,
    bar: &mut Bar,
    findings: &mut Findings,
) -> Result<(), Failed> {
    let workers = if args.workers.is_empty() {
        vec![1, findings.machine.cores]
    } else {
        args.workers.clone()
    };
    for workers in workers {
        if findings.host.iter().all(|host| host.workers != workers) {
            bar.phase(&format!("measuring the host alone with {workers} workers"));
            let config = RunConfig { workers, ..alone.clone() };
            let measured = Runtime::open(config)?.measure_front(LASTING)?;
            findings.host.push(host(workers, measured));
        }
    }
    Ok(())
}

/// The job put together part by part: the accelerator, with preprocessing of samples that lie in
/// memory, with reading. `None` when too little came to say.
fn job(
    alone: &RunConfig,
    accelerator: &AccelConfig,
) -> Result<Option<JobFinding>, Failed> {
    let computing = measure_accelerator(accelerator, alone.batch_size, LASTING);
    let few = IN_MEMORY.max(u64::from(alone.batch_size) * 2);
    let mut in_memory = RunConfig { limit: Some(few), ..alone.clone() };
    in_memory.read.page_cache = PageCacheUse::Through;
    let mut runtime = Runtime::open(in_memory)?;
    // Once for the page cache.
    runtime.feed(accelerator, LASTING / 2)?;
    let prepared = runtime.feed(accelerator, LASTING)?.images_per_s;
    let mut from_storage = alone.clone();
    from_storage.read.page_cache = PageCacheUse::Past;
    let read = Runtime::open(from_storage)?.feed(accelerator, LASTING)?.images_per_s;
    if prepared <= 0.0 || read <= 0.0 {
        return Ok(None);
    }
    let is_in_memory = Runtime::open(alone.clone())?.source().goes_through_page_cache();
    let images_per_s = Throughput {
        accelerator: computing,
        prepared,
        read: if is_in_memory { prepared } else { read },
    };
    Ok(Some(JobFinding {
        accelerator: accelerator.to_string(),
        workers: alone.workers,
        images_per_s,
        first_epoch_images_per_s: is_in_memory.then_some(read),
        found: images_per_s.diagnose(),
        source: "measured".to_owned(),
    }))
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
    let Machine { processor, cores, memory_bytes, kernel, io_uring, firmware_sim } =
        Machine::read();
    let cpu_limit = fs::read_to_string("/sys/fs/cgroup/cpu.max").ok();
    MachineFindings {
        processor,
        cores,
        memory_bytes,
        kernel,
        io_uring,
        firmware_sim,
        cpu_limit: cpu_limit.map(|limit| limit.trim().to_owned()),
        energy: energy::here(),
    }
}

fn host(workers: u32, measured: Option<Measured>) -> HostFinding {
    HostFinding {
        workers,
        images_per_s: measured.map(|measured| measured.images_per_s),
        cpu_ms_per_image: measured.and_then(|measured| measured.cpu_ms_per_image),
        source: "measured".to_owned(),
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
    let config = RunConfig { devices: vec![spec], ..alone.clone() };
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
