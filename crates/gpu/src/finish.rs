//! The finish on the GPU: samples at the cut become a delivered batch in one launch.
//!
//! Flip, normalise, cast, lay out, erase, mix; the meaning is `ops::finish`'s, bit for bit, and the
//! kernel is `kernels/finish.cuh`. All that chance decides is decided on the host and passed as
//! descriptions (`finish/describe.rs`; `finish/feed.rs` has batches finished that way); all that depends on the recipe alone is computed on the
//! host once and kept on the device ([`FinishPlan::constants`]). Nothing here owns device memory,
//! and a batch in steady state allocates nothing.
#![allow(unsafe_code, reason = "launches a kernel on memory that is known by address")]

pub mod describe;
mod factors;
pub mod feed;

use std::ffi::{CStr, c_void};

use bothends_core::recipe::Mixture;
use bothends_core::recipe::erasing::normal_shares;
use bothends_core::tensor::{Dtype, Layout, Output, SampleShape};

use self::describe::{Description, Descriptions, ErasedWords, RowWords};
use self::factors::Factors;
use crate::GpuError;
use crate::driver::{Address, Driver, KernelId, Launch, StreamId};

/// Threads of a block; the kernels are declared for so many.
const THREADS: u32 = 256;
/// How many times 16 bytes of output a thread of the full kernel makes: enough that the block's table is worth loading.
const FULL_GROUPS: u32 = 8;
/// Most samples of a batch: what a grid has along y.
const MOST_ROWS: usize = 65_535;

/// What a recipe does after the cut, as far as it is the same for every sample of a view.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishPlan {
    /// The view at the cut.
    pub shape: SampleShape,
    /// What is delivered.
    pub output: Output,
    /// What each byte of each channel becomes, as bits of an element (`ops::Finish::values`).
    pub values: Vec<[u32; 256]>,
    /// Mean and standard deviation of each channel; `None` without normalisation
    /// (`ops::Finish::scales`).
    pub scales: Vec<Option<(f32, f32)>>,
    /// Whether rectangles may be erased with noise: 256 kB of constants.
    pub has_noise: bool,
}

impl FinishPlan {
    /// Whether there is a kernel for this: one or three channels, less than 2^31 elements. What
    /// has none is finished on the host.
    #[must_use]
    pub fn can_run(&self) -> bool {
        let n = self.shape.channels as usize;
        let is_small = self.shape.len() < 1 << 31 && !self.shape.is_empty();
        matches!(n, 1 | 3) && is_small && self.values.len() >= n && self.scales.len() >= n
    }

    /// What the kernel looks up, to be put into device memory once, at any multiple of 16 bytes.
    #[must_use]
    pub fn constants(&self) -> Vec<u8> {
        let n = self.shape.channels as usize;
        let values = self.values.iter().take(n).flatten().copied();
        let noise = self.has_noise.then(normal_shares).into_iter().flatten();
        values.chain(noise.map(f32::to_bits)).flat_map(u32::to_le_bytes).collect()
    }

    /// Where in the constants the quantiles begin.
    fn quantiles_at(&self) -> usize {
        self.shape.channels as usize * 1024
    }

    fn n_elements(&self) -> u32 {
        u32::try_from(self.shape.len()).unwrap_or(u32::MAX)
    }

    /// Output elements along a line that a thread works on: a plane, or a whole sample.
    fn line(&self) -> u32 {
        match self.output.layout {
            Layout::Nchw => self.n_elements() / self.shape.channels.max(1),
            Layout::Nhwc => self.n_elements(),
        }
    }

