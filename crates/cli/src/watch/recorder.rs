//! From a run's result to what is recorded of it, and so to what the report draws.

use super::date::now;
use bothends_report::{EpochRecord, FORMAT, Header, Recording};
use bothends_runtime::{
    DriveConfig, Ended, Machine, Observer, RunConfig, RunResult, run_id, settings,
};

use crate::args::typed;

/// What is known of a run before it begins.
pub(crate) fn header(title: &str, config: &RunConfig, how: &DriveConfig) -> Header {
    Header {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        run: run_id().as_str().to_owned(),
        title: title.to_owned(),
        note: String::new(),
        generated_images: false,
        machine: Machine::summary_here(),
        command: typed().to_owned(),
        date: now(),
        config: settings(config, how),
    }
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
    fn end(&mut self, ended: Ended<'_>) {
        self.epochs.push(record(&ended, self.keep));
    }
}

/// An epoch that is over, with what is to be kept of it.
pub(crate) fn record(ended: &Ended<'_>, keep: Keep) -> EpochRecord {
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
