//! The NVMe/TCP target over loopback: programs, and the memory that they use.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

#[path = "nvme/device.rs"]
mod device;
#[path = "nvme/host.rs"]
mod host;

use std::sync::atomic::Ordering;

use bothends_nvme::commands::{
    Activate, Admin, Blocks, Execute, Memory, MemoryRange, ProgramLoad, RangeSets,
};
use bothends_nvme::{Data, Sqe, Status};

use device::{BLOCK, Device, content, eventually};
use host::{Queue, Wish, transport};

/// Has a set of ranges made, and says its number.
fn range_set(admin: &mut Queue, ranges: &[MemoryRange]) -> Result<u16, Status> {
    let data: Vec<u8> = ranges.iter().flat_map(MemoryRange::bytes).collect();
    let n_ranges = u8::try_from(ranges.len()).unwrap();
    let command = Admin::RangeSets(RangeSets::Create { n_ranges, set: 0 });
    let (cqe, _) = admin.run(command.entry(3, transport(data.len())), &data);
    match cqe.status {
        Status::SUCCESS => Ok(u16::try_from(cqe.result).unwrap()),
        status => Err(status),
    }
}

fn range(from: u64, bytes: u32) -> MemoryRange {
    MemoryRange { nsid: 2, from, bytes }
}

fn execute(program: u16, range_set: u16) -> Sqe {
    let command = Execute {
        program,
        range_set,
        n_ranges: 0,
        data_bytes: 0,
        parameter_1: 0x1_0000_0002,
        parameter_2: 0,
    };
    command.entry(3, Data::NONE)
}

#[test]
fn a_program_runs_on_ranges_of_memory() {
    let device = Device::new();
    let (mut admin, mut io) = device.queues(Wish::PLAIN);
    let data = content(1000);
    let write = Memory::Write { to: 0, bytes: 1000 }.entry(2, transport(1000));
    assert_eq!(io.run(write, &data).0.status, Status::SUCCESS);
    let set = range_set(&mut admin, &[range(0, 1000), range(4096, 8)]).unwrap();
    let (cqe, _) = io.run(execute(0, set), &[]);
    assert_eq!((cqe.status, cqe.result), (Status::SUCCESS, 0x1_0000_0002));
    let read = Memory::Read { from: 4096, bytes: 8 }.entry(2, transport(8));
    let sum = u64::from_le_bytes(io.run(read, &[]).1.try_into().unwrap());
    assert_eq!(sum, data.iter().map(|byte| u64::from(*byte)).sum::<u64>());
    let delete = |set| Admin::RangeSets(RangeSets::Delete { set }).entry(3, Data::NONE);
    assert_eq!(admin.run(delete(set), &[]).0.status, Status::SUCCESS);
    assert_eq!(admin.run(delete(set), &[]).0.status, Status::RANGE_SET_ID);
    assert_eq!(io.run(execute(0, set), &[]).0.status, Status::RANGE_SET_ID);
    assert_eq!(io.run(execute(5, 0), &[]).0.status, Status::NO_PROGRAM);
    assert_eq!(io.run(execute(99, 0), &[]).0.status, Status::PROGRAM_INDEX);
}

#[test]
fn wrong_ranges_are_refused_with_their_status() {
    let device = Device::new();
    let (mut admin, _io) = device.queues(Wish::PLAIN);
    let elsewhere = MemoryRange { nsid: 1, from: 0, bytes: 4 };
    let _kept = range_set(&mut admin, &[range(0, 100)]).unwrap();
    for (ranges, status) in [
        (vec![], Status::TOO_MANY_RANGES),
        (vec![range(4096, 4); 17], Status::TOO_MANY_RANGES),
        (vec![elsewhere], Status::MEMORY_NAMESPACE),
        (vec![range(4097, 4)], Status::RANGE_SET),
        (vec![range(8 << 20, 4)], Status::RANGE_SET),
        (vec![range(4096, 8), range(4100, 8)], Status::OVERLAPPING_RANGES),
        (vec![range(96, 8)], Status::OVERLAPPING_RANGES),
    ] {
        assert_eq!(range_set(&mut admin, &ranges).unwrap_err(), status, "{ranges:?}");
    }
}

