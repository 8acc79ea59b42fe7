//! The NVMe/TCP target with modelled times: answers come at their times and not before, none waits for
//! another's, and the logs tell what the model says.
//!
//! What answers cost in wall-clock time is measured by `scripts/drive-models`, not here.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

#[path = "nvme/device.rs"]
mod device;
#[path = "nvme/host.rs"]
mod host;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::{Duration, Instant};

use bothends_firmware_sim::config::DeviceConfig;
use bothends_firmware_sim::media::Blocks as Run;
use bothends_firmware_sim::{Demand, Drive};
use bothends_nvme::commands::{
    Admin, BlockSource, Blocks, Execute, FastOnly, Log, LogRequest, Memory, MemoryRange,
    SourceFormat,
};
use bothends_nvme::{Data, Sqe, Status};

use device::{BLOCK, Device, content, eventually};
use host::{Queue, Wish, transport};

/// A drive with one latency, and cores on which programs pass over a megabyte per second.
fn preset(latency_ms: u32, media: Option<&str>) -> String {
    let flat = format!(
        r#""model": "flat", "latency": {{ "value": {latency_ms}, "unit": "ms", "source": "x" }},
           "bandwidth": {{ "value": 1, "unit": "GB/s", "source": "x" }}"#
    );
    let media = media.unwrap_or(&flat);
    let one = |value: f64, unit: &str| {
        format!(r#"{{ "value": {value}, "unit": "{unit}", "source": "x" }}"#)
    };
    format!(
        r#"{{ "name": "test", "about": "a test", "media": {{ {media} }},
        "compute": {{ "model": "cores", "cores": {}, "relative_time": {} }},
        "link": {{ "model": "instant" }},
        "power": {{ "idle": {}, "media_active": {}, "compute_active": {}, "link_active": {} }},
        "work": {{ "fuel": {}, "bytes": {}, "coded_bytes": {}, "pixels": {} }} }}"#,
        one(1.0, "1"),
        one(1.0, "x"),
        one(5.0, "W"),
        one(1.0, "W"),
        one(1.0, "W"),
        one(1.0, "W"),
        one(1.0, "M/s"),
        one(1.0, "MB/s"),
        one(1.0, "MB/s"),
        one(1.0, "Mpx/s"),
    )
}

fn read(first: u64, n_blocks: u32) -> Sqe {
    Blocks::Read { first, n_blocks }.entry(1, transport(n_blocks as usize * BLOCK))
}

fn memory_read(bytes: u32) -> Sqe {
    Memory::Read { from: 0, bytes }.entry(2, transport(bytes as usize))
}

#[test]
fn a_read_takes_its_time_and_has_its_data() {
    let device = Device::paced(&preset(30, None));
    let (_admin, mut io) = device.queues(Wish::PLAIN);
    let began = Instant::now();
    let (cqe, data) = io.run(read(3, 4), &[]);
    assert!(began.elapsed() >= Duration::from_millis(30), "{:?}", began.elapsed());
    assert_eq!(cqe.status, Status::SUCCESS);
    assert!(data == content(512 * BLOCK)[3 * BLOCK..][..4 * BLOCK]);
    // What is refused costs nothing, and is not counted.
    assert_eq!(io.run(read(512, 1), &[]).0.status, Status::LBA_OUT_OF_RANGE);
    let lateness = device.target.lateness().unwrap();
    assert_eq!(lateness.n_answers, 1);
    assert!(lateness.sum_ns == lateness.worst_ns && lateness.n_late <= 1);
}

#[test]
fn no_command_waits_for_another_and_none_is_waited_for_at_the_end() {
    let device = Device::paced(&preset(10_000, None));
    let (_admin, mut io) = device.queues(Wish::PLAIN);
    let slow = io.send(read(0, 1), &[]);
    assert_eq!(io.data(slow).len(), 4096, "its data do not wait for its completion");
    let id = io.send(memory_read(64), &[]);
    assert_eq!(io.complete(id, &[]).0.status, Status::SUCCESS, "it overtakes the read");
    let began = Instant::now();
    drop(io);
    drop(device);
    assert!(began.elapsed() < Duration::from_secs(9), "the end waits for a read");
}

