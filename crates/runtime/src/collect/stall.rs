//! What holds up the next batch, and for how long: one clock with an account for each cause.
//!
//! Collector, workers and feeds say what changes; between two changes the time runs
//! on one account. A consumer that waits reads the accounts before and after, so its waits are
//! booked to the nanosecond and once, whatever happened in between. What the consumer does
//! with a batch is not seen here (`run/drive.rs`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bothends_figures::Stall;

use crate::collect::in_flight::EpochNumber;

/// What the collector waits for before it can pass on the next batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Awaited {
    /// The host's reader and workers.
    #[default]
    Front,
    /// A device.
    Device,
    /// The strategy: some batches are made and may not go yet, and nobody makes the next one.
    Turn,
    /// Nothing: the next batch is with its feed.
    Finish,
    /// The consumer, which keeps every slot.
    Consumer,
}

/// Shared between collector, workers, feeds and consumer.
#[derive(Debug)]
pub(crate) struct WaitClock {
    /// Workers that are decoding.
    busy_workers: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    awaited: Awaited,
    /// A worker is decoding.
    decoding: bool,
    /// What the feed of each epoch is at, while it has something.
    finishers: BTreeMap<EpochNumber, Finisher>,
    /// Since when the above holds.
    since: Instant,
    accounts: Accounts,
}

/// Time by [`Cause`].
type Accounts = [Duration; 7];

#[derive(Debug, Clone, Copy)]
enum Cause {
    Order,
    Read,
    Decode,
    Device,
    Finish,
    Copy,
    Consumer,
}

impl Default for WaitClock {
    fn default() -> Self {
        let state = State {
            awaited: Awaited::default(),
            decoding: false,
            finishers: BTreeMap::new(),
            since: Instant::now(),
            accounts: Accounts::default(),
        };
        Self { busy_workers: AtomicU32::new(0), state: Mutex::new(state) }
    }
}

impl WaitClock {
    /// The collector has looked.
    pub(crate) fn awaits(&self, awaited: Awaited) {
        self.turn(|state| state.awaited = awaited);
    }

    /// Does the work of a worker that has its record.
    pub(crate) fn decoding<T>(&self, work: impl FnOnce() -> T) -> T {
        // Only the first one to begin and the last one to end change what is waited for; the
        // count is read under the lock, so the later of two that cross has the last word.
        let look = || self.busy_workers.load(Ordering::Relaxed) > 0;
        if self.busy_workers.fetch_add(1, Ordering::Relaxed) == 0 {
            self.turn(|state| state.decoding = look());
        }
        let done = work();
        if self.busy_workers.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.turn(|state| state.decoding = look());
        }
        done
    }

    /// How many workers are decoding.
    pub(crate) fn n_busy(&self) -> u32 {
        self.busy_workers.load(Ordering::Relaxed)
    }

    /// Where the feed of an epoch says what it is at.
    pub(crate) fn feed(self: &Arc<Self>, number: EpochNumber) -> FeedClock {
        FeedClock { clock: Arc::clone(self), number }
    }

    /// Whether nothing can go on because the consumer keeps every slot.
    pub(crate) fn is_starved(&self) -> bool {
        matches!(self.state().cause(), Cause::Consumer)
    }

    /// The accounts as they stand now.
    pub(crate) fn read(&self) -> Stall {
        let mut state = self.state();
        state.book();
        let [order, read, decode, device, finish, copy, consumer] =
            state.accounts.map(|time| time.as_secs_f64());
        Stall { order, read, decode, device, finish, copy, consumer }
    }

    fn turn(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        state.book();
        change(&mut state);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of the clock that is one feed's: two are at work where an epoch ends and the next one
/// is prefetched.
#[derive(Debug)]
pub(crate) struct FeedClock {
    clock: Arc<WaitClock>,
    number: EpochNumber,
}

impl FeedClock {
    /// The number of the feed's epoch.
    pub(crate) fn number(&self) -> EpochNumber {
        self.number
    }

    /// Does the finishing of a batch.
    pub(crate) fn finishing<T>(&self, work: impl FnOnce() -> T) -> T {
        self.finisher(Finisher::Busy);
        let done = work();
        self.is_done();
        done
    }

    /// What the feed is at, within [`Self::finishing`].
    pub(crate) fn finisher(&self, finisher: Finisher) {
        self.clock.turn(|state| {
            state.finishers.insert(self.number, finisher);
        });
    }

    fn is_done(&self) {
        self.clock.turn(|state| {
            state.finishers.remove(&self.number);
        });
    }
}

/// A feed that panicked is at nothing any more.
impl Drop for FeedClock {
    fn drop(&mut self) {
        self.is_done();
    }
}

/// What a feed is at that has a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finisher {
    /// It finishes it.
    Busy,
    /// It has a device's batch brought into the output's form, from one slot to another.
    Converts,
    /// It has one and no slot to finish it in: the consumer keeps them all.
    LacksSlot,
}

