//! Checks that every op is in a position where it has a meaning.

use crate::recipe::op::{Control, Crops, ErasingValue, Feed, Op};
use crate::recipe::{Path, RecipeError};

/// Where an op stands is wrong: how, and what to do.
type Complaint = (&'static str, &'static str);

const NO_BYTE: Complaint = (
    "before the cut with a value that is not a byte",
    "give it whole numbers from 0 to 255, or move it after `normalize`",
);
const NO_COLOUR: Complaint = (
    "before the cut with a list that has neither one nor three values",
    "give it one number, or three for red, green and blue",
);
const AFTER_MIXING: Complaint =
    ("after an op that mixes samples", "mix samples last of all");

/// Decode first, then everything before the cut, views last of it; then each op after the
/// cut once, those that mix samples at the end.
pub(super) fn check(ops: &[Op]) -> Result<(), RecipeError> {
    let path = Path::default();
    for (index, op) in ops.iter().enumerate() {
        let at = path.inside(index);
        let before = &ops[..index];
        if let Some((place, remedy)) = at_the_feed(op, before).or(on_pixels(op, before)) {
            return Err(RecipeError::Order { at, op: op.name(), place, remedy });
        }
        check_inside(&at, op)?;
    }
    Ok(())
}

/// What is wrong with an op's place among those after the cut.
fn at_the_feed(op: &Op, before: &[Op]) -> Option<Complaint> {
    if !op.is_after_cut() {
        return None;
    }
    let again = |earlier: &Op| {
        if op.mixes() { earlier.mixes() } else { earlier.name() == op.name() }
    };
    if before.iter().any(again) {
        return Some(("there a second time", "leave one of the two out"));
    }
    before.iter().any(Op::mixes).then_some(AFTER_MIXING)
}

/// What is wrong with the place of an op that works on pixels.
fn on_pixels(op: &Op, before: &[Op]) -> Option<Complaint> {
    if decodes(op) {
        let again = ("after another op", "`decode` comes first, and once");
        return (!before.is_empty()).then_some(again);
    }
    if matches!(op, Op::Feed(_)) {
        return None;
    }
    if !before.first().is_some_and(decodes) {
        return Some(("before any pixels", "begin the recipe with `decode`"));
    }
    let is_behind_cut = before.iter().any(Op::is_after_cut);
    if let Op::RandomErasing(erasing) = op {
        let is_normal =
            before.iter().any(|op| matches!(op, Op::Feed(Feed::Normalise(_))));
        if !is_normal && erasing.value.is_random() {
            return Some((
                "before normalize with the value \"random\"",
                "move it after `normalize`, or give it a number",
            ));
        }
        if is_behind_cut {
            return before.iter().any(Op::mixes).then_some(AFTER_MIXING);
        }
        if let Some(complaint) = erasing.value.as_bytes() {
            return Some(complaint);
        }
    }
    if op.is_after_cut() {
        return None;
    }
    if is_behind_cut {
        return Some((
            "after normalize, to_dtype or layout",
            "move it before them: only those run after the cut",
        ));
    }
    before.iter().any(makes_views).then_some((
        "after an op that makes several views",
        "put it inside the views of `multi_crop`, or before that op",
    ))
}

/// What may stand inside another op: no other stage, and no views.
fn check_inside(at: &Path, op: &Op) -> Result<(), RecipeError> {
    if let Op::Crops(Crops::MultiCrop(crops)) = op {
        for (nth, view) in crops.views.iter().enumerate() {
            check_nested(&at.inside(nth), &view.ops, Inside::View)?;
        }
    }
    let inside = if op.mixes() { Inside::Batch } else { Inside::Pixels };
    check_nested(at, op.inside(), inside)?;
    mixes_once(at, op)
}

/// A batch is mixed at most once.
fn mixes_once(at: &Path, op: &Op) -> Result<(), RecipeError> {
    if let Op::Control(Control::RandomApply(apply)) = op
        && apply.transforms.len() > 1
        && apply.transforms[0].mixes()
    {
        let place = "around two ops that mix samples";
        let remedy = "put them into a `random_choice` inside it";
        return Err(RecipeError::Order { at: at.clone(), op: op.name(), place, remedy });
    }
    let mut inside = op.inside().iter().enumerate();
    inside.try_for_each(|(nth, op)| mixes_once(&at.inside(nth), op))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Pixels,
    View,
    Batch,
}

fn check_nested(at: &Path, ops: &[Op], inside: Inside) -> Result<(), RecipeError> {
    for (index, op) in ops.iter().enumerate() {
        let at = at.inside(index);
        if let Some((place, remedy)) = misplaced(op, inside) {
            return Err(RecipeError::Order { at, op: op.name(), place, remedy });
        }
        check_nested(&at, op.inside(), inside)?;
    }
    Ok(())
}

fn misplaced(op: &Op, inside: Inside) -> Option<Complaint> {
    match inside {
        Inside::Batch => (!op.mixes()).then_some((
            "next to an op that mixes samples",
            "put only `mixup` and `cutmix` together",
        )),
        Inside::View if makes_views(op) => Some((
            "inside a view",
            "give `multi_crop` a view for each crop, or make only this op's views",
        )),
        Inside::View if op.mixes() => Some((
            "inside a view",
            "leave it out: samples of several views are not mixed",
        )),
        Inside::Pixels | Inside::View
            if decodes(op) || op.is_after_cut() || makes_views(op) =>
        {
            Some(("inside another op", "move it to the recipe's own list of ops"))
        }
        Inside::Pixels | Inside::View => {
            let Op::RandomErasing(erasing) = op else { return None };
            erasing.value.as_bytes()
        }
    }
}

fn decodes(op: &Op) -> bool {
    matches!(op, Op::Decode(_))
}

fn makes_views(op: &Op) -> bool {
    matches!(op, Op::Crops(_))
}

impl ErasingValue {
    fn is_random(&self) -> bool {
        matches!(self, Self::Random(_))
    }

    /// What is wrong with it as the value of pixels.
    fn as_bytes(&self) -> Option<Complaint> {
        let values = match self {
            Self::All(value) => std::slice::from_ref(value),
            Self::Each(values) if ![1, 3].contains(&values.len()) => {
                return Some(NO_COLOUR);
            }
            Self::Each(values) => values,
            Self::Random(_) => return Some(NO_BYTE),
        };
        let is_byte = |v: &f64| (0.0..=255.0).contains(v) && v.fract() == 0.0;
        (!values.iter().all(is_byte)).then_some(NO_BYTE)
    }
}