#[test]
fn a_host_that_does_not_take_its_data_is_not_read_from_and_can_leave() {
    let device = Device::paced(&preset(10_000, None));
    let (admin, mut io) = device.queues(Wish::PLAIN);
    // 64 times 1 MiB, more than the sockets hold.
    for _ in 0..64 {
        io.send(read(0, 256), &[]);
    }
    drop((io, admin));
    eventually("its connections end", || device.target.in_use() == (0, 0));
}

#[test]
fn the_end_does_not_wait_for_a_host_that_does_not_take_its_data() {
    let device = Device::paced(&preset(10_000, None));
    let (_admin, mut io) = device.queues(Wish::PLAIN);
    let ids: Vec<u16> = (0..64).map(|_| io.send(read(0, 256), &[])).collect();
    let first = io.data(ids[0]);
    assert!(!first.is_empty(), "its data are under way");
    let began = Instant::now();
    drop(device);
    assert!(began.elapsed() < Duration::from_secs(9), "the end waits for the host");
}

#[test]
fn an_execution_takes_the_time_of_its_work() {
    let device = Device::paced(&preset(0, None));
    let (_admin, mut io) = device.queues(Wish::PLAIN);
    let range = |from, bytes| MemoryRange { nsid: 2, from, bytes };
    let data: Vec<u8> =
        [range(0, 50_000), range(65_536, 8)].iter().flat_map(|own| own.bytes()).collect();
    let command = Execute {
        program: 0,
        range_set: 0,
        n_ranges: 2,
        data_bytes: 64,
        parameter_1: 7,
        parameter_2: 0,
    };
    let began = Instant::now();
    let place = Data::InCapsule { offset: 0, length: 64 };
    let (cqe, _) = io.run(command.entry(3, place), &data);
    assert_eq!((cqe.status, cqe.result), (Status::SUCCESS, 7));
    assert!(began.elapsed() >= Duration::from_millis(50), "50 kB at 1 MB/s");
}

/// A completion has the head of its queue when it is sent, and entries before that are free for the host.
#[test]
fn an_answer_that_waited_has_the_head_of_its_queue_as_it_is_sent() {
    let device = Device::paced(&preset(1000, None));
    let (_admin, mut io) = device.queues(Wish::PLAIN);
    let program = Execute {
        program: 0,
        range_set: 0,
        n_ranges: 2,
        data_bytes: 64,
        parameter_1: 7,
        parameter_2: 0,
    };
    let range = |from, bytes| MemoryRange { nsid: 2, from, bytes };
    let data: Vec<u8> = [range(0, 1 << 20), range(2 << 20, 8)]
        .iter()
        .flat_map(|own| own.bytes())
        .collect();
    let place = Data::InCapsule { offset: 0, length: 64 };
    // A second each; then what is answered at once. All are there before anything is answered.
    let sent = [
        io.encoded(read(0, 1).with_id(1001), &[]),
        io.encoded(program.entry(3, place).with_id(1002), &data),
        io.encoded(memory_read(64).with_id(1003), &[]),
        io.encoded(memory_read(64).with_id(1004), &[]),
    ];
    io.raw(&sent.concat());
    let heads: HashMap<u16, u16> =
        (0..4).map(|_| io.next_completion()).map(|cqe| (cqe.id, cqe.sq_head)).collect();
    // Connect was the first entry.
    assert_eq!((heads[&1001], heads[&1002], heads[&1004]), (5, 5, 5), "{heads:?}");
}

