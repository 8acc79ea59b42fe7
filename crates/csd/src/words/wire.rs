//! The bytes of every message, in both directions and on every link.
//!
//! A message is a header of 64 bytes and a body; a finished job's samples (the *payload*)
//! follow the body and are never part of the message. All numbers are little endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `BEND` |
//! | 4 | 4 | protocol version |
//! | 8 | 1 | kind |
//! | 9 | 3 | zero |
//! | 12 | 4 | length of the body in bytes |
//! | 16 | 8 | job |
//! | 24 | 8 | length of the payload in bytes (`Done`, else 0) |
//! | 32 | 8 | XXH3-64 of the payload (`Done`), of the body (other kinds) |
//! | 40 | 8 | device time in ns (`Done`, `Failed`); epoch and batch, 4 bytes each (`Job`) |
//! | 48 | 8 | lateness in ns (`Done`, `Failed`) |
//! | 56 | 4 | number of samples (`Job`) |
//! | 60 | 4 | low half of the XXH3-64 of bytes 0 to 59 |
//!
//! The body is: 8 bytes per sample id (`Job`), 4 bytes per bad row, ascending (`Done`),
//! UTF-8 (`Failed`, `Refused`), JSON (`Welcome`, `Stats`), length of the JSON in 4 bytes,
//! JSON, manifest (`Open`), nonce and proof (`Greet`, `Challenge`, `Prove`).
//!
//! Magic and version keep their places in every version. Every length is checked against a
//! bound of its kind before anything is allocated. Nothing here reads or writes a file or
//! socket.

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_slots::{Job, JobId};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::CsdError;
use crate::words::job::{
    Answer, Capabilities, DeviceStats, Ending, PROTOCOL_VERSION, Session,
};
use crate::words::key::{Nonce, Proof};

/// Bytes of every header.
pub const HEADER_BYTES: usize = 64;
/// Most samples of one job.
pub const MAX_JOB_SAMPLES: u32 = 1 << 16;
/// Most bytes of a reason.
pub const MAX_REASON_BYTES: u32 = 4096;
/// Most bytes of a JSON body.
pub const MAX_JSON_BYTES: u32 = 1 << 20;
/// Most bytes of a session with its manifest.
pub const MAX_SESSION_BYTES: u32 = 1 << 30;

const MAGIC: [u8; 4] = *b"BEND";

/// What one side says to the other.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Host: the first message of a connection.
    Greet {
        /// The host's nonce.
        nonce: Nonce,
    },
    /// Device: its answer.
    Challenge {
        /// The device's nonce.
        nonce: Nonce,
        /// Given when the device has a key.
        proof: Option<Proof>,
    },
    /// Host: the end of the key exchange.
    Prove {
        /// Given when the host has a key.
        proof: Option<Proof>,
    },
    /// Device: no, and why. Ends a key exchange, or answers `Open`.
    Refused {
        /// One line for the user.
        reason: String,
    },
    /// Host: who are you?
    Hello,
    /// Device: this.
    Welcome(Capabilities),
    /// Host: work on this.
    Open(Session),
    /// Device: ready for jobs.
    Opened,
    /// Host: do this.
    Job(Job),
    /// Device: done or failed; a done one's payload follows, as long as its `Inline` says.
    Completed(Answer),
    /// Host: not wanted any more.
    Revoke(JobId),
    /// Host: what have you counted?
    AskStats,
    /// Device: this.
    Stats(DeviceStats),
}

/// Kinds of messages; the numbers are the wire's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
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
}

impl Kind {
    const ALL: [Self; 14] = [
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
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    fn max_body_bytes(self) -> u32 {
        match self {
            Self::Hello | Self::Opened | Self::Revoke | Self::AskStats => 0,
            Self::Greet | Self::Prove => 32,
            Self::Challenge => 64,
            Self::Refused | Self::Failed => MAX_REASON_BYTES,
            Self::Welcome | Self::Stats => MAX_JSON_BYTES,
            Self::Open => MAX_SESSION_BYTES,
            Self::Job => 8 * MAX_JOB_SAMPLES,
            Self::Done => 4 * MAX_JOB_SAMPLES,
        }
    }
}

/// A header that has been checked: magic, version, kind, bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    kind: Kind,
    body_bytes: u32,
    job: u64,
    payload_bytes: u64,
    checksum: u64,
    device_ns: u64,
    lateness_ns: u64,
    n_samples: u32,
}

