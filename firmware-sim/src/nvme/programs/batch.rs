//! The program `preprocess_batch_v1` as the device's own, at index 1: batches out of records in memory.

use std::sync::{Mutex, PoisonError};

use bothends_nvme::Status;
use bothends_nvme::preprocess::{PROGRAM, Parameters, RECORDS, RESULTS, TABLE};
use bothends_preprocess::{Bench, Ranges, Shared, reach, run_while};
use bothends_slots::available_bytes;

use super::{Call, Done, Program, Work};

/// What images may take together of this machine's memory.
const MEMORY_PART: u64 = 4;

/// Makes batches, each by one thread.
#[derive(Debug)]
pub struct Batches {
    shared: Shared,
    /// Benches that nobody works at.
    benches: Mutex<Vec<Bench>>,
}

impl Batches {
    /// The program, for a device of so many cores.
    #[must_use]
    pub fn new(cores: u32) -> Self {
        let together = available_bytes().map_or(1 << 30, |bytes| bytes / MEMORY_PART);
        Self { shared: Shared::new(cores.max(1), together), benches: Mutex::default() }
    }
}

impl Program for Batches {
    fn id(&self) -> u64 {
        PROGRAM
    }

    fn run(&self, call: &Call<'_>) -> Result<Done, Status> {
        let parameters = Parameters(call.parameter_1, call.parameter_2);
        let mut table = vec![0; call.range_bytes(TABLE)? as usize];
        call.read(TABLE, 0, &mut table)?;
        let (records_end, results_end) = reach(&table, parameters)?;
        // An item that reaches beyond its range is answered as wrong.
        let mut records = vec![0; records_end.min(call.range_bytes(RECORDS)?) as usize];
        call.read(RECORDS, 0, &mut records)?;
        let mut results = vec![0; results_end.min(call.range_bytes(RESULTS)?) as usize];
        let free = self.benches.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bench = free.unwrap_or_else(|| Bench::new(&self.shared));
        let ranges = Ranges { records: &records, table: &table, results: &mut results };
        let done = run_while(&mut bench, parameters, ranges, || call.check());
        self.benches.lock().unwrap_or_else(PoisonError::into_inner).push(bench);
        let done = done?;
        call.write(RESULTS, 0, &results)?;
        let (coded_bytes, pixels) = (done.coded_bytes, done.pixels);
        Ok(Done {
            value: done.n_items.into(),
            work: Work::Images { coded_bytes, pixels },
        })
    }
}
