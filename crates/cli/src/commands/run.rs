//! `bothends run`: flags into a configuration, and the result to where it was asked for.

use std::ffi::OsStr;
use std::path::Path;

use bothends_core::tensor::Output;
use bothends_report::{Header, ReportInput, epoch_remarks, run_remarks};
use bothends_runtime::{
    Damaged, DriveConfig, EpochResult, FetchBounds, Fetches, JobTerms, Loader,
    MemoryBudget, MixedData, MixedSource, RankConfig, ReadConfig, RecordCacheUse,
    Replacement, RunConfig, RunResult, Runtime, RuntimeError, Share, SourceSamples,
    StopRequest, drive, rates_folder, without_secrets,
};

use crate::args::run::{ConsumerArgs, DataArgs, DeviceArgs, HostArgs, RankArgs, RunArgs};
use crate::args::show::ShowArgs;
use crate::failed::{Failed, wrong};
use crate::file::Printed;
use crate::flags::{flag, one_line};
use crate::signals::{Received, Signal};
use crate::typed::{check_has_devices, recipe, seconds, share, workers};
use crate::watch::Watch;
use crate::watch::bar::{Bar, decompressing};
use crate::watch::events::EventFile;
use crate::watch::metrics::MetricsServer;
use crate::watch::otlp::OtlpTrace;
use crate::watch::recorder::{Keep, Recorder, header};
use crate::{energy, file, say, surroundings, typed};

const MIB: usize = 1 << 20;

/// How many in a hundred batches of a device are audited if nothing is said.
const DEFAULT_AUDIT_PERCENT: u8 = 1;

/// Runs epochs as the flags say.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failed> {
    let RunArgs { ranks: RankArgs { rank, world, .. }, show, .. } = args;
    if rank >= world {
        return Err(wrong(format!(
            "--rank {rank} with --world {world}: ranks count from 0"
        )));
    }
    show.report.iter().try_for_each(|path| typed::page("--report", path))?;
    check_places(args)?;
    let how = drive_config(args)?;
    // Other ranks count this one until the run is over.
    let (share, _registration) = share();
    let config = run_config(args, share)?;
    let header = header("bothends run", &config, &how);
    let signals = Received::watch(how.stop.clone())?;
    let mut loader = Loader::over(Runtime::open(config)?);
    say_notes(args, &loader);
    let results = show.json.iter().chain(&show.report).chain(&show.trace);
    for path in results.filter(|path| *path != Path::new("-")) {
        file::check_writable(path)?;
    }
    let metrics = show.metrics.as_deref();
    let metrics = metrics.map(|at| MetricsServer::start(at, *rank, &header.run));
    let otlp = show.trace_otlp.as_deref();
    let otlp = otlp.map(|to| OtlpTrace::start(to, *rank, &header.run));
    let keep = match show.report.is_some() || show.trace.is_some() {
        true => Keep::Moments,
        false => Keep::Figures,
    };
    let mut watch = Watch {
        bar: Bar::new(),
        recorder: Recorder::new(keep),
        events: show
            .events
            .as_deref()
            .map(|path| EventFile::create(path, &header))
            .transpose()?,
        metrics: metrics.transpose()?,
        otlp: otlp.transpose()?,
        signals: Some(signals.clone()),
    };
    let driven = drive(&mut loader, &how, &mut watch);
    watch.bar.clear();
    let (driven, lost) = match driven {
        Err(RuntimeError::Unsaved { result, source }) => (Ok(*result), Some(*source)),
        driven => (driven, None),
    };
    let driven = driven.map(|result| with_origin(result, &header, signals.first()));
    match (driven, signals.first()) {
        (Ok(result), None) => {
            let shown = show_result(args, watch, header, &result);
            end_with([shown.err(), lost.map(Failed::from)].into_iter().flatten())
        }
        // It ends by the signal, whatever could be kept of it.
        (Ok(result), Some(signal)) => {
            let shown = show_result(args, watch, header, &result);
            say_failed(shown.err())?;
            let where_to = match &lost {
                None => stopped(args, &result),
                Some(_) => unsaved(args),
            };
            say_failed(lost.map(Failed::from))?;
            Err(Failed::Stopped { signal, where_to })
        }
        (Err(error @ RuntimeError::Checkpoint { .. }), Some(signal)) => {
            say_failed(Some(error.into()))?;
            Err(Failed::Stopped { signal, where_to: unsaved(args) })
        }
        (Err(error), _) => Err(error.into()),
    }
}

