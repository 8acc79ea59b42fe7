//! Reaching devices: at the start, and in the background for as long as one is missing.
//!
//! A device that cannot be reached, refuses the session or is lost is a fault, which costs the
//! run nothing but the device; a wrong key or another version is a mistake that waiting does not
//! mend. What is done with a connected device is `devices/thread.rs`'s.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use bothends_core::recipe::Recipe;
use bothends_csd::address::Address;
use bothends_csd::connect::{ConnectOptions, connect};
use bothends_csd::{Capabilities, CsdError, JobTerms, Session, Transport};
use bothends_gpu::driver::Driver;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::collect::collector::Command;
use crate::collect::producer::{Joined, Joins};
use crate::collect::wakeup::Bell;
use crate::devices::attest::{Suspects, attest};
use crate::devices::gpu::GpuReach;
use crate::devices::presence::Presence;
use crate::devices::thread::{ProducerLoop, threaded};
use crate::devices::trust::Reads;
use crate::error::RuntimeError;
use crate::read::source::Source;
use crate::run::id::run_id;
use crate::runtime::engine::spawn;
use crate::threads::shutdown::{PATIENCE, Stop};
use crate::threads::times::Meter;

/// The pause before a missing device is tried again; each is twice the one before, up to the
/// longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long opening waits for a device to say hello. One that is well takes milliseconds; one that
/// takes longer joins when it has said it.
pub(crate) const FIRST_WAIT: Duration = Duration::from_secs(2);

/// How long opening waits for members of a pool after the last of them that has answered or failed. Some
/// are often gone, and then each run would begin [`FIRST_WAIT`] later.
pub(crate) const QUIET: Duration = Duration::from_secs(1);

/// How long it waits for a device that has opened its session to show that its data are the host's,
/// whenever that was.
const SOON: Duration = Duration::from_secs(2);

/// The way to a device.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// It listens at this address.
    To(Address, ConnectOptions),
    /// It is a GPU of this machine.
    Gpu(GpuReach),
}

/// How to reach one device.
#[derive(Debug, Clone)]
pub(crate) struct Reach {
    pub(crate) way: Way,
    pub(crate) source: Arc<Source>,
    pub(crate) recipe: Recipe,
    pub(crate) batch_size: u32,
    pub(crate) job: Option<JobTerms>,
    pub(crate) suspects: Suspects,
}

/// A device that is connected and has taken the session.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) capabilities: Capabilities,
    pub(crate) reads: Reads,
    /// Of a GPU: its driver, for whoever else works with it.
    pub(crate) gpu: Option<Arc<dyn Driver>>,
}

impl Reach {
    /// Whether one that was lost is reached again, or one that was not there. A GPU is not: its driver
    /// is there or is not for as long as the process lives.
    pub(crate) fn may_come_back(&self) -> bool {
        matches!(self.way, Way::To(..))
    }

    /// Counts what a device of this process reads from storage; others read at their own end.
    pub(crate) fn read_bytes(&self) -> Arc<AtomicU64> {
        match &self.way {
            Way::To(..) => Arc::default(),
            Way::Gpu(reach) => Arc::clone(&reach.read_bytes),
        }
    }

    /// Connects, agrees on the session and holds the device's data against the host's. Blocks up to the transport's deadlines, or for as long as
    /// the system takes to look a name up, or a driver to open a GPU.
    ///
    /// # Errors
    /// Whatever the device or the link says.
    fn once(
        &self,
        greeted: impl FnOnce(),
        opened: impl FnOnce(),
    ) -> Result<Reached, CsdError> {
        let Self { way, source, recipe, batch_size, job, suspects } = self;
        let (mut transport, gpu): (Box<dyn Transport>, _) = match way {
            Way::To(address, options) => (connect(address, options)?, None),
            Way::Gpu(reach) => {
                let device = reach.open(source, recipe, *batch_size)?;
                let driver = device.driver();
                (Box::new(device), Some(driver))
            }
        };
        let capabilities = transport.hello()?;
        greeted();
        let mut reads = Reads::HostFiles;
        if gpu.is_none() {
            transport.open(&session(source, recipe, *batch_size, job.clone()))?;
            opened();
            reads = attest(&mut *transport, source, suspects)?;
        }
        Ok(Reached { transport, capabilities, reads, gpu })
    }

    /// As [`Self::once`], for whoever waits for nothing in between.
    ///
    /// # Errors
    /// As [`Self::once`].
    pub(crate) fn now(&self) -> Result<Reached, CsdError> {
        self.once(|| (), || ())
    }

