//! The page map of one plane of flash: where each 4-KiB unit lies, and what garbage collection moves.
//!
//! A write goes to the open block, and the unit's earlier place becomes invalid. When free blocks run out,
//! the block with the fewest valid units is collected: its valid units move to the open block, and it is
//! erased (greedy collection). The plane begins full, each unit at its own place, as a drive that holds a
//! data set does. Nothing here takes time; `flash.rs` turns what is moved into time.

use std::collections::VecDeque;

/// No unit.
const NONE: u32 = u32::MAX;
/// Free blocks that a collection may use.
const RESERVE: usize = 1;

/// The map of a plane.
#[derive(Debug)]
pub struct PlaneMap {
    units_per_block: u32,
    units_per_page: u32,
    /// Of each logical unit, its place.
    places: Vec<u32>,
    /// Of each place, the logical unit that is valid there.
    owners: Vec<u32>,
    /// Of each block, how many of its units are valid.
    valid: Vec<u32>,
    free: VecDeque<u32>,
    open: u32,
    next: u32,
}

/// What a write has led to besides the unit itself.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Collected {
    /// Flash pages that were read, counted within the plane, with the units that were valid there.
    pub pages: Vec<(u32, u32)>,
    /// Units that were moved.
    pub n_units: u32,
    /// Blocks that were erased.
    pub n_blocks: u32,
}

/// The geometry of a plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneGeometry {
    /// Units that it holds for hosts.
    pub n_units: u32,
    /// Units of a flash page.
    pub units_per_page: u32,
    /// Flash pages of a block.
    pub block_pages: u32,
    /// Flash beyond what it holds for hosts, in thousandths of that.
    pub over_provisioning_milli: u32,
}

impl PlaneMap {
    /// A full plane. It has at least three blocks more than it needs, so that collecting always gains room.
    ///
    /// Returns nothing if it has more units than can be counted.
    #[must_use]
    pub fn new(geometry: PlaneGeometry) -> Option<Self> {
        let PlaneGeometry { n_units, units_per_page, block_pages, .. } = geometry;
        let units_per_block = units_per_page.checked_mul(block_pages)?.max(1);
        let needed = n_units.div_ceil(units_per_block);
        let milli = 1000 + u64::from(geometry.over_provisioning_milli);
        let wanted = u64::from(n_units) * milli / 1000 / u64::from(units_per_block);
        let n_blocks = u32::try_from(wanted).ok()?.max(needed.checked_add(3)?);
        let n_places = n_blocks.checked_mul(units_per_block).filter(|n| *n < NONE)?;
        let mut owners = vec![NONE; n_places as usize];
        let mut valid = vec![0; n_blocks as usize];
        for unit in 0..n_units {
            owners[unit as usize] = unit;
            valid[(unit / units_per_block) as usize] += 1;
        }
        let mut free: VecDeque<u32> = (needed..n_blocks).collect();
        let open = free.pop_front()?;
        Some(Self {
            units_per_block,
            units_per_page: units_per_page.max(1),
            places: (0..n_units).collect(),
            owners,
            valid,
            free,
            open,
            next: 0,
        })
    }

    /// The place of a unit; its own if there is no such unit.
    #[must_use]
    pub fn place(&self, unit: u32) -> u32 {
        self.places.get(unit as usize).copied().unwrap_or(unit)
    }

    /// Whether a place is among the last `n_pending` that were written.
    #[must_use]
    pub fn is_pending(&self, place: u32, n_pending: u32) -> bool {
        let head = self.open * self.units_per_block + self.next;
        place < head
            && head - place <= n_pending
            && place / self.units_per_block == self.open
    }

    /// Blocks that the plane has.
    #[must_use]
    pub fn n_blocks(&self) -> usize {
        self.valid.len()
    }

    /// Writes a unit. One that there is not changes nothing.
    pub fn write(&mut self, unit: u32) -> Collected {
        let mut collected = Collected::default();
        if unit as usize >= self.places.len() {
            return collected;
        }
        if self.next == self.units_per_block {
            while self.free.len() <= RESERVE {
                self.collect(&mut collected);
            }
        }
        self.append(unit);
        collected
    }

    fn append(&mut self, unit: u32) {
        if self.next == self.units_per_block
            && let Some(block) = self.free.pop_front()
        {
            self.open = block;
            self.next = 0;
        }
        let old = std::mem::replace(
            &mut self.places[unit as usize],
            self.open * self.units_per_block + self.next,
        );
        self.owners[old as usize] = NONE;
        self.valid[(old / self.units_per_block) as usize] -= 1;
        self.owners[self.places[unit as usize] as usize] = unit;
        self.valid[self.open as usize] += 1;
        self.next += 1;
    }

    /// Collects the block with the fewest valid units, of equals the first.
    fn collect(&mut self, collected: &mut Collected) {
        let Some(victim) = self.victim() else { return };
        let begin = victim * self.units_per_block;
        for place in begin..begin + self.units_per_block {
            let unit = self.owners[place as usize];
            if unit == NONE {
                continue;
            }
            let page = place / self.units_per_page;
            match collected.pages.last_mut() {
                Some((last, n)) if *last == page => *n += 1,
                _ => collected.pages.push((page, 1)),
            }
            collected.n_units += 1;
            self.append(unit);
        }
        collected.n_blocks += 1;
        self.free.push_back(victim);
    }