impl Header {
    fn of(kind: Kind) -> Self {
        Self {
            kind,
            body_bytes: 0,
            job: 0,
            payload_bytes: 0,
            checksum: 0,
            device_ns: 0,
            lateness_ns: 0,
            n_samples: 0,
        }
    }

    /// Bytes that follow the header and belong to the message.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.body_bytes as usize
    }

    /// Bytes that follow the message: the samples of a finished job.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// The answer that this is the header of.
    fn answer(&self, ending: Ending) -> Message {
        Message::Completed(Answer {
            job: JobId(self.job),
            ending,
            device_ns: self.device_ns,
            lateness_ns: self.lateness_ns,
        })
    }

    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
        };
        put(0, &MAGIC);
        put(4, &PROTOCOL_VERSION.to_le_bytes());
        put(8, &[self.kind as u8]);
        put(12, &self.body_bytes.to_le_bytes());
        put(16, &self.job.to_le_bytes());
        put(24, &self.payload_bytes.to_le_bytes());
        put(32, &self.checksum.to_le_bytes());
        put(40, &self.device_ns.to_le_bytes());
        put(48, &self.lateness_ns.to_le_bytes());
        put(56, &self.n_samples.to_le_bytes());
        let check = check_of(&bytes);
        bytes[60..].copy_from_slice(&check);
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`CsdError::Version`] for another version of this protocol, else
    /// [`CsdError::Malformed`].
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, CsdError> {
        let malformed = |what| Err(CsdError::Malformed { what });
        if bytes[..4] != MAGIC {
            return malformed("the magic number");
        }
        let version = u32::from_le_bytes(array(bytes, 4));
        if version != PROTOCOL_VERSION {
            return Err(CsdError::Version { ours: PROTOCOL_VERSION, theirs: version });
        }
        if bytes[60..] != check_of(bytes) {
            return malformed("the header's check");
        }
        let Some(kind) = Kind::from_byte(bytes[8]) else {
            return malformed("the kind of message");
        };
        let header = Self {
            kind,
            body_bytes: u32::from_le_bytes(array(bytes, 12)),
            job: u64::from_le_bytes(array(bytes, 16)),
            payload_bytes: u64::from_le_bytes(array(bytes, 24)),
            checksum: u64::from_le_bytes(array(bytes, 32)),
            device_ns: u64::from_le_bytes(array(bytes, 40)),
            lateness_ns: u64::from_le_bytes(array(bytes, 48)),
            n_samples: u32::from_le_bytes(array(bytes, 56)),
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
        Ok(header)
    }
}

/// What `Open` says in JSON; the manifest follows it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionJson {
    recipe: String,
    /// 32 hexadecimal digits: a JSON number cannot be trusted with 128 bits.
    recipe_hash: String,
    seed: u64,
    sample_bytes: u32,
    max_batch: u32,
}

