//! The table of offsets: inside, apart from one another, and the bytes that they make.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use bothends_nvme::commands::{
    Activate, Admin, BlockSource, Blocks, ByteSource, ConnectData, Event, Execute,
    Fabrics, FastOnly, Identify, Log, LogRequest, Memory, MemoryRange, ProgramLoad,
    RangeSets, Set, SourceFormat, Wide,
};
use bothends_nvme::identify::{self, Controller, ControllerKind, Measures};
use bothends_nvme::layout::places;
use bothends_nvme::logs::{Effects, Hot, Smart, scaled_power, unscaled_power};
use bothends_nvme::{Cqe, Data, Sqe, Status};

#[test]
fn fields_of_a_structure_do_not_overlap() {
    let all = places();
    for (i, a) in all.iter().enumerate() {
        assert!(a.at + a.bytes <= a.structure_bytes, "{a:?}");
        assert!(!a.clause.is_empty());
        for b in all[i + 1..].iter().filter(|b| b.structure == a.structure) {
            assert!(a.at + a.bytes <= b.at || b.at + b.bytes <= a.at, "{a:?} and {b:?}");
        }
    }
}

/// An entry, from the numbers of its dwords as the specification counts them. Dwords 6 to 9 are the SGL.
fn dwords(numbers: &[(usize, u32)]) -> [u8; 64] {
    let mut own = [0; 64];
    for (n, value) in numbers {
        own[4 * n..4 * n + 4].copy_from_slice(&value.to_le_bytes());
    }
    own
}

/// SGLs are used (bit 14 of dword 0), and the data are in PDUs of their own: type 5Ah.
const SGL: u32 = 0x4000;
const TRANSPORT: u32 = 0x5a00_0000;

type Case = (Sqe, [u8; 64]);

fn check(cases: &[Case]) {
    for (entry, expected) in cases {
        assert_eq!(&entry.0, expected, "opcode {:02x}h", entry.opcode());
    }
}

#[test]
fn admin_entries_are_what_the_specification_draws() {
    let data = |length| Data::Transport { length };
    check(&[
        // Identify the descriptors of namespace 3.
        (
            Admin::Identify(Identify::of(Identify::DESCRIPTORS, 3)).entry(0, data(4096)),
            dwords(&[(0, SGL | 0x06), (1, 3), (8, 4096), (9, TRANSPORT), (10, 3)]),
        ),
        // The effects of command set 4, as Linux asks for them: 4,096 bytes are 400h - 1 dwords.
        (
            Admin::GetLog(LogRequest { set: 4, ..LogRequest::of(Log::Effects, 4096) })
                .entry(0, data(4096)),
            dwords(&[
                (0, SGL | 0x02),
                (1, u32::MAX),
                (8, 4096),
                (9, TRANSPORT),
                (10, 0x03ff_0005),
                (14, 4 << 24),
            ]),
        ),
        // The SMART log, whose event is to stay: Retain Asynchronous Event is bit 15.
        (
            Admin::GetLog(LogRequest {
                event: Event::Retain,
                ..LogRequest::of(Log::Smart, 512)
            })
            .entry(0, data(512)),
            dwords(&[
                (0, SGL | 0x02),
                (1, u32::MAX),
                (8, 512),
                (9, TRANSPORT),
                (10, 0x007f_8002),
            ]),
        ),
        // Abort command 5 of queue 2.
        (
            Admin::Abort { queue: 2, id: 5 }.entry(0, Data::NONE),
            dwords(&[(0, SGL | 0x08), (9, TRANSPORT), (10, 0x0005_0002)]),
        ),
        (
            Admin::Activation { program: 2, active: Activate::On }.entry(3, Data::NONE),
            dwords(&[(0, SGL | 0x88), (1, 3), (9, TRANSPORT), (10, 0x0001_0002)]),
        ),
        (
            Admin::RangeSets(RangeSets::Create { n_ranges: 3, set: 0 })
                .entry(3, data(96)),
            dwords(&[(0, SGL | 0x89), (1, 3), (8, 96), (9, TRANSPORT), (11, 3)]),
        ),
        (
            Admin::RangeSets(RangeSets::Delete { set: 5 }).entry(3, Data::NONE),
            dwords(&[(0, SGL | 0x89), (1, 3), (9, TRANSPORT), (10, 0x0005_0001)]),
        ),
    ]);
}

