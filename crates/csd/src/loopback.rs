//! The reference transport: the device is a value in this process, called directly.
//!
//! It has no bytes and no thread; what it does is what every transport must do.
//! Results are inline. Read `remote.rs` next for the same over a wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64;

use crate::credits::Credits;
use crate::fuse::Fuse;
use crate::job::{
    Capabilities, Completion, DeviceStats, Job, JobId, Outcome, PROTOCOL_VERSION,
    Payload, Session,
};
use crate::{CsdError, Finished, Refused, Serve, Transport};

/// A device in this process.
#[derive(Debug)]
pub struct Loopback {
    serve: Box<dyn Serve>,
    credits: Credits,
    fuse: Fuse,
    unplugged: Arc<AtomicBool>,
    pending: Option<(JobId, Vec<u8>)>,
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
            pending: None,
        }
    }

    /// The plug to pull in a test.
    #[must_use]
    pub fn plug(&self) -> Plug {
        Plug(Arc::clone(&self.unplugged))
    }

    /// Starts a call: the device must be there. A payload not yet read is thrown away.
    fn enter(&mut self, doing: &'static str) -> Result<(), CsdError> {
        self.pending = None;
        self.fuse.check()?;
        if self.unplugged.load(Ordering::Relaxed) {
            let source = std::io::Error::other("the device was unplugged");
            return self.fuse.watch(Err(CsdError::LinkLost { doing, source }));
        }
        Ok(())
    }

    /// A finished job as the host sees it; its bytes become the pending payload.
    fn complete(&mut self, finished: Finished) -> Result<Option<Completion>, CsdError> {
        let (completion, bytes) = finished.into_completion();
        let completion = self.fuse.watch(self.credits.redeem(completion))?;
        self.pending = completion.as_ref().map(|it| (it.job, bytes));
        Ok(completion)
    }
}

impl Transport for Loopback {
    fn hello(&mut self) -> Result<Capabilities, CsdError> {
        self.enter("hello")?;
        let capabilities = self.serve.hello();
        let theirs = capabilities.protocol_version;
        if theirs != PROTOCOL_VERSION {
            return Err(CsdError::Version { ours: PROTOCOL_VERSION, theirs });
        }
        self.credits.allow(capabilities.slots);
        Ok(capabilities)
    }

    fn open(&mut self, session: &Session) -> Result<(), CsdError> {
        self.enter("open")?;
        self.credits.begin(session)?;
        self.serve
            .open(session.clone())
            .map_err(|reason| CsdError::SessionRefused { reason })?;
        self.credits.begun(session);
        Ok(())
    }

    fn submit(&mut self, job: Job) -> Result<(), Box<Refused>> {
        if let Err(source) = self.enter("submit") {
            return Err(Box::new(Refused { job, source }));
        }
        let job = self.credits.issue(job)?;
        self.serve
            .submit(job)
            .map_err(|back| self.credits.withdraw(back.job, back.source))
    }

    fn poll(&mut self, timeout: Duration) -> Result<Option<Completion>, CsdError> {
        self.enter("poll")?;
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(finished) = self.serve.poll(left) else { return Ok(None) };
            // What answers nothing of this session is not for the caller.
            if let Some(completion) = self.complete(finished)? {
                return Ok(Some(completion));
            }
        }
    }

    fn read_result(&mut self, job: JobId, dst: &mut [u8]) -> Result<u64, CsdError> {
        let pending = self.pending.take();
        self.enter("read_result")?;
        match pending {
            Some((of, bytes)) if of == job && bytes.len() == dst.len() => {
                dst.copy_from_slice(&bytes);
                Ok(xxh3_64(&bytes))
            }
            _ => Err(CsdError::NoPayload { job: job.0, len: dst.len() as u64 }),
        }
    }

    fn revoke(&mut self, job: JobId) -> Result<(), CsdError> {
        self.enter("revoke")?;
        if let Some(serial) = self.credits.revoke(job) {
            self.serve.revoke(serial);
        }
        Ok(())
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
    /// The completion that says it, with its payload inline, and that payload.
    pub(crate) fn into_completion(self) -> (Completion, Vec<u8>) {
        let (outcome, bytes) = match self.result {
            Err(reason) => (Outcome::Failed { reason }, Vec::new()),
            Ok(product) => {
                let payload = Payload::Inline { len: product.bytes.len() as u64 };
                let (checksum, bad) = (product.checksum, product.bad);
                (Outcome::Done { payload, checksum, bad }, product.bytes)
            }
        };
        let (device_ns, lateness_ns) = (self.device_ns, self.lateness_ns);
        (Completion { job: self.job, outcome, device_ns, lateness_ns }, bytes)
    }
}
