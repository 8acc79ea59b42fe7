//! What carries commands to a controller and brings its answers: the part that a network and a kernel do
//! differently.
//!
//! `fabrics.rs` is NVMe/TCP in user space. Nothing here knows what a command means.

use std::fmt::Debug;
use std::time::Instant;

use bothends_nvme::host::{Content, Heard};
use bothends_nvme::{Cqe, Sqe};

use crate::CsdError;

/// A way for commands.
///
/// # Contract
///
/// No call outlasts its deadline, and `send` does not wait. An error ends the way for good. That a device is late
/// is said only once all that has come is read: the host may have been away.
pub(super) trait Carrier: Send + Debug {
    /// Has an I/O command sent; its identifier until its completion, or `None` where the queue is full.
    fn send(&mut self, entry: Sqe, content: &Content) -> Result<Option<u16>, CsdError>;

    /// Has an admin command carried out, for a step of this name and by then; its completion, and its data for
    /// the host.
    fn ask(
        &mut self,
        entry: Sqe,
        content: Content,
        step: (&'static str, Instant),
    ) -> Result<(Cqe, Vec<u8>), CsdError>;

    /// Passes on what has come for I/O commands; waits until something has, or until the deadline, or not as long.
    fn pump(
        &mut self,
        deadline: Instant,
        heard: &mut dyn FnMut(Heard<'_>),
    ) -> Result<(), CsdError>;

    /// So many bytes of data fit into the capsule of an I/O command.
    fn set_in_capsule(&mut self, bytes: u32);
}
