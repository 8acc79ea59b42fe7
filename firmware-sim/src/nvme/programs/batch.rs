//! The program `preprocess_batch_v1` as the device's own, at index 1: batches out of records in memory.

use std::sync::{Mutex, PoisonError};

use bothends_nvme::Status;
use bothends_nvme::preprocess::{PROGRAM, Parameters};
use bothends_preprocess::{Bench, Memory, Shared, run};
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
        let free = self.benches.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bench = free.unwrap_or_else(|| Bench::new(&self.shared));
        let done = run(&mut bench, parameters, &mut Ranges(call));
        self.benches.lock().unwrap_or_else(PoisonError::into_inner).push(bench);
        let done = done?;
        let bothends_preprocess::Done { n_items, bytes, coded_bytes, pixels } = done;
        let work = Work::Records { bytes, coded_bytes, pixels };
        Ok(Done { value: n_items.into(), work })
    }
}

/// The ranges that a call has.
struct Ranges<'a>(&'a Call<'a>);

impl Memory for Ranges<'_> {
    fn range_bytes(&self, n: usize) -> Result<u32, Status> {
        self.0.range_bytes(n)
    }

    fn read(&self, n: usize, at: u32, to: &mut [u8]) -> Result<(), Status> {
        self.0.read(n, at, to)
    }

    fn write(&mut self, n: usize, at: u32, from: &[u8]) -> Result<(), Status> {
        self.0.write(n, at, from)
    }

    fn check(&self) -> Result<(), Status> {
        self.0.check()
    }
}
