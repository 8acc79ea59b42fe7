//! Joules without a meter: countable quantities times the coefficients of a profile, each with a
//! low and a high end and its source. The profiles are the files of `configs/energy`.
//!
//! The ends of a sum are the sums of the ends, as if all coefficients were wrong in the same
//! direction. The interval is therefore rather too wide.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::EnergyError;
use crate::quantities::Quantities;

/// The name and text of every profile.
const BUILTIN: [(&str, &str); 2] = [
    ("default", include_str!("../configs/energy/default.json")),
    ("csd-host", include_str!("../configs/energy/csd-host.json")),
];

/// Stands for every accelerator that a profile does not name.
const ANY: &str = "any";

/// A device's own joules and its figures may differ by this part and agree: they begin and end some
/// milliseconds apart.
const ALIKE: f64 = 0.02;

/// Bytes of a GB, as in all units here.
const GB: f64 = 1e9;

/// Bytes of a TB.
const TB: f64 = 1e12;

/// A number within an interval, and where it comes from.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficient {
    /// The least that it may be.
    pub low: f64,
    /// What is reckoned with.
    pub mid: f64,
    /// The most that it may be.
    pub high: f64,
    /// A short citation, or the word `uncalibrated`.
    pub source: String,
    /// Why these numbers.
    pub note: Option<String>,
}

/// Coefficients for every quantity.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What results call it, with the version.
    pub name: String,
    /// Increased with every change of a number.
    pub version: u32,
    /// For people: what it stands for.
    pub about: String,
    host: Host,
    storage: Storage,
    links: Links,
    /// Of every device that `devices` does not name.
    device: Powers,
    /// By preset of the emulated device, or as `--csd` names it.
    #[serde(default)]
    devices: BTreeMap<String, Powers>,
    accelerators: BTreeMap<String, Powers>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    /// Of one CPU, for as long as the run lasts.
    processor_idle_w: Coefficient,
    /// Additional, of one CPU while it works.
    processor_work_w: Coefficient,
    memory_w_per_gb: Coefficient,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Storage {
    /// Of the space that the data set takes, for as long as the run lasts.
    idle_w_per_tb: Coefficient,
    read_j_per_gb: Coefficient,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Links {
    device_to_host_j_per_gb: Coefficient,
    host_to_accelerator_j_per_gb: Coefficient,
}

/// A thing that idles all the time and draws more while it works.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Powers {
    idle_w: Coefficient,
    work_w: Coefficient,
}

/// One energy figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The part of the system.
    pub name: String,
    /// What is reckoned with.
    pub joules: f64,
    /// The least that it may be.
    pub low: f64,
    /// The most that it may be.
    pub high: f64,
    /// `modelled(PROFILE@VERSION)`.
    pub source: String,
}