#[test]
fn logs_tell_the_models_temperature_and_energy() {
    let device = Device::paced(&preset(0, None));
    let (mut admin, mut io) = device.queues(Wish::PLAIN);
    assert_eq!(io.run(read(0, 256), &[]).0.status, Status::SUCCESS);
    let mut log = |log, n: usize| {
        let asked = LogRequest::of(log, n as u64);
        let (cqe, bytes) = admin.run(Admin::GetLog(asked).entry(0, transport(n)), &[]);
        assert_eq!(cqe.status, Status::SUCCESS);
        bytes
    };
    let smart = log(Log::Smart, 512);
    assert_eq!(u16::from_le_bytes([smart[1], smart[2]]), 310, "kelvin");
    assert_eq!(smart[232], 1, "the first watt-hour has begun");
    let watts = |bytes: &[u8]| {
        let value = u32::from_le_bytes(bytes.try_into().unwrap());
        bothends_nvme::logs::unscaled_power(value).unwrap() as f64 / 1e6
    };
    // 5 W of idle power; a read of a millisecond has 1 W more.
    let interval = watts(&smart[240..244]);
    assert!((5.0..6.01).contains(&interval), "{interval} W");
    let power = log(Log::Power, 512);
    let average = watts(&power[40..44]);
    assert!((5.0..6.01).contains(&average), "{average} W");
}

/// One channel with two dies that take half a millisecond: slow enough for any machine.
const SLOW: &str = r#""model": "nand",
    "channels": { "value": 1, "unit": "1", "source": "x" },
    "dies_per_channel": { "value": 2, "unit": "1", "source": "x" },
    "page_size": { "value": 16, "unit": "KiB", "source": "x" },
    "transfer_unit": { "value": 16, "unit": "KiB", "source": "x" },
    "channel_bandwidth": { "value": 800, "unit": "MB/s", "source": "x" },
    "sense_4k_lsb": { "value": 500, "unit": "us", "source": "x" },
    "sense_4k_msb": { "value": 500, "unit": "us", "source": "x" },
    "sense_page_lsb": { "value": 500, "unit": "us", "source": "x" },
    "sense_page_msb": { "value": 500, "unit": "us", "source": "x" },
    "firmware_4k": { "value": 20, "unit": "us", "source": "x" },
    "firmware_large": { "value": 20, "unit": "us", "source": "x" }"#;

/// Commands per second and their mean latency in microseconds, with `depth` in flight, each sent after a pause.
fn measured(
    io: &mut Queue,
    (depth, n, pause): (usize, u64, Duration),
    command: impl Fn(u64) -> Sqe,
) -> (f64, f64) {
    nix::sys::prctl::set_timerslack(1000).unwrap();
    let mut sent = HashMap::new();
    let began = Instant::now();
    let mut sum = Duration::ZERO;
    for nth in 0..n + depth as u64 {
        if sent.len() == depth || (nth >= n && !sent.is_empty()) {
            let cqe = io.next_completion();
            assert_eq!(cqe.status, Status::SUCCESS);
            let at: Instant = sent.remove(&cqe.id).unwrap();
            sum += at.elapsed();
        }
        if nth < n {
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
            let at = Instant::now();
            sent.insert(io.send(command(nth), &[]), at);
        }
    }
    (n as f64 / began.elapsed().as_secs_f64(), sum.as_secs_f64() * 1e6 / n as f64)
}

/// The same in virtual time.
fn modelled(
    preset: &str,
    (depth, n): (usize, u64),
    demand: impl Fn(u64) -> Demand,
) -> (f64, f64) {
    let config = DeviceConfig::from_json("test", preset).unwrap();
    let mut drive = Drive::new(config, 512);
    let mut ends: BinaryHeap<Reverse<u64>> = (0..depth).map(|_| Reverse(0)).collect();
    let (mut sum_ns, mut last_ns) = (0, 0_u64);
    for nth in 0..n {
        let Reverse(at_ns) = ends.pop().unwrap();
        let end_ns = drive.take(at_ns, &demand(nth)).end_ns;
        ends.push(Reverse(end_ns));
        sum_ns += end_ns - at_ns;
        last_ns = last_ns.max(end_ns);
    }
    (n as f64 / (last_ns as f64 * 1e-9), sum_ns as f64 / 1000.0 / n as f64)
}

