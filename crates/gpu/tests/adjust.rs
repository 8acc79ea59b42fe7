//! Steps on images by the kernel against `ops`' workbench, bit for bit, on the CPU twin.
#![allow(clippy::unwrap_used, reason = "a panic is a test's report")]
#![allow(unsafe_code, reason = "kernels are launched on memory that the test owns")]

mod bench;

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::draw::CropBox;
use bothends_core::recipe::step::{Adjust, Blur, Fill, Map, Step, Warp, Window};
use bothends_core::recipe::{Decision, Interpolation, Numerics, Recipe, Size};
use bothends_core::sample::SampleKey;
use bothends_core::tensor::SampleShape;
use bothends_gpu::adjust::{
    AdjustBatch, AdjustDescription, AdjustRow, Adjuster, can_run, ends_elsewhere,
};
use bothends_gpu::driver::{Driver, StreamId};
use bothends_gpu::twin::Twin;
use bothends_ops::Workbench;
use bothends_ops::image::Image;
use proptest::prelude::*;

use bench::{FRESH, download, noise, twin, upload};

fn size(shape: SampleShape) -> Size {
    Size { height: shape.height, width: shape.width }
}

/// What the host makes.
fn expected(shape: SampleShape, pixels: &[u8], steps: &[Step]) -> Vec<u8> {
    let mut image = Image::default();
    image.reshape(size(shape), shape.channels).copy_from_slice(pixels);
    let mut bench = Workbench::default();
    bench.work_on(image.view(), steps, Numerics::Exact);
    assert_eq!(bench.image().shape(), shape);
    bench.image().pixels().to_vec()
}

/// Images of one shape with their steps, at places `gap` bytes apart; what differs, otherwise.
fn check(
    twin: &Twin,
    shape: SampleShape,
    (seed, gap): (u64, usize),
    batch: &[Vec<Step>],
) -> Result<(), String> {
    let place = shape.len() + gap;
    let mut memory = vec![FRESH; 2 * place * batch.len()];
    let mut originals = Vec::new();
    for (nth, image) in memory.chunks_mut(place).take(batch.len()).enumerate() {
        let mut pixels = noise(shape.len(), seed ^ nth as u64);
        // Some images do not have all values, so that there is something to stretch.
        if nth % 2 == 1 {
            pixels.iter_mut().for_each(|value| *value = *value / 3 + 40);
        }
        image[..shape.len()].copy_from_slice(&pixels);
        originals.push(pixels);
    }
    let adjuster = Adjuster::new(twin, shape).unwrap();
    let rows: Vec<_> = (0..)
        .zip(batch)
        .map(|(nth, steps)| AdjustRow { offset: nth * place as u64, steps })
        .collect();
    let mut bytes = vec![0; AdjustDescription::bytes(&rows)];
    let description = adjuster.describe(&rows, &mut bytes).unwrap();
    let other = place * batch.len();
    let images = upload(twin, &memory);
    let at =
        AdjustBatch { images, other: other as u64, description: upload(twin, &bytes) };
    // SAFETY: everything lies in the twin's memory, which is done when this returns.
    unsafe { adjuster.launch(twin, &description, &at, StreamId(0)) }.unwrap();
    let made = download(twin, images, memory.len());
    for at in [images, at.description] {
        // SAFETY: nothing runs any more.
        unsafe { twin.free(at) };
    }
    for (nth, (steps, pixels)) in batch.iter().zip(&originals).enumerate() {
        let first = nth * place + if ends_elsewhere(steps) { other } else { 0 };
        let (made, expected) =
            (&made[first..][..shape.len()], expected(shape, pixels, steps));
        if let Some(at) = made.iter().zip(&expected).position(|(a, b)| a != b) {
            let (is, not) = (made[at], expected[at]);
            return Err(format!("{steps:?} of {shape:?}, byte {at}: {is}, not {not}"));
        }
    }
    let gaps = made.chunks(place).flat_map(|place| &place[shape.len()..]);
    if gaps.copied().any(|byte| byte != FRESH) {
        return Err(format!("written between images: {batch:?}"));
    }
    Ok(())
}

/// A turn by `degrees` round the middle.
fn turned(shape: SampleShape, degrees: f64, scale: f64) -> Map {
    let (sin, cos) = degrees.to_radians().sin_cos();
    let (a, b) = (cos * scale, sin * scale);
    let (x, y) = (f64::from(shape.width) / 2.0, f64::from(shape.height) / 2.0);
    Map::Affine([a, b, x - a * x - b * y, -b, a, y + b * x - a * y])
}

