//! Batches on their way to the device, without a wait of the host's anywhere.
//!
//! ```text
//! host slot   free ─ worker ─► filled ─ submit ─► copying ────────── poll: the copy has passed ─► free
//! device slot free ─────────── begin ─► filling ─ finish ─► ready ─ lend ─► lent ─ release ─► free
//! ```
//!
//! Each state is a value that is moved: a `HostSlot` becomes an `Upload` until its copy has passed; a
//! [`FreeSlot`] becomes a [`Filling`], a [`DeviceBatch`], and a free slot of the ring again. What
//! orders the work is events on the device alone:
//!
//! * filling waits (on the filling stream) for every use that the slot had before;
//! * a consumer's stream waits for `ready` before it reads ([`DeviceBatch::lend`]);
//! * release records where the consumer's stream is, which the next filling waits for.
//!
//! So a device slot is back in its ring at once, long before the device is done with it. Host
//! slots bound how far the host gets ahead, since they are out of their ring until they have
//! been copied; device slots bound how many batches consumers can keep.
//!
//! A batch that is uploaded and one that kernels fill (a GPU that is a prong) are the same values:
//! who fills takes a slot of [`DeviceSlots`], enqueues what it likes between `begin` and
//! `finish` on a stream of its own, and the consumer sees no difference. A kernel that finishes
//! an uploaded batch into another slot (u8 to f32, say) is both, a reader and a filler:
//!
//! ```text
//! let mut staged = feed.submit(host, len)?;          // the copy stream fills a slot
//! let filling = tensors.take(..)?.begin(&compute)?;  // the compute stream may write another
//! staged.read_on(&compute)?;                         // ... and waits for the copy
//! finish.launch(staged.address(), filling.address(), compute.id())?;
//! drop(staged);                                      // reusable once the kernel has run
//! let batch = filling.finish(out_len)?;              // lend this one
//! ```
//!
//! This does not know what a batch is, whose turn it is, or what to do when the device fails.
//! Proved on the fake driver (`tests/staging/`) over every interleaving of small cases.
#![allow(
    unsafe_code,
    reason = "names memory and streams to the driver that it keeps alive"
)]

mod feed;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bothends_slots::{Backing, Kind, Ring, RingConfig, Slot, SlotError};

pub use self::feed::{DeviceFeed, Refusal, Refused};
use crate::GpuError;
use crate::driver::{Address, EventId};
use crate::kinds::{DeviceMemory, PageLocked, as_slot_error};
use crate::owners::{ConsumerStream, Event, Gpu, Stream, Uses};

/// A ring of slots in device memory whose reuse is ordered by events. Cloning gives another
/// handle on the same slots.
#[derive(Debug, Clone)]
pub struct DeviceSlots {
    ring: Ring,
    shared: Arc<Shared>,
}

/// What slots on their way share.
#[derive(Debug)]
struct Shared {
    gpu: Gpu,
    /// Of every slot, by its address: the uses that it may still have.
    uses: BTreeMap<u64, Uses>,
    lent: AtomicU32,
    returning: AtomicU32,
    retired: AtomicU32,
}

/// A slot that goes back to its ring once the device is idle, counted as long as it has not.
struct Returning {
    #[expect(dead_code, reason = "it goes back when it is dropped")]
    slot: Slot,
    shared: Arc<Shared>,
}

