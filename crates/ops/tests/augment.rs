//! What ops do to pixels for given parameters, against Pillow and torchvision (and timm's one
//! op of its own): tests/fixtures/augment says what they made, and `scripts/golden-augment`
//! how they were asked. Every case runs at every kernel level.
//!
//! What the script keeps a checksum of is equal bit for bit. What it keeps pixels of comes as
//! near as [`NEAR`] says. How parameters are drawn is not looked at (`core/tests/draws.rs`
//! does), but what becomes of them is: maps of the plane, places of crops, kernels.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::draw::{AffineChoice, CropBox, perspective_map};
use bothends_core::recipe::step::{Adjust, Fill, Map, Mix, Step, Warp};
use bothends_core::recipe::{
    Decision, Interpolation, Mixture, Numerics, Recipe, RecordShape, Size,
};
use bothends_core::sample::SampleKey;
use bothends_core::tensor::{Dtype, Layout, Output};
use bothends_ops::image::Image;
use bothends_ops::kernels::Level;
use bothends_ops::{Finish, Workbench};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How near a kind of case comes to a reference that it does not equal.
struct Near {
    kind: &'static str,
    reference: &'static str,
    /// Largest difference of a value.
    most: u8,
    /// Of a thousand values of the kind, so many may differ at all.
    differ: u32,
    /// And so many by more than 1.
    are_far: u32,
}

const fn near(
    kind: &'static str,
    reference: &'static str,
    [most, differ, are_far]: [u32; 3],
) -> Near {
    #[expect(clippy::cast_possible_truncation, reason = "differences of bytes")]
    let most = most as u8;
    Near { kind, reference, most, differ, are_far }
}

/// Every kind that does not equal a reference, and why.
const NEAR: [Near; 15] = [
    // Tensors stretch in f32, Pillow in f64.
    near("autocontrast", "tensor", [1, 20, 0]),
    // Means so near to a half that 16 bits do not tell.
    near("blur", "tensor", [1, 6, 0]),
    // The mean grey of tensors has fractions.
    near("contrast", "tensor", [1, 440, 0]),
    // Tensors cut fractions of the grey off, Pillow rounds.
    near("grayscale", "tensor", [1, 520, 0]),
    // Hue in 8 bits, which torchvision's tensors and we do not have.
    near("hue", "pil", [7, 240, 90]),
    // The last bit of f32.
    near("hue", "tensor", [1, 1, 0]),
    // Antialiased with weights of 15 bits instead of 22.
    near("resize bicubic", "tensor", [1, 5, 0]),
    near("resize bilinear", "tensor", [1, 6, 0]),
    // Tensors take the pixel at ⌊i · scale⌋, Pillow that in the middle.
    near("resize nearest", "tensor", [255, 740, 690]),
    // As of grayscale, away from which it goes.
    near("saturation", "tensor", [2, 330, 40]),
    // Both terms of the blend are rounded.
    near("sharpness", "tensor", [1, 1, 0]),
    // Pillow cuts fractions of the blend off, we round.
    near("warp bicubic", "pil", [1, 220, 0]),
    near("warp bilinear", "pil", [1, 220, 0]),
    // Where the edge of the image comes to lie, tensors blend with the fill; we have the
    // edge's pixel. Inside nothing is far.
    near("warp bilinear", "tensor", [255, 40, 35]),
    // Points midway between two pixels: the grid of tensors is f32.
    near("warp nearest", "tensor", [255, 6, 6]),
];

#[test]
fn pixels_are_pillows_and_torchvisions() {
    let golden = Golden::new();
    let levels = Level::available();
    let mut unequal = Vec::new();
    let mut differences: BTreeMap<(String, &str), Differences> = BTreeMap::new();
    for case in golden.index["cases"].as_array().unwrap() {
        let kind = case["kind"].as_str().unwrap();
        let image = golden.image(case["image"].as_str().unwrap());
        let parts = parts_of(case, image.size());
        for &level in &levels {
            let ours = done(&image, &parts, level);
            for reference in ["pil", "tensor"] {
                let expected = &case[reference];
                if let Some(crc) = expected["crc32"].as_u64() {
                    if u64::from(crc32(&ours)) != crc {
                        unequal.push(format!("{reference} by {}: {case}", level.name()));
                    }
                } else if expected.is_object() {
                    let theirs = golden.bytes(expected, ours.len());
                    let all =
                        differences.entry((kind.to_owned(), reference)).or_default();
                    all.add(&ours, theirs);
                }
            }
        }
    }
    let first = unequal.iter().take(5).collect::<Vec<_>>();
    assert!(unequal.is_empty(), "{} are not equal: {first:#?} …", unequal.len());
    let known: BTreeSet<_> =
        NEAR.iter().map(|near| (near.kind.to_owned(), near.reference)).collect();
    for (what, found) in &differences {
        println!("{what:?}: {found:?}");
    }
    assert!(known.iter().eq(differences.keys()), "{:?}", differences.keys());
    for near in NEAR {
        let found = &differences[&(near.kind.to_owned(), near.reference)];
        let is_near = found.most <= near.most
            && found.per_mille(found.n_differing) <= near.differ
            && found.per_mille(found.n_far) <= near.are_far;
        assert!(is_near, "{} to {}: {found:?}", near.kind, near.reference);
    }
}

