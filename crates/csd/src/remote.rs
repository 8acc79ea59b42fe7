//! The host's side of every transport over a wire: contract, credits and order are here,
//! once; how messages travel is a [`Link`].
//!
//! Knows neither sockets nor files. Read `stream.rs` and `spool.rs` for the two links.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::credits::Credits;
use crate::fuse::Fuse;
use crate::job::{
    Capabilities, Completion, DeviceStats, Job, JobId, Outcome, PROTOCOL_VERSION,
    Payload, Session,
};
use crate::wire::{self, Message};
use crate::{CsdError, Refused, Transport};

/// A result is received and hashed in pieces of this size: a batch is larger than a
/// processor's own cache, and a second walk over it would fetch it from memory again.
const PIECE_BYTES: usize = 128 << 10;

/// A way for messages between host and device, as the host sees it.
///
/// # Contract
///
/// No call outlasts its deadline. [`CsdError::LinkLost`] and [`CsdError::Malformed`] end the
/// link for good. After a completion with
/// an inline payload the caller takes the payload (`read_payload`) before it receives again.
pub trait Link: Send + Debug {
    /// Finds the device and settles versions and keys.
    ///
    /// # Errors
    /// As [`Transport::hello`].
    fn greet(&mut self, deadline: Instant) -> Result<(), CsdError>;

    /// Sends the bytes of one message.
    ///
    /// # Errors
    /// Link errors; [`CsdError::Place`] when nothing was sent and the link is still good.
    fn send(&mut self, message: &[u8], deadline: Instant) -> Result<(), CsdError>;

    /// The next message, or `None` at the deadline.
    ///
    /// # Errors
    /// Link errors.
    fn receive(&mut self, deadline: Instant) -> Result<Option<Message>, CsdError>;

    /// Fills `dst` with the next bytes of the payload, as far as they come until the
    /// deadline; how many did.
    ///
    /// # Errors
    /// Link errors.
    fn read_payload(
        &mut self,
        dst: &mut [u8],
        deadline: Instant,
    ) -> Result<usize, CsdError>;

    /// Drops a payload that nobody will read and that is not on the link itself.
    fn discard(&mut self, payload: &Payload);
}

/// A device reached over a link.
#[derive(Debug)]
pub struct Remote<L> {
    pub(crate) link: L,
    fuse: Fuse,
    credits: Credits,
    timeout: Duration,
    is_greeted: bool,
    capabilities: Option<Capabilities>,
    /// The payload of the last completion that `poll` returned.
    pending: Pending,
    /// Completions that arrived while an answer was awaited, with their payloads.
    early: VecDeque<(Completion, Pending)>,
    /// Answers that came too late for their question are still to come.
    n_stale_answers: u32,
}

#[derive(Debug)]
enum Pending {
    Nothing,
    /// So many bytes are next on the link; `None` when their job was not wanted.
    OnLink(Option<JobId>, u64),
    InMemory(JobId, Vec<u8>),
}

impl<L: Link> Remote<L> {
    pub(crate) fn over(link: L, timeout: Duration) -> Self {
        Self {
            link,
            fuse: Fuse::default(),
            credits: Credits::default(),
            timeout,
            is_greeted: false,
            capabilities: None,
            pending: Pending::Nothing,
            early: VecDeque::new(),
            n_stale_answers: 0,
        }
    }

