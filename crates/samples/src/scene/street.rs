//! Buildings: straight edges, rows of windows, plaster and brick, half of it in shadow.

use super::{EARTHS, Frame, VIVIDS, near, one_of};
use crate::canvas::{Canvas, Colour, lit, mix};
use crate::dice::Dice;
use crate::field::{Field, Noise, index, pixels, smooth};

pub(super) fn paint(frame: Frame, dice: &mut Dice) -> Canvas {
    let Frame { width, height, detail } = frame;
    let mut canvas = Canvas::new(width, height);
    let (top, bottom) = (near([0.45, 0.58, 0.76], dice), near([0.80, 0.82, 0.82], dice));
    canvas.fill(|_, y| mix(top, bottom, pixels(y) / pixels(height)));
    let plaster = Noise { rough: 0.52 + 0.3 * detail, ..Noise::natural(80.0) };
    let plaster = Field::noise(width, height, plaster, dice);
    let street = pixels(height) * dice.between(0.72, 0.9);
    let mut left = -pixels(width) * 0.1;
    while left < pixels(width) {
        let wide = pixels(width) * dice.between(0.22, 0.6);
        let roof = pixels(height) * dice.between(-0.1, 0.45);
        let house = House::random([left, roof], [left + wide, street], dice);
        house.paint(&mut canvas, &plaster, detail);
        left += wide;
    }
    pavement(&mut canvas, &plaster, street, dice);
    shadow(&mut canvas, dice);
    canvas
}

/// The front of a house.
#[derive(Clone, Copy)]
struct House {
    from: [f32; 2],
    to: [f32; 2],
    /// The distance between windows, across and down.
    pitch: [f32; 2],
    /// The share of this distance that is glass.
    glass: [f32; 2],
    /// The rise of horizontal lines per pixel: the house is seen at an angle.
    lean: f32,
    wall: Colour,
    frame: Colour,
    brick: f32,
    seed: u32,
}

impl House {
    fn random(from: [f32; 2], to: [f32; 2], dice: &mut Dice) -> Self {
        let palette: &[Colour] = if dice.chance(0.7) { &EARTHS } else { &VIVIDS };
        let wall = mix(one_of(palette, dice), [0.8, 0.78, 0.74], dice.between(0.1, 0.6));
        let across = (to[0] - from[0]) / dice.between(2.0, 6.0);
        Self {
            from,
            to,
            pitch: [across, across * dice.between(1.0, 1.7)],
            glass: [dice.between(0.35, 0.7), dice.between(0.45, 0.75)],
            lean: dice.between(-0.12, 0.12),
            wall,
            frame: near([0.85, 0.84, 0.80], dice),
            brick: if dice.chance(0.5) { dice.between(0.1, 0.3) } else { 0.0 },
            seed: dice.word(),
        }
    }

    fn paint(self, canvas: &mut Canvas, plaster: &Field, detail: f32) {
        let cornice = self.pitch[1] * 0.2;
        canvas.cover(|x, y| {
            let (px, py) = (pixels(x) - self.from[0], pixels(y) - self.from[1]);
            let down = py + self.lean * px;
            if px < 0.0 || pixels(x) >= self.to[0] || down < 0.0 || pixels(y) > self.to[1]
            {
                return (self.wall, 0.0);
            }
            let rough = 1.0
                + 0.3 * plaster.at(x, y)
                + (0.2 + detail) * 0.5 * plaster.relief(x, y, 4.0);
            let colour = if down < cornice {
                lit(self.frame, 0.6 + 0.5 * down / cornice)
            } else {
                self.storey(px, down - cornice, plaster.at(x, y))
            };
            (lit(colour, rough), 1.0)
        });
    }

    /// Wall, window frame or pane at a place on the front.
    fn storey(self, px: f32, py: f32, stain: f32) -> Colour {
        let (u, v) = (px / self.pitch[0], py / self.pitch[1]);
        let (du, dv) = (u - u.floor() - 0.5, v - v.floor() - 0.5);
        let (edge_u, edge_v) =
            (du.abs() * 2.0 / self.glass[0], dv.abs() * 2.0 / self.glass[1]);
        let edge = edge_u.max(edge_v);
        if edge > 1.15 {
            return lit(self.wall, 1.0 - self.brick * mortar(px, py) + 0.2 * stain);
        }
        if edge > 0.93 || du.abs() < 0.02 {
            let light = if dv < 0.0 && edge_v > 1.0 { 0.55 } else { 1.0 };
            return lit(self.frame, light);
        }
        let window = index(u) * 7919 + index(v) * 104_729 + self.seed as usize % 1000;
        let dark = 0.12 + 0.1 * pixels(window % 4);
        let sky = smooth(0.5 - dv + du * 0.8 + stain);
        mix([0.10, 0.12, 0.14], [0.55, 0.64, 0.74], dark + 0.45 * sky)
    }
}

/// 1 in the joints between bricks of 12 × 5 pixels, 0 on them.
fn mortar(px: f32, py: f32) -> f32 {
    let course = (py / 5.0).floor();
    let shifted = px / 12.0 + course * 0.5;
    let joint = shifted - shifted.floor() < 0.09 || py / 5.0 - course < 0.2;
    if joint { 1.0 } else { 0.0 }
}

fn pavement(canvas: &mut Canvas, plaster: &Field, street: f32, dice: &mut Dice) {
    let grey = near([0.42, 0.41, 0.40], dice);
    let kerb = street + 8.0;
    let rows = pixels(canvas.height);
    canvas.cover(|x, y| {
        let below = pixels(y) - street;
        if below <= 0.0 {
            return (grey, 0.0);
        }
        let far = rows / (below + 8.0);
        let stone = plaster.sample(pixels(x) * far * 0.3, far * 90.0);
        let light = if pixels(y) < kerb { 1.35 } else { 0.85 };
        (lit(grey, light + 0.5 * stone), 1.0)
    });
}

/// The shadow of the houses across the street: one long slanted edge below the roofs.
fn shadow(canvas: &mut Canvas, dice: &mut Dice) {
    let slant = dice.between(-0.3, 0.3);
    let (middle, level) =
        (pixels(canvas.width) / 2.0, pixels(canvas.height) * dice.between(0.6, 0.8));
    let depth = dice.between(0.3, 0.6);
    canvas.cover(|x, y| {
        let inside = smooth((pixels(y) - level + slant * (pixels(x) - middle)) / 3.0);
        ([0.10, 0.12, 0.18], inside * depth)
    });
}
