//! A producer with a thread of its own, for those whose calls wait for somebody else: devices.
//!
//! [`Threaded`] is a producer again, whose calls do not wait. The thread decides nothing: late,
//! repeated and revoked results are reported, and the collector's ledger says what counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bothends_csd::{DeviceStats, Transport};
use bothends_slots::{
    Completion, Job, JobId, Lost, Outcome, Polled, Producer, Rejected, Rejection, Slot,
};
use crossbeam::channel::{
    Receiver, RecvTimeoutError, SendError, Sender, TryRecvError, TrySendError, bounded,
};

use crate::collect::wakeup::{Bell, receive};
use crate::threads::shutdown::{PATIENCE, Stop};
use crate::threads::times::Meter;

/// How long a fresh answer leaves the thread listening for the next job first: the
/// collector answers within microseconds, and polling the device can wait that long.
const ANSWER_PATIENCE: Duration = Duration::from_millis(2);

/// Wait for an answer; new jobs are looked for in between.
const POLL_PATIENCE: Duration = Duration::from_millis(20);

/// What the thread is asked to do.
#[derive(Debug)]
enum Order {
    Submit(Job, Slot),
    Revoke(JobId),
    /// What was submitted before is nobody's; answers are of this round from now on.
    Abandon(u64),
    /// What the device has counted, for whoever waits there.
    Stats(Sender<Option<DeviceStats>>),
}

/// Asks a device on a thread what it has counted.
#[derive(Debug)]
pub(crate) struct Counter {
    orders: Sender<Order>,
    /// An answer that has not come.
    owed: Option<Receiver<Option<DeviceStats>>>,
}

impl Counter {
    /// Asks; the answer is waited for with [`Self::answer`]. One that owes an answer would owe
    /// this one, too, and is not asked.
    pub(crate) fn ask(&mut self) {
        let owes = self
            .owed
            .as_ref()
            .is_some_and(|owed| matches!(owed.try_recv(), Err(TryRecvError::Empty)));
        if owes {
            return;
        }
        let (tell, told) = bounded(1);
        // A queue that is full belongs to a device that is busy with something else.
        let asked = self.orders.try_send(Order::Stats(tell));
        self.owed = asked.is_ok().then_some(told);
    }

    /// What it answers by then; `None` of a device that does not, or is lost.
    pub(crate) fn answer(&mut self, by: Instant) -> Option<DeviceStats> {
        let owed = self.owed.as_ref()?;
        let answer = owed.recv_deadline(by);
        if !matches!(answer, Err(RecvTimeoutError::Timeout)) {
            self.owed = None;
        }
        answer.ok().flatten()
    }
}

/// What the thread says, and in which round.
type Said = (u64, Result<Polled, Lost>);

/// The end of a producer's thread that does not wait.
#[derive(Debug)]
pub(crate) struct Threaded {
    orders: Sender<Order>,
    said: Receiver<Said>,
    /// Jobs it takes at a time, and how many it has.
    depth: u32,
    open: u32,
    round: u64,
    /// The round that the thread is in: until it has caught up nothing more is given to it.
    caught_up: Arc<AtomicU64>,
    lost: Option<String>,
}

/// What one producer's thread owns.
#[derive(Debug)]
pub(crate) struct ProducerLoop {
    producer: Box<dyn Transport>,
    orders: Receiver<Order>,
    says: Sender<Said>,
    bell: Bell,
    meter: Arc<Meter>,
    stop: Stop,
    open: u32,
    round: u64,
    caught_up: Arc<AtomicU64>,
}

/// A producer in two: the end to hold, and the loop for a thread to run.
pub(crate) fn threaded(
    producer: Box<dyn Transport>,
    depth: u32,
    (bell, meter, stop): (Bell, Arc<Meter>, Stop),
) -> (Threaded, ProducerLoop) {
    // Every open job may be revoked once, all be abandoned, and its figures be asked for.
    let (orders_in, orders) = bounded(2 * depth as usize + 3);
    let (says, said) = crossbeam::channel::unbounded();
    let caught_up = Arc::new(AtomicU64::new(0));
    let (open, round) = (0, 0);
    let ours = Threaded {
        orders: orders_in,
        said,
        depth,
        open,
        round,
        caught_up: Arc::clone(&caught_up),
        lost: None,
    };
    let its = ProducerLoop {
        producer,
        orders,
        says,
        bell,
        meter,
        stop,
        open,
        round,
        caught_up,
    };
    (ours, its)
}