/// What around the run costs it something, and what other ranks must have as well.
fn say_notes(args: &RunArgs, loader: &Loader) {
    let world = args.ranks.world;
    let cache = surroundings::cache(args.host.side_index);
    let ranks = surroundings::ranks(world, |name| std::env::var(name).ok());
    let data_set = surroundings::data_set(world, || loader.data_set());
    for note in [cache, ranks, data_set].into_iter().flatten() {
        say::note(&format!("note: {note}"));
    }
}

/// With what only this command knows: where it ran, and which signal stopped it.
fn with_origin(result: RunResult, header: &Header, signal: Option<Signal>) -> RunResult {
    let Header { date, command, machine, .. } = header.clone();
    let stopped = result.stopped.map(|by| match signal {
        Some(signal) => signal.name().to_owned(),
        None => by,
    });
    RunResult { date, command, machine, stopped, ..result }
}

/// Whether no result is written over another one.
fn check_places(args: &RunArgs) -> Result<(), Failed> {
    let ShowArgs { json, report, trace, trace_otlp, events, .. } = &args.show;
    let named = [
        ("--json", json),
        ("--report", report),
        ("--trace", trace),
        ("--trace-otlp", trace_otlp),
        ("--events", events),
        ("--checkpoint", &args.state.checkpoint),
    ];
    file::check_distinct(&named.map(|(flag, path)| (flag, path.as_deref())))?;
    printed(&args.show).map(drop)
}

/// What goes to standard output.
fn printed(show: &ShowArgs) -> Result<Printed, Failed> {
    let ShowArgs { json, report, trace, .. } = show;
    let named = [("--json", json), ("--report", report), ("--trace", trace)];
    file::printed(&named.map(|(flag, path)| (flag, path.as_deref())))
}

/// Writes the results where they were asked for. One that cannot be written keeps none of the others
/// from being written.
fn show_result(
    args: &RunArgs,
    watch: Watch,
    header: Header,
    result: &RunResult,
) -> Result<(), Failed> {
    let show = &args.show;
    let mut failed = Vec::new();
    let mut keep = |written: Result<(), Failed>| failed.extend(written.err());
    if let Some(path) = &show.json {
        keep(file::write(path, &serde_json::to_string_pretty(result)?));
    }
    if let Some(events) = watch.events {
        keep(events.end(result));
    }
    if let Some(otlp) = watch.otlp {
        keep(otlp.end());
    }
    let recording = watch.recorder.recording(header, result);
    let input = ReportInput::from(&recording);
    if let Some(path) = &show.report {
        keep(file::write(path, &bothends_report::html(&input)));
    }
    if let Some(path) = &show.trace {
        keep(file::write(path, &bothends_report::trace(&recording)?));
    }
    for failure in energy::failures(&result.energy) {
        say::note(&format!("note: {failure}"));
    }
    if printed(show)? == Printed::Table {
        say::text(&bothends_report::table(&input));
        for line in remarks(result) {
            say::text(&line);
        }
        say::text(&energy::line(&result.energy));
    }
    end_with(failed.into_iter())
}

/// Says all but the last of what failed, which is how the command ends.
fn end_with(failed: impl Iterator<Item = Failed>) -> Result<(), Failed> {
    let mut last = None;
    for failed in failed {
        say_failed(last.replace(failed))?;
    }
    last.map_or(Ok(()), Err)
}

/// Says what failed besides that which the command ends with; what makes no sense is passed on.
fn say_failed(failed: Option<Failed>) -> Result<(), Failed> {
    match failed {
        Some(Failed::Run(error)) => say::error(&one_line(&error)),
        Some(failed) => return Err(failed),
        None => {}
    }
    Ok(())
}

/// How far a run came that was stopped, and how to go on.
fn stopped(args: &RunArgs, result: &RunResult) -> String {
    let Some(EpochResult { epoch, batches, .. }) = result.epochs.last() else {
        return "no epoch was begun".to_owned();
    };
    let go_on = match &args.state.checkpoint {
        Some(path) => format!("continue with --resume {}", path.display()),
        None => "without --checkpoint no state was kept".to_owned(),
    };
    let were = if *batches == 1 { "batch of epoch" } else { "batches of epoch" };
    let was = if *batches == 1 { "was" } else { "were" };
    format!("{batches} {were} {epoch} {was} delivered; {go_on}")
}

