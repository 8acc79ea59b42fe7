//! How a device's memory is divided: two lanes, each a set of three ranges for one execution at a time, so
//! that one is filled while the program works on the other.

use bothends_nvme::commands::MemoryRange;
use bothends_nvme::preprocess::{Head, Item, Made, Results};

/// Executions at a time.
pub(super) const N_LANES: usize = 2;
/// What everything in memory is aligned to.
const PAGE: u64 = 4096;
/// Most memory of a lane: the length of a range has 32 bits.
const MOST_LANE: u64 = 3 << 30;
/// Most items of an execution: their answers are read by one command.
const MOST_ITEMS: u32 = 4096;
/// What the table has for an item besides its own entry: profile and head of row groups.
const BESIDE_ITEM: u64 = 512;

/// The ranges of each lane, in bytes. A lane's are contiguous, and so are the lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Range 1.
    pub(super) records: u32,
    /// Range 2.
    pub(super) table: u32,
    /// Range 3.
    pub(super) results: u32,
    /// Most items of an execution.
    pub(super) most_items: u32,
}

impl Layout {
    /// For batches of up to `max_batch` samples in `memory_bytes` of memory. A batch that is larger than a lane is
    /// made in several executions.
    ///
    /// # Errors
    /// One line: not even one sample fits.
    pub(super) fn new(
        memory_bytes: u64,
        (recipe_bytes, sample_bytes, max_batch): (u64, u64, u32),
    ) -> Result<Self, String> {
        let lane = (memory_bytes / N_LANES as u64).min(MOST_LANE) / PAGE * PAGE;
        let mut most_items = u64::from(max_batch.clamp(1, MOST_ITEMS));
        loop {
            let beside = BESIDE_ITEM + Item::BYTES as u64;
            let table = pages(Head::BYTES as u64 + recipe_bytes + most_items * beside);
            let results = samples_at(most_items)
                .checked_add(most_items.saturating_mul(sample_bytes));
            let taken = results.and_then(|results| table.checked_add(pages(results)));
            let records = taken.and_then(|taken| lane.checked_sub(taken));
            // A third of the memory is for what samples are made of.
            if let Some(records) = records.filter(|records| *records >= lane / 3)
                && lane > 0
            {
                let of = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
                let results = lane - table - records;
                let most_items = of(most_items);
                return Ok(Self {
                    records: of(records),
                    table: of(table),
                    results: of(results),
                    most_items,
                });
            }
            if most_items == 1 {
                return Err(format!(
                    "its memory has {memory_bytes} bytes, too few for two samples of {sample_bytes} and what \
                     they are made of; give it more memory, or use smaller samples"
                ));
            }
            most_items /= 2;
        }
    }

    fn lane_bytes(self) -> u64 {
        u64::from(self.records) + u64::from(self.table) + u64::from(self.results)
    }

    /// The ranges of lane `nth` in namespace `nsid`.
    pub(super) fn ranges(self, nth: usize, nsid: u32) -> [MemoryRange; 3] {
        let records = nth as u64 * self.lane_bytes();
        let table = records + u64::from(self.records);
        let results = table + u64::from(self.table);
        [(records, self.records), (table, self.table), (results, self.results)]
            .map(|(from, bytes)| MemoryRange { nsid, from, bytes })
    }
}

fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE).saturating_mul(PAGE)
}

/// Where the samples begin in range 3, behind the answers of so many items.
pub(super) fn samples_at(n_items: u64) -> u64 {
    pages(Results::BYTES as u64 + n_items * Made::BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_apart_and_inside() {
        for (memory, sample, batch) in [
            (64 << 20, 150_528, 64),
            (8 << 20, 150_528, 64),
            (1 << 20, 3, 8),
            (64 << 30, 1 << 20, 65_536),
        ] {
            let layout = Layout::new(memory, (500, sample, batch)).unwrap();
            let all: Vec<MemoryRange> =
                (0..N_LANES).flat_map(|nth| layout.ranges(nth, 2)).collect();
            let mut end = 0;
            for range in &all {
                assert_eq!(range.from, end, "one behind the other");
                assert!(range.bytes > 0 && range.from % 4096 == 0);
                end += u64::from(range.bytes);
            }
            assert!(end <= memory);
            let n = u64::from(layout.most_items);
            assert!(samples_at(n) + n * sample <= layout.results.into());
        }
        let small = Layout::new(1 << 20, (500, 1 << 20, 8)).unwrap_err();
        assert!(small.contains("give it more memory"), "{small}");
        assert!(Layout::new(0, (0, 1, 1)).is_err());
        assert!(Layout::new(1 << 30, (0, u64::MAX, 64)).is_err());
    }
}
