//! A position that has been offered, and what has become of it.

use std::ops::Range;

use super::group::GroupId;

/// An offered position.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) object: u32,
    pub(super) range: Range<u64>,
    pub(super) state: State,
    /// Whether it will be needed for certain.
    pub(super) is_committed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Pending,
    Asked(GroupId),
    Here(GroupId),
}

impl Item {
    pub(super) fn new(object: u32, range: Range<u64>) -> Self {
        Self { object, range, state: State::Pending, is_committed: false }
    }

    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Its bytes, if it is committed and has not been requested.
    pub(super) fn committed_bytes(&self) -> u64 {
        match self.state {
            State::Pending if self.is_committed => self.len(),
            State::Pending | State::Asked(_) | State::Here(_) => 0,
        }
    }
}
