//! What is ordered from a remote store: the books (`demand.rs`) and the queue (`core::fetch`), kept in
//! step.
//!
//! What is only foretold never keeps a job waiting: its rows go before it, and have its room. What is no
//! longer foretold stays as long as nothing else needs its room, as it may be needed after all. What the
//! record cache has is not asked of the queue. Nothing here waits.

use bothends_core::fetch::{FetchQueue, Wanted};
use bothends_side_index::CachedRecord;

use crate::make::front::FrontJob;
use crate::read::demand::{BatchKey, Books, Brought, Complete, Needed};
use crate::read::fetching::local::Local;
use crate::read::remote::fetched_fields::{FetchedFields, Reserved};

/// The books, and the queue that has what is missing in them.
#[derive(Debug)]
pub(crate) struct Orders {
    pub(crate) queue: FetchQueue,
    pub(crate) books: Books,
    /// Where records are looked for before they are asked of the network.
    pub(crate) local: Option<Local>,
    /// Where values wait until their batch is finished.
    fields: FetchedFields,
}

impl Orders {
    pub(crate) fn new(queue: FetchQueue, fields: FetchedFields) -> Self {
        Self { queue, books: Books::default(), local: None, fields }
    }

    /// A batch is foretold; its rows are asked for where it is new.
    pub(crate) fn foretold(&mut self, key: BatchKey, rows: impl FnOnce() -> Vec<Needed>) {
        let positions = match self.books.has(key) {
            true => {
                // First, as it must not be dropped for the room of its own values.
                let missing = self.books.foretold_again(key);
                let again = self.check_room(key);
                // All that is missing is among these, too.
                if again.is_empty() { missing } else { again }
            }
            false => self.books.foretold(key, rows()),
        };
        self.offer(&positions);
    }

    /// These alone are foretold: what is missing of others is not requested any more.
    pub(crate) fn keep_only(&mut self, is_wanted: impl Fn(BatchKey) -> bool) {
        for key in self.books.unwanted(is_wanted) {
            match self.books.set_aside(key) {
                Some(missing) => {
                    missing.into_iter().for_each(|at| self.queue.withdraw(at));
                }
                None => self.withdraw(key),
            }
        }
    }

    /// Batches whose job was revoked.
    pub(crate) fn leave_out_revoked(&mut self) {
        for key in self.books.revoked() {
            self.withdraw(key);
        }
    }

    /// The job of a batch. Its rows that are complete by that; the others come before all that is
    /// only foretold.
    pub(crate) fn job(
        &mut self,
        key: BatchKey,
        job: FrontJob,
        rows: impl FnOnce() -> Vec<Needed>,
    ) -> Vec<Complete> {
        let missing = if self.books.is(key, &job.rows) {
            // It must not be dropped for the room of its own values.
            self.books.foretold_again(key);
            self.check_room(key);
            // Batches that were finished meanwhile have left room for values that are to be requested with the rest.
            for at in self.books.without_room(key) {
                self.may_be_asked(at);
            }
            for (from, to) in self.books.hasten(key) {
                self.queue.renumber(from, to);
            }
            self.books.missing(key)
        } else {
            self.withdraw(key);
            self.books.urgent(key, rows())
        };
        // What is on a local disk is complete by its job.
        self.offer(&missing);
        missing.iter().for_each(|at| self.queue.commit(*at));
        let complete = self.books.job(key, job);
        self.make_room();
        complete
    }

    /// What has not been requested for jobs gets the room of what is only foretold, beginning with
    /// what is needed last; that is requested again when there is room.
    fn make_room(&mut self) {
        let needs = self.queue.committed_bytes();
        if self.queue.room_bytes() >= needs {
            return;
        }
        while self.drop_set_aside() {
            if self.queue.room_bytes() >= needs {
                return;
            }
        }
        for at in self.books.foretold_backwards() {
            if self.queue.room_bytes() >= needs {
                return;
            }
            if self.queue.is_held(at) {
                self.queue.withdraw(at);
                self.books.forget(at);
                self.offer(&[at]);
            }
        }
    }

    /// What has come of a row is held until the rest of it is there, and may leave no room for that: then what the first
    /// row of a job lacks exceeds the bounds. To be asked where nothing is on its way that would make room; false where
    /// there is nothing to request by that.
    pub(crate) fn exceed_bounds(&mut self) -> bool {
        let lacking = self.queue.is_out_of_room().then(|| self.books.first_lacking());
        let Some(position) = lacking.flatten() else { return false };
        self.queue.awaits(position);
        true
    }