impl Message {
    /// The bytes of the message: header and body.
    ///
    /// Lengths beyond the wire's bounds are the caller's to avoid ([`session_fits`],
    /// [`MAX_JOB_SAMPLES`]); the other side would refuse them. Reasons are cut to fit.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Greet { nonce } => plain(Kind::Greet, nonce),
            Self::Challenge { nonce, proof } => {
                plain(Kind::Challenge, &[nonce.as_slice(), optional(proof)].concat())
            }
            Self::Prove { proof } => plain(Kind::Prove, optional(proof)),
            Self::Refused { reason } => plain(Kind::Refused, cut(reason).as_bytes()),
            Self::Hello => plain(Kind::Hello, &[]),
            Self::Welcome(capabilities) => plain(Kind::Welcome, &json(capabilities)),
            Self::Open(session) => encode_session(session),
            Self::Opened => plain(Kind::Opened, &[]),
            Self::Job(job) => encode_job(job),
            Self::Completed(completion) => encode_answer(completion),
            Self::Revoke(job) => {
                message(Header { job: job.0, ..Header::of(Kind::Revoke) }, &[])
            }
            Self::AskStats => plain(Kind::AskStats, &[]),
            Self::Stats(stats) => plain(Kind::Stats, &json(stats)),
        }
    }

    /// Reads the message whose header was `header`; `body` is as long as that says.
    ///
    /// # Errors
    /// [`CsdError::Malformed`] names the rule that failed.
    pub fn decode(header: &Header, body: &[u8]) -> Result<Self, CsdError> {
        let malformed = |what| Err(CsdError::Malformed { what });
        if body.len() != header.body_bytes() {
            return malformed("a body of another length than its header says");
        }
        if header.kind != Kind::Done && header.checksum != xxh3_64(body) {
            return malformed("the body's checksum");
        }
        Ok(match header.kind {
            Kind::Greet => Self::Greet { nonce: exact(body)? },
            Kind::Challenge => {
                let (nonce, proof) = body.split_at(body.len().min(32));
                Self::Challenge { nonce: exact(nonce)?, proof: exact_or_empty(proof)? }
            }
            Kind::Prove => Self::Prove { proof: exact_or_empty(body)? },
            Kind::Refused => Self::Refused { reason: text(body)? },
            Kind::Hello => Self::Hello,
            Kind::Welcome => Self::Welcome(from_json(body)?),
            Kind::Open => Self::Open(decode_session(body)?),
            Kind::Opened => Self::Opened,
            Kind::Job => Self::Job(decode_job(header, body)?),
            Kind::Done => header.answer(decode_done(header, body)?),
            Kind::Failed => header.answer(Ending::Failed { reason: text(body)? }),
            Kind::Revoke => Self::Revoke(JobId(header.job)),
            Kind::AskStats => Self::AskStats,
            Kind::Stats => Self::Stats(from_json(body)?),
        })
    }
}

/// Whether a session is within the wire's bounds; text may grow sixfold as JSON.
#[must_use]
pub fn session_fits(session: &Session) -> bool {
    session.recipe.len() <= MAX_JSON_BYTES as usize / 8
        && session.manifest.len() <= (MAX_SESSION_BYTES - 2 * MAX_JSON_BYTES) as usize
}

/// The bytes of `Message::Open(session)`, without a copy of the session.
#[must_use]
pub fn encode_session(session: &Session) -> Vec<u8> {
    let json = json(&SessionJson {
        recipe: session.recipe.clone(),
        recipe_hash: format!("{:032x}", session.recipe_hash),
        seed: session.seed,
        sample_bytes: session.sample_bytes,
        max_batch: session.max_batch,
    });
    let json_bytes = count(json.len()).to_le_bytes();
    plain(Kind::Open, &[&json_bytes, json.as_slice(), &session.manifest].concat())
}

fn decode_session(body: &[u8]) -> Result<Session, CsdError> {
    let cut_short = CsdError::Malformed { what: "a session that is cut short" };
    let Some((json_bytes, rest)) = body.split_first_chunk() else {
        return Err(cut_short);
    };
    let json_bytes = u32::from_le_bytes(*json_bytes);
    if json_bytes > MAX_JSON_BYTES {
        return Err(CsdError::Malformed { what: "the length of the session's JSON" });
    }
    let Some((json, manifest)) = rest.split_at_checked(json_bytes as usize) else {
        return Err(cut_short);
    };
    let json: SessionJson = from_json(json)?;
    let digits = &json.recipe_hash;
    let is_hash =
        digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let recipe_hash = is_hash.then(|| u128::from_str_radix(digits, 16).ok()).flatten();
    let recipe_hash =
        recipe_hash.ok_or(CsdError::Malformed { what: "the recipe's hash" })?;
    Ok(Session {
        recipe: json.recipe,
        recipe_hash,
        seed: json.seed,
        sample_bytes: json.sample_bytes,
        max_batch: json.max_batch,
        manifest: manifest.to_vec(),
    })
}

pub(crate) fn encode_job(job: &Job) -> Vec<u8> {
    let ids: Vec<u8> = job.samples.iter().flat_map(|id| id.0.to_le_bytes()).collect();
    let header = Header {
        job: job.id.0,
        device_ns: u64::from(job.batch.0) << 32 | u64::from(job.epoch.0),
        n_samples: count(job.samples.len()),
        ..Header::of(Kind::Job)
    };
    message(header, &ids)
}

