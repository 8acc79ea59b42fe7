//! What a device consists of: the preset file, and its meaning once checked.
//!
//! A preset is JSON. Every constant is an object with a value, a unit and a source: a short citation, or
//! the word `uncalibrated`. [`DeviceConfig`] is complete and in range. The presets of this project are in
//! `preset.rs`; nothing here opens a file.

mod raw;

use serde::Deserialize;

use raw::Raw;

use crate::compute::{ComputeConfig, WorkConfig};
use crate::link::LinkConfig;
use crate::media::{MediaConfig, MemoryConfig, WritesConfig};
use crate::power::{PowerConfig, SleepConfig, ThermalConfig};

/// A preset that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PresetError {
    /// It is not JSON, a key is missing, unknown or of the wrong kind, or a constant has a unit
    /// that does not measure this, is out of range or says nothing of where it comes from.
    #[error("preset {preset}: {why}")]
    Wrong {
        /// The preset's name or file.
        preset: String,
        /// The place, and what is understood.
        why: String,
    },
    /// No preset has that name, and no file either.
    #[error("there is no preset or file `{name}`; the presets are {presets}{meant}")]
    Unknown {
        /// As given.
        name: String,
        /// All names.
        presets: String,
        /// `; did you mean …?`, or nothing.
        meant: String,
    },
    /// The file is there but cannot be read.
    #[error("cannot read the preset file `{path}` ({why})")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        why: String,
    },
}

/// A device: complete, in range, in base units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceConfig {
    /// What results call it.
    pub name: String,
    /// Where records lie.
    pub media: MediaConfig,
    /// What does the work.
    pub compute: ComputeConfig,
    /// The way to the host.
    pub link: LinkConfig,
    /// Power of the states.
    pub power: PowerConfig,
    /// The thermal cap, if it has one.
    pub thermal: Option<ThermalConfig>,
    /// How its flash is written, if it says so.
    pub writes: Option<WritesConfig>,
    /// Its memory, if it has a model of it.
    pub memory: Option<MemoryConfig>,
    /// What programs cost a core, if it says so.
    pub work: Option<WorkConfig>,
    /// When it sleeps, if it does.
    pub sleep: Option<SleepConfig>,
}

impl DeviceConfig {
    /// Reads a preset; `preset` is its name or file, for errors.
    ///
    /// # Errors
    /// [`PresetError`], all but `Unknown`.
    pub fn from_json(preset: &str, json: &str) -> Result<Self, PresetError> {
        Self::from_json_at(preset, json, Bound::Middle)
    }

    /// Reads a preset at one end of what its constants may be.
    ///
    /// # Errors
    /// As [`Self::from_json`].
    pub fn from_json_at(
        preset: &str,
        json: &str,
        bound: Bound,
    ) -> Result<Self, PresetError> {
        let check = Check { preset, bound };
        let raw: Raw =
            serde_json::from_str(json).map_err(|e| check.wrong(e.to_string()))?;
        raw.into_config(check)
    }

    /// Gives the device a different number of cores (or lanes), if it has a model of them.
    pub fn set_n_units(&mut self, n: u32) {
        match &mut self.compute {
            ComputeConfig::Measured => {}
            ComputeConfig::Cores(cores) => cores.n_cores = n,
            ComputeConfig::Fixed(fixed) => fixed.n_lanes = n,
        }
    }

    /// How many samples the device works on side by side; `None` when no model says so.
    #[must_use]
    pub fn n_units(&self) -> Option<u32> {
        self.compute.n_units()
    }
}

/// A constant as a preset gives it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The number, in `unit`.
    pub value: f64,
    /// What the number counts.
    pub unit: String,
    /// A short citation, or `uncalibrated`.
    pub source: String,
    /// The ends between which it is thought to lie, where somebody says so. The emulation uses
    /// `value`, or an end if it is asked to ([`Bound`]).
    #[serde(default)]
    pub low: Option<f64>,
    /// The other end.
    #[serde(default)]
    pub high: Option<f64>,
    /// For people: why this number.
    #[serde(default)]
    pub note: Option<String>,
}