impl Threaded {
    /// Another end, which asks what the device has counted.
    pub(crate) fn counter(&self) -> Counter {
        Counter { orders: self.orders.clone(), owed: None }
    }

    fn check(&self) -> Result<(), Lost> {
        match &self.lost {
            None => Ok(()),
            Some(why) => Err(Lost(why.clone().into())),
        }
    }

    /// Why a thread has ended of which nothing else is wanted any more.
    fn last_words(&mut self) -> Lost {
        let why = self.said.try_iter().find_map(|(_, said)| said.err());
        let why = why.unwrap_or_else(ended);
        self.lost = Some(why.to_string());
        why
    }

    /// What the thread has said; an answer of an earlier round is nobody's.
    fn heard(&mut self, (round, said): Said) -> Result<Polled, Lost> {
        let is_answer = matches!(said, Ok(Polled::Completion(_)));
        if is_answer && round != self.round {
            return Ok(Polled::Extra);
        }
        self.open -= u32::from(is_answer);
        if let Err(lost) = &said {
            self.lost = Some(lost.to_string());
        }
        said
    }
}

fn ended() -> Lost {
    Lost("its thread has ended".into())
}

impl Producer for Threaded {
    fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>> {
        let reject = |job, slot, why| Err(Box::new(Rejected { job, slot, why }));
        if let Err(lost) = self.check() {
            return reject(job, slot, lost.into());
        }
        let is_behind = self.caught_up.load(Ordering::Acquire) != self.round;
        if self.open >= self.depth || is_behind {
            return reject(job, slot, Rejection::Full);
        }
        match self.orders.send(Order::Submit(job, slot)) {
            Ok(()) => {
                self.open += 1;
                Ok(())
            }
            // Why the thread has ended is among what it has said; `poll` comes to it.
            Err(SendError(Order::Submit(job, slot))) => {
                reject(job, slot, Rejection::Full)
            }
            Err(SendError(_)) => Ok(()),
        }
    }

    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost> {
        let said = match receive(&self.said, timeout) {
            Ok(said) => said,
            Err(RecvTimeoutError::Timeout) => return Ok(Polled::Nothing),
            Err(RecvTimeoutError::Disconnected) => {
                self.check()?;
                return Err(ended());
            }
        };
        self.heard(said)
    }

    fn revoke(&mut self, job: JobId) -> Result<(), Lost> {
        self.check()?;
        // Where the queue is full the thread is busy with an answer, and this one is late
        // anyway: nobody waits for it.
        match self.orders.try_send(Order::Revoke(job)) {
            // Nor where the thread has ended: `poll` comes to what it has said last.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Ok(()),
        }
    }

    fn abandon(&mut self) -> Result<(), Lost> {
        self.check()?;
        if self.caught_up.load(Ordering::Acquire) != self.round {
            // It was told before, and has been given nothing since.
            return Ok(());
        }
        self.round += 1;
        self.open = 0;
        self.orders.send(Order::Abandon(self.round)).map_err(|_| self.last_words())
    }
}

impl ProducerLoop {
    /// The loop of the thread, until nobody holds the other end. Gives the producer back,
    /// with nothing under way, or why it is lost.
    pub(crate) fn run(mut self) -> Result<Box<dyn Transport>, String> {
        let served = self.serve().and_then(|()| self.producer.abandon());
        if let Err(lost) = served {
            let why = lost.to_string();
            self.say(Err(lost));
            return Err(why);
        }
        Ok(self.producer)
    }

