//! Tests of what is refused as soon as a recipe is read, and of how it is said.

use super::*;
use crate::recipe::step::{Adjust, Step};
use crate::recipe::{Decision, MAX_IMAGE_PIXELS};
use crate::sample::SampleKey;

const GREY: RecordShape = RecordShape::Planar { height: 28, width: 28, channels: 1 };

/// The line that refuses these ops after `decode`.
fn refused(ops: &str) -> String {
    complaint(&with_ops(&format!(r#"[{{"op": "decode"}}, {ops}]"#)))
}

fn assert_refused(table: &[(&str, &str)]) {
    for (ops, part) in table {
        let line = refused(ops);
        assert!(line.contains(part), "{part}\n{line}");
    }
}

#[test]
fn what_fits_no_data_is_refused_when_it_is_read() {
    assert_refused(&[
        (
            r#"{"op": "grayscale"}, {"op": "normalize", "mean": [0, 0, 0], "std": [1, 1, 1]}"#,
            "fits no data: `normalize` has 3 channels and a sample has 1; give",
        ),
        (
            r#"{"op": "center_crop", "size": 9}, {"op": "grayscale"},
               {"op": "normalize", "mean": [0, 0, 0], "std": [1, 1, 1]}"#,
            "recipe `test` fits no data: `normalize` has 3 channels and a sample has 1; give",
        ),
        (
            r#"{"op": "center_crop", "size": 9},
               {"op": "grayscale", "num_output_channels": 3},
               {"op": "normalize", "mean": [0], "std": [1]}"#,
            "fits no data: `normalize` has 1 channels and a sample has 3; give",
        ),
        (
            r#"{"op": "center_crop", "size": 9}, {"op": "grayscale"},
               {"op": "pad", "padding": 1, "fill": [1, 2, 3]}"#,
            "fits no data: `pad` fills with three values and an image has 1 channels; give `fill`",
        ),
        (
            r#"{"op": "center_crop", "size": 9}, {"op": "grayscale"},
               {"op": "random_erasing", "value": [1, 2, 3]}"#,
            "`random_erasing` fills with three values and an image has 1 channels; give `value`",
        ),
        (
            r#"{"op": "center_crop", "size": 9}, {"op": "ten_crop", "size": [9, 10]}"#,
            "fits no data: `ten_crop` is larger than the image",
        ),
        (
            r#"{"op": "multi_crop", "views": [{"repeat": 2, "ops":
               [{"op": "random_resized_crop", "size": 8}]}]}, {"op": "cutmix"}"#,
            "fits no data: it mixes samples of 2 views",
        ),
        (
            r#"{"op": "random_choice", "transforms":
               [{"op": "center_crop", "size": 8}, {"op": "center_crop", "size": 9}]}"#,
            "fits no data: the size of a sample after `random_choice` is random",
        ),
        (
            r#"{"op": "random_rotation", "degrees": 9, "expand": true}"#,
            "fits no data: the size of a sample after `random_rotation` depends on the image",
        ),
        (
            r#"{"op": "resize", "size": [13000, 13000]}, {"op": "pad", "padding": 1000}"#,
            "`pad` makes images of 15000 by 15000 pixels; use sides from 1 to 65500",
        ),
        (
            r#"{"op": "multi_crop", "views": [{"repeat": 30, "ops":
               [{"op": "random_resized_crop", "size": 13000}]}]}"#,
            "fits no data: a sample has 4 GiB or more",
        ),
    ]);
    let line =
        complaint(&with_ops(r#"[{"op": "normalize", "mean": [0, 0], "std": [1, 1]}]"#));
    assert!(line.contains("fits no data: `normalize` has 2 channels"), "{line}");
}

/// Records may be planes of any size and number of channels, all the same.
#[test]
fn what_fits_some_data_is_read() {
    for ops in [
        r#"{"op": "random_horizontal_flip"}"#,
        r#"{"op": "random_apply", "transforms": [{"op": "center_crop", "size": 28}]}"#,
        r#"{"op": "random_choice", "transforms":
           [{"op": "pad", "padding": 2}, {"op": "resize", "size": [32, 32]}]}"#,
        r#"{"op": "normalize", "mean": [0, 0], "std": [1, 1]}"#,
        r#"{"op": "center_crop", "size": 9}, {"op": "normalize", "mean": [0], "std": [1]}"#,
        r#"{"op": "random_erasing", "value": [1, 2, 3]}"#,
        r#"{"op": "random_apply", "transforms": [{"op": "grayscale"}]}"#,
        r#"{"op": "five_crop", "size": 100}"#,
    ] {
        recipe(&format!(r#"[{{"op": "decode"}}, {ops}]"#));
    }
}

#[test]
fn sizes_that_no_image_has_are_refused_by_name() {
    let most = MAX_IMAGE_PIXELS.to_string();
    for op in [
        r#"{"op": "resize", "size": [16384, 16384]}"#,
        r#"{"op": "resize", "size": 16384}"#,
        r#"{"op": "center_crop", "size": 16384}"#,
        r#"{"op": "random_crop", "size": 16384, "pad_if_needed": true}"#,
        r#"{"op": "random_resized_crop", "size": 16384}"#,
        r#"{"op": "five_crop", "size": 16384}"#,
        r#"{"op": "ten_crop", "size": 16384}"#,
    ] {
        let line = refused(op);
        let part =
            format!("`size` is [16384, 16384]; it must be of at most {most} pixels");
        assert!(line.contains(&part) && line.contains("make a side shorter"), "{line}");
    }
    let line = refused(r#"{"op": "pad", "padding": 16384}"#);
    assert!(line.contains(&format!("it must be at most {most} pixels around")), "{line}");
    // The largest that are possible; a limited longer side makes a shorter one short enough.
    recipe(r#"[{"op": "decode"}, {"op": "resize", "size": 13377}]"#);
    recipe(r#"[{"op": "decode"}, {"op": "resize", "size": 14000, "max_size": 15000}]"#);
    assert!(refused(r#"{"op": "resize", "size": 13378}"#).contains("[13378, 13378]"));
    // Padding of which only a part is taken.
    recipe(r#"[{"op": "decode"}, {"op": "random_crop", "size": 9, "padding": 16384}]"#);
    let long = RecordShape::Planar { height: 1, width: 65_500, channels: 3 };
    let line = refusal(r#"[{"op": "decode"}, {"op": "resize", "size": 256}]"#, long);
    assert!(line.contains("`resize` makes images of 256 by 16768000 pixels"), "{line}");
}

#[test]
fn numbers_that_f32_does_not_have_are_refused() {
    let erasing = |value: &str| {
        refused(&format!(
            r#"{{"op": "normalize", "mean": [0], "std": [1]}},
               {{"op": "random_erasing", "value": {value}}}"#
        ))
    };
    for value in ["1e39", "[1, -1e39]"] {
        let line = erasing(value);
        assert!(line.contains("op 2 `random_erasing`: `value` is"), "{line}");
        assert!(line.contains("each from −3.4e38 to 3.4e38 (f32)"), "{line}");
    }
    assert_refused(&[
        (
            r#"{"op": "normalize", "mean": [1e39], "std": [1]}"#,
            "op 1 `normalize`: `mean` is [1e39]; it must be one finite number per channel, from −3.4e38",
        ),
        (
            r#"{"op": "normalize", "mean": [0], "std": [1e39]}"#,
            "`std` is [1e39]; it must be above 0 in each channel, from 1.2e-38 to 3.4e38",
        ),
        (
            r#"{"op": "normalize", "mean": [0], "std": [1e-40]}"#,
            "`std` is [1e-40]; it must be above 0 in each channel, from 1.2e-38 to 3.4e38",
        ),
        (
            r#"{"op": "normalize", "mean": [1e10], "std": [1e-30]}"#,
            "`std` is [1e-30]; it must be so large that (1 + |mean|) ÷ std is at most 3.4e38",
        ),
    ]);
}

#[test]
fn erasing_takes_one_value_or_one_per_channel() {
    for value in ["[1, 2]", "[1, 2, 3, 4]"] {
        let line = refused(&format!(r#"{{"op": "random_erasing", "value": {value}}}"#));
        assert!(
            line.contains(
                "with a list that has neither one nor three values; give it one number"
            ),
            "{line}"
        );
    }
    let view = r#"{"op": "multi_crop", "views": [{"ops":
        [{"op": "random_erasing", "value": [1, 2]}]}]}"#;
    assert!(refused(view).contains("op 1.0.0 `random_erasing` is before the cut"));
    let behind = |values: &str, record| {
        let ops = format!(
            r#"[{{"op": "decode"}}, {{"op": "center_crop", "size": 9}},
                {{"op": "layout", "layout": "nchw"}},
                {{"op": "random_erasing", "value": {values}}}]"#
        );
        recipe(&ops).views(record).map(drop)
    };
    for values in ["[1]", "[1, 2, 3]", "7"] {
        behind(values, RecordShape::Image).unwrap();
    }
    behind("[1]", GREY).unwrap();
    behind("[1, 2]", RecordShape::Image).unwrap_err();
    behind("[1, 2, 3]", GREY).unwrap_err();
}

#[test]
fn messages_show_what_was_written_and_every_limit() {
    assert_refused(&[
        (r#"{"op": "resize", "size": 9, "max_size": 5}"#, "`max_size` is 5; it must be"),
        (r#"{"op": "mixup", "num_classes": 0}"#, "`num_classes` is 0; it must be"),
        (
            r#"{"op": "random_affine", "degrees": 0, "translate": [2, 0]}"#,
            "`translate` is [2.0, 0.0]; it must be two shares from 0 to 1; or leave it out",
        ),
        (
            r#"{"op": "random_rotation", "degrees": 1, "center": [1e7, 0]}"#,
            "`center` is [10000000.0, 0.0]; it must be [column, row] within −1000000 to 1000000",
        ),
        (r#"{"op": "color_jitter"}"#, "`brightness` is left out; it must be given, or"),
        (
            r#"{"op": "color_jitter", "brightness": 1e308}"#,
            "a number from 0 to 999999, or [least, greatest] with 0 ≤ least ≤ greatest ≤ 1000000",
        ),
        (
            r#"{"op": "random_rotation", "degrees": 36001}"#,
            "a number from 0 to 36000, or",
        ),
        (
            r#"{"op": "random_affine", "degrees": 0, "scale": 1e-4}"#,
            "with 0.001 ≤ least ≤ greatest ≤ 1000",
        ),
        (
            r#"{"op": "random_choice", "transforms": [{"op": "jpeg", "quality": 9},
                {"op": "augmix"}], "p": [1e308, 1e308]}"#,
            "not all 0, with a finite sum",
        ),
        (
            r#"{"op": "augmix", "chain_depth": -1}"#,
            "`chain_depth` must be a whole number from 1 to 16; leave it out to draw 1 to 3",
        ),
        (
            r#"{"op": "multi_crop", "views": [{"ops": [{"op": "five_crop", "size": 3}]}]}"#,
            "op 1.0.0 `five_crop` is inside a view; give `multi_crop` a view for each crop",
        ),
        (
            r#"{"op": "multi_crop", "views": [{"ops": [{"op": "mixup"}]}]}"#,
            "op 1.0.0 `mixup` is inside a view; leave it out",
        ),
    ]);
    let recipe = recipe(r#"[{"op": "decode"}, {"op": "augmix", "chain_depth": null}]"#);
    assert!(recipe.to_json().contains(r#""chain_depth":null"#));
}

#[test]
fn what_is_long_is_cut_in_messages() {
    let long = "é".repeat(5_000);
    let line = refused(&format!(r#"{{"op": "{long}"}}"#));
    assert!(line.contains(&format!("`{}…`", "é".repeat(40))), "{line}");
    assert!(line.len() < 2_000, "{line}");
    let zeros = vec!["0"; 5_000].join(",");
    let line = refused(&format!(
        r#"{{"op": "normalize", "mean": [{zeros}], "std": [{zeros}]}}"#
    ));
    assert!(line.contains('…') && line.len() < 500, "{line}");
    let json = format!(
        r#"{{"version": 1, "name": "{long}", "ops": [{{"op": "normalize", "mean": [0, 0],
            "std": [1, 1]}}]}}"#
    );
    assert!(complaint(&json).contains("é…` fits no data"), "{}", complaint(&json));
}

/// torchvision's `Grayscale(3)` of an image of one channel has three.
#[test]
fn three_channels_of_grey_are_three() {
    let grey = recipe(
        r#"[{"op": "decode"}, {"op": "grayscale", "num_output_channels": 3},
            {"op": "normalize", "mean": [0, 0, 0], "std": [1, 1, 1]}]"#,
    );
    let shape = only(&grey.views(GREY).unwrap());
    assert_eq!((shape.height, shape.width, shape.channels), (28, 28, 3));
    let key = SampleKey {
        seed: 1,
        epoch: crate::ids::EpochIdx(0),
        sample: crate::ids::SampleId(0),
    };
    let steps = |channels| {
        let mut decision = Decision::default();
        let image = SampleShape { height: 28, width: 28, channels };
        grey.decide(key, image, &mut decision).unwrap();
        decision.shared().to_vec()
    };
    assert_eq!(steps(1), [Step::Adjust(Adjust::Grayscale), Step::ThreeChannels]);
    assert_eq!(steps(3), [Step::Adjust(Adjust::Grayscale)]);
    let two = RecordShape::Planar { height: 28, width: 28, channels: 2 };
    let line = refusal(r#"[{"op": "decode"}, {"op": "grayscale"}]"#, two);
    assert!(
        line.contains("`grayscale` takes colours or grey and an image has 2"),
        "{line}"
    );
}
