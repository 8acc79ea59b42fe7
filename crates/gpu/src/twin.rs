//! A driver without a GPU: device memory is the host's, and kernels are the same sources
//! compiled for the CPU (`kernels/cpu`).
//!
//! It is for tests. What is enqueued runs at once on the calling thread, which is one of the
//! orders that streams and events allow; late completion is the fake driver's part. It finds what
//! a GPU would leave undefined: a kernel that reads or writes just outside an allocation, copies that
//! do not lie in one, threads that do not meet at a barrier, an order of threads that matters
//! ([`Twin::with_order`]). It says nothing about speed. Read `twin/compile.rs` next.
#![allow(
    unsafe_code,
    reason = "device memory is addresses, and copies are between those and slices"
)]

pub mod compile;
mod library;
pub mod sources;

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::library::{Library, Surroundings};
use crate::GpuError;
use crate::driver::{Address, Card, Driver, EventId, KernelId, Launch, StreamId};

/// What device allocations are aligned to.
const ALIGN: usize = 256;
/// Bytes before and behind every allocation that nobody may write.
const GUARD: usize = 256;
/// What these hold.
const UNTOUCHED: u8 = 0xDB;
/// What new memory holds: no value that a kernel could take for a result.
const FRESH: u8 = 0xA5;

/// A driver whose device is this process.
#[derive(Debug)]
pub struct Twin {
    card: Card,
    library: Library,
    order: u64,
    /// Launches until the device is lost.
    left: AtomicU64,
    next_handle: AtomicU64,
    memory: Mutex<Memory>,
    /// When each timed event was recorded; all work before it was done by then.
    reached: Mutex<BTreeMap<EventId, Option<Instant>>>,
}

#[derive(Debug, Default)]
struct Memory {
    /// By the address that was handed out.
    allocations: BTreeMap<u64, Allocation>,
    /// Where each of them begins and ends, for kernels that run.
    ranges: Arc<[[u64; 2]]>,
    /// Registered host memory: its length by its address.
    registered: BTreeMap<u64, usize>,
}

impl Twin {
    /// The kernels as they are in this checkout, compiled first where they have changed
    /// ([`compile::library`]).
    ///
    /// # Errors
    /// [`GpuError::Unavailable`] where there is no C++ compiler: a test says so and passes.
    /// [`GpuError::Driver`] where the kernels do not compile.
    pub fn compiled() -> Result<Self, GpuError> {
        Self::open(&compile::library()?)
    }

    /// The kernels of a library that was compiled before.
    ///
    /// # Errors
    /// [`GpuError::Unavailable`] where it cannot be loaded.
    pub fn open(library: &Path) -> Result<Self, GpuError> {
        Ok(Self {
            card: Card {
                ordinal: 0,
                name: "the CPU twin".to_owned(),
                driver: "none".to_owned(),
                capability: (0, 0),
                n_multiprocessors: 1,
                memory_bytes: 1 << 40,
                numa_node: None,
            },
            library: Library::open(library)?,
            order: 0,
            left: AtomicU64::new(u64::MAX),
            next_handle: AtomicU64::new(1),
            memory: Mutex::default(),
            reached: Mutex::default(),
        })
    }

    /// Runs blocks, and the threads of each, in another order: one for each seed above 0. A
    /// kernel whose results depend on it lacks a barrier.
    #[must_use]
    pub fn with_order(self, seed: u64) -> Self {
        Self { order: seed, ..self }
    }

    /// Is lost after so many launches: from then on calls fail as those of a device that has
    /// fallen off its bus.
    #[must_use]
    pub fn lost_after(self, n_launches: u64) -> Self {
        Self { left: AtomicU64::new(n_launches), ..self }
    }

