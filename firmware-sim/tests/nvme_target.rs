//! The NVMe/TCP target over loopback: connecting, the three namespaces, and hosts that lie.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

#[path = "nvme/device.rs"]
mod device;
#[path = "nvme/host.rs"]
mod host;

use bothends_nvme::commands::{
    Admin, BlockSource, Blocks, ByteSource, ConnectData, CopyToBlocks, Durable, Fabrics,
    FastOnly, Feature, Identify, Log, LogRequest, Memory, Set, SourceFormat, Wide,
};
use bothends_nvme::identify::{
    BlockNamespace, Controller, MemoryNamespace, of_active, set_of,
};
use bothends_nvme::logs::{Effects, of_discovered};
use bothends_nvme::pdu::Digest;
use bothends_nvme::{Data, Sqe, Status};

use device::{BLOCK, Device, content, eventually};
use host::{NAME, Queue, Wish, transport};

#[test]
fn a_host_finds_three_namespaces() {
    let device = Device::new();
    let (mut admin, _) = Queue::admin(device.at(), Wish::PLAIN, NAME);
    let get = |offset, wide| Fabrics::PropertyGet { offset, wide }.entry();
    assert_eq!(admin.run(get(0x1c, Wide::No), &[]).0.result, 1);
    let capabilities = admin.run(get(0, Wide::Yes), &[]).0.result;
    assert_eq!((capabilities >> 43 & 1, capabilities & 0xffff), (1, 1023));

    let own =
        Controller::of(&admin.identify(Identify::of(Identify::CONTROLLER, 0)).unwrap());
    assert_eq!(
        (own.subsystem.as_str(), own.serial.as_str(), own.transfer),
        (NAME, "BE0", 8)
    );
    let active = admin.identify(Identify::of(Identify::ACTIVE, 0)).unwrap();
    assert_eq!(of_active(&active), [1, 2, 3]);
    for (nsid, set) in [(1, Set::Nvm), (2, Set::Memory), (3, Set::Programs)] {
        let own = admin.identify(Identify::of(Identify::DESCRIPTORS, nsid)).unwrap();
        assert_eq!(set_of(&own), Some(set));
        let ready = admin.identify(Identify::of(Identify::INDEPENDENT, nsid)).unwrap();
        assert_eq!(ready[14], 1);
        let log = LogRequest { set: set.id(), ..LogRequest::of(Log::Effects, 4096) };
        let (cqe, effects) = admin.run(Admin::GetLog(log).entry(0, transport(4096)), &[]);
        assert_eq!(cqe.status, Status::SUCCESS);
        assert!(Effects::has_io(&effects.try_into().unwrap(), 0x01));
    }
    let blocks = admin.identify(Identify::of(Identify::NAMESPACE, 1)).unwrap();
    let blocks = BlockNamespace::of(&blocks);
    assert_eq!((blocks.n_blocks, blocks.block_bytes), (512, 4096));
    let memory =
        admin.identify(Identify::of(Identify::OF_SET, 2).in_set(Set::Memory)).unwrap();
    assert_eq!(MemoryNamespace::of(&memory).bytes, 8 << 20);
    for (structure, nsid) in [(Identify::NAMESPACE, 2), (Identify::DESCRIPTORS, 9)] {
        let refused = admin.identify(Identify::of(structure, nsid));
        assert_eq!(refused.unwrap_err(), Status::INVALID_NAMESPACE);
    }
    assert_eq!(admin.identify(Identify::of(0x55, 1)).unwrap_err(), Status::INVALID_FIELD);
}

#[test]
fn discovery_tells_where_the_subsystem_is() {
    let device = Device::new();
    let name = "nqn.2014-08.org.nvmexpress.discovery";
    let (mut admin, _) = Queue::admin(device.at(), Wish::PLAIN, name);
    let log = LogRequest::of(Log::Discovery, 2048);
    let (cqe, data) = admin.run(Admin::GetLog(log).entry(0, transport(2048)), &[]);
    assert_eq!(cqe.status, Status::SUCCESS);
    let found = of_discovered(&data);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].name.as_str(), found[0].port), (NAME, device.at().port()));
    assert_eq!(found[0].address, "127.0.0.1");
}