#[test]
fn parts_of_programs_are_what_the_specification_draws() {
    let data = |length| Data::Transport { length };
    check(&[
        // Part of a program: 4 KiB from 8 KiB on, of 128 KiB, type C0h, at index 2.
        (
            Admin::Program(ProgramLoad::Load {
                program: 2,
                kind: 0xc0,
                size: 0x2_0000,
                id: 0x1122_3344_5566_7788,
                id_kind: 1,
                bytes: 4096,
                from: 8192,
            })
            .entry(3, data(4096)),
            dwords(&[
                (0, SGL | 0x85),
                (1, 3),
                (8, 4096),
                (9, TRANSPORT),
                (10, 0x02c0_0002),
                (11, 0x2_0000),
                (12, 0x5566_7788),
                (13, 0x1122_3344),
                (14, 4096),
                (15, 8192),
            ]),
        ),
        (
            Admin::Program(ProgramLoad::Unload { program: 2 }).entry(3, Data::NONE),
            dwords(&[(0, SGL | 0x85), (1, 3), (9, TRANSPORT), (10, 0x0100_0002)]),
        ),
    ]);
}

#[test]
fn io_entries_are_what_the_specification_draws() {
    let data = |length| Data::Transport { length };
    check(&[
        // `nvme io-passthru -o 0x05 -n 2 --cdw10=4096 --cdw12=16 -l 16 -w`
        (
            Memory::Write { to: 4096, bytes: 16 }.entry(2, data(16)),
            dwords(&[
                (0, SGL | 0x05),
                (1, 2),
                (8, 16),
                (9, TRANSPORT),
                (10, 4096),
                (12, 16),
            ]),
        ),
        // 1 MiB of two runs of blocks to 64 KiB on: the number of descriptors is 0-based.
        (
            Memory::Copy {
                bytes: 1 << 20,
                to: 1 << 16,
                n_sources: 2,
                format: SourceFormat::Blocks2,
            }
            .entry(2, data(64)),
            dwords(&[
                (0, SGL | 0x01),
                (1, 2),
                (2, 1 << 20),
                (8, 64),
                (9, TRANSPORT),
                (10, 1 << 16),
                (12, 0x0201),
            ]),
        ),
        (
            Execute {
                program: 1,
                range_set: 7,
                n_ranges: 0,
                data_bytes: 0,
                parameter_1: 16,
                parameter_2: 0x00e0_00e0_0000_0003,
            }
            .entry(3, Data::NONE),
            dwords(&[
                (0, SGL | 0x01),
                (1, 3),
                (2, 0x0007_0001),
                (9, TRANSPORT),
                (10, 16),
                (12, 3),
                (13, 0x00e0_00e0),
            ]),
        ),
        // Blocks are counted from 0.
        (
            Blocks::Read { first: 0x1_0000_0002, n_blocks: 8 }.entry(1, data(32_768)),
            dwords(&[
                (0, SGL | 0x02),
                (1, 1),
                (8, 32_768),
                (9, TRANSPORT),
                (10, 2),
                (11, 1),
                (12, 7),
            ]),
        ),
        // Linux 6.12 enables a controller with this value of CC.
        (
            Fabrics::PropertySet { offset: 0x14, wide: Wide::No, value: 0x0046_0061 }
                .entry(),
            dwords(&[(0, SGL | 0x7f), (9, TRANSPORT), (11, 0x14), (12, 0x0046_0061)]),
        ),
    ]);
}

