//! The memory of a batch's tensors: a leased slot, a lent batch on a GPU, or our own bytes.
//!
//! Memory is returned when its last tensor is gone, on whichever thread that is, and nothing waits for a
//! device. Pinned slots, from which unknown code may still be copying, and batches that are used on
//! unnamed streams are kept until the GPU has finished everything that is enqueued.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bothends_runtime::{
    Batch as Delivered, ConsumerStream, GpuBatch, GpuTarget, Home, RuntimeError,
};

/// `kDLCPU` and the device's number.
pub(crate) const CPU: (i32, i32) = (1, 0);

/// Copies are aligned to this, which JAX requires of shared memory.
const ALIGN: usize = 64;

/// How long a consumer that synchronises itself waits for a batch on the GPU: far longer than any copy
/// takes.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// A batch that holds a slot, counted as long as it does.
pub(crate) struct Held {
    batch: Delivered,
    by_all: Arc<AtomicUsize>,
}

impl Held {
    /// Counts it.
    pub(crate) fn new(batch: Delivered, by_all: &Arc<AtomicUsize>) -> Self {
        // Relaxed: a count that is briefly out of date costs a copy.
        by_all.fetch_add(1, Ordering::Relaxed);
        Self { batch, by_all: Arc::clone(by_all) }
    }

    pub(crate) fn batch(&self) -> &Delivered {
        &self.batch
    }
}

impl AsMut<Delivered> for Held {
    fn as_mut(&mut self) -> &mut Delivered {
        &mut self.batch
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.by_all.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A slot that tensors hold.
pub(crate) struct Lease {
    /// `Some` until it is dropped.
    held: Option<Held>,
    /// The GPU for which it is pinned.
    pinned_for: Option<GpuTarget>,
    home: Home,
}

impl Lease {
    pub(crate) fn new(held: Held, pinned_for: Option<GpuTarget>, home: Home) -> Self {
        Self { held: Some(held), pinned_for, home }
    }

    fn batch(&self) -> &Delivered {
        let held = self.held.as_ref();
        held.expect("a lease has its batch until it is dropped").batch()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let held = self.held.take();
        if !self.home.is_here() {
            // The slot belongs to the parent process.
            let _ = ManuallyDrop::new(held);
        } else if let (Some(held), Some(gpu)) = (held, &self.pinned_for) {
            // `tensor.to("cuda", non_blocking=True)` may still be reading it.
            gpu.keep_until_idle(held);
        }
    }
}

/// A batch in GPU memory that tensors hold.
pub(crate) struct Loan {
    /// `Some` until it is dropped.
    batch: Mutex<Option<GpuBatch>>,
    /// Whether it is used on unnamed streams.
    is_used_anywhere: AtomicBool,
    target: GpuTarget,
    address: u64,
    len: usize,
    home: Home,
}

impl Loan {
    pub(crate) fn new(batch: GpuBatch, home: Home) -> Self {
        let target = batch.target().clone();
        let (address, len) = (batch.address(), batch.len());
        let (batch, is_used_anywhere) = (Mutex::new(Some(batch)), AtomicBool::new(false));
        Self { batch, is_used_anywhere, target, address, len, home }
    }

    /// Makes a stream wait for it, and its memory for that stream.
    pub(crate) fn lend(&self, stream: ConsumerStream) -> Result<(), RuntimeError> {
        self.with(|batch| batch.lend(stream))
    }

    /// Waits until it is complete, for a consumer without a stream that waits for it. Blocks.
    pub(crate) fn wait(&self) -> Result<(), RuntimeError> {
        self.release_when_idle()?;
        self.with(|batch| batch.wait(READY_LIMIT))
    }

    /// It is used on unnamed streams: its memory waits for all of them. Calls no driver that has a way to
    /// tell when they are done, since another thread may be capturing a graph.
    pub(crate) fn release_when_idle(&self) -> Result<(), RuntimeError> {
        if !self.target.has_idle() {
            self.target.can_tell_idle()?;
        }
        // Read when it is dropped, and everything here happens before that.
        self.is_used_anywhere.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn with(
        &self,
        work: impl FnOnce(&mut GpuBatch) -> Result<(), RuntimeError>,
    ) -> Result<(), RuntimeError> {
        self.home.check()?;
        let mut batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
        work(batch.as_mut().expect("a loan has its batch until it is dropped"))
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let batch = self.batch.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if !self.home.is_here() {
            // The memory belongs to the parent process, and so does the driver.
            let _ = ManuallyDrop::new(batch);
        } else if let Some(batch) = batch
            && *self.is_used_anywhere.get_mut()
        {
            batch.release_when_idle();
        }
    }
}

/// The memory of a tensor.
pub(crate) enum Memory {
    /// A slot.
    Slot(Lease),
    /// On a GPU.
    Gpu(Loan),
    /// A copy of a slot, or our own numbers.
    Own(Own),
}

/// Our own bytes, aligned.
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

    /// Where its bytes begin; the owner of the tensor may read and write there. On a GPU, this is an
    /// address for code that runs there.
    pub(crate) fn base(&self) -> *mut u8 {
        match self {
            Self::Slot(lease) => lease.batch().base().as_ptr(),
            Self::Gpu(loan) => {
                let address = usize::try_from(loan.address).unwrap_or_default();
                std::ptr::without_provenance_mut(address)
            }
            // Relaxed: the address never changes.
            Self::Own(own) => own.base.load(Ordering::Relaxed),
        }
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Slot(lease) => lease.batch().bytes().len(),
            Self::Gpu(loan) => loan.len,
            Self::Own(own) => own.len,
        }
    }

    /// The batch on a GPU, if it is one.
    pub(crate) fn on_gpu(&self) -> Option<&Loan> {
        match self {
            Self::Gpu(loan) => Some(loan),
            Self::Slot(_) | Self::Own(_) => None,
        }
    }

    /// DLPack's type and number of the device that its bytes are on.
    pub(crate) fn device(&self) -> (i32, i32) {
        self.on_gpu().map_or(CPU, |loan| loan.target.dlpack())
    }
}
