//! Natural noise: octaves of smooth noise, each finer and weaker than the previous one, on a grid
//! of the picture's size.
//!
//! Albedo, light on the noise as a relief, edges and grain together have the spectrum of
//! photographs; `lib.rs` tests whole pictures for it.
//!
//! Only +, −, ×, ÷ and square roots are used, which IEEE 754 defines to the last bit: a
//! field has the same values on every machine. Read `canvas.rs` next.

use crate::dice::Dice;

/// A number per pixel.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) values: Vec<f32>,
}

/// The appearance of a noise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noise {
    /// Size of the largest blobs in pixels, across and down.
    pub(crate) cell: [f32; 2],
    /// Size of the smallest blobs in pixels.
    pub(crate) finest: f32,
    /// Amplitude of an octave relative to that of twice its size: 0.5 is as smooth as hills, 1 as
    /// rough as sand.
    pub(crate) rough: f32,
}

impl Noise {
    /// Round blobs from `cell` pixels down to single ones, as smooth as hills.
    pub(crate) fn natural(cell: f32) -> Self {
        Self { cell: [cell, cell], finest: 1.5, rough: 0.5 }
    }
}

impl Field {
    /// Noise with a mean of about 0, within −1..1.
    pub(crate) fn noise(
        width: usize,
        height: usize,
        noise: Noise,
        dice: &mut Dice,
    ) -> Self {
        let mut field = Self { width, height, values: vec![0.0; width * height] };
        let ([mut across, mut down], mut amplitude, mut sum) = (noise.cell, 1.0, 0.0);
        while across.max(down) >= noise.finest {
            field.add_octave([across.max(1.0), down.max(1.0)], amplitude, dice);
            sum += amplitude;
            amplitude *= noise.rough;
            // Not exactly a half: the grids of the octaves must not coincide.
            (across, down) = (across * 0.53, down * 0.53);
        }
        let scale = if sum > 0.0 { 1.0 / sum } else { 0.0 };
        field.values.iter_mut().for_each(|value| *value *= scale);
        field
    }

    /// Adds one octave: random values on a grid of `cell` pixels, smoothly interpolated.
    fn add_octave(&mut self, cell: [f32; 2], amplitude: f32, dice: &mut Dice) {
        let columns = Taps::new(self.width, cell[0], dice.unit());
        let rows = Taps::new(self.height, cell[1], dice.unit());
        let n_columns = columns.n_nodes();
        let mut node_row = || {
            (0..n_columns)
                .map(|_| dice.between(-amplitude, amplitude))
                .collect::<Vec<_>>()
        };
        let (mut above, mut below, mut below_idx) = (node_row(), node_row(), 1);
        let mut blended = vec![0.0; n_columns];
        for (y, line) in self.values.chunks_exact_mut(self.width).enumerate() {
            let (node_idx, weight) = rows.0[y];
            while below_idx <= node_idx {
                (above, below) = (below, node_row());
                below_idx += 1;
            }
            for (out, (a, b)) in blended.iter_mut().zip(above.iter().zip(&below)) {
                *out = a + weight * (b - a);
            }
            for (value, &(idx, weight)) in line.iter_mut().zip(&columns.0) {
                let left = blended[idx];
                *value += left + weight * (blended[idx + 1] - left);
            }
        }
    }

    /// The value at a pixel.
    pub(crate) fn at(&self, x: usize, y: usize) -> f32 {
        self.values[y * self.width + x]
    }

    /// The value between pixels; beyond its edges the field is mirrored, without a discontinuity.
    pub(crate) fn sample(&self, x: f32, y: f32) -> f32 {
        let (x0, tx) = mirror(x, self.width);
        let (y0, ty) = mirror(y, self.height);
        let (x1, y1) = ((x0 + 1).min(self.width - 1), (y0 + 1).min(self.height - 1));
        let top = self.at(x0, y0) + tx * (self.at(x1, y0) - self.at(x0, y0));
        let bottom = self.at(x0, y1) + tx * (self.at(x1, y1) - self.at(x0, y1));
        top + ty * (bottom - top)
    }

