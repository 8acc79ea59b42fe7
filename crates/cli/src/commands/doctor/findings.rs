//! What `doctor` found, as it stands in the file of `doctor --json`: one type for the program
//! that writes the file and the one that reads it, so that they cannot differ. Nothing is
//! measured here.

use std::path::Path;

use anyhow::Context;
use bothends_runtime::{GpuFound, Machine};
use bothends_simulate::diagnosis::{Diagnosis, Limit, Throughput};
use bothends_simulate::sizing::{Conditions, Interval, Verdict, three_digits};
use serde::{Deserialize, Serialize};

use crate::failed::Failed;

/// Everything that was found.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Findings {
    /// Version of the program.
    pub(crate) version: String,
    /// When, in UTC.
    pub(crate) date: String,
    /// Where.
    pub(crate) machine: MachineFindings,
    /// On what data; without it nothing was measured.
    pub(crate) data: Option<DataFindings>,
    /// The host alone, by number of workers.
    pub(crate) host: Vec<HostFinding>,
    /// What comes through with the accelerator, and what limits it.
    pub(crate) job: Option<JobFinding>,
    /// Each device alone.
    pub(crate) devices: Vec<DeviceFinding>,
    /// What the verdict is about: `--accelerator`, or what stands for it.
    #[serde(default)]
    pub(crate) fed: Option<String>,
    /// Whether a device would pay.
    #[serde(default)]
    pub(crate) verdict: Option<Verdict>,
}

