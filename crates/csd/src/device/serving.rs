//! The device's one loop, over any link: messages in, finished jobs out.
//!
//! One thread does it all: it never waits for the host while a job may finish, nor for a
//! job longer than a [`TICK`] while the host may speak. Knows neither sockets nor files;
//! read `listen.rs` and `spool.rs` for the two links.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bothends_slots::{Job, JobId};

use crate::words::job::{Answer, Ending};
use crate::words::wire::Message;
use crate::{CsdError, Finished, Serve};

/// How long the loop looks one way while something may come from the other.
const TICK: Duration = Duration::from_millis(1);

/// How long an idle loop waits for the host before it looks at `stop` again.
const IDLE: Duration = Duration::from_millis(20);

/// More jobs than this that no slot takes are no honest host's.
const MAX_WAITING: usize = 4096;

/// How serving a host ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The host closed, or died.
    HostGone,
    /// The caller asked for it.
    Stopped,
}

/// A way for messages between device and host, as the device sees it. An error ends it;
/// [`CsdError::LinkLost`] means that the host is gone.
pub(crate) trait DeviceLink {
    /// The next message if it is here; does not wait.
    fn receive(&mut self) -> Result<Option<Message>, CsdError>;

    /// Takes a message and its payload for sending; does not wait for the host.
    fn send(&mut self, message: &Message, payload: Vec<u8>) -> Result<(), CsdError>;

    /// Whether some of what was taken has not left yet.
    fn is_sending(&self) -> bool;

    /// Sends what can be sent and waits up to `timeout` for something to do.
    fn wait(&mut self, timeout: Duration) -> Result<(), CsdError>;
}

/// Serves the host at the other end of `link` until it is gone or `stop` is set.
pub(crate) fn serve_link(
    link: &mut dyn DeviceLink,
    serve: &mut dyn Serve,
    stop: &AtomicBool,
) -> Result<Ended, CsdError> {
    let mut serving =
        Serving { link, serve, waiting: VecDeque::new(), running: HashSet::new() };
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
    /// Jobs for which the device has no room yet: a host that begins an epoch counts what it
    /// abandoned as gone, the device only when it is.
    waiting: VecDeque<Job>,
    running: HashSet<JobId>,
}

impl Serving<'_> {
    fn turn(&mut self) -> Result<(), CsdError> {
        while let Some(message) = self.link.receive()? {
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
                let capabilities = self.serve.hello();
                self.answer(&Message::Welcome(capabilities))
            }
            Message::Open(session) => {
                self.waiting.clear();
                self.running.clear();
                let opened = self.serve.open(session);
                self.answer(&match opened {
                    Ok(()) => Message::Opened,
                    Err(reason) => Message::Refused { reason },
                })
            }
            Message::Job(job) => {
                self.waiting.push_back(job);
                Ok(())
            }
            Message::Revoke(id) => self.revoke(id),
            Message::AskStats => {
                let stats = self.serve.stats();
                self.answer(&Message::Stats(stats))
            }
            Message::Greet { .. }
            | Message::Challenge { .. }
            | Message::Prove { .. }
            | Message::Refused { .. }
            | Message::Welcome(_)
            | Message::Opened
            | Message::Completed(_)
            | Message::Stats(_) => {
                Err(CsdError::Malformed { what: "a message that only a device sends" })
            }
        }
    }

    /// A job that has not begun is answered at once; one that has, when it is done.
    fn revoke(&mut self, id: JobId) -> Result<(), CsdError> {
        if let Some(at) = self.waiting.iter().position(|job| job.id == id) {
            self.waiting.remove(at);
            return self.fail(id, "revoked before it was begun".to_owned());
        }
        if self.running.contains(&id) {
            self.serve.revoke(id);
        }
        Ok(())
    }

    fn fail(&mut self, job: JobId, reason: String) -> Result<(), CsdError> {
        let ending = Ending::Failed { reason };
        let answer = Answer { job, ending, device_ns: 0, lateness_ns: 0 };
        self.answer(&Message::Completed(answer))
    }

    fn answer(&mut self, message: &Message) -> Result<(), CsdError> {
        self.link.send(message, Vec::new())
    }

    /// Hands waiting jobs to the device, as many as it takes.
    fn offer(&mut self) -> Result<(), CsdError> {
        if self.waiting.len() > MAX_WAITING {
            return Err(CsdError::Malformed { what: "more jobs than there are slots" });
        }
        while let Some(job) = self.waiting.pop_front() {
            let id = job.id;
            let Err(refused) = self.serve.submit(job) else {
                self.running.insert(id);
                continue;
            };
            if matches!(refused.source, CsdError::Full) {
                self.waiting.push_front(refused.job);
                break;
            }
            self.fail(id, refused.source.to_string())?;
        }
        Ok(())
    }

    /// Waits a little, on the side where something is more likely, for a finished job.
    fn finished(&mut self) -> Result<Option<Finished>, CsdError> {
        if self.link.is_sending() {
            self.link.wait(TICK)?;
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
        let (answer, payload) = finished.into_answer();
        self.link.send(&Message::Completed(answer), payload)
    }
}