#[test]
fn mixed_batches_are_torchvisions() {
    let golden = Golden::new();
    let batches = golden.index["batches"].as_array().unwrap();
    assert!(batches.len() > 3);
    for case in batches {
        let mixture = if let Some(share) = case["share"].as_f64() {
            Mixture::Mixup { share }
        } else {
            Mixture::Cutmix { area: area(&case["area"]), share: 0.5 }
        };
        let size: Size = size(&case["size"]);
        let kind = case["kind"].as_str().unwrap();
        let recipe = recipe(&format!(
            r#"{{"op": "center_crop", "size": [{}, {}]}}, {{"op": "{kind}"}}"#,
            size.height, size.width
        ));
        let finish = finish(&recipe);
        let mut batch = Vec::new();
        for row in 0..case["rows"].as_u64().unwrap() {
            let sample = photograph(size, 10 + u32::try_from(row).unwrap());
            let from = batch.len();
            batch.resize(from + finish.sample_bytes(), 0);
            finish.run(None, sample.pixels(), &mut batch[from..]);
        }
        finish.mix(mixture, &mut batch, &mut Vec::new());
        assert_eq!(u64::from(crc32(&batch)), case["crc32"].as_u64().unwrap(), "{case}");
    }
}

#[test]
fn finished_samples_are_torchvisions() {
    let golden = Golden::new();
    for case in golden.index["finished"].as_array().unwrap() {
        let Size { height, width } = size(&case["size"]);
        let mut ops = format!(r#"{{"op": "center_crop", "size": [{height}, {width}]}}"#);
        if case["normalize"].is_object() {
            let mut op = case["normalize"].clone();
            op["op"] = "normalize".into();
            ops += &format!(", {op}");
        }
        let finish = finish(&recipe(&ops));
        let mut elements = vec![0; finish.sample_bytes()];
        let sample = photograph(Size { height, width }, 10);
        finish.run(None, sample.pixels(), &mut elements);
        assert_eq!(u64::from(crc32(&elements)), case["crc32"].as_u64().unwrap());
    }
}

/// What a recipe delivers as f32, channels first.
fn finish(recipe: &Recipe) -> Finish {
    let views = recipe.views(RecordShape::Image).unwrap();
    let output = Output { dtype: Dtype::F32, layout: Layout::Nchw };
    Finish::new(recipe, &views, output).unwrap()
}

/// How far values are from a reference.
#[derive(Debug, Default)]
struct Differences {
    most: u8,
    n_differing: usize,
    /// By more than 1.
    n_far: usize,
    n: usize,
}

impl Differences {
    fn add(&mut self, ours: &[u8], theirs: &[u8]) {
        assert_eq!(ours.len(), theirs.len());
        self.n += ours.len();
        for (a, b) in ours.iter().zip(theirs).filter(|(a, b)| a != b) {
            self.n_differing += 1;
            self.n_far += usize::from(a.abs_diff(*b) > 1);
            self.most = self.most.max(a.abs_diff(*b));
        }
    }

    /// What `n_values` are of a thousand, rounded up.
    fn per_mille(&self, n_values: usize) -> u32 {
        u32::try_from((1000 * n_values).div_ceil(self.n)).unwrap()
    }
}

// --- from a case to steps ----------------------------------------------------------------

/// What is done to the image for each view.
fn parts_of(case: &Value, image: Size) -> Vec<Vec<Step>> {
    let what = &case["do"];
    if what["op"].is_object() {
        return decided(&what["op"].to_string(), image, &case["image"]);
    }
    let steps = if what["affine"].is_object() {
        let given = &what["affine"];
        let choice = AffineChoice {
            angle: read(&given["angle"]),
            translate: read(&given["translate"]),
            scale: read(&given["scale"]),
            shear: read(&given["shear"]),
        };
        let middle = [f64::from(image.width) / 2.0, f64::from(image.height) / 2.0];
        let center = read::<Option<[f64; 2]>>(&given["center"]).unwrap_or(middle);
        vec![warp(what, choice.map(center), image)]
    } else if what["perspective"].is_array() {
        let corners: [[f64; 2]; 4] = read(&what["perspective"]);
        vec![warp(what, perspective_map(image, corners), image)]
    } else if what["resize"].is_object() {
        let part = area(&what["resize"]["box"]);
        let interpolation: Interpolation = read(&what["interpolation"]);
        vec![Step::Resize { part, size: size(&what["resize"]["to"]), interpolation }]
    } else if what["erase"].is_object() {
        let area = area(&what["erase"]["area"]);
        vec![Step::Erase { area, fill: read(&what["erase"]["fill"]) }]
    } else if what["solarize_add"].is_number() {
        let addition = read(&what["solarize_add"]);
        vec![Step::Adjust(Adjust::SolarizeAdd { addition })]
    } else {
        mixture(&what["augmix"])
    };
    vec![steps]
}

/// What a recipe of one op that leaves nothing to chance decides.
fn decided(op: &str, Size { height, width }: Size, image: &Value) -> Vec<Vec<Step>> {
    let recipe = recipe(op);
    let channels = if image == "grey" { 1 } else { 3 };
    let shape = bothends_core::tensor::SampleShape { height, width, channels };
    let key = SampleKey { seed: 1, epoch: EpochIdx(0), sample: SampleId(0) };
    let mut decision = Decision::default();
    recipe.decide(key, shape, &mut decision).unwrap();
    let view = |steps: &[Step]| [decision.shared(), steps].concat();
    decision.views().map(view).collect()
}

fn recipe(ops: &str) -> Recipe {
    let json =
        format!(r#"{{"version": 1, "name": "x", "ops": [{{"op": "decode"}}, {ops}]}}"#);
    Recipe::from_json(&json).unwrap()
}

fn warp(what: &Value, map: Map, size: Size) -> Step {
    let fill: Fill = read(&what["fill"]);
    Step::Warp(Warp { map, size, interpolation: read(&what["interpolation"]), fill })
}

/// Chains with their weights, in the f32 that torchvision has them in.
#[expect(clippy::cast_possible_truncation, reason = "to f32, as torchvision does")]
fn mixture(given: &Value) -> Vec<Step> {
    let own: f64 = read(&given["own"]);
    let weights: Vec<f64> = read(&given["weights"]);
    let chains: Vec<Vec<(String, u8)>> = read(&given["chains"]);
    let rest = (1.0 - own) as f32;
    let mut steps = vec![Step::Mix(Mix::Begin { weight: own as f32 })];
    for (chain, weight) in chains.into_iter().zip(weights) {
        steps.extend(chain.into_iter().map(|(name, by)| {
            Step::Adjust(match &name[..] {
                "posterize" => Adjust::Posterize { bits: by },
                "solarize" => Adjust::Solarize { threshold: by.into() },
                "equalize" => Adjust::Equalize,
                "invert" => Adjust::Invert,
                other => panic!("{other}"),
            })
        }));
        steps.push(Step::Mix(Mix::Chain { weight: weight as f32 * rest }));
    }
    steps.push(Step::Mix(Mix::End));
    steps
}

/// All views, one after the other.
fn done(image: &Image, parts: &[Vec<Step>], level: Level) -> Vec<u8> {
    let mut bench = Workbench::new(level);
    let mut pixels = Vec::new();
    for steps in parts {
        bench.work_on(image.view(), steps, Numerics::Exact);
        pixels.extend_from_slice(bench.image().pixels());
    }
    pixels
}

// --- what the script writes, read --------------------------------------------------------

struct Golden {
    index: Value,
    files: BTreeMap<String, Vec<u8>>,
}

impl Golden {
    fn new() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
        let folder = root.join("augment");
        let text = std::fs::read(folder.join("index.json")).unwrap();
        let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
        let file = |path: std::path::PathBuf| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read(path).unwrap())
        };
        Self {
            index: serde_json::from_slice(&text).unwrap(),
            files: entries.map(file).collect(),
        }
    }

    fn bytes(&self, place: &Value, len: usize) -> &[u8] {
        let at: usize = read(&place["at"]);
        &self.files[place["file"].as_str().unwrap()][at..][..len]
    }

    fn image(&self, name: &str) -> Image {
        let entry = &self.index["images"][name];
        let mut image = Image::default();
        let pixels = image.reshape(size(&entry["size"]), read(&entry["channels"]));
        let at: usize = read(&entry["at"]);
        pixels.copy_from_slice(&self.files["images"][at..][..pixels.len()]);
        image
    }
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{value}: {e}"))
}

