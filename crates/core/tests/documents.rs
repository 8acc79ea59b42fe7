//! docs/ops.md speaks of every op there is, and of no other. What it says of them is held by
//! the tests that it names.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::path::Path;

use bothends_core::recipe::{Recipe, RecipeError};

#[test]
fn every_op_has_its_line() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ops.md");
    let text = std::fs::read_to_string(file).unwrap();
    let name = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let lines: Vec<String> = text.lines().filter_map(name).collect();
    let documented: BTreeSet<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(documented.len(), lines.len(), "an op has two lines");

    let json = r#"{"version": 1, "name": "x", "ops": [{"op": "no such op"}]}"#;
    let error = Recipe::from_json(json).unwrap_err();
    let RecipeError::UnknownOp { known, .. } = error else { panic!("{error}") };
    assert_eq!(documented, known.into_iter().collect());
}
