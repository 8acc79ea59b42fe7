//! The pass along the rows: every output is a weighted sum of inputs of the same row.
//!
//! The functions here are the meaning; a level may have twins. Mirroring is a matter of the
//! order of the outputs, which the axis knows. Read `rows.rs` next.

#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::axis::{Axis, EACH_BITS, RUNNING_BITS, Rounding, Stretch};
#[cfg(target_arch = "x86_64")]
use crate::kernels::Avx512;
use crate::kernels::Level;

/// Fraction bits of what planar numerics keep between the passes.
pub(super) const FRACTION_BITS: u32 = 6;

/// The pass made ready for one stretch and one level.
#[derive(Debug)]
pub(super) struct Columns {
    axis: Axis,
    twin: Twin,
}

/// Which kernels run, with their tables.
#[derive(Debug)]
enum Twin {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512, avx512::Columns),
}

impl Columns {
    /// A pass for `level`, not yet ready.
    pub(super) fn new(level: Level) -> Self {
        let twin = match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(cpu) => Twin::Avx512(cpu, avx512::Columns::default()),
            _ => Twin::Scalar,
        };
        Self { axis: Axis::default(), twin }
    }

    /// Makes it ready.
    pub(super) fn set(&mut self, stretch: &Stretch, rounding: Rounding) {
        match &mut self.twin {
            Twin::Scalar => self.axis.set(stretch, rounding),
            #[cfg(target_arch = "x86_64")]
            Twin::Avx512(cpu, tables) => {
                avx512::set_axis(*cpu, &mut self.axis, stretch, rounding);
                tables.set(*cpu, &self.axis);
            }
        }
    }

    /// Its weights.
    pub(super) fn axis(&self) -> &Axis {
        &self.axis
    }

    /// Resizes the row `src` into bytes. The weights are rounded each; `src` has the inputs
    /// needed; `out` has a place for every span.
    pub(super) fn bytes(&mut self, src: &[u8], out: &mut [u8]) {
        match &self.twin {
            Twin::Scalar => bytes(&self.axis, src, out),
            #[cfg(target_arch = "x86_64")]
            Twin::Avx512(cpu, tables) => tables.bytes(*cpu, &self.axis, src, out),
        }
    }

    /// Resizes the row `src` into sixty-fourths. The weights are rounded running.
    pub(super) fn sixty_fourths(&mut self, src: &[u8], out: &mut [i16]) {
        match &self.twin {
            Twin::Scalar => sixty_fourths(&self.axis, src, out),
            #[cfg(target_arch = "x86_64")]
            Twin::Avx512(cpu, tables) => tables.sixty_fourths(*cpu, &self.axis, src, out),
        }
    }
}

/// Rounds a sum of bytes times weights to a byte. A triangle's sums stay in range but for the
/// rounding of the weights, which may carry 255 over the edge.
#[inline(always)]
pub(super) fn byte_of(sum: i32) -> u8 {
    let rounded = (sum + (1 << (EACH_BITS - 1))) >> EACH_BITS;
    u8::try_from(rounded.clamp(0, 255)).expect("clamped to a byte")
}

/// The scalar meaning of [`Columns::bytes`].
#[inline(always)]
pub(super) fn bytes(axis: &Axis, src: &[u8], out: &mut [u8]) {
    for (byte, sum) in out.iter_mut().zip(sums(axis, src)) {
        *byte = byte_of(sum);
    }
}

/// The scalar meaning of [`Columns::sixty_fourths`].
#[inline(always)]
pub(super) fn sixty_fourths(axis: &Axis, src: &[u8], out: &mut [i16]) {
    const DROPPED: u32 = RUNNING_BITS - FRACTION_BITS;
    for (value, sum) in out.iter_mut().zip(sums(axis, src)) {
        let rounded = (sum + (1 << (DROPPED - 1))) >> DROPPED;
        *value = i16::try_from(rounded).expect("at most 255 sixty-fourths times 64");
    }
}

#[inline(always)]
fn sums(axis: &Axis, src: &[u8]) -> impl Iterator<Item = i32> {
    let weights = axis.weights().chunks_exact(axis.n_taps());
    axis.spans().iter().zip(weights).map(|(span, weights)| {
        let inputs = &src[span.first as usize..][..span.len as usize];
        let products = inputs.iter().zip(weights).map(|(&x, &w)| i32::from(x) * w);
        products.sum()
    })
}
