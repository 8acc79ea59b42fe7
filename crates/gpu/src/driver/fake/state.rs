//! What the fake driver keeps: memory, streams as queues, events as counters.
//!
//! It runs pieces one at a time and chooses nothing but in [`State::run_any`]. `fake.rs` locks
//! it.
#![allow(
    unsafe_code,
    reason = "copies from and to host memory after the call that named it has returned"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::CStr;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use super::Kernel;
use crate::driver::{Address, EventId, KernelId, StreamId};

/// How often the driver was called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that block until the device is there.
    pub waits: u64,
    /// Calls that ask whether it is.
    pub queries: u64,
    /// Pieces of work enqueued: copies, kernels, events and waits for them.
    pub enqueued: u64,
    /// Events made.
    pub events: u64,
    /// Ranges of host memory registered.
    pub registrations: u64,
}

/// Device memory.
#[derive(Debug, Default)]
pub struct Memory {
    allocations: BTreeMap<u64, Vec<u8>>,
    next: u64,
    left: usize,
}

/// What every address is a multiple of.
const ALIGN: usize = 256;

impl Memory {
    /// The bytes at a place; `None` where not all of them are allocated.
    #[must_use]
    pub fn get(&self, at: Address, len: usize) -> Option<&[u8]> {
        let (base, bytes) = self.allocations.range(..=at.0).next_back()?;
        let first = usize::try_from(at.0 - base).ok()?;
        bytes.get(first..first.checked_add(len)?)
    }

    /// The same, to be written.
    pub fn get_mut(&mut self, at: Address, len: usize) -> Option<&mut [u8]> {
        let (base, bytes) = self.allocations.range_mut(..=at.0).next_back()?;
        let first = usize::try_from(at.0 - base).ok()?;
        bytes.get_mut(first..first.checked_add(len)?)
    }

    pub(super) fn allocate(&mut self, bytes: usize) -> Option<Address> {
        let taken = bytes.max(1).checked_next_multiple_of(ALIGN)?;
        self.left = self.left.checked_sub(taken)?;
        let at = self.next;
        self.next += taken as u64;
        self.allocations.insert(at, vec![0xCD; bytes]);
        Some(Address(at))
    }

    fn free(&mut self, at: Address) -> Option<Range<u64>> {
        let bytes = self.allocations.remove(&at.0)?;
        self.left += bytes.len().max(1).next_multiple_of(ALIGN);
        Some(at.0..at.0 + bytes.len() as u64)
    }
}

/// Host memory that enqueued work is to read or write.
#[derive(Debug)]
pub(super) struct HostRange {
    base: *mut u8,
    len: usize,
}

// SAFETY: an address and a length; who enqueues work promises that the memory may be used
// from wherever the work runs.
unsafe impl Send for HostRange {}

impl HostRange {
    pub(super) fn of(base: *mut u8, len: usize) -> Self {
        Self { base, len }
    }

    fn overlaps(&self, other: &Range<usize>) -> bool {
        let base = self.base.addr();
        base < other.end && other.start < base + self.len
    }
}

/// A piece of enqueued work.
#[derive(Debug)]
pub(super) enum Work {
    Upload { to: Address, from: HostRange },
    Download { to: HostRange, from: Address },
    Copy { to: Address, from: Address, bytes: usize },
    Launch { kernel: KernelId, arguments: Vec<Vec<u8>> },
    Record { event: EventId, nth: u64 },
    Wait { event: EventId, nth: u64 },
}

impl Work {
    /// The device memory that it is known to use; a kernel's is not.
    fn device_ranges(&self) -> Vec<Range<u64>> {
        let range = |at: &Address, len: usize| at.0..at.0 + len as u64;
        match self {
            Self::Upload { to, from } => vec![range(to, from.len)],
            Self::Download { to, from } => vec![range(from, to.len)],
            Self::Copy { to, from, bytes } => {
                vec![range(to, *bytes), range(from, *bytes)]
            }
            Self::Launch { .. } | Self::Record { .. } | Self::Wait { .. } => Vec::new(),
        }
    }

    fn host_range(&self) -> Option<&HostRange> {
        match self {
            Self::Upload { from: host, .. } | Self::Download { to: host, .. } => {
                Some(host)
            }
            Self::Copy { .. }
            | Self::Launch { .. }
            | Self::Record { .. }
            | Self::Wait { .. } => None,
        }
    }
}

