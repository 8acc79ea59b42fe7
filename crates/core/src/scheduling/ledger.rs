//! The books of one epoch: the state of every batch, and who makes it.
//!
//! The ledger alone commits: of several results for a batch the first one counts, whoever sent it.
//! Every query and every entry costs O(1) (amortised), because a decision per batch must stay cheap
//! compared with making the batch. It decides nothing; `select` does. `ledger/hand.rs` has what each
//! prong holds. Read `select.rs` next.

pub mod batch_set;
pub mod hand;

use std::collections::VecDeque;

use crate::ids::{BatchIdx, Prong};
use batch_set::BatchSet;

/// What state a batch is in. The order is the way of a batch; only `Claimed` may go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchState {
    /// Nobody makes it.
    Free,
    /// Somebody makes it; two when it is being rescued.
    Claimed,
    /// It is made and waits to be picked for delivery.
    Ready,
    /// It is picked; the consumer has not confirmed it yet.
    Picked,
    /// The consumer has it.
    Delivered,
}

/// Who may take a batch that is free again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenTo {
    Anybody,
    Host,
}

/// The free batches that a device may take.
#[derive(Debug, Clone, Copy)]
pub struct Open<'a> {
    set: &'a BatchSet,
    every: u32,
    first: u32,
}

impl Open<'_> {
    /// The highest of them.
    #[must_use]
    pub fn last(&self) -> Option<BatchIdx> {
        self.set.last().map(|at| self.batch(at))
    }

    /// The lowest that is not below `from`.
    #[must_use]
    pub fn first_from(&self, from: BatchIdx) -> Option<BatchIdx> {
        let at = from.0.saturating_sub(self.first).div_ceil(self.every);
        self.set.first_from(BatchIdx(at)).map(|at| self.batch(at))
    }

    fn batch(&self, at: BatchIdx) -> BatchIdx {
        BatchIdx(at.0 * self.every + self.first)
    }
}

/// The sets of batches of each shard; none for fewer than two shards.
fn shards_of(n_batches: u32, shards: u16) -> Vec<BatchSet> {
    let n = u32::from(shards);
    let shards = if n < 2 { 0..0 } else { 0..n };
    shards
        .map(|shard| BatchSet::full(n_batches.saturating_sub(shard).div_ceil(n)))
        .collect()
}

/// Whether the front, and whether a device, holds a claim on a batch.
type Holders = [bool; 2];

const NOBODY: Holders = [false, false];
const FRONT_ALONE: Holders = [true, false];
const BACK_ALONE: Holders = [false, true];

/// A prong's place in what there is of the front and of the devices.
fn side(prong: Prong) -> usize {
    usize::from(prong != Prong::Front)
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    state: BatchState,
    holders: Holders,
    /// Who made it; meaningful from `Ready` on.
    maker: Prong,
}

/// The state of every batch of an epoch.
#[derive(Debug, Clone)]
pub struct Ledger {
    entries: Vec<Entry>,
    free: BatchSet,
    /// The same by shard: of `n` shards, shard `s` holds the batches `b` with `b % n == s`,
    /// here as `b / n`. Empty where every device has all the data.
    free_of: Vec<BatchSet>,
    host_only: BatchSet,
    unpicked: BatchSet,
    /// Made by the front, and by devices; the oldest first.
    ready: [VecDeque<BatchIdx>; 2],
}

impl Ledger {
    /// Books of `n_batches` free batches, except those in `done` (half-open ranges), which
    /// were delivered before. Parts of a range beyond the epoch are ignored. With two
    /// `shards` or more the batches are dealt to them in turn.
    #[must_use]
    pub fn new(n_batches: u32, done: &[(u32, u32)], shards: u16) -> Self {
        let entry =
            Entry { state: BatchState::Free, holders: NOBODY, maker: Prong::Front };
        let mut ledger = Self {
            entries: vec![entry; n_batches as usize],
            free: BatchSet::full(n_batches),
            free_of: shards_of(n_batches, shards),
            host_only: BatchSet::empty(n_batches),
            unpicked: BatchSet::full(n_batches),
            ready: Default::default(),
        };
        for &(from, to) in done {
            for batch in (from..to.min(n_batches)).map(BatchIdx) {
                ledger.entries[batch.0 as usize].state = BatchState::Delivered;
                ledger.take_free(batch);
                ledger.unpicked.remove(batch);
            }
        }
        ledger
    }

