//! A batch as the kernels are told of it: descriptions of crops, and where the bytes that they
//! need lie in one upload.
//!
//! Everything that the kernels look up is decided here, so they check nothing but the data's
//! own bytes: which blocks, which rows, how large every intermediate is and where it lies.
//! Weights are not among it: the kernels compute them, with the operations of
//! `ops::resample`, from a [`Stretch`] of 80 bytes. A crop's weights would be 14 to 28 kB, an
//! eighth of what is uploaded for it, and 2 to 5 µs of the host's time, as much as all the rest of it.
//!
//! Nothing here reads a byte of an image or knows a driver. Read `decoder.rs` next.

use std::ops::Range;

use bothends_core::blocks::{Blocks, Colour, RowLengths};
use bothends_core::recipe::{Interpolation, Numerics, Size};
use bothends_ops::jpeg::Stored;
use bothends_ops::resample::{FirstPass, Mirror, Stretch};
use bothends_ops::resize::Crop;
use bothends_ops::{ComponentLayout, CropLayout};

use crate::NotHere;
use crate::lists::{Lists, N_LISTS, number};
use crate::words::{
    AxisWords, BLOCK_TILE, ComponentWords, CropWords, FRONT_BYTES, FrontWords,
    PAST_BLOCK, PIECE, PIECE_BYTES,
};

/// Pixels of a tile that keep several thread blocks on a multiprocessor.
const GOOD_TILE_PIXELS: u32 = 7168;

/// Most bytes of shared memory that a driver gives a thread block without being asked for more.
const MOST_SHARED: u32 = 48 * 1024;

/// Rows of a tile, at most: exact and planar.
const TILE_ROWS: u32 = 32;
const PLANAR_TILE_ROWS: u32 = 16;

/// Lanes of a warp: as many block rows are walked at once.
const LANES: u32 = 32;

/// What the kernels call two of their filters.
const NEAREST: u32 = 0;
const BICUBIC: u32 = 2;

/// Most inputs of an output that are worth a kernel's loop.
const MOST_TAPS: u32 = 4096;

/// Most crops of a batch: the last kernels count them by the third side of their grid, which CUDA bounds.
const MOST_CROPS: usize = 65_535;

/// What a batch may take on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of an upload, descriptions included.
    pub input_bytes: u32,
    /// Bytes that kernels leave for each other.
    pub scratch_bytes: u64,
}

/// Bytes that a crop needs and where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Which, counted from the record's first byte.
    pub bytes: Range<u64>,
    /// The byte of the upload that the first goes to.
    pub at: u32,
    /// Bytes of the upload round them that are theirs, too: whole blocks of the file that they are
    /// read from. No two rooms share 16 bytes.
    pub room: Range<u32>,
}

/// Where records begin in their file, and what reads of it begin and end at multiples of.
#[derive(Debug, Clone, Copy)]
struct ReadBy {
    record_at: u64,
    block: u32,
}

/// Through the page cache, or from memory.
const ANYWHERE: ReadBy = ReadBy { record_at: 0, block: 1 };

/// Descriptions of crops of one size, and the places of their bytes.
#[derive(Debug)]
pub struct Batch {
    size: Size,
    numerics: Numerics,
    limits: Limits,
    pub(crate) lists: Lists,
    /// How the records that are added next are read.
    read_by: ReadBy,
    /// Bytes of data placed so far.
    data_bytes: u32,
    /// Pieces of scratch memory taken so far.
    scratch: u32,
    /// Largest dynamic shared memory of a kernel, in bytes.
    pub(crate) shared: Shared,
}

/// Dynamic shared memory of kernels, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shared {
    pub(crate) front: u32,
    pub(crate) rows: u32,
    /// Of tiles of more than [`GOOD_TILE_PIXELS`]: a launch of their own, or one wide crop would leave all others less room
    /// on a multiprocessor.
    pub(crate) large: u32,
    pub(crate) tables: u32,
}

/// How long everything was before a crop was begun.
struct Mark {
    lens: [usize; N_LISTS],
    data_bytes: u32,
    scratch: u32,
    shared: Shared,
}

impl Batch {
    /// An empty one, for samples of `size` (rows and columns at the cut).
    #[must_use]
    pub fn new(size: Size, numerics: Numerics, limits: Limits) -> Self {
        let mut batch = Self {
            size,
            numerics,
            limits,
            lists: Lists::default(),
            read_by: ANYWHERE,
            data_bytes: 0,
            scratch: 0,
            shared: Shared::default(),
        };
        batch.clear();
        batch
    }

