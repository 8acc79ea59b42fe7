//! `bothends simulate --plan`: from what doctor found to a question that `bothends-simulate`
//! answers, and the answer to where it was asked for.

use std::path::Path;

use bothends_runtime::AccelConfig;
use bothends_simulate::Power;
use bothends_simulate::sizing::{
    AcceleratorFigures, DeviceFigures, HostFigures, Question,
};

use super::super::doctor::findings::{
    DataFindings, DeviceFinding, Findings, HostFinding,
};
use crate::args::simulate::SizingArgs;
use crate::failed::{Failed, wrong};
use crate::{file, say};

/// Answers what devices would do for the host that doctor measured.
pub(crate) fn size(
    args: &SizingArgs,
    doctor: &Path,
    json: Option<&Path>,
) -> Result<(), Failed> {
    let findings = Findings::load(doctor)?;
    let answer = question(args, &findings, &doctor.display().to_string())?.answer();
    if let Some(path) = json {
        file::write(path, &serde_json::to_string_pretty(&answer)?)?;
    }
    if json != Some(Path::new("-")) {
        say::line(answer.text().trim_end());
    }
    Ok(())
}

fn question(
    args: &SizingArgs,
    findings: &Findings,
    file: &str,
) -> Result<Question, Failed> {
    let Some(data) = &findings.data else {
        return Err(lacking(file, "no rates", "--data PATH --csd sim:PRESET"));
    };
    let mut counts = args.count.clone();
    counts.sort_unstable();
    counts.dedup();
    let (device, rate) = device(args, findings, file)?;
    // Where somebody has modelled this very device, its power is known too.
    let preset = device.preset.as_deref().unwrap_or_default();
    let power = Power::named(preset).or_else(|_| Power::named("cloud"));
    Ok(Question {
        host: host(args, findings, file)?,
        device: DeviceFigures {
            name: device.csd.trim_start_matches("sim:").to_owned(),
            images_per_s: rate,
            link_images_per_s: link(device, data),
            receiving_cpu_ms_per_image: device.receiving_cpu_ms_per_image,
            source: device.source.clone(),
        },
        accelerator: accelerator(&args.accelerator)?,
        batch_size: data.batch_size,
        counts,
        power: power.map_err(|why| anyhow::anyhow!("power model: {why}"))?,
    })
}

/// The host as measured with so many workers; else scaled from the nearest measurement.
fn host(
    args: &SizingArgs,
    findings: &Findings,
    file: &str,
) -> Result<HostFigures, Failed> {
    let measured = findings.host.iter().filter(|host| host.images_per_s.is_some());
    let nearest = match args.workers {
        Some(wanted) => measured.min_by_key(|host| host.workers.abs_diff(wanted)),
        None => measured.max_by_key(|host| host.workers),
    };
    let Some(HostFinding { workers, images_per_s: Some(rate), cpu_ms_per_image, source }) =
        nearest
    else {
        return Err(lacking(file, "no rate of the host", "--data PATH"));
    };
    let wanted = args.workers.unwrap_or(*workers);
    let source = if wanted == *workers {
        source.clone()
    } else {
        format!("scaled from {workers} workers, which were {source}")
    };
    Ok(HostFigures {
        workers: wanted,
        // More workers than processors are a question about another machine.
        processors: findings.machine.found.cores.max(wanted),
        images_per_s: rate * f64::from(wanted) / f64::from((*workers).max(1)),
        cpu_ms_per_image: *cpu_ms_per_image,
        source,
    })
}

/// The device asked for, else the first, and its rate.
fn device<'a>(
    args: &SizingArgs,
    findings: &'a Findings,
    file: &str,
) -> Result<(&'a DeviceFinding, f64), Failed> {
    let wanted = |device: &DeviceFinding| match &args.preset {
        Some(name) => device.preset.as_ref() == Some(name) || device.csd == *name,
        None => true,
    };
    let with_rate = |device: &'a DeviceFinding| Some((device, device.images_per_s?));
    let mut found = findings.devices.iter().filter(|d| wanted(d)).filter_map(with_rate);
    found.next().ok_or_else(|| {
        let preset = args.preset.as_deref().unwrap_or("PRESET");
        let what = format!("no rate of a device `{preset}`");
        lacking(file, &what, &format!("--data PATH --csd sim:{preset}"))
    })
}

/// What a device's link carries, in images per second.
fn link(device: &DeviceFinding, data: &DataFindings) -> Option<f64> {
    let sample_bytes =
        u32::try_from(data.sample_bytes).ok().filter(|bytes| *bytes > 0)?;
    Some(device.link_bytes_per_s? / f64::from(sample_bytes))
}

/// An accelerator by name or rate, as in `run` but for the `sim:`.
fn accelerator(text: &str) -> Result<AcceleratorFigures, Failed> {
    let spec =
        if text.starts_with("sim:") { text.to_owned() } else { format!("sim:{text}") };
    let config: AccelConfig = spec.parse().map_err(wrong)?;
    let Some(images_per_s) = config.samples_per_s() else {
        return Err(wrong(format!("`--accelerator {text}` has no rate")));
    };
    let name = config.to_string();
    let name = name.trim_start_matches("sim:");
    let is_rate = name.parse::<f64>().is_ok();
    Ok(AcceleratorFigures {
        name: if is_rate { "the accelerator".to_owned() } else { name.to_owned() },
        images_per_s,
    })
}

fn lacking(file: &str, what: &str, flags: &str) -> Failed {
    Failed::Run(anyhow::anyhow!(
        "{file} has {what}; run `bothends doctor {flags} --json {file}` first"
    ))
}
