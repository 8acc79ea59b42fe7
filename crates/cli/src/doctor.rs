//! `bothends doctor`: what this machine has for a run, and how fast the host and each device
//! are alone. `findings.rs` is what it says.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bothends_runtime::{DeviceSpec, Machine, Measured, Observer, RunConfig, Runtime};
use serde::Deserialize;

use crate::args::DoctorArgs;
use crate::findings::{
    DataFindings, DeviceFinding, Findings, HostFinding, MachineFindings,
};
use crate::inspect::looking;
use crate::picture::now;
use crate::progress::Bar;
use crate::{Failed, run, say};

/// How long each thing is measured.
const LASTING: Duration = Duration::from_secs(2);

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
    let specs = args.csd.iter().map(|spec| spec.parse());
    let specs: Vec<DeviceSpec> = specs
        .collect::<Result<_, _>>()
        .map_err(|e: bothends_runtime::RuntimeError| Failed::Arguments(e.to_string()))?;
    let mut findings = Findings {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        date: now(),
        machine: machine(),
        data: None,
        host: Vec::new(),
        devices: Vec::new(),
    };
    let Some(data) = &args.data else { return Ok(findings) };
    let about = bothends_runtime::survey(data)?;
    let mut alone = looking(data.clone(), recipe.clone());
    alone.batch_size = args.batch_size;
    alone.key_file.clone_from(&args.key_file);
    findings.data = Some(DataFindings {
        path: data.display().to_string(),
        about,
        recipe: recipe.name().to_owned(),
        batch_size: args.batch_size,
        sample_bytes: Runtime::open(alone.clone())?.sample_bytes(),
    });
    let mut bar = Bar::new();
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
    let host_rate = findings.host.iter().filter_map(|host| host.images_per_s).next_back();
    for spec in specs {
        bar.phase(&format!("measuring {spec} alone"));
        findings.devices.push(device(&alone, spec, host_rate)?);
    }
    bar.clear();
    Ok(findings)
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
        energy: "no meter in this build; energy figures are modelled or absent"
            .to_owned(),
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
