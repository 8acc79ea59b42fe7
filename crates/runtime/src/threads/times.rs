//! Processor time of an epoch's threads, prong by prong: what making batches costs the host, and
//! what receiving those of devices costs it.
//!
//! A thread says what it used when it ends. The rest of the process (the consumer, whoever
//! watches) is in no part; the whole is `process::cpu_seconds`.

use std::sync::{Arc, Mutex, PoisonError};

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

/// Processor seconds of threads that have ended; `None` where the kernel does not say.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadSeconds {
    /// Of the host's reader and workers.
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
}

/// What all threads of an epoch add to.
#[derive(Debug, Clone)]
pub(crate) struct ThreadTimes(Arc<Mutex<ThreadSeconds>>);

impl ThreadTimes {
    pub(crate) fn new(n_devices: usize) -> Self {
        Self(Arc::new(Mutex::new(ThreadSeconds::new(n_devices))))
    }

    /// For a thread of its own.
    pub(crate) fn timer(&self, ends: Ends) -> ThreadTimer {
        ThreadTimer { times: self.clone(), ends }
    }

    /// Of the threads that have ended until now.
    pub(crate) fn seconds(&self) -> ThreadSeconds {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Ends with the thread that it belongs to.
#[derive(Debug)]
pub(crate) struct ThreadTimer {
    times: ThreadTimes,
    ends: Ends,
}

impl ThreadTimer {
    /// Adds what the calling thread has used since it began.
    pub(crate) fn end(self) {
        let seconds = process::thread_cpu_seconds();
        let mut sum = self.times.0.lock().unwrap_or_else(PoisonError::into_inner);
        sum.add(self.ends, seconds);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_thread_adds_what_it_used_to_its_own_part() {
        let times = ThreadTimes::new(2);
        let timer = times.timer(Ends::Back(1));
        let busy = std::thread::spawn(move || {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(30) {
                std::hint::spin_loop();
            }
            timer.end();
        });
        busy.join().unwrap();
        let ThreadSeconds { front, back, both } = times.seconds();
        assert_eq!((front, back[0], both), (Some(0.0), Some(0.0), Some(0.0)));
        // A machine that is busy elsewhere gives it less than it waited; never more.
        let used = back[1].expect("Linux says");
        assert!(used > 0.0 && used < 1.0, "{used}");
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