    fn victim(&self) -> Option<u32> {
        let n_blocks = u32::try_from(self.valid.len()).unwrap_or(0);
        let is_open = |block: u32| block == self.open && self.next < self.units_per_block;
        let candidates = (0..n_blocks).filter(|block| !is_open(*block));
        let candidates = candidates.filter(|block| !self.free.contains(block));
        candidates.min_by_key(|block| self.valid[*block as usize])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plane(n_units: u32, block_pages: u32, over_provisioning_milli: u32) -> PlaneMap {
        let geometry = PlaneGeometry {
            n_units,
            units_per_page: 4,
            block_pages,
            over_provisioning_milli,
        };
        PlaneMap::new(geometry).unwrap()
    }

    /// Random numbers (SplitMix64).
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Units programmed for each unit that a host writes, over uniformly random places, once what the
    /// plane began with has been forgotten; and the flash for each unit of data, without the block that
    /// is kept free and the empty half of the open one.
    fn write_amplification(over_provisioning_milli: u32) -> (f64, f64) {
        let n_units = 1 << 16;
        let mut map = plane(n_units, 64, over_provisioning_milli);
        let used = (map.n_blocks() - RESERVE) as f64 - 0.5;
        let alpha = used * f64::from(map.units_per_block) / f64::from(n_units);
        let mut seed = 1;
        let mut writes = |n: u32| {
            let moved: u64 = (0..n)
                .map(|_| {
                    let unit = random(&mut seed) % u64::from(n_units);
                    u64::from(map.write(u32::try_from(unit).unwrap()).n_units)
                })
                .sum();
            1.0 + moved as f64 / f64::from(n)
        };
        writes(2 * n_units);
        (writes(n_units), alpha)
    }

    /// The closed form for greedy collection of large blocks: with x the share of valid units of a block
    /// when it is collected and α the flash for each unit of data, ln(1/x) / (1 − x) = α, and each
    /// unit is written 1 / (1 − x) times. Xiang and Kurkoski, arXiv:1110.4245: 2.36 at α = 1.3.
    fn analytic(alpha: f64) -> f64 {
        let (mut low, mut high) = (1e-9, 1.0 - 1e-9);
        for _ in 0..200 {
            let x = f64::midpoint(low, high);
            if -x.ln() / (1.0 - x) > alpha { low = x } else { high = x }
        }
        1.0 / (1.0 - low)
    }

    #[test]
    fn the_closed_form_is_the_published_one() {
        assert!((analytic(1.3) - 2.36).abs() < 0.01, "{}", analytic(1.3));
    }

    #[test]
    fn write_amplification_is_within_10_percent_of_the_closed_form() {
        for milli in [70, 280] {
            let (got, alpha) = write_amplification(milli);
            let expected = analytic(alpha);
            println!(
                "| write amplification, {alpha:.3} of flash for 1 of data | {expected:.3} | {got:.3} | {:+.1} % |",
                100.0 * (got / expected - 1.0)
            );
            assert!((got / expected - 1.0).abs() < 0.1, "{alpha}: {got}, not {expected}");
        }
    }

    #[test]
    fn writing_in_order_moves_nothing() {
        let mut map = plane(4096, 16, 70);
        for _ in 0..4 {
            for unit in 0..4096 {
                assert_eq!(map.write(unit).n_units, 0);
            }
        }
    }

    #[test]
    fn the_smallest_plane_can_be_written_and_none_too_great_is_made() {
        let mut map = plane(1, 1, 1);
        for _ in 0..1000 {
            map.write(0);
        }
        assert_eq!(map.write(7), Collected::default(), "there is no such unit");
        let huge = PlaneGeometry {
            n_units: u32::MAX,
            units_per_page: 4,
            block_pages: 64,
            over_provisioning_milli: 70,
        };
        assert!(PlaneMap::new(huge).is_none());
    }

    proptest! {
        /// Whatever is written, each unit has one place, each place at most one unit, the counts of
        /// blocks are those of a recount, and no block is lost.
        #[test]
        fn the_map_is_one_to_one(
            n_units in 1_u32..300, block_pages in 1_u32..6, milli in 1_u32..500,
            writes in prop::collection::vec(0_u32..300, 0..600),
        ) {
            let mut map = plane(n_units, block_pages, milli);
            for unit in writes {
                let before = map.free.len();
                let collected = map.write(unit % n_units);
                prop_assert!(map.free.len() >= before.min(RESERVE));
                let valid: u32 = collected.pages.iter().map(|(_, n)| n).sum();
                prop_assert_eq!(valid, collected.n_units);
            }
            for unit in 0..n_units {
                prop_assert_eq!(map.owners[map.place(unit) as usize], unit);
            }
            let owned = map.owners.iter().filter(|unit| **unit != NONE).count();
            prop_assert_eq!(owned, n_units as usize);
            for (block, units) in map.owners.chunks(map.units_per_block as usize).enumerate() {
                let valid = units.iter().filter(|unit| **unit != NONE).count();
                prop_assert_eq!(map.valid[block] as usize, valid);
                let is_free = map.free.contains(&u32::try_from(block).unwrap());
                prop_assert!(!is_free || valid == 0);
            }
        }
    }
}
