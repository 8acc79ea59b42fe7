//! How much of its answer a fetch has: a long answer over a slow link is not a late one.
//!
//! The task of a fetch has a counter, and what reads a body in that task adds to it. Where another task reads the
//! answers to several fetches, it is given their counters.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep};

/// An answer of which fewer bytes come in a timeout is not waited for: that is 4 kB/s with one of four seconds.
const PART_BYTES: u64 = 16 << 10;

/// As good as no limit: longer than any process runs.
pub(super) const ENDLESS: Duration = Duration::from_secs(1 << 30);

tokio::task_local! {
    static OF_TASK: Progress;
}

/// Bytes of one answer that have come; clones count together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Parts of 16 KiB that have come.
    pub(super) fn parts(&self) -> u64 {
        self.0.load(Ordering::Relaxed) / PART_BYTES
    }

    /// That of the fetch whose task this is; none where it is no fetch's.
    pub(crate) fn of_task() -> Option<Self> {
        OF_TASK.try_with(Self::clone).ok()
    }

    /// So many bytes of the answer have come.
    pub(crate) fn came(&self, n_bytes: usize) {
        self.0.fetch_add(n_bytes as u64, Ordering::Relaxed);
    }

    /// What `answer` says, or `None` where no part of it has come for so long.
    pub(crate) async fn unless_silent<T>(
        &self,
        timer: &mut Timer,
        patience: Duration,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        let mut answer = pin!(OF_TASK.scope(self.clone(), answer));
        let mut before = self.parts();
        timer.begin(patience);
        poll_fn(|context| {
            loop {
                if let Poll::Ready(said) = answer.as_mut().poll(context) {
                    return Poll::Ready(Some(said));
                }
                ready!(timer.poll(context));
                let parts = self.parts();
                if parts == before {
                    return Poll::Ready(None);
                }
                before = parts;
                timer.begin(patience);
            }
        })
        .await
    }
}

/// A timer that serves one answer after another: to put it off is cheap, while each new one is entered with the runtime
/// and taken out again.
#[derive(Debug)]
pub(crate) struct Timer(Pin<Box<Sleep>>);

impl Timer {
    /// One of the runtime whose task this is.
    pub(crate) fn new() -> Self {
        Self(Box::pin(sleep(Duration::ZERO)))
    }

    fn begin(&mut self, patience: Duration) {
        let now = Instant::now();
        let until = now.checked_add(patience).unwrap_or(now + ENDLESS);
        self.0.as_mut().reset(until);
    }

    /// Also where the answer has used up what the task may do at a time: such an answer would never be late otherwise.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        pin!(unconstrained(self.0.as_mut())).poll(context)
    }
}

/// So many bytes of an answer have come, if it is that of a fetch.
pub(crate) fn came(n_bytes: usize) {
    // Listings and identities are asked for by others, and have deadlines as a whole.
    let _ = OF_TASK.try_with(|progress| progress.came(n_bytes));
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);

    fn run(work: impl Future<Output = ()>) {
        crate::fetcher::runtime().unwrap().block_on(work);
    }

    /// A server may send without end what is no part of the answer.
    #[test]
    fn an_answer_that_uses_up_what_a_task_may_do_is_silent_all_the_same() {
        run(async {
            let (send, mut taken) = mpsc::unbounded_channel();
            let noise = async {
                while send.send(()).is_ok() {
                    taken.recv().await;
                }
            };
            let (progress, mut timer) = (Progress::default(), Timer::new());
            let answer = progress.unless_silent(&mut timer, SHORT, noise);
            assert_eq!(tokio::time::timeout(LONG, answer).await, Ok(None));
        });
    }

    #[test]
    fn one_timer_serves_answers_of_any_patience() {
        run(async {
            let (progress, mut timer) = (Progress::default(), Timer::new());
            for patience in [Duration::MAX, LONG, Duration::ZERO, SHORT, LONG] {
                let answer = progress.unless_silent(&mut timer, patience, async { 1 });
                assert_eq!(answer.await, Some(1), "{patience:?}");
                let silent = progress.unless_silent(&mut timer, SHORT, sleep(LONG));
                assert_eq!(silent.await, None);
            }
        });
    }

    #[test]
    fn parts_of_an_answer_put_off_its_end() {
        run(async {
            let (progress, mut timer) = (Progress::default(), Timer::new());
            let slow = async {
                for _ in 0..4 {
                    sleep(SHORT).await;
                    came(16 << 10);
                }
                sleep(LONG).await;
            };
            let began = Instant::now();
            assert_eq!(progress.unless_silent(&mut timer, 10 * SHORT, slow).await, None);
            assert!(began.elapsed() >= 14 * SHORT, "from the last part on");
            assert_eq!(progress.parts(), 4);
        });
    }
}