#[test]
fn blocks_are_read_and_written_with_and_without_digests() {
    for digests in [Digest::Off, Digest::On] {
        for alignment in [0, 7] {
            let device = Device::new();
            let wish = Wish { digests, alignment, ..Wish::PLAIN };
            let (_admin, mut io) = device.queues(wish);
            let expected = content(512 * BLOCK);
            let read = |first: u64, n: u32| {
                Blocks::Read { first, n_blocks: n }
                    .entry(1, transport(n as usize * BLOCK))
            };
            for (first, n) in [(0_usize, 1_u32), (3, 8), (100, 256), (511, 1)] {
                let (cqe, data) = io.run(read(first as u64, n), &[]);
                assert_eq!(cqe.status, Status::SUCCESS);
                assert!(data == expected[first * BLOCK..][..n as usize * BLOCK]);
            }
            // Once in the capsule, once in PDUs of their own.
            let own = vec![0xab; BLOCK];
            for (first, place) in [
                (7, Data::InCapsule { offset: 0, length: 4096 }),
                (8, Data::Transport { length: 4096 }),
            ] {
                let write = Blocks::Write { first, n_blocks: 1, durable: Durable::Now }
                    .entry(1, place);
                assert_eq!(io.run(write, &own).0.status, Status::SUCCESS);
                assert_eq!(io.run(read(first, 1), &[]).1, own);
            }
            assert_eq!(io.run(read(512, 1), &[]).0.status, Status::LBA_OUT_OF_RANGE);
            assert_eq!(io.run(read(u64::MAX, 2), &[]).0.status, Status::LBA_OUT_OF_RANGE);
            let short = Blocks::Read { first: 0, n_blocks: 2 }.entry(1, transport(BLOCK));
            assert_eq!(io.run(short, &[]).0.status, Status::DATA_SGL_LENGTH);
        }
    }
}

#[test]
fn files_of_a_folder_are_blocks_that_are_only_read() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir_all(data.join("b")).unwrap();
    std::fs::write(data.join("a"), content(5000)).unwrap();
    std::fs::write(data.join("b/c"), content(100)).unwrap();
    let device = Device::of(&data, folder);
    let (_admin, mut io) = device.queues(Wish::PLAIN);
    let read = Blocks::Read { first: 0, n_blocks: 3 }.entry(1, transport(3 * BLOCK));
    let (cqe, read) = io.run(read, &[]);
    assert_eq!(cqe.status, Status::SUCCESS);
    assert_eq!(read[..5000], content(5000));
    assert!(read[5000..2 * BLOCK].iter().all(|byte| *byte == 0));
    assert_eq!(read[2 * BLOCK..][..100], content(100));
    let write = Blocks::Write { first: 0, n_blocks: 1, durable: Durable::OnFlush }
        .entry(1, transport(BLOCK));
    assert_eq!(io.run(write, &[0; BLOCK]).0.status, Status::READ_ONLY);
}

