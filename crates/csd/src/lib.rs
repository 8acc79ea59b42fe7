//! The device interface: what host and device say to each other, and the ways to say it.
//!
//! A [`Transport`] carries jobs to a device and brings the results into their slots; [`Serve`] is the
//! device's side of the same conversation. This crate does not decode and does not spawn a thread. Read
//! `words/job.rs` first, then `host/loopback.rs`, the reference transport. `words/wire.rs` defines every
//! byte. A transport over a wire is a `Link` (`host/stream.rs`, `spool.rs`) below the common host side,
//! `host/remote.rs`; the device's side of both is the one loop of `device/serving.rs`. `channel.rs` is a
//! socket with what encrypts it, and `channel/security.rs` what both sides are told about whom to trust.

mod words;

mod host;

mod device;

mod channel;

mod socket;

pub mod spool;

pub mod conformance;

use std::error::Error;
use std::fmt::{Debug, Display};
use std::io;
use std::time::Duration;

use bothends_core::one_line_by;
use bothends_core::setting::{Names, NamesSettings, Setting};
use bothends_slots::{HostSlot, Producer};

pub use channel::security;
pub use channel::security::{Insecure, Security, TlsFiles};
pub use device::{
    Beneath, Links, RefusedLink, is_of_machine, keeps_its_number, listen, will_need,
    write_beside,
};
pub use host::connect::{ConnectOptions, connect, link};
pub use host::nvme::files as media_files;
pub use host::remote::Link;
pub use host::{connect, loopback, registry, remote, stream};
pub use words::address::Address;
pub use words::job::{
    Answer, Busy, Capabilities, DeviceStats, Ending, EnergyReading, FaultCount, Inquiry,
    JobTerms, PROTOCOL_VERSION, RecordDigest, RunId, Session, SessionId, Whose,
};
pub use words::trust::Remedy;
pub use words::{address, admission, job, key, member, pool, wire};
// What a job is, whoever makes it.
pub use bothends_slots::{Job, JobId};

/// A job that a device did not take; it comes back with its slot and the reason.
#[derive(Debug, thiserror::Error)]
#[error("the device did not take a job")]
pub struct Refused {
    /// The job, untouched.
    pub job: Job,
    /// Its slot, untouched.
    pub slot: HostSlot,
    /// Why.
    pub source: CsdError,
}

/// A device that has a host leaves others unanswered.
fn perhaps(doing: &str) -> &'static str {
    match doing {
        "hello" => "; it may be busy with another host",
        _ => "",
    }
}

/// What can go wrong between host and device, by what the caller does next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CsdError {
    /// The device is gone: give its claims back, use it no more.
    #[error("lost the device while doing `{doing}`")]
    LinkLost {
        /// The step that failed.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody answers at the address.
    #[error("cannot reach a device at {address}; is the agent running there?")]
    Unreachable {
        /// The address as given.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// No answer in time.
    #[error("the device did not answer `{doing}` within {waited:.0?}{}", perhaps(doing))]
    Timeout {
        /// The step that waited.
        doing: &'static str,
        /// For how long.
        waited: Duration,
    },
    /// The other side speaks another version.
    #[error(
        "the other side speaks protocol version {theirs}, this side version {ours}; \
         use the same release on both sides"
    )]
    Version {
        /// This side's.
        ours: u32,
        /// The other side's.
        theirs: u32,
    },
    /// A device of this machine cannot be used, in the words of whoever drives it.
    #[error(transparent)]
    Driver(Box<dyn Error + Send + Sync>),
    /// The device will not work with this session (recipe hash, missing op, unreadable data).
    #[error("the device refused the session: {reason}")]
    SessionRefused {
        /// The device's own words.
        reason: String,
    },
    /// The device's copy of the data set is not the host's.
    #[error(
        "the device has another copy of the data: {what}; synchronise its data root with the \
         host's"
    )]
    OtherData {
        /// The first record that differs, and in what.
        what: String,
    },
    /// The device has no room for another host, or not for this session: try again later.
    #[error("the device is busy: {reason}; it says to try again in {retry:.1?}")]
    Busy {
        /// The device's own words.
        reason: String,
        /// How long it wants to be left alone.
        retry: Duration,
    },
    /// All the device's job slots are taken: submit again after a completion.
    #[error("the device has no free job slot")]
    Full,
    /// Bytes that are not of this protocol: treat as a lost link.
    #[error("received bytes that do not follow this protocol: {what}")]
    Malformed {
        /// The field or rule that failed.
        what: &'static str,
    },
    /// A key is needed beyond this machine, or the key was wrong.
    #[error("{what}; give both sides the same key file")]
    Unauthenticated {
        /// What was missing.
        what: String,
    },
    /// The other side, or a file, cannot be trusted as it is, or the two sides do not agree on
    /// how to protect what they say.
    #[error("{}", self.with_names(Setting::key))]
    Untrusted {
        /// What was found.
        what: String,
        /// What the user can do.
        remedy: Remedy,
    },
    /// A device that cannot be used as it is, or is not the one that was meant.
    #[error("{what}; {remedy}")]
    Unfit {
        /// What it lacks.
        what: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// The device SPEC cannot be understood.
    #[error("cannot understand the device address `{address}`: {why}")]
    Address {
        /// As given.
        address: String,
        /// What is wrong and what is expected.
        why: String,
    },
    /// The device's own address or directory cannot be used.
    #[error("cannot {doing} `{place}`; is it free, writable and not full?")]
    Place {
        /// The step that failed.
        doing: &'static str,
        /// The address or path.
        place: String,
        /// What the system said.
        source: io::Error,
    },
    /// Something of others is where something of ours belongs. It was left alone.
    #[error("`{place}` does not belong to a spool, so it is left as it is; {remedy}")]
    Foreign {
        /// Its path.
        place: String,
        /// What the user can do.
        remedy: &'static str,
    },
}

