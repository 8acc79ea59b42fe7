//! What a command asks of the device's models.

use bothends_nvme::commands::{Blocks, Memory, Source, SourceFormat};
use bothends_nvme::{Sqe, Status};

use super::super::{BLOCK_BYTES, BLOCKS, MEMORY};
use crate::device::Demand;
use crate::media::Blocks as Run;

/// What an I/O command to blocks or memory asks for; nothing for others.
///
/// # Errors
/// Those of a command that cannot be read.
pub(super) fn of(entry: &Sqe, data: &[u8]) -> Result<Option<Demand>, Status> {
    match entry.namespace() {
        BLOCKS => blocks(entry, data).map(Some),
        MEMORY => memory(entry, data).map(Some),
        _ => Ok(None),
    }
}

fn blocks(entry: &Sqe, data: &[u8]) -> Result<Demand, Status> {
    Ok(match Blocks::parse(entry)? {
        Blocks::Flush => Demand::Flush,
        Blocks::Read { first, n_blocks } => {
            Demand::Read(Run { first, n: n_blocks.into() })
        }
        Blocks::Write { first, n_blocks, .. } => {
            Demand::Write(Run { first, n: n_blocks.into() })
        }
        Blocks::Copy(copy) => {
            let bytes = sources(copy.format, data)?.iter().map(bytes).sum::<u64>();
            let n = bytes / u64::from(BLOCK_BYTES);
            Demand::ToBlocks(vec![Run { first: copy.first, n }])
        }
    })
}

fn memory(entry: &Sqe, data: &[u8]) -> Result<Demand, Status> {
    Ok(match Memory::parse(entry)? {
        Memory::Flush => Demand::Fill(0),
        Memory::Read { bytes, .. } => Demand::ReadMemory(bytes.into()),
        Memory::Write { bytes, .. } => Demand::WriteMemory(bytes.into()),
        Memory::Fill { bytes, .. } => Demand::Fill(bytes.into()),
        Memory::Copy { format, .. } => {
            let mut runs = Vec::new();
            let mut from_memory = 0_u64;
            for source in sources(format, data)? {
                match source {
                    Source::Blocks(own) => {
                        runs.push(Run { first: own.first, n: own.n_blocks.into() });
                    }
                    Source::Bytes(own) => {
                        from_memory = from_memory.saturating_add(own.bytes.into());
                    }
                }
            }
            Demand::ToMemory(runs, from_memory)
        }
    })
}

fn sources(format: SourceFormat, data: &[u8]) -> Result<Vec<Source>, Status> {
    format.sources(data)
}

fn bytes(source: &Source) -> u64 {
    match source {
        Source::Blocks(own) => u64::from(own.n_blocks) * u64::from(BLOCK_BYTES),
        Source::Bytes(own) => own.bytes.into(),
    }
}
