//! What every transport must do, as callable checks over [`EchoServe`], a device whose
//! samples are a pure function of their ids.
//!
//! `echo.rs` is that device. A transport's tests call [`all`] with a function that connects
//! it to a given device. A check that fails panics and says what was expected. Nothing here
//! is part of a run.

#![allow(
    clippy::missing_panics_doc,
    reason = "a check that fails panics: that is its use"
)]

mod echo;

use std::time::{Duration, Instant};

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use xxhash_rust::xxh3::xxh3_64;

use crate::job::{
    BadSample, Completion, Job, JobId, Outcome, PROTOCOL_VERSION, Payload, Session,
};
use crate::{CsdError, Serve, Transport};

pub use echo::{
    BAD_SAMPLE, Control, EchoServe, FATAL_SAMPLE, REFUSED_RECIPE, SLOTS, TWICE_SAMPLE,
    echo,
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
    samples_come_back_whatever_their_number_and_size(connect);
    jobs_finish_in_any_order(connect);
    a_full_device_hands_the_job_back(connect);
    an_unread_payload_is_thrown_away(connect);
    completions_wait_while_an_answer_is_awaited(connect);
    bad_samples_and_failed_jobs_are_named(connect);
    a_repeated_completion_is_named(connect);
    a_revoked_job_frees_its_slot(connect);
    a_revoked_job_may_still_hold_the_devices_slot(connect);
    a_session_hears_nothing_of_the_one_before(connect);
    a_poll_ends_at_its_timeout(connect);
    a_dropped_transport_closes_the_device(connect);
    a_dead_device_is_a_lost_link_in_every_call(connect);
}

/// Contract 1: the device's own words; a second hello says the same.
pub fn hello_says_what_the_device_is(connect: &mut Connect<'_>) {
    let mut serve = EchoServe::default();
    let expected = serve.hello();
    let mut transport = connect(serve).transport;
    assert_eq!(transport.hello().expect("hello"), expected);
    assert_eq!(transport.hello().expect("a second hello"), expected);
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
    let refused = transport.submit(job(1, &[1])).expect_err("a job without a session");
    assert_eq!(refused.job, job(1, &[1]));
    assert!(
        matches!(refused.source, CsdError::SessionRefused { .. }),
        "{}",
        refused.source
    );
}

/// Contract 1: the device's reason reaches the caller, and a better session is taken.
pub fn a_refused_session_says_why_and_another_may_follow(connect: &mut Connect<'_>) {
    let mut transport = connect(EchoServe::default()).transport;
    transport.hello().expect("hello");
    let bad = Session { recipe: REFUSED_RECIPE.to_owned(), ..session(4) };
    let error = transport.open(&bad).expect_err("a refused session").to_string();
    assert!(error.contains("that op does not exist"), "{error}");
    assert!(transport.submit(job(1, &[1])).is_err(), "a job after a refusal");
    transport.open(&session(4)).expect("a better session");
    transport.submit(job(1, &[1])).expect("a job in it");
    expect_done(&mut *transport, &session(4), &job(1, &[1]));
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
        transport.submit(job(id, &ids)).expect("submit");
        expect_done(&mut *transport, &session, &job(id, &ids));
    }
}

/// Contract 3: the youngest job first, and each with its own samples.
pub fn jobs_finish_in_any_order(connect: &mut Connect<'_>) {
    let (mut transport, control) = open(connect);
    control.hold();
    for id in 0..u64::from(SLOTS) {
        transport.submit(job(id, &[id, id + 1])).expect("submit");
    }
    settle(&mut *transport);
    control.release();
    let order = (0..SLOTS).map(|_| {
        let completion = next(&mut *transport);
        let JobId(id) = completion.job;
        check_done(&mut *transport, &session(4), &job(id, &[id, id + 1]), completion);
        id
    });
    let order: Vec<u64> = order.collect();
    assert_eq!(order, [3, 2, 1, 0], "youngest first");
}

