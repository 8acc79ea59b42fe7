//! Converts a recording to the input of a report: names and units change, figures do not.
//!
//! Both the page of a run and the page that is later made from its event file use this, so they are the
//! same.

use bothends_figures::{Audits, Damaged, EpochResult, Moment, RunResult, What};

use crate::record::{EpochRecord, Recording, epoch_remarks, run_remarks};
use crate::{Alone, Emulated, Event, Prong, ReportInput, StrategyRun, series};

/// Up to this many batches, the plots of prongs draw every one; of more, every second, third, …
const MOST_DRAWN: usize = 12_000;

impl From<&Recording> for ReportInput {
    fn from(recording: &Recording) -> Self {
        let header = &recording.header;
        let rate_of_accelerator = header.config.accelerator_images_per_s;
        let run = recording.run.as_ref();
        let drawn = Drawn::of(recording);
        Self {
            title: header.title.clone(),
            note: header.note.clone(),
            gaps: gaps(recording, drawn),
            emulated: emulated(recording, rate_of_accelerator),
            machine: header.machine.clone(),
            command: header.command.clone(),
            date: header.date.clone(),
            version: header.version.clone(),
            config: header.config.by_name(),
            alone: run.and_then(|run| alone(run, recording)),
            energy: run.map(|run| run.energy.clone()).unwrap_or_default(),
            damaged: damaged(recording),
            fetches: recording.run.as_ref().and_then(|run| run.fetches),
            runs: recording
                .epochs
                .iter()
                .map(|e| strategy_run(e, recording, drawn))
                .collect(),
        }
    }
}

/// The run's damaged samples; of one that did not end, those of the epoch with the most.
fn damaged(recording: &Recording) -> Damaged {
    if let Some(run) = &recording.run {
        return run.damaged.clone();
    }
    let epochs = recording.epochs.iter().filter_map(|epoch| epoch.figures.as_ref());
    let most = epochs.map(|figures| &figures.damaged).max_by_key(|it| it.samples);
    most.cloned().unwrap_or_default()
}

fn audits(figures: &EpochResult) -> Audits {
    Audits {
        batches: figures.audited,
        samples: figures.audit_samples,
        differences: figures.audit_differences,
        seconds: figures.audit_s,
    }
}

/// The rate of each prong by itself, and that of the accelerator; `None` unless every prong was measured.
fn alone(run: &RunResult, recording: &Recording) -> Option<Alone> {
    let config = &recording.header.config;
    let mut epochs = recording.epochs.iter().filter_map(|epoch| epoch.figures.as_ref());
    let has_devices = !config.csd.is_empty() || epochs.any(|e| !e.back.is_empty());
    let back_images_per_s = match has_devices {
        true => Some(run.alone.back_images_per_s?),
        false => None,
    };
    Some(Alone {
        front_images_per_s: run.alone.front_images_per_s?,
        back_images_per_s,
        accelerator_images_per_s: config.accelerator_images_per_s,
    })
}

/// What a page draws in the same way for all its epochs.
#[derive(Debug, Clone, Copy)]
struct Drawn {
    interval_s: f64,
    /// The events of every n-th batch are drawn.
    every: u32,
}

impl Drawn {
    fn of(recording: &Recording) -> Self {
        let n_delivered = |epoch: &EpochRecord| {
            epoch.moments.iter().filter(|m| m.what == What::Delivered).count()
        };
        let counts: Vec<usize> = recording.epochs.iter().map(n_delivered).collect();
        let longest_s =
            recording.epochs.iter().map(EpochRecord::seconds).fold(0.0, f64::max);
        let most = counts.iter().copied().max().unwrap_or(0);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let every = counts.iter().sum::<usize>().div_ceil(MOST_DRAWN).max(1);
        Self {
            interval_s: series::interval_s(longest_s, most),
            every: u32::try_from(every).unwrap_or(u32::MAX),
        }
    }
}

/// What is known to be modelled, from the devices and from the settings of the run.
fn emulated(recording: &Recording, rate_of_accelerator: Option<f64>) -> Vec<Emulated> {
    let figures = || recording.epochs.iter().filter_map(|epoch| epoch.figures.as_ref());
    let mut specs = recording.header.config.csd.iter();
    let device = specs.any(|spec| spec.starts_with("sim:"))
        || figures().flat_map(|f| &f.back).any(|device| device.emulated);
    let accelerator = rate_of_accelerator.is_some()
        || figures().any(|f| f.accelerator.utilisation.is_some());
    [
        (Emulated::Device, device),
        (Emulated::Accelerator, accelerator),
        (Emulated::Images, recording.header.generated_images),
    ]
    .into_iter()
    .filter_map(|(part, is)| is.then_some(part))
    .collect()
}

