//! The epochs of a run, which are made when their turn comes: there may be four billion of them.

use std::ops::Range;

use bothends_core::digest::StreamDigest;
use bothends_core::ids::EpochIdx;

use crate::runtime::host::EpochOptions;

/// What a run goes through.
#[derive(Debug)]
pub(super) struct Epochs {
    /// These differ in more than their number.
    first: Vec<EpochOptions>,
    later: Range<u32>,
    /// Of the later ones.
    each: EpochOptions,
}

impl Epochs {
    /// These and no others; they have `each` in common where there are none.
    pub(super) fn only(first: Vec<EpochOptions>, each: EpochOptions) -> Self {
        Self { first, later: 0..0, each }
    }

    /// All of these numbers.
    pub(super) fn of(later: Range<u32>, each: EpochOptions) -> Self {
        Self { first: Vec::new(), later, each }
    }

    /// One that is continued, and those behind it up to `end`.
    pub(super) fn from(first: EpochOptions, end: u32, each: EpochOptions) -> Self {
        let later = first.epoch.0.saturating_add(1)..end;
        Self { first: vec![first], later, each }
    }

    pub(super) fn len(&self) -> usize {
        self.first.len() + self.later.len()
    }

    pub(super) fn nth(&self, nth: usize) -> Option<EpochOptions> {
        if let Some(first) = self.first.get(nth) {
            return Some(first.clone());
        }
        let epoch = self.later.clone().nth(nth - self.first.len())?;
        let digest = self.each.digest.as_ref().map(|_| StreamDigest::new());
        Some(EpochOptions { epoch: EpochIdx(epoch), digest, ..self.each.clone() })
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::plan::LastPolicy;
    use bothends_core::select::StrategyConfig;

    use super::*;
    use crate::config::run::RankConfig;

    #[test]
    fn four_billion_epochs_take_no_memory() {
        let each = EpochOptions {
            epoch: EpochIdx(0),
            strategy: StrategyConfig::Cpu,
            rank: RankConfig { rank: 0, world: 1, last: LastPolicy::Wrap },
            repeat: 1,
            start: 0,
            done: Vec::new(),
            accelerator_ns: None,
            consumers: 1,
            order: None,
            digest: None,
        };
        let epochs = Epochs::of(0..u32::MAX, each.clone());
        assert_eq!(epochs.len(), u32::MAX as usize);
        let last = epochs.nth(epochs.len() - 1).unwrap();
        assert_eq!(last.epoch, EpochIdx(u32::MAX - 1));
        assert!(epochs.nth(epochs.len()).is_none());
        let first = EpochOptions { start: 3, epoch: EpochIdx(7), ..each.clone() };
        let resumed = Epochs::from(first, 9, each);
        let seen: Vec<_> = (0..3).filter_map(|nth| resumed.nth(nth)).collect();
        let seen: Vec<_> = seen.iter().map(|it| (it.epoch.0, it.start)).collect();
        assert_eq!(seen, [(7, 3), (8, 0)]);
    }
}