    /// Whether the device is still there.
    fn check(&self, call: &'static str) -> Result<(), GpuError> {
        match self.left.load(Ordering::Relaxed) {
            0 => Err(GpuError::Driver { call, why: "the device is lost".to_owned() }),
            _ => Ok(()),
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // A panic of another thread leaves a list of allocations that is still true.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reached(&self) -> MutexGuard<'_, BTreeMap<EventId, Option<Instant>>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }
}

impl Memory {
    fn list(&mut self) {
        let range = |(at, of): (&u64, &Allocation)| [*at, *at + of.bytes as u64];
        self.ranges = self.allocations.iter().map(range).collect();
    }

    /// Whether so many bytes from `at` on lie in one allocation.
    fn check(
        &self,
        call: &'static str,
        at: Address,
        bytes: usize,
    ) -> Result<(), GpuError> {
        let below = self.allocations.range(..=at.0).next_back();
        let inside = below.is_some_and(|(start, allocation)| {
            let offset = usize::try_from(at.0 - start).unwrap_or(usize::MAX);
            offset.checked_add(bytes).is_some_and(|end| end <= allocation.bytes)
        });
        if inside || bytes == 0 {
            return Ok(());
        }
        let why = format!("{bytes} bytes at {:#x} are not in one allocation", at.0);
        Err(GpuError::Driver { call, why })
    }

    /// The first allocation whose surroundings were written.
    fn overrun(&self) -> Option<u64> {
        let overrun = |allocation: &Allocation| {
            allocation.guards().iter().any(|guard| guard.iter().any(|b| *b != UNTOUCHED))
        };
        let found = self.allocations.iter().find(|(_, allocation)| overrun(allocation));
        found.map(|(at, _)| *at)
    }
}

/// Device memory, with guards on both sides.
#[derive(Debug)]
struct Allocation {
    start: NonNull<u8>,
    layout: Layout,
    bytes: usize,
}

// SAFETY: whoever has the value owns the memory; the pointer is to nothing of a thread's own.
unsafe impl Send for Allocation {}

impl Allocation {
    fn new(bytes: usize) -> Option<Self> {
        let with_guards = bytes.checked_add(2 * GUARD)?;
        let layout = Layout::from_size_align(with_guards, ALIGN).ok()?;
        // SAFETY: the layout has a size above 0: two guards at least.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        // SAFETY: all of it was just allocated.
        unsafe { start.as_ptr().write_bytes(UNTOUCHED, with_guards) };
        let allocation = Self { start, layout, bytes };
        // SAFETY: between the guards there are `bytes` bytes.
        unsafe { allocation.device().write_bytes(FRESH, bytes) };
        Some(allocation)
    }

    /// What is handed out.
    fn device(&self) -> *mut u8 {
        self.start.as_ptr().wrapping_add(GUARD)
    }

    fn guards(&self) -> [&[u8]; 2] {
        let behind = self.device().wrapping_add(self.bytes);
        [self.start.as_ptr(), behind].map(|guard| {
            // SAFETY: each guard is `GUARD` initialised bytes of the allocation, which nobody
            // has a reference into.
            unsafe { std::slice::from_raw_parts(guard, GUARD) }
        })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once: this value cannot be copied.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// What an address points to here.
fn pointer(at: Address) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(usize::try_from(at.0).unwrap_or_default())
}

impl Driver for Twin {
    fn card(&self) -> &Card {
        &self.card
    }

    fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        let allocation = Allocation::new(bytes).ok_or(GpuError::OutOfMemory { bytes })?;
        let at = allocation.device().expose_provenance() as u64;
        let mut memory = self.memory();
        memory.allocations.insert(at, allocation);
        memory.list();
        Ok(Address(at))
    }

    unsafe fn free(&self, at: Address) {
        let mut memory = self.memory();
        memory.allocations.remove(&at.0);
        memory.list();
    }

    unsafe fn register(&self, base: NonNull<u8>, bytes: usize) -> Result<(), GpuError> {
        let first = base.as_ptr().addr() as u64;
        let mut memory = self.memory();
        let before = memory.registered.range(..first + bytes as u64).next_back();
        if before.is_some_and(|(start, len)| start + *len as u64 > first) {
            let why = "some of the memory is registered already".to_owned();
            return Err(GpuError::Driver { call: "register", why });
        }
        memory.registered.insert(first, bytes);
        Ok(())
    }

    unsafe fn unregister(&self, base: NonNull<u8>) {
        self.memory().registered.remove(&(base.as_ptr().addr() as u64));
    }

    fn create_stream(&self) -> Result<StreamId, GpuError> {
        Ok(StreamId(self.handle()))
    }

    unsafe fn destroy_stream(&self, _: StreamId) {}

    fn create_event(&self) -> Result<EventId, GpuError> {
        Ok(EventId(self.handle()))
    }

    fn create_timed_event(&self) -> Result<EventId, GpuError> {
        let event = EventId(self.handle());
        self.reached().insert(event, None);
        Ok(event)
    }

    unsafe fn elapsed(&self, from: EventId, to: EventId) -> Result<Duration, GpuError> {
        let reached = self.reached();
        let at = |event| reached.get(&event).copied().flatten();
        let elapsed = at(from).zip(at(to)).map(|(from, to)| to.duration_since(from));
        let why = || "an event without timing, or not recorded".to_owned();
        elapsed.ok_or_else(|| GpuError::Driver { call: "elapsed", why: why() })
    }

    unsafe fn destroy_event(&self, event: EventId) {
        self.reached().remove(&event);
    }

    unsafe fn record(&self, event: EventId, _: StreamId) -> Result<(), GpuError> {
        if let Some(reached) = self.reached().get_mut(&event) {
            *reached = Some(Instant::now());
        }
        Ok(())
    }

    fn records_all(&self) -> bool {
        true
    }

    unsafe fn record_all(&self, _: EventId) -> Result<(), GpuError> {
        Ok(())
    }

    unsafe fn stream_waits(&self, _: StreamId, _: EventId) -> Result<(), GpuError> {
        Ok(())
    }

    unsafe fn is_reached(&self, _: EventId) -> Result<bool, GpuError> {
        self.check("is_reached").map(|()| true)
    }

    unsafe fn wait_for(&self, _: EventId, _: Duration) -> Result<(), GpuError> {
        self.check("wait_for")
    }

    unsafe fn upload(
        &self,
        to: Address,
        from: &[u8],
        _: StreamId,
    ) -> Result<(), GpuError> {
        self.memory().check("upload", to, from.len())?;
        // SAFETY: the bytes at `to` lie in an allocation, to which `from`, a slice of the
        // caller's, does not belong.
        unsafe { pointer(to).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }

    unsafe fn download(
        &self,
        to: &mut [u8],
        from: Address,
        _: StreamId,
    ) -> Result<(), GpuError> {
        self.memory().check("download", from, to.len())?;
        // SAFETY: as for `upload`.
        unsafe { pointer(from).copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    unsafe fn copy(
        &self,
        to: Address,
        from: Address,
        bytes: usize,
        _: StreamId,
    ) -> Result<(), GpuError> {
        let memory = self.memory();
        memory.check("copy", to, bytes)?;
        memory.check("copy", from, bytes)?;
        drop(memory);
        // SAFETY: both ranges lie in allocations; the caller says that they do not overlap, and
        // `copy` would bear it.
        unsafe { pointer(from).copy_to(pointer(to), bytes) };
        Ok(())
    }

    fn kernel(&self, name: &'static CStr) -> Result<KernelId, GpuError> {
        self.library.find(name).ok_or_else(|| {
            let why = format!("there is no kernel {}", name.to_string_lossy());
            GpuError::Driver { call: "kernel", why }
        })
    }

    unsafe fn launch(
        &self,
        kernel: KernelId,
        launch: Launch,
        _: StreamId,
        arguments: &[*const c_void],
    ) -> Result<(), GpuError> {
        let failed = |why| GpuError::Driver { call: "launch", why };
        self.check("launch")?;
        let less = |left: u64| left.checked_sub(1);
        // Where none is left by now it stays so.
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let ranges = Arc::clone(&self.memory().ranges);
        let surroundings = Surroundings { seed: self.order, allocations: &ranges };
        // SAFETY: the caller vouches for the arguments, as `run` asks.
        unsafe { self.library.run(kernel, launch, &surroundings, arguments) }
            .map_err(failed)?;
        match self.memory().overrun() {
            None => Ok(()),
            Some(at) => {
                Err(failed(format!("the kernel wrote around the allocation at {at:#x}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The twin, or `None` where no compiler can make it.
    pub(super) fn twin() -> Option<Twin> {
        match Twin::compiled() {
            Err(GpuError::Unavailable { why }) => {
                println!("skipped: {why}");
                None
            }
            twin => Some(twin.unwrap()),
        }
    }

    fn launch(
        twin: &Twin,
        name: &'static CStr,
        (blocks, threads, shared_bytes): (u32, u32, u32),
        arguments: &[*const c_void],
    ) -> Result<(), GpuError> {
        let kernel = twin.kernel(name)?;
        let launch = Launch { grid: [blocks, 1, 1], block: threads, shared_bytes };
        // SAFETY: the tests below pass what the kernels take.
        unsafe { twin.launch(kernel, launch, StreamId(0), arguments) }
    }

    fn upload(twin: &Twin, values: &[u32]) -> Address {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        let at = twin.allocate(bytes.len()).unwrap();
        // SAFETY: the twin copies before it returns.
        unsafe { twin.upload(at, &bytes, StreamId(0)) }.unwrap();
        at
    }

    fn download(twin: &Twin, at: Address, n: usize) -> Vec<u32> {
        let mut bytes = vec![0; 4 * n];
        // SAFETY: the twin copies before it returns.
        unsafe { twin.download(&mut bytes, at, StreamId(0)) }.unwrap();
        bytes.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
    }

    fn address_of<T>(value: &T) -> *const c_void {
        (&raw const *value).cast()
    }

    #[test]
    fn a_kernel_adds_up_through_warps_shared_memory_and_atomics() {
        for order in [0, 1, 77] {
            let Some(twin) = twin().map(|twin| twin.with_order(order)) else { return };
            let values: Vec<u32> = (0..1000).map(|i| i * i).collect();
            let (from, sum) = (upload(&twin, &values), upload(&twin, &[0]));
            let n = 1000_u32;
            let arguments = [address_of(&from.0), address_of(&n), address_of(&sum.0)];
            launch(&twin, c"selftest_sum", (4, 256, 0), &arguments).unwrap();
            assert_eq!(download(&twin, sum, 1), [values.iter().sum::<u32>()]);
        }
    }

    #[test]
    fn several_threads_run_kernels_at_once() {
        let Some(twin) = twin() else { return };
        std::thread::scope(|scope| {
            for first in 0..4 {
                let twin = &twin;
                scope.spawn(move || {
                    for round in 0..50 {
                        let values: Vec<u32> =
                            (0..300).map(|i| i + first + round).collect();
                        let (from, sum) = (upload(twin, &values), upload(twin, &[0]));
                        let n = 300_u32;
                        let arguments =
                            [address_of(&from.0), address_of(&n), address_of(&sum.0)];
                        launch(twin, c"selftest_sum", (2, 256, 0), &arguments).unwrap();
                        assert_eq!(download(twin, sum, 1), [values.iter().sum::<u32>()]);
                    }
                });
            }
        });
    }

    #[test]
    fn a_missing_barrier_shows() {
        let Some(twin) = twin().map(|twin| twin.with_order(5)) else { return };
        let expected: Vec<u32> = (0..256).map(|i| (i + 1) % 256).collect();
        let out = upload(&twin, &[0; 256]);
        let run = |with_barrier: u32| {
            let arguments = [address_of(&out.0), address_of(&with_barrier)];
            launch(&twin, c"selftest_neighbours", (1, 256, 1024), &arguments).unwrap();
            download(&twin, out, 256)
        };
        assert_eq!(run(1), expected);
        assert!(run(0) != expected);
    }

    fn refused(outcome: Result<(), GpuError>, because: &str) {
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains(because), "{message:?} does not say {because:?}");
    }

    #[test]
    fn what_a_gpu_leaves_undefined_is_refused() {
        let Some(twin) = twin() else { return };
        let (half, all, with_barrier) = (100_u32, 0_u32, 1_u32);
        let out = upload(&twin, &[0; 255]);
        let name = c"selftest_half_a_barrier";
        refused(launch(&twin, name, (1, 256, 0), &[address_of(&half)]), "has ended");
        launch(&twin, name, (1, 256, 0), &[address_of(&all)]).unwrap();
        let arguments = [address_of(&out.0), address_of(&with_barrier)];
        let name = c"selftest_neighbours";
        refused(launch(&twin, name, (1, 256, 1000), &arguments), "index 250 of 250");
        refused(launch(&twin, name, (1, 257, 2000), &arguments), "more threads");
        refused(launch(&twin, name, (1, 256, 1024), &arguments[..1]), "arguments");
        refused(launch(&twin, name, (1, 256, 1024), &arguments), "around the allocation");
        refused(launch(&twin, c"no_such", (1, 1, 0), &[]), "no kernel");
        let (values, sum, n) = (upload(&twin, &[1; 100]), upload(&twin, &[0]), 101_u32);
        let arguments = [address_of(&values.0), address_of(&n), address_of(&sum.0)];
        let outcome = launch(&twin, c"selftest_sum", (1, 256, 0), &arguments);
        refused(outcome, "4 bytes at 400 of an allocation of 400");
    }

    #[test]
    fn a_device_that_is_lost_stays_lost() {
        let Some(twin) = twin().map(|twin| twin.lost_after(1)) else { return };
        let (values, sum, n) = (upload(&twin, &[1; 100]), upload(&twin, &[0]), 100_u32);
        let arguments = [address_of(&values.0), address_of(&n), address_of(&sum.0)];
        let run = || launch(&twin, c"selftest_sum", (1, 256, 0), &arguments);
        run().unwrap();
        refused(run(), "the device is lost");
        refused(run(), "the device is lost");
        // SAFETY: no handle is looked at.
        let asked = unsafe { twin.is_reached(EventId(1)) };
        refused(asked.map(drop), "the device is lost");
    }

    #[test]
    fn copies_lie_in_allocations() {
        let Some(twin) = twin() else { return };
        let at = twin.allocate(100).unwrap();
        let bytes = [7; 100];
        // SAFETY: the twin copies before it returns, here and below.
        let outcome = unsafe { twin.upload(at.after(1), &bytes, StreamId(0)) };
        refused(outcome, "not in one allocation");
        // SAFETY: as above.
        unsafe { twin.upload(at, &bytes, StreamId(0)) }.unwrap();
        // SAFETY: nothing uses it.
        unsafe { twin.free(at) };
        // SAFETY: as above.
        refused(unsafe { twin.upload(at, &bytes, StreamId(0)) }, "not in one allocation");
    }
}
