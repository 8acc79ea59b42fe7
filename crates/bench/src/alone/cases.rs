//! The ops that are measured, with typical parameters, by torchvision's names.
//!
//! Each parameter is given as the step that is run and as text, which the peers read. `work.rs` runs
//! what is listed here; read it next.

use bothends_core::recipe::draw::{
    AffineChoice, CropBox, Expand, perspective_map, rotation_map,
};
use bothends_core::recipe::step::{Adjust, Around, Blur, Fill, Step, Warp, Window};
use bothends_core::recipe::{Interpolation, Size};

use crate::table::word;

/// The photograph as it is decoded, and the sample.
pub(super) const SOURCE: Size = Size { height: 375, width: 500 };
pub(super) const SAMPLE: Size = Size { height: 224, width: 224 };

const MIDDLE: [f64; 2] = [112.0, 112.0];

const NORMALIZE: &str = r#"{"op": "normalize", "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225]}"#;

/// An op with its parameters.
#[derive(Debug)]
pub(super) struct Case {
    /// torchvision's name.
    pub(super) op: &'static str,
    /// `name=value`, separated by spaces.
    pub(super) parameters: String,
    pub(super) work: Work,
}

/// What is done.
#[derive(Debug)]
pub(super) enum Work {
    /// All of these steps, to the sample.
    Sample(Vec<Step>),
    /// This step, to the photograph.
    Source(Step),
    /// Each of these steps, to the sample: several views.
    Views(Vec<Step>),
    /// What an op draws (JSON), to the sample.
    Drawn(String),
    /// The sample delivered as `f32`, planar; ops in JSON.
    Delivered(String),
    /// Delivered samples of a batch, mixed by an op in JSON.
    Mixed(String),
}

/// All of them.
pub(super) fn all() -> Vec<Case> {
    [colour(), warps(), moves(), after_the_cut(), policies()]
        .into_iter()
        .flatten()
        .collect()
}

fn case(op: &'static str, parameters: impl Into<String>, work: Work) -> Case {
    Case { op, parameters: parameters.into(), work }
}

fn colour() -> Vec<Case> {
    let adjust = |op, parameters: &str, adjust| {
        case(op, parameters, Work::Sample(vec![Step::Adjust(adjust)]))
    };
    let blur = |side, sigma: f64| {
        let kernel = Size { height: side, width: side };
        adjust(
            "gaussian_blur",
            &format!("kernel_size={side} sigma={sigma:?}"),
            Adjust::Blur(Blur { kernel, sigma }),
        )
    };
    let all_four = [
        Adjust::Brightness(1.4),
        Adjust::Contrast(1.4),
        Adjust::Saturation(1.4),
        Adjust::Hue(0.1),
    ];
    vec![
        adjust("adjust_brightness", "factor=1.4", Adjust::Brightness(1.4)),
        adjust("adjust_contrast", "factor=1.4", Adjust::Contrast(1.4)),
        adjust("adjust_saturation", "factor=1.4", Adjust::Saturation(1.4)),
        adjust("adjust_hue", "factor=0.1", Adjust::Hue(0.1)),
        case(
            "color_jitter",
            "brightness=1.4 contrast=1.4 saturation=1.4 hue=0.1",
            Work::Sample(all_four.map(Step::Adjust).to_vec()),
        ),
        adjust("rgb_to_grayscale", "num_output_channels=3", Adjust::Grayscale),
        blur(23, 1.0),
        blur(5, 1.0),
        adjust("adjust_sharpness", "factor=1.7", Adjust::Sharpness(1.7)),
        adjust("autocontrast", "", Adjust::Autocontrast),
        adjust("equalize", "", Adjust::Equalize),
        adjust("invert", "", Adjust::Invert),
        adjust("posterize", "bits=4", Adjust::Posterize { bits: 4 }),
        adjust("solarize", "threshold=128", Adjust::Solarize { threshold: 128 }),
        adjust("jpeg", "quality=50", Adjust::Jpeg { quality: 50 }),
    ]
}

