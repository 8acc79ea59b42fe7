//! A driver for tests: device memory is the host's, and enqueued work runs when the test says.
//!
//! Every stream is a queue; the piece at its head may run unless it waits for an event that has not
//! been reached. [`Fake::advance`] runs one such piece, chosen by the test, so that every
//! interleaving that streams and events allow can be produced, and none that they forbid.
//! Nothing runs by itself: [`Driver::wait_for`] runs pieces (in a seeded order) until its
//! event is reached, and is counted, since steady state must not call it.
//!
//! What a real driver would answer with corruption is written down as a *wrong*: memory freed
//! or unregistered under enqueued work, copies from pageable memory, handles used after their
//! end. It does not model time or bandwidth.
#![allow(
    unsafe_code,
    reason = "copies from and to host memory after the call that named it has returned"
)]

mod state;

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use self::state::{Counts, Memory};
use self::state::{HostRange, State, Work};
use super::{Address, Card, Driver, EventId, KernelId, Launch, StreamId};
use crate::GpuError;

/// What a kernel does: it is given the device's memory and the bytes of its arguments.
pub type Kernel = Box<dyn Fn(&mut Memory, &[Vec<u8>]) + Send>;

/// A device in host memory whose work waits to be told.
#[derive(Debug)]
pub struct Fake {
    card: Card,
    records_all: bool,
    state: Mutex<State>,
}

impl Default for Fake {
    fn default() -> Self {
        Self::new(1 << 30)
    }
}

impl Fake {
    /// A device with so many bytes of memory.
    #[must_use]
    pub fn new(memory_bytes: usize) -> Self {
        let card = Card {
            ordinal: 0,
            name: "a fake of host memory".to_owned(),
            driver: "fake".to_owned(),
            capability: (0, 0),
            n_multiprocessors: 1,
            memory_bytes: memory_bytes as u64,
            numa_node: None,
        };
        Self { card, records_all: true, state: Mutex::new(State::new(memory_bytes)) }
    }

    /// The same as a driver that cannot tell when everything is done, as CUDA's before 12.5.
    #[must_use]
    pub fn without_record_all(self) -> Self {
        Self { records_all: false, ..self }
    }

    /// The same as a card of that compute capability.
    #[must_use]
    pub fn of_capability(mut self, capability: (u32, u32)) -> Self {
        self.card.capability = capability;
        self
    }

    /// Adds a kernel whose arguments have these sizes in bytes.
    pub fn add_kernel(
        &self,
        name: &'static CStr,
        argument_bytes: &[usize],
        body: Kernel,
    ) {
        self.state().add_kernel(name, argument_bytes.to_vec(), body);
    }

    /// How many streams have a piece that may run now.
    #[must_use]
    pub fn n_eligible(&self) -> usize {
        self.state().eligible().len()
    }

    /// Runs the piece at the head of the `nth` of the streams that have one (in the order of their
    /// creation); false where there are fewer.
    pub fn advance(&self, nth: usize) -> bool {
        let mut state = self.state();
        let Some(stream) = state.eligible().get(nth).copied() else { return false };
        state.run(stream);
        true
    }

    /// Runs everything that may run.
    pub fn run_all(&self) {
        while self.advance(0) {}
    }

    /// Pieces that have not run.
    #[must_use]
    pub fn n_pending(&self) -> usize {
        self.state().n_pending()
    }

    /// Copies to the device that have not run.
    #[must_use]
    pub fn n_pending_uploads(&self) -> usize {
        self.state().n_pending_uploads()
    }

    /// What was done to the driver that a real one does not check, in order.
    #[must_use]
    pub fn wrongs(&self) -> Vec<String> {
        self.state().wrongs.clone()
    }

    /// How often what was called.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Whether host memory that begins there is pinned.
    #[must_use]
    pub fn is_registered(&self, base: NonNull<u8>) -> bool {
        self.state().is_registered(base.addr().get())
    }

    /// Allocations of device memory, registrations, streams and events that have not ended.
    #[must_use]
    pub fn n_alive(&self) -> [usize; 4] {
        self.state().n_alive()
    }

    /// A copy of device memory as it is now; `None` where there is none.
    #[must_use]
    pub fn bytes(&self, at: Address, len: usize) -> Option<Vec<u8>> {
        self.state().memory.get(at, len).map(<[u8]>::to_vec)
    }