    /// Starts a call: a payload that was not read is not wanted any more.
    fn enter(&mut self) -> Result<Instant, CsdError> {
        self.pending = match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::OnLink(_, len) => Pending::OnLink(None, len),
            Pending::Nothing | Pending::InMemory(..) => Pending::Nothing,
        };
        self.fuse.check()?;
        Ok(Instant::now() + self.timeout)
    }

    fn send(&mut self, message: &[u8], deadline: Instant) -> Result<(), CsdError> {
        let sent = self.link.send(message, deadline);
        self.fuse.watch(sent)
    }

    /// Asks the device and waits for its answer; completions on the way are kept.
    fn ask(
        &mut self,
        question: &[u8],
        doing: &'static str,
        deadline: Instant,
    ) -> Result<Message, CsdError> {
        self.send(question, deadline)?;
        while let Some(message) = self.receive(deadline)? {
            if let Message::Completed(completion) = message {
                let pending = self.take_payload(deadline)?;
                self.early.push_back((completion, pending));
                if self.early.len() > self.credits.max_waiting() {
                    return self.out_of_turn();
                }
            } else if self.n_stale_answers == 0 {
                return Ok(message);
            } else {
                self.n_stale_answers -= 1;
            }
        }
        self.n_stale_answers += 1;
        Err(CsdError::Timeout { doing, waited: self.timeout })
    }

    /// The next message. A completion has been matched with its job, and what nobody asked
    /// for has been dropped.
    fn receive(&mut self, deadline: Instant) -> Result<Option<Message>, CsdError> {
        loop {
            if !self.skip_unwanted(deadline)? {
                return Ok(None);
            }
            let received = self.link.receive(deadline);
            let Some(message) = self.fuse.watch(received)? else { return Ok(None) };
            let Message::Completed(completion) = message else {
                return Ok(Some(message));
            };
            let payload = match &completion.outcome {
                Outcome::Done { payload, .. } => Some(payload.clone()),
                Outcome::Failed { .. } => None,
            };
            let redeemed = self.credits.redeem(completion);
            let redeemed = self.fuse.watch(redeemed)?;
            if let Some(Payload::Inline { len }) = payload {
                self.pending = Pending::OnLink(redeemed.as_ref().map(|it| it.job), len);
            }
            match (redeemed, payload) {
                (Some(completion), _) => return Ok(Some(Message::Completed(completion))),
                (None, Some(payload)) => self.link.discard(&payload),
                (None, None) => {}
            }
        }
    }

    /// Reads and drops the bytes on the link that nobody wants; whether none is left.
    fn skip_unwanted(&mut self, deadline: Instant) -> Result<bool, CsdError> {
        let mut scratch = Vec::new();
        while let Pending::OnLink(_, len @ 1..) = self.pending {
            scratch.resize(1 << 16, 0);
            let n_bytes = usize::try_from(len).unwrap_or(usize::MAX).min(scratch.len());
            let read = self.link.read_payload(&mut scratch[..n_bytes], deadline);
            let n_read = self.fuse.watch(read)?;
            self.pending = Pending::OnLink(None, len - n_read as u64);
            if n_read < n_bytes {
                return Ok(false);
            }
        }
        self.pending = Pending::Nothing;
        Ok(true)
    }

    /// Takes the payload that is next on the link into memory; `Credits` has bounded it.
    fn take_payload(&mut self, deadline: Instant) -> Result<Pending, CsdError> {
        let Pending::OnLink(Some(job), len) = self.pending else {
            return Ok(Pending::Nothing);
        };
        self.pending = Pending::Nothing;
        let too_long = |_| CsdError::Malformed { what: "a result longer than memory" };
        let mut bytes = vec![0; usize::try_from(len).map_err(too_long)?];
        self.read_whole(&mut bytes, deadline)?;
        Ok(Pending::InMemory(job, bytes))
    }

    /// Reads a payload and hashes it; one that stays away is a lost link, for nothing can
    /// follow it.
    fn read_whole(&mut self, dst: &mut [u8], deadline: Instant) -> Result<u64, CsdError> {
        let mut hash = Xxh3::new();
        for piece in dst.chunks_mut(PIECE_BYTES) {
            let read = self.link.read_payload(piece, deadline);
            if self.fuse.watch(read)? < piece.len() {
                let source = std::io::ErrorKind::TimedOut.into();
                return self
                    .fuse
                    .watch(Err(CsdError::LinkLost { doing: "read a result", source }));
            }
            hash.update(piece);
        }
        Ok(hash.digest())
    }

    fn out_of_turn<T>(&mut self) -> Result<T, CsdError> {
        self.fuse.watch(Err(CsdError::Malformed { what: "a message out of turn" }))
    }
}

