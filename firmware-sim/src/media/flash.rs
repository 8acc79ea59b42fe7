//! Flash as a drive has it: blocks of 4 KiB that are read and written, a write buffer, and the page map with its
//! garbage collection.
//!
//! Consecutive flash pages are striped over the planes, and each unit stays on its plane. A write is complete
//! once it is in the buffer, which is taken to survive a loss of power. It waits there until enough have
//! come for one program operation of its plane. While the buffer is full, writes wait for programs.
//! `nand.rs` has the planes and channels that all of this occupies, `ftl.rs` has the map.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::ftl::{PlaneGeometry, PlaneMap};
use super::nand::{Nand, Page};
use super::{BLOCK_BYTES, Blocks, MediaBusy, NandConfig, Piece};

/// How flash is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritesConfig {
    /// Bytes of one program operation of a plane.
    pub program_unit_bytes: u32,
    /// How long it takes, in nanoseconds.
    pub program_ns: u64,
    /// Erasing a block, in nanoseconds.
    pub erase_ns: u64,
    /// Flash pages of a block.
    pub block_pages: u32,
    /// Flash beyond the drive's capacity, in thousandths of it.
    pub over_provisioning_milli: u32,
    /// Bytes of the write buffer.
    pub buffer_bytes: u32,
    /// Firmware latency of a write, in nanoseconds.
    pub firmware_ns: u64,
    /// Taking 4 KiB into the buffer, in nanoseconds.
    pub buffer_unit_ns: u64,
}

/// Bytes that an erase block may have, so that a plane's map is small.
const MOST_BLOCK_BYTES: u64 = 64 << 20;

impl WritesConfig {
    /// Whether it can be that of this flash.
    ///
    /// # Errors
    /// What does not fit, and what would.
    pub(crate) fn fits(&self, nand: &NandConfig) -> Result<(), String> {
        let page = u64::from(nand.page_bytes);
        let (unit, block) =
            (u64::from(self.program_unit_bytes), page * u64::from(self.block_pages));
        let is_whole = |bytes: u64| bytes.is_multiple_of(BLOCK_BYTES) && bytes > 0;
        if !is_whole(page) {
            return Err(format!(
                "`media.page_size` is {page} B; flash that is written has pages of whole 4 KiB"
            ));
        }
        if !is_whole(unit) || !block.is_multiple_of(unit) {
            return Err(format!(
                "`writes.program_unit` is {unit} B; it must be whole 4 KiB, and a block of {block} B \
                 (`writes.block_pages` of `media.page_size`) a multiple of it"
            ));
        }
        if block > MOST_BLOCK_BYTES {
            return Err(format!(
                "`writes.block_pages` of `media.page_size` make a block of {block} B; it may have \
                 {MOST_BLOCK_BYTES}"
            ));
        }
        if self.buffer_bytes < self.program_unit_bytes {
            return Err(format!(
                "`writes.buffer` is {} B; it must hold one program unit of {unit} B",
                self.buffer_bytes
            ));
        }
        Ok(())
    }
}

/// Flash in use.
#[derive(Debug)]
pub struct Flash {
    nand: Nand,
    writes: Option<WritesConfig>,
    /// Units of the whole drive.
    n_units: u64,
    units_per_page: u64,
    planes: Vec<Plane>,
    buffer: Buffer,
}

#[derive(Debug, Default)]
struct Plane {
    /// From its first write on.
    map: Option<PlaneMap>,
    /// Units that wait for a program operation.
    n_pending: u32,
    /// How many of them came from a host.
    n_pending_host: u32,
}

/// The write buffer: what is in it, and when parts of it are free again.
#[derive(Debug, Default)]
struct Buffer {
    used: u64,
    freed: BinaryHeap<Reverse<(u64, u64)>>,
    last_ns: u64,
}

