//! The bytes of every message, in both directions and on every link.
//!
//! A message is a header of 80 bytes and a body; a finished job's samples (the *payload*)
//! follow the body and are never part of the message. All numbers are little endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `BEND` |
//! | 4 | 4 | protocol version |
//! | 8 | 1 | kind |
//! | 9 | 3 | zero |
//! | 12 | 4 | length of the body in bytes |
//! | 16 | 8 | session (`Opened`, `Job`, `Done`, `Failed`, `Revoke`, `Attest`, `Attested`, else 0) |
//! | 24 | 8 | job (`Job`, `Done`, `Failed`, `Revoke`, else 0) |
//! | 32 | 8 | length of the payload in bytes (`Done`, else 0) |
//! | 40 | 8 | XXH3-64 of the body |
//! | 48 | 8 | XXH3-64 of the payload (`Done`), seed of the digests (`Attest`), else 0 |
//! | 56 | 8 | device time in ns (`Done`, `Failed`); epoch and batch, 4 bytes each (`Job`); time to the next attempt in ns (`Busy`); lease in ns (`Announce`); age of the list in ns (`Members`); else 0 |
//! | 64 | 8 | lateness in ns (`Done`, `Failed`); time in ns until the batch is needed (`Job`); else 0 |
//! | 72 | 4 | number of samples (`Job`), of bad rows (`Done`), else 0 |
//! | 76 | 4 | low half of the XXH3-64 of bytes 0 to 75 |
//!
//! The body is: 8 bytes per sample id (`Job`, `Attest`), 4 bytes per bad row and then per damaged one,
//! both ascending (`Done`), 24 bytes per record (`Attested`: its length in 8 bytes, all ones where it cannot be read, and its
//! seeded XXH3-128), UTF-8 (`Failed`, `Refused`, `Busy`, `Announce`, `Members`), JSON (`Welcome`, `Stats`), length of the
//! JSON in 4 bytes, JSON, manifest (`Open`), nonce and proof (`Greet`, `Challenge`, `Prove`).
//!
//! Over a plain connection the first messages are `Greet`, `Challenge` and `Prove`. Over one that Noise or TLS
//! protects (`channel.rs`) there are none of these, since its handshake has settled who speaks: the first
//! message is `Hello`. A device that refuses a host before such a connection is protected says so in a plain
//! `Refused`, which vouches for nothing.
//!
//! Magic and version keep their places in every version. Every length is checked against a
//! bound of its kind before anything is allocated. Nothing here reads or writes a file or
//! socket.

mod header;

use std::time::Duration;

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_slots::{Job, JobId};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::CsdError;
use crate::words::job::{
    Answer, Busy, Capabilities, DeviceStats, Ending, Inquiry, JobTerms, RecordDigest,
    RunId, Session, SessionId,
};
use crate::words::key::{Nonce, Proof};
use crate::words::member::{Announcement, MemberList};
use header::{DIGEST_BYTES, Kind, array};

pub use header::{
    HEADER_BYTES, Header, MAX_INQUIRY_RECORDS, MAX_JOB_SAMPLES, MAX_JSON_BYTES,
    MAX_LIST_BYTES, MAX_REASON_BYTES, MAX_SESSION_BYTES,
};

/// The length that says of a record that it cannot be read.
const UNREADABLE: u64 = u64::MAX;

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
    /// Device: ready for jobs of this session.
    Opened(SessionId),
    /// Device: no room now. Answers a greeting, `Hello` or `Open`.
    Busy(Busy),
    /// Host: do this.
    Job(SessionId, Job),
    /// Device: done or failed; a done one's payload follows, as long as its ending says.
    Completed(SessionId, Answer),
    /// Host: not wanted any more.
    Revoke(SessionId, JobId),
    /// Host: what are your copies of these records?
    Attest(SessionId, Inquiry),
    /// Device: these, in the order of the inquiry.
    Attested(SessionId, Vec<Option<RecordDigest>>),
    /// Host: what have you counted?
    AskStats,
    /// Device: this.
    Stats(DeviceStats),
    /// Host: are you there?
    Ping,
    /// Device: yes.
    Pong,
    /// An agent to a registry: I am a member of the pool.
    Announce(Announcement),
    /// Registry: listed.
    Announced,
    /// Host to a registry: who are the members?
    AskMembers,
    /// Registry: these.
    Members(MemberList),
}

