//! The memory of a batch's tensors, whoever holds it: a slot on lease, a batch on a GPU on loan, or
//! bytes of our own.
//!
//! Memory goes back when its last tensor is gone, on whichever thread that is, and nothing waits for a
//! device: page-locked slots, which code that we do not know may be copying from, and batches that
//! are used on streams that nobody names, are kept until the GPU has passed all that is enqueued.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bothends_runtime::{
    Batch as Delivered, ConsumerStream, GpuBatch, GpuTarget, Home, RuntimeError,
};

/// `kDLCPU` and the device's number.
pub(crate) const CPU: (i32, i32) = (1, 0);

/// Copies begin at a multiple of this, as JAX wants it of memory that it shares.
const ALIGN: usize = 64;

/// How long whoever syncs by itself waits for a batch on the GPU: far longer than any copy takes.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// A batch that holds a slot, counted as long as it does.
pub(crate) struct Held {
    batch: Delivered,
    by_all: Arc<AtomicUsize>,
}

impl Held {
    /// Counts it.
    pub(crate) fn new(batch: Delivered, by_all: &Arc<AtomicUsize>) -> Self {
        // Pairs with nothing: a count that is behind by a moment costs a copy.
        by_all.fetch_add(1, Ordering::Relaxed);
        Self { batch, by_all: Arc::clone(by_all) }
    }

    pub(crate) fn batch(&self) -> &Delivered {
        &self.batch
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.by_all.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A slot in the hands of tensors.
pub(crate) struct Lease {
    /// Some until it is dropped.
    held: Option<Held>,
    /// The GPU that it is page-locked for.
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
            // The slot is the parent's.
            let _ = ManuallyDrop::new(held);
        } else if let (Some(held), Some(gpu)) = (held, &self.pinned_for) {
            // `tensor.to("cuda", non_blocking=True)` may be reading it still.
            gpu.keep_until_idle(Box::new(held));
        }
    }
}

/// A batch in GPU memory, in the hands of tensors.
pub(crate) struct Loan {
    /// Some until it is dropped.
    batch: Mutex<Option<GpuBatch>>,
    /// Whether it is used on streams that nobody has named.
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

    /// Waits until it is complete, for a consumer that has no stream wait for it. Blocks.
    pub(crate) fn wait(&self) -> Result<(), RuntimeError> {
        self.release_when_idle()?;
        self.with(|batch| batch.wait(READY_LIMIT))
    }

    /// It is used on streams that nobody names: its memory waits for all of them.
    pub(crate) fn release_when_idle(&self) -> Result<(), RuntimeError> {
        self.target.can_tell_idle()?;
        // Read by whoever drops it, which everything here happens before.
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
            // The memory is the parent's, and so is the driver.
            let _ = ManuallyDrop::new(batch);
        } else if *self.is_used_anywhere.get_mut() {
            self.target.keep_until_idle(Box::new(batch));
        }
    }
}

/// What a tensor lies in.
pub(crate) enum Memory {
    /// A slot.
    Slot(Lease),
    /// A GPU's.
    Gpu(Loan),
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

    /// Where its bytes begin; whoever holds the tensor may read and write there. On a GPU that is
    /// an address for code that runs on it.
    pub(crate) fn base(&self) -> *mut u8 {
        match self {
            Self::Slot(lease) => lease.batch().base().as_ptr(),
            Self::Gpu(loan) => {
                let address = usize::try_from(loan.address).unwrap_or_default();
                std::ptr::without_provenance_mut(address)
            }
            // The address never changes: it needs no order with anything.
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

    /// The batch on the GPU that it is.
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
