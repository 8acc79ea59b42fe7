//! The memory of a batch's tensors, whoever holds it: a slot on lease, or bytes of our own.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use bothends_runtime::{Batch as Delivered, Home};

/// Copies begin at a multiple of this, as JAX wants it of memory that it shares.
const ALIGN: usize = 64;

/// A batch that holds a slot, counted.
pub(crate) struct Lease {
    /// Some until it is dropped.
    batch: Option<Delivered>,
    held: Arc<AtomicUsize>,
    home: Home,
}

impl Lease {
    /// Of a batch that has been counted.
    pub(crate) fn new(batch: Delivered, held: Arc<AtomicUsize>, home: Home) -> Self {
        Self { batch: Some(batch), held, home }
    }

    pub(crate) fn batch(&self) -> &Delivered {
        self.batch.as_ref().expect("a lease has its batch until it is dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.home.is_here() {
            // Pairs with nothing: a count that is behind by a moment costs a copy.
            self.held.fetch_sub(1, Ordering::Relaxed);
        } else {
            // The slot is the parent's.
            let _ = ManuallyDrop::new(self.batch.take());
        }
    }
}

/// What a tensor lies in.
pub(crate) enum Memory {
    /// A slot.
    Slot(Lease),
    /// A copy of one, or numbers of our own.
    Own(Own),
}

/// Bytes of our own, aligned.
pub(crate) struct Own {
    len: usize,
    /// Where they begin in `keeper`; as an atomic, so that threads may share it.
    base: AtomicPtr<u8>,
    #[expect(dead_code, reason = "owns what `base` points to")]
    keeper: Vec<u8>,
}

impl Memory {
    /// A copy of these bytes.
    pub(crate) fn of(content: &[u8]) -> Self {
        let mut keeper: Vec<u8> = vec![0; content.len() + ALIGN];
        let start = keeper.as_ptr().align_offset(ALIGN);
        let place = &mut keeper[start..start + content.len()];
        place.copy_from_slice(content);
        let base = AtomicPtr::new(place.as_mut_ptr());
        Self::Own(Own { len: content.len(), base, keeper })
    }

    /// Where its bytes begin; whoever holds the tensor may read and write there.
    pub(crate) fn base(&self) -> *mut u8 {
        match self {
            Self::Slot(lease) => lease.batch().base().as_ptr(),
            // The address never changes: it needs no order with anything.
            Self::Own(own) => own.base.load(Ordering::Relaxed),
        }
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Slot(lease) => lease.batch().bytes().len(),
            Self::Own(own) => own.len,
        }
    }
}
