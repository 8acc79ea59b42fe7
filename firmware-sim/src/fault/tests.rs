//! Each fault on a device that answers at once. Waits are only ever checked from below: a
//! busy machine may make them longer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_csd::Product;

use super::*;

const OWN: Duration = Duration::from_millis(4);
const LONG: Duration = Duration::from_secs(20);

/// Answers in order, at once, and says that each job took [`OWN`].
#[derive(Debug, Default)]
struct Prompt {
    jobs: VecDeque<(JobId, HostSlot)>,
    n_answered: u32,
    is_open: bool,
}

impl Serve for Prompt {
    fn hello(&mut self) -> Capabilities {
        Capabilities {
            protocol_version: bothends_csd::PROTOCOL_VERSION,
            name: "prompt".into(),
            emulated: true,
            ops: Vec::new(),
            features: Vec::new(),
            slots: 4,
            max_batch_bytes: u64::MAX,
        }
    }

    fn open(&mut self, _session: Session) -> Result<(), Declined> {
        self.is_open = true;
        Ok(())
    }

    fn submit(&mut self, job: Job, slot: HostSlot) -> Result<(), Box<Refused>> {
        self.jobs.push_back((job.id, slot));
        Ok(())
    }

    fn poll(&mut self, timeout: Duration) -> Option<Finished> {
        let Some((job, mut slot)) = self.jobs.pop_front() else {
            std::thread::sleep(timeout);
            return None;
        };
        self.n_answered += 1;
        let bytes = job.0.to_le_bytes();
        slot.copy_from_slice(&bytes);
        let (checksum, bad, damaged) = (sum(&bytes), Vec::new(), Vec::new());
        let product = Product { len: 8, checksum, bad, damaged };
        let device_ns = u64::try_from(OWN.as_nanos()).unwrap();
        Some(Finished { job, slot, result: Ok(product), device_ns, lateness_ns: 0 })
    }

    fn revoke(&mut self, job: JobId) {
        self.jobs.retain(|(open, _)| *open != job);
    }

    fn forget(&mut self, job: JobId) {
        self.revoke(job);
    }

    fn attest(&mut self, _: &Inquiry) -> Result<Vec<Option<RecordDigest>>, String> {
        Ok(Vec::new())
    }

    fn stats(&mut self) -> DeviceStats {
        let busy_seconds = (OWN * self.n_answered).as_secs_f64();
        DeviceStats { busy_seconds, ..DeviceStats::default() }
    }

    fn close(&mut self) {
        self.jobs.clear();
    }
}

/// Any checksum does here; the real one is the server's.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

fn faulty(faults: &[&str]) -> Faulty<Prompt> {
    let faults = faults.iter().map(|spec| spec.parse().unwrap()).collect();
    let config =
        FaultConfig { faults, expected_batches: Some(10), seed: 7, on_death: || () };
    Faulty::new(Prompt::default(), config)
}

fn job(id: u64) -> Job {
    job_of(EpochIdx(0), id)
}

fn job_of(epoch: EpochIdx, id: u64) -> Job {
    let batch = BatchIdx(0);
    Job { id: JobId(id), epoch, batch, samples: vec![SampleId(id)], need_ns: 0 }
}

/// A slot for one job.
fn slot() -> HostSlot {
    let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes: 8 }).unwrap();
    ring.take(Duration::ZERO).unwrap().host().unwrap()
}

/// Submits one job and waits for its answer.
fn one(device: &mut Faulty<Prompt>, id: u64) -> Option<Finished> {
    device.submit(job(id), slot()).unwrap();
    device.poll(LONG)
}

/// Of so many jobs of an epoch, one after the other, which took longer than their own time.
fn slowed(device: &mut Faulty<Prompt>, epoch: EpochIdx, n_jobs: u64) -> Vec<bool> {
    let each = (0..n_jobs).map(|id| {
        device.submit(job_of(epoch, id), slot()).unwrap();
        Duration::from_nanos(device.poll(LONG).unwrap().device_ns) > OWN
    });
    each.collect()
}

fn busy(device: &mut Faulty<Prompt>) -> Duration {
    Duration::from_secs_f64(device.stats().busy_seconds)
}

fn is_intact(finished: &Finished) -> bool {
    let product = finished.result.as_ref().unwrap();
    sum(&finished.slot[..product.len]) == product.checksum
}

