//! The header of a message: its fields, their places and its check.
//!
//! `wire.rs` has the table of them and what the bodies are.

use twox_hash::XxHash3_64;

use crate::CsdError;
use crate::words::job::{PROTOCOL_VERSION, SessionId};

/// Bytes of every header.
pub const HEADER_BYTES: usize = 80;
/// Most samples of one job.
pub const MAX_JOB_SAMPLES: u32 = 1 << 16;
/// Most records of one inquiry.
pub const MAX_INQUIRY_RECORDS: u32 = 1 << 10;
/// Most bytes of a reason.
pub const MAX_REASON_BYTES: u32 = 4096;
/// Most bytes of an address that is announced.
pub(super) const MAX_ADDRESS_BYTES: u32 = 1024;
/// Most bytes of a JSON body.
pub const MAX_JSON_BYTES: u32 = 1 << 20;
/// Most bytes of a list of members.
pub const MAX_LIST_BYTES: u32 = 4 << 20;
/// Most bytes of a session with its manifest.
pub const MAX_SESSION_BYTES: u32 = 1 << 30;

/// Bytes of one record in the body of `Attested`.
pub(super) const DIGEST_BYTES: u32 = 24;

const MAGIC: [u8; 4] = *b"BEND";

/// Kinds of messages; the numbers are the wire's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Greet = 1,
    Challenge = 2,
    Prove = 3,
    Refused = 4,
    Hello = 5,
    Welcome = 6,
    Open = 7,
    Opened = 8,
    Job = 9,
    Done = 10,
    Failed = 11,
    Revoke = 12,
    AskStats = 13,
    Stats = 14,
    Busy = 15,
    Attest = 16,
    Attested = 17,
    Ping = 18,
    Pong = 19,
    Announce = 20,
    Announced = 21,
    AskMembers = 22,
    Members = 23,
}

impl Kind {
    const ALL: [Self; 23] = [
        Self::Greet,
        Self::Challenge,
        Self::Prove,
        Self::Refused,
        Self::Hello,
        Self::Welcome,
        Self::Open,
        Self::Opened,
        Self::Job,
        Self::Done,
        Self::Failed,
        Self::Revoke,
        Self::AskStats,
        Self::Stats,
        Self::Busy,
        Self::Attest,
        Self::Attested,
        Self::Ping,
        Self::Pong,
        Self::Announce,
        Self::Announced,
        Self::AskMembers,
        Self::Members,
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Whether it says something within a session.
    fn is_of_session(self) -> bool {
        matches!(
            self,
            Self::Opened
                | Self::Job
                | Self::Done
                | Self::Failed
                | Self::Revoke
                | Self::Attest
                | Self::Attested
        )
    }

    fn max_body_bytes(self) -> u32 {
        match self {
            Self::Hello
            | Self::Opened
            | Self::Revoke
            | Self::AskStats
            | Self::Ping
            | Self::Pong
            | Self::Announced
            | Self::AskMembers => 0,
            Self::Greet | Self::Prove => 32,
            Self::Challenge => 64,
            Self::Refused | Self::Failed | Self::Busy => MAX_REASON_BYTES,
            Self::Welcome | Self::Stats => MAX_JSON_BYTES,
            Self::Announce => MAX_ADDRESS_BYTES,
            Self::Members => MAX_LIST_BYTES,
            Self::Open => MAX_SESSION_BYTES,
            Self::Job => 8 * MAX_JOB_SAMPLES,
            Self::Done => 4 * MAX_JOB_SAMPLES,
            Self::Attest => 8 * MAX_INQUIRY_RECORDS,
            Self::Attested => DIGEST_BYTES * MAX_INQUIRY_RECORDS,
        }
    }
}

/// A header that has been checked: magic, version, kind, bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub(super) kind: Kind,
    pub(super) body_bytes: u32,
    pub(super) session: u64,
    pub(super) job: u64,
    pub(super) payload_bytes: u64,
    pub(super) body_checksum: u64,
    /// Of the payload; the seed in an inquiry.
    pub(super) checksum: u64,
    pub(super) time_ns: u64,
    /// Of an answer; in a job the time until it is needed.
    pub(super) lateness_ns: u64,
    pub(super) n_samples: u32,
}