    fn serve(&mut self) -> Result<(), Lost> {
        let mut listen = PATIENCE;
        while !self.stop.is_set() {
            match self.orders.recv_timeout(listen) {
                Ok(order) => {
                    self.obey(order)?;
                    listen = Duration::ZERO;
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.meter.note();
            // With nothing under way this only notices that a device is gone.
            let patience = if self.open == 0 { Duration::ZERO } else { POLL_PATIENCE };
            listen = match self.producer.poll(patience)? {
                Polled::Nothing if self.open == 0 => PATIENCE,
                Polled::Nothing => Duration::ZERO,
                polled @ (Polled::Completion(_) | Polled::Extra) => {
                    self.open -= u32::from(matches!(polled, Polled::Completion(_)));
                    self.say(Ok(polled));
                    ANSWER_PATIENCE
                }
            };
        }
        Ok(())
    }

    fn obey(&mut self, order: Order) -> Result<(), Lost> {
        match order {
            Order::Revoke(job) => self.producer.revoke(job),
            Order::Abandon(round) => {
                (self.round, self.open) = (round, 0);
                let abandoned = self.producer.abandon();
                self.caught_up.store(round, Ordering::Release);
                abandoned
            }
            Order::Stats(tell) => {
                // Nobody need wait for it any more.
                let _ = tell.send(self.producer.stats().ok());
                Ok(())
            }
            Order::Submit(job, slot) => {
                let Err(rejected) = self.producer.submit(job, slot) else {
                    self.open += 1;
                    return Ok(());
                };
                let Rejected { job, slot, why } = *rejected;
                let outcome = match why {
                    Rejection::Lost(lost) => return Err(lost),
                    Rejection::Full => Outcome::NotBegun,
                    Rejection::Impossible(reason) => Outcome::Failed { reason },
                };
                let (job, work_ns) = (job.id, None);
                let completion =
                    Completion { job, slot, outcome, work_ns, lateness_ns: Some(0) };
                self.say(Ok(Polled::Completion(completion)));
                Ok(())
            }
        }
    }

    /// Says it to whoever holds the other end; nobody need.
    fn say(&self, said: Result<Polled, Lost>) {
        if self.says.send((self.round, said)).is_ok() {
            self.bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
    use bothends_csd::conformance::{
        BAD_SAMPLE, DAMAGED_SAMPLE, EchoServe, SLOTS, echo, session,
    };
    use bothends_csd::loopback::Loopback;
    use bothends_slots::conformance::produce;

    use super::*;
    use crate::collect::wakeup::bell;
    use crate::threads::times::{Ends, ThreadTimes};

    #[test]
    fn a_producer_on_a_thread_is_a_producer() {
        produce::all(&mut || {
            let mut device = Loopback::new(Box::new(EchoServe::default()));
            device.hello().unwrap();
            device.open(&session(300)).unwrap();
            let (bell, _) = bell();
            let meter = Arc::new(ThreadTimes::new(1).meter(Ends::Back(0)));
            let ends = (bell, meter, Stop::default());
            let (ours, its) = threaded(Box::new(device), SLOTS, ends);
            std::thread::spawn(move || its.run());
            let expected = |epoch: EpochIdx, sample: SampleId| {
                let (id, batch) = (JobId(0), BatchIdx(0));
                let job = Job { id, epoch, batch, samples: vec![sample], need_ns: 0 };
                (sample != BAD_SAMPLE).then(|| echo(&session(300), &job))
            };
            produce::Subject {
                producer: Box::new(ours),
                capacity: SLOTS,
                sample_bytes: 300,
                expected: Box::new(expected),
                samples: vec![SampleId(1), DAMAGED_SAMPLE, BAD_SAMPLE, SampleId(3)],
                damaged: vec![DAMAGED_SAMPLE],
            }
        });
    }

    /// Whoever notices first that a device is gone, by a job, by a revocation or by giving up an
    /// epoch, hears why.
    #[test]
    fn a_thread_that_has_ended_says_why() {
        for abandons in [false, true] {
            let (host, device) = std::os::unix::net::UnixStream::pair().unwrap();
            drop(device);
            let patience = Duration::from_secs(5);
            let name = "a device".to_owned();
            let gone = bothends_csd::stream::Stream::over_socket(
                host.into(),
                name,
                bothends_csd::Security::default(),
                patience,
            );
            let (bell, _) = bell();
            let meter = Arc::new(ThreadTimes::new(1).meter(Ends::Back(0)));
            let ends = (bell, meter, Stop::default());
            let (mut ours, its) = threaded(Box::new(gone.unwrap()), SLOTS, ends);
            std::thread::spawn(move || its.run()).join().unwrap().unwrap_err();
            let lost = match abandons {
                true => ours.abandon().unwrap_err(),
                false => {
                    ours.revoke(JobId(1)).unwrap();
                    let job = Job {
                        id: JobId(1),
                        epoch: EpochIdx(0),
                        batch: BatchIdx(0),
                        samples: vec![],
                        need_ns: 0,
                    };
                    let config = bothends_slots::RingConfig { n_slots: 1, slot_bytes: 1 };
                    let ring = bothends_slots::Ring::new(config).unwrap();
                    let slot = ring.take(Duration::ZERO).unwrap();
                    let rejected = ours.submit(job, slot).unwrap_err();
                    assert!(matches!(rejected.why, Rejection::Full), "{}", rejected.why);
                    ours.poll(Duration::ZERO).unwrap_err()
                }
            };
            assert!(lost.to_string().contains("lost the device"), "{lost}");
            assert!(ours.poll(Duration::ZERO).is_err());
        }
    }
}
