//! Commands of the NVM command set: logical blocks.

use crate::entry::{Data, Sqe};
use crate::field::bits;
use crate::status::Status;

use super::memory::{SourceFormat, n_sources};

const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const COPY: u8 = 0x19;

/// A command to a namespace of logical blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocks {
    /// Makes what was written durable.
    Flush,
    /// Reads `n_blocks` from `first` on.
    Read {
        /// The first block.
        first: u64,
        /// How many; at least 1.
        n_blocks: u32,
    },
    /// Writes `n_blocks` from `first` on.
    Write {
        /// The first block.
        first: u64,
        /// How many; at least 1.
        n_blocks: u32,
        /// Force Unit Access: bit 30 of dword 12.
        durable: Durable,
    },
    /// Copies to blocks, here: from memory (descriptor format 4h).
    Copy(CopyToBlocks),
}

/// Copy of the NVM command set. Its data are the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyToBlocks {
    /// The first block that is written.
    pub first: u64,
    /// How many descriptors there are; at least 1.
    pub n_sources: u32,
    /// What each of them is.
    pub format: SourceFormat,
}

impl Blocks {
    /// The command of an entry.
    ///
    /// # Errors
    /// Invalid Opcode, or Invalid Field for an unknown descriptor format.
    pub fn parse(entry: &Sqe) -> Result<Self, Status> {
        let n_blocks = bits(entry.dword(12), 0, 16) + 1;
        let first = entry.two_dwords(10);
        match entry.opcode() {
            FLUSH => Ok(Self::Flush),
            WRITE => Ok(Self::Write { first, n_blocks, durable: Durable::of(entry) }),
            READ => Ok(Self::Read { first, n_blocks }),
            COPY => Ok(Self::Copy(CopyToBlocks {
                first,
                n_sources: n_sources(entry),
                format: SourceFormat::of(bits(entry.dword(12), 8, 12))?,
            })),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// The entry of the command, for namespace `nsid`, with its data at `data`.
    #[must_use]
    pub fn entry(&self, nsid: u32, data: Data) -> Sqe {
        let of = |opcode, first, dword_12| {
            Sqe::new(opcode, nsid).with_two(10, first).with(12, dword_12).with_data(data)
        };
        match *self {
            Self::Flush => Sqe::new(FLUSH, nsid).with_data(Data::NONE),
            Self::Read { first, n_blocks } => of(READ, first, n_blocks.saturating_sub(1)),
            Self::Write { first, n_blocks, durable } => {
                of(WRITE, first, n_blocks.saturating_sub(1) | durable.bit())
            }

            Self::Copy(copy) => of(
                COPY,
                copy.first,
                copy.n_sources.saturating_sub(1) | copy.format.id() << 8,
            ),
        }
    }

    /// The opcodes that there are, for the log of commands and effects, each with whether it changes blocks.
    #[must_use]
    pub fn opcodes() -> [(u8, Changes); 4] {
        [
            (FLUSH, Changes::No),
            (WRITE, Changes::Yes),
            (READ, Changes::No),
            (COPY, Changes::Yes),
        ]
    }
}

/// When a write is to be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// With the next Flush.
    OnFlush,
    /// When it completes.
    Now,
}

const FUA: u32 = 30;

impl Durable {
    fn of(entry: &Sqe) -> Self {
        match bits(entry.dword(12), FUA, FUA + 1) {
            0 => Self::OnFlush,
            _ => Self::Now,
        }
    }

    fn bit(self) -> u32 {
        u32::from(self == Self::Now) << FUA
    }
}

/// Whether a command changes the content of logical blocks: LBCC of its effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// It does not.
    No,
    /// It does.
    Yes,
}
