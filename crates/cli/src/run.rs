//! `bothends run`: flags into a configuration, and the result to where it was asked for.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use bothends_core::one_line;
use bothends_core::plan::{LastPolicy, Shuffle};
use bothends_core::recipe::Recipe;
use bothends_core::tensor::{Dtype, Layout, Output};
use bothends_report::ReportInput;
use bothends_runtime::{
    Digesting, DriveConfig, Loader, MemoryBudget, PageCacheUse, RankConfig, ReadConfig,
    ReaderKind, RunConfig, RunResult, Runtime, SideIndexUse, drive,
};

use crate::Failed;
use crate::args::{
    LastArg, LayoutArg, OutputArg, PageCacheArg, ReaderArg, RunArgs, ShuffleArg,
    SideIndexArg,
};
use crate::events::EventFile;
use crate::metrics::MetricsServer;
use crate::picture::{Keep, Recorder};
use crate::progress::Bar;
use crate::watch::Watch;
use crate::{energy, file, picture, say};

const MIB: usize = 1 << 20;

/// Most bytes of a recipe file: far more than one with the most ops has.
const MOST_RECIPE_BYTES: u64 = 1 << 20;

/// Runs epochs as the flags say.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failed> {
    let RunArgs { rank, world, show, .. } = args;
    if rank >= world {
        return Err(wrong(format!(
            "--rank {rank} with --world {world}: ranks count from 0"
        )));
    }
    let config = run_config(args)?;
    let how = drive_config(args)?;
    let header = picture::header("bothends run", &config, &how);
    let mut loader = Loader::over(Runtime::open(config)?);
    let pages = show.report.iter().chain(&show.trace);
    for path in pages.filter(|path| *path != Path::new("-")) {
        file::check_writable(path)?;
    }
    let metrics = show.metrics.as_deref().map(MetricsServer::start).transpose()?;
    let keep = match (&show.report, &show.trace) {
        (None, None) => Keep::Figures,
        (Some(_), _) | (_, Some(_)) => Keep::Moments,
    };
    let mut watch = Watch {
        bar: Bar::new(),
        recorder: Recorder::new(keep),
        events: show
            .events
            .as_deref()
            .map(|path| EventFile::create(path, &header))
            .transpose()?,
        metrics,
    };
    let result = drive(&mut loader, &how, &mut watch);
    watch.bar.clear();
    let result = result?;
    if let Some(path) = &show.json {
        write(path, &serde_json::to_string_pretty(&result)?)?;
    }
    if let Some(events) = watch.events {
        events.end(&result)?;
    }
    let recording = watch.recorder.recording(header, &result);
    let input = ReportInput::from(&recording);
    if let Some(path) = &show.report {
        write(path, &bothends_report::html(&input))?;
    }
    if let Some(path) = &show.trace {
        write(path, &bothends_report::trace(&recording)?)?;
    }
    if show.json.as_deref() != Some(Path::new("-")) {
        say::line(&bothends_report::table(&input));
        for line in remarks(&result) {
            say::line(&line);
        }
        say::line(&energy::line(&result.energy));
    }
    Ok(())
}

/// What a wrong argument says, with status 2.
pub(crate) fn wrong(error: impl std::fmt::Display) -> Failed {
    Failed::Arguments(error.to_string())
}

fn run_config(args: &RunArgs) -> Result<RunConfig, Failed> {
    let devices = args.csd.iter().map(|spec| spec.parse().map_err(wrong));
    let dtype = match args.output {
        OutputArg::U8 => Dtype::U8,
        OutputArg::F32 => Dtype::F32,
        OutputArg::F16 => Dtype::F16,
        OutputArg::Bf16 => Dtype::Bf16,
    };
    let layout = match args.layout {
        LayoutArg::Nhwc => Layout::Nhwc,
        LayoutArg::Nchw => Layout::Nchw,
    };
    Ok(RunConfig {
        supplied: None,
        redecoder: None,
        data: args.data.clone(),
        recipe: recipe(&args.recipe)?,
        batch_size: args.batch_size,
        seed: args.seed,
        shuffle: match args.shuffle {
            ShuffleArg::None => Shuffle::None,
            ShuffleArg::Full => Shuffle::Full,
        },
        limit: args.limit,
        repeat: args.repeat,
        workers: workers(&args.workers)?,
        read: ReadConfig {
            kind: reader(args.reader),
            side_index: side_index(args.side_index),
            page_cache: page_cache(args.page_cache),
            ..ReadConfig::default()
        },
        devices: devices.collect::<Result<_, _>>()?,
        key_file: args.key_file.clone(),
        strategy: args.strategy.parse().map_err(wrong)?,
        objective: args.objective.parse().map_err(wrong)?,
        output: Output { dtype, layout },
        rank: RankConfig { rank: args.rank, world: args.world, last: last(args.last) },
        on_bad: args.on_bad.parse().map_err(wrong)?,
        audit_percent: percent(&args.audit)?,
        memory: match args.memory {
            Some(mib) => MemoryBudget::Total(mib as usize * MIB),
            None => MemoryBudget::Slots(160 * MIB),
        },
        held_batches: 1,
    })
}

