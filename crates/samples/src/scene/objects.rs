//! Objects in front of a background that is out of focus: round, patterned, lit from one
//! side, casting a shadow.

use super::{EARTHS, Frame, GREENS, VIVIDS, one_of};
use crate::canvas::{Canvas, Colour, lit, mix};
use crate::dice::Dice;
use crate::field::{Field, Noise, pixels, smooth};

pub(super) fn paint(frame: Frame, dice: &mut Dice) -> Canvas {
    let Frame { width, height, .. } = frame;
    let mut canvas = Canvas::new(width, height);
    background(&mut canvas, &mut dice.fork());
    let table = pixels(height) * dice.between(0.45, 0.75);
    ground(&mut canvas, frame, table, &mut dice.fork());
    let n_things = 1 + dice.below(4);
    let room = pixels(width.min(height)) * (0.42 - 0.05 * pixels(n_things as usize));
    for thing_idx in 0..n_things {
        let place = (pixels(thing_idx as usize) + dice.between(0.3, 0.7))
            / pixels(n_things as usize);
        let radius = room * dice.between(0.6, 1.1);
        let thing = Thing {
            x: pixels(width) * place,
            y: table + pixels(height) * dice.between(-0.12, 0.18),
            radii: [radius * dice.between(0.75, 1.35), radius],
        };
        thing.paint(&mut canvas, frame, &mut dice.fork());
    }
    canvas
}

/// Soft colours and, here and there, a disc of light.
fn background(canvas: &mut Canvas, dice: &mut Dice) {
    let Canvas { width, height, .. } = *canvas;
    let blur = Noise { finest: 40.0, ..Noise::natural(pixels(width) * 0.7) };
    let [first, second] = [(); 2].map(|()| Field::noise(width, height, blur, dice));
    let [a, b, c] = [GREENS, EARTHS, GREENS].map(|palette| one_of(&palette, dice));
    let c = if dice.chance(0.4) { one_of(&VIVIDS, dice) } else { c };
    canvas.fill(|x, y| {
        let colour = mix(a, b, smooth(first.at(x, y) * 1.6 + 0.5));
        lit(
            mix(colour, c, smooth(second.at(x, y) * 1.6 + 0.2)),
            1.1 + 0.6 * first.at(x, y),
        )
    });
    for _ in 0..dice.below(12) {
        let (x0, y0) = (pixels(width) * dice.unit(), pixels(height) * 0.6 * dice.unit());
        let (radius, glow) = (dice.between(6.0, 28.0), dice.between(0.1, 0.45));
        canvas.cover(|x, y| {
            let (dx, dy) = ((pixels(x) - x0) / radius, (pixels(y) - y0) / radius);
            ([1.0, 0.95, 0.82], smooth((1.0 - dx * dx - dy * dy) * 4.0) * glow)
        });
    }
}

/// The surface under the objects: wood, cloth or grass, sharpest where they stand.
fn ground(canvas: &mut Canvas, frame: Frame, table: f32, dice: &mut Dice) {
    let Frame { width, height, detail } = frame;
    let stretch = dice.pick(&[1.0, 6.0, 14.0]);
    let grain =
        Noise { cell: [30.0 * stretch, 30.0], finest: 1.5, rough: 0.56 + 0.28 * detail };
    let wood = Field::noise(width, height, grain, dice);
    let palette = if stretch < 2.0 { GREENS } else { EARTHS };
    let (dark, bright) = (one_of(&palette, dice), one_of(&palette, dice));
    canvas.cover(|x, y| {
        let below = pixels(y) - table + 40.0;
        let near_focus = smooth(below / 120.0);
        let light = 0.85 + (0.3 + detail) * wood.relief(x, y, 4.0) * near_focus;
        (
            lit(mix(dark, bright, smooth(wood.at(x, y) * 2.0 + 0.5)), light),
            smooth(below / 60.0),
        )
    });
}

/// A roundish object.
#[derive(Clone, Copy)]
struct Thing {
    x: f32,
    y: f32,
    radii: [f32; 2],
}

impl Thing {
    fn paint(self, canvas: &mut Canvas, frame: Frame, dice: &mut Dice) {
        let Frame { width, height, detail } = frame;
        let radius = self.radii[1];
        let skin = Noise { rough: 0.5 + 0.32 * detail, ..Noise::natural(radius * 0.5) };
        let skin = Field::noise(width, height, skin, dice);
        let drawing = Field::noise(
            width,
            height,
            Noise { finest: 8.0, ..Noise::natural(radius) },
            dice,
        );
        let pattern = Pattern::random(radius, dice);
        let (gloss, ragged) = (dice.between(0.0, 0.7), dice.between(0.0, 0.35));
        let [rx, ry] = self.radii;
        canvas.cover(|x, y| {
            let dx = (pixels(x) - self.x - rx * 0.35) / (rx * 1.15);
            let dy = (pixels(y) - self.y - ry * 0.85) / (ry * 0.3);
            ([0.05, 0.05, 0.06], smooth(1.0 - dx * dx - dy * dy) * 0.75)
        });
        canvas.cover(|x, y| {
            let (dx, dy) = ((pixels(x) - self.x) / rx, (pixels(y) - self.y) / ry);
            let inside = 1.0 - dx * dx - dy * dy + ragged * drawing.at(x, y);
            if inside <= 0.0 {
                return ([0.0; 3], 0.0);
            }
            let toward = inside.sqrt();
            let bump = (0.15 + 0.6 * detail) * skin.relief(x, y, 4.0);
            let light = (0.58 * toward - 0.5 * dx - 0.45 * dy + bump).max(0.0) + 0.16;
            let albedo = pattern.colour(dx, dy, drawing.at(x, y), skin.at(x, y));
            let (sx, sy) = (dx + 0.36, dy + 0.40);
            let shine = smooth(1.0 - (sx * sx + sy * sy) * 14.0) * gloss;
            (mix(lit(albedo, light), [1.0, 0.98, 0.94], shine), inside * radius * 0.4)
        });
    }
}

/// The pattern of an object.
#[derive(Clone, Copy)]
struct Pattern {
    kind: u32,
    base: Colour,
    drawn: Colour,
    pitch: f32,
}

impl Pattern {
    fn random(radius: f32, dice: &mut Dice) -> Self {
        let palette: &[Colour] = if dice.chance(0.65) { &VIVIDS } else { &EARTHS };
        let (base, drawn) = (one_of(palette, dice), one_of(&EARTHS, dice));
        Self {
            kind: dice.below(4),
            base,
            drawn,
            pitch: dice.between(2.0, 7.0) + radius * 0.01,
        }
    }

    fn colour(self, dx: f32, dy: f32, drawing: f32, skin: f32) -> Colour {
        let share = match self.kind {
            0 => smooth(skin * 2.0 + 0.3) * 0.4,
            // Stripes that follow the body: bands of a bent coordinate.
            1 => {
                let place = (dx + 0.3 * dy * dy + drawing * 0.8) * self.pitch;
                smooth(((place - place.floor()) - 0.5).abs() * 8.0 - 1.4)
            }
            // Spots where the pattern is high.
            2 => smooth((drawing + 0.5 * skin) * 14.0 - 2.0),
            // Darker towards the rim and below, as fruit is.
            _ => smooth(dx * dx + dy * 0.6 + skin) * 0.7,
        };
        lit(mix(self.base, self.drawn, share), 1.0 + 0.35 * skin)
    }
}
