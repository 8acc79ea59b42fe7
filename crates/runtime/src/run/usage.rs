//! What the process used while epochs ran, twice a second: for pictures, and for what can be
//! counted only by looking (memory over time).
//!
//! One thread looks for the whole run, so that a consumer that waits or computes is no gap. A look
//! reads two files of `/proc`, of which `smaps_rollup` takes milliseconds per GB resident: nobody
//! waits for one between two epochs ([`UsageLog::cut`]), and only a run that is over has a last one
//! ([`UsageLog::end`]). Where the kernel does not say, the log says nothing.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bothends_figures::UsageSample;

use crate::error::{RuntimeError, no_thread};
use crate::threads::process;

/// From one look to the next.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Looks until it is ended.
#[derive(Debug)]
pub(crate) struct UsageLog {
    end: Sender<()>,
    thread: JoinHandle<()>,
    seen: Arc<Mutex<Seen>>,
}

/// One look.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: Instant,
    cpu_s: Option<f64>,
    pss_bytes: Option<u64>,
}

/// The looks of the epoch that runs.
#[derive(Debug)]
struct Seen {
    looks: Vec<Look>,
    began: Instant,
    cpu_before: Option<f64>,
    /// Memory when it was last looked at.
    pss_bytes: Option<u64>,
}

impl UsageLog {
    /// Begins to look: the first look is over when this returns.
    pub(crate) fn begin() -> Result<Self, RuntimeError> {
        Self::looking(process::pss_bytes)
    }

    /// As [`Self::begin`], with another way to look at the memory.
    fn looking(
        mut pss_bytes: impl FnMut() -> Option<u64> + Send + 'static,
    ) -> Result<Self, RuntimeError> {
        let (end, ended) = channel::<()>();
        let seen = Arc::new(Mutex::new(Seen::begin(pss_bytes())));
        let shared = Arc::clone(&seen);
        let work = move || {
            loop {
                let waited = ended.recv_timeout(LOOK_EVERY);
                // Nobody who wants the log waits while it is looked.
                let pss_bytes = pss_bytes();
                lock(&shared).add(pss_bytes);
                if waited != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("be-usage".to_owned())
            .spawn(work)
            .map_err(|source| no_thread("usage", source))?;
        Ok(Self { end, thread, seen })
    }

    /// An epoch ends here and the next one begins: what was seen of the first. Waits for no look:
    /// the memory at its end, and at the beginning of the next, is what was seen last.
    pub(crate) fn cut(&self) -> Vec<UsageSample> {
        let mut seen = lock(&self.seen);
        let pss_bytes = seen.pss_bytes;
        seen.add(pss_bytes);
        let next = Seen::begin(pss_bytes);
        std::mem::replace(&mut *seen, next).samples()
    }

    /// The run is over: what was seen of its last epoch. Waits for one more look.
    pub(crate) fn end(self) -> Vec<UsageSample> {
        drop(self.end);
        // One that broke has seen what it has seen.
        let _ = self.thread.join();
        lock(&self.seen).samples()
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    fn begin(pss_bytes: Option<u64>) -> Self {
        let (began, cpu_before) = (Instant::now(), process::cpu_seconds());
        let first = Look { at: began, cpu_s: cpu_before, pss_bytes };
        Self { looks: vec![first], began, cpu_before, pss_bytes }
    }

    fn add(&mut self, pss_bytes: Option<u64>) {
        let (at, cpu_s) = (Instant::now(), process::cpu_seconds());
        self.looks.push(Look { at, cpu_s, pss_bytes });
        self.pss_bytes = pss_bytes;
    }

    fn samples(&self) -> Vec<UsageSample> {
        let sample = |look: &Look| UsageSample {
            t_s: (look.at - self.began).as_secs_f64(),
            cpu_s: process::since(self.cpu_before, look.cpu_s),
            pss_bytes: look.pss_bytes,
        };
        self.looks.iter().map(sample).collect()
    }
}

/// Memory over time in byte-seconds: the looks joined by straight lines. `None` where the kernel
/// does not say, or there is less than two looks.
pub(crate) fn byte_seconds(samples: &[UsageSample]) -> Option<f64> {
    let mut sum = None;
    for pair in samples.windows(2) {
        #[expect(clippy::cast_precision_loss, reason = "2^53 bytes are beyond any host")]
        let mean = (pair[0].pss_bytes? as f64 + pair[1].pss_bytes? as f64) / 2.0;
        *sum.get_or_insert(0.0) += mean * (pair[1].t_s - pair[0].t_s);
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Nothing here takes longer; what does, hangs.
    const DEADLINE: Duration = Duration::from_secs(60);

    fn look(t_s: f64, pss_bytes: Option<u64>) -> UsageSample {
        UsageSample { t_s, cpu_s: None, pss_bytes }
    }

    #[test]
    fn memory_over_time_is_the_area_below_the_looks() {
        let looks = [look(0.0, Some(100)), look(1.0, Some(300)), look(3.0, Some(300))];
        assert_eq!(byte_seconds(&looks), Some(200.0 + 600.0));
        assert_eq!(byte_seconds(&looks[..1]), None);
        assert_eq!(byte_seconds(&[look(0.0, Some(1)), look(1.0, None)]), None);
    }

    fn memory(samples: &[UsageSample]) -> Vec<u64> {
        samples.iter().map(|sample| sample.pss_bytes.unwrap()).collect()
    }

    /// The second look lasts until it is told to end, as one at many GB lasts.
    #[test]
    fn nobody_waits_for_a_look_between_two_epochs() {
        let n_looks = Arc::new(AtomicU64::new(0));
        let (begun, has_begun) = channel();
        let (let_go, lets_go) = channel::<()>();
        let looks = Arc::clone(&n_looks);
        let look = move || {
            let nth = looks.fetch_add(1, Ordering::Relaxed);
            if nth == 1 {
                begun.send(()).unwrap();
                let _ = lets_go.recv();
            }
            Some(nth + 7)
        };
        let log = UsageLog::looking(look).unwrap();
        has_begun.recv_timeout(DEADLINE).expect("it looks twice a second");
        let (tell, told) = channel();
        let cutting = std::thread::spawn(move || {
            tell.send([log.cut(), log.cut()]).unwrap();
            log
        });
        let [first, second] = told.recv_timeout(DEADLINE).expect("it waits for the look");
        assert_eq!(n_looks.load(Ordering::Relaxed), 2, "it looked once more");
        assert_eq!((memory(&first), memory(&second)), (vec![7, 7], vec![7, 7]));
        drop(let_go);
        let last = cutting.join().unwrap().end();
        // The look that was under way, perhaps others, and one at the end.
        let last_look = n_looks.load(Ordering::Relaxed) + 6;
        assert_eq!(memory(&last), [vec![7], (8..=last_look).collect()].concat());
        assert!(last.windows(2).all(|pair| pair[0].t_s <= pair[1].t_s), "{last:?}");
    }
}
