//! What our ops draw is spread as torchvision's and timm's own is: tests/fixtures/draws says
//! how those came out, 100,000 draws each, and `scripts/golden-draws` how they were made.
//!
//! Each distribution is compared with as many draws of ours: Kolmogorov and Smirnov's test
//! for numbers that are not whole, χ² for everything else and once more for the shares of
//! the quantiles. A difference that chance makes once in a million times is one. No pixel is
//! touched here (`crates/ops/tests/augment.rs` does).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::path::Path;

use bothends_core::arith::normal_quantile;
use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::draw::{self, Choice};
use bothends_core::recipe::op::{ErasingValue, Geometry, Op, Policy, TimmRandAugment};
use bothends_core::recipe::step::{Adjust, Map, Mix, Step};
use bothends_core::recipe::{BatchKey, Decision, Mixture, Recipe, RecipeError, Size};
use bothends_core::rng::{Draws, Noise};
use bothends_core::sample::SampleKey;
use bothends_core::tensor::SampleShape;
use serde_json::Value;

const N_DRAWS: u32 = 100_000;

#[test]
fn geometry_is_drawn_as_elsewhere() {
    is_drawn_as_elsewhere("geometry");
}

#[test]
fn colour_is_drawn_as_elsewhere() {
    is_drawn_as_elsewhere("colour");
}

#[test]
fn policies_are_drawn_as_elsewhere() {
    is_drawn_as_elsewhere("policy");
}

#[test]
fn erasing_control_and_mixing_are_drawn_as_elsewhere() {
    is_drawn_as_elsewhere("other");
}

fn is_drawn_as_elsewhere(family: &str) {
    let mut differing = Vec::new();
    for case in cases(family) {
        for (what, excess) in compare(&case, &case["op"]) {
            if excess > 1.0 {
                differing.push(format!("{}: {what} by {excess:.2}", case["case"]));
            }
        }
    }
    assert!(differing.is_empty(), "drawn differently: {differing:#?}");
}

#[test]
fn every_op_that_draws_has_a_case() {
    const DRAW_NOTHING: [&str; 11] = [
        "decode",
        "resize",
        "center_crop",
        "pad",
        "five_crop",
        "ten_crop",
        // Its views draw.
        "multi_crop",
        "grayscale",
        "normalize",
        "to_dtype",
        "layout",
    ];
    let families = ["geometry", "colour", "policy", "other"];
    let cases: Vec<Value> = families.into_iter().flat_map(cases).collect();
    let unknown = Recipe::from_json(
        r#"{"version": 1, "name": "x", "ops": [{"op": "no such op"}]}"#,
    );
    let Err(RecipeError::UnknownOp { known, .. }) = unknown else { panic!() };
    for name in known {
        let has_case = cases.iter().any(|case| case["op"]["op"] == name);
        assert_eq!(has_case, !DRAW_NOTHING.contains(&name), "{name}");
    }
}