/// How often an event was recorded, and which of those points the device has yet to reach. They
/// may lie in different streams, so that a later one may be reached first.
#[derive(Debug, Default, Hash)]
struct Event {
    recorded: u64,
    ahead: BTreeSet<u64>,
    is_destroyed: bool,
}

pub(super) struct State {
    pub(super) memory: Memory,
    pub(super) wrongs: Vec<String>,
    pub(super) counts: Counts,
    /// Calls that are to fail, each behind so many of the same name.
    pub(super) failing: Vec<(&'static str, u32)>,
    pub(super) is_hung: bool,
    streams: BTreeMap<u64, VecDeque<Work>>,
    /// Streams that are destroyed once their work is done.
    ending: Vec<u64>,
    events: BTreeMap<u64, Event>,
    /// Registered host memory by its beginning: bytes, and how many were registered before.
    registered: BTreeMap<usize, (usize, u64)>,
    kernels: Vec<(&'static CStr, Vec<usize>, Kernel)>,
    next_handle: u64,
    seed: u64,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("streams", &self.streams)
            .field("events", &self.events)
            .field("wrongs", &self.wrongs)
            .finish_non_exhaustive()
    }
}

impl State {
    pub(super) fn new(memory_bytes: usize) -> Self {
        let memory =
            Memory { next: 0x7000_0000_0000, left: memory_bytes, ..Memory::default() };
        Self {
            memory,
            wrongs: Vec::new(),
            counts: Counts::default(),
            failing: Vec::new(),
            is_hung: false,
            streams: BTreeMap::from([(0, VecDeque::new())]),
            ending: Vec::new(),
            events: BTreeMap::new(),
            registered: BTreeMap::new(),
            kernels: Vec::new(),
            next_handle: 1,
            seed: 1,
        }
    }

    pub(super) fn n_pending(&self) -> usize {
        self.streams.values().map(VecDeque::len).sum()
    }

    pub(super) fn n_pending_uploads(&self) -> usize {
        let work = self.streams.values().flatten();
        work.filter(|work| matches!(work, Work::Upload { .. })).count()
    }

    pub(super) fn n_alive(&self) -> [usize; 4] {
        let streams = self.streams.keys().filter(|stream| **stream != 0);
        let streams = streams.filter(|stream| !self.ending.contains(stream)).count();
        let events = self.events.values().filter(|event| !event.is_destroyed).count();
        [self.memory.allocations.len(), self.registered.len(), streams, events]
    }

    fn wrong(&mut self, what: impl Into<String>) {
        self.wrongs.push(what.into());
    }

    fn handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }
}

/// Handles and memory.
impl State {
    pub(super) fn create_stream(&mut self) -> StreamId {
        let stream = self.handle();
        self.streams.insert(stream, VecDeque::new());
        StreamId(stream)
    }

    pub(super) fn destroy_stream(&mut self, stream: StreamId) {
        if !self.streams.contains_key(&stream.0) || self.ending.contains(&stream.0) {
            self.wrong("a stream destroyed that there is not");
        }
        self.ending.push(stream.0);
        self.end_streams();
    }

    fn end_streams(&mut self) {
        let ending = &self.ending;
        self.streams.retain(|id, work| !work.is_empty() || !ending.contains(id));
    }

    pub(super) fn create_event(&mut self) -> EventId {
        self.counts.events += 1;
        let event = self.handle();
        self.events.insert(event, Event::default());
        EventId(event)
    }

    pub(super) fn destroy_event(&mut self, event: EventId) {
        match self.events.get_mut(&event.0) {
            Some(event) if !event.is_destroyed => event.is_destroyed = true,
            Some(_) | None => self.wrong("an event destroyed that there is not"),
        }
    }

    pub(super) fn free(&mut self, at: Address) {
        let Some(range) = self.memory.free(at) else {
            return self.wrong("memory freed that is not allocated");
        };
        let uses = |work: &Work| {
            let mut ranges = work.device_ranges().into_iter();
            ranges.any(|used| used.start < range.end && range.start < used.end)
        };
        if self.streams.values().flatten().any(uses) {
            self.wrong("memory freed under enqueued work");
        }
    }

    /// False where some of it is registered already.
    pub(super) fn register(&mut self, base: usize, bytes: usize) -> bool {
        let before = self.registered.range(..base + bytes).next_back();
        let is_free = before.is_none_or(|(other, (len, _))| other + len <= base);
        if is_free {
            self.registered.insert(base, (bytes, self.counts.registrations));
            self.counts.registrations += 1;
        }
        is_free
    }

