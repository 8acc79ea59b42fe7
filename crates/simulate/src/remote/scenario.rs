//! A remote scenario as in its file, and the only place with its defaults and ranges. Times are
//! seconds in the file.

use bothends_core::fetch::{Growth, Hedge};
use bothends_core::ids::Ns;
use serde::Deserialize;

use super::{Delivery, Fault, Network, RemoteScenario, RemoteWorld, nanoseconds};
use crate::scenario::ScenarioError;

/// The path and text of every file of `configs/experiments/remote`, in the order in which they
/// are listed and played.
const FILES: &[(&str, &str)] = &[
    (
        "configs/experiments/remote/long-link.json",
        include_str!("../../configs/experiments/remote/long-link.json"),
    ),
    (
        "configs/experiments/remote/long-link-server-gone.json",
        include_str!("../../configs/experiments/remote/long-link-server-gone.json"),
    ),
    (
        "configs/experiments/remote/long-link-black-hole.json",
        include_str!("../../configs/experiments/remote/long-link-black-hole.json"),
    ),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRemote {
    name: String,
    about: String,
    seeds: Option<Vec<u64>>,
    records: RawRecords,
    remote: RawNetwork,
    requests: u32,
    ramp: Option<u32>,
    adaptive: Option<bool>,
    server_gone_s: Option<[f64; 2]>,
    black_hole_s: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRecords {
    count: u32,
    bytes: u64,
    cv: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNetwork {
    rtt_s: f64,
    bytes_per_s: f64,
    window_bytes: Option<u64>,
    loss: Vec<f64>,
}

/// Whether a scenario is one of records behind a link.
fn is_remote(json: &str) -> bool {
    let value: Result<serde_json::Value, _> = serde_json::from_str(json);
    value.is_ok_and(|value| value.get("remote").is_some())
}

/// Every scenario of `configs/experiments/remote`.
///
/// # Errors
/// Never in a build whose tests pass.
pub fn all() -> Result<Vec<RemoteScenario>, ScenarioError> {
    FILES.iter().map(|(file, json)| RemoteScenario::from_json(file, json)).collect()
}

/// The scenario of `configs/experiments/remote` with this name.
///
/// # Errors
/// Never in a build whose tests pass.
pub fn find(name: &str) -> Result<Option<RemoteScenario>, ScenarioError> {
    Ok(all()?.into_iter().find(|scenario| scenario.name == name))
}

impl RemoteScenario {
    /// Reads a scenario if it is one of records behind a link; `None` if it is of another kind, or no JSON, which
    /// [`crate::Scenario::from_json`] explains. `file` is its name in errors.
    ///
    /// # Errors
    /// A [`ScenarioError`] that names the file and the key.
    pub fn of_its_kind(file: &str, json: &str) -> Result<Option<Self>, ScenarioError> {
        if is_remote(json) { Self::from_json(file, json).map(Some) } else { Ok(None) }
    }

    /// Reads a scenario; `file` is its name in errors.
    ///
    /// # Errors
    /// A [`ScenarioError`] that names the file and the key.
    pub fn from_json(file: &str, json: &str) -> Result<Self, ScenarioError> {
        let raw: RawRemote = serde_json::from_str(json)
            .map_err(|source| ScenarioError::Json { file: file.to_owned(), source })?;
        check(file, &raw)?;
        let fault = match (raw.server_gone_s, raw.black_hole_s) {
            (Some([from, to]), _) => Fault::Gone(at(from), at(to)),
            (None, Some(from)) => Fault::BlackHole(at(from)),
            (None, None) => Fault::None,
        };
        let network = Network {
            rtt_ns: nanoseconds(raw.remote.rtt_s),
            bytes_per_s: raw.remote.bytes_per_s,
            loss: 0.0,
            window_bytes: raw.remote.window_bytes.unwrap_or(1 << 20),
            fault,
        };
        let world = RemoteWorld {
            n_records: raw.records.count,
            record_bytes: raw.records.bytes,
            cv: raw.records.cv.unwrap_or(0.0),
            requests: raw.requests,
            ramp: raw.ramp.unwrap_or(0),
            growth: if raw.adaptive.unwrap_or(false) {
                Growth::Adaptive
            } else {
                Growth::Fixed
            },
            network,
            delivery: Delivery::Ordered(4),
            hedge: Hedge::On,
            seed: 0,
        };
        Ok(Self {
            name: raw.name,
            about: raw.about,
            seeds: raw.seeds.unwrap_or_else(|| (1..=5).collect()),
            losses: raw.remote.loss,
            world,
            file: serde_json::from_str(json).unwrap_or_default(),
        })
    }
}

fn at(seconds: f64) -> Ns {
    Ns(nanoseconds(seconds))
}

/// Everything is in range.
fn check(file: &str, raw: &RawRemote) -> Result<(), ScenarioError> {
    let within = |key: &str, got: f64, least: f64, most: f64| {
        if (least..=most).contains(&got) {
            return Ok(());
        }
        Err(ScenarioError::Value {
            file: file.to_owned(),
            key: key.to_owned(),
            got: got.to_string(),
            remedy: format!("it must be from {least} to {most}"),
        })
    };
    within("records.count", raw.records.count.into(), 1.0, 1e6)?;
    within("records.bytes", super::float(raw.records.bytes), 1.0, 1e9)?;
    within("records.cv", raw.records.cv.unwrap_or(0.0), 0.0, 10.0)?;
    within("remote.rtt_s", raw.remote.rtt_s, 1e-6, 10.0)?;
    within("remote.bytes_per_s", raw.remote.bytes_per_s, 1e3, 1e12)?;
    let window = raw.remote.window_bytes.unwrap_or(1 << 20);
    within("remote.window_bytes", super::float(window), 1e4, 1e10)?;
    within("requests", raw.requests.into(), 1.0, 1e5)?;
    for loss in &raw.remote.loss {
        within("remote.loss", *loss, 0.0, 0.2)?;
    }
    for from in raw.server_gone_s.iter().flatten().chain(&raw.black_hole_s) {
        within("server_gone_s and black_hole_s", *from, 0.0, 3600.0)?;
    }
    if let Some([from, to]) = raw.server_gone_s {
        within("the end of server_gone_s", to, from, 3600.0)?;
        if raw.black_hole_s.is_some() {
            return Err(ScenarioError::Value {
                file: file.to_owned(),
                key: "black_hole_s".to_owned(),
                got: "given together with `server_gone_s`".to_owned(),
                remedy: "a scenario has one fault at most".to_owned(),
            });
        }
    }
    let n_seeds = raw.seeds.as_ref().map_or(1, Vec::len);
    within("the number of seeds", super::float(n_seeds as u64), 1.0, 1e4)?;
    let n_losses = super::float(raw.remote.loss.len() as u64);
    within("the number of rates in remote.loss", n_losses, 1.0, 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_a_remote_scenario_and_named_as_it_is_called() {
        let folder =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/experiments/remote");
        let mut n_files = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let json = std::fs::read_to_string(&path).unwrap();
            assert!(is_remote(&json));
            let scenario = RemoteScenario::from_json("file", &json).unwrap();
            assert_eq!(path.file_stem().unwrap().to_str().unwrap(), scenario.name);
            assert_eq!(find(&scenario.name).unwrap().unwrap().about, scenario.about);
            n_files += 1;
        }
        assert_eq!(n_files, FILES.len(), "a file outside the list is not found");
    }

    #[test]
    fn what_is_out_of_range_is_named_with_its_key_and_its_range() {
        let json = FILES[0].1.replace("\"requests\": 64", "\"requests\": 0");
        let error = RemoteScenario::from_json("my.json", &json).unwrap_err().to_string();
        assert_eq!(error, "my.json: `requests` is 0; it must be from 1 to 100000");
        for (more, expected) in [
            (
                r#""server_gone_s": [5, 3]"#,
                "`the end of server_gone_s` is 3; it must be from 5 to 3600",
            ),
            (r#""seeds": []"#, "`the number of seeds` is 0; it must be from 1 to 10000"),
            (
                r#""server_gone_s": [1, 2], "black_hole_s": 1"#,
                "`black_hole_s` is given together with `server_gone_s`; a scenario has one fault at most",
            ),
        ] {
            let mut value: serde_json::Value = serde_json::from_str(FILES[0].1).unwrap();
            let more: serde_json::Value =
                serde_json::from_str(&format!("{{{more}}}")).unwrap();
            for (key, more) in more.as_object().unwrap() {
                value[key] = more.clone();
            }
            let json = value.to_string();
            let error = RemoteScenario::from_json("my.json", &json).unwrap_err();
            assert_eq!(error.to_string(), format!("my.json: {expected}"));
        }
        let json = FILES[0].1.replace("\"loss\"", "\"los\"");
        let error = RemoteScenario::from_json("my.json", &json).unwrap_err().to_string();
        assert_eq!(error, "my.json is not a scenario");
    }
}
