//! Three channels, a block at a time: what `curve.rs` means, in loops that compilers make
//! vectors of.
//!
//! The pixels that have weights are a square window of the image, moved inside where it
//! reaches over an edge: the weights of pixels that are not there go to the edge's. So no pixel
//! asks whether it has its neighbours. For images that are no smaller than the window.

use bothends_core::recipe::step::Warp;

use super::curve::{Curve, DROPPED, byte, first, shifted};
use super::points::{FRACTION_BITS, N, ONE, Points, Seen, runs};
use crate::image::{Image, View};

/// Bytes of a pixel.
pub(super) const RGB: usize = 3;

/// Where each window begins in an image's bytes, and its weights: along an axis those of the
/// first pixels, of the second, and so on.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Block<const TAPS: usize> {
    pub(super) at: [u32; N],
    pub(super) across: [[i32; N]; TAPS],
    pub(super) down: [[i32; N]; TAPS],
}

impl<const TAPS: usize> Block<TAPS> {
    /// To be set.
    pub(super) const NONE: Self =
        Self { at: [0; N], across: [[0; N]; TAPS], down: [[0; N]; TAPS] };

    /// The windows round `points`.
    #[inline(always)]
    pub(super) fn set<C: Curve<TAPS>>(&mut self, src: View<'_>, points: &Points) {
        let stride = u32::try_from(src.bytes().1).expect("an image below 4 GiB");
        windows::<TAPS, C>(&points.y, src.height(), &mut self.at, &mut self.down);
        let mut columns = [0; N];
        windows::<TAPS, C>(&points.x, src.width(), &mut columns, &mut self.across);
        for (at, column) in self.at.iter_mut().zip(columns) {
            *at = at.wrapping_mul(stride).wrapping_add(column.wrapping_mul(3));
        }
    }
}

/// The first pixels of the windows round `points` and their weights, on an axis of `len` pixels,
/// at least as many as taps.
#[inline(always)]
fn windows<const TAPS: usize, C: Curve<TAPS>>(
    points: &[i32; N],
    len: usize,
    firsts: &mut [u32; N],
    weights: &mut [[i32; N]; TAPS],
) {
    let last = i32::try_from(len - TAPS).unwrap_or(i32::MAX);
    let mut moved = 0;
    for n in 0..N {
        let wanted = first(points[n] >> FRACTION_BITS, TAPS);
        let inside = wanted.clamp(0, last);
        firsts[n] = inside.cast_unsigned();
        moved |= inside ^ wanted;
        for (place, weight) in weights.iter_mut().zip(C::weights(points[n] & (ONE - 1))) {
            place[n] = weight;
        }
    }
    if moved != 0 {
        fold(points, firsts, weights);
    }
}

/// Gives the weights of pixels over the edge to the edge's.
fn fold<const TAPS: usize>(
    points: &[i32; N],
    firsts: &[u32; N],
    weights: &mut [[i32; N]; TAPS],
) {
    for (n, (&point, begin)) in points.iter().zip(firsts).enumerate() {
        let over = first(point >> FRACTION_BITS, TAPS) - begin.cast_signed();
        if over == 0 {
            continue;
        }
        let wanted = weights.each_ref().map(|weights| weights[n]);
        weights.iter_mut().for_each(|weights| weights[n] = 0);
        for (nth, weight) in (0..).zip(wanted) {
            let nth: i32 = nth + over;
            let nth = usize::try_from(nth).unwrap_or(0).min(TAPS - 1);
            weights[nth][n] += weight;
        }
    }
}

/// Makes `out` of an image of three channels.
pub(super) fn blend<const TAPS: usize, C: Curve<TAPS>>(
    src: View<'_>,
    warp: &Warp,
    out: &mut Image,
) {
    blend_with::<TAPS, C>(src, warp, out, blend_block);
}

/// [`blend`] with one way to blend the pixels of a block.
#[inline(always)]
pub(super) fn blend_with<const TAPS: usize, C: Curve<TAPS>>(
    src: View<'_>,
    warp: &Warp,
    out: &mut Image,
    blend_block: impl Fn(View<'_>, &Block<TAPS>, &mut [u8]),
) {
    let (mut points, mut block) = (Points::NONE, Block::NONE);
    let size = [src.width(), src.height()];
    for run in runs(out.size()) {
        let out = &mut out.pixels_mut()[run.start * RGB..][..run.n_pixels * RGB];
        let seen = points.find(&warp.map, size, run);
        if seen != Seen::Nothing {
            block.set::<C>(src, &points);
            blend_block(src, &block, out);
        }
        points.fill_outside(seen, out, RGB, warp.fill);
    }
}

/// Blends the pixels of a block.
pub(super) fn blend_block<const TAPS: usize>(
    src: View<'_>,
    block: &Block<TAPS>,
    out: &mut [u8],
) {
    let (bytes, stride) = src.bytes();
    let (pixels, _) = out.as_chunks_mut::<RGB>();
    for (n, out) in pixels.iter_mut().enumerate() {
        let mut sums = [0; 4];
        for (nth, down) in block.down.iter().enumerate() {
            let row = window::<16>(bytes, block.at[n] as usize + nth * stride);
            let mut across = [0; 4];
            for (nth, weights) in block.across.iter().enumerate() {
                // The fourth channel is the next pixel's first, and not used.
                for channel in 0..4 {
                    across[channel] += i32::from(row[nth * RGB + channel]) * weights[n];
                }
            }
            for channel in 0..4 {
                sums[channel] += shifted(across[channel], DROPPED[0]) * down[n];
            }
        }
        *out = std::array::from_fn(|channel| byte(shifted(sums[channel], DROPPED[1])));
    }
}

/// `LEN` bytes from `at` on; after the image's last there are zeros.
#[inline(always)]
pub(super) fn window<const LEN: usize>(bytes: &[u8], at: usize) -> [u8; LEN] {
    match bytes.get(at..at + LEN).and_then(<[u8]>::first_chunk) {
        Some(window) => *window,
        None => last_window(bytes.get(at..).unwrap_or_default()),
    }
}

#[cold]
fn last_window<const LEN: usize>(rest: &[u8]) -> [u8; LEN] {
    let mut window = [0; LEN];
    window[..rest.len()].copy_from_slice(rest);
    window
}
