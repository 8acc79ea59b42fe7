//! What is asked of a GPU's driver: all of it, in one trait.
//!
//! Handles are plain numbers here; `owners` wraps them in values that free themselves. The
//! calls are the ones that CUDA's driver API and HIP have in common, so a backend for another
//! vendor is one more implementation of [`Driver`] plus the kernels compiled for it.
#![allow(
    unsafe_code,
    reason = "a driver cannot check that memory outlives the work that is enqueued on it"
)]

pub mod cuda;
pub(crate) mod deadline;
pub mod fake;

use std::ffi::{CStr, c_void};
use std::fmt::Debug;
use std::ptr::NonNull;
use std::time::Duration;

use crate::GpuError;

/// A place in device memory. The host must not dereference it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl Address {
    /// The place so many bytes after this one.
    #[must_use]
    pub fn after(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes as u64))
    }
}

/// A queue of work on the device: what is enqueued runs in order. It may be another
/// library's (PyTorch's current stream, say); 0 is the legacy default stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamId(pub u64);

/// A point in a stream that others can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u64);

/// A loaded kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelId(pub u64);

/// How many threads run a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Thread blocks along x, y and z; at least 1 each.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

/// The device, for people and for decisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Which, counted from 0 among the visible ones.
    pub ordinal: u32,
    /// For people: `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// The driver's version, for people.
    pub driver: String,
    /// Compute capability, major and minor; `(0, 0)` where that means nothing.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub n_multiprocessors: u32,
    /// Bytes of device memory.
    pub memory_bytes: u64,
    /// The NUMA node that it is attached to, where the system says.
    pub numa_node: Option<u32>,
}

/// A GPU's driver, bound to one device.
///
/// # Contract
///
/// 1. Every call may be made from any thread. None but [`Self::wait_for`] blocks until the device
///    has done something; `allocate`, `register` and `kernel` may block in the driver and are
///    for set-up.
/// 2. Work enqueued on one stream runs in order; between streams only events order it.
/// 3. Memory that is unregistered or freed may be reused at once: nothing that the driver
///    knows about it survives.
/// 4. Every `unsafe` call is sound if its handles are this driver's and alive, and the memory
///    that it is given stays allocated, and is not written by anybody else, until the stream
///    has passed the work.
///
/// `conformance` holds these as callable checks.
pub trait Driver: Debug + Send + Sync {
    /// The device.
    fn card(&self) -> &Card;

    /// Allocates device memory, aligned to 256 bytes, with any content.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], [`GpuError::Driver`].
    fn allocate(&self, bytes: usize) -> Result<Address, GpuError>;

    /// Frees what [`Self::allocate`] returned.
    ///
    /// # Safety
    /// `at` came from `allocate`, is freed once, and no enqueued work uses it any more.
    unsafe fn free(&self, at: Address);

    /// Pins `bytes` bytes of host memory for every device, until `unregister`.
    ///
    /// # Errors
    /// [`GpuError::Driver`], also where some of it is locked already.
    ///
    /// # Safety
    /// The memory stays allocated until `unregister`.
    unsafe fn register(&self, base: NonNull<u8>, bytes: usize) -> Result<(), GpuError>;

    /// Ends `register`.
    ///
    /// # Safety
    /// `base` was registered, and no enqueued work uses the memory any more.
    unsafe fn unregister(&self, base: NonNull<u8>);

    /// Creates a stream that does not synchronise with the default one.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    fn create_stream(&self) -> Result<StreamId, GpuError>;

    /// Destroys a stream; what is enqueued on it still runs.
    ///
    /// # Safety
    /// It came from `create_stream` and is destroyed once.
    unsafe fn destroy_stream(&self, stream: StreamId);

    /// Creates an event without timing, reached from the beginning.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    fn create_event(&self) -> Result<EventId, GpuError>;

    /// Creates an event that keeps the time at which it is reached, for [`Self::elapsed`]. In all
    /// else it is as of [`Self::create_event`].
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    fn create_timed_event(&self) -> Result<EventId, GpuError>;