/// The job as it is, with the most workers measured.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JobFinding {
    /// As `--accelerator` named it.
    pub(crate) accelerator: String,
    pub(crate) workers: u32,
    pub(crate) images_per_s: Throughput,
    /// Rate of an epoch that finds nothing in memory, where that is not the job's.
    pub(crate) first_epoch_images_per_s: Option<f64>,
    pub(crate) found: Diagnosis,
    /// `measured`.
    pub(crate) source: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MachineFindings {
    #[serde(flatten)]
    pub(crate) found: Machine,
    /// Memory that this process may still take, within the limits of its control groups.
    #[serde(default)]
    pub(crate) available_bytes: Option<u64>,
    /// Of the control group.
    pub(crate) cpu_limit: Option<String>,
    /// Why nothing is kept for later epochs and runs; `None` where it is.
    #[serde(default)]
    pub(crate) cache: Option<String>,
    pub(crate) energy: String,
    /// The first GPU, and the way that batches take to it; `None` in files of earlier releases.
    #[serde(default)]
    pub(crate) gpu: Option<GpuFound>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DataFindings {
    pub(crate) path: String,
    pub(crate) about: Vec<String>,
    /// Where transcoded images are kept and whether more are; `None` for data that have no such cache,
    /// and in files of earlier releases.
    #[serde(default)]
    pub(crate) block_cache: Option<String>,
    pub(crate) recipe: String,
    pub(crate) batch_size: u32,
    /// Bytes of a sample on a device's link.
    pub(crate) sample_bytes: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HostFinding {
    pub(crate) workers: u32,
    /// `None`: too slow to say.
    pub(crate) images_per_s: Option<f64>,
    /// Where the rate lies, by its rounds.
    #[serde(default)]
    pub(crate) ends: Option<Interval>,
    #[serde(default)]
    pub(crate) rounds: u32,
    pub(crate) cpu_ms_per_image: Option<f64>,
    /// How busy the machine was meanwhile.
    #[serde(default)]
    pub(crate) conditions: Option<Conditions>,
    /// `measured`.
    pub(crate) source: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DeviceFinding {
    /// As `--csd` named it.
    pub(crate) csd: String,
    /// The preset of an emulated device.
    pub(crate) preset: Option<String>,
    /// `None`: too slow to say.
    pub(crate) images_per_s: Option<f64>,
    /// Where the rate lies: by its rounds, by what its preset says of its speed, and up to what its
    /// model makes where the emulation cannot keep up with it.
    #[serde(default)]
    pub(crate) ends: Option<Interval>,
    /// Whether nobody has measured how fast such a device is.
    #[serde(default)]
    pub(crate) is_uncalibrated: bool,
    /// What its link carries, where a preset states it.
    pub(crate) link_bytes_per_s: Option<f64>,
    /// CPU time of the host per image received from it.
    #[serde(default)]
    pub(crate) receiving_cpu_ms_per_image: Option<f64>,
    /// What would come through with one of it, in virtual time; `None`: too slow to say.
    pub(crate) together: Option<Together>,
    /// `measured`, or that an emulated device is modelled.
    pub(crate) source: String,
}

/// The job with one device more.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Together {
    pub(crate) images_per_s: f64,
    /// Against the job as it is.
    pub(crate) speedup: f64,
}

impl Findings {
    /// Reads the file that doctor wrote.
    pub(crate) fn load(path: &Path) -> Result<Self, Failed> {
        let file = path.display();
        let json = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {file}"))?;
        let findings = serde_json::from_str(&json).with_context(|| {
            format!("{file} was not written by `bothends doctor --json`; write it again")
        })?;
        Ok(findings)
    }

    /// Everything as lines for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let MachineFindings { found, available_bytes, cpu_limit, cache, energy, gpu } =
            &self.machine;
        let mut lines = vec![
            format!("machine     {}", found.summary()),
            format!("io_uring    {}", found.io_uring),
            format!("emulator    {}", found.firmware_sim),
        ];
        let available = available_bytes.map(|bytes| bytes >> 20);
        lines.extend(
            available
                .map(|mib| format!("memory      {mib} MiB available to this process")),
        );
        lines.extend(cpu_limit.as_ref().map(|limit| format!("cpu limit   {limit}")));
        lines.extend(cache.as_ref().map(|why| format!("cache       {why}")));
        lines.push(format!("energy      {energy}"));
        lines.extend(gpu.as_ref().map(|gpu| format!("gpu         {}", gpu.summary())));
        let Some(data) = &self.data else {
            let none = "data        none given; --data PATH measures the host on it";
            lines.push(none.to_owned());
            return lines;
        };
        lines.extend(data.about.iter().map(|line| format!("data        {line}")));
        lines.extend(data.block_cache.as_ref().map(|line| format!("block cache {line}")));
        lines.extend(self.host.iter().flat_map(|host| host.lines(&data.recipe)));
        lines.extend(self.job.iter().flat_map(JobFinding::lines));
        lines.extend(self.devices.iter().map(|device| device.line(&data.recipe)));
        lines.extend(self.fed.as_ref().map(|fed| {
            format!(
                "assumed     {fed} is the accelerator; --accelerator sim:NAME or sim:RATE names yours"
            )
        }));
        lines
    }
}

impl HostFinding {
    fn lines(&self, recipe: &str) -> Vec<String> {
        let Self { workers, source, rounds, .. } = self;
        let cpu = self.cpu_ms_per_image;
        let cpu = cpu.map_or(String::new(), |ms| format!(", {ms:.2} CPU ms/image"));
        let with = match workers {
            1 => "1 worker".to_owned(),
            n => format!("{n} workers"),
        };
        let rounds =
            if *rounds > 1 { format!(", {rounds} rounds") } else { String::new() };
        let rate = rate(self.images_per_s, self.ends);
        let steady = match self.ends {
            Some(ends) if !ends.is_narrow() => {
                format!("; ±{:.0} %, not steady", ends.half_width() * 100.0)
            }
            _ => String::new(),
        };
        let mut lines = vec![format!(
            "host alone  {rate}{cpu} with {with} ({source}, {recipe}{rounds}{steady})"
        )];
        lines.extend(self.conditions.and_then(|seen| {
            let others = seen.others?;
            let of = seen.processors;
            (others >= 0.05).then(|| {
                format!("load        other programs used {others:.1} of {of} processors meanwhile")
            })
        }));
        lines
    }
}

impl DeviceFinding {
    /// What its link carries, in images per second.
    pub(crate) fn link_images_per_s(&self, data: &DataFindings) -> Option<f64> {
        let sample_bytes =
            u32::try_from(data.sample_bytes).ok().filter(|bytes| *bytes > 0)?;
        Some(self.link_bytes_per_s? / f64::from(sample_bytes))
    }

    fn line(&self, recipe: &str) -> String {
        let Self { csd, source, .. } = self;
        let caveat = if self.is_uncalibrated { ", speed uncalibrated" } else { "" };
        let receiving = self.receiving_cpu_ms_per_image;
        let receiving = receiving
            .map_or(String::new(), |ms| format!("; receiving one takes {ms:.3} CPU ms"));
        let together = self.together.as_ref().map_or(String::new(), |with| {
            let Together { images_per_s, speedup } = with;
            format!(
                "; with the host {}, {speedup:.2} × (modelled)",
                three_digits(*images_per_s)
            )
        });
        format!(
            "device      {} from {csd} ({source}, {recipe}{caveat}){receiving}{together}",
            rate(self.images_per_s, self.ends)
        )
    }
}

impl JobFinding {
    /// What storage brings, where that is the limit.
    pub(crate) fn storage_brings(&self) -> Option<f64> {
        (self.found.limit == Limit::Storage).then_some(self.images_per_s.read)
    }

    fn lines(&self) -> Vec<String> {
        let with = format!("{} with {}", self.source, self.accelerator);
        let mut lines = self.images_per_s.sentences(self.workers).into_iter();
        let first = lines.next().unwrap_or_default();
        let mut said = vec![format!("job         {first} ({with})")];
        said.extend(lines.map(|line| format!("limit       {line}")));
        said.extend(self.first_epoch_images_per_s.map(|rate| {
            format!(
                "first epoch {rate:.0} images/s, from storage; the next ones find the data in \
                 memory ({})",
                self.source
            )
        }));
        said
    }
}

/// A rate with its ends, where they are known.
fn rate(images_per_s: Option<f64>, ends: Option<Interval>) -> String {
    match (images_per_s, ends) {
        (None, _) => "too slow to say".to_owned(),
        (Some(rate), None) => format!("{} images/s", three_digits(rate)),
        (Some(_), Some(ends)) => format!("{} images/s", ends.rates()),
    }
}
