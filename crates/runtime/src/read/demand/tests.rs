//! What becomes of rows, their records and their parts of slots.

use std::collections::HashSet;

use bothends_core::sample::Encoding;
use bothends_dataset::TableBuilder;
use bothends_slots::{
    Completion, Job, JobId, Outcome, Polled, Producer, Ring, RingConfig,
};
use crossbeam::channel::{Receiver, unbounded};

use super::*;
use crate::collect::wakeup::bell;
use crate::make::front::{Front, RowLens};

fn key(batch: u32) -> BatchKey {
    (EpochIdx(0), BatchIdx(batch))
}

/// Samples at these offsets of one file.
fn rows(offsets: &[u64]) -> Vec<Needed> {
    let mut table = TableBuilder::new(Encoding::Opaque);
    let file = table.file("shard").unwrap();
    for &offset in offsets {
        table.sample(Extent { file, offset, len: 10 }, 0);
    }
    let table = table.build().unwrap();
    let ids = (0..table.n_samples()).map(SampleId);
    let needed = |sample| {
        let (piece, values) = (table.piece(sample, |_| None), Vec::new());
        Needed { sample, piece, values }
    };
    ids.map(needed).collect()
}

fn offsets(books: &Books, positions: &[u64]) -> Vec<u64> {
    let offset = |&at: &u64| books.extent(at).unwrap().offset;
    positions.iter().map(offset).collect()
}

#[test]
fn rows_are_offered_in_the_order_of_their_places() {
    let mut books = Books::default();
    let first = books.foretold(key(0), rows(&[30, 10, 20]));
    assert!(first.is_sorted());
    assert_eq!(offsets(&books, &first), [10, 20, 30]);
    let second = books.foretold(key(1), rows(&[5]));
    assert!(second[0] > first[2]);
}

#[test]
fn what_nobody_foretold_comes_before_what_somebody_did() {
    let mut books = Books::default();
    let ahead = books.foretold(key(7), rows(&[1, 2]));
    let urgent = books.urgent(key(3), rows(&[3, 4]));
    let next = books.urgent(key(4), rows(&[5, 6]));
    let all: Vec<u64> = urgent.into_iter().chain(next).chain(ahead).collect();
    assert!(all.is_sorted(), "{all:?}");
    // However many there are, no two rows have one position.
    let mut books = Books::default();
    books.foretold(key(0), rows(&[0]));
    for batch in 1..400 {
        books.urgent(key(batch), rows(&[1, 2]));
    }
    assert_eq!(books.rows.len(), 1 + 2 * 399);
    for batch in 400..500 {
        books.urgent(key(batch), with_captions());
    }
    let all = books.rows.iter().map(|(at, _)| at).chain(books.values.keys().copied());
    assert_eq!(all.collect::<HashSet<_>>().len(), 1 + 2 * 399 + 4 * 100);
}

#[test]
fn a_batch_that_is_no_longer_foretold_is_withdrawn_whole() {
    let mut books = Books::default();
    let kept = books.foretold(key(0), rows(&[0, 1]));
    let gone = books.foretold(key(1), rows(&[2, 3]));
    // One has come already.
    assert!(books.fetched(gone[0], Err("gone".to_owned())).is_none());
    assert_eq!(books.unwanted(|batch| batch == key(0)), [key(1)]);
    assert_eq!(books.withdraw(key(1)), gone);
    assert!(books.withdraw(key(1)).is_empty());
    assert!(books.has(key(0)) && !books.has(key(1)));
    assert!(books.extent(kept[1]).is_some() && books.extent(gone[1]).is_none());
}

/// A front with the job of a batch of two rows, which are as long as their records.
fn front_with_job() -> (Front, Receiver<FrontJob>) {
    let (jobs_in, jobs) = unbounded();
    let mut front = Front::new(jobs_in, bell().0, RowLens::Every(10), 1, 2);
    let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes: 20 }).unwrap();
    let samples = vec![SampleId(0), SampleId(1)];
    let (id, epoch, batch) = (JobId(7), EpochIdx(0), BatchIdx(0));
    let job = Job { id, epoch, batch, samples, need_ns: 0 };
    front.submit(job, ring.take(Duration::ZERO).unwrap()).unwrap();
    (front, jobs)
}

/// Books with that job, and its front.
struct OneJob {
    books: Books,
    front: Front,
    positions: Vec<u64>,
    #[expect(dead_code, reason = "the front needs somewhere to hand jobs to")]
    jobs: Receiver<FrontJob>,
}

impl OneJob {
    fn new() -> Self {
        let mut books = Books::default();
        let positions = books.foretold(key(0), rows(&[0, 10]));
        assert!(books.lend(positions[0]).is_none(), "there is no part yet");
        let (front, jobs) = front_with_job();
        assert!(books.job(key(0), jobs.recv().unwrap()).is_empty());
        Self { books, front, positions, jobs }
    }

    fn lend(&mut self, nth: usize) -> (Part, LentBy) {
        self.books.lend(self.positions[nth]).unwrap()
    }

