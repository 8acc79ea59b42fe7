//! PDUs of the TCP transport: one from the bytes of a connection, and the bytes of one.
//!
//! Nothing here reads or writes. [`parse`] takes what has arrived and says whether a PDU is whole; its data
//! are a part of what it was given, not a copy. The functions of [`Format`] append PDUs to a buffer, or,
//! for data, only what comes before and after them, so that nobody need copy those either.

use crate::entry::{Cqe, Sqe};
use crate::layout::{cqe, data, initialize, pdu, ready, sqe, terminate};

const IC_REQ: u8 = 0x00;
const IC_RESP: u8 = 0x01;
const H2C_TERM: u8 = 0x02;
const C2H_TERM: u8 = 0x03;
const COMMAND: u8 = 0x04;
const RESPONSE: u8 = 0x05;
const H2C_DATA: u8 = 0x06;
const C2H_DATA: u8 = 0x07;
const R2T: u8 = 0x09;

const FLAG_HEADER_DIGEST: u8 = 1;
const FLAG_DATA_DIGEST: u8 = 1 << 1;
const FLAG_LAST: u8 = 1 << 2;
const FLAG_SUCCESS: u8 = 1 << 3;

const DIGEST_BYTES: usize = 4;

/// Why a connection has to end: the PDU at fault cannot be answered otherwise (TCP, Fatal Errors).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    /// A field of the header is wrong: 1h.
    #[error("the field at byte {at} of a PDU's header is wrong")]
    Header {
        /// Its first byte.
        at: u32,
    },
    /// The PDU may not come now: 2h.
    #[error("a PDU came out of sequence")]
    Sequence,
    /// The digest of the header differs: 3h.
    #[error("the digest of a PDU's header differs: what arrived is not what was sent")]
    HeaderDigest,
    /// Data for other bytes than were asked for: 4h.
    #[error("a PDU has data for other bytes than were asked for")]
    DataRange,
    /// More data, or more requests for them, than were agreed on: 5h.
    #[error("a PDU has more data than were agreed on")]
    DataLimit,
    /// A parameter that is not supported: 6h.
    #[error("the parameter at byte {at} of a PDU is not supported")]
    Parameter {
        /// Its first byte.
        at: u32,
    },
}

impl Fatal {
    /// Fatal Error Status and Information.
    #[must_use]
    pub fn codes(self) -> (u16, u32) {
        match self {
            Self::Header { at } => (1, at),
            Self::Sequence => (2, 0),
            Self::HeaderDigest => (3, 0),
            Self::DataRange => (4, 0),
            Self::DataLimit => (5, 0),
            Self::Parameter { at } => (6, at),
        }
    }
}

/// Whether digests are used: CRC-32C of a header, or of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Digest {
    /// There are none.
    #[default]
    Off,
    /// Each has one.
    On,
}

impl Digest {
    fn bytes(self) -> usize {
        match self {
            Self::Off => 0,
            Self::On => DIGEST_BYTES,
        }
    }

    fn flag(self, flag: u8) -> u8 {
        match self {
            Self::Off => 0,
            Self::On => flag,
        }
    }
}

/// What both ends agreed on when the connection began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Format {
    /// Of headers.
    pub header_digest: Digest,
    /// Of data.
    pub data_digest: Digest,
    /// What the receiver's data are aligned to: 4-byte words, less one.
    pub alignment: u8,
}

/// What a side says when a connection begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initialize {
    /// The format of PDUs: 0.
    pub version: u16,
    /// What data that it receives are to be aligned to: 4-byte words, less one.
    pub alignment: u8,
    /// Of headers: what the host wants, what the controller grants.
    pub header_digest: Digest,
    /// Of data.
    pub data_digest: Digest,
    /// The host: requests for data at a time, less one. The controller: most bytes of data in a PDU to it.
    pub max: u32,
}

/// What data in a PDU of their own are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHead {
    /// The command.
    pub id: u16,
    /// The request that they answer; 0 from the controller.
    pub tag: u16,
    /// Where they are in the command's data.
    pub from: u32,
    /// How many bytes.
    pub bytes: u32,
    /// Whether no more follow.
    pub last: Last,
}

