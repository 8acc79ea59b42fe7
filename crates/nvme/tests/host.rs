//! A host's side of a connection, against a controller's bytes made by hand.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use bothends_nvme::commands::{Admin, Blocks, Memory};
use bothends_nvme::host::{Broken, Connection, Content, Heard, Wish};
use bothends_nvme::pdu::{
    DataHead, Digest, Fatal, Format, Initialize, Last, Parsed, Pdu, parse,
};
use bothends_nvme::{Cqe, Data, Sqe, Status};

const ON: Wish = Wish { header_digest: Digest::On, data_digest: Digest::On };
const FORMAT: Format =
    Format { header_digest: Digest::On, data_digest: Digest::On, alignment: 1 };

fn granted() -> Initialize {
    Initialize {
        version: 0,
        alignment: 1,
        header_digest: Digest::On,
        data_digest: Digest::On,
        max: 4096,
    }
}

/// What a controller heard of, in a form that a test can compare.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Data(u16, u32, Vec<u8>),
    Done(u16, u64, Status),
}

struct Host {
    wire: Connection,
    out: Vec<u8>,
    said: Vec<Said>,
}

impl Host {
    fn open() -> Self {
        let wire = Connection::new(ON, 2);
        let mut own = Self { wire, out: Vec::new(), said: Vec::new() };
        own.wire.begin(&mut own.out);
        let request = parse(&own.out, Format::default(), 4096).unwrap();
        assert!(matches!(request, Parsed::Whole(Pdu::InitializeRequest(_), 128)));
        own.out.clear();
        let entry = Admin::KeepAlive.entry(0, Data::NONE);
        assert_eq!(own.send(entry, Content::None), None, "not before it is open");
        let mut response = Vec::new();
        granted().response(&mut response);
        own.take(&response).unwrap();
        own
    }

    fn send(&mut self, entry: Sqe, content: Content) -> Option<u16> {
        self.wire.send(entry, content, &mut self.out)
    }

    /// Byte by byte: whatever is whole is taken, and nothing twice.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let mut arrived = Vec::new();
        let said = &mut self.said;
        for byte in bytes {
            arrived.push(*byte);
            let n = self.wire.take(&arrived, &mut self.out, &mut |heard| {
                said.push(match heard {
                    Heard::Data { id, from, bytes } => {
                        Said::Data(id, from, bytes.to_vec())
                    }
                    Heard::Completion(cqe) => Said::Done(cqe.id, cqe.result, cqe.status),
                });
            })?;
            arrived.drain(..n);
        }
        assert!(arrived.is_empty());
        Ok(())
    }
}

fn completion(id: u16, status: Status) -> Vec<u8> {
    let mut bytes = Vec::new();
    FORMAT.response(&Cqe { result: 7, sq_head: 0, sq_id: 1, id, status }, &mut bytes);
    bytes
}

fn part((id, from): (u16, u32), data: &[u8], last: Last) -> Vec<u8> {
    let mut bytes = Vec::new();
    let n = u32::try_from(data.len()).unwrap();
    // Its receiver is the host, which wants no alignment.
    let format = Format { alignment: 0, ..FORMAT };
    let head = DataHead { id, tag: 0, from, bytes: n, last };
    format.before_data_to_host(head, &mut bytes);
    bytes.extend_from_slice(data);
    format.after_data(data, &mut bytes);
    bytes
}

fn read(bytes: u32) -> (Sqe, Content) {
    let read = Blocks::Read { first: 0, n_blocks: bytes / 4096 };
    (read.entry(1, Data::NONE), Content::ToHost(bytes))
}

#[test]
fn commands_are_answered_with_data_and_completions() {
    let mut host = Host::open();
    let (entry, content) = read(8192);
    assert_eq!(host.send(entry, content), Some(0));
    assert_eq!(host.send(Admin::KeepAlive.entry(0, Data::NONE), Content::None), Some(1));
    assert_eq!((host.wire.n_free(), host.send(entry, Content::None)), (0, None));
    host.take(&completion(1, Status::SUCCESS)).unwrap();
    host.take(&part((0, 0), &[1; 4096], Last::No)).unwrap();
    host.take(&part((0, 4096), &[2; 4096], Last::Success)).unwrap();
    let expected = [
        Said::Done(1, 7, Status::SUCCESS),
        Said::Data(0, 0, vec![1; 4096]),
        Said::Data(0, 4096, vec![2; 4096]),
        Said::Done(0, 0, Status::SUCCESS),
    ];
    assert_eq!(host.said, expected);
    assert_eq!(host.wire.n_free(), 2);
}