#[test]
fn connect_is_what_linux_sends() {
    let entry =
        Fabrics::Connect { queue: 0, size: 31, attributes: 0, keep_alive_ms: 5000 }
            .entry();
    let expected = dwords(&[
        (0, SGL | 0x7f),
        (1, 1),
        (8, 1024),
        (9, 0x0100_0000),
        (10, 0),
        (11, 31),
        (12, 5000),
    ]);
    assert_eq!(entry.0, expected);
    let data = ConnectData {
        host_id: [7; 16],
        controller: ConnectData::NEW,
        subsystem: "nqn.2026-11.dev.bothends:csd0".to_owned(),
        host: "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
            .to_owned(),
    };
    let bytes = data.bytes();
    assert_eq!((bytes[16], bytes[17]), (0xff, 0xff));
    assert_eq!(&bytes[256..260], b"nqn.");
    assert_eq!(ConnectData::parse(&bytes).unwrap(), data);
}

#[test]
fn names_without_an_end_are_refused() {
    let mut bytes = [b'x'; 1024];
    assert_eq!(ConnectData::parse(&bytes).unwrap_err(), Status::CONNECT_PARAMETER);
    bytes[256..768].fill(0xff);
    (bytes[300], bytes[600]) = (0, 0);
    assert_eq!(ConnectData::parse(&bytes).unwrap_err(), Status::CONNECT_PARAMETER);
    assert_eq!(ConnectData::parse(&bytes[..1000]).unwrap_err(), Status::DATA_SGL_LENGTH);
}

#[test]
fn descriptors_are_what_the_specification_draws() {
    let range = MemoryRange { nsid: 2, from: 0x10_0000, bytes: 0x2000 };
    let mut expected = [0; 32];
    (expected[0], expected[5], expected[10]) = (2, 0x20, 0x10);
    assert_eq!(range.bytes(), expected);
    assert_eq!(MemoryRange::list(&expected).unwrap(), [range]);

    let blocks = BlockSource { nsid: 1, first: 9, n_blocks: 4, fast_only: FastOnly::Yes };
    let mut expected = [0; 32];
    (expected[0], expected[8], expected[16], expected[23]) = (1, 9, 3, 0x80);
    assert_eq!(blocks.bytes(), expected);

    let bytes = ByteSource { nsid: 2, from: 4, bytes: 0x100, fast_only: FastOnly::No };
    let mut expected = [0; 32];
    (expected[0], expected[8], expected[17]) = (2, 4, 1);
    assert_eq!(bytes.bytes(), expected);
    assert_eq!(
        SourceFormat::Bytes.sources(&[0; 33]).unwrap_err(),
        Status::DATA_SGL_LENGTH
    );
}

/// What io_uring showed for an Execute of a free index: 4196h, the field shifted by one.
#[test]
fn a_status_is_what_io_uring_shows() {
    assert_eq!(Status::NO_PROGRAM.field() >> 1, 0x4196);
    assert_eq!(Status::of_field(Status::NO_PROGRAM.field()), Status::NO_PROGRAM);
    assert_eq!(Status::HOST_PATH.field() >> 1, 0x0370);
    assert_eq!(Status::SUCCESS.field(), 0);
    // What is in use now may be free later, so that it is not marked "do not retry".
    assert_eq!(Status::RANGE_SET_IN_USE.field() >> 1, 0x0195);
    assert_eq!(
        Status::RANGE_SET_ID.to_string(),
        "Invalid Memory Range Set Identifier (status type 1h, code 8dh)"
    );
}

#[test]
fn a_completion_has_its_fields_where_they_belong() {
    let own = Cqe {
        result: 0x0102_0304_0506_0708,
        sq_head: 0x1112,
        sq_id: 0x2122,
        id: 0x3132,
        status: Status::INVALID_FIELD,
    };
    let expected =
        [8, 7, 6, 5, 4, 3, 2, 1, 0x12, 0x11, 0x22, 0x21, 0x32, 0x31, 0x04, 0x80];
    assert_eq!(own.bytes(), expected);
    assert_eq!(Cqe::of(&expected), own);
}