    /// Forgets its crops, keeps its memory.
    pub fn clear(&mut self) {
        self.lists.truncate([0; N_LISTS]);
        self.read_by = ANYWHERE;
        self.data_bytes = 0;
        self.scratch = 0;
        self.shared = Shared::default();
    }

    /// How many crops there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lists.crops.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lists.crops.is_empty()
    }

    /// Rows and columns of every sample.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// The numerics of every crop.
    #[must_use]
    pub fn numerics(&self) -> Numerics {
        self.numerics
    }

    /// Rows of the output that its crops go to, in the order in which they were added.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = u32> {
        self.lists.crops.iter().map(|crop| crop.row)
    }

    /// Bytes of the upload: the crops' data, then the descriptions.
    #[must_use]
    pub fn input_bytes(&self) -> usize {
        self.descriptions_at() + self.lists.bytes()
    }

    /// Bytes of scratch memory that the kernels take.
    #[must_use]
    pub fn scratch_bytes(&self) -> u64 {
        // After the crops' own come the status words.
        u64::from(self.scratch.saturating_add(pieces(4 * self.len() as u64)))
            * PIECE as u64
    }

    pub(crate) fn status_piece(&self) -> u32 {
        self.scratch
    }

    /// Where the descriptions begin in the upload. A block at the data's end may be looked at
    /// beyond it.
    pub(crate) fn descriptions_at(&self) -> usize {
        (self.data_bytes as usize + PAST_BLOCK as usize).next_multiple_of(PIECE)
    }

    /// Writes the descriptions to their places in `upload`, which holds the crops' data.
    ///
    /// # Panics
    /// When it is shorter than [`Self::input_bytes`].
    pub fn write_descriptions(&self, upload: &mut [u8]) {
        let at = self.descriptions_at();
        let (data, descriptions) = upload.split_at_mut(at);
        data[self.data_bytes as usize..].fill(0);
        self.lists.put(at, descriptions);
    }

    /// Says of the records that are added from now on, until [`Self::clear`], that they begin at byte
    /// `record_at` of a file that is read in blocks of `block` bytes, a power of two. Their bytes are
    /// placed as they lie in its blocks, so that whole ones are read into their rooms without a
    /// copy; the upload is to begin at a multiple of `block`, too.
    ///
    /// # Panics
    /// When `block` is no power of two.
    pub fn read_by(&mut self, record_at: u64, block: usize) {
        assert!(block.is_power_of_two(), "blocks of {block} bytes");
        self.read_by = ReadBy { record_at, block: number(block) };
    }

    /// Adds a crop of a record of blocks, which becomes row `row` of the output. The record's
    /// bytes that are returned are to be in the upload when the kernels run.
    ///
    /// # Errors
    /// [`NotHere`]; the batch is then as before.
    pub fn add_stored(
        &mut self,
        row: u32,
        blocks: Blocks<'_>,
        crop: &Crop,
    ) -> Result<Placed, NotHere> {
        let stored = Stored::new(blocks, 0, &[]).map_err(|_| NotHere::OtherForm)?;
        let layout = CropLayout::of_stored(&stored, crop).ok_or(NotHere::FourInks)?;
        self.whole(|batch| {
            let placed = batch.place_groups(blocks, &layout)?;
            let mut words = batch.crop(row, crop, &layout)?;
            let profile = blocks.profile();
            words.mcus_per_group = number(profile.group_mcus());
            words.wide = u32::from(blocks.head().row_lengths == RowLengths::Wide);
            for (component, known) in
                words.components.iter_mut().zip(profile.components())
            {
                let n_blocks = component.blocks_x * component.blocks_y;
                component.blocks = batch.take(4 * u64::from(n_blocks))?;
                component.steps = batch.steps(&profile.steps(known.table));
            }
            let n_tiles = (words.n_blocks as usize).div_ceil(BLOCK_TILE);
            words.first_block_tile = number(batch.lists.block_tiles.len());
            let id = number(batch.len());
            batch.lists.block_tiles.extend(std::iter::repeat_n(id, n_tiles));
            batch.lists.crops.push(words);
            Ok(placed)
        })
    }

    /// Adds a crop or leaves no trace of it.
    pub(crate) fn whole<T>(
        &mut self,
        add: impl FnOnce(&mut Self) -> Result<T, NotHere>,
    ) -> Result<T, NotHere> {
        if self.len() >= MOST_CROPS {
            return Err(NotHere::NoRoom);
        }
        let mark = Mark {
            lens: self.lists.lens(),
            data_bytes: self.data_bytes,
            scratch: self.scratch,
            shared: self.shared,
        };
        let limits = self.limits;
        let added = add(self).and_then(|added| {
            let fits = self.input_bytes() <= limits.input_bytes as usize
                && self.scratch_bytes() <= limits.scratch_bytes;
            if fits { Ok(added) } else { Err(NotHere::NoRoom) }
        });
        if added.is_err() {
            self.lists.truncate(mark.lens);
            (self.data_bytes, self.scratch, self.shared) =
                (mark.data_bytes, mark.scratch, mark.shared);
        }
        added
    }

    /// A place for these bytes of the record, with the room round it.
    pub(crate) fn place(&mut self, bytes: Range<u64>) -> Result<Placed, NotHere> {
        let ReadBy { record_at, block } = self.read_by;
        let begin = self.data_bytes.next_multiple_of(block.max(PIECE_BYTES));
        let in_file = record_at.checked_add(bytes.start).ok_or(NotHere::NoRoom)?;
        let [skip, len] = [in_file % u64::from(block), bytes.end - bytes.start];
        let at = begin + u32::try_from(skip).map_err(|_| NotHere::NoRoom)?;
        let len = u32::try_from(len).map_err(|_| NotHere::NoRoom)?;
        let end = at.checked_add(len).and_then(|end| end.checked_next_multiple_of(block));
        // Kernels count bytes of the upload in 32 bits, and look beyond a little.
        let end = end.filter(|end| *end <= u32::MAX / 2).ok_or(NotHere::NoRoom)?;
        self.data_bytes = end;
        Ok(Placed { bytes, at, room: begin..end })
    }

    /// Scratch memory for so many bytes: its first piece.
    pub(crate) fn take(&mut self, n_bytes: u64) -> Result<u32, NotHere> {
        let at = self.scratch;
        let n_pieces = n_bytes.div_ceil(PIECE as u64);
        let end = u64::from(at) + n_pieces;
        self.scratch = u32::try_from(end).map_err(|_| NotHere::NoRoom)?;
        Ok(at)
    }

    /// Places for the row groups that a crop needs, and the lists of who looks through them.
    fn place_groups(
        &mut self,
        blocks: Blocks<'_>,
        layout: &CropLayout,
    ) -> Result<Placed, NotHere> {
        let head = blocks.head();
        let [_, down] = &layout.mcus;
        let groups = blocks.groups_of(down.clone());
        let placed = self.place(head.bytes_of(groups.clone()))?;
        let crop = number(self.len());
        let rows_per_mcu: usize = layout.components().map(|c| c.blocks[1]).sum();
        let rows_per_group = number(blocks.profile().group_mcus() * rows_per_mcu);
        let first_end = self.lists.ends.len();
        for group in groups.start..=groups.end {
            let before = head.bytes_of(groups.start..group);
            let before = u32::try_from(before.end - before.start);
            self.lists.ends.push(placed.at + before.map_err(|_| NotHere::NoRoom)?);
        }
        let most = (LANES / rows_per_group).max(1) as usize;
        let mut group = groups.start;
        while group < groups.end {
            let nth = first_end + group - groups.start;
            let ends = &self.lists.ends[nth..];
            let len = |n: usize| ends[n] - ends[0];
            let left = groups.end - group;
            let fits = |n: &usize| *n == 1 || len(*n) <= FRONT_BYTES;
            let n = (1..=most.min(left)).rev().find(fits).unwrap_or(1);
            let front = FrontWords {
                crop,
                group: number(group),
                n: number(n),
                ends: number(nth),
            };
            if len(n) <= FRONT_BYTES {
                let staged = (len(n) + PAST_BLOCK + 2 * PIECE_BYTES) & !(PIECE_BYTES - 1);
                self.shared.front = self.shared.front.max(staged);
                self.lists.fronts.push(front);
            } else {
                self.lists.walks.push(front);
            }
            group += n;
        }
        Ok(placed)
    }

    /// What all forms of pictures have in common.
    pub(crate) fn crop(
        &mut self,
        row: u32,
        crop: &Crop,
        layout: &CropLayout,
    ) -> Result<CropWords, NotHere> {
        if crop.target.sample_size() != self.size || crop.numerics != self.numerics {
            return Err(NotHere::OtherSteps);
        }
        let filter = filter(crop.target.interpolation).ok_or(NotHere::OtherResize)?;
        if filter != NEAREST && crop.ordered().first == FirstPass::Columns {
            return Err(NotHere::OtherResize);
        }
        let [across, down] = &layout.mcus;
        let mut words = CropWords {
            row,
            ycc: u32::from(layout.colour == Colour::YCbCr),
            limited: u32::from(filter == BICUBIC),
            mcu_first: number(down.start),
            mcu_end: number(down.end),
            mcus_across: number(layout.n_mcus[0]),
            mcus_down: number(layout.n_mcus[1]),
            ..CropWords::default()
        };
        for (place, component) in words.components.iter_mut().zip(layout.components()) {
            let [h, v] = component.blocks.map(number);
            let blocks_x = number(across.len()) * h;
            let blocks_y = number(down.len()) * v;
            *place = ComponentWords {
                across: h,
                down: v,
                ratio_x: number(component.ratio[0]),
                ratio_y: number(component.ratio[1]),
                width: number(component.size[0]),
                height: number(component.size[1]),
                block_x: number(across.start) * h,
                blocks_x,
                block_y: number(down.start) * v,
                blocks_y,
                stride: (blocks_x * 8).next_multiple_of(PIECE_BYTES),
                ..ComponentWords::default()
            };
            let n_samples = u64::from(place.stride) * u64::from(blocks_y) * 8;
            // A word at a row's end may be looked at whole.
            place.samples = self.take(n_samples + PIECE as u64)?;
            words.n_components += 1;
            words.n_blocks += blocks_x * blocks_y;
            words.rows_per_mcu += v;
        }
        match self.numerics {
            Numerics::Exact | Numerics::Exact13 => self.exact(&mut words, layout)?,
            Numerics::Planar => self.planar(&mut words, layout)?,
        }
        Ok(words)
    }

    /// The passes in exact numerics: tiles of pixels of all components together.
    fn exact(
        &mut self,
        words: &mut CropWords,
        layout: &CropLayout,
    ) -> Result<(), NotHere> {
        let Some(layout) = layout.components().next() else {
            return Err(NotHere::OtherForm);
        };
        let id = number(self.len());
        let Size { width, .. } = self.size;
        let mut first = words.components[0];
        self.passes(&mut first, layout)?;
        (words.left, words.top) = (first.first_x, first.first_y);
        (words.columns, words.rows) = (first.columns, first.rows);
        words.staged_left = words.left & !7;
        let end = (words.left + words.columns).next_multiple_of(8);
        words.staged_columns = end - words.staged_left;
        let quads = u64::from(first.rows.div_ceil(4));
        first.narrow = self.take(quads * 3 * u64::from(width) * 4)?;
        words.components[0] = first;
        let mut tile_rows = TILE_ROWS;
        while tile_rows > 4 && tile_rows * words.staged_columns > GOOD_TILE_PIXELS {
            tile_rows -= 4;
        }
        let pixels = tile_rows * words.staged_columns;
        // Filters of several lengths are taken as one: pixels behind the tile's are looked at.
        let bytes = 4 * pixels + 2 * PIECE_BYTES;
        let (lists, shared) = (&mut self.lists, &mut self.shared);
        let tiles = if pixels <= GOOD_TILE_PIXELS {
            shared.rows = shared.rows.max(bytes);
            &mut lists.row_tiles
        } else if bytes <= MOST_SHARED {
            shared.large = shared.large.max(bytes);
            &mut lists.large_tiles
        } else {
            &mut lists.wide_tiles
        };
        words.tile_rows = tile_rows;
        words.first_row_tile = number(tiles.len());
        let n_tiles = first.rows.div_ceil(tile_rows) as usize;
        tiles.extend(std::iter::repeat_n(id, n_tiles));
        Ok(())
    }

    /// The passes in planar numerics: tiles of rows of each component.
    fn planar(
        &mut self,
        words: &mut CropWords,
        layout: &CropLayout,
    ) -> Result<(), NotHere> {
        let id = number(self.len());
        let Size { width, .. } = self.size;
        let mut widest = 0;
        let mut made: [Option<([u32; 2], ComponentWords)>; 3] = [None; 3];
        for (nth, component) in layout.components().enumerate() {
            let words = &mut words.components[nth];
            let ratio = component.ratio.map(number);
            // Planes of one sampling share their axes.
            match made.iter().flatten().find(|(other, _)| *other == ratio) {
                Some((_, other)) => {
                    (words.axis_x, words.axis_y) = (other.axis_x, other.axis_y);
                    (words.first_x, words.first_y) = (other.first_x, other.first_y);
                    (words.columns, words.rows) = (other.columns, other.rows);
                }
                None => self.passes(words, component)?,
            }
            made[nth] = Some((ratio, *words));
            let quads = u64::from(words.rows.div_ceil(4));
            words.narrow = self.take(quads * u64::from(width) * 8)?;
            // Whole words at both ends.
            widest = widest.max(words.columns.next_multiple_of(4) + 4);
        }
        let tile_rows =
            if widest * PLANAR_TILE_ROWS <= MOST_SHARED { PLANAR_TILE_ROWS } else { 4 };
        if widest * tile_rows > MOST_SHARED {
            return Err(NotHere::TooWide);
        }
        self.shared.rows = self.shared.rows.max(widest * tile_rows);
        words.tile_rows = tile_rows;
        words.first_row_tile = number(self.lists.row_tiles.len());
        for component in &mut words.components[..words.n_components as usize] {
            component.tiles = component.rows.div_ceil(tile_rows);
            let tiles = std::iter::repeat_n(id, component.tiles as usize);
            self.lists.row_tiles.extend(tiles);
        }
        Ok(())
    }

    /// The axes of a component, and the samples that are resized.
    fn passes(
        &mut self,
        words: &mut ComponentWords,
        layout: &ComponentLayout,
    ) -> Result<(), NotHere> {
        let [along, down] = &layout.stretches;
        let [columns, rows] = [along.needed(), down.needed()];
        words.first_x = number(layout.first[0]) + columns.start;
        words.first_y = number(layout.first[1]) + rows.start;
        words.columns = columns.end - columns.start;
        words.rows = rows.end - rows.start;
        words.axis_x = self.axis(along, columns.start, Weights::ByTap)?;
        words.axis_y = self.axis(down, rows.start, Weights::ByFours)?;
        Ok(())
    }

    fn axis(
        &mut self,
        stretch: &Stretch,
        origin: u32,
        lie: Weights,
    ) -> Result<u32, NotHere> {
        let reach = stretch.reach();
        if reach > f64::from(MOST_TAPS / 2 - 1) {
            return Err(NotHere::TooWide);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and no more than `MOST_TAPS`"
        )]
        let longest = (2.0 * reach) as u32 + 2;
        let n_outputs = stretch.window.end - stretch.window.start;
        let (taps, tap_bytes) = match lie {
            Weights::ByTap => (longest, 4),
            // A four more where a filter begins in the middle of one.
            Weights::ByFours => ((longest + 6) / 4, 16),
        };
        let words = AxisWords {
            start: stretch.start,
            scale: stretch.scale(),
            reach,
            per_input: 1.0 / stretch.widening,
            n_in: stretch.n_in,
            origin,
            window: stretch.window.start,
            n_outputs,
            mirror: u32::from(stretch.mirror == Mirror::Horizontal),
            filter: filter(stretch.interpolation).ok_or(NotHere::OtherResize)?,
            running: u32::from(self.numerics == Numerics::Planar),
            by_fours: u32::from(lie == Weights::ByFours),
            taps,
            spans: self.take(4 * u64::from(n_outputs))?,
            weights: self.take(tap_bytes * u64::from(taps) * u64::from(n_outputs))?,
            unused: 0,
        };
        self.lists.axes.push(words);
        Ok(number(self.lists.axes.len() - 1))
    }

    /// The number of a table of steps, until the lists have their places.
    pub(crate) fn steps(&mut self, table: &[u16; 64]) -> u32 {
        // As they are multiplied, with a sign; column by column, as kernels take them.
        let step = |k: usize| i32::from(table[k % 8 * 8 + k / 8].cast_signed());
        let steps = std::array::from_fn(|k| step(k).cast_unsigned());
        // Neighbours often come from one camera, and a crop's two chroma planes share one.
        let recent = self.lists.steps.len().saturating_sub(4);
        let same = self.lists.steps[recent..].iter().position(|known| *known == steps);
        let nth = same.map_or(self.lists.steps.len(), |nth| recent + nth);
        if nth == self.lists.steps.len() {
            self.lists.steps.push(steps);
        }
        number(nth)
    }
}

/// What the kernels call the filter of an interpolation, if they have it.
fn filter(interpolation: Interpolation) -> Option<u32> {
    match interpolation {
        Interpolation::Nearest => Some(NEAREST),
        Interpolation::Bilinear => Some(1),
        Interpolation::Bicubic => Some(BICUBIC),
        Interpolation::Box | Interpolation::Hamming | Interpolation::Lanczos => None,
    }
}

/// How weights lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weights {
    ByTap,
    ByFours,
}

/// Pieces of so many bytes.
fn pieces(n_bytes: u64) -> u32 {
    u32::try_from(n_bytes.div_ceil(PIECE as u64)).unwrap_or(u32::MAX)
}
