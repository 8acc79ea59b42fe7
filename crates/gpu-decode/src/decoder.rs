//! The kernels, launched over a batch.
//!
//! Everything is enqueued on one stream and nothing waits. What a kernel reads besides the
//! upload's own bytes was decided by [`Batch`], within the sizes that are checked here. Read
//! `crates/gpu/kernels/decode/words.cuh` for what the kernels are told.
#![allow(unsafe_code, reason = "launches kernels on memory that a driver cannot check")]

use std::ffi::{CStr, c_void};
use std::fmt;
use std::sync::Arc;

use bothends_core::recipe::Numerics;
use bothends_gpu::GpuError;
use bothends_gpu::driver::{Address, Driver, KernelId, Launch, StreamId};

use crate::Batch;
use crate::words::{BLOCK_TILE, COLUMN_ROWS, LANE_TILE, PIECE};

/// Most threads of a block of the resizing kernels.
const MOST_THREADS: u32 = 256;

/// What became of a crop, as the kernels leave it: one little-endian u32 each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// Whether the sample is right. If not, its pixels mean nothing, and the host makes it or
    /// says what is wrong with it.
    #[must_use]
    pub fn is_made(self) -> bool {
        self.0 == 0
    }
}

/// What every kernel is launched with: `DecodeArgs` of `words.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Args {
    input: u64,
    scratch: u64,
    output: u64,
    sample_bytes: u64,
    n_crops: u32,
    n_axes: u32,
    width: u32,
    height: u32,
    status: u32,
    crops: u32,
    axes: u32,
    fronts: u32,
    walks: u32,
    ends: u32,
    block_tiles: u32,
    row_tiles: u32,
    wide_tiles: u32,
    coefficient_tiles: u32,
    scans: u32,
    tables: u32,
    scan_rows: u32,
    lanes: u32,
    checks: u32,
    points: u32,
    n_scan_rows: u32,
    n_checks: u32,
    n_tables: u32,
}

/// The kernels by what they do.
#[derive(Debug)]
struct Kernels {
    axes: KernelId,
    store_front: KernelId,
    store_walk: KernelId,
    store_blocks: KernelId,
    jpeg_prepare: KernelId,
    jpeg_entropy: KernelId,
    jpeg_blocks: KernelId,
    rows_exact: KernelId,
    rows_wide: KernelId,
    columns_exact: KernelId,
    rows_planar: KernelId,
    columns_planar: KernelId,
}

/// The kernels of decoding and the memory in which they leave things for each other. One
/// batch at a time: a batch is enqueued after the one before, on the same stream.
pub struct GpuDecoder {
    driver: Arc<dyn Driver>,
    kernels: Kernels,
    scratch: Address,
    scratch_bytes: u64,
}

impl fmt::Debug for GpuDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GpuDecoder with {} bytes of scratch memory", self.scratch_bytes)
    }
}

impl GpuDecoder {
    /// Finds the kernels and allocates `scratch_bytes` of device memory. For set-up: it blocks.
    ///
    /// # Errors
    /// As of [`Driver::kernel`] and [`Driver::allocate`].
    pub fn new(driver: Arc<dyn Driver>, scratch_bytes: u64) -> Result<Self, GpuError> {
        let kernel = |name: &'static CStr| driver.kernel(name);
        let kernels = Kernels {
            axes: kernel(c"decode_axes")?,
            store_front: kernel(c"decode_store_front")?,
            store_walk: kernel(c"decode_store_walk")?,
            store_blocks: kernel(c"decode_store_blocks")?,
            jpeg_prepare: kernel(c"decode_jpeg_prepare")?,
            jpeg_entropy: kernel(c"decode_jpeg_entropy")?,
            jpeg_blocks: kernel(c"decode_jpeg_blocks")?,
            rows_exact: kernel(c"decode_rows_exact")?,
            rows_wide: kernel(c"decode_rows_wide")?,
            columns_exact: kernel(c"decode_columns_exact")?,
            rows_planar: kernel(c"decode_rows_planar")?,
            columns_planar: kernel(c"decode_columns_planar")?,
        };
        let bytes = usize::try_from(scratch_bytes)
            .map_err(|_| GpuError::OutOfMemory { bytes: usize::MAX })?;
        let scratch = driver.allocate(bytes)?;
        Ok(Self { driver, kernels, scratch, scratch_bytes })
    }

    /// Where the crops' status words are once [`Self::decode`] has run over `batch`: one u32
    /// for each, in the order in which they were added.
    #[must_use]
    pub fn status_at(&self, batch: &Batch) -> Address {
        self.scratch.after(batch.status_piece() as usize * PIECE)
    }

