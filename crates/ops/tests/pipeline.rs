//! A recipe up to the cut and after it: depends on nothing but recipe, record and key.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;
use std::path::Path;

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::draw::random_resized_crop;
use bothends_core::recipe::{Interpolation, Numerics, Recipe, RecordShape, Size};
use bothends_core::rng::Draws;
use bothends_core::sample::{Encoding, Record, SampleKey};
use bothends_core::tensor::{Dtype, Layout, Output, SampleShape};
use bothends_ops::decode::decode;
use bothends_ops::image::Image;
use bothends_ops::kernels::Level;
use bothends_ops::resample::Target;
use bothends_ops::resize::{Crop, Resizer};
use bothends_ops::{Delivery, Finish, OpsError, Pipeline, SampleFault, Scratch, flip};

const PLANAR: Encoding = Encoding::Planar { height: 32, width: 32, channels: 3 };

#[test]
fn imagenet_train_is_its_ops_one_after_the_other() {
    for interpolation in
        [Interpolation::Nearest, Interpolation::Bilinear, Interpolation::Bicubic]
    {
        imagenet_train_is_its_ops(interpolation);
    }
}

fn imagenet_train_is_its_ops(interpolation: Interpolation) {
    let mut recipe =
        serde_json::to_value(Recipe::builtin("imagenet-train").unwrap()).unwrap();
    recipe["ops"][1]["interpolation"] = serde_json::to_value(interpolation).unwrap();
    let recipe = Recipe::from_json(&recipe.to_string()).unwrap();
    let pipeline = Pipeline::new(&recipe, recipe.views(RecordShape::Image).unwrap());
    let bytes = fixture("420-48x64.jpg");
    let record = Record::new(&bytes, Encoding::Image);
    let mut scratch = Scratch::default();
    let mut flipped = 0;
    for sample in 0..50 {
        let key = key(0, sample);
        let [mut image, mut crop] = [Image::default(), Image::default()];
        decode(record, &mut image).unwrap();
        let ratio = [0.75, 1.333_333_333_333_333_3];
        let part = random_resized_crop(
            &mut Draws::new(key, 1),
            image.size(),
            [0.08, 1.0],
            ratio,
        );
        let mut target = Target::whole(Size { height: 224, width: 224 });
        target.interpolation = interpolation;
        let order = Crop { part, target, numerics: Numerics::Exact };
        Resizer::default().crop(image.view(), &order, &mut crop);
        if Draws::new(key, 2).bernoulli(0.5) {
            let before = crop.clone();
            flip::horizontal(Level::of_process(), before.view(), &mut crop);
            flipped += 1;
        }
        assert_eq!(run(&pipeline, &mut scratch, key, record).unwrap(), crop.pixels());
        assert_eq!(scratch.source_pixels(), 48 * 64);
    }
    assert!((10..40).contains(&flipped), "{flipped} of 50 flipped");
}

/// In one pass or in two: the same bytes, of every kind of picture.
#[test]
fn a_sample_made_straight_to_the_output_is_the_one_that_is_finished_behind_the_cut() {
    let files = ["420-48x64.jpg", "grey-1x1.jpg", "cmyk-31x18.jpg", "type3-4bit.png"];
    let files = files.map(fixture);
    let dtypes = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16];
    let [mut scratch, mut other] = [Scratch::default(), Scratch::default()];
    for name in Recipe::builtin_names().filter(|name| *name != "raw") {
        for numerics in [Numerics::Exact, Numerics::Exact13, Numerics::Planar] {
            let recipe = Recipe::builtin(name).unwrap().with_numerics(numerics);
            let views = recipe.views(RecordShape::Image).unwrap();
            let pipeline = Pipeline::new(&recipe, views.clone());
            for dtype in dtypes {
                for layout in [Layout::Nhwc, Layout::Nchw] {
                    let finish =
                        Finish::new(&recipe, &views, Output { dtype, layout }).unwrap();
                    let mut cut = Vec::new();
                    let mut out = vec![7; finish.sample_bytes()];
                    let mut expected = out.clone();
                    for (nth, file) in files.iter().enumerate() {
                        let (key, record) =
                            (key(1, nth as u64), Record::new(file, Encoding::Image));
                        let made = run(&pipeline, &mut other, key, record);
                        if let Ok(sample) = &made {
                            finish.run(Some(key), sample, &mut expected);
                        }
                        let (finish, cut, out) = (&finish, &mut cut, &mut out[..]);
                        let to = Delivery { finish, cut, out };
                        let told = pipeline.run_to_output(&mut scratch, key, record, to);
                        assert_eq!(told.is_ok(), made.is_ok(), "{name}, {nth}");
                        assert!(*out == expected, "{name}, {dtype:?}, {layout:?}, {nth}");
                        assert_eq!(scratch.source_pixels(), other.source_pixels());
                    }
                }
            }
        }
    }
}

