//! What every transport must do, as callable checks over [`EchoServe`], a device whose samples are a
//! pure function of their ids.
//!
//! `echo.rs` is that device. The tests of a transport call [`all`] with a function that connects it to a
//! given device. A check that fails panics and says what was expected. Nothing here is part of a run.

#![allow(
    clippy::missing_panics_doc,
    reason = "a check that fails panics: that is its use"
)]

mod echo;

use std::time::{Duration, Instant};

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_slots::conformance::produce;
use bothends_slots::{
    Completion, Lost, Outcome, Polled, Rejection, Ring, RingConfig, Slot,
};

use crate::words::job::{HAS_PULSE, Inquiry, PROTOCOL_VERSION, RecordDigest, Session};
use crate::{CsdError, Job, JobId, Serve, Transport};

pub use echo::{
    BAD_SAMPLE, BUSY_RECIPE, BUSY_RETRY, Control, DAMAGED_SAMPLE, EchoServe,
    FATAL_SAMPLE, REFUSED_RECIPE, SLOTS, TWICE_SAMPLE, echo,
};

/// Nothing in a check takes longer; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// A transport under test, joined to an [`EchoServe`].
pub struct Subject {
    /// The host's end; nothing has been said yet.
    pub transport: Box<dyn Transport>,
    /// Ends the device, as its death would.
    pub end_device: Box<dyn FnOnce()>,
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.transport.fmt(f)
    }
}

/// Joins a transport to a device.
pub type Connect<'a> = dyn FnMut(EchoServe) -> Subject + 'a;

/// Every check, in the order of the contract.
pub fn all(connect: &mut Connect<'_>) {
    hello_says_what_the_device_is(connect);
    another_version_is_refused(connect);
    nothing_is_taken_without_a_session(connect);
    a_refused_session_says_why_and_another_may_follow(connect);
    a_busy_device_says_for_how_long(connect);
    what_the_device_cannot_do_is_not_asked_of_it(connect);
    records_are_attested(connect);
    it_is_a_producer(connect);
    samples_come_back_whatever_their_number_and_size(connect);
    jobs_finish_in_any_order(connect);
    completions_wait_while_an_answer_is_awaited(connect);
    failed_jobs_are_named(connect);
    a_repeated_answer_is_extra(connect);
    a_session_hears_nothing_of_the_one_before(connect);
    a_dropped_transport_closes_the_device(connect);
    a_dead_device_is_a_lost_link_in_every_call(connect);
}

/// Contract 1: the device's own words; a second hello says the same.
pub fn hello_says_what_the_device_is(connect: &mut Connect<'_>) {
    let mut serve = EchoServe::default();
    let expected = serve.hello();
    let mut transport = connect(serve).transport;
    let mut told = || {
        let mut told = transport.hello().expect("hello");
        // It is the loop around the device that answers pings, and says so.
        told.features.retain(|feature| feature != HAS_PULSE);
        told
    };
    assert_eq!(told(), expected);
    assert_eq!(told(), expected, "a second hello");
}

/// Contract 1: versions are compared before anything else is agreed.
pub fn another_version_is_refused(connect: &mut Connect<'_>) {
    let theirs = PROTOCOL_VERSION + 1;
    let mut transport = connect(EchoServe::of_version(theirs)).transport;
    let error = transport.hello().expect_err("another version");
    assert!(
        matches!(error, CsdError::Version { theirs: it, .. } if it == theirs),
        "{error}"
    );
    assert!(transport.open(&session(4)).is_err(), "a session with another version");
}

/// Contract 1: hello, open, jobs. A job too early comes back.
pub fn nothing_is_taken_without_a_session(connect: &mut Connect<'_>) {
    let mut transport = connect(EchoServe::default()).transport;
    transport.hello().expect("hello");
    let rejected = transport.submit(job(1, &[1]), slot(4));
    let rejected = rejected.expect_err("a job without a session");
    assert_eq!(rejected.job, job(1, &[1]));
    assert!(matches!(rejected.why, Rejection::Impossible(_)), "{}", rejected.why);
}

