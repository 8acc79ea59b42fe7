//! The finish kernels against `ops::Finish`, bit for bit, on the CPU twin.
#![allow(clippy::unwrap_used, reason = "a panic is a test's report")]
#![allow(unsafe_code, reason = "kernels are launched on memory that the test owns")]

mod bench;

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::draw::CropBox;
use bothends_core::recipe::op::RandomErasing;
use bothends_core::recipe::{Mixture, Op, Recipe};
use bothends_core::sample::SampleKey;
use bothends_core::tensor::{Dtype, Layout, Output, SampleShape, Views};
use bothends_gpu::driver::{Driver, StreamId};
use bothends_gpu::finish::describe::{Descriptions, Erased, FinishRow, erased};
use bothends_gpu::finish::{FinishBatch, FinishPlan, Finisher};
use bothends_gpu::twin::Twin;
use bothends_ops::Finish;
use proptest::prelude::*;

use bench::{FRESH, download, noise, twin, upload};

const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16];
const LAYOUTS: [Layout; 2] = [Layout::Nhwc, Layout::Nchw];

/// A batch to be finished by both.
#[derive(Debug, Clone)]
struct Case {
    shape: SampleShape,
    output: Output,
    /// The recipe's ops behind the cut, as JSON.
    ops: String,
    repeated: u32,
    n_rows: usize,
    /// Bytes between samples, of the input and of the output in elements.
    gaps: [usize; 2],
    /// Which rows are flipped, a bit each.
    flips: u64,
    mixture: Option<Mixture>,
    seed: u64,
}

impl Case {
    fn new(shape: [u32; 3], dtype: Dtype, layout: Layout) -> Self {
        let [height, width, channels] = shape;
        Self {
            shape: SampleShape { height, width, channels },
            output: Output { dtype, layout },
            ops: normalize(channels),
            repeated: 1,
            n_rows: 3,
            gaps: [0, 0],
            flips: 0b010,
            mixture: None,
            seed: 1,
        }
    }

    fn recipe(&self) -> Recipe {
        let (ops, repeated) = (&self.ops, self.repeated);
        let json = format!(
            r#"{{"version": 1, "name": "t", "numerics": "exact", "repeated_augment": {repeated},
                "ops": [{{"op": "decode"}}, {{"op": "center_crop", "size": 8}} {ops}]}}"#
        );
        Recipe::from_json(&json).unwrap()
    }

    fn sample_bytes(&self) -> usize {
        self.shape.len() * self.output.dtype.size()
    }

    fn key(&self, row: usize) -> SampleKey {
        let sample = SampleId(u64::try_from(row).unwrap() << 31 | 5);
        SampleKey { seed: self.seed, epoch: EpochIdx(3), sample }
    }

    fn src_offset(&self, row: usize) -> usize {
        row * (self.shape.len() + self.gaps[0])
    }

    fn dst_stride(&self) -> usize {
        self.sample_bytes() + self.gaps[1] * self.output.dtype.size()
    }

    /// What the host makes, with `FRESH` between samples.
    fn expected(&self, finish: &Finish, src: &[u8]) -> Vec<u8> {
        let mut batch = Vec::new();
        for row in 0..self.n_rows {
            let mut sample = src[self.src_offset(row)..][..self.shape.len()].to_vec();
            if self.is_flipped(row) {
                let row_bytes = (self.shape.width * self.shape.channels) as usize;
                for line in sample.chunks_exact_mut(row_bytes) {
                    let pixels: Vec<_> =
                        line.chunks(self.shape.channels as usize).rev().collect();
                    let mirrored = pixels.concat();
                    line.copy_from_slice(&mirrored);
                }
            }
            let mut out = vec![0; self.sample_bytes()];
            finish.run(Some(self.key(row)), &sample, &mut out);
            batch.extend(out);
        }
        if let Some(mixture) = self.mixture {
            finish.mix(mixture, &mut batch, &mut Vec::new());
        }
        let mut spread = vec![FRESH; self.n_rows * self.dst_stride()];
        for (to, from) in
            spread.chunks_mut(self.dst_stride()).zip(batch.chunks(self.sample_bytes()))
        {
            to[..from.len()].copy_from_slice(from);
        }
        spread
    }

    fn is_flipped(&self, row: usize) -> bool {
        self.flips >> (row % 64) & 1 == 1
    }

    fn erasings(&self) -> Vec<(RandomErasing, u32)> {
        let recipe = self.recipe();
        let of = |(stream, op): (u32, &Op)| {
            let Op::RandomErasing(op) = op else { return None };
            Some((op.clone(), stream))
        };
        recipe.streams_after_cut().filter_map(of).collect()
    }

    fn rectangles(&self) -> Vec<Vec<Erased>> {
        let ops = self.erasings();
        let of_row = |row| {
            let of = |(op, stream): &(RandomErasing, u32)| {
                erased(op, *stream, (self.key(row), 0), self.shape)
            };
            ops.iter().filter_map(of).collect()
        };
        (0..self.n_rows).map(of_row).collect()
    }

    /// What the kernel makes.
    fn made(&self, twin: &Twin, finish: &Finish, src: &[u8]) -> Vec<u8> {
        let plan = FinishPlan {
            shape: self.shape,
            output: self.output,
            values: finish.values(),
            scales: finish.scales(),
            has_noise: self.ops.contains("random\""),
        };
        let constants = upload(twin, &plan.constants());
        let finisher = Finisher::new(twin, plan, constants).unwrap();
        let rectangles = self.rectangles();
        let rows: Vec<_> = (0..self.n_rows)
            .map(|row| FinishRow {
                offset: self.src_offset(row) as u64,
                is_flipped: self.is_flipped(row),
                erased: &rectangles[row],
            })
            .collect();
        let n_erased = rectangles.iter().map(Vec::len).sum();
        let mut bytes = vec![0; Descriptions::bytes(self.n_rows, n_erased)];
        let description = Descriptions::write(&rows, &mut bytes).unwrap();
        let n_bytes = self.n_rows * self.dst_stride();
        let batch = FinishBatch {
            src: upload(twin, src),
            dst: twin.allocate(n_bytes).unwrap(),
            dst_stride: self.dst_stride() as u64,
            description: upload(twin, &bytes),
            mixture: self.mixture,
            distance: finish.distance(),
        };
        // SAFETY: everything lies in the twin's memory, which is done when this returns.
        unsafe { finisher.launch(twin, &description, &batch, StreamId(0)) }.unwrap();
        let made = download(twin, batch.dst, n_bytes);
        for at in [constants, batch.src, batch.dst, batch.description] {
            // SAFETY: nothing runs any more.
            unsafe { twin.free(at) };
        }
        made
    }

    /// Whether both make the same; where they first differ, otherwise.
    fn check(&self, twin: &Twin) -> Result<(), String> {
        let views = Views::from(self.shape);
        let finish = Finish::new(&self.recipe(), &views, self.output).unwrap();
        let n = self.src_offset(self.n_rows - 1) + self.shape.len();
        let src = noise(n, self.seed);
        let (made, expected) =
            (self.made(twin, &finish, &src), self.expected(&finish, &src));
        match made.iter().zip(&expected).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => Err(format!(
                "byte {at} of {}: {} instead of {}, {self:?}",
                made.len(),
                made[at],
                expected[at]
            )),
        }
    }
}

