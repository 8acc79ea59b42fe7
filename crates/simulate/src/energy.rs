//! The energy of an epoch, by a model of six numbers: host, devices and accelerator, each idle and
//! busy. Nothing is measured. The presets are the files of `configs/power`.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::play::Outcome;

/// The name and text of every preset.
pub const PRESETS: [(&str, &str); 5] = [
    ("cloud", include_str!("../configs/power/cloud.json")),
    ("newport", include_str!("../configs/power/newport.json")),
    ("smartssd", include_str!("../configs/power/smartssd.json")),
    ("dpu-bf2", include_str!("../configs/power/dpu-bf2.json")),
    ("storage-server", include_str!("../configs/power/storage-server.json")),
];

/// The preset of a scenario that does not name one.
const DEFAULT: &str = "cloud";

/// Follows the name of a preset if the model has other numbers than that.
const ALTERED: &str = " (altered)";

/// Watts. A device or accelerator that is present draws power whether it is used or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// What results call the model.
    pub name: String,
    /// For people: what it stands for.
    pub about: String,
    /// The host with nothing to do.
    pub host_idle_w: Constant,
    /// Additional, for each worker that works.
    pub host_worker_w: Constant,
    /// A device with nothing to do.
    pub device_idle_w: Constant,
    /// A device that works, in total.
    pub device_busy_w: Constant,
    /// The accelerator with nothing to do.
    pub accelerator_idle_w: Constant,
    /// The accelerator during a step, in total.
    pub accelerator_busy_w: Constant,
}

/// A number and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Watts.
    pub value: f64,
    /// A short citation, or the word `uncalibrated`.
    pub source: String,
    /// Why this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A preset's name, or a model in full.
#[derive(Debug, Clone)]
pub(crate) enum PowerSpec {
    Preset(String),
    Full(Box<Power>),
}

/// By hand, as an untagged enum would hide which key is wrong.
impl<'de> Deserialize<'de> for PowerSpec {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = PowerSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a power model, or its object")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<PowerSpec, E> {
                Ok(PowerSpec::Preset(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PowerSpec, A::Error> {
                let power = Power::deserialize(MapAccessDeserializer::new(map))?;
                Ok(PowerSpec::Full(Box::new(power)))
            }
        }
        from.deserialize_any(Either)
    }
}

impl Power {
    /// The requested model, or else what to write instead.
    pub(crate) fn of(spec: Option<&PowerSpec>) -> Result<Self, String> {
        let power = match spec {
            Some(PowerSpec::Full(power)) => power.told_from_preset(),
            Some(PowerSpec::Preset(name)) => Self::named(name)?,
            None => Self::named(DEFAULT)?,
        };
        power.check()?;
        Ok(power)
    }

    /// The preset with this name.
    ///
    /// # Errors
    /// All names, in words.
    pub fn named(name: &str) -> Result<Self, String> {
        let Some((_, json)) = PRESETS.iter().find(|(known, _)| *known == name) else {
            let known = PRESETS.map(|(known, _)| known).join(", ");
            return Err(format!(
                "`{name}` is not a preset: use {known}, or write an object"
            ));
        };
        serde_json::from_str(json).map_err(|e| format!("preset {name}: {e}"))
    }

    /// This model; with a name of its own if a preset has its name and other numbers.
    fn told_from_preset(&self) -> Self {
        let watts = |power: &Self| power.constants().map(|(_, constant)| constant.value);
        let preset = Self::named(&self.name);
        let is_other = preset.is_ok_and(|preset| watts(&preset) != watts(self));
        let altered = if is_other { ALTERED } else { "" };
        Self { name: format!("{}{altered}", self.name), ..self.clone() }
    }

    fn constants(&self) -> [(&'static str, &Constant); 6] {
        [
            ("host_idle_w", &self.host_idle_w),
            ("host_worker_w", &self.host_worker_w),
            ("device_idle_w", &self.device_idle_w),
            ("device_busy_w", &self.device_busy_w),
            ("accelerator_idle_w", &self.accelerator_idle_w),
            ("accelerator_busy_w", &self.accelerator_busy_w),
        ]
    }

    fn check(&self) -> Result<(), String> {
        for (key, constant) in self.constants() {
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

    /// The energy that a rank with this many devices used in an epoch, in joules.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::find;

    #[test]
    fn every_file_of_the_folder_is_a_preset_and_named_as_it_is_called() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/power");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), PRESETS.len());
        for (name, _) in PRESETS {
            let power = Power::named(name).unwrap();
            assert_eq!(power.name, name);
            assert_eq!(power.check(), Ok(()));
        }
    }

    #[test]
    fn idle_power_flows_all_the_time_and_work_costs_more() {
        let power = Power::named("cloud").unwrap();
        let mut scenario = find("steady").unwrap();
        scenario.ranks[0].n_batches = 10;
        let worlds = scenario.worlds("cpu".parse().unwrap());
        let outcome = crate::simulate(&worlds[0][0]);
        let outcome = Outcome {
            seconds: 100.0,
            idle: 0.25,
            host_cpu_s: 10.0,
            device_s: 20.0,
            ..outcome
        };
        let idle = 100.0 * (5.92 + 2.0 * 5.0 + 50.0);
        let work = 10.0 * 2.76 + 20.0 * 15.0 + 75.0 * 350.0;
        assert!((power.joules(&outcome, 2) - idle - work).abs() < 1e-6);
    }

    #[test]
    fn a_preset_with_other_numbers_is_called_so() {
        let of = |json: &str| Power::of(Some(&serde_json::from_str(json).unwrap()));
        let cloud = PRESETS[0].1;
        assert_eq!(of(cloud).unwrap().name, "cloud");
        let altered = of(&cloud.replace("\"value\": 400", "\"value\": 300")).unwrap();
        assert_eq!(altered.name, "cloud (altered)");
        // Given back, it is what it was.
        let again = of(&serde_json::to_string(&altered).unwrap()).unwrap();
        assert_eq!(again, altered);
    }

    #[test]
    fn a_wrong_model_says_what_to_write() {
        let of = |json: &str| Power::of(Some(&serde_json::from_str(json).unwrap()));
        let unknown = of(r#""clod""#).unwrap_err();
        assert_eq!(
            unknown,
            "`clod` is not a preset: use cloud, newport, smartssd, dpu-bf2, storage-server, or \
            write an object"
        );
        let json = PRESETS[0].1;
        for (wrong, said) in [
            (json.replacen("\"source\"", "\"sauce\"", 1), "unknown field `sauce`"),
            (json.replacen("\"about\"", "\"abut\"", 1), "unknown field `abut`"),
            (
                json.replace("device_idle_w", "device_busy_w"),
                "duplicate field `device_busy_w`",
            ),
            (r#"{ "name": "mine" }"#.to_owned(), "missing field `about`"),
            ("5".to_owned(), "expected the name of a power model, or its object"),
        ] {
            let error =
                serde_json::from_str::<PowerSpec>(&wrong).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains(" at line "), "{error}");
        }
        let negative = PRESETS[0].1.replace("\"value\": 400", "\"value\": -4");
        let error = of(&negative).unwrap_err();
        assert_eq!(error, "`accelerator_busy_w` is -4; it must be from 0 to 1e6");
        let nameless =
            PRESETS[0].1.replace("\"source\": \"uncalibrated\"", "\"source\": \"\"");
        assert!(
            of(&nameless).unwrap_err().contains("has no source; write `uncalibrated`")
        );
    }
}
