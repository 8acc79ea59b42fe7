//! Makes a set and says what is in it: `generate DIR [IMAGES [CLASSES [SEED]]]`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use bothends_samples::{GenerateConfig, generate};

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap();
    let mut number = |default| args.next().map_or(default, |n| n.parse().unwrap());
    let config = GenerateConfig {
        n_images: number(500),
        n_classes: number(10),
        seed: number(0).into(),
    };
    let start = std::time::Instant::now();
    let summary = generate(dir.as_ref(), &config, &mut |_, _| {}).unwrap();
    println!("{summary:?} in {:.1} s", start.elapsed().as_secs_f64());
}