    /// The time between two events on the device's own clock. Both were created with
    /// [`Self::create_timed_event`], have been recorded since and are reached. A driver without a
    /// clock answers zero.
    ///
    /// # Errors
    /// [`GpuError::Driver`], also for events that are not reached.
    ///
    /// # Safety
    /// As of the contract's clause 4.
    unsafe fn elapsed(&self, from: EventId, to: EventId) -> Result<Duration, GpuError>;

    /// Destroys an event; streams that wait for it still do.
    ///
    /// # Safety
    /// It came from `create_event` and is destroyed once.
    unsafe fn destroy_event(&self, event: EventId);

    /// Moves `event` to the end of `stream` as it is now.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    ///
    /// # Safety
    /// As of the contract's clause 4.
    unsafe fn record(&self, event: EventId, stream: StreamId) -> Result<(), GpuError>;

    /// Whether [`Self::record_all`] is there. It may fail all the same.
    fn records_all(&self) -> bool;

    /// Moves `event` to the end of everything that this process has enqueued so far, on any stream and by
    /// any library; on other devices, too, where it uses several.
    ///
    /// # Errors
    /// [`GpuError::Driver`], also where the driver is too old for it, and while a stream is being
    /// captured into a graph: CUDA then voids the capture, so this is for threads that take batches, which
    /// capture nothing meanwhile.
    ///
    /// # Safety
    /// As of the contract's clause 4.
    unsafe fn record_all(&self, event: EventId) -> Result<(), GpuError>;

    /// Work enqueued on `stream` from now on waits for `event` as it was last recorded.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    ///
    /// # Safety
    /// As of the contract's clause 4.
    unsafe fn stream_waits(
        &self,
        stream: StreamId,
        event: EventId,
    ) -> Result<(), GpuError>;

    /// Whether the device has reached `event` as it was last recorded.
    ///
    /// # Errors
    /// [`GpuError::Driver`], also for an earlier failure on the device.
    ///
    /// # Safety
    /// As of the contract's clause 4.
    unsafe fn is_reached(&self, event: EventId) -> Result<bool, GpuError>;

    /// Blocks the calling thread until the device has reached `event`, `timeout` at most. For
    /// shutdown and tests; never used in steady state.
    ///
    /// # Errors
    /// [`GpuError::Late`], [`GpuError::Driver`].
    ///
    /// # Safety
    /// As of the contract's clause 4.
    unsafe fn wait_for(&self, event: EventId, timeout: Duration) -> Result<(), GpuError>;

    /// Enqueues a copy from host memory, which is pinned: from pageable memory the driver
    /// may block, or copy before the stream's earlier work is done.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    ///
    /// # Safety
    /// As of the contract's clause 4.
    unsafe fn upload(
        &self,
        to: Address,
        from: &[u8],
        stream: StreamId,
    ) -> Result<(), GpuError>;

    /// Enqueues a copy to host memory.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    ///
    /// # Safety
    /// As of the contract's clause 4; nobody reads `to` before the stream has passed.
    unsafe fn download(
        &self,
        to: &mut [u8],
        from: Address,
        stream: StreamId,
    ) -> Result<(), GpuError>;

    /// Enqueues a copy within device memory; the ranges do not overlap.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    ///
    /// # Safety
    /// As of the contract's clause 4.
    unsafe fn copy(
        &self,
        to: Address,
        from: Address,
        bytes: usize,
        stream: StreamId,
    ) -> Result<(), GpuError>;

    /// One of the kernels in `kernels/`, by the name it has there.
    ///
    /// # Errors
    /// [`GpuError::Driver`] where there is none of that name, [`GpuError::Unavailable`] of a device that runs none.
    fn kernel(&self, name: &'static CStr) -> Result<KernelId, GpuError>;

    /// Enqueues a kernel. Each argument points to a value of the type that the kernel's
    /// parameter has; the values are copied before this returns.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    ///
    /// # Safety
    /// As of the contract's clause 4; the arguments are the kernel's, and it stays within
    /// the memory that they name.
    unsafe fn launch(
        &self,
        kernel: KernelId,
        launch: Launch,
        stream: StreamId,
        arguments: &[*const c_void],
    ) -> Result<(), GpuError>;
}
