//! Who claims what, and what is delivered next: the strategies.
//!
//! A strategy is a pure decision: it sees a [`View`] and names a batch. It keeps no books (`ledger`
//! does), measures nothing (`rates` does) and carries nothing out (`epoch` does). Read `cpu.rs`,
//! `mte.rs` and `ordered.rs`, in this order. A new strategy needs a file, a variant of
//! [`StrategyConfig`], and must pass [`contract`].

pub mod contract;
pub mod cpu;
pub mod csd;
pub mod mte;
pub mod ordered;
pub mod ordered_baseline;
pub mod relaxed;
pub mod view;
pub mod wrr;

use std::fmt;
use std::str::FromStr;

use crate::ids::{BatchIdx, DeviceIdx, Ns, Prong};
use crate::nearest::did_you_mean;
pub use mte::{MteConfig, MteTime};
pub use view::View;
pub use wrr::{WrrConfig, WrrWeight};

/// Who claims what, and what is delivered next.
///
/// # Contract
///
/// 1. `front` and `back` name a free batch; `back` may also name one that the host, and nobody
///    else, is making. `front` is asked only while the host's quota has room, `back` only for a
///    device that works and has room.
/// 2. `rescue` names a batch that a device, and nobody else, is making. It is asked before
///    `front`.
/// 3. `deliver` names a ready batch.
/// 4. `overtaken` names a free batch, or one that a device, and nobody else, is making. It and
///    `awaited` are asked when the quota is full.
///    `awaited` names the one batch without which nothing more is delivered, if there is
///    one. When it is free or late the host makes it even with its quota full; so a strategy
///    that delivers in an order cannot lock itself up.
/// 5. As long as the host works, every batch is delivered, whatever the devices do.
/// 6. No call costs more than O(claims held), and none allocates.
///
/// [`contract`] holds these as callable checks.
pub trait Strategy: fmt::Debug + Send {
    /// What the host takes next: the lowest free batch, where a strategy has no other.
    fn front(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        view.lowest_free()
    }

    /// What `front` would name after `after`, or first of all, if the host claimed what it names and
    /// nothing else happened. A guess for those who fetch data ahead: nothing is claimed by it.
    fn front_after(&self, view: &View<'_>, after: Option<BatchIdx>) -> Option<BatchIdx> {
        view.lowest_free_from(follower(after))
    }

    /// What the host redoes because a device may be late with it.
    fn rescue(&mut self, view: &View<'_>) -> Option<BatchIdx>;

    /// What the host takes beyond its quota: a batch that what fills the quota waits behind, as
    /// those to whom it was left do not make it.
    fn overtaken(&self, view: &View<'_>) -> Option<BatchIdx> {
        let _ = view;
        None
    }

    /// Whether the host leaves all that is free to the devices, and may go on to the next epoch.
    fn leaves_rest(&self, view: &View<'_>) -> bool {
        let _ = view;
        false
    }

    /// What a device takes next.
    fn back(&mut self, view: &View<'_>, device: DeviceIdx) -> Option<BatchIdx>;

    /// What is delivered next: the batch that is awaited; where none is, whatever is ready, the
    /// devices' first.
    fn deliver(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        match self.awaited(view) {
            Some(batch) => Some(batch).filter(|batch| view.is_ready(*batch)),
            None => view.ledger.ready_back().or_else(|| view.ledger.ready_front()),
        }
    }

    /// The batch without which nothing more is delivered; none where no batch waits for another.
    fn awaited(&self, view: &View<'_>) -> Option<BatchIdx> {
        let _ = view;
        None
    }

    /// How many batches are delivered before a free one that `front` named, at least: what
    /// is ready or being made by the host, in a strategy that delivers whatever is ready. One
    /// that lets ready batches wait for others must say less, or the host may rest forever.
    fn before(&self, view: &View<'_>, batch: BatchIdx) -> u32 {
        let _ = batch;
        view.ledger.n_ready().saturating_add(view.front.hand.n_held())
    }

    /// When the strategy decides otherwise though nothing happens, beyond what the view's
    /// claims say by themselves.
    fn changes_at(&self, view: &View<'_>) -> Option<Ns> {
        let _ = view;
        None
    }

    /// A prong took `work_ns` for a batch. For strategies that measure by rules of their
    /// own; the view's rates are up to date without it.
    fn observe(&mut self, prong: Prong, work_ns: u64) {
        let _ = (prong, work_ns);
    }
}

/// The first batch that may come after another, or of all.
fn follower(after: Option<BatchIdx>) -> BatchIdx {
    after.map_or(BatchIdx(0), |after| BatchIdx(after.0.saturating_add(1)))
}

/// A strategy, with what it can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrategyConfig {
    /// Front only.
    Cpu,
    /// Back only; the host redoes what a device does not answer.
    Csd,
    /// Moving towards each other: a split measured once, one switch of source.
    Mte(MteConfig),
    /// Weighted round robin: alternating sources.
    Wrr(WrrConfig),
    /// Ready first; both ends meet; idle hosts redo the device's last batches.
    Relaxed,
    /// The plan's order; a device claims what it can have ready when it is needed.
    Ordered,
    /// The rules that `ordered` began with, to measure it against.
    OrderedBaseline,
}

impl StrategyConfig {
    /// Every strategy to choose from, by name, in its default form.
    #[must_use]
    pub fn all() -> [(&'static str, Self); 6] {
        [
            ("cpu", Self::Cpu),
            ("csd", Self::Csd),
            ("mte", Self::Mte(MteConfig::default())),
            ("wrr", Self::Wrr(WrrConfig::default())),
            ("relaxed", Self::Relaxed),
            ("ordered", Self::Ordered),
        ]
    }

    /// What is there for comparisons alone: the first rules of `ordered`, and the other readings of what is
    /// published of `mte` and `wrr`.
    fn for_comparison() -> [Self; 3] {
        let mte = MteConfig { time: MteTime::WithStep, ..MteConfig::default() };
        let wrr = WrrConfig { weight: WrrWeight::ByRates };
        [Self::OrderedBaseline, Self::Mte(mte), Self::Wrr(wrr)]
    }

    /// The strategy's name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Csd => "csd",
            Self::Mte(MteConfig { time: MteTime::Preprocess, .. }) => "mte",
            Self::Mte(MteConfig { time: MteTime::WithStep, .. }) => "mte-with-step",
            Self::Wrr(WrrConfig { weight: WrrWeight::Fixed(_) }) => "wrr",
            Self::Wrr(WrrConfig { weight: WrrWeight::ByRates }) => "wrr-by-rates",
            Self::Relaxed => "relaxed",
            Self::Ordered => "ordered",
            Self::OrderedBaseline => "ordered-baseline",
        }
    }