/// Promise 2: who made the sample, when, and after which others does not show.
#[test]
fn a_sample_does_not_depend_on_what_the_worker_did_before() {
    let pipeline = ready("imagenet-train", RecordShape::Image);
    let files = ["420-48x64.jpg", "grey-1x1.jpg", "cmyk-31x18.jpg", "type3-4bit.png"];
    let files = files.map(fixture);
    let made_alone = |i: usize| {
        let record = Record::new(&files[i % 4], Encoding::Image);
        run(&pipeline, &mut Scratch::default(), key(3, i as u64), record).unwrap()
    };
    let mut scratch = Scratch::default();
    for i in (0..20).rev().chain(0..20) {
        let record = Record::new(&files[i % 4], Encoding::Image);
        let made = run(&pipeline, &mut scratch, key(3, i as u64), record).unwrap();
        assert_eq!(made, made_alone(i), "sample {i}");
        let damaged = Record::new(&files[i % 4][..40], Encoding::Image);
        assert!(run(&pipeline, &mut scratch, key(3, 0), damaged).is_err());
    }
}

#[test]
fn epochs_and_samples_get_other_crops() {
    let pipeline = ready("imagenet-train", RecordShape::Image);
    let bytes = fixture("444-48x64.jpg");
    let record = Record::new(&bytes, Encoding::Image);
    let mut scratch = Scratch::default();
    let keys = (0..4).flat_map(|epoch| (0..4).map(move |sample| key(epoch, sample)));
    let made: HashSet<Vec<u8>> =
        keys.map(|key| run(&pipeline, &mut scratch, key, record).unwrap()).collect();
    assert_eq!(made.len(), 16);
}

/// Every result is one of the 81 windows of the image padded by four zeros, or its mirror
/// image, and in many epochs all of them come.
#[test]
fn cifar_train_is_a_window_of_the_padded_image() {
    let record_shape = RecordShape::Planar { height: 32, width: 32, channels: 3 };
    let pipeline = ready("cifar10-train", record_shape);
    // Row and column in red and green; blue tells the image from its padding.
    let mut planes = vec![255; 3 * 1024];
    for i in 0..1024 {
        planes[i] = u8::try_from(i / 32).unwrap();
        planes[1024 + i] = u8::try_from(i % 32).unwrap();
    }
    let record = Record::new(&planes, PLANAR);
    let mut scratch = Scratch::default();
    let mut seen = HashSet::new();
    for epoch in 0..2000 {
        let made = run(&pipeline, &mut scratch, key(epoch, 9), record).unwrap();
        let pixel = |y: usize, x: usize| made[(y * 32 + x) * 3..][..3].to_vec();
        // The pixel in the middle is of the image whatever the window.
        let middle = pixel(16, 16);
        let mirrored = pixel(16, 17)[1] < middle[1];
        let top = i32::from(middle[0]) - 16;
        let left = i32::from(middle[1]) - if mirrored { 15 } else { 16 };
        seen.insert((top, left, mirrored));
        for (y, x) in (0..32).flat_map(|y| (0..32).map(move |x| (y, x))) {
            let column = if mirrored { 31 - x } else { x };
            let row = u8::try_from(y + top).ok().filter(|&row| row < 32);
            let column = u8::try_from(column + left).ok().filter(|&column| column < 32);
            let expected =
                row.zip(column).map_or([0; 3], |(row, column)| [row, column, 255]);
            let got = pixel(usize::try_from(y).unwrap(), usize::try_from(x).unwrap());
            assert_eq!(got, expected, "epoch {epoch}, row {y}, column {x}");
        }
    }
    assert!(seen.iter().all(|(top, left, _)| top.abs() <= 4 && left.abs() <= 4));
    assert_eq!(seen.len(), 9 * 9 * 2);
}