fn page(nth: u64) -> u64 {
    nth * 4 % 512
}

/// What commands to a drive of `preset` come to: in virtual time, in wall-clock time, and what the transport takes of that.
struct Row {
    depth: usize,
    n: u64,
    blocks: u32,
}

impl Row {
    fn measure(&self, preset: &str) -> String {
        let Self { depth, n, blocks } = *self;
        let device = Device::paced(preset);
        let (_admin, mut io) = device.queues(Wish::PLAIN);
        let first = |nth| if blocks == 1 { page(nth) } else { 0 };
        let demand = |nth| Demand::Read(Run { first: first(nth), n: blocks.into() });
        let (expected, expected_us) = modelled(preset, (depth, n), demand);
        let command = |nth| read(first(nth), blocks);
        let (got, got_us) = measured(&mut io, (depth, n, Duration::ZERO), command);
        // A busy device hides it.
        let transport_us =
            if depth > 1 { 0.0 } else { transport_us(n.min(1000), expected_us) };
        let net_us = got_us - transport_us;
        let late = device.target.lateness().unwrap();
        format!(
            "| QD{depth}, {} KiB | {expected:.1}/s, {expected_us:.1} us | {got:.1}/s, {got_us:.1} us, of which \
             {transport_us:.1} transport | {:+.1} % | \
             {} of {} later than 100 us, {:.0} us on average, {} us at most |",
            4 * blocks,
            100.0 * (net_us / expected_us - 1.0),
            late.n_late,
            late.n_answers,
            late.mean_ns() as f64 / 1000.0,
            late.worst_ns / 1000
        )
    }
}

/// What the transport takes for a command and its completion alone, with a pause before each as long as the modelled time,
/// in which threads and processors go to sleep. Data are on their way while the model waits, and take none of it.
fn transport_us(n: u64, pause_us: f64) -> f64 {
    let fast = Device::new();
    let (_admin, mut io) = fast.queues(Wish::PLAIN);
    let pause = Duration::from_secs_f64(pause_us * 1e-6);
    measured(&mut io, (1, n, pause), |_| Memory::Flush.entry(2, Data::NONE)).1
}

/// Paced against virtual time: prints the rows of docs/firmware-sim.md. A mean in wall-clock time is not
/// asserted in a test, for other work of the machine changes it.
#[test]
#[ignore = "scripts/drive-models runs it"]
fn measure_paced_against_virtual() {
    let preset = preset(0, Some(SLOW));
    for (depth, n, blocks) in
        [(1, 4000, 1_u32), (8, 12_000, 1), (32, 12_000, 1), (1, 300, 256), (8, 600, 256)]
    {
        println!("{}", Row { depth, n, blocks }.measure(&preset));
    }
}

/// A copy to memory is one command for the model, too.
#[test]
fn a_copy_to_memory_takes_the_time_of_the_media() {
    let device = Device::paced(&preset(30, None));
    let (_admin, mut io) = device.queues(Wish::PLAIN);
    let source = BlockSource { nsid: 1, first: 2, n_blocks: 1, fast_only: FastOnly::No };
    let data = source.bytes();
    let copy =
        Memory::Copy { bytes: 4096, to: 0, n_sources: 1, format: SourceFormat::Blocks2 };
    let began = Instant::now();
    let place = Data::InCapsule { offset: 0, length: 32 };
    assert_eq!(io.run(copy.entry(2, place), &data).0.status, Status::SUCCESS);
    assert!(began.elapsed() >= Duration::from_millis(30), "{:?}", began.elapsed());
    let read = io.run(memory_read(4096), &[]).1;
    assert!(read == content(512 * BLOCK)[2 * BLOCK..][..BLOCK]);
}
