//! What a job costs: the second interface of the agent.
//!
//! The server does a job for real and then asks what it cost. On a real device the answer is what the
//! clock says ([`NoCosts`]). An emulated device answers from its models and may hold back the finished job
//! until its modelled end. Nothing here waits; `server.rs` does.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::time::Instant;

use bothends_core::sample::Extent;
use bothends_csd::EnergyReading;

/// Reads the CPU time of the calling thread in nanoseconds.
pub type ThreadClock = fn() -> u64;

/// One sample as it was made, as far as a cost model may care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleWork {
    /// What was read.
    pub extent: Extent,
    /// Pixels of the source image; 0 when the record has none or could not be read.
    pub source_pixels: u64,
    /// CPU time of the worker for this sample, by [`Costs::thread_clock`].
    pub cpu_ns: u64,
    /// Bytes of the result.
    pub output_bytes: u32,
}

/// A job as it was done. Times are nanoseconds since the server started.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a> {
    /// When the job was taken.
    pub arrival_ns: u64,
    /// When its first sample was begun, or the job before it was made: the later of both.
    pub start_ns: u64,
    /// When its last sample was made.
    pub end_ns: u64,
    /// Its samples, in slot order.
    pub samples: &'a [SampleWork],
}

/// Whether a finished job waits for its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// It is answered as soon as it is made.
    No,
    /// It is answered at `Cost::end_ns`, or at once, and counted as late, after that.
    UntilEnd,
}

/// What a job cost, in nanoseconds since the server started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// When the job began to occupy the device: not before the end of the job before it.
    pub start_ns: u64,
    /// When its result was, or shall be, with the host.
    pub end_ns: u64,
    /// Whether the answer waits for `end_ns`.
    pub hold: Hold,
}

/// A model of what work costs.
///
/// # Contract
///
/// `job` is called once per finished job, in the order in which the jobs were taken; its
/// answer depends on the calls so far and on nothing else (no clock, no random number).
/// `energy` may be called at any time and never falls.
pub trait Costs: Send + Debug {
    /// The clock by which [`SampleWork::cpu_ns`] is taken; called on worker threads.
    fn thread_clock(&self) -> ThreadClock;

    /// The clock by which hosts share the workers; called on worker threads, before and after a
    /// sample. It is the wall's: a worker that waits for one host's data is of no use to another.
    fn share_clock(&self) -> ThreadClock {
        wall_ns
    }

    /// What a job cost.
    fn job(&mut self, work: &Work<'_>) -> Cost;

    /// Energy by domain from the start until `now_ns`; empty when nothing is known.
    fn energy(&mut self, now_ns: u64) -> Vec<EnergyReading>;
}

impl<C: Costs + ?Sized> Costs for Box<C> {
    fn thread_clock(&self) -> ThreadClock {
        (**self).thread_clock()
    }

    fn share_clock(&self) -> ThreadClock {
        (**self).share_clock()
    }

    fn job(&mut self, work: &Work<'_>) -> Cost {
        (**self).job(work)
    }

    fn energy(&mut self, now_ns: u64) -> Vec<EnergyReading> {
        (**self).energy(now_ns)
    }
}

/// Nanoseconds since the first call in this process.
fn wall_ns() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let since = FIRST.get_or_init(Instant::now).elapsed();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A device that is what it is: a job cost the time it took, and energy is for a meter.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCosts;

impl Costs for NoCosts {
    fn thread_clock(&self) -> ThreadClock {
        || 0
    }

    fn job(&mut self, work: &Work<'_>) -> Cost {
        Cost { start_ns: work.start_ns, end_ns: work.end_ns, hold: Hold::No }
    }

    fn energy(&mut self, _now_ns: u64) -> Vec<EnergyReading> {
        Vec::new()
    }
}