#[test]
fn raw_bytes_pass_untouched_and_must_be_as_many() {
    let shape = SampleShape { height: 1, width: 4, channels: 1 };
    let pipeline = Pipeline::new(&Recipe::builtin("raw").unwrap(), shape.into());
    let mut scratch = Scratch::default();
    let record = |bytes| Record::new(bytes, Encoding::Opaque);
    let made = run(&pipeline, &mut scratch, key(0, 0), record(&[4, 3, 2, 1]));
    assert_eq!(made.unwrap(), [4, 3, 2, 1]);
    assert_eq!(scratch.source_pixels(), 0);
    let fault = run(&pipeline, &mut scratch, key(0, 0), record(&[1])).unwrap_err();
    let expected = SampleFault::RecordLength { got: 1, need: 4 };
    assert!(matches!(fault, OpsError::BadSample(fault) if fault == expected));
}

#[test]
fn what_does_not_fit_is_said() {
    let small = fixture("444-2x3.jpg");
    let strip = png_strip();
    for (ops, bytes, words) in [
        (
            r#"{"op":"random_crop","size":8}"#,
            &small,
            "a crop of 8x8 does not fit into an image of 2x3",
        ),
        (
            r#"{"op":"resize","size":9000},{"op":"center_crop","size":8}"#,
            &strip,
            "an image of 72000x9000 pixels is too large",
        ),
    ] {
        let json = format!(
            r#"{{"version":1,"name":"t","numerics":"exact","ops":[{{"op":"decode"}},{ops}]}}"#
        );
        let recipe = Recipe::from_json(&json).unwrap();
        let views = recipe.views(RecordShape::Image).unwrap();
        let pipeline = Pipeline::new(&recipe, views);
        let record = Record::new(bytes, Encoding::Image);
        let fault =
            run(&pipeline, &mut Scratch::default(), key(0, 0), record).unwrap_err();
        assert!(matches!(fault, OpsError::BadSample(_)), "{fault:?}");
        assert!(fault.to_string().contains(words), "{fault}");
    }
}

#[test]
fn another_shape_than_promised_is_a_bad_sample_not_a_panic() {
    let recipe = Recipe::builtin("cifar10-eval").unwrap();
    let shape = SampleShape { height: 32, width: 32, channels: 1 };
    let pipeline = Pipeline::new(&recipe, shape.into());
    let bytes = fixture("444-2x3.jpg");
    let record = Record::new(&bytes, Encoding::Image);
    let fault = run(&pipeline, &mut Scratch::default(), key(0, 0), record).unwrap_err();
    assert!(fault.to_string().contains("came out as 32x32x3"), "{fault}");
}

#[test]
fn a_buffer_of_another_length_is_refused() {
    let pipeline = ready("imagenet-train", RecordShape::Image);
    let record = Record::new(&[], Encoding::Image);
    let mut short = vec![0; 5];
    let outcome = pipeline.run(&mut Scratch::default(), key(0, 0), record, &mut short);
    let fault = outcome.unwrap_err().to_string();
    assert_eq!(fault, "a sample takes 150528 bytes, but the buffer given has 5");
}

// --- after the cut ----------------------------------------------------------------------

#[test]
fn the_layout_moves_elements_and_nothing_else() {
    let shape = SampleShape { height: 1, width: 2, channels: 3 };
    let raw = Recipe::builtin("raw").unwrap();
    let finish = |dtype, layout| {
        Finish::new(&raw, &shape.into(), Output { dtype, layout }).unwrap()
    };
    let src = [1, 2, 3, 4, 5, 6];
    let finished = |dtype, layout| {
        let finish = finish(dtype, layout);
        let mut dst = vec![0; finish.sample_bytes()];
        finish.run(None, &src, &mut dst);
        dst
    };
    assert_eq!(finished(Dtype::U8, Layout::Nhwc), src);
    assert_eq!(finished(Dtype::U8, Layout::Nchw), [1, 4, 2, 5, 3, 6]);
    assert!(finish(Dtype::U8, Layout::Nhwc).is_identity());
    assert!(!finish(Dtype::U8, Layout::Nchw).is_identity());
    assert!(!finish(Dtype::F32, Layout::Nhwc).is_identity());
    let floats = finished(Dtype::F32, Layout::Nchw);
    let expected: Vec<u8> = [1u8, 4, 2, 5, 3, 6]
        .iter()
        .flat_map(|&x| (f32::from(x) / 255.0).to_le_bytes())
        .collect();
    assert_eq!(floats, expected);
}