impl Profile {
    /// The names of the profiles that are built in.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        BUILTIN.into_iter().map(|(name, _)| name)
    }

    /// The built-in profile of this name.
    ///
    /// # Panics
    /// Never: every file is read by a test.
    #[must_use]
    pub fn builtin(name: &str) -> Option<Self> {
        let (_, json) = BUILTIN.into_iter().find(|(known, _)| *known == name)?;
        Some(
            Self::from_json(name, json)
                .expect("a test reads every profile of this build"),
        )
    }

    /// Reads a profile; `called` is its name in errors.
    ///
    /// # Errors
    /// It is not JSON, has an unknown key or lacks one, or a coefficient makes no sense.
    pub fn from_json(called: &str, json: &str) -> Result<Self, EnergyError> {
        let wrong = |why| EnergyError::Profile { profile: called.to_owned(), why };
        let profile: Self =
            serde_json::from_str(json).map_err(|error| wrong(error.to_string()))?;
        profile.check().map_err(wrong)?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), String> {
        for (key, coefficient) in self.coefficients() {
            let Coefficient { low, mid, high, source, .. } = coefficient;
            let is_ordered = 0.0 <= *low && low <= mid && mid <= high && *high <= 1e6;
            if !is_ordered {
                return Err(format!(
                    "`{key}` has low {low}, mid {mid}, high {high}; they must rise, from 0 to 1e6"
                ));
            }
            if source.trim().is_empty() {
                return Err(format!("`{key}` has no source; write `uncalibrated`"));
            }
        }
        if !self.accelerators.contains_key(ANY) {
            return Err(format!(
                "`accelerators` needs `{ANY}` for those that it does not name"
            ));
        }
        if self.name.is_empty() || self.name.contains(['(', ')', '@']) {
            return Err(format!(
                "`name` is `{}`; results must be able to quote it",
                self.name
            ));
        }
        Ok(())
    }

    /// Every coefficient with its key.
    fn coefficients(&self) -> Vec<(String, &Coefficient)> {
        let Self { host, storage, links, device, devices, accelerators, .. } = self;
        let named = [
            ("host.processor_idle_w", &host.processor_idle_w),
            ("host.processor_work_w", &host.processor_work_w),
            ("host.memory_w_per_gb", &host.memory_w_per_gb),
            ("storage.idle_w_per_tb", &storage.idle_w_per_tb),
            ("storage.read_j_per_gb", &storage.read_j_per_gb),
            ("links.device_to_host_j_per_gb", &links.device_to_host_j_per_gb),
            ("links.host_to_accelerator_j_per_gb", &links.host_to_accelerator_j_per_gb),
            ("device.idle_w", &device.idle_w),
            ("device.work_w", &device.work_w),
        ];
        let mut all: Vec<_> = named.map(|(key, each)| (key.to_owned(), each)).into();
        for (table, named) in [("devices", devices), ("accelerators", accelerators)] {
            for (name, powers) in named {
                all.push((format!("{table}.{name}.idle_w"), &powers.idle_w));
                all.push((format!("{table}.{name}.work_w"), &powers.work_w));
            }
        }
        all
    }

    /// `NAME@VERSION`.
    #[must_use]
    pub fn called(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// `modelled(NAME@VERSION)`.
    #[must_use]
    pub fn source(&self) -> String {
        format!("modelled({})", self.called())
    }

    /// Joules of every quantity that is known; see [`Quantities::unknown`] for the others.
    #[must_use]
    pub fn joules(&self, quantities: &Quantities) -> Vec<Figure> {
        let Self { host, storage, links, .. } = self;
        let Quantities { seconds, host: used, bytes, .. } = quantities;
        let mut figures = Vec::new();
        // An amount, if it is known, times a coefficient.
        let mut add = |name: &str, amount: Option<f64>, each: &Coefficient| {
            figures.extend(amount.map(|amount| Figure {
                name: name.to_owned(),
                joules: amount * each.mid,
                low: amount * each.low,
                high: amount * each.high,
                source: self.source(),
            }));
        };
        // Ranks share what a machine draws at idle; of an unknown number, each one's part is unknown.
        let shared = |amount: f64| used.ranks.map(|_| amount);
        let processor_seconds = shared(seconds * used.processors);
        add("host processors, idle", processor_seconds, &host.processor_idle_w);
        add("host processors, work", used.processor_seconds, &host.processor_work_w);
        let gb_seconds = used.memory_byte_seconds.map(|amount| amount / GB);
        add("host memory", gb_seconds, &host.memory_w_per_gb);
        let tb_seconds = shared(count(bytes.stored) / TB * seconds);
        add("storage, idle", tb_seconds, &storage.idle_w_per_tb);
        let gb = |n_bytes| Some(count(n_bytes) / GB);
        add("storage, reads", gb(bytes.storage_read), &storage.read_j_per_gb);
        // A GPU's energy comes from its meter (`nvml`): no profile has coefficients for a GPU that
        // also trains.
        let devices = quantities.devices.iter().enumerate();
        for (i, device) in devices.filter(|(_, device)| device.gpu_seconds.is_none()) {
            let all = device
                .busy_seconds
                .zip(device.idle_seconds)
                .map(|(busy, idle)| busy + idle);
            let Powers { idle_w, work_w } = self.powers_of_device(&device.device);
            add(&format!("device {i}, idle"), all, idle_w);
            add(&format!("device {i}, work"), device.busy_seconds, work_w);
        }
        if !quantities.devices.is_empty() {
            let moved = gb(bytes.device_to_host);
            add("device to host", moved, &links.device_to_host_j_per_gb);
        }
        if let Some(accelerator) = &quantities.accelerator {
            let moved = gb(bytes.host_to_accelerator);
            add("host to accelerator", moved, &links.host_to_accelerator_j_per_gb);
            let Powers { idle_w, work_w } = self.powers_of_accelerator(&accelerator.name);
            let busy = accelerator.busy_seconds;
            let all = busy + accelerator.idle_seconds;
            add("accelerator, idle", Some(all), idle_w);
            add("accelerator, work", Some(busy), work_w);
        }
        figures
    }

    /// What a device says that it used should lie between the ends of its own figures: where it does
    /// not, the coefficients are those of another device. `said` has the joules of each device, in the
    /// order of `quantities`, where it says any.
    #[must_use]
    pub fn doubts(&self, quantities: &Quantities, said: &[Option<f64>]) -> Vec<String> {
        let figures = self.joules(quantities);
        let mut doubts = Vec::new();
        let devices = quantities.devices.iter().zip(said).enumerate();
        for (i, (device, said)) in devices {
            let own = format!("device {i}, ");
            let own = figures.iter().filter(|figure| figure.name.starts_with(&own));
            let ends = own.map(|figure| (figure.low, figure.high));
            let ends = ends.reduce(|(low, high), (l, h)| (low + l, high + h));
            let (Some((low, high)), Some(said)) = (ends, *said) else { continue };
            if said >= low * (1.0 - ALIKE) && said <= high * (1.0 + ALIKE) {
                continue;
            }
            doubts.push(format!(
                "device {i} ({}) says that it used {said:.1} J; by the coefficients of profile {} it is {low:.1} to \
                 {high:.1} J: that profile is of another device (its key `devices` names devices)",
                device.device,
                self.called()
            ));
        }
        doubts
    }

    fn powers_of_accelerator(&self, name: &str) -> &Powers {
        self.accelerators.get(name).unwrap_or_else(|| &self.accelerators[ANY])
    }

    fn powers_of_device(&self, name: &str) -> &Powers {
        let named = self.devices.get(name);
        let named = named.or_else(|| self.devices.get(preset(name)?));
        named.unwrap_or(&self.device)
    }
}

