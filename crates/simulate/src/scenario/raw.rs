//! A scenario as in its file, and the only place with its defaults and ranges. Times are seconds in
//! the file and nanoseconds in a [`World`].

use std::fmt::Display;
use std::ops::RangeInclusive;

use bothends_core::epoch::Recovery;
use bothends_core::select::StrategyConfig;
use serde::Deserialize;

use super::fault::{self, nanoseconds};
use super::{Scenario, ScenarioError};
use crate::energy::{Power, PowerSpec};
use crate::world::{
    Absence, Accelerator, Device, Drift, Fault, Host, Link, Records, Slowdown, World,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    name: String,
    about: String,
    steady: bool,
    batches: u32,
    seeds: Option<Vec<u64>>,
    ranks: Option<u32>,
    host: RawHost,
    #[serde(default)]
    devices: Vec<RawDevices>,
    #[serde(default)]
    links: Vec<Link>,
    batch_bytes: Option<u64>,
    accelerator: RawAccelerator,
    slope: Option<f64>,
    objective: Option<String>,
    recovery: Option<RawRecovery>,
    known: Option<bool>,
    power: Option<PowerSpec>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawRecovery {
    On,
    Off,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHost {
    batch_s: f64,
    workers: Option<u32>,
    quota: Option<u32>,
    cv: Option<f64>,
    slowdown: Option<RawSlowdown>,
    records: Option<Records>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSlowdown {
    after_percent: Option<u32>,
    first_batches: Option<u32>,
    factor: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDevices {
    count: Option<u32>,
    batch_s: f64,
    cv: Option<f64>,
    slots: Option<u32>,
    buffer: Option<u32>,
    #[serde(default)]
    faults: Vec<String>,
    absence: Option<RawAbsence>,
    drift: Option<RawDrift>,
    link: Option<usize>,
    latency_s: Option<f64>,
    outputs: Option<u32>,
    shard: Option<u16>,
    ranks: Option<Vec<usize>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAbsence {
    first_s: f64,
    for_s: f64,
    every_s: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDrift {
    amplitude: f64,
    period_s: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAccelerator {
    step_s: f64,
    poll_s: Option<f64>,
}

/// Reads a scenario.
pub(super) fn scenario(file: &str, json: &str) -> Result<Scenario, ScenarioError> {
    let raw: RawScenario = serde_json::from_str(json)
        .map_err(|source| ScenarioError::Json { file: file.to_owned(), source })?;
    let place = Place { file, way: String::new() };
    let n_ranks = place.within("ranks", raw.ranks.unwrap_or(1), 1..=4096)?;
    let batches = place.at_least_1("batches", raw.batches)?;
    place.at_most("batches", batches, MOST_BATCHES / n_ranks)?;
    let seeds = raw.seeds.clone().unwrap_or_else(|| vec![1, 2, 3]);
    if seeds.is_empty() {
        return Err(place.wrong("seeds", "[]", "give at least one number"));
    }
    let mut ranks = vec![world(&raw, &place)?; n_ranks as usize];
    for (i, devices) in raw.devices.iter().enumerate() {
        deal(devices, &mut ranks, &place.inside(&format!("devices[{i}]")))?;
    }
    let shards =
        raw.devices.iter().filter_map(|d| d.shard).max().map_or(1, |last| last + 1);
    ranks.iter_mut().for_each(|world| world.shards = shards);
    if raw.steady && !ranks.iter().all(is_steady) {
        return Err(place.wrong(
            "steady",
            true,
            "give false, since there is a fault, an absence, a drift or a slowdown",
        ));
    }
    let power = Power::of(raw.power.as_ref())
        .map_err(|remedy| place.wrong("power", "not usable", &remedy))?;
    let RawScenario { name, about, steady, .. } = raw;
    let file = serde_json::from_str(json).unwrap_or_default();
    Ok(Scenario { name, about, steady, seeds, power, ranks, file })
}

/// The most batches of all ranks: about half a minute of one core, and a gigabyte of state.
const MOST_BATCHES: u32 = 100_000_000;
/// Workers of a host.
const MOST_WORKERS: u32 = 4096;

/// A rank's world, still without devices.
fn world(raw: &RawScenario, place: &Place<'_>) -> Result<World, ScenarioError> {
    let known = raw.known.unwrap_or(true);
    let prior = known.then_some(1.0);
    let objective = raw.objective.as_deref().unwrap_or("throughput");
    let accelerator = place.inside("accelerator");
    let step_ns = accelerator.seconds("step_s", raw.accelerator.step_s)?;
    let poll_ns = accelerator.seconds("poll_s", raw.accelerator.poll_s.unwrap_or(0.0))?;
    for (i, link) in raw.links.iter().enumerate() {
        if link.bytes_per_s == 0 {
            let place = place.inside(&format!("links[{i}]"));
            return Err(place.wrong("bytes_per_s", 0, "it must be at least 1"));
        }
    }
    let n_links = raw.links.len();
    if let Some(records) = raw.host.records.filter(|records| records.link >= n_links) {
        let place = place.inside("host.records");
        let remedy = format!("there are {n_links} links, and they count from 0");
        return Err(place.wrong("link", records.link, &remedy));
    }
    Ok(World {
        n_batches: raw.batches,
        strategy: StrategyConfig::Cpu,
        objective: objective.parse().map_err(|_| {
            place.wrong(
                "objective",
                format!("`{objective}`"),
                "write throughput, energy or host-cpu-cap=P",
            )
        })?,
        recovery: match raw.recovery {
            Some(RawRecovery::Off) => Recovery::Off,
            Some(RawRecovery::On) | None => Recovery::On,
        },
        host: Host { prior, ..host(&raw.host, &place.inside("host"))? },
        devices: Vec::new(),
        shards: 1,
        links: raw.links.clone(),
        batch_bytes: raw.batch_bytes.unwrap_or(0),
        accelerator: Accelerator { step_ns, poll_ns, known },
        slope: place.within("slope", raw.slope.unwrap_or(0.0), 0.0..=0.99)?,
        seed: 0,
    })
}

fn host(raw: &RawHost, place: &Place<'_>) -> Result<Host, ScenarioError> {
    let inside = place.inside("slowdown");
    let workers = place.at_least_1("workers", raw.workers.unwrap_or(8))?;
    Ok(Host {
        batch_ns: place.some_time("batch_s", raw.batch_s)?,
        parallel: place.at_most("workers", workers, MOST_WORKERS)?,
        quota: place.at_least_1("quota", raw.quota.unwrap_or(16))?,
        cv: place.within("cv", raw.cv.unwrap_or(0.1), 0.0..=10.0)?,
        slowdown: raw.slowdown.as_ref().map(|raw| slowdown(raw, &inside)).transpose()?,
        prior: Some(1.0),
        records: raw.records,
    })
}

fn slowdown(raw: &RawSlowdown, place: &Place<'_>) -> Result<Slowdown, ScenarioError> {
    let factor = place.within("factor", raw.factor, 0.001..=1000.0)?;
    match (raw.after_percent, raw.first_batches) {
        (Some(percent), None) => {
            let percent = place.within("after_percent", percent, 0..=100)?;
            Ok(Slowdown::After { percent, factor })
        }
        (None, Some(batches)) => Ok(Slowdown::First { batches, factor }),
        (Some(_), Some(_)) | (None, None) => Err(place.wrong(
            "after_percent",
            if raw.after_percent.is_some() { "not alone" } else { "missing" },
            "give either it or `first_batches`",
        )),
    }
}

/// Assigns the devices of one entry to the ranks round-robin.
fn deal(
    raw: &RawDevices,
    worlds: &mut [World],
    place: &Place<'_>,
) -> Result<(), ScenarioError> {
    let count = place.within("count", raw.count.unwrap_or(1), 1..=60_000)?;
    let device = device(raw, worlds, place)?;
    let ranks = raw.ranks.clone().unwrap_or_else(|| (0..worlds.len()).collect());
    if ranks.is_empty() {
        return Err(place.wrong(
            "ranks",
            "[]",
            "name at least one rank, or leave it out",
        ));
    }
    for (_, &rank) in (0..count).zip(ranks.iter().cycle()) {
        let n_ranks = worlds.len();
        let Some(world) = worlds.get_mut(rank) else {
            let remedy = format!("there are {n_ranks} ranks, and they count from 0");
            return Err(place.wrong("ranks", rank, &remedy));
        };
        world.devices.push(device.clone());
    }
    Ok(())
}

fn device(
    raw: &RawDevices,
    worlds: &[World],
    place: &Place<'_>,
) -> Result<Device, ScenarioError> {
    let (n_links, prior) =
        worlds.first().map_or((0, None), |world| (world.links.len(), world.host.prior));
    if let Some(link) = raw.link.filter(|link| *link >= n_links) {
        let remedy = format!("there are {n_links} links, and they count from 0");
        return Err(place.wrong("link", link, &remedy));
    }
    let faults: Result<Vec<Fault>, ScenarioError> = raw
        .faults
        .iter()
        .map(|text| {
            let wrong = || place.wrong("faults", format!("`{text}`"), fault::FORMS);
            fault::fault(text).ok_or_else(wrong)
        })
        .collect();
    Ok(Device {
        slots: place.at_least_1("slots", raw.slots.unwrap_or(1))?,
        buffer: place.at_least_1("buffer", raw.buffer.unwrap_or(32))?,
        cv: place.within("cv", raw.cv.unwrap_or(0.1), 0.0..=10.0)?,
        faults: faults?,
        absence: raw.absence.as_ref().map(|raw| absence(raw, place)).transpose()?,
        drift: raw.drift.as_ref().map(|raw| drift(raw, place)).transpose()?,
        link: raw.link,
        latency_ns: place.seconds("latency_s", raw.latency_s.unwrap_or(0.0))?,
        outputs: place.at_least_1("outputs", raw.outputs.unwrap_or(u32::MAX))?,
        // One less than a u16 holds, as there is one shard more than the last one's number.
        shard: raw
            .shard
            .map(|shard| place.within("shard", shard, 0..=u16::MAX - 1))
            .transpose()?,
        prior,
        ..Device::steady(place.some_time("batch_s", raw.batch_s)?)
    })
}

fn absence(raw: &RawAbsence, place: &Place<'_>) -> Result<Absence, ScenarioError> {
    let place = place.inside("absence");
    if raw.every_s <= raw.for_s {
        return Err(place.wrong("every_s", raw.every_s, "it must be more than `for_s`"));
    }
    Ok(Absence {
        first_ns: place.seconds("first_s", raw.first_s)?,
        for_ns: place.some_time("for_s", raw.for_s)?,
        every_ns: place.some_time("every_s", raw.every_s)?,
    })
}

fn drift(raw: &RawDrift, place: &Place<'_>) -> Result<Drift, ScenarioError> {
    let place = place.inside("drift");
    Ok(Drift {
        amplitude: place.within("amplitude", raw.amplitude, 0.0..=0.99)?,
        period_ns: place.some_time("period_s", raw.period_s)?,
    })
}

fn is_steady(world: &World) -> bool {
    let device_is_steady = |device: &Device| {
        device.faults.is_empty() && device.absence.is_none() && device.drift.is_none()
    };
    world.host.slowdown.is_none() && world.devices.iter().all(device_is_steady)
}

/// The place of a key in a file.
struct Place<'a> {
    file: &'a str,
    way: String,
}

impl Place<'_> {
    fn inside(&self, key: &str) -> Self {
        Self { file: self.file, way: format!("{}{key}.", self.way) }
    }

    fn wrong(&self, key: &str, got: impl Display, remedy: &str) -> ScenarioError {
        ScenarioError::Value {
            file: self.file.to_owned(),
            key: format!("{}{key}", self.way),
            got: got.to_string(),
            remedy: remedy.to_owned(),
        }
    }

    fn seconds(&self, key: &str, seconds: f64) -> Result<u64, ScenarioError> {
        let remedy = "it must be a number of seconds from 0, at most 1e9";
        nanoseconds(seconds).ok_or_else(|| self.wrong(key, seconds, remedy))
    }

    fn some_time(&self, key: &str, seconds: f64) -> Result<u64, ScenarioError> {
        let remedy = "it must be a number of seconds above 0, at most 1e9";
        let ns = nanoseconds(seconds).filter(|ns| *ns > 0);
        ns.ok_or_else(|| self.wrong(key, seconds, remedy))
    }

    fn at_least_1(&self, key: &str, value: u32) -> Result<u32, ScenarioError> {
        if value == 0 {
            return Err(self.wrong(key, value, "it must be at least 1"));
        }
        Ok(value)
    }

    fn at_most(&self, key: &str, value: u32, most: u32) -> Result<u32, ScenarioError> {
        if value > most {
            return Err(self.wrong(key, value, &format!("it must be at most {most}")));
        }
        Ok(value)
    }

    fn within<T: PartialOrd + Copy + Display>(
        &self,
        key: &str,
        value: T,
        range: RangeInclusive<T>,
    ) -> Result<T, ScenarioError> {
        if range.contains(&value) {
            return Ok(value);
        }
        let (least, most) = (range.start(), range.end());
        Err(self.wrong(key, value, &format!("it must be from {least} to {most}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    const WHOLE: &str = r#"{
        "name": "mine", "about": "one of each", "steady": false, "batches": 100, "ranks": 2,
        "host": { "batch_s": 1, "slowdown": { "after_percent": 50, "factor": 2 } },
        "devices": [
            { "count": 3, "batch_s": 0.5, "faults": ["late@10%"], "link": 0, "latency_s": 0.1,
              "absence": { "first_s": 1, "for_s": 2, "every_s": 3 },
              "drift": { "amplitude": 0.5, "period_s": 60 } },
            { "batch_s": 2, "shard": 1, "ranks": [1] }
        ],
        "links": [{ "bytes_per_s": 1000 }], "batch_bytes": 10,
        "accelerator": { "step_s": 0.25, "poll_s": 0.01 }, "slope": 0.1,
        "objective": "host-cpu-cap=50", "recovery": "off", "known": false, "power": "newport"
    }"#;

    #[test]
    fn every_key_arrives() {
        let mine = scenario("mine.json", WHOLE).unwrap();
        assert_eq!((mine.name.as_str(), &mine.seeds[..]), ("mine", &[1, 2, 3][..]));
        assert_eq!(mine.power.name, "newport");
        let [first, second] = &mine.ranks[..] else { panic!("{:?}", mine.ranks) };
        // Three devices are assigned round-robin; the last belongs to the second rank alone.
        assert_eq!((first.devices.len(), second.devices.len()), (2, 2));
        assert_eq!((second.devices[1].shard, second.shards), (Some(1), 2));
        let text = format!("{first:?}");
        for part in [
            "objective: HostCpuCap(Percent(50)), recovery: Off",
            "slowdown: Some(After { percent: 50, factor: 2.0 }), prior: None",
            "faults: [Late { percent: 10 }]",
            "first_ns: 1000000000, for_ns: 2000000000, every_ns: 3000000000",
            "amplitude: 0.5, period_ns: 60000000000",
            "link: Some(0), latency_ns: 100000000, outputs: 4294967295",
            "links: [Link { bytes_per_s: 1000 }], batch_bytes: 10",
            "step_ns: 250000000, poll_ns: 10000000, known: false",
            "slope: 0.1",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let cases = [
            (
                "\"batches\": 100",
                "\"batches\": 0",
                "`batches` is 0; it must be at least 1",
            ),
            (
                "\"batches\": 100",
                "\"batches\": 50000001",
                "`batches` is 50000001; it must be at most 50000000",
            ),
            (
                "\"batch_s\": 0.5",
                "\"batch_s\": 0",
                "`devices[0].batch_s` is 0; it must be a number of seconds above 0, at most 1e9",
            ),
            (
                "late@10%",
                "explode@1%",
                "`devices[0].faults` is `explode@1%`; write die@P%, stall@P% (forever), \
                 stall@P%:SECONDS, throttle@P%:FACTOR, slow-start, late@P% or corrupt@P%",
            ),
            (
                "\"link\": 0",
                "\"link\": 1",
                "`devices[0].link` is 1; there are 1 links, and they count from 0",
            ),
            (
                "\"ranks\": [1]",
                "\"ranks\": [2]",
                "`devices[1].ranks` is 2; there are 2 ranks, and they count from 0",
            ),
            (
                "\"shard\": 1",
                "\"shard\": 65535",
                "`devices[1].shard` is 65535; it must be from 0 to 65534",
            ),
            (
                "\"every_s\": 3",
                "\"every_s\": 2",
                "`devices[0].absence.every_s` is 2; it must be more than `for_s`",
            ),
            (
                "\"after_percent\": 50, ",
                "",
                "`host.slowdown.after_percent` is missing; give either it or `first_batches`",
            ),
            (
                "cap=50",
                "cap=0",
                "`objective` is `host-cpu-cap=0`; write throughput, energy or host-cpu-cap=P",
            ),
            (
                "\"steady\": false",
                "\"steady\": true",
                "`steady` is true; give false, since there is a fault, an absence, a drift or a \
                 slowdown",
            ),
            (
                "\"newport\"",
                "\"oldport\"",
                "`power` is not usable; `oldport` is not a preset: use cloud, newport, smartssd, \
                 dpu-bf2, storage-server, or write an object",
            ),
        ];
        for (right, wrong, expected) in cases {
            let error = scenario("mine.json", &WHOLE.replace(right, wrong)).unwrap_err();
            assert_eq!(error.to_string(), format!("mine.json: {expected}"));
        }
    }

    #[test]
    fn an_unknown_or_missing_key_is_named() {
        for (right, wrong, expected) in [
            ("\"latency_s\"", "\"latencey_s\"", "unknown field `latencey_s`"),
            ("\"factor\"", "\"factro\"", "unknown field `factro`"),
            ("\"about\": \"one of each\",", "", "missing field `about`"),
            ("\"off\"", "\"of\"", "unknown variant `of`"),
            ("\"batches\": 100", "\"batches\": \"all\"", "expected u32 at line 2 column"),
        ] {
            let error = scenario("mine.json", &WHOLE.replace(right, wrong)).unwrap_err();
            assert_eq!(error.to_string(), "mine.json is not a scenario");
            let source = error.source().unwrap().to_string();
            assert!(source.contains(expected), "{source}");
        }
    }
}
