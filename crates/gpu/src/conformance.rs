//! What every driver must keep, as callable checks.
//!
//! A check that fails panics and says what was expected. Work is waited for with
//! [`Driver::wait_for`], so that the checks hold for drivers whose work runs by itself, at once,
//! or when it is waited for. Nothing here is part of a run.
#![allow(
    unsafe_code,
    reason = "calls a driver as its contract says, with memory that outlives the work"
)]
#![allow(
    clippy::missing_panics_doc,
    reason = "a check that fails panics: that is its use"
)]

use std::ptr::NonNull;
use std::thread;
use std::time::{Duration, Instant};

use crate::GpuError;
use crate::driver::{Address, Driver, EventId, StreamId};

/// Nothing in a check takes longer; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A page that shares none with other memory of the process, so that it can be registered.
#[repr(C, align(65536))]
struct Page([u8; 65536]);

/// Bytes that a check copies.
const LEN: usize = 5000;

/// Every check, in the order of the contract.
pub fn all(driver: &dyn Driver) {
    the_card_has_a_name(driver);
    memory_is_apart_and_aligned(driver);
    too_much_memory_is_refused(driver);
    a_stream_runs_in_order(driver);
    streams_wait_for_each_other(driver);
    events_move(driver);
    time_passes_between_timed_events(driver);
    a_wait_is_for_the_point_at_its_time(driver);
    a_destroyed_event_is_still_waited_for(driver);
    the_end_of_everything_is_behind_every_stream(driver);
    registered_memory_can_be_registered_again(driver);
    calls_may_come_from_any_thread(driver);
    unknown_kernels_are_refused(driver);
}

/// A driver with host memory that is registered for as long as this lives.
struct Scene<'a> {
    driver: &'a dyn Driver,
    /// Two pages: what is sent and what is received.
    host: Box<[Page; 2]>,
    at: [Address; 2],
    streams: [StreamId; 2],
    event: EventId,
}

impl<'a> Scene<'a> {
    fn new(driver: &'a dyn Driver) -> Self {
        let host = Box::new([Page([0; 65536]), Page([0; 65536])]);
        let base = NonNull::from(&*host).cast();
        // SAFETY: the pages are freed after `drop` has unregistered them.
        unsafe { driver.register(base, size_of_val(&*host)) }.expect("registration");
        let allocate = || driver.allocate(LEN).expect("memory");
        let stream = || driver.create_stream().expect("a stream");
        let event = driver.create_event().expect("an event");
        let (at, streams) = ([allocate(), allocate()], [stream(), stream()]);
        Self { driver, host, at, streams, event }
    }

    /// Sends these bytes to the first place, on a stream.
    fn send(&mut self, byte: u8, stream: StreamId) {
        self.host[0].0[..LEN].fill(byte);
        let bytes = &self.host[0].0[..LEN];
        // SAFETY: everything lives until `drop`, and nothing is written before `finish`.
        unsafe { self.driver.upload(self.at[0], bytes, stream) }.expect("an upload");
    }

    fn copy(&self, stream: StreamId) {
        let [from, to] = self.at;
        // SAFETY: as above.
        unsafe { self.driver.copy(to, from, LEN, stream) }.expect("a copy");
    }

    fn receive(&mut self, nth: usize, stream: StreamId) {
        let (from, bytes) = (self.at[nth], &mut self.host[1].0[..LEN]);
        // SAFETY: as above.
        unsafe { self.driver.download(bytes, from, stream) }.expect("a download");
    }

    fn record(&self, stream: StreamId) {
        // SAFETY: both live until `drop`.
        unsafe { self.driver.record(self.event, stream) }.expect("a record");
    }

    fn wait_on(&self, stream: StreamId) {
        // SAFETY: both live until `drop`.
        unsafe { self.driver.stream_waits(stream, self.event) }.expect("a wait");
    }

    fn is_reached(&self) -> bool {
        // SAFETY: it lives until `drop`.
        unsafe { self.driver.is_reached(self.event) }.expect("an answer")
    }

    /// Waits for what is enqueued on a stream.
    fn finish(&self, stream: StreamId) {
        self.record(stream);
        // SAFETY: it lives until `drop`.
        unsafe { self.driver.wait_for(self.event, PATIENCE) }.expect("an end");
        let began = Instant::now();
        while !self.is_reached() {
            assert!(began.elapsed() < PATIENCE, "waited for, and not reached");
        }
    }

