//! What host and device exchange: session, answer, capabilities, statistics.
//!
//! A job ([`bothends_slots::Job`]) is one batch. Its result is `samples.len()` consecutive samples at the
//! cut, `Session::sample_bytes` each. Devices are stateless between jobs and the host's ledger alone
//! decides what counts, so a late or repeated answer is harmless. Nothing here knows a byte order; `wire`
//! does.

use std::time::Duration;

use bothends_core::ids::SampleId;
use bothends_slots::JobId;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// Version of the wire format and of these words; both sides must have the same.
pub const PROTOCOL_VERSION: u32 = 2;

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Capabilities {
    /// The device's `PROTOCOL_VERSION`.
    pub protocol_version: u32,
    /// For people: `newport`, `agent on nas`, …
    pub name: String,
    /// Whether models stand in for hardware. Never reported as a device when true.
    pub emulated: bool,
    /// Names of the ops it has, as in a recipe (`random_resized_crop`, …). The host offers it no
    /// recipe with another one before the cut.
    pub ops: Vec<String>,
    /// Jobs it accepts before one is finished (≥ 1).
    pub slots: u32,
    /// The largest batch that it makes, in bytes; the host offers it no session with a larger one.
    pub max_batch_bytes: u64,
    /// What else it understands: hosts use only what is named here ([`SHARES_JOBS`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// The feature of a device that is told which job a session is of, and when batches are needed.
pub const SHARES_JOBS: &str = "jobs";

/// The feature of a device that is told which run a session is of, for people who look for it there.
pub const KNOWS_RUNS: &str = "runs";

/// The feature of a device that answers `Ping` at once, whatever it is making.
pub const HAS_PULSE: &str = "pulse";

impl Capabilities {
    /// Whether the device may be told of jobs and of needs.
    #[must_use]
    pub fn shares_jobs(&self) -> bool {
        self.has(SHARES_JOBS)
    }

    /// Whether the device may be told which run a session is of.
    #[must_use]
    pub fn knows_runs(&self) -> bool {
        self.has(KNOWS_RUNS)
    }

    /// Whether the device may be asked if it is there.
    #[must_use]
    pub fn has_pulse(&self) -> bool {
        self.has(HAS_PULSE)
    }

    fn has(&self, wanted: &str) -> bool {
        self.features.iter().any(|feature| feature == wanted)
    }
}

/// Which job a session is of, and how much of a device the job gets next to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobTerms {
    /// Sessions with the same name, and of the same credential, are one job: its ranks.
    pub name: String,
    /// Each step doubles the job's part of the workers: -4 to 4.
    pub priority: i8,
    /// Its part of the workers, relative to the shares of other jobs: 1 to 100.
    pub share: u8,
}

/// Most bytes of a job's name.
pub const MAX_JOB_NAME_BYTES: usize = 64;

/// Highest priority; the lowest is the same below zero.
pub const MAX_PRIORITY: i8 = 4;

/// Largest share.
pub const MAX_SHARE: u8 = 100;

impl JobTerms {
    /// A job of this name with the priority 0 and the share 1.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), priority: 0, share: 1 }
    }

    /// The terms as a user gives them; what is left out is that of [`Self::named`]. `None` where there is
    /// no name.
    ///
    /// # Errors
    /// One line: which of them cannot be had, and what it may be.
    pub fn given(
        name: Option<String>,
        priority: Option<i64>,
        share: Option<u64>,
    ) -> Result<Option<Self>, String> {
        let Some(name) = name else {
            return match (priority, share) {
                (None, None) => Ok(None),
                _ => {
                    Err("a share or priority is of a job; give the job a name".to_owned())
                }
            };
        };
        let (priority, share) = (priority.unwrap_or(0), share.unwrap_or(1));
        let of = Self {
            name,
            // What is beyond these types is out of bounds, too.
            priority: i8::try_from(priority).unwrap_or(i8::MAX),
            share: u8::try_from(share).unwrap_or(u8::MAX),
        };
        of.checked().map(Some)
    }

    /// The terms, if they are within their bounds.
    ///
    /// # Errors
    /// One line: which of them is not, and what it may be.
    pub fn checked(self) -> Result<Self, String> {
        let Self { name, priority, share } = &self;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !(1..=MAX_JOB_NAME_BYTES).contains(&name.len()) || !name.bytes().all(is_plain)
        {
            return Err(format!(
                "the job's name is {name:?}; give 1 to {MAX_JOB_NAME_BYTES} letters, digits, dots, \
                 dashes or underscores"
            ));
        }
        if !(-MAX_PRIORITY..=MAX_PRIORITY).contains(priority) {
            return Err(format!(
                "the job's priority is {priority}; give -{MAX_PRIORITY} to {MAX_PRIORITY}"
            ));
        }
        if !(1..=MAX_SHARE).contains(share) {
            return Err(format!("the job's share is {share}; give 1 to {MAX_SHARE}"));
        }
        Ok(self)
    }
}

