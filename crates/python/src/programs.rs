//! The programs `bothends`, `bothends-agent` and `firmware-sim`, which share most of their code with the
//! loader: a wheel has it once. What a process of Python has to be first is `_programs.py`'s.

#![allow(clippy::exit, reason = "the process is the program from here on")]

use std::ffi::OsString;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Is the program `name` until it ends, and then ends the process. The first of `args` is what messages
/// call it.
#[pyfunction]
pub(crate) fn run_program(
    py: Python<'_>,
    name: &str,
    args: Vec<OsString>,
) -> PyResult<()> {
    let status = py.detach(|| {
        Some(match name {
            "bothends" => bothends_cli::main(
                args,
                &[
                    bothends_agent::program::command(),
                    bothends_firmware_sim::program::command(),
                ],
            ),
            "bothends-agent" => bothends_agent::program::main(args),
            "firmware-sim" => bothends_firmware_sim::program::main(args),
            _ => return None,
        })
    });
    match status {
        // Not by way of Python, which has nothing to finish: a confined agent may not do what it does then.
        Some(status) => std::process::exit(status.into()),
        None => Err(PyValueError::new_err(format!("there is no program `{name}`"))),
    }
}
