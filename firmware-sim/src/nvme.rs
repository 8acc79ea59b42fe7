//! The device as NVMe has it: an NVMe/TCP target with a namespace of logical blocks, one of subsystem local
//! memory and one of computational programs. Linux and nvme-cli talk to it as to a drive.
//!
//! ```text
//!  bytes ─► wire ──Request──► queue ──► controller   admin commands, properties, events
//!  bytes ◄─ wire ◄──reply───┘   └─────► subsystem    blocks · memory · programs
//!                                          └► pool   programs that run, and what waits for them
//! ```
//!
//! `wire` and everything behind it take bytes and entries and give bytes and completions. They know no socket and
//! start no thread; only `target` and `pool` do. A connection is one queue. Whoever connects first gets
//! a controller of its own, which ends with its admin queue; the namespaces are the subsystem's and stay.
//!
//! What a host may send is bounded before memory is taken for it: the length of a PDU, data of a command
//! ([`MOST_DATA`]), data that are awaited on a connection at a time, commands in flight (the size of the
//! queue), queues of a controller, controllers of the subsystem.

mod blocks;
mod controller;
mod memory;
mod pair;
mod pool;
mod programs;
mod queue;
mod room;
mod serving;
mod subsystem;
mod target;
mod wire;

pub use blocks::{BlockMedia, MediaError};
pub use pair::{InProcess, InProcessQueue};
pub use programs::{Batches, Call, Checksum, Done, Program, Work};
pub use serving::{Advertise, NvmeAddress};
pub(crate) use serving::{SCHEME, start};
pub use subsystem::{Subsystem, SubsystemConfig};
pub use target::{Target, TargetConfig, TargetError};

/// Most bytes of data of one command: 1 MiB, MDTS 8.
pub const MOST_DATA: u32 = 1 << 20;
/// Bytes of a logical block.
pub const BLOCK_BYTES: u32 = 4096;
/// Most bytes of data in the capsule of a command.
const IN_CAPSULE: u32 = 8192;
/// Most entries of a queue.
const MOST_ENTRIES: u16 = 1024;
/// Queues of a controller for I/O.
const MOST_QUEUES: u16 = 64;

/// The namespace of logical blocks.
pub const BLOCKS: u32 = 1;
/// The namespace of memory.
pub const MEMORY: u32 = 2;
/// The namespace of programs.
pub const PROGRAMS: u32 = 3;
