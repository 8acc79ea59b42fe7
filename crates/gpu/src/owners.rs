//! Values that own what the driver gave, and give it back in the right order.
//!
//! A [`Gpu`] is a handle on a driver with its copy streams; everything that is made through it
//! keeps the driver alive. No drop in here blocks, panics or calls a driver function that
//! waits for the device: memory that enqueued work may still use is *buried* with the
//! events that the work ends with, and freed by whoever next allocates, submits or polls after
//! the device has reached them ([`Gpu::sweep`]). [`Gpu::shut_down`] waits for what is left, with a
//! deadline; what nobody waits for is leaked rather than freed too early.
//!
//! It does not choose what is copied where (`staging` does). Events come from a pool, so that
//! a batch costs no call that makes one.
#![allow(unsafe_code, reason = "vouches to the driver for the handles that it owns")]

mod graveyard;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::graveyard::{Buried, Graveyard};
use crate::GpuError;
use crate::driver::{Address, Driver, EventId, StreamId};

/// A GPU to work with. Cloning gives another handle on the same one.
#[derive(Clone)]
pub struct Gpu {
    core: Arc<Core>,
    graveyard: Arc<Graveyard>,
}

/// What everything made through a GPU shares. The graveyard is not in it, so that what is buried
/// can hold this without holding itself.
struct Core {
    driver: Arc<dyn Driver>,
    /// Host to device, and back: one each, so that neither waits for the other.
    upload: StreamId,
    download: StreamId,
    /// Events that nobody uses at this moment.
    spare: Mutex<Vec<EventId>>,
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({})", self.core.driver.card().name)
    }
}

/// A stream that whoever named it keeps alive.
///
/// Streams of other libraries are numbers to this crate; work is enqueued on them and events
/// recorded. The one `unsafe` place is where a number becomes this value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConsumerStream(StreamId);

impl ConsumerStream {
    /// The legacy default stream, which always exists; PyTorch's current stream unless it was told
    /// otherwise.
    pub const DEFAULT: Self = Self(StreamId(0));

    /// CUDA's *per-thread* default stream, which names another stream in every thread.
    ///
    /// Lending to it means that of the calling thread. A batch may be released by any thread, so its
    /// end is recorded on the legacy default stream, which waits for the per-thread ones of all.
    pub const PER_THREAD: Self = Self(StreamId(2));

    /// A stream of another library's, by its handle (`CUstream`; DLPack's `stream`, PyTorch's
    /// `cuda_stream`). 0 and 1 are the legacy default stream, 2 is [`Self::PER_THREAD`].
    ///
    /// # Safety
    /// The stream is of this GPU, and lives until every batch that was lent to it has been
    /// released or dropped.
    #[must_use]
    pub unsafe fn of_handle(handle: u64) -> Self {
        Self(StreamId(handle))
    }

    /// The stream, for calls of the driver on the thread that named it.
    #[must_use]
    pub fn id(self) -> StreamId {
        self.0
    }

    /// The stream on which any thread may record the end of what is enqueued on it now.
    pub(crate) fn end(self) -> StreamId {
        if self == Self::PER_THREAD { Self::DEFAULT.0 } else { self.0 }
    }
}

