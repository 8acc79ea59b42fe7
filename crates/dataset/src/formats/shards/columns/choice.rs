//! Which column is the image and which the class.
//!
//! Hugging Face's libraries describe the columns in a JSON document, which they put into the metadata of
//! the files (`datasets/features`, datasets 5.0). Without it, names and types decide.

use serde_json::Value;

/// Names of the column that is the image, the best first.
pub(crate) const IMAGES: [&str; 7] =
    ["image", "img", "jpg", "jpeg", "png", "image_bytes", "bytes"];

/// Names of the column that is the class, the best first.
pub(crate) const LABELS: [&str; 7] =
    ["label", "labels", "class", "cls", "target", "fine_label", "y"];

/// Longest description of columns that is read: the names of some hundred thousand classes.
pub(crate) const MAX_DESCRIPTION_BYTES: u64 = 1 << 25;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// `bytes` and `path`: how Hugging Face's libraries store an image.
    ImageStruct,
    Bytes,
    Int,
    Other,
}

/// A column as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) holds: Holds,
}

/// Which column is which, by their order, and what the classes are called.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) image: usize,
    pub(crate) label: Option<usize>,
    pub(crate) classes: Vec<String>,
}

/// The features that Hugging Face's libraries state; empty where other programs wrote the file.
#[derive(Debug, Default)]
pub(crate) struct Features(Value);

impl Features {
    /// The value of the metadata's key `huggingface`.
    ///
    /// # Errors
    /// What the text is not.
    pub(crate) fn of_metadata(text: &[u8]) -> Result<Self, String> {
        let mut value: Value = serde_json::from_slice(text).map_err(|error| {
            format!("the metadata `huggingface` is not JSON: {error}")
        })?;
        Ok(Self(value.pointer_mut("/info/features").map(Value::take).unwrap_or_default()))
    }

    fn is(&self, column: &Column, kind: &str) -> bool {
        self.0[&column.name]["_type"] == *kind
    }