/// A session on the wire: drawn by the device at random when it opens one, never 0. What carries
/// another one is of an earlier session, or of another connection, and is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub u64);

/// Why a device does not take a host or a session now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// How long the host may wait before it tries again.
    pub retry: Duration,
    /// One line for the user.
    pub reason: String,
}

/// Records whose bytes a device is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// Seed of the digests, drawn for each inquiry: an answer cannot be prepared or repeated.
    pub seed: u64,
    /// The samples whose records are meant, at most [`MAX_INQUIRY_RECORDS`].
    ///
    /// [`MAX_INQUIRY_RECORDS`]: crate::wire::MAX_INQUIRY_RECORDS
    pub samples: Vec<SampleId>,
}

/// What a record's bytes are known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordDigest {
    /// Length of the record in bytes.
    pub len: u64,
    /// XXH3-128 of its bytes, with the inquiry's seed.
    pub hash: u128,
}

impl RecordDigest {
    /// Of a record's bytes.
    #[must_use]
    pub fn of(record: &[u8], seed: u64) -> Self {
        Self {
            len: record.len() as u64,
            hash: XxHash3_128::oneshot_with_seed(seed, record),
        }
    }
}

/// What both sides agree on before the first job. Control plane: sent once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The recipe as JSON, exactly as hashed.
    pub recipe: String,
    /// `Recipe::hash` of the host; a device with a different hash refuses.
    pub recipe_hash: u128,
    /// The run's seed.
    pub seed: u64,
    /// Bytes of one sample at the cut.
    pub sample_bytes: u32,
    /// Most samples any job of this session has.
    pub max_batch: u32,
    /// The extent table (`dataset::Table::encode`); paths are relative to the device's
    /// data root.
    pub manifest: Vec<u8>,
    /// The job that the session is of; `None`: one of its own. Only devices that
    /// [`Capabilities::shares_jobs`] are told.
    pub job: Option<JobTerms>,
    /// The run that the session is of, for logs and metrics. Only devices that
    /// [`Capabilities::knows_runs`] are told.
    pub run: Option<RunId>,
}

/// What a run is called wherever it leaves traces: 1 to 64 ASCII letters, digits, dots, dashes, underscores or
/// colons. It decides nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

/// Most bytes of a run's name.
pub const MAX_RUN_BYTES: usize = 64;

/// What a session is of, as its host calls it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Whose {
    /// The run.
    pub run: Option<RunId>,
    /// The job.
    pub job: Option<String>,
}

impl RunId {
    /// The name that comes nearest to what a launcher calls its job; `None` of an empty one.
    #[must_use]
    pub fn like(name: &str) -> Option<Self> {
        let plain = |c: char| if Self::may_have(c) { c } else { '_' };
        let like: String = name.chars().take(MAX_RUN_BYTES).map(plain).collect();
        (!like.is_empty()).then_some(Self(like))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn may_have(c: char) -> bool {
        c.is_ascii_alphanumeric() || "._-:".contains(c)
    }
}

impl TryFrom<String> for RunId {
    type Error = &'static str;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        let is_one =
            (1..=MAX_RUN_BYTES).contains(&name.len()) && name.chars().all(Self::may_have);
        if is_one { Ok(Self(name)) } else { Err("a run's name") }
    }
}

