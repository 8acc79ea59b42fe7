//! The back prong: one thread per device, which speaks to its transport and to nobody else.
//!
//! A job arrives with the slot its result will be read into, so a device can always deliver
//! and nothing waits in a circle. Results are verified here, before anything else sees them.
//! The thread decides nothing: late, repeated and revoked results are reported, and the
//! collector's ledger says what counts.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use bothends_accel::{Slot, fill_from_file};
use bothends_core::ids::DeviceIdx;
use bothends_csd::{Completion, CsdError, Job, JobId, Outcome, Payload, Transport};
use bothends_io::{Reader, ReaderConfig, ReaderKind, open_reader};
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender};
use xxhash_rust::xxh3::xxh3_64;

use crate::collect::Event;
use crate::shutdown::{PATIENCE, Stop};

/// How long a fresh completion leaves the thread listening for the next job first: the
/// collector answers within microseconds, and polling the device can wait that long.
const ANSWER_PATIENCE: Duration = Duration::from_millis(2);

/// Wait for a completion; new jobs are looked for in between.
const POLL_PATIENCE: Duration = Duration::from_millis(20);

/// The reader of results in shared storage: slots are its buffers, so its own are small.
const EXTENT_READER: ReaderConfig = ReaderConfig {
    kind: ReaderKind::Auto,
    depth: 4,
    buffer_bytes: 4096,
    n_buffers: 4,
    max_record_bytes: 1 << 30,
};

/// What the collector asks of a device thread.
#[derive(Debug)]
pub(crate) enum Order {
    /// Make this batch into this slot.
    Submit { job: Job, slot: Slot },
    /// The host has made this batch itself.
    Revoke(JobId),
}

/// Why a job came to nothing.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The device said no, or returned bytes that do not match their checksum.
    Broken(String),
    /// The device had no room after all, or had not begun it when it was revoked: no fault
    /// of its.
    NotBegun,
}

/// Where the result of a job goes, and whether the host still wants it.
#[derive(Debug)]
struct Open {
    slot: Slot,
    is_revoked: bool,
}

/// A result that lies in its slot.
#[derive(Debug, Clone, Copy)]
struct Received {
    len: usize,
    /// XXH3-64 of it.
    hash: u64,
}

/// What one device thread owns for one epoch.
#[derive(Debug)]
pub(crate) struct DeviceLoop {
    pub(crate) device: DeviceIdx,
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) orders: Receiver<Order>,
    pub(crate) tell: Sender<Event>,
    pub(crate) stop: Stop,
    /// Reads results that lie in shared storage; made when the first one comes.
    pub(crate) extents: Option<Box<dyn Reader>>,
}

impl DeviceLoop {
    /// The loop of a device thread. Returns the transport, or why the device is lost: an
    /// epoch that is over does not hear it from the event.
    pub(crate) fn run(mut self) -> Result<Box<dyn Transport>, String> {
        let mut slots = HashMap::new();
        let served = self.serve(&mut slots).map_err(|e| e.to_string());
        if let Err(why) = &served {
            self.tell(Event::BackLost { device: self.device, why: why.clone() });
        }
        served?;
        // Whatever is still under way belongs to nobody now.
        for job in slots.keys() {
            self.transport.revoke(*job).map_err(|e| e.to_string())?;
        }
        Ok(self.transport)
    }

