//! `bothends._native`: what the Python package cannot do in Python. It has no logic: only bindings of
//! `bothends_runtime::Loader`, and memory that Python sees without a copy.
//!
//! Reading order: `loader` (a loader and an epoch's consumers), `supplied` (samples that Python lists),
//! `batch` (a batch and its owners), `array` (one tensor of it), `dlpack` (how a tensor is shared),
//! `errors` (what Python catches), `programs` (the command line), `pool` (what many jobs have in common).
//! The Python half has names, defaults and frameworks (`python/bothends/_loader.py`). The GIL is released
//! in every wait.

mod errors;

mod array;
mod batch;
mod dlpack;
mod loader;
mod memory;
mod pool;
mod programs;
mod supplied;
mod view;

use pyo3::prelude::*;

/// The native half of `bothends`.
#[pymodule(gil_used = false)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::array::Array;
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::loader::{Consumer, NativeLoader, own_gpu, without_secrets};
    #[pymodule_export]
    use crate::pool::{PoolSize, together, wanted_agents};
    #[pymodule_export]
    use crate::programs::run_program;
    #[pymodule_export]
    use crate::supplied::Samples;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
