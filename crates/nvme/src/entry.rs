//! Submission and completion queue entries, and where a command's data are.

use crate::layout::{cqe, sgl, sqe};
use crate::status::Status;

/// A submission queue entry, as it is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sqe(pub [u8; sqe::BYTES]);

impl Sqe {
    /// The entry of a command that is all zeros except for its opcode and namespace. Data pointers are SGLs, as
    /// message-based transports demand.
    #[must_use]
    pub fn new(opcode: u8, nsid: u32) -> Self {
        let mut own = Self([0; sqe::BYTES]);
        sqe::OPC.put(&mut own.0, opcode);
        sqe::FLAGS.put(&mut own.0, 0x40);
        sqe::NSID.put(&mut own.0, nsid);
        own
    }

    /// The opcode.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        sqe::OPC.get(&self.0)
    }

    /// The command's identifier, unique among those in flight on a queue.
    #[must_use]
    pub fn id(&self) -> u16 {
        sqe::CID.get(&self.0)
    }

    /// The same with another identifier.
    #[must_use]
    pub fn with_id(mut self, id: u16) -> Self {
        sqe::CID.put(&mut self.0, id);
        self
    }

    /// The namespace: 0 for none, FFFFFFFFh for all.
    #[must_use]
    pub fn namespace(&self) -> u32 {
        sqe::NSID.get(&self.0)
    }

    /// Command dword `n`, 2 to 15.
    ///
    /// # Panics
    /// If there is no such dword.
    #[must_use]
    pub fn dword(&self, n: usize) -> u32 {
        let mut own = [0; 4];
        own.copy_from_slice(&self.0[4 * n..4 * n + 4]);
        u32::from_le_bytes(own)
    }

    /// The same with another command dword `n`.
    ///
    /// # Panics
    /// If there is no such dword.
    #[must_use]
    pub fn with(mut self, n: usize, value: u32) -> Self {
        self.0[4 * n..4 * n + 4].copy_from_slice(&value.to_le_bytes());
        self
    }

    /// Dwords `n` and `n + 1` as one number, the lower half first.
    #[must_use]
    pub fn two_dwords(&self, n: usize) -> u64 {
        u64::from(self.dword(n)) | u64::from(self.dword(n + 1)) << 32
    }

    /// The same with another number in dwords `n` and `n + 1`.
    #[must_use]
    pub fn with_two(self, n: usize, value: u64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the lower and the upper half"
        )]
        let (low, high) = (value as u32, (value >> 32) as u32);
        self.with(n, low).with(n + 1, high)
    }

    /// Where the data of the command are.
    ///
    /// # Errors
    /// Of a descriptor that the TCP transport does not have.
    pub fn data(&self) -> Result<Data, Status> {
        Data::parse(&sqe::SGL1.get(&self.0))
    }

    /// The same with its data elsewhere.
    #[must_use]
    pub fn with_data(mut self, data: Data) -> Self {
        sqe::SGL1.put(&mut self.0, data.descriptor());
        self
    }

    /// What direction the data of this opcode have: bits 1:0 (Base, Opcodes).
    #[must_use]
    pub fn direction(&self) -> Direction {
        match self.opcode() & 3 {
            0 => Direction::None,
            1 => Direction::ToController,
            2 => Direction::ToHost,
            _ => Direction::Both,
        }
    }
}

/// Who sends the data of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// There are none.
    None,
    /// The host.
    ToController,
    /// The controller.
    ToHost,
    /// Both, which no command of ours does.
    Both,
}

/// Where the data of a command are: its SGL descriptor (Base, SGL Descriptor; TCP, Data Transfer).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// In the command's capsule, `length` bytes from `offset` of its data on: type 01h.
    InCapsule {
        /// From the beginning of the capsule's data.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// In PDUs of their own, `length` bytes: type 5Ah.
    Transport {
        /// Bytes.
        length: u32,
    },
}

/// SGL Data Block, with an address that is an offset.
const BLOCK_OFFSET: u8 = 0x01;
/// SGL Data Block, with an address in memory. With length 0 it is what a host sends that has no data.
const BLOCK: u8 = 0x00;
/// Transport SGL Data Block.
const TRANSPORT: u8 = 0x5a;

impl Data {
    /// No data.
    pub const NONE: Self = Self::Transport { length: 0 };

    /// Bytes.
    #[must_use]
    pub fn length(self) -> u32 {
        match self {
            Self::InCapsule { length, .. } | Self::Transport { length } => length,
        }
    }

    fn parse(descriptor: &[u8; sgl::BYTES]) -> Result<Self, Status> {
        let length = sgl::LENGTH.get(descriptor);
        match sgl::TYPE.get(descriptor) {
            BLOCK_OFFSET => {
                Ok(Self::InCapsule { offset: sgl::ADDRESS.get(descriptor), length })
            }
            TRANSPORT => Ok(Self::Transport { length }),
            BLOCK if length == 0 => Ok(Self::NONE),
            _ => Err(Status::SGL_TYPE),
        }
    }

    fn descriptor(self) -> [u8; sgl::BYTES] {
        let mut own = [0; sgl::BYTES];
        sgl::LENGTH.put(&mut own, self.length());
        match self {
            Self::InCapsule { offset, .. } => {
                sgl::ADDRESS.put(&mut own, offset);
                sgl::TYPE.put(&mut own, BLOCK_OFFSET);
            }
            Self::Transport { .. } => sgl::TYPE.put(&mut own, TRANSPORT),
        }
        own
    }
}

/// A completion queue entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cqe {
    /// Command specific. Of Execute Program the program's return value.
    pub result: u64,
    /// How far the submission queue has been taken, modulo its size.
    pub sq_head: u16,
    /// The submission queue.
    pub sq_id: u16,
    /// The command.
    pub id: u16,
    /// What became of it.
    pub status: Status,
}

impl Cqe {
    /// As it is on the wire. Message-based transports have no phase tag.
    #[must_use]
    pub fn bytes(&self) -> [u8; cqe::BYTES] {
        let mut own = [0; cqe::BYTES];
        cqe::RESULT.put(&mut own, self.result);
        cqe::SQHD.put(&mut own, self.sq_head);
        cqe::SQID.put(&mut own, self.sq_id);
        cqe::CID.put(&mut own, self.id);
        cqe::STATUS.put(&mut own, self.status.field());
        own
    }

    /// The entry in `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8; cqe::BYTES]) -> Self {
        Self {
            result: cqe::RESULT.get(bytes),
            sq_head: cqe::SQHD.get(bytes),
            sq_id: cqe::SQID.get(bytes),
            id: cqe::CID.get(bytes),
            status: Status::of_field(cqe::STATUS.get(bytes)),
        }
    }
}
