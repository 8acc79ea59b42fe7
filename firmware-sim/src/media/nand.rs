//! Flash: channels, dies on them, pages on dies. Dies and channels serve one request at a time.
//!
//! Reading a page waits for its die, senses the cells, then moves the bytes over the die's channel in
//! transfer units. The die stays busy until its last transfer ends, because the bytes wait in its register.
//! Firmware time only adds latency. Programming moves the bytes to the die first and then occupies it; erasing
//! occupies it alone. The structure follows the published description of NVMeVirt's
//! conventional SSD model (Kim et al., FAST 2023).
//!
//! A die may have several planes that work independently of each other; they share the die's channel. What a
//! write leads to is decided in `flash.rs` and `ftl.rs`.

use bothends_core::sample::{Extent, FileIdx};

use super::{Fetched, Timeline, transfer_ns};

/// Reads up to this many bytes of a page sense only a part of it.
const SMALL_READ_BYTES: u64 = 4096;

/// The constants of a flash medium. Sense times of the page types of a cell, in nanoseconds, are equal
/// where its source does not tell them apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NandConfig {
    /// Channels.
    pub n_channels: u32,
    /// Dies (logical units) on each channel.
    pub dies_per_channel: u32,
    /// Planes of each die that work independently; 1 if it is not given.
    pub planes_per_die: Option<u32>,
    /// Bytes of a flash page.
    pub page_bytes: u32,
    /// Bytes that a channel moves in one go.
    pub transfer_unit_bytes: u32,
    /// Bytes per second of one channel.
    pub channel_bytes_per_s: u64,
    /// Sensing at most 4 KiB of a page of the least significant bit.
    pub sense_small_lsb_ns: u64,
    /// The same of the most significant bit.
    pub sense_small_msb_ns: u64,
    /// The same of the bit between them, where cells have three.
    pub sense_small_csb_ns: Option<u64>,
    /// Sensing a whole page of the least significant bit.
    pub sense_page_lsb_ns: u64,
    /// The same of the most significant bit.
    pub sense_page_msb_ns: u64,
    /// The same of the bit between them, where cells have three.
    pub sense_page_csb_ns: Option<u64>,
    /// Firmware latency of a request of at most 4 KiB, in nanoseconds.
    pub firmware_small_ns: u64,
    /// Firmware latency of a longer request, in nanoseconds.
    pub firmware_large_ns: u64,
}

/// Planes that a medium may have, so that their state is small.
const MOST_PLANES: u64 = 4096;
/// Bytes that a channel moves in one go at least, so that a page is a bounded number of steps.
const LEAST_TRANSFER_BYTES: u32 = 512;

impl NandConfig {
    /// How many planes all dies have.
    fn n_planes(&self) -> u64 {
        let dies =
            u64::from(self.n_channels.max(1)) * u64::from(self.dies_per_channel.max(1));
        dies.saturating_mul(self.planes_per_die.unwrap_or(1).max(1).into())
    }

