//! `bothends demo`: the whole story on one machine, on images of its own making.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bothends_core::recipe::Recipe;
use bothends_core::select::StrategyConfig;
use bothends_report::{Header, ReportInput};
use bothends_runtime::{
    AccelConfig, DriveConfig, EnergyConfig, Loader, Observer, RunConfig, RunResult,
    Runtime, StopRequest, drive, process,
};
use bothends_samples::GenerateConfig;

use crate::args::DemoArgs;
use crate::failed::{Failed, cannot_write, wrong};
use crate::file::write;
use crate::flags::flag;
use crate::say;
use crate::watch::Watch;
use crate::watch::bar::Bar;
use crate::watch::recorder::{Keep, Recorder, header};

/// How much faster than the host alone the emulated accelerator is: enough that the host
/// alone cannot feed it, and both prongs together nearly can.
const ACCELERATOR_OVER_HOST: f64 = 1.5;

/// What the table's columns mean, for someone who sees it for the first time.
const LEGEND: [&str; 10] = [
    "cpu      the host alone, with the device attached and idle",
    "mte, wrr the two strategies of DDLP (arXiv 2407.00005)",
    "relaxed  whatever is ready first; ordered: always the same stream (the default)",
    "images/s over the whole epoch; × cpu: against the host alone",
    "utilisation  share of the time in which the accelerator had a batch to work on",
    "front, back  batches made by the host's workers, and by the device",
    "η        achieved rate ÷ the best possible: both prongs at their own rates, measured alone",
    "CPU ms/image, peak RSS  of this process; the device is a process of its own",
    "rescued  batches that the host made again because the device was late",
    "",
];

/// Sizes of the demo.
struct Scale {
    images: u32,
    repeat: u32,
    measure: Duration,
}

impl Scale {
    fn of(args: &DemoArgs) -> Self {
        if args.quick {
            Self { images: 200, repeat: 2, measure: Duration::from_secs(1) }
        } else {
            Self { images: 500, repeat: 16, measure: Duration::from_secs(3) }
        }
    }
}

/// Makes images, runs every strategy over the same epoch, prints and writes what came out.
pub(crate) fn demo(args: &DemoArgs) -> Result<(), Failed> {
    fs::create_dir_all(&args.out).map_err(|e| cannot_write(&args.out, &e))?;
    let scale = Scale::of(args);
    let mut bar = Bar::new();
    let data = match &args.data {
        Some(data) => data.clone(),
        None => generate(&args.out, scale.images, &mut bar)?,
    };
    let config = run_config(args, &data, &scale)?;
    learn(&config, &scale, &mut bar)?;
    let accelerator = accelerator(args, &config, &scale, &mut bar)?;
    let how = DriveConfig {
        epochs: 1,
        compare: StrategyConfig::all()
            .into_iter()
            .filter_map(|(name, strategy)| (name != "csd").then_some(strategy))
            .collect(),
        accelerator,
        digest: true,
        stop_after: None,
        checkpoint: None,
        resume: None,
        measure: Some(scale.measure),
        energy: EnergyConfig::default(),
        checkpoint_every: None,
        stop: StopRequest::default(),
    };
    let header = header("Feeding an accelerator from both ends", &config, &how);
    let header = as_demo(header, args.data.as_deref());
    let mut loader = Loader::over(Runtime::open(config)?);
    let recorder = Recorder::new(Keep::Moments);
    let mut watch =
        Watch { bar, recorder, events: None, metrics: None, otlp: None, signals: None };
    let result = drive(&mut loader, &how, &mut watch);
    watch.bar.clear();
    let result = result?;
    let input = ReportInput::from(&watch.recorder.recording(header, &result));
    write(&args.out.join("summary.json"), &serde_json::to_string_pretty(&result)?)?;
    write(&args.out.join("report.html"), &bothends_report::html(&input))?;
    say::text(&bothends_report::table(&input));
    say::text(&LEGEND.join("\n"));
    for line in verdict(&result) {
        say::text(&line);
    }
    say::line(&format!("summary: {}", args.out.join("summary.json").display()));
    say::line(&format!("report:  {}", args.out.join("report.html").display()));
    Ok(())
}

/// The demo's images below `out`, made if they are not there.
pub(crate) fn generate(
    out: &Path,
    n_images: u32,
    bar: &mut Bar,
) -> Result<PathBuf, Failed> {
    let folder = out.join(format!("images-{n_images}"));
    bar.phase(&format!(
        "making {n_images} photograph-like images in {}",
        folder.display()
    ));
    let config = GenerateConfig { n_images, n_classes: 10, seed: 1 };
    bothends_samples::generate(&folder, &config, &mut |done, total| {
        bar.step(&format!("making photograph-like images: {done} of {total}"));
    })?;
    Ok(folder)
}

/// One core is left to the emulated device: it must not borrow the host's.
fn run_config(args: &DemoArgs, data: &Path, scale: &Scale) -> Result<RunConfig, Failed> {
    let spare = process::cores().saturating_sub(1).max(1);
    let recipe = Recipe::builtin("imagenet-train").ok_or_else(|| {
        anyhow::anyhow!("the recipe imagenet-train is missing from this build")
    })?;
    Ok(RunConfig {
        repeat: scale.repeat,
        workers: args.workers.unwrap_or(spare),
        devices: vec![args.csd.parse()?],
        names: flag,
        ..RunConfig::new(data.to_owned(), recipe)
    })
}

/// Lets the host work on the images for a while: what it learns about them makes all later
/// epochs faster, and these are what the demo is about.
fn learn(config: &RunConfig, scale: &Scale, bar: &mut Bar) -> Result<(), Failed> {
    bar.phase("a first visit to the images");
    Runtime::open(host_alone(config))?.measure_front(scale.measure)?;
    Ok(())
}

fn host_alone(config: &RunConfig) -> RunConfig {
    RunConfig { devices: Vec::new(), ..config.clone() }
}

/// The accelerator asked for, else an emulated one that this host alone cannot feed.
fn accelerator(
    args: &DemoArgs,
    config: &RunConfig,
    scale: &Scale,
    bar: &mut Bar,
) -> Result<AccelConfig, Failed> {
    let spec = match &args.accelerator {
        Some(name) => name.clone(),
        None => {
            bar.phase("measuring the host to choose an accelerator");
            let alone =
                Runtime::open(host_alone(config))?.measure_front(scale.measure)?;
            let rate = alone.map_or(500.0, |alone| alone.images_per_s);
            format!("sim:{:.0}", (rate * ACCELERATOR_OVER_HOST).max(1.0))
        }
    };
    spec.parse::<AccelConfig>().map_err(wrong)
}

/// What a demo says of itself.
fn as_demo(header: Header, data: Option<&Path>) -> Header {
    let images = match data {
        Some(data) => format!("The images are those of {}.", data.display()),
        None => "The images are generated, photograph-like JPEGs.".to_owned(),
    };
    let note = format!(
        "{images} The device is emulated: a process of its own that opens the files and decodes \
         every sample itself, slowed down to a stated rate. The accelerator is emulated: it \
         takes a batch in a stated time and computes nothing. Everything else is measured. In the \
         epoch of `cpu`, the host works alone: the device is attached and idle."
    );
    Header { note, generated_images: data.is_none(), ..header }
}

/// The sentences under the table.
fn verdict(result: &RunResult) -> Vec<String> {
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
