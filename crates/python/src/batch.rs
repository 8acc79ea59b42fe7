//! A batch in Python, and the memory of its tensors.
//!
//! A slot returns to its ring when the last tensor of its batch is gone, whoever holds it and on
//! whichever thread. A script that keeps more batches than the loader can spare slots gets copies
//! instead: this costs memory, but never blocks. Batches on a GPU are never copied: a script that keeps
//! all of them gets an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bothends_core::ids::Prong;
use bothends_core::tensor::{Dtype, Layout, Output, SampleShape};
use bothends_runtime::{
    Batch as Delivered, BatchHeader, FieldColumn, FieldKind, GpuBatch, GpuTarget, Home,
    Number, Row, Sources,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList};

use crate::array::Array;
use crate::errors::raised;
use crate::memory::{Held, Lease, Loan, Memory};
use crate::view::{Element, View};

/// What all batches of a loader share.
#[derive(Clone)]
pub(crate) struct Form {
    pub(crate) views: Arc<[SampleShape]>,
    pub(crate) output: Output,
    /// Slots that Python holds now.
    pub(crate) held: Arc<AtomicUsize>,
    /// How many it may hold.
    pub(crate) may_hold: usize,
    /// The GPU that batches are on, or for which their slots are pinned.
    pub(crate) gpu: Option<GpuTarget>,
    pub(crate) home: Home,
    /// The data sets, where several are mixed.
    pub(crate) sources: Option<Arc<Sources>>,
}

impl Form {
    fn element(&self) -> Element {
        match self.output.dtype {
            Dtype::U8 => Element::U8,
            Dtype::F32 => Element::F32,
            Dtype::F16 => Element::F16,
            Dtype::Bf16 => Element::Bf16,
        }
    }

    /// A batch as Python gets it.
    pub(crate) fn batch(&self, batch: Delivered) -> Batch {
        let header = BatchHeader::clone(&batch);
        let is_free = self.held.load(Ordering::Relaxed) < self.may_hold;
        let held = Held::new(batch, &self.held);
        let memory = match is_free {
            true => Memory::Slot(Lease::new(held, self.gpu.clone(), self.home)),
            false => Memory::of(held.batch().bytes()),
        };
        self.batch_in(memory, header)
    }

    /// A batch on a GPU as Python gets it.
    pub(crate) fn gpu_batch(&self, batch: GpuBatch) -> Batch {
        let header = BatchHeader::clone(&batch);
        self.batch_in(Memory::Gpu(Loan::new(batch, self.home)), header)
    }

    fn batch_in(&self, memory: Memory, header: BatchHeader) -> Batch {
        let (form, memory) = (self.clone(), Arc::new(memory));
        Batch { form, memory, header, small: Small::new() }
    }

    /// Returns the memory that the GPU no longer uses; true if it still uses some.
    pub(crate) fn sweep(&self) -> bool {
        self.gpu.as_ref().is_some_and(|gpu| gpu.sweep() > 0)
    }
}

/// A delivered batch: its tensors, and information about its rows.
#[pyclass(frozen, module = "bothends._native")]
pub(crate) struct Batch {
    form: Form,
    memory: Arc<Memory>,
    header: BatchHeader,
    small: Small,
}

/// The arrays with a few bytes per row, each made once, on first use.
struct Small {
    labels: PyOnceLock<Py<Array>>,
    sample_ids: PyOnceLock<Py<Array>>,
    sources: PyOnceLock<Py<Array>>,
    mask: PyOnceLock<Py<Array>>,
}

impl Small {
    fn new() -> Self {
        Self {
            labels: PyOnceLock::new(),
            sample_ids: PyOnceLock::new(),
            sources: PyOnceLock::new(),
            mask: PyOnceLock::new(),
        }
    }
}

#[pymethods]
impl Batch {
    /// The images: one tensor for each view of a sample, rows × channels × height × width or
    /// rows × height × width × channels.
    #[getter]
    fn views(&self) -> Vec<Array> {
        if let Some(starts) = self.header.row_starts() {
            let len = count(starts.last().copied().unwrap_or(0));
            let view = View::dense(Element::U8, vec![len]);
            return vec![Array { memory: Arc::clone(&self.memory), view }];
        }
        let element = self.form.element();
        let row = count(self.header.sample_bytes() / element.size());
        let mut offset = 0;
        let views = self.form.views.iter().zip(self.header.view_bytes());
        views
            .map(|(shape, bytes)| {
                let [h, w, c] =
                    [shape.height, shape.width, shape.channels].map(i64::from);
                let n = count(self.header.rows().len());
                let shape = match self.form.output.layout {
                    Layout::Nhwc => vec![n, h, w, c],
                    Layout::Nchw => vec![n, c, h, w],
                };
                let view = View::dense(element, shape).strided(row, offset);
                offset += bytes;
                Array { memory: Arc::clone(&self.memory), view }
            })
            .collect()
    }

    /// Where each row begins in the only view, and where the last one ends, int64, if each is of its own
    /// length.
    #[getter]
    fn row_starts(&self) -> Option<Array> {
        let starts = self.header.row_starts()?;
        Some(integers(starts.iter().map(|start| count(*start))))
    }

    /// The further fields by name: a list of str or bytes; an array; or an array of all values and where each
    /// row begins in it and the last one ends.
    #[getter]
    fn fields(&self, py: Python<'_>) -> PyResult<Vec<(String, Py<PyAny>)>> {
        let fields = self.header.fields().iter();
        fields.map(|field| Ok((field.name().to_owned(), value(py, field)?))).collect()
    }

