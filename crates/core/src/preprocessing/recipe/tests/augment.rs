//! Tests of the augmentation ops: their JSON forms, what is refused, and what is decided.

use super::*;
use crate::ids::{EpochIdx, SampleId};
use crate::recipe::step::{Adjust, Map, Mix, Step};
use crate::sample::SampleKey;

/// An op as it may be written, and its canonical form.
const FORMS: &[(&str, &str)] = &[
    (
        r#"{"op": "resize", "size": 9, "max_size": 20, "interpolation": "bicubic"}"#,
        r#"{"op":"resize","size":9,"max_size":20,"interpolation":"bicubic"}"#,
    ),
    (
        r#"{"op": "random_crop", "size": 5, "pad_if_needed": true, "padding_mode": "reflect"}"#,
        r#"{"op":"random_crop","size":[5,5],"padding":[0,0,0,0],"pad_if_needed":true,"fill":0,"padding_mode":"reflect"}"#,
    ),
    (
        r#"{"op": "pad", "padding": 2, "fill": [1, 2, 3]}"#,
        r#"{"op":"pad","padding":[2,2,2,2],"fill":[1,2,3],"padding_mode":"constant"}"#,
    ),
    (
        r#"{"op": "random_rotation", "degrees": 15}"#,
        r#"{"op":"random_rotation","degrees":[-15.0,15.0],"interpolation":"nearest","expand":false,"center":null,"fill":0}"#,
    ),
    (
        r#"{"op": "random_affine", "degrees": 0, "shear": [1, 2], "scale": [0.5, 2]}"#,
        r#"{"op":"random_affine","degrees":[-0.0,0.0],"translate":null,"scale":[0.5,2.0],"shear":[1.0,2.0,0.0,0.0],"interpolation":"nearest","fill":0,"center":null}"#,
    ),
    (
        r#"{"op": "random_perspective", "fill": [7, 7, 7]}"#,
        r#"{"op":"random_perspective","distortion_scale":0.5,"p":0.5,"interpolation":"bilinear","fill":7}"#,
    ),
    (
        r#"{"op": "color_jitter", "brightness": 0.4, "saturation": [0.5, 0.75], "hue": 0.1}"#,
        r#"{"op":"color_jitter","brightness":[0.6,1.4],"contrast":null,"saturation":[0.5,0.75],"hue":[-0.1,0.1]}"#,
    ),
    (
        r#"{"op": "color_jitter", "contrast": 2}"#,
        r#"{"op":"color_jitter","brightness":null,"contrast":[0.0,3.0],"saturation":null,"hue":null}"#,
    ),
    (r#"{"op": "grayscale"}"#, r#"{"op":"grayscale","num_output_channels":1}"#),
    (r#"{"op": "random_grayscale"}"#, r#"{"op":"random_grayscale","p":0.1}"#),
    (
        r#"{"op": "gaussian_blur", "kernel_size": [5, 9], "sigma": 2}"#,
        r#"{"op":"gaussian_blur","kernel_size":[5,9],"sigma":[2.0,2.0]}"#,
    ),
    (
        r#"{"op": "random_adjust_sharpness", "sharpness_factor": 2}"#,
        r#"{"op":"random_adjust_sharpness","sharpness_factor":2.0,"p":0.5}"#,
    ),
    (r#"{"op": "random_autocontrast"}"#, r#"{"op":"random_autocontrast","p":0.5}"#),
    (r#"{"op": "random_equalize"}"#, r#"{"op":"random_equalize","p":0.5}"#),
    (r#"{"op": "random_invert", "p": 1}"#, r#"{"op":"random_invert","p":1.0}"#),
    (
        r#"{"op": "random_posterize", "bits": 3}"#,
        r#"{"op":"random_posterize","bits":3,"p":0.5}"#,
    ),
    (
        r#"{"op": "random_solarize", "threshold": 128}"#,
        r#"{"op":"random_solarize","threshold":128.0,"p":0.5}"#,
    ),
    (r#"{"op": "jpeg", "quality": 50}"#, r#"{"op":"jpeg","quality":[50,50]}"#),
    (
        r#"{"op": "auto_augment"}"#,
        r#"{"op":"auto_augment","policy":"imagenet","interpolation":"nearest","fill":0}"#,
    ),
    (
        r#"{"op": "rand_augment"}"#,
        r#"{"op":"rand_augment","num_ops":2,"magnitude":9,"num_magnitude_bins":31,"interpolation":"nearest","fill":0}"#,
    ),
    (
        r#"{"op": "timm_rand_augment"}"#,
        r#"{"op":"timm_rand_augment","num_layers":2,"magnitude":10.0,"magnitude_std":0.0,"increasing":false,"p":0.5,"interpolation":"random","fill":[124,116,104]}"#,
    ),
    (
        r#"{"op": "trivial_augment_wide"}"#,
        r#"{"op":"trivial_augment_wide","num_magnitude_bins":31,"interpolation":"nearest","fill":0}"#,
    ),
    (
        r#"{"op": "augmix"}"#,
        r#"{"op":"augmix","severity":3,"mixture_width":3,"chain_depth":null,"alpha":1.0,"all_ops":true,"interpolation":"bilinear","fill":0}"#,
    ),
    (
        r#"{"op": "random_erasing", "value": [1, 2, 3]}"#,
        r#"{"op":"random_erasing","p":0.5,"scale":[0.02,0.33],"ratio":[0.3,3.3],"value":[1.0,2.0,3.0]}"#,
    ),
    (
        r#"{"op": "random_apply", "transforms": [{"op": "random_invert"}]}"#,
        r#"{"op":"random_apply","transforms":[{"op":"random_invert","p":0.5}],"p":0.5}"#,
    ),
    (
        r#"{"op": "random_choice", "transforms": [{"op": "random_invert"}, {"op": "augmix"}]}"#,
        r#"{"op":"random_choice","transforms":[{"op":"random_invert","p":0.5},{"op":"augmix","severity":3,"mixture_width":3,"chain_depth":null,"alpha":1.0,"all_ops":true,"interpolation":"bilinear","fill":0}],"p":[1.0,1.0]}"#,
    ),
    (
        r#"{"op": "random_order", "transforms": [{"op": "random_invert"}]}"#,
        r#"{"op":"random_order","transforms":[{"op":"random_invert","p":0.5}]}"#,
    ),
    (r#"{"op": "five_crop", "size": 4}"#, r#"{"op":"five_crop","size":[4,4]}"#),
    (
        r#"{"op": "ten_crop", "size": 4}"#,
        r#"{"op":"ten_crop","size":[4,4],"vertical_flip":false}"#,
    ),
    (
        r#"{"op": "multi_crop", "views": [{"ops": [{"op": "center_crop", "size": 3}]}]}"#,
        r#"{"op":"multi_crop","views":[{"repeat":1,"ops":[{"op":"center_crop","size":[3,3]}]}]}"#,
    ),
    (r#"{"op": "mixup"}"#, r#"{"op":"mixup","alpha":1.0}"#),
    (
        r#"{"op": "cutmix", "num_classes": 10}"#,
        r#"{"op":"cutmix","alpha":1.0,"num_classes":10}"#,
    ),
];

#[test]
fn every_op_has_one_canonical_form() {
    let canonical = |op: &str| {
        let json = recipe(&format!(r#"[{{"op": "decode"}}, {op}]"#)).to_json();
        let ops = json.strip_suffix("]}").unwrap().to_owned();
        ops.split_once(r#"{"op":"decode"},"#).unwrap().1.to_owned()
    };
    for (written, form) in FORMS {
        assert_eq!(&canonical(written), form);
        assert_eq!(&canonical(form), form, "it reads back");
    }
}

/// An op after `decode`, and part of the line that refuses it.
const WRONG: &[(&str, &str)] = &[
    (r#"{"op": "pad"}"#, "missing field `padding`"),
    (r#"{"op": "pad", "padding": 1, "padding_mode": "wrap"}"#, "unknown variant `wrap`"),
    (r#"{"op": "resize", "size": [3, 4], "max_size": 9}"#, "`max_size` is 9; it must be"),
    (r#"{"op": "random_rotation", "degrees": [9, 3]}"#, "with least ≤ greatest"),
    (r#"{"op": "random_rotation", "degrees": "9"}"#, "a number or [least, greatest]"),
    (r#"{"op": "random_affine", "degrees": 0, "translate": [2, 0]}"#, "`translate` is"),
    (
        r#"{"op": "random_affine", "degrees": 0, "scale": [0, 1]}"#,
        "0.001 ≤ least ≤ greatest",
    ),
    (r#"{"op": "random_affine", "degrees": 0, "shear": 90}"#, "within −89 to 89"),
    (r#"{"op": "random_perspective", "distortion_scale": 2}"#, "it must be from 0 to 1"),
    (r#"{"op": "color_jitter"}"#, "it must be given, or contrast, saturation or hue"),
    (r#"{"op": "color_jitter", "hue": 0.6}"#, "within −0.5 to 0.5"),
    (r#"{"op": "color_jitter", "contrast": [-1, 1]}"#, "0 ≤ least ≤ greatest"),
    (r#"{"op": "grayscale", "num_output_channels": 2}"#, "it must be 1 or 3"),
    (r#"{"op": "gaussian_blur", "kernel_size": 4}"#, "it must be odd and from 1 to 255"),
    (r#"{"op": "gaussian_blur", "kernel_size": 3, "sigma": 0}"#, "0 < least"),
    (r#"{"op": "random_posterize", "bits": 9}"#, "`bits` is 9; it must be from 0 to 8"),
    (r#"{"op": "random_solarize", "threshold": 256}"#, "it must be from 0 to 255"),
    (r#"{"op": "jpeg", "quality": 0}"#, "1 ≤ least ≤ greatest ≤ 100"),
    (r#"{"op": "auto_augment", "policy": "mnist"}"#, "unknown variant `mnist`"),
    (
        r#"{"op": "rand_augment", "magnitude": 31}"#,
        "it must be below `num_magnitude_bins`",
    ),
    (
        r#"{"op": "rand_augment", "num_ops": 0}"#,
        "`num_ops` is 0; it must be from 1 to 16",
    ),
    (r#"{"op": "timm_rand_augment", "magnitude": 11}"#, "it must be from 0 to 10"),
    (r#"{"op": "augmix", "severity": 0}"#, "it must be from 1 to 10"),
    (r#"{"op": "augmix", "alpha": 0}"#, "`alpha` is 0.0; it must be from 0.001"),
    (
        r#"{"op": "random_erasing", "value": "random"}"#,
        "is before normalize with the value \"random\"; move it after `normalize`",
    ),
    (r#"{"op": "random_erasing", "value": 0.5}"#, "give it whole numbers from 0 to 255"),
    (r#"{"op": "random_erasing", "value": []}"#, "one number or one per channel"),
    (r#"{"op": "random_apply", "transforms": []}"#, "it must be at least one op"),
    (
        r#"{"op": "random_apply", "transforms": [{"op": "pad"}]}"#,
        "op 1.0 `pad` cannot be read: missing field `padding`",
    ),
    (
        r#"{"op": "random_choice", "transforms": [{"op": "augmix"}], "p": [1, 2]}"#,
        "it must be a weight for each op",
    ),
    (
        r#"{"op": "random_choice", "transforms": [{"op": "decode"}]}"#,
        "op 1.0 `decode` is inside another op; move it to the recipe's own list",
    ),
    (
        r#"{"op": "random_order", "transforms": [{"op": "mixup"}]}"#,
        "op 1.0 `mixup` is inside another op",
    ),
    (
        r#"{"op": "random_choice", "transforms": [{"op": "mixup"}, {"op": "pad", "padding": 1}]}"#,
        "put only `mixup` and `cutmix` together",
    ),
    (
        r#"{"op": "random_apply", "transforms": [{"op": "mixup"}, {"op": "cutmix"}]}"#,
        "put them into a `random_choice` inside it",
    ),
    (
        r#"{"op": "multi_crop", "views": []}"#,
        "`views` is 0; it must be at least one view",
    ),
    (r#"{"op": "multi_crop", "views": [{"repeat": 65, "ops": []}]}"#, "64 in all"),
    (
        r#"{"op": "five_crop", "size": 3}, {"op": "random_invert"}"#,
        "op 2 `random_invert` is after an op that makes several views",
    ),
    (r#"{"op": "mixup"}, {"op": "cutmix"}"#, "op 2 `cutmix` is there a second time"),
    (
        r#"{"op": "mixup"}, {"op": "normalize", "mean": [0], "std": [1]}"#,
        "op 2 `normalize` is after an op that mixes samples; mix samples last of all",
    ),
    (r#"{"op": "mixup", "num_classes": 0}"#, "at least 1; or leave it out"),
    (r#"{"op": "random_invert", "p": 0.5, "q": 1}"#, "unknown field `q`"),
];

#[test]
fn every_wrong_op_is_refused_with_op_key_and_remedy() {
    for (op, part) in WRONG {
        let json = with_ops(&format!(r#"[{{"op": "decode"}}, {op}]"#));
        assert!(complaint(&json).contains(part), "{part}\n{}", complaint(&json));
    }
    let json = r#"{"version": 1, "name": "x", "repeated_augment": 65, "ops": []}"#;
    assert!(
        complaint(json).contains("`repeated_augment` is 65; it must be from 1 to 64")
    );
    let nested = (0..9).fold(r#"{"op": "random_invert"}"#.to_owned(), |inside, _| {
        format!(r#"{{"op": "random_order", "transforms": [{inside}]}}"#)
    });
    let json = with_ops(&format!(r#"[{{"op": "decode"}}, {nested}]"#));
    assert!(complaint(&json).contains("nest fewer ops"), "{}", complaint(&json));
    let many = r#"{"op": "multi_crop", "views": [{"repeat": 64, "ops": [{"op": "augmix"}, {"op": "augmix"}, {"op": "augmix"}, {"op": "augmix"}]}]}"#;
    let json = with_ops(&format!(r#"[{{"op": "decode"}}, {many}]"#));
    assert!(complaint(&json).contains("258 ops; at most 256"), "{}", complaint(&json));
}

/// What does not fit the data, after `decode` of images or of CIFAR's planes.
#[test]
fn what_depends_on_chance_or_does_not_fit_is_refused() {
    let decoded = |ops: &str| format!(r#"[{{"op": "decode"}}, {ops}]"#);
    for (ops, part) in [
        (r#"{"op": "pad", "padding": 1}"#, "after `pad` depends on the image"),
        (
            r#"{"op": "center_crop", "size": 9}, {"op": "random_apply", "transforms": [{"op": "pad", "padding": 1}]}"#,
            "the size of a sample after `random_apply` is random; make every path",
        ),
        (
            r#"{"op": "center_crop", "size": 9}, {"op": "random_rotation", "degrees": 9, "expand": true}"#,
            "after `random_rotation` depends on the image",
        ),
        (
            r#"{"op": "center_crop", "size": 9}, {"op": "random_apply", "transforms": [{"op": "grayscale"}]}"#,
            "the number of channels of a sample after `random_apply` is random",
        ),
        (
            r#"{"op": "center_crop", "size": 9}, {"op": "grayscale"}, {"op": "pad", "padding": 1, "fill": [1, 2, 3]}"#,
            "`pad` fills with three values and an image has 1 channels; give `fill` one",
        ),
        (
            r#"{"op": "center_crop", "size": 9}, {"op": "five_crop", "size": 10}"#,
            "`five_crop` is larger than the image",
        ),
        (
            r#"{"op": "center_crop", "size": 9}, {"op": "five_crop", "size": 5}, {"op": "mixup"}"#,
            "it mixes samples of 5 views",
        ),
        (
            r#"{"op": "center_crop", "size": 9}, {"op": "normalize", "mean": [0, 0, 0], "std": [1, 1, 1]}, {"op": "random_erasing", "value": [1, 2]}"#,
            "`random_erasing` has 2 values and a sample 3 channels",
        ),
    ] {
        let line = refusal(&decoded(ops), RecordShape::Image);
        assert!(line.contains(part), "{part}\n{line}");
    }
    let line = refusal(
        &decoded(r#"{"op": "pad", "padding": 1}, {"op": "random_crop", "size": 35}"#),
        CIFAR,
    );
    assert!(line.contains("`random_crop` is larger than the padded image"), "{line}");
}

#[test]
fn views_have_their_shapes() {
    let shapes = |ops: &str| {
        let json = format!(r#"[{{"op": "decode"}}, {ops}]"#);
        let views = recipe(&json).views(CIFAR).unwrap();
        views.shapes().iter().map(|s| [s.height, s.width, s.channels]).collect::<Vec<_>>()
    };
    assert_eq!(shapes(r#"{"op": "five_crop", "size": 20}"#), [[20, 20, 3]; 5]);
    assert_eq!(shapes(r#"{"op": "ten_crop", "size": [8, 9]}"#), [[8, 9, 3]; 10]);
    let views = shapes(
        r#"{"op": "multi_crop", "views": [
            {"ops": [{"op": "pad", "padding": 1}]},
            {"repeat": 2, "ops": [{"op": "grayscale"}, {"op": "resize", "size": 16}]}]}"#,
    );
    assert_eq!(views, [[34, 34, 3], [16, 16, 1], [16, 16, 1]]);
    let choice = r#"{"op": "random_choice", "transforms":
        [{"op": "center_crop", "size": 7}, {"op": "random_resized_crop", "size": 7}]}"#;
    assert_eq!(shapes(choice), [[7, 7, 3]]);
    assert_eq!(
        shapes(r#"{"op": "random_crop", "size": 40, "pad_if_needed": true}"#),
        [[40, 40, 3]]
    );
    let turned = |degrees: &str| {
        let ops = format!(
            r#"{{"op": "pad", "padding": [1, 0]}}, {{"op": "random_rotation",
                "degrees": [{degrees}, {degrees}], "expand": true}}"#
        );
        let Some(Step::Warp(warp)) = decided(&ops, 0).shared().last().copied() else {
            panic!()
        };
        assert_eq!(shapes(&ops), [[warp.size.height, warp.size.width, 3]]);
        warp.size
    };
    // By an angle that is given, all images of one size become images of one size.
    assert_eq!(turned("90"), Size { height: 34, width: 32 });
    assert_eq!(turned("33.3"), Size { height: 46, width: 46 });
}

fn decided(ops: &str, sample: u64) -> Decision {
    let key = SampleKey { seed: 4, epoch: EpochIdx(1), sample: SampleId(sample) };
    let image = SampleShape { height: 32, width: 32, channels: 3 };
    let mut decision = Decision::default();
    recipe(&format!(r#"[{{"op": "decode"}}, {ops}]"#))
        .decide(key, image, &mut decision)
        .unwrap();
    decision
}

#[test]
fn ten_crops_are_five_and_the_five_of_the_mirror_image() {
    let decision = decided(
        r#"{"op": "random_invert", "p": 1}, {"op": "ten_crop", "size": 10, "vertical_flip": true}"#,
        0,
    );
    assert_eq!(decision.shared(), [Step::Adjust(Adjust::Invert)]);
    let views: Vec<_> = decision.views().collect();
    let corner = |step: &Step| {
        let Step::Window(window) = step else { panic!("{step:?}") };
        [window.top, window.left]
    };
    let places = [[0, 0], [0, 22], [22, 0], [22, 22], [11, 11]];
    assert_eq!(views.len(), 10);
    for (nth, view) in views.iter().enumerate() {
        let (mirror, window) = view.split_at(view.len() - 1);
        assert_eq!(mirror, if nth < 5 { &[][..] } else { &[Step::MirrorRows] });
        assert_eq!(corner(&window[0]), places[nth % 5]);
    }
}

/// What one op draws never shifts what another does.
#[test]
fn an_op_that_is_passed_over_keeps_its_numbers() {
    let jitter = r#"{"op": "color_jitter", "brightness": 0.5}"#;
    let brightness = |ops: &str, sample| {
        let decision = decided(ops, sample);
        let Some(Step::Adjust(Adjust::Brightness(factor))) = decision.shared().last()
        else {
            panic!("{decision:?}")
        };
        *factor
    };
    let ops = |p: &str| {
        format!(
            r#"{{"op": "random_apply", "p": {p}, "transforms":
                [{{"op": "random_rotation", "degrees": 9}}, {{"op": "augmix"}}]}}, {jitter}"#
        )
    };
    for sample in 0..20 {
        let done = brightness(&ops("1"), sample);
        assert_eq!(done, brightness(&ops("0"), sample));
    }
}

#[test]
fn copies_of_a_view_differ() {
    let ops = r#"{"op": "multi_crop", "views": [
        {"repeat": 3, "ops": [{"op": "random_rotation", "degrees": 90}]}]}"#;
    let decision = decided(ops, 5);
    let views: Vec<_> = decision.views().map(<[Step]>::to_vec).collect();
    assert_eq!(views.len(), 3);
    assert!(views[0] != views[1] && views[1] != views[2] && views[0] != views[2]);
}

#[test]
fn an_only_view_is_the_sample() {
    let resize = r#"{"op": "resize", "size": [8, 8]}"#;
    let invert = r#"{"op": "random_invert", "p": 1}"#;
    let one =
        format!(r#"{resize}, {{"op": "multi_crop", "views": [{{"ops": [{invert}]}}]}}"#);
    let decision = decided(&one, 5);
    assert_eq!(decision.shared(), decided(&format!("{resize}, {invert}"), 5).shared());
    assert_eq!(decision.shared().len(), 2);
    assert_eq!(decision.views().collect::<Vec<_>>(), [&[] as &[Step]]);
}

#[test]
fn a_mixture_begins_and_ends_and_its_weights_are_shares() {
    for sample in 0..200 {
        let decision = decided(r#"{"op": "augmix"}"#, sample);
        let weights: Vec<f32> = decision
            .shared()
            .iter()
            .filter_map(|step| {
                let Step::Mix(Mix::Begin { weight } | Mix::Chain { weight }) = step
                else {
                    return None;
                };
                Some(*weight)
            })
            .collect();
        assert_eq!(weights.len(), 4);
        assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{weights:?}");
        assert_eq!(decision.shared().last(), Some(&Step::Mix(Mix::End)));
    }
}

/// Pillow's `Image.rotate` and torchvision's matrices at angles that can be done in the head.
#[test]
fn maps_of_quarter_turns_are_exact() {
    let image = Size { height: 4, width: 6 };
    let map = |degrees, expand| {
        let (map, size) = draw::rotation_map(degrees, image, [3.0, 2.0], expand);
        let Map::Affine(numbers) = map else { panic!("{map:?}") };
        (numbers, [size.height, size.width])
    };
    assert_eq!(map(90.0, draw::Expand::No), ([0.0, -1.0, 5.0, 1.0, 0.0, -1.0], [4, 6]));
    assert_eq!(map(90.0, draw::Expand::Yes), ([0.0, -1.0, 6.0, 1.0, 0.0, 0.0], [6, 4]));
    assert_eq!(map(-360.0, draw::Expand::No).0, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    let choice = draw::AffineChoice {
        angle: 0.0,
        translate: [2.0, -1.0],
        scale: 2.0,
        shear: [0.0, 0.0],
    };
    let Map::Affine(numbers) = choice.map([3.0, 2.0]) else { panic!() };
    assert_eq!(numbers, [0.5, 0.0, 0.5, 0.0, 0.5, 1.5]);
}

/// The map of corners onto corners.
#[test]
fn a_perspective_puts_the_corners_where_it_should() {
    let image = Size { height: 30, width: 40 };
    let corners = [[3.0, 2.0], [35.0, 4.0], [38.0, 27.0], [1.0, 25.0]];
    let Map::Perspective([a, b, c, d, e, f, g, h]) =
        draw::perspective_map(image, corners)
    else {
        panic!()
    };
    let from = [[0.0, 0.0], [39.0, 0.0], [39.0, 29.0], [0.0, 29.0]];
    for ([x, y], [u, v]) in corners.into_iter().zip(from) {
        let w = g * x + h * y + 1.0;
        let got = [(a * x + b * y + c) / w, (d * x + e * y + f) / w];
        assert!((got[0] - u).abs() < 1e-4 && (got[1] - v).abs() < 1e-4, "{got:?}");
    }
    // Three corners in one point are no perspective; still a map of numbers.
    let flat = draw::perspective_map(image, [[0.0, 0.0]; 4]);
    let Map::Perspective(numbers) = flat else { panic!() };
    assert!(numbers.iter().all(|n| n.is_finite()));
}

#[test]
fn a_longer_side_is_limited_as_in_torchvision() {
    let resize = |size, max_size, image: [u32; 2]| {
        let json = format!(
            r#"[{{"op": "decode"}}, {{"op": "resize", "size": {size}, "max_size": {max_size}}}]"#
        );
        let recipe = recipe(&json);
        let Op::Geometry(op::Geometry::Resize(op)) = &recipe.ops()[1] else { panic!() };
        let Size { height, width } =
            op.target(Size { height: image[0], width: image[1] });
        [height, width]
    };
    // int(max_size * new_short / new_long)
    assert_eq!(resize(100, 150, [200, 400]), [75, 150]);
    assert_eq!(resize(100, 250, [200, 400]), [100, 200]);
    assert_eq!(resize(100, 120, [333, 200]), [120, 72]);
}
