//! The meters, a file for each: `rapl`, `perf`, `nvml`, `hwmon`, `command`, `device`. `sysfs` reads
//! the kernel's small files below a root that tests can set; `integral` turns power into energy.
//! They all fulfil the contract of [`crate::Meter`].

mod integral;
pub(crate) mod sysfs;

pub(crate) mod command;
pub(crate) mod device;
pub(crate) mod hwmon;
pub(crate) mod nvml;
pub(crate) mod perf;
pub(crate) mod rapl;

use crate::{Domain, EnergyError};

/// The value of an energy counter, unless it is below `last_uj`, its last one. Updates `last_uj`.
fn risen(
    meter: &str,
    domain: &Domain,
    last_uj: &mut u64,
    now_uj: u64,
) -> Result<u64, EnergyError> {
    let before = std::mem::replace(last_uj, now_uj);
    if now_uj < before {
        let (meter, domain) = (meter.to_owned(), domain.name.clone());
        return Err(EnergyError::WentBack { meter, domain, before, after: now_uj });
    }
    Ok(now_uj)
}
