//! A JPEG's coefficients become a record of blocks: row groups, written
//! (`docs/store-format.md`, section 3).
//!
//! What is kept besides the groups to write the file again is `rebuild.rs`'s. Read `stored.rs` for the
//! way back.

use bothends_core::blocks::{Component, GroupLengths, RowLengths, write_profile};
use bothends_core::recipe::Size;

use super::blocks::{self, Written};
use super::rebuild::{McuRow, take_apart_by_rows};
use super::{CHECKSUM_BYTES, short_checksum};
use crate::jpeg::decoder::Decoder;
use crate::jpeg::file::Opened;
use crate::jpeg::file::frame;
use crate::kernels::Level;

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
    /// Takes a file apart and packs its coefficients; what is needed besides them to write the
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
    write_profile(file.frame.model, &components, &steps, &mut profile);
    Some(profile)
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
        if row.decoded.y.is_multiple_of(per_group) {
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
