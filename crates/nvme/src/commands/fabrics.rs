//! Fabrics commands: how a host reaches a controller (Base, message-based controllers).

use crate::entry::{Data, Sqe};
use crate::layout::{connect, connect_data, property};
use crate::status::Status;

/// The opcode that all of them have.
pub(crate) const OPCODE: u8 = 0x7f;

const PROPERTY_SET: u8 = 0x00;
const CONNECT: u8 = 0x01;
const PROPERTY_GET: u8 = 0x04;
const DISCONNECT: u8 = 0x08;

/// A queue: 0 is the admin queue.
pub type QueueId = u16;

/// A fabrics command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fabrics {
    /// Makes this connection a queue of a controller; its data are [`ConnectData`].
    Connect {
        /// The queue.
        queue: QueueId,
        /// How many entries it has, one less than their number.
        size: u16,
        /// Bit 2: no flow control of the submission queue.
        attributes: u8,
        /// Keep-alive timeout in milliseconds; 0 for none.
        keep_alive_ms: u32,
    },
    /// Reads a property (register): the value is the completion's result.
    PropertyGet {
        /// Its offset.
        offset: u32,
        /// Whether it has 8 bytes, and not 4.
        wide: Wide,
    },
    /// Writes a property.
    PropertySet {
        /// Its offset.
        offset: u32,
        /// Whether it has 8 bytes, and not 4.
        wide: Wide,
        /// The value.
        value: u64,
    },
    /// Ends this queue, in order.
    Disconnect,
}

/// The size of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wide {
    /// 4 bytes.
    No,
    /// 8 bytes.
    Yes,
}

impl Fabrics {
    /// Whether `entry` is one.
    #[must_use]
    pub fn is(entry: &Sqe) -> bool {
        entry.opcode() == OPCODE
    }

    /// The command of an entry.
    ///
    /// # Errors
    /// Invalid Field for a type that is not one of these.
    pub fn parse(entry: &Sqe) -> Result<Self, Status> {
        let bytes = &entry.0;
        match connect::FCTYPE.get(bytes) {
            CONNECT if connect::RECFMT.get(bytes) != 0 => Err(Status::CONNECT_FORMAT),
            CONNECT => Ok(Self::Connect {
                queue: connect::QID.get(bytes),
                size: connect::SQSIZE.get(bytes),
                attributes: connect::CATTR.get(bytes),
                keep_alive_ms: connect::KATO.get(bytes),
            }),
            PROPERTY_GET => Ok(Self::PropertyGet {
                offset: property::OFST.get(bytes),
                wide: Wide::of(property::ATTRIB.get(bytes)),
            }),
            PROPERTY_SET => Ok(Self::PropertySet {
                offset: property::OFST.get(bytes),
                wide: Wide::of(property::ATTRIB.get(bytes)),
                value: property::VALUE.get(bytes),
            }),
            DISCONNECT => Ok(Self::Disconnect),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// The entry of the command. Connect's data are in its capsule.
    #[must_use]
    pub fn entry(&self) -> Sqe {
        let mut own = Sqe::new(OPCODE, 0).with_data(Data::NONE);
        match *self {
            Self::Connect { queue, size, attributes, keep_alive_ms } => {
                own = own.with_data(Data::InCapsule { offset: 0, length: 1024 });
                connect::FCTYPE.put(&mut own.0, CONNECT);
                connect::QID.put(&mut own.0, queue);
                connect::SQSIZE.put(&mut own.0, size);
                connect::CATTR.put(&mut own.0, attributes);
                connect::KATO.put(&mut own.0, keep_alive_ms);
            }
            Self::PropertyGet { offset, wide } => {
                property::FCTYPE.put(&mut own.0, PROPERTY_GET);
                property::ATTRIB.put(&mut own.0, wide.attribute());
                property::OFST.put(&mut own.0, offset);
            }
            Self::PropertySet { offset, wide, value } => {
                property::FCTYPE.put(&mut own.0, PROPERTY_SET);
                property::ATTRIB.put(&mut own.0, wide.attribute());
                property::OFST.put(&mut own.0, offset);
                property::VALUE.put(&mut own.0, value);
            }
            Self::Disconnect => connect::FCTYPE.put(&mut own.0, DISCONNECT),
        }
        own
    }
}

impl Wide {
    fn of(attribute: u8) -> Self {
        if attribute & 1 == 1 { Self::Yes } else { Self::No }
    }

    fn attribute(self) -> u8 {
        u8::from(self == Self::Yes)
    }
}

/// The data of Connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectData {
    /// The host.
    pub host_id: [u8; 16],
    /// The controller: FFFFh for a new one, on the admin queue.
    pub controller: u16,
    /// The subsystem's name (NQN).
    pub subsystem: String,
    /// The host's name (NQN).
    pub host: String,
}

impl ConnectData {
    /// What asks for a new controller.
    pub const NEW: u16 = 0xffff;

    /// The data in `bytes`.
    ///
    /// # Errors
    /// Connect's Invalid Parameters for a name that does not end or is not UTF-8.
    pub fn parse(bytes: &[u8]) -> Result<Self, Status> {
        let bytes: &[u8; connect_data::BYTES] =
            bytes.try_into().map_err(|_| Status::DATA_SGL_LENGTH)?;
        let name = |field: [u8; 256]| {
            let end = field.iter().position(|byte| *byte == 0);
            let name = end.and_then(|end| std::str::from_utf8(&field[..end]).ok());
            name.map(str::to_owned).ok_or(Status::CONNECT_PARAMETER)
        };
        Ok(Self {
            host_id: connect_data::HOSTID.get(bytes),
            controller: connect_data::CNTLID.get(bytes),
            subsystem: name(connect_data::SUBNQN.get(bytes))?,
            host: name(connect_data::HOSTNQN.get(bytes))?,
        })
    }

    /// As it is on the wire. A name of more than 255 bytes is cut, and so names nothing.
    #[must_use]
    pub fn bytes(&self) -> [u8; connect_data::BYTES] {
        let mut own = [0; connect_data::BYTES];
        connect_data::HOSTID.put(&mut own, self.host_id);
        connect_data::CNTLID.put(&mut own, self.controller);
        connect_data::SUBNQN.put(&mut own, padded(&self.subsystem, 0));
        connect_data::HOSTNQN.put(&mut own, padded(&self.host, 0));
        own
    }
}

/// `text` in `N` bytes, the rest `fill`; a last byte is always of the rest.
pub(crate) fn padded<const N: usize>(text: &str, fill: u8) -> [u8; N] {
    let mut own = [fill; N];
    let n = text.len().min(N - usize::from(fill == 0));
    own[..n].copy_from_slice(&text.as_bytes()[..n]);
    own
}