/// Data of a command, in a PDU of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataPdu<'a> {
    /// What they are.
    pub head: DataHead,
    /// The data.
    pub data: &'a [u8],
    /// What is said of them by their digest.
    pub intact: Intact,
}

/// Whether a PDU is the last one of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// More follow.
    No,
    /// It is the last.
    Yes,
    /// It is the last, and no completion follows, for the command has succeeded. Only from a controller.
    Success,
}

/// Whether data are what their digest says. Data that are not fail their command, and not the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intact {
    /// They are, or there is no digest.
    Yes,
    /// They are not.
    No,
}

/// A PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pdu<'a> {
    /// Begins a connection.
    InitializeRequest(Initialize),
    /// Answers that.
    InitializeResponse(Initialize),
    /// The host ends the connection, with the codes of [`Fatal::codes`].
    HostTerminates(u16, u32),
    /// The controller does.
    ControllerTerminates(u16, u32),
    /// A command, with data that came along.
    Command(Sqe, &'a [u8], Intact),
    /// A completion.
    Response(Cqe),
    /// Data to the controller.
    ToController(DataPdu<'a>),
    /// Data to the host.
    ToHost(DataPdu<'a>),
    /// The controller asks for `bytes` from `from` on.
    Ready {
        /// The command.
        id: u16,
        /// The request, for the data that answer it.
        tag: u16,
        /// The first byte.
        from: u32,
        /// How many.
        bytes: u32,
    },
}

/// What has arrived so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// Not yet a whole PDU: at least so many bytes are needed in all.
    Needs(usize),
    /// A PDU of so many bytes.
    Whole(Pdu<'a>, usize),
}

struct Header {
    kind: u8,
    flags: u8,
    bytes: usize,
    data_at: usize,
    whole: usize,
}

/// The PDU that `arrived` begins with.
///
/// `most` bounds the bytes of one: a longer one is refused as soon as its header is there.
///
/// # Errors
/// [`Fatal`]: the connection has to end.
pub fn parse(arrived: &[u8], format: Format, most: usize) -> Result<Parsed<'_>, Fatal> {
    let Some(common) = arrived.first_chunk::<{ pdu::BYTES }>() else {
        return Ok(Parsed::Needs(pdu::BYTES));
    };
    let header = Header::parse(common, format, most)?;
    let Some(whole) = arrived.get(..header.whole) else {
        return Ok(Parsed::Needs(header.whole));
    };
    if header.has_digests() && format.header_digest == Digest::On {
        let digest = crc32c::crc32c(&whole[..header.bytes]).to_le_bytes();
        if whole[header.bytes..header.bytes + DIGEST_BYTES] != digest {
            return Err(Fatal::HeaderDigest);
        }
    }
    Ok(Parsed::Whole(header.pdu(whole, format)?, header.whole))
}

impl Header {
    fn parse(
        common: &[u8; pdu::BYTES],
        format: Format,
        most: usize,
    ) -> Result<Self, Fatal> {
        let kind = pdu::TYPE.get(common);
        let bytes = usize::from(pdu::HLEN.get(common));
        let is_terminate = matches!(kind, H2C_TERM | C2H_TERM);
        let expected = match kind {
            IC_REQ | IC_RESP => initialize::BYTES,
            H2C_TERM | C2H_TERM => terminate::BYTES,
            COMMAND => pdu::BYTES + sqe::BYTES,
            RESPONSE => pdu::BYTES + cqe::BYTES,
            H2C_DATA | C2H_DATA => data::BYTES,
            R2T => ready::BYTES,
            _ => return Err(wrong(pdu::TYPE.offset())),
        };
        if bytes != expected {
            return Err(wrong(pdu::HLEN.offset()));
        }
        let whole = pdu::PLEN.get(common) as usize;
        let flags = pdu::FLAGS.get(common);
        let mut own = Self { kind, flags, bytes, data_at: whole, whole };
        let head =
            bytes + if own.has_digests() { format.header_digest.bytes() } else { 0 };
        if whole < head || whole > most {
            return Err(wrong(pdu::PLEN.offset()));
        }
        let may_have_data = matches!(kind, COMMAND | H2C_DATA | C2H_DATA) || is_terminate;
        if !may_have_data && whole != head {
            return Err(wrong(pdu::PLEN.offset()));
        }
        if own.has_data(head) && !is_terminate {
            own.data_at = usize::from(pdu::PDO.get(common));
            let is_inside = own.data_at >= head && own.data_at <= own.data_end(format)?;
            if !is_inside || !own.data_at.is_multiple_of(4) {
                return Err(wrong(pdu::PDO.offset()));
            }
        }
        Ok(own)
    }

    /// The exchange that agrees on digests has none, and nor has what ends a connection.
    fn has_digests(&self) -> bool {
        !matches!(self.kind, IC_REQ | IC_RESP | H2C_TERM | C2H_TERM)
    }

    fn has_data(&self, head: usize) -> bool {
        self.whole > head
    }

    fn data_end(&self, format: Format) -> Result<usize, Fatal> {
        let digest = format.data_digest.bytes();
        self.whole.checked_sub(digest).ok_or(wrong(pdu::PLEN.offset()))
    }

    /// The data, and whether they are intact.
    fn data<'a>(
        &self,
        whole: &'a [u8],
        format: Format,
    ) -> Result<(&'a [u8], Intact), Fatal> {
        if self.data_at == self.whole {
            return Ok((&[], Intact::Yes));
        }
        let end = self.data_end(format)?;
        let own = whole.get(self.data_at..end).ok_or(wrong(pdu::PLEN.offset()))?;
        let is_intact = format.data_digest == Digest::Off
            || whole[end..] == crc32c::crc32c(own).to_le_bytes();
        Ok((own, if is_intact { Intact::Yes } else { Intact::No }))
    }

    fn pdu<'a>(&self, whole: &'a [u8], format: Format) -> Result<Pdu<'a>, Fatal> {
        match self.kind {
            IC_REQ => Ok(Pdu::InitializeRequest(initialized(head(whole)?))),
            IC_RESP => Ok(Pdu::InitializeResponse(initialized(head(whole)?))),
            H2C_TERM | C2H_TERM => {
                let own = head(whole)?;
                let codes = (terminate::FES.get(own), terminate::FEI.get(own));
                Ok(match self.kind {
                    H2C_TERM => Pdu::HostTerminates(codes.0, codes.1),
                    _ => Pdu::ControllerTerminates(codes.0, codes.1),
                })
            }
            COMMAND => {
                let (data, intact) = self.data(whole, format)?;
                Ok(Pdu::Command(Sqe(*head(&whole[pdu::BYTES..])?), data, intact))
            }
            RESPONSE => Ok(Pdu::Response(Cqe::of(head(&whole[pdu::BYTES..])?))),
            R2T => {
                let own = head(whole)?;
                Ok(Pdu::Ready {
                    id: ready::CCCID.get(own),
                    tag: ready::TTAG.get(own),
                    from: ready::R2TO.get(own),
                    bytes: ready::R2TL.get(own),
                })
            }
            _ => self.data_pdu(whole, format),
        }
    }

    fn data_pdu<'a>(&self, whole: &'a [u8], format: Format) -> Result<Pdu<'a>, Fatal> {
        let own = head(whole)?;
        let (bytes, intact) = self.data(whole, format)?;
        if data::DATAL.get(own) as usize != bytes.len() {
            return Err(wrong(data::DATAL.offset()));
        }
        let is_last = self.flags & FLAG_LAST != 0;
        let is_success = self.kind == C2H_DATA && self.flags & FLAG_SUCCESS != 0;
        let last = match (is_last, is_success) {
            (true, true) => Last::Success,
            (true, false) => Last::Yes,
            (false, false) => Last::No,
            (false, true) => return Err(wrong(pdu::FLAGS.offset())),
        };
        let head = DataHead {
            id: data::CCCID.get(own),
            tag: data::TTAG.get(own),
            from: data::DATAO.get(own),
            bytes: data::DATAL.get(own),
            last,
        };
        let content = DataPdu { head, data: bytes, intact };
        Ok(if self.kind == H2C_DATA {
            Pdu::ToController(content)
        } else {
            Pdu::ToHost(content)
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "an offset in a header")]
fn wrong(at: usize) -> Fatal {
    Fatal::Header { at: at as u32 }
}

