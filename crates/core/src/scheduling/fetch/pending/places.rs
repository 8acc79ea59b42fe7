//! Where pending ranges lie in their objects, so that neighbours are found.
//!
//! Where each record is an object, an object has one pending range; a shard has thousands.

use std::collections::{BTreeMap, HashMap};

/// A pending range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: u64,
    pub(super) position: u64,
    pub(super) end: u64,
}

impl Place {
    /// Ranges of equal starts are told apart by their positions.
    fn key(self) -> (u64, u64) {
        (self.start, self.position)
    }
}

/// All of them, by the numbers of their objects.
#[derive(Debug, Default)]
pub(super) struct Places(HashMap<u32, OfObject>);

#[derive(Debug)]
enum OfObject {
    One(Place),
    /// By start and position; the value is the end.
    Several(BTreeMap<(u64, u64), u64>),
}

impl Places {
    pub(super) fn insert(&mut self, object: u32, place: Place) {
        let Some(known) = self.0.get_mut(&object) else {
            self.0.insert(object, OfObject::One(place));
            return;
        };
        match known {
            OfObject::One(other) => {
                let both = [*other, place].map(|it| (it.key(), it.end));
                *known = OfObject::Several(BTreeMap::from(both));
            }
            OfObject::Several(all) => {
                all.insert(place.key(), place.end);
            }
        }
    }

    /// Forgets the range that starts there; one that is not known changes nothing.
    pub(super) fn remove(&mut self, object: u32, start: u64, position: u64) {
        let is_last = match self.0.get_mut(&object) {
            Some(OfObject::One(known)) => known.key() == (start, position),
            Some(OfObject::Several(all)) => {
                all.remove(&(start, position));
                all.is_empty()
            }
            None => false,
        };
        if is_last {
            self.0.remove(&object);
        }
    }

    /// The first range of the object that starts at `start` or behind it, and the last one that starts before it.
    pub(super) fn neighbours(&self, object: u32, start: u64) -> [Option<Place>; 2] {
        match self.0.get(&object) {
            Some(OfObject::One(one)) if one.start >= start => [Some(*one), None],
            Some(OfObject::One(one)) => [None, Some(*one)],
            Some(OfObject::Several(all)) => {
                let place = |((start, position), end): (&(u64, u64), &u64)| Place {
                    start: *start,
                    position: *position,
                    end: *end,
                };
                let behind = all.range((start, 0)..).next();
                let before = all.range(..(start, 0)).next_back();
                [behind.map(place), before.map(place)]
            }
            None => [None, None],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn neighbours_are_those_of_a_list_of_all(
            steps in prop::collection::vec((0..3_u8, 0..3_u32, 0..6_u64, 0..4_u64), 1..200),
        ) {
            let (mut places, mut list) = (Places::default(), Vec::<(u32, Place)>::new());
            for (kind, object, start, position) in steps {
                let place = Place { start, position, end: start + 10 };
                match kind {
                    0 => {
                        places.insert(object, place);
                        if !list.contains(&(object, place)) {
                            list.push((object, place));
                        }
                    }
                    1 => {
                        places.remove(object, start, position);
                        list.retain(|known| *known != (object, place));
                    }
                    _ => {
                        let of_object = list.iter().filter(|known| known.0 == object);
                        let of_object = of_object.map(|known| known.1);
                        let behind = of_object.clone().filter(|it| it.start >= start);
                        let before = of_object.filter(|it| it.start < start);
                        let expected =
                            [behind.min_by_key(|it| it.key()), before.max_by_key(|it| it.key())];
                        prop_assert_eq!(places.neighbours(object, start), expected);
                    }
                }
            }
            prop_assert_eq!(places.0.is_empty(), list.is_empty());
        }
    }
}