/// Which end of the constants a device has, where its preset gives `low` and `high`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bound {
    /// Long times, low rates, much power: nothing that is computed is better at another end.
    Worst,
    /// The values themselves.
    #[default]
    Middle,
    /// Short times, high rates, little power.
    Best,
}

impl Bound {
    /// The number that a constant has here.
    fn of(self, quantity: Quantity, constant: &Constant) -> f64 {
        let Constant { value, low, high, .. } = constant;
        let is_more_better = matches!(
            quantity,
            Quantity::Count
                | Quantity::Size
                | Quantity::Bandwidth
                | Quantity::PixelRate
                | Quantity::Share
                | Quantity::WorkRate
        );
        let end = match (self, is_more_better) {
            (Self::Middle, _) => None,
            (Self::Worst, true) | (Self::Best, false) => *low,
            (Self::Worst, false) | (Self::Best, true) => *high,
        };
        end.unwrap_or(*value)
    }
}

/// What a constant measures, which says its units and its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// A whole number of things, at least 1.
    Count,
    /// A size, at least 1; base unit: bytes.
    Size,
    /// A time; base unit: nanoseconds.
    Time,
    /// Bytes per second, at least 1.
    Bandwidth,
    /// Pixels per second, at least 1.
    PixelRate,
    /// Base unit: milliwatts.
    Power,
    /// Base unit: millijoules.
    Energy,
    /// A factor; base unit: thousandths.
    Factor,
    /// A factor that makes nothing faster, at least 1; base unit: thousandths.
    Slowdown,
    /// A part of a whole; base unit: thousandths.
    Share,
    /// Steps of work per second, at least 1.
    WorkRate,
}

/// Base units in one unit, by name.
type Units = &'static [(&'static str, f64)];

impl Quantity {
    fn units(self) -> (Units, &'static str) {
        match self {
            Self::Count => (&[("1", 1.0)], "1"),
            Self::Size => {
                (&[("B", 1.0), ("KiB", 1024.0), ("MiB", 1_048_576.0)], "B, KiB and MiB")
            }
            Self::Time => (&[("ns", 1.0), ("us", 1e3), ("ms", 1e6)], "ns, us and ms"),
            Self::Bandwidth => (&[("MB/s", 1e6), ("GB/s", 1e9)], "MB/s and GB/s"),
            Self::PixelRate => (&[("Mpx/s", 1e6)], "Mpx/s"),
            Self::Power => (&[("mW", 1.0), ("W", 1e3)], "mW and W"),
            Self::Energy => (&[("J", 1e3)], "J"),
            Self::Factor | Self::Slowdown => (&[("x", 1e3)], "x"),
            Self::Share => (&[("%", 10.0)], "%"),
            Self::WorkRate => (&[("M/s", 1e6)], "M/s"),
        }
    }

    /// What a message says of its numbers besides their range.
    fn kind(self) -> &'static str {
        match self {
            Self::Count => "a whole number ",
            Self::Size
            | Self::Time
            | Self::Bandwidth
            | Self::PixelRate
            | Self::Power
            | Self::Energy
            | Self::Factor
            | Self::Slowdown
            | Self::Share
            | Self::WorkRate => "",
        }
    }

    /// Least and greatest value, in base units: far beyond any device, so that no sum of the
    /// models overflows.
    fn range(self) -> (u64, u64) {
        match self {
            Self::Count => (1, 4096),
            Self::Size => (1, 1 << 30),
            Self::Time => (0, 10_000_000_000),
            Self::Bandwidth | Self::PixelRate | Self::WorkRate => {
                (1, 1_000_000_000_000_000)
            }
            Self::Power => (0, 10_000_000),
            Self::Energy => (0, 1_000_000_000),
            Self::Factor => (1, 1_000_000),
            Self::Slowdown => (1000, 1_000_000),
            Self::Share => (1, 10_000),
        }
    }
}

/// Checks the constants of one preset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Check<'a> {
    pub(crate) preset: &'a str,
    pub(crate) bound: Bound,
}

