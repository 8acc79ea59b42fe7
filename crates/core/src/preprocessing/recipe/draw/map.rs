//! Maps of the plane: what `random_rotation`, `random_affine` and `random_perspective` draw,
//! and the maps that follow from it (torchvision's `_get_inverse_affine_matrix` and
//! `_get_perspective_coeffs`, Pillow's `Image.rotate`).

use crate::arith::{radians, sin_cos};
use crate::recipe::Size;
use crate::recipe::op::RandomAffine;
use crate::recipe::step::Map;
use crate::rng::Draws;

/// What `random_affine` draws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AffineChoice {
    /// Degrees, clockwise.
    pub angle: f64,
    /// Columns and rows, whole.
    pub translate: [f64; 2],
    /// Magnification.
    pub scale: f64,
    /// Degrees of shear along rows and along columns.
    pub shear: [f64; 2],
}

/// Draws what [`AffineChoice`] holds, in its order; what the op does not have is not drawn.
#[must_use]
pub fn affine(draws: &mut Draws, image: Size, op: &RandomAffine) -> AffineChoice {
    let angle = draws.between(op.degrees.0);
    let translate = op.translate.map_or([0.0; 2], |[columns, rows]| {
        let x = columns * f64::from(image.width);
        let y = rows * f64::from(image.height);
        [[-x, x], [-y, y]].map(|range| draws.between(range).round_ties_even())
    });
    let scale = op.scale.map_or(1.0, |scale| draws.between(scale.0));
    let shear = op.shear.map_or([0.0; 2], |shear| {
        let [x, to_x, y, to_y] = shear.0;
        [[x, to_x], [y, to_y]].map(|range| draws.between(range))
    });
    AffineChoice { angle, translate, scale, shear }
}

impl AffineChoice {
    /// The map that looks the result up in the image; `center` stays where it is except for the
    /// translation.
    #[must_use]
    pub fn map(&self, [center_x, center_y]: [f64; 2]) -> Map {
        let angle = radians(self.angle);
        let [shear_x, shear_y] = self.shear.map(radians);
        let (_, cos_y) = sin_cos(shear_y);
        let (sin_x, cos_x) = sin_cos(shear_x);
        let tan_x = sin_x / cos_x;
        let (sin, cos) = sin_cos(angle);
        let (sin_less, cos_less) = sin_cos(angle - shear_y);
        let a = cos_less / cos_y;
        let b = -cos_less * tan_x / cos_y - sin;
        let c = sin_less / cos_y;
        let d = -sin_less * tan_x / cos_y + cos;
        let [a, b, c, d] = [d, -b, -c, a].map(|x| x / self.scale);
        let [x, y] = self.translate;
        let (x, y) = (-center_x - x, -center_y - y);
        Map::Affine([a, b, a * x + b * y + center_x, c, d, c * x + d * y + center_y])
    }
}

/// The map of a turn by `degrees` counter-clockwise about `center`, and the size of the
/// result: the image's, or with `expand` that of the whole turned image. Sines and cosines
/// are rounded to 15 decimals, as Pillow does.
#[must_use]
pub fn rotation_map(
    degrees: f64,
    image: Size,
    center: [f64; 2],
    expand: Expand,
) -> (Map, Size) {
    let whole = degrees - (degrees / 360.0).floor() * 360.0;
    let (sin, cos) = sin_cos(-radians(whole));
    let [sin, cos] = [sin, cos].map(|x| (x * 1e15).round_ties_even() / 1e15);
    let [x, y] = center;
    let at = |[a, b, c, d, e, f]: [f64; 6], x: f64, y: f64| {
        [a * x + b * y + c, d * x + e * y + f]
    };
    let mut map = [cos, sin, 0.0, -sin, cos, 0.0];
    let [c, f] = at(map, -x, -y);
    (map[2], map[5]) = (c + x, f + y);
    if expand == Expand::No {
        return (Map::Affine(map), image);
    }
    let (width, height) = (f64::from(image.width), f64::from(image.height));
    let corners = [[0.0, 0.0], [width, 0.0], [width, height], [0.0, height]];
    let corners = corners.map(|[x, y]| at(map, x, y));
    let extent = |axis: usize| {
        let ends = corners.map(|corner| corner[axis]);
        let high = ends.iter().fold(f64::NEG_INFINITY, |high, end| high.max(*end));
        let low = ends.iter().fold(f64::INFINITY, |low, end| low.min(*end));
        high.ceil() - low.floor()
    };
    // A quarter turn about the middle is the image's sides exchanged, where corners may come to
    // lie half a pixel off, and whole pixels round them would be one more.
    let is_quarter = cos == 0.0 && center == [width / 2.0, height / 2.0];
    let (new_width, new_height) =
        if is_quarter { (height, width) } else { (extent(0), extent(1)) };
    let moved = at(map, -(new_width - width) / 2.0, -(new_height - height) / 2.0);
    [map[2], map[5]] = moved;
    let size =
        Size { height: super::pixels(new_height), width: super::pixels(new_width) };
    (Map::Affine(map), size)
}

