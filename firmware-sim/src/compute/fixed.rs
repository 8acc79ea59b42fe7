//! Fixed-function logic: a sample takes its pixels at the lane's pixel rate, or its bytes at
//! the memory's bandwidth, whichever is longer.

use bothends_agent::SampleWork;

use crate::media::transfer_ns;

/// Bytes of a decoded pixel in the device's memory.
const PIXEL_BYTES: u64 = 3;

/// The constants of fixed-function lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedConfig {
    /// Lanes that work side by side.
    pub n_lanes: u32,
    /// Source pixels per second of one lane.
    pub pixels_per_s: u64,
    /// Bytes per second of the memory that holds records and pixels, per lane.
    pub memory_bytes_per_s: u64,
}

impl FixedConfig {
    /// How long a lane works on a sample.
    pub(super) fn work_ns(&self, sample: &SampleWork) -> u64 {
        let bytes = u64::from(sample.extent.len)
            .saturating_add(sample.source_pixels.saturating_mul(PIXEL_BYTES))
            .saturating_add(u64::from(sample.output_bytes));
        let pixels_ns = transfer_ns(sample.source_pixels, self.pixels_per_s);
        pixels_ns.max(transfer_ns(bytes, self.memory_bytes_per_s))
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::sample::{Extent, FileIdx};

    use super::*;
    use crate::compute::{Compute, ComputeConfig};

    #[test]
    fn the_slower_of_pixels_and_memory_counts() {
        let extent = Extent { file: FileIdx(0), offset: 0, len: 100 };
        let sample =
            SampleWork { extent, source_pixels: 1000, cpu_ns: 77, output_bytes: 900 };
        let lanes = |pixels_per_s, memory_bytes_per_s| {
            let config = FixedConfig { n_lanes: 1, pixels_per_s, memory_bytes_per_s };
            Compute::new(ComputeConfig::Fixed(config)).run(0, &sample, 1000).end_ns
        };
        assert_eq!(lanes(200_000_000, 19_000_000_000), 5000, "1000 pixels at 200 M/s");
        assert_eq!(lanes(1_000_000_000, 1_000_000_000), 4000, "100 + 3000 + 900 bytes");
    }
}
