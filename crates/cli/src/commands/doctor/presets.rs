//! What the device presets say of a device's speed: what its link carries, between which ends its
//! speed lies, and whether anybody has measured that. The emulation itself reads the same files
//! (`firmware-sim`).

use bothends_runtime::SimSpec;
use bothends_simulate::sizing::Interval;
use serde::Deserialize;

/// The preset without a model: whatever its emulation on this machine can make.
pub(crate) const IDEAL: &str = "ideal";

/// What stands for a source where nobody has measured a constant.
const UNCALIBRATED: &str = "uncalibrated";

/// Name and text of the device presets.
const PRESETS: [(&str, &str); 5] = [
    ("newport", include_str!("../../../configs/devices/newport.json")),
    ("smartssd", include_str!("../../../configs/devices/smartssd.json")),
    ("dpu-bf2", include_str!("../../../configs/devices/dpu-bf2.json")),
    ("storage-server", include_str!("../../../configs/devices/storage-server.json")),
    (IDEAL, include_str!("../../../configs/devices/ideal.json")),
];

/// A preset's file, as far as it says how fast the device is.
#[derive(Deserialize)]
struct Preset {
    compute: Compute,
    link: Link,
}

#[derive(Deserialize)]
struct Compute {
    relative_time: Option<Constant>,
    pixel_rate: Option<Constant>,
}

#[derive(Deserialize)]
struct Link {
    bandwidth: Option<Constant>,
}

#[derive(Deserialize)]
struct Constant {
    value: f64,
    unit: String,
    source: String,
    low: Option<f64>,
    high: Option<f64>,
}

/// How far a preset can be relied on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Speed {
    /// Its rate at the ends of what its speed may be, as multiples of the rate in the middle.
    pub(crate) ends: Interval,
    /// Whether nobody has measured the constants that set it.
    pub(crate) is_uncalibrated: bool,
}

impl Speed {
    /// Of a device that was measured itself.
    pub(crate) const MEASURED: Self =
        Self { ends: Interval { low: 1.0, high: 1.0 }, is_uncalibrated: false };
}

/// The presets' names, in the order in which they are measured.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

fn find(name: &str) -> Option<Preset> {
    let (_, json) = PRESETS.iter().find(|(known, _)| *known == name)?;
    serde_json::from_str(json).ok()
}

/// What the link of a preset carries; `None` where it has no limit, or is no preset of ours.
pub(crate) fn link_bytes_per_s(preset: &str) -> Option<f64> {
    let bandwidth = find(preset)?.link.bandwidth?;
    match bandwidth.unit.as_str() {
        "GB/s" => Some(bandwidth.value * 1e9),
        "MB/s" => Some(bandwidth.value * 1e6),
        _ => None,
    }
}

/// What is known of an emulated device's speed. A rate that was given is what it is, and of a
/// preset in a file of somebody's own nothing is known.
pub(crate) fn speed(sim: &SimSpec) -> Speed {
    if sim.rate.is_some() || sim.preset == IDEAL {
        return Speed::MEASURED;
    }
    let unknown = Speed { is_uncalibrated: true, ..Speed::MEASURED };
    let Some(Preset { compute, .. }) = find(&sim.preset) else { return unknown };
    let ends = |constant: &Constant| {
        constant.low.zip(constant.high).unwrap_or((constant.value, constant.value))
    };
    match (&compute.relative_time, &compute.pixel_rate) {
        // A longer time is a lower rate.
        (Some(time), _) => {
            let (low, high) = ends(time);
            Speed {
                ends: Interval { low: time.value / high, high: time.value / low },
                is_uncalibrated: time.source == UNCALIBRATED,
            }
        }
        (None, Some(rate)) => {
            let (low, high) = ends(rate);
            Speed {
                ends: Interval { low: low / rate.value, high: high / rate.value },
                is_uncalibrated: rate.source == UNCALIBRATED,
            }
        }
        (None, None) => unknown,
    }
}

#[cfg(test)]
mod tests {
    use bothends_runtime::DeviceSpec;

    use super::*;

    fn speed_of(text: &str) -> (f64, f64, bool) {
        let DeviceSpec::Sim(sim) = text.parse().unwrap() else { panic!("{text}") };
        let Speed { ends, is_uncalibrated } = speed(&sim);
        let hundredths = |value: f64| (value * 100.0).round() / 100.0;
        (hundredths(ends.low), hundredths(ends.high), is_uncalibrated)
    }

    #[test]
    fn a_preset_says_what_its_link_carries() {
        let links: Vec<_> = names().map(link_bytes_per_s).collect();
        assert_eq!(links, [Some(1e9), Some(3e9), Some(1e10), Some(1.17e8), None]);
        assert_eq!(link_bytes_per_s("oldport"), None);
    }

    #[test]
    fn the_ends_of_a_speed_are_those_of_its_preset() {
        assert_eq!(speed_of("sim:newport"), (0.83, 1.25, true), "8 to 12 times as long");
        assert_eq!(speed_of("sim:dpu-bf2"), (0.88, 1.17, true));
        assert_eq!(speed_of("sim:smartssd"), (0.5, 1.5, true), "100 to 300 Mpx/s");
        assert_eq!(speed_of("sim:storage-server"), (1.0, 1.0, true));
        assert_eq!(speed_of("sim:ideal"), (1.0, 1.0, false));
        assert_eq!(speed_of("sim:newport,rate=300"), (1.0, 1.0, false));
        assert_eq!(speed_of("sim:mine.json"), (1.0, 1.0, true));
    }
}
