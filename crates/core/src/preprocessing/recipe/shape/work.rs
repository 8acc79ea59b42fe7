//! How much work a recipe asks for at most, before any image is seen: what a device holds a stranger's
//! recipe against. It estimates; nothing that is made depends on it.

use super::RecordShape;
use crate::recipe::op::{Colour, Control, Crops, Geometry, Op, Policy};
use crate::recipe::{Recipe, ResizeTo, Size};

/// What making one sample costs at most, decoding left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleCost {
    /// Pixels of the largest image on the way, the decoded one left out.
    pub most_pixels: u64,
    /// Pixels that are computed in all, each as often as it is computed; one of a blur for every
    /// row and column of its kernel.
    pub passes: u64,
}

impl SampleCost {
    /// Most pixels of an image on its way through a recipe that a device makes samples by: 8192 x 8192, with
    /// which a worker takes some 200 MB.
    pub const MOST_PIXELS: u64 = 1 << 26;

    /// Most pixels that a device computes for a sample, each as often as it is: some seconds of one core.
    /// The built-in recipes stay below a twentieth.
    pub const MOST_PASSES: u64 = 1 << 30;
}

/// What an image of unknown size counts as: a photograph of four megapixels.
const UNKNOWN: Size = Size { height: 2048, width: 2048 };

/// How often a pixel is computed by an op that looks up several, and by one that encodes and decodes.
const RESAMPLED: u64 = 4;
const ENCODED: u64 = 16;

/// How often drawn ops compute a pixel: any of them may resample.
const DRAWN: u64 = 4;

/// How much longer than the shorter side the longer one counts, where one alone is given.
const LONGER: u32 = 2;

impl Recipe {
    /// What making one sample of such a record costs at most, up to the cut. Every op counts, even
    /// one that is applied at random.
    #[must_use]
    pub fn sample_cost(&self, record: RecordShape) -> SampleCost {
        let size = match record {
            RecordShape::Image => UNKNOWN,
            RecordShape::Planar { height, width, .. } => Size { height, width },
            RecordShape::Opaque { .. } => return SampleCost::default(),
        };
        let mut walk = Walk { size, cost: SampleCost::default() };
        walk.all(self.before_cut());
        walk.cost
    }
}

/// An image on its way through the ops.
#[derive(Debug, Clone, Copy)]
struct Walk {
    size: Size,
    cost: SampleCost,
}

impl Walk {
    fn all(&mut self, ops: &[Op]) {
        ops.iter().for_each(|op| self.op(op));
    }

    fn op(&mut self, op: &Op) {
        match op {
            Op::Geometry(op) => self.geometry(op),
            Op::Colour(op) => self.pass(colour_passes(op)),
            Op::Policy(op) => self.pass(DRAWN.saturating_mul(policy_ops(op))),
            Op::RandomErasing(_) => self.pass(1),
            Op::Control(op) => self.control(op),
            Op::Crops(op) => self.crops(op),
            Op::Decode(_) | Op::Feed(_) | Op::Mixing(_) => {}
        }
    }

    /// The image has `size` now, and its pixels were computed so often for it.
    fn becomes(&mut self, size: Size, times: u64) {
        self.size = size;
        let pixels = u64::from(size.height) * u64::from(size.width);
        self.cost.most_pixels = self.cost.most_pixels.max(pixels);
        self.pass(times);
    }

    fn pass(&mut self, times: u64) {
        let pixels = u64::from(self.size.height) * u64::from(self.size.width);
        self.cost.passes = self.cost.passes.saturating_add(pixels.saturating_mul(times));
    }

    fn geometry(&mut self, op: &Geometry) {
        match op {
            Geometry::RandomResizedCrop(op) => self.becomes(op.size, RESAMPLED),
            Geometry::Resize(op) => {
                let size = match op.size {
                    ResizeTo::Exactly(size) => size,
                    ResizeTo::ShortSide(side) => {
                        let longer = side.saturating_mul(LONGER);
                        Size { height: side, width: op.max_size.unwrap_or(longer) }
                    }
                };
                self.becomes(size, RESAMPLED);
            }
            Geometry::CenterCrop(op) => self.becomes(op.size, 1),
            Geometry::RandomCrop(op) => {
                self.becomes(op.padding.around(self.size), 0);
                self.becomes(op.size, 1);
            }
            Geometry::Pad(op) => self.becomes(op.padding.around(self.size), 1),
            Geometry::RandomHorizontalFlip(_) | Geometry::RandomVerticalFlip(_) => {
                self.pass(1);
            }
            Geometry::RandomRotation(op) if op.expand => {
                // The square around the circle around it.
                let side = self.size.height.saturating_add(self.size.width);
                self.becomes(Size { height: side, width: side }, RESAMPLED);
            }
            Geometry::RandomRotation(_)
            | Geometry::RandomAffine(_)
            | Geometry::RandomPerspective(_) => self.pass(RESAMPLED),
        }
    }

