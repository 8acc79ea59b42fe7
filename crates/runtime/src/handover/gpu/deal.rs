//! An epoch dealt to consumers on a GPU: the deal of the host, with one batch uploaded ahead of each.
//!
//! 1. A batch is uploaded while its consumer works on the one before: inside `poll`, after that has found the
//!    batch that it returns. No call waits for the device.
//! 2. It counts as taken when it is handed over, so a state saved at any moment is exact. One that was uploaded
//!    and never handed over (the epoch was cancelled, the loader closed) was never taken.
//! 3. Consumers that keep every batch are told so and may go on once they have given one back.
//!
//! What is uploaded how is `gpu/feed.rs`'s; whose turn it is, `handover/deal.rs`'s.

use std::mem::{self, ManuallyDrop};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::RuntimeError;
use crate::handover::batch::Batch;
use crate::handover::deal::Deal;
use crate::handover::epoch::Polled;
use crate::handover::epoch::starvation::Lack;
use crate::handover::gpu::batch::GpuBatch;
use crate::handover::gpu::feed::{GpuFeed, Refused};
use crate::threads::shutdown::PATIENCE;

/// A running epoch and its consumers, whose batches end in GPU memory. Shared by their threads; every
/// wait ends at the caller's own patience.
#[derive(Debug)]
pub struct GpuDeal {
    deal: Arc<Deal>,
    feed: Arc<GpuFeed>,
    seats: Vec<Mutex<Seat>>,
}

/// What a consumer on a GPU that waits for a stated time finds. A batch is lent to a stream before any work on it.
pub type GpuPolled = Polled<GpuBatch>;

/// What a consumer has before it.
#[derive(Debug, Default)]
struct Seat {
    next: Next,
    /// Why it waits for a slot on the device.
    lack: Lack,
}

/// Its next batch.
#[derive(Debug, Default)]
enum Next {
    /// Is not taken from the deal yet.
    #[default]
    Nothing,
    /// Is in host memory: no slot on the device was free.
    Made(Batch),
    /// Is on the device, or will be by the time that a stream it is lent to gets there.
    Uploaded(GpuBatch),
    /// Does not come; nobody has been told yet.
    Failed(RuntimeError),
}

impl GpuDeal {
    pub(crate) fn new(deal: Arc<Deal>, feed: Arc<GpuFeed>, consumers: u32) -> Self {
        let seats = (0..consumers).map(|_| Mutex::default()).collect();
        Self { deal, feed, seats }
    }

