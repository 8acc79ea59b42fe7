//! How long resampling takes: `resample [CROPS] [PASSES] [LEVEL] [INTERPOLATION]`.
//!
//! Crops as `random_resized_crop` draws them, from planes of noise of 500 x 375, to 224 x 224,
//! half of them mirrored. For every level and both numerics it prints microseconds per crop:
//! the median over passes, each pass over all crops; the levels take turns, so that a slow
//! moment of the machine affects all equally.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::time::Instant;

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::draw::{CropBox, random_resized_crop};
use bothends_core::recipe::{Interpolation, Size};
use bothends_core::rng::Draws;
use bothends_core::sample::SampleKey;
use bothends_ops::colour::ycc_to_rgb;
use bothends_ops::kernels::Level;
use bothends_ops::resample::{
    Colour, Exact, Mirror, Outlet, Planar, Planes, Sampling, Target,
};

const IMAGE: Size = Size { height: 375, width: 500 };
const SAMPLE: Size = Size { height: 224, width: 224 };

/// Microseconds of tables, of rows.
type Times = [f64; 2];

fn main() {
    let mut words = std::env::args().skip(1);
    let n_crops = words.next().map_or(200, |word| word.parse().unwrap());
    let n_passes = words.next().map_or(15, |word| word.parse().unwrap());
    let mut levels = Level::available();
    if let Some(name) = words.next() {
        levels.retain(|level| level.name() == name);
    }
    let interpolation = match words.next().as_deref() {
        None | Some("bilinear") => Interpolation::Bilinear,
        Some("bicubic") => Interpolation::Bicubic,
        Some("nearest") => Interpolation::Nearest,
        Some("box") => Interpolation::Box,
        Some("hamming") => Interpolation::Hamming,
        Some("lanczos") => Interpolation::Lanczos,
        Some(other) => panic!("{other}: not an interpolation"),
    };
    let draw = |sample| draw(sample, interpolation);
    let crops: Vec<(CropBox, Target)> = (0..n_crops).map(draw).collect();
    let area: u64 =
        crops.iter().map(|(c, _)| u64::from(c.height) * u64::from(c.width)).sum();
    println!("{n_crops} crops, {:.1} kPix each", area as f64 / n_crops as f64 / 1e3);
    let mut lines = Vec::new();
    for level in levels {
        let half = Sampling { x: 2, y: 2 };
        lines.push(Line::new("exact, from RGB", Kind::Exact(Exact::new(level))));
        lines.push(Line::new(
            "exact, from YCbCr",
            Kind::Colours(level, Exact::new(level)),
        ));
        let full = [Sampling::FULL; 3];
        lines.push(Line::new("planar 4:4:4", Kind::Planar(Planar::new(level), full)));
        let halved = [Sampling::FULL, half, half];
        lines.push(Line::new("planar 4:2:0", Kind::Planar(Planar::new(level), halved)));
        lines.iter_mut().rev().take(4).for_each(|line| line.level = level.name());
    }
    let planes = noise();
    for _ in 0..n_passes {
        for line in &mut lines {
            let times =
                crops.iter().map(|(crop, target)| line.kind.run(&planes, *crop, target));
            let sum = times.fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
            line.passes.push(sum.map(|us| us / crops.len() as f64));
        }
    }
    println!("{:8} {:18} {:>8} {:>8} {:>8}", "", "", "tables", "rows", "all");
    for line in lines {
        let [tables, rows] = [0, 1].map(|part| line.median(|times| times[part]));
        let all = line.median(|times| times.iter().sum());
        let Line { level, name, .. } = line;
        println!("{level:8} {name:18} {tables:8.1} {rows:8.1} {all:8.1}");
    }
}

/// One thing that is measured.
struct Line {
    level: &'static str,
    name: &'static str,
    kind: Kind,
    passes: Vec<Times>,
}

enum Kind {
    Exact(Exact),
    Colours(Level, Exact),
    Planar(Planar, [Sampling; 3]),
}

impl Line {
    fn new(name: &'static str, kind: Kind) -> Self {
        Self { level: "", name, kind, passes: Vec::new() }
    }

    fn median(&self, part: impl Fn(&Times) -> f64) -> f64 {
        let mut times: Vec<f64> = self.passes.iter().map(part).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }
}

impl Kind {
    fn run(&mut self, planes: &[Vec<u8>; 3], crop: CropBox, target: &Target) -> Times {
        let mut sample = [0; 224 * 224 * 3];
        let row = |plane: usize, stride: u32, part: CropBox, y: u32| {
            let first = ((part.top + y) * stride + part.left) as usize;
            &planes[plane][first..][..part.width as usize]
        };
        let begun = Instant::now();
        let ready;
        match self {
            Self::Exact(exact) => {
                let mut sample =
                    exact.begin(crop, 3, target, Outlet::Pixels(&mut sample));
                ready = Instant::now();
                let part = sample.needed();
                for y in 0..part.height {
                    sample.row([0, 1, 2].map(|plane| row(plane, IMAGE.width, part, y)));
                }
                sample.finish();
            }
            Self::Colours(level, exact) => {
                let mut sample =
                    exact.begin(crop, 3, target, Outlet::Pixels(&mut sample));
                ready = Instant::now();
                let part = sample.needed();
                let [mut r, mut g, mut b] = [[0; 500]; 3];
                let width = part.width as usize;
                for y in 0..part.height {
                    let ycc = [0, 1, 2].map(|plane| row(plane, IMAGE.width, part, y));
                    let [r, g, b] = [&mut r, &mut g, &mut b].map(|row| &mut row[..width]);
                    ycc_to_rgb(*level, ycc, [&mut *r, &mut *g, &mut *b]);
                    sample.row([&*r, &*g, &*b]);
                }
                sample.finish();
            }
            Self::Planar(planar, samplings) => {
                let planes = Planes { samplings, colour: Colour::YCbCr };
                let mut sample = planar.begin(planes, crop, target, &mut sample);
                ready = Instant::now();
                let parts = [0, 1, 2].map(|plane| sample.needed(plane));
                // As a decoder has them: the rows of some blocks of each plane in turn.
                for first in (0..parts[0].height + 16).step_by(16) {
                    for (plane, (part, sampling)) in
                        parts.iter().zip(&*samplings).enumerate()
                    {
                        let stride = IMAGE.width / sampling.x;
                        let end = (first + 16).div_ceil(sampling.y).min(part.height);
                        let rows = (first / sampling.y).min(end)..end;
                        sample.rows(plane, rows.map(|y| row(plane, stride, *part, y)));
                    }
                }
                sample.finish();
            }
        }
        let done = Instant::now();
        std::hint::black_box(&sample);
        [ready - begun, done - ready].map(|time| time.as_secs_f64() * 1e6)
    }
}

fn draw(sample: u64, interpolation: Interpolation) -> (CropBox, Target) {
    let key = SampleKey { seed: 42, epoch: EpochIdx(0), sample: SampleId(sample) };
    let mut draws = Draws::new(key, 1);
    let crop = random_resized_crop(&mut draws, IMAGE, [0.08, 1.0], [0.75, 4.0 / 3.0]);
    let mirror = if draws.bernoulli(0.5) { Mirror::Horizontal } else { Mirror::No };
    (crop, Target { mirror, interpolation, ..Target::whole(SAMPLE) })
}

fn noise() -> [Vec<u8>; 3] {
    let mut state = 1_u32;
    [(); 3].map(|()| {
        let byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        std::iter::repeat_with(byte).take((IMAGE.height * IMAGE.width) as usize).collect()
    })
}