    /// The batch, once both rows are done.
    fn made(&mut self) -> Option<Completion> {
        match self.front.poll(Duration::ZERO).unwrap() {
            Polled::Completion(completion) => Some(completion),
            Polled::Nothing => None,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_row_whose_record_is_received_in_its_part_is_done() {
    let mut job = OneJob::new();
    for (nth, byte) in [(1, 2), (0, 1)] {
        assert!(job.made().is_none());
        let (mut part, lent) = job.lend(nth);
        assert!(job.books.lend(job.positions[nth]).is_none(), "a hedge has none");
        part.fill(byte);
        job.books.received(lent, part, Duration::ZERO);
    }
    let Completion { slot, outcome, .. } = job.made().unwrap();
    assert_eq!(outcome, Outcome::Made { bad: Vec::new(), damaged: Vec::new() });
    assert_eq!(slot.host().unwrap()[..], [[1; 10], [2; 10]].concat());
    assert!(job.books.rows.is_empty() && job.books.batches.is_empty());
}

#[test]
fn a_row_waits_for_its_part_when_its_record_came_elsewhere() {
    let mut job = OneJob::new();
    let (part, lent) = job.lend(0);
    // A hedge was first.
    let record = || Ok(Brought::Fetched(Bytes::from_static(&[3; 10]), 0..10));
    assert!(job.books.fetched(job.positions[0], record()).is_none());
    let complete = job.books.given_back(lent, part).unwrap();
    assert_eq!((complete.row, complete.sample), (0, SampleId(0)));
    // One that failed may be lent again.
    let (part, lent) = job.lend(1);
    assert!(job.books.given_back(lent, part).is_none());
    let (part, lent) = job.lend(1);
    assert!(job.books.given_back(lent, part).is_none());
    assert!(job.books.fetched(job.positions[1], record()).is_some());
}

#[test]
fn a_batch_that_is_withdrawn_is_reported_when_the_last_part_is_back() {
    let mut job = OneJob::new();
    let (part, lent) = job.lend(0);
    assert_eq!(job.books.withdraw(key(0)), job.positions);
    assert!(job.made().is_none(), "a request may still write to it");
    assert!(job.books.given_back(lent, part).is_none());
    assert_eq!(job.made().unwrap().outcome, Outcome::NotBegun);
}

/// Two rows of ten bytes with a caption behind each, of which those of the second one come first in the file.
fn with_captions() -> Vec<Needed> {
    let mut needed = rows(&[100, 10]);
    for row in &mut needed {
        let Extent { file, offset, .. } = row.piece.extent;
        row.values.push((0, Extent { file, offset: offset + 10, len: 5 }));
    }
    needed
}

fn bytes(of: &'static [u8]) -> Fetched {
    Ok(Brought::Fetched(Bytes::from_static(of), 0..of.len()))
}

#[test]
fn values_are_offered_beside_their_records_and_waited_for() {
    let mut books = Books::default();
    let positions = books.foretold(key(0), with_captions());
    assert_eq!(offsets(&books, &positions), [10, 20, 100, 110]);
    let urgent = books.urgent(key(1), rows(&[0]));
    assert!(urgent[0] < positions[0]);
    assert!(books.record(positions[1]).is_none() && books.record(positions[0]).is_some());
    // A caption, a record, and the caption that failed.
    for at in [positions[1], positions[2]] {
        assert!(books.fetched(at, bytes(b"0123456789")).is_none());
    }
    assert!(books.fetched(positions[3], Err("gone".to_owned())).is_none());
    assert_eq!(books.missing(key(0)), [positions[0]]);
    let (_front, jobs) = front_with_job();
    let complete = books.job(key(0), jobs.recv().unwrap());
    let [Complete { sample: SampleId(0), values, .. }] = &complete[..] else {
        panic!("{complete:?}")
    };
    assert_eq!((values[0].position, values[0].bytes.is_some()), (positions[3], false));
    assert!(books.lend(positions[0]).is_none(), "its caption would be lost");
    let complete = books.fetched(positions[0], bytes(b"0123456789")).unwrap();
    let [FetchedValue { field: 0, bytes: Some((caption, range)), .. }] =
        &complete.values[..]
    else {
        panic!("{complete:?}")
    };
    assert_eq!(caption.slice(range.clone()).len(), 10);
    assert!(books.values.is_empty() && books.rows.len() == 1, "the urgent one");
}

#[test]
fn values_go_where_their_batch_goes() {
    let mut books = Books::default();
    let other = books.foretold(key(0), rows(&[0]));
    let positions = books.foretold(key(1), with_captions());
    // A record has come, and its caption has not.
    assert!(books.fetched(positions[0], bytes(b"0123456789")).is_none());
    let moves = books.hasten(key(1));
    let from: Vec<u64> = moves.iter().map(|(from, _)| *from).collect();
    assert_eq!(from, positions[1..]);
    let moved: Vec<u64> = moves.iter().map(|(_, to)| *to).collect();
    assert_eq!(offsets(&books, &moved), [20, 100, 110]);
    assert!(moved.is_sorted() && moved[2] < other[0]);
    assert_eq!(books.missing(key(1)), moved);
    let mut backwards = vec![positions[0], other[0]];
    backwards.extend(moved.iter().rev());
    assert_eq!(books.foretold_backwards(), backwards);
    assert!(books.fetched(moved[0], bytes(b"01234")).is_none());
    books.forget(moved[0]);
    assert_eq!(books.missing(key(1)), moved);
    let mut withdrawn = books.withdraw(key(1));
    withdrawn.sort_unstable();
    assert_eq!(withdrawn, [&moved[..], &positions[..1]].concat());
    assert!(books.values.is_empty());
}
