//! f32 to the two 16-bit float formats, rounded to nearest, ties to even; and back.
//!
//! Integer arithmetic, and of floats only what is exact or comes to the same where a thread treats
//! subnormal numbers as zeros, as PyTorch can make it: no processor and no such mode changes a bit.
//! (Of the `half` crate only these few functions would be needed.)

/// IEEE 754 binary16 bits of `value`. Too large becomes infinity; every NaN becomes the same.
///
/// All three cases are computed and one is chosen: compilers make vectors of that.
#[must_use]
#[inline(always)]
pub fn f16_bits(value: f32) -> u16 {
    const HALF: u32 = 0x3f00_0000;
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    // Half-way to the largest f16's neighbour and above is infinity; above infinity is NaN.
    let special = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    // From 2^-14 on: the exponent rebiased (127 to 15), 13 bits rounded off.
    let odd = (magnitude >> 13) & 1;
    let rebiased = magnitude.wrapping_sub((127 - 15) << 23);
    let normal = rebiased.wrapping_add(0x0fff + odd) >> 13;
    // Below, a count of 2^-24, which is what adding ½ rounds to; 0 for an f32 that is subnormal.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(HALF);
    let finite = if magnitude < 0x3880_0000 { small } else { normal };
    let f16 = if magnitude >= 0x477f_f000 { special } else { finite };
    let sign = if magnitude > 0x7f80_0000 { 0 } else { (bits >> 16) & 0x8000 };
    low_half(sign | f16)
}

/// bfloat16 bits of `value`: the upper half of an f32. Every NaN becomes the same.
#[must_use]
#[inline(always)]
pub fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let odd = (bits >> 16) & 1;
    // A carry out of the mantissa goes into the exponent, which is right.
    let rounded = bits.wrapping_add(0x7fff + odd) >> 16;
    low_half(if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fc0 } else { rounded })
}

/// The value of IEEE 754 binary16 bits; exact. Every NaN becomes the same.
#[must_use]
#[inline(always)]
pub fn f16_value(bits: u16) -> f32 {
    // 2^-24, of which a subnormal number is a count, and what rebiases the exponent (15 to 127).
    const COUNT: u32 = 24 << 23;
    const REBIAS: u32 = (127 - 15) << 23;
    let sign = (u32::from(bits) & 0x8000) << 16;
    let magnitude = bits & 0x7fff;
    // No f32 of a whole number is subnormal, and neither is the 2^24th part of one.
    let small = f32::from(magnitude).to_bits().wrapping_sub(COUNT);
    let small = if magnitude == 0 { 0 } else { small };
    let normal = (u32::from(magnitude) << 13) + REBIAS;
    let finite = if magnitude < 0x0400 { small } else { normal };
    let infinite = if magnitude == 0x7c00 { 0x7f80_0000 | sign } else { NAN };
    f32::from_bits(if magnitude >= 0x7c00 { infinite } else { sign | finite })
}

/// The value of bfloat16 bits; exact. Every NaN becomes the same.
#[must_use]
#[inline(always)]
pub fn bf16_value(bits: u16) -> f32 {
    let is_nan = bits & 0x7fff > 0x7f80;
    f32::from_bits(if is_nan { NAN } else { u32::from(bits) << 16 })
}

/// The bits of the only NaN that there is here: which one an operation makes is the processor's choice.
const NAN: u32 = 0x7fc0_0000;

#[allow(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
#[inline(always)]
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

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_thread_without_subnormal_numbers_converts_alike() {
        let values = || (0..=u16::MAX).map(|bits| f16_value(bits).to_bits()).collect();
        // As many f32 as there are f16, subnormal ones among them.
        let f32s =
            || (0..=u16::MAX).map(|upper| f32::from_bits(u32::from(upper) << 16 | 1));
        let bits = || f32s().map(|value| [f16_bits(value), bf16_bits(value)]).collect();
        let (there, theirs): (Vec<_>, Vec<_>) =
            crate::kernels::x86::without_subnormals(|| (values(), bits()));
        assert!(there == values(), "values");
        assert!(theirs == bits(), "bits");
    }

    /// Which NaN comes of an operation is the processor's choice: of infinity times zero, x86 makes a
    /// negative one and ARM a positive one.
    #[test]
    fn every_nan_becomes_the_same() {
        for bits in [0x7f80_0001, 0x7fc0_0000, 0xff80_0001, 0xffc0_1234, 0xffff_ffff] {
            let nan = f32::from_bits(bits);
            assert_eq!([f16_bits(nan), bf16_bits(nan)], [0x7e00, 0x7fc0], "{bits:#x}");
        }
        for (f16, bf16) in [(0x7c01, 0x7f81), (0xfe00, 0xffc0), (0xffff, 0xffff)] {
            let nans = [f16_value(f16), bf16_value(bf16)].map(f32::to_bits);
            assert_eq!(nans, [0x7fc0_0000; 2], "{f16:#x}, {bf16:#x}");
        }
    }

    proptest! {
        #[test]
        fn any_f32_is_rounded_to_nearest(bits in any::<u32>()) {
            check(f32::from_bits(bits));
        }
    }
}
