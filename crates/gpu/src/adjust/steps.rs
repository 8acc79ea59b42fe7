//! Steps as the kernel reads them, and which of them it has.
//!
//! A description is the rows, then the steps of all of them, then the weights of their blurs.
//! The numbers of the ops and the order of the fields are those of `kernels/adjust.cuh`.

use bothends_core::philox::words;
use bothends_core::recipe::Interpolation;
use bothends_core::recipe::step::{Adjust, Fill, Map, Step, Warp, blur_weights};
use bothends_core::tensor::SampleShape;

/// What is done to one image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdjustRow<'a> {
    /// Where the image is, in bytes from [`AdjustBatch::images`](super::AdjustBatch::images).
    pub offset: u64,
    /// What is done, in order.
    pub steps: &'a [Step],
}

/// What was described: goes with the bytes to the launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdjustDescription {
    n_rows: u32,
    n_steps: usize,
}

/// Words of a row: offset, first step, how many.
const ROW_WORDS: usize = 4;
/// Words of a step: op, a, b, whether perspective, area, fill, unused, map.
const STEP_WORDS: usize = 28;
/// Numbers of 16 bits that a block keeps: a row of the image that it blurs, and both sides of
/// one that it scales.
const KEPT: u64 = 8192;
/// Longest side of an image that is warped.
const MAX_SIDE: u32 = (1 << 15) - 1;
/// Most weights of a blur's axis; what needs more is for the host.
const MAX_WEIGHTS: u32 = 256;

type StepWords = [u32; STEP_WORDS];