#[test]
fn each_channel_has_its_own_mean_and_deviation() {
    let recipe = Recipe::builtin("imagenet-eval").unwrap();
    let shape = SampleShape { height: 1, width: 1, channels: 3 };
    let output = Output { dtype: Dtype::F32, layout: Layout::Nchw };
    let finish = Finish::new(&recipe, &shape.into(), output).unwrap();
    let mut dst = vec![0; 12];
    finish.run(None, &[10, 20, 30], &mut dst);
    let expected: Vec<u8> = [
        (10.0 / 255.0 - 0.485f32) / 0.229f32,
        (20.0 / 255.0 - 0.456f32) / 0.224f32,
        (30.0 / 255.0 - 0.406f32) / 0.225f32,
    ]
    .iter()
    .flat_map(|value: &f32| value.to_le_bytes())
    .collect();
    assert_eq!(dst, expected);
}

#[test]
fn normalising_another_number_of_channels_is_refused() {
    let recipe = Recipe::builtin("imagenet-eval").unwrap();
    let shape = SampleShape { height: 1, width: 1, channels: 1 };
    let output = Output { dtype: Dtype::F32, layout: Layout::Nchw };
    let fault = Finish::new(&recipe, &shape.into(), output).unwrap_err().to_string();
    assert!(
        fault.contains("3 means and 3 standard deviations for 1 channels"),
        "{fault}"
    );
}

/// torchvision's `Grayscale(3)` repeats an image's one channel.
#[test]
fn three_channels_of_grey_are_the_one_three_times() {
    let planes: Vec<u8> = (0..6).map(|i| i * 40).collect();
    let (height, width, channels) = (2, 3, 1);
    let encoding = Encoding::Planar { height, width, channels };
    for views in ["", r#"{"op": "multi_crop", "views": [{"ops": ["#] {
        let end = if views.is_empty() { "" } else { "]}]}" };
        let json = format!(
            r#"{{"version": 1, "name": "x", "ops": [{{"op": "decode"}}, {views}
                {{"op": "grayscale", "num_output_channels": 3}}{end}]}}"#
        );
        let recipe = Recipe::from_json(&json).unwrap();
        let shape = RecordShape::Planar { height, width, channels };
        let pipeline = Pipeline::new(&recipe, recipe.views(shape).unwrap());
        let record = Record::new(&planes, encoding);
        let made = run(&pipeline, &mut Scratch::default(), key(0, 0), record).unwrap();
        let wanted: Vec<u8> = planes.iter().flat_map(|grey| [*grey; 3]).collect();
        assert_eq!(made, wanted);
    }
}

fn key(epoch: u32, sample: u64) -> SampleKey {
    SampleKey { seed: 11, epoch: EpochIdx(epoch), sample: SampleId(sample) }
}

fn ready(recipe: &str, record: RecordShape) -> Pipeline {
    let recipe = Recipe::builtin(recipe).unwrap();
    Pipeline::new(&recipe, recipe.views(record).unwrap())
}

fn run(
    pipeline: &Pipeline,
    scratch: &mut Scratch,
    key: SampleKey,
    record: Record<'_>,
) -> Result<Vec<u8>, OpsError> {
    let mut out = vec![0x5a; pipeline.sample_bytes()];
    pipeline.run(scratch, key, record, &mut out).map(|()| out)
}

fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ops");
    std::fs::read(folder.join(name)).unwrap()
}

/// A grey image of 8 rows and 1 column.
fn png_strip() -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 1, 8);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(&[7; 8]).unwrap();
    file
}