/// Contract 1: the device's reason reaches the caller, and a better session is taken.
pub fn a_refused_session_says_why_and_another_may_follow(connect: &mut Connect<'_>) {
    let mut transport = connect(EchoServe::default()).transport;
    transport.hello().expect("hello");
    let bad = Session { recipe: REFUSED_RECIPE.to_owned(), ..session(4) };
    let error = transport.open(&bad).expect_err("a refused session").to_string();
    assert!(error.contains("that op does not exist"), "{error}");
    assert!(transport.submit(job(1, &[1]), slot(4)).is_err(), "a job after a refusal");
    transport.open(&session(4)).expect("a better session");
    transport.submit(job(1, &[1]), slot(4)).expect("a job in it");
    expect_done(&mut *transport, &session(4), &job(1, &[1]));
}

/// A device without room says so, and for how long; the host is no worse off than before.
pub fn a_busy_device_says_for_how_long(connect: &mut Connect<'_>) {
    let mut transport = connect(EchoServe::default()).transport;
    transport.hello().expect("hello");
    let other = Session { recipe: BUSY_RECIPE.to_owned(), ..session(4) };
    let error = transport.open(&other).expect_err("a busy device");
    assert!(
        matches!(&error, CsdError::Busy { retry, .. } if *retry == BUSY_RETRY),
        "{error}"
    );
    transport.open(&session(4)).expect("a session that it has room for");
}

/// A session that the device has said it cannot serve is not offered to it.
pub fn what_the_device_cannot_do_is_not_asked_of_it(connect: &mut Connect<'_>) {
    let mut transport = connect(EchoServe::default()).transport;
    let most = transport.hello().expect("hello").max_batch_bytes;
    let sample_bytes = u32::try_from(most / 2 + 1).expect("a small bound");
    let large = Session { max_batch: 2, sample_bytes, ..session(4) };
    let error = transport.open(&large).expect_err("too large a batch").to_string();
    assert!(error.contains("use a smaller batch size"), "{error}");
}

/// Digests come in the order of the inquiry, with its seed, and `None` for what is unreadable.
pub fn records_are_attested(connect: &mut Connect<'_>) {
    let mut transport = connect(EchoServe::default()).transport;
    transport.hello().expect("hello");
    transport.open(&session(4)).expect("open");
    transport.submit(job(1, &[1]), slot(4)).expect("a job");
    let samples = vec![SampleId(7), BAD_SAMPLE, SampleId(3)];
    let inquiry = Inquiry { seed: 11, samples };
    let records = transport.attest(&inquiry).expect("an answer");
    let of = |id: u64| Some(RecordDigest::of(&id.to_le_bytes(), 11));
    assert_eq!(records, Some(vec![of(7), None, of(3)]));
    expect_done(&mut *transport, &session(4), &job(1, &[1]));
}

/// Contract 2: all that holds of producers.
pub fn it_is_a_producer(connect: &mut Connect<'_>) {
    produce::all(&mut || {
        let mut transport = connect(EchoServe::default()).transport;
        transport.hello().expect("hello");
        transport.open(&session(100)).expect("open");
        let expected = |_: EpochIdx, sample: SampleId| {
            (sample != BAD_SAMPLE).then(|| echo(&session(100), &job(0, &[sample.0])))
        };
        produce::Subject {
            producer: transport,
            capacity: SLOTS,
            sample_bytes: 100,
            expected: Box::new(expected),
            samples: [5, DAMAGED_SAMPLE.0, BAD_SAMPLE.0, 7, 8].map(SampleId).to_vec(),
            damaged: vec![DAMAGED_SAMPLE],
        }
    });
}

/// No sample, one byte, a page and one byte more, and a batch of 10 MB.
pub fn samples_come_back_whatever_their_number_and_size(connect: &mut Connect<'_>) {
    let mut transport = connect(EchoServe::default()).transport;
    transport.hello().expect("hello");
    for (id, (sample_bytes, n_samples)) in
        (0..).zip([(3, 0), (0, 3), (1, 1), (4097, 1), (100, 41), (150_528, 64)])
    {
        let session = session(sample_bytes);
        transport.open(&session).expect("open");
        let ids: Vec<u64> = (0..n_samples).collect();
        transport.submit(job(id, &ids), slot(sample_bytes)).expect("submit");
        expect_done(&mut *transport, &session, &job(id, &ids));
    }
}

