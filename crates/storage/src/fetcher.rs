//! The face for threads: fetches in, bytes out in any order.
//!
//! Requests run on threads of their own with a tokio runtime each, and tokio does not leave this crate. The
//! fetcher does not retry, join or order anything. `shared` is one for several threads.

mod crew;
pub(crate) mod destination;
pub(crate) mod progress;
mod runners;
pub(crate) mod shared;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::runtime::Runtime;
use tokio::sync::mpsc as tasks;

use crate::{Identity, Objects, StorageError};
pub use crew::n_fetch_threads;
use crew::{Crew, Gone};
use destination::Lent;
pub use destination::{Destination, Returned};
use progress::{Progress, Timer};
use runners::{Runners, Work};

/// One range to read.
#[derive(Debug, Clone)]
pub struct Fetch {
    /// Comes back with the answer; not that of another fetch in flight.
    pub tag: u64,
    /// The object's name.
    pub object: Arc<str>,
    /// Which of its bytes.
    pub range: Range<u64>,
    /// What the object must still be.
    pub expected: Option<Identity>,
    /// How long the store may be silent: before the answer, and between two parts of 16 KiB of it; that it is
    /// silent is noticed after twice that at the latest.
    pub timeout: Duration,
}

/// A fetch that ended.
#[derive(Debug)]
pub struct Fetched {
    /// Of the fetch.
    pub tag: u64,
    /// As many bytes as were asked for; none where these are in the destination.
    pub result: Result<Bytes, StorageError>,
    /// The memory of [`Fetcher::submit_into`].
    pub destination: Option<Returned>,
}

impl Fetched {
    fn of(tag: u64, result: Result<Bytes, StorageError>) -> Self {
        Self { tag, result, destination: None }
    }
}

/// Reads ranges of objects on threads of its own. One of them receives some thousand records per second, and no more:
/// each fetch goes to the thread that has the fewest in flight.
///
/// # Contract
///
/// 1. Every fetch that is submitted is answered exactly once by [`poll`](Self::poll) or [`poll_all`](Self::poll_all), in
///    any order, unless it is cancelled; with an error once the store has been silent for its timeout.
/// 2. A cancelled fetch is not answered; its request ends.
/// 3. A destination comes back once nobody writes into it: with the answer, or from [`returned`](Self::returned) where its
///    fetch was cancelled.
/// 4. In a process that was forked from the fetcher's own, every fetch fails as
///    [`StorageError::Forked`], at once.
/// 5. Dropping it ends all requests, drops destinations, and does not wait for the network.
#[derive(Debug)]
pub struct Fetcher {
    crew: Crew<Order>,
    answers: mpsc::Receiver<(u64, Fetched)>,
    /// By tag.
    in_flight: HashMap<u64, Way>,
    /// How many each thread has in flight.
    loads: Vec<usize>,
    /// Answers that need no thread.
    failed: VecDeque<Fetched>,
    /// Cancelled fetches, by their serials, whose destinations have not come back.
    outstanding: HashMap<u64, (u64, Lent)>,
    /// Those that have, with the tags.
    returned: VecDeque<(u64, Box<dyn Destination>)>,
    serial: u64,
}

/// A fetch in flight.
#[derive(Debug)]
struct Way {
    /// Tells it from an earlier one of the same tag.
    serial: u64,
    thread: usize,
    progress: Progress,
    lent: Option<Lent>,
}

#[derive(Debug)]
enum Order {
    Fetch(u64, Fetch, Shared),
    Cancel(u64),
}

/// What a fetch's task shares with the fetcher.
#[derive(Debug)]
struct Shared {
    progress: Progress,
    lent: Option<Lent>,
}

impl Fetcher {
    /// Starts so many threads.
    ///
    /// # Errors
    /// The system has no thread or no descriptors left.
    pub fn start(
        objects: Arc<dyn Objects>,
        n_threads: NonZero<usize>,
    ) -> io::Result<Self> {
        let (answer, answers) = mpsc::channel();
        let serve = move |orders| serve(Arc::clone(&objects), orders, answer.clone());
        Ok(Self {
            crew: Crew::start(n_threads, serve)?,
            answers,
            in_flight: HashMap::new(),
            loads: vec![0; n_threads.get()],
            failed: VecDeque::new(),
            outstanding: HashMap::new(),
            returned: VecDeque::new(),
            serial: 0,
        })
    }

