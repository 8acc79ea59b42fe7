//! Pixels of three channels a few at a time, each channel by itself: what loops that see a
//! whole colour work on. Nothing here computes. Read `grey.rs` next.

use crate::colour::{deinterleave, interleave};
use crate::kernels::Level;

/// Pixels that are worked on side by side.
pub(super) const PIXELS: usize = 256;

/// So many values of red, green and blue.
pub(super) type Planes = [[u8; PIXELS]; 3];

/// Replaces pixels by what `work` makes of them. Where fewer than [`PIXELS`] are left, what is
/// beyond them is whatever it is, and goes nowhere.
pub(super) fn change(level: Level, pixels: &mut [u8], mut work: impl FnMut(&mut Planes)) {
    let mut planes = [[0; PIXELS]; 3];
    for pixels in pixels.chunks_mut(3 * PIXELS) {
        take_apart(level, pixels, &mut planes);
        work(&mut planes);
        let n = pixels.len() / 3;
        interleave(level, planes.each_ref().map(|plane| &plane[..n]), pixels);
    }
}

/// Shows pixels to `work`. Where fewer than [`PIXELS`] are left, what is beyond them is 0.
pub(super) fn look_at(level: Level, pixels: &[u8], mut work: impl FnMut(&Planes)) {
    for pixels in pixels.chunks(3 * PIXELS) {
        let mut planes = [[0; PIXELS]; 3];
        take_apart(level, pixels, &mut planes);
        work(&planes);
    }
}

fn take_apart(level: Level, pixels: &[u8], planes: &mut Planes) {
    let n = pixels.len() / 3;
    deinterleave(level, pixels, planes.each_mut().map(|plane| &mut plane[..n]));
}