    /// Each row's class, int64; -1 in masked rows.
    #[getter]
    fn labels(&self, py: Python<'_>) -> PyResult<Py<Array>> {
        let labels = || integers(self.header.rows().iter().map(|row| row.label.0));
        once(py, &self.small.labels, labels)
    }

    /// Each row's sample id, int64; -1 in masked rows.
    #[getter]
    fn sample_ids(&self, py: Python<'_>) -> PyResult<Py<Array>> {
        let id = |row: &Row| row.sample.and_then(|id| i64::try_from(id.0).ok());
        let ids = || integers(self.header.rows().iter().map(|row| id(row).unwrap_or(-1)));
        once(py, &self.small.sample_ids, ids)
    }

    /// The data set of each row's sample, int64: 0 without a mix, -1 in masked rows.
    #[getter]
    fn sources(&self, py: Python<'_>) -> PyResult<Py<Array>> {
        let sources = self.form.sources.as_deref();
        let of = |id| sources.map_or(0, |sources| count(sources.of(id)));
        let of_row = |row: &Row| row.sample.map_or(-1, of);
        let of_rows = || integers(self.header.rows().iter().map(of_row));
        once(py, &self.small.sources, of_rows)
    }

    /// Which rows hold a sample, bool.
    #[getter]
    fn mask(&self, py: Python<'_>) -> PyResult<Py<Array>> {
        once(py, &self.small.mask, || {
            let rows = self.header.rows().iter();
            let valid: Vec<u8> = rows.map(|row| row.sample.is_some().into()).collect();
            own(Element::Bool, vec![count(valid.len())], &valid)
        })
    }

    /// Rows that hold a sample.
    #[getter]
    fn n_valid(&self) -> u32 {
        self.header.n_valid()
    }

    /// Its place in the plan, from 0.
    #[getter]
    fn index(&self) -> u32 {
        self.header.index.0
    }

    /// Who made it: "host", or the device's place in csds. The bytes do not depend on it.
    #[getter]
    fn prong(&self) -> String {
        match self.header.prong {
            Prong::Front => "host".to_owned(),
            Prong::Back(device) => format!("csd{}", device.0),
        }
    }

    /// Shares of classes, float32, rows × n_classes: 1 at the row's class, or the shares of the two
    /// from which it was mixed.
    fn soft_labels(&self, py: Python<'_>, n_classes: usize) -> PyResult<Array> {
        let mut shares = vec![0.0_f32; self.header.rows().len() * n_classes];
        self.header
            .soft_labels(n_classes, &mut shares)
            .map_err(|error| raised(py, &error))?;
        let bytes: Vec<u8> =
            shares.iter().flat_map(|share| share.to_ne_bytes()).collect();
        let shape = vec![count(self.header.rows().len()), count(n_classes)];
        Ok(own(Element::F32, shape, &bytes))
    }

    fn __len__(&self) -> usize {
        self.header.rows().len()
    }
}

/// A field's values as Python gets them.
fn value(py: Python<'_>, field: &FieldColumn) -> PyResult<Py<PyAny>> {
    let values = (0..field.ends().len()).map(|row| field.value(row));
    let number = match field.kind() {
        FieldKind::Text => {
            let texts = values.map(|value| String::from_utf8_lossy(value));
            return Ok(PyList::new(py, texts.collect::<Vec<_>>())?.into_any().unbind());
        }
        FieldKind::Bytes => {
            let values = values.map(|value| PyBytes::new(py, value));
            return Ok(PyList::new(py, values.collect::<Vec<_>>())?.into_any().unbind());
        }
        FieldKind::Numbers(number) => number,
    };
    let n_rows = count(field.ends().len());
    let len = count(field.bytes().len() / number.size());
    let shape = match field.shape() {
        Some(shape) => {
            let sides = shape.iter().map(|side| i64::from(*side));
            [n_rows].into_iter().chain(sides).collect()
        }
        None => vec![len],
    };
    let array = Py::new(py, own(element(number), shape, field.bytes()))?;
    if field.shape().is_some() {
        return Ok(array.into_any());
    }
    let ends = field
        .ends()
        .iter()
        .map(|end| count(usize::try_from(*end).unwrap_or(usize::MAX) / number.size()));
    let starts = Py::new(py, integers([0].into_iter().chain(ends)))?;
    Ok((array, starts).into_pyobject(py)?.into_any().unbind())
}

fn element(number: Number) -> Element {
    match number {
        Number::Bool => Element::Bool,
        Number::U8 => Element::U8,
        Number::I8 => Element::I8,
        Number::U16 => Element::U16,
        Number::I16 => Element::I16,
        Number::U32 => Element::U32,
        Number::I32 => Element::I32,
        Number::U64 => Element::U64,
        Number::I64 => Element::I64,
        Number::F16 => Element::F16,
        Number::F32 => Element::F32,
        Number::F64 => Element::F64,
    }
}

/// The array that is kept there; the same object every time.
fn once(
    py: Python<'_>,
    kept: &PyOnceLock<Py<Array>>,
    make: impl FnOnce() -> Array,
) -> PyResult<Py<Array>> {
    Ok(kept.get_or_try_init(py, || Py::new(py, make()))?.clone_ref(py))
}

fn integers(numbers: impl Iterator<Item = i64>) -> Array {
    let bytes: Vec<u8> = numbers.flat_map(i64::to_ne_bytes).collect();
    own(Element::I64, vec![count(bytes.len() / size_of::<i64>())], &bytes)
}

fn own(element: Element, shape: Vec<i64>, bytes: &[u8]) -> Array {
    let memory = Arc::new(Memory::of(bytes));
    Array { memory, view: View::dense(element, shape) }
}

/// A length as DLPack counts it.
fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
