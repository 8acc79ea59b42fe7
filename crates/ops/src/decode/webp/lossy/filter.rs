//! The filter of edges (RFC 6386 §15), over a whole plane after all of it was predicted.

use super::head::Strength;
use super::planes::Plane;

/// An edge: its first cell, the way along it, and the way across it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) at: usize,
    pub(super) along: usize,
    pub(super) across: usize,
    pub(super) len: usize,
}

/// Filters an edge with the simple filter.
pub(super) fn simple(plane: &mut Plane, edge: Edge, limit: i32) {
    for i in 0..edge.len {
        let mut it = Across::new(plane, edge, i);
        if it.is_smooth(limit) {
            it.change_two();
        }
    }
}

/// Filters an edge between macroblocks, or one within, with the normal filter.
pub(super) fn normal(plane: &mut Plane, edge: Edge, strength: Strength, kind: Kind) {
    let limit = match kind {
        Kind::Outer => strength.limit + 4,
        Kind::Inner => strength.limit,
    };
    for i in 0..edge.len {
        let mut it = Across::new(plane, edge, i);
        if !it.is_smooth(limit) || !it.are_near(strength.inner_limit) {
            continue;
        }
        match kind {
            _ if it.varies(strength.variance) => it.change_two(),
            Kind::Outer => it.change_six(),
            Kind::Inner => it.change_four(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Outer,
    Inner,
}

/// The eight cells across an edge at one place.
struct Across<'a> {
    cells: &'a mut [u8],
    at: usize,
    step: usize,
}

impl<'a> Across<'a> {
    fn new(plane: &'a mut Plane, edge: Edge, i: usize) -> Self {
        let at = edge.at + i * edge.along;
        Self { cells: &mut plane.cells, at, step: edge.across }
    }

    /// The cell `n` before the edge, from 1 on.
    fn before(&self, n: usize) -> i32 {
        i32::from(self.cells[self.at - n * self.step])
    }

    /// The cell `n` behind the edge, from 0 on.
    fn after(&self, n: usize) -> i32 {
        i32::from(self.cells[self.at + n * self.step])
    }

    fn change(&mut self, n: usize, by: i32) {
        for (at, by) in
            [(self.at - (n + 1) * self.step, by), (self.at + n * self.step, -by)]
        {
            self.cells[at] = (i32::from(self.cells[at]) + by).clamp(0, 255) as u8;
        }
    }

    fn is_smooth(&self, limit: i32) -> bool {
        let (near, far) =
            (self.before(1) - self.after(0), self.before(2) - self.after(1));
        4 * near.abs() + far.abs() <= 2 * limit + 1
    }

    fn are_near(&self, limit: i32) -> bool {
        (0..3).all(|n| {
            (self.before(n + 2) - self.before(n + 1)).abs() <= limit
                && (self.after(n + 1) - self.after(n)).abs() <= limit
        })
    }

    fn varies(&self, limit: i32) -> bool {
        (self.before(2) - self.before(1)).abs() > limit
            || (self.after(1) - self.after(0)).abs() > limit
    }

    /// The difference over the edge, three times.
    fn difference(&self) -> i32 {
        3 * (self.after(0) - self.before(1))
    }

    /// That of the next cells.
    fn outer(&self) -> i32 {
        (self.before(2) - self.after(1)).clamp(-128, 127)
    }

    /// Changes the two cells at the edge; how much the one behind it was.
    fn change_near(&mut self, difference: i32) -> i32 {
        let behind = ((difference + 4) >> 3).clamp(-16, 15);
        let before = ((difference + 3) >> 3).clamp(-16, 15);
        for (at, by) in [(self.at - self.step, before), (self.at, -behind)] {
            self.cells[at] = (i32::from(self.cells[at]) + by).clamp(0, 255) as u8;
        }
        behind
    }

    fn change_two(&mut self) {
        self.change_near(self.difference() + self.outer());
    }

    fn change_four(&mut self) {
        let by = self.change_near(self.difference());
        self.change(1, (by + 1) >> 1);
    }

    fn change_six(&mut self) {
        let by = (self.difference() + self.outer()).clamp(-128, 127);
        for (n, weight) in [(0, 27), (1, 18), (2, 9)] {
            self.change(n, (weight * by + 63) >> 7);
        }
    }
}