fn head<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], Fatal> {
    bytes.first_chunk().ok_or(wrong(pdu::HLEN.offset()))
}

fn initialized(own: &[u8; initialize::BYTES]) -> Initialize {
    let digests = initialize::DGST.get(own);
    let of = |bit: u8| if digests & bit == 0 { Digest::Off } else { Digest::On };
    Initialize {
        version: initialize::PFV.get(own),
        alignment: initialize::PDA.get(own),
        header_digest: of(1),
        data_digest: of(2),
        max: initialize::MAX.get(own),
    }
}

impl Initialize {
    /// Appends the host's request.
    pub fn request(&self, to: &mut Vec<u8>) {
        self.write(IC_REQ, to);
    }

    /// Appends the controller's response.
    pub fn response(&self, to: &mut Vec<u8>) {
        self.write(IC_RESP, to);
    }

    fn write(&self, kind: u8, to: &mut Vec<u8>) {
        let mut own = [0; initialize::BYTES];
        own[..pdu::BYTES].copy_from_slice(&common(
            kind,
            0,
            (initialize::BYTES, 0, initialize::BYTES),
        ));
        initialize::PFV.put(&mut own, self.version);
        initialize::PDA.put(&mut own, self.alignment);
        let digests = self.header_digest.flag(1) | self.data_digest.flag(2);
        initialize::DGST.put(&mut own, digests);
        initialize::MAX.put(&mut own, self.max);
        to.extend_from_slice(&own);
    }
}

