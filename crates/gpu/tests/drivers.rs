//! The drivers' suite over the fake one, and slots' suite over the kinds of memory.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bothends_gpu::conformance;
use bothends_gpu::driver::fake::Fake;
use bothends_gpu::kinds::{DeviceMemory, PageLocked};
use bothends_gpu::owners::{ConsumerStream, Gpu};
use bothends_slots::conformance::memory;
use bothends_slots::{Backing, Kind, Registration, Ring, RingConfig, SlotError};

const TWO: RingConfig = RingConfig { n_slots: 2, slot_bytes: 8192 };

fn gpu() -> (Arc<Fake>, Gpu) {
    let fake = Arc::new(Fake::default());
    let gpu = Gpu::new(fake.clone()).unwrap();
    (fake, gpu)
}

#[test]
fn the_fake_keeps_the_contract() {
    let fake = Fake::default();
    conformance::all(&fake);
    assert_eq!(fake.wrongs(), Vec::<String>::new());
    assert_eq!(fake.n_alive(), [0; 4], "the checks clean up");
}

#[test]
fn both_kinds_of_memory_keep_the_contract_of_slots() {
    let (fake, gpu) = gpu();
    memory::all(&PageLocked::of(&gpu));
    memory::all(&DeviceMemory::of(&gpu));
    assert!(fake.counts().registrations > 0);
    gpu.sweep();
    drop(gpu);
    assert_eq!(fake.n_alive(), [0; 4], "memory, registrations, streams, events");
    assert_eq!(fake.wrongs(), Vec::<String>::new());
}

#[test]
fn a_registration_that_fails_has_its_reason() {
    let (fake, gpu) = gpu();
    fake.fail_next("register");
    let error = Ring::of(&PageLocked::of(&gpu), TWO).unwrap_err();
    assert!(matches!(&error, SlotError::Registration { .. }), "{error}");
    assert!(error.to_string().contains("told to fail"), "{error}");
    assert!(Ring::of(&PageLocked::of(&gpu), TWO).is_ok(), "the next one is fine");
    let small = Gpu::new(Arc::new(Fake::new(8192))).unwrap();
    let error = Ring::of(&DeviceMemory::of(&small), TWO).unwrap_err();
    assert!(matches!(error, SlotError::OutOfMemory { .. }), "{error}");
}

/// Pinned memory that says whether it is still registered when it is freed.
#[derive(Debug)]
struct Watched {
    kind: PageLocked,
    fake: Arc<Fake>,
    freed_registered: Arc<Mutex<u32>>,
}

#[derive(Debug)]
struct Freeing {
    memory: Backing,
    fake: Arc<Fake>,
    freed_registered: Arc<Mutex<u32>>,
}

impl Drop for Freeing {
    fn drop(&mut self) {
        let base = self.memory.base().unwrap();
        *self.freed_registered.lock().unwrap() +=
            u32::from(self.fake.is_registered(base));
    }
}

impl Kind for Watched {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn allocate(&self, bytes: usize) -> Option<Result<Backing, SlotError>> {
        let memory = self.kind.allocate(bytes)?.unwrap();
        let base = memory.base().unwrap();
        let owner = Freeing {
            memory,
            fake: self.fake.clone(),
            freed_registered: self.freed_registered.clone(),
        };
        Some(Ok(host_backing(base, bytes, Box::new(owner))))
    }

    fn register(
        &self,
        memory: &Backing,
    ) -> Result<Option<Box<dyn Registration>>, SlotError> {
        self.kind.register(memory)
    }
}

/// Registrations kept next to the slots, as a script does that registers a loader's memory: they go
/// after it.
struct Naive {
    slots: Vec<Backing>,
    registered: Vec<Box<dyn Registration>>,
}

