//! The pass along the rows: every output is a weighted sum of inputs of the same row.
//!
//! The functions here are the meaning; a level may have twins. Mirroring is a matter of the
//! order of the outputs, which the axis knows. Read `rows.rs` next.

use super::axis::{Axis, EACH_BITS, FOUR, RUNNING_BITS, Rounding, Stretch};
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::kernels::Level;
#[cfg(target_arch = "aarch64")]
use crate::kernels::Neon;
#[cfg(target_arch = "x86_64")]
use crate::kernels::{Avx2, Avx512};

/// Fraction bits of what planar numerics keep between the passes.
pub(super) const FRACTION_BITS: u32 = 6;

/// Most rows that are resized at once.
pub(super) const MAX_ROWS: usize = 4;

/// The pass made ready for one stretch and one level.
#[derive(Debug)]
pub(super) struct Columns {
    level: Level,
    axis: Axis,
    twin: Twin,
}

/// Tables of the kernels that run.
#[derive(Debug)]
enum Twin {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2, avx2::Columns),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512, avx512::Columns),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon, neon::Columns),
}

impl Columns {
    /// A pass for `level`, not yet ready.
    pub(super) fn new(level: Level) -> Self {
        let twin = match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(cpu) => Twin::Avx2(cpu, avx2::Columns::default()),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(cpu) => Twin::Avx512(cpu, avx512::Columns::default()),
            #[cfg(target_arch = "aarch64")]
            Level::Neon(cpu) => Twin::Neon(cpu, neon::Columns::default()),
            Level::Scalar => Twin::Scalar,
        };
        Self { level, axis: Axis::default(), twin }
    }

    /// Makes it ready.
    pub(super) fn set(&mut self, stretch: &Stretch, rounding: Rounding) {
        self.axis.set(self.level, stretch, rounding);
        match &mut self.twin {
            Twin::Scalar => {}
            #[cfg(target_arch = "x86_64")]
            Twin::Avx2(cpu, tables) => tables.set(*cpu, &self.axis, rounding),
            #[cfg(target_arch = "x86_64")]
            Twin::Avx512(cpu, tables) => tables.set(*cpu, &self.axis, rounding),
            #[cfg(target_arch = "aarch64")]
            Twin::Neon(cpu, tables) => tables.set(*cpu, &self.axis),
        }
    }

    /// Its weights.
    pub(super) fn axis(&self) -> &Axis {
        &self.axis
    }

    /// Resizes rows, which have the inputs needed, into bytes. The weights are rounded each.
    /// `out` has a place for every output, row after row.
    pub(super) fn bytes(&self, rows: &[&[u8]], out: &mut [u8]) {
        self.check(rows, out.len());
        match &self.twin {
            Twin::Scalar => bytes(&self.axis, rows, out),
            #[cfg(target_arch = "x86_64")]
            Twin::Avx2(cpu, tables) => tables.bytes(*cpu, &self.axis, rows, out),
            #[cfg(target_arch = "x86_64")]
            Twin::Avx512(cpu, tables) => tables.bytes(*cpu, &self.axis, rows, out),
            #[cfg(target_arch = "aarch64")]
            Twin::Neon(cpu, tables) => tables.bytes(*cpu, &self.axis, rows, out),
        }
    }

    /// Resizes rows into sixty-fourths. The weights are rounded running.
    pub(super) fn sixty_fourths(&self, rows: &[&[u8]], out: &mut [i16]) {
        self.check(rows, out.len());
        match &self.twin {
            Twin::Scalar => portable::sixty_fourths(&self.axis, rows, out),
            #[cfg(target_arch = "x86_64")]
            Twin::Avx2(cpu, tables) => {
                tables.sixty_fourths(*cpu, &self.axis, rows, out);
            }
            #[cfg(target_arch = "x86_64")]
            Twin::Avx512(cpu, tables) => {
                tables.sixty_fourths(*cpu, &self.axis, rows, out);
            }
            #[cfg(target_arch = "aarch64")]
            Twin::Neon(cpu, tables) => {
                tables.sixty_fourths(*cpu, &self.axis, rows, out);
            }
        }
    }

    fn check(&self, rows: &[&[u8]], n_places: usize) {
        let width = self.axis.needed().len();
        let complete = rows.iter().all(|row| row.len() == width);
        assert!(complete, "a row has the {width} columns that are needed");
        assert_eq!(n_places, rows.len() * self.axis.firsts().len(), "places for all");
    }
}

/// Rounds a sum of bytes times weights to a byte. A cubic's sums leave the range; a triangle's
/// stay in it but for the rounding of the weights, which may carry 255 over the edge.
#[inline(always)]
pub(super) fn byte_of(sum: i32) -> u8 {
    let rounded = (sum + (1 << (EACH_BITS - 1))) >> EACH_BITS;
    u8::try_from(rounded.clamp(0, 255)).expect("clamped to a byte")
}

/// The scalar meaning of [`Columns::bytes`].
#[inline(always)]
pub(super) fn bytes(axis: &Axis, rows: &[&[u8]], out: &mut [u8]) {
    for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts().len())) {
        for (byte, sum) in out.iter_mut().zip(sums(axis, row)) {
            *byte = byte_of(sum);
        }
    }
}

/// The scalar meaning of [`Columns::sixty_fourths`].
#[inline(always)]
pub(super) fn sixty_fourths(axis: &Axis, rows: &[&[u8]], out: &mut [i16]) {
    const DROPPED: u32 = RUNNING_BITS - FRACTION_BITS;
    for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts().len())) {
        for (value, sum) in out.iter_mut().zip(sums(axis, row)) {
            let rounded = (sum + (1 << (DROPPED - 1))) >> DROPPED;
            *value = i16::try_from(rounded).expect("below 2 * 255 * 64");
        }
    }
}

#[inline(always)]
fn sums(axis: &Axis, row: &[u8]) -> impl Iterator<Item = i32> {
    let weights = axis.weights().chunks_exact(axis.n_taps());
    let places = axis.firsts().iter().zip(axis.lens());
    places.zip(weights).map(|((&first, &len), weights)| {
        let inputs = &row[first as usize..];
        // Most have four taps; then the loop below is written out.
        match (inputs.first_chunk::<FOUR>(), <&[i32; FOUR]>::try_from(weights)) {
            (Some(inputs), Ok(weights)) => dot(inputs, weights),
            _ => dot(&inputs[..len as usize], weights),
        }
    })
}

#[inline(always)]
fn dot(inputs: &[u8], weights: &[i32]) -> i32 {
    inputs.iter().zip(weights).map(|(&input, &weight)| i32::from(input) * weight).sum()
}