/// What there is to go on from where the state could not be written.
fn unsaved(args: &RunArgs) -> String {
    match args.state.checkpoint.as_ref().filter(|path| path.is_file()) {
        Some(path) => format!("no state was kept; {} is as it was", path.display()),
        None => "no state was kept".to_owned(),
    }
}

fn run_config(args: &RunArgs, share: Share) -> Result<RunConfig, Failed> {
    let RunArgs { data, host, device, consumer, ranks, .. } = args;
    Ok(RunConfig {
        workers: workers(&host.workers, share)?,
        share,
        read: ReadConfig {
            kind: host.reader,
            side_index: host.side_index,
            page_cache: host.page_cache,
            cache_size: host.cache_size.parse().map_err(wrong)?,
            fetch: fetch(host)?,
            ..ReadConfig::default()
        },
        cache: host.cache.clone(),
        decompressing: decompressing(),
        rates: rates_folder(host.side_index),
        strategy: host.strategy.parse().map_err(wrong)?,
        objective: host.objective.parse().map_err(wrong)?,
        memory: match host.memory {
            Some(mib) => MemoryBudget::Total(mib as usize * MIB),
            None => MemoryBudget::Auto,
        },
        output: output(consumer),
        rank: RankConfig { rank: ranks.rank, world: ranks.world, last: ranks.last },
        names: flag,
        ..with_devices(of_data(data)?, device)?
    })
}

fn fetch(host: &HostArgs) -> Result<FetchBounds, Failed> {
    let requests = host.fetch_requests.map(|n| FetchBounds::requests_of(n.into()));
    let requests = requests.transpose();
    let requests = requests.map_err(|why| wrong(format!("`--fetch-requests`: {why}")))?;
    let reorder_bytes = host.fetch_reorder.as_deref().map(FetchBounds::reorder_of);
    let reorder_bytes = reorder_bytes.transpose();
    let reorder_bytes =
        reorder_bytes.map_err(|why| wrong(format!("`--fetch-reorder`: {why}")))?;
    let patience_s = host.fetch_patience.map(|n| FetchBounds::patience_of(n.into()));
    let patience_s = patience_s.transpose();
    let patience_s =
        patience_s.map_err(|why| wrong(format!("`--fetch-patience`: {why}")))?;
    Ok(FetchBounds { requests, reorder_bytes, patience_s })
}

/// What of a configuration the data's flags say; the rest is the smallest run's.
fn of_data(data: &DataArgs) -> Result<RunConfig, Failed> {
    Ok(RunConfig {
        batch_size: data.batch_size,
        seed: data.seed,
        shuffle: data.shuffle,
        fields: data.fields.clone(),
        limit: data.limit,
        repeat: data.repeat,
        on_bad: data.on_bad.parse().map_err(wrong)?,
        ..over(data)?
    })
}

/// The smallest run over the data set, or over the mix of several.
fn over(data: &DataArgs) -> Result<RunConfig, Failed> {
    let recipe = recipe(&data.recipe)?;
    let named = data.data.iter().map(|text| named(text));
    let named = named.collect::<Result<Vec<_>, _>>()?;
    if let ([path], [None]) = (&data.data[..], &named[..]) {
        if let Some(flag) = of_a_mix(data) {
            return Err(wrong(format!(
                "`{flag}` is about a mix of data sets, and one data set is given; give several, each as \
                 `--data NAME=PATH`, or leave it out"
            )));
        }
        return Ok(RunConfig::new(path.into(), recipe));
    }
    if let Some(nth) = named.iter().position(Option::is_none) {
        return Err(wrong(format!(
            "`--data {}` is one of several and has no name; give NAME=PATH for each",
            without_secrets(&data.data[nth].to_string_lossy())
        )));
    }
    let of_mix = |flag: &str, why: String| wrong(format!("`--mix-{flag}`: {why}"));
    let default = MixedData::new(named.into_iter().flatten().collect());
    let stop = data.mix_stop.as_deref().map(MixedData::stop_of).transpose();
    let labels = data.mix_labels.as_deref().map(MixedData::labels_of).transpose();
    let mix = MixedData {
        stop: stop.map_err(|why| of_mix("stop", why))?.unwrap_or(default.stop),
        replacement: match data.mix_replacement {
            true => Replacement::With,
            false => Replacement::Without,
        },
        labels: labels.map_err(|why| of_mix("labels", why))?.unwrap_or(default.labels),
        ..default
    };
    Ok(RunConfig::mixed(mix, recipe))
}

