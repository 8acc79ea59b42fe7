//! Checks of what no honest host says: other versions, damaged messages, sessions of others, jobs
//! beyond what was agreed. They are made message by message, over a wire alone.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "whatever else a device says is wrong"
)]

use std::time::Duration;

use bothends_core::ids::SampleId;
use bothends_csd::job::HAS_PULSE;
use bothends_csd::wire::{HEADER_BYTES, Message};
use bothends_csd::{
    Capabilities, ConnectOptions, CsdError, Ending, Inquiry, JobId, PROTOCOL_VERSION,
    SessionId, connect,
};

use twox_hash::XxHash3_64;

use super::exercise::{Exercise, MAX_BATCH};
use super::fault::{Checked, Fault, broken, ensure, not_applicable};
use super::talk::{Reach, Talk, out_of_turn};

/// A second host is answered within this time.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A check that needs connections of its own.
pub(super) type Check = fn(&Reach, &Exercise) -> Checked;

pub(super) fn another_version(reach: &Reach, exercise: &Exercise) -> Checked {
    needs_a_greeting(reach)?;
    let mut talk = Talk::strange(reach, exercise)?;
    talk.say_bytes(&greeting_of(PROTOCOL_VERSION + 1))?;
    let reason = talk.ending()?;
    ensure(reason.map(drop), || {
        "it closes the connection without giving a reason".to_owned()
    })?;
    served(reach, exercise)
}

pub(super) fn no_greeting(reach: &Reach, exercise: &Exercise) -> Checked {
    needs_a_greeting(reach)?;
    let mut talk = Talk::strange(reach, exercise)?;
    talk.say(&Message::Hello)?;
    talk.ending()?;
    served(reach, exercise)
}

pub(super) fn damaged_header(reach: &Reach, exercise: &Exercise) -> Checked {
    needs_a_socket(reach)?;
    for at in [0, 8, 12, 16, 24, 40, 76] {
        let mut talk = Talk::greeted(reach, exercise)?;
        let mut bytes = Message::AskStats.encode();
        bytes[at] ^= 0x10;
        talk.say_bytes(&bytes)?;
        talk.ending().map_err(|fault| fault.of(&format!("byte {at} is damaged: ")))?;
    }
    served(reach, exercise)
}

pub(super) fn damaged_body(reach: &Reach, exercise: &Exercise) -> Checked {
    needs_a_socket(reach)?;
    let (mut talk, session) = Talk::opened(reach, exercise)?;
    let mut bytes = Message::Job(session, exercise.job(1, &[0, 1])).encode();
    bytes[HEADER_BYTES + 3] ^= 1;
    talk.say_bytes(&bytes)?;
    talk.ending()?;
    served(reach, exercise)
}

pub(super) fn message_of_a_device(reach: &Reach, exercise: &Exercise) -> Checked {
    needs_a_socket(reach)?;
    let mut talk = Talk::greeted(reach, exercise)?;
    talk.say(&Message::Opened(SessionId(1)))?;
    talk.ending()?;
    served(reach, exercise)
}

/// The body is never sent: it must not be waited for, nor its memory be taken.
pub(super) fn endless_body(reach: &Reach, exercise: &Exercise) -> Checked {
    needs_a_socket(reach)?;
    let mut talk = Talk::greeted(reach, exercise)?;
    talk.say_bytes(&header_with_body(&Message::AskStats, 1 << 30))?;
    talk.ending()?;
    served(reach, exercise)
}

pub(super) fn without_the_key(reach: &Reach, exercise: &Exercise) -> Checked {
    if reach.options.key_file.is_none() {
        return not_applicable("no key file is given");
    }
    let options = ConnectOptions { key_file: None, ..reach.options.clone() };
    match connect(&reach.address, &options).and_then(|mut device| device.hello()) {
        Err(CsdError::Unauthenticated { .. } | CsdError::LinkLost { .. }) => {}
        Err(error) => return Err(error.into()),
        Ok(_) => return broken("it admits a host without the key"),
    }
    served(reach, exercise)
}

/// Whoever is second is served, or is told at once that there is no room.
pub(super) fn second_host(reach: &Reach, exercise: &Exercise) -> Checked {
    needs_a_socket(reach)?;
    let _first = Talk::opened(reach, exercise)?;
    let options = ConnectOptions { timeout: AT_ONCE, ..reach.options.clone() };
    let mut second = connect(&reach.address, &options)?;
    let said = second.hello().and_then(|_| second.open(&exercise.session()));
    match said {
        Ok(()) => Ok(()),
        Err(CsdError::Busy { retry, reason }) => {
            ensure((!retry.is_zero() && !reason.is_empty()).then_some(()), || {
                "it is busy, and says neither why nor for how long".to_owned()
            })
        }
        Err(error) => Err(error.into()),
    }
}