fn normalize(channels: u32) -> String {
    match channels {
        1 => r#", {"op": "normalize", "mean": [0.47], "std": [0.253]}"#.to_owned(),
        _ => r#", {"op": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}"#
            .to_owned(),
    }
}

fn with_erasing(channels: u32, value: &str) -> String {
    format!(
        r#"{}, {{"op": "random_erasing", "p": 0.8, "scale": [0.02, 0.4], "value": {value}}}"#,
        normalize(channels)
    )
}

#[test]
fn every_type_layout_and_size_is_the_hosts() {
    let Some(twin) = twin() else { return };
    let sizes = [[1, 1], [3, 5], [33, 7], [16, 48], [2, 4], [224, 224]];
    let mut n_cases = 0;
    for (dtype, layout) in DTYPES.into_iter().flat_map(|d| LAYOUTS.map(|l| (d, l))) {
        for [height, width] in sizes {
            for channels in [1, 3] {
                let mut case = Case::new([height, width, channels], dtype, layout);
                case.check(&twin).unwrap();
                case.ops = String::new();
                case.flips = !case.flips;
                if height < 224 {
                    case.check(&twin).unwrap();
                }
                n_cases += 1;
            }
        }
    }
    assert_eq!(n_cases, 96);
}

#[test]
fn erasing_and_mixing_at_full_size_are_the_hosts() {
    let Some(twin) = twin() else { return };
    let area = CropBox { top: 30, left: 17, height: 100, width: 151 };
    for (dtype, layout) in DTYPES.into_iter().flat_map(|d| LAYOUTS.map(|l| (d, l))) {
        for mixture in [
            Some(Mixture::Mixup { share: 0.3 }),
            Some(Mixture::Cutmix { area, share: 0.7 }),
            None,
        ] {
            let mut case = Case::new([224, 224, 3], dtype, layout);
            case.ops = with_erasing(3, "\"random\"");
            (case.mixture, case.n_rows, case.repeated) = (mixture, 3, 2);
            case.check(&twin).unwrap();
        }
    }
}

#[test]
fn the_order_of_threads_does_not_matter() {
    for order in [1, 2] {
        let Some(twin) = twin().map(|twin| twin.with_order(order)) else { return };
        let mut case = Case::new([37, 40, 3], Dtype::F32, Layout::Nchw);
        case.ops = with_erasing(3, "\"random\"");
        case.mixture = Some(Mixture::Mixup { share: 0.25 });
        case.check(&twin).unwrap();
    }
}