/// The comparison can tell: each of these is a parameter a little off.
#[test]
fn what_is_slightly_wrong_is_found() {
    let mut overlooked = Vec::new();
    for (family, name, parameter, wrong) in [
        ("geometry", "crop", "scale", "[0.09, 1.0]"),
        ("geometry", "crop", "ratio", "[0.75, 1.36]"),
        ("geometry", "padded crop", "padding", "3"),
        ("geometry", "flip", "p", "0.52"),
        ("geometry", "rotation", "degrees", "[-30, 30.5]"),
        ("geometry", "affine", "shear", "[-5, 10.5, 3, 7]"),
        ("geometry", "affine", "translate", "[0.1, 0.31]"),
        ("geometry", "mild perspective", "distortion_scale", "0.35"),
        ("colour", "jitter", "hue", "0.102"),
        ("colour", "blur", "sigma", "[0.12, 2.0]"),
        ("colour", "jpeg", "quality", "[5, 94]"),
        ("policy", "auto augment svhn", "policy", "\"cifar10\""),
        ("policy", "rand augment", "magnitude", "10"),
        ("policy", "trivial augment", "num_magnitude_bins", "30"),
        ("policy", "augmix", "severity", "4"),
        ("policy", "augmix", "alpha", "1.05"),
        ("policy", "timm, one op", "magnitude_std", "0.6"),
        ("other", "erasing", "ratio", "[0.3, 3.6]"),
        ("other", "choice", "p", "[0.5, 0.32, 0.18]"),
        ("other", "mixup 0.2", "alpha", "0.22"),
        ("other", "cutmix 1.0", "alpha", "1.1"),
    ] {
        let case = cases(family).into_iter().find(|case| case["case"] == name).unwrap();
        let mut op = case["op"].clone();
        op[parameter] = serde_json::from_str(wrong).unwrap();
        let most = compare(&case, &op).into_values().fold(0.0, f64::max);
        if most <= 1.0 {
            overlooked.push(format!("{name}: {parameter} {wrong} ({most:.2})"));
        }
    }
    assert!(overlooked.is_empty(), "not found: {overlooked:#?}");
}

// --- comparing ---------------------------------------------------------------------------

fn cases(family: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/draws");
    let text = std::fs::read_to_string(folder.join(format!("{family}.json"))).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    let Value::Array(cases) = file["cases"].take() else { panic!("no cases") };
    assert!(cases.len() > 8, "{} cases", cases.len());
    cases
}

/// How far each distribution of `case` is from ours with `op`: 1 is as far as chance goes.
fn compare(case: &Value, op: &Value) -> BTreeMap<String, f64> {
    let side = |nth: usize| u32::try_from(case["image"][nth].as_u64().unwrap()).unwrap();
    let source = Source::new(op, Size { height: side(0), width: side(1) });
    let mut ours: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    for sample in 0..N_DRAWS {
        for (what, found) in source.draw(sample) {
            // No `entry`: the name is there except for the first draw.
            match ours.get_mut(what.as_ref()) {
                Some(values) => values.push(found),
                None => drop(ours.insert(what.into_owned(), vec![found])),
            }
        }
    }
    let theirs = case["values"].as_object().unwrap();
    assert!(theirs.keys().eq(ours.keys()), "{:?} of {}", ours.keys(), case["case"]);
    let excess = |what: &String, theirs: &Value| {
        let ours = ours.get(what).unwrap_or_else(|| panic!("{what} of {}", case["case"]));
        (what.clone(), distance(theirs, ours))
    };
    theirs.iter().map(|(what, theirs)| excess(what, theirs)).collect()
}

/// The larger of the distances that the tests see, in units of their thresholds.
fn distance(theirs: &Value, ours: &[Found]) -> f64 {
    let n = theirs["n"].as_f64().unwrap();
    if let Some(quantiles) = theirs["quantiles"].as_array() {
        let quantiles: Vec<f64> = quantiles.iter().map(|q| q.as_f64().unwrap()).collect();
        let mut ours: Vec<f64> = ours.iter().map(Found::number).collect();
        ours.sort_by(f64::total_cmp);
        return smirnov(n, &quantiles, &ours).max(shares(n, &quantiles, &ours));
    }
    let mut counts: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for (value, count) in theirs["counts"].as_object().unwrap() {
        counts.entry(value.clone()).or_default()[0] = count.as_f64().unwrap();
    }
    for found in ours {
        counts.entry(found.label()).or_default()[1] += 1.0;
    }
    chi_square(counts.into_values(), [n, ours.len() as f64])
}

