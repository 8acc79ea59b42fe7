//! What limits a job, from its throughput as its parts are added one by one: the accelerator alone,
//! then with preprocessing, then with reading from storage.
//!
//! The cost of a part is the increase of the time per image when it is added (the differential method
//! of DS-Analyzer: Mohan et al., "Analyzing and Mitigating Data Stalls in DNN Training", VLDB 2021).
//! Only measured rates are used, never nominal ones.
//!
//! The part that *limits* the job is not the one with the highest cost: the parts work in parallel, so
//! the slowest sets the rate. Storage that delivers 400 images/s limits a host that makes 500, even
//! though the accelerator would wait longer for the host than for storage.

use serde::{Deserialize, Serialize};

/// The accelerator is the limit if it works for this fraction of the time.
const FED: f64 = 0.95;

/// Storage is the limit if adding it reduces throughput to less than this fraction. It is not 1,
/// because reading takes some of the workers' time, and measurements vary by a few per cent.
const BROUGHT: f64 = 0.9;

/// Throughput in images per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Of the accelerator, with every batch ready; `None` if it consumes everything at once.
    pub accelerator: Option<f64>,
    /// With preprocessing, of data in memory.
    pub prepared: f64,
    /// With reading, as the job does it.
    pub read: f64,
}

/// The part for which the others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// It computes nearly all the time.
    Accelerator,
    /// Decoding and augmenting on the host.
    Preprocessing,
    /// Reading from storage.
    Storage,
}

/// Fractions of the job's time; they add up to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The part for which the others wait.
    pub limit: Limit,
    /// The accelerator computes.
    pub computing: f64,
    /// It waits for preprocessing.
    pub preprocessing: f64,
    /// It waits for storage.
    pub storage: f64,
}

impl Throughput {
    /// Which part limits the job. If adding a part made the job faster, which is within the variation of
    /// measurements, its cost is 0.
    #[must_use]
    pub fn diagnose(&self) -> Diagnosis {
        let read_s = self.read.recip();
        let prepared_s = self.prepared.recip().min(read_s);
        let computing_s = self.accelerator.map_or(0.0, f64::recip).min(prepared_s);
        let part = |seconds: f64| seconds / read_s;
        let computing = part(computing_s);
        let (preprocessing, storage) =
            (part(prepared_s - computing_s), part(read_s - prepared_s));
        let limit = if computing >= FED {
            Limit::Accelerator
        } else if self.read < BROUGHT * self.prepared {
            Limit::Storage
        } else {
            Limit::Preprocessing
        };
        Diagnosis { limit, computing, preprocessing, storage }
    }

    /// The answer in sentences, for `workers` host workers.
    #[must_use]
    pub fn sentences(&self, workers: u32) -> Vec<String> {
        let found = self.diagnose();
        let percent = |part: f64| format!("{:.0} %", part * 100.0);
        let rate = self.read;
        let mut sentences = vec![match self.accelerator {
            Some(alone) => format!(
                "{rate:.0} images/s come through; the accelerator alone takes {alone:.0}: it \
                 computes {} of the time, waits {} for preprocessing and {} for storage.",
                percent(found.computing),
                percent(found.preprocessing),
                percent(found.storage)
            ),
            None => format!(
                "{rate:.0} images/s come through; {} of that time goes into preprocessing, {} \
                 into waiting for storage.",
                percent(found.preprocessing),
                percent(found.storage)
            ),
        }];
        sentences.push(match found.limit {
            Limit::Accelerator => "The accelerator is the limit: nothing that loads data can \
                make this job faster; objective `energy` lets host workers rest."
                .to_owned(),
            Limit::Preprocessing => format!(
                "Preprocessing is the limit: {} {:.0} images/s. More cores, a cheaper recipe, a \
                 packed store or a second prong would help.",
                match workers {
                    1 => "one host worker makes".to_owned(),
                    n => format!("{n} host workers make"),
                },
                // What came through, they made.
                self.prepared.max(self.read)
            ),
            Limit::Storage => format!(
                "Storage is the limit: it brings {:.0} images/s, and the job could have {:.0}. \
                 Faster storage, a data set that fits in memory, or a device with its own path to \
                 the data would help; more workers would not.",
                self.read, self.prepared
            ),
        });
        sentences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(accelerator: f64, prepared: f64, read: f64) -> Limit {
        Throughput { accelerator: Some(accelerator), prepared, read }.diagnose().limit
    }

    #[test]
    fn the_slowest_part_is_the_limit() {
        assert_eq!(limit(300.0, 297.0, 296.0), Limit::Accelerator);
        assert_eq!(limit(900.0, 400.0, 390.0), Limit::Preprocessing);
        assert_eq!(limit(900.0, 800.0, 200.0), Limit::Storage);
        // Most of the time goes into preprocessing, but more workers would not help.
        assert_eq!(limit(1e4, 2960.0, 2030.0), Limit::Storage);
        let host = Throughput { accelerator: None, prepared: 400.0, read: 399.0 };
        assert_eq!(host.diagnose().limit, Limit::Preprocessing);
    }

    #[test]
    fn the_sentences_name_the_figures_and_the_remedy() {
        let throughput =
            Throughput { accelerator: Some(1000.0), prepared: 500.0, read: 460.0 };
        let lines = throughput.sentences(2);
        assert_eq!(
            lines[0],
            "460 images/s come through; the accelerator alone takes 1000: it computes 46 % of \
             the time, waits 46 % for preprocessing and 8 % for storage."
        );
        assert!(
            lines[1].starts_with("Preprocessing is the limit: 2 host workers make 500")
        );
        let alone = &throughput.sentences(1)[1];
        assert!(alone.contains("one host worker makes 500 images/s."), "{alone}");
    }

    #[test]
    fn the_parts_are_the_whole() {
        let rates = [1.0, 7.5, 400.0, 401.0, 1e5];
        let all = || rates.into_iter();
        for (prepared, read) in all().flat_map(|p| all().map(move |r| (p, r))) {
            for accelerator in all().map(Some).chain([None]) {
                let found = Throughput { accelerator, prepared, read }.diagnose();
                let parts = [found.computing, found.preprocessing, found.storage];
                assert!(parts.iter().all(|part| (-1e-9..=1.0 + 1e-9).contains(part)));
                assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{found:?}");
            }
        }
    }
}