    pub(super) fn unregister(&mut self, base: usize) {
        let Some((bytes, _)) = self.registered.remove(&base) else {
            return self.wrong("memory unregistered that is not registered");
        };
        let range = base..base + bytes;
        let uses =
            |work: &Work| work.host_range().is_some_and(|host| host.overlaps(&range));
        if self.streams.values().flatten().any(uses) {
            self.wrong("memory unregistered under enqueued work");
        }
    }

    pub(super) fn is_registered(&self, base: usize) -> bool {
        self.registered.contains_key(&base)
    }

    pub(super) fn add_kernel(
        &mut self,
        name: &'static CStr,
        sizes: Vec<usize>,
        body: Kernel,
    ) {
        self.kernels.push((name, sizes, body));
    }

    pub(super) fn kernel(&self, name: &CStr) -> Option<KernelId> {
        let nth = self.kernels.iter().position(|(known, ..)| *known == name)?;
        Some(KernelId(nth as u64))
    }

    pub(super) fn argument_bytes(&self, kernel: KernelId) -> Vec<usize> {
        self.kernel_at(kernel).map(|(_, sizes, _)| sizes.clone()).unwrap_or_default()
    }

    fn kernel_at(
        &self,
        kernel: KernelId,
    ) -> Option<&(&'static CStr, Vec<usize>, Kernel)> {
        self.kernels.get(usize::try_from(kernel.0).ok()?)
    }
}

/// Work.
impl State {
    pub(super) fn enqueue(&mut self, stream: StreamId, work: Work) {
        self.counts.enqueued += 1;
        if let Some(host) = work.host_range() {
            let end = host.base.addr() + host.len;
            let before = self.registered.range(..=host.base.addr()).next_back();
            if before.is_none_or(|(base, (len, _))| end > base + len) {
                self.wrong("a copy from or to pageable memory");
            }
        }
        if self.ending.contains(&stream.0) {
            self.wrong("work enqueued on a stream that was destroyed");
        }
        match self.streams.get_mut(&stream.0) {
            Some(queue) => queue.push_back(work),
            None => self.wrong("work enqueued on a stream that there is not"),
        }
    }

    pub(super) fn record(&mut self, event: EventId, stream: StreamId) {
        let Some(known) = self.live_event(event) else { return };
        known.recorded += 1;
        let nth = known.recorded;
        known.ahead.insert(nth);
        self.enqueue(stream, Work::Record { event, nth });
    }

    /// On a stream of its own, which waits for what all others have now.
    pub(super) fn record_all(&mut self, event: EventId) {
        let gathering = self.create_stream();
        let busy = self.streams.iter().filter(|(_, work)| !work.is_empty());
        let busy: Vec<u64> = busy.map(|(stream, _)| *stream).collect();
        for stream in busy {
            let passed = self.create_event();
            let Some(known) = self.live_event(passed) else { return };
            known.recorded += 1;
            let nth = known.recorded;
            known.ahead.insert(nth);
            let record = Work::Record { event: passed, nth };
            // Also where the stream was destroyed: what it has still runs.
            self.streams.entry(stream).or_default().push_back(record);
            self.stream_waits(gathering, passed);
            self.destroy_event(passed);
        }
        self.record(event, gathering);
        self.destroy_stream(gathering);
    }

    pub(super) fn stream_waits(&mut self, stream: StreamId, event: EventId) {
        let Some(known) = self.live_event(event) else { return };
        let nth = known.recorded;
        self.enqueue(stream, Work::Wait { event, nth });
    }

    pub(super) fn is_reached(&mut self, event: EventId) -> bool {
        let is_hung = self.is_hung;
        let last_is_reached =
            |event: &mut Event| !event.ahead.contains(&event.recorded) && !is_hung;
        self.live_event(event)
            .is_none_or(|event| event.recorded == 0 || last_is_reached(event))
    }

    fn live_event(&mut self, event: EventId) -> Option<&mut Event> {
        if self.events.get(&event.0).is_none_or(|event| event.is_destroyed) {
            self.wrong("an event used that there is not");
        }
        self.events.get_mut(&event.0)
    }

    /// The streams whose first piece may run.
    pub(super) fn eligible(&self) -> Vec<u64> {
        if self.is_hung {
            return Vec::new();
        }
        let may_run = |work: &Work| match work {
            Work::Wait { event, nth } => {
                self.events.get(&event.0).is_none_or(|event| !event.ahead.contains(nth))
            }
            Work::Upload { .. }
            | Work::Download { .. }
            | Work::Copy { .. }
            | Work::Launch { .. }
            | Work::Record { .. } => true,
        };
        let streams = self.streams.iter();
        let eligible = streams.filter(|(_, work)| work.front().is_some_and(may_run));
        eligible.map(|(stream, _)| *stream).collect()
    }