/// Kolmogorov and Smirnov's largest distance, at the quantiles, which are rounded to six
/// digits.
fn smirnov(n: f64, quantiles: &[f64], ours: &[f64]) -> f64 {
    // √(ln(2 ÷ p) ÷ 2) for p = 10⁻⁶.
    const CRITICAL: f64 = 2.693;
    let steps = (quantiles.len() - 1) as f64;
    let n_ours = ours.len() as f64;
    let mut largest: f64 = 0.0;
    for (nth, quantile) in quantiles.iter().enumerate() {
        // Of equal quantiles the last says how many are not above it.
        if quantiles.get(nth + 1) != Some(quantile) {
            let below = up_to(ours, *quantile) / n_ours;
            largest = largest.max((below - nth as f64 / steps).abs());
        }
    }
    // A quantile's share is known to one in a thousand where several are equal.
    let has_ties = quantiles.windows(2).any(|pair| pair[0] == pair[1]);
    let coarse = if has_ties { 1.0 / steps } else { 1.0 / n };
    largest / (CRITICAL * (1.0 / n + 1.0 / n_ours).sqrt() + coarse)
}

/// χ² of the shares between every tenth quantile: what lies at the ends of a range tells more
/// there than in a sum.
fn shares(n: f64, quantiles: &[f64], ours: &[f64]) -> f64 {
    let steps = quantiles.len() - 1;
    let is_alone = |nth: usize| {
        quantiles[nth - 1] < quantiles[nth] && quantiles[nth] < quantiles[nth + 1]
    };
    let edges = (10..steps).step_by(10).filter(|&nth| is_alone(nth));
    let mut last = [0.0; 2];
    let mut bins = Vec::new();
    for nth in edges {
        let so_far = [n * nth as f64 / steps as f64, up_to(ours, quantiles[nth])];
        bins.push([so_far[0] - last[0], so_far[1] - last[1]]);
        last = so_far;
    }
    let all = [n, ours.len() as f64];
    bins.push([all[0] - last[0], all[1] - last[1]]);
    chi_square(bins.into_iter(), all)
}

/// How many of `sorted` are not above `value`, except for the rounding of six digits.
fn up_to(sorted: &[f64], value: f64) -> f64 {
    sorted.partition_point(|x| *x <= value + value.abs() * 1e-7) as f64
}

/// The χ² statistic of two samples by the value that chance passes once in a million times
/// (Wilson and Hilferty's approximation). Values that are rare are one.
fn chi_square(counts: impl Iterator<Item = [f64; 2]>, n: [f64; 2]) -> f64 {
    const CRITICAL: f64 = 4.753; // of the normal distribution, for p = 10⁻⁶
    const RARE: f64 = 20.0;
    let mut rest = [0.0; 2];
    let (mut statistic, mut n_values) = (0.0, 0.0);
    let ratio = (n[1] / n[0]).sqrt();
    let mut add = |[theirs, ours]: [f64; 2]| {
        if theirs + ours > 0.0 {
            let difference = theirs * ratio - ours / ratio;
            statistic += difference * difference / (theirs + ours);
            n_values += 1.0;
        }
    };
    for [theirs, ours] in counts {
        if theirs + ours < RARE {
            rest = [rest[0] + theirs, rest[1] + ours];
        } else {
            add([theirs, ours]);
        }
    }
    add(rest);
    let freedom: f64 = n_values - 1.0;
    if freedom < 1.0 {
        return 0.0;
    }
    let spread = 2.0 / (9.0 * freedom);
    statistic / (freedom * (1.0 - spread + CRITICAL * spread.sqrt()).powi(3))
}

// --- drawing -----------------------------------------------------------------------------

/// A value that was drawn.
#[derive(Debug)]
enum Found {
    Number(f64),
    Label(String),
}

impl Found {
    fn number(&self) -> f64 {
        let Self::Number(number) = self else { panic!("{self:?} is no number") };
        *number
    }

    fn label(&self) -> String {
        match self {
            // Adding 0 makes one of both zeros.
            Self::Number(number) => (number + 0.0).to_string(),
            Self::Label(label) => label.clone(),
        }
    }
}

