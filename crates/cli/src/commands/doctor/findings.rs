//! What `doctor` found, as it stands in the file of `doctor --json`: one type for the program
//! that writes the file and the one that reads it, so that they cannot differ. Nothing is
//! measured here.

use std::path::Path;

use anyhow::Context;
use bothends_runtime::{GpuFound, Machine};
use bothends_simulate::diagnosis::{Diagnosis, Throughput};
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
    /// Of the control group, as the kernel writes it.
    pub(crate) cpu_limit: Option<String>,
    pub(crate) energy: String,
    /// The first GPU, and the way that batches take to it; `None` in files of earlier releases.
    #[serde(default)]
    pub(crate) gpu: Option<GpuFound>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DataFindings {
    pub(crate) path: String,
    pub(crate) about: Vec<String>,
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
    pub(crate) cpu_ms_per_image: Option<f64>,
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
    /// What its link carries, where a preset states it.
    pub(crate) link_bytes_per_s: Option<f64>,
    /// Processor time of the host for an image received from it.
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
        let MachineFindings { found, cpu_limit, energy, gpu } = &self.machine;
        let mut lines = vec![
            format!("machine     {}", found.summary()),
            format!("io_uring    {}", found.io_uring),
            format!("emulator    {}", found.firmware_sim),
        ];
        lines.extend(cpu_limit.as_ref().map(|limit| format!("cpu limit   {limit}")));
        lines.push(format!("energy      {energy}"));
        lines.extend(gpu.as_ref().map(|gpu| format!("gpu         {}", gpu.summary())));
        let Some(data) = &self.data else {
            let none = "data        none given; --data PATH measures the host on it";
            lines.push(none.to_owned());
            return lines;
        };
        lines.extend(data.about.iter().map(|line| format!("data        {line}")));
        for host in &self.host {
            let HostFinding { workers, source, .. } = host;
            let cpu = host.cpu_ms_per_image;
            let cpu = cpu.map_or(String::new(), |ms| format!(", {ms:.2} CPU ms/image"));
            lines.push(format!(
                "host alone  {}{cpu} with {workers} workers ({source}, {})",
                rate(host.images_per_s),
                data.recipe
            ));
        }
        lines.extend(self.job.iter().flat_map(JobFinding::lines));
        for device in &self.devices {
            let DeviceFinding { csd, source, .. } = device;
            let receiving = device.receiving_cpu_ms_per_image;
            let receiving = receiving.map_or(String::new(), |ms| {
                format!("; receiving one takes {ms:.3} CPU ms")
            });
            let together = device.together.as_ref().map_or(String::new(), |with| {
                let Together { images_per_s, speedup } = with;
                format!("; with the host {images_per_s:.0}, {speedup:.2} × (modelled)")
            });
            lines.push(format!(
                "device      {} from {csd} ({source}, {}){receiving}{together}",
                rate(device.images_per_s),
                data.recipe
            ));
        }
        lines
    }
}

impl JobFinding {
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

fn rate(images_per_s: Option<f64>) -> String {
    images_per_s
        .map_or("too slow to say".to_owned(), |rate| format!("{rate:.0} images/s"))
}
