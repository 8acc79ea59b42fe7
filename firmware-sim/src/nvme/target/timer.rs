//! Answers that wait for their time. One thread has all of them, so that no command waits for another's.

use std::cmp::Ordering as Order;
use std::collections::BinaryHeap;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bothends_nvme::Status;
use nix::sys::prctl::set_timerslack;

use super::outlet::Connected;
use super::writer::{Rest, Writer};
use crate::nvme::Subsystem;
use crate::nvme::controller::Later;

/// By how much the system may be late to wake the thread: without this it may be by 50 µs.
const SLACK_NS: u64 = 1000;
/// The thread wakes as much earlier as the system tends to wake it late, up to this, and looks at the clock until it is
/// time: an idle processor takes 20 to 60 µs to wake, more than a tenth of a short command. It spins for no more than
/// this before each answer.
const MOST_EARLY: Duration = Duration::from_micros(80);
/// It looks for earlier answers so often meanwhile.
const LOOK: Duration = Duration::from_micros(4);
/// How soon what a socket had no room for is tried again.
const AGAIN: Duration = Duration::from_micros(200);
/// How often the model's temperature may raise an event. What an idle device does to it is told by the next command.
const FEEL: Duration = Duration::from_millis(100);

/// A completion, and when it may be sent; data for the host have been sent before. It is made then: it has the head of
/// the queue as it is then.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) at: Instant,
    pub(super) later: Later,
    pub(super) result: Result<u64, Status>,
    pub(super) outlet: Weak<Connected>,
}

/// What waits, the first to come first.
#[derive(Debug)]
struct Entry {
    at: Instant,
    nth: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Answer(Due),
    /// A socket had no room.
    Again(Arc<Writer>),
}

impl What {
    /// By how much sooner the thread is to be awake for it.
    fn earlier_by(&self, early: &Early) -> Duration {
        match self {
            Self::Answer(_) => early.by(),
            Self::Again(_) => Duration::ZERO,
        }
    }
}

/// The thread.
#[derive(Debug)]
pub(super) struct Timer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    subsystem: Arc<Subsystem>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    stops: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    entries: BinaryHeap<Entry>,
    next: u64,
}

impl Timer {
    /// Starts it.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub(super) fn start(subsystem: Arc<Subsystem>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            subsystem,
            waiting: Mutex::default(),
            changed: Condvar::new(),
            stops: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let builder = thread::Builder::new().name("nvme-timer".to_owned());
        let thread = builder.spawn(move || own.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Has an answer sent at its time, if its connection is still there then.
    pub(super) fn send(&self, due: Due) {
        if due.outlet.strong_count() > 0 {
            self.shared.push(due.at, What::Answer(due));
        }
    }

    /// A connection has gone: answers for it wait no longer.
    pub(super) fn forget_gone(&self) {
        self.shared.waiting().entries.retain(|entry| match &entry.what {
            What::Answer(due) => due.outlet.strong_count() > 0,
            What::Again(_) => true,
        });
    }
}

impl Drop for Timer {
    /// What still waits is not sent: its connections end.
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        // The lock, so that the thread is not between its look and its wait.
        drop(self.shared.waiting());
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, at: Instant, what: What) {
        let mut waiting = self.waiting();
        let nth = waiting.next;
        waiting.next += 1;
        let is_first = waiting.entries.peek().is_none_or(|first| at < first.at);
        waiting.entries.push(Entry { at, nth, what });
        drop(waiting);
        if is_first {
            self.changed.notify_one();
        }
    }

    fn run(&self) {
        // Where the system does not allow it, answers are a little later.
        let _ = set_timerslack(SLACK_NS);
        let mut felt = Instant::now();
        let mut early = Early::new();
        let (mut now, mut writers) = (Vec::new(), Vec::new());
        while self.next(&mut early, &mut now) {
            now.drain(..).for_each(|what| what.put(&mut writers));
            writers.drain(..).for_each(|writer| self.post(writer));
            if felt.elapsed() >= FEEL {
                felt = Instant::now();
                let vitals = self.subsystem.vitals(felt);
                vitals.iter().for_each(|own| self.subsystem.set_temperature(own.kelvin));
            }
        }
    }

