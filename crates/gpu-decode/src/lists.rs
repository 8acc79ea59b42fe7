//! The lists behind a batch's data: what kernels look things up in, one after the other.
//!
//! Read `words.rs` for what their items are.

use std::cmp::Reverse;

use crate::words::{
    AxisWords, CheckWords, CropWords, FrontWords, PIECE, ScanWords, TableWords, Words,
};

/// How many lists there are.
pub(crate) const N_LISTS: usize = 17;

/// Calls `$do!(list, list, ...)` with every list, in the order in which they lie.
macro_rules! each_list {
    ($do:ident) => {
        $do!(
            steps,
            crops,
            axes,
            fronts,
            walks,
            ends,
            block_tiles,
            row_tiles,
            large_tiles,
            wide_tiles,
            coefficient_tiles,
            scans,
            tables,
            scan_rows,
            lanes,
            checks,
            points
        )
    };
}

/// What goes into the upload after the data.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) crops: Vec<CropWords>,
    pub(crate) axes: Vec<AxisWords>,
    pub(crate) fronts: Vec<FrontWords>,
    pub(crate) walks: Vec<FrontWords>,
    pub(crate) ends: Vec<u32>,
    pub(crate) block_tiles: Vec<u32>,
    pub(crate) row_tiles: Vec<u32>,
    pub(crate) large_tiles: Vec<u32>,
    pub(crate) wide_tiles: Vec<u32>,
    pub(crate) coefficient_tiles: Vec<u32>,
    pub(crate) scans: Vec<ScanWords>,
    pub(crate) tables: Vec<TableWords>,
    pub(crate) scan_rows: Vec<u32>,
    pub(crate) lanes: Vec<[u32; 2]>,
    pub(crate) checks: Vec<CheckWords>,
    pub(crate) points: Vec<u64>,
    pub(crate) steps: Vec<[u32; 64]>,
}

/// Where the lists lie in the upload, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Places {
    pub(crate) steps: u32,
    pub(crate) crops: u32,
    pub(crate) axes: u32,
    pub(crate) fronts: u32,
    pub(crate) walks: u32,
    pub(crate) ends: u32,
    pub(crate) block_tiles: u32,
    pub(crate) row_tiles: u32,
    pub(crate) large_tiles: u32,
    pub(crate) wide_tiles: u32,
    pub(crate) coefficient_tiles: u32,
    pub(crate) scans: u32,
    pub(crate) tables: u32,
    pub(crate) scan_rows: u32,
    pub(crate) lanes: u32,
    pub(crate) checks: u32,
    pub(crate) points: u32,
}

impl Lists {
    pub(crate) fn lens(&self) -> [usize; N_LISTS] {
        macro_rules! lens {
            ($($list:ident),*) => { [$(self.$list.len()),*] };
        }
        each_list!(lens)
    }

    pub(crate) fn truncate(&mut self, lens: [usize; N_LISTS]) {
        let mut lens = lens.into_iter();
        macro_rules! truncate {
            ($($list:ident),*) => { $(self.$list.truncate(lens.next().unwrap_or(0));)* };
        }
        each_list!(truncate);
    }

    /// Where the lists lie when the first begins at byte `at`, and where the last ends.
    pub(crate) fn places(&self, at: usize) -> (Places, usize) {
        let mut end = at;
        macro_rules! places {
            ($($list:ident),*) => {
                Places { $($list: place_of(&self.$list, &mut end)),* }
            };
        }
        let places = each_list!(places);
        (places, end)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.places(0).1
    }

    /// Writes all lists to `out`, which has [`Self::bytes`] bytes and begins at byte `at` of the upload.
    pub(crate) fn put(&self, at: usize, out: &mut [u8]) {
        let (places, _) = self.places(at);
        // Tables of steps have had numbers so far: now they have places.
        let steps_piece = places.steps / number(PIECE);
        let pieces_each = number(<[u32; 64]>::BYTES / PIECE);
        let mut rest = put_list(&self.steps, out);
        let crops = self.crops.iter().map(|crop| {
            let mut crop = *crop;
            for component in &mut crop.components {
                component.steps = steps_piece + component.steps * pieces_each;
            }
            crop
        });
        rest = put_items(crops, rest);
        rest = put_list(&self.axes, rest);
        rest = put_list(&self.fronts, rest);
        rest = put_list(&self.walks, rest);
        rest = put_list(&self.ends, rest);
        rest = put_list(&self.block_tiles, rest);
        rest = put_list(&self.row_tiles, rest);
        rest = put_list(&self.large_tiles, rest);
        rest = put_list(&self.wide_tiles, rest);
        rest = put_list(&self.coefficient_tiles, rest);
        rest = put_list(&self.scans, rest);
        rest = put_list(&self.tables, rest);
        rest = put_list(&self.scan_rows, rest);
        rest = put_list(&self.longest_first(), rest);
        rest = put_list(&self.checks, rest);
        put_list(&self.points, rest);
    }
}

impl Lists {
    /// The thread blocks that decode scans, those with the most data a lane first: what begins last
    /// then ends soon, and the GPU is not left with a few long ones.
    fn longest_first(&self) -> Vec<[u32; 2]> {
        let mut lanes = self.lanes.clone();
        lanes.sort_by_cached_key(|&[scan, tile]| {
            let scan = &self.scans[scan as usize];
            let per_lane = scan.n_words / (scan.segments * scan.rows).max(1);
            (Reverse(per_lane), tile)
        });
        lanes
    }
}

/// A place at `end` for a list; `end` moves on.
fn place_of<T: Words>(list: &[T], end: &mut usize) -> u32 {
    let at = number(*end);
    *end += (list.len() * T::BYTES).next_multiple_of(PIECE);
    at
}

/// Writes a list, filled up to whole pieces; what is behind it.
fn put_list<'a, T: Words + Copy>(items: &[T], out: &'a mut [u8]) -> &'a mut [u8] {
    put_items(items.iter().copied(), out)
}

fn put_items<T: Words>(
    items: impl ExactSizeIterator<Item = T>,
    out: &mut [u8],
) -> &mut [u8] {
    let len = items.len() * T::BYTES;
    let (list, rest) = out.split_at_mut(len.next_multiple_of(PIECE));
    let (places, behind) = list.split_at_mut(len);
    let places = places.chunks_exact_mut(T::BYTES);
    items.zip(places).for_each(|(item, place)| item.put(place));
    behind.fill(0);
    rest
}

/// A number of things of one picture or batch.
pub(crate) fn number(n: usize) -> u32 {
    u32::try_from(n).expect("pictures and batches are far smaller than 2^32")
}
