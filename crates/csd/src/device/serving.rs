//! The device's one loop, over any link: messages in, finished jobs out.
//!
//! One thread does it all. It never waits for the host while a job may finish, and never waits longer
//! than a [`TICK`] for a job while the host may send something. The slots that batches are made in and
//! sent from are here, one ring per session. It knows neither sockets nor files; read `listen.rs` and
//! `spool.rs` for the two links.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bothends_slots::{HostSlot, Job, JobId, Ring, RingConfig};

use crate::words::job::{Answer, Ending, HAS_PULSE, Inquiry, Session, SessionId};
use crate::words::key;
use crate::words::wire::Message;
use crate::{CsdError, Declined, Finished, Refused, Serve};

/// How long the loop looks one way while something may come from the other.
const TICK: Duration = Duration::from_millis(1);

/// How long an idle loop waits for the host before it looks at `stop` again.
const IDLE: Duration = Duration::from_millis(20);

/// More jobs than this that no slot takes are no honest host's.
const MAX_WAITING: usize = 4096;

/// More answers than this that do not leave are for a host that does not read: it is not listened to
/// until it does.
pub(crate) const MAX_UNSENT: usize = 1024;

/// Nor are jobs that no slot takes with so many samples together, which take 32 MiB.
const MAX_WAITING_SAMPLES: usize = 1 << 22;

/// After so many messages the loop looks at everything else, however many are there.
const MAX_MESSAGES: usize = 64;

/// How serving a host ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The host closed, or died.
    HostGone,
    /// The caller asked for it.
    Stopped,
}

/// The samples of an answer, in the slot that they were made in, which is free for another job
/// once this is dropped.
#[derive(Debug)]
pub(crate) struct Payload {
    slot: HostSlot,
    len: usize,
}

impl Payload {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.slot[..self.len]
    }
}

/// A way for messages between device and host, as the device sees it. An error ends it;
/// [`CsdError::LinkLost`] means that the host is gone.
pub(crate) trait DeviceLink {
    /// The next message if it is here; does not wait.
    fn receive(&mut self) -> Result<Option<Message>, CsdError>;

    /// Takes a message and its payload for sending; does not wait for the host.
    fn send(
        &mut self,
        message: &Message,
        payload: Option<Payload>,
    ) -> Result<(), CsdError>;

    /// Whether some of what was taken has not left yet.
    fn is_sending(&self) -> bool;

    /// How many payloads that is.
    fn n_unsent(&self) -> usize;

    /// Whether so many answers wait for the host to take them that it should not be asked for more
    /// to answer.
    fn is_crowded(&self) -> bool;

    /// Sends what can be sent and waits up to `timeout` for something to do.
    fn wait(&mut self, timeout: Duration) -> Result<(), CsdError>;
}

/// Serves the host at the other end of `link` until it is gone or `stop` is set.
pub(crate) fn serve_link(
    link: &mut dyn DeviceLink,
    serve: &mut dyn Serve,
    stop: &AtomicBool,
) -> Result<Ended, CsdError> {
    let n_slots = serve.hello().slots;
    let (waiting, running) = (VecDeque::new(), HashSet::new());
    let (opening, session, ring) = (None, None, None);
    let mut serving =
        Serving { link, serve, n_slots, opening, session, ring, waiting, running };
    let ended = loop {
        // A flag alone; nothing else is published with it.
        if stop.load(Ordering::Relaxed) {
            break Ok(Ended::Stopped);
        }
        match serving.turn() {
            Ok(()) => {}
            Err(CsdError::LinkLost { .. }) => break Ok(Ended::HostGone),
            Err(error) => break Err(error),
        }
    };
    serving.serve.close();
    ended
}

struct Serving<'a> {
    link: &'a mut dyn DeviceLink,
    serve: &'a mut dyn Serve,
    /// Results that may be here at once: being made, made, or not sent yet.
    n_slots: u32,
    /// A session that is asked for while results of the one before have not left.
    opening: Option<Session>,
    session: Option<SessionId>,
    /// This session's slots.
    ring: Option<Ring>,
    /// Jobs for which the device has no room yet: a host that begins an epoch counts what it
    /// abandoned as gone, the device only when it is.
    waiting: VecDeque<Job>,
    running: HashSet<JobId>,
}

