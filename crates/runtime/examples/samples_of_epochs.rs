//! The samples of some epochs on standard output, for a program in another language that
//! trains on them. They are a run's: its order, boxes and bytes; what is behind the cut
//! (normalise, cast) is left to the reader. Starts one worker and no device.
//!
//!   cargo run --release -p bothends-runtime --example samples_of_epochs -- \
//!       DATA RECIPE NUMERICS SEED FIRST-EPOCH EPOCHS
//!
//! RECIPE is a built-in name or a file; NUMERICS, `exact` or `planar`, takes the place of the
//! recipe's own. Each sample is its label (8 bytes, least significant first), then its pixels
//! (rows x columns x channels, one byte each). The same arguments give the same bytes.

use std::error::Error;
use std::io::{self, BufWriter, Write};
use std::{env, fs};

use bothends_core::ids::EpochIdx;
use bothends_core::recipe::{Numerics, Recipe};
use bothends_runtime::{RunConfig, Runtime, SideIndexUse};

const USAGE: &str = "samples_of_epochs DATA RECIPE NUMERICS SEED FIRST-EPOCH EPOCHS";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [data, recipe, numerics, seed, first, n] = arguments.as_slice() else {
        return Err(format!("expected: {USAGE}").into());
    };
    let numerics = match numerics.as_str() {
        "exact" => Numerics::Exact,
        "planar" => Numerics::Planar,
        other => return Err(format!("`{other}` is neither `exact` nor `planar`").into()),
    };
    let recipe = match Recipe::builtin(recipe) {
        Some(recipe) => recipe,
        None => Recipe::from_json(&fs::read_to_string(recipe)?)?,
    };
    let mut config = RunConfig::new(data.into(), recipe.with_numerics(numerics));
    config.seed = seed.parse()?;
    // What others keep beside their data is not this program's to write.
    config.read.side_index = SideIndexUse::Off;
    let mut runtime = Runtime::open(config)?;
    let first: u32 = first.parse()?;
    let n: u32 = n.parse()?;
    let mut out = BufWriter::new(io::stdout().lock());
    for epoch in first..first.saturating_add(n) {
        write_epoch(&mut runtime, EpochIdx(epoch), &mut out)?;
    }
    Ok(out.flush()?)
}

/// Writes the samples of one epoch, in its order.
fn write_epoch(
    runtime: &mut Runtime,
    epoch: EpochIdx,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let options = runtime.options(epoch);
    let mut epoch = runtime.start_epoch(&options)?;
    while let Some(batch) = epoch.next_batch()? {
        let rows = batch.rows().iter().enumerate();
        for (i, row) in rows.filter(|(_, row)| row.sample.is_some()) {
            out.write_all(&row.label.0.to_le_bytes())?;
            out.write_all(batch.sample(i))?;
        }
    }
    runtime.finish_epoch(epoch);
    Ok(())
}