impl Gpu {
    /// A GPU behind this driver; creates its copy streams.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn new(driver: Arc<dyn Driver>) -> Result<Self, GpuError> {
        let upload = driver.create_stream()?;
        let download = driver.create_stream().inspect_err(|_| {
            // SAFETY: made a line above, and nobody has seen it.
            unsafe { driver.destroy_stream(upload) };
        })?;
        let core = Arc::new(Core { driver, upload, download, spare: Mutex::default() });
        Ok(Self { core, graveyard: Arc::default() })
    }

    /// Its driver.
    #[must_use]
    pub fn driver(&self) -> &dyn Driver {
        &*self.core.driver
    }

    /// The same, to be kept.
    pub(crate) fn shared_driver(&self) -> Arc<dyn Driver> {
        Arc::clone(&self.core.driver)
    }

    /// The stream of copies to the device.
    #[must_use]
    pub fn upload_stream(&self) -> Stream {
        Stream { id: self.core.upload, gpu: self.clone(), own: None }
    }

    /// The stream of copies from the device.
    #[must_use]
    pub fn download_stream(&self) -> Stream {
        Stream { id: self.core.download, gpu: self.clone(), own: None }
    }

    /// Creates a stream for kernels.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn stream(&self) -> Result<Stream, GpuError> {
        let id = self.core.driver.create_stream()?;
        let own = Some(Arc::new(Own { id, core: Arc::clone(&self.core) }));
        Ok(Stream { id, gpu: self.clone(), own })
    }

    /// Allocates device memory of any content; frees what the device is done with first. May block
    /// in the driver: for set-up.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], [`GpuError::Driver`].
    pub fn allocate(&self, bytes: usize) -> Result<DeviceBuffer, GpuError> {
        self.sweep();
        let at = self.core.driver.allocate(bytes)?;
        Ok(DeviceBuffer { at, bytes, uses: Uses::default(), gpu: self.clone() })
    }

    /// An event at the end of what is enqueued on `stream` now.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    ///
    /// # Safety
    /// The stream is this GPU's and alive.
    pub unsafe fn record(&self, stream: StreamId) -> Result<Event, GpuError> {
        let event = self.spare_event()?;
        // SAFETY: the event is alive, and so is the stream, as the caller promises.
        unsafe { self.core.driver.record(event.id, stream) }?;
        Ok(event)
    }

    /// An event that nobody uses.
    fn spare_event(&self) -> Result<Event, GpuError> {
        let spare = locked(&self.core.spare).pop();
        let id = match spare {
            Some(id) => id,
            None => self.core.driver.create_event()?,
        };
        Ok(Event { id, core: Arc::clone(&self.core) })
    }

    /// An event that keeps the time at which it is reached, to be recorded by hand: not of the pool, since
    /// those of the pool have no times.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn timed_event(&self) -> Result<TimedEvent, GpuError> {
        let id = self.core.driver.create_timed_event()?;
        Ok(TimedEvent { id, core: Arc::clone(&self.core) })
    }

    /// Keeps a value until the device has reached the end of what is enqueued on `stream`
    /// now, and drops it in a later sweep: how a host slot goes back to its ring after a
    /// copy that another library has enqueued.
    ///
    /// Where the driver does not record that end, the value is kept until the device is idle.
    ///
    /// # Errors
    /// [`GpuError::Driver`] of a driver that cannot tell that either; the value is then kept for good, since
    /// nothing says when it may go.
    pub fn keep_until(
        &self,
        stream: ConsumerStream,
        value: Box<dyn Send>,
    ) -> Result<(), GpuError> {
        // SAFETY: a `ConsumerStream` is alive.
        match unsafe { self.record(stream.end()) } {
            Ok(event) => {
                self.keep_until_reached(Arc::new(event), value);
                Ok(())
            }
            Err(_) if self.driver().records_all() => {
                self.keep_until_idle(value);
                Ok(())
            }
            Err(error) => {
                Box::leak(value);
                Err(error)
            }
        }
    }

    /// Keeps a value until everything has run that any library of this process
    /// has enqueued by the next sweep, on this device or another, and drops it in a later one: how pinned memory
    /// goes back that code of others copies from (`tensor.to("cuda", non_blocking=True)`). Calls
    /// no driver, so any thread may do it at any time. Of use where [`Self::can_record_all`].
    pub fn keep_until_idle(&self, value: Box<dyn Send>) {
        self.graveyard.keep(value);
    }

    /// Whether the driver can tell when the device has passed everything: CUDA's since 12.5.
    ///
    /// # Errors
    /// [`GpuError::Driver`] with the reason.
    pub fn can_record_all(&self) -> Result<(), GpuError> {
        self.record_all().map(drop)
    }

    /// An event after all that is enqueued on the device now.
    fn record_all(&self) -> Result<Event, GpuError> {
        let event = self.spare_event()?;
        // SAFETY: the event is alive.
        unsafe { self.core.driver.record_all(event.id) }?;
        Ok(event)
    }

    /// Records an event behind what is kept until the device is idle. Where that fails, as
    /// while a stream is being captured, the next sweep tries again.
    fn date(&self) {
        let undated = self.graveyard.take_undated();
        if undated.is_empty() {
            return;
        }
        match self.record_all() {
            Ok(event) => self.keep_until_reached(Arc::new(event), Box::new(undated)),
            Err(_) => self.graveyard.put_back(undated),
        }
    }

    /// The same for an event that was recorded before.
    pub(crate) fn keep_until_reached(&self, event: Arc<Event>, value: Box<dyn Send>) {
        self.graveyard.bury(vec![event], Buried::Kept(value));
    }

    /// Frees and drops what the device is done with; never blocks. Returns how much is still
    /// buried.
    pub fn sweep(&self) -> usize {
        self.date();
        self.graveyard.sweep()
    }

    /// Waits until the device is done with all that is buried, `limit` at most for each piece,
    /// and frees it. For the end of a run.
    ///
    /// # Errors
    /// [`GpuError::Late`], [`GpuError::Driver`]: what is left is leaked when the last handle
    /// goes.
    pub fn shut_down(&self, limit: Duration) -> Result<(), GpuError> {
        while self.sweep() > 0 {
            let Some(event) = self.graveyard.an_event() else { break };
            event.wait(limit)?;
        }
        Ok(())
    }

    /// How many things wait for the device to be done with them.
    #[must_use]
    pub fn n_buried(&self) -> usize {
        self.graveyard.len()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        for stream in [self.upload, self.download] {
            // SAFETY: made by `Gpu::new`, destroyed here once; work on it still runs.
            unsafe { self.driver.destroy_stream(stream) };
        }
        let spare = self.spare.get_mut().unwrap_or_else(PoisonError::into_inner);
        for event in spare.drain(..) {
            // SAFETY: made by `Gpu::record`, in the pool once, and nobody has it.
            unsafe { self.driver.destroy_event(event) };
        }
    }
}