    /// Begins to reach it, on a thread of its own.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(crate) fn begin(&self) -> Result<Try, RuntimeError> {
        let (greets, greeted) = bounded(1);
        let (opens, opened) = bounded(1);
        let (tells, reached) = bounded(1);
        let reach = self.clone();
        let body = move || {
            // Nobody need wait for any of them.
            let greet = move || {
                let _ = greets.send(());
            };
            let open = move || {
                let _ = opens.send(());
            };
            let result = reach.once(greet, open);
            let _ = tells.send(result);
        };
        spawn(&Stop::default(), "reach", body)?;
        Ok(Try { greeted, opened, reached })
    }
}

/// A try to reach a device. Its thread ends by the transport's deadlines, whether or not anybody
/// still wants to know.
#[derive(Debug)]
pub(crate) struct Try {
    greeted: Receiver<()>,
    opened: Receiver<()>,
    reached: Receiver<Result<Reached, CsdError>>,
}

/// What has come of a try that is not waited for forever.
#[derive(Debug)]
pub(crate) enum Outcome {
    Ended(Box<Result<Reached, CsdError>>),
    /// The device has not answered this yet.
    StillAt(&'static str),
}

impl Try {
    /// What comes of it, however long that takes.
    pub(crate) fn ends(self) -> Result<Result<Reached, CsdError>, RuntimeError> {
        self.reached.recv().map_err(|_| RuntimeError::Thread { thread: "reach" })
    }

