//! From a run's result to what is recorded of it, and so to what the report draws.

use std::path::Path;

use bothends_report::{EpochRecord, FORMAT, Header, Recording};
use bothends_runtime::{
    DriveConfig, Ended, Machine, Observer, Progress, RunConfig, RunResult, settings,
};

/// What is known of a run before it begins.
pub(crate) fn header(title: &str, config: &RunConfig, how: &DriveConfig) -> Header {
    let args: Vec<String> = std::env::args().collect();
    Header {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        title: title.to_owned(),
        note: String::new(),
        generated_images: false,
        machine: Machine::read().summary(),
        command: args.join(" "),
        date: now(),
        config: settings(config, how).into_iter().collect(),
    }
}

/// What a demo says of itself.
pub(crate) fn as_demo(header: Header, data: Option<&Path>) -> Header {
    let images = match data {
        Some(data) => format!("The images are those of {}.", data.display()),
        None => "The images are generated, photograph-like JPEGs.".to_owned(),
    };
    let note = format!(
        "{images} The device is emulated: a process of its own that opens the files and decodes \
         every sample itself, slowed down to a stated rate. The accelerator is emulated: it \
         takes a batch in a stated time and computes nothing. Everything else is measured."
    );
    Header { note, generated_images: data.is_none(), ..header }
}

/// What is kept of every epoch until the run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// What a table needs.
    Figures,
    /// What a page or a trace needs: 32 bytes for each of an epoch's moments, too.
    Moments,
}

/// Holds a run's epochs, as an event file would have them.
#[derive(Debug)]
pub(crate) struct Recorder {
    keep: Keep,
    epochs: Vec<EpochRecord>,
}

impl Recorder {
    pub(crate) fn new(keep: Keep) -> Self {
        Self { keep, epochs: Vec::new() }
    }

    /// The run that is over.
    pub(crate) fn recording(self, header: Header, result: &RunResult) -> Recording {
        let run = Some(without_epochs(result));
        Recording { header, epochs: self.epochs, run, cut_line: None }
    }
}

impl Observer for Recorder {
    fn phase(&mut self, _: &str) {}
    fn batch(&mut self, _: Progress) {}
    fn note(&mut self, _: &str) {}

    fn end(&mut self, ended: Ended<'_>) {
        self.epochs.push(record(&ended, self.keep));
    }
}

fn record(ended: &Ended<'_>, keep: Keep) -> EpochRecord {
    let Ended { result, log, usage, .. } = ended;
    let begun = EpochRecord {
        figures: Some((*result).clone()),
        ..EpochRecord::new(result.epoch, &result.strategy, result.batches)
    };
    match keep {
        Keep::Figures => begun,
        Keep::Moments => EpochRecord {
            moments: log.entries().to_vec(),
            moments_cut: log.cut(),
            looks: usage.to_vec(),
            ..begun
        },
    }
}

/// The result without its epochs, which have lines of their own.
pub(crate) fn without_epochs(result: &RunResult) -> RunResult {
    RunResult { epochs: Vec::new(), ..result.clone() }
}

/// The sentences under the table.
pub(crate) fn verdict(result: &RunResult) -> Vec<String> {
    let epochs = &result.epochs;
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