/// The first flag given that means something only for a mix.
fn of_a_mix(data: &DataArgs) -> Option<&'static str> {
    let given = [
        ("--mix-stop", data.mix_stop.is_some()),
        ("--mix-replacement", data.mix_replacement),
        ("--mix-labels", data.mix_labels.is_some()),
    ];
    given.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
}

/// A data set with a name, and with a weight after its path; `None` for a path alone. What is there
/// as it stands is a path.
fn named(text: &OsStr) -> Result<Option<MixedSource>, Failed> {
    let is_of_name = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let is_name = |name: &str| !name.is_empty() && name.chars().all(is_of_name);
    let named = text.to_str().and_then(|text| text.split_once('='));
    let named = named.filter(|(name, _)| is_name(name) && !Path::new(text).exists());
    let Some((name, rest)) = named else { return Ok(None) };
    let (path, weight) = match rest.rsplit_once(",weight=") {
        Some((path, weight)) => {
            let number = weight.parse().map_err(|_| {
                wrong(format!("`--data {name}=…`: the weight `{weight}` is not a number"))
            });
            (path, number?)
        }
        None => (rest, 1.0),
    };
    Ok(Some(MixedSource { name: name.to_owned(), data: path.into(), weight }))
}

fn with_devices(config: RunConfig, device: &DeviceArgs) -> Result<RunConfig, Failed> {
    check_has_devices(&device.csd, of_devices(device))?;
    let devices = device.csd.iter().map(|spec| spec.parse());
    let audit_percent = device.audit.as_deref().map(percent).transpose()?;
    Ok(RunConfig {
        devices: devices.collect::<Result<_, _>>()?,
        require_devices: device.require_devices,
        audit_percent: audit_percent.unwrap_or(DEFAULT_AUDIT_PERCENT),
        job: JobTerms::given(device.job.clone(), device.priority, device.share)
            .map_err(wrong)?,
        ..device.security.applied(config)
    })
}

/// The first flag given that does nothing in a run of the host alone.
fn of_devices(device: &DeviceArgs) -> Option<&'static str> {
    let given = [
        ("--require-devices", device.require_devices),
        ("--audit", device.audit.is_some()),
    ];
    let given = given.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag));
    given.or_else(|| device.security.given())
}

fn output(consumer: &ConsumerArgs) -> Output {
    Output { dtype: consumer.output, layout: consumer.layout }
}

fn drive_config(args: &RunArgs) -> Result<DriveConfig, Failed> {
    let measure = args.device.measure_alone;
    Ok(DriveConfig {
        epochs: args.data.epochs,
        compare: Vec::new(),
        accelerator: args.consumer.accelerator.parse().map_err(wrong)?,
        digest: args.show.digest,
        stop_after: args.state.stop_after,
        checkpoint: args.state.checkpoint.clone(),
        checkpoint_every: args.state.checkpoint_every,
        resume: args.state.resume.clone(),
        measure: measure.map(|s| seconds("--measure-alone", s)).transpose()?,
        energy: energy::config(&args.energy)?,
        stop: StopRequest::default(),
    })
}

fn percent(text: &str) -> Result<u8, Failed> {
    let number =
        text.strip_suffix('%').unwrap_or(text).parse().ok().filter(|n| *n <= 100);
    number.ok_or_else(|| {
        wrong(format!("`--audit {text}`: give a percentage from 0% to 100%"))
    })
}

/// Damaged samples that are named on the terminal; the JSON names more.
const DAMAGED_NAMED: usize = 10;

/// What was found to be damaged, each sample once for the whole run.
fn damaged_lines(result: &RunResult) -> Vec<String> {
    let Damaged { samples, named } = &result.damaged;
    if *samples == 0 {
        return Vec::new();
    }
    let n_delivered: u64 = result.epochs.iter().map(|epoch| epoch.samples).sum();
    let (samples_are, were) = match samples {
        1 => ("sample is", "was"),
        _ => ("samples are", "were"),
    };
    let mut lines = vec![format!(
        "{samples} {samples_are} damaged and {were} decoded as Pillow decodes them \
         ({n_delivered} samples delivered):"
    )];
    let named = named.iter().take(DAMAGED_NAMED);
    lines.extend(
        named.map(|it| format!("  sample {} ({}): {}", it.sample, it.file, it.what)),
    );
    let n_left = samples.saturating_sub(lines.len() as u64 - 1);
    if n_left > 0 {
        lines.push(format!("  and {n_left} more; `--json FILE` names up to 1,000"));
    }
    lines
}