/// Reads and keep-alives go on while a program runs, and what it uses cannot be taken away.
#[test]
fn a_slow_program_holds_up_nobody_and_keeps_what_it_uses() {
    let device = Device::new();
    let (mut admin, mut io) = device.queues(Wish::PLAIN);
    let set = range_set(&mut admin, &[range(0, 8)]).unwrap();
    let slow = io.send(execute(1, set), &[]);
    let read = Blocks::Read { first: 0, n_blocks: 1 }.entry(1, transport(BLOCK));
    assert_eq!(io.run(read, &[]).0.status, Status::SUCCESS);
    assert_eq!(
        admin.run(Admin::KeepAlive.entry(0, Data::NONE), &[]).0.status,
        Status::SUCCESS
    );
    let delete = Admin::RangeSets(RangeSets::Delete { set }).entry(3, Data::NONE);
    assert_eq!(admin.run(delete, &[]).0.status, Status::RANGE_SET_IN_USE);
    let off =
        Admin::Activation { program: 1, active: Activate::Off }.entry(3, Data::NONE);
    assert_eq!(admin.run(off, &[]).0.status, Status::PROGRAM_IN_USE);
    device.may_end.store(true, Ordering::Release);
    let (cqe, _) = io.complete(slow, &[]);
    assert_eq!((cqe.status, cqe.result), (Status::SUCCESS, u64::MAX));
    assert_eq!(admin.run(delete, &[]).0.status, Status::SUCCESS);
    assert_eq!(admin.run(off, &[]).0.status, Status::SUCCESS);
    assert_eq!(io.run(execute(1, 0), &[]).0.status, Status::NOT_ACTIVATED);
}

#[test]
fn what_a_host_made_ends_with_its_controller() {
    let device = Device::new();
    let (mut admin, mut io) = device.queues(Wish::PLAIN);
    range_set(&mut admin, &[range(0, 8)]).unwrap();
    let _slow = io.send(execute(1, 0), &[]);
    // The admin queue ends in the middle of an execution: the I/O queue goes with it.
    drop(admin);
    assert!(io.is_closed());
    device.may_end.store(true, Ordering::Release);
    eventually("all is free", || device.target.in_use() == (0, 0));
    let (mut admin, _io) = device.queues(Wish::PLAIN);
    range_set(&mut admin, &[range(0, 8)]).unwrap();
}

#[test]
fn programs_of_a_type_without_a_runtime_are_not_loaded() {
    let device = Device::new();
    let (mut admin, _io) = device.queues(Wish::PLAIN);
    // That of WebAssembly, which a build for it runs.
    let kind = if cfg!(feature = "wasm") { 0xc1 } else { 0xc0 };
    let load = |program, from, bytes| ProgramLoad::Load {
        program,
        kind,
        size: 8,
        id: 0,
        id_kind: 0,
        bytes,
        from,
    };
    for (command, status) in [
        (load(5, 0, 4), Status::PROGRAM_TYPE),
        (load(0, 0, 4), Status::NOT_DOWNLOADABLE),
        (load(99, 0, 4), Status::PROGRAM_INDEX),
        (load(5, 4, 4), Status::PROGRAM_INDEX),
        (load(5, 0, 0), Status::INVALID_FIELD),
        (ProgramLoad::Unload { program: 5 }, Status::NO_PROGRAM),
        (ProgramLoad::Unload { program: 0 }, Status::NOT_DOWNLOADABLE),
    ] {
        let entry = Admin::Program(command).entry(3, transport(4));
        assert_eq!(admin.run(entry, &[0; 4]).0.status, status, "{command:?}");
    }
}

/// Sets of one host are none for another, not even by their numbers.
#[test]
fn sets_belong_to_the_host_that_made_them() {
    let device = Device::new();
    let (mut admin, mut io) = device.queues(Wish::PLAIN);
    let set = range_set(&mut admin, &[range(0, 1000), range(4096, 8)]).unwrap();
    let wish = Wish { host: 8, ..Wish::PLAIN };
    let (mut other_admin, mut other) = device.queues(wish);
    assert_eq!(other.run(execute(0, set), &[]).0.status, Status::RANGE_SET_ID);
    let delete = Admin::RangeSets(RangeSets::Delete { set }).entry(3, Data::NONE);
    assert_eq!(other_admin.run(delete, &[]).0.status, Status::RANGE_SET_ID);
    assert_eq!(io.run(execute(0, set), &[]).0.status, Status::SUCCESS);
}