    /// Whether the constants fit together.
    ///
    /// # Errors
    /// What does not.
    pub(crate) fn fits(&self) -> Result<(), String> {
        let n = self.n_planes();
        if n > MOST_PLANES {
            return Err(format!(
                "`media.channels`, `.dies_per_channel` and `.planes_per_die` make {n} planes; at most \
                 {MOST_PLANES} can be emulated"
            ));
        }
        if self.transfer_unit_bytes < LEAST_TRANSFER_BYTES {
            return Err(format!(
                "`media.transfer_unit` is {} B; it must be at least {LEAST_TRANSFER_BYTES}",
                self.transfer_unit_bytes
            ));
        }
        if self.sense_small_csb_ns.is_some() != self.sense_page_csb_ns.is_some() {
            return Err(
                "give both `media.sense_4k_csb` and `media.sense_page_csb`, or neither"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// A flash medium in use.
#[derive(Debug)]
pub struct Nand {
    config: NandConfig,
    /// Of each plane; a die without planes of its own is one.
    plane_free_ns: Vec<u64>,
    channels: Vec<Timeline>,
}

/// A page of the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) plane: usize,
    pub(super) bit: Bit,
}

/// Which bit of its cells a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bit {
    Lsb,
    Csb,
    Msb,
}

impl Nand {
    /// A medium that has not been used yet.
    #[must_use]
    pub fn new(config: NandConfig) -> Self {
        let n_channels = config.n_channels.max(1) as usize;
        let n_planes = usize::try_from(config.n_planes()).unwrap_or(usize::MAX);
        Self {
            config,
            plane_free_ns: vec![0; n_planes],
            channels: vec![Timeline::default(); n_channels],
        }
    }

    /// Its constants.
    pub(super) fn config(&self) -> &NandConfig {
        &self.config
    }

    /// How many planes there are.
    pub(super) fn n_planes(&self) -> u64 {
        self.plane_free_ns.len() as u64
    }

    /// Reads `extent`, asked for at `at_ns`: its pages are striped over the planes.
    pub fn read(&mut self, at_ns: u64, extent: Extent) -> Fetched {
        let page_bytes = u64::from(self.config.page_bytes.max(1));
        let at_ns = at_ns.saturating_add(self.firmware_ns(extent.len.into()));
        let end = extent.offset.saturating_add(u64::from(extent.len));
        let mut fetched = Fetched { ready_ns: at_ns, busy_ns: 0 };
        let mut at = extent.offset;
        while at < end {
            let page_idx = at / page_bytes;
            let in_page = ((page_idx + 1).saturating_mul(page_bytes)).min(end) - at;
            let page = self.locate(extent.file, page_idx);
            let read = self.read_page(at_ns, page, in_page);
            fetched.ready_ns = fetched.ready_ns.max(read.ready_ns);
            fetched.busy_ns += read.busy_ns;
            at += in_page;
        }
        fetched
    }

    /// See [`super::Media::forget_before`].
    pub fn forget_before(&mut self, at_ns: u64) {
        for channel in &mut self.channels {
            channel.forget_before(at_ns);
        }
    }

    /// Firmware latency of a request to read.
    pub(super) fn firmware_ns(&self, bytes: u64) -> u64 {
        if bytes <= SMALL_READ_BYTES {
            self.config.firmware_small_ns
        } else {
            self.config.firmware_large_ns
        }
    }

    /// The bit that the `nth` page of a plane holds.
    pub(super) fn bit(&self, nth: u64) -> Bit {
        let has_csb = self.config.sense_page_csb_ns.is_some();
        match (has_csb, nth % if has_csb { 3 } else { 2 }) {
            (_, 0) => Bit::Lsb,
            (true, 1) => Bit::Csb,
            _ => Bit::Msb,
        }
    }

    /// Files begin on any plane and continue on the next ones, channel by channel.
    fn locate(&self, file: FileIdx, page_idx: u64) -> Page {
        let n_planes = self.n_planes();
        let round =
            n_planes * if self.config.sense_page_csb_ns.is_some() { 3 } else { 2 };
        let first = scatter(file.0) % round;
        let place = (first + page_idx % round) % round;
        let plane = usize::try_from(place % n_planes).unwrap_or(0);
        Page { plane, bit: self.bit(place / n_planes) }
    }

    fn sense_ns(&self, bit: Bit, bytes: u64) -> u64 {
        let config = &self.config;
        let is_small = bytes <= SMALL_READ_BYTES;
        match (bit, is_small) {
            (Bit::Lsb, true) => config.sense_small_lsb_ns,
            (Bit::Msb, true) => config.sense_small_msb_ns,
            (Bit::Lsb, false) => config.sense_page_lsb_ns,
            (Bit::Msb, false) => config.sense_page_msb_ns,
            (Bit::Csb, true) => {
                config.sense_small_csb_ns.unwrap_or(config.sense_small_msb_ns)
            }
            (Bit::Csb, false) => {
                config.sense_page_csb_ns.unwrap_or(config.sense_page_msb_ns)
            }
        }
    }

    /// Senses `bytes` of a page and moves them over its channel.
    pub(super) fn read_page(&mut self, at_ns: u64, page: Page, bytes: u64) -> Fetched {
        let sense_ns = self.sense_ns(page.bit, bytes);
        let start_ns = self.plane_free_ns[page.plane].max(at_ns);
        let end_ns = self.transfer(start_ns.saturating_add(sense_ns), page.plane, bytes);
        self.plane_free_ns[page.plane] = end_ns;
        Fetched { ready_ns: end_ns, busy_ns: end_ns - start_ns }
    }

    /// Moves `bytes` to a plane and programs them.
    pub(super) fn program(
        &mut self,
        at_ns: u64,
        plane: usize,
        bytes: u64,
        program_ns: u64,
    ) -> Fetched {
        let start_ns = self.plane_free_ns[plane].max(at_ns);
        let end_ns = self.transfer(start_ns, plane, bytes).saturating_add(program_ns);
        self.plane_free_ns[plane] = end_ns;
        Fetched { ready_ns: end_ns, busy_ns: end_ns - start_ns }
    }

    /// Occupies a plane alone, as erasing does.
    pub(super) fn occupy(&mut self, at_ns: u64, plane: usize, for_ns: u64) -> Fetched {
        let start_ns = self.plane_free_ns[plane].max(at_ns);
        let end_ns = start_ns.saturating_add(for_ns);
        self.plane_free_ns[plane] = end_ns;
        Fetched { ready_ns: end_ns, busy_ns: end_ns - start_ns }
    }

    /// Moves `bytes` between a plane and the controller, one transfer unit after the other.
    fn transfer(&mut self, at_ns: u64, plane: usize, bytes: u64) -> u64 {
        let unit = u64::from(self.config.transfer_unit_bytes.max(1));
        let channel_idx = plane % self.channels.len();
        let channel = &mut self.channels[channel_idx];
        let mut end_ns = at_ns;
        let mut left = bytes;
        while left > 0 {
            let chunk_ns = transfer_ns(left.min(unit), self.config.channel_bytes_per_s);
            end_ns = channel.reserve(end_ns, chunk_ns).saturating_add(chunk_ns);
            left -= left.min(unit);
        }
        end_ns
    }
}

/// Spreads consecutive file numbers over the dies (the finaliser of SplitMix64).
fn scatter(file: u32) -> u64 {
    let mut z = u64::from(file).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samsung 970 PRO as fitted by NVMeVirt (`ssd_config.h`).
    fn drive_970_pro() -> Nand {
        Nand::new(NandConfig {
            n_channels: 8,
            dies_per_channel: 2,
            planes_per_die: None,
            page_bytes: 32 * 1024,
            transfer_unit_bytes: 16 * 1024,
            channel_bytes_per_s: 800_000_000,
            sense_small_lsb_ns: 29_760,
            sense_small_msb_ns: 41_760,
            sense_small_csb_ns: None,
            sense_page_lsb_ns: 30_013,
            sense_page_msb_ns: 42_013,
            sense_page_csb_ns: None,
            firmware_small_ns: 21_500,
            firmware_large_ns: 30_490,
        })
    }

    fn within_2_percent(got: f64, expected: f64) {
        assert!((got / expected - 1.0).abs() < 0.02, "{got} is not near {expected}");
    }

    fn block(block_idx: u64) -> Extent {
        Extent { file: FileIdx(0), offset: block_idx * 32 * 1024, len: 4096 }
    }

    #[test]
    fn one_4_kib_read_at_a_time_takes_63_6_us_with_its_pcie_transfer() {
        let mut drive = drive_970_pro();
        let (mut now, n) = (0, 320);
        for i in 0..n {
            let pcie_ns = transfer_ns(4096, 3_360_000_000);
            now = drive.read(now, block(i)).ready_ns + pcie_ns;
        }
        within_2_percent(now as f64 / n as f64, 63_600.0);
    }

    #[test]
    fn saturated_4_kib_reads_are_bound_by_the_dies_at_391_k_per_s() {
        let mut drive = drive_970_pro();
        let n = 32_000;
        let end = (0..n).map(|i| drive.read(0, block(i)).ready_ns).max().unwrap();
        within_2_percent(n as f64 / (end as f64 * 1e-9), 391_000.0);
    }

    #[test]
    fn saturated_large_reads_are_bound_by_the_channels_at_6_4_gb_per_s() {
        let mut drive = drive_970_pro();
        let len = 1 << 20;
        let read = |i: u64| Extent { file: FileIdx(0), offset: i * u64::from(len), len };
        let n = 1000;
        let end = (0..n).map(|i| drive.read(0, read(i)).ready_ns).max().unwrap();
        within_2_percent((n * u64::from(len)) as f64 / (end as f64 * 1e-9), 6.4e9);
    }

    #[test]
    fn two_readers_share_the_dies() {
        let alone = drive_970_pro().read(0, block(0)).ready_ns;
        let mut drive = drive_970_pro();
        assert_eq!(drive.read(0, block(0)).ready_ns, alone);
        assert!(drive.read(0, block(0)).ready_ns > alone, "the die was busy");
    }

    #[test]
    fn an_empty_extent_costs_firmware_time_only() {
        let empty = Extent { file: FileIdx(7), offset: 5, len: 0 };
        let fetched = drive_970_pro().read(10, empty);
        assert_eq!(fetched, Fetched { ready_ns: 21_510, busy_ns: 0 });
    }

    #[test]
    fn files_start_on_all_dies() {
        let drive = drive_970_pro();
        let mut seen = [0_u32; 16];
        for file in 0..1600 {
            seen[drive.locate(FileIdx(file), 0).plane] += 1;
        }
        assert!(seen.iter().all(|&n| (50..200).contains(&n)), "{seen:?}");
    }
}
