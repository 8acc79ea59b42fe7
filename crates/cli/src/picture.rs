//! From a run's result to what the report draws: names and units change, figures do not.

use std::path::Path;

use bothends_report::{
    Alone, Emulated, Event, EventKind, Prong, ReportInput, StallSeconds, StrategyRun,
};
use bothends_runtime::{Driven, EpochResult, EventLog, Machine, Moment};

/// The report of a run.
pub(crate) fn input(title: &str, driven: &Driven) -> ReportInput {
    let result = &driven.result;
    let mut emulated = Vec::new();
    if result.epochs.iter().flat_map(|e| &e.back).any(|device| device.emulated) {
        emulated.push(Emulated::Device);
    }
    if result.epochs.iter().any(|e| e.accelerator.utilisation.is_some()) {
        emulated.push(Emulated::Accelerator);
    }
    let args: Vec<String> = std::env::args().collect();
    let rate = |key: &str| result.config.get(key).and_then(serde_json::Value::as_f64);
    let alone = result.alone.front_images_per_s.map(|front| Alone {
        front_images_per_s: front,
        back_images_per_s: result.alone.back_images_per_s.unwrap_or(0.0),
        accelerator_images_per_s: rate("accelerator_images_per_s"),
    });
    ReportInput {
        title: title.to_owned(),
        note: String::new(),
        emulated,
        machine: Machine::read().summary(),
        command: args.join(" "),
        date: now(),
        alone,
        runs: result
            .epochs
            .iter()
            .zip(&driven.logs)
            .map(|(e, log)| strategy_run(e, log, driven))
            .collect(),
    }
}

/// What a demo says of itself.
pub(crate) fn as_demo(input: &mut ReportInput, data: Option<&Path>) {
    let images = match data {
        Some(data) => format!("The images are those of {}.", data.display()),
        None => {
            input.emulated.push(Emulated::Images);
            "The images are generated, photograph-like JPEGs.".to_owned()
        }
    };
    input.note = format!(
        "{images} The device is emulated: a process of its own that opens the files and decodes \
         every sample itself, slowed down to a stated rate. The accelerator is emulated: it \
         takes a batch in a stated time and computes nothing. Everything else is measured."
    );
}

/// The sentences under the table.
pub(crate) fn verdict(driven: &Driven) -> Vec<String> {
    let epochs = &driven.result.epochs;
    let digest = |name: &str| {
        let epoch = epochs.iter().find(|e| e.strategy == name)?;
        epoch.stream_digest.as_deref()
    };
    let mut lines = Vec::new();
    if let (Some(cpu), Some(ordered)) = (digest("cpu"), digest("ordered")) {
        let same = if cpu == ordered { "the same stream" } else { "ANOTHER STREAM" };
        lines.push(format!(
            "`ordered` delivered {same}, byte for byte, as the host alone: {ordered}"
        ));
    }
    let first = epochs.first().and_then(|e| e.content_digest.as_deref());
    let all = epochs.iter().all(|e| e.content_digest.as_deref() == first);
    let content = if all { "the same samples" } else { "DIFFERENT SAMPLES" };
    lines.push(format!("every strategy delivered {content} exactly once"));
    lines
}

fn strategy_run(epoch: &EpochResult, log: &EventLog, driven: &Driven) -> StrategyRun {
    let stall = epoch.accelerator.stall_by;
    StrategyRun {
        strategy: epoch.strategy.clone(),
        seconds: epoch.seconds,
        images_per_s: epoch.images_per_s,
        utilisation: epoch.accelerator.utilisation,
        front_batches: u64::from(epoch.front.batches),
        back_batches: epoch.back.iter().map(|b| u64::from(b.batches)).sum(),
        efficiency: epoch.efficiency,
        cpu_ms_per_image: epoch.cpu_ms_per_image.unwrap_or(0.0),
        peak_rss_bytes: epoch
            .peak_rss_bytes
            .or(driven.result.memory.peak_rss_bytes)
            .unwrap_or(0),
        rescued: u64::from(epoch.rescued),
        stream_digest: epoch.stream_digest.clone().unwrap_or_default(),
        content_digest: epoch.content_digest.clone().unwrap_or_default(),
        stall: StallSeconds {
            read: stall.read,
            decode: stall.decode,
            device: stall.device,
            copy: stall.copy,
            consumer: stall.consumer,
        },
        events: log.entries().iter().filter_map(event).collect(),
    }
}

fn event(entry: &bothends_runtime::LogEntry) -> Option<Event> {
    let kind = match entry.moment {
        Moment::Made => EventKind::Made,
        Moment::Delivered => EventKind::Delivered,
        Moment::Rescued => EventKind::Rescued,
        Moment::Claimed | Moment::Lost => return None,
    };
    let prong = if entry.device.is_some() { Prong::Back } else { Prong::Front };
    Some(Event { t_s: entry.t_s, batch: entry.batch, prong, kind })
}

/// The date and time in UTC, from the kernel's clock.
pub(crate) fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = since.map_or(0, |d| d.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Civil date from days since 1970-01-01 (proleptic Gregorian calendar).
    let z = days + 719_468;
    let era = z / 146_097;
    let doe = z % 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}Z", rest / 3600, rest % 3600 / 60)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_date_is_a_date() {
        let now = super::now();
        assert!(now.len() == 17 && now.starts_with("20") && now.ends_with('Z'), "{now}");
    }
}
