//! `bothends bench`: ops, decoding and reading, each measured alone; `au.rs` has the part about
//! accelerators. What is measured, and how, is the crate `bench`'s; this reads flags and writes results.

mod au;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bothends_bench::alone::{AloneBench, PeersCommand};
use bothends_bench::io::IoBench;
use bothends_bench::ops::boxes::boxes;
use bothends_bench::ops::{Level, OpsBench};
use bothends_runtime::{Machine, process};
use bothends_samples::GenerateConfig;
use serde::Serialize;

use self::au::au;
use super::demo;
use crate::args::bench::{BenchArgs, BenchIoArgs, BenchOpsArgs, BenchWhat, OpsAloneArgs};
use crate::failed::{Failed, wrong};
use crate::typed::recipe;
use crate::watch::bar::Bar;
use crate::watch::date::now;
use crate::{file, say};

/// Where the demo leaves its images, and how many it makes.
const DEMO_OUT: &str = "demo-out";
const DEMO_IMAGES: u32 = 500;

/// Most bytes of an image's file.
const MOST_IMAGE_BYTES: u64 = 256 << 20;

/// How long every op is measured in a round.
const AT_LEAST: Duration = Duration::from_millis(20);

/// A result, and what it was measured on.
#[derive(Debug, Serialize)]
pub(crate) struct Measured<R> {
    version: &'static str,
    date: String,
    machine: String,
    /// Levels of kernels that the processor has.
    kernels: Vec<&'static str>,
    data: String,
    #[serde(flatten)]
    pub(crate) result: R,
}

/// Measures, prints a table, and writes what was asked for.
pub(crate) fn bench(args: &BenchArgs) -> Result<(), Failed> {
    match &args.what {
        BenchWhat::Ops(args) => ops(args),
        BenchWhat::Io(args) => io(args),
        BenchWhat::Au(args) => au(args),
    }
}

fn ops(args: &BenchOpsArgs) -> Result<(), Failed> {
    let kernels =
        args.kernels.iter().map(|name| level(name)).collect::<Result<_, _>>()?;
    match &args.data {
        Some(data) => engine(args, data, kernels),
        None => ops_alone(args, kernels),
    }
}

fn ops_alone(args: &BenchOpsArgs, kernels: Vec<Level>) -> Result<(), Failed> {
    let OpsAloneArgs { ops, image, rounds, peers, peers_script } = &args.alone;
    let peers = peers.as_ref().map(|python| PeersCommand {
        python: python.clone(),
        script: peers_script.clone(),
    });
    if let Some(PeersCommand { script, .. }) = &peers
        && !script.is_file()
    {
        return Err(wrong(format!(
            "no file `{}`; name the peers' program with --peers-script, or start in a checkout",
            script.display()
        )));
    }
    let bench = AloneBench {
        image: match image {
            Some(path) => {
                file::read(path, MOST_IMAGE_BYTES).map_err(|e| cannot_read(path, &e))?
            }
            None => generated()?,
        },
        only: ops.clone(),
        kernels,
        rounds: *rounds,
        at_least: AT_LEAST,
        peers,
    };
    let mut bar = Bar::new();
    let result = bench.run(&mut |text| bar.step(text));
    bar.clear();
    let data = image.as_deref().unwrap_or(Path::new("a generated image"));
    let measured = measured(data, result?);
    show(args.json.as_deref(), &measured, "bench ops", &measured.result.table())
}

fn cannot_read(path: &Path, why: &std::io::Error) -> anyhow::Error {
    anyhow::anyhow!("cannot read {}: {why}", path.display())
}

/// The file of one generated image.
fn generated() -> Result<Vec<u8>, Failed> {
    let folder = tempfile::tempdir()?;
    let config = GenerateConfig { n_images: 1, n_classes: 1, seed: 0 };
    bothends_samples::generate(folder.path(), &config, &mut |_, _| {})?;
    let path = folder.path().join("class-000/000.jpg");
    Ok(fs::read(&path).map_err(|e| cannot_read(&path, &e))?)
}

