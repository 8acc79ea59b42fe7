//! The weighted sum of several images made from one: the mixture of `AugMix`.
//!
//! It is computed in `f32`, as in torchvision: the image times its weight, plus the image of each chain
//! times its own, in order, without fused multiply-add, and truncated at the end.

use crate::image::Image;

/// One sum after the other; keeps its memory.
#[derive(Debug, Default)]
pub(crate) struct Mixer {
    sum: Vec<f32>,
    /// The image all chains begin with.
    kept: Image,
}

impl Mixer {
    /// Begins a sum with `image` times `weight`.
    pub(crate) fn begin(&mut self, image: &Image, weight: f32) {
        image.view().copy_to(&mut self.kept);
        self.sum.clear();
        self.sum.extend(image.pixels().iter().map(|&value| f32::from(value) * weight));
    }

    /// Adds `image` times `weight`; `image` becomes the one that was kept. A chain never
    /// changes an image's size.
    pub(crate) fn add(&mut self, image: &mut Image, weight: f32) {
        debug_assert_eq!(image.shape(), self.kept.shape(), "chains keep the size");
        for (sum, &value) in self.sum.iter_mut().zip(image.pixels()) {
            *sum += f32::from(value) * weight;
        }
        self.kept.view().copy_to(image);
    }

    /// Puts the sum into `image`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "fractions are cut off, and what lies outside becomes the nearest byte"
    )]
    pub(crate) fn end(&mut self, image: &mut Image) {
        for (value, &sum) in image.pixels_mut().iter_mut().zip(&self.sum) {
            *value = sum as u8;
        }
    }

    /// Gives memory back of which there is more than `keep_bytes`; the bytes that it keeps.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) -> usize {
        if self.sum.capacity() * size_of::<f32>() > keep_bytes {
            self.sum = Vec::new();
        }
        self.kept.release_above(keep_bytes) + self.sum.capacity() * size_of::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bothends_core::recipe::Size;

    #[test]
    fn a_mixture_is_the_weighted_sum_with_fractions_cut_off() {
        let mut image = Image::default();
        image.reshape(Size { height: 1, width: 3 }, 1).copy_from_slice(&[10, 101, 255]);
        let mut mixer = Mixer::default();
        mixer.begin(&image, 0.5);
        image.pixels_mut().copy_from_slice(&[20, 0, 255]);
        mixer.add(&mut image, 0.25);
        assert_eq!(image.pixels(), [10, 101, 255]);
        mixer.add(&mut image, 0.25);
        mixer.end(&mut image);
        // 5 + 5 + 2.5, 50.5 + 0 + 25.25, all of 255.
        assert_eq!(image.pixels(), [12, 75, 255]);
    }
}