    /// Drops what has come of a batch that is not foretold any more; false where there is none.
    pub(crate) fn drop_set_aside(&mut self) -> bool {
        let Some(key) = self.books.all_set_aside().first().copied() else { return false };
        self.withdraw(key);
        true
    }

    fn withdraw(&mut self, key: BatchKey) {
        for position in self.books.withdraw(key) {
            self.queue.withdraw(position);
        }
        self.fields.release(key);
    }

    /// An epoch that is run once more has batches in the books whose values have lost their room with the first one. What
    /// is to be offered of such a batch again. Nothing of one that has its job: a record that the cache has by now would
    /// complete a row of it.
    fn check_room(&mut self, key: BatchKey) -> Vec<u64> {
        // It is looked at each time that the batch is foretold.
        if !self.books.has_values() || self.fields.has(key) {
            return Vec::new();
        }
        let had_room = self.books.forget_room(key);
        if had_room.is_empty() {
            return Vec::new();
        }
        for at in had_room {
            self.may_be_asked(at);
        }
        self.books.missing(key)
    }

    /// Whether the record or the value at a position may be requested: a value needs room until its batch is finished.
    fn may_be_asked(&mut self, position: u64) -> bool {
        let Some((batch, n_bytes)) = self.books.needs_room(position) else { return true };
        let mut room = self.fields.reserve(batch, n_bytes);
        while room == Reserved::Full {
            let has = |key: &&BatchKey| self.fields.has(**key);
            let Some(key) = self.books.all_set_aside().iter().find(has).copied() else {
                break;
            };
            self.withdraw(key);
            room = self.fields.reserve(batch, n_bytes);
        }
        let has_room = room == Reserved::Yes;
        if has_room {
            self.books.has_room(position);
        } else {
            self.books.has_no_room(position);
            // It may have been requested while it had some.
            self.queue.withdraw(position);
        }
        has_room
    }

    /// The record or the value at a position, where it is on a local disk.
    fn find(&self, position: u64) -> Option<CachedRecord> {
        let local = self.local.as_ref()?;
        let record = match self.books.record(position) {
            Some((sample, piece)) => local.find(sample, piece),
            None => local.find_value(self.books.extent(position)?),
        }?;
        record.will_need();
        Some(record)
    }

