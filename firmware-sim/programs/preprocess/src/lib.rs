//! `preprocess_batch_v1` as a program that a host loads: the function that the device's own program calls, with the
//! ranges copied into the memory of the program and back.
//!
//! It makes the same bytes. One thing differs: code that breaks on an item ends the execution here (06h), since
//! nothing catches a panic in a WebAssembly module.

use bothends_nvme::Status;
use bothends_nvme::preprocess::{Parameters, RECORDS, RESULTS, TABLE};
use bothends_preprocess::{Bench, Ranges, Shared, reach, run};

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
    let table = first(TABLE, u32::MAX)?;
    let (records, results) = reach(&table, parameters)?;
    let records = first(RECORDS, records)?;
    let all = csd_program::range_bytes(RESULTS as u32).ok_or(Status::INVALID_FIELD)?;
    let mut results = vec![0; results.min(all) as usize];
    let ranges = Ranges { records: &records, table: &table, results: &mut results };
    let done = run(&mut Bench::new(&Shared::default()), parameters, ranges)?;
    csd_program::write(RESULTS as u32, 0, &results);
    Ok(done.n_items)
}

/// The first bytes of a range, or all where it has no more.
fn first(range: usize, bytes: u32) -> Result<Vec<u8>, Status> {
    let all = csd_program::range_bytes(range as u32).ok_or(Status::INVALID_FIELD)?;
    let mut own = vec![0; all.min(bytes) as usize];
    csd_program::read(range as u32, 0, &mut own);
    Ok(own)
}
