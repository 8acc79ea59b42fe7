//! One tensor of a batch: an address, a shape, and what keeps its memory alive.

use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::dlpack;
use crate::errors::raised;
use crate::memory::{CPU, Loan, Memory};
use crate::view::View;

/// A tensor that belongs to bothends, in host memory or on a GPU: shared without a copy through
/// `__dlpack__` (PyTorch, JAX, NumPy, CuPy, TensorFlow), and from the host `__array_interface__` (NumPy).
/// Its memory is reused only when the last tensor made from it is gone, and a GPU has finished what was
/// enqueued on the stream that received it.
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

    /// Name of the element type: uint8, float32, float16, bfloat16, int64, bool; of fields also other
    /// numbers of NumPy.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.view.element.name()
    }

    /// Where it is: "cpu", or "cuda:N".
    #[getter]
    fn device(&self) -> String {
        match self.memory.device() {
            CPU => "cpu".to_owned(),
            (_, number) => format!("cuda:{number}"),
        }
    }

    /// Address of the first element; on a GPU, only code that runs there may dereference it.
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
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let device = self.memory.device();
        if dl_device.is_some_and(|asked| asked != device) {
            let line = match device {
                CPU => "the batch is in host memory; copy it to the device yourself",
                _ => {
                    "the batch is on a GPU; take it there, and copy it from there yourself"
                }
            };
            return Err(PyBufferError::new_err(line));
        }
        if let Some(loan) = self.memory.on_gpu() {
            if copy == Some(true) {
                let line =
                    "the batch is on a GPU, and is shared, not copied; copy what you get";
                return Err(PyBufferError::new_err(line));
            }
            let reader = dlpack::Reader::of(stream)?;
            let lent = py.detach(|| reader.borrow(loan));
            lent.map_err(|error| raised(py, &error))?;
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

    /// `(1, 0)` in host memory, `(2, N)` on GPU number N.
    fn __dlpack_device__(&self) -> (i32, i32) {
        self.memory.device()
    }

    /// It is used on other streams than the one that received it: its memory is reused once the GPU has
    /// finished everything that is enqueued on any stream when the last tensor is gone. Irrelevant in host
    /// memory.
    fn release_when_idle(&self, py: Python<'_>) -> PyResult<()> {
        let told = self.memory.on_gpu().map_or(Ok(()), Loan::release_when_idle);
        told.map_err(|error| raised(py, &error))
    }

    /// NumPy's protocol, for `numpy.asarray`.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.memory.on_gpu().is_some() {
            let line =
                "the batch is on a GPU, which NumPy cannot read; copy it from there";
            return Err(pyo3::exceptions::PyAttributeError::new_err(line));
        }
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
