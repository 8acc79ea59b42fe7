//! How long it takes to take JPEG files apart, and to put them together again:
//! `rebuild FOLDER [PASSES]`.
//!
//! Every `.jpg` and `.JPEG` below the folder; microseconds per file, the median over passes,
//! and how many files came back byte for byte.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::path::Path;
use std::time::Instant;

use bothends_ops::jpeg::Decoder;
use bothends_ops::jpeg::rebuild::{Parts, put_together, take_apart};

fn main() {
    let mut words = std::env::args().skip(1);
    let folder = words.next().expect("a folder of JPEG files");
    let n_passes = words.next().map_or(9, |word| word.parse().unwrap());
    let mut files = Vec::new();
    gather(Path::new(&folder), &mut files);
    let (mut decoder, mut parts, mut out) =
        (Decoder::default(), Parts::default(), Vec::new());
    let (mut apart_us, mut together_us) = (Vec::new(), Vec::new());
    let mut n_same = 0;
    for _ in 0..n_passes {
        let (mut apart, mut together) = (0.0, 0.0);
        n_same = 0;
        for file in &files {
            let start = Instant::now();
            let taken = take_apart(&mut decoder, file, &mut parts);
            let between = Instant::now();
            let rebuilt = taken.is_some()
                && put_together(&parts.coefficients, &parts.remainder, &mut out).is_ok();
            together += between.elapsed().as_secs_f64();
            apart += (between - start).as_secs_f64();
            n_same += usize::from(rebuilt && out == *file);
        }
        apart_us.push(apart * 1e6 / files.len() as f64);
        together_us.push(together * 1e6 / files.len() as f64);
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let n_bytes: usize = files.iter().map(Vec::len).sum();
    println!("{} files of {} bytes on average", files.len(), n_bytes / files.len());
    println!("taken apart:  {:.0} us", median(&mut apart_us));
    println!("put together: {:.0} us", median(&mut together_us));
    println!("byte for byte the same: {n_same}");
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
