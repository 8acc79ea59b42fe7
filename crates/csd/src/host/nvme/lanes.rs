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
/// Most items of an execution.
const MOST_ITEMS: u32 = 4096;
/// Most bytes of samples that an execution makes, and of records that it makes them of, unless one alone has more. The
/// slowest device that is modelled decodes 7.2 MB/s on a core, and a device that is at work cannot be told from one
/// that hangs.
const MOST_SAMPLE_BYTES: u64 = 128 << 20;
const MOST_RECORD_BYTES: u64 = 64 << 20;
/// What the table has for an item besides the item itself: profile and head of row groups.
const BESIDE_ITEM: u64 = 512;

/// The ranges of each lane, in bytes. Those of a lane follow one another, and so do the lanes.
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
    /// For batches of up to `max_batch` samples on a device with so many bytes of memory, of which a command reads
    /// `transfer` at most: one reads all answers of an execution. A batch that is larger than a lane is made in
    /// several executions.
    ///
    /// # Errors
    /// One line: not even one sample fits.
    pub(super) fn new(
        (memory_bytes, transfer): (u64, u32),
        (recipe_bytes, sample_bytes, max_batch): (u64, u64, u32),
    ) -> Result<Self, String> {
        let lane = (memory_bytes / N_LANES as u64).min(MOST_LANE) / PAGE * PAGE;
        let most_made = MOST_SAMPLE_BYTES / sample_bytes.max(1);
        let most_read = most_answers(transfer).min(MOST_ITEMS.into());
        let most = most_made.min(most_read).max(1);
        let mut most_items = u64::from(max_batch).clamp(1, most);
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
                    "its memory has {memory_bytes} bytes, too few for two samples of \
                    {sample_bytes} and their records; give it more memory, or use smaller samples"
                ));
            }
            most_items /= 2;
        }
    }

    /// Whether an execution of `n_items` may have one more, which makes it `record_bytes` of records.
    pub(super) fn takes(self, n_items: usize, record_bytes: u64) -> bool {
        let most = u64::from(self.records);
        let most = if n_items == 0 { most } else { most.min(MOST_RECORD_BYTES) };
        record_bytes <= most
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

/// So many items have answers of `transfer` bytes at most, whole pages.
fn most_answers(transfer: u32) -> u64 {
    let bytes = u64::from(transfer) / PAGE * PAGE;
    bytes.saturating_sub(Results::BYTES as u64) / Made::BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSFER: u32 = 1 << 20;

    #[test]
    fn lanes_are_apart_and_inside() {
        for (memory, sample, batch) in [
            (64 << 20, 150_528, 64),
            (8 << 20, 150_528, 64),
            (1 << 20, 3, 8),
            (64 << 30, 1 << 20, 65_536),
        ] {
            let layout = Layout::new((memory, TRANSFER), (500, sample, batch)).unwrap();
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
        let small = Layout::new((1 << 20, TRANSFER), (500, 1 << 20, 8)).unwrap_err();
        assert!(small.contains("give it more memory"), "{small}");
        assert!(Layout::new((0, TRANSFER), (0, 1, 1)).is_err());
        assert!(Layout::new((1 << 30, TRANSFER), (0, u64::MAX, 64)).is_err());
    }

    #[test]
    fn answers_of_an_execution_are_read_by_one_command() {
        let of = |transfer| Layout::new((64 << 30, transfer), (500, 3, 65_536)).unwrap();
        for shift in 1..=8 {
            let transfer = 4096 << shift;
            let most = of(transfer).most_items.into();
            assert!(samples_at(most) <= transfer.into(), "{most} items for {transfer}");
            let is_most = samples_at(most + 1) > transfer.into();
            assert!(
                is_most || most == u64::from(MOST_ITEMS),
                "{most} items for {transfer}"
            );
        }
    }

    /// A device with one slow core is not taken for one that hangs.
    #[test]
    fn an_execution_has_no_more_bytes_than_a_slow_device_makes_in_time() {
        let layout =
            |bytes| Layout::new((8 << 30, TRANSFER), (500, bytes, 65_536)).unwrap();
        let usual = layout(150_528);
        assert!(u64::from(usual.most_items) * 150_528 <= MOST_SAMPLE_BYTES);
        assert!(usual.takes(9, MOST_RECORD_BYTES));
        assert!(!usual.takes(9, MOST_RECORD_BYTES + 1));
        // One that is larger cannot be divided.
        assert!(usual.takes(0, usual.records.into()));
        assert!(!usual.takes(0, u64::from(usual.records) + 1));
        assert_eq!(layout(200 << 20).most_items, 1);
    }
}