/// What one draw gave, by name.
type Drawn = Vec<(std::borrow::Cow<'static, str>, Found)>;

/// An op to draw from, in a recipe of its own.
struct Source {
    recipe: Recipe,
    op: Op,
    image: Size,
}

impl Source {
    fn new(op: &Value, image: Size) -> Self {
        let crop = r#"{"op": "random_resized_crop", "size": [20, 30]},"#;
        let normalise = r#"{"op": "normalize", "mean": [0, 0, 0], "std": [1, 1, 1]},"#;
        let before = match op["op"].as_str().unwrap() {
            "mixup" | "cutmix" => crop.to_owned(),
            "random_erasing" if op["value"] == "random" => [crop, normalise].concat(),
            _ => String::new(),
        };
        let json = format!(
            r#"{{"version": 1, "name": "x", "ops": [{{"op": "decode"}}, {before} {op}]}}"#
        );
        let recipe = Recipe::from_json(&json).unwrap();
        let op = recipe.ops().last().unwrap().clone();
        Self { recipe, op, image }
    }

    /// What sample number `sample` gets, by the names that the script has for it.
    fn draw(&self, sample: u32) -> Drawn {
        let key = SampleKey {
            seed: 2024,
            epoch: EpochIdx(3),
            sample: SampleId(u64::from(sample)),
        };
        let draws = &mut Draws::new(key, 1);
        match &self.op {
            Op::Geometry(Geometry::RandomCrop(_)) => window(&self.steps(key)),
            Op::Geometry(Geometry::RandomRotation(_)) => angle(&self.steps(key)),
            Op::Geometry(Geometry::RandomAffine(op)) => {
                let choice = draw::affine(draws, self.image, op);
                numbers([
                    ("angle", choice.angle),
                    ("dx", choice.translate[0]),
                    ("dy", choice.translate[1]),
                    ("scale", choice.scale),
                    ("shear_x", choice.shear[0]),
                    ("shear_y", choice.shear[1]),
                ])
            }
            Op::Geometry(Geometry::RandomPerspective(op)) => {
                let corners = draw::perspective(draws, self.image, op.distortion_scale);
                let mut drawn = names(&self.steps(key));
                for (nth, [x, y]) in corners.into_iter().enumerate() {
                    drawn.push((format!("x{nth}").into(), Found::Number(x)));
                    drawn.push((format!("y{nth}").into(), Found::Number(y)));
                }
                drawn
            }
            Op::Policy(Policy::Augmix(_)) => augmix(&self.steps(key)),
            Op::Policy(Policy::TimmRandAugment(op)) => self.timm(op, key, draws),
            Op::Policy(_) => {
                let steps = self.steps(key).iter().map(precise).collect::<Vec<_>>();
                vec![("steps".into(), Found::Label(steps.join(" ")))]
            }
            Op::RandomErasing(op) if matches!(op.value, ErasingValue::Random(_)) => {
                let share = f64::from(Noise::new(key, 1).next_u16()) + 0.5;
                numbers([("value", normal_quantile(share / 65_536.0))])
            }
            Op::Mixing(_) => self.mixture(sample),
            Op::Decode(_)
            | Op::Geometry(_)
            | Op::Colour(_)
            | Op::RandomErasing(_)
            | Op::Control(_)
            | Op::Crops(_)
            | Op::Feed(_) => {
                let image = f64::from(self.image.height * self.image.width);
                let steps = self.steps(key);
                let numbers = steps.iter().flat_map(|step| numbers_of(step, image));
                let mut drawn = names(&steps);
                drawn.extend(numbers.map(|(what, x)| (what.into(), Found::Number(x))));
                drawn
            }
        }
    }

    fn steps(&self, key: SampleKey) -> Vec<Step> {
        let Size { height, width } = self.image;
        let mut decision = Decision::default();
        let image = SampleShape { height, width, channels: 3 };
        self.recipe.decide(key, image, &mut decision).unwrap();
        decision.shared().to_vec()
    }

    fn timm(&self, op: &TimmRandAugment, key: SampleKey, draws: &mut Draws) -> Drawn {
        let mut choose = || draw::timm_rand_augment(draws, self.image, op);
        let kind = |choice: Choice| format!("{:?}", choice.kind).to_lowercase();
        if op.num_layers > 1 {
            let choices: Vec<_> = (0..op.num_layers).filter_map(|_| choose()).collect();
            let choice = |choice: &Choice| {
                format!("{} {}", kind(*choice), parts(choice.magnitude))
            };
            let kinds: Vec<_> = choices.iter().map(choice).collect();
            return vec![("kinds".into(), Found::Label(kinds.join(" ")))];
        }
        let Some(choice) = choose() else {
            return vec![("kind".into(), Found::Label(String::new()))];
        };
        let kind = kind(choice);
        let mut drawn = Drawn::new();
        if let "posterize" | "solarize" | "solarizeadd" | "rotate" | "translatex"
        | "contrast" = &kind[..]
        {
            drawn.push((kind.clone().into(), Found::Number(choice.magnitude)));
        }
        if let [Step::Warp(warp)] = self.steps(key)[..] {
            let interpolation = format!("{:?}", warp.interpolation).to_lowercase();
            drawn.push(("interpolation".into(), Found::Label(interpolation)));
        }
        drawn.push(("kind".into(), Found::Label(kind)));
        drawn
    }

    fn mixture(&self, batch: u32) -> Drawn {
        let position = u64::from(batch);
        let key = BatchKey { seed: 2024, epoch: EpochIdx(3), position };
        match self.recipe.decide_mixture(key, self.image).unwrap() {
            Mixture::Mixup { share } => {
                numbers([("share", (500.0 * share).floor().min(499.0))])
            }
            Mixture::Cutmix { area, .. } => numbers([
                ("top", f64::from(area.top)),
                ("left", f64::from(area.left)),
                ("height", f64::from(area.height)),
                ("width", f64::from(area.width)),
                ("area", f64::from(area.height * area.width)),
            ]),
        }
    }
}

fn numbers<const N: usize>(named: [(&'static str, f64); N]) -> Drawn {
    named.into_iter().map(|(what, x)| (what.into(), Found::Number(x))).collect()
}

fn names(steps: &[Step]) -> Drawn {
    let names: Vec<_> = steps.iter().map(name).collect();
    vec![("steps".into(), Found::Label(names.join(" ")))]
}

fn window(steps: &[Step]) -> Drawn {
    let [Step::Window(window)] = steps else { panic!("{steps:?}") };
    numbers([("top", window.top as f64), ("left", window.left as f64)])
}

/// The angle that a map turns by.
fn angle(steps: &[Step]) -> Drawn {
    let [Step::Warp(warp)] = steps else { panic!("{steps:?}") };
    let Map::Affine([cos, minus_sin, ..]) = warp.map else { panic!("{warp:?}") };
    numbers([("angle", (-minus_sin).atan2(cos).to_degrees())])
}

/// Weights and depths of the chains, and each step by itself.
fn augmix(steps: &[Step]) -> Drawn {
    let mut drawn = Drawn::new();
    let (mut depths, mut depth) = (Vec::new(), 0);
    for step in steps {
        let Step::Mix(mix) = step else {
            drawn.push(("each".into(), Found::Label(precise(step))));
            depth += 1;
            continue;
        };
        match mix {
            Mix::Begin { weight } => drawn.extend(numbers([("own", f64::from(*weight))])),
            Mix::Chain { weight } => {
                let name = format!("weight{}", depths.len());
                drawn.push((name.into(), Found::Number(f64::from(*weight))));
                depths.push(depth.to_string());
                depth = 0;
            }
            Mix::End => {}
        }
    }
    drawn.push(("depths".into(), Found::Label(depths.join(" "))));
    drawn
}

/// A step's name, as the script has it.
fn name(step: &Step) -> &'static str {
    match step {
        Step::Resize { .. } => "resize",
        Step::MirrorColumns => "horizontal_flip",
        Step::MirrorRows => "vertical_flip",
        Step::Warp(warp) if matches!(warp.map, Map::Perspective(_)) => "perspective",
        Step::Warp(_) => "warp",
        Step::Erase { .. } => "erase",
        Step::Adjust(adjust) => match adjust {
            Adjust::Brightness(_) => "brightness",
            Adjust::Contrast(_) => "contrast",
            Adjust::Saturation(_) => "saturation",
            Adjust::Hue(_) => "hue",
            Adjust::Grayscale => "rgb_to_grayscale",
            Adjust::Sharpness(_) => "sharpness",
            Adjust::Blur(_) => "blur",
            Adjust::Autocontrast => "autocontrast",
            Adjust::Equalize => "equalize",
            Adjust::Invert => "invert",
            Adjust::Posterize { .. } => "posterize",
            Adjust::Solarize { .. } => "solarize",
            Adjust::SolarizeAdd { .. } => "solarize_add",
            Adjust::Jpeg { .. } => "jpeg",
        },
        Step::Window(_) | Step::FirstChannel | Step::ThreeChannels | Step::Mix(_) => {
            panic!("{step:?}")
        }
    }
}

/// A step's name with its numbers in ten-thousandths.
fn precise(step: &Step) -> String {
    let mut words = vec![name(step).to_owned()];
    if let Step::Warp(warp) = step {
        let Map::Affine(map) = warp.map else { panic!("{warp:?}") };
        words.extend(map.map(parts));
    } else {
        words.extend(numbers_of(step, 1.0).into_iter().map(|(_, x)| parts(x)));
    }
    words.join(" ")
}

fn parts(number: f64) -> String {
    ((number * 10_000.0 + 0.5).floor() + 0.0).to_string()
}

/// The numbers of a step in an image of so many pixels.
fn numbers_of(step: &Step, pixels: f64) -> Vec<(&'static str, f64)> {
    match step {
        Step::Resize { part, .. } => {
            let [top, left, height, width] =
                [part.top, part.left, part.height, part.width].map(f64::from);
            vec![
                ("resize.top", top),
                ("resize.left", left),
                ("resize.height", height),
                ("resize.width", width),
                ("resize.share", (200.0 * height * width / pixels).floor()),
                ("resize.ratio", (64.0 * width / height).floor()),
            ]
        }
        Step::Erase { area, .. } => vec![
            ("erase.top", f64::from(area.top)),
            ("erase.left", f64::from(area.left)),
            ("erase.height", f64::from(area.height)),
            ("erase.width", f64::from(area.width)),
        ],
        Step::Adjust(adjust) => match adjust {
            Adjust::Brightness(by) => vec![("brightness.by", *by)],
            Adjust::Contrast(by) => vec![("contrast.by", *by)],
            Adjust::Saturation(by) => vec![("saturation.by", *by)],
            Adjust::Hue(by) => vec![("hue.by", *by)],
            Adjust::Sharpness(by) => vec![("sharpness.by", *by)],
            Adjust::Blur(blur) => vec![("blur.sigma", blur.sigma)],
            Adjust::Posterize { bits } => vec![("posterize.bits", f64::from(*bits))],
            Adjust::Solarize { threshold } => {
                vec![("solarize.threshold", f64::from(*threshold))]
            }
            Adjust::Jpeg { quality } => vec![("jpeg.quality", f64::from(*quality))],
            Adjust::Grayscale
            | Adjust::Autocontrast
            | Adjust::Equalize
            | Adjust::Invert
            | Adjust::SolarizeAdd { .. } => Vec::new(),
        },
        Step::Window(_)
        | Step::MirrorColumns
        | Step::MirrorRows
        | Step::Warp(_)
        | Step::FirstChannel
        | Step::ThreeChannels
        | Step::Mix(_) => Vec::new(),
    }
}
