//! A connection, as those see it that have a completion for it and are not its own thread.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use bothends_nvme::Cqe;
use bothends_nvme::pdu::Format;

use super::writer::Writer;
use crate::nvme::controller::Outlet;
use crate::nvme::wire::InFlight;

/// The way to the host. Its connection's thread has it; what waits for its time or its turn knows it only weakly, so
/// that nothing of a host which has gone keeps a socket open.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) writer: Arc<Writer>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) format: Format,
    /// Bytes of answers that wait for their time.
    pub(super) held: AtomicUsize,
}

impl Outlet for Connected {
    fn post(&self, completion: &Cqe) {
        let mut out = Vec::with_capacity(32);
        self.format.response(completion, &mut out);
        self.in_flight.end(completion.id);
        self.writer.post(&out);
    }
}
