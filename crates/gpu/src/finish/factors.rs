//! What the finish multiplies bytes with: looking up what each becomes costs the kernel more than the memory
//! that it reads and writes.
//!
//! A value is `(x / 255 - mean) / std`, rounded after every step, then rounded to the output's type. In f32 the two
//! quotients are products with reciprocals of twice the bits, as `ops::finish` makes them. In f16 and bf16 one product
//! and sum in f32 comes so near that it rounds to the same. Neither holds for all numbers, so all 256 bytes of
//! each channel are tried here; where one fails, the kernel with the table does the work.

use bothends_core::tensor::Dtype;

use super::FinishPlan;

/// `1 / 255` as the sum of two.
pub(super) const PER_BYTE: [f32; 2] = reciprocal(255.0);

/// How many steps a factor and an offset are moved by, up and down, where the nearest ones do not do.
const STEPS: i32 = 8;

/// For each channel: in f32 the mean and the two parts of `1 / std`, in f16 and bf16 an offset and a factor.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Factors {
    pub(super) offset: [f32; 3],
    pub(super) high: [f32; 3],
    pub(super) low: [f32; 3],
}

impl Factors {
    /// `None` where a byte of a channel would not become what the plan's table has.
    pub(super) fn of(plan: &FinishPlan) -> Option<Self> {
        let mut factors = Self::default();
        let channels = plan.scales.iter().zip(&plan.values).take(3);
        for (nth, (scale, values)) in channels.enumerate() {
            let scale = scale.unwrap_or((0.0, 1.0));
            let found = match plan.output.dtype {
                // Bytes pass as they are.
                Dtype::U8 => Some([0.0; 3]),
                Dtype::F32 => products(scale, values),
                Dtype::F16 => line(scale, values, f16),
                Dtype::Bf16 => line(scale, values, bf16),
            };
            [factors.offset[nth], factors.high[nth], factors.low[nth]] = found?;
        }
        Some(factors)
    }
}

/// `1 / divisor` as the sum of two.
#[expect(clippy::cast_possible_truncation, reason = "to the nearest f32")]
const fn reciprocal(divisor: f32) -> [f32; 2] {
    let whole = 1.0 / divisor as f64;
    let high = whole as f32;
    [high, (whole - high as f64) as f32]
}

fn products((mean, std): (f32, f32), values: &[u32; 256]) -> Option<[f32; 3]> {
    let per_std = reciprocal(std);
    let times = |x: f32, [high, low]: [f32; 2]| x.mul_add(high, x * low);
    let is_same = |byte: u8| {
        let value = times(times(f32::from(byte), PER_BYTE) - mean, per_std);
        value.is_finite() && value.to_bits() == values[usize::from(byte)]
    };
    let [high, low] = per_std;
    (0..=255).all(is_same).then_some([mean, high, low])
}

/// A factor and an offset; `of` is what the bits of an element mean.
#[expect(clippy::cast_possible_truncation, reason = "to the nearest f32")]
fn line(
    (mean, std): (f32, f32),
    values: &[u32; 256],
    of: fn(u16) -> f64,
) -> Option<[f32; 3]> {
    let factor = (1.0 / (255.0 * f64::from(std))) as f32;
    let offset = (-f64::from(mean) / f64::from(std)) as f32;
    if !(factor.is_normal() && offset.is_finite()) {
        return None;
    }
    let intervals: Option<Vec<_>> =
        values.iter().map(|bits| interval(u16::try_from(*bits).ok()?, of)).collect();
    let intervals = intervals?;
    let near = |x: f32, by: i32| f32::from_bits(x.to_bits().wrapping_add_signed(by));
    let steps =
        || (0..=2 * STEPS).map(|by| if by % 2 == 0 { by / 2 } else { -by / 2 - 1 });
    let mut tried = steps().flat_map(|by| steps().map(move |and| (by, and)));
    tried.find_map(|(by, and)| {
        let (factor, offset) = (near(factor, by), near(offset, and));
        let is_same = |((byte, (least, most)), bits): ((u8, &(f64, f64)), &u32)| {
            let value = f32::from(byte).mul_add(factor, offset);
            let has_sign = value.is_sign_negative() == (bits & 0x8000 != 0);
            has_sign && *least < f64::from(value) && f64::from(value) < *most
        };
        let is_good = (0..=255).zip(&intervals).zip(values).all(is_same);
        is_good.then_some([offset, factor, 0.0])
    })
}

