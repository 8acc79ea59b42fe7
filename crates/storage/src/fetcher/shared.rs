//! A fetcher that several threads share, each of which waits for its own answers.
//!
//! As [`Fetcher`](crate::Fetcher), it does not retry, join or order anything.

use std::io;
use std::num::NonZero;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use tokio::sync::{mpsc, oneshot};

use crate::fetcher::crew::{Crew, Gone};
use crate::fetcher::progress::{Progress, Timer};
use crate::fetcher::{gone, one};
use crate::{Fetch, Identity, Objects, StorageError};

/// How long a store may take to say what an object is, its own attempts included.
const IDENTIFY: Duration = Duration::from_secs(10);

/// Reads ranges of objects on threads of its own, for any number of threads. Requests go to its own threads in turn.
///
/// # Contract
///
/// 1. Asking does not wait.
/// 2. A [`Pending`] answer comes, at the latest once the store has been silent for the timeout of its request. One
///    that is dropped ends its request.
/// 3. In a process that was forked from the fetcher's own, every request fails as
///    [`StorageError::Forked`], at once.
/// 4. Dropping the fetcher ends all requests and does not wait for the network.
#[derive(Debug)]
pub struct SharedFetcher {
    crew: Crew<Order>,
    /// The thread that is next.
    next: AtomicUsize,
}

#[derive(Debug)]
enum Order {
    Fetch(Fetch, oneshot::Sender<Result<Bytes, StorageError>>),
    Identify(Arc<str>, oneshot::Sender<Result<Identity, StorageError>>),
}

/// An answer that is to come.
#[derive(Debug)]
pub struct Pending<T> {
    answer: oneshot::Receiver<Result<T, StorageError>>,
    process: u32,
}

impl<T> Pending<T> {
    /// Waits for it. Not for threads of an async runtime.
    ///
    /// # Errors
    /// What the store said.
    pub fn wait(self) -> Result<T, StorageError> {
        if self.process != std::process::id() {
            return Err(StorageError::Forked);
        }
        self.answer.blocking_recv().unwrap_or_else(|_| Err(gone()))
    }
}

impl SharedFetcher {
    /// Starts so many threads.
    ///
    /// # Errors
    /// The system has no thread or no descriptors left.
    pub fn start(
        objects: Arc<dyn Objects>,
        n_threads: NonZero<usize>,
    ) -> io::Result<Self> {
        let serve = move |orders| serve(Arc::clone(&objects), orders);
        Ok(Self { crew: Crew::start(n_threads, serve)?, next: AtomicUsize::new(0) })
    }

    /// Asks for a range; its tag means nothing here.
    #[must_use]
    pub fn fetch(&self, fetch: Fetch) -> Pending<Bytes> {
        self.send(|answer| Order::Fetch(fetch, answer))
    }

    /// Asks what an object is recognised by now, for ten seconds at most.
    #[must_use]
    pub fn identify(&self, object: &str) -> Pending<Identity> {
        self.send(|answer| Order::Identify(object.into(), answer))
    }

    fn send<T>(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<T, StorageError>>) -> Order,
    ) -> Pending<T> {
        let (answer, pending) = oneshot::channel();
        if !self.crew.is_elsewhere() {
            // Any order spreads requests: no other memory is published through it.
            let nth = self.next.fetch_add(1, Ordering::Relaxed);
            // A thread that is gone drops the sender, which is an answer, too.
            let _: Result<(), Gone> = self.crew.give(nth, order(answer));
        }
        Pending { answer: pending, process: self.crew.process() }
    }
}

/// Carries orders out until the fetcher is dropped.
async fn serve(objects: Arc<dyn Objects>, mut orders: mpsc::UnboundedReceiver<Order>) {
    while let Some(order) = orders.recv().await {
        let objects = Arc::clone(&objects);
        match order {
            Order::Fetch(fetch, answer) => {
                drop(tokio::spawn(async move {
                    let (progress, mut timer) = (Progress::default(), Timer::new());
                    let asked = one(&*objects, &fetch, &progress, &mut timer);
                    answered(answer, asked).await;
                }));
            }
            Order::Identify(object, answer) => {
                drop(tokio::spawn(async move {
                    let asked = tokio::time::timeout(IDENTIFY, objects.identify(&object));
                    answered(answer, async {
                        asked.await.unwrap_or_else(|_| {
                            let place = objects.shown(&object);
                            Err(StorageError::TimedOut { place, after: IDENTIFY })
                        })
                    })
                    .await;
                }));
            }
        }
    }
}

/// Passes on what `asked` says, unless nobody waits for it any more.
async fn answered<T>(
    mut answer: oneshot::Sender<Result<T, StorageError>>,
    asked: impl Future<Output = Result<T, StorageError>>,
) {
    let said = match select(pin!(asked), pin!(answer.closed())).await {
        Either::Left((said, _)) => said,
        Either::Right(_) => return,
    };
    // Whoever waited may have gone in the meantime.
    let _ = answer.send(said);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, Double};

    const ONE: NonZero<usize> = NonZero::<usize>::MIN;

    fn fetch(object: &str, timeout: Duration) -> Fetch {
        Fetch { tag: 0, object: object.into(), range: 1..3, expected: None, timeout }
    }

    #[test]
    fn each_thread_has_its_own_answers() {
        let double = Double::new().with("a", "0123").with("b", "4567");
        let fetcher = SharedFetcher::start(Arc::new(double), ONE).unwrap();
        let minute = Duration::from_secs(60);
        let ahead = fetcher.fetch(fetch("b", minute));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| fetcher.fetch(fetch("a", minute)).wait());
            assert_eq!(other.join().unwrap().unwrap(), "12");
        });
        assert_eq!(ahead.wait().unwrap(), "56");
        assert_eq!(fetcher.identify("b").wait().unwrap().len, 4);
        let missing = fetcher.fetch(fetch("c", minute)).wait();
        assert!(matches!(missing, Err(StorageError::NotFound { .. })), "{missing:?}");
    }

    #[test]
    fn in_another_process_every_request_fails_at_once() {
        let double = Double::new().with("a", "0123");
        let mut fetcher = SharedFetcher::start(Arc::new(double), ONE).unwrap();
        fetcher.crew.leave();
        let fetched = fetcher.fetch(fetch("a", Duration::from_secs(60))).wait();
        assert_eq!(fetched, Err(StorageError::Forked));
        assert_eq!(fetcher.identify("a").wait(), Err(StorageError::Forked));
        fetcher.crew.come_back();
    }

    #[test]
    fn nothing_that_is_dropped_is_waited_for() {
        let double = Double::answering(|_| Answer::After(Duration::from_secs(3600)));
        double.put("a", "0123");
        let fetcher = SharedFetcher::start(Arc::new(double), ONE).unwrap();
        drop(fetcher.fetch(fetch("a", Duration::from_secs(3600))));
        let late = fetcher.fetch(fetch("a", Duration::from_millis(1))).wait();
        assert!(matches!(late, Err(StorageError::TimedOut { .. })), "{late:?}");
        let pending = fetcher.fetch(fetch("a", Duration::from_secs(3600)));
        drop(fetcher);
        assert!(pending.wait().is_err());
    }
}