/// Whether a turned image may get larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expand {
    /// It has the size of the image.
    No,
    /// It holds the whole turned image.
    Yes,
}

/// Where `random_perspective` puts the corners of an image, as [column, row]: upper left,
/// upper right, lower right, lower left. Draws `below` for column and row of each in turn.
#[must_use]
pub fn perspective(
    draws: &mut Draws,
    image: Size,
    distortion_scale: f64,
) -> [[f64; 2]; 4] {
    let mut place = |len: u32, side: Side| {
        let bound = super::pixels(distortion_scale * f64::from(len / 2)) + 1;
        let drawn = f64::from(draws.below(bound));
        match side {
            Side::First => drawn,
            Side::Last => f64::from(len.saturating_sub(bound)) + drawn,
        }
    };
    [
        [Side::First, Side::First],
        [Side::Last, Side::First],
        [Side::Last, Side::Last],
        [Side::First, Side::Last],
    ]
    .map(|[x, y]| [place(image.width, x), place(image.height, y)])
}

#[derive(Clone, Copy)]
enum Side {
    First,
    Last,
}

/// The map under which the corners of an image come to lie at `corners`. Its numbers are
/// rounded to `f32`, as torchvision's are; corners that no map puts there (three in a line)
/// give one that leaves out what cannot be.
#[must_use]
pub fn perspective_map(image: Size, corners: [[f64; 2]; 4]) -> Map {
    let right = f64::from(image.width) - 1.0;
    let bottom = f64::from(image.height) - 1.0;
    let from = [[0.0, 0.0], [right, 0.0], [right, bottom], [0.0, bottom]];
    let mut rows = [[0.0; 9]; 8];
    for (nth, (&[x, y], &[u, v])) in corners.iter().zip(&from).enumerate() {
        rows[2 * nth] = [x, y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y, u];
        rows[2 * nth + 1] = [0.0, 0.0, 0.0, x, y, 1.0, -v * x, -v * y, v];
    }
    #[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest f32")]
    let numbers = solve(rows).map(|x| f64::from(x as f32));
    Map::Perspective(numbers)
}

/// Solves eight equations in eight unknowns by elimination, the largest pivot of each column
/// first; an unknown without a pivot is 0.
fn solve(mut rows: [[f64; 9]; 8]) -> [f64; 8] {
    const N: usize = 8;
    for column in 0..N {
        let mut pivot = column;
        for row in column + 1..N {
            if rows[row][column].abs() > rows[pivot][column].abs() {
                pivot = row;
            }
        }
        rows.swap(column, pivot);
        let pivot = rows[column];
        if pivot[column].abs() < 1e-9 {
            continue;
        }
        for row in &mut rows[column + 1..] {
            let factor = row[column] / pivot[column];
            for (x, y) in row.iter_mut().zip(pivot) {
                *x -= factor * y;
            }
        }
    }
    let mut unknowns = [0.0; N];
    for row in (0..N).rev() {
        let mut right = rows[row][N];
        for column in row + 1..N {
            right -= rows[row][column] * unknowns[column];
        }
        let pivot = rows[row][row];
        unknowns[row] = if pivot.abs() < 1e-9 { 0.0 } else { right / pivot };
    }
    unknowns
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: Size = Size { height: 29, width: 26 };

    /// Pillow's `rotate` with `expand`: 29 × 26 pixels by 90° are 26 × 29, whose upper left
    /// pixel was the upper right one.
    #[test]
    fn a_quarter_turn_exchanges_the_sides() {
        let middle = [13.0, 14.5];
        let (map, size) = rotation_map(90.0, IMAGE, middle, Expand::Yes);
        assert_eq!(size, Size { height: 26, width: 29 });
        assert_eq!(map, Map::Affine([0.0, -1.0, 26.0, 1.0, 0.0, 0.0]));
        let (_, size) = rotation_map(-90.0, IMAGE, middle, Expand::Yes);
        assert_eq!(size, Size { height: 26, width: 29 });
        let (_, size) = rotation_map(180.0, IMAGE, middle, Expand::Yes);
        assert_eq!(size, IMAGE);
        let (_, size) = rotation_map(90.0, IMAGE, middle, Expand::No);
        assert_eq!(size, IMAGE);
    }
}