    /// Waits for what comes next, and appends to `now` all whose time has come; false at the end.
    fn next(&self, early: &mut Early, now: &mut Vec<What>) -> bool {
        let mut waiting = self.waiting();
        loop {
            if self.stops.load(Ordering::Acquire) {
                return false;
            }
            let at = Instant::now();
            while waiting.entries.peek().is_some_and(|first| first.at <= at) {
                now.extend(waiting.entries.pop().map(|entry| entry.what));
            }
            if !now.is_empty() {
                return true;
            }
            let first = waiting.entries.peek();
            let first = first.map(|entry| (entry.at, entry.what.earlier_by(early)));
            let wake = |p: PoisonError<_>| p.into_inner();
            waiting = match first {
                Some((due, by)) if due - at <= by => {
                    drop(waiting);
                    spin_until(due.min(at + LOOK));
                    self.waiting()
                }
                Some((due, by)) => {
                    let patience = due - at - by;
                    let waited = self.changed.wait_timeout(waiting, patience);
                    let (waiting, ended) = waited.unwrap_or_else(PoisonError::into_inner);
                    if ended.timed_out() {
                        early.woke_late(at.elapsed().saturating_sub(patience));
                    }
                    waiting
                }
                None => self.changed.wait(waiting).unwrap_or_else(wake),
            };
        }
    }

    fn post(&self, writer: Arc<Writer>) {
        if writer.post() == Rest::Some && !writer.has_ended() {
            self.push(Instant::now() + AGAIN, What::Again(writer));
        }
    }
}

impl What {
    /// Puts it into its writer's outbox, and the writer among `writers`: what is due at a time goes in one go.
    fn put(self, writers: &mut Vec<Arc<Writer>>) {
        let writer = match self {
            Self::Again(writer) => writer,
            Self::Answer(due) => {
                let Some(outlet) = due.outlet.upgrade() else { return };
                outlet.put(&due.later.completion(due.result), Some(due.at));
                Arc::clone(&outlet.writer)
            }
        };
        if !writer.has_ended() && !writers.iter().any(|own| Arc::ptr_eq(own, &writer)) {
            writers.push(writer);
        }
    }
}

/// How late the system wakes the thread, on average.
#[derive(Debug)]
struct Early {
    late_ns: u64,
    /// By how much sooner than an answer's time the thread wakes at most.
    most: Duration,
}

impl Early {
    /// For the processors that this process may use. With a single one, who spins keeps it from those who have the next
    /// commands to take, and from the host, if that is on the same machine.
    fn new() -> Self {
        let n = thread::available_parallelism().map_or(1, NonZero::get);
        Self::of(n)
    }

    fn of(n_processors: usize) -> Self {
        let most = if n_processors > 1 { MOST_EARLY } else { Duration::ZERO };
        Self { late_ns: 0, most }
    }

    /// It was so late this time. One that is very late was busy with others, which says nothing of the next.
    fn woke_late(&mut self, late: Duration) {
        let late_ns = late.min(2 * MOST_EARLY).as_nanos();
        let late_ns = u64::try_from(late_ns).unwrap_or(u64::MAX);
        self.late_ns = (self.late_ns * 7 + late_ns) / 8;
    }

    /// By how much sooner the thread is to be woken: seldom late is better than late every other time.
    fn by(&self) -> Duration {
        Duration::from_nanos(self.late_ns.saturating_mul(2)).min(self.most)
    }
}

fn spin_until(at: Instant) {
    while Instant::now() < at {
        std::hint::spin_loop();
    }
}

impl Ord for Entry {
    /// The earliest is the greatest, and of equals the one that came first.
    fn cmp(&self, other: &Self) -> Order {
        (other.at, other.nth).cmp(&(self.at, self.nth))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_wakes_as_much_earlier_as_it_was_late_and_no_more_than_a_little() {
        let mut early = Early::of(2);
        assert_eq!(early.by(), Duration::ZERO);
        (0..100).for_each(|_| early.woke_late(Duration::from_micros(20)));
        assert!(early.by() > Duration::from_micros(30), "{early:?}");
        assert!(early.by() <= Duration::from_micros(40), "{early:?}");
        // Somebody else had the processor.
        early.woke_late(Duration::from_secs(1));
        assert!(early.by() <= MOST_EARLY);
        (0..100).for_each(|_| early.woke_late(Duration::from_micros(1)));
        assert!(early.by() < Duration::from_micros(4), "{early:?}");
    }

    #[test]
    fn nobody_spins_on_the_only_processor() {
        let mut early = Early::of(1);
        (0..100).for_each(|_| early.woke_late(Duration::from_micros(60)));
        assert_eq!(early.by(), Duration::ZERO);
    }
}