impl Returning {
    fn new(slot: Slot, shared: &Arc<Shared>) -> Self {
        // Relaxed, as of the other counts: nothing else depends on them.
        shared.returning.fetch_add(1, Ordering::Relaxed);
        Self { slot, shared: Arc::clone(shared) }
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        self.shared.returning.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DeviceSlots {
    /// Allocates all slots. May block in the driver: for set-up.
    ///
    /// # Errors
    /// As [`Ring::of`].
    pub fn new(gpu: &Gpu, config: RingConfig) -> Result<Self, SlotError> {
        let kind = Recorded { gpu: gpu.clone(), uses: Mutex::default() };
        let ring = Ring::of(&kind, config)?;
        let uses = kind.uses.into_inner().unwrap_or_else(PoisonError::into_inner);
        let [lent, returning, retired] = [const { AtomicU32::new(0) }; 3];
        let gpu = gpu.clone();
        let shared = Arc::new(Shared { gpu, uses, lent, returning, retired });
        Ok(Self { ring, shared })
    }

    /// Takes a slot that nobody has, waiting up to `timeout` for one; `None` where all stayed
    /// taken. The device may still read what was in it: `begin` makes whoever fills it wait.
    #[must_use]
    pub fn take(&self, timeout: Duration) -> Option<FreeSlot> {
        self.adopt(self.ring.take(timeout)?).ok()
    }

    /// A slot of this ring that went another way, as a job's of a producer.
    ///
    /// # Errors
    /// The slot, which is another ring's.
    pub fn adopt(&self, slot: Slot) -> Result<FreeSlot, Slot> {
        let address = slot.device_address();
        match address.and_then(|at| Some((at, self.shared.uses.get(&at)?))) {
            Some((at, uses)) => {
                let (at, uses) = (Address(at), uses.clone());
                Ok(FreeSlot(Held {
                    slot: Some(slot),
                    at,
                    uses,
                    shared: self.shared.clone(),
                }))
            }
            None => Err(slot),
        }
    }

    /// The ring of them, for who deals them out.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Slots that consumers have at this moment.
    #[must_use]
    pub fn lent(&self) -> u32 {
        self.shared.lent.load(Ordering::Relaxed)
    }

    /// Slots that consumers have given back and that wait for the device to be idle: a [`Gpu::sweep`] brings
    /// them.
    #[must_use]
    pub fn returning(&self) -> u32 {
        self.shared.returning.load(Ordering::Relaxed)
    }

    /// Slots that are given up because the driver cannot say when they may be reused.
    #[must_use]
    pub fn retired(&self) -> u32 {
        self.shared.retired.load(Ordering::Relaxed)
    }
}

/// Device memory whose uses are written down as its slots are made.
#[derive(Debug)]
struct Recorded {
    gpu: Gpu,
    uses: Mutex<BTreeMap<u64, Uses>>,
}

impl Kind for Recorded {
    fn name(&self) -> &'static str {
        DeviceMemory::NAME
    }

    fn allocate(&self, bytes: usize) -> Option<Result<Backing, SlotError>> {
        DeviceMemory::is_possible(bytes).then(|| {
            let buffer = self.gpu.allocate(bytes).map_err(|e| as_slot_error(e, bytes))?;
            let address = buffer.address().0;
            let (backing, uses) = DeviceMemory::backing(buffer);
            let mut known = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(address, uses);
            Ok(backing)
        })
    }
}

/// A slot out of its ring, in whatever state.
struct Held {
    /// Some until the slot goes back.
    slot: Option<Slot>,
    at: Address,
    uses: Uses,
    shared: Arc<Shared>,
}

impl Held {
    fn len(&self) -> usize {
        self.slot.as_ref().map_or(0, Slot::len)
    }

    /// The slot goes back once the device is idle, since no event says when it may be written again. Where the
    /// driver cannot tell that either, it never does: its memory is leaked.
    fn return_when_idle(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        let gpu = &self.shared.gpu;
        if gpu.driver().records_all() {
            gpu.keep_until_idle(Box::new(Returning::new(slot, &self.shared)));
        } else {
            self.shared.retired.fetch_add(1, Ordering::Relaxed);
            Box::leak(Box::new(slot));
        }
    }
}

/// A device slot that nobody has, and the device perhaps still reads. Dropping it puts it
/// back.
pub struct FreeSlot(Held);

impl FreeSlot {
    /// Begins to fill it: what is enqueued on `stream` from now on waits until the device is
    /// done with what the slot was used for before. Does not block.
    ///
    /// # Errors
    /// [`GpuError::Driver`]; the slot goes back to its ring.
    pub fn begin(self, stream: &Stream) -> Result<Filling, GpuError> {
        let gpu = &self.0.shared.gpu;
        // SAFETY: `stream` is borrowed, so alive.
        unsafe { self.0.uses.wait(gpu, stream.id()) }?;
        Ok(Filling { held: self.0, stream: stream.clone() })
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> Address {
        self.0.at
    }
}

/// A device slot that work on a stream writes. Dropping it abandons what was written: the slot
/// goes back, and whoever fills it next waits for that work.
pub struct Filling {
    held: Held,
    stream: Stream,
}

impl Filling {
    /// Where to write, and nowhere else; on [`Self::stream`].
    #[must_use]
    pub fn address(&self) -> Address {
        self.held.at
    }

