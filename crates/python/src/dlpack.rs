//! Shares a tensor with another library without a copy: DLPack 1.x, both kinds of capsules.
//!
//! For a batch on a GPU, `__dlpack__` names the stream on which the consumer works. The batch is lent to
//! it before the capsule is made, so its work waits for the batch, and the batch's memory for its work.
//!
//! The structures are those of `dlpack.h` (dmlc/dlpack, version 1.1). A capsule holds a
//! managed tensor. The consumer renames the capsule (`used_…`) and calls the deleter when it is done, on
//! any thread, with or without the GIL. A tensor that nobody consumed is freed with its capsule.
#![allow(
    unsafe_code,
    reason = "a C structure that foreign code frees, and Python's capsules, which are C"
)]

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use bothends_runtime::{ConsumerStream, RuntimeError};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::memory::{Loan, Memory};
use crate::view::{Element, View};

/// `DLPACK_FLAG_BITMASK_IS_COPIED`.
const IS_COPIED: u64 = 1 << 1;

const VERSIONED: &CStr = c"dltensor_versioned";
const UNVERSIONED: &CStr = c"dltensor";

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: [i32; 2],
    ndim: i32,
    /// Code and bits.
    dtype: [u8; 2],
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Self),
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct ManagedVersioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Self),
    flags: u64,
    tensor: Tensor,
}

// The header's layout, as its C++ compilers have it.
const _: () = assert!(size_of::<Tensor>() == 48);
const _: () = assert!(size_of::<Managed>() == 64);
const _: () = assert!(size_of::<ManagedVersioned>() == 80);

/// Where the consumer of a batch says that it works on it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reader {
    /// On a stream of its GPU.
    On(ConsumerStream),
    /// Anywhere, without a stream that waits: it gets a complete batch.
    Anywhere,
}

impl Reader {
    /// What the argument `stream` of `__dlpack__` means for CUDA: `None`, 0 and 1 are the legacy default
    /// stream, 2 is the calling thread's default stream, -1 is no stream, and others are stream handles.
    pub(crate) fn of(stream: Option<i64>) -> PyResult<Self> {
        let Some(handle) = stream else { return Ok(Self::On(ConsumerStream::DEFAULT)) };
        if handle == -1 {
            return Ok(Self::Anywhere);
        }
        let Ok(handle) = u64::try_from(handle) else {
            let line =
                format!("stream is {handle}; it must be None, -1, or a stream of CUDA");
            return Err(PyValueError::new_err(line));
        };
        // SAFETY: as DLPack demands, the stream belongs to the device. That it lives until the deleter is called
        // DLPack leaves open: our documentation asks it of scripts, PyTorch's streams are never destroyed, and for
        // other frameworks `_frameworks.py` has the batch released when the device is idle, which asks no stream.
        Ok(Self::On(unsafe { ConsumerStream::of_handle(handle) }))
    }

    /// Lends it a batch. If it works anywhere, this blocks until the batch is complete.
    pub(crate) fn borrow(self, loan: &Loan) -> Result<(), RuntimeError> {
        match self {
            Self::On(stream) => loan.lend(stream),
            Self::Anywhere => loan.wait(),
        }
    }
}

/// A tensor to be exported: the memory that it keeps alive, and its place there.
pub(crate) struct Exported {
    memory: Arc<Memory>,
    view: View,
    flags: u64,
}

impl Exported {
    /// The memory itself.
    pub(crate) fn share(memory: &Arc<Memory>, view: &View) -> Self {
        Self { memory: Arc::clone(memory), view: view.clone(), flags: 0 }
    }

    /// A dense copy; the host must be able to read the memory.
    pub(crate) fn copy(memory: &Memory, view: &View) -> Self {
        // SAFETY: the memory is `len` initialised bytes from `base`, kept by the caller.
        let bytes = unsafe { std::slice::from_raw_parts(memory.base(), memory.len()) };
        let memory = Arc::new(Memory::of(&view.gathered(bytes)));
        let view = View::dense(view.element, view.shape.clone());
        Self { memory, view, flags: IS_COPIED }
    }