    /// The names of [`Self::all`], for messages and help: `a, b or c`.
    #[must_use]
    pub fn names() -> String {
        let [first @ .., last] = Self::all().map(|(name, _)| name);
        format!("{} or {last}", first.join(", "))
    }

    /// The strategy at the start of an epoch.
    #[must_use]
    pub fn build(self) -> Box<dyn Strategy> {
        match self {
            Self::Cpu => Box::new(cpu::Cpu),
            Self::Csd => Box::new(csd::Csd),
            Self::Mte(config) => Box::new(mte::Mte::new(config)),
            Self::Wrr(config) => Box::new(wrr::Wrr::new(config)),
            Self::Relaxed => Box::new(relaxed::Relaxed),
            Self::Ordered => Box::new(ordered::Ordered),
            Self::OrderedBaseline => Box::new(ordered_baseline::OrderedBaseline),
        }
    }

    /// Whether it is a scheme of the literature, kept as it was published for others to be
    /// compared with.
    #[must_use]
    pub fn is_published(self) -> bool {
        match self {
            Self::Mte(_) | Self::Wrr(_) => true,
            Self::Cpu
            | Self::Csd
            | Self::Relaxed
            | Self::Ordered
            | Self::OrderedBaseline => false,
        }
    }

    /// Whether a device works so far ahead that what it makes waits for its turn, and no farther.
    #[must_use]
    pub fn has_horizon(self) -> bool {
        self == Self::Ordered
    }

    /// How many batches a device that makes one in `device_ns` and holds `slots` at once, next to a
    /// host that takes `host_ns`, may hold or have waiting before more of them bring nothing;
    /// `None` for a strategy without a horizon.
    #[must_use]
    pub fn whole_buffer(self, host_ns: u64, device_ns: u64, slots: u32) -> Option<u32> {
        self.has_horizon().then(|| ordered::whole_buffer(host_ns, device_ns, slots))
    }

    /// Whether devices claim from the end of the epoch, so that host and devices walk towards
    /// each other. The others claim within a moving horizon ahead of the host, or not at all.
    #[must_use]
    pub fn walks_from_both_ends(self) -> bool {
        match self {
            Self::Csd | Self::Mte(_) | Self::Wrr(_) | Self::Relaxed => true,
            Self::Cpu | Self::Ordered | Self::OrderedBaseline => false,
        }
    }

    /// Whether the batches are delivered in the plan's order.
    #[must_use]
    pub fn keeps_order(self) -> bool {
        matches!(self, Self::Cpu | Self::Ordered | Self::OrderedBaseline)
    }
}

impl fmt::Display for StrategyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that does not belong to a strategy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` is not a strategy; use {}{}",
    StrategyConfig::names(),
    did_you_mean(name, StrategyConfig::all().map(|(name, _)| name))
)]
#[non_exhaustive]
pub struct UnknownStrategy {
    /// As given.
    pub name: String,
}

impl FromStr for StrategyConfig {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, UnknownStrategy> {
        let others = Self::for_comparison().map(|config| (config.name(), config));
        let found = Self::all().into_iter().chain(others).find(|known| known.0 == name);
        found
            .map(|(_, config)| config)
            .ok_or_else(|| UnknownStrategy { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reading_of_what_was_published_has_a_name_of_its_own() {
        let all = StrategyConfig::all().map(|(name, config)| (name.to_owned(), config));
        let others = StrategyConfig::for_comparison()
            .map(|config| (config.name().to_owned(), config));
        let mut names: Vec<_> = all.into_iter().chain(others).collect();
        for (name, config) in &names {
            assert_eq!(name.parse::<StrategyConfig>().as_ref(), Ok(config));
            assert_eq!(config.to_string(), *name);
        }
        names.dedup_by(|one, other| one.0 == other.0);
        assert_eq!(names.len(), 9);
    }
}