    /// Enqueues the kernels that make the crops of `batch`: of what lies at `input`, samples at
    /// `output`, row by row. Does not block.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`] where the batch wants more scratch memory than there is, else as
    /// of [`Driver::launch`].
    ///
    /// # Safety
    /// From `input` on, aligned to 16 bytes, there are `batch.input_bytes()` bytes: the crops'
    /// data as placed and the batch's own descriptions. From `output` on, aligned to 4 bytes,
    /// there is a sample's room for every row of the batch. Both stay, and nobody else writes
    /// there, until `stream` has passed; batches of this decoder are enqueued on one stream.
    pub unsafe fn decode(
        &mut self,
        batch: &Batch,
        input: Address,
        output: Address,
        stream: StreamId,
    ) -> Result<(), GpuError> {
        if batch.scratch_bytes() > self.scratch_bytes {
            let bytes = usize::try_from(batch.scratch_bytes()).unwrap_or(usize::MAX);
            return Err(GpuError::OutOfMemory { bytes });
        }
        if batch.is_empty() {
            return Ok(());
        }
        let args = self.args(batch, input, output);
        for (kernel, launch, row_tiles) in self.plan(batch, &args) {
            let args = Args { row_tiles, ..args };
            let arguments = [(&raw const args).cast::<c_void>()];
            // SAFETY: the kernels take one `DecodeArgs`, and stay within what the caller
            // promised and within the scratch memory, whose size is checked above.
            unsafe { self.driver.launch(kernel, launch, stream, &arguments)? };
        }
        Ok(())
    }

    fn args(&self, batch: &Batch, input: Address, output: Address) -> Args {
        let size = batch.size();
        let (places, _) = batch.lists.places(batch.descriptions_at());
        Args {
            input: input.0,
            scratch: self.scratch.0,
            output: output.0,
            sample_bytes: 3 * u64::from(size.height) * u64::from(size.width),
            n_crops: count(batch.len()),
            n_axes: count(batch.lists.axes.len()),
            width: size.width,
            height: size.height,
            status: batch.status_piece(),
            crops: places.crops,
            axes: places.axes,
            fronts: places.fronts,
            walks: places.walks,
            ends: places.ends,
            block_tiles: places.block_tiles,
            row_tiles: places.row_tiles,
            wide_tiles: places.wide_tiles,
            coefficient_tiles: places.coefficient_tiles,
            scans: places.scans,
            tables: places.tables,
            scan_rows: places.scan_rows,
            lanes: places.lanes,
            checks: places.checks,
            points: places.points,
            n_scan_rows: count(batch.lists.scan_rows.len()),
            n_checks: count(batch.lists.checks.len()),
            n_tables: count(batch.lists.tables.len()),
        }
    }

    /// The launches in their order, with the tiles of rows that each is for; those over nothing are left out.
    fn plan(
        &self,
        batch: &Batch,
        args: &Args,
    ) -> impl Iterator<Item = (KernelId, Launch, u32)> + use<> {
        let k = &self.kernels;
        let lists = &batch.lists;
        let line = |n: usize, block: u32, shared_bytes: u32| Launch {
            grid: [count(n), 1, 1],
            block,
            shared_bytes,
        };
        let threads = args.width.next_multiple_of(32).clamp(32, MOST_THREADS);
        let columns = Launch {
            grid: [
                args.width.div_ceil(threads),
                args.height.div_ceil(COLUMN_ROWS),
                args.n_crops,
            ],
            block: threads,
            shared_bytes: 0,
        };
        let n_clearing = batch.len().div_ceil(MOST_THREADS as usize);
        let (rows, columns_pass) = match batch.numerics() {
            Numerics::Exact | Numerics::Exact13 => (k.rows_exact, k.columns_exact),
            Numerics::Planar => (k.rows_planar, k.columns_planar),
        };
        let rows_shared = batch.shared.rows;
        let (blocks, lanes) = (count(BLOCK_TILE), count(LANE_TILE));
        let tables_shared = batch.shared.tables;
        // Sixteen checksums, a table, or four rows of MCUs a block.
        let preparing = lists.checks.len().div_ceil(16)
            + lists.tables.len()
            + lists.scan_rows.len().div_ceil(4);
        let before = [
            (k.axes, line(lists.axes.len() + n_clearing, MOST_THREADS, 0)),
            (k.store_front, line(lists.fronts.len(), 128, batch.shared.front)),
            (k.store_walk, line(lists.walks.len(), 128, 0)),
            (k.store_blocks, line(lists.block_tiles.len(), blocks, 0)),
            (k.jpeg_prepare, line(preparing, 128, 0)),
            (k.jpeg_entropy, line(lists.lanes.len(), lanes, tables_shared)),
            (k.jpeg_blocks, line(lists.coefficient_tiles.len(), blocks, 0)),
            (rows, line(lists.row_tiles.len(), threads, rows_shared)),
        ];
        let wide = line(lists.wide_tiles.len(), threads, 0);
        let after = [(k.rows_wide, wide), (columns_pass, columns)];
        let large = line(lists.large_tiles.len(), threads, batch.shared.large);
        let (places, _) = lists.places(batch.descriptions_at());
        let own = |(kernel, launch)| (kernel, launch, places.row_tiles);
        let launches = before.map(own).into_iter();
        let launches = launches.chain([(rows, large, places.large_tiles)]);
        let launches = launches.chain(after.map(own));
        launches.filter(|(_, launch, _)| launch.grid[0] > 0)
    }
}

impl Drop for GpuDecoder {
    fn drop(&mut self) {
        // SAFETY: it came from `allocate`, is freed once, and whoever drops this has seen the
        // stream pass its work, as `decode` asks.
        unsafe { self.driver.free(self.scratch) };
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).expect("a batch has far fewer than 2^32 of anything")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_as_long_as_the_kernels() {
        assert_eq!(size_of::<Args>(), 128);
    }
}
