//! What an epoch optimises, and how much of the host it may use.
//!
//! A strategy says which batch comes next; the objective says whether the host should make one at all.
//! `epoch.rs` asks the objective before it asks the strategy. Nothing here keeps books.

use std::fmt;
use std::str::FromStr;

use crate::ids::Ns;
use crate::select::View;
use crate::select::view::float;

/// What an epoch is run for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Objective {
    /// The shortest epoch.
    #[default]
    Throughput,
    /// The least work on the host that keeps the accelerator busy, where the accelerator is
    /// what everything waits for; the shortest epoch where it is not.
    Energy,
    /// The shortest epoch in which the host's workers work this part of the time at most.
    HostCpuCap(Percent),
}

/// A part in percent, from 1 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percent(u8);

impl Percent {
    /// The part; `None` outside 1 to 100.
    #[must_use]
    pub fn new(percent: u8) -> Option<Self> {
        (1..=100).contains(&percent).then_some(Self(percent))
    }

    /// As a factor.
    #[must_use]
    pub fn factor(self) -> f64 {
        f64::from(self.0) / 100.0
    }
}

/// A text that is no objective.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not an objective; use throughput, energy, or host-cpu-cap=P with P from 1 to 100 \
     percent of the workers' time"
)]
#[non_exhaustive]
pub struct UnknownObjective {
    /// As given.
    pub text: String,
}

impl FromStr for Objective {
    type Err = UnknownObjective;

    fn from_str(text: &str) -> Result<Self, UnknownObjective> {
        let cap = text.strip_prefix("host-cpu-cap=").map(|p| p.trim_end_matches('%'));
        let found = match text {
            "throughput" => Some(Self::Throughput),
            "energy" => Some(Self::Energy),
            _ => cap
                .and_then(|p| p.parse().ok())
                .and_then(Percent::new)
                .map(Self::HostCpuCap),
        };
        found.ok_or_else(|| UnknownObjective { text: text.to_owned() })
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Throughput => f.write_str("throughput"),
            Self::Energy => f.write_str("energy"),
            Self::HostCpuCap(Percent(percent)) => write!(f, "host-cpu-cap={percent}"),
        }
    }
}

/// The part by which the prongs together must exceed the accelerator's rate before the
/// accelerator counts as what everything waits for.
const SURPLUS: f64 = 1.03;
/// The part of what the devices may hold that the host may run ahead of delivery.
const AHEAD: f64 = 0.25;

/// Under [`Objective::Energy`]: whether the host must start a batch now, because otherwise the
/// accelerator would wait. `before` batches are delivered before it.
#[must_use]
pub fn is_needed_of_host(view: &View<'_>, before: u32) -> bool {
    let Some(step_ns) = view.accelerator_ns.filter(|ns| *ns > 0).map(float) else {
        return true;
    };
    // A device that is late for once has more in store than the host could make meanwhile.
    let back_rate = view.lasting_back_rate();
    if back_rate <= 0.0 || (view.front_rate() + back_rate) * step_ns < SURPLUS {
        return true;
    }
    // Until the host has it ready, with two steps to spare, and the same again where that is
    // little against what the devices can have in store.
    let least = float(view.redo_ns()) + 2.0 * step_ns;
    let store = f64::from(view.back_room()) * step_ns;
    f64::from(before) * step_ns <= least + least.min(AHEAD * store)
}

/// The host's work against its cap.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    part: f64,
    spent_ns: u64,
}

impl Allowance {
    /// Nothing spent; `None` where there is no cap.
    #[must_use]
    pub fn of(objective: Objective) -> Option<Self> {
        match objective {
            Objective::HostCpuCap(percent) => {
                Some(Self { part: percent.factor(), spent_ns: 0 })
            }
            Objective::Throughput | Objective::Energy => None,
        }
    }

    /// The part of the time that the host may work.
    #[must_use]
    pub fn part(&self) -> f64 {
        self.part
    }

    /// A host batch took so long, all workers together.
    pub fn spend(&mut self, work_ns: u64) {
        self.spent_ns = self.spent_ns.saturating_add(work_ns);
    }

    /// When the host may begin one more batch, if `held` are under way and each takes
    /// `each_ns`; at once for the first of an epoch.
    #[must_use]
    pub fn begins_at(&self, held: u32, each_ns: u64) -> Ns {
        let under_way = each_ns.saturating_mul(u64::from(held));
        Ns(scaled(self.spent_ns.saturating_add(under_way), 1.0 / self.part))
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates; the factor is positive"
)]
fn scaled(ns: u64, factor: f64) -> u64 {
    (float(ns) * factor) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_read_as_they_are_written() {
        for text in ["throughput", "energy", "host-cpu-cap=1", "host-cpu-cap=100"] {
            let objective: Objective = text.parse().expect("an objective");
            assert_eq!(objective.to_string(), text);
        }
        let percent: Objective = "host-cpu-cap=40%".parse().expect("an objective");
        assert_eq!(percent.to_string(), "host-cpu-cap=40");
        for text in ["", "speed", "host-cpu-cap=", "host-cpu-cap=0", "host-cpu-cap=101"] {
            let error = text.parse::<Objective>().expect_err("no objective");
            assert!(error.to_string().contains("host-cpu-cap=P"), "{error}");
        }
    }

    #[test]
    fn what_was_spent_is_waited_for() {
        let cap = Objective::HostCpuCap(Percent::new(25).expect("in range"));
        let mut allowance = Allowance::of(cap).expect("a cap");
        assert_eq!(allowance.begins_at(0, 100), Ns(0));
        assert_eq!(allowance.begins_at(1, 100), Ns(400));
        allowance.spend(100);
        assert_eq!(allowance.begins_at(0, 100), Ns(400));
        assert_eq!(Allowance::of(Objective::Energy).map(|a| a.spent_ns), None);
    }
}