/// Contract 2: one job more than there are slots comes back as it was.
pub fn a_full_device_hands_the_job_back(connect: &mut Connect<'_>) {
    let (mut transport, control) = open(connect);
    control.hold();
    for id in 0..u64::from(SLOTS) {
        transport.submit(job(id, &[id])).expect("submit");
    }
    let refused = transport.submit(job(9, &[9])).expect_err("a job too many");
    assert_eq!(refused.job, job(9, &[9]));
    assert!(matches!(refused.source, CsdError::Full), "{}", refused.source);
    control.release();
    next(&mut *transport);
    transport.submit(job(9, &[9])).expect("a slot is free again");
}

/// Contract 3: what was not read at once is gone, and what follows is whole.
pub fn an_unread_payload_is_thrown_away(connect: &mut Connect<'_>) {
    let (mut transport, _control) = open(connect);
    transport.submit(job(1, &[1, 2, 3])).expect("submit");
    let unread = next(&mut *transport);
    transport.submit(job(2, &[4, 5])).expect("submit");
    if let Some(len) = inline_len(&unread) {
        let error = transport.read_result(JobId(1), &mut vec![0; len]);
        let error = error.expect_err("a payload that was thrown away");
        assert!(matches!(error, CsdError::NoPayload { .. }), "{error}");
    }
    let completion = next(&mut *transport);
    if let Some(len) = inline_len(&completion) {
        let error = transport.read_result(JobId(2), &mut vec![0; len + 1]);
        let error = error.expect_err("a payload of another length");
        assert!(matches!(error, CsdError::NoPayload { .. }), "{error}");
    }
    transport.submit(job(3, &[6])).expect("submit");
    expect_done(&mut *transport, &session(4), &job(3, &[6]));
}

/// An answer of the control plane does not lose a result that came before it.
pub fn completions_wait_while_an_answer_is_awaited(connect: &mut Connect<'_>) {
    let (mut transport, _control) = open(connect);
    let began = Instant::now();
    for id in 0..3 {
        transport.submit(job(id, &[id])).expect("submit");
    }
    while transport.stats().expect("stats").jobs < 3 {
        if began.elapsed() > PATIENCE {
            panic!("three jobs did not finish while statistics were asked for");
        }
        // A device that works inside `poll` alone is polled here.
        if let Some(completion) = transport.poll(Duration::ZERO).expect("poll") {
            let JobId(id) = completion.job;
            check_done(&mut *transport, &session(4), &job(id, &[id]), completion);
            break;
        }
    }
    let n_left =
        std::iter::from_fn(|| transport.poll(Duration::from_millis(200)).expect("poll"));
    assert!((2..=3).contains(&n_left.count()), "every completion is polled once");
}

/// A bad sample is a slot and zeros; a failed job is a reason.
pub fn bad_samples_and_failed_jobs_are_named(connect: &mut Connect<'_>) {
    let (mut transport, _control) = open(connect);
    let partly = job(1, &[5, BAD_SAMPLE.0, 6, BAD_SAMPLE.0]);
    transport.submit(partly.clone()).expect("submit");
    let completion = next(&mut *transport);
    if let Outcome::Done { bad, .. } = &completion.outcome {
        assert_eq!(*bad, [BadSample { slot: 1 }, BadSample { slot: 3 }]);
    }
    check_done(&mut *transport, &session(4), &partly, completion);
    transport.submit(job(2, &[1, FATAL_SAMPLE.0])).expect("submit");
    let failed = next(&mut *transport);
    let reason = "the sample was fatal".to_owned();
    assert_eq!(failed.outcome, Outcome::Failed { reason });
    assert_eq!((failed.job, failed.device_ns, failed.lateness_ns), (JobId(2), 7, 3));
}

