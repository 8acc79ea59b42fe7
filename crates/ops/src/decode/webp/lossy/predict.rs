//! Prediction of pixels from those above and to the left (RFC 6386 §12).

/// How 16 × 16 or 8 × 8 pixels are predicted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Mean,
    Vertical,
    Horizontal,
    TrueMotion,
}

/// How 4 × 4 pixels are, in the order of the RFC's `intra_bmode`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Small {
    #[default]
    Mean,
    TrueMotion,
    Vertical,
    Horizontal,
    LeftDown,
    RightDown,
    VerticalRight,
    VerticalLeft,
    HorizontalDown,
    HorizontalUp,
}

/// Cells of a row of the workspace.
pub(super) const STRIDE: usize = 32;
/// Where the first pixel lies: below the row above, and behind the column to the left.
pub(super) const ORIGIN: usize = STRIDE + 4;

/// A macroblock's pixels of a plane, with a row above, four pixels to the right of that, and a column to
/// the left.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) cells: [u8; STRIDE * 17],
}

/// Whether what is above and what is to the left lie within the image.
pub(super) type Sides = [bool; 2];

impl Work {
    pub(super) fn new() -> Self {
        Self { cells: [0; STRIDE * 17] }
    }

    /// Predicts `size` × `size` pixels.
    pub(super) fn predict(&mut self, size: usize, mode: Mode, sides: Sides) {
        let above: [u8; 16] = std::array::from_fn(|x| self.cells[ORIGIN - STRIDE + x]);
        let corner = i32::from(self.cells[ORIGIN - STRIDE - 1]);
        let mean = match mode {
            Mode::Mean => self.mean(size, &above[..size], sides),
            Mode::Vertical | Mode::Horizontal | Mode::TrueMotion => 0,
        };
        for row in self.cells[ORIGIN - 1..].chunks_mut(STRIDE).take(size) {
            let left = row[0];
            let row = &mut row[1..=size];
            match mode {
                Mode::Mean => row.fill(mean),
                Mode::Vertical => row.copy_from_slice(&above[..size]),
                Mode::Horizontal => row.fill(left),
                Mode::TrueMotion => {
                    for (cell, above) in row.iter_mut().zip(above) {
                        *cell = true_motion(left, above, corner);
                    }
                }
            }
        }
    }

    fn mean(&self, size: usize, above: &[u8], sides: Sides) -> u8 {
        let (mut sum, mut n) = (0, 0);
        let [has_above, has_left] = sides;
        if has_above {
            sum += above.iter().map(|&cell| usize::from(cell)).sum::<usize>();
            n += size;
        }
        if has_left {
            let left = self.cells[ORIGIN - 1..].iter().step_by(STRIDE).take(size);
            sum += left.map(|&cell| usize::from(cell)).sum::<usize>();
            n += size;
        }
        match n {
            0 => 128,
            n => ((sum + n / 2) / n) as u8,
        }
    }

    /// Predicts 4 × 4 pixels from cell `at` on.
    pub(super) fn predict_small(&mut self, at: usize, mode: Small) {
        // From below on the left, round the corner, and to the right of what is above.
        let edge: [u8; 13] = std::array::from_fn(|i| match i {
            0..4 => self.cells[at - 1 + (3 - i) * STRIDE],
            _ => self.cells[at - STRIDE + i - 5],
        });
        let e = edge.map(u16::from);
        let two = |i: usize| (e[i] + e[i + 1]).div_ceil(2) as u8;
        let three = |i: usize| ((e[i] + 2 * e[i + 1] + e[i + 2] + 2) / 4) as u8;
        // What lies below the last pixel on the left is like it.
        let end = ((e[1] + 3 * e[0] + 2) / 4) as u8;
        let mean = (e[..4].iter().sum::<u16>() + e[5..9].iter().sum::<u16>() + 4) / 8;
        for y in 0..4 {
            let row: [u8; 4] = std::array::from_fn(|x| match mode {
                Small::Mean => mean as u8,
                Small::TrueMotion => {
                    true_motion(edge[3 - y], edge[5 + x], i32::from(edge[4]))
                }
                Small::Vertical => three(4 + x),
                Small::Horizontal if y == 3 => end,
                Small::Horizontal => three(2 - y),
                Small::LeftDown if x + y == 6 => ((e[11] + 3 * e[12] + 2) / 4) as u8,
                Small::LeftDown => three(5 + x + y),
                Small::RightDown => three(3 + x - y),
                Small::VerticalRight | Small::VerticalLeft | Small::HorizontalDown => {
                    match pattern(mode)[y][x] {
                        Mix::Two(i) => two(i),
                        Mix::Three(i) => three(i),
                    }
                }
                Small::HorizontalUp => match x + 2 * y {
                    i @ (0 | 2 | 4) => two(2 - i / 2),
                    i @ (1 | 3) => three(1 - i / 2),
                    5 => end,
                    _ => edge[0],
                },
            });
            self.cells[at + y * STRIDE..][..4].copy_from_slice(&row);
        }
    }
}

fn true_motion(left: u8, above: u8, corner: i32) -> u8 {
    (i32::from(left) + i32::from(above) - corner).clamp(0, 255) as u8
}

/// A mean of two or of three neighbours on the edge, from the first on.
#[derive(Clone, Copy)]
enum Mix {
    Two(usize),
    Three(usize),
}

/// The modes that follow no line of pixels (§12.3).
fn pattern(mode: Small) -> [[Mix; 4]; 4] {
    use Mix::{Three as T, Two as D};
    match mode {
        Small::VerticalRight => [
            [D(4), D(5), D(6), D(7)],
            [T(3), T(4), T(5), T(6)],
            [T(2), D(4), D(5), D(6)],
            [T(1), T(3), T(4), T(5)],
        ],
        Small::VerticalLeft => [
            [D(5), D(6), D(7), D(8)],
            [T(5), T(6), T(7), T(8)],
            [D(6), D(7), D(8), T(9)],
            [T(6), T(7), T(8), T(10)],
        ],
        Small::HorizontalDown
        | Small::Mean
        | Small::TrueMotion
        | Small::Vertical
        | Small::Horizontal
        | Small::LeftDown
        | Small::RightDown
        | Small::HorizontalUp => [
            [D(3), T(3), T(4), T(5)],
            [D(2), T(2), D(3), T(3)],
            [D(1), T(1), D(2), T(2)],
            [D(0), T(0), D(1), T(1)],
        ],
    }
}
