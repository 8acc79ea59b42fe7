//! What can be counted on every machine without a meter: seconds, CPU seconds, bytes. Joules are
//! derived from these figures with a profile, and can be derived again with another.
//!
//! What the kernel or a device does not report is `None`, never a zero.

use serde::{Deserialize, Serialize};

/// What a run used, counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantities {
    /// From the beginning of the first epoch to the end of the last.
    pub seconds: f64,
    /// The host.
    pub host: HostQuantities,
    /// The devices, in the order of `--csd`.
    pub devices: Vec<DeviceQuantities>,
    /// Bytes over each link, and bytes at rest.
    pub bytes: LinkBytes,
    /// What consumed batches; `None` if nothing computed.
    pub accelerator: Option<AcceleratorQuantities>,
}

/// The host's part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostQuantities {
    /// Ranks on this machine, this process included; `None` where there are several and nobody says
    /// how many of them are here.
    #[serde(default = "one")]
    pub ranks: Option<u32>,
    /// CPUs of this process: those that it may use, divided by the ranks that may use the same ones.
    pub processors: f64,
    /// CPU seconds of this process, user and system.
    pub processor_seconds: Option<f64>,
    /// The part of them in threads that read samples and make batches.
    pub front_processor_seconds: Option<f64>,
    /// The part of them in threads that send requests to devices, and receive and check their
    /// batches.
    pub receiving_processor_seconds: Option<f64>,
    /// The part of them in threads that decide what is made where, convert batches to the output
    /// format and hand them over, whoever made them.
    pub feeding_processor_seconds: Option<f64>,
    /// CPU seconds of everything on this machine, including this process.
    pub machine_processor_seconds: Option<f64>,
    /// Memory of this process over time, in byte-seconds.
    pub memory_byte_seconds: Option<f64>,
}

/// Nothing counted yet, of a process that shares its machine with no other rank.
impl Default for HostQuantities {
    fn default() -> Self {
        Self {
            ranks: one(),
            processors: 0.0,
            processor_seconds: None,
            front_processor_seconds: None,
            receiving_processor_seconds: None,
            feeding_processor_seconds: None,
            machine_processor_seconds: None,
            memory_byte_seconds: None,
        }
    }
}

/// What records that do not say it are of.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the default of a field that may be unknown"
)]
fn one() -> Option<u32> {
    Some(1)
}

/// One device's part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceQuantities {
    /// As `--csd` named it.
    pub device: String,
    /// Whether models stand in for hardware: then its busy time is modelled, and its CPU seconds
    /// are those of the emulation on this machine.
    pub emulated: bool,
    /// CPU seconds of the device's own process.
    pub processor_seconds: Option<f64>,
    /// Seconds in which it had work.
    pub busy_seconds: Option<f64>,
    /// The remaining seconds.
    pub idle_seconds: Option<f64>,
    /// For a GPU: seconds in which its kernels made samples, by its own clock. Copies and other work
    /// are not included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_seconds: Option<f64>,
}

/// Bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkBytes {
    /// Samples of the data set, as stored, divided by the ranks of this machine.
    pub stored: u64,
    /// Read by the host, from storage or from the page cache.
    pub storage_read: u64,
    /// Samples received from devices.
    pub device_to_host: u64,
    /// Delivered to the accelerator.
    pub host_to_accelerator: u64,
}

/// What consumed batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AcceleratorQuantities {
    /// As in the result.
    pub name: String,
    /// Whether it is emulated: it only takes time.
    pub emulated: bool,
    /// Seconds of computing.
    pub busy_seconds: f64,
    /// The remaining seconds.
    pub idle_seconds: f64,
}

impl Quantities {
    /// What could not be counted, in words; joules that need it are left out.
    #[must_use]
    pub fn unknown(&self) -> Vec<String> {
        let mut unknown = Vec::new();
        if self.host.ranks.is_none() {
            unknown.push(
                "how many ranks share this machine (LOCAL_WORLD_SIZE says it)".to_owned(),
            );
        }
        if self.host.processor_seconds.is_none() {
            unknown.push("the host's CPU seconds".to_owned());
        }
        if self.host.memory_byte_seconds.is_none() {
            unknown.push("the host's memory over time".to_owned());
        }
        for (i, device) in self.devices.iter().enumerate() {
            if device.gpu_seconds.is_some() {
                unknown.push(format!(
                    "joules of device {i}, a GPU; the meter nvml has them"
                ));
            } else if device.busy_seconds.is_none() {
                unknown.push(format!("busy seconds of device {i}"));
            }
        }
        unknown
    }
}
