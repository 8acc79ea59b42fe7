//! The NVMe/TCP target over loopback: aborts, asynchronous events, resets and shutdown.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

#[path = "nvme/device.rs"]
mod device;
#[path = "nvme/host.rs"]
mod host;

use std::sync::atomic::Ordering;

use bothends_nvme::commands::{
    Admin, Blocks, Durable, Event, Execute, Fabrics, Feature, Log, LogRequest,
    MemoryRange, RangeSets, Wide,
};
use bothends_nvme::logs::of_discovered;
use bothends_nvme::{Data, Sqe, Status};

use device::{BLOCK, Device, LOOKS, content, eventually};
use host::{NAME, Queue, Wish, transport};

/// Temperature threshold: type 1h, information 01h, log 02h.
const TEMPERATURE: u64 = 0x02_01_01;

fn execute(range_set: u16) -> Sqe {
    execute_with(range_set, 0)
}

fn execute_with(range_set: u16, parameter_1: u64) -> Sqe {
    let command = Execute {
        program: 1,
        range_set,
        n_ranges: 0,
        data_bytes: 0,
        parameter_1,
        parameter_2: 0,
    };
    command.entry(3, Data::NONE)
}

fn abort(queue: u16, id: u16) -> Sqe {
    Admin::Abort { queue, id }.entry(0, Data::NONE)
}

/// Says a command without data, which has to succeed, and gives its result.
fn result(queue: &mut Queue, entry: Sqe) -> u64 {
    let (cqe, _) = queue.run(entry, &[]);
    assert_eq!(cqe.status, Status::SUCCESS, "{entry:?}");
    cqe.result
}

fn range_set(admin: &mut Queue) -> u16 {
    let data = MemoryRange { nsid: 2, from: 0, bytes: 8 }.bytes();
    let command = Admin::RangeSets(RangeSets::Create { n_ranges: 1, set: 0 });
    let (cqe, _) = admin.run(command.entry(3, transport(data.len())), &data);
    assert_eq!(cqe.status, Status::SUCCESS);
    u16::try_from(cqe.result).unwrap()
}

fn configure(value: u32) -> Sqe {
    Fabrics::PropertySet { offset: 0x14, wide: Wide::No, value: value.into() }.entry()
}

fn status(admin: &mut Queue) -> u64 {
    result(admin, Fabrics::PropertyGet { offset: 0x1c, wide: Wide::No }.entry())
}

fn set(feature: Feature, value: u32) -> Sqe {
    Admin::SetFeature { feature, value }.entry(0, Data::NONE)
}

/// Reads the SMART log, and says whether it warns of the temperature.
fn warns(admin: &mut Queue, event: Event) -> bool {
    let log = LogRequest { event, ..LogRequest::of(Log::Smart, 512) };
    let (cqe, data) = admin.run(Admin::GetLog(log).entry(0, transport(512)), &[]);
    assert_eq!(cqe.status, Status::SUCCESS);
    data[0] & 2 != 0
}

/// Two programs run on the two cores, and a third waits: that one is aborted, and no other.
#[test]
fn an_execution_that_waits_is_aborted_and_one_that_runs_is_not() {
    let device = Device::new();
    let (mut admin, mut io) = device.queues(Wish::PLAIN);
    let running = [io.send(execute(0), &[]), io.send(execute(0), &[])];
    eventually("both run", || device.n_begun.load(Ordering::Acquire) == 2);
    let set = range_set(&mut admin);
    let waits = io.send(execute(set), &[]);
    let read = Blocks::Read { first: 0, n_blocks: 1 }.entry(1, transport(BLOCK));
    // Answered behind it: it has been taken.
    assert_eq!(io.run(read, &[]).0.status, Status::SUCCESS);
    let delete = Admin::RangeSets(RangeSets::Delete { set }).entry(3, Data::NONE);
    assert_eq!(admin.run(delete, &[]).0.status, Status::RANGE_SET_IN_USE);

    assert_eq!(result(&mut admin, abort(1, waits)), 0);
    assert_eq!(io.complete(waits, &[]).0.status, Status::ABORT_REQUESTED);
    assert_eq!(admin.run(delete, &[]).0.status, Status::SUCCESS);
    for (queue, id) in [(1, running[0]), (1, waits), (1, 999), (7, waits), (0, 999)] {
        assert_eq!(result(&mut admin, abort(queue, id)), 1, "{queue} {id}");
    }

    // Its identifier is free for another, which the end of the aborted one leaves alone.
    io.send_as(waits, execute(0));
    device.may_end.store(true, Ordering::Release);
    let mut ended: Vec<u16> = (0..3)
        .map(|_| {
            let cqe = io.next_of_reads().unwrap();
            assert_eq!(cqe.status, Status::SUCCESS);
            cqe.id
        })
        .collect();
    ended.sort_unstable();
    assert_eq!(ended, [running[0], running[1], waits]);
    assert_eq!(device.n_begun.load(Ordering::Acquire), 3);
}

