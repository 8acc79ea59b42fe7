//! A close-up of a surface: bark, stone, fur or pebbles, sharp in one band and soft elsewhere.

use super::{EARTHS, Frame, GREENS, VIVIDS, one_of};
use crate::canvas::{Canvas, Colour, lit, mix};
use crate::dice::Dice;
use crate::field::{Field, Noise, index, pixels, smooth};

pub(super) fn paint(frame: Frame, dice: &mut Dice) -> Canvas {
    if dice.chance(0.4) { pebbles(frame, dice) } else { grown(frame, dice) }
}

/// Noise distorted by other noise: surfaces that grow or weather.
fn grown(frame: Frame, dice: &mut Dice) -> Canvas {
    let Frame { width, height, detail } = frame;
    let stretch = dice.pick(&[1.0, 1.0, 3.0, 8.0]);
    let fibre =
        Noise { cell: [40.0, 40.0 * stretch], finest: 1.5, rough: 0.56 + 0.28 * detail };
    let fibre = Field::noise(width, height, fibre, dice);
    let bend = Noise { finest: 12.0, ..Noise::natural(pixels(width) * 0.4) };
    let [bend_x, bend_y] = [(); 2].map(|()| Field::noise(width, height, bend, dice));
    let reach = dice.between(20.0, 90.0);
    let bent = |x: usize, y: usize| {
        let (dx, dy) = (bend_x.at(x, y) * reach, bend_y.at(x, y) * reach);
        fibre.sample(pixels(x) + dx, pixels(y) + dy)
    };
    let heights = (0..width * height).map(|i| bent(i % width, i / width)).collect();
    let heights = Field { width, height, values: heights };
    let [a, b] = [(); 2].map(|()| one_of(&EARTHS, dice));
    let lively: &[Colour] = if dice.chance(0.5) { &GREENS } else { &VIVIDS };
    let c = one_of(lively, dice);
    let mut canvas = Canvas::new(width, height);
    canvas.fill(|x, y| {
        let rise = heights.at(x, y);
        let moss = smooth(bend_x.at(x, y) * 3.0 - 0.2 + rise);
        let colour = mix(mix(a, b, smooth(rise * 2.0 + 0.5)), c, moss * 0.7);
        let sharp = 0.4 + 0.9 * detail;
        lit(colour, 0.85 + 0.5 * bend_y.at(x, y) + sharp * heights.relief(x, y, 4.0))
    });
    canvas
}

/// Stones side by side: each pixel belongs to the nearest of randomly placed centres.
fn pebbles(frame: Frame, dice: &mut Dice) -> Canvas {
    let Frame { width, height, detail } = frame;
    let pitch = dice.between(24.0, 70.0);
    let n_across = index(pixels(width) / pitch) + 3;
    let n_down = index(pixels(height) / pitch) + 3;
    let stones: Vec<Stone> = (0..n_across * n_down)
        .map(|i| Stone {
            x: (pixels(i % n_across) - 1.0 + dice.unit()) * pitch,
            y: (pixels(i / n_across) - 1.0 + dice.unit()) * pitch,
            colour: one_of(&EARTHS, dice),
        })
        .collect();
    let skin = Noise { rough: 0.52 + 0.3 * detail, ..Noise::natural(pitch) };
    let skin = Field::noise(width, height, skin, dice);
    let mut canvas = Canvas::new(width, height);
    canvas.fill(|x, y| {
        let wobble = skin.at(x, y) * pitch * 0.35;
        let (px, py) = (pixels(x) + wobble, pixels(y) - wobble);
        let cell = (index(py / pitch) + 1) * n_across + index(px / pitch) + 1;
        let (nearest, gap) = nearest_stone(&stones, n_across, cell, [px, py]);
        let stone = stones[nearest];
        let (dx, dy) = ((px - stone.x) / pitch, (py - stone.y) / pitch);
        let round = smooth(gap / (pitch * 0.35));
        let grain = (0.2 + 0.7 * detail) * skin.relief(x, y, 4.0);
        let light = 0.25 + 0.75 * round - 0.45 * (dx + dy) + grain;
        lit(stone.colour, (light + 0.3 * skin.at(x, y)).max(0.06) * 1.1)
    });
    canvas
}

#[derive(Clone, Copy)]
struct Stone {
    x: f32,
    y: f32,
    colour: Colour,
}

/// The stone nearest to `place`, and how much nearer it is than the next: 0 in a crack.
fn nearest_stone(
    stones: &[Stone],
    n_across: usize,
    cell: usize,
    place: [f32; 2],
) -> (usize, f32) {
    let (mut nearest, mut first, mut second) = (0, f32::MAX, f32::MAX);
    for row in [cell.saturating_sub(n_across), cell, cell + n_across] {
        for idx in row.saturating_sub(1)..=row + 1 {
            let Some(stone) = stones.get(idx) else { continue };
            let (dx, dy) = (stone.x - place[0], stone.y - place[1]);
            let distance = (dx * dx + dy * dy).sqrt();
            if distance < first {
                (nearest, second, first) = (idx, first, distance);
            } else {
                second = second.min(distance);
            }
        }
    }
    (nearest, second - first)
}
