//! What carries commands to a controller and brings its answers: the part that a network and a kernel do
//! differently.
//!
//! `fabrics.rs` is NVMe/TCP in user space, `kernel.rs` Linux' own driver. Nothing here knows what a command means.

use std::fmt::Debug;
use std::io;
use std::time::{Duration, Instant};

use bothends_nvme::host::{Content, Heard};
use bothends_nvme::{Cqe, Sqe, Status};

use crate::CsdError;

/// A way for commands.
///
/// # Contract
///
/// No call outlasts its deadline, and `send` does not wait. An error ends the way for good. That a device is late
/// is said only once all that has come is read: the host may have been away.
pub(super) trait Carrier: Send + Debug {
    /// Has an I/O command sent; its identifier until its completion, or `None` where the queue is full. Whoever
    /// sends it waits for it no longer than `limit`.
    fn send(
        &mut self,
        entry: Sqe,
        content: &Content,
        limit: Duration,
    ) -> Result<Option<u16>, CsdError>;

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

    /// Most bytes of data that a command may have on this way.
    fn most_bytes(&self) -> u32;

    /// Whether the controller goes on when this way ends, with what was made on it. It is used by one way at
    /// a time then, and what is found on it was left by another that has ended.
    fn outlives(&self) -> bool;
}

/// The device has not answered in time.
pub(super) fn late(doing: &'static str, waited: Duration) -> CsdError {
    let what = format!("it did not answer within {waited:.0?}");
    CsdError::LinkLost { doing, source: io::Error::new(io::ErrorKind::TimedOut, what) }
}

/// A command that every controller carries out.
pub(super) fn accepted(status: Status, doing: &'static str) -> Result<(), CsdError> {
    if status.is_success() {
        return Ok(());
    }
    let source = io::Error::other(format!("the controller says: {status}"));
    Err(CsdError::LinkLost { doing, source })
}
