//! An NVMe host that says anything, in well-formed PDUs and in bytes; `controllers.rs` is the other end.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use bothends_firmware_sim::nvme::{
    BlockMedia, Checksum, InProcess, InProcessQueue, Subsystem, SubsystemConfig,
};
use bothends_nvme::commands::{ConnectData, Fabrics, Memory, Wide};
use bothends_nvme::pdu::{Digest, Format, Initialize, Parsed, Pdu, parse};
use bothends_nvme::{Data, Sqe, Status};

const NAME: &str = "nqn.2026-11.dev.bothends:fuzz";
const MEMORY_BYTES: usize = 1 << 16;
/// Commands of one input.
const MOST_COMMANDS: usize = 64;

/// Bytes of a host for a device: raw ones on a connection of their own, then commands whose entries are the bytes, on a
/// queue that is set up. Nothing panics, a command has one completion, and memory holds what was
/// written to it. Returns how many commands the device has taken.
pub fn nvme_commands(bytes: &[u8]) -> u64 {
    let [kind, rest @ ..] = bytes else { return 0 };
    let subsystem = Subsystem::new(SubsystemConfig {
        name: NAME.to_owned(),
        serial: "F".to_owned(),
        media: BlockMedia::open(image()).expect("the image"),
        memory_bytes: MEMORY_BYTES,
        programs: vec![Arc::new(Checksum)],
    });
    let device = InProcess::new(subsystem);
    let mut out = Vec::new();
    let mut fresh = device.connect();
    let _ = fresh.take(rest, &mut out);
    let mut host = Host::set_up(&device, *kind);
    host.commands(rest);
    host.n_commands
}

/// An image of 16 blocks, made once for a process.
fn image() -> &'static std::path::Path {
    static IMAGE: OnceLock<tempfile::TempPath> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), vec![0x5a; 16 * 4096]).expect("a file");
        file.into_temp_path()
    })
}

struct Host {
    queues: [InProcessQueue; 2],
    format: Format,
    memory: Vec<u8>,
    /// Whether the model knows what memory holds: not once another command may have written it.
    is_known: bool,
    next: u16,
    n_commands: u64,
    /// Commands that have no completion yet, by queue and identifier.
    outstanding: BTreeSet<(usize, u16)>,
}

/// What came of a command.
enum Said {
    /// Its completion, and its data.
    Done(Status, Vec<u8>),
    /// It waits for data that do not come, or for an event.
    Waits,
    /// The connection has ended.
    Ended,
}

impl Host {
    /// An admin queue and one for I/O, with digests if `kind` says so.
    fn set_up(device: &InProcess, kind: u8) -> Self {
        let digest = if kind & 1 == 0 { Digest::Off } else { Digest::On };
        let mut own = Self {
            queues: [device.connect(), device.connect()],
            format: Format::default(),
            memory: vec![0; MEMORY_BYTES],
            is_known: true,
            next: 1,
            n_commands: 0,
            outstanding: BTreeSet::new(),
        };
        let asked = Initialize {
            version: 0,
            alignment: 0,
            header_digest: digest,
            data_digest: digest,
            max: 0,
        };
        let mut initialize = Vec::new();
        asked.request(&mut initialize);
        for queue in &mut own.queues {
            queue.take(&initialize, &mut Vec::new()).expect("it opens");
        }
        own.format = Format { header_digest: digest, data_digest: digest, alignment: 0 };
        for queue in [0, 1] {
            let data = ConnectData {
                host_id: [1; 16],
                controller: if queue == 0 { ConnectData::NEW } else { 1 },
                subsystem: NAME.to_owned(),
                host: "nqn.2026-11.dev.bothends:host".to_owned(),
            };
            let connect =
                Fabrics::Connect { queue, size: 127, attributes: 0, keep_alive_ms: 0 };
            let said = own.say(usize::from(queue), connect.entry(), &data.bytes());
            assert!(matches!(said, Said::Done(Status::SUCCESS, _)));
            let enable =
                Fabrics::PropertySet { offset: 0x14, wide: Wide::No, value: 0x0046_0061 };
            if queue == 0 {
                own.say(0, enable.entry(), &[]);
            }
        }
        own
    }