/// Both cores run what nobody has asked to end, and whoever waits behind it.
fn busy(device: &Device) -> (Queue, Queue) {
    let (admin, mut io) = device.queues(Wish { host: 99, ..Wish::PLAIN });
    io.send(execute(0), &[]);
    io.send(execute(0), &[]);
    eventually("both run", || device.n_begun.load(Ordering::Acquire) == 2);
    (admin, io)
}

#[test]
fn a_program_that_runs_ends_when_it_is_aborted_and_looks() {
    let device = Device::new();
    let (mut admin, mut io) = device.queues(Wish::PLAIN);
    let runs = io.send(execute_with(0, LOOKS), &[]);
    eventually("it runs", || device.n_begun.load(Ordering::Acquire) == 1);
    assert_eq!(result(&mut admin, abort(1, runs)), 1, "not at once");
    assert_eq!(io.complete(runs, &[]).0.status, Status::ABORT_REQUESTED);
}

/// Or a host that comes and goes has all cores for itself.
#[test]
fn a_program_that_runs_ends_with_its_queue_and_its_controller() {
    let device = Device::new();
    let (mut admin, id) = Queue::admin(device.at(), Wish::PLAIN, NAME);
    let set = range_set(&mut admin);
    let delete = Admin::RangeSets(RangeSets::Delete { set }).entry(3, Data::NONE);
    let run = |n: u16| {
        let mut io = Queue::io(device.at(), Wish::PLAIN, id, n);
        io.send(execute_with(set, LOOKS), &[]);
        eventually("it runs", || {
            device.n_begun.load(Ordering::Acquire) == usize::from(n)
        });
        io
    };
    drop(run(1));
    let _io = run(2);
    // It ends the queue alone: what the second runs is still there.
    assert_eq!(admin.run(delete, &[]).0.status, Status::RANGE_SET_IN_USE);
    result(&mut admin, configure(0x0046_0060));
    result(&mut admin, configure(0x0046_0061));
    // The range is free once both have ended.
    let data = MemoryRange { nsid: 2, from: 0, bytes: 8 }.bytes();
    let create = Admin::RangeSets(RangeSets::Create { n_ranges: 1, set: 0 });
    let create = create.entry(3, transport(data.len()));
    let admin = std::cell::RefCell::new(admin);
    eventually("the range is free", || {
        admin.borrow_mut().run(create, &data).0.status == Status::SUCCESS
    });
}

#[test]
fn what_waits_for_a_core_ends_with_its_queue() {
    let device = Device::new();
    let _busy = busy(&device);
    let (mut admin, mut io) = device.queues(Wish::PLAIN);
    let set = range_set(&mut admin);
    io.send(execute(set), &[]);
    let read = Blocks::Read { first: 0, n_blocks: 1 }.entry(1, transport(BLOCK));
    let behind = io.send(read, &[]);
    assert_eq!(io.next_of_reads().unwrap_err().0, behind);
    drop(io);
    let delete = Admin::RangeSets(RangeSets::Delete { set }).entry(3, Data::NONE);
    let admin = std::cell::RefCell::new(admin);
    eventually("the set is free", || {
        admin.borrow_mut().run(delete, &[]).0.status == Status::SUCCESS
    });
    device.may_end.store(true, Ordering::Release);
}