    /// Batches of the epoch, delivered ones included.
    #[must_use]
    pub fn n_batches(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// The state of a batch; `None` beyond the epoch.
    #[must_use]
    pub fn state(&self, batch: BatchIdx) -> Option<BatchState> {
        self.entry(batch).map(|entry| entry.state)
    }

    /// The batches that nobody makes, and anybody may take.
    #[must_use]
    pub fn free(&self) -> &BatchSet {
        &self.free
    }

    /// Those of the free batches that lie on a shard; all of them for a device that has all
    /// the data, or where there are no shards.
    #[must_use]
    pub fn free_on(&self, shard: Option<u16>) -> Open<'_> {
        let n_shards = u32::try_from(self.free_of.len()).unwrap_or(u32::MAX);
        match shard.and_then(|shard| Some((shard, self.free_of.get(usize::from(shard))?)))
        {
            Some((shard, set)) => Open { set, every: n_shards, first: u32::from(shard) },
            None => Open { set: &self.free, every: 1, first: 0 },
        }
    }

    /// Shards that the batches are dealt to; 0 where there are none.
    #[must_use]
    pub fn n_shards(&self) -> u16 {
        u16::try_from(self.free_of.len()).unwrap_or(u16::MAX)
    }

    /// The batches that nobody makes, and only the host may take: a device has failed on
    /// them, and would perhaps do so forever.
    #[must_use]
    pub fn host_only(&self) -> &BatchSet {
        &self.host_only
    }

    /// Whether nobody makes a batch.
    #[must_use]
    pub fn is_free(&self, batch: BatchIdx) -> bool {
        self.state(batch) == Some(BatchState::Free)
    }

    /// The batches that have not been picked for delivery.
    #[must_use]
    pub fn unpicked(&self) -> &BatchSet {
        &self.unpicked
    }

    /// The batch that has been ready longest of those the host made.
    #[must_use]
    pub fn ready_front(&self) -> Option<BatchIdx> {
        self.ready[0].front().copied()
    }

    /// The batch that has been ready longest of those a device made.
    #[must_use]
    pub fn ready_back(&self) -> Option<BatchIdx> {
        self.ready[1].front().copied()
    }

    /// Batches that are made and wait to be picked, in a strategy that takes the oldest
    /// first; else perhaps more.
    #[must_use]
    pub fn n_ready(&self) -> u32 {
        let n_ready: usize = self.ready.iter().map(VecDeque::len).sum();
        u32::try_from(n_ready).unwrap_or(u32::MAX)
    }

    /// Whether a device, and nobody else, is making this batch.
    #[must_use]
    pub fn only_back_makes(&self, batch: BatchIdx) -> bool {
        self.entry(batch)
            .is_some_and(|e| e.state == BatchState::Claimed && e.holders == BACK_ALONE)
    }

    /// Whether the front, and nobody else, is making this batch.
    #[must_use]
    pub fn only_front_makes(&self, batch: BatchIdx) -> bool {
        self.entry(batch)
            .is_some_and(|e| e.state == BatchState::Claimed && e.holders == FRONT_ALONE)
    }

    /// Whether a device, and nobody else, is making this batch, or a device has made it.
    #[must_use]
    pub fn is_of_back(&self, batch: BatchIdx) -> bool {
        self.entry(batch).is_some_and(|entry| match entry.state {
            BatchState::Free => false,
            BatchState::Claimed => entry.holders == BACK_ALONE,
            BatchState::Ready | BatchState::Picked | BatchState::Delivered => {
                entry.maker != Prong::Front
            }
        })
    }

