//! PDUs: there and back, in parts, with digests, and what is no PDU.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use bothends_nvme::commands::{Admin, Blocks, Execute, Fabrics, Memory};
use bothends_nvme::pdu::{
    DataHead, DataPdu, Digest, Fatal, Format, Initialize, Intact, Last, Parsed, Pdu,
    parse,
};
use bothends_nvme::{Cqe, Data, Sqe, Status};
use proptest::prelude::*;

const MOST: usize = 1 << 20;

fn formats() -> Vec<Format> {
    let mut all = Vec::new();
    for header_digest in [Digest::Off, Digest::On] {
        for data_digest in [Digest::Off, Digest::On] {
            for alignment in [0, 1, 7, 31] {
                all.push(Format { header_digest, data_digest, alignment });
            }
        }
    }
    all
}

/// One PDU of each kind, as it is written in `format`.
fn each(format: Format) -> Vec<(Pdu<'static>, Vec<u8>)> {
    static DATA: [u8; 37] = [0x5a; 37];
    let entry =
        Blocks::Read { first: 5, n_blocks: 2 }.entry(1, Data::Transport { length: 8192 });
    let cqe =
        Cqe { result: 7, sq_head: 1, sq_id: 2, id: 3, status: Status::INVALID_FIELD };
    let content = |last| DataPdu {
        head: DataHead { id: 9, tag: 4, from: 4096, bytes: 37, last },
        data: &DATA,
        intact: Intact::Yes,
    };
    let initialize = Initialize {
        version: 0,
        alignment: 3,
        header_digest: format.header_digest,
        data_digest: format.data_digest,
        max: 0x1_0000,
    };
    let mut all: Vec<(Pdu<'static>, Vec<u8>)> = vec![];
    let mut with = |pdu, write: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        write(&mut bytes);
        all.push((pdu, bytes));
    };
    with(Pdu::InitializeRequest(initialize), &|to| initialize.request(to));
    with(Pdu::InitializeResponse(initialize), &|to| initialize.response(to));
    with(Pdu::Command(entry, &DATA, Intact::Yes), &|to| {
        format.command(&entry, &DATA, to);
    });
    with(Pdu::Command(entry, &[], Intact::Yes), &|to| format.command(&entry, &[], to));
    with(Pdu::Response(cqe), &|to| format.response(&cqe, to));
    with(Pdu::Ready { id: 9, tag: 4, from: 8, bytes: 16 }, &|to| {
        format.ready((9, 4), 8, 16, to);
    });
    for last in [Last::No, Last::Yes, Last::Success] {
        with(Pdu::ToHost(content(last)), &|to| {
            format.before_data_to_host(content(last).head, to);
            to.extend_from_slice(&DATA);
            format.after_data(&DATA, to);
        });
    }
    with(Pdu::ToController(content(Last::Yes)), &|to| {
        format.before_data_to_controller(content(Last::Yes).head, to);
        to.extend_from_slice(&DATA);
        format.after_data(&DATA, to);
    });
    with(Pdu::ControllerTerminates(4, 0), &|to| {
        Format::controller_terminates(Fatal::DataRange, &[1; 200], to);
    });
    with(Pdu::HostTerminates(1, 2), &|to| {
        Format::host_terminates(Fatal::Header { at: 2 }, &[1; 24], to);
    });
    all
}

#[test]
fn each_pdu_comes_back_and_only_when_it_is_whole() {
    for format in formats() {
        for (pdu, bytes) in each(format) {
            for n in 0..bytes.len() {
                let Ok(Parsed::Needs(needed)) = parse(&bytes[..n], format, MOST) else {
                    panic!("{pdu:?} after {n} bytes");
                };
                assert!(needed > n && needed <= bytes.len());
            }
            let mut more = bytes.clone();
            more.extend_from_slice(&[0xee; 9]);
            assert_eq!(parse(&more, format, MOST), Ok(Parsed::Whole(pdu, bytes.len())));
        }
    }
}