    /// Sends a request; does not wait.
    pub fn submit(&mut self, fetch: Fetch) {
        self.send(fetch, None);
    }

    /// The same with memory that the store may receive the bytes into, instead of memory of its own: it has exactly
    /// as many bytes as are fetched.
    pub fn submit_into(&mut self, fetch: Fetch, destination: Box<dyn Destination>) {
        self.send(fetch, Some(Lent::new(destination)));
    }

    fn send(&mut self, fetch: Fetch, lent: Option<Lent>) {
        let (tag, progress) = (fetch.tag, Progress::default());
        self.cancel(tag);
        self.serial += 1;
        let serial = self.serial;
        let loads = self.loads.iter().enumerate();
        let thread = loads.min_by_key(|(_, load)| **load).map_or(0, |(nth, _)| nth);
        self.loads[thread] += 1;
        let shared = Shared { progress: progress.clone(), lent: lent.clone() };
        self.in_flight.insert(tag, Way { serial, thread, progress, lent });
        if self.crew.is_elsewhere() {
            return;
        }
        if let Err(Gone) = self.crew.give(thread, Order::Fetch(serial, fetch, shared)) {
            self.failed.push_back(Fetched::of(tag, Err(gone())));
        }
    }

    /// Ends a fetch: it is not answered. An unknown tag changes nothing.
    pub fn cancel(&mut self, tag: u64) {
        self.failed.retain(|failed| failed.tag != tag);
        let Some(Way { serial, thread, lent, .. }) = self.forget(tag) else { return };
        let is_there = !self.crew.is_elsewhere()
            && self.crew.give(thread, Order::Cancel(serial)).is_ok();
        let Some(lent) = lent else { return };
        if is_there {
            self.outstanding.insert(serial, (tag, lent));
        } else if let Some(returned) = lent.take_back() {
            self.returned.push_back((tag, returned.memory()));
        }
    }

    /// The destination of a cancelled fetch, with its tag; [`poll`](Self::poll) and
    /// [`poll_all`](Self::poll_all) notice when it comes back.
    pub fn returned(&mut self) -> Option<(u64, Box<dyn Destination>)> {
        self.returned.pop_front()
    }

    /// The next answer, waiting at most `timeout` for it; `None` at once where nothing is in flight.
    pub fn poll(&mut self, timeout: Duration) -> Option<Fetched> {
        if self.failed.is_empty() && self.in_flight() > 0 && self.crew.is_elsewhere() {
            return self.fail_one(&StorageError::Forked);
        }
        self.poll_here(timeout)
    }