impl Check<'_> {
    /// The constant in base units, rounded; a number of things is not rounded.
    pub(crate) fn base<T: TryFrom<u64>>(
        self,
        key: &str,
        quantity: Quantity,
        constant: &Constant,
    ) -> Result<T, PresetError> {
        let Constant { value, unit, source, low, high, .. } = constant;
        let is_between = match (low, high) {
            (None, None) => true,
            (Some(low), Some(high)) => *low > 0.0 && low <= value && value <= high,
            _ => false,
        };
        if !is_between {
            let why = format!(
                "`{key}` is {}; give both `low` and `high`, above 0, with the value \
                 between them, or neither",
                amount(*value, unit)
            );
            return Err(self.wrong(why));
        }
        if source.trim().is_empty() {
            let why = format!("`{key}` has no source; cite one or write `uncalibrated`");
            return Err(self.wrong(why));
        }
        let (units, expected) = quantity.units();
        let Some((_, scale)) = units.iter().find(|(name, _)| name == unit) else {
            let why = format!("`{key}` is in `{unit}`; the units for it are {expected}");
            return Err(self.wrong(why));
        };
        let value = self.bound.of(quantity, constant);
        let (least, most) = quantity.range();
        let is_exact = quantity != Quantity::Count || value.fract() == 0.0;
        let base = whole((value * scale).round()).filter(|n| (least..=most).contains(n));
        let base = base.filter(|_| is_exact).and_then(|n| T::try_from(n).ok());
        base.ok_or_else(|| {
            let (got, kind) = (amount(value, unit), quantity.kind());
            let [least, most] = [least, most].map(|end| in_unit(end, *scale));
            let most = amount(most, unit);
            self.wrong(format!(
                "`{key}` is {got}; it must be {kind}from {least} to {most}"
            ))
        })
    }

    /// Whether two constants that are each in range also fit together.
    pub(crate) fn fits(self, fits: Result<(), String>) -> Result<(), PresetError> {
        fits.map_err(|why| self.wrong(why))
    }

    fn wrong(self, why: String) -> PresetError {
        PresetError::Wrong { preset: self.preset.to_owned(), why }
    }
}

/// A number as a message gives it: one of things has no unit.
fn amount(value: f64, unit: &str) -> String {
    if unit == "1" { value.to_string() } else { format!("{value} {unit}") }
}

/// A number of base units in a unit that is `scale` of them.
#[allow(clippy::cast_precision_loss, reason = "the ends of ranges are below 2^53")]
fn in_unit(base: u64, scale: f64) -> f64 {
    base as f64 / scale
}

