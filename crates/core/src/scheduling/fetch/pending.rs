//! Positions that have been offered and not been requested, in order of need and by their place.
//!
//! The place finds neighbours: records that lie next to each other in one object come in one request.
//! Whether there is room for them is decided in `fetch.rs`.

mod places;

use std::ops::Range;

use crate::positions::PositionSet;
use places::{Place, Places};

/// The offered positions that have not been requested.
#[derive(Debug, Default)]
pub(super) struct Pending {
    positions: PositionSet,
    places: Places,
    front: Front,
}

/// The first so many positions. It is kept from question to question, as counting them again each time took a tenth of
/// all that is decided for a record.
#[derive(Debug, Default)]
struct Front {
    n: u64,
    /// The last one of them, if there is one.
    end: u64,
}

/// What may be joined.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// The bytes of a request, gaps included.
    pub(super) most_bytes: u64,
    /// The bytes between neighbours.
    pub(super) max_gap_bytes: u64,
    /// The position that the request is for.
    pub(super) from: u64,
    /// So many pending positions behind it are not too far ahead to take up room.
    pub(super) ahead: u64,
    /// How many of those have been joined.
    pub(super) taken: u64,
}

impl Pending {
    pub(super) fn insert(&mut self, position: u64, object: u32, range: &Range<u64>) {
        if self.positions.insert(position)
            && self.front.n > 0
            && position < self.front.end
        {
            self.front.n += 1;
        }
        let Range { start, end } = *range;
        self.places.insert(object, Place { start, position, end });
    }

    pub(super) fn remove(&mut self, position: u64, object: u32, start: u64) {
        let front = &mut self.front;
        if self.positions.remove(position) && front.n > 0 && position <= front.end {
            front.n -= 1;
            if position == front.end {
                front.end = self.positions.before(position).unwrap_or(0);
            }
        }
        self.places.remove(object, start, position);
    }

    pub(super) fn contains(&self, position: u64) -> bool {
        self.positions.contains(position)
    }

    /// The position that is needed first.
    pub(super) fn first(&self) -> Option<u64> {
        self.positions.first()
    }

    /// Takes the neighbours of a range out, on both sides, as far as `reach` allows: the range
    /// grows, and their positions are added to `members`.
    pub(super) fn take_neighbours(
        &mut self,
        object: u32,
        range: &mut Range<u64>,
        reach: Reach,
        members: &mut Vec<u64>,
    ) {
        let mut reach = reach;
        while let Some(Place { start, position, end }) =
            self.neighbour(object, range, reach)
        {
            self.remove(position, object, start);
            reach.taken += 1;
            members.push(position);
            *range = range.start.min(start)..range.end.max(end);
        }
    }

    /// The next range behind or before this one.
    fn neighbour(
        &mut self,
        object: u32,
        range: &Range<u64>,
        reach: Reach,
    ) -> Option<Place> {
        let neighbours = self.places.neighbours(object, range.start);
        neighbours.into_iter().flatten().find(|place| {
            let joined = range.end.max(place.end) - range.start.min(place.start);
            place.start.saturating_sub(range.end) <= reach.max_gap_bytes
                && range.start.saturating_sub(place.end) <= reach.max_gap_bytes
                && joined <= reach.most_bytes
                && self.is_within(place.position, reach)
        })
    }

    /// Whether a position is needed soon enough. Numbers of positions have gaps, so those between are
    /// counted where the number alone does not tell.
    fn is_within(&mut self, position: u64, reach: Reach) -> bool {
        let Reach { from, ahead, taken, .. } = reach;
        position <= from.saturating_add(ahead)
            || self
                .end_of_first(ahead.saturating_sub(taken))
                .is_some_and(|end| position <= end)
    }

    /// The last of the first `n` positions, or of all if these are fewer.
    fn end_of_first(&mut self, n: u64) -> Option<u64> {
        while self.front.n > n {
            self.front.n -= 1;
            self.front.end = self.positions.before(self.front.end).unwrap_or(0);
        }
        while self.front.n < n {
            let next = match self.front.n {
                0 => self.positions.first(),
                _ => self.positions.after(self.front.end),
            };
            let Some(next) = next else { break };
            self.front = Front { n: self.front.n + 1, end: next };
        }
        (self.front.n > 0).then_some(self.front.end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REACH: Reach =
        Reach { most_bytes: 1_000, max_gap_bytes: 10, from: 0, ahead: 100, taken: 0 };

    /// Ranges in object 0, at the positions 1, 2, ...
    fn pending(ranges: &[Range<u64>]) -> Pending {
        let mut pending = Pending::default();
        (1..).zip(ranges).for_each(|(at, range)| pending.insert(at, 0, range));
        pending
    }

    fn joined(ranges: &[Range<u64>], reach: Reach) -> (Range<u64>, Vec<u64>) {
        let (mut range, mut members) = (500..600, Vec::new());
        pending(ranges).take_neighbours(0, &mut range, reach, &mut members);
        members.sort_unstable();
        (range, members)
    }

    #[test]
    fn neighbours_on_both_sides_are_joined_across_small_gaps() {
        let ranges = [605..700, 700..710, 480..495, 400..480, 721..800, 300..389];
        assert_eq!(joined(&ranges, REACH), (400..710, vec![1, 2, 3, 4]));
    }

    #[test]
    fn equal_and_overlapping_ranges_are_joined() {
        assert_eq!(joined(&[500..600, 550..620], REACH), (500..620, vec![1, 2]));
    }

    #[test]
    fn nothing_is_joined_beyond_the_most_bytes_nor_what_is_needed_much_later() {
        let reach = Reach { most_bytes: 150, ..REACH };
        assert_eq!(joined(&[600..650, 650..700], reach), (500..650, vec![1]));
        let reach = Reach { ahead: 0, ..REACH };
        assert_eq!(joined(&[600..650, 650..700], reach), (500..600, vec![]));
    }

    #[test]
    fn positions_far_apart_are_near_where_few_are_between() {
        let far = [1, 1 << 20, 1 << 40];
        let joined = |ahead| {
            let mut pending = Pending::default();
            far.iter().zip((600..).step_by(10)).for_each(|(at, start)| {
                pending.insert(*at, 0, &(start..start + 10));
            });
            let (mut range, mut members) = (500..600, Vec::new());
            let reach = Reach { ahead, ..REACH };
            pending.take_neighbours(0, &mut range, reach, &mut members);
            members
        };
        assert_eq!(joined(100), far);
        assert_eq!(joined(2), far[..2]);
    }

    proptest! {
        #[test]
        fn the_first_so_many_positions_end_where_counting_says(
            steps in prop::collection::vec((0..3u8, 0..64u64), 1..200),
        ) {
            let mut pending = Pending::default();
            for (kind, at) in steps {
                match kind {
                    0 => pending.insert(at, 0, &(at..at + 1)),
                    1 => pending.remove(at, 0, at),
                    _ => {
                        let n = usize::try_from(at).unwrap();
                        let all = std::iter::successors(pending.first(), |at| pending.positions.after(*at));
                        let counted = all.take(n).last();
                        prop_assert_eq!(pending.end_of_first(at), counted);
                    }
                }
            }
        }
    }

    #[test]
    fn other_objects_are_left_alone() {
        let mut pending = Pending::default();
        pending.insert(1, 1, &(600..700));
        pending.insert(2, 7, &(0..100));
        let (mut range, mut members) = (500..600, Vec::new());
        pending.take_neighbours(0, &mut range, REACH, &mut members);
        assert_eq!((range, members), (500..600, vec![]));
        assert_eq!(pending.first(), Some(1));
    }
}