    /// The same in the process with the threads.
    fn poll_here(&mut self, timeout: Duration) -> Option<Fetched> {
        let mut until = None;
        loop {
            if let Some(mut failed) = self.failed.pop_front() {
                let way = self.forget(failed.tag);
                failed.destination = way.and_then(Way::take_back);
                return Some(failed);
            }
            if self.in_flight() == 0 {
                return None;
            }
            match self.answer_within(timeout, &mut until) {
                Ok((serial, fetched)) => {
                    if let Some(fetched) = self.known(serial, fetched) {
                        return Some(fetched);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => {
                    for (_, (tag, lent)) in self.outstanding.drain() {
                        let returned = lent.take_back();
                        self.returned.extend(returned.map(|it| (tag, it.memory())));
                    }
                    return self.fail_one(&gone());
                }
            }
        }
    }

    /// Adds all answers that are there, and waits at most `timeout` for the first. Cheaper than [`poll`](Self::poll) for
    /// each of them, which asks the system every time whether this is still the fetcher's own process. Where it is not,
    /// it adds one failure at a time.
    pub fn poll_all(&mut self, timeout: Duration, answers: &mut Vec<Fetched>) {
        if self.crew.is_elsewhere() {
            answers.extend(self.poll(timeout));
            return;
        }
        answers.extend(self.poll_here(timeout));
        while self.failed.is_empty()
            && let Ok((serial, fetched)) = self.answers.try_recv()
        {
            answers.extend(self.known(serial, fetched));
        }
    }

    /// An answer, unless its fetch was cancelled: of that, only the destination is kept.
    fn known(&mut self, serial: u64, fetched: Fetched) -> Option<Fetched> {
        let known = self.in_flight.get(&fetched.tag);
        if known.is_some_and(|known| known.serial == serial) {
            self.forget(fetched.tag);
            return Some(fetched);
        }
        let known = self.outstanding.remove(&serial);
        if let Some(((tag, _), returned)) = known.zip(fetched.destination) {
            self.returned.push_back((tag, returned.memory()));
        }
        None
    }

    /// The next answer of a thread; the clock is only read where there is none yet.
    fn answer_within(
        &self,
        timeout: Duration,
        until: &mut Option<Instant>,
    ) -> Result<(u64, Fetched), RecvTimeoutError> {
        match self.answers.try_recv() {
            Ok(answer) => return Ok(answer),
            Err(TryRecvError::Disconnected) => {
                return Err(RecvTimeoutError::Disconnected);
            }
            Err(TryRecvError::Empty) if timeout.is_zero() => {
                return Err(RecvTimeoutError::Timeout);
            }
            Err(TryRecvError::Empty) => {}
        }
        let now = Instant::now();
        let endless = now + progress::ENDLESS;
        let until =
            until.get_or_insert_with(|| now.checked_add(timeout).unwrap_or(endless));
        self.answers.recv_timeout(until.saturating_duration_since(now))
    }

    /// Parts of 16 KiB of the answer to this fetch that have come so far; 0 where the tag is not known. Where answers
    /// share a connection, those of others count, too.
    #[must_use]
    pub fn heard(&self, tag: u64) -> u64 {
        self.in_flight.get(&tag).map_or(0, |way| way.progress.parts())
    }

    /// Fetches that are neither answered nor cancelled, and cancelled ones whose destination has not come back.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len() + self.outstanding.len()
    }

    fn forget(&mut self, tag: u64) -> Option<Way> {
        let way = self.in_flight.remove(&tag)?;
        self.loads[way.thread] -= 1;
        Some(way)
    }

    fn fail_one(&mut self, error: &StorageError) -> Option<Fetched> {
        let tag = *self.in_flight.keys().next()?;
        let destination = self.forget(tag).and_then(Way::take_back);
        Some(Fetched { tag, result: Err(error.clone()), destination })
    }
}

impl Way {
    /// The destination of a fetch that no thread carries out.
    fn take_back(self) -> Option<Returned> {
        self.lent?.take_back()
    }
}

/// What there is to say when the thread is no more.
fn gone() -> StorageError {
    let why =
        "the thread that fetches has ended; this is a bug, please report it".to_owned();
    StorageError::Refused { place: "the store".to_owned(), why }
}

/// A runtime for requests, made where it is used.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Reads of local files and lookups of names block.
        .max_blocking_threads(8)
        .thread_keep_alive(Duration::from_secs(1))
        .thread_name("bothends-block")
        .build()
}

/// Carries orders out until the fetcher is dropped.
async fn serve(
    objects: Arc<dyn Objects>,
    mut orders: tasks::UnboundedReceiver<Order>,
    answer: mpsc::Sender<(u64, Fetched)>,
) {
    let mut runners = Runners::new(objects, answer);
    while let Some(order) = orders.recv().await {
        match order {
            Order::Cancel(serial) => runners.cancel(serial),
            Order::Fetch(serial, fetch, shared) => {
                runners.give(Work { serial, fetch, shared });
            }
        }
    }
}

async fn one(
    objects: &dyn Objects,
    fetch: &Fetch,
    progress: &Progress,
    timer: &mut Timer,
) -> Result<Bytes, StorageError> {
    let ranges = [fetch.range.clone()];
    let mut arrivals =
        objects.get_ranges(&fetch.object, &ranges, fetch.expected.as_ref());
    match progress.unless_silent(timer, fetch.timeout, arrivals.next()).await {
        Some(Some((_, result))) => result,
        Some(None) => {
            let why =
                "the store gave no answer; this is a bug, please report it".to_owned();
            Err(StorageError::Refused { place: objects.shown(&fetch.object), why })
        }
        None => Err(StorageError::TimedOut {
            place: objects.shown(&fetch.object),
            after: fetch.timeout,
        }),
    }
}

#[cfg(test)]
mod tests;
