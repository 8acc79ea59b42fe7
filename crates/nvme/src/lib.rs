//! NVMe as bytes, for both ends of it: structures, commands and their completions, and the PDUs of NVMe/TCP.
//!
//! Of the command sets there are those that a computational storage device needs: logical blocks (NVM),
//! subsystem local memory (SLM) and computational programs (CP). A controller parses entries and PDUs; a host
//! makes them. Nothing here reads, writes, waits or allocates more than it is given. `firmware-sim`
//! has a controller; `host.rs` is a host's side of a connection, for which `csd` has the socket.
//!
//! Read `layout.rs` first: it has every offset, with its clause and how well it is known. Then
//! `entry.rs` (queue entries), `commands.rs`, `identify.rs` and `logs.rs` (what is read), and `pdu.rs`.
//! `preprocess.rs` has what our own program and its host say to each other in a device's memory.

pub mod commands;
mod entry;
mod field;
pub mod host;
pub mod identify;
pub mod layout;
pub mod logs;
pub mod pdu;
pub mod preprocess;
mod status;

pub use entry::{Cqe, Data, Direction, Sqe};
pub use field::{Field, Grade, Place, Value};
pub use status::Status;