impl Serving<'_> {
    fn turn(&mut self) -> Result<(), CsdError> {
        self.open_next()?;
        for _ in 0..MAX_MESSAGES {
            if self.link.is_crowded() || self.opening.is_some() {
                break;
            }
            let Some(message) = self.link.receive()? else { break };
            self.act(message)?;
        }
        self.offer()?;
        match self.finished()? {
            Some(finished) => self.deliver(finished),
            None => Ok(()),
        }
    }

    fn act(&mut self, message: Message) -> Result<(), CsdError> {
        match message {
            Message::Hello => {
                let mut capabilities = self.serve.hello();
                // This loop answers while the device works.
                capabilities.features.push(HAS_PULSE.to_owned());
                self.answer(&Message::Welcome(capabilities))
            }
            Message::Ping => self.answer(&Message::Pong),
            Message::Open(session) => {
                self.waiting.clear();
                self.running.clear();
                self.session = None;
                self.opening = Some(session);
                self.open_next()
            }
            Message::Job(session, job) => {
                // One of an earlier session: its host waits for nothing any more.
                if self.session == Some(session) {
                    self.waiting.push_back(job);
                }
                Ok(())
            }
            Message::Revoke(session, id) => match self.session == Some(session) {
                true => self.revoke(session, id),
                false => Ok(()),
            },
            Message::Attest(session, inquiry) => self.attest(session, &inquiry),
            Message::AskStats => {
                let stats = self.serve.stats();
                self.answer(&Message::Stats(stats))
            }
            Message::Announce(_) | Message::AskMembers => {
                let reason = "this connection is of a host; ask a registry with the first \
                              message of one";
                self.answer(&Message::Refused { reason: reason.to_owned() })
            }
            Message::Greet { .. }
            | Message::Challenge { .. }
            | Message::Prove { .. }
            | Message::Refused { .. }
            | Message::Welcome(_)
            | Message::Opened(_)
            | Message::Busy(_)
            | Message::Completed(..)
            | Message::Attested(..)
            | Message::Stats(_)
            | Message::Pong
            | Message::Announced
            | Message::Members(_) => {
                Err(CsdError::Malformed { what: "a message that only a device sends" })
            }
        }
    }

    /// Opens the session that is asked for, once no result of the one before takes memory: a host that takes none must
    /// not get that of another session.
    fn open_next(&mut self) -> Result<(), CsdError> {
        if self.link.n_unsent() > 0 {
            return Ok(());
        }
        let Some(session) = self.opening.take() else { return Ok(()) };
        let opened = self.open(session);
        self.answer(&match opened {
            Ok(session) => Message::Opened(session),
            Err(Declined::Refused(reason)) => Message::Refused { reason },
            Err(Declined::Busy(busy)) => Message::Busy(busy),
        })
    }

    /// Opens the session on the device, and makes its ring.
    fn open(&mut self, session: Session) -> Result<SessionId, Declined> {
        (self.ring, self.session) = (None, None);
        let (samples, bytes) =
            (session.max_batch as usize, session.sample_bytes as usize);
        let opened = self.serve.open(session);
        // A device may have room for fewer of this session's.
        self.n_slots = self.serve.hello().slots.max(1);
        opened?;
        // Nobody writes into a slot of a session without bytes, but slots have some.
        let slot_bytes = samples.saturating_mul(bytes).max(1);
        let ring = Ring::new(RingConfig { n_slots: self.n_slots, slot_bytes });
        self.ring = Some(ring.map_err(|error| {
            self.serve.close();
            error.to_string()
        })?);
        let id = session_id().map_err(|error| {
            self.serve.close();
            format!("the device cannot draw a session's number: {error}")
        })?;
        self.session = Some(id);
        Ok(id)
    }

    fn attest(&mut self, session: SessionId, inquiry: &Inquiry) -> Result<(), CsdError> {
        if self.session != Some(session) {
            return Ok(());
        }
        let records = self.serve.attest(inquiry);
        self.answer(&match records {
            Ok(records) => Message::Attested(session, records),
            Err(reason) => Message::Refused { reason },
        })
    }

    /// A job that has not begun is answered at once; one that has, when it is done.
    fn revoke(&mut self, session: SessionId, id: JobId) -> Result<(), CsdError> {
        if let Some(at) = self.waiting.iter().position(|job| job.id == id) {
            self.waiting.remove(at);
            return self.fail(session, id, "revoked before it was begun".to_owned());
        }
        if self.running.contains(&id) {
            self.serve.revoke(id);
        }
        Ok(())
    }

    fn fail(
        &mut self,
        session: SessionId,
        job: JobId,
        reason: String,
    ) -> Result<(), CsdError> {
        let ending = Ending::Failed { reason };
        let answer = Answer { job, ending, device_ns: 0, lateness_ns: 0 };
        self.answer(&Message::Completed(session, answer))
    }

    fn answer(&mut self, message: &Message) -> Result<(), CsdError> {
        self.link.send(message, None)
    }

    /// Hands waiting jobs to the device, as many as it takes. A host that does not take its results
    /// gets no more of them: what has not left takes memory as what is being made does.
    fn offer(&mut self) -> Result<(), CsdError> {
        let n_samples: usize = self.waiting.iter().map(|job| job.samples.len()).sum();
        if self.waiting.len() > MAX_WAITING || n_samples > MAX_WAITING_SAMPLES {
            return Err(CsdError::Malformed { what: "more jobs than there are slots" });
        }
        while self.running.len() + self.link.n_unsent() < self.n_slots.max(1) as usize {
            let Some(job) = self.waiting.pop_front() else { break };
            let id = job.id;
            // A session that is open has a ring, and jobs wait in one alone.
            let (Some(ring), Some(session)) = (&self.ring, self.session) else { break };
            let slot = ring.take(Duration::ZERO).and_then(|slot| slot.host().ok());
            let Some(slot) = slot else {
                // The device still writes into one, although it has answered.
                self.waiting.push_front(job);
                break;
            };
            let Err(refused) = self.serve.submit(job, slot) else {
                self.running.insert(id);
                continue;
            };
            let Refused { job, source, .. } = *refused;
            if matches!(source, CsdError::Full) {
                self.waiting.push_front(job);
                break;
            }
            self.fail(session, id, source.to_string())?;
        }
        Ok(())
    }

    /// Waits a little, on the side where something is more likely, for a finished job.
    fn finished(&mut self) -> Result<Option<Finished>, CsdError> {
        if self.link.is_sending() {
            // Nothing can finish of a host that has all its slots full and does not read.
            self.link.wait(if self.running.is_empty() { IDLE } else { TICK })?;
            Ok(self.serve.poll(Duration::ZERO))
        } else if self.running.is_empty() && self.waiting.is_empty() {
            self.link.wait(IDLE)?;
            Ok(self.serve.poll(Duration::ZERO))
        } else {
            Ok(self.serve.poll(TICK))
        }
    }

    fn deliver(&mut self, finished: Finished) -> Result<(), CsdError> {
        self.running.remove(&finished.job);
        // `open` and `close` drop what is finished with all else.
        let Some(session) = self.session else { return Ok(()) };
        let (answer, slot) = finished.into_answer();
        let len = match &answer.ending {
            Ending::Done { len, .. } => usize::try_from(*len).ok(),
            Ending::Failed { .. } => None,
        };
        let payload = len.map(|len| Payload { slot, len });
        self.link.send(&Message::Completed(session, answer), payload)
    }
}