/// However often a host comes, leaves something behind for the cores, and goes.
#[test]
fn hosts_that_have_gone_keep_no_socket_open() {
    let device = Device::new();
    let _busy = busy(&device);
    let n_open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = n_open();
    for _ in 0..300 {
        let (_admin, mut io) = device.queues(Wish::PLAIN);
        io.send(execute(0), &[]);
        let read = Blocks::Read { first: 0, n_blocks: 1 }.entry(1, transport(BLOCK));
        let behind = io.send(read, &[]);
        assert_eq!(io.next_of_reads().unwrap_err().0, behind);
    }
    eventually("they are gone", || device.target.in_use() == (1, 2));
    // The other tests have some open, too.
    assert!(n_open() < before + 200, "{} and {before} before", n_open());
    device.may_end.store(true, Ordering::Release);
}

#[test]
fn a_number_of_a_queue_is_given_once() {
    let device = Device::new();
    let (_admin, id) = Queue::admin(device.at(), Wish::PLAIN, NAME);
    let first = Queue::io(device.at(), Wish::PLAIN, id, 1);
    let connect = |n| {
        let mut io = Queue::open(device.at(), Wish::PLAIN);
        io.connect((n, 31), Wish::PLAIN, id, NAME).0.status
    };
    assert_eq!(connect(1), Status::COMMAND_SEQUENCE);
    assert_eq!(connect(2), Status::SUCCESS);
    drop(first);
    eventually("the number is free", || connect(1) == Status::SUCCESS);
}

#[test]
fn a_request_for_an_event_is_aborted() {
    let device = Device::new();
    let (mut admin, _io) = device.queues(Wish::PLAIN);
    let await_event = Admin::AwaitEvent.entry(0, Data::NONE);
    let awaits = admin.send(await_event, &[]);
    let asked = admin.send(abort(0, awaits), &[]);
    assert_eq!(admin.complete(awaits, &[]).0.status, Status::ABORT_REQUESTED);
    assert_eq!(admin.complete(asked, &[]).0.result, 0);
    assert_eq!(result(&mut admin, abort(0, awaits)), 1);
    // There is room for four again, and the identifier is free.
    for id in [awaits, 101, 102, 103] {
        admin.send_as(id, await_event);
    }
    let (refused, _) = admin.run(await_event, &[]);
    assert_eq!(refused.status, Status::EVENT_LIMIT);
}

#[test]
fn a_temperature_beyond_its_threshold_is_told_once_until_the_log_is_read() {
    let device = Device::new();
    let (mut admin, _io) = device.queues(Wish::PLAIN);
    let warm = |kelvin| device.target.subsystem().set_temperature(kelvin);
    let await_event = Admin::AwaitEvent.entry(0, Data::NONE);
    // Nobody has asked to be told.
    let first = admin.send(await_event, &[]);
    warm(350);
    assert!(warns(&mut admin, Event::Clear));
    warm(310);
    assert!(!warns(&mut admin, Event::Clear));

    result(&mut admin, set(Feature::Events, 2));
    let get = Admin::GetFeature { feature: Feature::Events, select: 0 };
    assert_eq!(result(&mut admin, get.entry(0, Data::NONE)), 2);
    warm(343);
    let (told, _) = admin.complete(first, &[]);
    assert_eq!((told.status, told.result), (Status::SUCCESS, TEMPERATURE));

    // Not again before the log is read, and not if that is to leave the event as it is.
    let second = admin.send(await_event, &[]);
    warm(310);
    warm(350);
    assert!(warns(&mut admin, Event::Retain));
    warm(310);
    warm(350);
    assert!(warns(&mut admin, Event::Clear));
    warm(310);
    warm(350);
    assert_eq!(admin.complete(second, &[]).0.result, TEMPERATURE);
    warns(&mut admin, Event::Clear);

    // What nobody awaits is kept until somebody does.
    warm(310);
    warm(350);
    assert_eq!(result(&mut admin, await_event), TEMPERATURE);
}