/// Contract 4: a second completion of a job carries the job's name.
pub fn a_repeated_completion_is_named(connect: &mut Connect<'_>) {
    let (mut transport, _control) = open(connect);
    transport.submit(job(1, &[TWICE_SAMPLE.0])).expect("submit");
    assert_eq!(next(&mut *transport).job, JobId(1));
    assert_eq!(next(&mut *transport).job, JobId(1));
    transport.submit(job(2, &[8])).expect("submit");
    expect_done(&mut *transport, &session(4), &job(2, &[8]));
}

/// Contract 4: a revoked job may still complete, under its name; its slot is the host's.
pub fn a_revoked_job_frees_its_slot(connect: &mut Connect<'_>) {
    let (mut transport, control) = open(connect);
    control.hold();
    for id in 0..u64::from(SLOTS) - 1 {
        transport.submit(job(id, &[id])).expect("submit");
    }
    transport.revoke(JobId(0)).expect("revoke");
    transport.revoke(JobId(77)).expect("revoke of a job that never was");
    transport.submit(job(8, &[8])).expect("submit");
    settle(&mut *transport);
    control.release();
    let mut names = std::iter::from_fn(|| {
        transport.poll(Duration::from_millis(300)).expect("poll").map(|it| it.job.0)
    })
    .collect::<Vec<_>>();
    names.retain(|id| *id != 0);
    names.sort_unstable();
    assert_eq!(names, [1, 2, 8]);
}

/// Contract 2 and 4: when the device cannot let go of revoked jobs, new ones are either
/// handed back as `Full` or wait for it; none fails.
pub fn a_revoked_job_may_still_hold_the_devices_slot(connect: &mut Connect<'_>) {
    let (mut transport, control) = open(connect);
    control.hold();
    for id in 0..u64::from(SLOTS) {
        transport.submit(job(id, &[id])).expect("submit");
        transport.revoke(JobId(id)).expect("revoke");
    }
    let early = transport.submit(job(9, &[9]));
    settle(&mut *transport);
    control.release();
    if let Err(refused) = early {
        assert!(matches!(refused.source, CsdError::Full), "{}", refused.source);
        next(&mut *transport);
        transport.submit(refused.job).expect("the device has a slot again");
    }
    let began = Instant::now();
    loop {
        let completion = next(&mut *transport);
        if completion.job == JobId(9) {
            return check_done(&mut *transport, &session(4), &job(9, &[9]), completion);
        }
        assert!(began.elapsed() < PATIENCE, "job 9 never finished");
    }
}

/// A job of an earlier session, finished late, cannot pass for one of this session that
/// has its id.
pub fn a_session_hears_nothing_of_the_one_before(connect: &mut Connect<'_>) {
    let (mut transport, control) = open(connect);
    control.hold();
    transport.submit(job(1, &[1])).expect("submit");
    settle(&mut *transport);
    transport.open(&session(4)).expect("the next run");
    transport.submit(job(1, &[2])).expect("submit");
    control.release();
    expect_done(&mut *transport, &session(4), &job(1, &[2]));
    let late = transport.poll(Duration::from_millis(100)).expect("poll");
    assert_eq!(late, None, "a completion of the earlier session");
}

/// Contract 5: nothing to report is said at the timeout, not long after it.
pub fn a_poll_ends_at_its_timeout(connect: &mut Connect<'_>) {
    let (mut transport, _control) = open(connect);
    for timeout_ms in [0, 1, 30] {
        let began = Instant::now();
        let polled = transport.poll(Duration::from_millis(timeout_ms)).expect("poll");
        assert_eq!(polled, None);
        assert!(began.elapsed() < PATIENCE, "a poll of {timeout_ms} ms");
    }
}