/// A stream of our own. Cloning gives another handle on the same one, which ends with the last.
#[derive(Clone)]
pub struct Stream {
    id: StreamId,
    gpu: Gpu,
    /// `None` of the copy streams, which live as long as the GPU.
    #[expect(dead_code, reason = "it acts when it is dropped")]
    own: Option<Arc<Own>>,
}

/// Destroys a stream when it is dropped.
struct Own {
    id: StreamId,
    core: Arc<Core>,
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: made by `Gpu::stream`, destroyed once; work on it still runs.
        unsafe { self.core.driver.destroy_stream(self.id) };
    }
}

impl Stream {
    /// Its handle, alive as long as this value.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// An event at the end of what is enqueued on it now.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn record(&self) -> Result<Event, GpuError> {
        // SAFETY: `self` keeps the stream alive.
        unsafe { self.gpu.record(self.id) }
    }

    /// What is enqueued on it from now on waits for `event`.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn wait_for(&self, event: &Event) -> Result<(), GpuError> {
        // SAFETY: `self` and `event` are alive.
        unsafe { self.gpu.driver().stream_waits(self.id, event.id) }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:#x})", self.id.0)
    }
}

/// A point in a stream. Dropping it gives it back to the pool: streams that were told to
/// wait for it wait for the point that it was, whatever it is recorded at next.
pub struct Event {
    id: EventId,
    core: Arc<Core>,
}

impl Event {
    /// Its handle, alive as long as this value.
    #[must_use]
    pub fn id(&self) -> EventId {
        self.id
    }