/// What audits of devices came to.
fn audit_line(epoch: &EpochResult) -> Option<String> {
    let EpochResult { epoch: n, audited, audit_samples, audit_differences, .. } = epoch;
    (*audited > 0).then(|| {
        format!(
            "epoch {n}: audited {audited} device batches: {audit_samples} samples compared, \
             {audit_differences} different"
        )
    })
}

/// What a table cannot say: digests, losses, audits, bad and damaged samples.
fn remarks(result: &RunResult) -> Vec<String> {
    let mut lines = Vec::new();
    for epoch in &result.epochs {
        let n = epoch.epoch;
        if let (Some(stream), Some(content)) =
            (&epoch.stream_digest, &epoch.content_digest)
        {
            lines.push(format!("epoch {n}: stream {stream} content {content}"));
        }
        for device in &epoch.back {
            let kind = if device.emulated { "emulated device" } else { "device" };
            let (late, lost, wasted) = (device.late, device.lost, device.wasted);
            if late + lost + wasted > 0 || device.failure.is_some() {
                let why = device.failure.as_deref().unwrap_or("no failure reported");
                lines.push(format!(
                    "epoch {n}: {kind} {}: {late} late, {lost} lost, {wasted} wasted; {why}",
                    device.device
                ));
            }
        }
        lines.extend(epoch_remarks(epoch));
        lines.extend(audit_line(epoch));
        if !epoch.sources.is_empty() {
            let of = |it: &SourceSamples| format!("{} {}", it.name, it.samples);
            let of: Vec<String> = epoch.sources.iter().map(of).collect();
            lines.push(format!("epoch {n}: samples by data set: {}", of.join(", ")));
        }
        for bad in &epoch.skipped {
            lines.push(format!(
                "epoch {n}: sample {} ({}) {}: {}",
                bad.sample, bad.file, bad.policy, bad.why
            ));
        }
    }
    lines.extend(run_remarks(result));
    lines.extend(damaged_lines(result));
    lines.extend(result.fetches.as_ref().map(fetch_line));
    lines.extend(result.record_cache.as_ref().map(cache_line));
    // Names of files may have several lines, and one of them might look like an error of ours.
    lines.iter().map(|line| line.replace(char::is_control, " ")).collect()
}

/// What the cache of fetched records saved, and why nothing more is added to it.
fn cache_line(cache: &RecordCacheUse) -> String {
    let RecordCacheUse { hits, saved_bytes, kept, damaged, .. } = cache;
    let off = cache.off.as_ref().map_or_else(String::new, |why| format!("; {why}"));
    format!(
        "record cache: {hits} records ({saved_bytes} bytes) read from it, {kept} added, \
         {damaged} damaged and fetched again{off}"
    )
}

/// What was fetched from a remote store, and what held it up.
fn fetch_line(fetches: &Fetches) -> String {
    let Fetches { requests, bytes, hedged, retried, throttled, timed_out, .. } = *fetches;
    let waits = fetches.waits.by_cause();
    let waits: Vec<String> = waits
        .into_iter()
        .filter(|(_, seconds)| *seconds >= 0.05)
        .map(|(cause, seconds)| format!("{cause} {seconds:.1} s"))
        .collect();
    let waits = match waits.is_empty() {
        true => String::new(),
        false => format!("; nothing more could be requested for: {}", waits.join(", ")),
    };
    format!(
        "fetched {bytes} bytes in {requests} requests: {hedged} hedged, {retried} retried, \
         {throttled} throttled, {timed_out} timed out{waits}"
    )
}

#[cfg(test)]
mod tests {
    use bothends_runtime::DamagedSample;
    use serde_json::json;

    use super::*;
    use crate::args::{Args, Command};

    fn result(damaged: Damaged) -> RunResult {
        let epoch = json!({
            "epoch": 1, "strategy": "csd", "samples": 128, "batches": 16, "seconds": 1.0,
            "images_per_s": 128.0, "front": {"batches": 0}, "back": [], "rescued": 0,
            "audited": 3, "audit_samples": 24, "audit_differences": 1, "accelerator": {"stall_by": {}},
        });
        let result = json!({
            "epochs": [epoch], "memory": {}, "energy": {"domains": []}, "alone": {},
            "damaged": damaged,
        });
        serde_json::from_value(result).unwrap()
    }

