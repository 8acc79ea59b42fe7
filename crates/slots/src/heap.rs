//! Memory of the process: the allocator's, aligned by hand.
#![allow(
    unsafe_code,
    reason = "`vec![0; n]` ends the process where there is no memory, and cannot be aligned"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::SlotError;
use crate::memory::{Backing, Kind, SLOT_ALIGN};

/// Ordinary memory of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Heap;

impl Kind for Heap {
    fn name(&self) -> &'static str {
        "host"
    }

    fn allocate(&self, bytes: usize) -> Option<Result<Backing, SlotError>> {
        zeroed(bytes)
    }
}

/// An allocation; whoever owns the value owns the bytes.
#[derive(Debug)]
struct Allocation {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: `start` is the only pointer to an allocation that this value owns and never looks
// into, so it moves between threads as a `Box<[u8]>` would.
unsafe impl Send for Allocation {}

// SAFETY: a shared `Allocation` gives no access at all.
unsafe impl Sync for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this very layout and is freed once,
        // because `Allocation` cannot be copied.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// `len` zeros at a multiple of [`SLOT_ALIGN`], which have whole blocks of it to themselves.
/// Aligned by hand: an allocator that is asked for zeros at a large alignment writes them,
/// while those at its own alignment are the system's, and cost neither time nor memory until
/// they are used. `None` for no bytes and for more than can be addressed.
fn zeroed(len: usize) -> Option<Result<Backing, SlotError>> {
    let padded = len.checked_next_multiple_of(SLOT_ALIGN).filter(|bytes| *bytes > 0)?;
    let with_room = padded.checked_add(SLOT_ALIGN)?;
    let layout = Layout::from_size_align(with_room, 1).ok()?;
    // SAFETY: the layout has a size above 0: `SLOT_ALIGN` at least.
    let start = unsafe { alloc_zeroed(layout) };
    let Some(start) = NonNull::new(start) else {
        return Some(Err(SlotError::OutOfMemory { slot_bytes: len }));
    };
    let address = start.addr().get();
    let skipped = address.next_multiple_of(SLOT_ALIGN) - address;
    // SAFETY: less than `SLOT_ALIGN` bytes on, and the allocation has more.
    let base = unsafe { start.add(skipped) };
    let owner = Box::new(Allocation { start, layout });
    wish_for_huge_pages(&owner);
    // SAFETY: from `base` on there are `len` initialised bytes, which `owner` frees and
    // nobody else can reach.
    Some(Ok(unsafe { Backing::of_host(base, len, owner) }))
}

/// Below this no huge page fits.
const HUGE_PAGE: usize = 2 << 20;

/// Asks for huge pages: rows are written once and read once, so that a page of 4 KiB costs its
/// place in the tables of the processor at every turn of the ring. A row of 602 kB of f32 is
/// written in half the time (docs/measured.md). A wish only: where the system has none, or was
/// told never to give any, everything is as before.
///
/// It is said of all pages that the allocation touches, so that those of neighbours join and a
/// huge page may lie across two slots.
#[cfg(all(target_os = "linux", not(miri)))]
fn wish_for_huge_pages(memory: &Allocation) {
    let len = memory.layout.size();
    if len < HUGE_PAGE {
        return;
    }
    let within = memory.start.addr().get() % SLOT_ALIGN;
    let (first, all) = (memory.start.as_ptr().wrapping_sub(within), within + len);
    let Some(first) = NonNull::new(first.cast()) else { return };
    let advice = nix::sys::mman::MmapAdvise::MADV_HUGEPAGE;
    // SAFETY: the advice changes no byte, neither of ours nor of what shares a page with them.
    let _ = unsafe { nix::sys::mman::madvise(first, all, advice) };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn wish_for_huge_pages(_: &Allocation) {}