impl From<RunId> for String {
    fn from(run: RunId) -> Self {
        run.0
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The samples are made.
    Done {
        /// Bytes that follow the message, wherever the link has them.
        len: u64,
        /// XXH3-64 of the samples' bytes as the device made them. The host verifies.
        checksum: u64,
        /// Rows of the job whose samples could not be made, rising. Their bytes in the result
        /// are zero; the host redoes them to apply the bad-sample policy and to say what is
        /// wrong.
        bad: Vec<u32>,
        /// Rows that were made in spite of a damaged record, rising, and none of them bad: for
        /// the user to be told of. They are samples like any other.
        damaged: Vec<u32>,
    },
    /// The device would not or could not do the job; the batch goes back to the plan.
    Failed {
        /// One line for the user.
        reason: String,
    },
}

/// The answer to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The submission it answers.
    pub job: JobId,
    /// How it ended.
    pub ending: Ending,
    /// Nanoseconds from the device's start on the job to its end, as the device counts
    /// them (modelled time in an emulated device).
    pub device_ns: u64,
    /// Nanoseconds by which an emulated device missed its modelled end; 0 when on time.
    pub lateness_ns: u64,
}

/// What a device has counted since it started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceStats {
    /// Jobs finished.
    pub jobs: u64,
    /// Samples made.
    pub samples: u64,
    /// Jobs accepted and not finished.
    pub queued: u32,
    /// CPU seconds of the device process; `None` of a device that has no process, or does not say.
    pub cpu_seconds: Option<f64>,
    /// Bytes read from the device's media.
    pub media_read_bytes: u64,
    /// Seconds in which it had a job (modelled in an emulated device; by the host's clock of an NVMe drive, which
    /// counts nothing itself).
    pub busy_seconds: f64,
    /// Of a GPU: seconds in which kernels ran, by its own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_seconds: Option<f64>,
    /// Of the samples those that were taken from the results of another job, or of this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shared_samples: u64,
    /// Completions after their modelled time, and the largest such delay.
    pub late_completions: u64,
    /// Largest lateness in seconds.
    pub max_lateness_seconds: f64,
    /// Energy by domain in microjoules, with where the figure comes from.
    pub energy: Vec<EnergyReading>,
    /// Faults that an emulated device was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultCount>,
}

/// A fault that an emulated device was given, and how often it has struck.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultCount {
    /// As it is written: `die@50%`.
    pub fault: String,
    /// How often it has struck since the device was started.
    pub struck: u64,
    /// Of a fault that strikes at a part of an epoch: the batches that the device begins before.
    #[serde(default)]
    pub after: Option<u64>,
    /// The most batches of one epoch that the device has begun.
    pub begun: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One energy figure of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnergyReading {
    /// `device`, `nand`, `compute`, …
    pub domain: String,
    /// Microjoules since start.
    pub energy_uj: u64,
    /// `measured(…)` or `modelled(…)`.
    pub source: String,
}

/// How long a transport may wait for an answer on the control plane.
pub const CONTROL_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a result that arrive in a second over the slowest link that is worth having: 8.4 Mb/s, a batch of 256
/// `f32` samples in two and a half minutes.
const SLOWEST_LINK: u64 = 1 << 20;

/// By how much so many bytes of a result move its deadline on.
pub(crate) fn transfer_time(bytes: u64) -> Duration {
    Duration::from_micros(bytes.saturating_mul(1_000_000) / SLOWEST_LINK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_called_like_the_launchers_job() {
        let like = |name: &str| RunId::like(name).map(String::from);
        assert_eq!(like("4711").as_deref(), Some("4711"));
        assert_eq!(like("a \"b\"\né").as_deref(), Some("a__b___"));
        assert_eq!(like(""), None);
        assert_eq!(like(&"é".repeat(100)), Some("_".repeat(64)));
    }

    #[test]
    fn terms_out_of_bounds_are_named_with_their_bounds() {
        let of = |name: &str, priority, share| {
            JobTerms { name: name.to_owned(), priority, share }.checked()
        };
        assert_eq!(of("resnet-50.v2_a", -4, 100), of("resnet-50.v2_a", -4, 100));
        of("a", 4, 1).unwrap();
        for (name, priority, share, part) in [
            ("", 0, 1, "name is \"\"; give 1 to 64"),
            ("a b", 0, 1, "name is \"a b\""),
            ("é", 0, 1, "letters, digits"),
            ("a", 5, 1, "priority is 5; give -4 to 4"),
            ("a", -5, 1, "priority is -5"),
            ("a", 0, 0, "share is 0; give 1 to 100"),
            ("a", 0, 101, "share is 101"),
        ] {
            let said = of(name, priority, share).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
        of(&"a".repeat(64), 0, 1).unwrap();
        of(&"a".repeat(65), 0, 1).unwrap_err();
    }
}
