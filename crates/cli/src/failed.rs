//! Why a command did not succeed, and so its exit status. What is said of it is `main.rs`'s.

use std::fmt::Display;
use std::io;
use std::path::Path;

use bothends_bench::BenchError;
use bothends_runtime::RuntimeError;

use crate::flags::one_line;
use crate::signals::Signal;

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The arguments make no sense: status 2.
    Arguments(String),
    /// The run failed: status 1.
    Run(anyhow::Error),
    /// A signal ended the run, which said all it had to say: status 128 and the signal's number.
    Stopped {
        /// The signal.
        signal: Signal,
        /// How far it came, and how to go on.
        where_to: String,
    },
}

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        let error = error.into();
        if is_of_arguments(&error) {
            return Self::Arguments(one_line(&error));
        }
        Self::Run(error)
    }
}

/// Whether an error speaks of numbers and names as they were typed: some make no sense only
/// together with the data.
fn is_of_arguments(error: &anyhow::Error) -> bool {
    let of_run = matches!(
        error.downcast_ref(),
        Some(
            RuntimeError::Plan(_)
                | RuntimeError::Memory { .. }
                | RuntimeError::Workers { .. }
                | RuntimeError::DeviceSpec { .. }
        )
    );
    let of_bench = matches!(
        error.downcast_ref(),
        Some(
            BenchError::NoSuchOp { .. }
                | BenchError::NotAlone { .. }
                | BenchError::PeersStart { .. }
                | BenchError::NoPython { .. }
        )
    );
    of_run || of_bench
}

/// What a wrong argument says.
pub(crate) fn wrong(error: impl Display) -> Failed {
    Failed::Arguments(error.to_string())
}

/// A place to write that is none.
pub(crate) fn cannot_write(path: &Path, error: &io::Error) -> Failed {
    Failed::Run(anyhow::anyhow!("cannot write {}: {error}", path.display()))
}
