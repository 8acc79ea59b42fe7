//! A picture being painted: colours as numbers, and in the end the effects of a camera.
//!
//! It does not know what is painted. Read `scene.rs` next.

use crate::dice::Dice;
use crate::field::{Field, Noise, pixels, smooth};

/// Red, green and blue; 0 is black, 1 is white, and light may be brighter.
pub(crate) type Colour = [f32; 3];

/// Linear interpolation: `a` at 0, `b` at 1.
pub(crate) fn mix(a: Colour, b: Colour, t: f32) -> Colour {
    [0, 1, 2].map(|i| a[i] + t * (b[i] - a[i]))
}

/// `colour` under more or less light.
pub(crate) fn lit(colour: Colour, light: f32) -> Colour {
    colour.map(|channel| channel * light)
}

/// A picture of colours.
#[derive(Debug)]
pub(crate) struct Canvas {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) pixels: Vec<Colour>,
}

impl Canvas {
    /// A black picture.
    pub(crate) fn new(width: usize, height: usize) -> Self {
        Self { width, height, pixels: vec![[0.0; 3]; width * height] }
    }

    /// Gives every pixel the colour of `paint(x, y)`.
    pub(crate) fn fill(&mut self, mut paint: impl FnMut(usize, usize) -> Colour) {
        for (y, line) in self.pixels.chunks_exact_mut(self.width).enumerate() {
            for (x, pixel) in line.iter_mut().enumerate() {
                *pixel = paint(x, y);
            }
        }
    }

    /// Blends `paint(x, y)` = (colour, opacity) over every pixel.
    pub(crate) fn cover(&mut self, mut paint: impl FnMut(usize, usize) -> (Colour, f32)) {
        for (y, line) in self.pixels.chunks_exact_mut(self.width).enumerate() {
            for (x, pixel) in line.iter_mut().enumerate() {
                let (colour, share) = paint(x, y);
                if share > 0.0 {
                    *pixel = mix(*pixel, colour, share.min(1.0));
                }
            }
        }
    }

    /// The picture's colour at a pixel.
    pub(crate) fn at(&self, x: usize, y: usize) -> Colour {
        self.pixels[y * self.width + x]
    }

    /// The picture as a camera would take it, as RGB bytes: with exposure, a slightly soft lens,
    /// darker corners, a tone curve and sensor grain (`grain`: standard deviation in 0..1).
    pub(crate) fn photograph(mut self, grain: f32, dice: &mut Dice) -> Vec<u8> {
        self.soften();
        let fine = Noise { cell: [2.2, 2.2], finest: 1.0, rough: 0.9 };
        let grains = Field::noise(self.width, self.height, fine, dice);
        let (middle_x, middle_y) = (pixels(self.width) / 2.0, pixels(self.height) / 2.0);
        let corner = middle_x * middle_x + middle_y * middle_y;
        let vignette = dice.between(0.05, 0.35);
        let exposure = self.exposure(dice.between(0.33, 0.6));
        let cast = [(); 3].map(|()| exposure * dice.between(0.95, 1.05));
        let mut bytes = Vec::with_capacity(self.pixels.len() * 3);
        for (i, pixel) in self.pixels.iter().enumerate() {
            let dx = pixels(i % self.width) - middle_x;
            let dy = pixels(i / self.width) - middle_y;
            let light = 1.0 - vignette * (dx * dx + dy * dy) / corner;
            let noise = grains.values[i] * grain * 2.5;
            for (channel, cast) in pixel.iter().zip(cast) {
                bytes.push(byte(tone(channel * light * cast) + noise));
            }
        }
        bytes
    }

    /// The factor that gives the light a mean of `wanted`, within reason.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "f32 is precise enough for light"
    )]
    fn exposure(&self, wanted: f32) -> f32 {
        let sum: f64 = self.pixels.iter().map(|&[_, green, _]| f64::from(green)).sum();
        let mean = sum / f64::from(pixels(self.pixels.len()));
        (f64::from(wanted) / mean.max(0.01)).clamp(0.6, 2.2) as f32
    }

    /// Mixes each pixel a little with its neighbours, as every lens and sensor does.
    fn soften(&mut self) {
        let row = self.width;
        for i in 1..self.pixels.len() {
            self.pixels[i - 1] = mix(self.pixels[i - 1], self.pixels[i], 0.22);
        }
        for i in row..self.pixels.len() {
            self.pixels[i - row] = mix(self.pixels[i - row], self.pixels[i], 0.22);
        }
    }
}

/// A film-like curve: contrast in the middle, gentle ends.
fn tone(light: f32) -> f32 {
    let light = light.max(0.0);
    let shoulder = light * (1.0 + light * 0.3) / (1.0 + light * 0.45);
    shoulder * 0.65 + smooth(shoulder) * 0.35
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the range of a byte"
)]
fn byte(light: f32) -> u8 {
    (light * 255.0 + 0.5).clamp(0.0, 255.0) as u8
}
