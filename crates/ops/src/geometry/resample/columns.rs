//! The pass along the rows: every output is a weighted sum of inputs of the same row.
//!
//! The meaning is in `scalar.rs`; a level may have twins of it, which are chosen here. Mirroring
//! is a matter of the order of the outputs, which the axis knows. Read `rows.rs` next.

use super::axis::{Axis, Rounding, Stretch};
#[cfg(target_arch = "aarch64")]
use super::neon;
#[cfg(target_arch = "x86_64")]
use super::x86::{avx2, avx512};
use super::{portable, scalar};
use crate::kernels::Level;
#[cfg(target_arch = "aarch64")]
use crate::kernels::Neon;
#[cfg(target_arch = "x86_64")]
use crate::kernels::{Avx2, Avx512};

/// The pass made ready for one stretch and one level.
#[derive(Debug)]
pub(super) struct Columns {
    level: Level,
    /// Its weights.
    pub(super) axis: Axis,
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

/// Calls what the tables of the level have of `$meaning`, or that itself.
macro_rules! twin {
    ($pass:expr, $name:ident($($argument:expr),*), $meaning:path) => {
        match &$pass.twin {
            Twin::Scalar => $meaning(&$pass.axis, $($argument),*),
            #[cfg(target_arch = "x86_64")]
            Twin::Avx2(cpu, tables) => tables.$name(*cpu, &$pass.axis, $($argument),*),
            #[cfg(target_arch = "x86_64")]
            Twin::Avx512(cpu, tables) => tables.$name(*cpu, &$pass.axis, $($argument),*),
            #[cfg(target_arch = "aarch64")]
            Twin::Neon(cpu, tables) => tables.$name(*cpu, &$pass.axis, $($argument),*),
        }
    };
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

    /// Resizes rows, which have the inputs needed, into bytes. The weights are rounded each.
    /// `out` has a place for every output, row after row.
    pub(super) fn bytes(&self, rows: &[&[u8]], out: &mut [u8]) {
        self.check(rows, out.len());
        twin!(self, bytes(rows, out), scalar::bytes);
    }

    /// Resizes rows into sixty-fourths. The weights are rounded running.
    pub(super) fn sixty_fourths(&self, rows: &[&[u8]], out: &mut [i16]) {
        self.check(rows, out.len());
        twin!(self, sixty_fourths(rows, out), portable::sixty_fourths);
    }

    fn check(&self, rows: &[&[u8]], n_places: usize) {
        let width = self.axis.needed().len();
        let complete = rows.iter().all(|row| row.len() == width);
        assert!(complete, "a row has the {width} columns that are needed");
        assert_eq!(n_places, rows.len() * self.axis.firsts.len(), "places for all");
    }
}
