//! The io_uring reader: many reads in flight at once, into registered buffers.
//!
//! There is one ring per reader and one reader per thread, so nothing here locks. A buffer in flight
//! belongs to the kernel: it stays in a slot, untouched, until its completion arrives. All decisions
//! (short reads, retries, refused O_DIRECT) are in `span`; this file only talks to the kernel. It does not
//! use kernel polling (SQPOLL burns a core, and most drivers refuse IOPOLL).

#![allow(unsafe_code, reason = "io_uring takes addresses; pread has no queue depth")]

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, Probe, opcode, types};
use nix::errno::Errno;
use nix::libc::iovec;

use crate::buffer::Memory;
use crate::reader::Read;
use crate::readers::pread::{direct_len, fill_slice};
use crate::span::{Next, Span};
use crate::{
    Buffer, IoError, OpenFile, Pool, ReadDone, ReadInto, ReadRequest, Reader,
    ReaderConfig, Refusal, Refused,
};

/// Parts of this size, in bytes, keep the queue full while one large range is read.
const PART_BYTES: usize = 1 << 20;

/// Reads that are handed to the kernel together, so that it is entered for all of them once.
const AT_ONCE: usize = 8;

/// How long a dropped reader waits for the kernel before it leaves the memory to it.
const FAREWELL: Duration = Duration::from_secs(30);

/// Longest single wait; a longer timeout is several of these.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Reads with io_uring.
pub struct UringReader {
    /// First, so that it is closed before the memory it knows is freed.
    ring: IoUring,
    pool: Pool,
    /// The pool's buffers are registered under their numbers.
    registered: bool,
    max_record_bytes: u32,
    /// What the kernel works on; a completion names its slot.
    slots: Vec<Slot>,
    free: Vec<usize>,
    ready: VecDeque<ReadDone>,
    /// Parts of the `read_into` or `read_all` under way, and what went wrong, by the number of the
    /// read.
    n_parts: usize,
    part_errors: Vec<(usize, IoError)>,
    /// The ring cannot be entered any more.
    broken: Option<Errno>,
    bytes_read: u64,
    note: Option<String>,
}

/// A place for one read on its way.
#[derive(Debug)]
enum Slot {
    Free,
    Record(Read),
    Part(Part),
    /// Its end was reported when the ring broke; the kernel may still write to the memory.
    Abandoned {
        _memory: Memory,
    },
}

/// A part of a `read_into`, or one of the reads of a `read_all`.
#[derive(Debug)]
struct Part {
    /// Which of the reads it belongs to.
    nth: usize,
    file: Arc<OpenFile>,
    span: Span,
    dst: Destination,
}

/// Where a part goes: memory that is borrowed until all parts are back.
#[derive(Debug, Clone, Copy)]
struct Destination(*mut u8);

// SAFETY: a destination is used inside one call of `read_into` or `read_all`, which stays on its
// thread.
unsafe impl Send for Destination {}

/// A part that is not begun, and the memory that is its span's whole window.
struct Due<'a> {
    nth: usize,
    file: &'a Arc<OpenFile>,
    span: Span,
    window: &'a mut [u8],
}

impl UringReader {
    /// A ring of that depth and those buffers.
    ///
    /// # Errors
    /// [`IoError::Ring`] where the kernel has no io_uring, an old one, or forbids it.
    pub(crate) fn new(config: &ReaderConfig) -> Result<Self, IoError> {
        let ring = open_ring(config.depth)?;
        let mut buffers = config.buffers();
        let refused = register(&ring, &mut buffers).err();
        let depth = config.depth as usize;
        Ok(Self {
            ring,
            pool: Pool::of(buffers),
            registered: refused.is_none(),
            max_record_bytes: config.max_record_bytes,
            slots: (0..depth).map(|_| Slot::Free).collect(),
            free: (0..depth).collect(),
            ready: VecDeque::with_capacity(depth),
            n_parts: 0,
            part_errors: Vec::new(),
            broken: None,
            bytes_read: 0,
            note: refused.map(|error| {
                format!(
                    "io_uring without registered buffers ({error}); \
                     raise the limit of locked memory (ulimit -l) for less CPU per read"
                )
            }),
        })
    }

