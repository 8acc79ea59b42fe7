//! What an epoch's consumers have taken of it: counted once, as each batch is.
//!
//! A run's figures and a loader's statistics are both from here. What was made and never taken is the
//! report's (`handover/report.rs`), and which batches a state leaves out is `run/checkpoint.rs`'s.

use std::iter::repeat;
use std::sync::Arc;

use bothends_core::ids::Prong;
use bothends_figures::SourceSamples;

use crate::handover::batch::Row;
use crate::read::sources::Sources;

/// What consumers have taken, by who made it and where it is from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Taken {
    /// Made by the host.
    pub(crate) front: Tally,
    /// Made by each device, up to the last that has made something.
    back: Vec<Tally>,
    /// The data sets of a mix.
    sources: Option<Arc<Sources>>,
    /// The samples of each.
    by_source: Vec<u64>,
}

/// What one prong has made of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) n_batches: u32,
    pub(crate) n_samples: u64,
}

impl Taken {
    /// Nothing yet; of these data sets, where several are mixed.
    pub(super) fn of(sources: Option<Arc<Sources>>) -> Self {
        Self { sources, ..Self::default() }
    }

    /// Counts a batch with these rows.
    pub(super) fn add(&mut self, prong: Prong, rows: &[Row]) {
        let samples = rows.iter().filter_map(|row| row.sample);
        let tally = match prong {
            Prong::Front => &mut self.front,
            Prong::Back(device) => {
                let device = usize::from(device.0);
                let n_devices = self.back.len().max(device + 1);
                self.back.resize(n_devices, Tally::default());
                &mut self.back[device]
            }
        };
        tally.n_batches += 1;
        tally.n_samples += samples.clone().count() as u64;
        if let Some(sources) = &self.sources {
            sources.count(samples, &mut self.by_source);
        }
    }

    /// Made by each device, in the order of `csds`, and nothing by all that there could be behind them.
    pub(crate) fn back(&self) -> impl Iterator<Item = Tally> {
        self.back.iter().copied().chain(repeat(Tally::default()))
    }

    /// Batches made by devices.
    pub(crate) fn n_back(&self) -> u32 {
        self.back.iter().map(|tally| tally.n_batches).sum()
    }

    pub(crate) fn n_batches(&self) -> u32 {
        self.front.n_batches + self.n_back()
    }

    /// Samples made by the host, made by devices.
    pub(crate) fn samples(&self) -> [u64; 2] {
        [self.front.n_samples, self.back.iter().map(|tally| tally.n_samples).sum()]
    }

    pub(crate) fn n_samples(&self) -> u64 {
        self.samples().iter().sum()
    }

    /// The samples of each data set of a mix; empty where none are mixed.
    pub(crate) fn sources(&self) -> Vec<SourceSamples> {
        let sources = self.sources.as_deref();
        sources.map_or_else(Vec::new, |sources| sources.figures(&self.by_source))
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::ids::{DeviceIdx, Label, SampleId};

    use super::*;

    #[test]
    fn batches_and_samples_count_for_who_made_them() {
        let row = |sample| Row { sample, label: Label(0), mixed: None };
        let whole = [row(Some(SampleId(4))), row(Some(SampleId(5)))];
        let padded = [row(Some(SampleId(6))), row(None)];
        let mut taken = Taken::default();
        taken.add(Prong::Front, &whole);
        taken.add(Prong::Back(DeviceIdx(1)), &whole);
        taken.add(Prong::Back(DeviceIdx(1)), &padded);
        assert_eq!(taken.front, Tally { n_batches: 1, n_samples: 2 });
        let back: Vec<_> = taken.back().take(3).collect();
        let nothing = Tally::default();
        assert_eq!(back, [nothing, Tally { n_batches: 2, n_samples: 3 }, nothing]);
        assert_eq!((taken.n_batches(), taken.n_back()), (3, 2));
        assert_eq!((taken.samples(), taken.n_samples()), ([2, 3], 5));
        assert!(taken.sources().is_empty(), "nothing is mixed");
    }
}
