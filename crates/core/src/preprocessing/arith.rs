//! `exp`, `ln`, sine and cosine from basic IEEE 754 operations alone. Every platform (and a Python
//! program) gets the same bits, whereas the platform's own functions may differ in the last one.
//!
//! Not built for speed: a few draws per sample use them. Do not use a fused multiply-add or another
//! order of operations here. `docs/numbers.md` has the same as formulas.

/// ln 2 rounded to nearest.
const LN_2: f64 = f64::from_bits(0x3FE6_2E42_FEFA_39EF);
/// The upper 33 bits of ln 2: `k · LN_2_HIGH` is exact for every exponent `k`.
const LN_2_HIGH: f64 = f64::from_bits(0x3FE6_2E42_FEE0_0000);
/// ln 2 − `LN_2_HIGH`, rounded to nearest.
const LN_2_LOW: f64 = f64::from_bits(0x3DEA_39EF_3579_3C76);
/// √½ rounded to nearest.
const SQRT_HALF: f64 = f64::from_bits(0x3FE6_A09E_667F_3BCD);

/// e to the power `x`, within 1e-13 of the true value (relative) where that is a normal
/// number; infinity above 709.78, zero below −745.14, NaN for NaN.
///
/// x = k·ln 2 + r with |r| ≤ ½ ln 2; the series of e^r to r^14/14!; times 2^k.
#[must_use]
pub fn exp(x: f64) -> f64 {
    // Bounds k; beyond them the result is infinity or zero all the same.
    let x = x.clamp(-800.0, 800.0);
    let k = (x / LN_2 + 0.5).floor();
    let r = (x - k * LN_2_HIGH) - k * LN_2_LOW;
    let mut sum = 1.0;
    for n in (1..=14).rev() {
        sum = 1.0 + (r * sum) / f64::from(n);
    }
    // 2^k in two halves, each a normal number, so that only the last product can round.
    let half = (k / 2.0).floor();
    sum * power_of_two(half) * power_of_two(k - half)
}

/// The natural logarithm of `x`, within 1e-13 of the true value (relative); −infinity for
/// 0, infinity for infinity, NaN below 0 and for NaN.
///
/// x = m·2^k with √½ ≤ m < √2; s = (m − 1)/(m + 1); 2·artanh s as a series to s^25/25.
#[must_use]
pub fn ln(x: f64) -> f64 {
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x.is_nan() || x < 0.0 || x == f64::INFINITY {
        return if x > 0.0 { x } else { f64::NAN };
    }
    let (m, k) = mantissa_and_exponent(x);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut sum = 0.0;
    for n in (0..=12).rev() {
        sum = sum * z + 1.0 / f64::from(2 * n + 1);
    }
    k * LN_2 + 2.0 * (s * sum)
}

/// π/2 rounded to nearest.
const HALF_PI: f64 = f64::from_bits(0x3FF9_21FB_5444_2D18);
/// The upper 33 bits of π/2: `k · HALF_PI_HIGH` is exact for every quarter turn in range.
const HALF_PI_HIGH: f64 = f64::from_bits(0x3FF9_21FB_5440_0000);
/// π/2 − `HALF_PI_HIGH`, rounded to nearest.
const HALF_PI_LOW: f64 = f64::from_bits(0x3DD0_B461_1A62_6331);