impl Format {
    /// Appends a completion.
    pub fn response(self, entry: &Cqe, to: &mut Vec<u8>) {
        self.without_data(RESPONSE, &entry.bytes(), to);
    }

    /// Appends a command with `data` in its capsule.
    pub fn command(self, entry: &Sqe, data: &[u8], to: &mut Vec<u8>) {
        if data.is_empty() {
            return self.without_data(COMMAND, &entry.0, to);
        }
        self.before_data(COMMAND, &entry.0, data.len(), to);
        to.extend_from_slice(data);
        self.after_data(data, to);
    }

    /// Appends a request for `bytes` from `from` on of the data of command `id`.
    pub fn ready(self, (id, tag): (u16, u16), from: u32, bytes: u32, to: &mut Vec<u8>) {
        let mut own = [0; ready::BYTES];
        ready::CCCID.put(&mut own, id);
        ready::TTAG.put(&mut own, tag);
        ready::R2TO.put(&mut own, from);
        ready::R2TL.put(&mut own, bytes);
        self.without_data(R2T, &own[pdu::BYTES..], to);
    }

    /// Appends what comes before the data of a PDU to the controller; [`Format::after_data`] comes behind
    /// them.
    pub fn before_data_to_controller(self, head: DataHead, to: &mut Vec<u8>) {
        self.before_data_pdu(H2C_DATA, head, to);
    }

    /// The same for a PDU to the host.
    pub fn before_data_to_host(self, head: DataHead, to: &mut Vec<u8>) {
        self.before_data_pdu(C2H_DATA, head, to);
    }

    /// Appends what comes after the data of a PDU: their digest, if there are digests.
    pub fn after_data(self, data: &[u8], to: &mut Vec<u8>) {
        if self.data_digest == Digest::On {
            to.extend_from_slice(&crc32c::crc32c(data).to_le_bytes());
        }
    }

    /// The same for data that `to` ends with, from `data_at` on.
    ///
    /// # Panics
    /// If `to` is shorter.
    pub fn after_data_at(self, data_at: usize, to: &mut Vec<u8>) {
        if self.data_digest == Digest::On {
            let digest = crc32c::crc32c(&to[data_at..]).to_le_bytes();
            to.extend_from_slice(&digest);
        }
    }

    /// Appends what ends the connection because of `fatal` in the PDU with the header `at_fault`, at most 128
    /// bytes of it.
    pub fn controller_terminates(fatal: Fatal, at_fault: &[u8], to: &mut Vec<u8>) {
        terminates(C2H_TERM, fatal, at_fault, to);
    }

