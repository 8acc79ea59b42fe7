//! Sky, ridges fading into haze, a plain in perspective, bushes in front; sometimes water.

use super::{EARTHS, Frame, GREENS, near, one_of};
use crate::canvas::{Canvas, Colour, lit, mix};
use crate::dice::Dice;
use crate::field::{Field, Noise, index, pixels, smooth};

pub(super) fn paint(frame: Frame, dice: &mut Dice) -> Canvas {
    let Frame { width, height, .. } = frame;
    let mut canvas = Canvas::new(width, height);
    let horizon = pixels(height) * dice.between(0.32, 0.62);
    let haze =
        one_of(&[[0.78, 0.82, 0.86], [0.90, 0.78, 0.62], [0.70, 0.76, 0.84]], dice);
    sky(&mut canvas, haze, &mut dice.fork());
    let n_ridges = 1 + dice.below(4);
    for ridge_idx in 0..n_ridges {
        let nearness =
            (pixels(ridge_idx as usize) + 1.0) / (pixels(n_ridges as usize) + 0.3);
        ridge(&mut canvas, frame, Ridge { horizon, nearness, haze }, &mut dice.fork());
    }
    if dice.chance(0.3) {
        water(&mut canvas, horizon, &mut dice.fork());
    } else {
        plain(&mut canvas, frame, horizon, &mut dice.fork());
    }
    for _ in 0..dice.below(5) {
        bush(&mut canvas, frame, horizon, &mut dice.fork());
    }
    canvas
}

fn sky(canvas: &mut Canvas, haze: Colour, dice: &mut Dice) {
    let Canvas { width, height, .. } = *canvas;
    let blue =
        one_of(&[[0.30, 0.50, 0.80], [0.42, 0.58, 0.80], [0.52, 0.56, 0.62]], dice);
    let shape = Noise {
        cell: [pixels(width) * 0.6, pixels(height) * 0.25],
        finest: 2.0,
        rough: 0.52,
    };
    let clouds = Field::noise(width, height, shape, dice);
    let cover = dice.between(-0.25, 0.2);
    canvas.fill(|x, y| {
        let down = pixels(y) / pixels(height);
        let clear = mix(blue, haze, smooth(down * 1.7));
        let density = smooth((clouds.at(x, y) - cover) * 3.5);
        let shade = 0.95 + 0.2 * clouds.relief(x, y, 12.0) - 0.18 * density;
        mix(clear, lit([0.97, 0.97, 0.99], shade), density * 0.9)
    });
}

/// Where a ridge stands.
#[derive(Clone, Copy)]
struct Ridge {
    horizon: f32,
    /// 0: lost in the haze. 1: close by.
    nearness: f32,
    haze: Colour,
}

fn ridge(canvas: &mut Canvas, frame: Frame, at: Ridge, dice: &mut Dice) {
    let Frame { width, height, detail } = frame;
    let tall = pixels(height) * dice.between(0.10, 0.30) * (1.25 - 0.8 * at.nearness);
    let line = Field::noise(width, 1, Noise::natural(pixels(width) * 0.5), dice);
    let crest: Vec<f32> =
        line.values.iter().map(|v| at.horizon - tall * (0.35 + 1.1 * v)).collect();
    let rock =
        Field::noise(width, height, Noise { rough: 0.62, ..Noise::natural(60.0) }, dice);
    let palette = if dice.chance(0.6) { GREENS } else { EARTHS };
    let (dark, bright) = (one_of(&palette, dice), one_of(&EARTHS, dice));
    canvas.cover(|x, y| {
        let depth = pixels(y) - crest[x];
        if depth <= 0.0 {
            return (dark, 0.0);
        }
        let light = 0.75 + (0.3 + 0.5 * detail) * rock.relief(x, y, 9.0);
        let stone = lit(mix(dark, bright, smooth(rock.at(x, y) * 2.0 + 0.4)), light);
        (mix(at.haze, stone, 0.15 + 0.8 * at.nearness), depth)
    });
}

