//! Which rectangle of a finished sample `random_erasing` erases after the cut. The caller decides what
//! to write there.

use super::Size;
use super::draw::{CropBox, random_erasing};
use super::op::RandomErasing;
use crate::arith::normal_quantile;
use crate::rng::Draws;
use crate::sample::SampleKey;

/// The stream of an op in view number `nth` of a sample: a further view's numbers are those of
/// a stream of the same op 2^8 further on, so that views differ.
#[must_use]
pub fn view_stream(stream: u32, nth: u32) -> u32 {
    stream + (nth << 8)
}

impl RandomErasing {
    /// The rectangle that is erased in the sample of `key`, whose view has `size`; `None` where
    /// chance spares it. `stream` is the op's, of that view ([`view_stream`]).
    #[must_use]
    pub fn decide(&self, key: SampleKey, stream: u32, size: Size) -> Option<CropBox> {
        let draws = &mut Draws::new(key, stream);
        if !draws.bernoulli(self.p) {
            return None;
        }
        random_erasing(draws, size, self.scale, self.ratio)
    }
}

/// The normal distribution in 65,536 equal shares: the middle of each. A number of
/// [`Noise`](crate::rng::Noise) picks one.
#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest f32")]
pub fn normal_shares() -> impl Iterator<Item = f32> {
    let share = |nth: u32| (f64::from(nth) + 0.5) / 65_536.0;
    (0..65_536).map(move |nth| normal_quantile(share(nth)) as f32)
}
