//! Chores: what is left to do to a batch once it is made, in pieces that any thread can do.
//!
//! Whoever has a batch to finish (`handover/finish.rs`) hands its pieces to the workers, which do them
//! before they make anything new, and does pieces itself until none is left. What a piece does
//! is its own affair. Nothing here knows what a batch is.

use std::fmt;

use crossbeam::channel::{Receiver, Sender, unbounded};
use crossbeam::sync::WaitGroup;

/// One piece of work.
pub(crate) struct Chore {
    work: Box<dyn FnOnce() + Send>,
    /// Dropped behind the work: who waits for the chores may then go on.
    _done: WaitGroup,
}

impl fmt::Debug for Chore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chore")
    }
}

impl Chore {
    pub(crate) fn run(self) {
        (self.work)();
    }
}

/// Where chores wait for a hand. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Chores {
    sender: Sender<Chore>,
    receiver: Receiver<Chore>,
}

impl Default for Chores {
    fn default() -> Self {
        let (sender, receiver) = unbounded();
        Self { sender, receiver }
    }
}

impl Chores {
    /// Has all of it done, by others and by the calling thread; blocks until it is. A piece
    /// that a thread panics over counts as done: that ends the engine.
    pub(crate) fn all<F: FnOnce() + Send + 'static>(
        &self,
        pieces: impl IntoIterator<Item = F>,
    ) {
        let done = WaitGroup::new();
        for work in pieces {
            let chore = Chore { work: Box::new(work), _done: done.clone() };
            // The receiver is here, too.
            let _ = self.sender.send(chore);
        }
        while let Ok(chore) = self.receiver.try_recv() {
            chore.run();
        }
        done.wait();
    }

    /// What others wait for.
    pub(crate) fn waiting(&self) -> &Receiver<Chore> {
        &self.receiver
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn every_piece_is_done_once_with_and_without_help() {
        let chores = Chores::default();
        let sum = Arc::new(AtomicU32::new(0));
        let pieces = |n: u32| {
            let sum = Arc::clone(&sum);
            (1..=n).map(move |i| {
                let sum = Arc::clone(&sum);
                move || {
                    sum.fetch_add(i, Ordering::Relaxed);
                }
            })
        };
        chores.all(pieces(100));
        assert_eq!(sum.swap(0, Ordering::Relaxed), 5050);
        chores.all(pieces(0));
        let helper = chores.clone();
        let thread = std::thread::spawn(move || {
            for chore in helper.waiting().iter().take(3) {
                chore.run();
            }
        });
        // Three pieces are left to the helper alone, however slow it is.
        let done = WaitGroup::new();
        for work in pieces(3) {
            let chore = Chore { work: Box::new(work), _done: done.clone() };
            chores.sender.send(chore).unwrap();
        }
        done.wait();
        assert_eq!(sum.swap(0, Ordering::Relaxed), 6);
        thread.join().unwrap();
        chores.all(pieces(1000));
        assert_eq!(sum.load(Ordering::Relaxed), 500_500);
    }
}