#[test]
fn long_reads_of_files_have_their_bytes_and_tell_of_missing_ones() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir_all(&data).unwrap();
    // The first ends within its block, the second where a block ends, with parts that files have as they are and others.
    let (first, second) = (content(70 * BLOCK + 5), content(64 * BLOCK));
    std::fs::write(data.join("a"), &first).unwrap();
    std::fs::write(data.join("b"), &second).unwrap();
    let mut all = first;
    all.resize(71 * BLOCK, 0);
    all.extend_from_slice(&second);
    let shorter = std::fs::File::options().write(true).open(data.join("b")).unwrap();
    let device = Device::of(&data, folder);
    let read = |from: usize, n: usize| {
        Blocks::Read { first: from as u64, n_blocks: u32::try_from(n).unwrap() }
            .entry(1, transport(n * BLOCK))
    };
    for digests in [Digest::Off, Digest::On] {
        let (_admin, mut io) = device.queues(Wish { digests, ..Wish::PLAIN });
        for (from, n) in [(0, 135), (0, 32), (1, 33), (39, 64), (70, 65), (71, 64)] {
            let (cqe, data) = io.run(read(from, n), &[]);
            assert_eq!(cqe.status, Status::SUCCESS);
            assert!(
                data == all[from * BLOCK..][..n * BLOCK],
                "{n} blocks from {from} on"
            );
        }
    }
    // Parts that are there may have gone by the time that others are found to be missing.
    shorter.set_len(40 << 10).unwrap();
    let (_admin, mut io) = device.queues(Wish::PLAIN);
    assert_eq!(io.run(read(71, 64), &[]).0.status, Status::READ_ERROR);
    assert_eq!(io.run(read(0, 135), &[]).0.status, Status::READ_ERROR);
    assert_eq!(io.run(read(0, 70), &[]).0.status, Status::SUCCESS);
}

/// Carries out a command to memory, and says its status and what it read.
fn memory(io: &mut Queue, command: Memory, data: &[u8]) -> (Status, Vec<u8>) {
    let n = if let Memory::Read { bytes, .. } = command {
        bytes as usize
    } else {
        data.len()
    };
    let (cqe, read) = io.run(command.entry(2, transport(n)), data);
    (cqe.status, read)
}

fn block(first: u64, n_blocks: u32) -> BlockSource {
    BlockSource { nsid: 1, first, n_blocks, fast_only: FastOnly::No }
}

fn bytes(from: u64, bytes: u32) -> ByteSource {
    ByteSource { nsid: 2, from, bytes, fast_only: FastOnly::No }
}

fn copy(bytes: u64, to: u64, n_sources: u32, format: SourceFormat) -> Memory {
    Memory::Copy { bytes, to, n_sources, format }
}

#[test]
fn memory_is_written_read_and_filled() {
    let device = Device::new();
    let (_admin, mut io) = device.queues(Wish::PLAIN);
    let big = content(1 << 20);
    let whole = u32::try_from(big.len()).unwrap();
    assert_eq!(
        memory(&mut io, Memory::Write { to: 4096, bytes: whole }, &big).0,
        Status::SUCCESS
    );
    assert!(memory(&mut io, Memory::Read { from: 4096, bytes: whole }, &[]).1 == big);
    assert_eq!(
        memory(&mut io, Memory::Fill { from: 4100, bytes: 8 }, &[]).0,
        Status::SUCCESS
    );
    let read = memory(&mut io, Memory::Read { from: 4096, bytes: 16 }, &[]).1;
    assert_eq!(read[..4], big[..4]);
    assert_eq!(read[4..12], [0; 8]);
    // Nothing is no error, and what is not there or not aligned is one.
    assert_eq!(
        memory(&mut io, Memory::Read { from: 0, bytes: 0 }, &[]).0,
        Status::SUCCESS
    );
    for (from, bytes) in [(2, 4), (0, 3), (8 << 20, 4), (u64::MAX - 3, 4)] {
        let refused = memory(&mut io, Memory::Read { from, bytes }, &[]);
        assert_eq!(refused.0, Status::INVALID_FIELD, "{from} {bytes}");
    }
}