#[test]
fn thresholds_are_those_that_the_host_sets() {
    let device = Device::new();
    let (mut admin, _io) = device.queues(Wish::PLAIN);
    result(&mut admin, set(Feature::Events, 2));
    let get = |dword| {
        Admin::GetFeature { feature: Feature::Temperature, select: 0 }
            .entry(0, Data::NONE)
            .with(11, dword)
    };
    assert_eq!(result(&mut admin, get(0)), 343);
    let under = 1 << 20;
    let awaits = admin.send(Admin::AwaitEvent.entry(0, Data::NONE), &[]);
    // 310 K is below it at once.
    let setting = admin.send(set(Feature::Temperature, under | 320), &[]);
    assert_eq!(admin.complete(awaits, &[]).0.result, TEMPERATURE);
    assert_eq!(admin.complete(setting, &[]).0.status, Status::SUCCESS);
    assert_eq!(result(&mut admin, get(under)), 320);
    for wrong in [2 << 20 | 300, 5 << 16 | 300] {
        let (refused, _) = admin.run(set(Feature::Temperature, wrong), &[]);
        assert_eq!(refused.status, Status::INVALID_FIELD);
    }
}

/// A reset ends the queues for I/O and what was made, and the host goes on from there.
#[test]
fn a_controller_that_is_disabled_starts_again() {
    let device = Device::new();
    let (mut admin, id) = Queue::admin(device.at(), Wish::PLAIN, NAME);
    let mut io = Queue::io(device.at(), Wish::PLAIN, id, 1);
    range_set(&mut admin);
    result(&mut admin, set(Feature::Events, 2));
    let awaits = admin.send(Admin::AwaitEvent.entry(0, Data::NONE), &[]);
    let reset = admin.send(configure(0x0046_0060), &[]);
    assert_eq!(admin.complete(awaits, &[]).0.status, Status::ABORTED_BY_DELETION);
    assert_eq!(admin.complete(reset, &[]).0.status, Status::SUCCESS);
    assert!(io.is_closed());
    assert_eq!(status(&mut admin), 0);
    let (refused, _) = admin.run(Admin::KeepAlive.entry(0, Data::NONE), &[]);
    assert_eq!(refused.status, Status::COMMAND_SEQUENCE);

    result(&mut admin, configure(0x0046_0061));
    assert_eq!(status(&mut admin), 1);
    let get = Admin::GetFeature { feature: Feature::Events, select: 0 };
    assert_eq!(result(&mut admin, get.entry(0, Data::NONE)), 0);
    let mut io = Queue::io(device.at(), Wish::PLAIN, id, 1);
    let read = Blocks::Read { first: 0, n_blocks: 1 }.entry(1, transport(BLOCK));
    assert!(io.run(read, &[]).1 == content(BLOCK));
    // The same range again: the set of before is gone.
    range_set(&mut admin);
}

#[test]
fn a_shutdown_completes_and_what_was_written_stays() {
    let device = Device::new();
    let (mut admin, id) = Queue::admin(device.at(), Wish::PLAIN, NAME);
    let mut io = Queue::io(device.at(), Wish::PLAIN, id, 1);
    let write = Blocks::Write { first: 5, n_blocks: 1, durable: Durable::OnFlush }
        .entry(1, transport(BLOCK));
    assert_eq!(io.run(write, &[0x77; BLOCK]).0.status, Status::SUCCESS);
    // Shutdown Notification 01b: normal. Linux reads the status until it is 10b.
    result(&mut admin, configure(0x0046_4061));
    assert_eq!(status(&mut admin), 0b1001);
    assert!(io.is_closed());
    let mut late = Queue::open(device.at(), Wish::PLAIN);
    let (refused, _) = late.connect((1, 31), Wish::PLAIN, id, NAME);
    assert_eq!(refused.status, Status::COMMAND_SEQUENCE, "it is shut down");
    drop((admin, late));
    eventually("all is free", || device.target.in_use() == (0, 0));
    let (_admin, mut io) = device.queues(Wish::PLAIN);
    let read = Blocks::Read { first: 5, n_blocks: 1 }.entry(1, transport(BLOCK));
    assert!(io.run(read, &[]).1 == [0x77; BLOCK]);
}

#[test]
fn discovery_tells_the_address_that_is_advertised() {
    let device = Device::advertised("192.0.2.7:0".parse().unwrap());
    let name = "nqn.2014-08.org.nvmexpress.discovery";
    let (mut admin, _) = Queue::admin(device.at(), Wish::PLAIN, name);
    let log = LogRequest::of(Log::Discovery, 2048);
    let (_, data) = admin.run(Admin::GetLog(log).entry(0, transport(2048)), &[]);
    let found = of_discovered(&data);
    let port = device.at().port();
    assert_eq!((found[0].address.as_str(), found[0].port), ("192.0.2.7", port));
}