/// The ground as a plane: its texture shrinks towards the horizon.
fn plain(canvas: &mut Canvas, frame: Frame, horizon: f32, dice: &mut Dice) {
    let Frame { width, height, detail } = frame;
    let rough = 0.52 + 0.3 * detail;
    let turf = Field::noise(width, height, Noise { rough, ..Noise::natural(90.0) }, dice);
    let palette = if dice.chance(0.7) { GREENS } else { EARTHS };
    let (dark, bright) = (one_of(&palette, dice), one_of(&palette, dice));
    let middle = pixels(width) * dice.between(0.2, 0.8);
    canvas.cover(|x, y| {
        let below = pixels(y) - horizon;
        if below <= 0.0 {
            return (dark, 0.0);
        }
        let far = pixels(height) / (below + 6.0);
        let across = (pixels(x) - middle) * far * 0.45;
        let height_here = turf.sample(across, 120.0 * far);
        let slope = height_here - turf.sample(across - 1.0, 120.0 * far - 1.0);
        let light = 0.75 + (1.0 + 2.5 * detail) * slope + 0.2 / far;
        (lit(mix(dark, bright, smooth(height_here * 2.2 + 0.5)), light), below * 0.5)
    });
}

/// A reflection of what is above it, broken by waves that grow towards the viewer.
fn water(canvas: &mut Canvas, horizon: f32, dice: &mut Dice) {
    let Canvas { width, height, .. } = *canvas;
    let shape = Noise { cell: [70.0, 9.0], finest: 1.5, rough: 0.6 };
    let waves = Field::noise(width, height, shape, dice);
    let deep = near([0.16, 0.24, 0.28], dice);
    let surface = index(horizon).min(height - 1);
    for y in surface..height {
        for x in 0..width {
            let depth = pixels(y - surface);
            let wave = waves.at(x, y) * (2.0 + depth * 0.25);
            let above = index(pixels(surface) - depth * 0.9 + wave).min(surface);
            let sideways = index(pixels(x) + wave * 0.5).min(width - 1);
            let mirror =
                mix(canvas.at(sideways, above), deep, 0.25 + 0.2 * smooth(depth / 200.0));
            canvas.pixels[y * width + x] =
                lit(mirror, 1.0 + waves.relief(x, y, 1.5) * 0.5);
        }
    }
}

/// A bush or tree: a ragged ball of leaves, lit from the upper left, with a shadow.
fn bush(canvas: &mut Canvas, frame: Frame, horizon: f32, dice: &mut Dice) {
    let Frame { width, height, detail } = frame;
    let foot = horizon + (pixels(height) - horizon) * dice.between(0.1, 0.9);
    let size = pixels(height) * 0.12 + (foot - horizon) * dice.between(0.5, 0.9);
    let (middle_x, middle_y) = (pixels(width) * dice.unit(), foot - size * 0.8);
    let leaves = Field::noise(
        width,
        height,
        Noise { rough: 0.72, ..Noise::natural(size * 0.6) },
        dice,
    );
    let green = one_of(&GREENS, dice);
    canvas.cover(|x, y| {
        let (dx, dy) = ((pixels(x) - middle_x) / size, (pixels(y) - foot) / (size * 0.2));
        ([0.06, 0.07, 0.06], (1.0 - dx * dx - dy * dy).max(0.0) * 0.7)
    });
    canvas.cover(|x, y| {
        let (dx, dy) = ((pixels(x) - middle_x) / size, (pixels(y) - middle_y) / size);
        let inside = 1.0 - dx * dx - dy * dy + 1.6 * leaves.at(x, y);
        let light =
            0.62 - 0.3 * (dx + dy) + (0.4 + 0.9 * detail) * leaves.relief(x, y, 5.0);
        (lit(green, light.max(0.12)), inside * size * 0.15)
    });
}