/// Describing and launching, as often as there are batches, into memory that is there already.
#[test]
fn a_batch_allocates_nothing() {
    let Some(twin) = twin() else { return };
    let mut case = Case::new([20, 24, 3], Dtype::F32, Layout::Nchw);
    case.ops = with_erasing(3, "\"random\"");
    case.mixture = Some(Mixture::Mixup { share: 0.25 });
    let finish =
        Finish::new(&case.recipe(), &Views::from(case.shape), case.output).unwrap();
    let (values, scales) = (finish.values(), finish.scales());
    let (shape, output) = (case.shape, case.output);
    let plan = FinishPlan { shape, output, values, scales, has_noise: true };
    let constants = upload(&twin, &plan.constants());
    let finisher = Finisher::new(&twin, plan, constants).unwrap();
    let rectangles = case.rectangles();
    let row = |erased| FinishRow { offset: 0, is_flipped: true, erased };
    let rows: Vec<_> = rectangles.iter().map(|erased| row(erased.as_slice())).collect();
    let mut bytes = vec![0; 4096];
    let batch = FinishBatch {
        src: upload(&twin, &noise(case.shape.len(), 1)),
        dst: twin.allocate(3 * case.sample_bytes()).unwrap(),
        dst_stride: case.sample_bytes() as u64,
        description: twin.allocate(4096).unwrap(),
        mixture: case.mixture,
        distance: 1,
    };
    let allocated = allocation_counter::measure(|| {
        for _ in 0..3 {
            let description = Descriptions::write(&rows, &mut bytes).unwrap();
            // SAFETY: the twin copies before it returns.
            unsafe { twin.upload(batch.description, &bytes, StreamId(0)) }.unwrap();
            // SAFETY: everything lies in the twin's memory, which outlives this.
            unsafe { finisher.launch(&twin, &description, &batch, StreamId(0)) }.unwrap();
        }
    });
    assert_eq!(allocated.count_total, 0);
}

#[test]
fn what_has_no_kernel_is_refused() {
    let Some(twin) = twin() else { return };
    let output = Output { dtype: Dtype::F32, layout: Layout::Nchw };
    for (height, width, channels, can_run) in
        [(2, 2, 3, true), (2, 2, 2, false), (2, 2, 4, false), (0, 2, 3, false)]
    {
        let n = channels as usize;
        let shape = SampleShape { height, width, channels };
        let (values, scales) = (vec![[0; 256]; n], vec![None; n]);
        let plan = FinishPlan { shape, output, values, scales, has_noise: false };
        assert_eq!(plan.can_run(), can_run, "{shape:?}");
        let constants = upload(&twin, &plan.constants());
        assert_eq!(Finisher::new(&twin, plan, constants).is_ok(), can_run, "{shape:?}");
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let shape = (1..40_u32, 1..70_u32, prop_oneof![Just(1_u32), Just(3)]);
    let output = (0..4_usize, 0..2_usize);
    let values = prop_oneof![
        Just("none"),
        Just("bare"),
        Just("0"),
        Just("-1.5"),
        Just("\"random\""),
        Just("each")
    ];
    let batch = (1..6_usize, 1..5_u32, 0..40_usize, 0..5_usize);
    let mixing = (0..3_u32, 0.0..1.0_f64, [0.0..1.0_f64, 0.0..1.0, 0.0..1.0, 0.0..1.0]);
    (shape, output, values, batch, mixing, any::<(u64, u64)>()).prop_map(
        |((height, width, channels), output, value, batch, mixing, (flips, seed))| {
            let (n_rows, repeated, src_gap, dst_gap) = batch;
            let mut case =
                Case::new([height, width, channels], DTYPES[output.0], LAYOUTS[output.1]);
            case.ops = match (value, channels) {
                ("none", _) => normalize(channels),
                ("bare", _) => String::new(),
                ("each", 3) => with_erasing(3, "[0.5, -2, 1.25]"),
                ("each", _) => with_erasing(1, "[0.5]"),
                _ => with_erasing(channels, value),
            };
            (case.n_rows, case.repeated, case.flips) = (n_rows, repeated, flips);
            case.gaps = [src_gap, dst_gap];
            case.seed = seed;
            let (how, share, sides) = mixing;
            case.mixture = match how {
                0 => None,
                1 => Some(Mixture::Mixup { share }),
                _ => Some(Mixture::Cutmix { area: area(sides, height, width), share }),
            };
            case
        },
    )
}

/// A rectangle inside, maybe empty.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shares of sides"
)]
fn area(sides: [f64; 4], height: u32, width: u32) -> CropBox {
    let part = |of: u32, share: f64| (f64::from(of) * share) as u32;
    let (top, left) = (part(height, sides[0]), part(width, sides[1]));
    CropBox {
        top,
        left,
        height: part(height - top + 1, sides[2]),
        width: part(width - left + 1, sides[3]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_batch_is_the_hosts(case in cases()) {
        let Some(twin) = twin() else { return Ok(()) };
        prop_assert_eq!(case.check(&twin), Ok(()));
    }
}
