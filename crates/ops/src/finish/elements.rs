//! Bytes become elements, many at a time: the arithmetic of `finish.rs`, in loops that
//! compilers make vectors of. Nothing here knows what a sample is.

use std::marker::PhantomData;

use super::Scale;
use super::half::{bf16_bits, f16_bits};
use crate::kernels::Level;
use crate::kernels::compiled::{Work, run};

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

/// How a byte of one channel becomes a value, and how it does without divisions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Channel {
    scale: Scale,
    /// Where products with it give every byte's value to the last bit.
    factors: Option<Factors>,
}

impl Channel {
    /// Finds out for each of the 256 bytes whether products do for divisions, which they do as
    /// a rule; as a rule is not enough here.
    pub(super) fn new(scale: Scale) -> Self {
        let (mean, std) = scale.unwrap_or((0.0, 1.0));
        let factors = Factors { mean, per_std: Reciprocal::of(std) };
        let is_same =
            |byte| factors.value(byte).to_bits() == value(byte, scale).to_bits();
        let factors = (0..=255).all(is_same).then_some(factors);
        Self { scale, factors }
    }

    /// What products need; `None` where they do not do, or where the processor would have to
    /// call a function for each.
    fn factors(self, level: Level) -> Option<Factors> {
        self.factors.filter(|_| level != Level::Scalar)
    }

    /// Mean and standard deviation, where there are such.
    pub(super) fn scale(self) -> Scale {
        self.scale
    }

    /// What a byte becomes.
    pub(super) fn value(self, byte: u8) -> f32 {
        value(byte, self.scale)
    }
}

/// What [`value`] is computed of without a division.
#[derive(Debug, Clone, Copy)]
struct Factors {
    mean: f32,
    per_std: Reciprocal,
}

impl Factors {
    #[inline(always)]
    fn value(self, byte: u8) -> f32 {
        let unit = PER_BYTE.times(f32::from(byte));
        self.per_std.times(unit - self.mean)
    }
}

/// `1 / 255`.
const PER_BYTE: Reciprocal = Reciprocal::of(255.0);

/// `1 / divisor` to twice the bits of an f32, as the sum of two. A product with it is rounded
/// once, at its end, and so is the nearest to the quotient unless that lies as good as in the
/// middle between two (N. Brisebarre, J.-M. Muller, IEEE Trans. Comput. 57, 2008).
#[derive(Debug, Clone, Copy)]
struct Reciprocal {
    high: f32,
    low: f32,
}

impl Reciprocal {
    #[expect(clippy::cast_possible_truncation, reason = "to the nearest f32")]
    const fn of(divisor: f32) -> Self {
        let whole = 1.0 / divisor as f64;
        let high = whole as f32;
        Self { high, low: (whole - high as f64) as f32 }
    }

    #[inline(always)]
    fn times(self, value: f32) -> f32 {
        value.mul_add(self.high, value * self.low)
    }
}

/// Elements of a pixel pattern that repeats: a multiple of three.
const PATTERN: usize = 48;

/// Converts bytes of one channel.
pub(super) fn plane<E: Element<N>, const N: usize>(
    level: Level,
    channel: Channel,
    bytes: &[u8],
    elements: &mut [u8],
) {
    let (elements, _) = elements.as_chunks_mut();
    match channel.factors(level) {
        Some(factors) => {
            run(level, Products::<E, N> { factors, bytes, elements, kind: PhantomData });
        }
        None => {
            let scale = channel.scale;
            run(level, Plane::<E, N> { scale, bytes, elements, kind: PhantomData });
        }
    }
}

struct Products<'a, E, const N: usize> {
    factors: Factors,
    bytes: &'a [u8],
    elements: &'a mut [[u8; N]],
    kind: PhantomData<E>,
}

impl<E: Element<N>, const N: usize> Work for Products<'_, E, N> {
    #[inline(always)]
    fn run(self) {
        let factors = self.factors;
        let pairs = self.elements.iter_mut().zip(self.bytes);
        pairs.for_each(|(to, &x)| *to = E::bytes(factors.value(x)));
    }
}

struct Plane<'a, E, const N: usize> {
    scale: Scale,
    bytes: &'a [u8],
    elements: &'a mut [[u8; N]],
    kind: PhantomData<E>,
}

