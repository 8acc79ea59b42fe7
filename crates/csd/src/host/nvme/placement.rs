//! How the samples of an execution get here: read from the device's memory, or copied to its blocks first and read
//! from there. Both are tried, and the quicker one is taken.
//!
//! Over a network a copy to blocks is a detour. Where memory is slow to read, or blocks are read past the host's
//! memory, it may not be. Blocks are used only where the user names some that may be overwritten.

use std::time::Duration;

use super::lanes::N_LANES;
use crate::words::address::BlockRange;

/// A way for results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Out of memory.
    Memory,
    /// By way of these blocks.
    Blocks(BlockRange),
}

/// So many parts go each way before one is preferred.
const TRIALS: u32 = 4;
/// One part in so many goes the way that was slower: what else the device does changes.
const EXPLORE: u32 = 32;
/// What the latest part counts in an average.
const WEIGHT: f64 = 0.25;

/// What has been seen of a way.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    n_begun: u32,
    /// Nanoseconds for a byte.
    cost: Option<f64>,
}

/// What decides.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// Blocks for the results of each lane.
    scratch: Option<[BlockRange; N_LANES]>,
    block_bytes: u64,
    memory: Seen,
    blocks: Seen,
}

impl Placement {
    /// With these blocks for results, or none.
    pub(super) fn new(scratch: Option<BlockRange>, block_bytes: u32) -> Self {
        let scratch = scratch.map(|BlockRange { first, n_blocks }| {
            let n_blocks = n_blocks / N_LANES as u64;
            std::array::from_fn(|lane| BlockRange {
                first: first + lane as u64 * n_blocks,
                n_blocks,
            })
        });
        Self { scratch, block_bytes: block_bytes.into(), ..Self::default() }
    }

    /// The way for a part on lane `lane` whose results have so many bytes of the `most` that its range has.
    pub(super) fn next(&mut self, lane: usize, (bytes, most): (u64, u64)) -> Way {
        let way = match self.blocks_for(lane, bytes, most) {
            Some(blocks) if self.prefers_blocks() => Way::Blocks(blocks),
            _ => Way::Memory,
        };
        self.seen(way).n_begun += 1;
        way
    }

    fn prefers_blocks(&self) -> bool {
        let (memory, blocks) = (self.memory, self.blocks);
        if memory.n_begun.min(blocks.n_begun) < TRIALS {
            return memory.n_begun > blocks.n_begun;
        }
        // What has been begun and never ended is not the quicker one.
        let cost = |own: Seen| own.cost.unwrap_or(f64::INFINITY);
        let is_blocks = cost(blocks) < cost(memory);
        let explores = (memory.n_begun + blocks.n_begun).is_multiple_of(EXPLORE);
        is_blocks != explores
    }

    fn blocks_for(&self, lane: usize, bytes: u64, most: u64) -> Option<BlockRange> {
        let BlockRange { first, n_blocks } = *self.scratch.as_ref()?.get(lane)?;
        let needed = bytes.div_ceil(self.block_bytes);
        let is_room = needed <= n_blocks && needed * self.block_bytes <= most;
        is_room.then_some(BlockRange { first, n_blocks: needed })
    }

    /// How long it took from the end of an execution until its results were here.
    pub(super) fn took(&mut self, way: Way, bytes: u64, time: Duration) {
        let cost = time.as_nanos() as f64 / bytes.max(1) as f64;
        let seen = self.seen(way);
        let before = seen.cost.unwrap_or(cost);
        seen.cost = Some(before + WEIGHT * (cost - before));
    }

    /// The device does not copy to its blocks, or the user may not: they are not used any more.
    pub(super) fn close(&mut self) {
        self.scratch = None;
    }

    fn seen(&mut self, way: Way) -> &mut Seen {
        match way {
            Way::Memory => &mut self.memory,
            Way::Blocks(_) => &mut self.blocks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRATCH: BlockRange = BlockRange { first: 100, n_blocks: 21 };

    fn is_blocks(way: Way) -> bool {
        matches!(way, Way::Blocks(_))
    }

    /// Has parts of a page go their ways, each at its pace in nanoseconds for a byte, and says how many of the last
    /// thousand go by way of blocks.
    fn plays(paces: impl Fn(u32) -> (u64, u64)) -> usize {
        let mut own = Placement::new(Some(SCRATCH), 4096);
        let ways: Vec<Way> = (0..3000)
            .map(|n| {
                let way = own.next((n % 2) as usize, (4096, 4096));
                let (memory, blocks) = paces(n);
                let pace = if is_blocks(way) { blocks } else { memory };
                own.took(way, 4096, Duration::from_nanos(pace * 4096));
                way
            })
            .collect();
        ways[2000..].iter().filter(|way| is_blocks(**way)).count()
    }

    #[test]
    fn the_quicker_way_is_found_and_the_other_tried_again() {
        let n_tried = 1000 / EXPLORE as usize + 1;
        let slower = plays(|_| (10, 11));
        assert!((1..=n_tried).contains(&slower), "{slower}");
        let quicker = plays(|_| (11, 10));
        assert!((1000 - n_tried..1000).contains(&quicker), "{quicker}");
    }

    #[test]
    fn a_way_that_becomes_quicker_is_taken() {
        let n_blocks = plays(|n| if n < 1000 { (10, 30) } else { (30, 10) });
        assert!(n_blocks > 900, "{n_blocks}");
    }

    #[test]
    fn only_what_fits_goes_by_way_of_blocks() {
        let ways = |mut own: Placement, sizes| -> Vec<Way> {
            (0..100).map(|n| own.next(n % 2, sizes)).collect()
        };
        let of = |scratch| Placement::new(scratch, 4096);
        let never = [
            ways(of(None), (1, 4096)),
            // Half of 21 blocks are 10.
            ways(of(Some(SCRATCH)), (10 * 4096 + 1, 1 << 20)),
            // The range ends within its last block.
            ways(of(Some(SCRATCH)), (4097, 8191)),
        ];
        assert!(never.iter().flatten().all(|way| *way == Way::Memory));
        let all = ways(of(Some(SCRATCH)), (9 * 4096 + 1, 1 << 20));
        for first in [100, 110] {
            assert!(all.contains(&Way::Blocks(BlockRange { first, n_blocks: 10 })));
        }
        let mut own = of(Some(SCRATCH));
        own.close();
        assert!(!ways(own, (1, 4096)).into_iter().any(is_blocks));
    }
}
