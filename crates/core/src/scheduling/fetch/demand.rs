//! Changes to what is wanted: another order, another place in it, and room for what is needed first.
//!
//! For callers that offer far ahead and then learn that they need something else sooner.

use super::{Cause, FetchQueue, State};

impl FetchQueue {
    /// Withdraws all positions.
    pub fn withdraw_all(&mut self) {
        while let Some(position) = self.items.first() {
            self.withdraw(position);
        }
    }

    /// The caller can do nothing before it has this position: it is requested next, beyond the
    /// bounds if it must. Needed only by a caller that does not take the lowest position first.
    pub fn awaits(&mut self, position: u64) {
        self.awaited = Some(position);
    }

    /// A position is needed at another place in the order: it is known as `to` from now on. What is on
    /// its way or has come for it is kept. False where `from` is not known, or `to` is.
    pub fn renumber(&mut self, from: u64, to: u64) -> bool {
        if self.items.contains(to) {
            return false;
        }
        let Some(item) = self.items.remove(from) else { return false };
        match item.state {
            State::Pending => {
                self.pending.remove(from, item.object, item.range.start);
                self.pending.insert(to, item.object, &item.range);
            }
            State::Asked(id) | State::Here(id) => {
                let members = self.groups.get_mut(id.0).map(|group| &mut group.members);
                for member in members.into_iter().flatten() {
                    if *member == from {
                        *member = to;
                    }
                }
            }
        }
        if self.missing.remove(from) {
            self.missing.insert(to);
        }
        if self.awaited == Some(from) {
            self.awaited = Some(to);
        }
        self.items.insert(to, item);
        true
    }

    /// Whether a position is offered and has neither arrived, failed nor been withdrawn.
    #[must_use]
    pub fn is_missing(&self, position: u64) -> bool {
        self.missing.contains(position)
    }

    /// Whether a position takes room: it has been requested, and not been taken.
    #[must_use]
    pub fn is_held(&self, position: u64) -> bool {
        let state = self.items.get(position).map(|item| item.state);
        matches!(state, Some(State::Asked(_) | State::Here(_)))
    }

    /// A position will be needed for certain: until it is requested it counts as [`Self::committed_bytes`].
    pub fn commit(&mut self, position: u64) {
        if let Some(item) = self.items.get_mut(position)
            && item.state == State::Pending
            && !item.is_committed
        {
            item.is_committed = true;
            self.committed_bytes += item.len();
        }
    }

    /// The bytes of committed positions that have not been requested.
    #[must_use]
    pub fn committed_bytes(&self) -> u64 {
        self.committed_bytes
    }

    /// Bytes that may be requested before the reorder buffer is full.
    #[must_use]
    pub fn room_bytes(&self) -> u64 {
        self.room_held()
    }

    /// Whether [`Self::next`] found no room for what is needed next, in flight or in the reorder buffer.
    #[must_use]
    pub fn is_out_of_room(&self) -> bool {
        matches!(self.waiting.cause(), Some(Cause::Bytes | Cause::Reorder))
    }

    /// Whether [`Self::next`] found the reorder buffer too full for what is needed next.
    #[must_use]
    pub fn lacks_room(&self) -> bool {
        self.waiting.cause() == Some(Cause::Reorder)
    }
}