/// The answer that `header` is the header of.
fn answer(header: &Header, ending: Ending) -> Message {
    let answer = Answer {
        job: JobId(header.job),
        ending,
        device_ns: header.time_ns,
        lateness_ns: header.lateness_ns,
    };
    Message::Completed(header.session(), answer)
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<JobTerms>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<RunId>,
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
            Self::Opened(session) => {
                message(Header::in_session(Kind::Opened, *session), &[])
            }
            Self::Busy(busy) => encode_busy(busy),
            Self::Job(session, job) => encode_job(*session, job),
            Self::Completed(session, answer) => encode_answer(*session, answer),
            Self::Revoke(session, job) => {
                let header = Header::in_session(Kind::Revoke, *session);
                message(Header { job: job.0, ..header }, &[])
            }
            Self::Attest(session, inquiry) => encode_inquiry(*session, inquiry),
            Self::Attested(session, records) => encode_digests(*session, records),
            Self::AskStats => plain(Kind::AskStats, &[]),
            Self::Stats(stats) => plain(Kind::Stats, &json(stats)),
            Self::Ping => plain(Kind::Ping, &[]),
            Self::Pong => plain(Kind::Pong, &[]),
            Self::Announce(Announcement { address, lease }) => {
                timed(Kind::Announce, *lease, address.as_bytes())
            }
            Self::Announced => plain(Kind::Announced, &[]),
            Self::AskMembers => plain(Kind::AskMembers, &[]),
            Self::Members(MemberList { age, text }) => {
                timed(Kind::Members, *age, text.as_bytes())
            }
        }
    }

    /// Reads the message whose header was `header`; `body` is as long as that says.
    ///
    /// # Errors
    /// [`CsdError::Malformed`] names the rule that failed.
    pub fn decode(header: &Header, body: &[u8]) -> Result<Self, CsdError> {
        let malformed = |what| Err(CsdError::Malformed { what });
        if body.len() != header.body_bytes() {
            return malformed("a body whose length differs from its header");
        }
        if header.body_checksum != XxHash3_64::oneshot(body) {
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
            Kind::Opened => Self::Opened(header.session()),
            Kind::Busy => {
                let retry = Duration::from_nanos(header.time_ns);
                Self::Busy(Busy { retry, reason: text(body)? })
            }
            Kind::Job => Self::Job(header.session(), decode_job(header, body)?),
            Kind::Done => answer(header, decode_done(header, body)?),
            Kind::Failed => answer(header, Ending::Failed { reason: text(body)? }),
            Kind::Revoke => Self::Revoke(header.session(), JobId(header.job)),
            Kind::Attest => {
                let (seed, samples) = (header.checksum, decode_ids(body)?);
                Self::Attest(header.session(), Inquiry { seed, samples })
            }
            Kind::Attested => Self::Attested(header.session(), decode_digests(body)?),
            Kind::AskStats => Self::AskStats,
            Kind::Stats => Self::Stats(from_json(body)?),
            Kind::Ping => Self::Ping,
            Kind::Pong => Self::Pong,
            Kind::Announce => {
                let lease = Duration::from_nanos(header.time_ns);
                Self::Announce(Announcement { address: text(body)?, lease })
            }
            Kind::Announced => Self::Announced,
            Kind::AskMembers => Self::AskMembers,
            Kind::Members => {
                let age = Duration::from_nanos(header.time_ns);
                Self::Members(MemberList { age, text: text(body)? })
            }
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
        job: session.job.clone(),
        run: session.run.clone(),
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
    let job = json.job.map(JobTerms::checked).transpose();
    let job = job.map_err(|_| CsdError::Malformed { what: "the terms of a job" })?;
    Ok(Session {
        recipe: json.recipe,
        recipe_hash,
        seed: json.seed,
        sample_bytes: json.sample_bytes,
        max_batch: json.max_batch,
        manifest: manifest.to_vec(),
        job,
        run: json.run,
    })
}

pub(crate) fn encode_job(session: SessionId, job: &Job) -> Vec<u8> {
    let header = Header {
        job: job.id.0,
        time_ns: u64::from(job.batch.0) << 32 | u64::from(job.epoch.0),
        lateness_ns: job.need_ns,
        n_samples: count(job.samples.len()),
        ..Header::in_session(Kind::Job, session)
    };
    message(header, &encode_ids(&job.samples))
}

fn decode_job(header: &Header, body: &[u8]) -> Result<Job, CsdError> {
    let samples = decode_ids(body)?;
    if samples.len() != header.n_samples as usize {
        return Err(CsdError::Malformed { what: "the number of samples of a job" });
    }
    let [epoch, batch] = halves(header.time_ns);
    Ok(Job {
        id: JobId(header.job),
        epoch: EpochIdx(epoch),
        batch: BatchIdx(batch),
        samples,
        need_ns: header.lateness_ns,
    })
}

fn encode_ids(samples: &[SampleId]) -> Vec<u8> {
    samples.iter().flat_map(|id| id.0.to_le_bytes()).collect()
}

fn decode_ids(body: &[u8]) -> Result<Vec<SampleId>, CsdError> {
    let (ids, rest) = body.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(CsdError::Malformed { what: "a list of samples that is cut short" });
    }
    Ok(ids.iter().map(|id| SampleId(u64::from_le_bytes(*id))).collect())
}

