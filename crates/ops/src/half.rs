//! f32 to the two 16-bit float formats, rounded to nearest, ties to even; and back.
//!
//! Integer arithmetic only, so that no compiler flag and no processor mode changes a bit.
//! (Of the `half` crate only these few functions would be needed.)

/// IEEE 754 binary16 bits of `value`. Too large becomes infinity; NaN stays NaN.
#[must_use]
pub fn f16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = high_half(bits) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let f16 = match magnitude {
        0x7f80_0001.. => 0x7e00, // NaN
        // 65520 is half-way between the largest f16 and the next power of two.
        0x477f_f000.. => 0x7c00,
        // From 2^-14 on the result is normal: rebias the exponent (127 to 15), drop 13 bits.
        0x3880_0000.. => round_off(magnitude - ((127 - 15) << 23), 13),
        // Below, the result is a count of 2^-24: drop as many bits as bring it there.
        0x3300_0000.. => {
            let exponent = magnitude >> 23;
            let mantissa = (magnitude & 0x007f_ffff) | 0x0080_0000;
            round_off(mantissa, 126 - exponent)
        }
        // Less than half of 2^-24.
        _ => 0,
    };
    sign | f16
}

/// bfloat16 bits of `value`: the upper half of an f32. NaN stays NaN.
#[must_use]
pub fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return high_half(bits) | 0x0040;
    }
    // A carry out of the mantissa goes into the exponent, which is right.
    (high_half(bits) & 0x8000) | round_off(bits & 0x7fff_ffff, 16)
}

/// The value of IEEE 754 binary16 bits; exact.
#[must_use]
pub fn f16_value(bits: u16) -> f32 {
    let sign = (u32::from(bits) & 0x8000) << 16;
    let magnitude = u32::from(bits) & 0x7fff;
    if magnitude < 0x0400 {
        // Zero, or a count of 2^-24.
        let value = f32::from(bits & 0x03ff) * f32::from_bits(0x3380_0000);
        return f32::from_bits(value.to_bits() | sign);
    }
    let rebias = if magnitude >= 0x7c00 { 255 - 31 } else { 127 - 15 };
    f32::from_bits(sign | ((magnitude << 13) + (rebias << 23)))
}

