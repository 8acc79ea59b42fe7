//! What is wrong with a recipe: the op, the key and the remedy.

use std::fmt;

use super::{MAX_OPS, RECIPE_VERSION};
use crate::nearest::nearest;

/// Where an op stands: its place in the list from 0, and the places inside that one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path(Vec<usize>);

impl Path {
    /// The place number `index` inside this one.
    #[must_use]
    pub fn inside(&self, index: usize) -> Self {
        let mut path = self.0.clone();
        path.push(index);
        Self(path)
    }

    /// How deep it is: 1 for an op of the recipe's own list.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, index) in self.0.iter().enumerate() {
            let dot = if nth == 0 { "" } else { "." };
            write!(f, "{dot}{index}")?;
        }
        Ok(())
    }
}

/// Why a text is not a recipe, or a recipe does not fit the data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// Not JSON, or not the outer object of a recipe.
    #[error("the recipe cannot be read; it is an object with version, name and ops")]
    Json(#[source] serde_json::Error),
    /// Another version of the format.
    #[error(
        "the recipe has version {got} and this build reads versions 1 to {RECIPE_VERSION}; \
         use the release that wrote it"
    )]
    Version {
        /// As given.
        got: u32,
    },
    /// A recipe without a name.
    #[error("`name` is empty; give the recipe a name")]
    NoName,
    /// Too long a list.
    #[error("the recipe has {n_ops} ops; at most {MAX_OPS} are possible")]
    TooManyOps {
        /// As given.
        n_ops: usize,
    },
    /// Repetitions out of range.
    #[error("`repeated_augment` is {got}; it must be from 1 to 64, or leave it out")]
    RepeatedAugment {
        /// As given.
        got: u32,
    },
    /// A list entry without `"op": "name"`.
    #[error("op {at} has no name; write {{\"op\": \"decode\"}}, or another op's name")]
    Unnamed {
        /// Its place.
        at: Path,
    },
    /// A name that no op has.
    #[error(
        "op {at} is `{}`, which this build does not have; {}",
        shortened(name, 40),
        others(name, known)
    )]
    UnknownOp {
        /// Its place.
        at: Path,
        /// As given.
        name: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// An op with a wrong, missing or unknown key.
    #[error("op {at} `{op}` cannot be read")]
    Parameters {
        /// Its place.
        at: Path,
        /// The op.
        op: &'static str,
        /// Which key, and what is possible.
        source: serde_json::Error,
    },
    /// A parameter out of range.
    #[error("op {at} `{op}`: `{key}` is {}; it must be {must}", shortened(got, 120))]
    Range {
        /// Its place.
        at: Path,
        /// The op.
        op: &'static str,
        /// The parameter.
        key: &'static str,
        /// As given.
        got: String,
        /// What is possible.
        must: &'static str,
    },
    /// An op at a place where it has no meaning.
    #[error("op {at} `{op}` is {place}; {remedy}")]
    Order {
        /// Its place.
        at: Path,
        /// The op.
        op: &'static str,
        /// What is wrong with its place.
        place: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The recipe does not fit the records it would be used on.
    #[error("recipe `{}` does not fit the data: {why}; {remedy}", shortened(recipe, 40))]
    Shape {
        /// The recipe's name.
        recipe: String,
        /// What does not fit.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// There are no records that the recipe fits.
    #[error("recipe `{}` fits no data: {why}; {remedy}", shortened(recipe, 40))]
    FitsNothing {
        /// The recipe's name.
        recipe: String,
        /// What does not fit, whatever the data.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
}

/// The op that was meant, or all there are.
fn others(name: &str, known: &[&'static str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("it has {}", known.join(", ")),
    }
}

/// At most `most` characters of `text`: a message is one line, whatever stands in a file.
fn shortened(text: &str, most: usize) -> String {
    let mut characters = text.chars();
    let mut short: String = characters.by_ref().take(most).collect();
    if characters.next().is_some() {
        short.push('…');
    }
    short
}