#[test]
fn without_faults_nothing_changes() {
    let mut device = faulty(&[]);
    for id in 0..20 {
        let finished = one(&mut device, id).unwrap();
        assert_eq!(finished.job, JobId(id));
        assert!(is_intact(&finished));
        assert_eq!(Duration::from_nanos(finished.device_ns), OWN);
    }
}

#[test]
fn a_dead_device_never_answers_again() {
    for (percent, n_answered) in [(0, 0), (50, 5), (99, 9)] {
        let mut device = faulty(&[&format!("die@{percent}%")]);
        for id in 0..n_answered {
            assert!(one(&mut device, id).is_some(), "{percent}%: job {id}");
        }
        device.submit(job(100), slot()).unwrap();
        assert!(device.poll(Duration::from_millis(1)).is_none(), "{percent}%");
        device.submit(job(101), slot()).unwrap();
        assert!(device.poll(Duration::from_millis(1)).is_none(), "{percent}%");
    }
}

#[test]
fn death_is_what_the_caller_says_it_is() {
    static DIED: AtomicBool = AtomicBool::new(false);
    let mut device = faulty(&["die@10%"]);
    device.config.on_death = || DIED.store(true, Ordering::Relaxed);
    one(&mut device, 0).unwrap();
    assert!(!DIED.load(Ordering::Relaxed));
    device.submit(job(1), slot()).unwrap();
    assert!(DIED.load(Ordering::Relaxed));
}

#[test]
fn a_stalled_device_answers_after_its_stall() {
    let mut device = faulty(&["stall@20%:0.05"]);
    one(&mut device, 0).unwrap();
    one(&mut device, 1).unwrap();
    let begun = Instant::now();
    device.submit(job(2), slot()).unwrap();
    while device.poll(Duration::from_millis(1)).is_none() {
        assert!(begun.elapsed() < LONG, "it never came back");
    }
    assert!(begun.elapsed() >= Duration::from_millis(50));
    let begun = Instant::now();
    one(&mut device, 3).unwrap();
    assert!(begun.elapsed() < LONG, "a stall strikes once");
}

#[test]
fn a_throttled_device_is_slower_for_all_later_jobs() {
    let mut device = faulty(&["throttle@10%:5"]);
    let own = |finished: Finished| Duration::from_nanos(finished.device_ns);
    assert_eq!(own(one(&mut device, 0).unwrap()), OWN);
    let begun = Instant::now();
    for id in 1..4 {
        device.submit(job(id), slot()).unwrap();
    }
    for id in 1..4 {
        assert_eq!(device.poll(LONG).unwrap().job, JobId(id));
    }
    // The first began up to its own time before it was submitted.
    assert!(begun.elapsed() >= OWN * 14, "{:?}", begun.elapsed());
}

#[test]
fn a_fault_strikes_at_the_same_point_of_each_epoch_and_session() {
    let mut device = faulty(&["throttle@20%:4"]);
    let session = bothends_csd::conformance::session(8);
    device.open(session.clone()).unwrap();
    let expected = [false, false, true, true];
    assert_eq!(slowed(&mut device, EpochIdx::MEASURED, 4), [false; 4], "it is spared");
    for epoch in [EpochIdx(0), EpochIdx(1)] {
        assert_eq!(slowed(&mut device, epoch, 4), expected, "{epoch:?}");
    }
    device.open(session).unwrap();
    assert_eq!(slowed(&mut device, EpochIdx(1), 4), expected, "another session");
}

#[test]
fn a_device_stalls_once_in_each_epoch() {
    let mut device = faulty(&["stall@10%:0.05"]);
    for epoch in [EpochIdx(0), EpochIdx(1)] {
        for id in 0..4 {
            let begun = Instant::now();
            device.submit(job_of(epoch, id), slot()).unwrap();
            let is_silent = device.stalled_until > begun;
            assert_eq!(is_silent, id == 1, "{epoch:?}, job {id}");
            while device.poll(Duration::from_millis(1)).is_none() {
                assert!(begun.elapsed() < LONG, "it never came back");
            }
        }
    }
}

#[test]
fn a_dead_device_stays_dead_in_another_session() {
    let mut device = faulty(&["die@10%"]);
    one(&mut device, 0).unwrap();
    device.submit(job(1), slot()).unwrap();
    device.open(bothends_csd::conformance::session(8)).unwrap();
    device.submit(job_of(EpochIdx(1), 2), slot()).unwrap();
    assert!(device.poll(Duration::from_millis(1)).is_none());
}

