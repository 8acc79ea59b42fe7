//! Parameters that can be written in several ways and mean one range. The canonical form is always the
//! longest.

use serde::{Deserialize, Deserializer, Serialize};

/// Pairs whose short form is one number: how that is read, and what is said of anything else.
macro_rules! pairs {
    ($($(#[$doc:meta])* $name:ident of $number:ty: $read:expr, $expecting:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Serialize)]
        pub struct $name(pub [$number; 2]);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                #[derive(Deserialize)]
                #[serde(untagged, expecting = $expecting)]
                enum Raw {
                    One($number),
                    Both([$number; 2]),
                }
                let read: fn($number) -> [$number; 2] = $read;
                Ok(Self(match Raw::deserialize(source)? {
                    Raw::One(number) => read(number),
                    Raw::Both(both) => both,
                }))
            }
        }
    )*};
}

pairs! {
    /// Degrees: d is −d to d.
    Angles of f64: |d| [-d, d], "it must be a number or [least, greatest]";
    /// Magnifications: s is exactly s.
    Scales of f64: |s| [s, s], "it must be a number or [least, greatest]";
    /// Factors around 1: x is 1 − x to 1 + x, not below 0.
    Factors of f64: |x| [f64::max(0.0, 1.0 - x), 1.0 + x],
        "it must be a number or [least, greatest]";
    /// Shifts around 0: x is −x to x.
    Hues of f64: |x| [-x, x], "it must be a number or [least, greatest]";
    /// Standard deviations: s is exactly s.
    Sigmas of f64: |s| [s, s], "it must be a number or [least, greatest]";
    /// Columns and rows of a kernel: k is k × k.
    KernelSize of u32: |k| [k, k],
        "`kernel_size` must be a whole number or [columns, rows]";
    /// Qualities of a JPEG: q is exactly q.
    Qualities of u8: |q| [q, q],
        "`quality` must be a whole number from 1 to 100 or [least, greatest]";
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