/// The youngest job first, and each with its own samples.
pub fn jobs_finish_in_any_order(connect: &mut Connect<'_>) {
    let (mut transport, control) = open(connect);
    control.hold();
    for id in 0..u64::from(SLOTS) {
        transport.submit(job(id, &[id, id + 1]), slot(4)).expect("submit");
    }
    settle(&mut *transport);
    control.release();
    let order = (0..SLOTS).map(|_| {
        let completion = next(&mut *transport);
        let JobId(id) = completion.job;
        check_done(&session(4), &job(id, &[id, id + 1]), completion);
        id
    });
    let order: Vec<u64> = order.collect();
    assert_eq!(order, [3, 2, 1, 0], "youngest first");
}

/// An answer of the control plane does not lose a result that came before it.
pub fn completions_wait_while_an_answer_is_awaited(connect: &mut Connect<'_>) {
    let (mut transport, _control) = open(connect);
    let began = Instant::now();
    for id in 0..3 {
        transport.submit(job(id, &[id]), slot(4)).expect("submit");
    }
    while transport.stats().expect("stats").jobs < 3 {
        if began.elapsed() > PATIENCE {
            panic!("three jobs did not finish while statistics were asked for");
        }
        // A device that works inside `poll` alone is polled here.
        if let Polled::Completion(completion) =
            transport.poll(Duration::ZERO).expect("poll")
        {
            let JobId(id) = completion.job;
            check_done(&session(4), &job(id, &[id]), completion);
            break;
        }
    }
    let n_left = std::iter::from_fn(|| {
        let polled = transport.poll(Duration::from_millis(200)).expect("poll");
        matches!(polled, Polled::Completion(_)).then_some(())
    });
    assert!((2..=3).contains(&n_left.count()), "every completion is polled once");
}

/// A failed job is a reason.
pub fn failed_jobs_are_named(connect: &mut Connect<'_>) {
    let (mut transport, _control) = open(connect);
    transport.submit(job(2, &[1, FATAL_SAMPLE.0]), slot(4)).expect("submit");
    let failed = next(&mut *transport);
    let reason = "the sample was fatal".to_owned();
    assert_eq!((failed.job, failed.outcome), (JobId(2), Outcome::Failed { reason }));
}

/// Contract 2: a second answer to a job is nobody's.
pub fn a_repeated_answer_is_extra(connect: &mut Connect<'_>) {
    let (mut transport, _control) = open(connect);
    transport.submit(job(1, &[TWICE_SAMPLE.0]), slot(4)).expect("submit");
    assert_eq!(next(&mut *transport).job, JobId(1));
    let polled = transport.poll(PATIENCE).expect("poll");
    assert!(matches!(polled, Polled::Extra), "{polled:?}");
    transport.submit(job(2, &[8]), slot(4)).expect("submit");
    expect_done(&mut *transport, &session(4), &job(2, &[8]));
}

/// A job of an earlier session, finished late, cannot pass for one of this session that
/// has its id.
pub fn a_session_hears_nothing_of_the_one_before(connect: &mut Connect<'_>) {
    let (mut transport, control) = open(connect);
    control.hold();
    transport.submit(job(1, &[1]), slot(4)).expect("submit");
    settle(&mut *transport);
    transport.open(&session(4)).expect("the next run");
    transport.submit(job(1, &[2]), slot(4)).expect("submit");
    control.release();
    expect_done(&mut *transport, &session(4), &job(1, &[2]));
    let late = transport.poll(Duration::from_millis(100)).expect("poll");
    assert!(matches!(late, Polled::Nothing), "{late:?} of the earlier session");
}