#[test]
fn blocks_and_bytes_are_copied() {
    let device = Device::new();
    let (_admin, mut io) = device.queues(Wish::PLAIN);
    // Two runs of blocks, then a part of them.
    let sources = [block(2, 3).bytes(), block(300, 1).bytes()].concat();
    let copy =
        |bytes, to, n_sources, format| Memory::Copy { bytes, to, n_sources, format };
    let command = copy(4 * BLOCK as u64, 1 << 16, 2, SourceFormat::Blocks2);
    assert_eq!(memory(&mut io, command, &sources).0, Status::SUCCESS);
    let read = memory(&mut io, Memory::Read { from: 1 << 16, bytes: 16_384 }, &[]).1;
    let expected = content(512 * BLOCK);
    assert!(read[..3 * BLOCK] == expected[2 * BLOCK..5 * BLOCK]);
    assert!(read[3 * BLOCK..] == expected[300 * BLOCK..301 * BLOCK]);
    let bytes =
        |from, bytes| ByteSource { nsid: 2, from, bytes, fast_only: FastOnly::No };
    let command = copy(BLOCK as u64, 1 << 20, 1, SourceFormat::Bytes);
    assert_eq!(
        memory(&mut io, command, &bytes(1 << 16, 4096).bytes()).0,
        Status::SUCCESS
    );
    let read = memory(&mut io, Memory::Read { from: 1 << 20, bytes: 4096 }, &[]).1;
    assert!(read == expected[2 * BLOCK..3 * BLOCK]);

    // Back to blocks: NVM Copy from memory.
    let command = Blocks::Copy(CopyToBlocks {
        first: 9,
        n_sources: 1,
        format: SourceFormat::Bytes,
    });
    let source = bytes(1 << 20, 4096).bytes();
    assert_eq!(
        io.run(command.entry(1, transport(32)), &source).0.status,
        Status::SUCCESS
    );
    let read = Blocks::Read { first: 9, n_blocks: 1 }.entry(1, transport(BLOCK));
    assert!(io.run(read, &[]).1 == expected[2 * BLOCK..3 * BLOCK]);
}

#[test]
fn wrong_copies_are_refused_with_their_status() {
    let device = Device::new();
    let (_admin, mut io) = device.queues(Wish::PLAIN);
    // A wrong sum, a wrong source, an overlap, and one that must be fast.
    let fast = BlockSource { fast_only: FastOnly::Yes, ..block(0, 1) };
    for (command, data, status) in [
        (
            copy(8192, 0, 1, SourceFormat::Blocks2),
            block(0, 1).bytes(),
            Status::INVALID_FIELD,
        ),
        (
            copy(4096, 0, 1, SourceFormat::Blocks3),
            BlockSource { nsid: 2, ..block(0, 1) }.bytes(),
            Status::INCOMPATIBLE_NAMESPACE,
        ),
        (
            copy(4096, 0, 1, SourceFormat::Bytes),
            bytes(4092, 4096).bytes(),
            Status::OVERLAPPING_IO,
        ),
        (copy(4096, 0, 1, SourceFormat::Blocks2), fast.bytes(), Status::FAST_COPY),
        (
            copy(4096, 0, 1, SourceFormat::Blocks2),
            block(512, 1).bytes(),
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            copy(4096, 0, 2, SourceFormat::Blocks2),
            block(0, 1).bytes(),
            Status::DATA_SGL_LENGTH,
        ),
    ] {
        assert_eq!(memory(&mut io, command, &data).0, status, "{command:?}");
    }
}

#[test]
fn a_silent_host_is_given_up() {
    let device = Device::new();
    let wish = Wish { keep_alive_ms: 100, ..Wish::PLAIN };
    let (mut admin, mut io) = device.queues(wish);
    assert!(admin.is_closed());
    assert!(io.is_closed());
    eventually("all is free", || device.target.in_use() == (0, 0));
}

#[test]
fn hosts_do_not_take_each_others_controllers() {
    let device = Device::new();
    let (_admin, id) = Queue::admin(device.at(), Wish::PLAIN, NAME);
    let mut other = Queue::open(device.at(), Wish::PLAIN);
    let wish = Wish { host: 8, ..Wish::PLAIN };
    let (cqe, _) = other.connect((1, 31), wish, id, NAME);
    assert_eq!(cqe.status, Status::CONNECT_HOST);
    let (cqe, _) = other.connect((1, 31), wish, 999, NAME);
    assert_eq!(cqe.status, Status::CONNECT_PARAMETER);
    let (cqe, _) = other.connect((0, 31), wish, ConnectData::NEW, "nqn.elsewhere");
    assert_eq!(cqe.status, Status::CONNECT_PARAMETER);
    let (mut second, other_id) = Queue::admin(device.at(), wish, NAME);
    assert_ne!(id, other_id);
    assert!(second.identify(Identify::of(Identify::CONTROLLER, 0)).is_ok());
}

