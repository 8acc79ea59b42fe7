//! A feed as one might write it, each with one of the mistakes that corrupt batches.
#![allow(unsafe_code, reason = "calls the driver wrongly, which is what it is for")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bothends_gpu::driver::{Address, EventId, StreamId};
use bothends_gpu::owners::{DeviceBuffer, Gpu, Stream};
use bothends_slots::HostSlot;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A device slot may be written as soon as its batch is dropped, whatever the consumer's stream
    /// still does: a ring that recycles on a tensor's destruction.
    DeviceSlotComesBackOnDrop,
    /// A host slot may be written as soon as its copy has been enqueued.
    HostSlotComesBackOnSubmit,
    /// The consumer's stream does not wait until the batch is there.
    ConsumerDoesNotWait,
}

struct Slot {
    buffer: DeviceBuffer,
    ready: EventId,
    /// Where the consumer was when it released the slot.
    passed: EventId,
}

type Free = Arc<Mutex<Vec<Slot>>>;

pub(crate) struct NaiveFeed {
    gpu: Gpu,
    fault: Fault,
    stream: Stream,
    free: Free,
    copying: VecDeque<(HostSlot, EventId)>,
}

pub(crate) struct NaiveBatch {
    slot: Option<Slot>,
    lent_to: Option<StreamId>,
    gpu: Gpu,
    fault: Fault,
    free: Free,
}

impl NaiveFeed {
    pub(crate) fn new(gpu: &Gpu, fault: Fault, n_slots: u32, slot_bytes: usize) -> Self {
        let event = || gpu.driver().create_event().unwrap();
        let slot = |_| Slot {
            buffer: gpu.allocate(slot_bytes).unwrap(),
            ready: event(),
            passed: event(),
        };
        let free = Arc::new(Mutex::new((0..n_slots).map(slot).collect()));
        let stream = gpu.upload_stream();
        Self { gpu: gpu.clone(), fault, stream, free, copying: VecDeque::new() }
    }

    pub(crate) fn poll(&mut self) {
        while let Some((_, copied)) = self.copying.front() {
            // SAFETY: events of these tests are never destroyed.
            if !unsafe { self.gpu.driver().is_reached(*copied) }.unwrap() {
                return;
            }
            self.copying.pop_front();
        }
    }

    pub(crate) fn submit(&mut self, host: HostSlot) -> NaiveBatch {
        let driver = self.gpu.driver();
        let slot = self.free.lock().unwrap().pop().expect("a free slot");
        let stream = self.stream.id();
        if self.fault != Fault::DeviceSlotComesBackOnDrop {
            // SAFETY: both live.
            unsafe { driver.stream_waits(stream, slot.passed) }.unwrap();
        }
        // SAFETY: none, where the fault is about this slot; the memory stays all the same.
        unsafe { driver.upload(slot.buffer.address(), &host, stream) }.unwrap();
        // SAFETY: both live.
        unsafe { driver.record(slot.ready, stream) }.unwrap();
        if self.fault != Fault::HostSlotComesBackOnSubmit {
            let copied = driver.create_event().unwrap();
            // SAFETY: both live.
            unsafe { driver.record(copied, stream) }.unwrap();
            self.copying.push_back((host, copied));
        }
        NaiveBatch {
            slot: Some(slot),
            lent_to: None,
            gpu: self.gpu.clone(),
            fault: self.fault,
            free: Arc::clone(&self.free),
        }
    }
}

impl NaiveBatch {
    pub(crate) fn address(&self) -> Address {
        self.slot.as_ref().unwrap().buffer.address()
    }

    pub(crate) fn lend(&mut self, stream: StreamId) {
        if self.fault != Fault::ConsumerDoesNotWait {
            let ready = self.slot.as_ref().unwrap().ready;
            // SAFETY: both live.
            unsafe { self.gpu.driver().stream_waits(stream, ready) }.unwrap();
        }
        self.lent_to = Some(stream);
    }
}

impl Drop for NaiveBatch {
    fn drop(&mut self) {
        let slot = self.slot.take().unwrap();
        if let Some(stream) = self.lent_to {
            // SAFETY: both live.
            unsafe { self.gpu.driver().record(slot.passed, stream) }.unwrap();
        }
        self.free.lock().unwrap().push(slot);
    }
}
