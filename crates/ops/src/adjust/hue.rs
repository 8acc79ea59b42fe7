//! Hue: rotates colours along the colour wheel.
//!
//! A colour has a largest value, a smallest, and one in between. Along the six sextants of the wheel the
//! largest and the smallest move from channel to channel, and the one in between rises or falls. Rotating
//! changes only the sextant and the position within it. Read `spread.rs` next.

use super::planes::{self, PIXELS, Planes};
use crate::image::Image;
use crate::kernels::Level;
use crate::kernels::compiled::{Work, run, truncated};

/// torchvision's tensors scale a fraction of one to a byte by 255.999 and truncate.
const SCALE: f32 = 255.999 / 255.0;

/// The wheel in sixths.
const ROUND: f32 = 6.0;

/// Turns colours by `turns`, −½ to ½: torchvision's `adjust_hue` on tensors, in f32 and in the
/// order written here. Tensors differ by 1 where their rounding decides: measured, in one of
/// 100,000 values. Pillow's images differ far more: their hue has 8 bits. Images of other
/// than three channels have no hue, and stay as they are.
#[expect(clippy::cast_possible_truncation, reason = "an f32 is enough of a turn")]
pub(super) fn hue(level: Level, image: &mut Image, turns: f64) {
    if image.channels() == 3 {
        let sixths = (turns - turns.floor()) as f32 * ROUND;
        planes::change(level, image.pixels_mut(), |planes| {
            run(level, Turn { planes, sixths });
        });
    }
}

struct Turn<'a> {
    planes: &'a mut Planes,
    /// By how much, 0 to 6.
    sixths: f32,
}

impl Work for Turn<'_> {
    #[inline(always)]
    fn run(self) {
        let Turn { planes: [r, g, b], sixths } = self;
        let [mut top, mut bottom, mut sixth, mut between] = [[0; PIXELS]; 4];
        let [mut third, mut ahead, mut behind] = [[0; PIXELS]; 3];
        // A loop for bytes, one for numbers with a fraction, and one for bytes: vectors of
        // bytes are wider.
        for i in 0..PIXELS {
            let (red, green, blue) = (r[i], g[i], b[i]);
            top[i] = red.max(green).max(blue);
            bottom[i] = red.min(green).min(blue);
            // The third of the wheel that the largest is the middle of, and the channels
            // ahead of it and behind it.
            let choose = |of_red: u8, of_green: u8, of_blue: u8| {
                let of_others = if green == top[i] { of_green } else { of_blue };
                if red == top[i] { of_red } else { of_others }
            };
            third[i] = choose(0, 2, 4);
            ahead[i] = choose(green, blue, red);
            behind[i] = choose(blue, red, green);
        }
        for i in 0..PIXELS {
            let off_middle = f32::from(i16::from(ahead[i]) - i16::from(behind[i]));
            let range = f32::from(top[i] - bottom[i]);
            let place = f32::from(third[i]) + off_middle / range.max(1.0);
            (sixth[i], between[i]) = turned(place + sixths, bottom[i], top[i]);
        }
        for i in 0..PIXELS {
            [r[i], g[i], b[i]] = colour(sixth[i], [bottom[i], between[i], top[i]]);
        }
    }
}

/// The sixth of the wheel that `place` lies in, which is from −1 to 11, and the value between
/// the smallest and the largest there.
#[inline(always)]
fn turned(place: f32, bottom: u8, top: u8) -> (u8, u8) {
    let place = if place < 0.0 { place + ROUND } else { place };
    let place = if place >= ROUND { place - ROUND } else { place };
    let sixth = truncated(place);
    let (bottom, top) = (f32::from(bottom), f32::from(top));
    let come = (top - bottom) * (place - f32::from(sixth));
    let between = if sixth.is_multiple_of(2) { bottom + come } else { top - come };
    (sixth, truncated(between * SCALE))
}

/// Red, green and blue in a sixth of the wheel.
#[inline(always)]
fn colour(sixth: u8, [bottom, between, top]: [u8; 3]) -> [u8; 3] {
    let channel = |tops: [u8; 2], betweens: [u8; 2]| {
        let is_one = |of: [u8; 2]| (sixth == of[0]) | (sixth == of[1]);
        let below = if is_one(betweens) { between } else { bottom };
        if is_one(tops) { top } else { below }
    };
    [channel([5, 0], [1, 4]), channel([1, 2], [0, 3]), channel([3, 4], [2, 5])]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adjust::tests::image_of;

    fn turned_by(turns: f64, colour: [u8; 3]) -> [u8; 3] {
        let mut image = image_of(3, &colour);
        hue(Level::Scalar, &mut image, turns);
        [image.pixels()[0], image.pixels()[1], image.pixels()[2]]
    }

    #[test]
    fn a_third_of_a_turn_goes_to_the_next_channel() {
        assert_eq!(turned_by(1.0 / 3.0, [200, 0, 0]), [0, 200, 0]);
        assert_eq!(turned_by(1.0 / 3.0, [0, 200, 0]), [0, 0, 200]);
        assert_eq!(turned_by(-1.0 / 3.0, [200, 0, 0]), [0, 0, 200]);
        assert_eq!(turned_by(0.5, [200, 30, 30]), [30, 200, 200]);
        assert_eq!(turned_by(-0.5, [200, 30, 30]), [30, 200, 200]);
    }

    #[test]
    fn a_part_of_a_sixth_moves_the_value_between() {
        // From red, a twelfth of a turn is half of the way to yellow: 100 of 200.
        assert_eq!(turned_by(1.0 / 12.0, [200, 0, 0]), [200, 100, 0]);
        assert_eq!(turned_by(-1.0 / 12.0, [200, 0, 0]), [200, 0, 100]);
        // 240 ÷ 255 · 255.999 is 240.94, truncated: never more than the value.
        assert_eq!(turned_by(0.1, [240, 240, 240]), [240, 240, 240]);
    }

    #[test]
    fn colours_that_are_not_turned_stay() {
        let steps = || (0..=255).step_by(5);
        let colours: Vec<u8> = steps()
            .flat_map(|r| steps().flat_map(move |g| steps().flat_map(move |b| [r, g, b])))
            .collect();
        let before = image_of(3, &colours);
        for level in Level::available() {
            let mut after = before.clone();
            hue(level, &mut after, 0.0);
            assert_eq!(after, before, "{}", level.name());
        }
    }
}
