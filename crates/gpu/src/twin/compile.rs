//! Compiles the kernels for the CPU with the machine's C++ compiler, once per state of the
//! sources. For tests and tools: no release has or needs this library. Read `library.rs` next.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::sources::{self, For};
use crate::GpuError;

/// What makes of C++ what CUDA means: signed numbers wrap, nothing is fused or assumed.
const FLAGS: [&str; 9] = [
    "-std=c++17",
    "-O2",
    "-fwrapv",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-DBOTHENDS_CPU",
];

/// The shared library with the kernels, compiled where that has not been done already. Blocks
/// for seconds in that case; of several processes one compiles and the others wait.
///
/// # Errors
/// [`GpuError::Unavailable`] where there is no C++ compiler; [`GpuError::Driver`] where it fails,
/// with what it said.
pub fn library() -> Result<PathBuf, GpuError> {
    let digest = sources::digest(For::Cpu).map_err(|error| failed(&error))?;
    let folder = build_folder().map_err(|error| failed(&error))?;
    let path = folder.join(format!("libbothends_kernels_cpu-{digest:016x}.so"));
    if path.exists() {
        return Ok(path);
    }
    fs::create_dir_all(&folder).map_err(|error| failed(&error))?;
    let lock = File::create(folder.join("lock")).map_err(|error| failed(&error))?;
    lock.lock().map_err(|error| failed(&error))?;
    if !path.exists() {
        compile(&path)?;
    }
    Ok(path)
}

fn compile(path: &Path) -> Result<(), GpuError> {
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let made = path.with_extension("unfinished");
    let output = Command::new(&compiler)
        .args(FLAGS)
        .arg(sources::folder().join("cpu").join("library.cpp"))
        .arg("-o")
        .arg(&made)
        .output();
    let output = match output {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let why = format!("there is no C++ compiler `{compiler}` for its CPU twin");
            return Err(GpuError::Unavailable { why });
        }
        Err(error) => return Err(failed(&error)),
        Ok(output) => output,
    };
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr)));
    }
    // `io` renames everywhere else (`bothends_io::write_beside`), and this crate may not import it: a GPU's driver
    // knows no files of the host's. The compiler writes this one, and the lock keeps others from it.
    fs::rename(&made, path).map_err(|error| failed(&error))
}

/// A folder next to the running program, which Cargo put into `deps` or `examples` of its
/// target folder's profile, or one up.
fn build_folder() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let is_inner = |name: &OsStr| name == "deps" || name == "examples";
    let mut folder = program.parent().unwrap_or(Path::new("."));
    if folder.file_name().is_some_and(is_inner) {
        folder = folder.parent().unwrap_or(folder);
    }
    Ok(folder.join("kernels-cpu"))
}

fn failed(why: &impl ToString) -> GpuError {
    GpuError::Driver { call: "c++", why: why.to_string() }
}