    /// Of a choice all count: which one is drawn is not known.
    fn control(&mut self, op: &Control) {
        let before = self.size;
        let mut largest = before;
        for op in op.inside() {
            self.op(op);
            largest.height = largest.height.max(self.size.height);
            largest.width = largest.width.max(self.size.width);
        }
        // One that may be left out leaves the image as it was; what follows counts the larger.
        self.size = largest;
    }

    fn crops(&mut self, op: &Crops) {
        let image = self.size;
        let views = |walk: &mut Self, size, n_views| {
            walk.becomes(size, n_views);
        };
        match op {
            Crops::FiveCrop(op) => views(self, op.size, 5),
            Crops::TenCrop(op) => views(self, op.size, 10),
            Crops::MultiCrop(op) => {
                for view in &op.views {
                    let mut walk = Self { size: image, cost: SampleCost::default() };
                    walk.all(&view.ops);
                    let passes = walk.cost.passes.saturating_mul(view.repeat.into());
                    self.cost.passes = self.cost.passes.saturating_add(passes);
                    let most = self.cost.most_pixels.max(walk.cost.most_pixels);
                    self.cost.most_pixels = most;
                }
            }
        }
    }
}

fn colour_passes(op: &Colour) -> u64 {
    match op {
        Colour::ColorJitter(_) => 4,
        Colour::GaussianBlur(op) => {
            let Size { height, width } = op.kernel();
            u64::from(height).saturating_add(width.into())
        }
        Colour::RandomAdjustSharpness(_) => RESAMPLED,
        Colour::Jpeg(_) => ENCODED,
        Colour::Grayscale(_)
        | Colour::RandomGrayscale(_)
        | Colour::RandomAutocontrast(_)
        | Colour::RandomEqualize(_)
        | Colour::RandomInvert(_)
        | Colour::RandomPosterize(_)
        | Colour::RandomSolarize(_) => 1,
    }
}

/// How many ops are drawn at most.
fn policy_ops(op: &Policy) -> u64 {
    match op {
        Policy::AutoAugment(_) => 2,
        Policy::RandAugment(op) => op.num_ops.into(),
        Policy::TimmRandAugment(op) => op.num_layers.into(),
        Policy::TrivialAugmentWide(_) => 1,
        Policy::Augmix(op) => {
            // torchvision draws a depth of at most three.
            let depth = u64::from(op.chain_depth.unwrap_or(3));
            u64::from(op.mixture_width).saturating_mul(depth.saturating_add(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(ops: &str) -> SampleCost {
        let json = format!(
            r#"{{"name": "r", "version": 1, "ops": [{{"op": "decode"}}, {ops}]}}"#
        );
        Recipe::from_json(&json).unwrap().sample_cost(RecordShape::Image)
    }

    #[test]
    fn every_op_counts_at_the_size_that_the_image_has_there() {
        let crop = r#"{"op": "center_crop", "size": 100}"#;
        let flip = r#"{"op": "random_horizontal_flip"}"#;
        assert_eq!(cost(crop), SampleCost { most_pixels: 10_000, passes: 10_000 });
        assert_eq!(cost(&format!("{crop}, {flip}")).passes, 20_000);
        let blur = r#"{"op": "gaussian_blur", "kernel_size": [63, 3]}"#;
        assert_eq!(cost(&format!("{crop}, {blur}")).passes, 670_000);
        let before = cost(&format!("{flip}, {crop}"));
        assert_eq!(before.passes, 2048 * 2048 + 10_000);
        let large = r#"{"op": "resize", "size": [13370, 13370]}"#;
        let there = cost(&format!("{large}, {crop}"));
        assert_eq!(there.most_pixels, 13_370 * 13_370);
        let views = cost(
            r#"{"op": "multi_crop", "views": [{"repeat": 3, "ops": [
                {"op": "random_resized_crop", "size": 10}]}]}"#,
        );
        assert_eq!(views, SampleCost { most_pixels: 100, passes: 1200 });
    }

    #[test]
    fn what_people_train_with_is_little_and_a_bomb_is_much() {
        for name in Recipe::builtin_names() {
            let recipe = Recipe::builtin(name).unwrap();
            let cost = recipe.sample_cost(RecordShape::Image);
            assert!(cost.passes < 50_000_000, "{name}: {cost:?}");
        }
        let blurs = vec![r#"{"op": "gaussian_blur", "kernel_size": 63}"#; 60].join(", ");
        let bomb = format!(r#"{{"op": "resize", "size": [13370, 13370]}}, {blurs}"#);
        assert!(cost(&bomb).passes > 1_000_000_000_000);
    }
}
