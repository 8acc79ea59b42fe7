//! Commands of the SLM command set: subsystem local memory.

use crate::entry::{Data, Sqe};
use crate::field::bits;
use crate::layout::{block_source, byte_source};
use crate::status::Status;

const FLUSH: u8 = 0x00;
const COPY: u8 = 0x01;
const READ: u8 = 0x02;
// One implementation has Fill here; another has it at 00h, which Base gives to Flush.
const FILL: u8 = 0x04;
const WRITE: u8 = 0x05;

/// A command to a namespace of memory. Addresses and lengths are bytes, multiples of 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Nothing: memory has nothing to make durable.
    Flush,
    /// Copies `bytes` from the sources, which are the command's data, to `to` on.
    Copy {
        /// All bytes that are copied.
        bytes: u64,
        /// Where they go.
        to: u64,
        /// How many descriptors there are; at least 1.
        n_sources: u32,
        /// What each of them is.
        format: SourceFormat,
    },
    /// Reads `bytes` from `from` on.
    Read {
        /// The first byte.
        from: u64,
        /// How many.
        bytes: u32,
    },
    /// Zeros `bytes` from `from` on.
    Fill {
        /// The first byte.
        from: u64,
        /// How many.
        bytes: u32,
    },
    /// Writes `bytes` to `to` on.
    Write {
        /// The first byte.
        to: u64,
        /// How many.
        bytes: u32,
    },
}

impl Memory {
    /// The command of an entry.
    ///
    /// # Errors
    /// Invalid Opcode, or Invalid Field for an unknown descriptor format.
    pub fn parse(entry: &Sqe) -> Result<Self, Status> {
        let (address, bytes) = (entry.two_dwords(10), entry.dword(12));
        match entry.opcode() {
            FLUSH => Ok(Self::Flush),
            COPY => Ok(Self::Copy {
                bytes: entry.two_dwords(2),
                to: address,
                n_sources: n_sources(entry),
                format: SourceFormat::of(bits(entry.dword(12), 8, 12))?,
            }),
            READ => Ok(Self::Read { from: address, bytes }),
            FILL => Ok(Self::Fill { from: address, bytes }),
            WRITE => Ok(Self::Write { to: address, bytes }),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// The entry of the command, for namespace `nsid`, with its data at `data`.
    #[must_use]
    pub fn entry(&self, nsid: u32, data: Data) -> Sqe {
        let of = |opcode, address, dword_12, data| {
            Sqe::new(opcode, nsid)
                .with_two(10, address)
                .with(12, dword_12)
                .with_data(data)
        };
        match *self {
            Self::Flush => Sqe::new(FLUSH, nsid).with_data(Data::NONE),
            Self::Copy { bytes, to, n_sources, format } => {
                let dword_12 = n_sources.saturating_sub(1) | format.id() << 8;
                of(COPY, to, dword_12, data).with_two(2, bytes)
            }
            Self::Read { from, bytes } => of(READ, from, bytes, data),
            Self::Fill { from, bytes } => of(FILL, from, bytes, Data::NONE),
            Self::Write { to, bytes } => of(WRITE, to, bytes, data),
        }
    }

    /// The opcodes that there are, for the log of commands and effects.
    #[must_use]
    pub fn opcodes() -> [u8; 5] {
        [FLUSH, COPY, READ, FILL, WRITE]
    }
}

/// The number of source descriptors of a copy: 0-based on the wire, which one implementation in three takes
/// for a count.
pub(super) fn n_sources(entry: &Sqe) -> u32 {
    bits(entry.dword(12), 0, 8) + 1
}

/// What the descriptors of a copy are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceFormat {
    /// Logical blocks: 2h.
    Blocks2,
    /// Logical blocks with longer tags: 3h.
    Blocks3,
    /// Bytes of memory: 4h.
    Bytes,
}

impl SourceFormat {
    pub(super) fn of(id: u32) -> Result<Self, Status> {
        match id {
            2 => Ok(Self::Blocks2),
            3 => Ok(Self::Blocks3),
            4 => Ok(Self::Bytes),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    pub(super) fn id(self) -> u32 {
        match self {
            Self::Blocks2 => 2,
            Self::Blocks3 => 3,
            Self::Bytes => 4,
        }
    }

    /// The descriptors in the data of a copy.
    ///
    /// # Errors
    /// Data SGL Length Invalid if they are not whole.
    pub fn sources(self, data: &[u8]) -> Result<Vec<Source>, Status> {
        let (descriptors, rest) = data.as_chunks::<{ block_source::BYTES }>();
        if !rest.is_empty() {
            return Err(Status::DATA_SGL_LENGTH);
        }
        Ok(descriptors
            .iter()
            .map(|bytes| match self {
                Self::Blocks2 | Self::Blocks3 => Source::Blocks(BlockSource::of(bytes)),
                Self::Bytes => Source::Bytes(ByteSource::of(bytes)),
            })
            .collect())
    }
}

/// Where a copy reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Logical blocks.
    Blocks(BlockSource),
    /// Bytes of memory.
    Bytes(ByteSource),
}

/// Logical blocks that are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSource {
    /// Their namespace.
    pub nsid: u32,
    /// The first.
    pub first: u64,
    /// How many; at least 1. On the wire one less, at byte 16 (one implementation: byte 20).
    pub n_blocks: u32,
    /// Bit 15 of the options: fail if the copy cannot be a fast one.
    pub fast_only: FastOnly,
}

/// Whether a copy is to fail where it cannot be fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastOnly {
    /// It need not be fast.
    No,
    /// It must be.
    Yes,
}