impl State {
    /// Puts the time since the last change on the account that it ran on.
    fn book(&mut self) {
        let now = Instant::now();
        self.accounts[self.cause() as usize] += now - self.since;
        self.since = now;
    }

    fn cause(&self) -> Cause {
        // The first epoch is the one that consumers wait for.
        if let Some(finisher) = self.finishers.values().next() {
            return match finisher {
                Finisher::Busy => Cause::Finish,
                Finisher::Converts => Cause::Copy,
                Finisher::LacksSlot => Cause::Consumer,
            };
        }
        match self.awaited {
            Awaited::Front if self.decoding => Cause::Decode,
            Awaited::Front => Cause::Read,
            Awaited::Device => Cause::Device,
            Awaited::Turn => Cause::Order,
            Awaited::Finish => Cause::Finish,
            Awaited::Consumer => Cause::Consumer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(2);

    /// Seconds on each account for what happens in `during`, and how long that took by the moments
    /// at which the clock itself looked.
    fn booked(clock: &WaitClock, during: impl FnOnce()) -> (Stall, f64) {
        let (before, began) = (clock.read(), clock.state().since);
        during();
        let (after, ended) = (clock.read(), clock.state().since);
        (after - before, (ended - began).as_secs_f64())
    }

    #[test]
    fn every_moment_is_on_one_account() {
        let clock = Arc::new(WaitClock::default());
        let feed = clock.feed(1);
        let (stall, took) = booked(&clock, || {
            std::thread::sleep(MS);
            clock.decoding(|| std::thread::sleep(MS));
            clock.awaits(Awaited::Device);
            clock.decoding(|| std::thread::sleep(MS));
            clock.awaits(Awaited::Turn);
            std::thread::sleep(MS);
            feed.finishing(|| {
                std::thread::sleep(MS);
                feed.finisher(Finisher::LacksSlot);
                assert!(clock.is_starved());
                std::thread::sleep(MS);
                feed.finisher(Finisher::Converts);
                assert!(!clock.is_starved());
                std::thread::sleep(MS);
                feed.finisher(Finisher::Busy);
            });
        });
        let Stall { order, read, decode, device, finish, copy, consumer } = stall;
        for seconds in [order, read, decode, device, finish, copy, consumer] {
            assert!(seconds >= MS.as_secs_f64(), "{stall:?}");
        }
        let gap = took - stall.total();
        // What adding up rounded numbers takes away.
        assert!(gap.abs() < 1e-9, "{gap} s of {took} s are on no account");
        assert!(!clock.is_starved());
    }

    /// An epoch's last batch is being repaired, and the next epoch, prefetched, has all other slots:
    /// its consumers wait for the mending, whatever the feed of the next one does.
    #[test]
    fn a_feed_of_the_next_epoch_hides_no_cause() {
        let clock = Arc::new(WaitClock::default());
        let (draining, prefetched) = (clock.feed(1), clock.feed(2));
        draining.finishing(|| {
            clock.awaits(Awaited::Consumer);
            prefetched.finishing(|| prefetched.finisher(Finisher::LacksSlot));
            assert!(!clock.is_starved());
            let (stall, took) = booked(&clock, || prefetched.finishing(|| {}));
            assert!((stall.finish - took).abs() < 1e-9, "{stall:?} of {took} s");
        });
        assert!(clock.is_starved());
        prefetched.finisher(Finisher::Busy);
        assert!(!clock.is_starved());
        drop(prefetched);
        assert!(clock.is_starved());
    }

    #[test]
    fn one_of_two_workers_is_enough_to_be_decoding() {
        let clock = WaitClock::default();
        let (stall, _) = booked(&clock, || {
            clock.decoding(|| {
                clock.decoding(|| {});
                std::thread::sleep(MS);
            });
        });
        assert!(stall.decode >= MS.as_secs_f64(), "{stall:?}");
    }
}
