//! Walking through several shards at the same time, because each header is a round trip to a remote store.
//!
//! The result is that of one walk after another. Every shard is walked into a part of its own, which knows nothing of the
//! others, and the parts are appended in the order of the shards. A part that came to an error, or that would have been
//! another one after the shards before it, is dropped, and its shard is walked again after these. So errors are those
//! of the first bad shard, word for word. What a part has to know is decided by the format: read `tar.rs` or
//! `tfrecord.rs` next.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use crate::error::DatasetError;
use crate::storage::{Entry, Kind, Storage};

/// What is found in shards, one after another.
pub(crate) trait Walk: Send + Sync + Sized {
    /// One that looks for the same and has found nothing yet.
    fn part(&self) -> Self;

    /// Walks through the next shard.
    fn shard(&mut self, storage: &dyn Storage, path: &str) -> Result<(), DatasetError>;

    /// Whether `part`, which began with the shard after those that this one has, is what this one would have added.
    fn agrees(&self, part: &Self) -> bool;

    /// Adds a part that agrees.
    fn append(&mut self, part: Self) -> Result<(), DatasetError>;
}

/// Walks through `shards`, as many at a time as the storage says.
///
/// # Errors
/// That of the first bad shard in their order.
pub(crate) fn walk<W: Walk>(
    whole: &mut W,
    storage: &dyn Storage,
    shards: &[String],
) -> Result<(), DatasetError> {
    let n_threads = storage.n_at_once().min(shards.len());
    if n_threads < 2 {
        return shards.iter().try_for_each(|shard| whole.shard(storage, shard));
    }
    let is_over = AtomicBool::new(false);
    let (next, empty) = (AtomicUsize::new(0), whole.part());
    let ahead =
        Ahead { storage: Stoppable { storage, is_over: &is_over }, shards, next, empty };
    thread::scope(|scope| {
        let (done, parts) = mpsc::channel();
        for _ in 0..n_threads {
            let (ahead, done) = (&ahead, done.clone());
            let thread = thread::Builder::new().name("bothends-walk".to_owned());
            // With fewer threads it takes longer, and with none it is done here.
            if thread.spawn_scoped(scope, move || ahead.walk(&done)).is_err() {
                break;
            }
        }
        drop(done);
        // The threads are waited for when this ends, with an error or without.
        let _over = Over(&is_over);
        let mut parts = Parts { parts, early: BTreeMap::new() };
        for (nth, shard) in shards.iter().enumerate() {
            match parts.take(nth).filter(|part| whole.agrees(part)) {
                Some(part) => whole.append(part)?,
                None => whole.shard(storage, shard)?,
            }
        }
        Ok(())
    })
}

/// A part by the number of its shard; `None` is one that came to an error.
type Done<W> = (usize, Option<W>);

/// What the threads share.
struct Ahead<'a, W> {
    storage: Stoppable<'a>,
    shards: &'a [String],
    next: AtomicUsize,
    empty: W,
}

impl<W: Walk> Ahead<'_, W> {
    fn walk(&self, done: &Sender<Done<W>>) {
        while !self.storage.is_over() {
            let nth = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(shard) = self.shards.get(nth) else { return };
            let mut part = self.empty.part();
            let walked = part.shard(&self.storage, shard);
            if done.send((nth, walked.ok().map(|()| part))).is_err() {
                return;
            }
        }
    }
}

/// Parts as they arrive, and those that came before their turn: together no more than the table that they become.
struct Parts<W> {
    parts: Receiver<Done<W>>,
    early: BTreeMap<usize, Option<W>>,
}

impl<W> Parts<W> {
    /// Waits for the part of that shard. `None` if there is none, or will never be.
    fn take(&mut self, nth: usize) -> Option<W> {
        loop {
            if let Some(part) = self.early.remove(&nth) {
                return part;
            }
            let (other, part) = self.parts.recv().ok()?;
            self.early.insert(other, part);
        }
    }
}

/// Ends the walks when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A storage that reads nothing more once it is over.
#[derive(Debug)]
struct Stoppable<'a> {
    storage: &'a dyn Storage,
    is_over: &'a AtomicBool,
}

impl Stoppable<'_> {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl Storage for Stoppable<'_> {
    fn kind(&self, path: &str) -> io::Result<Kind> {
        self.storage.kind(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        self.storage.list(path)
    }

    fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()> {
        match self.is_over() {
            true => Err(io::Error::other("the walk is over")),
            false => self.storage.read(path, offset, dst),
        }
    }

    fn shown(&self, path: &str) -> String {
        self.storage.shown(path)
    }
}

#[cfg(test)]
mod tests;