    fn classes(&self, column: &Column) -> Vec<String> {
        let names = self.0[&column.name]["names"].as_array();
        let names = names.into_iter().flatten();
        names.map(|name| name.as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Choice {
    /// The columns to read of these.
    ///
    /// # Errors
    /// What is missing or stands more than once, and the columns that there are.
    pub(crate) fn of(columns: &[Column], features: &Features) -> Result<Self, String> {
        let image = image(columns, features)?;
        let label = label(columns, features)?;
        let classes = label.map(|nth| features.classes(&columns[nth]));
        Ok(Self { image, label, classes: classes.unwrap_or_default() })
    }
}

fn image(columns: &[Column], features: &Features) -> Result<usize, String> {
    let is_stated = |it: &Column| {
        features.is(it, "Image") && matches!(it.holds, Holds::ImageStruct | Holds::Bytes)
    };
    let ranks: [&dyn Fn(&Column) -> bool; 3] =
        [&is_stated, &|it| it.holds == Holds::ImageStruct, &|it| {
            it.holds == Holds::Bytes
        }];
    for is_image in ranks {
        let candidates: Vec<_> =
            (0..columns.len()).filter(|nth| is_image(&columns[*nth])).collect();
        match candidates[..] {
            [] => {}
            [only] => return Ok(only),
            _ => {
                return named(columns, &candidates, &IMAGES).ok_or_else(|| {
                    format!(
                        "several columns may be the image, and none is called {}: {}",
                        IMAGES.join(", "),
                        listed(candidates.iter().map(|nth| &columns[*nth]))
                    )
                });
            }
        }
    }
    Err(format!(
        "no column holds images as bytes; the columns are: {}",
        listed(columns.iter())
    ))
}

fn label(columns: &[Column], features: &Features) -> Result<Option<usize>, String> {
    let ints = (0..columns.len()).filter(|nth| columns[*nth].holds == Holds::Int);
    let ints: Vec<_> = ints.collect();
    let stated = ints.iter().copied();
    let stated: Vec<_> =
        stated.filter(|nth| features.is(&columns[*nth], "ClassLabel")).collect();
    match (named(columns, &stated, &LABELS), &stated[..]) {
        (Some(best), _) => Ok(Some(best)),
        (None, []) => Ok(named(columns, &ints, &LABELS)),
        (None, [only]) => Ok(Some(*only)),
        (None, _) => Err(format!(
            "several columns may be the class, and none is called {}: {}; rename one",
            LABELS.join(", "),
            listed(stated.iter().map(|nth| &columns[*nth]))
        )),
    }
}

/// The one of these columns with the best name.
fn named(columns: &[Column], among: &[usize], names: &[&str]) -> Option<usize> {
    let rank = |nth: &usize| {
        let name = columns[*nth].name.to_ascii_lowercase();
        names.iter().position(|known| *known == name)
    };
    among.iter().copied().filter(|nth| rank(nth).is_some()).min_by_key(rank)
}

/// The columns' names for a message.
fn listed<'a>(columns: impl Iterator<Item = &'a Column>) -> String {
    const MOST: usize = 20;
    let names: Vec<_> =
        columns.take(MOST).map(|it| it.name.escape_debug().to_string()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(all: &[(&str, Holds)]) -> Vec<Column> {
        all.iter().map(|&(name, holds)| Column { name: name.into(), holds }).collect()
    }

    fn chosen(all: &[(&str, Holds)], features: &str) -> Result<Choice, String> {
        let text = format!(r#"{{"info": {{"features": {features}}}}}"#);
        Choice::of(&columns(all), &Features::of_metadata(text.as_bytes())?)
    }

    #[test]
    fn of_several_classes_none_is_taken_by_chance() {
        let all = [
            ("image", Holds::ImageStruct),
            ("species", Holds::Int),
            ("breed", Holds::Int),
        ];
        let stated = r#"{"species": {"_type": "ClassLabel", "names": ["cat"]},
            "breed": {"_type": "ClassLabel", "names": ["poodle"]}}"#;
        let error = chosen(&all, stated).unwrap_err();
        assert!(error.starts_with("several columns may be the class"), "{error}");
        assert!(error.contains("species, breed"), "{error}");
    }

    #[test]
    fn what_the_features_state_comes_before_names_and_types() {
        let all = [
            ("image", Holds::Bytes),
            ("photo", Holds::ImageStruct),
            ("label", Holds::Int),
            ("species", Holds::Int),
        ];
        let stated = r#"{"photo": {"_type": "Image"},
            "species": {"_type": "ClassLabel", "names": ["cat", "dog"]}}"#;
        let choice = chosen(&all, stated).unwrap();
        assert_eq!((choice.image, choice.label), (1, Some(3)));
        assert_eq!(choice.classes, ["cat", "dog"]);
        let choice = chosen(&all, "{}").unwrap();
        assert_eq!((choice.image, choice.label), (1, Some(2)));
        assert!(choice.classes.is_empty());
    }

    #[test]
    fn of_several_candidates_the_best_name_is_taken() {
        let cifar = [
            ("coarse_label", Holds::Int),
            ("fine_label", Holds::Int),
            ("thumbnail", Holds::Bytes),
            ("IMG", Holds::Bytes),
        ];
        let classes = r#"{"coarse_label": {"_type": "ClassLabel", "names": ["a"]},
            "fine_label": {"_type": "ClassLabel", "names": ["b"]}}"#;
        let choice = chosen(&cifar, classes).unwrap();
        assert_eq!((choice.image, choice.label), (3, Some(1)));
        assert_eq!(choice.classes, ["b"]);
        let error = chosen(&[("a", Holds::Bytes), ("b", Holds::Bytes)], "{}");
        assert!(error.unwrap_err().ends_with("bytes: a, b"));
        let error = chosen(&[("text", Holds::Other)], "{}").unwrap_err();
        assert!(error.ends_with("the columns are: text"), "{error}");
        assert_eq!(chosen(&[("x", Holds::Bytes)], "[]").unwrap().label, None);
    }
}
