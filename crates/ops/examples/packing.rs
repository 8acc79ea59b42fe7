//! How long the steps of packing JPEG files take, one thread: `packing FOLDER [PASSES]`.
//!
//! Every `.jpg` and `.JPEG` below the folder is packed into row groups, unpacked again, and put
//! together. Time in microseconds per file, the median over passes; and how many files came
//! back byte for byte.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::path::Path;
use std::time::Instant;

use bothends_core::blocks::{Blocks, Head, Profile};
use bothends_ops::jpeg::rebuild::put_together;
use bothends_ops::jpeg::{Coefficients, Decoder, Packer, Stored, unpack};
use bothends_ops::kernels::Level;

const STEPS: [&str; 3] = ["pack", "unpack", "put together"];

/// Memory that is used again.
#[derive(Default)]
struct Bench {
    decoder: Decoder,
    remainder: Vec<u8>,
    packer: Packer,
    coefficients: Coefficients,
    out: Vec<u8>,
}

fn main() {
    let mut words = std::env::args().skip(1);
    let folder = words.next().expect("a folder of JPEG files");
    let n_passes = words.next().map_or(9, |word| word.parse().unwrap());
    let mut files = Vec::new();
    gather(Path::new(&folder), &mut files);
    let mut bench = Bench::default();
    let mut passes = STEPS.map(|_| Vec::new());
    let mut n_same = 0;
    for _ in 0..n_passes {
        let mut sums = [0.0; 3];
        n_same =
            files.iter().filter(|file| bench.pack(file, &mut sums).is_some()).count();
        for (passes, sum) in passes.iter_mut().zip(sums) {
            passes.push(sum * 1e6 / files.len() as f64);
        }
    }
    let n_bytes: usize = files.iter().map(Vec::len).sum();
    println!("{} files of {} bytes on average", files.len(), n_bytes / files.len());
    let mut sum = 0.0;
    for (step, mut times) in STEPS.into_iter().zip(passes) {
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        println!("{step:>12}: {median:5.0} us");
        sum += median;
    }
    println!("{:>12}: {sum:5.0} us", "all");
    println!("byte for byte the same: {n_same}");
}

impl Bench {
    /// Adds up what the steps take; `None` when the file does not come back.
    fn pack(&mut self, file: &[u8], sums: &mut [f64; 3]) -> Option<()> {
        let Self { decoder, remainder, packer, coefficients, out } = self;
        let mut last = Instant::now();
        let mut step = |nth: usize| {
            let now = Instant::now();
            sums[nth] += (now - last).as_secs_f64();
            last = now;
        };
        let packed = packer.pack(decoder, file, remainder)?;
        let head = packed.lengths.head(packed.size, 0, packed.row_lengths)?;
        step(0);
        let blocks = Blocks::new(Profile::read(&packed.profile)?, Head::read(&head)?)?;
        let stored = Stored::new(blocks, 0, &packed.groups).ok()?;
        unpack(Level::of_process(), &stored, coefficients).ok()?;
        step(1);
        put_together(Level::of_process(), coefficients, remainder, out).ok()?;
        step(2);
        (*out == file).then_some(())
    }
}

fn gather(folder: &Path, files: &mut Vec<Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "jpg" || kind == "JPEG") {
            files.push(std::fs::read(path).unwrap());
        }
    }
}
