//! Models of the storage media: how long until the bytes of a record are in the device's memory.
//!
//! A model is a pure function of its state, the request and the time of the request, in integer
//! nanoseconds; requests come in order. No byte is read here. Read `media/nand.rs` for flash that is only
//! read, `media/flash.rs` for flash as a drive with blocks, which are also written, and `media/flat.rs` for
//! anything described only by latency and bandwidth. `media/memory.rs` is the device's memory.

mod flash;
mod flat;
mod ftl;
mod memory;
mod nand;
mod timeline;

pub use flash::{Flash, WritesConfig};
pub use flat::{Flat, FlatConfig};
pub use ftl::{Collected, PlaneGeometry, PlaneMap};
pub use memory::{Memory, MemoryConfig};
pub use nand::{Nand, NandConfig};
pub use timeline::Timeline;

use bothends_core::sample::Extent;

/// Which medium, with its constants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaConfig {
    /// Records are there at once.
    Instant,
    /// One latency and one bandwidth.
    Flat(FlatConfig),
    /// Channels, dies and pages.
    Nand(NandConfig),
}

/// Bytes of a block of a drive, and of the unit in which flash is mapped.
const BLOCK_BYTES: u64 = 4096;

/// Blocks of a drive that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// The first.
    pub first: u64,
    /// How many.
    pub n: u64,
}

impl Blocks {
    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.n.saturating_mul(BLOCK_BYTES)
    }
}

/// A part of what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// When it had left the medium.
    pub ready_ns: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// For how long parts of the medium were busy, summed over the parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MediaBusy {
    /// As they read.
    pub read_ns: u64,
    /// As they programmed.
    pub program_ns: u64,
    /// As they erased.
    pub erase_ns: u64,
}

/// A medium in use.
#[derive(Debug)]
pub enum Media {
    /// See [`MediaConfig::Instant`].
    Instant,
    /// See [`MediaConfig::Flat`].
    Flat(Flat),
    /// See [`MediaConfig::Nand`].
    Nand(Nand),
}

/// How a read went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetched {
    /// When the last byte was in the device's memory.
    pub ready_ns: u64,
    /// For how long parts of the medium were busy, summed over the parts: what its active
    /// power is paid for.
    pub busy_ns: u64,
}

impl Media {
    /// A medium that has not been used yet.
    #[must_use]
    pub fn new(config: MediaConfig) -> Self {
        match config {
            MediaConfig::Instant => Self::Instant,
            MediaConfig::Flat(config) => Self::Flat(Flat::new(config)),
            MediaConfig::Nand(config) => Self::Nand(Nand::new(config)),
        }
    }

    /// Reads `extent`, asked for at `at_ns`.
    pub fn read(&mut self, at_ns: u64, extent: Extent) -> Fetched {
        match self {
            Self::Instant => Fetched { ready_ns: at_ns, busy_ns: 0 },
            Self::Flat(flat) => flat.read(at_ns, extent),
            Self::Nand(nand) => nand.read(at_ns, extent),
        }
    }

    /// Promises that no read will be asked for before `at_ns` any more.
    pub fn forget_before(&mut self, at_ns: u64) {
        if let Self::Nand(nand) = self {
            nand.forget_before(at_ns);
        }
    }
}

/// Nanoseconds that `bytes` take at `bytes_per_s`, rounded up.
///
/// `bytes_per_s` is at least 1; configurations see to that.
#[must_use]
pub fn transfer_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bytes_per_s.max(1)));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::transfer_ns;

    #[test]
    fn a_transfer_takes_bytes_over_bandwidth_rounded_up() {
        assert_eq!(transfer_ns(0, 1), 0);
        assert_eq!(transfer_ns(4096, 800_000_000), 5120);
        assert_eq!(transfer_ns(1, 3_000_000_000), 1);
        assert_eq!(transfer_ns(u64::MAX, 1), u64::MAX, "it saturates");
    }
}