fn drive_config(args: &RunArgs) -> Result<DriveConfig, Failed> {
    Ok(DriveConfig {
        epochs: args.epochs,
        compare: Vec::new(),
        accelerator: args.accelerator.parse().map_err(wrong)?,
        digest: if args.show.digest { Digesting::On } else { Digesting::Off },
        stop_after: args.state.stop_after,
        checkpoint: args.state.checkpoint.clone(),
        resume: args.state.resume.clone(),
        measure: args.measure_alone.map(|s| seconds("--measure-alone", s)).transpose()?,
        energy: args.energy.config()?,
    })
}

/// A number of seconds that a flag was given.
pub(crate) fn seconds(flag: &str, value: f64) -> Result<Duration, Failed> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| wrong(format!("`{flag}` wants a number of seconds from 0")))
}

/// A built-in recipe by name, else a file.
pub(crate) fn recipe(text: &str) -> Result<Recipe, Failed> {
    if let Some(recipe) = Recipe::builtin(text) {
        return Ok(recipe);
    }
    let json = file::read(Path::new(text), MOST_RECIPE_BYTES);
    let json = json.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
    let json = json.map_err(|e| {
        let names: Vec<_> = Recipe::builtin_names().collect();
        wrong(format!(
            "`{text}` is neither a built-in recipe ({}) nor a file that can be read ({e})",
            names.join(", ")
        ))
    })?;
    Recipe::from_json(&json)
        .map_err(|e| wrong(format!("recipe {text}: {}", one_line(&e))))
}

pub(crate) fn workers(text: &str) -> Result<u32, Failed> {
    if text == "auto" {
        let cores =
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        return Ok(u32::try_from(cores).unwrap_or(u32::MAX));
    }
    let number = text.parse().ok().filter(|n| (1..=4096).contains(n));
    number.ok_or_else(|| {
        wrong(format!("`--workers {text}`: give a number from 1, or auto"))
    })
}

fn percent(text: &str) -> Result<u8, Failed> {
    let number =
        text.strip_suffix('%').unwrap_or(text).parse().ok().filter(|n| *n <= 100);
    number.ok_or_else(|| {
        wrong(format!("`--audit {text}`: give a percentage from 0% to 100%"))
    })
}

fn reader(arg: ReaderArg) -> ReaderKind {
    match arg {
        ReaderArg::Auto => ReaderKind::Auto,
        ReaderArg::Uring => ReaderKind::Uring,
        ReaderArg::Pread => ReaderKind::Pread,
    }
}

pub(crate) fn side_index(arg: SideIndexArg) -> SideIndexUse {
    match arg {
        SideIndexArg::Auto => SideIndexUse::Auto,
        SideIndexArg::Beside => SideIndexUse::Beside,
        SideIndexArg::Off => SideIndexUse::Off,
    }
}

pub(crate) fn page_cache(arg: PageCacheArg) -> PageCacheUse {
    match arg {
        PageCacheArg::Auto => PageCacheUse::Auto,
        PageCacheArg::Through => PageCacheUse::Through,
        PageCacheArg::Past => PageCacheUse::Past,
    }
}

fn last(arg: LastArg) -> LastPolicy {
    match arg {
        LastArg::Drop => LastPolicy::Drop,
        LastArg::Pad => LastPolicy::Pad,
        LastArg::Wrap => LastPolicy::Wrap,
        LastArg::Even => LastPolicy::Even,
    }
}

/// Writes a result; `-` is standard output.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failed> {
    if path == Path::new("-") {
        say::line(text);
        return Ok(());
    }
    fs::write(path, text).map_err(|e| cannot_write(path, &e))
}

pub(crate) fn cannot_write(path: &Path, error: &io::Error) -> Failed {
    Failed::Run(anyhow::anyhow!(
        "cannot write {}: {error}",
        PathBuf::from(path).display()
    ))
}

/// What a table cannot say: digests, losses, bad samples.
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
        for bad in &epoch.skipped {
            lines.push(format!(
                "epoch {n}: sample {} ({}) {}: {}",
                bad.sample, bad.file, bad.policy, bad.why
            ));
        }
    }
    lines
}