/// A whole, finite, non-negative number below 2^53.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked before the cast"
)]
fn whole(value: f64) -> Option<u64> {
    (value.is_finite() && (0.0..9e15).contains(&value)).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(value: f64, unit: &str, source: &str) -> Result<u64, PresetError> {
        let (unit, source) = (unit.to_owned(), source.to_owned());
        let (low, high) = (None, None);
        let constant = Constant { value, unit, source, low, high, note: None };
        Check { preset: "p", bound: Bound::Middle }.base(
            "latency",
            Quantity::Time,
            &constant,
        )
    }

    #[test]
    fn a_constant_is_read_in_its_unit() {
        assert_eq!(time(1.5, "us", "x"), Ok(1500));
        assert_eq!(time(29_760.0, "ns", "x"), Ok(29_760));
    }

    #[test]
    fn the_ends_of_a_constant_have_it_between_them() {
        let factor = |low, high| {
            let (unit, source) = ("x".to_owned(), "uncalibrated".to_owned());
            let constant = Constant { value: 10.0, unit, source, low, high, note: None };
            Check { preset: "p", bound: Bound::Middle }.base::<u64>(
                "relative_time",
                Quantity::Factor,
                &constant,
            )
        };
        for (low, high) in
            [(None, None), (Some(8.0), Some(12.0)), (Some(10.0), Some(10.0))]
        {
            assert_eq!(factor(low, high), Ok(10_000));
        }
        for (low, high) in [
            (Some(8.0), None),
            (None, Some(12.0)),
            (Some(11.0), Some(12.0)),
            (Some(8.0), Some(9.0)),
            (Some(0.0), Some(12.0)),
            (Some(f64::NAN), Some(12.0)),
        ] {
            let error = factor(low, high).unwrap_err().to_string();
            assert!(
                error.contains("`relative_time` is 10 x; give both `low`"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_worst_device_has_long_times_low_rates_and_much_power() {
        let at = |bound, quantity, unit: &str| {
            let constant = Constant {
                value: 10.0,
                unit: unit.to_owned(),
                source: "x".to_owned(),
                low: Some(8.0),
                high: Some(12.0),
                note: None,
            };
            Check { preset: "p", bound }.base::<u64>("key", quantity, &constant).unwrap()
        };
        for (quantity, unit, worst, best) in [
            (Quantity::Time, "ns", 12, 8),
            (Quantity::Factor, "x", 12_000, 8000),
            (Quantity::Power, "mW", 12, 8),
            (Quantity::Bandwidth, "MB/s", 8_000_000, 12_000_000),
            (Quantity::WorkRate, "M/s", 8_000_000, 12_000_000),
            (Quantity::Count, "1", 8, 12),
        ] {
            assert_eq!(at(Bound::Worst, quantity, unit), worst, "{quantity:?}");
            assert_eq!(at(Bound::Best, quantity, unit), best, "{quantity:?}");
        }
    }

    fn base(quantity: Quantity, value: f64, unit: &str) -> Result<u64, PresetError> {
        let (unit, source) = (unit.to_owned(), "x".to_owned());
        let (low, high) = (None, None);
        let constant = Constant { value, unit, source, low, high, note: None };
        Check { preset: "p", bound: Bound::Middle }.base("key", quantity, &constant)
    }

    #[test]
    fn a_range_is_told_in_the_unit_that_was_given_and_its_ends_are_in_it() {
        for (quantity, value, unit, range) in [
            (Quantity::Factor, 5000.0, "x", "0.001 to 1000 x"),
            (Quantity::Slowdown, 0.5, "x", "1 to 1000 x"),
            (Quantity::Time, 20_000.0, "ms", "0 to 10000 ms"),
            (Quantity::Time, -1.0, "ns", "0 to 10000000000 ns"),
            (Quantity::Size, 0.0, "KiB", "0.0009765625 to 1048576 KiB"),
            (Quantity::Bandwidth, 0.0, "MB/s", "0.000001 to 1000000000 MB/s"),
            (Quantity::Bandwidth, 0.0, "GB/s", "0.000000001 to 1000000 GB/s"),
            (Quantity::PixelRate, 0.0, "Mpx/s", "0.000001 to 1000000000 Mpx/s"),
            (Quantity::WorkRate, 0.0, "M/s", "0.000001 to 1000000000 M/s"),
            (Quantity::Power, -1.0, "W", "0 to 10000 W"),
            (Quantity::Energy, -1.0, "J", "0 to 1000000 J"),
            (Quantity::Share, 0.0, "%", "0.1 to 1000 %"),
        ] {
            let error = base(quantity, value, unit).unwrap_err().to_string();
            let expected =
                format!("preset p: `key` is {value} {unit}; it must be from {range}");
            assert_eq!(error, expected);
            let (least, most) = range.split_once(" to ").unwrap();
            let most = most.split(' ').next().unwrap();
            for end in [least, most] {
                base(quantity, end.parse().unwrap(), unit).unwrap();
            }
        }
    }

    #[test]
    fn a_number_of_things_is_whole() {
        assert_eq!(base(Quantity::Count, 4096.0, "1"), Ok(4096));
        for value in [1.4, 0.6, 0.0, 4097.0, f64::NAN, f64::INFINITY] {
            let error = base(Quantity::Count, value, "1").unwrap_err().to_string();
            let expected = format!(
                "preset p: `key` is {value}; it must be a whole number from 1 to 4096"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn a_wrong_constant_says_which_and_what_is_right() {
        for (result, expected) in [
            (
                time(1.0, "s", "x"),
                "preset p: `latency` is in `s`; the units for it are ns",
            ),
            (time(-1.0, "ns", "x"), "`latency` is -1 ns; it must be from 0 to"),
            (time(f64::NAN, "ns", "x"), "`latency` is NaN ns"),
            (time(1.0, "ns", " "), "`latency` has no source"),
        ] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
