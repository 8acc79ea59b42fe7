//! Where a device sits in the machine: what Linux says in its pseudo files.
//!
//! Reads two small files and decides nothing.

use std::fs;
use std::path::PathBuf;

/// Where the pseudo file systems are mounted; elsewhere in tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// `/sys`.
    pub sys: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into() }
    }
}

impl Places {
    /// The NUMA node of the PCI function `bus_id` (`0000:1B:00.0`, as CUDA writes it);
    /// `None` where the system does not say, as most virtual machines do (-1).
    #[must_use]
    pub fn numa_node(&self, bus_id: &str) -> Option<u32> {
        let devices = self.sys.join("bus/pci/devices");
        let node = devices.join(bus_id.to_lowercase()).join("numa_node");
        fs::read_to_string(node).ok()?.trim().parse().ok()
    }

    /// The kernel module's version: `580.95.05`.
    #[must_use]
    pub fn kernel_module(&self) -> Option<String> {
        let text = fs::read_to_string(self.proc.join("driver/nvidia/version")).ok()?;
        let is_version = |word: &&str| {
            word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.')
        };
        text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_and_the_module_are_read() {
        let root = tempfile::tempdir().unwrap();
        let places = Places { sys: root.path().join("sys"), proc: root.path().into() };
        assert_eq!(places.numa_node("0000:1B:00.0"), None);
        assert_eq!(places.kernel_module(), None);
        let device = places.sys.join("bus/pci/devices/0000:1b:00.0");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("numa_node"), "1\n").unwrap();
        assert_eq!(places.numa_node("0000:1B:00.0"), Some(1));
        fs::write(device.join("numa_node"), "-1\n").unwrap();
        assert_eq!(places.numa_node("0000:1B:00.0"), None);
        let driver = root.path().join("driver/nvidia");
        fs::create_dir_all(&driver).unwrap();
        let line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  \
                    Release Build\nGCC version: 12.2.0\n";
        fs::write(driver.join("version"), line).unwrap();
        assert_eq!(places.kernel_module().as_deref(), Some("580.95.05"));
    }
}
