//! The settings of a run, as its result and its event file have them: one object, a key for each.
//!
//! Settings from which figures are computed have types. The others are only shown, and nothing reads
//! them back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Every setting, under the name of its flag.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Samples of a full batch.
    pub batch_size: Option<u32>,
    /// The devices, as given.
    pub csd: Vec<String>,
    /// The most samples per second that the accelerator consumes, if it has a rate.
    pub accelerator_images_per_s: Option<f64>,
    /// The others.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

impl Settings {
    /// All of them, to be shown.
    #[must_use]
    pub fn by_name(&self) -> BTreeMap<String, Value> {
        let Self { batch_size, csd, accelerator_images_per_s, others } = self;
        let mut all = others.clone();
        all.insert("batch_size".to_owned(), (*batch_size).into());
        all.insert("csd".to_owned(), csd.clone().into());
        let rate = (*accelerator_images_per_s).into();
        all.insert("accelerator_images_per_s".to_owned(), rate);
        all
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_shown_is_what_is_written() {
        let object = json!({
            "batch_size": 64, "csd": ["sim:newport"], "accelerator_images_per_s": null,
            "limit": null, "seed": 7,
        });
        let settings: Settings = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(settings.batch_size, Some(64));
        assert_eq!(settings.others.len(), 2);
        assert_eq!(serde_json::to_value(&settings).unwrap(), object);
        assert_eq!(json!(settings.by_name()), object);
    }

    #[test]
    fn an_older_file_may_lack_settings() {
        let settings: Settings = serde_json::from_value(json!({"seed": 7})).unwrap();
        assert_eq!(settings.batch_size, None);
        assert!(settings.csd.is_empty());
    }
}
