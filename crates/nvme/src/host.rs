//! A host's side of one NVMe/TCP connection: commands in, PDUs out; PDUs in, data and completions out.
//!
//! It has no socket and no clock. Whoever owns it sends what [`Connection::take`] and [`Connection::send`]
//! leave in `out`, and gives it what arrives. Data for the host are passed on where they arrived, so that
//! they are copied once, to where they belong. What a controller may make this side hold is bounded by what was
//! asked of it.

use crate::entry::{Cqe, Data, Sqe};
use crate::pdu::{
    DataHead, DataPdu, Digest, Fatal, Format, Initialize, Intact, Last, Parsed, Pdu,
    parse,
};
use crate::status::Status;

/// Most bytes of a PDU around its data.
const AROUND_DATA: usize = 1024;
/// Most bytes of data that a controller may put into one PDU: no command of ours asks for more.
const MOST_DATA: usize = 1 << 20;

/// What a connection is to be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    /// Of headers.
    pub header_digest: Digest,
    /// Of data.
    pub data_digest: Digest,
}

/// The data of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// It has none.
    None,
    /// These, for the controller.
    ToController(Vec<u8>),
    /// So many bytes for the host.
    ToHost(u32),
}

/// What the controller says about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard<'a> {
    /// Some of its data.
    Data {
        /// The command.
        id: u16,
        /// Where they begin in its data.
        from: u32,
        /// The data.
        bytes: &'a [u8],
    },
    /// It has ended, and its identifier may be used again.
    Completion(Cqe),
}