    fn serve(&mut self, slots: &mut HashMap<JobId, Open>) -> Result<(), CsdError> {
        let mut listen = PATIENCE;
        while !self.stop.is_set() {
            match self.orders.recv_timeout(listen) {
                Ok(order) => {
                    self.obey(order, slots)?;
                    listen = Duration::ZERO;
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            // With nothing under way this only notices that a device is gone.
            let patience = if slots.is_empty() { Duration::ZERO } else { POLL_PATIENCE };
            listen = match self.transport.poll(patience)? {
                Some(completion) => {
                    self.take(completion, slots)?;
                    ANSWER_PATIENCE
                }
                None if slots.is_empty() => PATIENCE,
                None => Duration::ZERO,
            };
        }
        Ok(())
    }

    fn obey(
        &mut self,
        order: Order,
        slots: &mut HashMap<JobId, Open>,
    ) -> Result<(), CsdError> {
        match order {
            Order::Revoke(job) => {
                if let Some(open) = slots.get_mut(&job) {
                    open.is_revoked = true;
                }
                self.transport.revoke(job)
            }
            Order::Submit { job, slot } => {
                let id = job.id;
                match self.transport.submit(job) {
                    Ok(()) => {
                        slots.insert(id, Open { slot, is_revoked: false });
                        Ok(())
                    }
                    Err(refused) if matches!(refused.source, CsdError::Full) => {
                        self.tell(Event::BackFailed {
                            job: id,
                            failure: Failure::NotBegun,
                        });
                        Ok(())
                    }
                    Err(refused) => Err(refused.source),
                }
            }
        }
    }

    fn take(
        &mut self,
        completion: Completion,
        slots: &mut HashMap<JobId, Open>,
    ) -> Result<(), CsdError> {
        let Completion { job, outcome, .. } = completion;
        let Some(Open { mut slot, is_revoked }) = slots.remove(&job) else {
            // Repeated, or of an earlier epoch: nobody waits for it.
            discard(&outcome);
            self.tell(Event::BackExtra { device: self.device });
            return Ok(());
        };
        let (payload, checksum, bad) = match outcome {
            Outcome::Done { payload, checksum, bad } => (payload, checksum, bad),
            Outcome::Failed { .. } if is_revoked => {
                self.tell(Event::BackFailed { job, failure: Failure::NotBegun });
                return Ok(());
            }
            Outcome::Failed { reason } => {
                self.fail(job, reason);
                return Ok(());
            }
        };
        let Received { len, hash } = match self.receive(job, payload, &mut slot)? {
            Ok(received) => received,
            Err(why) => {
                self.fail(job, why);
                return Ok(());
            }
        };
        if hash != checksum {
            self.fail(job, "its bytes do not match their checksum".to_owned());
            return Ok(());
        }
        let bad = bad.iter().map(|b| b.slot).collect();
        self.tell(Event::BackDone { job, slot, len, bad });
        Ok(())
    }

    /// Brings a result into the slot. The outer error is the link's, the inner the result's.
    fn receive(
        &mut self,
        job: JobId,
        payload: Payload,
        slot: &mut Slot,
    ) -> Result<Result<Received, String>, CsdError> {
        match payload {
            Payload::Inline { len } => {
                let room = usize::try_from(len).ok().and_then(|len| slot.get_mut(..len));
                let Some(room) = room else {
                    return Ok(Err(format!(
                        "its result of {len} bytes is larger than a batch"
                    )));
                };
                let len = room.len();
                let hash = self.transport.read_result(job, room)?;
                Ok(Ok(Received { len, hash }))
            }
            Payload::Extent { path, offset, len } => {
                let read = self.read_extent(slot, &path, offset, len);
                // The file has been read, or is of no use.
                let _ = std::fs::remove_file(&path);
                Ok(read.map(|len| Received { len, hash: xxh3_64(&slot[..len]) }))
            }
        }
    }

    /// Reads a result from storage straight into the slot, past the page cache where that
    /// is possible.
    fn read_extent(
        &mut self,
        slot: &mut Slot,
        path: &Path,
        offset: u64,
        len: u64,
    ) -> Result<usize, String> {
        let reader = match &mut self.extents {
            Some(reader) => reader,
            none => none.insert(open_reader(&EXTENT_READER).map_err(|e| e.to_string())?),
        };
        fill_from_file(slot, reader.as_mut(), path, offset, len)
            .map_err(|e| e.to_string())?;
        usize::try_from(len).map_err(|e| e.to_string())
    }

    fn fail(&self, job: JobId, why: String) {
        self.tell(Event::BackFailed { job, failure: Failure::Broken(why) });
    }

    /// A collector that is gone needs no answer.
    fn tell(&self, event: Event) {
        let _ = self.tell.send(event);
    }
}

/// An unread extent would stay in the spool for ever; an unread inline payload is thrown
/// away by the transport itself.
fn discard(outcome: &Outcome) {
    if let Outcome::Done { payload: Payload::Extent { path, .. }, .. } = outcome {
        let _ = std::fs::remove_file(path);
    }
}