    fn offer(&mut self, positions: &[u64]) {
        for &position in positions {
            let Some(extent) = self.books.extent(position) else { continue };
            if let Some(record) = self.find(position) {
                // No row is complete by this: its job comes later.
                let complete = self.books.fetched(position, Ok(Brought::Cached(record)));
                debug_assert!(complete.is_none(), "{complete:?} is lost");
                // It may have been requested before somebody else's copy came into the cache.
                self.queue.withdraw(position);
                continue;
            }
            if !self.may_be_asked(position) {
                continue;
            }
            let end = extent.offset.saturating_add(u64::from(extent.len));
            let range = extent.offset..end;
            self.queue.offer(Wanted { position, object: extent.file.0, range });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bothends_core::fetch::{FetchConfig, FetchStep, Hedge, RequestId};
    use bothends_core::ids::{BatchIdx, EpochIdx, Ns, SampleId};
    use bothends_core::sample::{Encoding, Extent};
    use bothends_dataset::TableBuilder;
    use bothends_slots::{Job, JobId, Producer, Ring, RingConfig};
    use bothends_storage::Bytes;
    use crossbeam::channel::{Receiver, unbounded};

    use super::*;
    use crate::collect::wakeup::bell;
    use crate::make::front::{Front, RowLens};
    use crate::read::remote::fetched_fields::Entered;

    const ROWS: u64 = 4;
    const RECORD: u32 = 100;
    const BATCH: u64 = 400;

    fn key(batch: u32) -> BatchKey {
        (EpochIdx(0), BatchIdx(batch))
    }

    /// A store with room for so many batches, and a front that gives jobs.
    struct World {
        orders: Orders,
        fields: FetchedFields,
        _entered: Entered,
        front: Front,
        jobs: Receiver<FrontJob>,
        ring: Ring,
        in_flight: Vec<RequestId>,
        n_requests: usize,
        /// Of each row's mask, behind its record; 0 where there is none.
        mask: u32,
    }

    impl World {
        fn new(room_batches: u64) -> Self {
            let config = FetchConfig {
                reorder_bytes: room_batches * BATCH,
                most_joined_bytes: 0,
                hedge: Hedge::Off,
                ..FetchConfig::default()
            };
            let (jobs_in, jobs) = unbounded();
            let ring = RingConfig { n_slots: 4, slot_bytes: 4 * 4 };
            let fields = FetchedFields::default();
            fields.begin(u64::MAX);
            Self {
                _entered: fields.enter(EpochIdx(0)),
                orders: Orders::new(FetchQueue::new(config), fields.clone()),
                fields,
                front: Front::new(jobs_in, bell().0, RowLens::Every(4), 2, 4),
                jobs,
                ring: Ring::new(ring).unwrap(),
                in_flight: Vec::new(),
                n_requests: 0,
                mask: 0,
            }
        }

        fn samples(batch: u32) -> impl Iterator<Item = SampleId> {
            let first = u64::from(batch) * ROWS;
            (first..first + ROWS).map(SampleId)
        }

        /// The rows of a batch, each in an object of its own.
        fn rows(&self, batch: u32) -> Vec<Needed> {
            let mut table = TableBuilder::new(Encoding::Opaque);
            for sample in 0..u64::from(batch + 1) * ROWS {
                let file = table.file(&format!("object-{sample}")).unwrap();
                table.sample(Extent { file, offset: 0, len: RECORD }, 0);
            }
            let table = table.build().unwrap();
            let needed = |sample| {
                let piece = table.piece(sample, |_| None);
                let mask =
                    Extent { offset: RECORD.into(), len: self.mask, ..piece.extent };
                let values = (self.mask > 0).then_some((0, mask)).into_iter().collect();
                Needed { sample, piece, values }
            };
            Self::samples(batch).map(needed).collect()
        }

        fn foretell(&mut self, batches: &[u32]) {
            self.orders.keep_only(|(_, batch)| batches.contains(&batch.0));
            for &batch in batches {
                let rows = self.rows(batch);
                self.orders.foretold(key(batch), || rows);
            }
            self.step();
        }

        /// The samples that are complete by the job of a batch.
        fn job(&mut self, batch: u32) -> Vec<u64> {
            let (id, epoch, batch) = (JobId(batch.into()), EpochIdx(0), BatchIdx(batch));
            let samples = Self::samples(batch.0).collect();
            let job = Job { id, epoch, batch, samples, need_ns: 0 };
            let slot = self.ring.take(Duration::ZERO).unwrap();
            self.front.submit(job, slot).unwrap();
            let job = self.jobs.recv().unwrap();
            let rows = self.rows(batch.0);
            let complete = self.orders.job((epoch, batch), job, || rows);
            let complete = self.hand_on(complete);
            self.step();
            complete
        }

        fn step(&mut self) {
            loop {
                match self.orders.queue.next(Ns(0)) {
                    FetchStep::Request { request, .. } => {
                        self.n_requests += 1;
                        self.in_flight.push(request);
                    }
                    FetchStep::Cancel { request } => {
                        self.in_flight.retain(|known| *known != request);
                    }
                    FetchStep::GiveUp { position } => panic!("{position} is given up"),
                    FetchStep::WakeAt(_) | FetchStep::Idle => {
                        let lacks_room = self.orders.queue.lacks_room();
                        let makes_room = lacks_room && self.orders.drop_set_aside();
                        let is_still = self.in_flight.is_empty();
                        if makes_room || (is_still && self.orders.exceed_bounds()) {
                            continue;
                        }
                        return;
                    }
                }
            }
        }

        /// All that is on its way arrives. The samples that are complete by that.
        fn answer(&mut self) -> Vec<u64> {
            let mut complete = Vec::new();
            for request in std::mem::take(&mut self.in_flight) {
                for piece in self.orders.queue.arrived(request, Ns(0)).to_vec() {
                    let record = Ok(Brought::Fetched(Bytes::new(), 0..0));
                    complete.extend(self.orders.books.fetched(piece.position, record));
                }
            }
            let complete = self.hand_on(complete);
            self.step();
            complete
        }

        fn hand_on(&mut self, complete: Vec<Complete>) -> Vec<u64> {
            let taken = complete.into_iter().map(|it| {
                self.orders.queue.taken(it.position);
                let values = it.values.iter();
                values.for_each(|value| self.orders.queue.taken(value.position));
                it.sample.0
            });
            taken.collect()
        }
    }

    fn all_of(batch: u32) -> Vec<u64> {
        World::samples(batch).map(|sample| sample.0).collect()
    }

    /// A device that has died gave a batch back, and it is needed before those that have come.
    #[test]
    fn a_batch_that_is_foretold_late_and_needed_first_has_the_room_of_later_ones() {
        let mut world = World::new(3);
        world.foretell(&[5, 6, 7, 8, 9]);
        assert!(world.answer().is_empty());
        assert!(world.in_flight.is_empty(), "there is room for three");
        world.foretell(&[2, 5, 6, 7, 8, 9]);
        assert!(world.job(2).is_empty());
        assert_eq!(world.in_flight.len(), 4, "all of them at once");
        assert_eq!(world.answer(), all_of(2));
        // What had to give way comes again, and in its order.
        for batch in [5, 6] {
            assert_eq!(world.job(batch), all_of(batch), "it was kept");
        }
        let mut complete = world.job(7);
        while complete.len() < 4 && !world.in_flight.is_empty() {
            complete.extend(world.answer());
        }
        assert_eq!(complete, all_of(7));
    }

    #[test]
    fn of_batches_that_are_set_aside_together_the_last_gives_way_first() {
        let mut world = World::new(2);
        world.foretell(&[0, 1]);
        world.answer();
        world.foretell(&[]);
        world.foretell(&[2]);
        assert_eq!(world.job(0), all_of(0), "it was kept");
        assert!(!world.orders.books.has(key(1)));
    }

    #[test]
    fn a_batch_that_nobody_foretold_is_fetched_at_once_though_all_room_is_taken() {
        let mut world = World::new(3);
        world.foretell(&[5, 6, 7, 8]);
        world.answer();
        assert!(world.job(2).is_empty());
        assert_eq!(world.in_flight.len(), 4, "all of them at once");
        assert_eq!(world.answer(), all_of(2));
    }

    #[test]
    fn what_is_on_its_way_when_its_job_comes_is_not_requested_again() {
        let mut world = World::new(8);
        world.foretell(&[5]);
        world.foretell(&[5, 2]);
        assert!(world.job(2).is_empty());
        assert_eq!(world.n_requests, 8);
        let mut complete = world.answer();
        complete.extend(world.job(5));
        assert_eq!(complete, [all_of(2), all_of(5)].concat());
        assert_eq!((world.n_requests, world.orders.queue.figures().offered), (8, 0));
    }

    /// The front rests and is needed after all.
    #[test]
    fn what_has_come_is_kept_while_nothing_is_foretold_and_nothing_needs_its_room() {
        let mut world = World::new(2);
        world.foretell(&[0, 1]);
        world.answer();
        world.foretell(&[]);
        world.foretell(&[0, 1]);
        assert_eq!(world.job(0), all_of(0));
        assert_eq!(world.n_requests, 8);
        // A device has claimed it, and the next one needs its room.
        world.foretell(&[2, 3]);
        assert_eq!(world.n_requests, 16);
        world.answer();
        assert_eq!([world.job(2), world.job(3)], [all_of(2), all_of(3)]);
        assert_eq!(world.orders.queue.figures().held_bytes, 0);
    }

    /// Its record is held until its mask is there, for which there is no room.
    #[test]
    fn rows_that_are_longer_than_all_room_come_all_the_same() {
        for (room_batches, mask) in [(1, 350), (1, 1_000), (1, 60), (2, 350)] {
            let mut world = World::new(room_batches);
            world.mask = mask;
            world.foretell(&[0, 1]);
            let mut held = 0;
            for batch in [0, 1] {
                let mut complete = world.job(batch);
                while complete.len() < 4 {
                    assert!(!world.in_flight.is_empty(), "{mask}: nothing is requested");
                    held = held.max(world.orders.queue.figures().held_bytes);
                    complete.extend(world.answer());
                }
                complete.sort_unstable();
                assert_eq!(complete, all_of(batch));
            }
            let row = u64::from(RECORD + mask);
            assert!(held <= room_batches * BATCH + row, "{held} with a mask of {mask}");
            assert_eq!(world.orders.queue.figures().held_bytes, 0);
        }
    }

    /// Each mask has 50 bytes. They were fetched and dropped, and fetched again when the batch was finished.
    #[test]
    fn values_without_room_are_not_requested_before_there_is_some() {
        let mut world = World::new(100);
        world.mask = 50;
        world.fields.begin(6 * 50);
        world.foretell(&[0, 1, 2]);
        assert_eq!(world.n_requests, 3 * 4 + 6);
        world.answer();
        assert_eq!(world.job(0), all_of(0));
        // Nobody waits for the masks of two rows.
        assert_eq!(world.job(1), all_of(1));
        assert_eq!(world.n_requests, 3 * 4 + 6);
        world.fields.take(key(0));
        assert!(world.job(2).is_empty());
        assert_eq!(world.n_requests, 3 * 4 + 10);
        assert_eq!(world.answer(), all_of(2));
        world.fields.take(key(1));
        world.fields.take(key(2));
    }

    #[test]
    fn a_batch_that_is_set_aside_leaves_its_room_to_others_and_not_to_itself() {
        let mut world = World::new(100);
        world.mask = 50;
        world.fields.begin(4 * 50);
        world.foretell(&[3]);
        world.answer();
        // A device has claimed it.
        world.foretell(&[4]);
        assert_eq!(world.n_requests, 8 + 8);
        world.answer();
        world.foretell(&[5]);
        assert_eq!(world.n_requests, 8 + 8 + 8);
        world.answer();
        world.foretell(&[]);
        assert_eq!(world.job(5), all_of(5));
        assert_eq!(world.n_requests, 3 * 8);
        // Its own room is all that there is.
        world.fields.begin(2 * 50);
        world.foretell(&[6]);
        world.answer();
        world.foretell(&[]);
        assert_eq!(world.job(6), all_of(6));
        assert_eq!(world.n_requests, 3 * 8 + 6);
    }

    #[test]
    fn values_that_get_room_with_their_job_come_before_later_batches() {
        let mut world = World::new(4);
        world.mask = 50;
        world.fields.begin(4 * 50);
        world.foretell(&[5, 6, 7, 8]);
        world.answer();
        // A device gave it back.
        world.foretell(&[2, 5, 6, 7, 8]);
        world.fields.begin(4 * 50);
        assert!(world.job(2).is_empty(), "its masks have room, too");
        assert_eq!(world.answer(), all_of(2), "all at once");
    }

    /// What is foretold may have been said before the job was given.
    #[test]
    fn a_batch_with_a_job_that_is_foretold_late_waits_for_nothing_more() {
        let mut world = World::new(100);
        world.mask = 50;
        world.fields.begin(0);
        assert!(world.job(2).is_empty());
        world.foretell(&[2]);
        assert_eq!(world.answer(), all_of(2));
    }

    #[test]
    fn values_that_lose_their_room_are_not_held() {
        let mut world = World::new(100);
        world.mask = 50;
        world.foretell(&[1]);
        // Its epoch ends and begins again, with less room.
        world.fields.begin(2 * 50);
        world.foretell(&[1]);
        assert_eq!(world.in_flight.len(), 4 + 2);
        world.answer();
        assert_eq!(world.job(1), all_of(1));
        assert_eq!(world.orders.queue.figures().held_bytes, 0);
    }

    #[test]
    fn a_batch_that_is_foretold_after_its_job_is_not_looked_for_in_the_cache() {
        let mut world = World::new(100);
        world.mask = 50;
        world.foretell(&[1, 2]);
        assert!(world.job(1).is_empty());
        world.fields.begin(u64::MAX);
        assert!(world.orders.check_room(key(1)).is_empty());
        assert_eq!(world.orders.check_room(key(2)).len(), 8, "it has no job");
        world.foretell(&[1, 2]);
        assert_eq!(world.answer(), all_of(1));
    }

    #[test]
    fn a_batch_that_comes_back_is_not_dropped_for_its_own_values() {
        let mut world = World::new(100);
        world.mask = 50;
        world.foretell(&[1]);
        world.in_flight.truncate(5);
        world.answer();
        world.foretell(&[]);
        world.fields.begin(50);
        world.foretell(&[1]);
        assert!(world.orders.books.has(key(1)));
        assert_eq!(
            world.orders.queue.figures().offered,
            5,
            "with the mask that has room"
        );
    }
}
