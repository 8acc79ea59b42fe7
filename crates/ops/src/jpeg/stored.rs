//! A JPEG's coefficients in a store: row groups, written and found again
//! (`docs/store-format.md`, section 3).
//!
//! [`Packer`] makes row groups of a file's coefficients; [`Stored`] is such a record, or
//! those row groups of it that have been read. Where records lie in a store is `dataset`'s to
//! know, what goes beside the groups to write the file again `rebuild.rs`'s. Nothing here
//! makes a sample: `decoder.rs` does.

use std::ops::Range;

use bothends_core::blocks::{
    Blocks, Colour, Component, GroupLengths, RowLengths, write_profile,
};
use bothends_core::recipe::Size;
use xxhash_rust::xxh3::xxh3_64;

use super::blocks::{self, PackedRow, Written, unpack_row};
use super::coefficients::{self, Coefficients};
use super::decoder::{Decoder, Opened};
use super::frame::{self, ColourModel, Frame, Process};
use super::planes::{Chroma, McuBox, Region};
use super::rebuild::{McuRow, take_apart_by_rows};
use super::sequential::Broken;
use crate::error::SampleFault;
use crate::kernels::Level;

/// Bytes of the short checksum that a row group begins with.
const CHECKSUM_BYTES: usize = 4;

/// A JPEG as a store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// What it may have in common with others.
    pub profile: Vec<u8>,
    /// Rows and columns.
    pub size: Size,
    /// Of its row groups; makes the head.
    pub lengths: GroupLengths,
    /// How the groups keep the lengths of their block rows.
    pub row_lengths: RowLengths,
    /// The row groups.
    pub groups: Vec<u8>,
}

/// Makes row groups of files; keeps its memory from image to image.
#[derive(Debug, Default)]
pub struct Packer {
    groups: Groups,
}

impl Packer {
    /// Takes a file apart and packs its coefficients; what it takes beside them to write the
    /// file again goes to `remainder`, in place of what that holds. `None` for what
    /// [`take_apart`](super::rebuild::take_apart) does not take, and when no block can hold
    /// one of the coefficients: such a file is kept as it is.
    #[must_use]
    pub fn pack(
        &mut self,
        decoder: &mut Decoder,
        file: &[u8],
        remainder: &mut Vec<u8>,
    ) -> Option<Packed> {
        let Self { groups } = self;
        groups.clear();
        let level = decoder.level();
        take_apart_by_rows(decoder, file, remainder, |row| groups.push(level, row))?;
        let file = Opened::new(file).ok()?;
        let longest = groups.rows.iter().max().copied().unwrap_or(0);
        let row_lengths = match u16::try_from(longest) {
            Ok(_) => RowLengths::Narrow,
            Err(_) => RowLengths::Wide,
        };
        groups.seal(profile_of(&file)?, file.frame.size, row_lengths)
    }
}

/// What a file may have in common with others.
fn profile_of(file: &Opened<'_>) -> Option<Vec<u8>> {
    let mut steps: Vec<[u16; 64]> = Vec::new();
    let mut components = Vec::new();
    for component in file.frame.components() {
        let own = file.segments.tables.steps(component.table).ok()?;
        let known = steps.iter().position(|table| *table == own);
        let table = known.unwrap_or(steps.len());
        if known.is_none() {
            steps.push(own);
        }
        let byte = |n: usize| u8::try_from(n).unwrap_or(u8::MAX);
        let frame::Component { h, v, .. } = *component;
        components.push(Component { h: byte(h), v: byte(v), table: byte(table) });
    }
    let mut profile = Vec::new();
    write_profile(colour_of(file.frame.model), &components, &steps, &mut profile);
    Some(profile)
}

/// Reads all coefficients of a record: [`Packer::pack`] undone.
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
                    let blocks = out.row_mut(nth, mcu * component.v + row);
                    unpack_row(level, packed, 0..n_blocks, blocks)
                        .map_err(|Broken| broken())?;
                }
            }
        }
    }
    Ok(())
}