#[test]
fn what_may_not_come_first_is_refused() {
    let device = Device::new();
    let mut own = Queue::open(device.at(), Wish::PLAIN);
    let (cqe, _) = own.run(Admin::KeepAlive.entry(0, Data::NONE), &[]);
    assert_eq!(cqe.status, Status::COMMAND_SEQUENCE);
    // Connected, and not yet enabled.
    let (cqe, _) = own.connect((0, 31), Wish::PLAIN, ConnectData::NEW, NAME);
    let id = u16::try_from(cqe.result).unwrap();
    let (refused, _) = own.run(Admin::KeepAlive.entry(0, Data::NONE), &[]);
    assert_eq!(refused.status, Status::COMMAND_SEQUENCE);
    let mut io = Queue::open(device.at(), Wish::PLAIN);
    let (refused, _) = io.connect((1, 31), Wish::PLAIN, id, NAME);
    assert_eq!(refused.status, Status::COMMAND_SEQUENCE);
}

#[test]
fn hostile_pdus_end_their_connection_and_no_other() {
    let device = Device::new();
    let (mut admin, mut io) = device.queues(Wish::PLAIN);
    let cases: [(&str, Vec<u8>, (u16, u32)); 4] = [
        ("of no type", vec![0x55, 0, 24, 0, 24, 0, 0, 0], (1, 0)),
        ("of 4 GiB", vec![0x04, 0, 72, 72, 0xff, 0xff, 0xff, 0xff], (1, 4)),
        (
            "a second initialization",
            {
                let mut own = vec![0; 128];
                (own[2], own[4]) = (128, 128);
                own
            },
            (2, 0),
        ),
        (
            "data that nobody asked for",
            {
                let mut own = vec![0; 32];
                (own[0], own[1], own[2], own[3], own[4], own[16]) = (6, 4, 24, 24, 32, 8);
                own
            },
            (4, 0),
        ),
    ];
    for (what, bytes, codes) in cases {
        let mut liar = Queue::open(device.at(), Wish::PLAIN);
        liar.raw(&bytes);
        assert_eq!(liar.terminated(), codes, "{what}");
        assert!(liar.is_closed());
    }
    let read = Blocks::Read { first: 0, n_blocks: 1 }.entry(1, transport(BLOCK));
    assert_eq!(io.run(read, &[]).0.status, Status::SUCCESS);
    assert_eq!(
        admin.run(Admin::KeepAlive.entry(0, Data::NONE), &[]).0.status,
        Status::SUCCESS
    );
}

/// Of lengths that lie, none gets memory: they fail before that.
#[test]
fn lengths_beyond_what_is_agreed_on_fail_their_command() {
    let device = Device::new();
    let (_admin, mut io) = device.queues(Wish::PLAIN);
    let huge = Data::Transport { length: u32::MAX };
    for entry in [
        Blocks::Read { first: 0, n_blocks: 1 }.entry(1, huge),
        Blocks::Write { first: 0, n_blocks: 1, durable: Durable::OnFlush }.entry(1, huge),
        Memory::Write { to: 0, bytes: 4 }.entry(2, huge),
        Sqe::new(0x02, 1).with_data(Data::InCapsule { offset: 0, length: 4096 }),
        Sqe::new(0x01, 1).with_data(Data::InCapsule { offset: u64::MAX, length: 4096 }),
        Sqe::new(0x77, 1),
        Sqe::new(0x02, 77),
    ] {
        assert_ne!(io.run(entry, &[]).0.status, Status::SUCCESS, "{entry:?}");
    }
    let read = Blocks::Read { first: 0, n_blocks: 1 }.entry(1, transport(BLOCK));
    assert_eq!(io.run(read, &[]).0.status, Status::SUCCESS);
}

