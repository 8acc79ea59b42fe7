//! What a run is told of several data sets that it mixes.
//!
//! Decides nothing: `core::plan::mix` does. `options.rs` reads the same from JSON.

use std::fmt;
use std::path::{Path, PathBuf};

use bothends_core::nearest::did_you_mean;
use bothends_core::plan::mix::MixStop;
use bothends_dataset::JoinLabels;
use bothends_storage::without_secrets;
use serde_json::{Map, Value, json};

/// Data sets that are mixed by weight.
#[derive(Debug, Clone, PartialEq)]
pub struct MixedData {
    /// The data sets, in the order of their sample ids.
    pub sources: Vec<MixedSource>,
    /// When an epoch ends.
    pub stop: MixStop,
    /// Whether a data set's records are drawn with replacement.
    pub replacement: Replacement,
    /// What becomes of the labels.
    pub labels: JoinLabels,
}

/// One of them. What is shown of it has no password.
#[derive(Clone, PartialEq)]
pub struct MixedSource {
    /// Its name: what figures call it, and the folder that devices look for its files in.
    pub name: String,
    /// Where it is, as for a run of it alone.
    pub data: PathBuf,
    /// Its part of every batch, in proportion to the others'.
    pub weight: f64,
}

/// How a data set's next record is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement {
    /// It passes through its records, and begins again in another order.
    Without,
    /// Each at random, whatever came before.
    With,
}

impl MixedData {
    /// These data sets, without replacement, until the first is exhausted.
    #[must_use]
    pub fn new(sources: Vec<MixedSource>) -> Self {
        Self {
            sources,
            stop: MixStop::First,
            replacement: Replacement::Without,
            labels: JoinLabels::Merge,
        }
    }

    /// How they are mixed, as JSON; which they are, `Display` says.
    pub(crate) fn how(&self) -> Value {
        let named = JoinLabels::NAMES.iter().find(|(_, labels)| *labels == self.labels);
        json!({
            "stop": match self.stop {
                MixStop::First => json!("first"),
                MixStop::All => json!("all"),
                MixStop::Samples(n) => json!(n),
            },
            "replacement": self.replacement == Replacement::With,
            "labels": named.map(|(name, _)| *name),
        })
    }

    /// Reads `first`, `all`, or a number of samples.
    ///
    /// # Errors
    /// One line: what is no end of an epoch.
    pub fn stop_of(text: &str) -> Result<MixStop, String> {
        match text {
            "first" => Ok(MixStop::First),
            "all" => Ok(MixStop::All),
            number => match number.parse() {
                Ok(n) if n > 0 => Ok(MixStop::Samples(n)),
                _ => Err(format!(
                    "`{text}` is not an end of an epoch of a mix; use first or all (the first data \
                     set is exhausted, or all are), or a number of samples"
                )),
            },
        }
    }

    /// Reads the name of what becomes of labels.
    ///
    /// # Errors
    /// One line: what is no such name.
    pub fn labels_of(text: &str) -> Result<JoinLabels, String> {
        let found = JoinLabels::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, labels)| *labels).ok_or_else(|| {
            format!(
                "`{text}` is not a way to treat the labels of a mix; use merge, keep or \
                 offset{}",
                did_you_mean(text, JoinLabels::NAMES.map(|(name, _)| name))
            )
        })
    }

    /// The mix that `data` of a loader's options says as an object.
    ///
    /// # Errors
    /// One line: what is missing, or is not what is expected.
    pub(crate) fn from_json(mut map: Map<String, Value>) -> Result<Self, String> {
        let sources = match map.remove("sources") {
            Some(Value::Array(sources)) => sources,
            _ => {
                return Err("`data` is an object without a list of `sources`; give \
                            {\"sources\": [{\"name\": …, \"data\": …, \"weight\": …}, …]}"
                    .to_owned());
            }
        };
        let mut mix =
            Self::new(sources.into_iter().map(source).collect::<Result<_, _>>()?);
        match map.remove("stop") {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => mix.stop = Self::stop_of(&text)?,
            Some(other) => mix.stop = Self::stop_of(&other.to_string())?,
        }
        match map.remove("replacement") {
            None | Some(Value::Null | Value::Bool(false)) => {}
            Some(Value::Bool(true)) => mix.replacement = Replacement::With,
            Some(other) => {
                return Err(format!(
                    "`replacement` of a mix is {other}; give true or false"
                ));
            }
        }
        match map.remove("labels") {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => mix.labels = Self::labels_of(&text)?,
            Some(other) => {
                return Err(format!("`labels` of a mix is {other}; give a text"));
            }
        }
        match map.keys().next() {
            None => Ok(mix),
            Some(key) => {
                let keys = ["sources", "stop", "replacement", "labels"];
                Err(format!("`{key}` is not a part of a mix{}", did_you_mean(key, keys)))
            }
        }
    }
}

