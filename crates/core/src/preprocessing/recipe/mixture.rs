//! What is decided for a whole batch: whether its samples are mixed, how, and with which partners.
//!
//! The numbers follow from the position of the batch in the epoch, so every strategy and every resumed
//! run mixes in the same way. Nothing here touches a pixel.

use super::draw::CropBox;
use super::op::{Control, Mixing, Op, Share, n_streams};
use super::{Recipe, Size};
use crate::ids::{EpochIdx, SampleId};
use crate::rng::Draws;
use crate::sample::SampleKey;

/// What numbers of a whole batch are keyed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchKey {
    /// The run's seed.
    pub seed: u64,
    /// The epoch.
    pub epoch: EpochIdx,
    /// The global position of its first row (`Plan::position`).
    pub position: u64,
}

/// How the samples of a batch are mixed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mixture {
    /// Each is the share of itself and the rest of its partner.
    Mixup {
        /// Of itself, 0 to 1.
        share: f64,
    },
    /// Each has a rectangle of its partner.
    Cutmix {
        /// The rectangle; may be empty.
        area: CropBox,
        /// Share of the area that is left of itself.
        share: f64,
    },
}

impl Mixture {
    /// The share of its own label that a mixed sample has; the rest is its partner's.
    #[must_use]
    pub fn share(self) -> f64 {
        match self {
            Self::Mixup { share } | Self::Cutmix { share, .. } => share,
        }
    }
}

/// The partner of row `row` of `n_rows`: `distance` rows before it, and for the first rows
/// as many from the end (torchvision rolls a batch by one row; a recipe that repeats samples
/// rolls by as many rows as there are repetitions, or samples would meet themselves).
#[must_use]
pub fn partner(row: usize, n_rows: usize, distance: usize) -> usize {
    let n_rows = n_rows.max(1);
    (row + n_rows - distance % n_rows) % n_rows
}

impl Recipe {
    /// Decides how the batch of `key` is mixed, whose samples have `size`; `None` where the
    /// recipe does not mix, or chance says so.
    #[must_use]
    pub fn decide_mixture(&self, key: BatchKey, size: Size) -> Option<Mixture> {
        self.streams_after_cut()
            .filter(|(_, op)| op.mixes())
            .find_map(|(stream, op)| decide(op, key, stream, size))
    }

    /// The ops after the cut, each with the number of its stream.
    pub fn streams_after_cut(&self) -> impl Iterator<Item = (u32, &Op)> {
        let mut stream = n_streams(self.before_cut());
        self.after_cut().iter().map(move |op| {
            let own = stream;
            stream += op.n_streams();
            (own, op)
        })
    }
}

fn decide(op: &Op, key: BatchKey, stream: u32, size: Size) -> Option<Mixture> {
    let sample = SampleId(key.position);
    let draws =
        &mut Draws::new(SampleKey { seed: key.seed, epoch: key.epoch, sample }, stream);
    let inside = |nth: usize, ops: &[Op]| {
        decide(&ops[nth], key, stream + 1 + n_streams(&ops[..nth]), size)
    };
    match op {
        Op::Mixing(Mixing::Mixup(op)) => {
            Some(Mixture::Mixup { share: draws.beta(op.alpha) })
        }
        Op::Mixing(Mixing::Cutmix(op)) => Some(cutmix(op, draws, size)),
        Op::Control(Control::RandomApply(op)) => {
            draws.bernoulli(op.p).then(|| inside(0, &op.transforms))?
        }
        Op::Control(Control::RandomChoice(op)) => {
            inside(op.choose(draws), &op.transforms)
        }
        Op::Decode(_)
        | Op::Geometry(_)
        | Op::Colour(_)
        | Op::Policy(_)
        | Op::RandomErasing(_)
        | Op::Control(Control::RandomOrder(_))
        | Op::Crops(_)
        | Op::Feed(_) => None,
    }
}

/// torchvision's `CutMix.make_params` with our numbers: draws `beta`, `below` (column of the
/// middle) and `below` (row).
fn cutmix(op: &Share, draws: &mut Draws, size: Size) -> Mixture {
    let share = draws.beta(op.alpha);
    let column = draws.below(size.width);
    let row = draws.below(size.height);
    let half = 0.5 * (1.0 - share).sqrt();
    let span = |middle: u32, side: u32| {
        let half = whole(half * f64::from(side));
        let end = middle.saturating_add(half).min(side);
        (middle.saturating_sub(half), end)
    };
    let (left, right) = span(column, size.width);
    let (top, bottom) = span(row, size.height);
    let area = CropBox { top, left, height: bottom - top, width: right - left };
    let taken = f64::from(area.height) * f64::from(area.width);
    let all = f64::from(size.height) * f64::from(size.width);
    Mixture::Cutmix { area, share: 1.0 - taken / all }
}

/// Rounded down; not below 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "half of a side at most"
)]
fn whole(value: f64) -> u32 {
    value as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { height: 20, width: 30 };

    fn recipe(mixing: &str) -> Recipe {
        Recipe::from_json(&format!(
            r#"{{"version": 1, "name": "x", "ops": [{{"op": "decode"}},
                {{"op": "random_resized_crop", "size": [20, 30]}}, {mixing}]}}"#
        ))
        .unwrap()
    }

    fn mixture(recipe: &Recipe, position: u64) -> Option<Mixture> {
        let key = BatchKey { seed: 1, epoch: EpochIdx(2), position };
        recipe.decide_mixture(key, SIZE)
    }

    #[test]
    fn a_choice_takes_each_kind_with_its_weight() {
        let choice = recipe(
            r#"{"op": "random_choice", "transforms":
                [{"op": "mixup", "alpha": 0.2}, {"op": "cutmix"}], "p": [3, 1]}"#,
        );
        let is_mixup = |at| matches!(mixture(&choice, at), Some(Mixture::Mixup { .. }));
        let n_mixup = (0..4000).filter(|&at| is_mixup(at)).count();
        assert!((2_850..3_150).contains(&n_mixup), "{n_mixup}");
        let apply = recipe(
            r#"{"op": "random_apply", "p": 0.25, "transforms": [{"op": "mixup"}]}"#,
        );
        let n = (0..4000).filter(|&at| mixture(&apply, at).is_some()).count();
        assert!((880..1_120).contains(&n), "{n}");
    }

    #[test]
    fn a_cut_rectangle_lies_inside_and_the_share_is_what_is_left() {
        let cut = recipe(r#"{"op": "cutmix"}"#);
        let mut mean = 0.0;
        for at in 0..2_000 {
            let Some(Mixture::Cutmix { area, share }) = mixture(&cut, at) else {
                panic!()
            };
            assert!(area.top + area.height <= 20 && area.left + area.width <= 30);
            let taken = f64::from(area.height * area.width) / 600.0;
            assert!((share + taken - 1.0).abs() < 1e-12);
            mean += share / 2_000.0;
        }
        // What reaches beyond the edge is not pasted: more is left than the mean of ½.
        assert!((0.55..0.75).contains(&mean), "{mean}");
    }

    #[test]
    fn partners_are_the_batch_rolled() {
        let roll = |n, by| (0..n).map(|row| partner(row, n, by)).collect::<Vec<_>>();
        assert_eq!(roll(4, 1), [3, 0, 1, 2]);
        assert_eq!(roll(6, 3), [3, 4, 5, 0, 1, 2]);
        assert_eq!(roll(1, 1), [0]);
        assert_eq!(roll(2, 3), [1, 0]);
    }
}
