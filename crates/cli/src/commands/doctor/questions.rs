//! From what doctor found to questions that `bothends_simulate::sizing` answers: doctor asks one
//! for each device, `simulate --plan` one for the device and the host that its flags name.

use bothends_runtime::AccelConfig;
use bothends_simulate::Power;
use bothends_simulate::sizing::{
    AcceleratorFigures, DeviceFigures, Evidence, HostFigures, Interval, Question,
    Verdict, decide,
};

use super::findings::{DataFindings, DeviceFinding, Findings, HostFinding};
use super::presets::IDEAL;
use crate::failed::{Failed, wrong};

/// Numbers of devices that doctor's verdict looks at.
const COUNTS: [u32; 5] = [0, 1, 2, 4, 8];

/// Where a rate that was measured once lies, as parts of it.
const ONCE: (f64, f64) = (0.9, 1.1);

/// What doctor says: of all devices that it measured and that can be bought.
pub(crate) fn verdict(findings: &Findings, accelerator: &str) -> Option<Verdict> {
    let data = findings.data.as_ref()?;
    let host = host(findings, None)?;
    let accelerator = self::accelerator(accelerator).ok()?;
    let ask = |device: DeviceFigures| {
        Some(Question {
            host: host.clone(),
            power: power(&device.name)?,
            device,
            accelerator: accelerator.clone(),
            batch_size: data.batch_size,
            counts: COUNTS.to_vec(),
        })
    };
    let devices = findings.devices.iter();
    let devices = devices.filter(|device| device.preset.as_deref() != Some(IDEAL));
    let answers: Vec<_> = devices
        .filter_map(|found| ask(device(found, data)?))
        .map(Question::answer)
        .collect();
    // The host alone is asked about where no device was measured.
    let none = ask(no_device())?.answer();
    let asked = answers.first().unwrap_or(&none);
    Some(decide(&Evidence {
        accelerator: accelerator.name,
        host_feeds: asked.rows.first().is_some_and(|row| row.is_fed),
        doubt: asked.question.doubt(),
        offers: answers.iter().map(bothends_simulate::sizing::Answer::offer).collect(),
    }))
}

fn no_device() -> DeviceFigures {
    DeviceFigures {
        name: String::new(),
        images_per_s: 1.0,
        ends: Interval::exact(1.0),
        is_uncalibrated: false,
        link_images_per_s: None,
        receiving_cpu_ms_per_image: None,
        source: String::new(),
    }
}

/// The model of what such a device draws; where nobody has made one, that of a cloud's machine.
pub(crate) fn power(name: &str) -> Option<Power> {
    Power::named(name).or_else(|_| Power::named("cloud")).ok()
}

/// The host as measured with so many workers; else scaled from the nearest measurement. `None`
/// where none was measured.
pub(crate) fn host(findings: &Findings, workers: Option<u32>) -> Option<HostFigures> {
    let measured = findings.host.iter().filter(|host| host.images_per_s.is_some());
    let nearest = match workers {
        Some(wanted) => measured.min_by_key(|host| host.workers.abs_diff(wanted)),
        None => measured.max_by_key(|host| host.workers),
    }?;
    let HostFinding { cpu_ms_per_image, source, conditions, .. } = nearest;
    let (rate, n) = (nearest.images_per_s?, nearest.workers.max(1));
    let wanted = workers.unwrap_or(n);
    let times = f64::from(wanted) / f64::from(n);
    let source = if wanted == n {
        source.clone()
    } else {
        format!("scaled from {n} workers, which were {source}")
    };
    let figures = HostFigures {
        workers: wanted,
        // More workers than processors are a question about another machine.
        processors: findings.machine.found.cores.max(wanted),
        images_per_s: rate * times,
        ends: nearest.ends.unwrap_or(Interval::exact(rate)).scaled(times, times),
        cpu_ms_per_image: *cpu_ms_per_image,
        conditions: *conditions,
        waits_for_storage: false,
        source,
    };
    Some(beyond_storage(figures, findings))
}

/// A host whose storage brings less than its workers make is as fast as its storage.
fn beyond_storage(host: HostFigures, findings: &Findings) -> HostFigures {
    let brings = findings.job.as_ref().and_then(|job| job.storage_brings());
    let Some(read) = brings.filter(|read| *read < host.images_per_s) else { return host };
    HostFigures {
        images_per_s: read,
        ends: Interval::exact(read).scaled(ONCE.0, ONCE.1),
        waits_for_storage: true,
        source: format!("{}; storage is the limit", host.source),
        ..host
    }
}

/// A device as it was measured; `None` where too little came.
pub(crate) fn device(
    found: &DeviceFinding,
    data: &DataFindings,
) -> Option<DeviceFigures> {
    let rate = found.images_per_s?;
    Some(DeviceFigures {
        name: found.csd.trim_start_matches("sim:").to_owned(),
        images_per_s: rate,
        ends: found.ends.unwrap_or(Interval::exact(rate)),
        is_uncalibrated: found.is_uncalibrated,
        link_images_per_s: found.link_images_per_s(data),
        receiving_cpu_ms_per_image: found.receiving_cpu_ms_per_image,
        source: found.source.clone(),
    })
}

/// An accelerator by name or rate, as in `run` without the `sim:`.
pub(crate) fn accelerator(text: &str) -> Result<AcceleratorFigures, Failed> {
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