    fn received(&self, byte: u8) -> bool {
        self.host[1].0[..LEN].iter().all(|received| *received == byte)
    }
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        let base = NonNull::from(&*self.host).cast();
        for stream in self.streams {
            if !thread::panicking() {
                self.finish(stream);
            }
            // SAFETY: made by `new`, destroyed once.
            unsafe { self.driver.destroy_stream(stream) };
        }
        // SAFETY: made by `new`, destroyed once.
        unsafe { self.driver.destroy_event(self.event) };
        // SAFETY: registered by `new`; all work is over.
        unsafe { self.driver.unregister(base) };
        for at in self.at {
            // SAFETY: allocated by `new`; all work is over.
            unsafe { self.driver.free(at) };
        }
    }
}

/// A device has a name, for people.
pub fn the_card_has_a_name(driver: &dyn Driver) {
    let card = driver.card();
    assert!(!card.name.is_empty() && !card.driver.is_empty(), "{card:?}");
    assert!(card.memory_bytes > 0, "{card:?}");
}

/// Allocations are aligned to 256 bytes and do not overlap; freed memory can be had again.
pub fn memory_is_apart_and_aligned(driver: &dyn Driver) {
    for _ in 0..3 {
        let sizes = [1, 255, 256, 257, 602_112];
        let mut made: Vec<(Address, usize)> =
            sizes.map(|bytes| (driver.allocate(bytes).expect("memory"), bytes)).into();
        made.sort();
        for (at, _) in &made {
            assert_eq!(at.0 % 256, 0, "an address not aligned");
        }
        for pair in made.windows(2) {
            assert!(pair[0].0.after(pair[0].1) <= pair[1].0, "allocations overlap");
        }
        for (at, _) in made {
            // SAFETY: allocated above, freed once, used by nobody.
            unsafe { driver.free(at) };
        }
    }
}

/// More than there is is an error of its own, and the driver works on.
pub fn too_much_memory_is_refused(driver: &dyn Driver) {
    let bytes = 1 << 60;
    assert_eq!(driver.allocate(bytes), Err(GpuError::OutOfMemory { bytes }));
    let at = driver.allocate(1).expect("memory");
    // SAFETY: allocated above, freed once, used by nobody.
    unsafe { driver.free(at) };
}

/// Contract 2: copies up, across and down again, one behind the other.
pub fn a_stream_runs_in_order(driver: &dyn Driver) {
    let mut scene = Scene::new(driver);
    for byte in [1, 2, 3] {
        let stream = scene.streams[0];
        scene.send(byte, stream);
        scene.copy(stream);
        scene.receive(1, stream);
        scene.finish(stream);
        assert!(scene.received(byte), "contract 2: {byte} did not come back");
    }
}

/// Contract 2: between streams events order the work, both ways round.
pub fn streams_wait_for_each_other(driver: &dyn Driver) {
    let mut scene = Scene::new(driver);
    for byte in [4, 5, 6] {
        let [first, second] = scene.streams;
        scene.send(byte, first);
        scene.record(first);
        scene.wait_on(second);
        scene.copy(second);
        scene.record(second);
        scene.wait_on(first);
        scene.receive(1, first);
        scene.finish(first);
        assert!(scene.received(byte), "contract 2: {byte} was overtaken");
    }
}

/// An event is reached from the beginning; waiting for it then is waiting for nothing. Recorded
/// again it is about its new place.
pub fn events_move(driver: &dyn Driver) {
    let mut scene = Scene::new(driver);
    let [first, second] = scene.streams;
    assert!(scene.is_reached(), "a new event");
    scene.wait_on(second);
    // SAFETY: the event lives.
    unsafe { driver.wait_for(scene.event, Duration::ZERO) }.expect("a new event");
    scene.send(7, first);
    scene.finish(first);
    // Whoever waited for the earlier place does not wait for the later one.
    scene.wait_on(second);
    scene.receive(0, second);
    scene.record(first);
    scene.finish(second);
    assert!(scene.received(7));
}