#[test]
fn a_flipped_bit_is_noticed_by_the_digests() {
    let format =
        Format { header_digest: Digest::On, data_digest: Digest::On, alignment: 0 };
    for (pdu, bytes) in each(format) {
        let exempt = matches!(
            pdu,
            Pdu::InitializeRequest(_)
                | Pdu::InitializeResponse(_)
                | Pdu::HostTerminates(..)
                | Pdu::ControllerTerminates(..)
        );
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match parse(&flipped, format, MOST) {
                Err(_) | Ok(Parsed::Needs(_)) => {}
                Ok(Parsed::Whole(read, _)) => {
                    assert!(exempt || read != pdu, "{pdu:?} with bit {bit} flipped");
                }
            }
        }
    }
}

#[test]
fn what_is_too_long_is_refused_by_its_header_alone() {
    let format = Format::default();
    let entry = Sqe::new(1, 1);
    let mut bytes = Vec::new();
    format.command(&entry, &[0; 4096], &mut bytes);
    assert_eq!(parse(&bytes[..8], format, 4096), Err(Fatal::Header { at: 4 }));
}

#[test]
fn lies_of_a_header_are_named() {
    let format = Format::default();
    let mut bytes = Vec::new();
    format.command(&Sqe::new(1, 1), &[0; 64], &mut bytes);
    // Byte, value, and the field that is blamed.
    for (at, value, field) in [
        (0, 0x08, 0),
        (0, 0x0a, 0),
        (2, 71, 2),
        (3, 200, 3),
        (3, 70, 3),
        (3, 73, 3),
        (4, 8, 4),
    ] {
        let mut lying = bytes.clone();
        lying[at] = value;
        assert_eq!(parse(&lying, format, MOST), Err(Fatal::Header { at: field }), "{at}");
    }
    // A completion has no data.
    let cqe = Cqe { result: 0, sq_head: 0, sq_id: 0, id: 0, status: Status::SUCCESS };
    let mut bytes = Vec::new();
    format.response(&cqe, &mut bytes);
    bytes[4] += 4;
    bytes.extend_from_slice(&[0; 4]);
    assert_eq!(parse(&bytes, format, MOST), Err(Fatal::Header { at: 4 }));
}

proptest! {
    #[test]
    fn nothing_that_arrives_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        kind in 0_u8..11,
        header in 0_u8..200,
        n in 0_u32..400,
        digests in 0_usize..16,
    ) {
        let format = formats()[digests];
        let mut bytes = bytes;
        prop_assume!(bytes.len() >= 8);
        (bytes[0], bytes[2]) = (kind, header);
        bytes[4..8].copy_from_slice(&n.to_le_bytes());
        let _ = parse(&bytes, format, MOST);
        for expected in [24_u8, 72, 128] {
            bytes[2] = expected;
            let _ = parse(&bytes, format, MOST);
        }
    }

    /// Whatever a controller takes for a command is what its entry says: it writes the same entry.
    #[test]
    fn entries_come_back(mut bytes in any::<[u8; 64]>(), opcode in 0_usize..24) {
        const OPCODES: [u8; 24] = [
            0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x19, 0x7f, 0x85,
            0x88, 0x89, 0x00, 0x01, 0x02, 0x04, 0x05, 0x7f, 0x85, 0x89,
        ];
        bytes[0] = OPCODES[opcode];
        bytes[39] = 0x5a;
        let entry = Sqe(bytes);
        let (nsid, data) = (entry.namespace(), entry.data().unwrap());
        if let Ok(command) = Admin::parse(&entry) {
            let again = command.entry(nsid, data);
            prop_assert_eq!(Admin::parse(&again), Ok(command));
        }
        if let Ok(command) = Blocks::parse(&entry) {
            prop_assert_eq!(Blocks::parse(&command.entry(nsid, data)), Ok(command));
        }
        if let Ok(command) = Memory::parse(&entry) {
            prop_assert_eq!(Memory::parse(&command.entry(nsid, data)), Ok(command));
        }
        if let Ok(command) = Execute::parse(&entry) {
            prop_assert_eq!(Execute::parse(&command.entry(nsid, data)), Ok(command));
        }
        if let Ok(command) = Fabrics::parse(&entry) {
            prop_assert_eq!(Fabrics::parse(&command.entry()), Ok(command));
        }
    }
}