/// Contract 5: the device hears that its host is gone, with and without work.
pub fn a_dropped_transport_closes_the_device(connect: &mut Connect<'_>) {
    for n_jobs in [0, 2] {
        let (mut transport, control) = open(connect);
        control.hold();
        for id in 0..n_jobs {
            transport.submit(job(id, &[id]), slot(4)).expect("submit");
        }
        drop(transport);
        let began = Instant::now();
        while !control.is_closed() {
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "the device was not closed"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Contract 4: after the device's death every call says so, again and again, and its slots
/// are back.
pub fn a_dead_device_is_a_lost_link_in_every_call(connect: &mut Connect<'_>) {
    let serve = EchoServe::default();
    serve.control().hold();
    let mut subject = connect(serve);
    let transport = &mut *subject.transport;
    transport.hello().expect("hello");
    transport.open(&session(4)).expect("open");
    let ring = ring(4);
    let slot = ring.take(Duration::ZERO).expect("a free slot");
    transport.submit(job(1, &[1]), slot).expect("submit");
    (subject.end_device)();
    let began = Instant::now();
    let first = loop {
        match transport.poll(Duration::from_millis(50)) {
            Ok(_) => {
                assert!(began.elapsed() < Duration::from_secs(5), "no sign of its death");
            }
            Err(error) => break error,
        }
    };
    assert!(is_lost(&first), "{first}");
    assert_eq!(ring.free(), 1, "the slot of a lost device is back");
    for _ in 0..2 {
        let is_lost_link = |error: CsdError| matches!(error, CsdError::LinkLost { .. });
        assert!(is_lost_link(transport.hello().expect_err("hello")));
        assert!(is_lost_link(transport.open(&session(4)).expect_err("open")));
        let slot = ring.take(Duration::ZERO).expect("a free slot");
        let rejected = transport.submit(job(2, &[2]), slot).expect_err("submit");
        assert!(matches!(&rejected.why, Rejection::Lost(lost) if is_lost(lost)));
        assert_eq!(rejected.job, job(2, &[2]));
        assert!(is_lost(&transport.poll(Duration::ZERO).expect_err("poll")));
        assert!(is_lost(&transport.revoke(JobId(1)).expect_err("revoke")));
        assert!(is_lost(&transport.abandon().expect_err("abandon")));
        assert!(is_lost_link(transport.stats().expect_err("stats")));
    }
}

fn is_lost(lost: &Lost) -> bool {
    matches!(lost.0.downcast_ref(), Some(CsdError::LinkLost { .. }))
}

/// A session of samples of so many bytes, at most 64 in a job.
#[must_use]
pub fn session(sample_bytes: u32) -> Session {
    Session {
        recipe: "{\"ops\": [\"décoder\"]}".to_owned(),
        recipe_hash: u128::MAX - 5,
        seed: u64::MAX - 1,
        sample_bytes,
        max_batch: 64,
        manifest: (0..=255).collect(),
        job: None,
        run: None,
    }
}

fn job(id: u64, samples: &[u64]) -> Job {
    Job {
        id: JobId(id),
        epoch: EpochIdx(3),
        batch: BatchIdx(5),
        samples: samples.iter().copied().map(SampleId).collect(),
        need_ns: 0,
    }
}

/// A ring of one slot for a whole batch of such samples.
fn ring(sample_bytes: u32) -> Ring {
    let slot_bytes = (sample_bytes as usize * 64).max(1);
    Ring::new(RingConfig { n_slots: 1, slot_bytes }).expect("memory")
}

fn slot(sample_bytes: u32) -> Slot {
    ring(sample_bytes).take(Duration::ZERO).expect("a free slot")
}

/// A transport in the middle of a session with samples of 4 bytes.
fn open(connect: &mut Connect<'_>) -> (Box<dyn Transport>, Control) {
    let serve = EchoServe::default();
    let control = serve.control();
    let mut transport = connect(serve).transport;
    transport.hello().expect("hello");
    transport.open(&session(4)).expect("open");
    (transport, control)
}

/// An answer from the device: everything sent before has arrived.
fn settle(transport: &mut dyn Transport) {
    transport.stats().expect("stats");
}

fn next(transport: &mut dyn Transport) -> Completion {
    match transport.poll(PATIENCE).expect("poll") {
        Polled::Completion(completion) => completion,
        polled @ (Polled::Extra | Polled::Nothing) => {
            panic!("no completion in time: {polled:?}")
        }
    }
}

fn expect_done(transport: &mut dyn Transport, session: &Session, job: &Job) {
    let completion = next(transport);
    check_done(session, job, completion);
}

/// The completion is the job's, and its bytes are the device's.
fn check_done(session: &Session, job: &Job, completion: Completion) {
    let Completion { job: id, slot, outcome, .. } = completion;
    assert_eq!(
        (id, outcome),
        (job.id, Outcome::Made { bad: Vec::new(), damaged: Vec::new() })
    );
    let expected = echo(session, job);
    let slot = slot.host().expect("host memory");
    assert!(slot[..expected.len()] == expected, "the samples of job {}", job.id.0);
}