    /// Queues a read for the kernel, which is entered for several at once; at the latest by
    /// whoever waits.
    fn start(&mut self, free: usize, slot: Slot) {
        self.slots[free] = slot;
        self.push(free);
        if self.ring.submission().len() >= AT_ONCE.min(self.slots.len()) {
            self.enter(0, Duration::ZERO);
        }
    }

    /// Queues the piece that is due for the slot.
    fn push(&mut self, slot: usize) {
        let (fd, piece, address, number) = match &mut self.slots[slot] {
            Slot::Record(read) => {
                let piece = read.span.piece();
                let number = match &read.memory {
                    Memory::Pooled(pooled) if self.registered => Some(pooled.number()),
                    Memory::Pooled(_) | Memory::Own(_) => None,
                };
                let window = read.memory.buffer_mut().as_mut_slice();
                let address =
                    window[piece.at..piece.at + piece.len as usize].as_mut_ptr();
                (read.file.file().as_raw_fd(), piece, address, number)
            }
            Slot::Part(part) => {
                let piece = part.span.piece();
                // A part is its span's whole window, and a piece lies inside the window.
                let address = part.dst.0.wrapping_add(piece.at);
                (part.file.file().as_raw_fd(), piece, address, None)
            }
            Slot::Free | Slot::Abandoned { .. } => return,
        };
        let fd = types::Fd(fd);
        let entry = match number {
            Some(number) => opcode::ReadFixed::new(fd, address, piece.len, number)
                .offset(piece.offset)
                .build(),
            None => {
                opcode::Read::new(fd, address, piece.len).offset(piece.offset).build()
            }
        };
        let entry = entry.user_data(slot as u64);
        // SAFETY: the file stays open and the memory alive and untouched until this slot's
        // completion: the slot owns both (a part's memory is borrowed by `read_parts`, which
        // returns only when no part is with the kernel).
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the ring has an entry for every slot");
    }

    /// Submits what is queued, and waits for `want` completions up to `timeout`.
    fn enter(&mut self, want: usize, timeout: Duration) {
        if self.broken.is_some() {
            // Completions still arrive in the mapped queue, but nobody wakes us.
            if want > 0 {
                std::thread::sleep(timeout.min(Duration::from_millis(1)));
            }
            return;
        }
        let timespec = types::Timespec::from(timeout.min(LONGEST_WAIT));
        let args = types::SubmitArgs::new().timespec(&timespec);
        if let Err(error) = self.ring.submitter().submit_with_args(want, &args) {
            // Timed out, interrupted, or short of kernel memory: the caller's loop comes
            // again, and what is queued stays queued.
            let passing = [Errno::ETIME, Errno::EINTR, Errno::EAGAIN, Errno::EBUSY];
            let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
            if !passing.contains(&errno) {
                self.break_down(errno);
            }
        }
    }

    /// Takes all completions that have come.
    fn reap(&mut self) {
        loop {
            let Some(completion) = self.ring.completion().next() else { return };
            let result = match u32::try_from(completion.result()) {
                Ok(n) => Ok(n as usize),
                Err(_) => Err(io::Error::from_raw_os_error(-completion.result())),
            };
            self.bytes_read += *result.as_ref().unwrap_or(&0) as u64;
            let slot = usize::try_from(completion.user_data());
            self.complete(slot.expect("user data is a slot's number"), result);
        }
    }

