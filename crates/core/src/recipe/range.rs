//! Parameters that may be written in several ways and mean one range. The canonical form is
//! always the longest.

use serde::{Deserialize, Serialize};

/// A number that may stand for a range around something.
#[derive(Deserialize, Clone, Copy)]
#[serde(untagged, expecting = "it must be a number or [least, greatest]")]
enum NumberOrRange {
    Number(f64),
    Range([f64; 2]),
}

/// Ranges whose short form is one number: how that number is read.
macro_rules! ranges {
    ($($(#[$doc:meta])* $name:ident: $read:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
        #[serde(from = "NumberOrRange")]
        pub struct $name(pub [f64; 2]);

        impl From<NumberOrRange> for $name {
            fn from(raw: NumberOrRange) -> Self {
                let read: fn(f64) -> [f64; 2] = $read;
                Self(match raw {
                    NumberOrRange::Number(number) => read(number),
                    NumberOrRange::Range(range) => range,
                })
            }
        }
    )*};
}

ranges! {
    /// Degrees: d is −d to d.
    Angles: |d| [-d, d];
    /// Magnifications: s is exactly s.
    Scales: |s| [s, s];
    /// Factors around 1: x is 1 − x to 1 + x, not below 0.
    Factors: |x| [f64::max(0.0, 1.0 - x), 1.0 + x];
    /// Shifts around 0: x is −x to x.
    Hues: |x| [-x, x];
    /// Standard deviations: s is exactly s.
    Sigmas: |s| [s, s];
}

impl Default for Sigmas {
    fn default() -> Self {
        Self([0.1, 2.0])
    }
}

/// Degrees of shear along rows, and along columns: d is −d to d along rows, [a, b] is a to b
/// along rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "RawShears")]
pub struct Shears(pub [f64; 4]);

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "`shear` must be a number, [least, greatest] along rows, or four numbers: \
                 the same, then along columns"
)]
enum RawShears {
    Number(f64),
    Rows([f64; 2]),
    Both([f64; 4]),
}

impl From<RawShears> for Shears {
    fn from(raw: RawShears) -> Self {
        Self(match raw {
            RawShears::Number(d) => [-d, d, 0.0, 0.0],
            RawShears::Rows([low, high]) => [low, high, 0.0, 0.0],
            RawShears::Both(both) => both,
        })
    }
}

/// Columns and rows of a kernel: k is k × k.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RawKernelSize")]
pub struct KernelSize(pub [u32; 2]);

#[derive(Deserialize)]
#[serde(untagged, expecting = "`kernel_size` must be a whole number or [columns, rows]")]
enum RawKernelSize {
    Square(u32),
    Sides([u32; 2]),
}

impl From<RawKernelSize> for KernelSize {
    fn from(raw: RawKernelSize) -> Self {
        Self(match raw {
            RawKernelSize::Square(side) => [side, side],
            RawKernelSize::Sides(sides) => sides,
        })
    }
}

/// Qualities of a JPEG: q is exactly q.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RawQualities")]
pub struct Qualities(pub [u8; 2]);

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "`quality` must be a whole number from 1 to 100 or [least, greatest]"
)]
enum RawQualities {
    One(u8),
    Range([u8; 2]),
}

impl From<RawQualities> for Qualities {
    fn from(raw: RawQualities) -> Self {
        Self(match raw {
            RawQualities::One(quality) => [quality, quality],
            RawQualities::Range(range) => range,
        })
    }
}