fn warp(shape: SampleShape, map: Map, interpolation: Interpolation) -> Step {
    Step::Warp(Warp { map, size: size(shape), interpolation, fill: Fill([7, 8, 9]) })
}

/// Scaled a little and moved.
fn moved(factor: f64, number: u8) -> Map {
    let (x, y) = (f64::from(number) / 16.0 - 8.0, 3.0 - factor);
    Map::Affine([0.5 + factor / 2.0, 0.0, x, 0.0, 1.7 - factor / 2.0, y])
}

/// One step of every kind.
fn all(shape: SampleShape, factor: f64, number: u8) -> Vec<Step> {
    let kernel =
        Size { height: u32::from(number % 9) | 1, width: u32::from(number % 40) | 1 };
    let area = CropBox { top: u32::from(number % 7), left: 2, height: 5, width: 1000 };
    let tilt = Map::Perspective([1.0, 0.1, 2.0, factor / 9.0, 1.0, -1.0, 0.003, -0.002]);
    let adjusts = [
        Adjust::Brightness(factor),
        Adjust::Contrast(factor),
        Adjust::Saturation(factor),
        Adjust::Hue((factor - 1.0) / 2.0),
        Adjust::Grayscale,
        Adjust::Sharpness(factor),
        Adjust::Blur(Blur { kernel, sigma: 3.0 * factor + 0.01 }),
        Adjust::Autocontrast,
        Adjust::Equalize,
        Adjust::Invert,
        Adjust::Posterize { bits: number % 9 },
        Adjust::Solarize { threshold: u16::from(number) + 1 },
        Adjust::SolarizeAdd { addition: number },
    ];
    let moves = [
        Step::MirrorColumns,
        Step::MirrorRows,
        Step::Erase { area, fill: Fill([1, 2, 3]) },
        warp(
            shape,
            turned(shape, 180.0 * (factor - 1.0), factor + 0.3),
            Interpolation::Bilinear,
        ),
        warp(shape, turned(shape, 90.0 * (factor - 1.0), 1.0), Interpolation::Bicubic),
        warp(shape, tilt, Interpolation::Bilinear),
        warp(shape, tilt, Interpolation::Bicubic),
        warp(shape, turned(shape, 180.0 * (factor - 1.0), 1.0), Interpolation::Nearest),
        warp(shape, moved(factor, number), Interpolation::Nearest),
        warp(shape, tilt, Interpolation::Nearest),
    ];
    adjusts.into_iter().map(Step::Adjust).chain(moves).collect()
}

#[test]
fn every_step_at_full_size_is_the_hosts() {
    let Some(twin) = twin() else { return };
    for channels in [1, 3] {
        let shape = SampleShape { height: 96, width: 131, channels };
        let batch: Vec<_> =
            all(shape, 1.7, 77).into_iter().map(|step| vec![step]).collect();
        assert_eq!(batch.len(), 23);
        check(&twin, shape, (3, 13), &batch).unwrap();
    }
}

/// What a recipe does after the last crop or resize, per view, and to which shape.
fn behind_the_crop(recipe: &Recipe, sample: u64) -> Vec<(SampleShape, Vec<Step>)> {
    let key = SampleKey { seed: 9, epoch: EpochIdx(2), sample: SampleId(sample) };
    let image = SampleShape { height: 300, width: 270, channels: 3 };
    let mut decision = Decision::default();
    recipe.decide(key, image, &mut decision).unwrap();
    let of_view = |view: &[Step]| {
        let mut size = size(image);
        let mut behind = Vec::new();
        for step in decision.shared().iter().chain(view) {
            if let Step::Window(Window { size: cut, .. })
            | Step::Resize { size: cut, .. } = *step
            {
                size = cut;
                behind.clear();
            } else {
                behind.push(*step);
            }
        }
        let Size { height, width } = size;
        (SampleShape { height, width, channels: 3 }, behind)
    };
    decision.views().map(of_view).collect()
}