    /// Batches delivered, as half-open ranges in rising order. Costs O(batches).
    #[must_use]
    pub fn delivered(&self) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for (batch, entry) in (0..).zip(&self.entries) {
            if entry.state != BatchState::Delivered {
                continue;
            }
            match ranges.last_mut() {
                Some((_, end)) if *end == batch => *end += 1,
                _ => ranges.push((batch, batch + 1)),
            }
        }
        ranges
    }

    fn entry(&self, batch: BatchIdx) -> Option<&Entry> {
        self.entries.get(batch.0 as usize)
    }
}

// ---- entries ------------------------------------------------------------------------------

impl Ledger {
    /// `prong` begins to make a batch.
    pub(crate) fn claim(&mut self, batch: BatchIdx, prong: Prong) {
        let entry = &mut self.entries[batch.0 as usize];
        entry.state = BatchState::Claimed;
        entry.holders[side(prong)] = true;
        self.take_free(batch);
        self.host_only.remove(batch);
    }

    fn take_free(&mut self, batch: BatchIdx) {
        self.free.remove(batch);
        if let Some((shard, batch)) = self.place(batch) {
            self.free_of[shard].remove(batch);
        }
    }

    fn give_free(&mut self, batch: BatchIdx) {
        self.free.insert(batch);
        if let Some((shard, batch)) = self.place(batch) {
            self.free_of[shard].insert(batch);
        }
    }

    /// A batch's shard and its number there.
    fn place(&self, batch: BatchIdx) -> Option<(usize, BatchIdx)> {
        let n_shards = u32::try_from(self.free_of.len()).ok().filter(|n| *n > 0)?;
        Some(((batch.0 % n_shards) as usize, BatchIdx(batch.0 / n_shards)))
    }

    /// `prong` ends a claim without a result. Unless another prong makes it too, the batch
    /// is free again: for all who are in `open_to`.
    pub(crate) fn release(&mut self, batch: BatchIdx, prong: Prong, open_to: OpenTo) {
        let entry = &mut self.entries[batch.0 as usize];
        entry.holders[side(prong)] = false;
        if entry.state == BatchState::Claimed && entry.holders == NOBODY {
            entry.state = BatchState::Free;
            match open_to {
                OpenTo::Anybody => self.give_free(batch),
                OpenTo::Host => self.host_only.insert(batch),
            }
        }
    }

    /// `prong` ends a claim with a result; whether it is the first and counts.
    pub(crate) fn commit(&mut self, batch: BatchIdx, prong: Prong) -> bool {
        let entry = &mut self.entries[batch.0 as usize];
        entry.holders[side(prong)] = false;
        if entry.state != BatchState::Claimed {
            return false;
        }
        entry.state = BatchState::Ready;
        entry.maker = prong;
        self.ready[side(prong)].push_back(batch);
        true
    }

    /// A ready batch is on its way to the consumer; false when it is not ready.
    pub(crate) fn pick(&mut self, batch: BatchIdx) -> bool {
        if self.state(batch) != Some(BatchState::Ready) {
            return false;
        }
        self.entries[batch.0 as usize].state = BatchState::Picked;
        self.unpicked.remove(batch);
        // Batches may be picked from the middle of a queue; they leave it at its head.
        let entries = &self.entries;
        for queue in &mut self.ready {
            let is_gone = |b: &BatchIdx| entries[b.0 as usize].state != BatchState::Ready;
            while queue.front().is_some_and(is_gone) {
                queue.pop_front();
            }
        }
        true
    }

