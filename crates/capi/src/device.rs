//! The functions of batches on a GPU: where a batch is, and how it is lent to a stream and returned.
//!
//! Streams belong to the caller; `runtime::GpuBatch` handles the ordering on them.
#![allow(
    unsafe_code,
    reason = "exporting a name of C is unsafe; streams come as handles that C keeps alive"
)]
#![allow(non_camel_case_types, reason = "C's names")]

use std::ffi::c_void;
use std::mem::MaybeUninit;

use bothends_runtime::ConsumerStream;

use crate::batch::be_batch;
use crate::held::release;
use crate::memory::given;
use crate::status::{answer, be_status};

/// A kind of device that a batch's bytes are on; the numbers are DLPack's.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum be_device_type {
    /// Host memory, pinned or not.
    BE_CPU = 1,
    /// An NVIDIA GPU's memory.
    BE_CUDA = 2,
}

/// Where a batch's bytes are.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct be_device {
    /// A `be_device_type`.
    pub kind: i32,
    /// Its number: for a GPU, among those that the process can see; otherwise 0.
    pub number: i32,
}

/// Where the batch's bytes are, and so what `be_batch_data` points to. On a GPU (`device` in the options)
/// the host must not dereference that address, and neither must GPU code before `be_batch_lend`.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_device(
    batch: Option<&be_batch>,
    out: Option<&mut MaybeUninit<be_device>>,
) -> be_status {
    answer(|| {
        let out = given(out, "out")?;
        out.write(match given(batch, "batch")?.gpu() {
            Some(number) => be_device { kind: be_device_type::BE_CUDA as i32, number },
            None => be_device { kind: be_device_type::BE_CPU as i32, number: 0 },
        });
        Ok(be_status::BE_OK)
    })
}

/// Hands a batch on a GPU to a stream of that GPU. Work enqueued there from now on sees the batch
/// complete, and the batch's memory is not reused until everything that is enqueued there before
/// the batch is released has run. It does not wait, and may be called for several streams. A batch in
/// host memory needs nothing done. `stream` is a `CUstream` or `cudaStream_t`; NULL is the legacy default
/// stream, and `CU_STREAM_PER_THREAD` that of the calling thread.
///
/// # Safety
/// The stream belongs to the batch's GPU, and is not destroyed before the batch has been released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn be_batch_lend(
    batch: Option<&be_batch>,
    stream: *mut c_void,
) -> be_status {
    answer(|| {
        // SAFETY: the caller keeps the stream alive.
        let stream = unsafe { ConsumerStream::of_handle(stream.addr() as u64) };
        given(batch, "batch")?.lend(stream)?;
        Ok(be_status::BE_OK)
    })
}

/// Releases the batch, as `be_batch_release` does, once what is enqueued on `stream` now has run: its
/// memory is not reused before that, and the caller does not wait. Use it for a batch on a GPU, and for one
/// in pinned host memory (`pin_memory`) from which a copy was enqueued. `stream` is as in
/// `be_batch_lend`. The batch is released whatever this returns. A NULL batch is ignored.
///
/// # Safety
/// The stream belongs to the GPU that the loader's options name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn be_batch_release_after(
    batch: Option<Box<be_batch>>,
    stream: *mut c_void,
) -> be_status {
    answer(|| {
        let Some(batch) = batch else { return Ok(be_status::BE_OK) };
        if let Err(error) = batch.home().check() {
            release(batch.home(), batch);
            return Err(error.into());
        }
        // SAFETY: the caller keeps the stream alive.
        let stream = unsafe { ConsumerStream::of_handle(stream.addr() as u64) };
        batch.release_after(stream)?;
        Ok(be_status::BE_OK)
    })
}