fn encode_busy(busy: &Busy) -> Vec<u8> {
    timed(Kind::Busy, busy.retry, cut(&busy.reason).as_bytes())
}

/// A message whose header says a time besides its kind.
fn timed(kind: Kind, time: Duration, body: &[u8]) -> Vec<u8> {
    let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    message(Header { time_ns, ..Header::of(kind) }, body)
}

fn encode_inquiry(session: SessionId, inquiry: &Inquiry) -> Vec<u8> {
    let header = Header::in_session(Kind::Attest, session);
    let header = Header { checksum: inquiry.seed, ..header };
    message(header, &encode_ids(&inquiry.samples))
}

fn encode_digests(session: SessionId, records: &[Option<RecordDigest>]) -> Vec<u8> {
    let unreadable = RecordDigest { len: UNREADABLE, hash: 0 };
    let mut body = Vec::with_capacity(records.len() * DIGEST_BYTES as usize);
    for record in records {
        let RecordDigest { len, hash } = record.unwrap_or(unreadable);
        body.extend(len.to_le_bytes());
        body.extend(hash.to_le_bytes());
    }
    message(Header::in_session(Kind::Attested, session), &body)
}

fn decode_digests(body: &[u8]) -> Result<Vec<Option<RecordDigest>>, CsdError> {
    let (records, rest) = body.as_chunks::<{ DIGEST_BYTES as usize }>();
    if !rest.is_empty() {
        return Err(CsdError::Malformed { what: "a list of digests that is cut short" });
    }
    let digest = |record: &[u8; DIGEST_BYTES as usize]| {
        let len = u64::from_le_bytes(array(record, 0));
        let hash = u128::from_le_bytes(array(record, 8));
        (len != UNREADABLE).then_some(RecordDigest { len, hash })
    };
    Ok(records.iter().map(digest).collect())
}

fn encode_answer(session: SessionId, answer: &Answer) -> Vec<u8> {
    let times = |kind| Header {
        job: answer.job.0,
        time_ns: answer.device_ns,
        lateness_ns: answer.lateness_ns,
        ..Header::in_session(kind, session)
    };
    match &answer.ending {
        Ending::Failed { reason } => message(times(Kind::Failed), cut(reason).as_bytes()),
        Ending::Done { len, checksum, bad, damaged } => {
            let rows = bad.iter().chain(damaged);
            let rows: Vec<u8> = rows.flat_map(|row| row.to_le_bytes()).collect();
            let header = Header {
                payload_bytes: *len,
                checksum: *checksum,
                n_samples: count(bad.len()),
                ..times(Kind::Done)
            };
            message(header, &rows)
        }
    }
}

fn decode_done(header: &Header, body: &[u8]) -> Result<Ending, CsdError> {
    let (rows, rest) = body.as_chunks::<4>();
    let mut bad: Vec<_> = rows.iter().map(|row| u32::from_le_bytes(*row)).collect();
    let n_bad = header.n_samples as usize;
    if !rest.is_empty() || n_bad > bad.len() {
        return Err(CsdError::Malformed { what: "the number of bad rows" });
    }
    let damaged = bad.split_off(n_bad);
    if !is_list_of_rows(&bad) {
        return Err(CsdError::Malformed { what: "the list of bad rows" });
    }
    let is_bad = |row: &u32| bad.binary_search(row).is_ok();
    if !is_list_of_rows(&damaged) || damaged.iter().any(is_bad) {
        return Err(CsdError::Malformed { what: "the list of damaged rows" });
    }
    let (len, checksum) = (header.payload_bytes, header.checksum);
    Ok(Ending::Done { len, checksum, bad, damaged })
}

fn is_list_of_rows(rows: &[u32]) -> bool {
    let in_range = rows.last().is_none_or(|last| *last < MAX_JOB_SAMPLES);
    in_range && rows.is_sorted_by(|a, b| a < b)
}

/// A message whose header says no more than its kind.
fn plain(kind: Kind, body: &[u8]) -> Vec<u8> {
    message(Header::of(kind), body)
}

fn message(header: Header, body: &[u8]) -> Vec<u8> {
    let (body_bytes, body_checksum) = (count(body.len()), XxHash3_64::oneshot(body));
    let header = Header { body_bytes, body_checksum, ..header };
    [header.encode().as_slice(), body].concat()
}

fn halves(number: u64) -> [u32; 2] {
    let bytes = number.to_le_bytes();
    [u32::from_le_bytes(array(&bytes, 0)), u32::from_le_bytes(array(&bytes, 4))]
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
        .map_err(|_| CsdError::Malformed { what: "a text that is not UTF-8" })?;
    Ok(text.to_owned())
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain structures of numbers and strings are JSON")
}

fn from_json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, CsdError> {
    serde_json::from_slice(body).map_err(|_| CsdError::Malformed { what: "a JSON body" })
}