    /// How many bytes there is room for.
    #[must_use]
    pub fn room(&self) -> usize {
        self.held.len()
    }

    /// The stream that fills it.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Everything that fills its first `len` bytes has been enqueued. Does not block.
    ///
    /// # Errors
    /// [`GpuError::Driver`]; the slot goes back once the device is idle.
    ///
    /// # Panics
    /// When the slot has fewer bytes: a mistake of the caller, who has written behind it.
    pub fn finish(mut self, len: usize) -> Result<DeviceBatch, GpuError> {
        assert!(len <= self.room(), "{len} bytes in a slot of {}", self.room());
        let ready = self.stream.record();
        let ready = Arc::new(ready.inspect_err(|_| self.held.return_when_idle())?);
        let Held { at, uses, shared, .. } = &self.held;
        // It came after all uses before it: `begin` waited for them.
        uses.replace(Arc::clone(&ready));
        let (at, uses, shared) = (*at, uses.clone(), Arc::clone(shared));
        let slot = self.held.slot.take();
        let held = Held { slot, at, uses, shared };
        let (lent_to, read_on) = (Vec::new(), Vec::new());
        Ok(DeviceBatch { held, len, ready, lent_to, read_on })
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        if self.held.slot.is_none() {
            return;
        }
        match self.stream.record() {
            Ok(event) => self.held.uses.add(Arc::new(event)),
            Err(_) => self.held.return_when_idle(),
        }
    }
}

/// A batch in device memory, complete once the device has reached `ready`. Dropping it releases it
/// after the streams that it was lent to.
pub struct DeviceBatch {
    held: Held,
    len: usize,
    ready: Arc<Event>,
    lent_to: Vec<ConsumerStream>,
    /// Streams of our own that read it, kept alive.
    read_on: Vec<Stream>,
}

impl DeviceBatch {
    /// Where it is.
    #[must_use]
    pub fn address(&self) -> Address {
        self.held.at
    }

    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The event that it is complete at, alive as long as the batch.
    #[must_use]
    pub fn ready(&self) -> EventId {
        self.ready.id()
    }

    /// Whether it is complete already; never blocks, and nobody has to ask.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn is_ready(&self) -> Result<bool, GpuError> {
        self.ready.is_reached()
    }

    /// Blocks until it is complete, `limit` at most. Never used in steady state.
    ///
    /// # Errors
    /// [`GpuError::Late`], [`GpuError::Driver`].
    pub fn wait(&self, limit: Duration) -> Result<(), GpuError> {
        self.ready.wait(limit)
    }

    /// Lends it to work on a stream: what is enqueued there from now on sees the batch complete,
    /// and the slot is not written again before what is enqueued there until the batch is
    /// released or dropped has run. Does not block; may be said of several streams.
    ///
    /// # Errors
    /// [`GpuError::Driver`]; nothing was lent.
    pub fn lend(&mut self, stream: ConsumerStream) -> Result<(), GpuError> {
        let driver = self.held.shared.gpu.driver();
        // SAFETY: the event is ours, and a `ConsumerStream` is alive.
        unsafe { driver.stream_waits(stream.id(), self.ready.id()) }?;
        self.note(stream);
        Ok(())
    }