#[test]
fn a_ring_ends_registrations_in_time_and_a_naive_one_is_found_out() {
    let (fake, gpu) = gpu();
    let kind = Watched {
        kind: PageLocked::of(&gpu),
        fake: fake.clone(),
        freed_registered: Arc::default(),
    };
    let ring = Ring::of(&kind, TWO).unwrap();
    let slot = ring.take(Duration::ZERO).unwrap();
    assert_eq!(fake.n_alive()[1], 2);
    drop(ring);
    drop(slot);
    assert_eq!(*kind.freed_registered.lock().unwrap(), 0);
    let memory = kind.allocate(8192).unwrap().unwrap();
    let registered = kind.register(&memory).unwrap().into_iter().collect();
    let naive = Naive { slots: vec![memory], registered };
    let Naive { slots, registered } = naive;
    drop(slots);
    drop(registered);
    assert_eq!(*kind.freed_registered.lock().unwrap(), 1, "the naive ring is found out");
}

#[test]
fn memory_is_freed_when_the_device_is_done_with_it() {
    let (fake, gpu) = gpu();
    let stream = gpu.stream().unwrap();
    let buffer = gpu.allocate(64).unwrap();
    let other = gpu.allocate(64).unwrap();
    enqueue_copy(&gpu, &buffer, &other, &stream);
    drop((buffer, other));
    drop(stream);
    assert_eq!(fake.n_alive()[0], 2, "the copy may still run");
    assert_eq!(gpu.sweep(), 2);
    fake.run_all();
    assert_eq!(gpu.sweep(), 0);
    assert_eq!(fake.n_alive()[0], 0);
    assert_eq!(fake.counts().waits, 0, "nobody waited");
    drop(gpu);
    assert_eq!(fake.n_alive(), [0; 4]);
    assert_eq!(fake.wrongs(), Vec::<String>::new());
}

#[test]
fn the_end_of_a_run_waits_with_a_deadline_and_leaks_what_is_late() {
    let (fake, gpu) = gpu();
    let stream = gpu.stream().unwrap();
    let buffers = || [gpu.allocate(64).unwrap(), gpu.allocate(64).unwrap()];
    let [from, to] = buffers();
    enqueue_copy(&gpu, &from, &to, &stream);
    drop((from, to));
    gpu.shut_down(Duration::from_secs(60)).unwrap();
    assert_eq!((gpu.n_buried(), fake.n_alive()[0]), (0, 0));
    let [from, to] = buffers();
    enqueue_copy(&gpu, &from, &to, &stream);
    drop((from, to));
    fake.hang();
    let error = gpu.shut_down(Duration::from_secs(60)).unwrap_err();
    assert!(error.to_string().contains("within 60 s"), "{error}");
    drop((stream, gpu));
    assert_eq!(fake.n_alive()[0], 2, "leaked, not freed under a copy");
    assert_eq!(fake.wrongs(), Vec::<String>::new());
}

#[test]
fn a_slot_that_another_library_copies_from_comes_back_after_its_stream() {
    let (fake, gpu) = gpu();
    let ring = Ring::of(&PageLocked::of(&gpu), TWO).unwrap();
    let slot = ring.take(Duration::ZERO).unwrap().host().unwrap();
    let target = gpu.allocate(8192).unwrap();
    copy_on(&gpu, &target, &slot, ConsumerStream::DEFAULT.id());
    gpu.keep_until(ConsumerStream::DEFAULT, Box::new(slot)).unwrap();
    assert_eq!((gpu.sweep(), ring.free()), (1, 1));
    fake.run_all();
    assert_eq!((gpu.sweep(), ring.free()), (0, 2));
    // An end that is not recorded is that of everything.
    let slot = ring.take(Duration::ZERO).unwrap();
    fake.fail_next("record");
    gpu.keep_until(ConsumerStream::DEFAULT, Box::new(slot)).unwrap();
    assert_eq!((gpu.sweep(), ring.free()), (1, 1));
    fake.run_all();
    assert_eq!((gpu.sweep(), ring.free()), (0, 2));
    // Where nothing says when it is over, it stays out for good.
    let fake = Arc::new(Fake::default().without_record_all());
    let gpu = Gpu::new(fake.clone()).unwrap();
    let slot = ring.take(Duration::ZERO).unwrap();
    fake.fail_next("record");
    gpu.keep_until(ConsumerStream::DEFAULT, Box::new(slot)).unwrap_err();
    assert_eq!((gpu.sweep(), ring.free()), (0, 1));
}

