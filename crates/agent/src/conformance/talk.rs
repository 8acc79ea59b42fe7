//! A conversation message by message, for what no honest host says.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "whatever else a device says is wrong"
)]

use std::time::{Duration, Instant};

use bothends_csd::wire::Message;
use bothends_csd::{
    Address, Answer, Capabilities, ConnectOptions, CsdError, Ending, Job, Link, Session,
    SessionId, Transport, connect, link,
};

use super::exercise::Exercise;
use super::fault::{Checked, Fault, broken, ensure};
use super::visit::{PATIENCE, same, same_damaged};

/// Where a device is, and how it is reached.
#[derive(Debug, Clone)]
pub struct Reach {
    /// Its address.
    pub address: Address,
    /// Keys and timeouts.
    pub options: ConnectOptions,
}

impl Reach {
    /// Meets the device. In a directory the one that another host has just left may still be seen
    /// for a moment, until the device has taken its next place.
    pub(super) fn meet<T>(&self, mut meet: impl FnMut() -> Checked<T>) -> Checked<T> {
        let n_more = if self.is_socket() { 0 } else { MOST_TRIES };
        for _ in 0..n_more {
            match meet() {
                Err(Fault::Broken(_)) => std::thread::sleep(Duration::from_millis(20)),
                met => return met,
            }
        }
        meet()
    }

    /// Whether they are so from the first byte on: no channel and no directory.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.address, Address::Tcp { .. } | Address::Unix(_))
    }

    /// A connection to the device, which has answered.
    pub(super) fn connect(&self) -> Checked<Box<dyn Transport>> {
        self.meet(|| {
            let mut device = connect(&self.address, &self.options)?;
            device.hello()?;
            Ok(device)
        })
    }

    /// Whether its messages are bytes of a stream.
    pub(super) fn is_socket(&self) -> bool {
        !matches!(self.address, Address::Spool(_))
    }
}

/// How often a device in a directory is looked for again.
const MOST_TRIES: u32 = 50;

/// How long a device that is to say nothing is listened to.
const SILENCE: Duration = Duration::from_millis(300);

/// A connection over which anything can be said.
pub(super) struct Talk<'a> {
    link: Box<dyn Link>,
    pub(super) exercise: &'a Exercise,
    /// What the device has said of itself, once it has been greeted.
    pub(super) capabilities: Option<Capabilities>,
}

impl<'a> Talk<'a> {
    /// A connection over which nothing has been said yet.
    pub(super) fn strange(reach: &Reach, exercise: &'a Exercise) -> Checked<Self> {
        let link = link(&reach.address, &reach.options)?;
        Ok(Self { link, exercise, capabilities: None })
    }

    /// A connection whose key exchange is over.
    pub(super) fn greeted(reach: &Reach, exercise: &'a Exercise) -> Checked<Self> {
        reach.meet(|| {
            let mut talk = Self::strange(reach, exercise)?;
            talk.link.greet(ends())?;
            talk.say(&Message::Hello)?;
            match talk.hear()? {
                Message::Welcome(said) => {
                    talk.capabilities = Some(said);
                    Ok(talk)
                }
                other => out_of_turn("hello", &other),
            }
        })
    }

    /// The same in an open session, and its number.
    pub(super) fn opened(
        reach: &Reach,
        exercise: &'a Exercise,
    ) -> Checked<(Self, SessionId)> {
        let mut talk = Self::greeted(reach, exercise)?;
        let session = talk.open(&exercise.session())?;
        Ok((talk, session))
    }

    pub(super) fn say(&mut self, message: &Message) -> Checked {
        self.say_bytes(&message.encode())
    }

    pub(super) fn say_bytes(&mut self, bytes: &[u8]) -> Checked {
        Ok(self.link.send(bytes, ends())?)
    }

    pub(super) fn hear(&mut self) -> Checked<Message> {
        let heard = self.link.receive(ends())?;
        heard.map_or_else(|| broken(format!("no answer within {PATIENCE:.0?}")), Ok)
    }

