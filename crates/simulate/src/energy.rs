//! What an epoch draws, by a model of six numbers: host, devices and accelerator, each idle
//! and busy. Nothing is measured. The presets are the files of `configs/power`.

use serde::Deserialize;

use crate::play::Outcome;

/// Name and text of every preset.
pub const PRESETS: [(&str, &str); 2] = [
    ("cloud", include_str!("../../../configs/power/cloud.json")),
    ("newport", include_str!("../../../configs/power/newport.json")),
];

/// The preset of a scenario that names none.
const DEFAULT: &str = "cloud";

/// Watts. A device or accelerator that is there draws power, whether it is used or not.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// What results call the model.
    pub name: String,
    /// For people: what it stands for.
    pub about: String,
    /// The host with nothing to do.
    pub host_idle_w: Constant,
    /// More for each worker that works.
    pub host_worker_w: Constant,
    /// A device with nothing to do.
    pub device_idle_w: Constant,
    /// A device that works, all together.
    pub device_busy_w: Constant,
    /// The accelerator with nothing to do.
    pub accelerator_idle_w: Constant,
    /// The accelerator that steps, all together.
    pub accelerator_busy_w: Constant,
}

/// A number and where it comes from.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Watts.
    pub value: f64,
    /// A short citation, or the word `uncalibrated`.
    pub source: String,
    /// Why this number.
    pub note: Option<String>,
}

/// A preset's name, or a model in full.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum PowerSpec {
    Preset(String),
    Full(Box<Power>),
}

impl Power {
    /// The model that is asked for; else what to write instead.
    pub(crate) fn of(spec: Option<&PowerSpec>) -> Result<Self, String> {
        let power = match spec {
            Some(PowerSpec::Full(power)) => (**power).clone(),
            Some(PowerSpec::Preset(name)) => Self::named(name)?,
            None => Self::named(DEFAULT)?,
        };
        power.check()?;
        Ok(power)
    }

    /// The preset of that name.
    ///
    /// # Errors
    /// All names, in words.
    pub fn named(name: &str) -> Result<Self, String> {
        let Some((_, json)) = PRESETS.iter().find(|(known, _)| *known == name) else {
            let known = PRESETS.map(|(known, _)| known).join(", ");
            return Err(format!(
                "`{name}` is no preset: use {known}, or write an object"
            ));
        };
        serde_json::from_str(json).map_err(|e| format!("preset {name}: {e}"))
    }

    fn check(&self) -> Result<(), String> {
        let constants = [
            ("host_idle_w", &self.host_idle_w),
            ("host_worker_w", &self.host_worker_w),
            ("device_idle_w", &self.device_idle_w),
            ("device_busy_w", &self.device_busy_w),
            ("accelerator_idle_w", &self.accelerator_idle_w),
            ("accelerator_busy_w", &self.accelerator_busy_w),
        ];
        for (key, constant) in constants {
            let watts = constant.value;
            if !(0.0..=1e6).contains(&watts) {
                return Err(format!("`{key}` is {watts}; it must be from 0 to 1e6"));
            }
            if constant.source.is_empty() {
                return Err(format!("`{key}` has no source; write `uncalibrated`"));
            }
        }
        Ok(())
    }

    /// What a rank with so many devices drew in an epoch, in joules.
    #[must_use]
    pub fn joules(&self, outcome: &Outcome, n_devices: usize) -> f64 {
        let n_devices = f64::from(u32::try_from(n_devices).unwrap_or(u32::MAX));
        let idle_w = self.host_idle_w.value
            + n_devices * self.device_idle_w.value
            + self.accelerator_idle_w.value;
        let step_s = outcome.seconds * (1.0 - outcome.idle);
        idle_w * outcome.seconds
            + self.host_worker_w.value * outcome.host_cpu_s
            + (self.device_busy_w.value - self.device_idle_w.value) * outcome.device_s
            + (self.accelerator_busy_w.value - self.accelerator_idle_w.value) * step_s
    }
}