#[test]
fn a_throttled_device_is_busy_for_the_longer_time() {
    let mut device = faulty(&["throttle@0%:5", "duplicate@100%"]);
    for id in 0..3 {
        one(&mut device, id).unwrap();
        device.poll(LONG).unwrap();
    }
    assert_eq!(busy(&mut device), OWN * 15, "a repeated answer is no work");
}

#[test]
fn a_throttled_device_is_not_busy_with_what_it_never_began() {
    // No machine is so busy that the first is done meanwhile.
    let mut device = faulty(&["throttle@0%:1000"]);
    device.submit(job(0), slot()).unwrap();
    device.submit(job(1), slot()).unwrap();
    assert!(device.poll(Duration::ZERO).is_none());
    device.revoke(JobId(1));
    assert_eq!(device.poll(Duration::ZERO).unwrap().job, JobId(1));
    assert_eq!(device.longer, Duration::ZERO);
}

#[test]
fn a_device_is_busy_for_its_own_time_with_late_and_silent_answers() {
    for fault in ["late@100%", "stall@0%:0.02"] {
        let mut device = faulty(&[fault]);
        device.submit(job(0), slot()).unwrap();
        let begun = Instant::now();
        while device.poll(Duration::from_millis(1)).is_none() {
            assert!(begun.elapsed() < LONG, "{fault}: it never came");
        }
        assert_eq!(busy(&mut device), OWN, "{fault}");
    }
}

#[test]
fn a_slow_start_ends_after_ten_jobs() {
    let mut device = faulty(&["slow-start"]);
    for n_submitted in 0..20 {
        device.n_submitted = n_submitted;
        // Wherever in an epoch that is.
        let expected = if n_submitted < 10 { 2.0 } else { 1.0 };
        for number in [0, 5, 50] {
            assert!((device.slowness(number) - expected).abs() < 0.1, "{n_submitted}");
        }
    }
    device.n_submitted = 0;
    let begun = Instant::now();
    one(&mut device, 0).unwrap();
    assert!(begun.elapsed() >= OWN, "twice its own time, once of it before");
}

#[test]
fn a_corrupt_answer_does_not_match_its_checksum() {
    let mut device = faulty(&["corrupt@100%"]);
    assert!(!is_intact(&one(&mut device, 0).unwrap()));
}

#[test]
fn a_lie_matches_its_checksum_and_is_no_sample() {
    let honest = one(&mut faulty(&[]), 0).unwrap();
    let lie = one(&mut faulty(&["lie@100%"]), 0).unwrap();
    let len = lie.result.as_ref().unwrap().len;
    assert_eq!(
        lie.result.as_ref().unwrap().checksum,
        XxHash3_64::oneshot(&lie.slot[..len])
    );
    let differing = (0..len).filter(|at| lie.slot[*at] != honest.slot[*at]);
    assert_eq!(differing.count(), 1);
}

#[test]
fn a_duplicate_comes_twice_and_is_the_same() {
    let mut device = faulty(&["duplicate@100%"]);
    let first = one(&mut device, 0).unwrap();
    let second = device.poll(LONG).unwrap();
    assert_eq!(first.job, second.job);
    assert_eq!(first.result.unwrap(), second.result.unwrap());
    assert_eq!(first.slot[..], second.slot[..]);
    assert!(device.poll(Duration::ZERO).is_none());
}

#[test]
fn a_late_answer_takes_five_times_its_own_time_and_holds_nobody_up() {
    let mut device = faulty(&["late@50%"]);
    let is_late = |device: &Faulty<Prompt>, id| device.strikes(Draw::Late, JobId(id));
    let late = (0..100).find(|&id| is_late(&device, id)).unwrap();
    let prompt = (0..100).find(|&id| !is_late(&device, id)).unwrap();
    let begun = Instant::now();
    device.submit(job(late), slot()).unwrap();
    device.submit(job(prompt), slot()).unwrap();
    assert_eq!(device.poll(LONG).unwrap().job, JobId(prompt), "it overtakes");
    let finished = device.poll(LONG).unwrap();
    assert_eq!(finished.job, JobId(late));
    assert!(begun.elapsed() >= OWN * 4);
    assert!(Duration::from_nanos(finished.device_ns) >= OWN * 5);
}

