//! A connection as PDUs: what begins it, commands with all of their data, and answers. Bytes in, bytes out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bothends_nvme::commands::Fabrics;
use bothends_nvme::pdu::{
    DataPdu, Fatal, Format, Initialize, Intact, Last, Parsed, Pdu, parse,
};
use bothends_nvme::{Data, Direction, Sqe, Status};

use super::{IN_CAPSULE, MOST_DATA};

/// Most bytes of one PDU: a command's data and what is around them.
const MOST_PDU: usize = MOST_DATA as usize + 1024;
/// Bytes of data that are awaited on a connection at a time; further commands wait for their turn.
const MOST_AWAITED: usize = 16 << 20;

/// A command with its data.
#[derive(Debug)]
pub(super) struct Request {
    /// Its entry.
    pub(super) entry: Sqe,
    /// All data that it has for the controller.
    pub(super) data: Vec<u8>,
    /// What is to be answered at once, without looking at the command.
    pub(super) failed: Option<Status>,
}

/// The identifiers of commands in flight: reader and pool both end commands.
#[derive(Debug)]
pub(super) struct InFlight {
    ids: Box<[AtomicU64]>,
    n: AtomicU32,
}

impl InFlight {
    fn new() -> Self {
        let ids = std::iter::repeat_with(|| AtomicU64::new(0)).take(1 << 10).collect();
        Self { ids, n: AtomicU32::new(0) }
    }

    /// Whether it was not in flight.
    fn begin(&self, id: u16) -> bool {
        let bit = 1 << (id % 64);
        let was = self.ids[usize::from(id / 64)].fetch_or(bit, Ordering::Relaxed);
        if was & bit == 0 {
            self.n.fetch_add(1, Ordering::Relaxed);
        }
        was & bit == 0
    }