    /// What `bothends run` says of flags that make no sense.
    fn refusal(more: &[&str]) -> String {
        use clap::Parser as _;
        let line = ["bothends", "run", "--recipe", "imagenet-eval", "--data", "/d"];
        let args = Args::try_parse_from(line.iter().chain(more)).unwrap();
        let Command::Run(args) = args.command else { panic!("it is a run") };
        let (share, _) = share();
        let checked =
            check_places(&args).and_then(|()| run_config(&args, share).map(drop));
        let Err(Failed::Arguments(why)) = checked else { panic!("{more:?} is refused") };
        why
    }

    #[test]
    fn flags_that_would_do_nothing_are_refused() {
        for flag in [
            &["--mix-stop", "all"][..],
            &["--mix-replacement"],
            &["--mix-labels", "keep"],
        ] {
            let why = refusal(flag);
            assert!(why.starts_with(&format!("`{}` is about a mix", flag[0])), "{why}");
        }
        for flag in [
            &["--require-devices"][..],
            &["--audit", "5%"],
            &["--key-file", "key"],
            &["--insecure"],
        ] {
            let why = refusal(flag);
            assert!(why.starts_with(&format!("`{}` is about devices", flag[0])), "{why}");
        }
    }

    #[test]
    fn no_two_results_go_to_one_file() {
        let flags =
            ["--json", "--report", "--trace", "--trace-otlp", "--events", "--checkpoint"];
        for (nth, first) in flags.iter().enumerate() {
            for second in &flags[nth + 1..] {
                let why = refusal(&[second, "./one", first, "one"]);
                let named = format!("`{first} one` and `{second} ./one` are one file");
                assert!(why.starts_with(&named), "{why}");
            }
        }
    }

    #[test]
    fn no_two_results_go_to_standard_output() {
        for (first, second) in
            [("--json", "--report"), ("--json", "--trace"), ("--report", "--trace")]
        {
            let why = refusal(&[second, "-", first, "-"]);
            let named = format!("`{first} -` and `{second} -` would both");
            assert!(why.starts_with(&named), "{why}");
        }
    }

    #[test]
    fn a_data_set_has_a_name_and_a_weight_or_is_a_path() {
        let parse = |text: &str| {
            let found = named(OsStr::new(text)).map_err(|_| ())?;
            Ok(found.map(|it| (it.name, it.data.display().to_string(), it.weight)))
        };
        let of = |name: &str, data: &str, weight| {
            Ok(Some((name.to_owned(), data.to_owned(), weight)))
        };
        assert_eq!(parse("a=/x,weight=2"), of("a", "/x", 2.0));
        assert_eq!(parse("b.1=s3://y?z=1,weight=0.5"), of("b.1", "s3://y?z=1", 0.5));
        assert_eq!(parse("a=/x,y"), of("a", "/x,y", 1.0));
        for path in ["/x", "./a=b", "s3://b/x=y", "=x", "/x,weight=2"] {
            assert_eq!(parse(path), Ok(None), "{path}");
        }
        assert_eq!(parse("a=/x,weight=two"), Err(()));
    }

    #[test]
    fn samples_of_a_mix_are_told_by_data_set() {
        let mut result = result(Damaged::default());
        let of = |name: &str, samples| SourceSamples { name: name.to_owned(), samples };
        result.epochs[0].sources = vec![of("a", 4), of("b", 2)];
        let lines = remarks(&result);
        let line = "epoch 1: samples by data set: a 4, b 2".to_owned();
        assert!(lines.contains(&line), "{lines:?}");
    }

    #[test]
    fn audits_and_damaged_samples_are_remarked_upon() {
        let named = (0..11).map(|sample| DamagedSample {
            sample,
            file: format!("{sample}.jpg"),
            what: "JPEG: stray bytes".to_owned(),
        });
        let lines = remarks(&result(Damaged { samples: 12, named: named.collect() }));
        assert_eq!(
            lines[..3],
            [
                "epoch 1: audited 3 device batches: 24 samples compared, 1 different",
                "12 samples are damaged and were decoded as Pillow decodes them (128 samples \
                 delivered):",
                "  sample 0 (0.jpg): JPEG: stray bytes",
            ]
        );
        assert_eq!(lines.len(), 13);
        assert_eq!(lines[12], "  and 2 more; `--json FILE` names up to 1,000");
        assert_eq!(remarks(&result(Damaged::default())).len(), 1);
    }
}