/// The block rows of an image, packed.
#[derive(Debug, Default)]
struct Groups {
    bytes: Written,
    /// Length of each block row.
    rows: Vec<usize>,
    /// Block rows of each group.
    n_rows: Vec<usize>,
}

impl Groups {
    fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
        self.n_rows.clear();
    }

    /// Packs the block rows of the next row of MCUs.
    fn push(&mut self, level: Level, row: &McuRow<'_>) -> Option<()> {
        let Self { bytes, rows, n_rows } = self;
        let per_group = 16_usize.div_ceil(row.frame.v_max * frame::BLOCK);
        if row.y.is_multiple_of(per_group) {
            n_rows.push(0);
        }
        for (nth, component) in row.frame.components().iter().enumerate() {
            for within in 0..component.v {
                let before = bytes.len();
                blocks::write_row(level, row.blocks(nth, within), bytes)?;
                rows.push(bytes.len() - before);
            }
            *n_rows.last_mut()? += component.v;
        }
        Some(())
    }

    /// Puts lengths and checksums between the rows.
    fn seal(
        &self,
        profile: Vec<u8>,
        size: Size,
        row_lengths: RowLengths,
    ) -> Option<Packed> {
        let Self { bytes, rows, n_rows } = self;
        let bytes = bytes.as_slice();
        let mut rest = rows.as_slice();
        let groups: Vec<&[usize]> = n_rows
            .iter()
            .map(|&n| {
                let (group, behind) = rest.split_at(n);
                rest = behind;
                group
            })
            .collect();
        let len = |rows: &&[usize]| {
            CHECKSUM_BYTES + rows.len() * row_lengths.bytes() + rows.iter().sum::<usize>()
        };
        let n_bytes: Vec<usize> = groups.iter().map(len).collect();
        let lengths = GroupLengths::new(&n_bytes)?;
        let mut sealed = Vec::with_capacity(n_bytes.iter().sum());
        let mut at = 0;
        for rows in groups {
            let start = sealed.len();
            sealed.extend([0; CHECKSUM_BYTES]);
            for &len in rows {
                let len = u32::try_from(len).ok()?;
                sealed.extend(&len.to_le_bytes()[..row_lengths.bytes()]);
            }
            let len: usize = rows.iter().sum();
            sealed.extend(&bytes[at..at + len]);
            at += len;
            let filled = (sealed.len() - start).next_multiple_of(lengths.unit_bytes());
            sealed.resize(start + filled, 0);
            let checksum = short_checksum(&sealed[start + CHECKSUM_BYTES..]);
            sealed[start..start + CHECKSUM_BYTES].copy_from_slice(&checksum);
        }
        Some(Packed { profile, size, lengths, row_lengths, groups: sealed })
    }
}

/// The low half of XXH3-64.
pub(super) fn short_checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let [a, b, c, d, ..] = xxh3_64(bytes).to_le_bytes();
    [a, b, c, d]
}

fn colour_of(model: ColourModel) -> Colour {
    match model {
        ColourModel::Grey => Colour::Grey,
        ColourModel::YCbCr => Colour::YCbCr,
        ColourModel::Rgb => Colour::Rgb,
        ColourModel::Cmyk => Colour::Cmyk,
        ColourModel::Ycck => Colour::Ycck,
    }
}

fn model_of(colour: Colour) -> ColourModel {
    match colour {
        Colour::Grey => ColourModel::Grey,
        Colour::YCbCr => ColourModel::YCbCr,
        Colour::Rgb => ColourModel::Rgb,
        Colour::Cmyk => ColourModel::Cmyk,
        Colour::Ycck => ColourModel::Ycck,
    }
}

/// A record of blocks, as far as it has been read.
#[derive(Debug, Clone)]
pub struct Stored<'a> {
    pub(super) frame: Frame,
    pub(super) blocks: Blocks<'a>,
    /// The first group that has been read, and all groups from there on that have.
    first_group: usize,
    bytes: &'a [u8],
}