impl Buffer {
    /// Takes `bytes` at `at_ns`, or as soon as there is room for them.
    fn take(&mut self, at_ns: u64, bytes: u64, capacity: u64) -> u64 {
        let mut at_ns = at_ns;
        while let Some(Reverse((free_ns, freed))) = self.freed.peek().copied() {
            if free_ns > at_ns && self.used + bytes <= capacity {
                break;
            }
            at_ns = at_ns.max(free_ns);
            self.used = self.used.saturating_sub(freed);
            self.freed.pop();
        }
        self.used += bytes;
        at_ns
    }

    fn free_at(&mut self, at_ns: u64, bytes: u64) {
        self.last_ns = self.last_ns.max(at_ns);
        self.freed.push(Reverse((at_ns, bytes)));
    }
}

impl Flash {
    /// A full drive of `n_blocks` blocks that has not been used yet.
    #[must_use]
    pub fn new(nand: NandConfig, writes: Option<WritesConfig>, n_blocks: u64) -> Self {
        let units_per_page = (u64::from(nand.page_bytes) / BLOCK_BYTES).max(1);
        let nand = Nand::new(nand);
        let planes = (0..nand.n_planes()).map(|_| Plane::default()).collect();
        Self {
            nand,
            writes,
            n_units: n_blocks,
            units_per_page,
            planes,
            buffer: Buffer::default(),
        }
    }

    /// Reads blocks, asked for at `at_ns`; `each` is told of every piece as it leaves the flash.
    pub fn read(
        &mut self,
        at_ns: u64,
        blocks: Blocks,
        mut each: impl FnMut(Piece),
    ) -> MediaBusy {
        let at_ns = at_ns.saturating_add(self.nand.firmware_ns(blocks.bytes()));
        let end = blocks.first.saturating_add(blocks.n);
        let mut unit = blocks.first;
        let mut busy = MediaBusy::default();
        while unit < end {
            let n = (self.units_per_page - unit % self.units_per_page).min(end - unit);
            busy.read_ns += self.read_in_page(at_ns, (unit, n), &mut each);
            unit += n;
        }
        busy
    }

    /// Reads units that are neighbours on one flash page, unless they have been written since.
    fn read_in_page(
        &mut self,
        at_ns: u64,
        (first, n): (u64, u64),
        each: &mut impl FnMut(Piece),
    ) -> u64 {
        let (plane_idx, local) = self.local(first);
        let plane = &self.planes[plane_idx];
        let Some(map) = &plane.map else {
            return self.read_page(
                at_ns,
                plane_idx,
                (local / self.units_per_page, n),
                each,
            );
        };
        // How many of the units lie on one page, in the order in which they are met.
        let mut pages: Vec<(u64, u64)> = Vec::new();
        let mut n_buffered = 0;
        for unit in local..local + n {
            let place = map.place(u32::try_from(unit).unwrap_or(u32::MAX));
            if map.is_pending(place, plane.n_pending) {
                n_buffered += 1;
                continue;
            }
            let page = u64::from(place) / self.units_per_page;
            match pages.iter_mut().find(|(other, _)| *other == page) {
                Some((_, n)) => *n += 1,
                None => pages.push((page, 1)),
            }
        }
        if n_buffered > 0 {
            each(Piece { ready_ns: at_ns, bytes: n_buffered * BLOCK_BYTES });
        }
        pages.into_iter().map(|page| self.read_page(at_ns, plane_idx, page, each)).sum()
    }

    fn read_page(
        &mut self,
        at_ns: u64,
        plane: usize,
        (page, n_units): (u64, u64),
        each: &mut impl FnMut(Piece),
    ) -> u64 {
        let bytes = n_units * BLOCK_BYTES;
        let page = Page { plane, bit: self.nand.bit(page) };
        let read = self.nand.read_page(at_ns, page, bytes);
        each(Piece { ready_ns: read.ready_ns, bytes });
        read.busy_ns
    }

