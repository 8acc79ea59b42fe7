//! The reference transport: the device is a value in this process and is called directly.
//!
//! It has no bytes and no thread; the device fills the host's slots itself. What it does is what every
//! transport must do. Read `remote.rs` next for the same over a wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bothends_slots::{HostSlot, Job, JobId, Lost, Polled, Producer, Rejected, Slot};
use twox_hash::XxHash3_64;

use crate::host::credits::{Credits, Redeemed, refuse};
use crate::host::fuse::Fuse;
use crate::words::job::{
    Answer, Capabilities, DeviceStats, Ending, Inquiry, RecordDigest, Session,
};
use crate::{CsdError, Finished, Product, Serve, Transport};

/// A device in this process.
#[derive(Debug)]
pub struct Loopback {
    serve: Box<dyn Serve>,
    credits: Credits,
    fuse: Fuse,
    unplugged: Arc<AtomicBool>,
}

/// The plug of a [`Loopback`]: pulling it is the death of the device.
#[derive(Debug, Clone)]
pub struct Plug(Arc<AtomicBool>);

impl Plug {
    /// From now on the transport fails with [`CsdError::LinkLost`].
    pub fn pull(&self) {
        // Pairs with nothing: only the flag itself is read.
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Loopback {
    /// A transport to `serve`, which works inside the transport's calls or on threads of
    /// its own.
    #[must_use]
    pub fn new(serve: Box<dyn Serve>) -> Self {
        Self {
            serve,
            credits: Credits::default(),
            fuse: Fuse::default(),
            unplugged: Arc::default(),
        }
    }

    /// The plug to pull in a test.
    #[must_use]
    pub fn plug(&self) -> Plug {
        Plug(Arc::clone(&self.unplugged))
    }

    /// Starts a call: the device must be there.
    fn enter(&mut self, doing: &'static str) -> Result<(), CsdError> {
        self.fuse.check()?;
        if self.unplugged.load(Ordering::Relaxed) {
            let source = std::io::Error::other("the device was unplugged");
            return self.fuse.watch(Err(CsdError::LinkLost { doing, source }));
        }
        Ok(())
    }

    fn poll_until(&mut self, deadline: Instant) -> Result<Polled, CsdError> {
        self.enter("poll")?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(finished) = self.serve.poll(left) else {
                return Ok(Polled::Nothing);
            };
            let polled = self.take(finished);
            if let Some(polled) = self.fuse.watch(polled)? {
                return Ok(polled);
            }
        }
    }

    /// Slots of jobs that nobody waits for come back.
    fn forget_all(&mut self) {
        for serial in self.credits.forget() {
            self.serve.forget(serial);
        }
    }

    /// Passes a result on; where the device is lost, its slots come back.
    fn watch<T>(&mut self, result: Result<T, CsdError>) -> Result<T, Lost> {
        if result.is_err() {
            self.forget_all();
        }
        self.credits.watch(result)
    }

    /// A finished job as the host sees it; `None` of one of another session.
    fn take(&mut self, finished: Finished) -> Result<Option<Polled>, CsdError> {
        let (answer, slot) = finished.into_answer();
        // The bytes are in their place; whether they are the right ones is asked all the same.
        let bring = |dst: &mut [u8]| Ok(Ok(XxHash3_64::oneshot(dst)));
        Ok(match self.credits.redeem(&answer)? {
            Redeemed::Job(submission) => {
                Some(submission.with_slot(slot).complete(answer, bring)?)
            }
            Redeemed::Again => Some(Polled::Extra),
            Redeemed::Foreign => None,
        })
    }
}

impl Producer for Loopback {
    fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>> {
        if let Err(error) = self.enter("submit") {
            return Err(refuse(job, slot, error));
        }
        let travelling = self.credits.issue(job, slot)?;
        let slot = self.credits.lend(travelling.id).expect("it was just issued");
        let taken = self.serve.submit(travelling, slot);
        taken.map_err(|back| self.credits.withdraw_lent(*back))
    }

    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost> {
        let polled = self.poll_until(Instant::now() + timeout);
        self.watch(polled)
    }

    fn revoke(&mut self, job: JobId) -> Result<(), Lost> {
        let entered = self.enter("revoke");
        self.watch(entered)?;
        if let Some(serial) = self.credits.revoke(job) {
            self.serve.revoke(serial);
        }
        Ok(())
    }

    fn abandon(&mut self) -> Result<(), Lost> {
        let entered = self.enter("abandon");
        self.watch(entered)?;
        self.forget_all();
        Ok(())
    }
}

impl Transport for Loopback {
    fn hello(&mut self) -> Result<Capabilities, CsdError> {
        self.enter("hello")?;
        let capabilities = self.serve.hello();
        self.credits.allow(&capabilities)?;
        Ok(capabilities)
    }

    fn open(&mut self, session: &Session) -> Result<(), CsdError> {
        self.enter("open")?;
        self.credits.begin(session)?;
        self.serve.open(session.clone())?;
        self.credits.begun(session);
        Ok(())
    }

    fn attest(
        &mut self,
        inquiry: &Inquiry,
    ) -> Result<Option<Vec<Option<RecordDigest>>>, CsdError> {
        self.enter("attest")?;
        let records = self.serve.attest(inquiry);
        records.map(Some).map_err(|reason| CsdError::SessionRefused { reason })
    }

    fn stats(&mut self) -> Result<DeviceStats, CsdError> {
        self.enter("stats")?;
        Ok(self.serve.stats())
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.serve.close();
    }
}

impl Finished {
    /// The answer that says it, and the slot.
    pub(crate) fn into_answer(self) -> (Answer, HostSlot) {
        let ending = match self.result {
            Err(reason) => Ending::Failed { reason },
            Ok(Product { len, checksum, bad, damaged }) => {
                Ending::Done { len: len as u64, checksum, bad, damaged }
            }
        };
        let (device_ns, lateness_ns) = (self.device_ns, self.lateness_ns);
        (Answer { job: self.job, ending, device_ns, lateness_ns }, self.slot)
    }
}