    fn kernels(&self) -> Option<[&'static CStr; 2]> {
        let is_planes = self.output.layout == Layout::Nchw;
        Some(match (self.output.dtype, self.shape.channels, is_planes) {
            (Dtype::U8, 1, _) => [c"finish_u8_1", c"finish_u8_1_full"],
            (Dtype::U8, 3, false) => [c"finish_u8_3", c"finish_u8_3_full"],
            (Dtype::U8, 3, true) => [c"finish_u8_3_planes", c"finish_u8_3_planes_full"],
            (Dtype::F32, 1, _) => [c"finish_f32_1", c"finish_f32_1_full"],
            (Dtype::F32, 3, false) => [c"finish_f32_3", c"finish_f32_3_full"],
            (Dtype::F32, 3, true) => {
                [c"finish_f32_3_planes", c"finish_f32_3_planes_full"]
            }
            (Dtype::F16, 1, _) => [c"finish_f16_1", c"finish_f16_1_full"],
            (Dtype::F16, 3, false) => [c"finish_f16_3", c"finish_f16_3_full"],
            (Dtype::F16, 3, true) => {
                [c"finish_f16_3_planes", c"finish_f16_3_planes_full"]
            }
            (Dtype::Bf16, 1, _) => [c"finish_bf16_1", c"finish_bf16_1_full"],
            (Dtype::Bf16, 3, false) => [c"finish_bf16_3", c"finish_bf16_3_full"],
            (Dtype::Bf16, 3, true) => {
                [c"finish_bf16_3_planes", c"finish_bf16_3_planes_full"]
            }
            _ => return None,
        })
    }
}

/// One batch: where it is, and how it is mixed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FinishBatch {
    /// What the rows' offsets count from.
    pub src: Address,
    /// The view of the first delivered sample; at a multiple of the element's size, of 16 bytes
    /// where it is to be fast.
    pub dst: Address,
    /// Bytes from a delivered sample to the next.
    pub dst_stride: u64,
    /// The description, on the device.
    pub description: Address,
    /// How the samples are mixed; one alone stays as it is.
    pub mixture: Option<Mixture>,
    /// How far a sample's partner is from it in the batch (`ops::Finish::distance`).
    pub distance: usize,
}

/// Launches the finish of one view.
#[derive(Debug)]
pub struct Finisher {
    plan: FinishPlan,
    constants: Address,
    /// Without rectangles and mixing, and with them.
    kernels: [KernelId; 2],
    /// What the plain kernel multiplies with; `None` where only looking values up is right.
    factors: Option<Factors>,
}

impl Finisher {
    /// For batches of this plan, whose [`FinishPlan::constants`] are or will be at `constants`
    /// before the first launch runs, and stay there. May block in the driver: for set-up.
    ///
    /// # Errors
    /// [`GpuError::Driver`], also for a plan that has no kernel.
    pub fn new(
        driver: &dyn Driver,
        plan: FinishPlan,
        constants: Address,
    ) -> Result<Self, GpuError> {
        let names = plan.kernels().filter(|_| plan.can_run()).ok_or_else(|| {
            let SampleShape { height, width, channels } = plan.shape;
            let why = format!("no kernel for samples of {height} x {width} x {channels}");
            GpuError::Driver { call: "finish", why }
        })?;
        let kernels = [driver.kernel(names[0])?, driver.kernel(names[1])?];
        let factors = Factors::of(&plan);
        Ok(Self { plan, constants, kernels, factors })
    }

    /// What it finishes.
    #[must_use]
    pub fn plan(&self) -> &FinishPlan {
        &self.plan
    }

    /// Enqueues the finish of a batch of `description`. Does not block.
    ///
    /// # Errors
    /// [`GpuError::Driver`], also for more than 65,535 rows.
    ///
    /// # Safety
    /// The description, the samples at its rows' offsets, and the delivered batch lie in device
    /// memory of this driver where `batch` says, until `stream` has passed this; the last
    /// overlaps none of the others.
    pub unsafe fn launch(
        &self,
        driver: &dyn Driver,
        description: &Description,
        batch: &FinishBatch,
        stream: StreamId,
    ) -> Result<(), GpuError> {
        if description.n_rows == 0 {
            return Ok(());
        }
        if description.n_rows > MOST_ROWS {
            let why = format!("{} rows in a batch; at most 65535", description.n_rows);
            return Err(GpuError::Driver { call: "finish", why });
        }
        let mut arguments = self.arguments(description, batch);
        let is_plain = description.n_erased == 0 && arguments.mixing == MIX_NOTHING;
        let factors = self.factors.filter(|_| is_plain);
        if let Some(factors) = factors {
            (arguments.mean, arguments.std, arguments.low) =
                (factors.offset, factors.high, factors.low);
        }
        let is_full = factors.is_none();
        let per_thread = if is_full { 4 } else { 16 / self.element_bytes() };
        let n_groups = self.plan.line().div_ceil(per_thread);
        // Of elements of four bytes one, of smaller ones two: the best of those tried on an H200.
        let groups = match self.element_bytes() {
            _ if is_full => FULL_GROUPS,
            4 => 1,
            _ => 2,
        };
        let launch = Launch {
            grid: [n_groups.div_ceil(THREADS * groups), arguments.n_rows, 1],
            block: THREADS,
            shared_bytes: 0,
        };
        let kernel = self.kernels[usize::from(is_full)];
        let arguments: [*const c_void; 1] = [(&raw const arguments).cast()];
        // SAFETY: the kernel takes one `Arguments`, and stays in the memory that the caller
        // vouches for: every row is one sample, every index below the description's counts.
        unsafe { driver.launch(kernel, launch, stream, &arguments) }
    }

