//! NVIDIA's accelerators: the energy counter of each, by the management library, which is loaded
//! when it is asked for and not before.
//!
//! The counter is used and not the power, which some of these boards sample only in a quarter
//! of the time (arXiv 2312.02741). It moves about ten times a second, so windows below some
//! seconds say little.

use std::ffi::OsStr;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use crate::error::EnergyError;
use crate::meters::risen;
use crate::{Counter, Domain, Meter, Part};

const NAME: &str = "nvml";

/// The library that comes with the driver.
pub(crate) const LIBRARY: &str = "libnvidia-ml.so.1";

const REMEDY: &str = "let this user open /dev/nvidiactl and /dev/nvidia0, or give the \
    container the capability `utility`";

/// The boards of this machine.
#[derive(Debug)]
pub struct NvmlMeter {
    nvml: Nvml,
    domains: Vec<Domain>,
    gpus: Vec<Gpu>,
}

#[derive(Debug)]
struct Gpu {
    index: u32,
    last_uj: u64,
}

impl NvmlMeter {
    /// Loads `library` and reads each board's counter once. Boards without a counter (before
    /// Volta) are left out.
    ///
    /// # Errors
    /// No library, no board with a counter, or no permission.
    pub fn open(library: &OsStr) -> Result<Self, EnergyError> {
        let loaded = Nvml::builder().lib_path(library).init();
        let nvml = loaded.map_err(|error| refused("nvmlInit", &error))?;
        let n_gpus =
            nvml.device_count().map_err(|error| refused("nvmlDeviceGetCount", &error))?;
        let mut domains = Vec::new();
        let mut gpus = Vec::new();
        for index in 0..n_gpus {
            match energy_uj(&nvml, index) {
                Ok(last_uj) => {
                    let name = format!("gpu-{index}");
                    domains.push(Domain::measured(NAME, name, Part::Accelerator));
                    gpus.push(Gpu { index, last_uj });
                }
                // The next board may have one.
                Err(EnergyError::Absent { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if gpus.is_empty() {
            let why = format!(
                "none of {n_gpus} boards has an energy counter (Volta and newer)"
            );
            return Err(EnergyError::Absent { meter: NAME.to_owned(), why });
        }
        Ok(Self { nvml, domains, gpus })
    }
}

fn energy_uj(nvml: &Nvml, index: u32) -> Result<u64, EnergyError> {
    let place = format!("nvmlDeviceGetTotalEnergyConsumption of gpu-{index}");
    let device = nvml.device_by_index(index);
    let energy_mj = device.and_then(|device| device.total_energy_consumption());
    Ok(energy_mj.map_err(|error| refused(&place, &error))?.saturating_mul(1000))
}

/// What the library's error means for us.
fn refused(place: &str, error: &NvmlError) -> EnergyError {
    let (meter, place) = (NAME.to_owned(), place.to_owned());
    if matches!(error, NvmlError::NoPermission) {
        return EnergyError::Denied { meter, place, remedy: REMEDY };
    }
    if matches!(error, NvmlError::GpuLost) {
        return EnergyError::Gone { meter, place };
    }
    if matches!(error, NvmlError::LibloadingError(_)) {
        let why = format!("{LIBRARY} cannot be loaded; is NVIDIA's driver installed?");
        return EnergyError::Absent { meter, why };
    }
    if matches!(error, NvmlError::DriverNotLoaded | NvmlError::NotSupported) {
        let why = format!("{place}: {error}");
        return EnergyError::Absent { meter, why };
    }
    EnergyError::Library { meter, place, said: error.to_string() }
}

impl Meter for NvmlMeter {
    fn name(&self) -> &str {
        NAME
    }

    fn domains(&self) -> &[Domain] {
        &self.domains
    }

    fn read(&mut self) -> Result<Vec<Counter>, EnergyError> {
        let Self { nvml, domains, gpus } = self;
        let mut counters = Vec::with_capacity(gpus.len());
        for (gpu, domain) in gpus.iter_mut().zip(domains) {
            let now_uj = energy_uj(nvml, gpu.index)?;
            let energy_uj = risen(NAME, domain, &mut gpu.last_uj, now_uj)?;
            counters.push(Counter { energy_uj });
        }
        Ok(counters)
    }
}