/// How many images had steps.
fn check_recipe(twin: &Twin, recipe: &Recipe, n_samples: u64) -> usize {
    let mut n_adjusted = 0;
    for sample in 0..n_samples {
        for (shape, steps) in behind_the_crop(recipe, sample) {
            let missing = steps.iter().find(|step| !can_run(step, shape));
            assert_eq!(missing, None, "{}", recipe.name());
            n_adjusted += usize::from(!steps.is_empty());
            check(twin, shape, (sample, 0), &[steps]).unwrap();
        }
    }
    n_adjusted
}

#[test]
fn the_built_in_recipes_run_here_and_are_the_hosts() {
    let Some(twin) = twin() else { return };
    let mut with_policies = 0;
    for name in Recipe::builtin_names() {
        let recipe = Recipe::builtin(name).unwrap();
        if recipe.before_cut().is_empty() {
            continue;
        }
        with_policies += usize::from(check_recipe(&twin, &recipe, 4) > 0);
    }
    assert!(with_policies >= 8, "{with_policies} recipes did anything");
}

#[test]
fn policies_run_here_and_are_the_hosts() {
    let Some(twin) = twin() else { return };
    for policy in [
        r#"{"op": "trivial_augment_wide", "interpolation": "bilinear"}"#,
        r#"{"op": "rand_augment", "interpolation": "bicubic"}"#,
        r#"{"op": "rand_augment"}"#,
        r#"{"op": "auto_augment"}"#,
        r#"{"op": "color_jitter", "brightness": 0.4, "contrast": 0.4, "saturation": 0.2, "hue": 0.1}"#,
        r#"{"op": "gaussian_blur", "kernel_size": 23, "sigma": [0.1, 2.0]}"#,
        r#"{"op": "random_affine", "degrees": 30, "translate": [0.2, 0.2], "scale": [0.5, 2]}"#,
        r#"{"op": "random_perspective", "p": 1.0}"#,
    ] {
        let json = format!(
            r#"{{"version": 1, "name": "t", "numerics": "exact", "ops": [{{"op": "decode"}},
                {{"op": "center_crop", "size": [40, 52]}}, {policy}]}}"#
        );
        let recipe = Recipe::from_json(&json).unwrap();
        assert!(check_recipe(&twin, &recipe, 100) > 0, "{policy}");
    }
}

#[test]
fn what_has_no_kernel_is_for_the_host() {
    let shape = SampleShape { height: 20, width: 3000, channels: 3 };
    let blur = Blur { kernel: Size { height: 3, width: 3 }, sigma: 1.0 };
    let other = Warp {
        map: turned(shape, 3.0, 1.0),
        size: Size { height: 21, width: 3000 },
        interpolation: Interpolation::Bilinear,
        fill: Fill::default(),
    };
    for step in [
        Step::Adjust(Adjust::Jpeg { quality: 50 }),
        Step::Adjust(Adjust::Blur(blur)),
        warp(shape, Map::Affine([1.0, 0.1, 4e4, 0.0, 1.0, 0.0]), Interpolation::Nearest),
        Step::Warp(other),
        Step::FirstChannel,
    ] {
        assert!(!can_run(&step, shape), "{step:?}");
    }
    assert!(!can_run(&Step::MirrorRows, SampleShape { channels: 4, ..shape }));
    assert!(can_run(&Step::MirrorRows, shape));
}

#[test]
fn the_order_of_threads_does_not_matter() {
    for order in [1, 2] {
        let Some(twin) = twin().map(|twin| twin.with_order(order)) else { return };
        let shape = SampleShape { height: 17, width: 40, channels: 3 };
        check(&twin, shape, (11, 0), &[all(shape, 0.6, 31)]).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_steps_are_the_hosts(
        sides in (1..40_u32, 1..60_u32, prop_oneof![Just(1_u32), Just(3)]),
        (factor, number) in (0.0..2.0_f64, any::<u8>()),
        chosen in prop::collection::vec(prop::collection::vec(0..23_usize, 0..5), 1..8),
        seed in any::<u64>(),
        gap in 0..9_usize,
    ) {
        let Some(twin) = twin() else { return Ok(()) };
        let shape = SampleShape { height: sides.0, width: sides.1, channels: sides.2 };
        let all = all(shape, factor, number);
        let batch: Vec<Vec<Step>> =
            chosen.iter().map(|of| of.iter().map(|nth| all[*nth]).collect()).collect();
        prop_assert_eq!(check(&twin, shape, (seed, gap), &batch), Ok(()));
    }
}
