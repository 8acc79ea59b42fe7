//! NVIDIA's accelerators: the energy counter of each, read through the management library, which
//! is loaded on demand.
//!
//! The counter is preferred to the power reading, which some boards sample only a quarter of the
//! time (arXiv 2312.02741). It is updated about ten times a second, so windows of less than a few
//! seconds say little. Boards before Volta and some virtual ones have no counter: there, power is
//! read and integrated, and the name of the domain says so.

use std::ffi::OsStr;
use std::time::Instant;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use crate::error::EnergyError;
use crate::meters::integral::Integral;
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
    began: Instant,
    domains: Vec<Domain>,
    gpus: Vec<Gpu>,
}

#[derive(Debug)]
struct Gpu {
    index: u32,
    says: Says,
}

/// What a board reports.
#[derive(Debug)]
enum Says {
    Energy { last_uj: u64 },
    Power(Integral),
}

impl NvmlMeter {
    /// Loads `library` and reads each board once. Boards that report neither energy nor power are
    /// left out.
    ///
    /// # Errors
    /// No library, no board that reports energy or power, or no permission.
    pub fn open(library: &OsStr) -> Result<Self, EnergyError> {
        let loaded = Nvml::builder().lib_path(library).init();
        let nvml = loaded.map_err(|error| refused("nvmlInit", &error))?;
        let n_gpus =
            nvml.device_count().map_err(|error| refused("nvmlDeviceGetCount", &error))?;
        let mut meter =
            Self { nvml, began: Instant::now(), domains: Vec::new(), gpus: Vec::new() };
        for index in 0..n_gpus {
            match meter.board(index) {
                Ok((name, says)) => {
                    meter.domains.push(Domain::measured(NAME, name, Part::Accelerator));
                    meter.gpus.push(Gpu { index, says });
                }
                // The next board may report it.
                Err(EnergyError::Absent { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if meter.gpus.is_empty() {
            let why = format!("none of {n_gpus} boards reports its energy or power");
            return Err(EnergyError::Absent { meter: NAME.to_owned(), why });
        }
        Ok(meter)
    }

    /// What a board reports, and the name of its domain.
    fn board(&self, index: u32) -> Result<(String, Says), EnergyError> {
        match energy_uj(&self.nvml, index) {
            Ok(last_uj) => Ok((format!("gpu-{index}"), Says::Energy { last_uj })),
            Err(EnergyError::Absent { .. }) => {
                let mut integral = Integral::default();
                integral.add(self.began.elapsed(), watts(&self.nvml, index)?);
                Ok((format!("gpu-{index}/power"), Says::Power(integral)))
            }
            Err(error) => Err(error),
        }
    }
}

/// The board's power, averaged by the board itself.
fn watts(nvml: &Nvml, index: u32) -> Result<f64, EnergyError> {
    let place = format!("nvmlDeviceGetPowerUsage of gpu-{index}");
    let device = nvml.device_by_index(index);
    let milliwatts = device.and_then(|device| device.power_usage());
    Ok(f64::from(milliwatts.map_err(|error| refused(&place, &error))?) / 1e3)
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
    let is_absent = matches!(
        error,
        NvmlError::DriverNotLoaded
            | NvmlError::NotSupported
            | NvmlError::FailedToLoadSymbol(_)
    );
    if is_absent {
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
        let Self { nvml, began, domains, gpus } = self;
        let mut counters = Vec::with_capacity(gpus.len());
        for (gpu, domain) in gpus.iter_mut().zip(domains) {
            let energy_uj = match &mut gpu.says {
                Says::Energy { last_uj } => {
                    risen(NAME, domain, last_uj, energy_uj(nvml, gpu.index)?)?
                }
                Says::Power(integral) => {
                    integral.add(began.elapsed(), watts(nvml, gpu.index)?)
                }
            };
            counters.push(Counter { energy_uj });
        }
        Ok(counters)
    }
}