/// Timed events are events, and what lies between two of them took no longer than the caller waited.
pub fn time_passes_between_timed_events(driver: &dyn Driver) {
    let mut scene = Scene::new(driver);
    let stream = scene.streams[0];
    let event = || driver.create_timed_event().expect("a timed event");
    let [first, second] = [event(), event()];
    for byte in [7, 8] {
        let began = Instant::now();
        // SAFETY: event and stream are alive, here and below.
        unsafe { driver.record(first, stream) }.expect("a record");
        scene.send(byte, stream);
        scene.receive(0, stream);
        // SAFETY: as above.
        unsafe { driver.record(second, stream) }.expect("a record");
        // SAFETY: as above.
        unsafe { driver.wait_for(second, PATIENCE) }.expect("an end");
        assert!(scene.received(byte));
        // SAFETY: both are reached.
        let took = unsafe { driver.elapsed(first, second) }.expect("a time");
        // The two clocks need not tick alike.
        let most = began.elapsed() + Duration::from_millis(1);
        assert!(took <= most, "{took:?} on the device, {most:?} on the host");
    }
    for event in [first, second] {
        // SAFETY: made above, destroyed once.
        unsafe { driver.destroy_event(event) };
    }
}

/// A stream that was told to wait for an event waits for the point that it was at, however soon the
/// device reaches the next: events are taken from a pool and recorded again while streams still
/// wait.
pub fn a_wait_is_for_the_point_at_its_time(driver: &dyn Driver) {
    let mut scene = Scene::new(driver);
    let idle = driver.create_stream().expect("a stream");
    for byte in 10..40 {
        let [first, second] = scene.streams;
        scene.send(byte, first);
        scene.record(first);
        scene.wait_on(second);
        scene.record(idle);
        scene.receive(0, second);
        scene.finish(second);
        assert!(scene.received(byte), "the wait was for the later point");
        scene.finish(first);
    }
    // SAFETY: made above, destroyed once.
    unsafe { driver.destroy_stream(idle) };
}

/// A stream that waits for an event still does once that is destroyed.
pub fn a_destroyed_event_is_still_waited_for(driver: &dyn Driver) {
    let mut scene = Scene::new(driver);
    let [first, second] = scene.streams;
    let event = driver.create_event().expect("an event");
    scene.send(8, first);
    // SAFETY: both are alive.
    unsafe { driver.record(event, first) }.expect("a record");
    // SAFETY: both are alive.
    unsafe { driver.stream_waits(second, event) }.expect("a wait");
    // SAFETY: made above, destroyed once.
    unsafe { driver.destroy_event(event) };
    scene.receive(0, second);
    scene.finish(second);
    assert!(scene.received(8), "the wait went with the event");
}

/// The end of everything is behind what each stream has, whoever made the stream.
pub fn the_end_of_everything_is_behind_every_stream(driver: &dyn Driver) {
    let mut scene = Scene::new(driver);
    for byte in 50..60 {
        let [first, second] = scene.streams;
        scene.send(byte, first);
        scene.record(first);
        scene.wait_on(second);
        scene.receive(0, second);
        // SAFETY: the event lives.
        unsafe { driver.record_all(scene.event) }.expect("a record");
        // SAFETY: the event lives.
        unsafe { driver.wait_for(scene.event, PATIENCE) }.expect("an end");
        assert!(scene.received(byte), "a stream was not waited for");
        scene.finish(first);
    }
}

/// Contract 3: after `unregister` the driver knows nothing of the memory; until then it is an
/// error to register it again.
pub fn registered_memory_can_be_registered_again(driver: &dyn Driver) {
    let host = Box::new(Page([0; 65536]));
    let base = NonNull::from(&*host).cast();
    for _ in 0..3 {
        // SAFETY: the page is freed after the last `unregister`.
        unsafe { driver.register(base, 65536) }.expect("registration");
        // SAFETY: as above.
        let again = unsafe { driver.register(base, 65536) };
        assert!(matches!(again, Err(GpuError::Driver { .. })), "{again:?}");
        // SAFETY: registered above; no work uses it.
        unsafe { driver.unregister(base) };
    }
}

/// Contract 1.
pub fn calls_may_come_from_any_thread(driver: &dyn Driver) {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| a_stream_runs_in_order(driver));
        }
    });
}

/// A kernel that there is not is an error that names it.
pub fn unknown_kernels_are_refused(driver: &dyn Driver) {
    let error = driver.kernel(c"no_such_kernel").expect_err("no kernel");
    assert!(error.to_string().contains("no_such_kernel"), "{error}");
}