/// Hosts that vanish: with jobs under way, in the middle of a message, before the greeting.
pub(super) fn vanished_host(reach: &Reach, exercise: &Exercise) -> Checked {
    let (mut talk, session) = Talk::opened(reach, exercise)?;
    for number in 0..4 {
        talk.say(&Message::Job(session, exercise.job(number, &[0, 1, 2, 4])))?;
    }
    drop(talk);
    served(reach, exercise)?;
    if reach.is_socket() {
        let mut talk = Talk::greeted(reach, exercise)?;
        talk.say_bytes(&Message::AskStats.encode()[..HEADER_BYTES / 2])?;
        drop(talk);
    }
    if reach.is_plain() {
        drop(Talk::strange(reach, exercise)?);
    }
    served(reach, exercise)
}

pub(super) fn sessions_have_numbers(reach: &Reach, exercise: &Exercise) -> Checked {
    let (mut talk, first) = Talk::opened(reach, exercise)?;
    let second = talk.open(&exercise.session())?;
    ensure((first != second).then_some(()), || {
        format!("two sessions of a connection have the number {:016x}", first.0)
    })?;
    drop(talk);
    let (_talk, third) = Talk::opened(reach, exercise)?;
    ensure((first != third && second != third).then_some(()), || {
        format!("sessions of two connections have the number {:016x}", third.0)
    })
}

pub(super) fn other_sessions(reach: &Reach, exercise: &Exercise) -> Checked {
    let (mut talk, session) = Talk::opened(reach, exercise)?;
    let other = SessionId(session.0 ^ 1);
    if other.0 == 0 {
        return not_applicable("the session's number is 1");
    }
    let job = exercise.job(1, &[0, 1]);
    talk.say(&Message::Job(other, exercise.job(2, &[1])))?;
    talk.say(&Message::Attest(other, Inquiry { seed: 1, samples: vec![SampleId(0)] }))?;
    talk.say(&Message::Revoke(other, JobId(1)))?;
    talk.say(&Message::Job(session, job.clone()))?;
    talk.say(&Message::Revoke(other, JobId(1)))?;
    let answer = talk.answer(session)?;
    talk.compare(answer, &job)?;
    talk.silence()
}

/// Jobs of the session before are not answered in the next one, whatever their numbers.
pub(super) fn opened_again(reach: &Reach, exercise: &Exercise) -> Checked {
    let (mut talk, first) = Talk::opened(reach, exercise)?;
    for number in 0..8 {
        talk.say(&Message::Job(first, exercise.job(number, &[0, 1, 2])))?;
    }
    let second = talk.open(&exercise.session())?;
    let job = exercise.job(3, &[4]);
    talk.say(&Message::Job(second, job.clone()))?;
    loop {
        let (of, answer, bytes) = talk.any_answer()?;
        if of == second {
            talk.compare((answer, bytes), &job)?;
            break;
        }
        ensure((of == first).then_some(()), || {
            format!("it answers in a session that was never opened, {:016x}", of.0)
        })?;
    }
    talk.silence()
}

pub(super) fn larger_job(reach: &Reach, exercise: &Exercise) -> Checked {
    let (mut talk, session) = Talk::opened(reach, exercise)?;
    let samples = vec![0; MAX_BATCH as usize + 1];
    talk.say(&Message::Job(session, exercise.job(1, &samples)))?;
    let (answer, _) = talk.answer(session)?;
    let is_failed = matches!(answer.ending, Ending::Failed { .. });
    ensure((is_failed && answer.job == JobId(1)).then_some(()), || {
        format!("it makes a job of {} samples", samples.len())
    })?;
    let job = exercise.job(2, &[0]);
    talk.say(&Message::Job(session, job.clone()))?;
    let answer = talk.answer(session)?;
    talk.compare(answer, &job)
}

/// A host that begins again counts what it abandoned as gone, the device only when it is.
pub(super) fn waiting_jobs(reach: &Reach, exercise: &Exercise) -> Checked {
    const N: u32 = 64;
    let (mut talk, session) = Talk::opened(reach, exercise)?;
    for number in 0..N {
        let samples = [u64::from(number % 3)];
        talk.say(&Message::Job(session, exercise.job(number, &samples)))?;
    }
    let mut answered = vec![false; N as usize];
    for _ in 0..N {
        let (answer, bytes) = talk.answer(session)?;
        let number = u32::try_from(answer.job.0).unwrap_or(N);
        let Some(is_answered) = answered.get_mut(number as usize) else {
            return broken(format!(
                "it answers job {}, which does not exist",
                answer.job.0
            ));
        };
        ensure((!std::mem::replace(is_answered, true)).then_some(()), || {
            format!("it answers job {number} twice")
        })?;
        let job = exercise.job(number, &[u64::from(number % 3)]);
        talk.compare((answer, bytes), &job)?;
    }
    talk.silence()
}

pub(super) fn unknown_revoke(reach: &Reach, exercise: &Exercise) -> Checked {
    let (mut talk, session) = Talk::opened(reach, exercise)?;
    let job = exercise.job(1, &[0]);
    talk.say(&Message::Revoke(session, JobId(77)))?;
    talk.say(&Message::Job(session, job.clone()))?;
    let answer = talk.answer(session)?;
    talk.compare(answer, &job)?;
    talk.say(&Message::Revoke(session, job.id))?;
    talk.silence()
}

