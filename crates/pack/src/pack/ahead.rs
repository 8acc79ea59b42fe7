//! Records made on several threads, each taken in its turn.
//!
//! Two limits keep the threads from running far ahead of whoever takes the records: a number for each thread, and
//! a number of bytes for all. The record whose turn it is always goes on, however long it is, so nobody waits for
//! a record that waits for room.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use crate::record::Made;
use crate::source::Source;
use crate::{Converter, PackError};

/// How many records a thread may be ahead of the writer: a few milliseconds of work, while the
/// disk is written.
const MOST_AHEAD: usize = 16;

/// Bytes of originals that all threads together may have in memory: rests are up to 64 MiB long.
const MOST_BYTES_AHEAD: u64 = 1 << 30;

/// Makes the records from `first` on and gives them to `push` in their order.
pub(super) fn make_all(
    source: &dyn Source,
    n_threads: usize,
    first: usize,
    push: &mut dyn FnMut(Made) -> Result<(), PackError>,
) -> Result<(), PackError> {
    let n_records = source.n_records();
    let n_threads = n_threads.clamp(1, n_records.saturating_sub(first).max(1));
    let room = Room::new(MOST_BYTES_AHEAD, first);
    let room = &room;
    thread::scope(|scope| {
        // Dropped before the threads are joined, however this ends: none then waits for room.
        let _end = End(room);
        let queues: Result<Vec<_>, PackError> = (0..n_threads)
            .map(|nth| {
                let (sender, queue) = sync_channel(MOST_AHEAD);
                let numbers = (first..n_records).skip(nth).step_by(n_threads);
                thread::Builder::new()
                    .name(format!("pack-{nth}"))
                    .spawn_scoped(scope, move || {
                        make_some((source, room), numbers, &sender);
                    })
                    .map_err(PackError::at("start a thread for", Path::new("packing")))?;
                Ok(queue)
            })
            .collect();
        // Dropped at the first error, so that no thread waits to pass on a record and all end.
        let queues: Vec<Receiver<_>> = queues?;
        for (number, queue) in (first..n_records).zip(queues.iter().cycle()) {
            // A thread ends early only if it panics, which its scope propagates.
            let Ok((len, made)) = queue.recv() else { break };
            push(made?)?;
            room.leave(number, len);
        }
        Ok(())
    })
}

/// The loop of a thread.
fn make_some(
    (source, room): (&dyn Source, &Room),
    numbers: impl Iterator<Item = usize>,
    sender: &SyncSender<(u64, Result<Made, PackError>)>,
) {
    let mut converter = Converter::default();
    for number in numbers {
        let len = u64::from(source.item(number).len);
        if !room.enter(number, len) {
            return;
        }
        let made = source.make(number, &mut converter);
        if sender.send((len, made)).is_err() {
            return;
        }
    }
}

/// Room for records that are made and not yet taken.
struct Room {
    most_bytes: u64,
    taken: Mutex<Taken>,
    changed: Condvar,
}

struct Taken {
    bytes: u64,
    /// The record whose turn it is.
    next: usize,
    is_over: bool,
}

impl Room {
    fn new(most_bytes: u64, next: usize) -> Self {
        let taken = Mutex::new(Taken { bytes: 0, next, is_over: false });
        Self { most_bytes, taken, changed: Condvar::new() }
    }

    /// Waits until there is room for record `number` of `len` bytes, or its turn has come. `false` if nobody takes
    /// records any more.
    fn enter(&self, number: usize, len: u64) -> bool {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let must_wait = |taken: &mut Taken| {
            let has_room = taken.bytes.saturating_add(len) <= self.most_bytes;
            !taken.is_over && number != taken.next && !has_room
        };
        let taken = self.changed.wait_while(taken, must_wait);
        let mut taken = taken.unwrap_or_else(PoisonError::into_inner);
        taken.bytes = taken.bytes.saturating_add(len);
        !taken.is_over
    }

    /// Record `number` was taken.
    fn leave(&self, number: usize, len: u64) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.bytes = taken.bytes.saturating_sub(len);
        taken.next = number + 1;
        self.changed.notify_all();
    }
}

/// Nobody takes records any more once this is dropped.
struct End<'a>(&'a Room);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.is_over = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bothends_core::sample::Encoding;

    use super::*;
    use crate::record::Item;

    /// Twenty records that are said to be long, and how many were begun.
    #[derive(Debug)]
    struct Long {
        len: u32,
        n_begun: AtomicUsize,
    }

    impl Source for Long {
        fn name(&self) -> String {
            "long records".into()
        }

        fn encoding(&self) -> Encoding {
            Encoding::Image
        }

        fn classes(&self) -> Vec<String> {
            Vec::new()
        }

        fn n_records(&self) -> usize {
            20
        }

        fn item(&self, number: usize) -> Item {
            let path = number.to_string();
            Item { path, is_sample: false, label: 0, at: 0, len: self.len }
        }

        fn make(&self, number: usize, _: &mut Converter) -> Result<Made, PackError> {
            self.n_begun.fetch_add(1, Ordering::SeqCst);
            Ok(Made::bytes(self.item(number), Vec::new()))
        }

        fn original(
            &self,
            _: usize,
            _: &mut Converter,
            _: &mut Vec<u8>,
        ) -> Result<(), PackError> {
            Ok(())
        }
    }

    #[test]
    fn no_more_bytes_are_ahead_than_there_is_room_for() {
        // Two fit in, and more than all of the room is one's whose turn it is.
        for (len, most) in [(500 << 20, 3), (u32::MAX, 1)] {
            let source = Long { len, n_begun: AtomicUsize::new(0) };
            let mut n_taken = 0;
            let mut push = |made: Made| {
                assert_eq!(made.item.path, n_taken.to_string());
                // Long enough for threads that do not wait to be seen.
                thread::sleep(std::time::Duration::from_millis(2));
                let n_begun = source.n_begun.load(Ordering::SeqCst);
                assert!(n_begun - n_taken <= most, "{n_begun} when {n_taken} are taken");
                n_taken += 1;
                Ok(())
            };
            make_all(&source, 7, 0, &mut push).unwrap();
            assert_eq!(n_taken, 20);
        }
    }

    #[test]
    fn a_record_that_cannot_be_taken_ends_all_threads() {
        let source = Long { len: u32::MAX, n_begun: AtomicUsize::new(0) };
        let mut push = |_| Err(PackError::Changed { path: "here".into() });
        assert!(make_all(&source, 7, 0, &mut push).is_err());
    }
}
