//! An epoch dealt to its consumers in turn, as cards are: the first batch to the first, the
//! second to the second, and again from the first. One consumer is the usual case.
//!
//! Who asks while it is another's turn fetches that one's batch too and puts it down for it,
//! at most one: a consumer that does not come for its batch holds up the others, as it would
//! in a training step anyway. A batch counts as taken when its consumer gets it; one that is taken *ahead*,
//! to be uploaded to a GPU first, when [`Deal::mark`] says so. It does not decide which batches there
//! are (`core::plan` makes as many for each consumer), and does not know what follows the epoch
//! (`handover/loader.rs`). What its consumers have taken, `deal/taken.rs` counts.

pub(crate) mod taken;

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bothends_core::ids::{BatchIdx, Prong};
use bothends_figures::{Moment, Stall};
use crossbeam::channel::Receiver;

use crate::error::RuntimeError;
use crate::handover::batch::{Batch, Row};
use crate::handover::epoch::starvation::Keeper;
use crate::handover::epoch::{Epoch, Polled};
use crate::read::sources::Sources;
use crate::run::checkpoint::Consumed;
use crate::runtime::host::EpochOptions;
use crate::threads::fork::Home;
use crate::threads::shutdown::{PATIENCE, Stop};

use self::taken::Taken;

/// A running epoch and its consumers. Shared by their threads; every wait ends at the
/// caller's own patience.
#[derive(Debug)]
pub struct Deal {
    home: Home,
    stop: Stop,
    /// What happens to batches, for whoever watches.
    pub(crate) moments: Receiver<Moment>,
    /// Batches that the epoch delivers, to all of its consumers.
    pub(crate) n_batches: u32,
    table: Mutex<Table>,
    /// Something on the table has changed.
    changed: Condvar,
}

/// What lies between the epoch and its consumers.
#[derive(Debug)]
struct Table {
    /// `None` while a consumer waits with it, and after the end.
    epoch: Option<Epoch>,
    /// A batch put down for each consumer.
    places: Vec<Option<Batch>>,
    /// Whose turn it is.
    next: usize,
    /// Batches that each consumer has taken.
    n_taken: Vec<u32>,
    /// Batches that were taken ahead for each consumer, which has not got them yet.
    ahead: Vec<u32>,
    /// What all of them have taken.
    taken: Taken,
    consumed: Consumed,
    /// What the epoch's consumers have waited for so far: the deal keeps it for the epoch.
    stall: Stall,
    state: DealState,
    /// Whether nobody shall get a batch any more, also not one that was taken ahead.
    is_closed: bool,
}

/// How a consumer asks.
#[derive(Debug, Clone, Copy)]
enum Asks {
    /// It waits for so long, where the slots of batches that it was given are kept by that one.
    Waits(Duration, Keeper),
    /// It looks, and has something else to do meanwhile: that is no wait of its.
    Looks,
}

/// How far a deal has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DealState {
    /// There are batches to come.
    Open,
    /// Every batch has been fetched.
    Ended,
    /// This consumer was told of an error.
    Failed(u32),
    /// Nobody shall get the rest.
    Cancelled(Cancelled),
}

/// Why nobody gets the rest of an epoch: what a consumer that still asks is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// Its consumers want no more.
    Unwanted,
    /// The loader began another epoch.
    Superseded,
    /// The loader was closed.
    Closed,
}

/// A consumer that waits with the epoch. Should that panic, the epoch is gone, and the others
/// must not wait for it.
struct Fetching<'a> {
    deal: &'a Deal,
    consumer: u32,
    is_done: bool,
}

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.deal.table().state = DealState::Failed(self.consumer);
            self.deal.changed.notify_all();
        }
    }
}