/// A row group whose checksum is right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group<'a> {
    row_lengths: RowLengths,
    /// Lengths of the block rows that have not been taken.
    lengths: &'a [u8],
    /// The next block row, and all that was read behind it.
    rows: &'a [u8],
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
        let size = crate::decode::check_size(height as usize, width as usize)?;
        let mut components = [frame::Component::default(); 4];
        let mut n = 0;
        for component in profile.components() {
            components[n] = frame::Component {
                id: 0,
                h: component.h.into(),
                v: component.v.into(),
                table: component.table.into(),
            };
            n += 1;
        }
        let mut frame = Frame::new(size, Process::Sequential, &components[..n])?;
        frame.model = model_of(profile.colour());
        Ok(Self { frame, blocks, first_group, bytes })
    }

    /// Rows and columns of the image.
    #[must_use]
    pub fn size(&self) -> Size {
        self.frame.size
    }

    /// Pixels that one sample of each component covers, across and down.
    pub(crate) fn ratios(&self) -> impl ExactSizeIterator<Item = [usize; 2]> {
        (0..self.frame.components().len()).map(|component| self.frame.ratio(component))
    }

    /// What its components are.
    pub(crate) fn model(&self) -> ColourModel {
        self.frame.model
    }

    /// The row groups that [`Decoder`] reads for `region`.
    #[must_use]
    pub fn groups_for(&self, region: &Region) -> Range<usize> {
        let mcus = McuBox::of(&self.frame, region, Chroma::Upsampled);
        self.blocks.groups_of(mcus.down)
    }

    /// A row group.
    ///
    /// # Errors
    /// [`SampleFault::Damaged`] when it has not been read, or not as it was written.
    pub(super) fn group(&self, number: usize) -> Result<Group<'a>, SampleFault> {
        let head = self.blocks.head();
        let missing = || damaged(number, "is not among the bytes that were read");
        let own = head.part_of(self.bytes, self.first_group, number..number + 1);
        let own = own.ok_or_else(missing)?;
        let before = head.part_of(self.bytes, self.first_group, self.first_group..number);
        let from_here = &self.bytes[before.map_or(0, <[u8]>::len)..];
        if own.len() < CHECKSUM_BYTES
            || own[..CHECKSUM_BYTES] != short_checksum(&own[CHECKSUM_BYTES..])
        {
            return Err(damaged(number, "has another checksum than it should"));
        }
        let mcus = self.blocks.mcus_of(number);
        let rows_of_mcu: usize = self.frame.components().iter().map(|c| c.v).sum();
        let n_bytes = mcus.len() * rows_of_mcu * head.row_lengths.bytes();
        let lengths = from_here.get(CHECKSUM_BYTES..CHECKSUM_BYTES + n_bytes);
        let rows = from_here.get(CHECKSUM_BYTES + n_bytes..);
        let (lengths, rows) = lengths.zip(rows).ok_or_else(missing)?;
        Ok(Group { row_lengths: head.row_lengths, lengths, rows })
    }
}

impl<'a> Group<'a> {
    /// The next block row, of `n_blocks`; `None` when the group ends before it does.
    pub(super) fn next(&mut self, n_blocks: usize) -> Option<PackedRow<'a>> {
        let (len, lengths) = self.lengths.split_at_checked(self.row_lengths.bytes())?;
        let len = len.iter().rev().fold(0, |len, &byte| len << 8 | usize::from(byte));
        let row = PackedRow { bytes: self.rows, len, n_blocks };
        self.lengths = lengths;
        self.rows = self.rows.get(len..)?;
        Some(row)
    }
}

pub(super) fn damaged(group: usize, what: &str) -> SampleFault {
    let why = format!("row group {group} {what}");
    SampleFault::Damaged { format: "record of blocks", why }
}
