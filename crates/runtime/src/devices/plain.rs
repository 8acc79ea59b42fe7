//! A producer that the caller brings, as a device: there is no session to agree on.

use std::time::Duration;

use bothends_csd::{
    Capabilities, CsdError, DeviceStats, PROTOCOL_VERSION, Session, Transport,
};
use bothends_slots::{Job, JobId, Lost, Polled, Producer, Rejected, Slot};

/// It makes the run's samples already, or it would not have been brought.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) producer: Box<dyn Producer>,
    pub(crate) name: String,
    /// Jobs it takes at a time.
    pub(crate) n_jobs: u32,
}

impl Producer for Plain {
    fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>> {
        self.producer.submit(job, slot)
    }

    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost> {
        self.producer.poll(timeout)
    }

    fn revoke(&mut self, job: JobId) -> Result<(), Lost> {
        self.producer.revoke(job)
    }

    fn abandon(&mut self) -> Result<(), Lost> {
        self.producer.abandon()
    }
}

impl Transport for Plain {
    fn hello(&mut self) -> Result<Capabilities, CsdError> {
        Ok(Capabilities {
            protocol_version: PROTOCOL_VERSION,
            name: self.name.clone(),
            emulated: false,
            ops: Vec::new(),
            slots: self.n_jobs,
            max_batch_bytes: u64::MAX,
            features: Vec::new(),
        })
    }

    fn open(&mut self, _: &Session) -> Result<(), CsdError> {
        Ok(())
    }

    fn stats(&mut self) -> Result<DeviceStats, CsdError> {
        Ok(DeviceStats::default())
    }
}