impl Header {
    pub(super) fn of(kind: Kind) -> Self {
        Self {
            kind,
            body_bytes: 0,
            session: 0,
            job: 0,
            payload_bytes: 0,
            body_checksum: 0,
            checksum: 0,
            time_ns: 0,
            lateness_ns: 0,
            n_samples: 0,
        }
    }

    pub(super) fn in_session(kind: Kind, session: SessionId) -> Self {
        Self { session: session.0, ..Self::of(kind) }
    }

    pub(super) fn session(&self) -> SessionId {
        SessionId(self.session)
    }

    /// Bytes that follow the header and belong to the message.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.body_bytes as usize
    }

    /// Whether it is of a message that asks a registry for something.
    pub(crate) fn asks_registry(&self) -> bool {
        matches!(self.kind, Kind::Announce | Kind::AskMembers)
    }

    /// Bytes that follow the message: the samples of a finished job.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
        };
        put(0, &MAGIC);
        put(4, &PROTOCOL_VERSION.to_le_bytes());
        put(8, &[self.kind as u8]);
        put(12, &self.body_bytes.to_le_bytes());
        put(16, &self.session.to_le_bytes());
        put(24, &self.job.to_le_bytes());
        put(32, &self.payload_bytes.to_le_bytes());
        put(40, &self.body_checksum.to_le_bytes());
        put(48, &self.checksum.to_le_bytes());
        put(56, &self.time_ns.to_le_bytes());
        put(64, &self.lateness_ns.to_le_bytes());
        put(72, &self.n_samples.to_le_bytes());
        let check = check_of(&bytes);
        bytes[CHECKED_BYTES..].copy_from_slice(&check);
        bytes
    }

    /// Whether what has come of a header can be one of this version: of another one it may never
    /// be as long as this.
    ///
    /// # Errors
    /// As [`Self::decode`], of magic number and version.
    pub fn check_start(bytes: &[u8]) -> Result<(), CsdError> {
        let Some((start, _)) = bytes.split_first_chunk::<8>() else { return Ok(()) };
        if start[..4] != MAGIC {
            return Err(CsdError::Malformed { what: "the magic number" });
        }
        let theirs = u32::from_le_bytes(array(start, 4));
        match theirs == PROTOCOL_VERSION {
            true => Ok(()),
            false => Err(CsdError::Version { ours: PROTOCOL_VERSION, theirs }),
        }
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`CsdError::Version`] for another version of this protocol, else
    /// [`CsdError::Malformed`].
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, CsdError> {
        let malformed = |what| Err(CsdError::Malformed { what });
        Self::check_start(bytes)?;
        if bytes[CHECKED_BYTES..] != check_of(bytes) {
            return malformed("the header's check");
        }
        let Some(kind) = Kind::from_byte(bytes[8]) else {
            return malformed("the kind of message");
        };
        let header = Self {
            kind,
            body_bytes: u32::from_le_bytes(array(bytes, 12)),
            session: u64::from_le_bytes(array(bytes, 16)),
            job: u64::from_le_bytes(array(bytes, 24)),
            payload_bytes: u64::from_le_bytes(array(bytes, 32)),
            body_checksum: u64::from_le_bytes(array(bytes, 40)),
            checksum: u64::from_le_bytes(array(bytes, 48)),
            time_ns: u64::from_le_bytes(array(bytes, 56)),
            lateness_ns: u64::from_le_bytes(array(bytes, 64)),
            n_samples: u32::from_le_bytes(array(bytes, 72)),
        };
        if bytes[9..12] != [0; 3] {
            return malformed("the reserved bytes of the header");
        }
        if header.body_bytes > kind.max_body_bytes() {
            return malformed("the length of the body");
        }
        if header.payload_bytes != 0 && kind != Kind::Done {
            return malformed("a payload where there is none");
        }
        if kind.is_of_session() != (header.session != 0) {
            return malformed(
                "a session where there is none, or none where there is one",
            );
        }
        Ok(header)
    }
}

/// Bytes of a header before its check.
const CHECKED_BYTES: usize = HEADER_BYTES - 4;

fn check_of(header: &[u8; HEADER_BYTES]) -> [u8; 4] {
    array(&XxHash3_64::oneshot(&header[..CHECKED_BYTES]).to_le_bytes(), 0)
}

/// `N` bytes from `at`, which the caller knows to be there.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}
