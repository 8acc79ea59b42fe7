//! Programs that a host loads over NVMe/TCP, as WebAssembly: life cycle, and the programs of `firmware-sim/programs`.
#![cfg(feature = "wasm")]
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

#[path = "nvme/built.rs"]
mod built;
#[path = "nvme/device.rs"]
mod device;
#[path = "nvme/host.rs"]
mod host;
#[path = "nvme/module.rs"]
mod module;
#[path = "nvme/programs.rs"]
mod programs;

use bothends_nvme::Status;
use bothends_nvme::commands::{Activate, MemoryRange};

use device::{Device, content};
use host::Wish;
use programs::Host;

const RANGES: [MemoryRange; 2] = [
    MemoryRange { nsid: 2, from: 4096, bytes: 4096 },
    MemoryRange { nsid: 2, from: 65_536, bytes: 2048 },
];

fn host(device: &Device) -> Host {
    let (admin, io) = device.queues(Wish::PLAIN);
    Host { admin, io }
}

#[test]
fn a_program_is_loaded_runs_and_is_revoked() {
    let device = Device::new();
    let mut host = host(&device);
    let module = module::adds();
    host.write(4096, &1000_u64.to_le_bytes());
    let set = host.range_set(&RANGES);
    assert_eq!(host.execute(5, set, (20, 3)), Err(Status::NO_PROGRAM));
    host.load(5, &module, 50).unwrap();
    assert_eq!(host.execute(5, set, (20, 3)), Err(Status::NOT_ACTIVATED));
    assert_eq!(host.load(5, &module, 50), Err(Status::PROGRAM_IN_USE));
    host.activate(5, Activate::On).unwrap();
    host.activate(5, Activate::On).unwrap();
    assert_eq!(host.execute(5, set, (20, 3)), Ok(1023));
    assert_eq!(host.read(65_536, 8), 1020_u64.to_le_bytes());
    assert_eq!(host.unload(5), Err(Status::PROGRAM_IN_USE));
    host.activate(5, Activate::Off).unwrap();
    assert_eq!(host.execute(5, set, (20, 3)), Err(Status::NOT_ACTIVATED));
    host.unload(5).unwrap();
    assert_eq!(host.execute(5, set, (20, 3)), Err(Status::NO_PROGRAM));
    // The index is free again.
    host.load(5, &module, module.len()).unwrap();
    host.activate(5, Activate::On).unwrap();
    assert_eq!(host.execute(5, set, (0, 0)), Ok(1000));
}

#[test]
fn a_module_that_is_none_is_not_activated() {
    let device = Device::new();
    let mut host = host(&device);
    host.load(5, b"no module", 9).unwrap();
    assert_eq!(host.activate(5, Activate::On), Err(Status::PROGRAM_DATA));
    host.unload(5).unwrap();
}

#[test]
fn a_program_that_traps_costs_its_command_alone() {
    let device = Device::new();
    let mut host = host(&device);
    host.load(5, &module::Module::of(&[0x00]).bytes(), 4096).unwrap();
    host.load(6, &module::adds(), 4096).unwrap();
    host.activate(5, Activate::On).unwrap();
    host.activate(6, Activate::On).unwrap();
    let set = host.range_set(&RANGES);
    for n in 0..20 {
        assert_eq!(host.execute(5, set, (0, 0)), Err(Status::INTERNAL_ERROR));
        assert_eq!(host.execute(6, set, (n, 0)), Ok(n));
    }
}

/// A program that is not ours, as a vendor would write it.
#[test]
fn the_histogram_program_counts_bytes() {
    let Some(module) = built::module_of("histogram") else { return };
    let device = Device::new();
    let mut host = host(&device);
    let data = content(4096);
    host.write(4096, &data);
    let set = host.range_set(&RANGES);
    host.load(5, &module, 300).unwrap();
    host.activate(5, Activate::On).unwrap();
    assert_eq!(host.execute(5, set, (0, 0)), Ok(4096));
    let counts = |of: &[u8]| -> Vec<u8> {
        let count = |value| of.iter().filter(|byte| **byte == value).count() as u64;
        (0..=255).flat_map(|value| count(value).to_le_bytes()).collect()
    };
    assert_eq!(host.read(65_536, 2048), counts(&data));
    assert_eq!(host.execute(5, set, (100, 50)), Ok(50));
    assert_eq!(host.read(65_536, 2048), counts(&data[100..150]));
    assert_eq!(host.execute(5, set, (100, 4000)), Err(Status::INVALID_FIELD));
    let small = host.range_set(&[MemoryRange { nsid: 2, from: 0, bytes: 64 }]);
    assert_eq!(host.execute(5, small, (0, 0)), Err(Status::INVALID_FIELD));
}
