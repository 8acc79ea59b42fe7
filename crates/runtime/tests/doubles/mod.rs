//! Devices that misbehave in one way, for `shutdown.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use bothends_csd::loopback::Loopback;
use bothends_csd::{
    Capabilities, CsdError, DeviceStats, PROTOCOL_VERSION, Session, Transport,
};
use bothends_slots::{Job, JobId, Lost, Polled, Producer, Rejected, Slot};

/// How a device misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Takes jobs and never answers.
    Silent,
    /// Panics when it is asked for a completion of a job.
    Panics,
    /// Its first answer keeps its thread until [`Asked::lets_go`].
    Clings,
}

/// A device that falls silent after so many answers.
#[derive(Debug)]
pub(crate) struct Tiring {
    pub(crate) device: Loopback,
    pub(crate) n_left: u32,
}

impl Producer for Tiring {
    fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>> {
        self.device.submit(job, slot)
    }

    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost> {
        if self.n_left == 0 {
            thread::sleep(timeout);
            return Ok(Polled::Nothing);
        }
        let polled = self.device.poll(timeout)?;
        self.n_left -= u32::from(matches!(polled, Polled::Completion(_)));
        Ok(polled)
    }

    fn revoke(&mut self, job: JobId) -> Result<(), Lost> {
        self.device.revoke(job)
    }

    fn abandon(&mut self) -> Result<(), Lost> {
        self.device.abandon()
    }
}

impl Transport for Tiring {
    fn hello(&mut self) -> Result<Capabilities, CsdError> {
        self.device.hello()
    }

    fn open(&mut self, session: &Session) -> Result<(), CsdError> {
        self.device.open(session)
    }

    fn stats(&mut self) -> Result<DeviceStats, CsdError> {
        self.device.stats()
    }
}

/// A device that does all that it is asked, but never says what it has counted.
#[derive(Debug)]
pub(crate) struct Mute {
    pub(crate) device: Loopback,
    pub(crate) asked: Arc<Asked>,
}

impl Producer for Mute {
    fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>> {
        self.asked.n_jobs.fetch_add(1, Ordering::Relaxed);
        self.device.submit(job, slot)
    }

    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost> {
        self.device.poll(timeout)
    }

    fn revoke(&mut self, job: JobId) -> Result<(), Lost> {
        self.device.revoke(job)
    }

    fn abandon(&mut self) -> Result<(), Lost> {
        self.device.abandon()
    }
}

impl Transport for Mute {
    fn hello(&mut self) -> Result<Capabilities, CsdError> {
        self.device.hello()
    }

    fn open(&mut self, session: &Session) -> Result<(), CsdError> {
        self.device.open(session)
    }

    fn stats(&mut self) -> Result<DeviceStats, CsdError> {
        self.asked.n_stats.fetch_add(1, Ordering::Relaxed);
        while !self.asked.lets_go.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        Err(CsdError::Timeout { doing: "stats", waited: Duration::ZERO })
    }
}

/// A device that answers nothing, and counts what it is asked.
#[derive(Debug)]
pub(crate) struct Double {
    manner: Manner,
    pub(crate) asked: Arc<Asked>,
    held: Vec<Slot>,
}

#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) n_jobs: AtomicU32,
    pub(crate) n_abandoned: AtomicU32,
    pub(crate) n_stats: AtomicU32,
    pub(crate) lets_go: AtomicBool,
}

impl Asked {
    pub(crate) fn n_jobs(&self) -> u32 {
        self.n_jobs.load(Ordering::Relaxed)
    }
}

impl Double {
    pub(crate) fn new(manner: Manner) -> Self {
        Self { manner, asked: Arc::default(), held: Vec::new() }
    }
}

impl Producer for Double {
    fn submit(&mut self, _: Job, slot: Slot) -> Result<(), Box<Rejected>> {
        self.asked.n_jobs.fetch_add(1, Ordering::Relaxed);
        self.held.push(slot);
        Ok(())
    }

    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost> {
        if self.asked.n_jobs() == 0 {
            return Ok(Polled::Nothing);
        }
        match self.manner {
            Manner::Panics => panic!("on purpose"),
            Manner::Silent => thread::sleep(timeout),
            Manner::Clings => {
                while !self.asked.lets_go.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
                self.manner = Manner::Silent;
            }
        }
        Ok(Polled::Nothing)
    }

    fn revoke(&mut self, _: JobId) -> Result<(), Lost> {
        Ok(())
    }

    fn abandon(&mut self) -> Result<(), Lost> {
        let n = u32::try_from(self.held.len()).unwrap();
        self.asked.n_abandoned.fetch_add(n, Ordering::Relaxed);
        self.held.clear();
        Ok(())
    }
}

impl Transport for Double {
    fn hello(&mut self) -> Result<Capabilities, CsdError> {
        Ok(Capabilities {
            protocol_version: PROTOCOL_VERSION,
            name: "a double".to_owned(),
            emulated: false,
            ops: Vec::new(),
            slots: 2,
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
