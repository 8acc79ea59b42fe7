//! The functions of a batch: where its bytes are and what they mean.
//!
//! Nothing is copied except labels, ids and mask, which C needs as arrays. `device.rs` has what is specific
//! to batches on a GPU.
#![allow(
    unsafe_code,
    reason = "exporting a name of C is unsafe: it may be taken already"
)]
#![allow(non_camel_case_types, reason = "C's names")]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null;
use std::sync::{Arc, Mutex, PoisonError};

use bothends_core::ids::Prong;
use bothends_core::tensor::{Dtype, Layout, SampleShape};
use bothends_runtime::{
    Batch, ConsumerStream, GpuBatch, Home, Row, RuntimeError, soft_labels,
};

use crate::column::Column;
use crate::held::{Form, release};
use crate::memory::{fill, given};
use crate::status::{Refusal, answer, be_status, door};

/// A batch held by the consumer. `be_batch_release` returns its memory.
#[derive(Debug)]
pub struct be_batch {
    home: Home,
    labels: Vec<i64>,
    sample_ids: Vec<u64>,
    sources: Vec<i32>,
    mask: Vec<u8>,
    rows: Vec<Row>,
    fields: Vec<Column>,
    /// Where rows are, if each has its own length.
    row_offsets: Option<Vec<u64>>,
    form: Arc<Form>,
    place: Place,
    prong: Prong,
    memory: Memory,
}

/// Where a batch's bytes are.
#[derive(Debug, Clone, Copy)]
struct Place {
    address: usize,
    len_bytes: usize,
    sample_bytes: usize,
}

/// Their owner.
#[derive(Debug)]
enum Memory {
    Host(Batch),
    /// Behind a lock, because several threads may lend it.
    Gpu(Box<Mutex<GpuBatch>>),
}

/// Element type of a batch.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum be_dtype {
    /// Unsigned bytes, 0 to 255.
    BE_U8 = 0,
    /// IEEE 754 binary32, normalised.
    BE_F32 = 1,
    /// IEEE 754 binary16, normalised.
    BE_F16 = 2,
    /// bfloat16, normalised.
    BE_BF16 = 3,
}

/// Order of a sample's dimensions.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum be_layout {
    /// Rows, columns, channels.
    BE_NHWC = 0,
    /// Channels, rows, columns.
    BE_NCHW = 1,
}

/// Where a view is in every sample, and its size.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct be_view {
    /// From the sample's first byte to the view's.
    pub offset_bytes: usize,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// Channels.
    pub channels: u32,
}

impl Form {
    fn source(&self, row: &Row) -> i32 {
        let sources = self.sources.as_deref();
        let of = |id| sources.map_or(0, |sources| sources.of(id));
        row.sample.map_or(-1, |id| i32::try_from(of(id)).unwrap_or(i32::MAX))
    }

    fn view(&self, number: usize) -> Option<be_view> {
        let SampleShape { height, width, channels } = *self.shapes.get(number)?;
        let before = self.shapes[..number].iter().map(|shape| shape.len());
        let offset_bytes = before.sum::<usize>() * self.output.dtype.size();
        Some(be_view { offset_bytes, height, width, channels })
    }
}

impl be_batch {
    pub(crate) fn new(home: Home, batch: Batch, form: &Arc<Form>) -> Self {
        let place = Place {
            address: batch.base().as_ptr().expose_provenance(),
            len_bytes: batch.bytes().len(),
            sample_bytes: match batch.row_starts() {
                Some(_) => 0,
                None => batch.sample_bytes(),
            },
        };
        let (rows, prong) = (batch.rows().to_vec(), batch.prong);
        let fields = batch.fields().iter().map(Column::new).collect();
        let row_offsets = batch.row_starts();
        let row_offsets =
            row_offsets.map(|starts| starts.iter().map(|start| *start as u64).collect());
        let more = (fields, row_offsets);
        Self::of(home, form, (place, prong), (rows, Memory::Host(batch)), more)
    }

    pub(crate) fn on_gpu(home: Home, batch: GpuBatch, form: &Arc<Form>) -> Self {
        let place = Place {
            address: usize::try_from(batch.address()).unwrap_or_default(),
            len_bytes: batch.len(),
            sample_bytes: batch.sample_bytes(),
        };
        let (rows, prong) = (batch.rows().to_vec(), batch.prong);
        let fields = batch.fields().iter().map(Column::new).collect();
        let memory = Memory::Gpu(Box::new(Mutex::new(batch)));
        Self::of(home, form, (place, prong), (rows, memory), (fields, None))
    }

