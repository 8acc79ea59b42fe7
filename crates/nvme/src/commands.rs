//! Commands, by their sets. Each set is an enum with the way there and back: `parse` for a controller,
//! `entry` for a host.
//!
//! `parse` checks what the entry alone can tell: the opcode, and reserved values of fields. What depends on a
//! namespace, a program or a queue is the controller's to check.

mod admin;
mod blocks;
mod fabrics;
mod memory;
mod programs;

pub use admin::{
    Activate, Admin, Event, Feature, Identify, Log, LogRequest, ProgramLoad, RangeSets,
};
pub use blocks::{Blocks, Changes, CopyToBlocks, Durable};
pub use fabrics::{ConnectData, Fabrics, QueueId, Wide};
pub use memory::{BlockSource, ByteSource, FastOnly, Memory, Source, SourceFormat};
pub use programs::{Execute, MemoryRange};

/// The command sets (Base, Command Set Identifiers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Set {
    /// Logical blocks.
    Nvm,
    /// Subsystem local memory.
    Memory,
    /// Computational programs.
    Programs,
}

impl Set {
    /// Those that a device of ours has.
    pub const ALL: [Self; 3] = [Self::Nvm, Self::Memory, Self::Programs];

    /// Its identifier, CSI.
    #[must_use]
    pub fn id(self) -> u8 {
        match self {
            Self::Nvm => 0,
            Self::Memory => 3,
            Self::Programs => 4,
        }
    }

    /// The set with this identifier.
    #[must_use]
    pub fn of_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.id() == id)
    }
}
