//! Samples that Python lists: files, parts of files, or bytes that a Python function returns.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bothends_runtime::{
    Records, Redecode, Redecoder, RuntimeError, Supplied, SuppliedFile, Unread,
};
use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

/// A list of samples with which a loader is opened. It keeps no file open and reads none.
#[pyclass(frozen, module = "bothends._native")]
pub(crate) struct Samples {
    root: String,
    kind: Kind,
    labels: Vec<u32>,
}

enum Kind {
    Files { paths: Vec<String>, extents: Option<Vec<(u64, u32)>> },
    Fetched(Arc<Fetch>),
}

/// A Python function that returns bytes.
struct Fetch {
    function: Py<PyAny>,
}

#[pymethods]
impl Samples {
    /// Samples in files below `root`: whole files, or the `extents` (offset, length) of them.
    #[staticmethod]
    fn files(
        root: String,
        paths: Vec<String>,
        extents: Option<Vec<(u64, u32)>>,
        labels: Vec<u32>,
    ) -> PyResult<Self> {
        let n = paths.len();
        if labels.len() != n || extents.as_ref().is_some_and(|extents| extents.len() != n)
        {
            let line = "paths, extents and labels must be equally many";
            return Err(pyo3::exceptions::PyValueError::new_err(line));
        }
        Ok(Self { root, kind: Kind::Files { paths, extents }, labels })
    }

    /// Samples whose bytes `function(i)` returns; `name` is their name in messages. The loader's own
    /// threads call it, several at a time.
    #[staticmethod]
    fn fetched(name: String, labels: Vec<u32>, function: Py<PyAny>) -> Self {
        let fetch = Arc::new(Fetch { function });
        Self { root: name, kind: Kind::Fetched(fetch), labels }
    }

    fn __len__(&self) -> usize {
        self.labels.len()
    }
}

impl Samples {
    /// Gets the length of each whole file.
    pub(crate) fn supplied(&self) -> Result<Supplied, RuntimeError> {
        match &self.kind {
            Kind::Fetched(fetch) => {
                let records = Arc::clone(fetch) as Arc<dyn Records>;
                Supplied::records(&self.root, &self.labels, records)
            }
            Kind::Files { paths, extents } => {
                let file = |i: usize| SuppliedFile {
                    path: &paths[i],
                    extent: extents.as_ref().map(|extents| extents[i]),
                    label: self.labels[i],
                };
                Supplied::files(Path::new(&self.root), (0..paths.len()).map(file))
            }
        }
    }
}

/// A Python function as the decoder of last resort.
pub(crate) fn redecoder(function: Py<PyAny>) -> Redecoder {
    Arc::new(Fetch { function })
}

impl Redecode for Fetch {
    fn redecode(&self, record: &[u8]) -> Result<Vec<u8>, String> {
        Python::attach(|py| {
            let given = self.function.bind(py).call1((PyBytes::new(py, record),));
            let bytes = given.and_then(|given| Ok(given.extract::<PyBackedBytes>()?));
            bytes.map(|bytes| bytes.to_vec()).map_err(|error| error.to_string())
        })
    }
}

impl Records for Fetch {
    fn read(&self, sample: u64) -> Result<Vec<u8>, Unread> {
        Python::attach(|py| {
            let failed = |error: PyErr| {
                Unread::new(format!("it cannot be fetched ({error})"), errno(py, &error))
            };
            let given = self.function.bind(py).call1((sample,)).map_err(failed)?;
            let bytes: PyBackedBytes =
                given.extract().map_err(|error| failed(PyErr::from(error)))?;
            Ok(bytes.to_vec())
        })
    }
}

/// The errno that an exception stands for, if it is an error of the system.
fn errno(py: Python<'_>, error: &PyErr) -> Option<i32> {
    /// errno(3), as Linux and macOS number it.
    const ENOMEM: i32 = 12;
    match error.is_instance_of::<PyMemoryError>(py) {
        true => Some(ENOMEM),
        false if !error.is_instance_of::<PyOSError>(py) => None,
        false => error.value(py).getattr("errno").ok()?.extract().ok(),
    }
}

impl fmt::Debug for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetch").finish_non_exhaustive()
    }
}