    /// Light from the upper left on the field as a height map: about −1..1.
    pub(crate) fn relief(&self, x: usize, y: usize, strength: f32) -> f32 {
        let here = self.at(x, y);
        let slope = 2.0 * here
            - self.at(x.saturating_sub(1), y)
            - self.at(x, y.saturating_sub(1));
        (slope * strength).clamp(-1.0, 1.0)
    }
}

/// For each pixel of a line: the grid node before it, and how far it is to the next.
struct Taps(Vec<(usize, f32)>);

impl Taps {
    fn new(n_pixels: usize, cell: f32, offset: f32) -> Self {
        let tap = |pixel| {
            let place = pixels(pixel) / cell + offset;
            let node = place.floor();
            (index(node), smooth(place - node))
        };
        Self((0..n_pixels).map(tap).collect())
    }

    fn n_nodes(&self) -> usize {
        self.0.last().map_or(2, |(idx, _)| idx + 2)
    }
}

/// 0 below 0, 1 above 1, and smooth in between.
pub(crate) fn smooth(t: f32) -> f32 {
    let t = t.clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

/// A pixel count or index as a floating-point number.
#[expect(
    clippy::cast_precision_loss,
    reason = "pictures are far smaller than 2^24 pixels"
)]
pub(crate) fn pixels(n: usize) -> f32 {
    n as f32
}

/// The pixel that a place lies in; 0 for places before the first.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates: 0 below, and no picture reaches the other end"
)]
pub(crate) fn index(place: f32) -> usize {
    place as usize
}

/// A place in 0..=n − 1 as its pixel and the distance to the next one.
fn mirror(place: f32, n: usize) -> (usize, f32) {
    let last = pixels(n - 1).max(1.0);
    let there_and_back = place - (place / (2.0 * last)).floor() * 2.0 * last;
    let inside = last - (there_and_back - last).abs();
    let node = inside.floor();
    (index(node).min(n - 1), inside - node)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean squared difference of values `step` pixels apart.
    fn variation(field: &Field, step: usize) -> f32 {
        let differences = field.values.chunks_exact(field.width).flat_map(|line| {
            (step..line.len()).map(move |x| (line[x] - line[x - step]).powi(2))
        });
        differences.sum::<f32>() / pixels((field.width - step) * field.height)
    }

    #[test]
    fn natural_noise_is_smooth_and_white_noise_is_not() {
        let mut dice = Dice::new(1, 0);
        let field = Field::noise(512, 512, Noise::natural(256.0), &mut dice);
        let ratio = variation(&field, 32) / variation(&field, 8);
        assert!(
            (8.0..16.0).contains(&ratio),
            "hills vary {ratio} times as much farther off"
        );
        let white = Noise { cell: [1.0, 1.0], finest: 1.0, rough: 0.5 };
        let field = Field::noise(512, 512, white, &mut dice);
        let ratio = variation(&field, 32) / variation(&field, 8);
        assert!((0.9..1.1).contains(&ratio), "white noise varies by {ratio}");
    }

    #[test]
    fn a_field_stays_within_its_bounds_and_is_mirrored_beyond_its_edges() {
        let field = Field::noise(37, 23, Noise::natural(16.0), &mut Dice::new(2, 0));
        assert!(field.values.iter().all(|v| (-1.0..=1.0).contains(v)));
        for (x, y) in [(0.5, 3.25), (35.75, 21.5), (36.0, 0.0), (12.0, 22.0)] {
            let here = field.sample(x, y);
            for (x, y) in [(-x, y), (72.0 - x, y), (x, -y), (x, 44.0 - y), (x + 72.0, y)]
            {
                assert!((field.sample(x, y) - here).abs() < 1e-4, "{x} {y}");
            }
        }
    }
}