#[test]
fn data_go_when_they_are_asked_for_and_small_ones_with_the_command() {
    let mut host = Host::open();
    let data: Vec<u8> = (0..10_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let write = Memory::Write { to: 0, bytes: 10_000 }.entry(2, Data::NONE);
    host.send(write, Content::ToController(data[..100].to_vec())).unwrap();
    let Parsed::Whole(Pdu::Command(entry, inside, _), n) =
        parse(&host.out, FORMAT, 1 << 20).unwrap()
    else {
        panic!("a command")
    };
    assert_eq!(inside, &data[..100]);
    assert_eq!(entry.data(), Ok(Data::InCapsule { offset: 0, length: 100 }));
    assert_eq!(n, host.out.len());
    host.out.clear();
    host.wire.set_in_capsule(4096);
    let id = host.send(write, Content::ToController(data.clone())).unwrap();
    host.out.clear();
    let mut ready = Vec::new();
    FORMAT.ready((id, 9), 0, 10_000, &mut ready);
    host.take(&ready).unwrap();
    let (mut rest, mut got, mut lasts) = (&host.out[..], Vec::new(), Vec::new());
    while let Parsed::Whole(Pdu::ToController(part), n) =
        parse(rest, FORMAT, 1 << 20).unwrap()
    {
        assert_eq!((part.head.tag, part.head.from as usize), (9, got.len()));
        got.extend_from_slice(part.data);
        lasts.push(part.head.last);
        rest = &rest[n..];
    }
    assert_eq!(got, data);
    assert_eq!(lasts, [Last::No, Last::No, Last::Yes], "at most 4,096 at a time");
}

#[test]
fn what_no_controller_says_ends_the_connection() {
    let asks = |from, bytes| {
        let mut ready = Vec::new();
        FORMAT.ready((0, 0), from, bytes, &mut ready);
        ready
    };
    let mut terminates = Vec::new();
    Format::controller_terminates(Fatal::DataRange, &[0; 8], &mut terminates);
    let range = Broken::Fatal(Fatal::DataRange);
    let unasked = "the controller answers a command that is not under way";
    for (bytes, expected) in [
        (completion(1, Status::SUCCESS), Broken::Answer(unasked)),
        (completion(900, Status::SUCCESS), Broken::Answer(unasked)),
        (part((0, 4), &[0; 8], Last::No), range),
        (part((0, 0), &[0; 8192], Last::No), range),
        (asks(0, 8), range),
        (
            completion(0, Status::SUCCESS),
            Broken::Answer("a command succeeds without all of its data"),
        ),
        (terminates, Broken::Terminated(4, 0)),
    ] {
        let mut host = Host::open();
        let (entry, content) = read(4096);
        host.send(entry, content).unwrap();
        assert_eq!(host.take(&bytes).unwrap_err(), expected);
    }
    for (from, bytes) in [(0, 10_001), (u32::MAX, 8), (0, 0)] {
        let mut host = Host::open();
        let write = Memory::Write { to: 0, bytes: 10_000 }.entry(2, Data::NONE);
        host.send(write, Content::ToController(vec![0; 10_000])).unwrap();
        assert_eq!(host.take(&asks(from, bytes)).unwrap_err(), range);
    }
}

#[test]
fn data_are_sent_once() {
    let mut host = Host::open();
    let write = Memory::Write { to: 0, bytes: 10_000 }.entry(2, Data::NONE);
    host.send(write, Content::ToController(vec![0; 10_000])).unwrap();
    let mut ready = Vec::new();
    FORMAT.ready((0, 0), 0, 6000, &mut ready);
    host.take(&ready).unwrap();
    assert_eq!(host.take(&ready).unwrap_err(), Broken::Fatal(Fatal::DataLimit));
}

#[test]
fn damaged_data_fail_their_command_alone() {
    let mut host = Host::open();
    let (entry, content) = read(4096);
    host.send(entry, content).unwrap();
    let mut damaged = part((0, 0), &[1; 4096], Last::Yes);
    let end = damaged.len();
    damaged[end - 1] ^= 1;
    host.take(&damaged).unwrap();
    host.take(&completion(0, Status::SUCCESS)).unwrap();
    assert_eq!(host.said, [Said::Done(0, 7, Status::DATA_TRANSFER_ERROR)]);
}

#[test]
fn a_controller_that_grants_something_else_is_left() {
    let without = Initialize { data_digest: Digest::Off, ..granted() };
    for (response, expected) in [
        (without, Broken::Digests),
        (Initialize { version: 1, ..granted() }, Fatal::Parameter { at: 8 }.into()),
        (Initialize { alignment: 32, ..granted() }, Fatal::Parameter { at: 10 }.into()),
        (Initialize { max: 4095, ..granted() }, Fatal::Parameter { at: 12 }.into()),
    ] {
        let mut bytes = Vec::new();
        response.response(&mut bytes);
        let mut wire = Connection::new(ON, 2);
        let taken = wire.take(&bytes, &mut Vec::new(), &mut |_| ());
        assert_eq!(taken.unwrap_err(), expected);
        assert!(!wire.is_open());
    }
}

/// They might come without end, and whoever takes all that has come would not come back.
#[test]
fn parts_without_data_end_the_connection() {
    let mut host = Host::open();
    let (entry, content) = read(4096);
    host.send(entry, content).unwrap();
    let broken = host.take(&part((0, 0), &[], Last::No)).unwrap_err();
    assert_eq!(broken, Broken::Fatal(Fatal::DataRange));
}
