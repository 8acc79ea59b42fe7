//! Converts errors of the runtime to Python's: the class, the line, the attributes. The classes are in
//! `python/bothends/_errors.py`.

use bothends_core::setting::Setting;
use bothends_runtime::{ErrorKind, RuntimeError, one_line_with};
use pyo3::prelude::*;

/// An error of the runtime as a Python exception.
pub(crate) fn raised(py: Python<'_>, error: &RuntimeError) -> PyErr {
    let line = one_line_with(error, name);
    let made = || {
        let classes = py.import("bothends._errors")?;
        let raised = classes.getattr(class_of(error))?.call1((&line,))?;
        describe(&raised, error)?;
        Ok(PyErr::from_value(raised))
    };
    made().unwrap_or_else(|other: PyErr| other)
}

/// The name of a setting in Python, where options are keywords and a loader's methods are PyTorch's.
pub(crate) fn name(setting: Setting) -> &'static str {
    if setting == Setting::SaveState {
        "state_dict"
    } else if setting == Setting::LoadState {
        "load_state_dict"
    } else {
        setting.key()
    }
}

/// Raised instead of a batch once a loader was told to stop.
pub(crate) fn stopped(py: Python<'_>) -> PyErr {
    let line =
        "the loader was told to stop; save its state_dict(), and continue from it later";
    let made = || {
        let classes = py.import("bothends._errors")?;
        Ok(PyErr::from_value(classes.getattr("Stopped")?.call1((line,))?))
    };
    made().unwrap_or_else(|other: PyErr| other)
}

fn class_of(error: &RuntimeError) -> &'static str {
    match error.kind() {
        ErrorKind::Options => "OptionsError",
        ErrorKind::Data => "DataError",
        ErrorKind::Sample => "BadSampleError",
        ErrorKind::Device => "DeviceError",
        ErrorKind::Starved => "StarvedError",
        ErrorKind::Forked => "ForkError",
        ErrorKind::State => "StateError",
        ErrorKind::Ended | ErrorKind::System | ErrorKind::Bug => "Error",
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the others say all in their line")]
fn describe(raised: &Bound<'_, PyAny>, error: &RuntimeError) -> PyResult<()> {
    match error {
        RuntimeError::BadSample { sample, file, why, found_by } => {
            raised.setattr("sample", sample.0)?;
            raised.setattr("file", file)?;
            raised.setattr("why", why)?;
            raised.setattr("prong", found_by)
        }
        RuntimeError::Gpu { gpu: device, .. }
        | RuntimeError::Device { device, .. }
        | RuntimeError::EmptyPool { device }
        | RuntimeError::Untrusted { device, .. }
        | RuntimeError::Spawn { spec: device, .. } => raised.setattr("device", device),
        _ => Ok(()),
    }
}
