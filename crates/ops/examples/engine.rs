//! µs per image of the imagenet-train recipe over a folder of JPEGs: both numerics, with and
//! without entry points. Per-image minima of several passes.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::path::Path;
use std::time::Instant;

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{Recipe, RecordShape};
use bothends_core::sample::{Encoding, Record, SampleKey};
use bothends_ops::{Pipeline, Scratch};

fn files(folder: &Path, out: &mut Vec<Vec<u8>>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, out)
        } else {
            out.push(std::fs::read(path).unwrap())
        }
    }
}

fn main() {
    let mut images = Vec::new();
    files(Path::new(&std::env::args().nth(1).expect("a folder")), &mut images);
    let recipe = Recipe::builtin("imagenet-train").unwrap().to_json();
    let pipelines = ["exact", "planar"].map(|numerics| {
        let recipe = Recipe::from_json(&recipe.replace("exact", numerics)).unwrap();
        let shape = recipe.shape(RecordShape::Image).unwrap();
        Pipeline::new(&recipe, shape)
    });
    let mut scratch = Scratch::default();
    let mut out = vec![0; 224 * 224 * 3];
    let mut best = vec![[f64::MAX; 4]; images.len()];
    let mut points = vec![Vec::new(); images.len()];
    for _ in 0..7 {
        for (i, image) in images.iter().enumerate() {
            let key =
                SampleKey { seed: 42, epoch: EpochIdx(0), sample: SampleId(i as u64) };
            for which in 0..4 {
                let mut record = Record::new(image, Encoding::Image);
                if which >= 2 {
                    record.entry_points = &points[i];
                }
                let start = Instant::now();
                pipelines[which % 2].run(&mut scratch, key, record, &mut out).unwrap();
                let took = start.elapsed().as_secs_f64() * 1e6;
                best[i][which] = best[i][which].min(took);
                if which == 0 {
                    points[i] = scratch.new_entry_points().to_vec();
                }
            }
        }
    }
    let names = ["exact", "planar", "exact, entry points", "planar, entry points"];
    for (which, name) in names.iter().enumerate() {
        let sum: f64 = best.iter().map(|b| b[which]).sum();
        println!("{name:24} {:8.1} µs", sum / images.len() as f64);
    }
}