/// Between which numbers the nearest element is that of these bits, whatever becomes of halves, and the sign of a zero
/// aside; `None` where it is not finite.
fn interval(bits: u16, of: fn(u16) -> f64) -> Option<(f64, f64)> {
    let here = of(bits);
    let away = of(bits.wrapping_add(1));
    let towards = if bits & 0x7fff == 0 { -away } else { of(bits - 1) };
    let ends = [(here + away) / 2.0, (here + towards) / 2.0];
    let is_finite = ends.iter().all(|end| end.is_finite());
    is_finite.then_some((ends[0].min(ends[1]), ends[0].max(ends[1])))
}

/// The number that the bits of an IEEE binary16 mean.
fn f16(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
    match exponent {
        0 => sign * fraction * 2f64.powi(-24),
        31 => f64::INFINITY,
        _ => sign * (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

/// The number that the bits of a bfloat16 mean.
fn bf16(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

#[cfg(test)]
mod tests {
    use bothends_core::recipe::Recipe;
    use bothends_core::tensor::{Layout, Output, SampleShape, Views};
    use bothends_ops::Finish;
    use bothends_ops::finish::half::f16_bits;

    use super::*;

    fn plan(recipe: &Recipe, dtype: Dtype) -> FinishPlan {
        let shape = SampleShape { height: 2, width: 2, channels: 3 };
        let output = Output { dtype, layout: Layout::Nchw };
        let finish = Finish::new(recipe, &Views::from(shape), output).expect("a finish");
        let (values, scales) = (finish.values(), finish.scales());
        FinishPlan { shape, output, values, scales, has_noise: false }
    }

    #[test]
    fn usual_normalisations_have_factors() {
        for name in ["imagenet-train", "cifar10-train"] {
            let recipe = Recipe::builtin(name).expect("built in");
            for dtype in [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16] {
                assert!(Factors::of(&plan(&recipe, dtype)).is_some(), "{name} {dtype:?}");
            }
        }
    }

    #[test]
    fn a_table_of_something_else_has_none() {
        let recipe = Recipe::builtin("imagenet-train").expect("built in");
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let mut plan = plan(&recipe, dtype);
            plan.values[2][255] ^= 1;
            assert_eq!(Factors::of(&plan), None, "{dtype:?}");
        }
    }

    /// Here the quotient is 0 and the line so little below it that it rounds to -0.
    #[test]
    fn a_zero_keeps_its_sign() {
        let recipe = Recipe::builtin("imagenet-train").expect("built in");
        let mut plan = plan(&recipe, Dtype::F16);
        let scale = (1.0 / 255.0, 5.0);
        plan.scales = vec![Some(scale); 3];
        let value = |byte: u8| (f32::from(byte) / 255.0 - scale.0) / scale.1;
        let bits =
            |byte: usize| u32::from(f16_bits(value(u8::try_from(byte).expect("a byte"))));
        plan.values = vec![std::array::from_fn(bits); 3];
        assert_eq!(plan.values[0][1], 0, "and not -0");
        let found = Factors::of(&plan);
        let made = found.map(|factors| 1_f32.mul_add(factors.high[0], factors.offset[0]));
        assert!(made.is_none_or(f32::is_sign_positive), "{found:?}");
    }

    #[test]
    fn halves_of_the_way_between_two_elements() {
        // 1.0, its neighbours 1 + 2^-10 and 1 - 2^-11.
        let (least, most) = interval(0x3c00, f16).expect("finite");
        assert_eq!((least, most), (1.0 - 2f64.powi(-12), 1.0 + 2f64.powi(-11)));
        assert_eq!(interval(0, f16), Some((-(2f64.powi(-25)), 2f64.powi(-25))));
        assert_eq!(interval(0x7bff, f16), None, "the largest has infinity beyond");
        assert_eq!(interval(0xbf80, bf16).map(|(least, _)| least), Some(-1.00390625));
    }
}
