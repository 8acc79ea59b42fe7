//! Bytes become elements, many at a time: the arithmetic of `finish.rs`, in loops that
//! compilers make vectors of. Nothing here knows what a sample is.

use std::marker::PhantomData;

use super::Scale;
use crate::compiled::{Work, run};
use crate::half::{bf16_bits, f16_bits};
use crate::kernels::Level;

/// A type of element, of `N` bytes.
pub(super) trait Element<const N: usize> {
    /// The nearest one, little-endian.
    fn bytes(value: f32) -> [u8; N];
}

/// IEEE 754 binary32.
pub(super) struct Single;
/// IEEE 754 binary16.
pub(super) struct Half;
/// bfloat16.
pub(super) struct Brain;

impl Element<4> for Single {
    #[inline(always)]
    fn bytes(value: f32) -> [u8; 4] {
        value.to_le_bytes()
    }
}

impl Element<2> for Half {
    #[inline(always)]
    fn bytes(value: f32) -> [u8; 2] {
        f16_bits(value).to_le_bytes()
    }
}

impl Element<2> for Brain {
    #[inline(always)]
    fn bytes(value: f32) -> [u8; 2] {
        bf16_bits(value).to_le_bytes()
    }
}

/// What a byte becomes: `x / 255`, then `- mean` and `/ std` where there are such.
#[inline(always)]
pub(super) fn value(byte: u8, scale: Scale) -> f32 {
    let unit = f32::from(byte) / 255.0;
    match scale {
        None => unit,
        Some((mean, std)) => (unit - mean) / std,
    }
}

/// Elements of a pixel pattern that repeats: a multiple of three.
const PATTERN: usize = 48;

/// Converts bytes of one channel.
pub(super) fn plane<E: Element<N>, const N: usize>(
    level: Level,
    scale: Scale,
    bytes: &[u8],
    elements: &mut [u8],
) {
    let (elements, _) = elements.as_chunks_mut();
    run(level, Plane::<E, N> { scale, bytes, elements, kind: PhantomData });
}

struct Plane<'a, E, const N: usize> {
    scale: Scale,
    bytes: &'a [u8],
    elements: &'a mut [[u8; N]],
    kind: PhantomData<E>,
}

impl<E: Element<N>, const N: usize> Work for Plane<'_, E, N> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let pairs = self.elements.iter_mut().zip(self.bytes);
        match self.scale {
            None => pairs.for_each(|(to, &x)| *to = E::bytes(value(x, None))),
            scale @ Some(_) => pairs.for_each(|(to, &x)| *to = E::bytes(value(x, scale))),
        }
    }
}

/// Converts pixels of three channels, in their order.
pub(super) fn pixels<E: Element<N>, const N: usize>(
    level: Level,
    scales: [Scale; 3],
    bytes: &[u8],
    elements: &mut [u8],
) {
    let (elements, _) = elements.as_chunks_mut();
    run(level, Pixels::<E, N> { scales, bytes, elements, kind: PhantomData });
}

struct Pixels<'a, E, const N: usize> {
    scales: [Scale; 3],
    bytes: &'a [u8],
    elements: &'a mut [[u8; N]],
    kind: PhantomData<E>,
}

impl<E: Element<N>, const N: usize> Work for Pixels<'_, E, N> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        // Subtracting 0 and dividing by 1 changes no value that is not negative.
        let (mut means, mut stds) = ([0.0; PATTERN], [1.0; PATTERN]);
        for (nth, (mean, std)) in means.iter_mut().zip(&mut stds).enumerate() {
            if let Some(scale) = self.scales[nth % 3] {
                (*mean, *std) = scale;
            }
        }
        let (patterns, rest) = self.bytes.as_chunks::<PATTERN>();
        let (to_patterns, to_rest) = self.elements.as_chunks_mut::<PATTERN>();
        for (bytes, elements) in patterns.iter().zip(to_patterns) {
            for i in 0..PATTERN {
                elements[i] = E::bytes(value(bytes[i], Some((means[i], stds[i]))));
            }
        }
        for (i, (&byte, element)) in rest.iter().zip(to_rest).enumerate() {
            *element = E::bytes(value(byte, Some((means[i], stds[i]))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table that a loop would be, one value at a time.
    fn expected(scales: [Scale; 3], bytes: &[u8]) -> Vec<u8> {
        let values = bytes.iter().enumerate();
        values.flat_map(|(i, &x)| value(x, scales[i % 3]).to_le_bytes()).collect()
    }

    #[test]
    fn every_level_and_length_makes_the_same_elements() {
        let scales = [Some((0.485, 0.229)), None, Some((0.406, 0.225))];
        for level in Level::available() {
            for n in 0..200_u8 {
                let bytes: Vec<u8> = (0..n).map(|i| i.wrapping_mul(37)).collect();
                let mut elements = vec![0; bytes.len() * 4];
                pixels::<Single, 4>(level, scales, &bytes, &mut elements);
                assert_eq!(elements, expected(scales, &bytes), "{level:?}, {n}");
                let each = [scales[0]; 3];
                plane::<Single, 4>(level, scales[0], &bytes, &mut elements);
                assert_eq!(elements, expected(each, &bytes), "{level:?}, {n}");
                plane::<Single, 4>(level, None, &bytes, &mut elements);
                assert_eq!(elements, expected([None; 3], &bytes), "{level:?}, {n}");
            }
        }
    }

    #[test]
    fn every_level_rounds_halves_alike() {
        let bytes: Vec<u8> = (0..=255).collect();
        let scale = Some((0.485, 0.229));
        for level in Level::available() {
            let mut halves = vec![0; 512];
            plane::<Half, 2>(level, scale, &bytes, &mut halves);
            let expected: Vec<u8> = bytes
                .iter()
                .flat_map(|&x| f16_bits(value(x, scale)).to_le_bytes())
                .collect();
            assert_eq!(halves, expected, "{level:?}");
            plane::<Brain, 2>(level, scale, &bytes, &mut halves);
            let expected: Vec<u8> = bytes
                .iter()
                .flat_map(|&x| bf16_bits(value(x, scale)).to_le_bytes())
                .collect();
            assert_eq!(halves, expected, "{level:?}");
        }
    }
}