fn warps() -> Vec<Case> {
    let warp = |op, parameters: &str, map, interpolation| {
        let step = Warp { map, size: SAMPLE, interpolation, fill: Fill::default() };
        let parameters = format!("{parameters} interpolation={}", word(interpolation));
        case(op, parameters, Work::Sample(vec![Step::Warp(step)]))
    };
    let (turned, _) = rotation_map(15.0, SAMPLE, MIDDLE, Expand::No);
    let choice = AffineChoice {
        angle: 10.0,
        translate: [12.0, -8.0],
        scale: 1.2,
        shear: [8.0, 0.0],
    };
    let moved = choice.map(MIDDLE);
    let corners = [[20.0, 12.0], [205.0, 25.0], [215.0, 200.0], [8.0, 215.0]];
    let tilted = perspective_map(SAMPLE, corners);
    let rotate = |by| warp("rotate", "angle=15", turned, by);
    let affine =
        |by| warp("affine", "angle=10 translate=12,-8 scale=1.2 shear=8,0", moved, by);
    let perspective = |by| {
        let to = "endpoints=20,12,205,25,215,200,8,215";
        warp("perspective", to, tilted, by)
    };
    let by = [Interpolation::Nearest, Interpolation::Bilinear, Interpolation::Bicubic];
    let mut cases: Vec<Case> = by.map(rotate).into();
    cases.extend(by.map(affine));
    cases.extend([Interpolation::Bilinear, Interpolation::Nearest].map(perspective));
    cases
}

fn moves() -> Vec<Case> {
    let window = |offset, side, around| {
        let size = Size { height: side, width: side };
        Step::Window(Window { top: offset, left: offset, size, around })
    };
    let cut = |top, left| {
        let (size, around) = (Size { height: 192, width: 192 }, Around::Edge);
        Step::Window(Window { top, left, size, around })
    };
    let pad = |mode, around| {
        let step = window(-16, SAMPLE.width + 32, around);
        case("pad", format!("padding=16 padding_mode={mode}"), Work::Sample(vec![step]))
    };
    let resize = |interpolation| {
        let part = whole(SOURCE);
        let step = Step::Resize { part, size: SAMPLE, interpolation };
        let parameters = format!("size=224,224 interpolation={}", word(interpolation));
        case("resize", parameters, Work::Source(step))
    };
    let part = CropBox { top: 40, left: 60, height: 250, width: 333 };
    let interpolation = Interpolation::Bilinear;
    let area = CropBox { top: 60, left: 50, height: 80, width: 90 };
    let corners = [(0, 0), (0, 32), (32, 0), (32, 32), (16, 16)];
    vec![
        pad("constant", Around::Fill(Fill::default())),
        pad("reflect", Around::Reflect),
        case("crop", "box=20,30,192,192", Work::Sample(vec![cut(20, 30)])),
        case(
            "five_crop",
            "size=192",
            Work::Views(corners.map(|(top, left)| cut(top, left)).into()),
        ),
        case("horizontal_flip", "", Work::Sample(vec![Step::MirrorColumns])),
        case("vertical_flip", "", Work::Sample(vec![Step::MirrorRows])),
        resize(Interpolation::Bilinear),
        resize(Interpolation::Bicubic),
        resize(Interpolation::Nearest),
        case(
            "resized_crop",
            "box=40,60,250,333 size=224,224 interpolation=bilinear",
            Work::Source(Step::Resize { part, size: SAMPLE, interpolation }),
        ),
        case(
            "erase",
            "box=60,50,80,90 value=0",
            Work::Sample(vec![Step::Erase { area, fill: Fill::default() }]),
        ),
    ]
}

fn after_the_cut() -> Vec<Case> {
    let erasing = r#"{"op": "random_erasing", "p": 1.0, "value": "random"}"#;
    vec![
        case("normalize", "to=float32", Work::Delivered(NORMALIZE.to_owned())),
        case(
            "random_erasing",
            "after=normalize value=random",
            Work::Delivered(format!("{NORMALIZE}, {erasing}")),
        ),
        case(
            "mixup",
            "alpha=1.0 dtype=float32",
            Work::Mixed(r#"{"op": "mixup"}"#.into()),
        ),
        case(
            "cutmix",
            "alpha=1.0 dtype=float32",
            Work::Mixed(r#"{"op": "cutmix"}"#.into()),
        ),
    ]
}

fn policies() -> Vec<Case> {
    let drawn = |op, parameters: &str, more: &str| {
        let json = format!(r#"{{"op": "{op}"{more}}}"#);
        case(op, parameters, Work::Drawn(json))
    };
    vec![
        drawn("rand_augment", "num_ops=2 magnitude=9", ""),
        drawn("trivial_augment_wide", "", ""),
        drawn("auto_augment", "policy=imagenet", ""),
        drawn("augmix", "severity=3 mixture_width=3", ""),
        drawn(
            "timm_rand_augment",
            "num_layers=2 magnitude=7 magnitude_std=0.5 increasing=true p=0.5",
            r#", "num_layers": 2, "magnitude": 7, "magnitude_std": 0.5,
                "increasing": true, "p": 0.5"#,
        ),
    ]
}

pub(super) fn whole(Size { height, width }: Size) -> CropBox {
    CropBox { top: 0, left: 0, height, width }
}
