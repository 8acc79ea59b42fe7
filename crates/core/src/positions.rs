//! A map and a set whose keys are mostly consecutive numbers: positions of rows, and names that are counted up.
//!
//! A block has the entries of 64 consecutive numbers, and a mask that says which of them are there. Blocks are found by
//! binary search: where keys are dense there are few of them, and an entry is a few steps away. A fetch queue and its
//! books with trees of all positions take more time for a record (docs/measured.md). Keys that are far from all others
//! work as well, and take a block each.

use std::collections::VecDeque;

/// How far a key is moved for the number of its block: a block has as many keys as a mask has bits.
const BLOCK_BITS: u32 = u64::BITS.ilog2();

/// The number of the block that a key is in, and the key's place there.
fn place(key: u64) -> (u64, u32) {
    let index = u32::try_from(key % u64::from(u64::BITS)).unwrap_or_default();
    (key >> BLOCK_BITS, index)
}

/// The key at a place of a block.
fn key(number: u64, index: u32) -> u64 {
    number << BLOCK_BITS | u64::from(index)
}

fn lowest(mask: u64) -> Option<u32> {
    (mask != 0).then(|| mask.trailing_zeros())
}

/// The bits below a place.
fn below(index: u32) -> u64 {
    (1 << index) - 1
}

/// The bits above a place.
fn above(index: u32) -> u64 {
    u64::MAX << index << 1
}

/// Blocks `B` in the order of their numbers.
#[derive(Debug, Clone)]
struct Blocks<B> {
    numbers: VecDeque<u64>,
    blocks: VecDeque<B>,
}

impl<B> Default for Blocks<B> {
    fn default() -> Self {
        Self { numbers: VecDeque::new(), blocks: VecDeque::new() }
    }
}

impl<B> Blocks<B> {
    /// Where the block with this number is, or would be.
    fn find(&self, number: u64) -> Result<usize, usize> {
        // Most questions are about what is needed next, or was offered last.
        match (self.numbers.front(), self.numbers.back()) {
            (Some(first), _) if *first == number => Ok(0),
            (_, Some(last)) if *last == number => Ok(self.numbers.len() - 1),
            (_, Some(last)) if *last < number => Err(self.numbers.len()),
            (_, _) => self.numbers.binary_search(&number),
        }
    }

    fn get(&self, number: u64) -> Option<&B> {
        self.blocks.get(self.find(number).ok()?)
    }

    fn get_mut(&mut self, number: u64) -> Option<(usize, &mut B)> {
        let at = self.find(number).ok()?;
        Some((at, self.blocks.get_mut(at)?))
    }

    /// The block with this number, made where there is none.
    fn enter(&mut self, number: u64) -> &mut B
    where
        B: Default,
    {
        let at = self.find(number).unwrap_or_else(|at| {
            self.numbers.insert(at, number);
            self.blocks.insert(at, B::default());
            at
        });
        &mut self.blocks[at]
    }

    fn remove(&mut self, at: usize) {
        self.numbers.remove(at);
        self.blocks.remove(at);
    }

    fn iter(&self) -> impl Iterator<Item = (u64, &B)> {
        self.numbers.iter().copied().zip(&self.blocks)
    }
}

/// A set of numbers in order.
#[derive(Debug, Clone, Default)]
pub struct PositionSet(Blocks<u64>);

impl PositionSet {
    /// Adds a number; whether it was not there.
    pub fn insert(&mut self, position: u64) -> bool {
        let (number, index) = place(position);
        let mask = self.0.enter(number);
        let is_new = *mask >> index & 1 == 0;
        *mask |= 1 << index;
        is_new
    }

    /// Takes a number out; whether it was there.
    pub fn remove(&mut self, position: u64) -> bool {
        let (number, index) = place(position);
        let Some((at, mask)) = self.0.get_mut(number) else { return false };
        let was_there = *mask >> index & 1 == 1;
        *mask &= !(1 << index);
        if *mask == 0 {
            self.0.remove(at);
        }
        was_there
    }

    /// Whether a number is there.
    #[must_use]
    pub fn contains(&self, position: u64) -> bool {
        let (number, index) = place(position);
        self.0.get(number).is_some_and(|mask| mask >> index & 1 == 1)
    }

    /// The lowest.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        self.lowest_of(0, u64::MAX)
    }

    /// The lowest that is higher than this one.
    #[must_use]
    pub fn after(&self, position: u64) -> Option<u64> {
        let (number, index) = place(position);
        match self.0.find(number) {
            Ok(at) => self
                .lowest_of(at, above(index))
                .or_else(|| self.lowest_of(at + 1, u64::MAX)),
            Err(at) => self.lowest_of(at, u64::MAX),
        }
    }

    /// The highest that is lower than this one.
    #[must_use]
    pub fn before(&self, position: u64) -> Option<u64> {
        let (number, index) = place(position);
        let (at, own) = match self.0.find(number) {
            Ok(at) => (at, self.highest_of(at, below(index))),
            Err(at) => (at, None),
        };
        own.or_else(|| self.highest_of(at.checked_sub(1)?, u64::MAX))
    }

    /// The lowest of those of a block that `among` has, too.
    fn lowest_of(&self, at: usize, among: u64) -> Option<u64> {
        let index = lowest(self.0.blocks.get(at)? & among)?;
        Some(key(*self.0.numbers.get(at)?, index))
    }

    fn highest_of(&self, at: usize, among: u64) -> Option<u64> {
        let index = (self.0.blocks.get(at)? & among).checked_ilog2()?;
        Some(key(*self.0.numbers.get(at)?, index))
    }
}