impl FastOnly {
    fn of(options: u16) -> Self {
        if options >> 15 == 1 { Self::Yes } else { Self::No }
    }

    fn options(self) -> u16 {
        u16::from(self == Self::Yes) << 15
    }
}

impl BlockSource {
    fn of(bytes: &[u8; block_source::BYTES]) -> Self {
        Self {
            nsid: block_source::SNSID.get(bytes),
            first: block_source::SLBA.get(bytes),
            n_blocks: u32::from(block_source::NLB.get(bytes)) + 1,
            fast_only: FastOnly::of(block_source::SOPT.get(bytes)),
        }
    }

    /// As it is on the wire.
    #[must_use]
    pub fn bytes(&self) -> [u8; block_source::BYTES] {
        let mut own = [0; block_source::BYTES];
        block_source::SNSID.put(&mut own, self.nsid);
        block_source::SLBA.put(&mut own, self.first);
        let n = self.n_blocks.saturating_sub(1);
        block_source::NLB.put(&mut own, u16::try_from(n).unwrap_or(u16::MAX));
        block_source::SOPT.put(&mut own, self.fast_only.options());
        own
    }
}

/// Bytes of memory that are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSource {
    /// Their namespace.
    pub nsid: u32,
    /// The first, a multiple of 4.
    pub from: u64,
    /// How many, a multiple of 4.
    pub bytes: u32,
    /// Whether the copy must be a fast one.
    pub fast_only: FastOnly,
}

impl ByteSource {
    fn of(bytes: &[u8; byte_source::BYTES]) -> Self {
        Self {
            nsid: byte_source::SNSID.get(bytes),
            from: byte_source::SADDR.get(bytes),
            bytes: byte_source::NBYTE.get(bytes),
            fast_only: FastOnly::of(byte_source::SOPT.get(bytes)),
        }
    }

    /// As it is on the wire.
    #[must_use]
    pub fn bytes(&self) -> [u8; byte_source::BYTES] {
        let mut own = [0; byte_source::BYTES];
        byte_source::SNSID.put(&mut own, self.nsid);
        byte_source::SADDR.put(&mut own, self.from);
        byte_source::NBYTE.put(&mut own, self.bytes);
        byte_source::SOPT.put(&mut own, self.fast_only.options());
        own
    }
}
