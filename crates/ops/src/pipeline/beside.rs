//! What a sample takes besides what decoding counts: images on its way, as far as they are as large as the
//! one decoded.
//!
//! How many images are decoded at once depends on it, and nothing else: whether one is too large is told by
//! what decoding takes, whatever the recipe. Read `decode/room.rs` next.

use bothends_core::recipe::step::Step;
use bothends_core::recipe::{Decision, Size};

/// Bytes of a pixel.
const CHANNELS: u64 = 3;

/// Images that a mixture takes: the one that all chains begin with, and a sum of four bytes for each value.
const OF_MIXTURE: u64 = 1 + 4;

/// Bytes of the images that `decision` makes of one of `size`, besides that one.
pub(super) fn bytes_beside(decision: &Decision, size: Size) -> u64 {
    let bytes = bytes_of(size);
    let shared = Beside::of(decision.shared(), bytes);
    let n_views = decision.views().count();
    if shared.is_resized || n_views < 2 {
        return shared.bytes;
    }
    // Each view begins with a copy; all of them use the same memory.
    let views = decision.views().map(|steps| Beside::of(steps, bytes).bytes);
    let of_views = bytes.saturating_add(views.max().unwrap_or(0));
    shared.bytes.max(of_views)
}

pub(super) fn bytes_of(Size { height, width }: Size) -> u64 {
    u64::from(height).saturating_mul(width.into()).saturating_mul(CHANNELS)
}

/// What steps take besides an image, up to the first one that makes a smaller one.
struct Beside {
    bytes: u64,
    is_resized: bool,
}

impl Beside {
    /// Of `steps` on an image of so many bytes.
    fn of(steps: &[Step], bytes: u64) -> Self {
        let [mut next, mut adjusted, mut mixed] = [0_u64; 3];
        let mut is_resized = false;
        for step in steps {
            match step {
                Step::Resize { .. } | Step::Window(_) | Step::Warp(_) => {
                    let made = step.new_size().map_or(0, bytes_of);
                    next = next.max(made);
                    is_resized = made < bytes;
                }
                Step::MirrorColumns => next = next.max(bytes),
                // Some work on a copy.
                Step::Adjust(_) => adjusted = bytes,
                Step::Mix(_) => mixed = bytes.saturating_mul(OF_MIXTURE),
                Step::MirrorRows
                | Step::Erase { .. }
                | Step::FirstChannel
                | Step::ThreeChannels => {}
            }
            if is_resized {
                break;
            }
        }
        let bytes = next.saturating_add(adjusted).saturating_add(mixed);
        Self { bytes, is_resized }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bothends_core::recipe::Recipe;
    use bothends_core::sample::SampleKey;
    use bothends_core::tensor::SampleShape;

    /// Bytes for each pixel of an image, besides the image.
    fn per_pixel(ops: &str) -> u64 {
        let json = format!(
            r#"{{"version": 1, "name": "some", "numerics": "exact", "ops": [{ops}]}}"#
        );
        let recipe = Recipe::from_json(&json).unwrap();
        let size = Size { height: 3000, width: 4000 };
        let shape = SampleShape { height: 3000, width: 4000, channels: 3 };
        let key = SampleKey {
            seed: 1,
            epoch: bothends_core::ids::EpochIdx(0),
            sample: bothends_core::ids::SampleId(0),
        };
        let mut decision = Decision::default();
        recipe.decide(key, shape, &mut decision).unwrap();
        bytes_beside(&decision, size) / (3000 * 4000)
    }

    #[test]
    fn images_count_until_they_are_small() {
        let crop = r#"{"op": "random_resized_crop", "size": 64}"#;
        let flip = r#"{"op": "random_horizontal_flip", "p": 1.0}"#;
        let mix = r#"{"op": "augmix"}"#;
        let decode = r#"{"op": "decode"}"#;
        assert_eq!(per_pixel(&format!("{decode}, {crop}, {flip}")), 0);
        assert_eq!(per_pixel(&format!("{decode}, {flip}, {crop}")), 3);
        let mixed = per_pixel(&format!("{decode}, {mix}, {crop}"));
        assert!((15..=21).contains(&mixed), "{mixed}");
    }
}
