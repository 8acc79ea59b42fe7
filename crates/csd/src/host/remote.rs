//! The host's side of every transport over a wire. Contract, credits and order are implemented here,
//! once; a [`Link`] defines how messages travel.
//!
//! It knows neither sockets nor files. Read `stream.rs` and `spool.rs` for the two links.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::time::{Duration, Instant};

use bothends_slots::{Job, JobId, Lost, Polled, Producer, Rejected, Slot};

use crate::host::credits::{Credits, Redeemed, refuse};
use crate::host::fuse::Fuse;
use crate::host::pulse::Pulse;
use crate::words::job::{
    Answer, Busy, Capabilities, DeviceStats, Ending, Inquiry, RecordDigest, Session,
    SessionId,
};
use crate::words::wire::{self, Message};
use crate::{CsdError, Transport};

/// A way for messages between host and device, as the host sees it.
///
/// # Contract
///
/// No call outlasts its deadline, which every byte of a payload moves on by what it takes on the slowest link.
/// [`CsdError::LinkLost`] and [`CsdError::Malformed`] end the link for good. After an answer with a payload the caller
/// takes that or drops it before it receives again.
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

    /// Brings the payload of the answer that was received last into `dst`, which is as long
    /// as it; its XXH3-64, taken while the bytes are near the processor. The inner error is
    /// the payload's, and the link is good.
    ///
    /// # Errors
    /// Link errors, also where the payload stays away, or arrives more slowly than the slowest link brings it.
    fn take_payload(
        &mut self,
        dst: &mut [u8],
        deadline: Instant,
    ) -> Result<Result<u64, String>, CsdError>;

    /// Drops the payload of the answer that was received last, `len` bytes.
    ///
    /// # Errors
    /// As [`Self::take_payload`].
    fn drop_payload(&mut self, len: u64, deadline: Instant) -> Result<(), CsdError>;

    /// Whether the device's machine may vanish without a word: it is asked whether it is there.
    fn may_fall_silent(&self) -> bool {
        false
    }

    /// A payload that stays away for so long is a lost link, however much time is left.
    fn expects_bytes_within(&mut self, patience: Duration) {
        let _ = patience;
    }
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
    /// The open session, as the device calls it.
    session: Option<SessionId>,
    /// Answers to jobs that arrived while one of the control plane was awaited.
    early: VecDeque<Polled>,
    /// Answers that came too late for their question are still to come.
    n_stale_answers: u32,
    born: Instant,
    /// Of a device that may fall silent, and answers when it is asked.
    pulse: Option<Pulse>,
}

/// Why a device does not take a host that greets it.
pub(crate) fn refusal(answer: Message) -> Option<CsdError> {
    if let Message::Busy(Busy { retry, reason }) = answer {
        return Some(CsdError::Busy { reason, retry });
    }
    let Message::Refused { reason } = answer else { return None };
    Some(CsdError::Untrusted {
        what: "the device refuses this host".to_owned(),
        remedy: format!("it says: {reason}").into(),
    })
}