    /// Sends a command. Each completion that comes is of one that has none yet: aborts complete others.
    fn say(&mut self, queue: usize, entry: Sqe, data: &[u8]) -> Said {
        let (mut sent, mut out) = (Vec::new(), Vec::new());
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.n_commands += 1;
        self.outstanding.insert((queue, id));
        self.format.command(&entry.with_id(id), data, &mut sent);
        let ended = self.queues[queue].take(&sent, &mut out).is_err();
        let (mut read, mut rest) = (Vec::new(), &out[..]);
        let mut completed = None;
        while let Ok(Parsed::Whole(pdu, n)) = parse(rest, self.format, 2 << 20) {
            match pdu {
                Pdu::ToHost(part) if part.head.id == id => {
                    read.extend_from_slice(part.data);
                }
                Pdu::Response(cqe) => {
                    let is_one = self.outstanding.remove(&(queue, cqe.id));
                    assert!(is_one, "a command has one completion");
                    if cqe.id == id {
                        completed = Some(cqe.status);
                    }
                }
                Pdu::Ready { .. } | Pdu::ControllerTerminates(..) => {}
                other => panic!("{other:?}"),
            }
            rest = &rest[n..];
        }
        assert!(rest.is_empty(), "all that a controller says is PDUs");
        match completed {
            _ if ended => Said::Ended,
            Some(status) => Said::Done(status, read),
            None => Said::Waits,
        }
    }

    fn commands(&mut self, script: &[u8]) {
        for (n, part) in script.chunks(96).take(MOST_COMMANDS).enumerate() {
            let [which, rest @ ..] = part else { return };
            if which % 4 == 0 {
                self.memory_command(rest);
                continue;
            }
            let mut entry = [0; 64];
            let length = rest.len().min(64);
            entry[..length].copy_from_slice(&rest[..length]);
            let mut entry = Sqe(entry);
            // Namespaces that there are, and lengths that are not refused at once, are found at random too seldom.
            if which % 4 == 1 {
                entry.0[4..8].copy_from_slice(&[1 + which / 4 % 3, 0, 0, 0]);
                let bytes = u32::from(entry.0[32]) << 4;
                entry = entry.with_data(Data::Transport { length: bytes });
            }
            if entry.namespace() == 2 && n % 2 == 1 {
                continue;
            }
            let data = &rest[length..];
            // The model does not follow what programs and copies do to memory.
            self.is_known &= entry.namespace() != 2 && entry.opcode() != 0x01;
            if let Said::Ended = self.say(usize::from(which / 16 % 2), entry, data) {
                return;
            }
        }
    }

    fn memory_command(&mut self, bytes: &[u8]) {
        let number = |at: usize| usize::from(bytes.get(at).copied().unwrap_or(0));
        let at = (number(0) << 8 | number(1)) & !3;
        let n = (number(2) << 2).min(MEMORY_BYTES - at).min(8192);
        let from = at as u64;
        let length = u32::try_from(n).expect("small");
        let span = at..at + n;
        match number(3) % 3 {
            0 => {
                let data: Vec<u8> = bytes.iter().copied().cycle().take(n).collect();
                if data.len() != n || n == 0 {
                    return;
                }
                let place = Data::InCapsule { offset: 0, length };
                let write = Memory::Write { to: from, bytes: length }.entry(2, place);
                let said = self.say(1, write, &data);
                assert!(matches!(said, Said::Done(Status::SUCCESS, _)));
                self.memory[span].copy_from_slice(&data);
            }
            1 => {
                let fill = Memory::Fill { from, bytes: length }.entry(2, Data::NONE);
                let said = self.say(1, fill, &[]);
                assert!(matches!(said, Said::Done(Status::SUCCESS, _)));
                self.memory[span].fill(0);
            }
            _ => {
                let read = Memory::Read { from, bytes: length };
                let read = read.entry(2, Data::Transport { length });
                let Said::Done(status, data) = self.say(1, read, &[]) else {
                    panic!("no completion");
                };
                assert_eq!((status, data.len()), (Status::SUCCESS, n));
                let is_right = !self.is_known || data == self.memory[span];
                assert!(is_right, "memory holds what was written");
            }
        }
    }
}
