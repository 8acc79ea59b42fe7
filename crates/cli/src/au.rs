//! `bothends bench au`: flags, and the epochs that `bothends_bench::au` asks for.

use std::path::PathBuf;
use std::time::Duration;

use bothends_bench::au::{Accelerator, AuBench, AuResult, Seen};
use bothends_core::tensor::{Dtype, Layout, Output};
use bothends_runtime::{
    AccelConfig, Connected, Fed, Observer, ReadConfig, RunConfig, Runtime,
};
use clap::ArgAction;
use serde::Serialize;

use crate::args::SideIndexArg;
use crate::bench::{measured, show};
use crate::progress::Bar;
use crate::{Failed, run};

/// Samples with which an accelerator's rate is read: enough that no rounding shows.
const RATE_SAMPLES: u32 = 1_000_000;

/// What a figure of this is, and what it is not.
const NOTE: &str = "MLPerf-Storage-style accelerator utilisation (DLIO constants) with real decode \
                    and augment; no MLPerf result. Accelerators are emulated: they sleep.";

#[derive(Debug, clap::Args)]
pub(crate) struct AuArgs {
    /// A data set
    #[arg(long, value_name = "PATH")]
    data: PathBuf,
    /// A built-in recipe or a recipe file
    #[arg(long, value_name = "NAME|FILE", default_value = "imagenet-train")]
    recipe: String,
    /// Emulated accelerators: names, or rates in images per second
    #[arg(
        long,
        value_name = "NAME|RATE[,...]",
        value_delimiter = ',',
        default_value = "v100,a100,h100"
    )]
    accelerator: Vec<String>,
    /// A device of the back (may repeat), as in `run`
    #[arg(long, value_name = "SPEC", action = ArgAction::Append)]
    csd: Vec<String>,
    /// Shared key of devices beyond this machine
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Host worker threads
    #[arg(long, value_name = "auto|N", default_value = "auto")]
    workers: String,
    /// Slots of a batch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: u32,
    /// How long each rate is measured, and a dozen steps at least
    #[arg(long, value_name = "S", default_value_t = 8.0)]
    seconds: f64,
    /// Where what is learnt about images is kept from epoch to epoch
    #[arg(long, value_enum, default_value_t = SideIndexArg::Auto)]
    side_index: SideIndexArg,
    /// Write the result as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

/// What was measured, and with what.
#[derive(Debug, Serialize)]
struct Reported {
    note: &'static str,
    recipe: String,
    batch_size: u32,
    workers: u32,
    seconds: f64,
    side_index: &'static str,
    devices: Vec<Connected>,
    #[serde(flatten)]
    au: AuResult,
}

/// Measures, prints a table, and writes what was asked for.
pub(crate) fn au(args: &AuArgs) -> Result<(), Failed> {
    let config = config(args)?;
    let (workers, recipe) = (config.workers, config.recipe.name().to_owned());
    let lasting = Duration::try_from_secs_f64(args.seconds)
        .ok()
        .filter(|lasting| *lasting > Duration::ZERO)
        .ok_or_else(|| {
            wrong(format!(
                "`--seconds {}`: give a number of seconds above 0",
                args.seconds
            ))
        })?;
    let names = args.accelerator.iter();
    let bench = AuBench {
        accelerators: names.map(|n| accelerator(n)).collect::<Result<_, _>>()?,
    };
    let mut bar = Bar::new();
    let measuring = measure(config, &bench, lasting, &mut bar);
    bar.clear();
    let (devices, au) = measuring?;
    let reported = Reported {
        note: NOTE,
        recipe,
        batch_size: args.batch_size,
        workers,
        seconds: args.seconds,
        side_index: match args.side_index {
            SideIndexArg::Auto => "auto",
            SideIndexArg::Beside => "beside",
            SideIndexArg::Off => "off",
        },
        devices,
        au,
    };
    let measured = measured(&args.data, reported);
    let table = text(&measured.result);
    show(args.json.as_deref(), &measured, "bench au", &table)
}

fn text(reported: &Reported) -> String {
    let Reported { note, recipe, batch_size, workers, side_index, devices, au, .. } =
        reported;
    let mut back: Vec<String> = devices
        .iter()
        .map(|Connected { device, emulated }| match emulated {
            true => format!("emulated device {device}"),
            false => format!("device {device}"),
        })
        .collect();
    if back.is_empty() {
        back.push("no device".to_owned());
    }
    format!(
        "{note}\n{recipe}, batches of {batch_size} f32 in planes, workers: {workers}, {}, side \
         index {side_index}, page cache warm\n\n{}",
        back.join(", "),
        au.table()
    )
}

fn config(args: &AuArgs) -> Result<RunConfig, Failed> {
    let devices = args.csd.iter().map(|spec| spec.parse().map_err(wrong));
    Ok(RunConfig {
        batch_size: args.batch_size,
        workers: run::workers(&args.workers)?,
        read: ReadConfig {
            side_index: run::side_index(args.side_index),
            ..ReadConfig::default()
        },
        devices: devices.collect::<Result<_, _>>()?,
        key_file: args.key_file.clone(),
        output: Output { dtype: Dtype::F32, layout: Layout::Nchw },
        ..RunConfig::new(args.data.clone(), run::recipe(&args.recipe)?)
    })
}

fn wrong(error: impl std::fmt::Display) -> Failed {
    Failed::Arguments(error.to_string())
}

/// An accelerator by name or rate, as in `run` but for the `sim:`.
fn accelerator(text: &str) -> Result<Accelerator, Failed> {
    let config: AccelConfig =
        format!("sim:{text}").parse().map_err(|e: bothends_runtime::AccelError| {
            wrong(format!("`--accelerator {text}`: {e}"))
        })?;
    let busy_ns = config.busy_ns(RATE_SAMPLES).unwrap_or(0);
    let busy_s = Duration::from_nanos(busy_ns).as_secs_f64();
    let images_per_s = f64::from(RATE_SAMPLES) / busy_s;
    Ok(Accelerator { name: text.to_owned(), images_per_s })
}

/// One runtime for everything: devices are connected once, and what was learnt stays.
fn measure(
    config: RunConfig,
    bench: &AuBench,
    lasting: Duration,
    bar: &mut Bar,
) -> Result<(Vec<Connected>, AuResult), Failed> {
    let mut runtime = Runtime::open(config)?;
    bar.phase("a first visit to the data, by the host alone");
    let alone = runtime.measure_front(lasting)?;
    runtime.connect_devices(alone.map(|alone| alone.images_per_s))?;
    let mut feed = |rate: Option<f64>| -> Result<Seen, Failed> {
        let accelerator = match rate {
            Some(rate) => format!("sim:{rate}").parse()?,
            None => AccelConfig::Host,
        };
        Ok(seen(runtime.feed(&accelerator, lasting)?))
    };
    let result = bench.run(&mut feed, &mut |text| bar.phase(text))?;
    Ok((runtime.connected(), result))
}

fn seen(fed: Fed) -> Seen {
    let Fed {
        n_steps,
        utilisation,
        images_per_s,
        p99_wait_s,
        cpu_ms_per_image,
        device_cpu_ms_per_image,
        peak_pss_bytes,
    } = fed;
    Seen {
        n_steps,
        utilisation,
        images_per_s,
        p99_wait_ms: p99_wait_s * 1e3,
        cpu_ms_per_image,
        device_cpu_ms_per_image,
        peak_pss_bytes,
    }
}