/// What is missing from the record, and what its figures must not be taken for.
fn gaps(recording: &Recording, drawn: Drawn) -> Vec<String> {
    let figures = recording.epochs.iter().filter_map(|epoch| epoch.figures.as_ref());
    let of_run = recording.run.iter().flat_map(run_remarks);
    let remarks = of_run.chain(figures.flat_map(epoch_remarks));
    let mut gaps: Vec<String> = remarks.map(|line| sentence(&line)).collect();
    let n_whole = recording.epochs.iter().filter(|epoch| epoch.figures.is_some()).count();
    if recording.run.is_none() {
        let mut gap = format!(
            "This run did not finish: its record stops after {n_whole} complete epochs, so there \
            are no figures for the whole run, and no energy."
        );
        if let Some(open) = recording.epochs.iter().find(|epoch| epoch.figures.is_none())
        {
            let n = open.moments.iter().filter(|m| m.what == What::Delivered).count();
            gap += &format!(
                " Epoch {} has {n} of {} batches; its rate counts full batches up to the last \
                recorded moment.",
                open.epoch, open.n_batches
            );
        }
        if let Some(line) = recording.cut_line {
            gap += &format!(" Line {line} of its file is cut off.");
        }
        gaps.push(gap);
    }
    for epoch in recording.epochs.iter().filter(|epoch| epoch.moments_cut > 0) {
        gaps.push(format!(
            "For epoch {}, the first {} moments were kept and {} later ones were not: its charts \
            end early.",
            epoch.epoch,
            epoch.moments.len(),
            epoch.moments_cut
        ));
    }
    if drawn.every > 1 {
        gaps.push(format!("One of every {} batches is drawn as dots.", drawn.every));
    }
    gaps
}

/// A remark as a sentence.
fn sentence(line: &str) -> String {
    let mut rest = line.chars();
    let first = rest.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(rest).chain(['.']).collect()
}

fn strategy_run(epoch: &EpochRecord, recording: &Recording, drawn: Drawn) -> StrategyRun {
    let figures = epoch.figures.as_ref();
    let seconds = epoch.seconds();
    let full = recording.header.config.batch_size;
    let images_a_batch = match figures {
        #[expect(clippy::cast_precision_loss, reason = "a mean; 2^53 is beyond any run")]
        Some(f) => f.samples as f64 / f64::from(f.batches.max(1)),
        None => full.map_or(f64::NAN, f64::from),
    };
    let count = |of: &dyn Fn(&&Moment) -> bool| epoch.moments.iter().filter(of).count();
    let delivered = |by_device: bool| {
        count(&|m| m.what == What::Delivered && m.device.is_some() == by_device) as u64
    };
    let rescued = || count(&|m| m.what == What::Rescued) as u64;
    let front_batches =
        figures.map_or_else(|| delivered(false), |f| f.front.batches.into());
    let back_batches = figures.map_or_else(
        || delivered(true),
        |f| f.back.iter().map(|device| u64::from(device.batches)).sum(),
    );
    let images_per_s = match figures {
        Some(figures) => figures.images_per_s,
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        None => (front_batches + back_batches) as f64 * images_a_batch / seconds,
    };
    let peak_of_run = recording.run.as_ref().and_then(|run| run.memory.peak_rss_bytes);
    let digest = |digest: Option<&String>| digest.cloned().unwrap_or_default();
    StrategyRun {
        strategy: epoch.strategy.clone(),
        epoch: epoch.epoch,
        samples: figures.map_or(0, |f| f.samples),
        seconds,
        images_per_s: if images_per_s.is_finite() { images_per_s } else { 0.0 },
        utilisation: figures.and_then(|f| f.accelerator.utilisation),
        busy_s: figures.map(|f| f.accelerator.busy_s),
        stall_s: figures.map(|f| f.accelerator.stall_s),
        idle_s: figures.map(|f| f.accelerator.idle_s),
        first_batch_s: figures.map(|f| f.first_batch_s),
        front_batches,
        back_batches,
        efficiency: figures.and_then(|f| f.efficiency),
        cpu_ms_per_image: figures.and_then(|f| f.cpu_ms_per_image),
        peak_rss_bytes: figures.and_then(|f| f.peak_rss_bytes).or(peak_of_run),
        rescued: figures.map_or_else(rescued, |f| f.rescued.into()),
        audits: figures.map(audits).unwrap_or_default(),
        sources: figures.map(|figures| figures.sources.clone()).unwrap_or_default(),
        stream_digest: digest(figures.and_then(|f| f.stream_digest.as_ref())),
        content_digest: digest(figures.and_then(|f| f.content_digest.as_ref())),
        stall: figures.map(|f| f.accelerator.stall_by),
        energy: figures.and_then(|f| f.energy.clone()),
        events: epoch
            .moments
            .iter()
            .filter_map(|m| event(m, &epoch.strategy, drawn))
            .collect(),
        rate: series::rate(&epoch.moments, seconds, drawn.interval_s, images_a_batch),
        waiting: series::waiting(&epoch.moments, seconds),
        cores: series::cores(&epoch.looks),
        memory: series::memory(&epoch.looks),
    }
}

