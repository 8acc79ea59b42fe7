//! How much of its answer a fetch has: a long answer over a slow link is not a late one.
//!
//! The task of a fetch has a counter, and what reads a body in that task adds to it. Where another task reads the
//! answers to several fetches, it is given their counters.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// An answer of which fewer bytes come in a timeout is not waited for: that is 4 kB/s with one of four seconds.
const PART_BYTES: u64 = 16 << 10;

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
        (timer, patience): (&mut Timer, Duration),
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        let mut answer = std::pin::pin!(OF_TASK.scope(self.clone(), answer));
        let mut before = self.parts();
        timer.begin(patience);
        poll_fn(|context| {
            loop {
                if let Poll::Ready(said) = answer.as_mut().poll(context) {
                    return Poll::Ready(Some(said));
                }
                ready!(timer.0.as_mut().poll(context));
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

/// For one answer after the other. A timer of its own for each would be entered with the runtime and taken out again for
/// every record, which takes 2 % of a record's CPU time; one that is only put off is not.
#[derive(Debug)]
pub(crate) struct Timer(Pin<Box<Sleep>>);

impl Timer {
    /// One of the runtime whose task this is.
    pub(crate) fn new() -> Self {
        Self(Box::pin(sleep(Duration::ZERO)))
    }

    fn begin(&mut self, patience: Duration) {
        let now = Instant::now();
        // As long as the runtime waits that has no end to its wait.
        let until = now.checked_add(patience);
        self.0.as_mut().reset(until.unwrap_or(now + Duration::from_secs(1 << 30)));
    }
}

/// So many bytes of an answer have come, if it is that of a fetch.
pub(crate) fn came(n_bytes: usize) {
    // Listings and identities are asked for by others, and have deadlines as a whole.
    let _ = OF_TASK.try_with(|progress| progress.came(n_bytes));
}
