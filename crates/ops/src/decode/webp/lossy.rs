//! Lossy WebP: a key frame of VP8 (RFC 6386), with libwebp's pixels, those of damaged data included.
//!
//! Of our own, because what a library of another descent makes of damaged data is something else, and silently:
//! sums that overflow, filters out of range, a byte too much. What is read and when a stream has ended is
//! as in libwebp 1.6.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "sides have 14 bits, samples 8 and coefficients 16; places are those of whole macroblocks"
)]

mod bools;
mod filter;
mod head;
mod macroblock;
mod planes;
mod predict;
mod tables;
mod transform;

use self::filter::{Edge, Kind};
use self::head::{Filter, Head, Strength};
use self::macroblock::{Macroblock, Neighbour};
use self::planes::Plane;
pub(super) use self::planes::Planes;
use self::predict::{ORIGIN, STRIDE, Sides, Work};
use self::transform::Extent;

/// Decodes the data of a chunk.
pub(super) fn decode(data: &[u8]) -> Result<Planes, &'static str> {
    let mut head = Head::open(data)?;
    let [width, height] = head.sides;
    if width == 0 || height == 0 {
        return Err("it has no pixels");
    }
    let [columns, rows] = [width.div_ceil(16), height.div_ceil(16)];
    let plane = |size: usize| Plane::new(columns * size, rows * size);
    let mut frame = Frame {
        planes: [plane(16), plane(8), plane(8)],
        columns,
        filters: vec![(Strength::default(), false); columns * rows],
    };
    let mut above = vec![Neighbour::default(); columns];
    let (mut macroblock, mut work) = (Macroblock::new(), Work::new());
    for y in 0..rows {
        let partition = y % head.tokens.len();
        let mut left = Neighbour::default();
        for (x, above) in above.iter_mut().enumerate() {
            macroblock.read_modes(&mut head, above, &mut left);
            macroblock.read_coefficients(&mut head, partition, above, &mut left);
            frame.place(&macroblock, &mut work, [x, y]);
            let kind = usize::from(macroblock.luma.is_none());
            let is_inner = kind == 1 || macroblock.has_any();
            let strength = head.strengths[macroblock.segment][kind];
            frame.filters[y * columns + x] = (strength, is_inner);
        }
        if head.modes.is_past_end() || head.tokens[partition].is_past_end() {
            return Err("its data end before its last macroblock");
        }
    }
    frame.filter(head.filter);
    Ok(Planes { sides: head.sides, planes: frame.planes })
}

/// An image that is being made.
struct Frame {
    planes: [Plane; 3],
    columns: usize,
    /// How each macroblock is filtered, and whether within it, too.
    filters: Vec<(Strength, bool)>,
}

impl Frame {
    /// Predicts a macroblock, adds what was coded, and puts it into its place.
    fn place(&mut self, macroblock: &Macroblock, work: &mut Work, place: [usize; 2]) {
        let [x, y] = place;
        let sides = [y > 0, x > 0];
        let is_last = x + 1 == self.columns;
        for (i, plane) in self.planes.iter_mut().enumerate() {
            let size = if i == 0 { 16 } else { 8 };
            let at = (y * plane.stride + x) * size;
            surround(plane, work, (at, size), sides);
            match (i, macroblock.luma) {
                (0, Some(mode)) => work.predict(16, mode, sides),
                (0, None) => {
                    to_the_right(plane, work, at, (y > 0, is_last));
                    for (i, mode) in macroblock.small.iter().enumerate() {
                        let at = ORIGIN + i / 4 * 4 * STRIDE + i % 4 * 4;
                        work.predict_small(at, *mode);
                        let extent = macroblock.extents[i];
                        transform::add(&macroblock.blocks[i], extent, work, at);
                    }
                }
                _ => work.predict(8, macroblock.chroma, sides),
            }
            match (i, macroblock.luma) {
                (0, Some(_)) => {
                    for (i, block) in macroblock.blocks[..16].iter().enumerate() {
                        let at = ORIGIN + i / 4 * 4 * STRIDE + i % 4 * 4;
                        transform::add(block, macroblock.extents[i], work, at);
                    }
                }
                (0, None) => {}
                _ => add_chroma(macroblock, i * 4 + 12, work),
            }
            let rows = plane.cells[at..].chunks_mut(plane.stride).take(size);
            for (row, cells) in rows.zip(work.cells[ORIGIN..].chunks(STRIDE)) {
                row[..size].copy_from_slice(&cells[..size]);
            }
        }
    }