fn decode_job(header: &Header, body: &[u8]) -> Result<Job, CsdError> {
    let (ids, rest) = body.as_chunks::<8>();
    if !rest.is_empty() || ids.len() != header.n_samples as usize {
        return Err(CsdError::Malformed { what: "the number of samples of a job" });
    }
    let [epoch, batch] = halves(header.device_ns);
    Ok(Job {
        id: JobId(header.job),
        epoch: EpochIdx(epoch),
        batch: BatchIdx(batch),
        samples: ids.iter().map(|id| SampleId(u64::from_le_bytes(*id))).collect(),
    })
}

fn encode_answer(answer: &Answer) -> Vec<u8> {
    let times = |kind| Header {
        job: answer.job.0,
        device_ns: answer.device_ns,
        lateness_ns: answer.lateness_ns,
        ..Header::of(kind)
    };
    match &answer.ending {
        Ending::Failed { reason } => message(times(Kind::Failed), cut(reason).as_bytes()),
        Ending::Done { len, checksum, bad } => {
            let rows: Vec<u8> = bad.iter().flat_map(|row| row.to_le_bytes()).collect();
            let header =
                Header { payload_bytes: *len, checksum: *checksum, ..times(Kind::Done) };
            message(header, &rows)
        }
    }
}

fn decode_done(header: &Header, body: &[u8]) -> Result<Ending, CsdError> {
    let (rows, rest) = body.as_chunks::<4>();
    let bad: Vec<_> = rows.iter().map(|row| u32::from_le_bytes(*row)).collect();
    let ascending = bad.is_sorted_by(|a, b| a < b);
    let in_range = bad.last().is_none_or(|last| *last < MAX_JOB_SAMPLES);
    if !rest.is_empty() || !ascending || !in_range {
        return Err(CsdError::Malformed { what: "the list of bad rows" });
    }
    Ok(Ending::Done { len: header.payload_bytes, checksum: header.checksum, bad })
}

/// A message whose header says no more than its kind.
fn plain(kind: Kind, body: &[u8]) -> Vec<u8> {
    message(Header::of(kind), body)
}

fn message(header: Header, body: &[u8]) -> Vec<u8> {
    let of_payload = header.kind == Kind::Done;
    let checksum = if of_payload { header.checksum } else { xxh3_64(body) };
    let header = Header { body_bytes: count(body.len()), checksum, ..header };
    [header.encode().as_slice(), body].concat()
}

fn check_of(header: &[u8; HEADER_BYTES]) -> [u8; 4] {
    array(&xxh3_64(&header[..60]).to_le_bytes(), 0)
}

fn halves(number: u64) -> [u32; 2] {
    let bytes = number.to_le_bytes();
    [u32::from_le_bytes(array(&bytes, 0)), u32::from_le_bytes(array(&bytes, 4))]
}

/// `N` bytes from `at`, which the caller knows to be there.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// A length as it is written; what is too long for 32 bits is refused by the other side.
fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn exact(body: &[u8]) -> Result<[u8; 32], CsdError> {
    body.try_into()
        .map_err(|_| CsdError::Malformed { what: "the length of a nonce or proof" })
}

fn exact_or_empty(body: &[u8]) -> Result<Option<[u8; 32]>, CsdError> {
    (!body.is_empty()).then(|| exact(body)).transpose()
}

fn optional(proof: &Option<Proof>) -> &[u8] {
    proof.as_ref().map_or(&[], |proof| proof.as_slice())
}

/// As much of a reason as fits, in whole characters.
fn cut(reason: &str) -> &str {
    let end = (0..=reason.len().min(MAX_REASON_BYTES as usize))
        .rev()
        .find(|&end| reason.is_char_boundary(end));
    &reason[..end.unwrap_or(0)]
}

fn text(body: &[u8]) -> Result<String, CsdError> {
    let text = str::from_utf8(body)
        .map_err(|_| CsdError::Malformed { what: "a reason that is not UTF-8" })?;
    Ok(text.to_owned())
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain structures of numbers and strings are JSON")
}

fn from_json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, CsdError> {
    serde_json::from_slice(body).map_err(|_| CsdError::Malformed { what: "a JSON body" })
}
