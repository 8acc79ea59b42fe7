//! Processor time of the threads, prong by prong: what making batches costs the host, and what
//! receiving those of devices costs it.
//!
//! A thread notes what it has used whenever it has done a piece of work. The rest of the process
//! (the consumer, whoever watches) is in no part; the whole is `process::cpu_seconds`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::threads::process;

/// The end, or ends, of the epoch that a thread works for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Reads samples and makes batches.
    Front,
    /// Asks this device, receives its batches and checks them.
    Back(usize),
    /// Decides, and hands batches over, whoever made them.
    Both,
}

/// Processor seconds of threads; `None` where the kernel does not say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadSeconds {
    /// Of the host's reader, those that open files for it, and workers.
    pub front: Option<f64>,
    /// Of the host's thread for each device, in the order of `--csd`: its batches are received
    /// and checked there.
    pub back: Vec<Option<f64>>,
    /// Of the threads that decide and hand over.
    pub both: Option<f64>,
}

impl ThreadSeconds {
    fn new(n_devices: usize) -> Self {
        Self { front: Some(0.0), back: vec![Some(0.0); n_devices], both: Some(0.0) }
    }

    fn add(&mut self, ends: Ends, seconds: Option<f64>) {
        let sum = match ends {
            Ends::Front => &mut self.front,
            Ends::Back(device) => match self.back.get_mut(device) {
                Some(sum) => sum,
                None => return,
            },
            Ends::Both => &mut self.both,
        };
        *sum = sum.zip(seconds).map(|(sum, more)| sum + more);
    }

    /// What was used since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let back = self.back.iter().zip(&before.back);
        Self {
            front: process::since(before.front, self.front),
            back: back.map(|(now, before)| process::since(*before, *now)).collect(),
            both: process::since(before.both, self.both),
        }
    }
}

/// What all threads add to.
#[derive(Debug, Clone)]
pub(crate) struct ThreadTimes(Arc<Mutex<Sums>>);

#[derive(Debug)]
struct Sums {
    /// Of threads that have ended.
    ended: ThreadSeconds,
    running: Vec<(Ends, Weak<AtomicU64>)>,
}

/// One thread's account. Dropped by the thread at its end.
#[derive(Debug)]
pub(crate) struct Meter {
    ends: Ends,
    times: ThreadTimes,
    used_ns: Arc<AtomicU64>,
}

/// Stands for what the kernel does not say.
const UNKNOWN: u64 = u64::MAX;

fn seconds(used_ns: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "seconds for people")]
    (used_ns != UNKNOWN).then_some(used_ns as f64 / 1e9)
}

impl ThreadTimes {
    pub(crate) fn new(n_devices: usize) -> Self {
        let ended = ThreadSeconds::new(n_devices);
        Self(Arc::new(Mutex::new(Sums { ended, running: Vec::new() })))
    }

    /// An account for the calling thread.
    pub(crate) fn meter(&self, ends: Ends) -> Meter {
        let used_ns = Arc::new(AtomicU64::new(0));
        self.sums().running.push((ends, Arc::downgrade(&used_ns)));
        Meter { ends, times: self.clone(), used_ns }
    }

    /// Of all threads until now.
    pub(crate) fn seconds(&self) -> ThreadSeconds {
        let sums = self.sums();
        let mut sum = sums.ended.clone();
        for (ends, used_ns) in &sums.running {
            if let Some(used_ns) = used_ns.upgrade() {
                sum.add(*ends, seconds(used_ns.load(Ordering::Relaxed)));
            }
        }
        sum
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Meter {
    /// Where it is added up, for threads that the calling one starts.
    pub(crate) fn times(&self) -> ThreadTimes {
        self.times.clone()
    }

    /// Notes what the calling thread has used since it began.
    pub(crate) fn note(&self) {
        let used_ns = process::thread_cpu_ns().unwrap_or(UNKNOWN);
        self.used_ns.store(used_ns, Ordering::Relaxed);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.note();
        let mut sums = self.times.sums();
        sums.ended.add(self.ends, seconds(self.used_ns.load(Ordering::Relaxed)));
        let own = Arc::as_ptr(&self.used_ns);
        sums.running.retain(|(_, other)| other.as_ptr() != own);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_thread_adds_what_it_used_to_its_own_part() {
        let times = ThreadTimes::new(2);
        let before = times.seconds();
        let its = times.clone();
        let (noted, is_noted) = std::sync::mpsc::channel();
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        let busy = std::thread::spawn(move || {
            let meter = its.meter(Ends::Back(1));
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(30) {
                std::hint::spin_loop();
            }
            meter.note();
            noted.send(()).unwrap();
            let _ = may_end.recv();
        });
        is_noted.recv().unwrap();
        let running = times.seconds();
        let ThreadSeconds { front, back, both } = running.since(&before);
        assert_eq!((front, back[0], both), (Some(0.0), Some(0.0), Some(0.0)));
        // A machine that is busy elsewhere gives it less than it waited; never more.
        let used = back[1].expect("Linux says");
        assert!(used > 0.0 && used < 1.0, "{used}");
        drop(end);
        busy.join().unwrap();
        // What a thread used is not forgotten with it, and counted once.
        let ended = times.seconds().since(&running).back[1].expect("Linux says");
        assert!((0.0..1.0).contains(&ended), "{ended}");
    }

    #[test]
    fn what_the_kernel_does_not_say_is_no_zero() {
        let mut sum = ThreadSeconds::new(1);
        sum.add(Ends::Front, None);
        sum.add(Ends::Front, Some(1.0));
        sum.add(Ends::Back(0), Some(1.0));
        sum.add(Ends::Back(7), Some(1.0));
        assert_eq!(sum.front, None);
        assert_eq!(sum.back, [Some(1.0)]);
    }
}