#[test]
fn a_controller_is_what_hosts_read() {
    let own = Controller {
        id: 1,
        kind: ControllerKind::Io,
        serial: "BE0".to_owned(),
        model: "bothends emulated CSD".to_owned(),
        firmware: "0.1.0".to_owned(),
        subsystem: "nqn.2026-11.dev.bothends:csd0".to_owned(),
        transfer: 8,
        n_namespaces: 3,
        commands: 1024,
        in_capsule: 8192,
        events: 4,
        centiwatts: 2000,
        measures_power: Measures::Power,
    };
    let bytes = own.bytes();
    assert_eq!(&bytes[4..24], b"BE0                 ");
    assert_eq!((bytes[77], bytes[111], bytes[261]), (8, 1, 6));
    assert_eq!(bytes[320..322], [10, 0]);
    assert_eq!((bytes[512], bytes[513]), (0x66, 0x44));
    assert_eq!(bytes[536..540], [1, 0, 0x10, 0]);
    assert_eq!(
        u32::from_le_bytes(bytes[1792..1796].try_into().unwrap()),
        (64 + 8192) / 16
    );
    assert_eq!(Controller::of(&bytes), own);
}

#[test]
fn a_namespace_says_its_command_set() {
    for set in Set::ALL {
        let bytes = identify::descriptors(set, [3; 16]);
        assert_eq!(identify::set_of(&bytes), Some(set));
    }
    // Type 4h, one byte long, holding the set: behind a GUID of 16 bytes.
    let bytes = identify::descriptors(Set::Programs, [3; 16]);
    assert_eq!(bytes[..4], [2, 16, 0, 0]);
    assert_eq!(bytes[20..26], [4, 1, 0, 0, 4, 0]);
    assert_eq!(identify::sets(&Set::ALL)[..8], [0x19, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(identify::of_active(&identify::active([1, 2, 3], 1)), [2, 3]);
    assert_eq!(identify::set_of(&[0xff; 4096]), None);
}

#[test]
fn effects_have_what_there_is() {
    for (set, opcode) in [(Set::Nvm, 0x19), (Set::Memory, 0x05), (Set::Programs, 0x01)] {
        let log = Effects::of(set);
        assert!(Effects::has_io(log.bytes(), opcode));
        assert!(!Effects::has_io(log.bytes(), 0x77));
        assert_eq!(log.bytes()[4 * 0x85], 1);
    }
    // Writes change blocks.
    assert_eq!(Effects::of(Set::Nvm).bytes()[1024 + 4], 0b11);
}

#[test]
fn energy_is_rounded_up_and_power_scaled() {
    let own = Smart {
        temperature: 310,
        hot: Hot::Yes,
        bytes_read: 512_001,
        microjoules: 3_600_000_001,
        microwatts: 7_500_000,
        ..Smart::default()
    };
    let bytes = own.bytes();
    assert_eq!((bytes[0], bytes[1], bytes[2]), (2, 54, 1));
    assert_eq!(bytes[32], 2);
    assert_eq!(bytes[232], 2);
    // 7.5 W: 750 × 10 mW, scale 2.
    assert_eq!(bytes[240..244], [0xee, 0x02, 0x02, 0x00]);
    for microwatts in [0, 100, 6_553_500, 6_553_600, 20_000_000] {
        let back = unscaled_power(scaled_power(microwatts)).unwrap_or(0);
        assert!(back >= microwatts && back - microwatts < 10_000, "{microwatts}: {back}");
    }
}

/// FLBAS chooses among the formats with bits 3:0 and, above them, 6:5.
#[test]
fn the_blocks_are_those_of_the_format_that_is_in_use() {
    let mut bytes = [0; 4096];
    bytes[26] = 0b0010_0001;
    bytes[128..132].copy_from_slice(&[0, 0, 12, 0]);
    bytes[128 + 4 * 17..][..4].copy_from_slice(&[8, 0, 9, 0]);
    let found = identify::BlockNamespace::of(&bytes);
    assert_eq!((found.block_bytes, found.metadata_bytes), (512, 8));
}