    /// The next call of this name (a method of [`Driver`]) fails.
    pub fn fail_next(&self, call: &'static str) {
        self.fail_after(call, 0);
    }

    /// As [`Self::fail_next`], the one behind so many more of that name.
    pub fn fail_after(&self, call: &'static str, n_calls: u32) {
        self.state().failing.push((call, n_calls));
    }

    /// From now on no event is reached and nothing runs, as of a device that hangs.
    pub fn hang(&self) {
        self.state().is_hung = true;
    }

    /// A digest of all that decides what can happen next: device memory, queues and events.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.state().fingerprint()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for a call that has not been told to fail.
    fn called(&self, call: &'static str) -> Result<MutexGuard<'_, State>, GpuError> {
        let mut state = self.state();
        match state.failing.iter().position(|(failing, _)| *failing == call) {
            Some(at) if state.failing[at].1 == 0 => {
                state.failing.remove(at);
                Err(GpuError::Driver { call, why: "told to fail".to_owned() })
            }
            Some(at) => {
                state.failing[at].1 -= 1;
                Ok(state)
            }
            None => Ok(state),
        }
    }
}

impl Driver for Fake {
    fn card(&self) -> &Card {
        &self.card
    }

    fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        let mut state = self.called("allocate")?;
        state.memory.allocate(bytes).ok_or(GpuError::OutOfMemory { bytes })
    }

    unsafe fn free(&self, at: Address) {
        self.state().free(at);
    }

    unsafe fn register(&self, base: NonNull<u8>, bytes: usize) -> Result<(), GpuError> {
        let call = "register";
        let is_new = self.called(call)?.register(base.addr().get(), bytes);
        let why = || "some of it is registered already".to_owned();
        is_new.then_some(()).ok_or_else(|| GpuError::Driver { call, why: why() })
    }

    unsafe fn unregister(&self, base: NonNull<u8>) {
        self.state().unregister(base.addr().get());
    }

    fn create_stream(&self) -> Result<StreamId, GpuError> {
        Ok(self.called("create_stream")?.create_stream())
    }

    unsafe fn destroy_stream(&self, stream: StreamId) {
        self.state().destroy_stream(stream);
    }

    fn create_event(&self) -> Result<EventId, GpuError> {
        Ok(self.called("create_event")?.create_event())
    }

    fn create_timed_event(&self) -> Result<EventId, GpuError> {
        Ok(self.called("create_timed_event")?.create_event())
    }

    unsafe fn elapsed(&self, from: EventId, to: EventId) -> Result<Duration, GpuError> {
        let call = "elapsed";
        let mut state = self.called(call)?;
        let are_reached = state.is_reached(from) && state.is_reached(to);
        let why = || "one of the events is not reached".to_owned();
        // It has no clock.
        are_reached
            .then_some(Duration::ZERO)
            .ok_or_else(|| GpuError::Driver { call, why: why() })
    }

    unsafe fn destroy_event(&self, event: EventId) {
        self.state().destroy_event(event);
    }

    unsafe fn record(&self, event: EventId, stream: StreamId) -> Result<(), GpuError> {
        self.called("record")?.record(event, stream);
        Ok(())
    }

    fn records_all(&self) -> bool {
        self.records_all
    }

    unsafe fn record_all(&self, event: EventId) -> Result<(), GpuError> {
        let call = "record_all";
        let mut state = self.called(call)?;
        if !self.records_all {
            return Err(GpuError::Driver { call, why: "it cannot".to_owned() });
        }
        state.record_all(event);
        Ok(())
    }

    unsafe fn stream_waits(
        &self,
        stream: StreamId,
        event: EventId,
    ) -> Result<(), GpuError> {
        self.called("stream_waits")?.stream_waits(stream, event);
        Ok(())
    }

    unsafe fn is_reached(&self, event: EventId) -> Result<bool, GpuError> {
        let mut state = self.called("is_reached")?;
        state.counts.queries += 1;
        Ok(state.is_reached(event))
    }

    unsafe fn wait_for(&self, event: EventId, timeout: Duration) -> Result<(), GpuError> {
        let mut state = self.called("wait_for")?;
        state.counts.waits += 1;
        while !state.is_reached(event) {
            // Time passes only here, so what cannot run now never will.
            if !state.run_any() {
                let seconds = timeout.as_secs();
                return Err(GpuError::Late { what: "an event", seconds });
            }
        }
        Ok(())
    }