    fn complete(&mut self, slot: usize, result: io::Result<usize>) {
        match std::mem::replace(&mut self.slots[slot], Slot::Free) {
            Slot::Record(mut read) => match read.span.after(&read.file, result) {
                Next::Read => {
                    self.slots[slot] = Slot::Record(read);
                    return self.push(slot);
                }
                Next::Done => self.ready.push_back(read.end(Ok(()))),
                Next::Fail(error) => self.ready.push_back(read.end(Err(error))),
            },
            Slot::Part(mut part) => {
                match part.span.after(&part.file, result) {
                    Next::Read if self.broken.is_none() => {
                        self.slots[slot] = Slot::Part(part);
                        return self.push(slot);
                    }
                    // Whoever waits for it says that the ring is broken.
                    Next::Read | Next::Done => {}
                    Next::Fail(error) => self.part_errors.push((part.nth, error)),
                }
                self.n_parts -= 1;
            }
            Slot::Abandoned { .. } => {}
            Slot::Free => return,
        }
        self.free.push(slot);
    }

    /// The ring cannot be entered: every record on its way ends now, but its memory stays
    /// in its slot, for the kernel may have it.
    fn break_down(&mut self, errno: Errno) {
        self.broken = Some(errno);
        for slot in 0..self.slots.len() {
            match std::mem::replace(&mut self.slots[slot], Slot::Free) {
                Slot::Record(Read { tag, memory, .. }) => {
                    self.slots[slot] = Slot::Abandoned { _memory: memory };
                    let result = Err(self.broken_error());
                    self.ready.push_back(ReadDone { tag, result });
                }
                other @ (Slot::Free | Slot::Part(_) | Slot::Abandoned { .. }) => {
                    self.slots[slot] = other;
                }
            }
        }
    }

    fn broken_error(&self) -> IoError {
        let source = self.broken.unwrap_or(Errno::EIO).into();
        IoError::Ring { doing: "enter the ring", source }
    }

    /// How many reads the kernel works on: those in slots, less those never handed over.
    fn n_with_kernel(&mut self) -> usize {
        let n_busy = self.slots.len() - self.free.len();
        n_busy - self.ring.submission().len()
    }

    /// Reads parts, as many at a time as there are slots; none of a read that has failed. Waits
    /// until the kernel has none of them, whatever happens: their memory is only borrowed. They are
    /// a list and no iterator, so that no code of a caller's can unwind past the wait.
    fn read_parts(&mut self, parts: Vec<Due<'_>>) {
        let is_whole = |due: &Due<'_>| due.window.len() == due.span.window_bytes();
        debug_assert!(parts.iter().all(is_whole), "a window is all of its span's");
        for Due { nth, file, span, window } in parts {
            while self.free.is_empty() && self.broken.is_none() {
                self.enter(1, LONGEST_WAIT);
                self.reap();
            }
            if self.broken.is_some() {
                break;
            }
            if self.part_errors.iter().any(|(failed, _)| *failed == nth) {
                continue;
            }
            let Some(free) = self.free.pop() else { break };
            let (file, dst) = (Arc::clone(file), Destination(window.as_mut_ptr()));
            self.n_parts += 1;
            self.start(free, Slot::Part(Part { nth, file, span, dst }));
        }
        while self.n_parts > 0 && !(self.broken.is_some() && self.n_with_kernel() == 0) {
            self.enter(1, LONGEST_WAIT);
            self.reap();
        }
    }
}

impl Reader for UringReader {
    fn submit(&mut self, request: ReadRequest) -> Result<(), Refused> {
        if self.in_flight() >= self.depth() {
            return Err(Refused { request, reason: Refusal::QueueFull });
        }
        let done = match Read::begin(request, &self.pool, self.max_record_bytes)? {
            Err(done) => done,
            Ok(read) if read.span.is_done() => read.end(Ok(())),
            Ok(read) if self.broken.is_some() => read.end(Err(self.broken_error())),
            Ok(read) => {
                let free = self.free.pop().expect("fewer than `depth` are on their way");
                self.start(free, Slot::Record(read));
                return Ok(());
            }
        };
        self.ready.push_back(done);
        Ok(())
    }