pub(super) fn stats_without_a_session(reach: &Reach, exercise: &Exercise) -> Checked {
    let mut talk = Talk::greeted(reach, exercise)?;
    talk.say(&Message::AskStats)?;
    match talk.hear()? {
        Message::Stats(_) => Ok(()),
        other => out_of_turn("a question for statistics", &other),
    }
}

pub(super) fn ping_in_every_state(reach: &Reach, exercise: &Exercise) -> Checked {
    let mut talk = Talk::greeted(reach, exercise)?;
    needs_a_pulse(&talk)?;
    pong(&mut talk)?;
    let session = talk.open(&exercise.session())?;
    pong(&mut talk)?;
    // Neither is a job lost behind it, nor one `Ping` answered twice.
    let job = exercise.job(1, &[0]);
    talk.say(&Message::Ping)?;
    talk.say(&Message::Job(session, job.clone()))?;
    talk.say(&Message::Ping)?;
    let (mut n_pongs, mut made) = (0, None);
    while n_pongs < 2 || made.is_none() {
        match talk.hear()? {
            Message::Pong => n_pongs += 1,
            Message::Completed(of, answer) if of == session => {
                let bytes = talk.payload(&answer)?;
                made = Some((answer, bytes));
            }
            other => return out_of_turn("Ping", &other),
        }
    }
    if let Some(made) = made {
        talk.compare(made, &job)?;
    }
    talk.silence()
}

/// A device that reads on only when it has made what it was given is silent for as long as that takes, and
/// is taken for dead.
pub(super) fn ping_at_work(reach: &Reach, exercise: &Exercise) -> Checked {
    const N: u32 = 64;
    let (mut talk, session) = Talk::opened(reach, exercise)?;
    needs_a_pulse(&talk)?;
    let samples: Vec<u64> = (0..u64::from(MAX_BATCH)).map(|id| id % 3).collect();
    for number in 0..N {
        talk.say(&Message::Job(session, exercise.job(number, &samples)))?;
    }
    talk.say(&Message::Ping)?;
    let (mut n_answers, mut n_before) = (0, None);
    while n_answers < N || n_before.is_none() {
        match talk.hear()? {
            Message::Pong if n_before.is_none() => n_before = Some(n_answers),
            Message::Completed(of, answer) if of == session => {
                talk.payload(&answer)?;
                n_answers += 1;
            }
            other => return out_of_turn("Ping", &other),
        }
    }
    ensure(n_before.is_some_and(|n| n < N).then_some(()), || {
        format!("it answers Ping when all of {N} jobs are answered")
    })
}

fn pong(talk: &mut Talk<'_>) -> Checked {
    talk.say(&Message::Ping)?;
    match talk.hear()? {
        Message::Pong => Ok(()),
        other => out_of_turn("Ping", &other),
    }
}

/// The device still serves, whatever it makes.
fn served(reach: &Reach, exercise: &Exercise) -> Checked {
    let next = |fault: Fault| fault.of("the next host: ");
    let (mut talk, session) = Talk::opened(reach, exercise).map_err(next)?;
    talk.say(&Message::Job(session, exercise.job(5, &[0, 2]))).map_err(next)?;
    let (answer, _) = talk.answer(session).map_err(next)?;
    ensure((answer.job == JobId(5)).then_some(()), || {
        format!("the next host: it answers job {}, which does not exist", answer.job.0)
    })
}

/// A greeting in the words of another version.
fn greeting_of(version: u32) -> Vec<u8> {
    let mut bytes = Message::Greet { nonce: [7; 32] }.encode();
    bytes[4..8].copy_from_slice(&version.to_le_bytes());
    sealed(bytes)
}

/// The header of a message that says of its body that it is so long.
fn header_with_body(message: &Message, body_bytes: u32) -> Vec<u8> {
    let mut bytes = message.encode();
    bytes.truncate(HEADER_BYTES);
    bytes[12..16].copy_from_slice(&body_bytes.to_le_bytes());
    sealed(bytes)
}

/// With the check that its header has now.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let at = HEADER_BYTES - 4;
    let check = XxHash3_64::oneshot(&bytes[..at]).to_le_bytes();
    bytes[at..HEADER_BYTES].copy_from_slice(&check[..4]);
    bytes
}

fn needs_a_greeting(reach: &Reach) -> Checked {
    match reach.is_plain() {
        true => Ok(()),
        false => not_applicable("hosts are not greeted there"),
    }
}

fn needs_a_pulse(talk: &Talk<'_>) -> Checked {
    match talk.capabilities.as_ref().is_some_and(Capabilities::has_pulse) {
        true => Ok(()),
        false => not_applicable(format!("it has no feature `{HAS_PULSE}`")),
    }
}

fn needs_a_socket(reach: &Reach) -> Checked {
    match reach.is_socket() {
        true => Ok(()),
        false => not_applicable("a directory has no connections"),
    }
}