    /// A capsule `dltensor_versioned`.
    pub(crate) fn versioned(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let flags = self.flags;
        let make = |tensor| ManagedVersioned {
            version: [1, 1],
            context: std::ptr::null_mut(),
            deleter: delete::<ManagedVersioned>,
            flags,
            tensor,
        };
        self.capsule(py, VERSIONED, make, free_versioned)
    }

    /// A capsule `dltensor`.
    pub(crate) fn unversioned(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let context = std::ptr::null_mut();
        let make = |tensor| Managed { tensor, context, deleter: delete::<Managed> };
        self.capsule(py, UNVERSIONED, make, free_unversioned)
    }

    fn capsule<'py, M>(
        self,
        py: Python<'py>,
        name: &'static CStr,
        make: impl FnOnce(Tensor) -> M,
        free: unsafe extern "C" fn(*mut ffi::PyObject),
    ) -> PyResult<Bound<'py, PyAny>> {
        let held = Held::new(self, make);
        let managed: *mut c_void = held.cast();
        // SAFETY: the name lives forever and the pointer is not null.
        let capsule = unsafe { ffi::PyCapsule_New(managed, name.as_ptr(), Some(free)) };
        // SAFETY: a new reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
    }
}

/// A consumer of the capsule gets a pointer to the start of this.
#[repr(C)]
struct Held<M> {
    /// First, so that both have the same address.
    managed: M,
    exported: Exported,
}

impl<M> Held<M> {
    /// Allocates it, with a tensor that points into its own fields.
    fn new(mut exported: Exported, make: impl FnOnce(Tensor) -> M) -> *mut Self {
        let view = &mut exported.view;
        let tensor = Tensor {
            data: exported.memory.base().wrapping_add(view.offset).cast(),
            device: exported.memory.device().into(),
            ndim: i32::try_from(view.shape.len()).unwrap_or(0),
            dtype: dtype(view.element),
            lanes: 1,
            // Both are on the heap already, and stay there when `exported` moves.
            shape: view.shape.as_mut_ptr(),
            strides: view.strides.as_mut_ptr(),
            byte_offset: 0,
        };
        Box::into_raw(Box::new(Self { managed: make(tensor), exported }))
    }
}

/// The deleter: may be called from any thread, once.
unsafe extern "C" fn delete<M>(managed: *mut M) {
    if managed.is_null() {
        return;
    }
    // SAFETY: it came from `Held::new`, whose first field it is, and nobody else has it any more.
    drop(unsafe { Box::from_raw(managed.cast::<Held<M>>()) });
}

unsafe extern "C" fn free_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls it with a capsule that this module made.
    unsafe { free::<ManagedVersioned>(capsule, VERSIONED) }
}

unsafe extern "C" fn free_unversioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe { free::<Managed>(capsule, UNVERSIONED) }
}

/// Frees a tensor that nobody consumed: a consumer would have renamed the capsule.
///
/// # Safety
/// `capsule` is one that [`Exported::capsule`] made for an `M`, and the GIL is held.
unsafe fn free<M>(capsule: *mut ffi::PyObject, name: &CStr) {
    // SAFETY: the caller guarantees it.
    let is_ours = unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) };
    if is_ours == 0 {
        return;
    }
    // SAFETY: the capsule is valid under this name.
    let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
    // SAFETY: it still is the pointer that was put in.
    unsafe { delete::<M>(managed.cast()) }
}

/// `DLDataType` without lanes: code and bits.
fn dtype(element: Element) -> [u8; 2] {
    match element {
        Element::I8 => [0, 8],
        Element::I16 => [0, 16],
        Element::I32 => [0, 32],
        Element::I64 => [0, 64],
        Element::U16 => [1, 16],
        Element::U32 => [1, 32],
        Element::U64 => [1, 64],
        Element::F64 => [2, 64],
        Element::U8 => [1, 8],
        Element::F16 => [2, 16],
        Element::F32 => [2, 32],
        Element::Bf16 => [4, 16],
        Element::Bool => [6, 8],
    }
}
