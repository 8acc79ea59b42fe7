//! An NVMe controller that says anything to a host: in well-formed PDUs, and in bytes.

use bothends_nvme::commands::{Admin, Blocks, Memory};
use bothends_nvme::host::{Connection, Content, Heard, Wish};
use bothends_nvme::pdu::{DataHead, Digest, Format, Initialize, Last};
use bothends_nvme::{Cqe, Data, Status};

/// Bytes that each command has at most.
const MOST: usize = 8192;

/// What a controller says to a host with a read, a write and a command without data under way. Nothing panics, no
/// command has two completions or more data than were asked for, and no byte is sent twice.
pub(crate) fn controllers(bytes: &[u8]) {
    let [kind, script @ ..] = bytes else { return };
    let digest = if kind & 1 == 0 { Digest::Off } else { Digest::On };
    let wish = Wish { header_digest: digest, data_digest: digest };
    let mut host = Host { wire: Connection::new(wish, 4), sent: 0, data: 0, ended: 0 };
    if kind & 2 != 0 {
        // What begins a connection, too.
        host.hear(script);
        return;
    }
    let granted = Initialize {
        version: 0,
        alignment: 0,
        header_digest: digest,
        data_digest: digest,
        max: 4096,
    };
    let mut said = Vec::new();
    granted.response(&mut said);
    assert!(host.hear(&said) && host.wire.is_open());
    let mut send = |entry, content| {
        host.wire.send(entry, content, &mut Vec::new()).expect("there is room")
    };
    let n = u32::try_from(MOST).expect("small");
    let read = Blocks::Read { first: 0, n_blocks: 2 }.entry(1, Data::NONE);
    send(read, Content::ToHost(n));
    let write = Memory::Write { to: 0, bytes: n + 4 }.entry(2, Data::NONE);
    send(write, Content::ToController(vec![7; MOST + 4]));
    send(Admin::KeepAlive.entry(0, Data::NONE), Content::None);
    let format = Format { header_digest: digest, data_digest: digest, alignment: 0 };
    for part in script.chunks(12) {
        if !host.hear(&said_by(part, format)) {
            break;
        }
    }
    // Each request for data is answered by few PDUs, of which each has a header.
    let most_sent = MOST + 4 + 256 * (script.len() / 12 + 4);
    assert!(host.data <= MOST && host.ended <= 3 && host.sent <= most_sent);
}

/// A PDU of which the bytes choose the fields, or the bytes themselves.
fn said_by(part: &[u8], format: Format) -> Vec<u8> {
    let at = |n: usize| part.get(n).copied().unwrap_or(0);
    let number = |n: usize| u32::from(at(n)) << 8 | u32::from(at(n + 1));
    let id = u16::from(at(1) % 5);
    let mut out = Vec::new();
    match at(0) % 4 {
        0 => {
            let status =
                if at(2) == 0 { Status::SUCCESS } else { Status::INTERNAL_ERROR };
            let entry = Cqe { result: 1, sq_head: 0, sq_id: 1, id, status };
            format.response(&entry, &mut out);
        }
        1 => {
            let bytes = number(2) % 4100;
            let last = [Last::No, Last::Yes, Last::Success][usize::from(at(6) % 3)];
            let head = DataHead { id, tag: 0, from: number(4), bytes, last };
            let data = vec![1; bytes as usize];
            format.before_data_to_host(head, &mut out);
            out.extend_from_slice(&data);
            format.after_data(&data, &mut out);
        }
        2 => format.ready((id, 3), number(2), number(4), &mut out),
        _ => out.extend_from_slice(part),
    }
    out
}

struct Host {
    wire: Connection,
    sent: usize,
    data: usize,
    ended: usize,
}

impl Host {
    /// Takes what a controller says; whether the connection goes on.
    fn hear(&mut self, said: &[u8]) -> bool {
        let Self { wire, sent, data, ended } = self;
        let mut out = Vec::new();
        let taken = wire.take(said, &mut out, &mut |heard| match heard {
            Heard::Data { bytes, .. } => *data += bytes.len(),
            Heard::Completion(_) => *ended += 1,
        });
        *sent += out.len();
        // What is not whole would wait for more.
        taken.is_ok_and(|taken| taken == said.len())
    }
}
