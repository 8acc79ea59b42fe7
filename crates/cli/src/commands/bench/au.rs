//! `bothends bench au`: flags, and the epochs that `bothends_bench::au` asks for.

use std::time::Duration;

use bothends_bench::au::{self, Accelerator, AuResult};
use bothends_core::tensor::{Dtype, Layout, Output};
use bothends_runtime::{
    AccelConfig, Connected, Observer, ReadConfig, RunConfig, Runtime, Seen, Share,
    SideIndexUse,
};
use serde::Serialize;

use super::{measured, show};
use crate::args::bench::AuArgs;
use crate::failed::{Failed, wrong};
use crate::flags::flag;
use crate::typed::{MOST_SECONDS, check_has_devices, recipe, share, workers};
use crate::watch::bar::{Bar, decompressing};

/// What a figure of this is, and what it is not.
const NOTE: &str = "MLPerf-Storage-style accelerator utilisation (DLIO constants) with real decode \
                    and augment; no MLPerf result. Accelerators are emulated: they sleep.";

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
    let lasting = Duration::try_from_secs_f64(args.seconds)
        .ok()
        .filter(|lasting| *lasting > Duration::ZERO)
        .filter(|lasting| lasting.as_secs_f64() <= MOST_SECONDS)
        .ok_or_else(|| {
            wrong(format!(
                "`--seconds {}`: give a number of seconds above 0, at most {MOST_SECONDS}",
                args.seconds
            ))
        })?;
    let names = args.accelerator.iter();
    let asked: Vec<_> = names.map(|n| accelerator(n)).collect::<Result<_, _>>()?;
    // Other ranks count this one until all is measured.
    let (share, _registration) = share();
    let config = config(args, share)?;
    let (workers, recipe) = (config.workers, config.recipe.name().to_owned());
    let mut bar = Bar::new();
    let measuring = measure(config, &asked, lasting, &mut bar);
    bar.clear();
    let (devices, au) = measuring?;
    let reported = Reported {
        note: NOTE,
        recipe,
        batch_size: args.batch_size,
        workers,
        seconds: args.seconds,
        side_index: match args.side_index {
            SideIndexUse::Auto => "auto",
            SideIndexUse::Beside => "beside",
            SideIndexUse::Off => "off",
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

fn config(args: &AuArgs, share: Share) -> Result<RunConfig, Failed> {
    check_has_devices(&args.csd, args.security.given())?;
    let devices = args.csd.iter().map(|spec| spec.parse());
    Ok(RunConfig {
        batch_size: args.batch_size,
        workers: workers(&args.workers, share)?,
        read: ReadConfig { side_index: args.side_index, ..ReadConfig::default() },
        devices: devices.collect::<Result<_, _>>()?,
        require_devices: true,
        output: Output { dtype: Dtype::F32, layout: Layout::Nchw },
        decompressing: decompressing(),
        names: flag,
        ..args.security.applied(RunConfig::new(args.data.clone(), recipe(&args.recipe)?))
    })
}

/// An accelerator by name or rate, as in `run` without the `sim:`.
fn accelerator(text: &str) -> Result<Accelerator, Failed> {
    let config = format!("sim:{text}").parse::<AccelConfig>();
    let config = config.map_err(|e| wrong(format!("`--accelerator {text}`: {e}")))?;
    let images_per_s = config.samples_per_s().unwrap_or(f64::INFINITY);
    Ok(Accelerator { name: text.to_owned(), images_per_s })
}

/// One runtime for everything: devices are connected once, and what was learnt stays.
fn measure(
    config: RunConfig,
    asked: &[Accelerator],
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
        Ok(runtime.feed(&accelerator, lasting)?)
    };
    let result = au::measure(asked, &mut feed, &mut |text| bar.phase(text))?;
    Ok((runtime.connected(), result))
}
