//! The I/O command of the CP command set: Execute Program. The others are admin commands.

use crate::entry::{Data, Sqe};
use crate::field::bits;
use crate::layout::memory_range;
use crate::status::Status;

const EXECUTE: u8 = 0x01;

/// Execute Program. The completion's result is the program's return value.
///
/// Linux' passthrough sends dword 4 as zero whatever a program sets, so that `data_bytes` and `n_ranges` are
/// 0 with it: use a set of ranges and the two parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Execute {
    /// The program's index.
    pub program: u16,
    /// A set of memory ranges; 0 for none.
    pub range_set: u16,
    /// Memory ranges in the data of the command, before the program's own.
    pub n_ranges: u32,
    /// Bytes of data, ranges included.
    pub data_bytes: u32,
    /// The program's first parameter.
    pub parameter_1: u64,
    /// The program's second parameter.
    pub parameter_2: u64,
}

impl Execute {
    /// The command of an entry.
    ///
    /// # Errors
    /// Invalid Opcode if it is another.
    pub fn parse(entry: &Sqe) -> Result<Self, Status> {
        if entry.opcode() != EXECUTE {
            return Err(Status::INVALID_OPCODE);
        }
        #[expect(clippy::cast_possible_truncation, reason = "16 bits each")]
        let (program, range_set) =
            (bits(entry.dword(2), 0, 16) as u16, bits(entry.dword(2), 16, 32) as u16);
        Ok(Self {
            program,
            range_set,
            n_ranges: entry.dword(3),
            data_bytes: entry.dword(4),
            parameter_1: entry.two_dwords(10),
            parameter_2: entry.two_dwords(12),
        })
    }

    /// The entry of the command, for namespace `nsid`, with its data at `data`.
    #[must_use]
    pub fn entry(&self, nsid: u32, data: Data) -> Sqe {
        Sqe::new(EXECUTE, nsid)
            .with(2, u32::from(self.program) | u32::from(self.range_set) << 16)
            .with(3, self.n_ranges)
            .with(4, self.data_bytes)
            .with_two(10, self.parameter_1)
            .with_two(12, self.parameter_2)
            .with_data(data)
    }

    /// The opcodes that there are, for the log of commands and effects.
    #[must_use]
    pub fn opcodes() -> [u8; 1] {
        [EXECUTE]
    }
}

/// A range of memory that a program may use. A program counts its ranges from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRange {
    /// The namespace of the memory.
    pub nsid: u32,
    /// Its first byte.
    pub from: u64,
    /// How many bytes it has.
    pub bytes: u32,
}

impl MemoryRange {
    /// The ranges in the data of a command.
    ///
    /// # Errors
    /// Data SGL Length Invalid if they are not whole.
    pub fn list(data: &[u8]) -> Result<Vec<Self>, Status> {
        let (descriptors, rest) = data.as_chunks::<{ memory_range::BYTES }>();
        if !rest.is_empty() {
            return Err(Status::DATA_SGL_LENGTH);
        }
        let range = |bytes| Self {
            nsid: memory_range::MNSID.get(bytes),
            from: memory_range::SB.get(bytes),
            bytes: memory_range::LEN.get(bytes),
        };
        Ok(descriptors.iter().map(range).collect())
    }

    /// As it is on the wire.
    #[must_use]
    pub fn bytes(&self) -> [u8; memory_range::BYTES] {
        let mut own = [0; memory_range::BYTES];
        memory_range::MNSID.put(&mut own, self.nsid);
        memory_range::LEN.put(&mut own, self.bytes);
        memory_range::SB.put(&mut own, self.from);
        own
    }
}