    /// What comes of it where the device has said hello and shown its data by then. One that is
    /// greeted opens its session soon, or never.
    ///
    /// # Errors
    /// The thread has died.
    pub(crate) fn by(&self, by: Instant) -> Result<Outcome, RuntimeError> {
        if self.greeted.recv_deadline(by) == Err(RecvTimeoutError::Timeout) {
            return Ok(Outcome::StillAt("hello"));
        }
        // Nothing is sent where that fails, or nothing is opened.
        let _ = self.opened.recv();
        match self.reached.recv_deadline(by.max(Instant::now() + SOON)) {
            Ok(reached) => Ok(Outcome::Ended(Box::new(reached))),
            Err(RecvTimeoutError::Timeout) => Ok(Outcome::StillAt("attest")),
            Err(RecvTimeoutError::Disconnected) => {
                Err(RuntimeError::Thread { thread: "reach" })
            }
        }
    }
}

/// What a device is told of the run.
pub(crate) fn session(
    source: &Source,
    recipe: &Recipe,
    batch_size: u32,
    job: Option<JobTerms>,
) -> Session {
    let sample_bytes = source.pipeline.sample_bytes();
    Session {
        recipe: recipe.to_json(),
        recipe_hash: recipe.hash(),
        seed: source.seed,
        sample_bytes: u32::try_from(sample_bytes).unwrap_or(u32::MAX),
        max_batch: batch_size,
        manifest: source.manifest(),
        job,
        run: Some(run_id().clone()),
    }
}

/// Whether it may be otherwise later. A name that no resolver knows is a typing error, and so is
/// what the two sides were told about each other.
pub(crate) fn may_come(error: &CsdError) -> bool {
    if let CsdError::Unreachable { source, .. } = error {
        let why = source.to_string();
        return !["not known", "does not resolve"].iter().any(|part| why.contains(part));
    }
    matches!(
        error,
        CsdError::LinkLost { .. }
            | CsdError::Timeout { .. }
            | CsdError::Busy { .. }
            | CsdError::Driver(_)
            | CsdError::SessionRefused { .. }
            | CsdError::OtherData { .. }
            | CsdError::Malformed { .. }
            | CsdError::Place { .. }
    )
}

/// How long a device is left alone after that: as long as it asks for, within reason.
fn asked_pause(error: &CsdError) -> Option<Duration> {
    let CsdError::Busy { retry, .. } = error else { return None };
    Some((*retry).clamp(FIRST_PAUSE, LONGEST_PAUSE))
}

/// A device's thread that serves it while it is there and reaches it where it is not.
#[derive(Debug)]
pub(crate) struct Awaiting {
    pub(crate) reach: Reach,
    /// A try that was begun and has not come to its end.
    pub(crate) begun: Option<Try>,
    pub(crate) entrance: Entrance,
}

/// Where a device that is there is handed to the collector.
#[derive(Debug)]
pub(crate) struct Entrance {
    pub(crate) presence: Presence,
    /// The collector's line to it.
    pub(crate) line: usize,
    pub(crate) commands: Sender<Command>,
    pub(crate) bell: Bell,
    pub(crate) meter: Arc<Meter>,
    pub(crate) stop: Stop,
}

impl Awaiting {
    /// The loop of the thread, until it is told to stop; `first` serves a device that is there.
    /// Gives the way to the device back, or why there is none.
    pub(crate) fn run(
        mut self,
        mut first: Option<ProducerLoop>,
    ) -> Result<Box<dyn Transport>, String> {
        let mut pause = FIRST_PAUSE;
        let mut asked = None;
        if let Some(begun) = self.begun.take() {
            (first, asked) = self.settle(&begun);
        }
        loop {
            let began = Instant::now();
            if let Some(serving) = first.take() {
                let served = serving.run();
                if self.entrance.stop.is_set() {
                    return served;
                }
                if self.entrance.presence.is_expelled() {
                    return Err("it has lied".to_owned());
                }
                let why = served.err();
                let why = why.unwrap_or_else(|| "its jobs failed".to_owned());
                self.entrance.presence.is_missing(why);
            }
            // One that was well for long is not made to wait for how it was before.
            if began.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            if !self.waits(asked.unwrap_or(pause)) {
                return Err("the run ended before it was there".to_owned());
            }
            // One that says when to come back is there, and no harder to reach than before.
            if asked.is_none() {
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            (first, asked) = self.served(self.reach.now());
        }
    }

    /// Waits for what comes of a try, unless it is to end.
    fn settle(&self, begun: &Try) -> (Option<ProducerLoop>, Option<Duration>) {
        while !self.entrance.stop.is_set() {
            match begun.reached.recv_timeout(PATIENCE) {
                Ok(reached) => return self.served(reached),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        (None, None)
    }

    /// What serves it, or how long it asked to be left alone.
    fn served(
        &self,
        reached: Result<Reached, CsdError>,
    ) -> (Option<ProducerLoop>, Option<Duration>) {
        let presence = &self.entrance.presence;
        match reached {
            Ok(reached) => (Some(self.entrance.join(reached, Joins::Again)), None),
            Err(error) if may_come(&error) => {
                presence.is_missing(presence.line(&error));
                (None, asked_pause(&error))
            }
            Err(error) => {
                presence.is_mistaken(presence.line(&error));
                (None, None)
            }
        }
    }

    /// Waits for so long; false where it is to end.
    fn waits(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        while !self.entrance.stop.is_set() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(PATIENCE));
        }
        false
    }
}

impl Entrance {
    /// Gives the collector a line to it.
    pub(crate) fn join(&self, reached: Reached, joins: Joins) -> ProducerLoop {
        let Reached { transport, capabilities, reads, .. } = reached;
        self.presence.is_here(capabilities, reads);
        let depth = self.presence.depth();
        let ends = (self.bell.clone(), Arc::clone(&self.meter), self.stop.clone());
        let (ours, its) = threaded(transport, depth, ends);
        self.presence.counted_by(ours.counter());
        let joined = Joined { depth, joins, connection: self.presence.connection() };
        // A collector that is gone ends this thread, too: it holds the other end.
        let _ = self.commands.send(Command::Join(self.line, Box::new(ours), joined));
        self.bell.ring();
        its
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use bothends_csd::Remedy;

    use super::*;

    #[test]
    fn a_fault_may_pass_and_a_mistake_does_not() {
        let unreachable = |source: io::Error| CsdError::Unreachable {
            address: "tcp://nas:7070".to_owned(),
            source,
        };
        assert!(may_come(&unreachable(io::ErrorKind::ConnectionRefused.into())));
        assert!(may_come(&unreachable(io::ErrorKind::NotFound.into())));
        let lookup = "failed to lookup address information: ";
        let name = |why: &str| unreachable(io::Error::other(format!("{lookup}{why}")));
        assert!(may_come(&name("Temporary failure in name resolution")));
        assert!(!may_come(&name("Name or service not known")));
        let what = "the host has another key".to_owned();
        assert!(!may_come(&CsdError::Unauthenticated { what }));
        let (what, remedy) = ("no certificate".to_owned(), Remedy::GiveCertificates);
        assert!(!may_come(&CsdError::Untrusted { what, remedy }));
        assert!(!may_come(&CsdError::Version { ours: 1, theirs: 2 }));
        // Of a GPU that is missing the run says so, and goes on.
        assert!(may_come(&CsdError::Driver("no usable GPU".into())));
        assert!(may_come(&CsdError::SessionRefused { reason: "no data".to_owned() }));
    }

    #[test]
    fn a_busy_device_is_left_alone_for_as_long_as_it_asks() {
        let busy = |retry| CsdError::Busy { reason: "full".to_owned(), retry };
        assert!(may_come(&busy(FIRST_PAUSE)));
        let five = Duration::from_secs(5);
        assert_eq!(asked_pause(&busy(five)), Some(five));
        assert_eq!(asked_pause(&busy(Duration::ZERO)), Some(FIRST_PAUSE));
        assert_eq!(asked_pause(&busy(Duration::MAX)), Some(LONGEST_PAUSE));
        let lost = CsdError::SessionRefused { reason: "no data".to_owned() };
        assert_eq!(asked_pause(&lost), None);
    }
}