    fn element_bytes(&self) -> u32 {
        u32::try_from(self.plan.output.dtype.size()).unwrap_or(4)
    }

    fn arguments(&self, description: &Description, batch: &FinishBatch) -> Arguments {
        let n = description.n_rows;
        let n_rows = u32::try_from(n).unwrap_or(u32::MAX);
        let distance = match u32::try_from(batch.distance % n.max(1)).unwrap_or(0) {
            0 => n_rows,
            distance => distance,
        };
        let (mixing, shares, area) = mixing(batch.mixture.filter(|_| n > 1));
        let is_byte = self.plan.output.dtype == Dtype::U8;
        let (mut mean, mut std) = ([0.0; 3], [1.0; 3]);
        let mut scaling = if is_byte { SCALE_TO_BYTE } else { SCALE_NOTHING };
        for (nth, scale) in self.plan.scales.iter().take(3).enumerate() {
            if let Some(scale) = scale.filter(|_| is_byte) {
                (mean[nth], std[nth]) = scale;
                scaling = SCALE_NORMALISED;
            }
        }
        let constants = self.constants;
        Arguments {
            src: batch.src.0,
            dst: batch.dst.0,
            values: constants.0,
            quantiles: constants.after(self.plan.quantiles_at()).0,
            rows: batch.description.0,
            erased: batch.description.after(Descriptions::erased_at(n)).0,
            dst_stride: batch.dst_stride,
            height: self.plan.shape.height,
            width: self.plan.shape.width,
            n_rows,
            distance,
            mixing,
            shares,
            area,
            scaling,
            mean,
            std,
            low: [0.0; 3],
            unit: factors::PER_BYTE,
            unused: 0,
        }
    }
}

const MIX_NOTHING: u32 = 0;
const MIX_UP: u32 = 1;
const MIX_CUT: u32 = 2;

const SCALE_NOTHING: u32 = 0;
const SCALE_TO_BYTE: u32 = 1;
const SCALE_NORMALISED: u32 = 2;

/// What is mixed: how, the shares of itself and of the partner, and from which row and column
/// to before which the partner's part goes.
fn mixing(mixture: Option<Mixture>) -> (u32, [f32; 2], [u32; 4]) {
    match mixture {
        None => (MIX_NOTHING, [1.0, 0.0], [0; 4]),
        Some(Mixture::Mixup { share }) => {
            (MIX_UP, [single(share), single(1.0 - share)], [0; 4])
        }
        Some(Mixture::Cutmix { area, .. }) => {
            let (bottom, right) = (area.top + area.height, area.left + area.width);
            (MIX_CUT, [1.0, 0.0], [area.top, area.left, bottom, right])
        }
    }
}

/// The nearest f32.
#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest f32")]
fn single(value: f64) -> f32 {
    value as f32
}

/// `FinishArguments` of `kernels/finish.cuh`.
#[repr(C)]
#[derive(Debug)]
struct Arguments {
    src: u64,
    dst: u64,
    values: u64,
    quantiles: u64,
    rows: u64,
    erased: u64,
    dst_stride: u64,
    height: u32,
    width: u32,
    n_rows: u32,
    distance: u32,
    mixing: u32,
    shares: [f32; 2],
    /// Top, left, bottom, right.
    area: [u32; 4],
    scaling: u32,
    mean: [f32; 3],
    std: [f32; 3],
    low: [f32; 3],
    unit: [f32; 2],
    unused: u32,
}

const _: () = assert!(size_of::<Arguments>() == 152);
const _: () = assert!(size_of::<RowWords>() == 24);
const _: () = assert!(size_of::<ErasedWords>() == 56);
