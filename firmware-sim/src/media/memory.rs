//! The device's own memory: a bandwidth that all who read and write it share.

use super::{Timeline, transfer_ns};

/// The constants of the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Bytes per second, reads and writes together.
    pub bytes_per_s: u64,
    /// Firmware latency of a command to memory, in nanoseconds.
    pub firmware_ns: u64,
}

/// Memory in use. Without constants it takes no time.
#[derive(Debug)]
pub struct Memory {
    config: Option<MemoryConfig>,
    busy: Timeline,
}

impl Memory {
    /// Memory that has not been used yet.
    #[must_use]
    pub fn new(config: Option<MemoryConfig>) -> Self {
        Self { config, busy: Timeline::default() }
    }

    /// Firmware latency of a command, in nanoseconds.
    #[must_use]
    pub fn firmware_ns(&self) -> u64 {
        self.config.as_ref().map_or(0, |config| config.firmware_ns)
    }

    /// Reads or writes `bytes` from `at_ns` on; says when it began and when it ended.
    pub fn access(&mut self, at_ns: u64, bytes: u64) -> (u64, u64) {
        let Some(config) = &self.config else { return (at_ns, at_ns) };
        let len_ns = transfer_ns(bytes, config.bytes_per_s);
        let begin_ns = self.busy.reserve(at_ns, len_ns);
        (begin_ns, begin_ns.saturating_add(len_ns))
    }

    /// See [`super::Media::forget_before`].
    pub fn forget_before(&mut self, at_ns: u64) {
        self.busy.forget_before(at_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_share_the_bandwidth_and_without_constants_are_free() {
        let config = MemoryConfig { bytes_per_s: 1_000_000_000, firmware_ns: 9 };
        let mut memory = Memory::new(Some(config));
        assert_eq!(memory.access(0, 100), (0, 100));
        assert_eq!(memory.access(0, 100), (100, 200));
        assert_eq!(Memory::new(None).access(5, 1 << 30), (5, 5));
    }
}