/// The value of bfloat16 bits; exact.
#[must_use]
pub fn bf16_value(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// `bits` without its last `n`, rounded to nearest, ties to even. The result fits 16 bits
/// for every caller above.
fn round_off(bits: u32, n: u32) -> u16 {
    let kept = bits >> n;
    let rest = bits & ((1 << n) - 1);
    let half = 1 << (n - 1);
    let rounds_up = rest > half || (rest == half && kept & 1 == 1);
    low_half(kept + u32::from(rounds_up))
}

fn high_half(bits: u32) -> u16 {
    low_half(bits >> 16)
}

#[allow(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
fn low_half(bits: u32) -> u16 {
    bits as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The value of a 16-bit float with `mantissa_bits`, from its definition.
    fn value_of(bits: u16, mantissa_bits: i32) -> f64 {
        let exponent_bits = 15 - mantissa_bits;
        let bias = (1 << (exponent_bits - 1)) - 1;
        let mantissa = i32::from(bits) & ((1 << mantissa_bits) - 1);
        let exponent = (i32::from(bits & 0x7fff)) >> mantissa_bits;
        let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
        let scaled = |mantissa: i32, exponent: i32| {
            sign * f64::from(mantissa) * 2f64.powi(exponent - bias - mantissa_bits)
        };
        match exponent {
            0 => scaled(mantissa, 1),
            e if e == (1 << exponent_bits) - 1 && mantissa == 0 => sign * f64::INFINITY,
            e if e == (1 << exponent_bits) - 1 => f64::NAN,
            e => scaled(mantissa | (1 << mantissa_bits), e),
        }
    }

    /// Nearest, and even where two are equally near.
    fn assert_nearest(value: f32, got: u16, mantissa_bits: i32) {
        if value.is_nan() {
            assert!(value_of(got, mantissa_bits).is_nan());
            return;
        }
        let infinity = ((1u16 << (15 - mantissa_bits)) - 1) << mantissa_bits;
        let magnitude = got & 0x7fff;
        assert!(magnitude <= infinity, "{value} became NaN");
        assert_eq!(got & 0x8000 != 0, value.is_sign_negative(), "{value}");
        // Infinity stands for the next power of two when distances are compared.
        let finite = |bits: u16| match value_of(bits, mantissa_bits) {
            v if v.is_infinite() => 2.0 * 2f64.powi((1 << (14 - mantissa_bits)) - 1),
            v => v,
        };
        let exact = f64::from(value.abs());
        if exact.is_infinite() {
            assert_eq!(magnitude, infinity);
            return;
        }
        let distance = |bits: u16| (finite(bits) - exact).abs();
        for other in [magnitude.wrapping_sub(1), magnitude + 1] {
            if other <= infinity {
                let tie_broken =
                    distance(magnitude) == distance(other) && magnitude & 1 == 0;
                assert!(
                    distance(magnitude) < distance(other)
                        || tie_broken
                        || exact > finite(infinity),
                    "{value:e} became {magnitude:#06x}, not {other:#06x}"
                );
            }
        }
    }

    fn check(value: f32) {
        assert_nearest(value, f16_bits(value), 10);
        assert_nearest(value, bf16_bits(value), 7);
    }

    #[test]
    fn every_16_bit_value_and_its_neighbours_are_rounded_to_nearest() {
        for bits in 0..=u16::MAX {
            for mantissa_bits in [10, 7] {
                #[allow(clippy::cast_possible_truncation, reason = "exact by design")]
                let value = value_of(bits, mantissa_bits) as f32;
                check(value);
                // The half-way points to the neighbours, and one step to either side.
                let step = 1u32 << (22 - mantissa_bits);
                for nudge in [step - 1, step, step + 1, 1] {
                    check(f32::from_bits(value.to_bits().wrapping_add(nudge)));
                    check(f32::from_bits(value.to_bits().wrapping_sub(nudge)));
                }
            }
        }
    }

    /// f16 bits as NumPy 2 gives them (`np.float16(x).view(np.uint16)`); bf16 by hand.
    #[test]
    fn known_values() {
        for (value, f16, bf16) in [
            (0.0, 0x0000, 0x0000),
            (-0.0, 0x8000, 0x8000),
            (1.0, 0x3c00, 0x3f80),
            (-2.117_904, 0xc03c, 0xc008),
            (0.1, 0x2e66, 0x3dcd),
            (65_504.0, 0x7bff, 0x4780),
            (65_520.0, 0x7c00, 0x4780),
            (5.960_464_5e-8, 0x0001, 0x3380),
            (2.980_232_2e-8, 0x0000, 0x3300),
            (f32::INFINITY, 0x7c00, 0x7f80),
            (f32::MAX, 0x7c00, 0x7f80),
        ] {
            assert_eq!(f16_bits(value), f16, "{value} as f16");
            assert_eq!(bf16_bits(value), bf16, "{value} as bf16");
        }
    }

    #[test]
    fn every_pattern_of_bits_comes_back() {
        for bits in 0..=u16::MAX {
            let (f16, bf16) = (f16_value(bits), bf16_value(bits));
            let [exact_f16, exact_bf16] = [10, 7].map(|n| value_of(bits, n));
            assert!(f64::from(f16) == exact_f16 || f16.is_nan() && exact_f16.is_nan());
            assert!(
                f64::from(bf16) == exact_bf16 || bf16.is_nan() && exact_bf16.is_nan()
            );
        }
    }

    proptest! {
        #[test]
        fn any_f32_is_rounded_to_nearest(bits in any::<u32>()) {
            check(f32::from_bits(bits));
        }
    }
}