fn engine(args: &BenchOpsArgs, data: &Path, kernels: Vec<Level>) -> Result<(), Failed> {
    let engine = &args.engine;
    let (json, drawn) = (args.json.as_deref(), engine.boxes.as_deref());
    file::check_distinct(&[("--json", json), ("--boxes", drawn)])?;
    let bench = OpsBench {
        data: data.to_owned(),
        limit: engine.limit,
        recipe: recipe(&engine.recipe)?,
        seed: engine.seed,
        draw: engine.draw,
        numerics: engine.numerics.to_vec(),
        forms: engine.form.clone(),
        kernels,
        threads: threads(&engine.threads),
        passes: engine.passes,
        parts: engine.parts.clone(),
    };
    if let Some(path) = &engine.boxes {
        let mut lines = String::new();
        for drawn in boxes(&bench)? {
            lines += &serde_json::to_string(&drawn)?;
            lines.push('\n');
        }
        file::write(path, &lines)?;
    }
    let mut bar = Bar::new();
    let result = bench.run(&mut |text| bar.step(text));
    bar.clear();
    let measured = measured(&bench.data, result?);
    show(args.json.as_deref(), &measured, "bench ops", &measured.result.table())
}

fn io(args: &BenchIoArgs) -> Result<(), Failed> {
    let mut bar = Bar::new();
    let bench = IoBench {
        data: data(args.data.as_deref(), &mut bar)?,
        limit: args.limit,
        seed: args.seed,
        readers: args.reader.to_vec(),
        depths: args.depth.clone(),
        passes: args.passes,
    };
    let result = bench.run(&mut |text| bar.step(text));
    bar.clear();
    let measured = measured(&bench.data, result?);
    show(args.json.as_deref(), &measured, "bench io", &measured.result.table())
}

/// The data asked for, else the demo's images.
fn data(asked: Option<&Path>, bar: &mut Bar) -> Result<PathBuf, Failed> {
    match asked {
        Some(path) => Ok(path.to_owned()),
        None => demo::generate(Path::new(DEMO_OUT), DEMO_IMAGES, bar),
    }
}

pub(crate) fn measured<R>(data: &Path, result: R) -> Measured<R> {
    Measured {
        version: env!("CARGO_PKG_VERSION"),
        date: now(),
        machine: Machine::summary_here(),
        kernels: Level::available().into_iter().map(Level::name).collect(),
        data: data.display().to_string(),
        result,
    }
}

pub(crate) fn show<R: Serialize>(
    json: Option<&Path>,
    measured: &Measured<R>,
    what: &str,
    table: &str,
) -> Result<(), Failed> {
    // Said first: what was measured is not lost with a file that cannot be written.
    if json != Some(Path::new("-")) {
        let Measured { version, date, machine, kernels, data, .. } = measured;
        say::text(&format!("bothends {version} {what}, {date}, measured on {machine}"));
        say::text(&format!("kernels here: {}; data: {data}", kernels.join(", ")));
        say::text(table.trim_end());
    }
    if let Some(path) = json {
        file::write(path, &serde_json::to_string_pretty(measured)?)?;
    }
    Ok(())
}

/// A level of kernels by name, if this processor has it.
fn level(name: &str) -> Result<Level, Failed> {
    if name == "best" {
        return Ok(Level::best());
    }
    let available = Level::available();
    let found = available.iter().find(|level| level.name() == name);
    found.copied().ok_or_else(|| {
        let names: Vec<_> = available.iter().map(|level| level.name()).collect();
        wrong(format!(
            "`--kernels {name}`: this processor has best, {}",
            names.join(", ")
        ))
    })
}

fn threads(asked: &[u32]) -> Vec<u32> {
    if !asked.is_empty() {
        return asked.to_vec();
    }
    match process::cores() {
        1 => vec![1],
        cores => vec![1, cores],
    }
}
