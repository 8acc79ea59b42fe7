//! A record of blocks in a store: its row groups, found and read again
//! (`docs/store-format.md`, section 3).
//!
//! [`Stored`] is such a record, or those row groups of it that have been read. Where records lie
//! in a store is `dataset`'s to know. Nothing here makes a sample: `decoder/stored.rs` does. Read
//! `rebuild.rs` next.

#![deny(
    clippy::arithmetic_side_effects,
    reason = "numbers that a file gives; a release does not check sums in this crate"
)]

use std::ops::Range;

use bothends_core::blocks::{Blocks, RowLengths};
use bothends_core::recipe::Size;

use super::blocks::{PackedRow, unpack_row};
use super::{CHECKSUM_BYTES, short_checksum};
use crate::error::SampleFault;
use crate::image::check_size;
use crate::jpeg::Broken;
use crate::jpeg::coefficients::{self, Coefficients};
use crate::jpeg::file::frame::{self, Frame, Process};
use crate::jpeg::planes::{Chroma, McuBox, Region};
use crate::kernels::Level;
use crate::kernels::vectors::soon_read;

/// Reads all coefficients of a record: [`Packer::pack`](super::packer::Packer::pack) undone.
///
/// # Errors
/// [`SampleFault::Damaged`] when one of its row groups is, or was not read.
pub fn unpack(
    level: Level,
    stored: &Stored<'_>,
    out: &mut Coefficients,
) -> Result<(), SampleFault> {
    let frame = &stored.frame;
    let (sizes, n_components) = coefficients::sizes(frame);
    out.set_sizes(&sizes[..n_components]);
    for number in 0..stored.blocks.head().n_groups() {
        let broken = || damaged(number, "has a broken block row");
        let mut group = stored.group(number)?;
        for mcu in stored.blocks.mcus_of(number) {
            for (nth, component) in frame.components().iter().enumerate() {
                for row in 0..component.v {
                    let [n_blocks, _] = sizes[nth];
                    let packed = group.next(n_blocks).ok_or_else(broken)?;
                    let blocks = out.row_mut(
                        nth,
                        mcu.saturating_mul(component.v).saturating_add(row),
                    );
                    unpack_row(level, packed, 0..n_blocks, blocks)
                        .map_err(|Broken| broken())?;
                }
            }
        }
    }
    Ok(())
}

/// A record of blocks, as far as it has been read.
#[derive(Debug, Clone)]
pub struct Stored<'a> {
    pub(crate) frame: Frame,
    pub(crate) blocks: Blocks<'a>,
    /// The first group that has been read, and all groups from there on that have.
    first_group: usize,
    bytes: &'a [u8],
}

/// A row group whose checksum is right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group<'a> {
    row_lengths: RowLengths,
    /// Lengths of the block rows that have not been taken.
    lengths: &'a [u8],
    /// The next block row, and all that was read behind it.
    rows: &'a [u8],
    /// Length of this group in bytes.
    group_bytes: usize,
}

impl<'a> Stored<'a> {
    /// The groups from number `first_group` on are `bytes`, as far as they have been read.
    ///
    /// # Errors
    /// [`SampleFault`] for an image of no size that an image can have.
    pub fn new(
        blocks: Blocks<'a>,
        first_group: usize,
        bytes: &'a [u8],
    ) -> Result<Self, SampleFault> {
        let profile = blocks.profile();
        let Size { height, width } = blocks.head().size;
        let size = check_size(height as usize, width as usize)?;
        let mut components = [frame::Component::default(); 4];
        let mut n = 0;
        for (place, component) in components.iter_mut().zip(profile.components()) {
            *place = frame::Component {
                id: 0,
                h: component.h.into(),
                v: component.v.into(),
                table: component.table.into(),
            };
            n = usize::saturating_add(n, 1);
        }
        let mut frame = Frame::new(size, Process::Sequential, &components[..n])?;
        frame.model = profile.colour();
        Ok(Self { frame, blocks, first_group, bytes })
    }

    /// Rows and columns of the image.
    #[must_use]
    pub fn size(&self) -> Size {
        self.frame.size
    }

    /// The row groups that [`Decoder`](crate::jpeg::Decoder) reads for `region`.
    #[must_use]
    pub fn groups_for(&self, region: &Region) -> Range<usize> {
        let mcus = McuBox::of(&self.frame, region, Chroma::Upsampled);
        self.blocks.groups_of(mcus.down)
    }

    /// Prefetches row group `number`, the first to be read. Each later one is prefetched while the one before
    /// it is read.
    pub(crate) fn soon_read(&self, number: usize) {
        let own = number..number.saturating_add(1);
        let bytes = self.blocks.head().part_of(self.bytes, self.first_group, own);
        let bytes = bytes.unwrap_or_default();
        soon_read(bytes, 0, bytes.len());
    }

    /// A row group.
    ///
    /// # Errors
    /// [`SampleFault::Damaged`] when it has not been read, or not as it was written.
    pub(crate) fn group(&self, number: usize) -> Result<Group<'a>, SampleFault> {
        let head = self.blocks.head();
        let missing = || damaged(number, "is not among the bytes that were read");
        let own =
            head.part_of(self.bytes, self.first_group, number..number.saturating_add(1));
        let own = own.ok_or_else(missing)?;
        let before = head.part_of(self.bytes, self.first_group, self.first_group..number);
        let from_here = &self.bytes[before.map_or(0, <[u8]>::len)..];
        if own.len() < CHECKSUM_BYTES
            || own[..CHECKSUM_BYTES] != short_checksum(&own[CHECKSUM_BYTES..])
        {
            return Err(damaged(number, "does not match its checksum"));
        }
        let mcus = self.blocks.mcus_of(number);
        let rows_of_mcu: usize = self.frame.components().iter().map(|c| c.v).sum();
        let n_rows = mcus.len().saturating_mul(rows_of_mcu);
        let n_bytes = n_rows.saturating_mul(head.row_lengths.bytes());
        let behind = from_here.get(CHECKSUM_BYTES..);
        let parts = behind.and_then(|behind| behind.split_at_checked(n_bytes));
        let (lengths, rows) = parts.ok_or_else(missing)?;
        Ok(Group { row_lengths: head.row_lengths, lengths, rows, group_bytes: own.len() })
    }
}

impl<'a> Group<'a> {
    /// The next block row, of `n_blocks`; `None` when the group ends before it does.
    pub(crate) fn next(&mut self, n_blocks: usize) -> Option<PackedRow<'a>> {
        let (len, lengths) = self.lengths.split_at_checked(self.row_lengths.bytes())?;
        let len = len.iter().rev().fold(0, |len, &byte| len << 8 | usize::from(byte));
        let row = PackedRow { bytes: self.rows, len, n_blocks, ahead: self.group_bytes };
        self.lengths = lengths;
        self.rows = self.rows.get(len..)?;
        Some(row)
    }
}

pub(crate) fn damaged(group: usize, what: &str) -> SampleFault {
    let why = format!("row group {group} {what}");
    SampleFault::Damaged { format: "record of blocks", why }
}
