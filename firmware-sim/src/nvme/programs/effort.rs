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
        Ok(Work::Records { bytes, coded_bytes, pixels }) => {
            Effort { bytes, coded_bytes, pixels, ..took }
        }
        Err(_) => took,
    };
    (done.map(|done| done.value), effort)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is the report")]

    use super::*;
    use crate::{Demand, Drive, preset};

    /// They were modelled at the rate of a JPEG decoder: 20.9 ms.
    #[test]
    fn records_that_are_no_coded_images_take_their_bytes_at_the_rate_of_bytes() {
        let work = Work::Records { bytes: 150_528, coded_bytes: 0, pixels: 0 };
        let (value, effort) = effort(|| Ok(Done { value: 1, work }));
        assert_eq!(value, Ok(1));
        let mut drive = Drive::new(preset::load("newport").unwrap(), 8);
        let end_ns = drive.take(0, &Demand::Execute(effort)).end_ns;
        assert_eq!(end_ns, 301_056 + 100_000, "500 MB/s, and the link's latency");
    }
}