impl NamesSettings for CsdError {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others name no setting")]
    fn with_names(&self, name: Names) -> String {
        match self {
            Self::Untrusted { what, remedy } => format!("{what}; {}", remedy.words(name)),
            other => other.to_string(),
        }
    }
}

/// An error and its causes in one line, with the names that a program uses for the settings.
#[must_use]
pub fn one_line_with(error: &(dyn Error + 'static), name: Names) -> String {
    one_line_by(error, |error| match error.downcast_ref::<CsdError>() {
        Some(ours) => ours.with_names(name),
        None => error.to_string(),
    })
}

impl CsdError {
    /// A link that failed while doing this, for `map_err`. Where a channel knows better why, that.
    fn lost(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| match source.downcast() {
            Ok(known) => known,
            Err(source) => Self::LinkLost { doing, source },
        }
    }

    /// A place of the device's own that failed, for `map_err`. The place is written only if it did.
    fn at(doing: &'static str, place: impl Display) -> impl Fn(io::Error) -> Self {
        move |source| Self::Place { doing, place: place.to_string(), source }
    }
}

/// The host's end of a device: a producer with which a session must be agreed first.
///
/// # Contract
///
/// 1. `hello` comes first, then `open`, then jobs. `open` may be called again (next run); it
///    abandons what is under way.
/// 2. [`Producer`]'s contract; at most [`Capabilities::slots`] jobs at a time. A device may
///    answer late, or twice: what answers no job under way is [`Polled::Extra`], and what is
///    of an earlier session is not heard at all.
/// 3. No call blocks longer than its timeout ([`job::CONTROL_TIMEOUT`] where none is given), and a result that is
///    arriving longer than a second for each MiB of it.
/// 4. After [`CsdError::LinkLost`] or [`CsdError::Malformed`] every call fails the same way.
/// 5. Dropping a transport tells the device that the host is gone.
///
/// `conformance` holds these as callable checks.
///
/// [`Polled::Extra`]: bothends_slots::Polled::Extra
pub trait Transport: Producer {
    /// Exchanges versions and learns what the device can do.
    ///
    /// # Errors
    /// [`CsdError::Version`], [`CsdError::Unauthenticated`], [`CsdError::Untrusted`],
    /// [`CsdError::Timeout`], [`CsdError::LinkLost`].
    fn hello(&mut self) -> Result<Capabilities, CsdError>;

    /// Agrees on recipe, data and seed.
    ///
    /// # Errors
    /// [`CsdError::SessionRefused`] with the device's reason, [`CsdError::Busy`]; link errors.
    fn open(&mut self, session: &Session) -> Result<(), CsdError>;

    /// Asks what the device's copies of some records of the open session are: a digest for
    /// each, `None` for one that it cannot read. The outer `None` is from a device that reads the
    /// host's own files and has no copies.
    ///
    /// # Errors
    /// Link errors; [`CsdError::Timeout`]; [`CsdError::Malformed`] for an answer of a different length.
    fn attest(
        &mut self,
        inquiry: &Inquiry,
    ) -> Result<Option<Vec<Option<RecordDigest>>>, CsdError> {
        let _ = inquiry;
        Ok(None)
    }

    /// Asks what the device has counted.
    ///
    /// # Errors
    /// Link errors; [`CsdError::Timeout`].
    fn stats(&mut self) -> Result<DeviceStats, CsdError>;
}

/// A finished job on the device's side, with the slot that came with it.
#[derive(Debug)]
pub struct Finished {
    /// The submission.
    pub job: JobId,
    /// The job's slot. The samples are in it where `result` says so.
    pub slot: HostSlot,
    /// What was made, or one line that says why nothing was.
    pub result: Result<Product, String>,
    /// As in [`Answer::device_ns`].
    pub device_ns: u64,
    /// As in [`Answer::lateness_ns`].
    pub lateness_ns: u64,
}

/// A batch as the device made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Product {
    /// The samples, back to back: so many bytes from the start of the slot.
    pub len: usize,
    /// XXH3-64 of those bytes, taken when they were made.
    pub checksum: u64,
    /// Rows whose samples could not be made, rising; their bytes are zero.
    pub bad: Vec<u32>,
    /// Rows that were made in spite of a damaged record, rising, and none of them bad.
    pub damaged: Vec<u32>,
}

