//! Memory of the process: mappings of its own on Linux, elsewhere the allocator's.
#![allow(
    unsafe_code,
    reason = "`vec![0; n]` ends the process where there is no memory, cannot be aligned, and writes zeros"
)]

use std::num::NonZeroUsize;

use crate::SlotError;
use crate::memory::{Backing, Kind, SLOT_ALIGN};
use zeros::Zeros;

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

/// `len` zeros at a multiple of [`SLOT_ALIGN`], which have whole blocks of it to themselves. They cost
/// neither time nor memory until they are used: an agent whose hosts come, ask for little and go spent
/// most of its time on writing them. `None` for no bytes and for more than can be addressed.
fn zeroed(len: usize) -> Option<Result<Backing, SlotError>> {
    let padded = NonZeroUsize::new(len.checked_next_multiple_of(SLOT_ALIGN)?)?;
    if isize::try_from(padded.get()).is_err() {
        return None;
    }
    let Some(owner) = Zeros::new(padded) else {
        return Some(Err(SlotError::OutOfMemory { slot_bytes: len }));
    };
    wish_for_huge_pages(&owner);
    let base = owner.start;
    // SAFETY: from `base` on there are `len` initialised bytes, which `owner` frees and
    // nobody else can reach.
    Some(Ok(unsafe { Backing::of_host(base, len, Box::new(owner)) }))
}

/// Pages of the kernel's, rather than of the allocator: it keeps what it is given back, and writes zeros into all of it
/// before it hands it out again.
#[cfg(all(target_os = "linux", not(miri)))]
mod zeros {
    use std::num::NonZeroUsize;
    use std::ptr::NonNull;

    use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    /// A mapping of its own; whoever owns the value owns the bytes.
    #[derive(Debug)]
    pub(super) struct Zeros {
        pub(super) start: NonNull<u8>,
        pub(super) len: usize,
    }

    impl Zeros {
        /// So many, in whole pages; `None` where there is no memory.
        pub(super) fn new(len: NonZeroUsize) -> Option<Self> {
            let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            // SAFETY: a new mapping, where the kernel finds room: nothing that exists changes.
            let start =
                unsafe { mmap_anonymous(None, len, access, MapFlags::MAP_PRIVATE) };
            Some(Self { start: start.ok()?.cast(), len: len.get() })
        }
    }

    impl Drop for Zeros {
        fn drop(&mut self) {
            // SAFETY: this very mapping was made by `new`, and is ended once, because the value
            // cannot be copied.
            let ended = unsafe { munmap(self.start.cast(), self.len) };
            debug_assert!(ended.is_ok(), "{ended:?}");
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod zeros {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::num::NonZeroUsize;
    use std::ptr::NonNull;

    use super::SLOT_ALIGN;

    /// An allocation; whoever owns the value owns the bytes.
    #[derive(Debug)]
    pub(super) struct Zeros {
        pub(super) start: NonNull<u8>,
        allocated: NonNull<u8>,
        layout: Layout,
    }

    impl Zeros {
        /// So many; `None` where there is no memory. Aligned by hand: an allocator that is asked for zeros at a
        /// large alignment writes them.
        pub(super) fn new(len: NonZeroUsize) -> Option<Self> {
            let with_room = len.get().checked_add(SLOT_ALIGN)?;
            let layout = Layout::from_size_align(with_room, 1).ok()?;
            // SAFETY: the layout has a size above 0: `SLOT_ALIGN` at least.
            let allocated = NonNull::new(unsafe { alloc_zeroed(layout) })?;
            let address = allocated.addr().get();
            let skipped = address.next_multiple_of(SLOT_ALIGN) - address;
            // SAFETY: less than `SLOT_ALIGN` bytes on, and the allocation has more.
            let start = unsafe { allocated.add(skipped) };
            Some(Self { start, allocated, layout })
        }
    }

    impl Drop for Zeros {
        fn drop(&mut self) {
            // SAFETY: `allocated` came from `alloc_zeroed` with this very layout and is freed once,
            // because the value cannot be copied.
            unsafe { dealloc(self.allocated.as_ptr(), self.layout) }
        }
    }
}

// SAFETY: its pointers are the only ones to bytes that this value owns and never looks into, so it
// moves between threads as a `Box<[u8]>` would.
unsafe impl Send for Zeros {}

// SAFETY: a shared `Zeros` gives no access at all.
unsafe impl Sync for Zeros {}

/// Below this no huge page fits.
const HUGE_PAGE: usize = 2 << 20;

/// Asks for huge pages: rows are written once and read once, so that a page of 4 KiB costs its
/// place in the tables of the processor at every turn of the ring. A row of 602 kB of f32 is
/// written in half the time (docs/measured.md). A wish only: where the system has none, or was
/// told never to give any, everything is as before.
///
/// Neighbours whose pages adjoin join, so that a huge page may lie across two slots.
#[cfg(all(target_os = "linux", not(miri)))]
fn wish_for_huge_pages(memory: &Zeros) {
    if memory.len < HUGE_PAGE {
        return;
    }
    let advice = nix::sys::mman::MmapAdvise::MADV_HUGEPAGE;
    // SAFETY: the advice changes no byte, and is of our own mapping alone.
    let _ = unsafe { nix::sys::mman::madvise(memory.start.cast(), memory.len, advice) };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn wish_for_huge_pages(_: &Zeros) {}
