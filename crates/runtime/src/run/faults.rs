//! What has become of the faults that emulated devices were given: those that a run's devices tell of, and
//! those of devices that cannot be asked any more.

use bothends_csd::{DeviceStats, FaultCount};
use bothends_figures::InjectedFault;

use crate::devices::spec::DeviceSpec;
use crate::runtime::host::Runtime;

/// The faults of all devices; `said` is what each device has counted, where it could be asked.
pub(crate) fn injected(
    runtime: &Runtime,
    said: &[Option<DeviceStats>],
) -> Vec<InjectedFault> {
    let specs = &runtime.config.devices;
    let mut faults = Vec::new();
    for (device, said) in runtime.devices.iter().zip(said) {
        let name = device.shown_name();
        match said {
            Some(said) => faults.extend(said.faults.iter().map(|it| told(&name, it))),
            None => {
                let spec = specs.iter().find(|spec| spec.text() == device.name);
                let given = spec.map_or(&[][..], DeviceSpec::faults);
                faults.extend(given.iter().map(|fault| untold(&name, fault)));
            }
        }
    }
    faults
}

fn told(device: &str, count: &FaultCount) -> InjectedFault {
    let FaultCount { fault, struck, after, begun } = count;
    InjectedFault {
        device: device.to_owned(),
        fault: fault.clone(),
        struck: Some(*struck),
        after: *after,
        begun: Some(*begun),
    }
}

fn untold(device: &str, fault: &str) -> InjectedFault {
    let (device, fault) = (device.to_owned(), fault.to_owned());
    InjectedFault { device, fault, struck: None, after: None, begun: None }
}
