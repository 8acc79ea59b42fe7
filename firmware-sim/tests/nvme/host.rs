//! A small NVMe/TCP host for the tests: one connection, one command at a time unless it is told otherwise.

#![allow(dead_code, reason = "not each test needs all of it")]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bothends_nvme::commands::{Admin, ConnectData, Fabrics, Identify, Wide};
use bothends_nvme::pdu::{
    DataHead, Digest, Format, Initialize, Last, Parsed, Pdu, parse,
};
use bothends_nvme::{Cqe, Data, Sqe, Status};

pub(crate) const NAME: &str = "nqn.2026-11.dev.bothends:test";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
const CC: u32 = 0x14;

/// A queue of a controller.
pub(crate) struct Queue {
    stream: TcpStream,
    format: Format,
    arrived: Vec<u8>,
    next: u16,
}

/// What a connection is to be like.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) digests: Digest,
    pub(crate) alignment: u8,
    pub(crate) keep_alive_ms: u32,
    pub(crate) host: u8,
}

impl Wish {
    pub(crate) const PLAIN: Self =
        Self { digests: Digest::Off, alignment: 0, keep_alive_ms: 0, host: 7 };
}

impl Queue {
    /// A connection on which nothing but the initialization has been said.
    pub(crate) fn open(address: SocketAddr, wish: Wish) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut own =
            Self { stream, format: Format::default(), arrived: Vec::new(), next: 1 };
        let mut out = Vec::new();
        let asked = Initialize {
            version: 0,
            alignment: wish.alignment,
            header_digest: wish.digests,
            data_digest: wish.digests,
            max: 0,
        };
        asked.request(&mut out);
        own.stream.write_all(&out).unwrap();
        let granted = own.next_pdu(|pdu| {
            let Pdu::InitializeResponse(granted) = pdu else { panic!("{pdu:?}") };
            granted
        });
        own.format = Format {
            header_digest: granted.header_digest,
            data_digest: granted.data_digest,
            alignment: granted.alignment,
        };
        own
    }

    /// The admin queue of a new controller that is enabled, with the controller's number.
    pub(crate) fn admin(address: SocketAddr, wish: Wish, name: &str) -> (Self, u16) {
        let mut own = Self::open(address, wish);
        let (cqe, _) = own.connect((0, 31), wish, ConnectData::NEW, name);
        assert_eq!(cqe.status, Status::SUCCESS);
        let set = Fabrics::PropertySet { offset: CC, wide: Wide::No, value: 0x0046_0061 };
        assert_eq!(own.run(set.entry(), &[]).0.status, Status::SUCCESS);
        let id = u16::try_from(cqe.result).unwrap();
        (own, id)
    }

    /// An I/O queue of a controller.
    pub(crate) fn io(
        address: SocketAddr,
        wish: Wish,
        controller: u16,
        queue: u16,
    ) -> Self {
        Self::io_of(address, wish, controller, (queue, 127))
    }

    /// The same with a size, 0-based.
    pub(crate) fn io_of(
        address: SocketAddr,
        wish: Wish,
        controller: u16,
        queue: (u16, u16),
    ) -> Self {
        let mut own = Self::open(address, wish);
        let (cqe, _) = own.connect(queue, wish, controller, NAME);
        assert_eq!(cqe.status, Status::SUCCESS);
        own
    }

    pub(crate) fn connect(
        &mut self,
        (queue, size): (u16, u16),
        wish: Wish,
        controller: u16,
        name: &str,
    ) -> (Cqe, Vec<u8>) {
        let data = ConnectData {
            host_id: [wish.host; 16],
            controller,
            subsystem: name.to_owned(),
            host: HOST.to_owned(),
        };
        let keep_alive_ms = if queue == 0 { wish.keep_alive_ms } else { 0 };
        let command = Fabrics::Connect { queue, size, attributes: 0, keep_alive_ms };
        let id = self.send(command.entry(), &data.bytes());
        self.complete(id, &[])
    }

    /// Sends a command, with `data` in its capsule, and says its identifier.
    pub(crate) fn send(&mut self, entry: Sqe, data: &[u8]) -> u16 {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let mut out = Vec::new();
        self.format.command(&entry.with_id(id), data, &mut out);
        self.stream.write_all(&out).unwrap();
        id
    }

    /// Sends a command with an identifier of the caller's.
    pub(crate) fn send_as(&mut self, id: u16, entry: Sqe) {
        let mut out = Vec::new();
        self.format.command(&entry.with_id(id), &[], &mut out);
        self.stream.write_all(&out).unwrap();
    }

    /// Sends a command and waits for its completion; `data` go where the entry says.
    pub(crate) fn run(&mut self, entry: Sqe, data: &[u8]) -> (Cqe, Vec<u8>) {
        let in_capsule = matches!(entry.data(), Ok(Data::InCapsule { .. }));
        let id = self.send(entry, if in_capsule { data } else { &[] });
        self.complete(id, data)
    }

    /// The next data that come, which are those of this command.
    pub(crate) fn data(&mut self, id: u16) -> Vec<u8> {
        self.next_pdu(|pdu| {
            let Pdu::ToHost(part) = pdu else {
                panic!("{pdu:?} before the data of {id}")
            };
            assert_eq!(part.head.id, id);
            part.data.to_vec()
        })
    }

    /// The completion of a command, with what came for it. Data that are asked for are those of `data`.
    pub(crate) fn complete(&mut self, id: u16, data: &[u8]) -> (Cqe, Vec<u8>) {
        let mut read = Vec::new();
        loop {
            enum Next {
                Data(Vec<u8>),
                Ready(u16, u32, u32),
                Done(Cqe),
            }
            let next = self.next_pdu(|pdu| {
                if let Pdu::ToHost(part) = pdu {
                    assert_eq!(part.head.id, id);
                    Next::Data(part.data.to_vec())
                } else if let Pdu::Ready { tag, from, bytes, .. } = pdu {
                    Next::Ready(tag, from, bytes)
                } else if let Pdu::Response(cqe) = pdu {
                    assert_eq!(cqe.id, id);
                    Next::Done(cqe)
                } else {
                    panic!("{pdu:?} while {id} is awaited")
                }
            });
            match next {
                Next::Data(part) => read.extend(part),
                Next::Ready(tag, from, bytes) => {
                    let part = &data[from as usize..(from + bytes) as usize];
                    let head = DataHead { id, tag, from, bytes, last: Last::Yes };
                    let mut out = Vec::new();
                    self.format.before_data_to_controller(head, &mut out);
                    out.extend_from_slice(part);
                    self.format.after_data(part, &mut out);
                    self.stream.write_all(&out).unwrap();
                }
                Next::Done(cqe) => return (cqe, read),
            }
        }
    }

    /// The next PDU if it is a completion, or data with how many bytes.
    pub(crate) fn next_of_reads(&mut self) -> Result<Cqe, (u16, Vec<u8>)> {
        self.next_pdu(|pdu| {
            if let Pdu::ToHost(part) = pdu {
                Err((part.head.id, part.data.to_vec()))
            } else if let Pdu::Response(cqe) = pdu {
                Ok(cqe)
            } else {
                panic!("{pdu:?}")
            }
        })
    }

    /// What a command looks like on the wire.
    pub(crate) fn encoded(&self, entry: Sqe, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.format.command(&entry, data, &mut out);
        out
    }

    /// The sending half, for who sends while this one reads.
    pub(crate) fn writer(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    /// The connection, for who says and reads all of it.
    pub(crate) fn into_parts(self) -> (TcpStream, Format) {
        assert!(self.arrived.is_empty());
        (self.stream, self.format)
    }

    /// The next completion, of whatever command; data that come before it are left aside.
    pub(crate) fn next_completion(&mut self) -> Cqe {
        loop {
            let cqe = self.next_pdu(|pdu| {
                if let Pdu::Response(cqe) = pdu { Some(cqe) } else { None }
            });
            if let Some(cqe) = cqe {
                return cqe;
            }
        }
    }

    /// Sends bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The codes with which the controller ends the connection.
    pub(crate) fn terminated(&mut self) -> (u16, u32) {
        self.next_pdu(|pdu| {
            let Pdu::ControllerTerminates(status, at) = pdu else { panic!("{pdu:?}") };
            (status, at)
        })
    }

    /// Whether the other end goes, behind whatever it still says.
    pub(crate) fn is_closed(&mut self) -> bool {
        let is_late = |error: io::Error| {
            matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
        };
        !self.stream.read_to_end(&mut Vec::new()).is_err_and(is_late)
    }

    fn next_pdu<T>(&mut self, take: impl FnOnce(Pdu<'_>) -> T) -> T {
        loop {
            let parsed = parse(&self.arrived, self.format, 2 << 20).unwrap();
            if let Parsed::Whole(pdu, bytes) = parsed {
                let taken = take(pdu);
                self.arrived.drain(..bytes);
                return taken;
            }
            let mut part = [0; 65_536];
            let n = self.stream.read(&mut part).unwrap();
            assert!(n > 0, "the connection ended");
            self.arrived.extend_from_slice(&part[..n]);
        }
    }

    /// Reads a structure.
    pub(crate) fn identify(
        &mut self,
        asked: Identify,
    ) -> Result<Box<[u8; 4096]>, Status> {
        let entry = Admin::Identify(asked).entry(0, Data::Transport { length: 4096 });
        let (cqe, data) = self.run(entry, &[]);
        match cqe.status {
            Status::SUCCESS => Ok(data.into_boxed_slice().try_into().unwrap()),
            status => Err(status),
        }
    }
}

/// The same command, with its data where the queue wants them: in PDUs of their own.
pub(crate) fn transport(bytes: usize) -> Data {
    Data::Transport { length: u32::try_from(bytes).unwrap() }
}