fn source(value: Value) -> Result<MixedSource, String> {
    let Value::Object(mut map) = value else {
        return Err(format!("`sources` of a mix holds {value}; give objects"));
    };
    let mut text = |key: &str| match map.remove(key) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(format!("a data set of the mix has no `{key}` that is a text")),
    };
    let (name, data) = (text("name")?, PathBuf::from(text("data")?));
    let weight = match map.remove("weight") {
        None | Some(Value::Null) => 1.0,
        Some(value) => value
            .as_f64()
            .ok_or_else(|| format!("the weight of `{name}` is {value}; give a number"))?,
    };
    match map.keys().next() {
        None => Ok(MixedSource { name, data, weight }),
        Some(key) => Err(format!(
            "`{key}` is not a part of a data set of a mix{}",
            did_you_mean(key, ["name", "data", "weight"])
        )),
    }
}

fn shown(data: &Path) -> String {
    without_secrets(&data.to_string_lossy())
}

impl fmt::Debug for MixedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MixedSource")
            .field("name", &self.name)
            .field("data", &shown(&self.data))
            .field("weight", &self.weight)
            .finish()
    }
}

/// As it is given on a command line, without passwords.
impl fmt::Display for MixedData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, MixedSource { name, data, weight }) in self.sources.iter().enumerate() {
            let space = if nth > 0 { " " } else { "" };
            write!(f, "{space}{name}={},weight={weight}", shown(data))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: Value) -> Result<MixedData, String> {
        let Value::Object(map) = json else { return Err("no object".to_owned()) };
        MixedData::from_json(map)
    }

    #[test]
    fn a_mix_is_read_whole() {
        let sources = json!([
            {"name": "a", "data": "/x", "weight": 2}, {"name": "b", "data": "/y"}
        ]);
        let mix = parse(json!({"sources": sources})).unwrap();
        assert_eq!(mix.to_string(), "a=/x,weight=2 b=/y,weight=1");
        assert_eq!((mix.stop, mix.replacement), (MixStop::First, Replacement::Without));
        let all = json!({
            "sources": sources, "stop": 96, "replacement": true, "labels": "offset"
        });
        let mix = parse(all).unwrap();
        assert_eq!(
            (mix.stop, mix.replacement),
            (MixStop::Samples(96), Replacement::With)
        );
        assert_eq!(mix.labels, JoinLabels::Offset);
        let how = json!({"stop": 96, "replacement": true, "labels": "offset"});
        assert_eq!(mix.how(), how);
    }

    #[test]
    fn no_password_of_a_mix_is_shown() {
        let data = "redis://user:secret@host/x";
        let mix = parse(json!({"sources": [{"name": "a", "data": data}]})).unwrap();
        assert_eq!(mix.sources[0].data, PathBuf::from(data));
        assert_eq!(mix.to_string(), "a=redis://host/x,weight=1");
        assert!(!format!("{mix:?}").contains("secret"), "{mix:?}");
    }

    #[test]
    fn what_is_wrong_in_a_mix_is_named() {
        let one = json!([{"name": "a", "data": "/x"}]);
        for (json, part) in [
            (json!({}), "without a list of `sources`"),
            (json!({"sources": 1}), "without a list of `sources`"),
            (json!({"sources": ["/x"]}), "holds \"/x\"; give objects"),
            (json!({"sources": [{"name": "a"}]}), "no `data` that is a text"),
            (json!({"sources": [{"data": "a"}]}), "no `name` that is a text"),
            (
                json!({"sources": [{"name": "a", "data": "/x", "weight": "2"}]}),
                "the weight of `a` is \"2\"; give a number",
            ),
            (
                json!({"sources": [{"name": "a", "data": "/x", "wieght": 2}]}),
                "did you mean `weight`",
            ),
            (json!({"sources": one, "stop": 0}), "`0` is not an end of an epoch"),
            (json!({"sources": one, "stop": "last"}), "`last` is not an end of an epoch"),
            (json!({"sources": one, "labels": "merged"}), "did you mean `merge`"),
            (json!({"sources": one, "labels": 1}), "`labels` of a mix is 1"),
            (json!({"sources": one, "replacement": 1}), "`replacement` of a mix is 1"),
            (json!({"sources": one, "stpo": 1}), "`stpo` is not a part of a mix"),
        ] {
            let line = parse(json).unwrap_err();
            assert!(line.contains(part), "{line}");
        }
    }
}