/// What a device says.
enum Heard {
    /// An answer of the control plane.
    Control(Message),
    /// An answer to a job.
    Job(Polled),
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
            session: None,
            early: VecDeque::new(),
            n_stale_answers: 0,
            born: Instant::now(),
            pulse: None,
        }
    }

    /// The link alone, before anything has been said over it.
    pub(crate) fn into_link(self) -> L {
        self.link
    }

    /// Starts a call; until when the device may take to answer it.
    fn enter(&self) -> Result<Instant, CsdError> {
        self.fuse.check()?;
        Ok(self.deadline())
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    fn send(&mut self, message: &[u8], deadline: Instant) -> Result<(), CsdError> {
        let sent = self.link.send(message, deadline);
        self.fuse.watch(sent)
    }

    /// Asks the device and waits for its answer; answers to jobs on the way are kept.
    fn ask(
        &mut self,
        question: &[u8],
        doing: &'static str,
        deadline: Instant,
    ) -> Result<Message, CsdError> {
        self.send(question, deadline)?;
        while let Some(heard) = self.receive(deadline)? {
            match heard {
                Heard::Job(polled) => {
                    self.early.push_back(polled);
                    if self.early.len() > self.credits.max_waiting() {
                        return self.out_of_turn();
                    }
                }
                Heard::Control(message) if self.n_stale_answers == 0 => {
                    return Ok(message);
                }
                Heard::Control(_) => self.n_stale_answers -= 1,
            }
        }
        self.n_stale_answers += 1;
        Err(CsdError::Timeout { doing, waited: self.timeout })
    }

    /// The next thing the device says that is of this session. A result is in its slot.
    fn receive(&mut self, deadline: Instant) -> Result<Option<Heard>, CsdError> {
        if let Some(pulse) = &mut self.pulse {
            pulse.looks(self.born.elapsed());
        }
        let heard = self.hear(deadline);
        if let Some(pulse) = &mut self.pulse {
            pulse.looks_away(self.born.elapsed());
        }
        heard
    }

    fn hear(&mut self, deadline: Instant) -> Result<Option<Heard>, CsdError> {
        loop {
            let received = self.link.receive(deadline);
            let Some(message) = self.fuse.watch(received)? else { return Ok(None) };
            if let Message::Completed(session, answer) = message {
                let polled = self.take(session, answer);
                if let Some(pulse) = &mut self.pulse {
                    pulse.heard(self.born.elapsed());
                }
                if let Some(polled) = self.fuse.watch(polled)? {
                    return Ok(Some(Heard::Job(polled)));
                }
            } else if matches!(message, Message::Pong) && self.pulse.is_some() {
                self.is_answered()?;
            } else {
                return Ok(Some(Heard::Control(message)));
            }
            // What is of no use here may come without end.
            if Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }

    /// The device says that it is there, which it does once for each time that it is asked.
    fn is_answered(&mut self) -> Result<(), CsdError> {
        let now = self.born.elapsed();
        let Some(pulse) = &mut self.pulse else { return Ok(()) };
        if !pulse.answered(now) {
            return self.out_of_turn();
        }
        let patience = pulse.patience();
        self.link.expects_bytes_within(patience);
        Ok(())
    }

    /// Matches an answer with its job and brings its payload there. The first byte of a payload is waited for as an
    /// answer is.
    fn take(
        &mut self,
        session: SessionId,
        answer: Answer,
    ) -> Result<Option<Polled>, CsdError> {
        let deadline = self.deadline();
        let redeemed = match self.session == Some(session) {
            true => self.credits.redeem(&answer)?,
            false => self.credits.foreign(&answer)?,
        };
        let unwanted = match redeemed {
            Redeemed::Job(submission) => {
                let bring = |dst: &mut [u8]| self.link.take_payload(dst, deadline);
                return submission.complete(answer, bring).map(Some);
            }
            Redeemed::Again => Some(Polled::Extra),
            Redeemed::Foreign => None,
        };
        if let Ending::Done { len, .. } = answer.ending {
            self.link.drop_payload(len, deadline)?;
        }
        Ok(unwanted)
    }

    fn shares_jobs(&self) -> bool {
        self.capabilities.as_ref().is_some_and(Capabilities::shares_jobs)
    }

    fn out_of_turn<T>(&mut self) -> Result<T, CsdError> {
        self.fuse.watch(Err(CsdError::Malformed { what: "a message out of turn" }))
    }

    /// Asks a device that has been silent whether it is there.
    fn feel(&mut self) -> Result<(), CsdError> {
        let (now, n_jobs) = (self.born.elapsed(), self.credits.n_outstanding());
        let asks = self.pulse.as_mut().is_some_and(|pulse| pulse.asks(now, n_jobs));
        if asks {
            self.send(&Message::Ping.encode(), self.deadline())?;
        }
        Ok(())
    }

    /// Fails where the device is gone; nothing that had come by then is left.
    fn is_there(&mut self, then: Duration) -> Result<(), CsdError> {
        let Some(pulse) = &self.pulse else { return Ok(()) };
        if !pulse.is_gone(then) {
            return Ok(());
        }
        let what = format!("it has said nothing for {:.1?}", pulse.patience());
        let source = io::Error::new(io::ErrorKind::TimedOut, what);
        let doing = "ask whether it is there";
        self.fuse.watch(Err(CsdError::LinkLost { doing, source }))
    }

    fn poll_until(&mut self, deadline: Instant) -> Result<Polled, CsdError> {
        self.enter()?;
        self.feel()?;
        // This host may have been suspended: what has come meanwhile is taken first.
        let then = self.born.elapsed();
        if let Some(polled) = self.early.pop_front() {
            return Ok(polled);
        }
        while let Some(heard) = self.receive(deadline)? {
            match heard {
                Heard::Job(polled) => return Ok(polled),
                Heard::Control(_) if self.n_stale_answers == 0 => {
                    return self.out_of_turn();
                }
                Heard::Control(_) => self.n_stale_answers -= 1,
            }
        }
        self.is_there(then)?;
        Ok(Polled::Nothing)
    }

    fn tell_revoked(&mut self, serials: &[JobId]) -> Result<(), CsdError> {
        let deadline = self.enter()?;
        let Some(session) = self.session else { return Ok(()) };
        let mut revoke =
            |serial| self.send(&Message::Revoke(session, serial).encode(), deadline);
        serials.iter().try_for_each(|serial| revoke(*serial))
    }
}

impl<L: Link> Producer for Remote<L> {
    fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>> {
        let deadline = match self.enter() {
            Ok(deadline) => deadline,
            Err(error) => return Err(refuse(job, slot, error)),
        };
        let mut travelling = self.credits.issue(job, slot)?;
        if !self.shares_jobs() {
            travelling.need_ns = 0;
        }
        let session = self.session.expect("credits are given for an open session alone");
        let sent = self.send(&wire::encode_job(session, &travelling), deadline);
        sent.map_err(|error| self.credits.withdraw(travelling.id, error))
    }

    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost> {
        let polled = self.poll_until(Instant::now() + timeout);
        self.credits.watch(polled)
    }

    fn revoke(&mut self, job: JobId) -> Result<(), Lost> {
        let serial = self.credits.revoke(job);
        let told = self.tell_revoked(serial.as_slice());
        self.credits.watch(told)
    }

    fn abandon(&mut self) -> Result<(), Lost> {
        self.early.clear();
        let serials = self.credits.abandon();
        let told = self.tell_revoked(&serials);
        self.credits.watch(told)
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
        let began = self.born.elapsed();
        let answer = self.ask(&Message::Hello.encode(), "hello", deadline)?;
        let Message::Welcome(capabilities) = answer else {
            return refusal(answer).map_or_else(|| self.out_of_turn(), Err);
        };
        self.credits.allow(&capabilities)?;
        if capabilities.has_pulse() && self.link.may_fall_silent() {
            let now = self.born.elapsed();
            let pulse = Pulse::new(now, now.saturating_sub(began));
            self.link.expects_bytes_within(pulse.patience());
            self.pulse = Some(pulse);
        }
        self.capabilities = Some(capabilities.clone());
        Ok(capabilities)
    }

    fn open(&mut self, session: &Session) -> Result<(), CsdError> {
        let deadline = self.enter()?;
        self.credits.begin(session)?;
        self.early.clear();
        self.session = None;
        // A device that does not know jobs, or runs, would find the session malformed.
        let knows_runs = self.capabilities.as_ref().is_some_and(Capabilities::knows_runs);
        let job = session.job.clone().filter(|_| self.shares_jobs());
        let run = session.run.clone().filter(|_| knows_runs);
        let question = match job == session.job && run == session.run {
            true => wire::encode_session(session),
            false => wire::encode_session(&Session { job, run, ..session.clone() }),
        };
        let answer = self.ask(&question, "open", deadline)?;
        if let Message::Refused { reason } = answer {
            return Err(CsdError::SessionRefused { reason });
        }
        if let Message::Busy(Busy { retry, reason }) = answer {
            return Err(CsdError::Busy { reason, retry });
        }
        let Message::Opened(id) = answer else { return self.out_of_turn() };
        self.session = Some(id);
        self.credits.begun(session);
        Ok(())
    }

    fn attest(
        &mut self,
        inquiry: &Inquiry,
    ) -> Result<Option<Vec<Option<RecordDigest>>>, CsdError> {
        let deadline = self.enter()?;
        let Some(session) = self.session else { return self.out_of_turn() };
        let question = Message::Attest(session, inquiry.clone()).encode();
        let answer = self.ask(&question, "attest", deadline)?;
        if let Message::Refused { reason } = answer {
            return Err(CsdError::SessionRefused { reason });
        }
        let Message::Attested(of, records) = answer else { return self.out_of_turn() };
        match of == session && records.len() == inquiry.samples.len() {
            true => Ok(Some(records)),
            false => self.out_of_turn(),
        }
    }

    fn stats(&mut self) -> Result<DeviceStats, CsdError> {
        let deadline = self.enter()?;
        let answer = self.ask(&Message::AskStats.encode(), "stats", deadline)?;
        let Message::Stats(stats) = answer else { return self.out_of_turn() };
        Ok(stats)
    }
}