/// Why a device did not take a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Declined {
    /// It never will: one line for the host's user.
    Refused(String),
    /// It has no room now.
    Busy(Busy),
}

impl From<String> for Declined {
    fn from(reason: String) -> Self {
        Self::Refused(reason)
    }
}

impl From<Declined> for CsdError {
    fn from(declined: Declined) -> Self {
        match declined {
            Declined::Refused(reason) => Self::SessionRefused { reason },
            Declined::Busy(Busy { retry, reason }) => Self::Busy { reason, retry },
        }
    }
}

/// The device's end: what a listener (or `loopback`) drives. The counterpart of [`Producer`]:
/// here, too, the destination travels with the work.
///
/// # Contract
///
/// `open` before `submit`; `submit` returns at once (work happens on the implementer's own
/// threads or inside `poll`); `poll` waits up to its timeout for any finished job. Every job
/// is answered, with its own slot, a revoked one too: by this the host knows that the device
/// lives and has room. Only a job that was forgotten, or dropped by `open` or `close`, is not;
/// its slot is dropped as soon as nothing writes to it any more.
pub trait Serve: Send + Debug {
    /// What this device is and can do.
    fn hello(&mut self) -> Capabilities;

    /// Takes a session, replacing the one before.
    ///
    /// # Errors
    /// Why not, and whether it is worth trying again.
    fn open(&mut self, session: Session) -> Result<(), Declined>;

    /// Digests of records of the open session, in the order of the inquiry; `None` for one that
    /// cannot be read. Reads them, and blocks for that long.
    ///
    /// # Errors
    /// One line for the host's user: there is no session, or no such sample, or the store that the device reads
    /// does not give it.
    fn attest(&mut self, inquiry: &Inquiry) -> Result<Vec<Option<RecordDigest>>, String>;

    /// Queues a job, to be made in `slot`.
    ///
    /// # Errors
    /// The job comes back when all places are taken or no session is open.
    fn submit(&mut self, job: Job, slot: HostSlot) -> Result<(), Box<Refused>>;

    /// Waits up to `timeout` for a finished job.
    fn poll(&mut self, timeout: Duration) -> Option<Finished>;

    /// A job is not wanted any more: if it has not started it is answered at once, as failed.
    fn revoke(&mut self, job: JobId);

    /// Nobody waits for a job's answer, and none is given.
    fn forget(&mut self, job: JobId);

    /// What has been counted since start.
    fn stats(&mut self) -> DeviceStats;

    /// What the latest session is of, for logs.
    fn whose(&self) -> Whose {
        Whose::default()
    }

    /// The host is gone: drop queued jobs and finished results with their slots.
    fn close(&mut self);
}
