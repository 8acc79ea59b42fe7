//! `preprocess_batch_v1` as a program that a host loads: the function that the device's own program calls, for ranges
//! that it reads and writes as the sandbox lets it.
//!
//! It makes the same bytes. One thing differs: code that breaks on an item ends the execution here (06h), since
//! nothing catches a panic in a WebAssembly module.

use bothends_nvme::Status;
use bothends_nvme::preprocess::Parameters;
use bothends_preprocess::{Bench, Memory, Shared, run};

csd_program::entry!(entry);

/// What an execution runs; for a device alone.
pub fn entry(parameter_1: u64, parameter_2: u64) -> u64 {
    match batch(Parameters(parameter_1, parameter_2)) {
        Ok(n_items) => n_items.into(),
        Err(Status { kind, code }) => {
            csd_program::end(csd_program::Status { kind, code })
        }
    }
}

fn batch(parameters: Parameters) -> Result<u32, Status> {
    let done = run(&mut Bench::new(&Shared::default()), parameters, &mut Ranges)?;
    Ok(done.n_items)
}

/// The ranges of the execution. Bytes that are not there end it.
struct Ranges;

impl Memory for Ranges {
    fn range_bytes(&self, n: usize) -> Result<u32, Status> {
        csd_program::range_bytes(n as u32).ok_or(Status::INVALID_FIELD)
    }

    fn read(&self, n: usize, at: u32, to: &mut [u8]) -> Result<(), Status> {
        csd_program::read(n as u32, at, to);
        Ok(())
    }

    fn write(&mut self, n: usize, at: u32, from: &[u8]) -> Result<(), Status> {
        csd_program::write(n as u32, at, from);
        Ok(())
    }
}