    unsafe fn upload(
        &self,
        to: Address,
        from: &[u8],
        stream: StreamId,
    ) -> Result<(), GpuError> {
        let from = HostRange::of(from.as_ptr().cast_mut(), from.len());
        self.called("upload")?.enqueue(stream, Work::Upload { to, from });
        Ok(())
    }

    unsafe fn download(
        &self,
        to: &mut [u8],
        from: Address,
        stream: StreamId,
    ) -> Result<(), GpuError> {
        let to = HostRange::of(to.as_mut_ptr(), to.len());
        self.called("download")?.enqueue(stream, Work::Download { to, from });
        Ok(())
    }

    unsafe fn copy(
        &self,
        to: Address,
        from: Address,
        bytes: usize,
        stream: StreamId,
    ) -> Result<(), GpuError> {
        self.called("copy")?.enqueue(stream, Work::Copy { to, from, bytes });
        Ok(())
    }

    fn kernel(&self, name: &'static CStr) -> Result<KernelId, GpuError> {
        let call = "kernel";
        let why = format!("there is no kernel {}", name.to_string_lossy());
        self.called(call)?.kernel(name).ok_or(GpuError::Driver { call, why })
    }

    unsafe fn launch(
        &self,
        kernel: KernelId,
        _launch: Launch,
        stream: StreamId,
        arguments: &[*const c_void],
    ) -> Result<(), GpuError> {
        let mut state = self.called("launch")?;
        let sizes = state.argument_bytes(kernel);
        let read = |(argument, bytes): (&*const c_void, &usize)| {
            // SAFETY: the caller's promise: each points to a value of its parameter's type.
            unsafe { std::slice::from_raw_parts(argument.cast::<u8>(), *bytes) }.to_vec()
        };
        let arguments = arguments.iter().zip(&sizes).map(read).collect();
        state.enqueue(stream, Work::Launch { kernel, arguments });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enough for a driver's calls on memory that this test owns for longer.
    fn streams(fake: &Fake) -> [StreamId; 2] {
        [fake.create_stream().unwrap(), fake.create_stream().unwrap()]
    }

    #[test]
    fn streams_run_in_order_and_wait_for_each_other_by_event_only() {
        let fake = Fake::default();
        let at = fake.allocate(8).unwrap();
        let [first, second] = streams(&fake);
        let event = fake.create_event().unwrap();
        let ones = [1_u8; 8];
        // SAFETY: `ones` and all handles outlive the work, which is run below.
        unsafe { fake.register(NonNull::from(&ones).cast(), 8) }.unwrap();
        // SAFETY: as above.
        unsafe { fake.upload(at, &ones, first) }.unwrap();
        // SAFETY: as above.
        unsafe { fake.record(event, first) }.unwrap();
        // SAFETY: as above.
        unsafe { fake.stream_waits(second, event) }.unwrap();
        assert_eq!((fake.n_pending(), fake.n_eligible()), (3, 1));
        // SAFETY: as above.
        assert!(!unsafe { fake.is_reached(event) }.unwrap());
        assert!(!fake.advance(1), "the second stream waits");
        assert!(fake.advance(0) && fake.advance(0));
        assert_eq!(fake.bytes(at, 8).unwrap(), ones);
        // SAFETY: as above.
        assert!(unsafe { fake.is_reached(event) }.unwrap());
        assert!(fake.advance(0) && !fake.advance(0));
        assert!(fake.wrongs().is_empty(), "{:?}", fake.wrongs());
    }

    #[test]
    fn what_a_real_driver_would_not_notice_is_written_down() {
        let fake = Fake::default();
        let at = fake.allocate(8).unwrap();
        let [stream, _] = streams(&fake);
        let pageable = [1_u8; 8];
        // SAFETY: `pageable` outlives the work; the rest is what the test is about.
        unsafe { fake.upload(at, &pageable, stream) }.unwrap();
        // SAFETY: as above.
        unsafe { fake.free(at) };
        fake.run_all();
        let wrongs = fake.wrongs().join("\n");
        assert!(wrongs.contains("pageable"), "{wrongs}");
        assert!(wrongs.contains("freed under enqueued work"), "{wrongs}");
    }
}
