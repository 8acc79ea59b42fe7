//! The kernels' sources, as files: which there are, and a digest that tells whether something
//! made of them is still what they give. Only tests and tools read them. Read `compile.rs` next.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the sources lie in a checkout.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
}

/// Who the sources are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// What GPUs run: `*.cu` and `*.cuh`, but for the folder `cpu`.
    Gpu,
    /// All of that, and the folder `cpu`, which makes a program of the CPU of it.
    Cpu,
}

/// A digest of the names and texts of the sources: 64-bit FNV-1a, because
/// `scripts/build_kernels.py` computes the same and nobody forges kernels.
///
/// # Errors
/// What reading the files gives.
pub fn digest(of: For) -> io::Result<u64> {
    let folder = folder();
    let mut names = Vec::new();
    collect(&folder, "", &mut names)?;
    names.retain(|name| is_wanted(name, of));
    names.sort_unstable();
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for name in names {
        let text = fs::read(folder.join(&name))?;
        for part in [name.as_bytes(), &text] {
            hash = part.iter().chain(&[0]).fold(hash, |hash: u64, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
            });
        }
    }
    Ok(hash)
}

fn is_wanted(name: &str, of: For) -> bool {
    let is_gpus =
        (name.ends_with(".cu") || name.ends_with(".cuh")) && !name.starts_with("cpu/");
    match of {
        For::Gpu => is_gpus,
        For::Cpu => is_gpus || name.starts_with("cpu/"),
    }
}

/// Names of all files below a folder, with `/`.
fn collect(folder: &Path, prefix: &str, names: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), names)?;
        } else {
            names.push(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_ptx_is_of_these_sources() {
        let ptx = fs::read_to_string(folder().join("bothends.ptx")).unwrap();
        let says = ptx.lines().next().unwrap();
        let is = format!("// sources {:016x}", digest(For::Gpu).unwrap());
        assert_eq!(says, is, "kernels/bothends.ptx is stale: run scripts/build-kernels");
    }

    #[test]
    fn every_kernel_is_in_the_ptx() {
        let ptx = fs::read_to_string(folder().join("bothends.ptx")).unwrap();
        let mut names = Vec::new();
        collect(&folder(), "", &mut names).unwrap();
        names.retain(|name| is_wanted(name, For::Gpu) && name != "device.cuh");
        let mut n_kernels = 0;
        for name in names {
            let text = fs::read_to_string(folder().join(&name)).unwrap();
            for line in text.lines() {
                let Some((_, rest)) = line.split_once("KERNEL(") else { continue };
                let Some(kernel) = rest.split(", ").nth(1) else { continue };
                if line.starts_with("KERNEL(") {
                    n_kernels += 1;
                    let entry = format!(".visible .entry {kernel}(");
                    assert!(ptx.contains(&entry), "{kernel} of {name} is not in the PTX");
                }
            }
        }
        assert!(n_kernels > 0, "no kernel was looked for");
    }
}