    /// Whether the device has reached it; never blocks.
    ///
    /// # Errors
    /// [`GpuError::Driver`], also of an earlier failure on the device.
    pub fn is_reached(&self) -> Result<bool, GpuError> {
        // SAFETY: `self` is alive.
        unsafe { self.core.driver.is_reached(self.id) }
    }

    /// Blocks until the device has reached it, `limit` at most: for shutdown and tests.
    ///
    /// # Errors
    /// [`GpuError::Late`], [`GpuError::Driver`].
    pub fn wait(&self, limit: Duration) -> Result<(), GpuError> {
        // SAFETY: `self` is alive.
        unsafe { self.core.driver.wait_for(self.id, limit) }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:#x})", self.id.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        locked(&self.core.spare).push(self.id);
    }
}

/// An event with a time. Dropping it destroys it.
pub struct TimedEvent {
    id: EventId,
    core: Arc<Core>,
}

impl TimedEvent {
    /// Moves it to the end of what is enqueued on `stream` now.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn record_on(&self, stream: &Stream) -> Result<(), GpuError> {
        // SAFETY: `self` and `stream` are alive.
        unsafe { self.core.driver.record(self.id, stream.id) }
    }

    /// The time from this one to another, both recorded and reached.
    ///
    /// # Errors
    /// [`GpuError::Driver`], also where one is not reached.
    pub fn until(&self, later: &Self) -> Result<Duration, GpuError> {
        // SAFETY: both are alive.
        unsafe { self.core.driver.elapsed(self.id, later.id) }
    }
}

impl fmt::Debug for TimedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimedEvent({:#x})", self.id.0)
    }
}

impl Drop for TimedEvent {
    fn drop(&mut self) {
        // SAFETY: made by `Gpu::timed_event`, destroyed once.
        unsafe { self.core.driver.destroy_event(self.id) };
    }
}

/// The ends of the work that uses a piece of device memory. Whoever writes it next waits for
/// all of them; whoever frees it, too. Cloning gives another handle on the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Uses(Arc<Mutex<Vec<Arc<Event>>>>);

impl Uses {
    /// Makes `stream` wait for every use so far.
    ///
    /// # Safety
    /// The stream is `gpu`'s and alive.
    pub(crate) unsafe fn wait(
        &self,
        gpu: &Gpu,
        stream: StreamId,
    ) -> Result<(), GpuError> {
        for event in &*locked(&self.0) {
            // SAFETY: the event is alive, and the stream, as the caller promises.
            unsafe { gpu.driver().stream_waits(stream, event.id) }?;
        }
        Ok(())
    }

    /// Adds a use that ends at `event`.
    pub(crate) fn add(&self, event: Arc<Event>) {
        locked(&self.0).push(event);
    }

    /// One use that began after all others had ended stands for all.
    pub(crate) fn replace(&self, event: Arc<Event>) {
        *locked(&self.0) = vec![event];
    }
}

/// Device memory. Dropping it frees the memory once the device has passed its known uses.
pub struct DeviceBuffer {
    at: Address,
    bytes: usize,
    uses: Uses,
    gpu: Gpu,
}

impl DeviceBuffer {
    /// Where it is.
    #[must_use]
    pub fn address(&self) -> Address {
        self.at
    }

    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Work that is enqueued on `stream` now uses it: it will not be freed before.
    ///
    /// # Errors
    /// [`GpuError::Driver`]: keep the buffer then.
    ///
    /// # Safety
    /// The stream is this GPU's and alive.
    pub unsafe fn used_on(&self, stream: StreamId) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        let event = unsafe { self.gpu.record(stream) }?;
        self.uses.add(Arc::new(event));
        Ok(())
    }

    pub(crate) fn uses(&self) -> &Uses {
        &self.uses
    }
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({} bytes at {:#x})", self.bytes, self.at.0)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let uses = std::mem::take(&mut *locked(&self.uses.0));
        let memory = Buried::Memory(self.at, self.gpu.shared_driver());
        self.gpu.graveyard.bury(uses, memory);
    }
}

/// Nobody panics while holding one of these locks with the list half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