/// Sine and cosine of `x` radians, each within 1e-13 of the true value where |x| ≤ 1000; NaN
/// where |x| is above 10^6, and for NaN.
///
/// x = k·π/2 + r with |r| ≤ π/4; the series of sin r to r^19/19! and of cos r to r^18/18!;
/// exchanged and negated by the quarter turn k.
#[must_use]
pub fn sin_cos(x: f64) -> (f64, f64) {
    if x.is_nan() || x.abs() > 1e6 {
        return (f64::NAN, f64::NAN);
    }
    let k = (x / HALF_PI + 0.5).floor();
    let r = (x - k * HALF_PI_HIGH) - k * HALF_PI_LOW;
    let z = r * r;
    let (mut sin, mut cos) = (1.0, 1.0);
    for n in (1..=9).rev() {
        sin = 1.0 - (z * sin) / f64::from(2 * n * (2 * n + 1));
        cos = 1.0 - (z * cos) / f64::from((2 * n - 1) * (2 * n));
    }
    let sin = r * sin;
    match quarter(k) {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

/// k modulo 4, for a whole k.
fn quarter(k: f64) -> u8 {
    let rest = k - (k / 4.0).floor() * 4.0;
    if rest < 0.5 {
        0
    } else if rest < 1.5 {
        1
    } else if rest < 2.5 {
        2
    } else {
        3
    }
}

/// Where the normal distribution (0, 1) has the share `p` of itself below, 0 < p < 1: within
/// 2e-9 of the true value (relative). P. J. Acklam's rational approximations; a tail's is in
/// √(−2 ln p).
#[must_use]
pub fn normal_quantile(p: f64) -> f64 {
    /// Where the tails begin.
    const TAIL: f64 = 0.024_25;
    if p > 1.0 - TAIL {
        return -normal_quantile(1.0 - p);
    }
    let polynomial = |coefficients: &[f64], x: f64| {
        coefficients.iter().fold(0.0, |sum, coefficient| sum * x + coefficient)
    };
    if p < TAIL {
        let q = (-2.0 * ln(p)).sqrt();
        return polynomial(&TAIL_ABOVE, q) / polynomial(&TAIL_BELOW, q);
    }
    let q = p - 0.5;
    let r = q * q;
    polynomial(&MIDDLE_ABOVE, r) * q / polynomial(&MIDDLE_BELOW, r)
}

const MIDDLE_ABOVE: [f64; 6] = [
    -3.969_683_028_665_376e1,
    2.209_460_984_245_205e2,
    -2.759_285_104_469_687e2,
    1.383_577_518_672_69e2,
    -3.066_479_806_614_716e1,
    2.506_628_277_459_239,
];
const MIDDLE_BELOW: [f64; 6] = [
    -5.447_609_879_822_406e1,
    1.615_858_368_580_409e2,
    -1.556_989_798_598_866e2,
    6.680_131_188_771_972e1,
    -1.328_068_155_288_572e1,
    1.0,
];
const TAIL_ABOVE: [f64; 6] = [
    -7.784_894_002_430_293e-3,
    -3.223_964_580_411_365e-1,
    -2.400_758_277_161_838,
    -2.549_732_539_343_734,
    4.374_664_141_464_968,
    2.938_163_982_698_783,
];
const TAIL_BELOW: [f64; 5] = [
    7.784_695_709_041_462e-3,
    3.224_671_290_700_398e-1,
    2.445_134_137_142_996,
    3.754_408_661_907_416,
    1.0,
];

/// `degrees` in radians: degrees · (π ÷ 180), as Python's `math.radians`.
#[must_use]
pub fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

/// 2^k for −1022 ≤ k ≤ 1023 (0 for NaN).
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "k is a whole number within the exponent's range"
)]
fn power_of_two(k: f64) -> f64 {
    f64::from_bits(((k + 1023.0) as u64) << 52)
}