/// A map with numbers as keys, in order.
#[derive(Debug, Clone)]
pub struct PositionMap<T> {
    blocks: Blocks<Block<T>>,
    len: usize,
}

#[derive(Debug, Clone)]
struct Block<T> {
    /// Which entries are there.
    mask: u64,
    /// Up to the highest there has been: many blocks have only their first.
    entries: Vec<Option<T>>,
}

impl<T> Default for Block<T> {
    fn default() -> Self {
        Self { mask: 0, entries: Vec::new() }
    }
}

impl<T> Default for PositionMap<T> {
    fn default() -> Self {
        Self { blocks: Blocks::default(), len: 0 }
    }
}

impl<T> PositionMap<T> {
    /// Sets what a number stands for; what it stood for before.
    pub fn insert(&mut self, position: u64, value: T) -> Option<T> {
        let (number, index) = place(position);
        let block = self.blocks.enter(number);
        let nth = index as usize;
        if block.entries.len() <= nth {
            block.entries.resize_with(nth + 1, || None);
        }
        block.mask |= 1 << index;
        let before = block.entries[nth].replace(value);
        self.len += usize::from(before.is_none());
        before
    }

    /// Takes out what a number stands for.
    pub fn remove(&mut self, position: u64) -> Option<T> {
        let (number, index) = place(position);
        let (at, block) = self.blocks.get_mut(number)?;
        let value = block.entries.get_mut(index as usize)?.take()?;
        block.mask &= !(1 << index);
        if block.mask == 0 {
            self.blocks.remove(at);
        }
        self.len -= 1;
        Some(value)
    }

    /// What a number stands for.
    #[must_use]
    pub fn get(&self, position: u64) -> Option<&T> {
        let (number, index) = place(position);
        self.blocks.get(number)?.entries.get(index as usize)?.as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, position: u64) -> Option<&mut T> {
        let (number, index) = place(position);
        let (_, block) = self.blocks.get_mut(number)?;
        block.entries.get_mut(index as usize)?.as_mut()
    }

    /// Whether a number stands for anything.
    #[must_use]
    pub fn contains(&self, position: u64) -> bool {
        self.get(position).is_some()
    }

    /// The lowest number.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        let (number, block) = self.blocks.iter().next()?;
        Some(key(number, lowest(block.mask)?))
    }

    /// All numbers and what they stand for, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.blocks.iter().flat_map(|(number, block)| {
            let entries = (0..).zip(&block.entries);
            entries.filter_map(move |(index, entry)| {
                Some((key(number, index), entry.as_ref()?))
            })
        })
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        let blocks = self.blocks.numbers.iter().zip(&mut self.blocks.blocks);
        blocks.flat_map(|(number, block)| {
            let entries = (0..).zip(&mut block.entries);
            entries
                .filter_map(|(index, entry)| Some((key(*number, index), entry.as_mut()?)))
        })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::ops::Bound::{Excluded, Unbounded};

    use proptest::prelude::*;

    use super::*;

    /// Near each other, at the ends of blocks, and far from all others.
    fn positions() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..200_u64,
            (1..4_u64, 0..70_u64).prop_map(|(far, at)| (far << 32) + at),
            u64::MAX - 70..=u64::MAX
        ]
    }

    proptest! {
        #[test]
        fn a_set_has_what_one_of_the_standard_library_has(
            steps in prop::collection::vec((any::<bool>(), positions()), 1..400),
        ) {
            let (mut set, mut standard) = (PositionSet::default(), BTreeSet::new());
            for (is_added, at) in steps {
                match is_added {
                    true => prop_assert_eq!(set.insert(at), standard.insert(at)),
                    false => prop_assert_eq!(set.remove(at), standard.remove(&at)),
                }
                prop_assert_eq!(set.contains(at), standard.contains(&at));
                prop_assert_eq!(set.first(), standard.first().copied());
                let after = standard.range((Excluded(at), Unbounded)).next();
                prop_assert_eq!(set.after(at), after.copied());
                prop_assert_eq!(set.before(at), standard.range(..at).next_back().copied());
                let before_next = standard.range(..at ^ 1).next_back().copied();
                prop_assert_eq!(set.before(at ^ 1), before_next);
            }
        }

        #[test]
        fn a_map_has_what_one_of_the_standard_library_has(
            steps in prop::collection::vec((0..4_u8, positions()), 1..400),
        ) {
            let (mut map, mut standard) = (PositionMap::default(), BTreeMap::new());
            for (value, (kind, at)) in steps.into_iter().enumerate() {
                match kind {
                    0 | 1 => prop_assert_eq!(map.insert(at, value), standard.insert(at, value)),
                    2 => prop_assert_eq!(map.remove(at), standard.remove(&at)),
                    _ => {
                        prop_assert_eq!(map.get_mut(at), standard.get_mut(&at));
                        map.get_mut(at).into_iter().for_each(|it| *it += 1);
                        standard.entry(at).and_modify(|it| *it += 1);
                    }
                }
                prop_assert_eq!(map.get(at), standard.get(&at));
                prop_assert_eq!(map.contains(at), standard.contains_key(&at));
                prop_assert_eq!(map.first(), standard.keys().next().copied());
                prop_assert_eq!((map.len(), map.is_empty()), (standard.len(), standard.is_empty()));
            }
            map.iter_mut().for_each(|(at, value)| *value += usize::from(at == 0));
            standard.entry(0).and_modify(|value| *value += 1);
            let all: Vec<_> = map.iter().map(|(at, value)| (at, *value)).collect();
            prop_assert_eq!(all, standard.into_iter().collect::<Vec<_>>());
        }
    }
}