/// The preset in `sim:PRESET,KEY=VALUE`; that of a file has the file's name.
fn preset(device: &str) -> Option<&str> {
    let model = device.strip_prefix("sim:")?.split(',').next()?;
    Path::new(model).file_stem()?.to_str()
}

/// The profile `default`.
impl Default for Profile {
    fn default() -> Self {
        Self::builtin("default").expect("it is the first of the built-in profiles")
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 bytes are 9 PB, and a share of them no more"
)]
fn count(n_bytes: u64) -> f64 {
    n_bytes as f64
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::quantities::{
        AcceleratorQuantities, DeviceQuantities, HostQuantities, LinkBytes,
    };

    fn quantities() -> Quantities {
        Quantities {
            seconds: 10.0,
            host: HostQuantities {
                processors: 8.0,
                processor_seconds: Some(30.0),
                machine_processor_seconds: Some(40.0),
                memory_byte_seconds: Some(20e9),
                ..HostQuantities::default()
            },
            devices: vec![DeviceQuantities {
                device: "sim:newport".to_owned(),
                emulated: true,
                processor_seconds: Some(4.0),
                busy_seconds: Some(9.0),
                idle_seconds: Some(1.0),
                gpu_seconds: None,
            }],
            bytes: LinkBytes {
                stored: 2_000_000_000_000,
                storage_read: 3_000_000_000,
                device_to_host: 500_000_000,
                host_to_accelerator: 4_000_000_000,
            },
            accelerator: Some(AcceleratorQuantities {
                name: "resnet50-a100".to_owned(),
                emulated: true,
                busy_seconds: 7.5,
                idle_seconds: 2.5,
            }),
        }
    }

    #[test]
    fn every_file_of_the_folder_is_a_profile_and_named_as_it_is_called() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/energy");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), BUILTIN.len());
        for name in Profile::builtin_names() {
            let profile = Profile::builtin(name).unwrap();
            assert_eq!(profile.name, name);
            assert_eq!(profile.source(), format!("modelled({name}@{})", profile.version));
        }
        assert_eq!(Profile::builtin("defualt"), None);
    }

    #[test]
    fn a_figure_is_a_quantity_times_its_coefficient() {
        let profile = Profile::default();
        let figures = profile.joules(&quantities());
        let amounts = [
            ("host processors, idle", 80.0, &profile.host.processor_idle_w),
            ("host processors, work", 30.0, &profile.host.processor_work_w),
            ("host memory", 20.0, &profile.host.memory_w_per_gb),
            ("storage, idle", 20.0, &profile.storage.idle_w_per_tb),
            ("storage, reads", 3.0, &profile.storage.read_j_per_gb),
            ("device 0, idle", 10.0, &profile.devices["newport"].idle_w),
            ("device 0, work", 9.0, &profile.devices["newport"].work_w),
            ("device to host", 0.5, &profile.links.device_to_host_j_per_gb),
            ("host to accelerator", 4.0, &profile.links.host_to_accelerator_j_per_gb),
            ("accelerator, idle", 10.0, &profile.accelerators["resnet50-a100"].idle_w),
            ("accelerator, work", 7.5, &profile.accelerators["resnet50-a100"].work_w),
        ];
        assert_eq!(figures.len(), amounts.len());
        for (figure, (name, amount, each)) in figures.iter().zip(amounts) {
            assert_eq!(figure.name, name);
            assert!((figure.joules - amount * each.mid).abs() < 1e-9, "{figure:?}");
            assert!((figure.low - amount * each.low).abs() < 1e-9, "{figure:?}");
            assert!((figure.high - amount * each.high).abs() < 1e-9, "{figure:?}");
            assert_eq!(figure.source, "modelled(default@2)");
        }
    }

    #[test]
    fn what_is_not_known_is_left_out_and_named() {
        let mut quantities = quantities();
        quantities.host.memory_byte_seconds = None;
        quantities.devices[0].busy_seconds = None;
        quantities.accelerator = None;
        let figures = Profile::default().joules(&quantities);
        let names: Vec<&str> =
            figures.iter().map(|figure| figure.name.as_str()).collect();
        assert!(!names.iter().any(|name| name.starts_with("device 0")), "{names:?}");
        assert!(!names.contains(&"host memory") && !names.contains(&"accelerator, idle"));
        assert_eq!(
            quantities.unknown(),
            ["the host's memory over time", "busy seconds of device 0"]
        );
        quantities.host.processor_seconds = None;
        assert_eq!(quantities.unknown()[0], "the host's CPU seconds");
    }

    /// What a machine draws at idle was charged in full to each of them.
    #[test]
    fn of_an_unknown_number_of_ranks_no_part_of_the_idle_power_is_known() {
        let mut quantities = quantities();
        quantities.host.ranks = None;
        let figures = Profile::default().joules(&quantities);
        let idle = ["host processors, idle", "storage, idle"];
        assert!(figures.iter().all(|figure| !idle.contains(&figure.name.as_str())));
        let unknown = "how many ranks share this machine (LOCAL_WORLD_SIZE says it)";
        assert_eq!(quantities.unknown(), [unknown]);
    }

    #[test]
    fn a_gpu_is_not_charged_as_storage_would_be() {
        let mut quantities = quantities();
        quantities.devices[0].gpu_seconds = Some(9.0);
        let figures = Profile::default().joules(&quantities);
        assert!(figures.iter().all(|figure| !figure.name.starts_with("device 0")));
        let unknown = quantities.unknown();
        assert!(unknown.iter().any(|what| what.contains("nvml")), "{unknown:?}");
    }

    #[test]
    fn an_accelerator_that_is_not_named_is_any() {
        let profile = Profile::default();
        let any = &profile.accelerators[ANY];
        assert_eq!(profile.powers_of_accelerator("1785.7/s"), any);
        assert_ne!(profile.powers_of_accelerator("resnet50-h100"), any);
    }

    #[test]
    fn a_device_has_the_power_of_its_preset_however_it_is_named() {
        let json = BUILTIN[0].1.replacen("\"zn540\"", "\"tcp://10.0.0.7:5055\"", 1);
        let profile = Profile::from_json("mine.json", &json).unwrap();
        let server = &profile.devices["storage-server"];
        for name in ["storage-server", "storage-server,rate=300", "x/storage-server.json"]
        {
            assert_eq!(
                profile.powers_of_device(&format!("sim:{name}")),
                server,
                "{name}"
            );
        }
        let addressed = &profile.devices["tcp://10.0.0.7:5055"];
        assert_eq!(profile.powers_of_device("tcp://10.0.0.7:5055"), addressed);
        for name in ["sim:mine.json", "tcp://10.0.0.8:5055", "cuda:0"] {
            assert_eq!(profile.powers_of_device(name), &profile.device, "{name}");
        }
    }

    /// What an emulated device says of itself would otherwise contradict its price.
    #[test]
    fn every_preset_lies_between_the_ends_of_its_coefficients_idle_and_busy() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/devices");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let preset: Value =
                serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let name = preset["name"].as_str().unwrap();
            let (idle, all) = watts(&preset);
            for profile in Profile::builtin_names() {
                let profile = Profile::builtin(profile).unwrap();
                let Powers { idle_w, work_w } = &profile.devices[name];
                assert!((idle_w.mid - idle).abs() < 1e-9, "{name}");
                assert!(idle_w.low + work_w.low <= idle, "{name}");
                assert!(idle_w.high + work_w.high >= all, "{name}");
            }
        }
    }

    /// Of a preset with nothing to do, and with everything busy.
    fn watts(preset: &Value) -> (f64, f64) {
        let value = |constant: &Value| constant["value"].as_f64();
        let power = |key: &str| {
            let constant = &preset["power"][key];
            value(constant).unwrap() / if constant["unit"] == "mW" { 1e3 } else { 1.0 }
        };
        let parts = |of: &Value, key: &str| value(&of[key]).unwrap_or(1.0);
        let (media, compute) = (&preset["media"], &preset["compute"]);
        let dies = parts(media, "channels") * parts(media, "dies_per_channel");
        let cores = parts(compute, "cores") * parts(compute, "lanes");
        let busy = dies * power("media_active") + cores * power("compute_active");
        (power("idle"), power("idle") + busy + power("link_active"))
    }

    #[test]
    fn a_device_that_says_otherwise_is_told_of() {
        let mut quantities = quantities();
        quantities.devices[0].device = "sim:mine.json".to_owned();
        let profile = Profile::default();
        // By `device`: 4 to 8 W for 10 s, and 2 to 15 W for 9 s.
        for said in [Some(58.0), Some(215.0), None] {
            assert!(profile.doubts(&quantities, &[said]).is_empty(), "{said:?}");
        }
        assert_eq!(
            profile.doubts(&quantities, &[Some(1000.0)]),
            [
                "device 0 (sim:mine.json) says that it used 1000.0 J; by the coefficients of profile default@2 it \
                 is 58.0 to 215.0 J: that profile is of another device (its key `devices` names devices)"
            ]
        );
        assert_eq!(profile.doubts(&quantities, &[Some(0.0)]).len(), 1);
        quantities.devices[0].busy_seconds = None;
        assert!(profile.doubts(&quantities, &[Some(1000.0)]).is_empty());
    }

    #[test]
    fn a_wrong_profile_says_what_to_write() {
        let of = |from: &str, to: &str| {
            let json = BUILTIN[0].1.replacen(from, to, 1);
            assert_ne!(json, BUILTIN[0].1, "nothing was changed");
            Profile::from_json("mine.json", &json).unwrap_err().to_string()
        };
        let unknown = of("\"links\"", "\"linsk\"");
        assert!(
            unknown.starts_with("energy profile mine.json: unknown field `linsk`"),
            "{unknown}"
        );
        let unknown = of("\"low\"", "\"lowest\"");
        assert!(unknown.contains("unknown field `lowest`"), "{unknown}");
        let upside_down = of("\"mid\": 0.74", "\"mid\": 0.01");
        assert!(
            upside_down
                .contains("`host.processor_idle_w` has low 0.47, mid 0.01, high 0.82"),
            "{upside_down}"
        );
        let negative = of("\"low\": 0.47", "\"low\": -1");
        assert!(negative.contains("they must rise, from 0 to 1e6"), "{negative}");
        let nobody = of("\"any\"", "\"every\"");
        assert!(nobody.contains("`accelerators` needs `any`"), "{nobody}");
        let named = of("\"name\": \"default\"", "\"name\": \"a)b\"");
        assert!(named.contains("`name` is `a)b`"), "{named}");
        let empty = Profile::from_json("mine.json", "").unwrap_err().to_string();
        assert!(empty.contains("EOF"), "{empty}");
        let mut nameless = Profile::default();
        nameless.device.work_w.source = " ".to_owned();
        let why = nameless.check().unwrap_err();
        assert_eq!(why, "`device.work_w` has no source; write `uncalibrated`");
    }
}
