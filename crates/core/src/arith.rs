//! `exp` and `ln` from the basic IEEE 754 operations alone, so that every platform (and a
//! Python program) gets the same bits; the platform's own functions may differ in the last.
//!
//! Not for speed: a few draws per sample use them. Neither a fused multiply-add nor another
//! order of operations may be used here. `docs/numbers.md` states the same in formulas.

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

    proptest! {
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