/// (m, k) with x = m·2^k and √½ ≤ m < √2, for a positive finite `x`. Exact.
fn mantissa_and_exponent(x: f64) -> (f64, f64) {
    const FRACTION: u64 = (1 << 52) - 1;
    // A subnormal has no leading one: scale by 2^54 first.
    let (x, scaled) = if x < f64::MIN_POSITIVE {
        (x * 18_014_398_509_481_984.0, 54.0)
    } else {
        (x, 0.0)
    };
    let biased = (x.to_bits() >> 52) as u32;
    let m = f64::from_bits((x.to_bits() & FRACTION) | (1022 << 52)); // ½ ≤ m < 1
    let k = f64::from(biased) - 1022.0 - scaled;
    if m < SQRT_HALF { (m * 2.0, k - 1.0) } else { (m, k) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(got: f64, want: f64) -> bool {
        got == want || ((got - want) / want).abs() < 1e-13
    }

    #[test]
    fn edges() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp(f64::INFINITY), f64::INFINITY);
        assert_eq!(exp(-746.0), 0.0);
        assert!(exp(-745.0) > 0.0);
        assert_eq!(exp(710.0), f64::INFINITY);
        assert!(exp(709.7).is_finite());
        assert!(exp(f64::NAN).is_nan());
        assert!(ln(f64::NAN).is_nan());
        assert!(ln(-1.0).is_nan());
        assert!(ln(f64::NEG_INFINITY).is_nan());
        assert_eq!(ln(0.0), f64::NEG_INFINITY);
        assert_eq!(ln(f64::INFINITY), f64::INFINITY);
        assert!(close(ln(5e-324), -744.440_071_921_381_2));
    }

    /// Bits computed by a Python program written from `docs/numbers.md`.
    #[test]
    fn golden_bits() {
        for (x, bits) in GOLDEN_LN {
            assert_eq!(ln(x).to_bits(), bits, "ln {x}");
        }
        for (x, bits) in GOLDEN_EXP {
            assert_eq!(exp(x).to_bits(), bits, "exp {x}");
        }
    }

    const GOLDEN_LN: [(f64, u64); 10] = [
        (0.75, 0xBFD2_6962_1134_DB92),
        (1.3333333333333333, 0x3FD2_6962_1134_DB92),
        (0.1, 0xC002_6BB1_BBB5_5515),
        (2.0, 0x3FE6_2E42_FEFA_39EF),
        (10.0, 0x4002_6BB1_BBB5_5515),
        (1e-300, 0xC085_9634_47F8_7FB5),
        (5e-324, 0xC087_4385_446D_71C3),
        (0.9999999999999999, 0xBCA0_0000_0000_0000),
        (1.0000000000000002, 0x3CB0_0000_0000_0000),
        (123456.789, 0x4027_7281_CAD8_A844),
    ];
    const GOLDEN_EXP: [(f64, u64); 11] = [
        (-0.2876820724517809, 0x3FE8_0000_0000_0000),
        (0.28768207245178085, 0x3FF5_5555_5555_5555),
        (0.1, 0x3FF1_AEC7_B35A_00D4),
        (1.0, 0x4005_BF0A_8B14_576A),
        (-1.0, 0x3FD7_8B56_362C_EF38),
        (0.5, 0x3FFA_6129_8E1E_069C),
        (50.0, 0x4471_9103_E408_0B45),
        (-700.5, 0x00C4_FF47_5C68_CA02),
        (709.5, 0x7FE8_1E9B_4B52_D0C9),
        (-740.0, 0x0000_0000_0000_0055),
        (1e-17, 0x3FF0_0000_0000_0000),
    ];

    /// What Python's `math` says, to nine digits and more.
    #[test]
    fn sine_and_cosine_at_known_places() {
        let close = |got: f64, want: f64| (got - want).abs() < 1e-14;
        for (x, sin, cos) in [
            (0.0, 0.0, 1.0),
            (1.0, 0.841_470_984_807_896_5, 0.540_302_305_868_139_8),
            (-0.5, -0.479_425_538_604_203, 0.877_582_561_890_372_8),
            (2.5, 0.598_472_144_103_956_5, -0.801_143_615_546_933_7),
            (-4.0, 0.756_802_495_307_928_2, -0.653_643_620_863_611_9),
        ] {
            let got = sin_cos(x);
            assert!(close(got.0, sin) && close(got.1, cos), "{x}: {got:?}");
        }
        assert!(sin_cos(f64::NAN).0.is_nan() && sin_cos(f64::INFINITY).1.is_nan());
    }

    /// Tables of the normal distribution.
    #[test]
    fn quantiles_at_known_places() {
        for (p, z) in [
            (0.5, 0.0),
            (0.975, 1.959_963_984_540_054),
            (0.01, -2.326_347_874_040_841),
            (0.001, -3.090_232_306_167_813),
            (0.999_99, 4.264_890_793_922_602),
        ] {
            assert!((normal_quantile(p) - z).abs() < 1e-8, "{p}: {}", normal_quantile(p));
        }
    }

    proptest! {
        #[test]
        fn sine_and_cosine_are_close_to_the_platform(x in -1000.0..1000.0_f64) {
            let (sin, cos) = sin_cos(x);
            prop_assert!((sin - x.sin()).abs() < 1e-13, "{sin} {}", x.sin());
            prop_assert!((cos - x.cos()).abs() < 1e-13, "{cos} {}", x.cos());
        }

        #[test]
        fn exp_is_close_to_the_platform(x in -700.0..700.0_f64) {
            prop_assert!(close(exp(x), x.exp()), "{} {}", exp(x), x.exp());
        }

        #[test]
        fn exp_is_close_where_crops_are_drawn(x in -2.0..2.0_f64) {
            prop_assert!(close(exp(x), x.exp()), "{} {}", exp(x), x.exp());
        }

        #[test]
        fn ln_is_close_to_the_platform(bits in 1..f64::INFINITY.to_bits()) {
            let x = f64::from_bits(bits);
            prop_assert!(close(ln(x), x.ln()), "{} {}", ln(x), x.ln());
        }

        #[test]
        fn ln_is_close_where_crops_are_drawn(x in 0.01..10.0_f64) {
            prop_assert!(close(ln(x), x.ln()), "{} {}", ln(x), x.ln());
        }
    }
}
