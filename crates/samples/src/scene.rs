//! What a picture shows: one of four kinds of scene, each in its own file.
//!
//! A scene does not know how large its file will be; `detail` tells it how much texture to paint. Read
//! `landscape.rs` for the pattern, then `jpeg.rs`.

mod landscape;
mod objects;
mod street;
mod surface;

use crate::canvas::{Canvas, Colour};
use crate::dice::Dice;

/// Everything that determines a picture, besides its random numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// 0: smooth and out of focus. 1: sharp and full of texture.
    pub(crate) detail: f32,
}

/// Paints a scene.
pub(crate) fn paint(frame: Frame, dice: &mut Dice) -> Canvas {
    let kind = dice.below(100);
    let mut dice = dice.fork();
    match kind {
        0..35 => landscape::paint(frame, &mut dice),
        35..70 => objects::paint(frame, &mut dice),
        70..84 => street::paint(frame, &mut dice),
        _ => surface::paint(frame, &mut dice),
    }
}

const EARTHS: [Colour; 5] = [
    [0.42, 0.32, 0.22],
    [0.55, 0.47, 0.36],
    [0.36, 0.34, 0.31],
    [0.62, 0.55, 0.44],
    [0.30, 0.22, 0.16],
];
const GREENS: [Colour; 5] = [
    [0.24, 0.34, 0.12],
    [0.36, 0.44, 0.18],
    [0.16, 0.26, 0.12],
    [0.45, 0.46, 0.22],
    [0.20, 0.30, 0.20],
];
const VIVIDS: [Colour; 8] = [
    [0.72, 0.14, 0.10],
    [0.86, 0.52, 0.10],
    [0.88, 0.78, 0.22],
    [0.18, 0.34, 0.62],
    [0.52, 0.18, 0.34],
    [0.82, 0.74, 0.64],
    [0.30, 0.22, 0.16],
    [0.16, 0.42, 0.34],
];

/// A colour near `colour`: in nature, no two are the same.
fn near(colour: Colour, dice: &mut Dice) -> Colour {
    let light = dice.between(0.8, 1.2);
    colour.map(|channel| (channel * light + dice.between(-0.05, 0.05)).clamp(0.02, 1.0))
}

/// A colour near one of `palette`.
fn one_of(palette: &[Colour], dice: &mut Dice) -> Colour {
    near(dice.pick(palette), dice)
}