impl<L: Link> Transport for Remote<L> {
    fn hello(&mut self) -> Result<Capabilities, CsdError> {
        let deadline = self.enter()?;
        if let Some(capabilities) = &self.capabilities {
            return Ok(capabilities.clone());
        }
        if !self.is_greeted {
            let greeted = self.link.greet(deadline);
            self.fuse.watch(greeted)?;
            self.is_greeted = true;
        }
        let answer = self.ask(&Message::Hello.encode(), "hello", deadline)?;
        if let Message::Refused { reason } = answer {
            let what = format!("the device says: {reason}");
            return Err(CsdError::Unauthenticated { what });
        }
        let Message::Welcome(capabilities) = answer else { return self.out_of_turn() };
        let theirs = capabilities.protocol_version;
        if theirs != PROTOCOL_VERSION {
            return Err(CsdError::Version { ours: PROTOCOL_VERSION, theirs });
        }
        self.credits.allow(capabilities.slots);
        self.capabilities = Some(capabilities.clone());
        Ok(capabilities)
    }

    fn open(&mut self, session: &Session) -> Result<(), CsdError> {
        let deadline = self.enter()?;
        self.credits.begin(session)?;
        for (completion, _) in std::mem::take(&mut self.early) {
            if let Outcome::Done { payload, .. } = completion.outcome {
                self.link.discard(&payload);
            }
        }
        let answer = self.ask(&wire::encode_session(session), "open", deadline)?;
        if let Message::Refused { reason } = answer {
            return Err(CsdError::SessionRefused { reason });
        }
        let Message::Opened = answer else { return self.out_of_turn() };
        self.credits.begun(session);
        Ok(())
    }

    fn submit(&mut self, job: Job) -> Result<(), Box<Refused>> {
        let deadline = match self.enter() {
            Ok(deadline) => deadline,
            Err(source) => return Err(Box::new(Refused { job, source })),
        };
        let job = self.credits.issue(job)?;
        match self.send(&wire::encode_job(&job), deadline) {
            Ok(()) => Ok(()),
            Err(source) => Err(self.credits.withdraw(job, source)),
        }
    }

    fn poll(&mut self, timeout: Duration) -> Result<Option<Completion>, CsdError> {
        self.enter()?;
        if let Some((completion, pending)) = self.early.pop_front() {
            self.pending = pending;
            return Ok(Some(completion));
        }
        let deadline = Instant::now() + timeout;
        while let Some(message) = self.receive(deadline)? {
            if let Message::Completed(completion) = message {
                return Ok(Some(completion));
            }
            if self.n_stale_answers == 0 {
                return self.out_of_turn();
            }
            self.n_stale_answers -= 1;
        }
        Ok(None)
    }

    fn read_result(&mut self, job: JobId, dst: &mut [u8]) -> Result<u64, CsdError> {
        let pending = std::mem::replace(&mut self.pending, Pending::Nothing);
        let deadline = self.enter()?;
        match pending {
            Pending::OnLink(Some(of), len) if of == job && len == dst.len() as u64 => {
                return self.read_whole(dst, deadline);
            }
            Pending::InMemory(of, bytes) if of == job && bytes.len() == dst.len() => {
                dst.copy_from_slice(&bytes);
                return Ok(xxh3_64(&bytes));
            }
            Pending::OnLink(_, len) => self.pending = Pending::OnLink(None, len),
            Pending::Nothing | Pending::InMemory(..) => {}
        }
        Err(CsdError::NoPayload { job: job.0, len: dst.len() as u64 })
    }

    fn revoke(&mut self, job: JobId) -> Result<(), CsdError> {
        let deadline = self.enter()?;
        match self.credits.revoke(job) {
            Some(serial) => self.send(&Message::Revoke(serial).encode(), deadline),
            None => Ok(()),
        }
    }

    fn stats(&mut self) -> Result<DeviceStats, CsdError> {
        let deadline = self.enter()?;
        let answer = self.ask(&Message::AskStats.encode(), "stats", deadline)?;
        let Message::Stats(stats) = answer else { return self.out_of_turn() };
        Ok(stats)
    }
}
