//! The filters: how much an input weighs by its distance from an output's centre, in inputs or, where
//! an image is made smaller, in outputs.
//!
//! All are Pillow's, in its order of operations. Sines are computed here: they are within 1e-15 of
//! the true values and the same on every machine, which no platform's library promises. (Weights
//! have 22 bits after the point; a difference there would need a weight that is half a unit off by
//! 1e-15.) Nothing here rounds a weight.

use std::f64::consts::PI;

use bothends_core::recipe::Interpolation;

/// How much an input weighs by its distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filter {
    Triangle,
    Cubic,
    Box,
    Hamming,
    Lanczos,
}

impl Filter {
    /// That of an interpolation; nearest has none.
    pub(super) fn of(interpolation: Interpolation) -> Option<Self> {
        match interpolation {
            Interpolation::Nearest => None,
            Interpolation::Bilinear => Some(Self::Triangle),
            Interpolation::Bicubic => Some(Self::Cubic),
            Interpolation::Box => Some(Self::Box),
            Interpolation::Hamming => Some(Self::Hamming),
            Interpolation::Lanczos => Some(Self::Lanczos),
        }
    }

    /// The distance from which on it is 0.
    pub(super) fn reach(self) -> f64 {
        match self {
            Self::Box => 0.5,
            Self::Triangle | Self::Hamming => 1.0,
            Self::Cubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// Whether it is below 0 anywhere.
    pub(super) fn is_signed(self) -> bool {
        match self {
            Self::Triangle | Self::Box | Self::Hamming => false,
            Self::Cubic | Self::Lanczos => true,
        }
    }
}

#[inline(always)]
pub(super) fn triangle(distance: f64) -> f64 {
    (1.0 - distance.abs()).max(0.0)
}

/// Convolution with a = -½ (R. Keys, 1981), in Pillow's order.
#[inline(always)]
pub(super) fn cubic(distance: f64) -> f64 {
    let x = distance.abs();
    let near = (1.5 * x - 2.5) * x * x + 1.0;
    let far = (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5;
    if x < 1.0 {
        near
    } else if x < 2.0 {
        far
    } else {
        0.0
    }
}

/// 1 over one output; what lies at its beginning belongs to the one before.
#[inline(always)]
pub(super) fn square(distance: f64) -> f64 {
    if distance > -0.5 && distance <= 0.5 { 1.0 } else { 0.0 }
}

/// A sinc in a Hamming window. Pillow has its constants as f32, whose sum is not 1, and says apart
/// that the middle is.
#[inline(always)]
pub(super) fn hamming(distance: f64) -> f64 {
    let x = distance.abs();
    let [_, cosine] = sine_and_cosine(x);
    let window = f64::from(0.54_f32) + f64::from(0.46_f32) * cosine;
    if x == 0.0 {
        1.0
    } else if x < 1.0 {
        sinc(x) * window
    } else {
        0.0
    }
}

/// A sinc in the middle part of another, three times as wide.
#[inline(always)]
pub(super) fn lanczos(distance: f64) -> f64 {
    let is_inside = (-3.0..3.0).contains(&distance);
    let x = distance.abs();
    if is_inside { sinc(x) * sinc(x / 3.0) } else { 0.0 }
}

/// sin(πx) / (πx) for x from 0.
#[inline(always)]
fn sinc(x: f64) -> f64 {
    let [sine, _] = sine_and_cosine(x);
    if x == 0.0 { 1.0 } else { sine / (x * PI) }
}

/// sin(πx) and cos(πx) for x from 0 to 2^20: their series around the nearest whole x.
#[inline(always)]
fn sine_and_cosine(x: f64) -> [f64; 2] {
    let whole = floor(x + 0.5);
    let sign = f64::from(1 - 2 * (whole & 1));
    let angle = (x - f64::from(whole)) * PI;
    let z = angle * angle;
    let (mut sine, mut cosine) = (1.0, 1.0);
    for [of_sine, of_cosine] in SERIES {
        sine = 1.0 - z * of_sine * sine;
        cosine = 1.0 - z * of_cosine * cosine;
    }
    [sign * (angle * sine), sign * cosine]
}

/// What each term of the series of sine and cosine is of the one before, the last first:
/// 1 / (2n (2n + 1)) and 1 / ((2n - 1) 2n) for n from 12 down to 1.
const SERIES: [[f64; 2]; 12] = {
    let mut series = [[0.0; 2]; 12];
    let mut place = 0;
    while place < 12 {
        let twice = (2 * (12 - place)) as f64;
        series[place] = [1.0 / (twice * (twice + 1.0)), 1.0 / ((twice - 1.0) * twice)];
        place += 1;
    }
    series
};

/// ⌊x⌋ of an amount below 2^31.
///
/// Compilers make no vectors of the cast that would do it.
#[inline(always)]
pub(super) fn floor(x: f64) -> i32 {
    // From here on an f64 has no fraction: adding it rounds, and leaves the whole number in the
    // lowest bits. Half as much again, so that adding a negative number does the same.
    const WHOLE: f64 = (3_u64 << 51) as f64;
    let nearest = x + WHOLE;
    let [number, _] = halves(nearest.to_bits());
    number - i32::from(nearest - WHOLE > x)
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "halves are what is asked for")]
fn halves(bits: u64) -> [i32; 2] {
    [bits as i32, (bits >> 32) as i32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sines_are_within_1e_15_of_the_true_ones() {
        for nth in 0..=30_000 {
            let x = f64::from(nth) / 10_000.0;
            let [sine, cosine] = sine_and_cosine(x);
            assert!((sine - (x * PI).sin()).abs() < 1.5e-15, "sin {x}");
            assert!((cosine - (x * PI).cos()).abs() < 1.5e-15, "cos {x}");
        }
    }

    /// By hand: sinc(½) = 2/π, sinc(1/6) = 3/π, sinc(3/2) = -2/(3π).
    #[test]
    fn filters_have_known_heights() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-15;
        assert!(near(lanczos(0.5), 6.0 / (PI * PI)));
        assert!(near(lanczos(-1.5), -2.0 / (3.0 * PI) * 2.0 / PI));
        assert!(near(hamming(0.5), 2.0 / PI * f64::from(0.54_f32)));
        for filter in [lanczos, hamming, cubic, triangle, square] {
            assert_eq!(filter(0.0), 1.0);
            assert!(near(filter(1.0), 0.0) && near(filter(-2.0), 0.0));
        }
        assert_eq!([square(0.5), square(-0.5), square(0.51)], [1.0, 0.0, 0.0]);
    }

    #[test]
    fn the_floor_is_below() {
        let numbers = [0.0, 0.49, 0.5, 1.0, 1.99, 4e6, 4_194_303.7, 2_147_483_647.0];
        for x in numbers.into_iter().flat_map(|x: f64| [x, -x]) {
            assert_eq!(f64::from(floor(x)), x.floor(), "{x}");
        }
    }
}