    /// Writes blocks that are with the device at `at_ns`; says when they are in the buffer.
    pub fn write(&mut self, at_ns: u64, blocks: Blocks) -> (u64, MediaBusy) {
        let mut busy = MediaBusy::default();
        let Some(writes) = self.writes.clone() else { return (at_ns, busy) };
        let mut taken_ns = at_ns.saturating_add(writes.firmware_ns);
        for unit in blocks.first..blocks.first.saturating_add(blocks.n).min(self.n_units)
        {
            taken_ns =
                self.buffer.take(taken_ns, BLOCK_BYTES, u64::from(writes.buffer_bytes));
            taken_ns = taken_ns.saturating_add(writes.buffer_unit_ns);
            self.write_unit(taken_ns, unit, &writes, &mut busy);
        }
        (taken_ns, busy)
    }

    fn write_unit(
        &mut self,
        at_ns: u64,
        unit: u64,
        writes: &WritesConfig,
        busy: &mut MediaBusy,
    ) {
        let (plane_idx, local) = self.local(unit);
        let geometry = self.geometry(writes);
        let plane = &mut self.planes[plane_idx];
        plane.n_pending += 1;
        plane.n_pending_host += 1;
        if plane.map.is_none() {
            plane.map = geometry.and_then(PlaneMap::new);
        }
        // A drive of more units than a map counts is written without collection.
        if let (Some(map), Ok(local)) = (&mut plane.map, u32::try_from(local)) {
            let collected = map.write(local);
            plane.n_pending += collected.n_units;
            for (page, n) in collected.pages {
                let page = Page { plane: plane_idx, bit: self.nand.bit(u64::from(page)) };
                let bytes = u64::from(n) * BLOCK_BYTES;
                busy.read_ns += self.nand.read_page(at_ns, page, bytes).busy_ns;
            }
            let erase_ns = writes.erase_ns.saturating_mul(collected.n_blocks.into());
            busy.erase_ns += self.nand.occupy(at_ns, plane_idx, erase_ns).busy_ns;
        }
        let unit_bytes = u64::from(writes.program_unit_bytes);
        let per_program = u32::try_from(unit_bytes / BLOCK_BYTES).unwrap_or(1).max(1);
        while self.planes[plane_idx].n_pending >= per_program {
            let done = self.nand.program(at_ns, plane_idx, unit_bytes, writes.program_ns);
            busy.program_ns += done.busy_ns;
            let plane = &mut self.planes[plane_idx];
            let n_host = plane.n_pending_host.min(per_program);
            plane.n_pending -= per_program;
            plane.n_pending_host -= n_host;
            self.buffer.free_at(done.ready_ns, u64::from(n_host) * BLOCK_BYTES);
        }
    }

    /// When all programs that have begun by `at_ns` have ended.
    #[must_use]
    pub fn flush(&self, at_ns: u64) -> u64 {
        at_ns.max(self.buffer.last_ns)
    }

    /// See [`super::Media::forget_before`].
    pub fn forget_before(&mut self, at_ns: u64) {
        self.nand.forget_before(at_ns);
    }

    /// The plane of a unit, and its number there.
    fn local(&self, unit: u64) -> (usize, u64) {
        let (page, slot) = (unit / self.units_per_page, unit % self.units_per_page);
        let n_planes = self.nand.n_planes();
        let plane = usize::try_from(page % n_planes).unwrap_or(0);
        (plane, page / n_planes * self.units_per_page + slot)
    }

    fn geometry(&self, writes: &WritesConfig) -> Option<PlaneGeometry> {
        let pages = self.n_units.div_ceil(self.units_per_page);
        let units = pages.div_ceil(self.nand.n_planes()) * self.units_per_page;
        Some(PlaneGeometry {
            n_units: u32::try_from(units).ok()?,
            units_per_page: u32::try_from(self.units_per_page).ok()?,
            block_pages: writes.block_pages,
            over_provisioning_milli: writes.over_provisioning_milli,
        })
    }

    /// The constants of its planes.
    #[must_use]
    pub fn nand(&self) -> &NandConfig {
        self.nand.config()
    }
}