    fn of(
        home: Home,
        form: &Arc<Form>,
        (place, prong): (Place, Prong),
        (rows, memory): (Vec<Row>, Memory),
        (fields, row_offsets): (Vec<Column>, Option<Vec<u64>>),
    ) -> Self {
        let id = |row: &Row| row.sample.map_or(u64::MAX, |id| id.0);
        Self {
            home,
            labels: rows.iter().map(|row| row.label.0).collect(),
            sample_ids: rows.iter().map(id).collect(),
            sources: rows.iter().map(|row| form.source(row)).collect(),
            mask: rows.iter().map(|row| u8::from(row.sample.is_some())).collect(),
            rows,
            fields,
            row_offsets,
            form: Arc::clone(form),
            place,
            prong,
            memory,
        }
    }

    pub(crate) fn home(&self) -> Home {
        self.home
    }

    pub(crate) fn fields(&self) -> &[Column] {
        &self.fields
    }

    pub(crate) fn row_offsets(&self) -> Option<&[u64]> {
        self.row_offsets.as_deref()
    }

    /// Views of each sample; files are none.
    fn n_views(&self) -> usize {
        self.row_offsets.as_ref().map_or(self.form.shapes.len(), |_| 0)
    }

    /// The number of the GPU that its bytes are on; `None` in host memory.
    pub(crate) fn gpu(&self) -> Option<i32> {
        match &self.memory {
            Memory::Host(_) => None,
            Memory::Gpu(batch) => {
                let batch = batch.lock().unwrap_or_else(PoisonError::into_inner);
                Some(batch.target().dlpack().1)
            }
        }
    }

    pub(crate) fn lend(&self, stream: ConsumerStream) -> Result<(), Refusal> {
        self.home.check()?;
        match &self.memory {
            Memory::Host(_) => Ok(()),
            Memory::Gpu(batch) => {
                let mut batch = batch.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(batch.lend(stream)?)
            }
        }
    }

    /// Releases it once a stream has finished everything that is enqueued on it now.
    pub(crate) fn release_after(
        self,
        stream: ConsumerStream,
    ) -> Result<(), RuntimeError> {
        match (self.memory, &self.form.gpu) {
            (Memory::Gpu(batch), _) => {
                let batch = batch.into_inner().unwrap_or_else(PoisonError::into_inner);
                batch.release(stream);
                Ok(())
            }
            (Memory::Host(batch), Some(gpu)) => gpu.keep_until(stream, batch),
            (Memory::Host(_), None) => Ok(()),
        }
    }
}

/// The first byte of the first sample, at a multiple of 4096 (on a GPU, of 256): samples follow each
/// other, `be_batch_sample_bytes` apart, or where `be_batch_row_offsets` says. A masked row is a black image,
/// normalised like all others, or an empty file. It is valid, and never written to, until the batch is released. If `be_batch_device` says that the batch is
/// on a GPU, it is an address there. NULL if `batch` is.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_data(batch: Option<&be_batch>) -> *const c_void {
    let data = door(|| {
        let address = given(batch, "batch")?.place.address;
        Ok(std::ptr::with_exposed_provenance(address))
    });
    data.unwrap_or(null())
}

/// Bytes of all rows; 0 when `batch` is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_len_bytes(batch: Option<&be_batch>) -> usize {
    door(|| Ok(given(batch, "batch")?.place.len_bytes)).unwrap_or(0)
}

/// Bytes of one sample, all its views; 0 where rows have their own lengths (`be_batch_row_offsets`), and when `batch`
/// is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_sample_bytes(batch: Option<&be_batch>) -> usize {
    door(|| Ok(given(batch, "batch")?.place.sample_bytes)).unwrap_or(0)
}

/// Rows, masked ones included: the batch size, or fewer if bad samples were skipped. 0
/// when `batch` is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_n_rows(batch: Option<&be_batch>) -> usize {
    door(|| Ok(given(batch, "batch")?.labels.len())).unwrap_or(0)
}

/// Rows that hold a sample; they come before the masked ones. 0 when `batch` is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_n_valid(batch: Option<&be_batch>) -> usize {
    let valid = |batch: &be_batch| batch.mask.iter().filter(|valid| **valid == 1).count();
    door(|| Ok(valid(given(batch, "batch")?))).unwrap_or(0)
}

/// A class for each row; -1 in a masked one. Valid until the batch is released.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_labels(batch: Option<&be_batch>) -> *const i64 {
    door(|| Ok(given(batch, "batch")?.labels.as_ptr())).unwrap_or(null())
}

/// A sample's number for each row; `UINT64_MAX` in a masked one. Valid until the batch is
/// released.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_sample_ids(batch: Option<&be_batch>) -> *const u64 {
    door(|| Ok(given(batch, "batch")?.sample_ids.as_ptr())).unwrap_or(null())
}