#[test]
fn chance_strikes_the_same_jobs_again_and_about_as_many_as_it_says() {
    let device = faulty(&["corrupt@10%", "late@30%"]);
    let hits = |draw| -> Vec<bool> {
        (0..10_000).map(|id| device.strikes(draw, JobId(id))).collect()
    };
    let count = |draw| hits(draw).into_iter().filter(|hit| *hit).count();
    assert_eq!(hits(Draw::Corrupt), hits(Draw::Corrupt));
    assert!((900..1100).contains(&count(Draw::Corrupt)), "{}", count(Draw::Corrupt));
    assert!((2850..3150).contains(&count(Draw::Late)), "{}", count(Draw::Late));
    assert_eq!(count(Draw::Duplicate), 0);
}

#[test]
fn a_refusing_device_answers_every_job_with_no() {
    let mut device = faulty(&["refuse"]);
    for id in 0..20 {
        let finished = one(&mut device, id).unwrap();
        assert_eq!(finished.job, JobId(id));
        assert_eq!(finished.result.unwrap_err(), "this device has the fault `refuse`");
    }
    assert!(device.inner.jobs.is_empty(), "the device inside never heard of them");
}

#[test]
fn held_answers_occupy_their_slots() {
    let mut device = faulty(&["throttle@0%:1000"]);
    for id in 0..4 {
        device.submit(job(id), slot()).unwrap();
    }
    assert!(device.poll(Duration::ZERO).is_none(), "all are held");
    let refused = device.submit(job(4), slot()).unwrap_err();
    assert_eq!(refused.job, job(4));
    assert!(matches!(refused.source, CsdError::Full));
    device.revoke(JobId(0));
    assert!(device.submit(job(4), slot()).is_err(), "what has begun is done");
}

#[test]
fn a_revoked_job_is_answered() {
    let mut device = faulty(&["throttle@0%:250"]);
    device.submit(job(0), slot()).unwrap();
    device.submit(job(1), slot()).unwrap();
    assert!(device.poll(Duration::ZERO).is_none(), "both are held");
    device.revoke(JobId(0));
    device.revoke(JobId(1));
    let second = device.poll(Duration::ZERO).unwrap();
    assert_eq!(second.job, JobId(1), "the one that has not begun is answered at once");
    assert_eq!(second.result.unwrap_err(), "revoked before it was begun");
    let first = device.poll(LONG).unwrap();
    assert!(first.job == JobId(0) && is_intact(&first), "the other when it is done");
}

#[test]
fn closing_forgets_what_was_held() {
    let mut device = faulty(&["late@100%"]);
    device.submit(job(0), slot()).unwrap();
    device.poll(Duration::from_millis(1));
    device.close();
    assert!(device.poll(OWN * 6).is_none());
}

/// Whoever injects a fault must learn whether it was there: a device that begins too few batches never dies.
#[test]
fn what_has_struck_is_counted() {
    let counts = |device: &mut Faulty<Prompt>| -> Vec<_> {
        let faults = device.stats().faults.into_iter();
        faults.map(|it| (it.fault, it.struck, it.after, it.begun)).collect()
    };
    let mut device = faulty(&["die@50%", "duplicate@100%", "throttle@20%:1.5"]);
    for id in 0..5 {
        one(&mut device, id).unwrap();
        while device.poll(Duration::ZERO).is_some() {}
    }
    let of = |fault: &str, struck, after| (fault.to_owned(), struck, after, 5);
    let twice = of("duplicate@100%", 5, None);
    let slow = of("throttle@20%:1.5", 3, Some(2));
    assert_eq!(
        counts(&mut device),
        [of("die@50%", 0, Some(5)), twice.clone(), slow.clone()]
    );
    device.submit(job(5), slot()).unwrap();
    assert_eq!(counts(&mut device), [of("die@50%", 1, Some(5)), twice, slow]);
    let mut device = faulty(&["refuse", "slow-start", "stall@0%:0"]);
    for id in 0..3 {
        one(&mut device, id).unwrap();
    }
    let struck: Vec<u64> = counts(&mut device).into_iter().map(|it| it.1).collect();
    assert_eq!(struck, [3, 3, 1]);
    assert!(faulty(&[]).stats().faults.is_empty());
}
