//! The NVMe/TCP target for long: hosts that come and go, queues that are filled, PDUs that are split, hosts that lie, a
//! model that checks each read, and mutated commands. `scripts/soak-nvme` runs this and records what came out.
//!
//! Arguments: connections, mutated commands, and commands that the model checks. Each part ends with as many descriptors,
//! threads and bytes as it began with, or the program ends with a panic that says which.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]
#![allow(clippy::print_stdout, reason = "what it is for")]

#[path = "../tests/nvme/device.rs"]
mod device;
#[path = "../../fuzz/src/nvme.rs"]
#[allow(dead_code, unreachable_pub, reason = "a module of another crate")]
#[allow(clippy::wildcard_enum_match_arm, reason = "a module of another crate")]
mod fuzz;
#[path = "../tests/nvme/host.rs"]
mod host;
#[path = "../tests/nvme/soak.rs"]
mod soak;
#[path = "../tests/nvme/virtual_time.rs"]
mod virtual_time;

use std::alloc::System;
use std::time::{Duration, Instant};

use bothends_nvme::commands::{
    Admin, Blocks, CopyToBlocks, Durable, Execute, Fabrics, Feature, Identify, Log,
    LogRequest, Memory, ProgramLoad, RangeSets, SourceFormat, Wide,
};
use bothends_nvme::pdu::Digest;
use bothends_nvme::{Data, Sqe};
use cap::Cap;

use device::Device;
use host::Wish;
use soak::{
    Model, Random, connects, depths, hostile, leaves_nothing, many_queues, splits,
};
use virtual_time::Day;

/// It counts the bytes that are owned.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);
/// More bytes than this may not be left of a part: what a thread leaves that has just ended, and no more for more
/// connections.
const MOST_LEFT: usize = 64 << 10;

/// Of virtual time, for each drive.
const HOURS: usize = 24;

fn main() {
    let numbers: Vec<usize> =
        std::env::args().skip(1).map(|text| text.parse().unwrap()).collect();
    let [n_connections, n_mutated, n_checked] = numbers[..] else {
        panic!("give three numbers: connections, mutated commands, checked commands");
    };
    println!("| part | of it | seconds |\n|---|---:|---:|");
    let device = Device::new();
    leaves_nothing(&device, || connects(&device, 100));
    part("connects and disconnects", n_connections, || {
        leaves_nothing(&device, || connects(&device, n_connections));
    });
    let rounds = n_connections.div_ceil(100);
    part("rounds of 64 queues", rounds, || {
        leaves_nothing(&device, || many_queues(&device, rounds));
    });
    part("hostile connections", n_connections / 2, || {
        leaves_nothing(&device, || hostile(&device, n_connections / 2));
    });
    part("PDUs split at every byte, rounds", rounds, || {
        leaves_nothing(&device, || {
            for _ in 0..rounds {
                splits(&device, Digest::Off);
                splits(&device, Digest::On);
            }
        });
    });
    let device = Device::new();
    leaves_nothing(&device, || connects(&device, 100));
    part("bursts of 1,024 commands", rounds, || {
        leaves_nothing(&device, || depths(&device, rounds));
    });
    let mut n_reads = 0;
    part("commands of all kinds, which a model follows", n_checked, || {
        leaves_nothing(&device, || {
            let (_admin, mut io) =
                device.queues(Wish { digests: Digest::On, ..Wish::PLAIN });
            n_reads = Model::new(7).run(&mut io, n_checked);
        });
    });
    println!("| of which reads that were compared | {n_reads} | |");
    let n_each = n_checked.next_multiple_of(HOURS);
    for preset in ["970-pro", "zn540", "newport"] {
        let mut came_to = String::new();
        part(&format!("hours of virtual time on {preset}"), HOURS, || {
            came_to = hours(preset, n_each);
        });
        println!("{came_to}");
    }
    let mut n_done = 0;
    part("mutated commands", n_mutated, || n_done = mutated(n_mutated as u64));
    println!("| of which a device took | {n_done} | |");
}

/// A day of virtual time on the model of a drive. What is allocated after its first hours stays as it is.
fn hours(preset: &str, n_commands: usize) -> String {
    let (mut day, mut model) = (Day::begin(preset), Model::new(11));
    let (mut owned, mut n_reads) = (0, 0);
    for hour in 0..HOURS {
        n_reads += day.pass(Duration::from_secs(3600), n_commands / HOURS, &mut model);
        if hour == HOURS / 4 {
            owned = ALLOCATOR.allocated();
        }
    }
    let grown = ALLOCATOR.allocated().saturating_sub(owned);
    assert!(grown <= MOST_LEFT, "{preset}: {grown} bytes more than at first");
    let (time, joules) = day.used();
    assert!(day.longest < Duration::from_secs(1), "{preset}: {:?}", day.longest);
    format!(
        "| of which reads that were compared; {:.2} W on average; {:.1} ms at most for 32 commands | {n_reads} | |",
        joules / time.as_secs_f64(),
        day.longest.as_secs_f64() * 1e3
    )
}

