//! How fast emulated accelerators are: the files of `configs/accelerators`, compiled in.

use serde::Deserialize;

use crate::AccelError;

/// Each file of `configs/accelerators`.
const CONSTANTS: [(&str, &str); 3] = [
    ("resnet50-v100.json", include_str!("../configs/accelerators/resnet50-v100.json")),
    ("resnet50-a100.json", include_str!("../configs/accelerators/resnet50-a100.json")),
    ("resnet50-h100.json", include_str!("../configs/accelerators/resnet50-h100.json")),
];

/// The longest step that is not a typing error. In nanoseconds it fits 64 bits at any batch
/// size: 2^32 samples of 10^6 s saturate and do not overflow.
const MAX_STEP_S: f64 = 1e6;

/// How long an emulated accelerator takes: `step_s` for `batch_size` samples, and
/// proportionally for other batch sizes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimModel {
    name: String,
    short_name: Option<String>,
    batch_size: u32,
    step_s: f64,
    source: String,
}

impl SimModel {
    /// The accelerator whose name or short name is `name` (`resnet50-v100`, `v100`).
    ///
    /// # Errors
    /// [`AccelError::UnknownName`], which lists all names.
    pub fn named(name: &str) -> Result<Self, AccelError> {
        let models = Self::all()?;
        let known = models.iter().map(Self::names).collect::<Vec<_>>().join(", ");
        models
            .into_iter()
            .find(|m| m.name == name || m.short_name.as_deref() == Some(name))
            .ok_or_else(|| AccelError::UnknownName { name: name.to_owned(), known })
    }

    /// An accelerator that consumes `samples_per_s` samples per second.
    ///
    /// # Errors
    /// [`AccelError::Spec`] unless the rate is at least one sample in a million seconds.
    pub fn with_rate(samples_per_s: f64) -> Result<Self, AccelError> {
        let name = samples_per_s.to_string();
        let step_s = samples_per_s.recip();
        if !(step_s > 0.0 && step_s <= MAX_STEP_S) {
            return Err(AccelError::Spec { spec: format!("sim:{name}") });
        }
        let source = "the rate given on the command line".to_owned();
        Ok(Self { name, short_name: None, batch_size: 1, step_s, source })
    }

    /// All accelerators that have a name.
    ///
    /// # Errors
    /// [`AccelError::Constants`], which a test rules out.
    pub fn all() -> Result<Vec<Self>, AccelError> {
        CONSTANTS.iter().map(|(file, json)| Self::from_json(file, json)).collect()
    }

    /// Its name: `resnet50-v100`, or the rate as given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its constants come from, in a sentence.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Samples per second at full utilisation.
    #[must_use]
    pub fn samples_per_s(&self) -> f64 {
        f64::from(self.batch_size) / self.step_s
    }

    /// Nanoseconds for a batch of `n_samples`, rounded to the nearest.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "both factors are positive and the cast saturates"
    )]
    pub fn busy_ns(&self, n_samples: u32) -> u64 {
        (f64::from(n_samples) * self.step_s * 1e9 / f64::from(self.batch_size)).round()
            as u64
    }

    /// `NAME` or `RATE` of `sim:NAME`, `sim:RATE`.
    pub(crate) fn from_argument(argument: &str) -> Result<Self, AccelError> {
        match argument.parse::<f64>() {
            Ok(samples_per_s) => Self::with_rate(samples_per_s),
            Err(_) if argument.is_empty() => {
                Err(AccelError::Spec { spec: "sim:".to_owned() })
            }
            Err(_) => Self::named(argument),
        }
    }

    fn from_json(file: &str, json: &str) -> Result<Self, AccelError> {
        let refuse = |why: String| AccelError::Constants { file: file.to_owned(), why };
        let model: Self =
            serde_json::from_str(json).map_err(|e| refuse(e.to_string()))?;
        if model.batch_size == 0 {
            return Err(refuse("`batch_size` is 0; it must be at least 1".to_owned()));
        }
        if !(model.step_s > 0.0 && model.step_s <= MAX_STEP_S) {
            return Err(refuse(format!(
                "`step_s` is {}; it must be above 0 and at most {MAX_STEP_S}",
                model.step_s
            )));
        }
        Ok(model)
    }

    /// `resnet50-v100 (v100)`, for the list in an error.
    fn names(&self) -> String {
        match &self.short_name {
            Some(short) => format!("{} ({short})", self.name),
            None => self.name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_are_those_of_the_source() {
        for (name, rate, busy_ns) in [
            ("v100", 328.2, 195_000_000),
            ("resnet50-a100", 919.5, 69_600_000),
            ("h100", 1785.7, 35_840_000),
        ] {
            let model = SimModel::named(name).unwrap();
            assert!((model.samples_per_s() - rate).abs() < 0.1, "{name}");
            assert_eq!(model.busy_ns(64), busy_ns, "{name}");
            assert!(model.source().contains("may not be called an MLPerf result"));
        }
    }

    #[test]
    fn every_file_of_the_folder_is_compiled_in() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/accelerators");
        let mut on_disk: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let mut compiled_in = CONSTANTS.map(|(file, _)| file.to_owned()).to_vec();
        on_disk.sort();
        compiled_in.sort();
        assert_eq!(on_disk, compiled_in);
        assert_eq!(SimModel::all().unwrap().len(), CONSTANTS.len());
    }

    #[test]
    fn bad_constants_name_file_and_key() {
        let good = r#"{"name":"x","batch_size":1,"step_s":1.0,"source":"s"}"#;
        assert!(SimModel::from_json("x.json", good).is_ok());
        for (bad, names) in [
            ("{", "EOF"),
            (r#"{"batch_size":1,"step_s":1.0,"source":"s"}"#, "`name`"),
            (r#"{"name":"x","batch_size":0,"step_s":1.0,"source":"s"}"#, "`batch_size`"),
            (r#"{"name":"x","batch_size":1,"step_s":0.0,"source":"s"}"#, "`step_s`"),
            (
                r#"{"name":"x","batch_size":1,"step_s":1,"source":"s","colour":1}"#,
                "colour",
            ),
        ] {
            let error = SimModel::from_json("x.json", bad).unwrap_err().to_string();
            assert!(error.contains("x.json") && error.contains(names), "{error}");
        }
    }
}