    /// Runs some eligible piece, a different choice each time; false where there is none.
    pub(super) fn run_any(&mut self) -> bool {
        let eligible = self.eligible();
        // Xorshift: any order will do, as long as it is not always the same.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let nth = self.seed.checked_rem(eligible.len() as u64).unwrap_or(0);
        let chosen = usize::try_from(nth).ok().and_then(|nth| eligible.get(nth));
        chosen.copied().map(|stream| self.run(stream)).is_some()
    }

    /// Runs the first piece of a stream.
    pub(super) fn run(&mut self, stream: u64) {
        let Some(work) = self.streams.get_mut(&stream).and_then(VecDeque::pop_front)
        else {
            return;
        };
        let done = match work {
            Work::Upload { to, from } => self.upload(to, &from),
            Work::Download { to, from } => self.download(&to, from),
            Work::Copy { to, from, bytes } => self.copy(to, from, bytes),
            Work::Launch { kernel, arguments } => self.launch(kernel, &arguments),
            Work::Record { event, nth } => {
                let event = self.events.get_mut(&event.0);
                event.map(|event| event.ahead.remove(&nth)).map(drop)
            }
            Work::Wait { .. } => Some(()),
        };
        if done.is_none() {
            self.wrong("work on memory that is not allocated");
        }
        self.end_streams();
    }

    fn upload(&mut self, to: Address, from: &HostRange) -> Option<()> {
        let target = self.memory.get_mut(to, from.len)?;
        // SAFETY: who enqueued this promised that the memory stays until it has run.
        let source = unsafe { std::slice::from_raw_parts(from.base, from.len) };
        target.copy_from_slice(source);
        Some(())
    }

    fn download(&mut self, to: &HostRange, from: Address) -> Option<()> {
        let source = self.memory.get(from, to.len)?;
        // SAFETY: who enqueued this promised that the memory stays until it has run, and
        // that nobody else uses it.
        let target = unsafe { std::slice::from_raw_parts_mut(to.base, to.len) };
        target.copy_from_slice(source);
        Some(())
    }

    fn copy(&mut self, to: Address, from: Address, bytes: usize) -> Option<()> {
        let source = self.memory.get(from, bytes)?.to_vec();
        self.memory.get_mut(to, bytes)?.copy_from_slice(&source);
        Some(())
    }

    fn launch(&mut self, kernel: KernelId, arguments: &[Vec<u8>]) -> Option<()> {
        let nth = usize::try_from(kernel.0).ok()?;
        let (_, _, body) = self.kernels.get(nth)?;
        body(&mut self.memory, arguments);
        Some(())
    }

    pub(super) fn fingerprint(&self) -> u64 {
        let mut digest = DefaultHasher::new();
        self.memory.allocations.hash(&mut digest);
        self.events.hash(&mut digest);
        for (stream, queue) in &self.streams {
            (stream, queue.len()).hash(&mut digest);
            queue.iter().for_each(|work| self.name(work).hash(&mut digest));
        }
        digest.finish()
    }

    /// A piece of work as numbers, host memory by the number of its registration, so that the
    /// same work has the same name wherever the allocator put its memory.
    fn name(&self, work: &Work) -> (u8, [u64; 3], Vec<Vec<u8>>) {
        let host = |range: &HostRange| {
            let base = range.base.addr();
            let before = self.registered.range(..=base).next_back();
            let named = before.map(|(at, (_, nth))| (base - at) as u64 + (nth << 32));
            named.unwrap_or(u64::MAX)
        };
        let plain = |kind, numbers| (kind, numbers, Vec::new());
        match work {
            Work::Upload { to, from } => {
                // SAFETY: who enqueued this promised that the memory stays until it has run.
                let bytes = unsafe { std::slice::from_raw_parts(from.base, from.len) };
                (0, [to.0, host(from), 0], vec![bytes.to_vec()])
            }
            Work::Download { to, from } => plain(1, [from.0, host(to), to.len as u64]),
            Work::Copy { to, from, bytes } => plain(2, [to.0, from.0, *bytes as u64]),
            Work::Launch { kernel, arguments } => {
                (3, [kernel.0, 0, 0], arguments.clone())
            }
            Work::Record { event, nth } => plain(4, [event.0, *nth, 0]),
            Work::Wait { event, nth } => plain(5, [event.0, *nth, 0]),
        }
    }
}