impl<E: Element<N>, const N: usize> Work for Plane<'_, E, N> {
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
    channels: [Channel; 3],
    bytes: &[u8],
    elements: &mut [u8],
) {
    let (elements, _) = elements.as_chunks_mut();
    if let [Some(red), Some(green), Some(blue)] = channels.map(|c| c.factors(level)) {
        let factors = [red, green, blue];
        let work = PixelProducts::<E, N> { factors, bytes, elements, kind: PhantomData };
        return run(level, work);
    }
    let scales = channels.map(|channel| channel.scale);
    run(level, Pixels::<E, N> { scales, bytes, elements, kind: PhantomData });
}

struct PixelProducts<'a, E, const N: usize> {
    factors: [Factors; 3],
    bytes: &'a [u8],
    elements: &'a mut [[u8; N]],
    kind: PhantomData<E>,
}

impl<E: Element<N>, const N: usize> Work for PixelProducts<'_, E, N> {
    #[inline(always)]
    fn run(self) {
        let factors: [Factors; PATTERN] = std::array::from_fn(|i| self.factors[i % 3]);
        let means = factors.map(|factors| factors.mean);
        let highs = factors.map(|factors| factors.per_std.high);
        let lows = factors.map(|factors| factors.per_std.low);
        let (patterns, rest) = self.bytes.as_chunks::<PATTERN>();
        let (to_patterns, to_rest) = self.elements.as_chunks_mut::<PATTERN>();
        for (bytes, elements) in patterns.iter().zip(to_patterns) {
            for i in 0..PATTERN {
                let per_std = Reciprocal { high: highs[i], low: lows[i] };
                let factors = Factors { mean: means[i], per_std };
                elements[i] = E::bytes(factors.value(bytes[i]));
            }
        }
        for ((&byte, element), factors) in rest.iter().zip(to_rest).zip(&factors) {
            *element = E::bytes(factors.value(byte));
        }
    }
}

struct Pixels<'a, E, const N: usize> {
    scales: [Scale; 3],
    bytes: &'a [u8],
    elements: &'a mut [[u8; N]],
    kind: PhantomData<E>,
}

impl<E: Element<N>, const N: usize> Work for Pixels<'_, E, N> {
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
    use proptest::prelude::*;

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
                pixels::<Single, 4>(
                    level,
                    scales.map(Channel::new),
                    &bytes,
                    &mut elements,
                );
                assert_eq!(elements, expected(scales, &bytes), "{level:?}, {n}");
                let each = [scales[0]; 3];
                let channel = Channel::new(scales[0]);
                plane::<Single, 4>(level, channel, &bytes, &mut elements);
                assert_eq!(elements, expected(each, &bytes), "{level:?}, {n}");
                plane::<Single, 4>(level, Channel::new(None), &bytes, &mut elements);
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
            plane::<Half, 2>(level, Channel::new(scale), &bytes, &mut halves);
            let expected: Vec<u8> = bytes
                .iter()
                .flat_map(|&x| f16_bits(value(x, scale)).to_le_bytes())
                .collect();
            assert_eq!(halves, expected, "{level:?}");
            plane::<Brain, 2>(level, Channel::new(scale), &bytes, &mut halves);
            let expected: Vec<u8> = bytes
                .iter()
                .flat_map(|&x| bf16_bits(value(x, scale)).to_le_bytes())
                .collect();
            assert_eq!(halves, expected, "{level:?}");
        }
    }

    proptest! {
        /// Whatever a recipe normalises with, products are taken only where they are right.
        #[test]
        fn any_scale_gives_the_values_of_its_divisions(
            mean in prop_oneof![-300.0_f32..300.0, any::<f32>()],
            std in prop_oneof![1e-3_f32..300.0, any::<f32>()],
        ) {
            prop_assume!(mean.is_finite() && std.is_finite() && std > 0.0);
            let bytes: Vec<u8> = (0..=255).collect();
            let channel = Channel::new(Some((mean, std)));
            let values: Vec<u8> =
                bytes.iter().flat_map(|&x| channel.value(x).to_le_bytes()).collect();
            for level in Level::available() {
                let mut elements = vec![0; 1024];
                plane::<Single, 4>(level, channel, &bytes, &mut elements);
                prop_assert_eq!(&elements, &values, "{:?}", level);
            }
        }
    }

    /// ImageNet's and CIFAR's numbers, and none, do without divisions.
    #[test]
    fn usual_scales_need_no_division() {
        let imagenet = [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)];
        let cifar = [(0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616)];
        let clip = [(0.481_454_66, 0.268_629_54), (0.5, 0.5), (0.0, 1.0)];
        for scale in [imagenet, cifar, clip].concat() {
            assert!(Channel::new(Some(scale)).factors.is_some(), "{scale:?}");
        }
        assert!(Channel::new(None).factors.is_some());
    }
}