    /// Its completion is on the way.
    pub(super) fn end(&self, id: u16) {
        let bit = 1 << (id % 64);
        if self.ids[usize::from(id / 64)].fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
            self.n.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A command whose data are awaited.
#[derive(Debug)]
struct Transfer {
    entry: Sqe,
    data: Vec<u8>,
    length: usize,
    intact: Intact,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing has come.
    Fresh,
    /// Digests and the like are agreed on.
    Open,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Wire {
    phase: Phase,
    format: Format,
    /// Entries of the queue; the size of an admin queue until Connect says it.
    entries: u32,
    in_flight: Arc<InFlight>,
    transfers: Vec<Transfer>,
    waiting: VecDeque<(Sqe, usize)>,
    awaited: usize,
}

impl Wire {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Fresh,
            format: Format::default(),
            entries: 32,
            in_flight: Arc::new(InFlight::new()),
            transfers: Vec::new(),
            waiting: VecDeque::new(),
            awaited: 0,
        }
    }

    /// What PDUs look like from now on.
    pub(super) fn format(&self) -> Format {
        self.format
    }

    pub(super) fn in_flight(&self) -> Arc<InFlight> {
        Arc::clone(&self.in_flight)
    }

    /// Bounds commands in flight by the size of the queue.
    pub(super) fn set_entries(&mut self, entries: u32) {
        self.entries = entries;
    }

    /// Takes the PDU that `arrived` begins with, if it is whole, and says how many bytes it has; 0 if more are needed.
    /// What has to be sent is appended to `out`, and commands that are whole to `requests`.
    ///
    /// # Errors
    /// The connection has to end; what says so to the host is in `out`.
    pub(super) fn take(
        &mut self,
        arrived: &[u8],
        out: &mut Vec<u8>,
        requests: &mut Vec<Request>,
    ) -> Result<usize, Fatal> {
        let taken = self.try_take(arrived, out, requests);
        if let Err(fatal) = taken {
            let n = arrived.len().min(arrived.get(2).map_or(0, |n| usize::from(*n)));
            Format::controller_terminates(fatal, &arrived[..n], out);
        }
        taken
    }

    fn try_take(
        &mut self,
        arrived: &[u8],
        out: &mut Vec<u8>,
        requests: &mut Vec<Request>,
    ) -> Result<usize, Fatal> {
        let (pdu, bytes) = match parse(arrived, self.format, MOST_PDU)? {
            Parsed::Needs(_) => return Ok(0),
            Parsed::Whole(pdu, bytes) => (pdu, bytes),
        };
        match (self.phase, pdu) {
            (Phase::Fresh, Pdu::InitializeRequest(asked)) => self.open(asked, out)?,
            (Phase::Open, Pdu::Command(entry, data, intact)) => {
                self.command(entry, data, intact, requests)?;
            }
            (Phase::Open, Pdu::ToController(part)) => self.data(&part, requests)?,
            (_, Pdu::HostTerminates(..)) => return Err(Fatal::Sequence),
            _ => return Err(Fatal::Sequence),
        }
        self.ask(out);
        Ok(bytes)
    }

    fn open(&mut self, asked: Initialize, out: &mut Vec<u8>) -> Result<(), Fatal> {
        if asked.version != 0 {
            return Err(Fatal::Parameter { at: 8 });
        }
        if asked.alignment > 31 {
            return Err(Fatal::Parameter { at: 10 });
        }
        let granted = Initialize { alignment: 0, max: MOST_DATA, ..asked };
        granted.response(out);
        self.format = Format {
            header_digest: asked.header_digest,
            data_digest: asked.data_digest,
            alignment: asked.alignment,
        };
        self.phase = Phase::Open;
        Ok(())
    }

    fn command(
        &mut self,
        entry: Sqe,
        data: &[u8],
        intact: Intact,
        requests: &mut Vec<Request>,
    ) -> Result<(), Fatal> {
        if data.len() > IN_CAPSULE as usize
            || self.in_flight.n.load(Ordering::Relaxed) >= self.entries
        {
            return Err(Fatal::DataLimit);
        }
        let mut failed = None;
        if !self.in_flight.begin(entry.id()) {
            failed = Some(Status::COMMAND_ID_CONFLICT);
        } else if intact == Intact::No {
            failed = Some(Status::DATA_TRANSFER_ERROR);
        }
        let mut own = Vec::new();
        match entry.data() {
            _ if failed.is_some() => {}
            Err(status) => failed = Some(status),
            Ok(Data::InCapsule { offset, length }) => {
                let begin = usize::try_from(offset).unwrap_or(usize::MAX);
                let end = begin.checked_add(length as usize);
                match end.and_then(|end| data.get(begin..end)) {
                    Some(there) => own = there.to_vec(),
                    None => failed = Some(Status::SGL_OFFSET),
                }
            }
            Ok(Data::Transport { length: 0 }) => {}
            Ok(Data::Transport { length }) => {
                if length > MOST_DATA {
                    failed = Some(Status::INVALID_FIELD);
                } else if is_to_controller(&entry) {
                    self.waiting.push_back((entry, length as usize));
                    return Ok(());
                }
            }
        }
        requests.push(Request { entry, data: own, failed });
        Ok(())
    }

    /// Asks for data of those that wait, as far as there is room.
    fn ask(&mut self, out: &mut Vec<u8>) {
        while let Some((_, length)) = self.waiting.front() {
            if self.awaited > 0 && self.awaited + length > MOST_AWAITED {
                return;
            }
            let Some((entry, length)) = self.waiting.pop_front() else { return };
            self.awaited += length;
            let bytes = u32::try_from(length).unwrap_or(u32::MAX);
            self.format.ready((entry.id(), entry.id()), 0, bytes, out);
            self.transfers.push(Transfer {
                entry,
                data: Vec::new(),
                length,
                intact: Intact::Yes,
            });
        }
    }

    fn data(
        &mut self,
        part: &DataPdu<'_>,
        requests: &mut Vec<Request>,
    ) -> Result<(), Fatal> {
        let at = self
            .transfers
            .iter()
            .position(|transfer| transfer.entry.id() == part.head.id);
        let Some(at) = at else { return Err(Fatal::DataRange) };
        let (head, transfer) = (part.head, &mut self.transfers[at]);
        let end = transfer.data.len() + part.data.len();
        if head.tag != head.id
            || head.from as usize != transfer.data.len()
            || end > transfer.length
        {
            return Err(Fatal::DataRange);
        }
        transfer.data.extend_from_slice(part.data);
        if part.intact == Intact::No {
            transfer.intact = Intact::No;
        }
        match (end == transfer.length, head.last) {
            (true, Last::Yes) => {}
            (false, Last::No) => return Ok(()),
            _ => return Err(Fatal::Header { at: 1 }),
        }
        let transfer = self.transfers.swap_remove(at);
        self.awaited -= transfer.length;
        let failed =
            (transfer.intact == Intact::No).then_some(Status::DATA_TRANSFER_ERROR);
        requests.push(Request { entry: transfer.entry, data: transfer.data, failed });
        Ok(())
    }
}

/// Whether the host has data for it. Fabrics commands say nothing of that in their opcode, and those that have
/// data have them in the capsule.
fn is_to_controller(entry: &Sqe) -> bool {
    entry.direction() == Direction::ToController && !Fabrics::is(entry)
}