impl AdjustDescription {
    /// Bytes that describing these rows takes.
    #[must_use]
    pub fn bytes(rows: &[AdjustRow<'_>]) -> usize {
        let n_steps: usize = rows.iter().map(|row| row.steps.len()).sum();
        let steps = rows.iter().flat_map(|row| row.steps);
        let n_weights: usize =
            steps.filter_map(blur).map(|(down, across)| down + across).sum();
        4 * (ROW_WORDS * rows.len() + STEP_WORDS * n_steps) + 2 * n_weights
    }

    /// Images.
    pub(super) fn n_rows(&self) -> u32 {
        self.n_rows
    }

    /// Where the steps begin, and where the weights do.
    pub(super) fn parts(&self) -> [usize; 2] {
        let steps = 4 * ROW_WORDS * self.n_rows as usize;
        [steps, steps + 4 * STEP_WORDS * self.n_steps]
    }
}

/// Whether the kernel has this step for images of this shape, and with it keeps the shape.
#[must_use]
pub fn can_run(step: &Step, shape: SampleShape) -> bool {
    let is_image = matches!(shape.channels, 1 | 3) && shape.len() < 1 << 31;
    is_image && described(step, shape, 0).is_some()
}

/// Whether the result of these steps is in an image's second place.
#[must_use]
pub fn ends_elsewhere(steps: &[Step]) -> bool {
    let moves = |step: &&Step| match step {
        Step::MirrorColumns | Step::MirrorRows | Step::Warp(_) => true,
        Step::Adjust(Adjust::Sharpness(_) | Adjust::Blur(_)) => true,
        Step::Adjust(_) | Step::Erase { .. } => false,
        Step::Resize { .. }
        | Step::Window(_)
        | Step::FirstChannel
        | Step::ThreeChannels
        | Step::Mix(_) => false,
    };
    steps.iter().filter(moves).count() % 2 == 1
}

/// Weights of a blur's two axes.
fn blur(step: &Step) -> Option<(usize, usize)> {
    let Step::Adjust(Adjust::Blur(blur)) = step else { return None };
    let count = |len| blur_weights(len, blur.sigma).count();
    Some((count(blur.kernel.height), count(blur.kernel.width)))
}

/// Writes a description.
pub(super) fn write(
    shape: SampleShape,
    rows: &[AdjustRow<'_>],
    into: &mut [u8],
) -> Option<AdjustDescription> {
    let n_rows = u32::try_from(rows.len()).ok()?;
    let n_steps = rows.iter().map(|row| row.steps.len()).sum();
    let described_rows = AdjustDescription { n_rows, n_steps };
    let [steps_at, weights_at] = described_rows.parts();
    let into = into.get_mut(..AdjustDescription::bytes(rows))?;
    let (before, of_weights) = into.split_at_mut(weights_at);
    let (of_rows, of_steps) = before.split_at_mut(steps_at);
    let (mut of_rows, mut of_steps) = (
        of_rows.chunks_exact_mut(4 * ROW_WORDS),
        of_steps.chunks_exact_mut(4 * STEP_WORDS),
    );
    let mut of_weights = of_weights.as_chunks_mut().0.iter_mut();
    let (mut first_step, mut n_weights) = (0, 0);
    for row in rows {
        let [low, high] = words(row.offset);
        let n = u32::try_from(row.steps.len()).ok()?;
        put(&[low, high, first_step, n], of_rows.next()?);
        first_step += n;
        for step in row.steps {
            put(&described(step, shape, n_weights)?, of_steps.next()?);
            if let Step::Adjust(Adjust::Blur(blur)) = step {
                for len in [blur.kernel.height, blur.kernel.width] {
                    for weight in blur_weights(len, blur.sigma) {
                        *of_weights.next()? = weight.to_le_bytes();
                        n_weights += 1;
                    }
                }
            }
        }
    }
    Some(described_rows)
}

fn put(words: &[u32], to: &mut [u8]) {
    for (word, to) in words.iter().zip(to.as_chunks_mut().0) {
        *to = word.to_le_bytes();
    }
}

/// A step as words; `None` for what the kernel does not have. `n_weights` are before its own.
fn described(step: &Step, shape: SampleShape, n_weights: u32) -> Option<StepWords> {
    match step {
        Step::Adjust(adjust) => adjusted(adjust, shape, n_weights),
        Step::MirrorColumns => Some(op(13, [0, 0])),
        Step::MirrorRows => Some(op(14, [0, 0])),
        Step::Erase { area, fill } => {
            let mut words = op(15, [0, 0]);
            let bottom = area.top.saturating_add(area.height).min(shape.height);
            let right = area.left.saturating_add(area.width).min(shape.width);
            let (top, left) = (area.top.min(bottom), area.left.min(right));
            words[4..8].copy_from_slice(&[top, left, bottom, right]);
            words[8..11].copy_from_slice(&filled(*fill));
            Some(words)
        }
        Step::Warp(warp) => warped(warp, shape),
        Step::Resize { .. }
        | Step::Window(_)
        | Step::FirstChannel
        | Step::ThreeChannels
        | Step::Mix(_) => None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "Pillow's factors are f32")]
fn adjusted(adjust: &Adjust, shape: SampleShape, n_weights: u32) -> Option<StepWords> {
    let float = |factor: f64| (factor as f32).to_bits();
    Some(match *adjust {
        Adjust::Brightness(factor) => op(0, [float(factor), 0]),
        Adjust::Contrast(factor) => op(1, [float(factor), 0]),
        Adjust::Saturation(factor) => op(2, [float(factor), 0]),
        Adjust::Hue(turns) => {
            let sixths = (turns - turns.floor()) as f32 * 6.0;
            op(3, [sixths.to_bits(), 0])
        }
        Adjust::Grayscale => op(4, [0, 0]),
        Adjust::Sharpness(factor) => op(5, [float(factor), 0]),
        Adjust::Blur(blur) => {
            let line = u64::from(shape.width) * u64::from(shape.channels);
            let count = |len| {
                u32::try_from(blur_weights(len, blur.sigma).count()).unwrap_or(u32::MAX)
            };
            let counts = [count(blur.kernel.height), count(blur.kernel.width)];
            if line > KEPT || counts.iter().any(|n| *n > MAX_WEIGHTS) {
                return None;
            }
            let mut words = op(6, counts);
            words[4..6].copy_from_slice(&[n_weights, n_weights + counts[0]]);
            words
        }
        Adjust::Autocontrast => op(7, [0, 0]),
        Adjust::Equalize => op(8, [0, 0]),
        Adjust::Invert => op(9, [0, 0]),
        Adjust::Posterize { bits } => op(10, [bits.into(), 0]),
        Adjust::Solarize { threshold } => op(11, [threshold.into(), 0]),
        Adjust::SolarizeAdd { addition } => op(12, [addition.into(), 0]),
        Adjust::Jpeg { .. } => return None,
    })
}

/// Maps to the image's own size.
fn warped(warp: &Warp, shape: SampleShape) -> Option<StepWords> {
    let sides = [shape.height, shape.width];
    if [warp.size.height, warp.size.width] != sides || sides.iter().any(|s| *s > MAX_SIDE)
    {
        return None;
    }
    let mut words = match (warp.interpolation, warp.map) {
        (Interpolation::Nearest, Map::Affine(map)) => nearest(map, shape)?,
        (Interpolation::Nearest, Map::Perspective(_)) => op(20, [0, 0]),
        (Interpolation::Bilinear, _) => op(16, [0, 0]),
        (Interpolation::Bicubic, _) => op(17, [0, 0]),
        (Interpolation::Box | Interpolation::Hamming | Interpolation::Lanczos, _) => {
            return None;
        }
    };
    let map = match warp.map {
        Map::Affine(map) if words[0] == 18 => {
            let [x, y] = start(map);
            [x, map[0], y, map[4], 0.0, 0.0, 0.0, 0.0]
        }
        Map::Affine([a, b, c, d, e, f]) => [a, b, c, d, e, f, 0.0, 0.0],
        Map::Perspective(map) => {
            words[3] = 1;
            map
        }
    };
    words[8..11].copy_from_slice(&filled(warp.fill));
    for (to, number) in words[12..].as_chunks_mut().0.iter_mut().zip(map) {
        *to = bothends_core::philox::words(number.to_bits());
    }
    Some(words)
}

/// How Pillow steps to the nearest pixel: by sums of f64 where a map only scales and moves, in
/// 65536ths of a pixel where the result's corners are near. What is neither is for the host.
fn nearest(map: [f64; 6], shape: SampleShape) -> Option<StepWords> {
    let [a, b, c, d, e, f] = map;
    if b == 0.0 && d == 0.0 {
        let fits = u64::from(shape.width) + u64::from(shape.height) <= KEPT;
        return fits.then(|| op(18, [0, 0]));
    }
    let (width, height) = (f64::from(shape.width), f64::from(shape.height));
    let corners = [(0.0, 0.0), (width, height), (0.0, height), (width, 0.0)];
    let is_near = |[a, b, c]: [f64; 3]| {
        corners.iter().all(|(x, y)| (x * a + y * b + c).abs() < 32768.0)
    };
    let axes = [[a, b, c], [d, e, f]];
    if !axes.into_iter().all(is_near) {
        return None;
    }
    let [x, y] = axes.map(|[a, b, c]| [a, b, c + a * 0.5 + b * 0.5].map(fixed));
    let mut words = op(19, [x[0], x[1]]);
    words[4..8].copy_from_slice(&[x[2], y[0], y[1], y[2]]);
    Some(words)
}

/// In 65536ths, rounded.
#[expect(clippy::cast_possible_truncation, reason = "what is too large is not near")]
fn fixed(value: f64) -> u32 {
    ((value * 65536.0 + 0.5).floor() as i32).cast_unsigned()
}

/// The point of the first pixel's centre.
fn start([a, b, c, d, e, f]: [f64; 6]) -> [f64; 2] {
    [c + b * 0.5 + a * 0.5, f + e * 0.5 + d * 0.5]
}

fn op(number: u32, [a, b]: [u32; 2]) -> StepWords {
    let mut words = [0; STEP_WORDS];
    words[..3].copy_from_slice(&[number, a, b]);
    words
}

fn filled(Fill(values): Fill) -> [u32; 3] {
    values.map(u32::from)
}
