//! From a record of blocks to planes.
//!
//! Where a block lies is known once the block before it in its row has been looked at, but a group lists
//! the lengths of its rows. So two rows are unpacked together, a block of each in turn ([`unpack_rows`]).
//! The meaning is in `store/blocks.rs`.

use std::ops::Range;

use super::{Decoder, Stage};
use crate::error::SampleFault;
use crate::jpeg::Broken;
use crate::jpeg::block::BlockRow;
use crate::jpeg::file::frame::{Component, Frame};
use crate::jpeg::planes::{Chroma, McuBox, Region};
use crate::jpeg::store::blocks::{PackedRow, unpack_row, unpack_rows};
use crate::jpeg::store::stored::{Group, Stored, damaged as damaged_group};
use crate::jpeg::transform::idct::Steps;

/// What is wanted of a record.
struct Wanted<'a> {
    frame: &'a Frame,
    mcus: &'a McuBox,
    /// Of each component.
    steps: [Steps; 4],
}

/// A row of blocks that is wanted.
#[derive(Debug)]
struct Row<'a> {
    component: usize,
    /// Its number in the component, counted from the first one wanted.
    y: usize,
    packed: PackedRow<'a>,
    /// Which of its blocks.
    blocks: Range<usize>,
}

impl Decoder {
    /// Makes what `region` needs of a record of blocks into [`Self::planes`]; reads only the
    /// row groups that hold it ([`Stored::groups_for`]).
    ///
    /// # Errors
    /// [`SampleFault::Damaged`] when one of them is, or was not read.
    pub fn decode_stored(
        &mut self,
        stored: &Stored<'_>,
        region: &Region,
        chroma: Chroma,
    ) -> Result<(), SampleFault> {
        let (frame, blocks) = (&stored.frame, stored.blocks);
        let mcus = McuBox::of(frame, region, chroma);
        self.n_planes = frame.components().len();
        self.model = frame.model;
        self.points.clear();
        if self.until == Stage::Tables {
            return Ok(());
        }
        stored.soon_read(blocks.groups_of(mcus.down.clone()).start);
        self.set_planes(frame, &mcus);
        let profile = blocks.profile();
        let mut steps = [Steps::ZERO; 4];
        for (steps, component) in steps.iter_mut().zip(profile.components()) {
            *steps = Steps::new(&profile.steps(component.table));
        }
        let wanted = Wanted { frame, mcus: &mcus, steps };
        for number in blocks.groups_of(mcus.down.clone()) {
            let mut group = stored.group(number)?;
            self.stored_group(&mut group, blocks.mcus_of(number), &wanted)
                .map_err(|Broken| damaged_group(number, "has a broken block row"))?;
        }
        Ok(())
    }

    /// The rows of MCUs `mcus` of a record, which make up a row group.
    fn stored_group(
        &mut self,
        group: &mut Group<'_>,
        mcus: Range<usize>,
        wanted: &Wanted<'_>,
    ) -> Result<(), Broken> {
        let McuBox { across, down } = wanted.mcus;
        let [n_across, _] = wanted.frame.n_mcus();
        let components = wanted.frame.components();
        // For each number of blocks across an MCU, a row that still waits for a second one.
        let mut alone: [Option<Row<'_>>; 4] = [const { None }; 4];
        for mcu in mcus {
            for (component, &Component { h, v, .. }) in components.iter().enumerate() {
                for row in 0..v {
                    let packed = group.next(n_across * h).ok_or(Broken)?;
                    if !down.contains(&mcu) {
                        continue;
                    }
                    let y = (mcu - down.start) * v + row;
                    let blocks = across.start * h..across.end * h;
                    let next = Row { component, y, packed, blocks };
                    match alone[h - 1].take() {
                        Some(first) => self.two_rows([first, next], &wanted.steps)?,
                        None => alone[h - 1] = Some(next),
                    }
                }
            }
        }
        alone.iter().flatten().try_for_each(|row| self.one_row(row, &wanted.steps))
    }

    fn one_row(&mut self, row: &Row<'_>, steps: &[Steps; 4]) -> Result<(), Broken> {
        let n_blocks = row.blocks.len();
        let [lane, _] = &mut self.lanes;
        lane.row.reserve(n_blocks);
        let out = lane.row.blocks_mut(0..n_blocks);
        unpack_row(self.level, row.packed, row.blocks.clone(), out)?;
        self.transform_row(row, 0, steps);
        Ok(())
    }

    /// Two rows of which the same blocks are wanted.
    fn two_rows(&mut self, rows: [Row<'_>; 2], steps: &[Steps; 4]) -> Result<(), Broken> {
        let blocks = rows[0].blocks.clone();
        let out = self.lanes.each_mut().map(|lane| {
            lane.row.reserve(blocks.len());
            lane.row.blocks_mut(0..blocks.len())
        });
        unpack_rows(self.level, rows.each_ref().map(|row| row.packed), blocks, out)?;
        for (lane, row) in rows.iter().enumerate() {
            self.transform_row(row, lane, steps);
        }
        Ok(())
    }

    /// Makes samples of the blocks that were unpacked in this lane.
    fn transform_row(&mut self, row: &Row<'_>, lane: usize, steps: &[Steps; 4]) {
        if self.until > Stage::Entropy {
            let blocks = BlockRow::of_one(&self.lanes[lane].row, row.blocks.len());
            let steps = &steps[row.component];
            self.planes[row.component].transform(self.level, row.y, blocks, steps);
        }
    }
}
