//! How much of its answer a fetch has: a long answer over a slow link is not a late one.
//!
//! The task of a fetch has a counter, and what reads a body in that task adds to it. Where another task reads the
//! answers to several fetches, it is given their counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
        patience: Duration,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        let mut answer = std::pin::pin!(OF_TASK.scope(self.clone(), answer));
        loop {
            let before = self.parts();
            match tokio::time::timeout(patience, &mut answer).await {
                Ok(said) => return Some(said),
                Err(_) if self.parts() > before => {}
                Err(_) => return None,
            }
        }
    }
}

/// So many bytes of an answer have come, if it is that of a fetch.
pub(crate) fn came(n_bytes: usize) {
    // Listings and identities are asked for by others, and have deadlines as a whole.
    let _ = OF_TASK.try_with(|progress| progress.came(n_bytes));
}