    /// Lets work on a stream of our own read it, as [`Self::lend`]: a kernel that makes another
    /// slot's batch of this one. Does not count as lent. Does not block.
    ///
    /// # Errors
    /// [`GpuError::Driver`]; nothing may read it.
    pub fn read_on(&mut self, stream: &Stream) -> Result<(), GpuError> {
        stream.wait_for(&self.ready)?;
        self.read_on.push(stream.clone());
        Ok(())
    }

    /// Its bytes, copied to the host. Blocks until the device has made and copied them, `limit` at most: for
    /// tests and tools, never in steady state.
    ///
    /// # Errors
    /// [`GpuError::Late`], [`GpuError::Slots`], [`GpuError::Driver`].
    pub fn download(&mut self, limit: Duration) -> Result<Vec<u8>, GpuError> {
        let gpu = self.held.shared.gpu.clone();
        let missing =
            || GpuError::Slots { why: "a slot of a new ring is taken".to_owned() };
        let config = RingConfig { n_slots: 1, slot_bytes: self.len.max(1) };
        let ring = Ring::of(&PageLocked::of(&gpu), config)?;
        let slot = ring.take(Duration::ZERO).ok_or_else(missing)?;
        let mut host = slot.host().map_err(|_| missing())?;
        let stream = gpu.download_stream();
        self.read_on(&stream)?;
        let copied = match &mut host[..self.len] {
            [] => Ok(()),
            // SAFETY: the slot is read below, once the copy has passed, or leaked; the batch is ours.
            to => unsafe { gpu.driver().download(to, self.held.at, stream.id()) },
        };
        let passed = copied.and_then(|()| stream.record()?.wait(limit));
        if let Err(error) = passed {
            // The device may write it still.
            Box::leak(Box::new(host));
            return Err(error);
        }
        Ok(host[..self.len].to_vec())
    }

    /// Ends all use of it: the slot may be written once the device has passed what is enqueued on
    /// `after` now, and on the streams that it was lent to. Does not block.
    pub fn release(mut self, after: ConsumerStream) {
        self.note(after);
    }

    /// Ends all use of it, wherever that is: the slot may be written once the device has passed all that any
    /// library of this process has enqueued by the next [`Gpu::sweep`]. For consumers that work on streams which
    /// they do not name, or end before the batch does. Does not block, and calls no driver.
    pub fn release_when_idle(mut self) {
        self.end_lending();
        self.read_on.clear();
        self.held.return_when_idle();
    }

    fn end_lending(&mut self) {
        if !self.lent_to.is_empty() {
            self.held.shared.lent.fetch_sub(1, Ordering::Relaxed);
            self.lent_to.clear();
        }
    }

    fn note(&mut self, stream: ConsumerStream) {
        if self.lent_to.is_empty() {
            self.held.shared.lent.fetch_add(1, Ordering::Relaxed);
        }
        if !self.lent_to.contains(&stream) {
            self.lent_to.push(stream);
        }
    }
}

impl Drop for DeviceBatch {
    fn drop(&mut self) {
        let lent_to = self.lent_to.iter().map(|stream| stream.end());
        let read_on = self.read_on.iter().map(Stream::id);
        for stream in lent_to.chain(read_on) {
            // SAFETY: a `ConsumerStream` is alive until the batch is dropped, and our own
            // streams are in it.
            match unsafe { self.held.shared.gpu.record(stream) } {
                Ok(event) => self.held.uses.add(Arc::new(event)),
                Err(_) => self.held.return_when_idle(),
            }
        }
        self.end_lending();
    }
}

impl fmt::Debug for FreeSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FreeSlot({} bytes at {:#x})", self.0.len(), self.0.at.0)
    }
}

impl fmt::Debug for Filling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filling({} bytes at {:#x})", self.room(), self.held.at.0)
    }
}

impl fmt::Debug for DeviceBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBatch({} bytes at {:#x})", self.len, self.held.at.0)
    }
}
