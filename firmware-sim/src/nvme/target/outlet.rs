//! A connection, as those see it that have a completion for it and are not its own thread.

use std::sync::Arc;
use std::time::Instant;

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
}

impl Connected {
    /// Ends a command's time in flight, and puts its completion where it is sent with the next ones; `due` says when it
    /// was to be sent, if a model says.
    pub(super) fn put(&self, completion: &Cqe, due: Option<Instant>) {
        let mut out = Vec::with_capacity(32);
        self.format.response(completion, &mut out);
        self.in_flight.end(completion.id);
        self.writer.put(&out, due);
    }
}

impl Outlet for Connected {
    fn post(&self, completion: &Cqe) {
        self.put(completion, None);
        self.writer.post();
    }
}
