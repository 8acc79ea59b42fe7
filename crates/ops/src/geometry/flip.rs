//! Mirrors an image. Whether a sample is flipped is drawn by the recipe.

#[cfg(target_arch = "x86_64")]
mod x86;

use bothends_core::recipe::Size;
use bothends_core::tensor::SampleShape;

use crate::image::{Image, View};
use crate::kernels::Level;

/// Makes `out` the image with left and right exchanged: torchvision's `horizontal_flip`.
pub fn horizontal(level: Level, src: View<'_>, out: &mut Image) {
    let channels = src.channels();
    let row_bytes = (src.width() * channels).max(1);
    let SampleShape { height, width, channels: n } = src.shape();
    out.reshape(Size { height, width }, n);
    for (dst, src) in out.pixels_mut().chunks_exact_mut(row_bytes).zip(src.rows()) {
        match channels {
            1 => reverse_pixels::<1>(src, dst),
            3 => reverse_colours(level, src, dst),
            _ => {
                let pixels = src.chunks_exact(channels).rev();
                let places = dst.chunks_exact_mut(channels);
                places.zip(pixels).for_each(|(to, from)| to.copy_from_slice(from));
            }
        }
    }
}

/// Pixels of three channels in the opposite order, by the kernels of `level`.
fn reverse_colours(level: Level, src: &[u8], dst: &mut [u8]) {
    let n_done = match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(cpu) => x86::reverse_avx2(cpu, src, dst),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(cpu) => x86::reverse_avx512(cpu, src, dst),
        #[cfg(target_arch = "aarch64")]
        Level::Neon(_) => 0,
        Level::Scalar => 0,
    };
    reverse_pixels::<3>(&src[..src.len() - n_done], &mut dst[n_done..]);
}

/// Pixels of `N` bytes in the opposite order: the meaning.
fn reverse_pixels<const N: usize>(src: &[u8], dst: &mut [u8]) {
    let (pixels, _) = src.as_chunks::<N>();
    let (places, _) = dst.as_chunks_mut::<N>();
    places.iter_mut().zip(pixels.iter().rev()).for_each(|(to, from)| *to = *from);
}

/// Top becomes bottom: torchvision's `vertical_flip`.
pub fn vertical(image: &mut Image) {
    let row_bytes = (image.width() * image.channels()).max(1);
    let mut rows = image.pixels_mut().chunks_exact_mut(row_bytes);
    while let (Some(upper), Some(lower)) = (rows.next(), rows.next_back()) {
        upper.swap_with_slice(lower);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(height: u32, width: u32, channels: u32) -> Image {
        let mut image = Image::default();
        for (value, byte) in
            (0..=250).cycle().zip(image.reshape(Size { height, width }, channels))
        {
            *byte = value;
        }
        image
    }

    #[test]
    fn pixels_change_places_and_channels_do_not() {
        let mut flipped = mirrored(Level::Scalar, &image(2, 3, 2));
        assert_eq!(flipped.pixels(), [4, 5, 2, 3, 0, 1, 10, 11, 8, 9, 6, 7]);
        vertical(&mut flipped);
        assert_eq!(flipped.pixels(), [10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1]);
    }

    fn mirrored(level: Level, image: &Image) -> Image {
        let mut out = Image::default();
        horizontal(level, image.view(), &mut out);
        out
    }

    #[test]
    fn twice_is_not_at_all() {
        for (height, width) in (0..7).flat_map(|h| (0..7).map(move |w| (h, w))) {
            let before = image(height, width, 3);
            let after = mirrored(Level::of_process(), &before);
            assert!(width < 2 || height < 2 || after != before);
            assert_eq!(mirrored(Level::of_process(), &after), before);
            let mut after = before.clone();
            vertical(&mut after);
            assert!(width < 2 || height < 2 || after != before);
            vertical(&mut after);
            assert_eq!(after, before, "{height} x {width}");
        }
    }

    #[test]
    fn every_level_mirrors_every_width_alike() {
        for (channels, width) in (1..=4).flat_map(|c| (0..140).map(move |w| (c, w))) {
            let before = image(3, width, channels);
            let expected = mirrored(Level::Scalar, &before);
            for level in Level::available() {
                let after = mirrored(level, &before);
                assert_eq!(after, expected, "{level:?}, {width} of {channels}");
            }
        }
    }
}