fn part(name: &str, n: usize, work: impl FnOnce()) {
    let (began, owned) = (Instant::now(), ALLOCATOR.allocated());
    work();
    let left = ALLOCATOR.allocated().saturating_sub(owned);
    assert!(left <= MOST_LEFT, "{name}: {left} bytes are left");
    println!("| {name} | {n} | {:.1} |", began.elapsed().as_secs_f64());
}

/// Has at least `n` commands taken: valid ones of all kinds of which some bits are changed, and bytes.
fn mutated(n: u64) -> u64 {
    let valid = valid();
    let mut random = Random(0x0bad_5eed);
    let mut n_done = 0;
    while n_done < n {
        let mut input = vec![random.next().to_le_bytes()[0]];
        for _ in 0..64 {
            let [which, kind, n_changes, ..] = random.next().to_le_bytes();
            input.push(which);
            let mut part = [0; 95];
            part.fill_with(|| random.next().to_le_bytes()[0]);
            if kind % 8 != 0 {
                part[..64].copy_from_slice(&valid[random.below(valid.len())].0);
                for _ in 0..n_changes % 4 {
                    part[random.below(64)] ^= 1 << random.below(8);
                }
            }
            input.extend(part);
        }
        n_done += fuzz::nvme_commands(&input);
    }
    n_done
}

/// A command of each kind.
fn valid() -> Vec<Sqe> {
    let place = Data::Transport { length: 4096 };
    let capsule = Data::InCapsule { offset: 0, length: 32 };
    let mut own = vec![
        Blocks::Read { first: 3, n_blocks: 1 }.entry(1, place),
        Blocks::Write { first: 3, n_blocks: 1, durable: Durable::Now }.entry(1, place),
        Blocks::Flush.entry(1, Data::NONE),
        Blocks::Copy(CopyToBlocks {
            first: 1,
            n_sources: 1,
            format: SourceFormat::Bytes,
        })
        .entry(1, capsule),
        Memory::Read { from: 0, bytes: 4096 }.entry(2, place),
        Memory::Write { to: 0, bytes: 4096 }.entry(2, place),
        Memory::Fill { from: 64, bytes: 64 }.entry(2, Data::NONE),
        Memory::Copy { bytes: 4096, to: 0, n_sources: 1, format: SourceFormat::Blocks2 }
            .entry(2, capsule),
        Execute {
            program: 0,
            range_set: 1,
            n_ranges: 0,
            data_bytes: 0,
            parameter_1: 0,
            parameter_2: 0,
        }
        .entry(3, Data::NONE),
        Admin::AwaitEvent.entry(0, Data::NONE),
        Admin::KeepAlive.entry(0, Data::NONE),
        Admin::Abort { queue: 0, id: 5 }.entry(0, Data::NONE),
        Admin::SetFeature { feature: Feature::Events, value: 2 }.entry(0, Data::NONE),
        Admin::SetFeature { feature: Feature::Temperature, value: 300 }
            .entry(0, Data::NONE),
        Admin::GetFeature { feature: Feature::Queues, select: 0 }.entry(0, Data::NONE),
        Admin::RangeSets(RangeSets::Create { n_ranges: 1, set: 0 }).entry(3, capsule),
        Admin::RangeSets(RangeSets::Delete { set: 1 }).entry(3, Data::NONE),
        Admin::Program(ProgramLoad::Unload { program: 1 }).entry(3, Data::NONE),
        Fabrics::PropertySet { offset: 0x14, wide: Wide::No, value: 0x0046_0061 }.entry(),
        Fabrics::PropertySet { offset: 0x14, wide: Wide::No, value: 0x0046_0060 }.entry(),
        Fabrics::PropertyGet { offset: 0, wide: Wide::Yes }.entry(),
        Fabrics::Connect { queue: 0, size: 31, attributes: 0, keep_alive_ms: 0 }.entry(),
        Fabrics::Disconnect.entry(),
    ];
    for structure in [0, 1, 2, 3, 5, 6, 7, 8, 0x1c] {
        own.push(Admin::Identify(Identify::of(structure, 1)).entry(0, place));
    }
    for log in Log::ALL {
        own.push(Admin::GetLog(LogRequest::of(log, 4096)).entry(0, place));
    }
    own
}
