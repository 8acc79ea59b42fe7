//! A medium described only by a latency and a bandwidth: an array of disks, a volume.
//!
//! Reads share the bandwidth one after the other; latencies overlap.

use bothends_core::sample::Extent;

use super::{Fetched, transfer_ns};

/// The constants of a flat medium.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlatConfig {
    /// From request to first byte, in nanoseconds.
    pub latency_ns: u64,
    /// Bytes per second, all reads together.
    pub bytes_per_s: u64,
}

/// A flat medium in use.
#[derive(Debug)]
pub struct Flat {
    config: FlatConfig,
    free_ns: u64,
}

impl Flat {
    /// A medium that has not been used yet.
    #[must_use]
    pub fn new(config: FlatConfig) -> Self {
        Self { config, free_ns: 0 }
    }

    /// Reads `extent`, asked for at `at_ns`.
    pub fn read(&mut self, at_ns: u64, extent: Extent) -> Fetched {
        self.fetch(at_ns, extent.len.into())
    }

    /// Reads or writes `bytes`, asked for at `at_ns`.
    pub fn fetch(&mut self, at_ns: u64, bytes: u64) -> Fetched {
        let busy_ns = transfer_ns(bytes, self.config.bytes_per_s);
        let start_ns = self.free_ns.max(at_ns.saturating_add(self.config.latency_ns));
        self.free_ns = start_ns.saturating_add(busy_ns);
        Fetched { ready_ns: self.free_ns, busy_ns }
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::sample::FileIdx;

    use super::*;

    #[test]
    fn latencies_overlap_and_bandwidth_is_shared() {
        let mut flat =
            Flat::new(FlatConfig { latency_ns: 100, bytes_per_s: 1_000_000_000 });
        let kilobyte = Extent { file: FileIdx(0), offset: 0, len: 1000 };
        assert_eq!(flat.read(0, kilobyte), Fetched { ready_ns: 1100, busy_ns: 1000 });
        assert_eq!(flat.read(0, kilobyte).ready_ns, 2100);
        assert_eq!(flat.read(5000, kilobyte).ready_ns, 6100, "idle in between");
    }
}