fn size(value: &Value) -> Size {
    let [height, width] = read(value);
    Size { height, width }
}

fn area(value: &Value) -> CropBox {
    let [top, left, height, width] = read(value);
    CropBox { top, left, height, width }
}

/// The script's images of three channels: the same whole numbers.
fn photograph(size: Size, seed: u32) -> Image {
    let mut image = Image::default();
    let mut state = seed;
    let [height, width] = [size.height, size.width].map(|n| i32::try_from(n).unwrap());
    let pixels = image.reshape(size, 3);
    for (i, pixel) in (0..).zip(pixels) {
        let (y, x, c) = (i / 3 / width, i / 3 % width, i % 3);
        let mut value = 40 + (3 * x + 2 * y + 37 * c) % 300 * 2 / 5;
        if (x - width / 3).pow(2) + (y - height / 2).pow(2) < (height / 3).pow(2) {
            value = 200 - 60 * c + x / 2;
        }
        if x > 2 * width / 3 && y % 9 < 4 {
            value = 15 + 70 * c;
        }
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let noise = i32::from((state >> 24) as u8 % 25) - 12;
        *pixel = u8::try_from((value + noise).clamp(0, 255)).unwrap();
    }
    image
}

/// CRC-32 as zlib counts it, bit by bit through a table of bytes.
fn crc32(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|byte| {
        (0..8).fold(u32::try_from(byte).unwrap(), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    });
    let [mut crc, all] = [!0_u32; 2];
    for byte in bytes {
        crc = table[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ crc >> 8;
    }
    crc ^ all
}