#[test]
fn a_slot_comes_back_when_every_stream_has_passed_whoever_copies_from_it() {
    let (fake, gpu) = gpu();
    let ring = Ring::of(&PageLocked::of(&gpu), TWO).unwrap();
    let slot = ring.take(Duration::ZERO).unwrap().host().unwrap();
    let target = gpu.allocate(8192).unwrap();
    gpu.can_record_all().unwrap();
    fake.run_all();
    // On a stream that nobody has told of.
    let theirs = gpu.driver().create_stream().unwrap();
    copy_on(&gpu, &target, &slot, theirs);
    gpu.keep_until_idle(Box::new(slot));
    assert_eq!(fake.n_pending(), 1, "letting go of it calls no driver");
    // As while a stream is being captured: it is tried again, and nothing is lost.
    fake.fail_next("record_all");
    assert_eq!((gpu.sweep(), ring.free()), (1, 1));
    assert_eq!((gpu.sweep(), ring.free()), (1, 1), "the copy has not run");
    fake.run_all();
    assert_eq!((gpu.sweep(), ring.free()), (0, 2));
    // What no event is recorded behind before the end is leaked with its slot.
    gpu.keep_until_idle(Box::new(ring.take(Duration::ZERO).unwrap()));
    assert_eq!((gpu.n_buried(), fake.counts().waits), (1, 0));
    drop(target);
    gpu.shut_down(Duration::from_secs(60)).unwrap();
    assert_eq!((gpu.n_buried(), ring.free()), (0, 2));
    gpu.keep_until_idle(Box::new(ring.take(Duration::ZERO).unwrap()));
    drop(gpu);
    assert_eq!(ring.free(), 1);
    assert_eq!(fake.wrongs(), Vec::<String>::new());
}

#[allow(unsafe_code, reason = "enqueues work on buffers that the owners keep")]
mod enqueue {
    use std::ptr::NonNull;

    use bothends_gpu::driver::StreamId;
    use bothends_gpu::owners::{DeviceBuffer, Gpu, Stream};
    use bothends_slots::{Backing, HostSlot, Owner};

    /// Memory whose owner frees it, and says so.
    pub(super) fn host_backing(base: NonNull<u8>, len: usize, owner: Owner) -> Backing {
        // SAFETY: `owner` has the memory at `base`, of `len` bytes, and nobody else.
        unsafe { Backing::of_host(base, len, owner) }
    }

    /// A copy between two buffers, which are told of it.
    pub(super) fn enqueue_copy(
        gpu: &Gpu,
        from: &DeviceBuffer,
        to: &DeviceBuffer,
        stream: &Stream,
    ) {
        let (at, source, len) = (to.address(), from.address(), from.len());
        // SAFETY: both buffers are told of the stream below, and stay until it has passed.
        unsafe { gpu.driver().copy(at, source, len, stream.id()) }.unwrap();
        // SAFETY: the stream is borrowed.
        unsafe { from.used_on(stream.id()) }.unwrap();
        // SAFETY: the stream is borrowed.
        unsafe { to.used_on(stream.id()) }.unwrap();
    }

    /// What `tensor.to("cuda", non_blocking=True)` does, where that stream is the current one.
    pub(super) fn copy_on(
        gpu: &Gpu,
        to: &DeviceBuffer,
        from: &HostSlot,
        stream: StreamId,
    ) {
        // SAFETY: the test keeps all of them until the copy has run.
        unsafe { gpu.driver().upload(to.address(), from, stream) }.unwrap();
    }
}

use enqueue::{copy_on, enqueue_copy, host_backing};
