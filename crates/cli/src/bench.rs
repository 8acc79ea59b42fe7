//! `bothends bench`: decoding and reading, each measured alone. What is measured, and how, is
//! the crate `bench`'s; this reads flags and writes results.

use std::fs;
use std::path::{Path, PathBuf};

use bothends_bench::boxes::boxes;
use bothends_bench::io::IoBench;
use bothends_bench::ops::{Draw, Form, Level, OpsBench, Part};
use bothends_core::recipe::Numerics;
use bothends_runtime::{Machine, ReaderKind};
use serde::Serialize;

use crate::args::{
    BenchArgs, BenchDataArgs, BenchIoArgs, BenchOpsArgs, BenchReaderArg, BenchWhat,
    DrawArg, FormArg, NumericsArg, PartArg,
};
use crate::picture::now;
use crate::progress::Bar;
use crate::run::{cannot_write, write};
use crate::{Failed, demo, run, say};

/// Where the demo leaves its images, and how many it makes.
const DEMO_OUT: &str = "demo-out";
const DEMO_IMAGES: u32 = 500;

/// A result, and what it was measured on.
#[derive(Debug, Serialize)]
struct Measured<R> {
    version: &'static str,
    date: String,
    machine: String,
    /// Levels of kernels that the processor has.
    kernels: Vec<&'static str>,
    data: String,
    #[serde(flatten)]
    result: R,
}

/// Measures, prints a table, and writes what was asked for.
pub(crate) fn bench(args: &BenchArgs) -> Result<(), Failed> {
    match &args.what {
        BenchWhat::Ops(args) => ops(args),
        BenchWhat::Io(args) => io(args),
    }
}

fn ops(args: &BenchOpsArgs) -> Result<(), Failed> {
    let mut bench = OpsBench {
        data: PathBuf::new(),
        limit: args.data.limit,
        recipe: run::recipe(&args.recipe)?,
        seed: args.data.seed,
        draw: match args.draw {
            DrawArg::Once => Draw::Once,
            DrawArg::EveryPass => Draw::EveryPass,
        },
        numerics: match args.numerics {
            NumericsArg::Exact => vec![Numerics::Exact],
            NumericsArg::Planar => vec![Numerics::Planar],
            NumericsArg::Both => vec![Numerics::Exact, Numerics::Planar],
        },
        forms: args.form.iter().map(|form| form_of(*form)).collect(),
        kernels: args.kernels.iter().map(|name| level(name)).collect::<Result<_, _>>()?,
        threads: threads(&args.threads),
        passes: args.data.passes,
        parts: args.parts.iter().map(|part| part_of(*part)).collect(),
    };
    let mut bar = Bar::new();
    bench.data = data(&args.data, &mut bar)?;
    if let Some(path) = &args.boxes {
        let mut lines = String::new();
        for drawn in boxes(&bench)? {
            lines += &serde_json::to_string(&drawn)?;
            lines.push('\n');
        }
        fs::write(path, lines).map_err(|e| cannot_write(path, &e))?;
    }
    let result = bench.run(&mut |text| bar.step(text));
    bar.clear();
    let measured = measured(&bench.data, result?);
    show(&args.data, &measured, "bench ops", &measured.result.table())
}

fn form_of(form: FormArg) -> Form {
    match form {
        FormArg::First => Form::First,
        FormArg::Index => Form::Index,
        FormArg::Store => Form::Store,
    }
}

fn io(args: &BenchIoArgs) -> Result<(), Failed> {
    let mut bar = Bar::new();
    let bench = IoBench {
        data: data(&args.data, &mut bar)?,
        limit: args.data.limit,
        seed: args.data.seed,
        readers: match args.reader {
            BenchReaderArg::Uring => vec![ReaderKind::Uring],
            BenchReaderArg::Pread => vec![ReaderKind::Pread],
            BenchReaderArg::Both => vec![ReaderKind::Uring, ReaderKind::Pread],
        },
        depths: args.depth.clone(),
        passes: args.data.passes,
    };
    let result = bench.run(&mut |text| bar.step(text));
    bar.clear();
    let measured = measured(&bench.data, result?);
    show(&args.data, &measured, "bench io", &measured.result.table())
}

/// The data asked for, else the demo's images.
fn data(args: &BenchDataArgs, bar: &mut Bar) -> Result<PathBuf, Failed> {
    match &args.data {
        Some(path) => Ok(path.clone()),
        None => demo::generate(Path::new(DEMO_OUT), DEMO_IMAGES, bar),
    }
}

fn measured<R>(data: &Path, result: R) -> Measured<R> {
    Measured {
        version: env!("CARGO_PKG_VERSION"),
        date: now(),
        machine: Machine::read().summary(),
        kernels: Level::available().into_iter().map(Level::name).collect(),
        data: data.display().to_string(),
        result,
    }
}

fn show<R: Serialize>(
    args: &BenchDataArgs,
    measured: &Measured<R>,
    what: &str,
    table: &str,
) -> Result<(), Failed> {
    if let Some(path) = &args.json {
        write(path, &serde_json::to_string_pretty(measured)?)?;
    }
    if args.json.as_deref() != Some(Path::new("-")) {
        let Measured { version, date, machine, kernels, data, .. } = measured;
        say::line(&format!("bothends {version} {what}, {date}, measured on {machine}"));
        say::line(&format!("kernels here: {}; data: {data}", kernels.join(", ")));
        say::line(table.trim_end());
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
        Failed::Arguments(format!(
            "`--kernels {name}`: this processor has best, {}",
            names.join(", ")
        ))
    })
}

fn threads(asked: &[u32]) -> Vec<u32> {
    if !asked.is_empty() {
        return asked.to_vec();
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match u32::try_from(cores).unwrap_or(u32::MAX) {
        1 => vec![1],
        cores => vec![1, cores],
    }
}

fn part_of(arg: PartArg) -> Part {
    match arg {
        PartArg::Read => Part::Read,
        PartArg::Stages => Part::Stages,
        PartArg::Rates => Part::Rates,
    }
}