    /// Filters all edges, macroblock by macroblock (§15.2, §15.3).
    fn filter(&mut self, filter: Filter) {
        let n_planes = match filter {
            Filter::None => return,
            Filter::Simple => 1,
            Filter::Normal => 3,
        };
        for (i, &(strength, is_inner)) in self.filters.iter().enumerate() {
            if strength.limit == 0 {
                continue;
            }
            let [x, y] = [i % self.columns, i / self.columns];
            for (i, plane) in self.planes.iter_mut().enumerate().take(n_planes) {
                let size = if i == 0 { 16 } else { 8 };
                let (at, stride) = ((y * plane.stride + x) * size, plane.stride);
                let mut edge = |at: usize, [along, across]: [usize; 2], kind: Kind| {
                    let edge = Edge { at, along, across, len: size };
                    match (filter, kind) {
                        (Filter::Simple, Kind::Outer) => {
                            filter::simple(plane, edge, strength.limit + 4);
                        }
                        (Filter::Simple, Kind::Inner) => {
                            filter::simple(plane, edge, strength.limit);
                        }
                        (Filter::Normal | Filter::None, kind) => {
                            filter::normal(plane, edge, strength, kind);
                        }
                    }
                };
                for (ways, has_outer) in [([stride, 1], x > 0), ([1, stride], y > 0)] {
                    if has_outer {
                        edge(at, ways, Kind::Outer);
                    }
                    for n in (4..size).step_by(4).filter(|_| is_inner) {
                        edge(at + n * ways[1], ways, Kind::Inner);
                    }
                }
            }
        }
    }
}

/// Beyond the image's left and upper edges (§12.2).
const LEFT: u8 = 129;
const ABOVE: u8 = 127;

/// Brings the cells above and to the left of a macroblock.
fn surround(plane: &Plane, work: &mut Work, (at, size): (usize, usize), sides: Sides) {
    let [has_above, has_left] = sides;
    for y in 0..size {
        let left = if has_left { plane.cells[at + y * plane.stride - 1] } else { LEFT };
        work.cells[ORIGIN + y * STRIDE - 1] = left;
    }
    let above = &mut work.cells[ORIGIN - STRIDE - 1..][..=size];
    match (has_above, has_left) {
        (false, _) => above.fill(ABOVE),
        (true, true) => {
            above.copy_from_slice(&plane.cells[at - plane.stride - 1..][..=size]);
        }
        (true, false) => {
            above[0] = LEFT;
            above[1..].copy_from_slice(&plane.cells[at - plane.stride..][..size]);
        }
    }
}

/// Brings the four cells to the right of the row above, which are those of all four rows of small blocks.
fn to_the_right(
    plane: &Plane,
    work: &mut Work,
    at: usize,
    (has_above, is_last): (bool, bool),
) {
    let cells = match (has_above, is_last) {
        (false, _) => [ABOVE; 4],
        (true, true) => [plane.cells[at - plane.stride + 15]; 4],
        (true, false) => {
            let row = &plane.cells[at - plane.stride + 16..];
            std::array::from_fn(|x| row[x])
        }
    };
    for y in 0..4 {
        work.cells[ORIGIN - STRIDE + 16 + y * 4 * STRIDE..][..4].copy_from_slice(&cells);
    }
}

/// Adds four blocks of chroma: all by the whole transform if one of them needs it.
fn add_chroma(macroblock: &Macroblock, first: usize, work: &mut Work) {
    let are_many = macroblock.extents[first..][..4].iter().any(|&it| it > Extent::First);
    for i in 0..4 {
        let at = ORIGIN + i / 2 * 4 * STRIDE + i % 2 * 4;
        let (block, extent) =
            (&macroblock.blocks[first + i], macroblock.extents[first + i]);
        match are_many {
            true => transform::add_all(block, work, at),
            false => transform::add(block, extent, work, at),
        }
    }
}
