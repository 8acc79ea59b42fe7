//! The names of ops: torchvision's functional names, by which they are measured, and the names in recipes
//! (docs/ops.md).

use strsim::levenshtein;

use super::cases;
use crate::BenchError;

/// Ops whose name in a recipe differs from the one by which they are measured. Those that do nothing by
/// themselves are not measured.
const IN_RECIPES: [(&str, &[&str]); 25] = [
    ("decode", &[]),
    ("random_resized_crop", &["resized_crop"]),
    ("center_crop", &["crop"]),
    ("random_crop", &["crop"]),
    ("random_horizontal_flip", &["horizontal_flip"]),
    ("random_vertical_flip", &["vertical_flip"]),
    ("random_rotation", &["rotate"]),
    ("random_affine", &["affine"]),
    ("random_perspective", &["perspective"]),
    ("grayscale", &["rgb_to_grayscale"]),
    ("random_grayscale", &["rgb_to_grayscale"]),
    ("random_adjust_sharpness", &["adjust_sharpness"]),
    ("random_autocontrast", &["autocontrast"]),
    ("random_equalize", &["equalize"]),
    ("random_invert", &["invert"]),
    ("random_posterize", &["posterize"]),
    ("random_solarize", &["solarize"]),
    ("random_erasing", &["erase", "random_erasing"]),
    ("random_apply", &[]),
    ("random_choice", &[]),
    ("random_order", &[]),
    ("ten_crop", &["five_crop", "horizontal_flip"]),
    ("multi_crop", &[]),
    ("to_dtype", &[]),
    ("layout", &[]),
];

/// Most names that are offered in place of a wrong one.
const MOST_NEAR: usize = 5;

/// All names that ops are measured by.
pub(super) fn all() -> Vec<&'static str> {
    let mut names: Vec<_> = cases::all().iter().map(|case| case.op).collect();
    names.dedup();
    names
}

/// The names by which the op called `name`, there or in recipes, is measured.
pub(super) fn measured_as(name: &str) -> Result<Vec<&'static str>, BenchError> {
    let of_recipe = IN_RECIPES.iter().find(|(other, _)| *other == name);
    match of_recipe {
        Some((_, [])) => Err(BenchError::NotAlone { name: name.to_owned() }),
        Some((_, ops)) => Ok(ops.to_vec()),
        None => match all().into_iter().find(|other| *other == name) {
            Some(op) => Ok(vec![op]),
            None => Err(no_such_op(name)),
        },
    }
}

fn no_such_op(name: &str) -> BenchError {
    let of_recipes = IN_RECIPES.iter().filter(|(_, ops)| !ops.is_empty());
    let mut near: Vec<_> = all()
        .into_iter()
        .chain(of_recipes.map(|(name, _)| *name))
        .map(|other| (distance_of_names(name, other), other))
        .filter(|(distance, _)| *distance <= name.len() / 2)
        .collect();
    near.sort_unstable();
    near.dedup();
    let near: Vec<_> = near.into_iter().take(MOST_NEAR).map(|(_, name)| name).collect();
    let names = if near.is_empty() { all() } else { near };
    BenchError::NoSuchOp { name: name.to_owned(), names: names.join(", ") }
}

/// The edit distance of `name` to the other, or to a word of it.
fn distance_of_names(name: &str, other: &str) -> usize {
    let words = other.split('_').map(|word| levenshtein(name, word) + 1);
    words.fold(levenshtein(name, other), usize::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_of_recipes_is_measured_or_said_not_to_be() {
        let ops = include_str!("../../../../docs/ops.md").lines();
        let ops = ops.filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let mut n_ops = 0;
        for name in ops {
            match measured_as(name) {
                Ok(ops) => assert!(ops.iter().all(|op| all().contains(op)), "{name}"),
                Err(BenchError::NotAlone { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            n_ops += 1;
        }
        assert!(n_ops > 35, "only {n_ops} ops are described");
    }

    #[test]
    fn a_wrong_name_is_answered_with_those_near_it() {
        let said = |name| measured_as(name).unwrap_err().to_string();
        let flip = said("horizontal_flipp");
        assert!(flip.contains("horizontal_flip, "), "{flip}");
        assert!(!flip.contains("posterize"), "{flip}");
        assert!(said("sharpen").contains("adjust_sharpness"));
        assert!(said("qqqqqqqqqqqqqqqq").contains("posterize"), "nothing is near: all");
        assert!(said("layout").contains("--data"));
    }
}