/// A number that no earlier session has, on this device or another one.
fn session_id() -> std::io::Result<SessionId> {
    // A fuzzer cannot guess one.
    if cfg!(fuzzing) {
        return Ok(SessionId(1));
    }
    let drawn: [u8; 8] = key::nonce()?;
    Ok(SessionId(u64::from_le_bytes(drawn).max(1)))
}

#[cfg(test)]
mod tests {
    use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};

    use super::*;
    use crate::conformance::{EchoServe, SLOTS, session};

    /// A host that says hello without a pause; after a while the device is asked to stop.
    struct Flood<'a> {
        n_received: usize,
        stop: &'a AtomicBool,
    }

    impl DeviceLink for Flood<'_> {
        fn receive(&mut self) -> Result<Option<Message>, CsdError> {
            self.n_received += 1;
            self.stop.store(self.n_received > 1000, Ordering::Relaxed);
            match self.n_received {
                0..5000 => Ok(Some(Message::Hello)),
                _ => Err(CsdError::Malformed { what: "more than anybody listens to" }),
            }
        }

        fn send(&mut self, _: &Message, _: Option<Payload>) -> Result<(), CsdError> {
            Ok(())
        }

        fn is_sending(&self) -> bool {
            false
        }

        fn n_unsent(&self) -> usize {
            0
        }

        fn is_crowded(&self) -> bool {
            false
        }

        fn wait(&mut self, _: Duration) -> Result<(), CsdError> {
            Ok(())
        }
    }

    #[test]
    fn a_flood_of_messages_does_not_hide_a_stop() {
        let stop = AtomicBool::new(false);
        let mut link = Flood { n_received: 0, stop: &stop };
        let ended = serve_link(&mut link, &mut EchoServe::default(), &stop);
        assert_eq!(ended.unwrap(), Ended::Stopped);
    }

    /// A host that sends its jobs and takes nothing.
    struct Hoard<'a> {
        messages: VecDeque<Message>,
        session: Option<SessionId>,
        sent: Vec<Payload>,
        n_opened: u32,
        n_turns: u32,
        /// Turns after which it takes everything.
        takes_after: u32,
        stop: &'a AtomicBool,
    }

    impl DeviceLink for Hoard<'_> {
        fn receive(&mut self) -> Result<Option<Message>, CsdError> {
            self.n_turns += u32::from(self.messages.is_empty());
            self.stop.store(self.n_turns > 1000, Ordering::Relaxed);
            // The second session is asked for once there are results of the first.
            let is_second = |it: &Message| matches!(it, Message::Open(_));
            let is_early = self.n_opened == 1 && self.sent.is_empty();
            if is_early && self.messages.front().is_some_and(is_second) {
                return Ok(None);
            }
            let next = self.messages.pop_front();
            Ok(next.map(|message| match (message, self.session) {
                (Message::Job(_, job), Some(session)) => Message::Job(session, job),
                (message, _) => message,
            }))
        }

        fn send(
            &mut self,
            message: &Message,
            payload: Option<Payload>,
        ) -> Result<(), CsdError> {
            if let Message::Opened(session) = message {
                self.session = Some(*session);
                self.n_opened += 1;
            }
            self.sent.extend(payload);
            Ok(())
        }

        fn is_sending(&self) -> bool {
            self.n_unsent() > 0
        }

        fn n_unsent(&self) -> usize {
            self.sent.len()
        }

        fn is_crowded(&self) -> bool {
            false
        }

        fn wait(&mut self, _: Duration) -> Result<(), CsdError> {
            self.n_turns += 1;
            self.stop.store(self.n_turns > 1000, Ordering::Relaxed);
            if self.n_turns > self.takes_after {
                self.sent.clear();
            }
            Ok(())
        }
    }

    impl<'a> Hoard<'a> {
        /// Asks for so many sessions of slots with 300 bytes, and for 30 jobs after the first.
        fn new(n_sessions: usize, stop: &'a AtomicBool) -> Self {
            let job = |id| Job {
                id: JobId(id),
                epoch: EpochIdx(0),
                batch: BatchIdx(0),
                samples: vec![SampleId(1)],
                need_ns: 0,
            };
            let jobs = (0..30).map(|id| Message::Job(SessionId(1), job(id)));
            let messages = [Message::Hello, Message::Open(session(300))].into_iter();
            let others = (1..n_sessions).map(|_| Message::Open(session(300)));
            let messages = messages.chain(jobs).chain(others).collect();
            let (session, sent, n_opened, n_turns) = (None, Vec::new(), 0, 0);
            let takes_after = u32::MAX;
            Self { messages, session, sent, n_opened, n_turns, takes_after, stop }
        }
    }

    #[test]
    fn results_that_do_not_leave_are_as_many_as_there_are_slots() {
        let stop = AtomicBool::new(false);
        let mut link = Hoard::new(1, &stop);
        let ended = serve_link(&mut link, &mut EchoServe::default(), &stop);
        assert_eq!(ended.unwrap(), Ended::Stopped);
        let sent: Vec<usize> = link.sent.iter().map(|sent| sent.bytes().len()).collect();
        assert_eq!(sent, vec![300; SLOTS as usize]);
    }

    /// Each had the memory of its slots, of which the device knew that of the last session alone.
    #[test]
    fn a_session_begins_when_no_result_of_the_one_before_takes_memory() {
        for (takes_after, n_opened) in [(u32::MAX, 1), (500, 3)] {
            let stop = AtomicBool::new(false);
            let mut link = Hoard { takes_after, ..Hoard::new(3, &stop) };
            let ended = serve_link(&mut link, &mut EchoServe::default(), &stop);
            assert_eq!(ended.unwrap(), Ended::Stopped);
            assert_eq!(link.n_opened, n_opened, "{takes_after}");
            assert!(link.sent.len() <= SLOTS as usize, "{}", link.sent.len());
        }
    }
}