    fn poll(&mut self, timeout: Duration) -> Option<ReadDone> {
        let start = Instant::now();
        loop {
            self.reap();
            if let Some(done) = self.ready.pop_front() {
                return Some(done);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if self.in_flight() == 0 {
                return None;
            }
            self.enter(1, left);
            if left.is_zero() {
                self.reap();
                return self.ready.pop_front();
            }
        }
    }

    fn read_into(
        &mut self,
        file: &Arc<OpenFile>,
        offset: u64,
        dst: &mut [u8],
    ) -> Result<(), IoError> {
        let (direct, rest) = dst.split_at_mut(direct_len(file, offset, dst));
        let n_direct = direct.len();
        // The whole range first: the parts' offsets then have room in a u64.
        Span::new(file, offset, n_direct)?;
        let mut parts = Vec::with_capacity(n_direct.div_ceil(PART_BYTES));
        for (n, window) in direct.chunks_mut(PART_BYTES).enumerate() {
            let span = Span::new(file, offset + (n * PART_BYTES) as u64, window.len())?;
            parts.push(Due { nth: 0, file, span, window });
        }
        self.read_parts(parts);
        if let Some((_, error)) = self.part_errors.drain(..).next() {
            return Err(error);
        }
        if self.broken.is_some() {
            return Err(self.broken_error());
        }
        self.bytes_read += fill_slice(file, offset + n_direct as u64, rest)?;
        Ok(())
    }

    fn read_all(&mut self, reads: &mut [ReadInto<'_>]) -> Vec<Result<(), IoError>> {
        let (mut parts, mut others) = (Vec::with_capacity(reads.len()), Vec::new());
        for (nth, read) in reads.iter_mut().enumerate() {
            let file = read.file;
            match read.window() {
                Some((span, window)) => parts.push(Due { nth, file, span, window }),
                None => others.push(nth),
            }
        }
        self.read_parts(parts);
        let end = || match self.broken {
            None => Ok(()),
            Some(_) => Err(self.broken_error()),
        };
        let mut results: Vec<_> = reads.iter().map(|_| end()).collect();
        for (nth, error) in self.part_errors.drain(..) {
            results[nth] = Err(error);
        }
        for nth in others {
            let (file, offset) = (reads[nth].file, reads[nth].offset);
            results[nth] = self.read_into(file, offset, reads[nth].bytes());
        }
        results
    }

    fn in_flight(&self) -> usize {
        let n_records = match self.broken {
            None => self.slots.len() - self.free.len(),
            Some(_) => 0,
        };
        n_records + self.ready.len()
    }

    fn depth(&self) -> usize {
        self.slots.len()
    }

    fn name(&self) -> &'static str {
        "uring"
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }
}

impl std::fmt::Debug for UringReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringReader")
            .field("depth", &self.depth())
            .field("in_flight", &self.in_flight())
            .field("registered", &self.registered)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

impl Drop for UringReader {
    /// Waits for the kernel to give every buffer back; after `FAREWELL` the memory is
    /// left to it (a leak is safe, a write into freed memory is not).
    fn drop(&mut self) {
        let start = Instant::now();
        while self.n_with_kernel() > 0 {
            let left = FAREWELL.saturating_sub(start.elapsed());
            if left.is_zero() {
                let _left_to_the_kernel =
                    ManuallyDrop::new(std::mem::take(&mut self.slots));
                return;
            }
            self.enter(1, left);
            self.reap();
        }
    }
}

/// A ring with an entry per slot, on a kernel that can do what this file needs.
fn open_ring(depth: u32) -> Result<IoUring, IoError> {
    let failed = |doing| move |source| IoError::Ring { doing, source };
    // A read that ends need not interrupt this thread (Linux 5.19): it asks when it wants more.
    let ring = IoUring::builder().setup_coop_taskrun().build(depth);
    let ring = ring.or_else(|_| IoUring::new(depth)).map_err(failed("set up a ring"))?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(failed("probe the ring"))?;
    let reads = [opcode::Read::CODE, opcode::ReadFixed::CODE];
    let enough = reads.into_iter().all(|code| probe.is_supported(code))
        && ring.params().is_feature_ext_arg()
        && ring.params().is_feature_nodrop();
    if !enough {
        let source = io::ErrorKind::Unsupported.into();
        return Err(failed("find what Linux 5.11 has")(source));
    }
    Ok(ring)
}

/// Makes the buffers known to the kernel, by their place in the slice: it then maps them
/// once and not at every read. Their pages count as locked memory.
fn register(ring: &IoUring, buffers: &mut [Buffer]) -> io::Result<()> {
    let ranges: Vec<_> = buffers
        .iter_mut()
        .map(Buffer::as_mut_slice)
        .map(|range| iovec { iov_base: range.as_mut_ptr().cast(), iov_len: range.len() })
        .collect();
    // SAFETY: the buffers go to a pool of which the reader keeps a handle; it drops the
    // ring first, so they are allocated as long as the ring knows them.
    unsafe { ring.submitter().register_buffers(&ranges) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direct;
    use crate::conformance::{Subject, all};

    fn reader(config: &ReaderConfig) -> Option<UringReader> {
        UringReader::new(config).inspect_err(|error| println!("skipped: {error}")).ok()
    }

    /// What a low limit of locked memory leads to.
    #[test]
    fn without_registered_buffers_the_contract_holds() {
        if reader(&ReaderConfig::default()).is_none() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let open = |config: &ReaderConfig| {
            let mut reader = UringReader::new(config)?;
            reader.registered = false;
            let boxed: Box<dyn Reader> = Box::new(reader);
            Ok(boxed)
        };
        all(&Subject { open, direct: Direct::Auto, folder: folder.path().to_owned() });
    }

    #[test]
    fn a_broken_ring_ends_every_read_with_an_error() {
        let Some(mut reader) = reader(&ReaderConfig::default()) else { return };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, vec![7; 2 << 20]).unwrap();
        let file = Arc::new(OpenFile::open(&path, Direct::Auto).unwrap());
        let request =
            |tag| ReadRequest { file: Arc::clone(&file), offset: 0, len: 100_000, tag };
        let null = std::fs::File::open("/dev/null").unwrap();
        reader.submit(request(0)).unwrap();
        // SAFETY: both are open; the ring's mapped queues keep the ring itself alive.
        unsafe { nix::libc::dup2(null.as_raw_fd(), reader.ring.as_raw_fd()) };
        reader.submit(request(1)).unwrap();
        reader.submit(request(2)).unwrap();
        let mut tags = Vec::new();
        while let Some(done) = reader.poll(Duration::from_secs(60)) {
            // The first may have come before the ring broke.
            assert!(done.tag == 0 || matches!(done.result, Err(IoError::Ring { .. })));
            tags.push(done.tag);
        }
        tags.sort_unstable();
        assert_eq!(tags, [0, 1, 2]);
        assert_eq!(reader.in_flight(), 0);
        let mut dst = Buffer::new(2 << 20);
        let error = reader.read_into(&file, 0, dst.as_mut_slice()).unwrap_err();
        assert!(matches!(error, IoError::Ring { .. }), "{error}");
    }

    /// Nothing was handed to the kernel, so there is nothing to wait for.
    #[test]
    fn a_ring_that_breaks_at_the_first_entry_gives_the_places_back() {
        let Some(mut reader) = reader(&ReaderConfig::default()) else { return };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let file = Arc::new(OpenFile::open(&path, Direct::Auto).unwrap());
        let null = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: both are open; the ring's mapped queues keep the ring itself alive.
        unsafe { nix::libc::dup2(null.as_raw_fd(), reader.ring.as_raw_fd()) };
        let mut memory = Buffer::new(20 * 8192);
        for _ in 0..2 {
            let rooms = memory.as_mut_slice().chunks_mut(8192);
            let mut reads: Vec<_> = rooms
                .map(|room| ReadInto { file: &file, offset: 0, len: 8192, room, at: 0 })
                .collect();
            for result in reader.read_all(&mut reads) {
                assert!(matches!(result, Err(IoError::Ring { .. })), "{result:?}");
            }
            assert_eq!(reader.in_flight(), 0);
        }
    }
}