/// The number of the data set of a mix that each row's sample is of, as they stand in `data`; 0
/// without a mix, -1 in a masked row. Valid until the batch is released.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_sources(batch: Option<&be_batch>) -> *const i32 {
    door(|| Ok(given(batch, "batch")?.sources.as_ptr())).unwrap_or(null())
}

/// 1 for each row that holds a sample, 0 for a masked one (`last` is "pad" or "even"). Valid until
/// the batch is released.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_mask(batch: Option<&be_batch>) -> *const u8 {
    door(|| Ok(given(batch, "batch")?.mask.as_ptr())).unwrap_or(null())
}

/// Views of each sample: 1 unless the recipe makes more. 0 where rows are files (`be_batch_row_offsets`), and when
/// `batch` is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_n_views(batch: Option<&be_batch>) -> usize {
    door(|| Ok(given(batch, "batch")?.n_views())).unwrap_or(0)
}

/// Where view number `view` (from 0) is in every sample, and its size.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_view(
    batch: Option<&be_batch>,
    view: usize,
    out: Option<&mut MaybeUninit<be_view>>,
) -> be_status {
    answer(|| {
        let out = given(out, "out")?;
        let batch = given(batch, "batch")?;
        let no_view = || {
            let n_views = batch.n_views();
            Refusal::argument(format!("`view` is {view}; a sample has {n_views}"))
        };
        let found = batch.form.view(view).filter(|_| view < batch.n_views());
        out.write(found.ok_or_else(no_view)?);
        Ok(be_status::BE_OK)
    })
}

/// The elements' type, a `be_dtype`; or a negative `be_status`.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_dtype(batch: Option<&be_batch>) -> i32 {
    code(door(|| {
        Ok(match given(batch, "batch")?.form.output.dtype {
            Dtype::U8 => be_dtype::BE_U8,
            Dtype::F32 => be_dtype::BE_F32,
            Dtype::F16 => be_dtype::BE_F16,
            Dtype::Bf16 => be_dtype::BE_BF16,
        } as i32)
    }))
}

/// The order of a sample's dimensions, a `be_layout`; or a negative `be_status`.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_layout(batch: Option<&be_batch>) -> i32 {
    code(door(|| {
        Ok(match given(batch, "batch")?.form.output.layout {
            Layout::Nhwc => be_layout::BE_NHWC,
            Layout::Nchw => be_layout::BE_NCHW,
        } as i32)
    }))
}

/// Who made the batch: 0 the host, n the n-th of `csds`, counted from 1; or a negative
/// `be_status`. For statistics only: the bytes do not depend on it.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_prong(batch: Option<&be_batch>) -> i32 {
    code(door(|| {
        Ok(match given(batch, "batch")?.prong {
            Prong::Front => 0,
            Prong::Back(device) => i32::from(device.0) + 1,
        })
    }))
}

/// Writes a soft label for each row to `out`: rows x `n_classes` floats, 1 at the row's class,
/// or the shares of the two classes that it was mixed from (`mixup`, `cutmix`). Masked rows get
/// zeros, and so do rows without a label (-1); a label outside `n_classes` is
/// `BE_ERROR_OPTIONS`. `len` is the number of floats in `out`, which must be exactly that.
///
/// # Safety
/// `out` has room for `len` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn be_batch_soft_labels(
    batch: Option<&be_batch>,
    n_classes: usize,
    out: *mut f32,
    len: usize,
) -> be_status {
    answer(|| {
        let batch = given(batch, "batch")?;
        let n_labels = batch.labels.len().checked_mul(n_classes);
        if n_labels != Some(len) {
            let n_rows = batch.labels.len();
            let line = format!("`len` is {len}, not {n_rows} rows x {n_classes} classes");
            return Err(Refusal::argument(line));
        }
        let mut labels = vec![0.0; len];
        soft_labels(&batch.rows, n_classes, &mut labels)?;
        // SAFETY: the caller guarantees room for `len` floats.
        unsafe { fill(out, &labels) }?;
        Ok(be_status::BE_OK)
    })
}

/// Returns the memory of the batch; on a GPU, once the streams that it was lent to have finished what is
/// enqueued there now. NULL is ignored. Any thread may do it, also after the epoch or the loader has been
/// closed.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_release(batch: Option<Box<be_batch>>) {
    let _ = door(|| {
        if let Some(batch) = batch {
            release(batch.home, batch);
        }
        Ok(())
    });
}

/// A number, or the status of an error.
fn code(number: Result<i32, be_status>) -> i32 {
    number.unwrap_or_else(|status| status as i32)
}
