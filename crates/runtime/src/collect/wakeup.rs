//! The collector's bell: whoever has news for it rings, and it looks round.
//!
//! News itself travels in queues of its own; a bell that is rung twice before anybody
//! listens has been rung once, so nobody ever waits to ring it.

use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};

/// Rings; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Bell(Sender<()>);

/// Hears it.
#[derive(Debug)]
pub(crate) struct Ear(Receiver<()>);

/// A bell and its ear.
pub(crate) fn bell() -> (Bell, Ear) {
    let (ring, hear) = bounded(1);
    (Bell(ring), Ear(hear))
}

impl Bell {
    /// There is news. Does nothing where it has been rung already, or nobody listens.
    pub(crate) fn ring(&self) {
        let _ = self.0.try_send(());
    }
}

impl Ear {
    /// Waits until somebody rings, for `patience` at most.
    pub(crate) fn listen(&self, patience: Duration) {
        // Whether it was rung or not: the listener looks round either way.
        let _ = self.0.recv_timeout(patience);
    }
}

/// What is in a queue, or comes within `patience`. Without patience it only looks: a wait of no
/// time gives the processor away before it ends, which next to busy workers is a time slice.
pub(crate) fn receive<T>(
    from: &Receiver<T>,
    patience: Duration,
) -> Result<T, RecvTimeoutError> {
    match from.try_recv() {
        Ok(news) => Ok(news),
        Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
        Err(TryRecvError::Empty) if patience.is_zero() => Err(RecvTimeoutError::Timeout),
        Err(TryRecvError::Empty) => from.recv_timeout(patience),
    }
}
