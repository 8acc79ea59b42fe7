//! A pool scenario as in its file, and the only place with its defaults and ranges. Times are seconds in
//! the file, and rates batches per second.

use bothends_core::pool::lease::Policy;
use bothends_core::pool::size::SizeConfig;
use serde::Deserialize;

use super::jobs::MOST_AHEAD;
use super::{
    AgentModel, JobModel, Lockstep, Placement, PoolScenario, PoolWorld, Scaling, Variant,
    World, float, nanoseconds,
};
use crate::scenario::ScenarioError;

/// The path and text of every file of `configs/experiments/pool`, in the order in which they are listed
/// and played.
const FILES: &[(&str, &str)] = &[
    (
        "configs/experiments/pool/pool-fed-and-starving.json",
        include_str!("../../configs/experiments/pool/pool-fed-and-starving.json"),
    ),
    (
        "configs/experiments/pool/pool-two-shares.json",
        include_str!("../../configs/experiments/pool/pool-two-shares.json"),
    ),
    (
        "configs/experiments/pool/pool-joins-and-leaves.json",
        include_str!("../../configs/experiments/pool/pool-joins-and-leaves.json"),
    ),
    (
        "configs/experiments/pool/pool-local-data.json",
        include_str!("../../configs/experiments/pool/pool-local-data.json"),
    ),
    (
        "configs/experiments/pool/pool-same-work.json",
        include_str!("../../configs/experiments/pool/pool-same-work.json"),
    ),
    (
        "configs/experiments/pool/pool-large.json",
        include_str!("../../configs/experiments/pool/pool-large.json"),
    ),
    (
        "configs/experiments/pool/pool-scale-out.json",
        include_str!("../../configs/experiments/pool/pool-scale-out.json"),
    ),
    (
        "configs/experiments/pool/pool-autoscaling.json",
        include_str!("../../configs/experiments/pool/pool-autoscaling.json"),
    ),
    (
        "configs/experiments/pool/pool-autoscaling-storage.json",
        include_str!("../../configs/experiments/pool/pool-autoscaling-storage.json"),
    ),
    (
        "configs/experiments/pool/ranks-in-step.json",
        include_str!("../../configs/experiments/pool/ranks-in-step.json"),
    ),
    (
        "configs/experiments/pool/ranks-in-step-long-context.json",
        include_str!("../../configs/experiments/pool/ranks-in-step-long-context.json"),
    ),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPool {
    name: String,
    about: String,
    seeds: Option<Vec<u64>>,
    pool: Option<RawJobs>,
    lockstep: Option<RawLockstep>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawJobs {
    seconds: f64,
    agents: RawAgents,
    jobs: Vec<RawJob>,
    variants: Vec<RawVariant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAgents {
    count: u32,
    batches_per_s: f64,
    cv: Option<f64>,
    wait_s: Option<f64>,
    mtbf_s: Option<f64>,
    mttr_s: Option<f64>,
    noticed_s: Option<f64>,
    start_s: Option<f64>,
    present: Option<Vec<(f64, u32)>>,
    per_rack: Option<u32>,
    uplink_bytes_per_s: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawJob {
    count: u32,
    batches_per_s: f64,
    host_batches_per_s: Option<f64>,
    weight: Option<u32>,
    ahead: Option<u32>,
    batch_bytes: Option<u64>,
    record_bytes: Option<u64>,
    from_s: Option<f64>,
    every_s: Option<f64>,
    batches: Option<u32>,
    same_work: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawVariant {
    policy: RawPolicy,
    placement: Option<RawPlacement>,
    scaling: Option<RawScaling>,
    load: Option<f64>,
    kept: Option<u32>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawPolicy {
    FirstCome,
    Weight,
    Need,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawPlacement {
    Anywhere,
    Local,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawScaling {
    Fixed,
    Need,
    Load,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLockstep {
    ranks: Vec<u32>,
    batch_size: u32,
    steps: u32,
    window: u32,
    cv: f64,
}

/// Whether a scenario is one of a pool.
fn is_pool(json: &str) -> bool {
    let value: Result<serde_json::Value, _> = serde_json::from_str(json);
    value.is_ok_and(|it| it.get("pool").is_some() || it.get("lockstep").is_some())
}

/// Every scenario of `configs/experiments/pool`.
///
/// # Errors
/// Never in a build whose tests pass.
pub fn all() -> Result<Vec<PoolScenario>, ScenarioError> {
    FILES.iter().map(|(file, json)| PoolScenario::from_json(file, json)).collect()
}

/// The scenario of `configs/experiments/pool` with this name.
///
/// # Errors
/// Never in a build whose tests pass.
pub fn find(name: &str) -> Result<Option<PoolScenario>, ScenarioError> {
    Ok(all()?.into_iter().find(|scenario| scenario.name == name))
}

impl PoolScenario {
    /// Reads a scenario if it is one of a pool; `None` if it is of another kind, or no JSON, which
    /// [`crate::Scenario::from_json`] explains. `file` is its name in errors.
    ///
    /// # Errors
    /// A [`ScenarioError`] that names the file and the key.
    pub fn of_its_kind(file: &str, json: &str) -> Result<Option<Self>, ScenarioError> {
        if is_pool(json) { Self::from_json(file, json).map(Some) } else { Ok(None) }
    }

    /// Reads a scenario; `file` is its name in errors.
    ///
    /// # Errors
    /// A [`ScenarioError`] that names the file and the key.
    pub fn from_json(file: &str, json: &str) -> Result<Self, ScenarioError> {
        let raw: RawPool = serde_json::from_str(json)
            .map_err(|source| ScenarioError::Json { file: file.to_owned(), source })?;
        let range = Range { file };
        let n_seeds = raw.seeds.as_ref().map_or(1, Vec::len) as u64;
        range.within("the number of seeds", float(n_seeds), 1.0, 1e4)?;
        let (world, variants) = match (raw.pool, raw.lockstep) {
            (Some(pool), None) => {
                (World::Jobs(pool.world(&range)?), pool.variants(&range)?)
            }
            (None, Some(lockstep)) => {
                (World::Lockstep(lockstep.checked(&range)?), Vec::new())
            }
            (Some(_), Some(_)) | (None, None) => {
                return Err(ScenarioError::Value {
                    file: file.to_owned(),
                    key: "pool".to_owned(),
                    got: "given together with `lockstep`, or neither is".to_owned(),
                    remedy: "a scenario has one of them".to_owned(),
                });
            }
        };
        Ok(Self {
            name: raw.name,
            about: raw.about,
            seeds: raw.seeds.unwrap_or_else(|| (1..=3).collect()),
            variants,
            world,
            file: serde_json::from_str(json).unwrap_or_default(),
        })
    }
}

impl RawJobs {
    fn world(&self, range: &Range) -> Result<PoolWorld, ScenarioError> {
        range.within("seconds", self.seconds, 0.001, 1e6)?;
        let n_jobs: u64 = self.jobs.iter().map(|job| u64::from(job.count)).sum();
        range.within("the number of jobs", float(n_jobs), 1.0, 1e4)?;
        let mut jobs = Vec::new();
        for raw in &self.jobs {
            raw.check(range)?;
            let work = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
            let own = (0..raw.count).map(|at| {
                let work = if raw.same_work.unwrap_or(false) { work } else { work + at };
                raw.job(at, work)
            });
            jobs.extend(own);
        }
        Ok(PoolWorld {
            for_ns: nanoseconds(self.seconds),
            jobs,
            agents: self.agents.checked(range)?,
        })
    }

    fn variants(&self, range: &Range) -> Result<Vec<Variant>, ScenarioError> {
        let n = self.variants.len() as u64;
        range.within("the number of variants", float(n), 1.0, 20.0)?;
        let most = self.agents.count;
        self.variants.iter().map(|raw| raw.variant(range, most)).collect()
    }
}

impl RawAgents {
    fn checked(&self, range: &Range) -> Result<AgentModel, ScenarioError> {
        range.within("agents.count", self.count.into(), 1.0, 1e5)?;
        range.within("agents.batches_per_s", self.batches_per_s, 1e-3, 1e6)?;
        range.within("agents.cv", self.cv.unwrap_or(0.0), 0.0, 10.0)?;
        for (key, time, most) in [
            ("agents.noticed_s", self.noticed_s, 3600.0),
            ("agents.start_s", self.start_s, 3600.0),
            ("agents.wait_s", self.wait_s, 3600.0),
            ("agents.mtbf_s", self.mtbf_s, 1e9),
            ("agents.mttr_s", self.mttr_s, 1e9),
        ] {
            range.within(key, time.unwrap_or(0.0), 0.0, most)?;
        }
        range.within("agents.per_rack", self.per_rack.unwrap_or(1).into(), 1.0, 1e5)?;
        let uplink = self.uplink_bytes_per_s.unwrap_or(1e9);
        range.within("agents.uplink_bytes_per_s", uplink, 1e3, 1e15)?;
        let mut before = 0.0;
        for &(at, n) in self.present.iter().flatten() {
            range.within("a time in agents.present", at, before, 1e6)?;
            let most = f64::from(self.count);
            range.within("a number in agents.present", n.into(), 0.0, most)?;
            before = at;
        }
        let time =
            |seconds: Option<f64>, default| nanoseconds(seconds.unwrap_or(default));
        let present = self.present.iter().flatten();
        Ok(AgentModel {
            n: self.count,
            batch_ns: period(self.batches_per_s),
            wait_ns: time(self.wait_s, 0.0),
            cv: self.cv.unwrap_or(0.1),
            failures: self
                .mtbf_s
                .map(|mtbf| (nanoseconds(mtbf), time(self.mttr_s, 30.0))),
            noticed_ns: time(self.noticed_s, 1.0),
            start_ns: time(self.start_s, 0.0),
            present: present.map(|&(at, n)| (nanoseconds(at), n)).collect(),
            per_rack: self.per_rack.unwrap_or(self.count),
            uplink_bytes_per_s: self.uplink_bytes_per_s,
        })
    }
}

impl RawJob {
    fn check(&self, range: &Range) -> Result<(), ScenarioError> {
        range.within("jobs.batches_per_s", self.batches_per_s, 1e-3, 1e6)?;
        let host = self.host_batches_per_s.unwrap_or(1.0);
        range.within("jobs.host_batches_per_s", host, 1e-3, 1e6)?;
        let ahead = f64::from(self.ahead.unwrap_or(1));
        range.within("jobs.ahead", ahead, 1.0, MOST_AHEAD.into())?;
        range.within("jobs.weight", self.weight.unwrap_or(1).into(), 1.0, 1e6)?;
        range.within("jobs.batches", self.batches.unwrap_or(1).into(), 1.0, 1e9)?;
        for bytes in [self.batch_bytes, self.record_bytes].into_iter().flatten() {
            range.within("jobs.batch_bytes, record_bytes", float(bytes), 0.0, 1e12)?;
        }
        for time in [self.from_s, self.every_s].into_iter().flatten() {
            range.within("jobs.from_s and every_s", time, 0.0, 1e6)?;
        }
        Ok(())
    }

    fn job(&self, at: u32, work: u32) -> JobModel {
        let from = self.from_s.unwrap_or(0.0);
        JobModel {
            step_ns: period(self.batches_per_s),
            host_ns: self.host_batches_per_s.map(period),
            weight: self.weight.unwrap_or(1),
            ahead: self.ahead.unwrap_or(16),
            batch_bytes: self.batch_bytes.unwrap_or(0),
            record_bytes: self.record_bytes.unwrap_or(0),
            from_ns: nanoseconds(self.every_s.unwrap_or(0.0).mul_add(at.into(), from)),
            n_batches: self.batches,
            work,
        }
    }
}

impl RawVariant {
    fn variant(&self, range: &Range, most: u32) -> Result<Variant, ScenarioError> {
        let load = self.load.unwrap_or(0.7);
        range.within("variants.load", load, 0.01, 1.0)?;
        range.within("variants.kept", self.kept.unwrap_or(0).into(), 0.0, 1e8)?;
        Ok(Variant {
            policy: match self.policy {
                RawPolicy::FirstCome => Policy::FirstCome,
                RawPolicy::Weight => Policy::Fair,
                RawPolicy::Need => Policy::Need,
            },
            placement: match self.placement {
                Some(RawPlacement::Local) => Placement::Local,
                Some(RawPlacement::Anywhere) | None => Placement::Anywhere,
            },
            scaling: match self.scaling {
                Some(RawScaling::Need) => Scaling::Need(SizeConfig::up_to(most)),
                Some(RawScaling::Load) => Scaling::Load(load),
                Some(RawScaling::Fixed) | None => Scaling::Fixed,
            },
            kept: self.kept.unwrap_or(0),
        })
    }
}

/// Samples that are arranged at a time: each takes some memory.
const MOST_TOGETHER: f64 = 1e8;

impl RawLockstep {
    fn checked(self, range: &Range) -> Result<Lockstep, ScenarioError> {
        let n = self.ranks.len() as u64;
        range.within("the number of numbers in lockstep.ranks", float(n), 1.0, 20.0)?;
        for ranks in &self.ranks {
            range.within("lockstep.ranks", (*ranks).into(), 1.0, 1e5)?;
        }
        range.within("lockstep.batch_size", self.batch_size.into(), 1.0, 1e4)?;
        range.within("lockstep.steps", self.steps.into(), 1.0, 1e5)?;
        range.within("lockstep.window", self.window.into(), 1.0, 1e4)?;
        range.within("lockstep.cv", self.cv, 0.0, 10.0)?;
        let most = self.ranks.iter().copied().max().map_or(0.0, f64::from);
        let together = most * f64::from(self.batch_size) * f64::from(self.window);
        let key = "the product of lockstep.ranks, batch_size and window";
        range.within(key, together, 1.0, MOST_TOGETHER)?;
        Ok(Lockstep {
            ranks: self.ranks,
            batch_size: self.batch_size,
            steps: self.steps,
            window: self.window,
            cv: self.cv,
        })
    }
}

fn period(per_s: f64) -> u64 {
    nanoseconds(1.0 / per_s).max(1)
}

/// Errors about a file.
struct Range<'a> {
    file: &'a str,
}

impl Range<'_> {
    fn within(
        &self,
        key: &str,
        got: f64,
        least: f64,
        most: f64,
    ) -> Result<(), ScenarioError> {
        if (least..=most).contains(&got) {
            return Ok(());
        }
        Err(ScenarioError::Value {
            file: self.file.to_owned(),
            key: key.to_owned(),
            got: got.to_string(),
            remedy: format!("it must be from {least} to {most}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_a_pool_scenario_and_named_as_it_is_called() {
        let folder =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/experiments/pool");
        let mut n_files = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let json = std::fs::read_to_string(&path).unwrap();
            assert!(is_pool(&json));
            let scenario = PoolScenario::from_json("file", &json).unwrap();
            assert_eq!(path.file_stem().unwrap().to_str().unwrap(), scenario.name);
            assert_eq!(find(&scenario.name).unwrap().unwrap().about, scenario.about);
            n_files += 1;
        }
        assert_eq!(n_files, FILES.len(), "a file outside the list is not found");
    }

    #[test]
    fn ranks_in_step_that_fill_the_memory_are_refused() {
        let json = |ranks: u32| {
            format!(
                r#"{{"name": "x", "about": "x", "lockstep": {{"ranks": [{ranks}],
                "batch_size": 1000, "steps": 1, "window": 1000, "cv": 0.5}}}}"#
            )
        };
        PoolScenario::from_json("x.json", &json(100)).unwrap();
        let error = PoolScenario::from_json("x.json", &json(101)).unwrap_err();
        let line = error.to_string();
        assert!(line.contains("the product of lockstep.ranks"), "{line}");
    }

    #[test]
    fn what_is_out_of_range_is_named_with_its_key_and_its_range() {
        let json = |agents: &str, job: &str, variant: &str| {
            format!(
                r#"{{"name": "x", "about": "x", "pool": {{"seconds": 1,
                "agents": {{"count": 2, "batches_per_s": 1 {agents}}},
                "jobs": [{{"count": 1, "batches_per_s": 1 {job}}}],
                "variants": [{{"policy": "need" {variant}}}]}}}}"#
            )
        };
        let error = |agents: &str, job: &str, variant: &str| {
            PoolScenario::from_json("my.json", &json(agents, job, variant))
                .map(|_| ())
                .map_err(|error| error.to_string())
        };
        assert_eq!(error("", "", ""), Ok(()));
        for (agents, job, variant, expected) in [
            (r#", "cv": -1"#, "", "", "`agents.cv` is -1; it must be from 0 to 10"),
            (
                r#", "present": [[3, 1], [2, 1]]"#,
                "",
                "",
                "`a time in agents.present` is 2; it must be from 3 to 1000000",
            ),
            (
                r#", "present": [[3, 5]]"#,
                "",
                "",
                "`a number in agents.present` is 5; it must be from 0 to 2",
            ),
            (
                "",
                r#", "ahead": 200"#,
                "",
                "`jobs.ahead` is 200; it must be from 1 to 128",
            ),
            ("", "", r#", "load": 0"#, "`variants.load` is 0; it must be from 0.01 to 1"),
        ] {
            let got = error(agents, job, variant);
            assert_eq!(got, Err(format!("my.json: {expected}")));
        }
        assert_eq!(
            error(r#", "x": 1"#, "", "").unwrap_err(),
            "my.json is not a scenario"
        );
        let neither = r#"{"name": "x", "about": "x"}"#;
        let error = PoolScenario::from_json("my.json", neither).unwrap_err().to_string();
        assert!(error.ends_with("a scenario has one of them"), "{error}");
    }
}
