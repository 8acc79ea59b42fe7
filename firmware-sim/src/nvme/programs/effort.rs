//! What running a program took, for the models.

use std::time::Instant;

use bothends_nvme::Status;

use super::{Done, Work};
use crate::compute::Effort;
use crate::hardware::thread_cpu_ns;

/// Runs a program; says what it returned, and what it took. One that failed took the time that it took here.
pub(in crate::nvme) fn effort(
    run: impl FnOnce() -> Result<Done, Status>,
) -> (Result<u64, Status>, Effort) {
    let (began, cpu_began_ns) = (Instant::now(), thread_cpu_ns());
    let done = run();
    let took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let cpu_ns = thread_cpu_ns().saturating_sub(cpu_began_ns);
    let took = Effort { cpu_ns, took_ns, ..Effort::default() };
    let effort = match done.map(|done| done.work) {
        Ok(Work::Bytes(bytes)) => Effort { bytes, ..took },
        Ok(Work::Fuel(fuel)) => Effort { fuel, ..took },
        Ok(Work::Images { coded_bytes, pixels }) => {
            Effort { coded_bytes, pixels, ..took }
        }
        Err(_) => took,
    };
    (done.map(|done| done.value), effort)
}