/// Why a connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// What arrived is no PDU that may come here.
    #[error(transparent)]
    Fatal(#[from] Fatal),
    /// The controller ends the connection, with its reason.
    #[error("the controller ends the connection (fatal error status {0:x}h, at {1})")]
    Terminated(u16, u32),
    /// The controller does not grant what was asked for.
    #[error("the controller does not use digests as this host asks it to")]
    Digests,
    /// An answer to nothing, or not the one to its command.
    #[error("{0}")]
    Answer(&'static str),
}

/// A command that is under way.
#[derive(Debug)]
struct InFlight {
    content: Content,
    /// Bytes that have arrived for the host, or that the controller has asked for.
    arrived: u32,
    intact: Intact,
}

/// One connection, which is one queue.
#[derive(Debug)]
pub struct Connection {
    wish: Wish,
    /// What the controller wants; `None` until it has answered.
    format: Option<Format>,
    /// Most bytes of data of one PDU to the controller.
    most_to_controller: u32,
    /// Most bytes of data in a command's capsule.
    in_capsule: u32,
    commands: Vec<Option<InFlight>>,
    n_free: usize,
}

impl Connection {
    /// A connection for `depth` commands at a time.
    #[must_use]
    pub fn new(wish: Wish, depth: u16) -> Self {
        let depth = usize::from(depth.max(1));
        let commands = std::iter::repeat_with(|| None).take(depth).collect();
        Self {
            wish,
            format: None,
            most_to_controller: 4096,
            in_capsule: 8192,
            commands,
            n_free: depth,
        }
    }

    /// Appends what begins the connection.
    pub fn begin(&self, out: &mut Vec<u8>) {
        let request = Initialize {
            version: 0,
            alignment: 0,
            header_digest: self.wish.header_digest,
            data_digest: self.wish.data_digest,
            max: 0,
        };
        request.request(out);
    }

    /// Whether the controller has answered.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.format.is_some()
    }

    /// So many bytes of data fit into a command's capsule, by Identify Controller.
    pub fn set_in_capsule(&mut self, bytes: u32) {
        self.in_capsule = bytes;
    }

    /// How many more commands may be sent now.
    #[must_use]
    pub fn n_free(&self) -> usize {
        self.n_free
    }

    /// Appends a command; its identifier, or `None` where no more may be under way or the connection is not open.
    /// Where its data are is filled in here.
    pub fn send(
        &mut self,
        entry: Sqe,
        content: Content,
        out: &mut Vec<u8>,
    ) -> Option<u16> {
        let format = self.format?;
        let at = self.commands.iter().position(Option::is_none)?;
        let id = u16::try_from(at).ok()?;
        let length = content.length()?;
        let is_inside = matches!(content, Content::ToController(_))
            && length <= self.in_capsule
            && length > 0;
        let data = match is_inside {
            true => Data::InCapsule { offset: 0, length },
            false => Data::Transport { length },
        };
        let entry = entry.with_id(id).with_data(data);
        let inside: &[u8] = match &content {
            Content::ToController(bytes) if is_inside => bytes,
            Content::ToController(_) | Content::ToHost(_) | Content::None => &[],
        };
        format.command(&entry, inside, out);
        let content = if is_inside { Content::None } else { content };
        self.commands[at] = Some(InFlight { content, arrived: 0, intact: Intact::Yes });
        self.n_free -= 1;
        Some(id)
    }

    /// Takes all PDUs that `arrived` has whole, passes on what they say, and appends what is to be sent; how
    /// many bytes they had.
    ///
    /// # Errors
    /// The connection has to end. What says so to the controller is in `out`.
    pub fn take(
        &mut self,
        arrived: &[u8],
        out: &mut Vec<u8>,
        heard: &mut dyn FnMut(Heard<'_>),
    ) -> Result<usize, Broken> {
        let mut taken = 0;
        loop {
            let rest = &arrived[taken..];
            match self.next(rest, out, heard) {
                Ok(0) => return Ok(taken),
                Ok(n) => taken += n,
                Err(broken) => {
                    if let Broken::Fatal(fatal) = broken {
                        let n = rest.len().min(rest.get(2).map_or(0, |n| (*n).into()));
                        Format::host_terminates(fatal, &rest[..n], out);
                    }
                    return Err(broken);
                }
            }
        }
    }

    fn next(
        &mut self,
        arrived: &[u8],
        out: &mut Vec<u8>,
        heard: &mut dyn FnMut(Heard<'_>),
    ) -> Result<usize, Broken> {
        let format = self.format.unwrap_or_default();
        let (pdu, bytes) = match parse(arrived, format, MOST_DATA + AROUND_DATA)? {
            Parsed::Needs(_) => return Ok(0),
            Parsed::Whole(pdu, bytes) => (pdu, bytes),
        };
        match (self.format, pdu) {
            (None, Pdu::InitializeResponse(granted)) => self.open(granted)?,
            (_, Pdu::ControllerTerminates(status, at)) => {
                return Err(Broken::Terminated(status, at));
            }
            (Some(_), Pdu::Response(entry)) => self.complete(entry, heard)?,
            (Some(_), Pdu::ToHost(part)) => self.data(&part, heard)?,
            (Some(format), Pdu::Ready { id, tag, from, bytes }) => {
                self.answer(format, (id, tag), (from, bytes), out)?;
            }
            _ => return Err(Fatal::Sequence.into()),
        }
        Ok(bytes)
    }

    fn open(&mut self, granted: Initialize) -> Result<(), Broken> {
        if granted.version != 0 {
            return Err(Fatal::Parameter { at: 8 }.into());
        }
        if granted.alignment > 31 {
            return Err(Fatal::Parameter { at: 10 }.into());
        }
        // A controller may refuse digests, and may ask for some.
        let is_granted = granted.header_digest == self.wish.header_digest
            && granted.data_digest == self.wish.data_digest;
        if !is_granted {
            return Err(Broken::Digests);
        }
        // The specification's least is 4 KiB.
        if granted.max < 4096 {
            return Err(Fatal::Parameter { at: 12 }.into());
        }
        self.most_to_controller = granted.max & !3;
        self.format = Some(Format {
            header_digest: granted.header_digest,
            data_digest: granted.data_digest,
            alignment: granted.alignment,
        });
        Ok(())
    }

    fn under_way(&mut self, id: u16) -> Result<&mut InFlight, Broken> {
        let command = self.commands.get_mut(usize::from(id)).and_then(Option::as_mut);
        command.ok_or(Broken::Answer(
            "the controller answers a command that is not under way",
        ))
    }

    fn data(
        &mut self,
        part: &DataPdu<'_>,
        heard: &mut dyn FnMut(Heard<'_>),
    ) -> Result<(), Broken> {
        let DataHead { id, from, bytes, last, .. } = part.head;
        let command = self.under_way(id)?;
        let Content::ToHost(expected) = command.content else {
            return Err(Fatal::DataRange.into());
        };
        let end = command.arrived.checked_add(bytes).filter(|end| *end <= expected);
        // Parts of nothing might come without end, and no one of them would be too much.
        let Some(end) = end.filter(|_| bytes > 0 && from == command.arrived) else {
            return Err(Fatal::DataRange.into());
        };
        command.arrived = end;
        match part.intact {
            Intact::Yes => heard(Heard::Data { id, from, bytes: part.data }),
            Intact::No => command.intact = Intact::No,
        }
        if last == Last::Success {
            let (result, status) = (0, Status::SUCCESS);
            return self
                .complete(Cqe { result, sq_head: 0, sq_id: 0, id, status }, heard);
        }
        Ok(())
    }

    fn complete(
        &mut self,
        mut entry: Cqe,
        heard: &mut dyn FnMut(Heard<'_>),
    ) -> Result<(), Broken> {
        let command = self.under_way(entry.id)?;
        if entry.status.is_success() {
            if command.intact == Intact::No {
                entry.status = Status::DATA_TRANSFER_ERROR;
            } else if let Content::ToHost(expected) = command.content
                && command.arrived != expected
            {
                return Err(Broken::Answer("a command succeeds without all of its data"));
            }
        }
        self.commands[usize::from(entry.id)] = None;
        self.n_free += 1;
        heard(Heard::Completion(entry));
        Ok(())
    }

    /// Sends the data that the controller asks for.
    fn answer(
        &mut self,
        format: Format,
        (id, tag): (u16, u16),
        (from, bytes): (u32, u32),
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        let most = self.most_to_controller;
        let command = self.under_way(id)?;
        let Content::ToController(all) = &command.content else {
            return Err(Fatal::DataRange.into());
        };
        let end = from.checked_add(bytes).filter(|end| *end as usize <= all.len());
        let end = end.filter(|_| bytes > 0).ok_or(Fatal::DataRange)?;
        // Each byte once: what is asked for again and again would have no end.
        let asked = command.arrived.checked_add(bytes);
        let asked = asked.filter(|asked| *asked as usize <= all.len());
        command.arrived = asked.ok_or(Fatal::DataLimit)?;
        let mut at = from;
        while at < end {
            let n = most.min(end - at);
            let part = &all[at as usize..(at + n) as usize];
            let last = if at + n == end { Last::Yes } else { Last::No };
            let head = DataHead { id, tag, from: at, bytes: n, last };
            format.before_data_to_controller(head, out);
            out.extend_from_slice(part);
            format.after_data(part, out);
            at += n;
        }
        Ok(())
    }
}

impl Content {
    fn length(&self) -> Option<u32> {
        match self {
            Self::None => Some(0),
            Self::ToController(bytes) => u32::try_from(bytes.len()).ok(),
            Self::ToHost(bytes) => Some(*bytes),
        }
    }
}
