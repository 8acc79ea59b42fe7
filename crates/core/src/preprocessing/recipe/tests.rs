//! Tests of the recipe's JSON form, hash and shapes.

use std::error::Error;

use super::*;
use crate::tensor::{SampleShape, Views};

fn with_ops(ops: &str) -> String {
    format!(r#"{{"version": 1, "name": "test", "ops": {ops}}}"#)
}

fn recipe(ops: &str) -> Recipe {
    Recipe::from_json(&with_ops(ops)).unwrap()
}

/// The whole line a user sees: the error and its sources.
fn complaint(json: &str) -> String {
    line_of(&Recipe::from_json(json).unwrap_err())
}

fn line_of(error: &RecipeError) -> String {
    let sources = std::iter::successors(error.source(), |&error| error.source());
    sources.fold(error.to_string(), |line, source| format!("{line}: {source}"))
}

/// What is wrong with it is said in the same words, without a place in a text that nobody wrote.
#[test]
fn a_value_is_read_as_its_text_is() {
    for name in Recipe::builtin_names() {
        let text = Recipe::builtin(name).unwrap().to_json();
        let value = serde_json::from_str(&text).unwrap();
        let recipe = Recipe::from_json(&text).unwrap();
        assert_eq!(Recipe::from_value(value).unwrap(), recipe);
    }
    let wrong = [
        "3".to_owned(),
        r#"{"version": 1, "name": "x"}"#.to_owned(),
        r#"{"version": -1, "name": "x", "ops": []}"#.to_owned(),
        r#"{"version": 1, "name": "x", "ops": [], "opps": []}"#.to_owned(),
        with_ops(r#"[{"op": "decode"}, {"op": "resize", "size": 1.5}]"#),
        with_ops(r#"[{"op": "decode"}, {"op": "flip"}]"#),
    ];
    for json in wrong {
        let error = Recipe::from_value(serde_json::from_str(&json).unwrap()).unwrap_err();
        let (said, of_text) = (line_of(&error), complaint(&json));
        assert!(!said.contains(" at line "), "{said}");
        assert_eq!(of_text.split(" at line ").next(), Some(&*said));
    }
}

#[test]
fn every_builtin_is_there_under_its_name() {
    for name in Recipe::builtin_names() {
        let recipe = Recipe::builtin(name).unwrap();
        assert_eq!(recipe.name(), name);
        assert_eq!(recipe.numerics(), Numerics::Exact);
    }
    assert!(Recipe::builtin("imagenet").is_none());
}

/// The old pixels stay under the old name; who wants the new ones says so.
#[test]
fn a_builtin_is_there_in_every_version() {
    for name in Recipe::builtin_names() {
        let [first, second] = [1, 2].map(|version| {
            let recipe = Recipe::builtin(&format!("{name}@{version}")).unwrap();
            assert_eq!((recipe.name(), recipe.version()), (name, version));
            assert_eq!(
                Recipe::from_json(&recipe.to_json()).unwrap().hash(),
                recipe.hash()
            );
            recipe
        });
        let plain = Recipe::builtin(name).unwrap();
        assert_eq!(first.to_json(), plain.to_json());
        assert_eq!(first.ops(), second.ops());
        assert_eq!(first.numerics(), Numerics::Exact);
        assert_eq!(second.numerics(), Numerics::Exact13);
        assert_ne!(first.hash(), second.hash());
    }
    for wrong in ["imagenet-train@0", "imagenet-train@3", "imagenet-train@", "raw@1@2"] {
        assert!(Recipe::builtin(wrong).is_none(), "{wrong}");
    }
}

#[test]
fn exact_is_the_pillow_of_its_version() {
    let read = |version: u32, numerics: &str| {
        let json =
            format!(r#"{{"version": {version}, "name": "x", {numerics} "ops": []}}"#);
        let recipe = Recipe::from_json(&json).unwrap();
        assert!(recipe.to_json().starts_with(&format!(r#"{{"version":{version},"#)));
        assert_eq!(Recipe::from_json(&recipe.to_json()).unwrap(), recipe);
        recipe.numerics()
    };
    let (exact, planar) = (r#""numerics": "exact","#, r#""numerics": "planar","#);
    assert_eq!(read(1, ""), Numerics::Exact);
    assert_eq!(read(1, exact), Numerics::Exact);
    assert_eq!(read(2, ""), Numerics::Exact13);
    assert_eq!(read(2, exact), Numerics::Exact13);
    assert_eq!((read(1, planar), read(2, planar)), (Numerics::Planar, Numerics::Planar));
}

#[test]
fn numerics_bring_their_version_along() {
    let recipe = recipe("[]");
    let versions = [Numerics::Exact13, Numerics::Planar, Numerics::Exact]
        .map(|numerics| recipe.clone().with_numerics(numerics).version());
    assert_eq!(versions, [2, 1, 1]);
    let planar = recipe.with_numerics(Numerics::Exact13).with_numerics(Numerics::Planar);
    assert_eq!(planar.version(), 2);
    assert_eq!(planar.with_version(1).unwrap().numerics(), Numerics::Planar);
}

#[test]
fn every_file_of_the_folder_is_a_builtin() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/recipes");
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut builtin: Vec<_> =
        Recipe::builtin_names().map(|name| format!("{name}.json")).collect();
    names.sort();
    builtin.sort();
    assert_eq!(names, builtin);
}

#[test]
fn canonical_json_writes_every_default_in_a_fixed_order() {
    let json = recipe(
        r#"[{"op": "decode"}, {"op": "resize", "size": 256}, {"op": "resize", "size": [9, 8]},
            {"size": 224, "op": "random_resized_crop"}, {"op": "center_crop", "size": [6, 7]},
            {"op": "random_crop", "size": 5, "padding": [1, 2]},
            {"op": "random_horizontal_flip"}, {"op": "random_vertical_flip", "p": 1},
            {"op": "normalize", "std": [1], "mean": [0.1]},
            {"op": "to_dtype", "dtype": "bf16", "scale": true},
            {"op": "layout", "layout": "nchw"}]"#,
    )
    .to_json();
    assert_eq!(
        json,
        concat!(
            r#"{"version":1,"name":"test","numerics":"exact","ops":[{"op":"decode"},"#,
            r#"{"op":"resize","size":256,"interpolation":"bilinear"},"#,
            r#"{"op":"resize","size":[9,8],"interpolation":"bilinear"},"#,
            r#"{"op":"random_resized_crop","size":[224,224],"scale":[0.08,1.0],"#,
            r#""ratio":[0.75,1.3333333333333333],"interpolation":"bilinear"},"#,
            r#"{"op":"center_crop","size":[6,7]},"#,
            r#"{"op":"random_crop","size":[5,5],"padding":[1,2,1,2],"fill":0},"#,
            r#"{"op":"random_horizontal_flip","p":0.5},"#,
            r#"{"op":"random_vertical_flip","p":1.0},"#,
            r#"{"op":"normalize","mean":[0.1],"std":[1.0]},"#,
            r#"{"op":"to_dtype","dtype":"bf16","scale":true},"#,
            r#"{"op":"layout","layout":"nchw"}]}"#,
        )
    );
    assert_eq!(Recipe::from_json(&json).unwrap().to_json(), json);
}

/// A changed hash is a new recipe version, not a fix.
#[test]
fn hashes_do_not_drift() {
    let hashes: Vec<_> = GOLDEN_HASHES
        .iter()
        .filter_map(|golden| golden.split(' ').next())
        .map(|name| format!("{name} {:032x}", Recipe::builtin(name).unwrap().hash()))
        .collect();
    assert_eq!(hashes, GOLDEN_HASHES);
}

/// Computed in Python (`json`, `xxhash`) from the files and `docs/numbers.md`.
const GOLDEN_HASHES: [&str; 5] = [
    "imagenet-train 62c4d40a26b8cddef1d996e6ce5657cb",
    "imagenet-eval 4b6b34c06ced37a3c2c6030c992b78e2",
    "cifar10-train bff4064beb152f950be522034c0288ca",
    "cifar10-eval 7f905d3df2a45767c996c8fb82927348",
    "raw 67f21d922904465d078eeacd356dbb78",
];

#[test]
fn the_hash_sees_numbers_and_numerics_but_not_spelling() {
    let hash = |ops: &str| recipe(ops).hash();
    let flip = hash(r#"[{"op": "decode"}, {"op": "random_horizontal_flip"}]"#);
    let spelled =
        hash(r#"[ {"op":"decode"}, {"p": 5e-1, "op":"random_horizontal_flip"} ]"#);
    let other = hash(
        r#"[{"op": "decode"}, {"op": "random_horizontal_flip", "p": 0.5000000000000001}]"#,
    );
    assert_eq!(flip, spelled);
    assert_ne!(flip, other);
    let planar = r#"{"version": 1, "name": "test", "numerics": "planar", "ops": []}"#;
    assert_ne!(recipe("[]").hash(), Recipe::from_json(planar).unwrap().hash());
}

/// A recipe that does not ask for it is the one that it was, whichever way that is spelled.
#[test]
fn what_becomes_of_truncated_images_is_part_of_the_recipe_where_it_is_asked_for() {
    let plain = recipe(r#"[{"op": "decode"}]"#);
    let refuse = recipe(r#"[{"op": "decode", "truncated": "refuse"}]"#);
    let fill = recipe(r#"[{"op": "decode", "truncated": "fill"}]"#);
    assert_eq!(plain.hash(), refuse.hash());
    assert_ne!(plain.hash(), fill.hash());
    assert!(fill.to_json().contains(r#"{"op":"decode","truncated":"fill"}"#));
    assert_eq!(Recipe::from_json(&fill.to_json()).unwrap(), fill);
    let truncated = [&plain, &refuse, &fill].map(Recipe::truncated);
    assert_eq!(truncated, [Truncated::Refuse, Truncated::Refuse, Truncated::Fill]);
    assert_eq!(fill.clone().with_truncated(Truncated::Refuse), plain);
    assert_eq!(plain.clone().with_truncated(Truncated::Fill), fill);
    assert_eq!(recipe("[]").with_truncated(Truncated::Fill), recipe("[]"));
    let [usual, filled] = [plain, fill].map(|recipe| recipe.words()[0].clone());
    assert_eq!(usual, "decode: the record becomes pixels");
    assert!(filled.contains("is filled in as Pillow does"), "{filled}");
    for (parameters, part) in [
        (r#""truncated": "skip""#, "unknown variant `skip`, expected `refuse` or `fill`"),
        (r#""truncated": true"#, "op 0 `decode` cannot be read"),
        (r#""fill": true"#, "unknown field `fill`, expected `truncated`"),
    ] {
        let json = with_ops(&format!(r#"[{{"op": "decode", {parameters}}}]"#));
        assert!(complaint(&json).contains(part), "{}", complaint(&json));
    }
}

#[test]
fn the_cut_stands_before_normalise() {
    let train = Recipe::builtin("imagenet-train").unwrap();
    let names: Vec<_> = train.before_cut().iter().map(Op::name).collect();
    assert_eq!(names, ["decode", "random_resized_crop", "random_horizontal_flip"]);
    assert_eq!(train.ops().last().map(Op::name), Some("normalize"));
    assert_eq!(train.normalise().unwrap().mean, [0.485, 0.456, 0.406]);
    assert_eq!((train.dtype(), train.layout()), (None, None));
    let feed = recipe(
        r#"[{"op": "to_dtype", "dtype": "f16", "scale": true}, {"op": "layout", "layout": "nchw"}]"#,
    );
    assert_eq!((feed.dtype(), feed.layout()), (Some(Dtype::F16), Some(Layout::Nchw)));
    assert!(feed.before_cut().is_empty());
}

#[test]
fn every_mistake_is_named_with_its_remedy() {
    let table = [
        ("[]", "the recipe cannot be read; it is an object with version, name and ops"),
        (
            r#"{"version": 3, "name": "x", "ops": []}"#,
            "version 3 and this build reads versions 1 to 2",
        ),
        (
            r#"{"version": 0, "name": "x", "numerics": "planar", "ops": []}"#,
            "version 0 and this build reads versions 1 to 2",
        ),
        (
            r#"{"version": 1, "name": "", "ops": []}"#,
            "`name` is empty; give the recipe a name",
        ),
        (r#"{"version": 1, "name": "x"}"#, "missing field `ops`"),
        (r#"{"version": 1, "name": "x", "ops": [], "opps": []}"#, "unknown field `opps`"),
        (
            r#"{"version": 1, "name": "x", "numerics": "fast", "ops": []}"#,
            "unknown variant `fast`, expected `exact` or `planar`",
        ),
    ];
    for (json, part) in table {
        assert!(complaint(json).contains(part), "{}", complaint(json));
    }
}

/// An op after `decode`, and part of the line that refuses it.
const WRONG_OPS: &[(&str, &str)] = &[
    (r#"{"size": 3}"#, "op 1 has no name; write"),
    (
        r#"{"op": "rotate"}"#,
        "op 1 is `rotate`, which this build does not have; it has decode,",
    ),
    (r#"{"op": "normalise", "mean": [0], "std": [1]}"#, "op 1 is `normalise`"),
    (
        r#"{"op": "random_rotation", "degrees": 3, "interpolation": "lanczos"}"#,
        "`interpolation` is Lanczos; it must be nearest, bilinear or bicubic",
    ),
    (
        r#"{"op": "rand_augment", "interpolation": "box"}"#,
        "`interpolation` is Box; it must be nearest, bilinear or bicubic",
    ),
    (
        r#"{"op": "resize", "size": 3, "interpolation": "mks2013"}"#,
        "unknown variant `mks2013`",
    ),
    (
        r#"{"op": "center_crop"}"#,
        "op 1 `center_crop` cannot be read: missing field `size`",
    ),
    (r#"{"op": "center_crop", "siz": 3}"#, "unknown field `siz`, expected `size`"),
    (
        r#"{"op": "center_crop", "size": "3"}"#,
        "`size` must be a whole number or [height, width]",
    ),
    (r#"{"op": "center_crop", "size": 0}"#, "`size` is 0; it must be from 1 to 16384"),
    (r#"{"op": "resize", "size": [3, 16385]}"#, "`size` is 16385; it must be from 1"),
    (
        r#"{"op": "resize", "size": 3, "interpolation": "cubic"}"#,
        "expected one of `nearest`, `bilinear`",
    ),
    (
        r#"{"op": "random_crop", "size": 3, "padding": -1}"#,
        "`padding` must be a whole number",
    ),
    (
        r#"{"op": "random_crop", "size": 3, "padding": 20000}"#,
        "`padding` is [20000, 20000, 20000, 20000]; it must be at most 16384",
    ),
    (
        r#"{"op": "random_crop", "size": 3, "fill": 256}"#,
        "`fill` must be a whole number from 0 to 255 or [red, green, blue]",
    ),
    (
        r#"{"op": "random_horizontal_flip", "p": 1.5}"#,
        "`p` is 1.5; it must be from 0 to 1",
    ),
    (r#"{"op": "random_vertical_flip", "q": 1}"#, "unknown field `q`, expected `p`"),
    (
        r#"{"op": "random_resized_crop", "size": 3, "scale": [0, 1]}"#,
        "`scale` is [0.0, 1.0]; it must be [least, greatest] with 0 < least ≤ greatest ≤ 1",
    ),
    (r#"{"op": "random_resized_crop", "size": 3, "scale": [0.5, 0.4]}"#, "`scale` is"),
    (
        r#"{"op": "random_resized_crop", "size": 3, "ratio": [2, 1]}"#,
        "`ratio` is [2.0, 1.0]",
    ),
    (r#"{"op": "random_resized_crop", "size": 3, "ratio": [-1, 1]}"#, "`ratio` is"),
    (r#"{"op": "normalize", "mean": [0], "std": [1, 1]}"#, "as many numbers as `mean`"),
    (
        r#"{"op": "normalize", "mean": [0], "std": [0]}"#,
        "`std` is [0.0]; it must be above 0",
    ),
    (r#"{"op": "normalize", "mean": [], "std": []}"#, "one finite number per channel"),
    (
        r#"{"op": "to_dtype", "dtype": "f32"}"#,
        "`scale` is false; it must be true for a float",
    ),
    (r#"{"op": "to_dtype", "dtype": "f64"}"#, "unknown variant `f64`"),
    (r#"{"op": "layout", "layout": "chwn"}"#, "unknown variant `chwn`"),
    (r#"{"op": "decode"}"#, "op 1 `decode` is after another op; `decode` comes first"),
];

#[test]
fn every_wrong_op_is_named_with_its_remedy() {
    for (op, part) in WRONG_OPS {
        let json = with_ops(&format!(r#"[{{"op": "decode"}}, {op}]"#));
        assert!(complaint(&json).contains(part), "{}", complaint(&json));
    }
}

#[test]
fn every_op_has_its_place() {
    let normalise = r#"{"op": "normalize", "mean": [0], "std": [1]}"#;
    let flip = r#"{"op": "random_horizontal_flip"}"#;
    let twice = with_ops(&format!("[{normalise}, {normalise}]"));
    assert!(
        complaint(&twice).contains("op 1 `normalize` is there a second time; leave one")
    );
    let late = with_ops(&format!(r#"[{{"op": "decode"}}, {normalise}, {flip}]"#));
    assert!(
        complaint(&late).contains("op 2 `random_horizontal_flip` is after normalize")
    );
    let bare = with_ops(&format!("[{flip}]"));
    assert!(complaint(&bare).contains("begin the recipe with `decode`"));
    let many = with_ops(&format!("[{}]", vec![normalise; 257].join(",")));
    assert!(complaint(&many).contains("257 ops; at most 256"));
}

const CIFAR: RecordShape = RecordShape::Planar { height: 32, width: 32, channels: 3 };

/// The shape of samples of one view.
fn only(views: &Views) -> SampleShape {
    assert_eq!(views.shapes().len(), 1);
    views.shapes()[0]
}

#[test]
fn shapes_of_the_builtins() {
    let shape = |name, record| {
        let SampleShape { height, width, channels } =
            only(&Recipe::builtin(name).unwrap().views(record).unwrap());
        (height, width, channels)
    };
    assert_eq!(shape("imagenet-train", RecordShape::Image), (224, 224, 3));
    assert_eq!(shape("imagenet-eval", RecordShape::Image), (224, 224, 3));
    assert_eq!(shape("imagenet-eval", CIFAR), (224, 224, 3));
    assert_eq!(shape("cifar10-train", RecordShape::Image), (32, 32, 3));
    assert_eq!(shape("cifar10-train", CIFAR), (32, 32, 3));
    assert_eq!(shape("cifar10-eval", CIFAR), (32, 32, 3));
    assert_eq!(shape("raw", CIFAR), (1, 3072, 1));
    assert_eq!(shape("raw", RecordShape::Opaque { len_bytes: 77 }), (1, 77, 1));
}

#[test]
fn shapes_follow_known_records() {
    let shape = |ops: &str| only(&recipe(ops).views(CIFAR).unwrap());
    assert_eq!(shape(r#"[{"op": "decode"}]"#).len(), 3072);
    let resized = shape(r#"[{"op": "decode"}, {"op": "resize", "size": 20}]"#);
    assert_eq!((resized.height, resized.width), (20, 20));
}

#[test]
fn the_long_side_follows_as_in_torchvision() {
    let resized = |height, width| {
        let Size { height, width } =
            ResizeTo::ShortSide(256).apply(Size { height, width });
        (height, width)
    };
    // int(256 * long / short)
    assert_eq!(resized(375, 500), (256, 341));
    assert_eq!(resized(500, 375), (341, 256));
    assert_eq!(resized(256, 256), (256, 256));
    assert_eq!(resized(1, 65_500), (256, 16_768_000));
}

/// Why a recipe does not fit such records, or none at all.
fn refusal(ops: &str, record: RecordShape) -> String {
    let views = Recipe::from_json(&with_ops(ops)).and_then(|recipe| recipe.views(record));
    views.unwrap_err().to_string()
}

#[test]
fn what_does_not_fit_the_data_is_refused_by_name() {
    let decode = r#"[{"op": "decode"}]"#;
    let line = refusal(decode, RecordShape::Image);
    assert!(
        line.contains("after `decode` depends on the image; add `center_crop`"),
        "{line}"
    );
    let line = refusal(
        r#"[{"op": "decode"}, {"op": "resize", "size": 9}, {"op": "random_vertical_flip"}]"#,
        RecordShape::Image,
    );
    assert!(line.contains("after `resize` depends on the image"), "{line}");
    let line = refusal("[]", RecordShape::Image);
    assert!(line.contains("does not decode"), "{line}");
    let line = refusal(decode, RecordShape::Opaque { len_bytes: 4 });
    assert!(line.contains("use the recipe `raw`"), "{line}");
    let line = refusal(r#"[{"op": "decode"}, {"op": "random_crop", "size": 33}]"#, CIFAR);
    assert!(line.contains("larger than the padded image"), "{line}");
    let line = refusal(r#"[{"op": "normalize", "mean": [0, 0], "std": [1, 1]}]"#, CIFAR);
    assert!(line.contains("2 channels and a sample has 1"), "{line}");
    let line = refusal("[]", RecordShape::Opaque { len_bytes: 0 });
    assert!(line.contains("no bytes"), "{line}");
    let huge = RecordShape::Planar { height: u32::MAX, width: u32::MAX, channels: 3 };
    assert!(refusal(decode, huge).contains("4 GiB"));
}

mod augment;
mod early;

#[test]
fn a_recipe_is_fixed_where_nothing_before_the_cut_is_drawn() {
    let fixed: Vec<_> = Recipe::builtin_names()
        .filter(|name| Recipe::builtin(name).unwrap().is_fixed())
        .collect();
    assert!(fixed.contains(&"raw") && fixed.contains(&"imagenet-eval"), "{fixed:?}");
    assert!(fixed.iter().all(|name| !name.contains("train")), "{fixed:?}");
}