/// An event that is drawn; claims are drawn only for `ordered`.
fn event(moment: &Moment, strategy: &str, drawn: Drawn) -> Option<Event> {
    let Moment { t_s, batch, device, what: kind } = *moment;
    let prong = if device.is_some() { Prong::Back } else { Prong::Front };
    let is_drawn = match kind {
        What::Claimed => strategy == "ordered",
        What::Lost => false,
        What::Made | What::Rescued | What::Delivered => true,
    };
    let is_drawn = is_drawn && batch.is_multiple_of(drawn.every);
    is_drawn.then_some(Event { t_s, batch, prong, kind })
}

#[cfg(test)]
mod tests {
    use bothends_figures::Energy;

    use super::*;
    use crate::{example, html};

    #[test]
    fn the_page_of_a_file_is_the_page_of_the_run() {
        let of_run = ReportInput::from(&example::recording());
        let read = Recording::read(&mut example::lines().as_bytes()).unwrap();
        assert_eq!(html(&ReportInput::from(&read)), html(&of_run));
        assert_eq!(of_run.emulated.len(), 3);
        assert!(of_run.gaps.is_empty(), "{:?}", of_run.gaps);
    }

    #[test]
    fn a_run_that_was_killed_still_makes_a_page_that_says_so() {
        let whole = example::lines();
        let at = whole.rfind("\"moment\"").unwrap();
        let read = Recording::read(&mut &whole.as_bytes()[..at]).unwrap();
        let input = ReportInput::from(&read);
        let page = html(&input);
        assert!(page.contains("This run did not finish"), "{:?}", input.gaps);
        assert!(page.contains("is cut off") && page.ends_with("</html>\n"));
        // Unknown figures are left out.
        let open = input.runs.last().unwrap();
        assert_eq!(
            (open.stall, open.utilisation, open.cpu_ms_per_image),
            (None, None, None)
        );
        assert!(open.images_per_s > 0.0 && open.seconds > 0.0);
        assert_eq!(input.energy, Energy::default());
        // A device is still emulated, even if no figure says so.
        assert!(input.emulated.contains(&Emulated::Device));
        // Only the header.
        let at = whole.find('\n').unwrap();
        let read = Recording::read(&mut &whole.as_bytes()[..=at]).unwrap();
        assert!(html(&ReportInput::from(&read)).contains("after 0 complete epochs"));
    }

    /// Both the page's words and its JSON: who reads one of them must learn it.
    #[test]
    fn the_page_says_what_figures_must_not_be_taken_for() {
        let mut recording = example::recording();
        let epoch = recording.epochs[1].figures.as_mut().unwrap();
        epoch.stopped_at = Some(22);
        epoch.back[0].late_completions = Some(7);
        (epoch.back[0].max_lateness_seconds, epoch.back[0].lateness_seconds) =
            (Some(0.4), Some(2.0));
        let stopped = Some("SIGINT".to_owned());
        recording.run = recording.run.map(|run| RunResult { stopped, ..run });
        let page = html(&ReportInput::from(&recording));
        let (words, json) = page.split_once("id=\"data\">").unwrap();
        for said in [
            "The run was stopped by SIGINT before its end.",
            "Epoch 0: it was stopped after 22 batches; its figures and digests are of these alone.",
            "this machine is too slow to emulate it",
        ] {
            assert!(words.contains(said) && json.contains(said), "{said}");
        }
    }

    /// A device whose rate is relative to the host's has the host measured, and itself not: it was said to
    /// make nothing, and the host's rate to be the best possible.
    #[test]
    fn what_a_device_makes_alone_is_not_nothing_where_nobody_measured_it() {
        let mut recording = example::recording();
        recording.run.as_mut().unwrap().alone.back_images_per_s = None;
        assert_eq!(ReportInput::from(&recording).alone, None);
        recording.header.config.csd.clear();
        assert_eq!(ReportInput::from(&recording).alone, None, "the epochs had devices");
        let epochs =
            recording.epochs.iter_mut().filter_map(|epoch| epoch.figures.as_mut());
        epochs.for_each(|figures| figures.back.clear());
        let host = ReportInput::from(&recording).alone.unwrap();
        assert_eq!(host.back_images_per_s, None);
    }

    #[test]
    fn of_very_many_batches_some_are_drawn_with_all_their_moments() {
        let mut recording = example::recording();
        let made = recording.epochs[0].moments.clone();
        recording.epochs[0].moments = (0..30_000_u32)
            .flat_map(|batch| {
                let t_s = f64::from(batch) / 1e4;
                let moment = |what| Moment { t_s, batch, what, ..made[0] };
                [moment(What::Made), moment(What::Delivered)]
            })
            .collect();
        let input = ReportInput::from(&recording);
        assert_eq!(input.runs[0].events.len(), 2 * 10_000);
        assert!(input.gaps[0].starts_with("One of every 3 batches"), "{:?}", input.gaps);
        let images: f64 =
            input.runs[0].rate.iter().map(|s| s.value * (s.to_s - s.from_s)).sum();
        assert!(images > 0.0);
    }
}