    /// The consumer has a picked batch; who made it, or `None` when it was not picked.
    pub(crate) fn deliver(&mut self, batch: BatchIdx) -> Option<Prong> {
        let entry = self.entries.get_mut(batch.0 as usize)?;
        if entry.state != BatchState::Picked {
            return None;
        }
        entry.state = BatchState::Delivered;
        Some(entry.maker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DeviceIdx;

    const BACK: Prong = Prong::Back(DeviceIdx(0));
    const B: BatchIdx = BatchIdx(2);

    #[test]
    fn the_first_of_two_results_counts() {
        let mut ledger = Ledger::new(4, &[], 1);
        ledger.claim(B, BACK);
        assert!(ledger.only_back_makes(B));
        ledger.claim(B, Prong::Front);
        assert!(!ledger.only_back_makes(B));
        assert!(ledger.commit(B, Prong::Front));
        assert!(!ledger.commit(B, BACK));
        assert_eq!(ledger.ready_front(), Some(B));
        assert_eq!(ledger.ready_back(), None);
        assert!(ledger.pick(B));
        assert!(!ledger.pick(B));
        assert_eq!(ledger.deliver(B), Some(Prong::Front));
        assert_eq!(ledger.deliver(B), None);
    }

    #[test]
    fn a_batch_is_free_again_when_its_last_maker_gives_up() {
        let mut ledger = Ledger::new(4, &[], 1);
        ledger.claim(B, BACK);
        ledger.claim(B, Prong::Front);
        ledger.release(B, BACK, OpenTo::Host);
        assert_eq!(ledger.state(B), Some(BatchState::Claimed));
        assert!(!ledger.is_of_back(B));
        ledger.release(B, Prong::Front, OpenTo::Anybody);
        assert!(ledger.is_free(B));
        assert!(ledger.free().contains(B));
    }

    #[test]
    fn a_batch_on_which_a_device_failed_is_left_to_the_host() {
        let mut ledger = Ledger::new(4, &[], 1);
        ledger.claim(B, BACK);
        ledger.release(B, BACK, OpenTo::Host);
        assert!(ledger.is_free(B) && !ledger.free().contains(B));
        assert!(ledger.host_only().contains(B));
        ledger.claim(B, Prong::Front);
        assert!(!ledger.is_free(B) && ledger.host_only().is_empty());
    }

    #[test]
    fn what_was_delivered_before_is_neither_free_nor_waited_for() {
        let ledger = Ledger::new(10, &[(0, 3), (5, 6), (9, 20)], 1);
        assert_eq!(ledger.free().len(), 5);
        assert_eq!(ledger.unpicked().first(), Some(BatchIdx(3)));
        assert_eq!(ledger.unpicked().last(), Some(BatchIdx(8)));
        assert_eq!(ledger.delivered(), [(0, 3), (5, 6), (9, 10)]);
    }

    #[test]
    fn a_device_with_a_shard_sees_the_free_batches_of_that_shard() {
        let mut ledger = Ledger::new(11, &[(0, 3)], 4);
        let on = |ledger: &Ledger, shard| {
            let open = ledger.free_on(shard);
            let from = |from| open.first_from(BatchIdx(from)).map(|batch| batch.0);
            (from(0), from(5), open.last().map(|batch| batch.0))
        };
        assert_eq!(on(&ledger, Some(0)), (Some(4), Some(8), Some(8)));
        assert_eq!(on(&ledger, Some(1)), (Some(5), Some(5), Some(9)));
        assert_eq!(on(&ledger, Some(3)), (Some(3), Some(7), Some(7)));
        assert_eq!(on(&ledger, None), (Some(3), Some(5), Some(10)));
        for batch in [5, 9].map(BatchIdx) {
            ledger.claim(batch, BACK);
        }
        assert_eq!(on(&ledger, Some(1)), (None, None, None));
        ledger.release(BatchIdx(9), BACK, OpenTo::Anybody);
        assert_eq!(on(&ledger, Some(1)), (Some(9), Some(9), Some(9)));
    }

    #[test]
    fn a_batch_picked_from_the_middle_leaves_no_trace_in_its_queue() {
        let mut ledger = Ledger::new(3, &[], 1);
        for batch in (0..3).map(BatchIdx) {
            ledger.claim(batch, Prong::Front);
            assert!(ledger.commit(batch, Prong::Front));
        }
        assert!(ledger.pick(BatchIdx(1)));
        assert_eq!(ledger.ready_front(), Some(BatchIdx(0)));
        assert!(ledger.pick(BatchIdx(0)));
        assert_eq!(ledger.ready_front(), Some(BatchIdx(2)));
    }
}
