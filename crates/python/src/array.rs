//! One tensor of a batch: an address, a shape, and what keeps its memory alive.

use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::dlpack;
use crate::memory::Memory;
use crate::view::View;

/// A tensor in host memory that belongs to bothends: shared without a copy through
/// `__dlpack__` (PyTorch, JAX, NumPy, CuPy, TensorFlow) or `__array_interface__` (NumPy).
/// Its memory is used again only when the last tensor made of it is gone.
#[pyclass(frozen, module = "bothends._native")]
pub(crate) struct Array {
    pub(crate) memory: Arc<Memory>,
    pub(crate) view: View,
}

#[pymethods]
impl Array {
    /// Lengths of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.view.shape)
    }

    /// Name of the element type: uint8, float32, float16, bfloat16, int64 or bool.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.view.element.name()
    }

    /// Address of the first element.
    #[getter]
    fn data_ptr(&self) -> usize {
        self.memory.base().addr() + self.view.offset
    }

    fn __repr__(&self) -> String {
        format!("<bothends.Array {} {:?}>", self.view.element.name(), self.view.shape)
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.view.shape.first().copied().unwrap_or(0)).unwrap_or(0)
    }

    /// The array API standard's exchange: a capsule, versioned where `max_version` allows.
    #[allow(clippy::too_many_arguments, reason = "the protocol's signature")]
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = stream; // host memory: nothing is in flight
        if dl_device.is_some_and(|device| device != dlpack::CPU) {
            let line = "the batch lies in host memory; copy it to the device yourself";
            return Err(PyBufferError::new_err(line));
        }
        let exported = match copy {
            Some(true) => py.detach(|| dlpack::Exported::copy(&self.memory, &self.view)),
            Some(false) | None => dlpack::Exported::share(&self.memory, &self.view),
        };
        match max_version {
            Some((1.., _)) => exported.versioned(py),
            Some((0, _)) | None => exported.unversioned(py),
        }
    }

    /// `(1, 0)`: the host's memory.
    #[allow(clippy::unused_self, reason = "the protocol's signature")]
    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }

    /// NumPy's way, for `numpy.asarray`.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Some(typestr) = self.view.element.typestr() else {
            let line = "NumPy has no bfloat16; use output=\"f16\" or \"f32\"";
            return Err(pyo3::exceptions::PyAttributeError::new_err(line));
        };
        let size = i64::try_from(self.view.element.size()).unwrap_or(1);
        let strides = self.view.strides.iter().map(|stride| stride * size);
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", typestr)?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("strides", PyTuple::new(py, strides.collect::<Vec<_>>())?)?;
        interface.set_item("data", (self.data_ptr(), false))?;
        Ok(interface)
    }
}