    /// The next batch of `consumer` (from 0), waiting for it on the host no longer than `patience`, and never
    /// for the device: the batch is lent to a stream, which waits.
    ///
    /// # Errors
    /// As [`Deal::poll`]; [`RuntimeError::Gpu`], which ends the epoch. [`RuntimeError::Starved`] where consumers
    /// keep all of the device's slots for two seconds; ask again once one has been given back. Slots that the
    /// device keeps, because it has not passed what uses them, are waited for, and after 60 s the device is late.
    ///
    /// # Panics
    /// When there is no such consumer.
    pub fn poll(
        &self,
        consumer: u32,
        patience: Duration,
    ) -> Result<GpuPolled, RuntimeError> {
        self.deal.check()?;
        let began = Instant::now();
        let mut seat = self.seat(consumer);
        loop {
            self.feed.poll().inspect_err(|_| self.deal.fail(consumer))?;
            let left = patience.saturating_sub(began.elapsed());
            match mem::take(&mut seat.next) {
                Next::Failed(error) => return Err(error),
                Next::Uploaded(batch) => {
                    // One that nobody shall get any more goes, and the deal says why.
                    let counted = (batch.index, batch.prong, batch.rows());
                    if self.deal.mark(consumer, counted) {
                        self.top_up(consumer, &mut seat);
                        return Ok(GpuPolled::Batch(batch));
                    }
                }
                Next::Made(batch) => {
                    if self.upload(consumer, &mut seat, batch)? {
                        continue;
                    }
                    if left.is_zero() {
                        return Ok(GpuPolled::Pending);
                    }
                    let wait = || self.feed.wait_for_slot(left.min(PATIENCE));
                    self.deal.waiting_for_slot(wait);
                }
                Next::Nothing => {
                    match self.deal.poll_ahead(consumer, self.feed.at_most(left)) {
                        Ok(Polled::Batch(batch)) => seat.next = Next::Made(batch),
                        Ok(Polled::End) => return Ok(GpuPolled::End),
                        Ok(Polled::Pending) if left.is_zero() => {
                            return Ok(GpuPolled::Pending);
                        }
                        Ok(Polled::Pending) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// The batches of `consumer`, one after another, each waited for without end; an error is the last item.
    ///
    /// # Panics
    /// As [`Self::poll`].
    pub fn batches(
        &self,
        consumer: u32,
    ) -> impl Iterator<Item = Result<GpuBatch, RuntimeError>> + use<'_> {
        Polled::batches(move || self.poll(consumer, PATIENCE))
    }

    /// Nobody wants the rest: the epoch's threads end by themselves, nobody waits for them, and what was
    /// uploaded ahead is given up.
    pub fn cancel(&self) {
        if self.deal.check().is_err() {
            // As for `drop`.
            return;
        }
        self.deal.cancel();
        for seat in &self.seats {
            // Who is asking at this moment finds that it is cancelled.
            if let Ok(mut seat) = seat.try_lock() {
                seat.next = Next::Nothing;
            }
        }
    }

    /// Uploads a batch, for a consumer that waits for it; false where no slot on the device is free.
    fn upload(
        &self,
        consumer: u32,
        seat: &mut Seat,
        batch: Batch,
    ) -> Result<bool, RuntimeError> {
        if self.deal.is_closed() {
            // It goes, and the deal says why.
            return Ok(true);
        }
        match self.feed.upload(batch) {
            Ok(batch) => {
                *seat = Seat { next: Next::Uploaded(batch), lack: Lack::default() };
                Ok(true)
            }
            Err(Refused::Full(batch, keeper)) => {
                seat.next = Next::Made(*batch);
                let what = (Some(self.feed.target()), self.feed.n_slots());
                let now = Instant::now();
                let error = seat.lack.look(Some(keeper), (now, now), what);
                let is_late = matches!(error, Some(RuntimeError::Gpu { .. }));
                if is_late {
                    seat.next = Next::Nothing;
                    self.deal.fail(consumer);
                }
                error.map_or(Ok(false), Err)
            }
            Err(Refused::Failed(error)) => {
                self.deal.fail(consumer);
                Err(error)
            }
        }
    }

    /// Takes a batch ahead and uploads it, where one lies ready and a slot is free.
    fn top_up(&self, consumer: u32, seat: &mut Seat) {
        seat.next = match self.deal.look_ahead(consumer) {
            Ok(Polled::Batch(batch)) => match self.feed.upload(batch) {
                Ok(batch) => Next::Uploaded(batch),
                Err(Refused::Full(batch, _)) => Next::Made(*batch),
                Err(Refused::Failed(error)) => {
                    self.deal.fail(consumer);
                    Next::Failed(error)
                }
            },
            Ok(Polled::Pending | Polled::End) => Next::Nothing,
            Err(error) => Next::Failed(error),
        };
    }

    fn seat(&self, consumer: u32) -> MutexGuard<'_, Seat> {
        let seat = self.seats[consumer as usize].lock();
        // Whoever panicked has left a seat without a batch: the next one is taken from the deal.
        seat.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GpuDeal {
    fn drop(&mut self) {
        if self.deal.check().is_err() {
            // In a fork the slots are the parent's, and a lock of theirs may be held forever.
            let _ = ManuallyDrop::new((mem::take(&mut self.seats), self.feed.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use bothends_gpu::driver::fake::Fake;

    use super::*;
    use crate::handover::gpu::feed::FeedPlan;
    use crate::handover::gpu::target::GpuTarget;
    use crate::threads::fork::Home;

    /// What lies before the only consumer of a deal that is cancelled here.
    fn left_by_cancel(home: Home) -> Next {
        let target = GpuTarget::over(Arc::new(Fake::default())).unwrap();
        let plan = FeedPlan {
            n_slots: 1,
            batch_size: 1,
            host_bytes: 4096,
            sample_bytes: 4096,
            view_bytes: [4096].into(),
            finish: None,
            is_page_locked: true,
        };
        let feed = GpuFeed::new(&target, plan).unwrap();
        let deal =
            GpuDeal::new(Arc::new(Deal::fetched_by_another(home)), Arc::new(feed), 1);
        deal.seat(0).next = Next::Failed(RuntimeError::Closed);
        deal.cancel();
        mem::take(&mut deal.seat(0).next)
    }

    /// What was uploaded ahead is in a slot of the parent's.
    #[test]
    fn a_fork_gives_up_nothing_of_its_parents() {
        assert!(matches!(left_by_cancel(Home::here()), Next::Nothing));
        let in_a_fork = left_by_cancel(Home::of_another_process());
        assert!(matches!(in_a_fork, Next::Failed(RuntimeError::Closed)));
    }
}