    /// The same by the host.
    pub fn host_terminates(fatal: Fatal, at_fault: &[u8], to: &mut Vec<u8>) {
        terminates(H2C_TERM, fatal, at_fault, to);
    }

    fn before_data_pdu(self, kind: u8, head: DataHead, to: &mut Vec<u8>) {
        let mut own = [0; data::BYTES];
        data::CCCID.put(&mut own, head.id);
        data::TTAG.put(&mut own, head.tag);
        data::DATAO.put(&mut own, head.from);
        data::DATAL.put(&mut own, head.bytes);
        let begin = to.len();
        self.before_data(kind, &own[pdu::BYTES..], head.bytes as usize, to);
        let flags = match head.last {
            Last::No => 0,
            Last::Yes => FLAG_LAST,
            Last::Success => FLAG_LAST | FLAG_SUCCESS,
        };
        if flags != 0 {
            to[begin + pdu::FLAGS.offset()] |= flags;
            self.seal(begin, data::BYTES, to);
        }
    }

    fn without_data(self, kind: u8, body: &[u8], to: &mut Vec<u8>) {
        let bytes = pdu::BYTES + body.len();
        let whole = bytes + self.header_digest.bytes();
        let begin = to.len();
        let flags = self.header_digest.flag(FLAG_HEADER_DIGEST);
        to.extend_from_slice(&common(kind, flags, (bytes, 0, whole)));
        to.extend_from_slice(body);
        to.resize(begin + whole, 0);
        self.seal(begin, bytes, to);
    }

    fn before_data(self, kind: u8, body: &[u8], n_data: usize, to: &mut Vec<u8>) {
        let bytes = pdu::BYTES + body.len();
        let aligned = 4 * (usize::from(self.alignment & 31) + 1);
        let data_at = (bytes + self.header_digest.bytes()).next_multiple_of(aligned);
        let flags = self.header_digest.flag(FLAG_HEADER_DIGEST)
            | self.data_digest.flag(FLAG_DATA_DIGEST);
        let whole = data_at + n_data + self.data_digest.bytes();
        let begin = to.len();
        to.extend_from_slice(&common(kind, flags, (bytes, data_at, whole)));
        to.extend_from_slice(body);
        to.resize(begin + data_at, 0);
        self.seal(begin, bytes, to);
    }

    /// Puts the digest behind a header of `bytes` bytes.
    fn seal(self, begin: usize, bytes: usize, to: &mut [u8]) {
        if self.header_digest == Digest::On {
            let digest = crc32c::crc32c(&to[begin..begin + bytes]).to_le_bytes();
            to[begin + bytes..begin + bytes + DIGEST_BYTES].copy_from_slice(&digest);
        }
    }
}

fn terminates(kind: u8, fatal: Fatal, at_fault: &[u8], to: &mut Vec<u8>) {
    let (status, information) = fatal.codes();
    let copied = &at_fault[..at_fault.len().min(128)];
    let mut own = [0; terminate::BYTES];
    let whole = terminate::BYTES + copied.len();
    own[..pdu::BYTES].copy_from_slice(&common(kind, 0, (terminate::BYTES, 0, whole)));
    terminate::FES.put(&mut own, status);
    terminate::FEI.put(&mut own, information);
    to.extend_from_slice(&own);
    to.extend_from_slice(copied);
}

/// A common header: bytes of the header, where the data are, and bytes of the whole.
fn common(
    kind: u8,
    flags: u8,
    (bytes, data_at, whole): (usize, usize, usize),
) -> [u8; 8] {
    let mut own = [0; pdu::BYTES];
    pdu::TYPE.put(&mut own, kind);
    pdu::FLAGS.put(&mut own, flags);
    pdu::HLEN.put(&mut own, u8::try_from(bytes).unwrap_or(u8::MAX));
    pdu::PDO.put(&mut own, u8::try_from(data_at).unwrap_or(u8::MAX));
    pdu::PLEN.put(&mut own, length(whole));
    own
}

/// Nobody sends PDUs of 4 GiB: what is sent is bounded by what was agreed on.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