impl Deal {
    /// `sources` are the data sets that the epoch mixes, where it does.
    pub(crate) fn new(
        epoch: Epoch,
        options: &EpochOptions,
        sources: Option<Arc<Sources>>,
    ) -> Self {
        let consumers = options.consumers;
        Self {
            home: epoch.home,
            stop: epoch.stop.clone(),
            moments: epoch.moments.clone(),
            n_batches: epoch.n_batches(),
            table: Mutex::new(Table {
                epoch: Some(epoch),
                places: (0..consumers).map(|_| None).collect(),
                next: 0,
                n_taken: vec![0; consumers as usize],
                taken: Taken::of(sources),
                consumed: Consumed::new(options),
                stall: Stall::default(),
                ahead: vec![0; consumers as usize],
                state: DealState::Open,
                is_closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// The next batch of `consumer` (from 0), waiting for it no longer than `patience`; without end for
    /// [`Duration::MAX`].
    ///
    /// # Errors
    /// [`RuntimeError::Superseded`] and [`RuntimeError::Closed`] where the loader has left the
    /// epoch. What ends the epoch: once what happened, to one consumer, and from then on that it was
    /// told ([`RuntimeError::EndedByError`]), so that nobody takes it for the end;
    /// [`RuntimeError::Forked`] in another process than the one that began the epoch.
    ///
    /// # Panics
    /// When there is no such consumer.
    pub fn poll(
        &self,
        consumer: u32,
        patience: Duration,
    ) -> Result<Polled, RuntimeError> {
        let take = |table: &mut Table, batch: &Batch| table.take(consumer, batch);
        self.next(consumer, Asks::Waits(patience, Keeper::Consumers), take)
    }

    /// As [`Self::poll`], for one who has something to do with the batch before its consumer gets it: it
    /// counts as taken once [`Self::mark`] has been called. The slots of earlier ones are kept by `keeper`.
    pub(crate) fn poll_ahead(
        &self,
        consumer: u32,
        (patience, keeper): (Duration, Keeper),
    ) -> Result<Polled, RuntimeError> {
        let asks = Asks::Waits(patience, keeper);
        self.next(consumer, asks, |table, _| table.put_ahead(consumer))
    }

    /// The same where a batch lies ready; that none does is no wait of the consumer's.
    pub(crate) fn look_ahead(&self, consumer: u32) -> Result<Polled, RuntimeError> {
        self.next(consumer, Asks::Looks, |table, _| table.put_ahead(consumer))
    }

    /// The consumer gets a batch that was taken ahead, with these rows: it counts as taken. False where nobody shall
    /// get it any more, because the epoch was cancelled; [`Self::poll`] says why.
    pub(crate) fn mark(&self, consumer: u32, batch: (BatchIdx, Prong, &[Row])) -> bool {
        let mut table = self.table();
        let own = consumer as usize;
        table.ahead[own] = table.ahead[own].saturating_sub(1);
        if table.is_closed {
            return false;
        }
        table.count(consumer, batch);
        self.changed.notify_all();
        true
    }

    /// Does the waiting of a consumer whose batch finds no slot on its GPU. That is the consumer's own wait, as for
    /// slots of the host: it keeps them, or the GPU is still at work on what it was given.
    pub(crate) fn waiting_for_slot(&self, wait: impl FnOnce()) {
        let began = Instant::now();
        wait();
        self.table().stall.consumer += began.elapsed().as_secs_f64();
    }

    /// Whether nobody shall get a batch any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.table().is_closed
    }

    /// The epoch ends by an error that this consumer is told, which was met behind the deal.
    pub(crate) fn fail(&self, consumer: u32) {
        let mut table = self.table();
        if matches!(table.state, DealState::Open | DealState::Ended) {
            table.state = DealState::Failed(consumer);
        }
        self.stop.set();
        self.changed.notify_all();
    }

    /// Whether this is the process that began the epoch.
    pub(crate) fn check(&self) -> Result<(), RuntimeError> {
        self.home.check()
    }

    /// The next batch of `consumer`, booked by `book`.
    fn next(
        &self,
        consumer: u32,
        asks: Asks,
        book: impl Fn(&mut Table, &Batch),
    ) -> Result<Polled, RuntimeError> {
        self.home.check()?;
        let began = Instant::now();
        let own = consumer as usize;
        let mut table = self.table();
        let mut has_looked = false;
        loop {
            if let Some(batch) = table.places[own].take() {
                book(&mut table, &batch);
                self.changed.notify_all();
                return Ok(Polled::Batch(batch));
            }
            match table.state {
                DealState::Open => {}
                DealState::Ended | DealState::Cancelled(Cancelled::Unwanted) => {
                    return Ok(Polled::End);
                }
                DealState::Cancelled(Cancelled::Superseded) => {
                    return Err(RuntimeError::Superseded);
                }
                DealState::Cancelled(Cancelled::Closed) => {
                    return Err(RuntimeError::Closed);
                }
                DealState::Failed(consumer) => {
                    return Err(RuntimeError::EndedByError { consumer });
                }
            }
            let left = asks.patience().saturating_sub(began.elapsed());
            // Whoever has no patience gets what is there.
            if left.is_zero() && has_looked {
                return Ok(Polled::Pending);
            }
            has_looked = true;
            let turn = table.next;
            let is_free = table.places[turn].is_none();
            let Some(epoch) = table.epoch.take_if(|_| is_free) else {
                table = self.wait(table, left.min(PATIENCE));
                continue;
            };
            drop(table);
            let asks = match asks {
                Asks::Waits(_, keeper) => Asks::Waits(left.min(PATIENCE), keeper),
                Asks::Looks => Asks::Looks,
            };
            table = self.fetch(epoch, consumer, asks)?;
        }
    }

    /// The batches of `consumer`, one after another, each waited for without end; an error is
    /// the last item.
    ///
    /// # Panics
    /// As [`Self::poll`].
    pub fn batches(
        &self,
        consumer: u32,
    ) -> impl Iterator<Item = Result<Batch, RuntimeError>> + use<'_> {
        Polled::batches(move || self.poll(consumer, PATIENCE))
    }

    /// Waits for a batch of the epoch with the table free, and puts it down for whose turn it
    /// is.
    fn fetch(
        &self,
        mut epoch: Epoch,
        consumer: u32,
        asks: Asks,
    ) -> Result<MutexGuard<'_, Table>, RuntimeError> {
        let mut fetching = Fetching { deal: self, consumer, is_done: false };
        let polled = match asks {
            Asks::Waits(patience, keeper) => epoch.poll_while_kept(patience, keeper),
            Asks::Looks => epoch.look_for_batch(),
        };
        fetching.is_done = true;
        let mut table = self.table();
        table.stall += mem::take(&mut epoch.stall);
        table.epoch = Some(epoch);
        self.changed.notify_all();
        match polled {
            // One that came while the epoch was cancelled is nobody's.
            Ok(Polled::Batch(batch)) if table.state == DealState::Open => {
                let turn = table.next;
                table.places[turn] = Some(batch);
                table.next = (turn + 1) % table.places.len();
            }
            Ok(Polled::Batch(_) | Polled::Pending) => {}
            // The end is for a consumer that asks for it: whoever looks ahead has a batch to work on still.
            Ok(Polled::End) => {
                if table.state == DealState::Open && matches!(asks, Asks::Waits(..)) {
                    table.state = DealState::Ended;
                }
            }
            Err(error) => {
                table.state = DealState::Failed(consumer);
                return Err(error);
            }
        }
        Ok(table)
    }

    /// Nobody wants the rest: the epoch's threads end by themselves, nobody waits for them.
    pub fn cancel(&self) {
        self.cancel_because(Cancelled::Unwanted);
    }

    fn cancel_because(&self, why: Cancelled) {
        if !self.home.is_here() {
            return;
        }
        let mut table = self.table();
        // Whoever does not get what was fetched for it must not take that for the end.
        let is_lacking = table.state == DealState::Ended && !table.is_taken();
        if table.state == DealState::Open || is_lacking {
            table.state = DealState::Cancelled(why);
        }
        table.is_closed = true;
        table.places.fill_with(|| None);
        self.stop.set();
        self.changed.notify_all();
    }

    /// How far it has come; `Ended` once every consumer has taken what was put down for it.
    pub(crate) fn state(&self) -> DealState {
        let table = self.table();
        if table.state == DealState::Ended && !table.is_taken() {
            return DealState::Open;
        }
        table.state
    }

    /// The batches that consumers have taken; `None` while one has taken more than another.
    pub(crate) fn consumed(&self) -> Option<Consumed> {
        let table = self.table();
        let is_even = table.n_taken.windows(2).all(|pair| pair[0] == pair[1]);
        is_even.then(|| table.consumed.clone())
    }

    /// For what consumers have waited so far.
    pub(crate) fn stall(&self) -> Stall {
        self.table().stall
    }

    /// What consumers have taken so far.
    pub(crate) fn taken(&self) -> Taken {
        self.table().taken.clone()
    }

    /// Whether a consumer has taken a batch.
    pub(crate) fn has_delivered(&self) -> bool {
        self.table().consumed.n_batches() > 0
    }

    /// Takes the epoch away from its consumers, so that its threads can be joined. Waits for
    /// a consumer that is fetching, one look of it at most.
    pub(crate) fn close(&self, why: Cancelled) -> Option<Epoch> {
        self.cancel_because(why);
        let mut table = self.table();
        let deadline = Instant::now() + PATIENCE * 10;
        while table.epoch.is_none() && Instant::now() < deadline {
            table = self.wait(table, PATIENCE);
        }
        let mut epoch = table.epoch.take()?;
        epoch.stall += table.stall;
        Some(epoch)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        table: MutexGuard<'a, Table>,
        patience: Duration,
    ) -> MutexGuard<'a, Table> {
        let waited = self.changed.wait_timeout(table, patience);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Table {
    fn take(&mut self, consumer: u32, batch: &Batch) {
        self.count(consumer, (batch.index, batch.prong, batch.rows()));
    }

    fn count(&mut self, consumer: u32, (index, prong, rows): (BatchIdx, Prong, &[Row])) {
        self.consumed.add(index);
        self.n_taken[consumer as usize] += 1;
        self.taken.add(prong, rows);
    }

    fn put_ahead(&mut self, consumer: u32) {
        self.ahead[consumer as usize] += 1;
    }

    /// Whether consumers have got everything that was fetched for them.
    fn is_taken(&self) -> bool {
        self.places.iter().all(Option::is_none) && self.ahead.iter().all(|n| *n == 0)
    }
}

impl Asks {
    fn patience(self) -> Duration {
        match self {
            Self::Waits(patience, _) => patience,
            Self::Looks => Duration::ZERO,
        }
    }
}

#[cfg(test)]
impl Deal {
    /// One whose epoch a consumer waits with.
    pub(crate) fn fetched_by_another(home: Home) -> Self {
        Self {
            home,
            stop: Stop::default(),
            moments: crossbeam::channel::never(),
            n_batches: 2,
            table: Mutex::new(Table {
                epoch: None,
                places: vec![None, None],
                next: 0,
                n_taken: vec![0; 2],
                ahead: vec![0; 2],
                taken: Taken::default(),
                consumed: Consumed::default(),
                stall: Stall::default(),
                state: DealState::Open,
                is_closed: false,
            }),
            changed: Condvar::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_consumer_that_panicked() {
        let deal = Deal::fetched_by_another(Home::here());
        let pending = deal.poll(1, Duration::ZERO).unwrap();
        assert!(matches!(pending, Polled::Pending));
        let panicked = std::thread::scope(|scope| {
            let wait = || {
                let _fetching = Fetching { deal: &deal, consumer: 0, is_done: false };
                panic!("in poll_batch");
            };
            scope.spawn(wait).join()
        });
        assert!(panicked.is_err());
        let told = deal.poll(1, Duration::from_secs(60));
        assert!(matches!(told, Err(RuntimeError::EndedByError { consumer: 0 })));
        assert!(deal.close(Cancelled::Closed).is_none());
    }

    #[test]
    fn a_consumer_may_have_patience_without_end() {
        let deal = Deal::fetched_by_another(Home::here());
        deal.cancel();
        let told = deal.poll(1, Duration::MAX);
        assert!(matches!(told, Ok(Polled::End)));
    }
}