/// Contract 7: the device hears that its host is gone, with and without work.
pub fn a_dropped_transport_closes_the_device(connect: &mut Connect<'_>) {
    for n_jobs in [0, 2] {
        let (mut transport, control) = open(connect);
        control.hold();
        for id in 0..n_jobs {
            transport.submit(job(id, &[id])).expect("submit");
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

/// Contract 6: after the device's death every call says so, again and again.
pub fn a_dead_device_is_a_lost_link_in_every_call(connect: &mut Connect<'_>) {
    let serve = EchoServe::default();
    serve.control().hold();
    let mut subject = connect(serve);
    let transport = &mut *subject.transport;
    transport.hello().expect("hello");
    transport.open(&session(4)).expect("open");
    transport.submit(job(1, &[1])).expect("submit");
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
    let is_lost = |error: &CsdError| matches!(error, CsdError::LinkLost { .. });
    assert!(is_lost(&first), "{first}");
    for _ in 0..2 {
        assert!(is_lost(&transport.hello().expect_err("hello")));
        assert!(is_lost(&transport.open(&session(4)).expect_err("open")));
        let refused = transport.submit(job(2, &[2])).expect_err("submit");
        assert!(is_lost(&refused.source) && refused.job == job(2, &[2]));
        assert!(is_lost(&transport.poll(Duration::ZERO).expect_err("poll")));
        assert!(is_lost(
            &transport.read_result(JobId(1), &mut [0; 4]).expect_err("read")
        ));
        assert!(is_lost(&transport.revoke(JobId(1)).expect_err("revoke")));
        assert!(is_lost(&transport.stats().expect_err("stats")));
    }
}

fn session(sample_bytes: u32) -> Session {
    Session {
        recipe: "{\"ops\": [\"décoder\"]}".to_owned(),
        recipe_hash: u128::MAX - 5,
        seed: u64::MAX - 1,
        sample_bytes,
        max_batch: 64,
        manifest: (0..=255).collect(),
    }
}

fn job(id: u64, samples: &[u64]) -> Job {
    Job {
        id: JobId(id),
        epoch: EpochIdx(3),
        batch: BatchIdx(5),
        samples: samples.iter().copied().map(SampleId).collect(),
    }
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
    let polled = transport.poll(PATIENCE).expect("poll");
    polled.expect("a completion in time")
}

fn inline_len(completion: &Completion) -> Option<usize> {
    let Outcome::Done { payload: Payload::Inline { len }, .. } = &completion.outcome
    else {
        return None;
    };
    usize::try_from(*len).ok()
}

fn expect_done(transport: &mut dyn Transport, session: &Session, job: &Job) {
    let completion = next(transport);
    check_done(transport, session, job, completion);
}

/// The completion is the job's, and its bytes are the device's, wherever they are.
fn check_done(
    transport: &mut dyn Transport,
    session: &Session,
    job: &Job,
    completion: Completion,
) {
    assert_eq!(
        (completion.job, completion.device_ns, completion.lateness_ns),
        (job.id, 7, 3)
    );
    let Outcome::Done { payload, checksum, .. } = completion.outcome else {
        panic!("job {} failed: {:?}", job.id.0, completion.outcome)
    };
    let expected = echo(session, job);
    let mut bytes = vec![0xEE; expected.len()];
    match payload {
        Payload::Inline { len } => {
            assert_eq!(len, expected.len() as u64);
            let hash = transport.read_result(job.id, &mut bytes).expect("read_result");
            assert_eq!(hash, xxh3_64(&bytes), "of the samples of job {}", job.id.0);
        }
        Payload::Extent { path, offset, len } => {
            use std::os::unix::fs::FileExt;
            assert_eq!((offset % 4096, len), (0, expected.len() as u64));
            let file = std::fs::File::open(&path).expect("the extent's file");
            file.read_exact_at(&mut bytes, offset).expect("the extent's bytes");
            std::fs::remove_file(path)
                .expect("the extent's file is the host's to remove");
        }
    }
    assert!(bytes == expected, "the samples of job {}", job.id.0);
    assert_eq!(checksum, xxh3_64(&bytes));
}