#[test]
fn features_and_logs_are_those_that_hosts_ask_for() {
    let device = Device::new();
    let (mut admin, _io) = device.queues(Wish::PLAIN);
    let set = |feature, value| Admin::SetFeature { feature, value }.entry(0, Data::NONE);
    let (cqe, _) = admin.run(set(Feature::Queues, 0), &[]);
    assert_eq!((cqe.status, cqe.result), (Status::SUCCESS, 63 << 16 | 63));
    assert_eq!(
        admin.run(set(Feature::Other(0x77), 0), &[]).0.status,
        Status::INVALID_FIELD
    );
    for log in [Log::Supported, Log::Errors, Log::Smart, Log::Firmware, Log::Power] {
        let entry = Admin::GetLog(LogRequest::of(log, 64)).entry(0, transport(64));
        let (cqe, data) = admin.run(entry, &[]);
        assert_eq!((cqe.status, data.len()), (Status::SUCCESS, 64), "{log:?}");
    }
    let list = LogRequest { nsid: 3, ..LogRequest::of(Log::Programs, 1024) };
    let (cqe, data) = admin.run(Admin::GetLog(list).entry(3, transport(1024)), &[]);
    assert_eq!(cqe.status, Status::SUCCESS);
    // Two of the device's own, active, and an index that is free.
    assert_eq!((data[0], data[64], data[128]), (0b00_1110, 0b00_1110, 0));
    let beyond = LogRequest { from: 1 << 20, ..LogRequest::of(Log::Smart, 64) };
    let (cqe, _) = admin.run(Admin::GetLog(beyond).entry(0, transport(64)), &[]);
    assert_eq!(cqe.status, Status::INVALID_FIELD);
    // Events are awaited, as many as there may be.
    for _ in 0..4 {
        admin.send(Admin::AwaitEvent.entry(0, Data::NONE), &[]);
    }
    let refused = admin.run(Admin::AwaitEvent.entry(0, Data::NONE), &[]);
    assert_eq!(refused.0.status, Status::EVENT_LIMIT);
}

/// An identifier that is used twice fails the second command, and does not end the first one's place.
#[test]
fn an_identifier_in_flight_is_refused_however_often() {
    let device = Device::new();
    let (_admin, mut io) = device.queues(Wish::PLAIN);
    let execute = bothends_nvme::commands::Execute {
        program: 1,
        range_set: 0,
        n_ranges: 0,
        data_bytes: 0,
        parameter_1: 0,
        parameter_2: 0,
    };
    let slow = io.send(execute.entry(3, Data::NONE), &[]);
    for _ in 0..3 {
        io.send_as(slow, execute.entry(3, Data::NONE));
        let (cqe, _) = io.complete(slow, &[]);
        assert_eq!(cqe.status, Status::COMMAND_ID_CONFLICT);
    }
    device.may_end.store(true, std::sync::atomic::Ordering::Release);
    assert_eq!(io.complete(slow, &[]).0.status, Status::SUCCESS);
}

/// A host that reads nothing of what it is sent keeps no program of others from its end.
#[test]
fn a_host_that_does_not_read_holds_up_no_program_of_others() {
    let device = Device::new();
    device.may_end.store(true, std::sync::atomic::Ordering::Release);
    let (_admin, mut deaf) = device.queues(Wish::PLAIN);
    let read = Blocks::Read { first: 0, n_blocks: 256 }.entry(1, transport(256 * BLOCK));
    let execute = bothends_nvme::commands::Execute {
        program: 1,
        range_set: 0,
        n_ranges: 0,
        data_bytes: 0,
        parameter_1: 0,
        parameter_2: 0,
    };
    for _ in 0..60 {
        deaf.send(read, &[]);
        deaf.send(execute.entry(3, Data::NONE), &[]);
    }
    let wish = Wish { host: 9, ..Wish::PLAIN };
    let (_admin, mut io) = device.queues(wish);
    let began = std::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(io.run(execute.entry(3, Data::NONE), &[]).0.status, Status::SUCCESS);
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(15), "others waited");
}
