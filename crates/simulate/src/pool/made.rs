//! Results kept for jobs that do the same work: made once, by whoever comes first.
//!
//! It is bounded by a number of batches, of which the oldest make room. A job that asks for a batch that is
//! being made waits for it instead of having it made again.

use std::collections::{HashMap, VecDeque};

/// A batch of a kind of work.
pub(super) type Key = (u32, u32);

/// What is known of a batch.
#[derive(Debug)]
enum State {
    /// The jobs that wait for it.
    UnderWay(Vec<u32>),
    Kept,
}

/// What to do about a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// It must be made.
    Nothing,
    /// It is being made; the job is told.
    UnderWay,
    /// It is there.
    Kept,
}

/// All kept results.
#[derive(Debug)]
pub(super) struct Made {
    most: usize,
    states: HashMap<Key, State>,
    /// In the order in which they were made.
    kept: VecDeque<Key>,
}

impl Made {
    pub(super) fn new(most: u32) -> Self {
        Self { most: most as usize, states: HashMap::new(), kept: VecDeque::new() }
    }

    /// A job is about to have a batch made.
    pub(super) fn look(&mut self, key: Key, job: u32) -> Found {
        if self.most == 0 {
            return Found::Nothing;
        }
        match self.states.get_mut(&key) {
            Some(State::Kept) => Found::Kept,
            Some(State::UnderWay(waiting)) => {
                waiting.push(job);
                Found::UnderWay
            }
            None => {
                self.states.insert(key, State::UnderWay(Vec::new()));
                Found::Nothing
            }
        }
    }

    /// The batch has been made; the jobs that waited for it.
    pub(super) fn finish(&mut self, key: Key) -> Vec<u32> {
        if self.most == 0 {
            return Vec::new();
        }
        if self.kept.len() >= self.most
            && let Some(oldest) = self.kept.pop_front()
        {
            self.states.remove(&oldest);
        }
        self.kept.push_back(key);
        match self.states.insert(key, State::Kept) {
            Some(State::UnderWay(waiting)) => waiting,
            Some(State::Kept) | None => Vec::new(),
        }
    }

    /// Whoever made the batch has failed; the jobs that waited for it, too, must have it made.
    pub(super) fn lose(&mut self, key: Key) -> Vec<u32> {
        match self.states.remove(&key) {
            Some(State::UnderWay(waiting)) => waiting,
            Some(State::Kept) => {
                self.states.insert(key, State::Kept);
                Vec::new()
            }
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_made_once_and_the_oldest_makes_room() {
        let mut made = Made::new(2);
        assert_eq!(made.look((0, 1), 7), Found::Nothing);
        assert_eq!(made.look((0, 1), 8), Found::UnderWay);
        assert_eq!(made.finish((0, 1)), [8]);
        assert_eq!(made.look((0, 1), 9), Found::Kept);
        for batch in [2, 3] {
            assert_eq!(made.look((0, batch), 7), Found::Nothing);
            assert!(made.finish((0, batch)).is_empty());
        }
        assert_eq!(made.look((0, 1), 9), Found::Nothing, "it made room");
    }

    #[test]
    fn those_that_wait_for_a_lost_batch_have_it_made_again() {
        let mut made = Made::new(2);
        made.look((0, 1), 7);
        made.look((0, 1), 8);
        assert_eq!(made.lose((0, 1)), [8]);
        assert_eq!(made.look((0, 1), 8), Found::Nothing);
    }

    #[test]
    fn without_room_nothing_is_kept() {
        let mut made = Made::new(0);
        for _ in 0..2 {
            assert_eq!(made.look((0, 1), 7), Found::Nothing);
            assert!(made.finish((0, 1)).is_empty());
        }
    }
}
