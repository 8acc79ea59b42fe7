//! `bothends demo`: the whole story on one machine, on images of its own making.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bothends_core::recipe::Recipe;
use bothends_core::select::StrategyConfig;
use bothends_report::ReportInput;
use bothends_runtime::{
    AccelConfig, Digesting, DriveConfig, EnergyConfig, Loader, Observer, RunConfig,
    Runtime, drive,
};
use bothends_samples::GenerateConfig;

use crate::args::DemoArgs;
use crate::picture::{Keep, Recorder};
use crate::progress::Bar;
use crate::run::{cannot_write, write};
use crate::watch::Watch;
use crate::{Failed, picture, say};

/// How much faster than the host alone the emulated accelerator is: enough that the host
/// alone cannot feed it, and both prongs together nearly can.
const ACCELERATOR_OVER_HOST: f64 = 1.5;

/// What the table's columns mean, for someone who sees it for the first time.
const LEGEND: [&str; 9] = [
    "cpu      the host alone; mte, wrr: the two strategies of DDLP (arXiv 2407.00005)",
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
            .filter(|(name, _)| *name != "csd")
            .map(|(_, strategy)| strategy)
            .collect(),
        accelerator,
        digest: Digesting::On,
        stop_after: None,
        checkpoint: None,
        resume: None,
        measure: Some(scale.measure),
        energy: EnergyConfig::default(),
    };
    let header = picture::header("Feeding an accelerator from both ends", &config, &how);
    let header = picture::as_demo(header, args.data.as_deref());
    let mut loader = Loader::over(Runtime::open(config)?);
    let recorder = Recorder::new(Keep::Moments);
    let mut watch = Watch { bar, recorder, events: None, metrics: None };
    let result = drive(&mut loader, &how, &mut watch);
    watch.bar.clear();
    let result = result?;
    let input = ReportInput::from(&watch.recorder.recording(header, &result));
    write(&args.out.join("summary.json"), &serde_json::to_string_pretty(&result)?)?;
    write(&args.out.join("report.html"), &bothends_report::html(&input))?;
    say::line(&bothends_report::table(&input));
    for line in LEGEND {
        say::line(line);
    }
    for line in picture::verdict(&result) {
        say::line(&line);
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
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let spare = u32::try_from(cores).unwrap_or(u32::MAX).saturating_sub(1).max(1);
    let wrong = |e: bothends_runtime::RuntimeError| Failed::Arguments(e.to_string());
    let recipe = Recipe::builtin("imagenet-train").ok_or_else(|| {
        anyhow::anyhow!("the recipe imagenet-train is missing from this build")
    })?;
    Ok(RunConfig {
        repeat: scale.repeat,
        workers: args.workers.unwrap_or(spare),
        devices: vec![args.csd.parse().map_err(wrong)?],
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
    spec.parse()
        .map_err(|e: bothends_runtime::AccelError| Failed::Arguments(e.to_string()))
}