    pub(super) fn open(&mut self, session: &Session) -> Checked<SessionId> {
        self.say(&Message::Open(session.clone()))?;
        loop {
            match self.hear()? {
                Message::Opened(session) => return Ok(session),
                // Of the session before.
                Message::Completed(_, answer) => self.skip(&answer)?,
                Message::Refused { reason } => {
                    return broken(format!("it refuses the session: {reason}"));
                }
                other => return out_of_turn("open", &other),
            }
        }
    }

    /// The answer to a job of `session`; nothing else may come before it.
    pub(super) fn answer(&mut self, session: SessionId) -> Checked<(Answer, Vec<u8>)> {
        let (of, answer, bytes) = self.any_answer()?;
        ensure((of == session).then_some(()), || {
            format!("it answers in session {:016x}, not {:016x}", of.0, session.0)
        })?;
        Ok((answer, bytes))
    }

    pub(super) fn any_answer(&mut self) -> Checked<(SessionId, Answer, Vec<u8>)> {
        match self.hear()? {
            Message::Completed(session, answer) => {
                let bytes = self.payload(&answer)?;
                Ok((session, answer, bytes))
            }
            other => out_of_turn("a job", &other),
        }
    }

    /// Holds an answer against what `job` makes.
    pub(super) fn compare(
        &self,
        (answer, bytes): (Answer, Vec<u8>),
        job: &Job,
    ) -> Checked {
        ensure((answer.job == job.id).then_some(()), || {
            format!("it answers job {}, not {}", answer.job.0, job.id.0)
        })?;
        match answer.ending {
            Ending::Failed { reason } => broken(format!("job {}: {reason}", job.id.0)),
            Ending::Done { bad, damaged, .. } => {
                same_damaged(&damaged, &self.exercise.damaged(job))?;
                let expected = self.exercise.expected(job);
                same(&(bytes, bad), &expected, self.exercise.sample_bytes())
            }
        }
    }

    pub(super) fn payload(&mut self, answer: &Answer) -> Checked<Vec<u8>> {
        let Ending::Done { len, checksum, .. } = &answer.ending else {
            return Ok(Vec::new());
        };
        let most = self.exercise.session();
        let most = u64::from(most.sample_bytes) * u64::from(most.max_batch);
        ensure((*len <= most).then_some(()), || format!("a result has {len} bytes"))?;
        let mut bytes = vec![0; usize::try_from(*len).unwrap_or(0)];
        match self.link.take_payload(&mut bytes, ends())? {
            Ok(hash) if hash == *checksum => Ok(bytes),
            Ok(_) => broken("the checksum of a result is not that of its bytes"),
            Err(reason) => broken(reason),
        }
    }

    fn skip(&mut self, answer: &Answer) -> Checked {
        self.payload(answer).map(drop)
    }

    /// Nothing more is said, for a moment.
    pub(super) fn silence(&mut self) -> Checked {
        match self.link.receive(Instant::now() + SILENCE)? {
            None => Ok(()),
            Some(other) => out_of_turn("what it is to leave alone", &other),
        }
    }

    /// The device ends the connection, after a word of refusal at most, which is returned.
    pub(super) fn ending(&mut self) -> Checked<Option<String>> {
        let mut said = None;
        loop {
            match self.link.receive(ends()) {
                Err(CsdError::LinkLost { .. }) => return Ok(said),
                Err(error) => return Err(error.into()),
                Ok(Some(Message::Refused { reason })) if said.is_none() => {
                    said = Some(reason);
                }
                Ok(Some(other)) => return out_of_turn("it", &other),
                Ok(None) => {
                    return broken(format!(
                        "the connection is still open after {PATIENCE:.0?}"
                    ));
                }
            }
        }
    }
}

fn ends() -> Instant {
    Instant::now() + PATIENCE
}

/// The device says something else than what was to come.
pub(super) fn out_of_turn<T>(asked: &str, said: &Message) -> Checked<T> {
    let said = match said {
        Message::Refused { reason } => format!("Refused: {reason}"),
        Message::Busy(busy) => format!("Busy: {}", busy.reason),
        said => {
            let said = format!("{said:?}");
            said.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("").to_owned()
        }
    };
    broken(format!("it answers {asked} with {said}"))
}
