//! Epochs as discrete events: a heap of moments, and after each one everything that can be done
//! is done.
//!
//! `epochs` is what is under way, one `EpochState` for each epoch, which is asked who does what;
//! `front` the host's workers, a number of free hands; `back` the devices, queues that end in a
//! link; here are the accelerator, the clock, and the ranks that step together.

mod back;
mod epochs;
mod front;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bothends_core::epoch::{Pick, ProngCounts};
use bothends_core::ids::{BatchIdx, DeviceIdx, Ns};
use bothends_core::select::StrategyConfig;

use crate::world::World;
use back::Devices;
use epochs::{Epochs, Over};
use front::Workers;

/// How an epoch went.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Virtual seconds from the start, or the end of the epoch before, to the end of the last
    /// step.
    pub seconds: f64,
    /// Whether it came to its end. If not, nothing more would ever have happened, or the
    /// same for ever (a thousand events for each batch are taken for that).
    pub ended: bool,
    /// Batches delivered.
    pub batches: u32,
    /// Batches delivered right after a later one of the plan.
    pub out_of_order: u32,
    /// The host's share.
    pub front: ProngCounts,
    /// Each device's share.
    pub back: Vec<ProngCounts>,
    /// Device claims that the host redid.
    pub rescued: u32,
    /// Batches made for nothing, by all prongs.
    pub wasted: u32,
    /// Most device batches that waited for delivery at once.
    pub peak_waiting: u32,
    /// Part of the time in which the accelerator had nothing to do.
    pub idle: f64,
    /// Seconds in which workers of the host worked on it, added up over the workers.
    pub host_cpu_s: f64,
    /// Seconds in which devices worked on it, added up over the devices.
    pub device_s: f64,
}

/// Plays one epoch.
#[must_use]
pub fn simulate(world: &World) -> Outcome {
    simulate_epochs(world, 1).remove(0)
}

/// Plays `n` epochs, one behind the other, as the runtime does: the next is begun when nothing
/// is left to claim of the one before, knows the rates that showed in it, and takes the slots
/// that it leaves; under `mte` and `wrr`, when that has ended. What goes wrong counts the batches
/// of all epochs, and lasts. An epoch that hangs is the last.
#[must_use]
pub fn simulate_epochs(world: &World, n: u32) -> Vec<Outcome> {
    let mut play = Play::new(world, n);
    while play.arm() == Armed::Ready {
        play.step();
    }
    lined_up(vec![play]).into_iter().flatten().collect()
}

/// Plays one epoch of several ranks, whose accelerators begin each step together: when all
/// of them have a batch. Every rank has the same number of batches.
#[must_use]
pub fn simulate_ranks(worlds: &[World]) -> Vec<Outcome> {
    simulate_epochs_of_ranks(worlds, 1).into_iter().flatten().collect()
}

/// Plays `n` epochs of several ranks: of each epoch, every rank's outcome.
#[must_use]
pub fn simulate_epochs_of_ranks(worlds: &[World], n: u32) -> Vec<Vec<Outcome>> {
    let mut ranks: Vec<_> = worlds.iter().map(|world| Play::new(world, n)).collect();
    loop {
        let armed: Vec<_> = ranks.iter_mut().map(Play::arm).collect();
        if armed.is_empty() || armed.iter().any(|armed| *armed != Armed::Ready) {
            break;
        }
        // Between two steps the ranks know nothing of each other.
        let begin = ranks.iter().map(|rank| rank.now).max().unwrap_or_default();
        for rank in &mut ranks {
            rank.pass_to(begin);
            rank.step();
        }
    }
    lined_up(ranks)
}

/// Of each epoch, every rank's outcome: an epoch ends when it has for all of them.
fn lined_up(ranks: Vec<Play<'_>>) -> Vec<Vec<Outcome>> {
    let mut each: Vec<_> = ranks.into_iter().map(|r| r.into_over().into_iter()).collect();
    let mut outcomes = Vec::new();
    let mut from = Ns(0);
    loop {
        let epoch: Vec<Over> = each.iter_mut().filter_map(Iterator::next).collect();
        let Some(to) = epoch.iter().map(|over| over.end).max() else { return outcomes };
        outcomes.push(epoch.into_iter().map(|over| over.outcome(from, to)).collect());
        from = to;
    }
}

/// Something that happens at a known moment. What a device's earlier life left behind is
/// told by `life`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The accelerator has done a step.
    Step,
    /// A host worker has made a batch.
    Front { place: usize },
    /// A device has made the batch it was at.
    Made { device: usize, life: u32 },
    /// A device's batch has arrived.
    Arrived { device: usize, life: u32 },
    /// A device leaves.
    Leaves { device: usize },
    /// A device comes back.
    Joins { device: usize },
}

/// Whether the next step can begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Armed {
    /// There is a batch.
    Ready,
    /// There is none left.
    Ended,
    /// There will never be one.
    Stuck,
}

/// What the accelerator is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accelerator {
    Idle,
    /// It has a batch, but the step has not begun.
    Has(BatchIdx),
    Steps,
    Ended,
}

/// The moments to come.
#[derive(Debug, Default)]
struct Agenda {
    heap: BinaryHeap<Reverse<(Ns, u64, Event)>>,
    n_events: u64,
}

impl Agenda {
    fn at(&mut self, moment: Ns, event: Event) {
        self.heap.push(Reverse((moment, self.n_events, event)));
        self.n_events += 1;
    }

    fn next_at(&self) -> Option<Ns> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    fn pop(&mut self) -> Option<(Ns, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

struct Play<'a> {
    world: &'a World,
    epochs: Epochs<'a>,
    now: Ns,
    agenda: Agenda,
    most_events: u64,
    workers: Workers,
    devices: Devices<'a>,
    accelerator: Accelerator,
    /// Delivered, of all epochs.
    batches: u32,
}

impl<'a> Play<'a> {
    fn new(world: &'a World, n_epochs: u32) -> Self {
        let mut agenda = Agenda::default();
        let devices = Devices::new(world, &mut agenda);
        Self {
            world,
            epochs: Epochs::new(world, n_epochs),
            now: Ns(0),
            agenda,
            most_events: 1_000
                * (u64::from(world.n_batches) + 100)
                * u64::from(n_epochs.max(1)),
            workers: Workers::new(world),
            devices,
            accelerator: Accelerator::Idle,
            batches: 0,
        }
    }

    /// Goes on until the next step can begin.
    fn arm(&mut self) -> Armed {
        loop {
            self.act();
            match self.accelerator {
                Accelerator::Has(_) => return Armed::Ready,
                Accelerator::Ended => return Armed::Ended,
                Accelerator::Idle | Accelerator::Steps => {}
            }
            if self.agenda.n_events >= self.most_events {
                return Armed::Stuck;
            }
            if !self.advance() && !self.acts_again() {
                return Armed::Stuck;
            }
        }
    }

    /// Goes on to a moment at which the step begins, armed.
    fn pass_to(&mut self, moment: Ns) {
        while self.next_moment().is_some_and(|at| at <= moment) && self.advance() {
            self.act();
        }
        self.now = moment;
    }

    /// Begins the step.
    fn step(&mut self) {
        let Accelerator::Has(batch) = self.accelerator else { return };
        let step_ns = self.world.accelerator.step_ns;
        self.epochs.delivered(batch, step_ns, self.now);
        self.batches = self.batches.saturating_add(1);
        self.accelerator = Accelerator::Steps;
        let polls = matches!(self.world.strategy, StrategyConfig::Wrr(_));
        let poll_ns = if polls { self.world.accelerator.poll_ns } else { 0 };
        self.agenda.at(self.now.plus(poll_ns.saturating_add(step_ns)), Event::Step);
    }

    /// Does everything that can be done at this moment.
    fn act(&mut self) {
        while self.accelerator == Accelerator::Idle {
            match self.epochs.next_delivery(self.now) {
                Pick::Deliver(batch) => self.accelerator = Accelerator::Has(batch),
                Pick::Wait => break,
                Pick::End if self.epochs.next_epoch(self.now) => self.revoke(),
                Pick::End => {
                    self.accelerator = Accelerator::Ended;
                    return;
                }
            }
        }
        self.act_front();
        self.act_back();
    }

    /// Whether there is something to do still at this moment: what the last device leaves when it
    /// is lost, the host learns only now.
    fn acts_again(&mut self) -> bool {
        self.act();
        let waits = matches!(self.accelerator, Accelerator::Idle | Accelerator::Steps);
        !waits || self.next_moment().is_some()
    }

    /// When something happens, or somebody who waits should ask again.
    fn next_moment(&mut self) -> Option<Ns> {
        let waits =
            self.accelerator == Accelerator::Idle || !self.workers.idle.is_empty();
        let wake_at = if waits { self.epochs.wake_at(self.now) } else { None };
        [self.agenda.next_at(), wake_at].into_iter().flatten().min()
    }

    /// Goes to the next moment; false when there is none.
    fn advance(&mut self) -> bool {
        let Some(at) = self.next_moment() else { return false };
        self.now = at;
        if self.agenda.next_at() == Some(at)
            && let Some((_, event)) = self.agenda.pop()
        {
            self.happen(event);
        } else {
            // Somebody only looked at the clock; it counts, or a wake without end would hang.
            self.agenda.n_events += 1;
        }
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Step => {
                self.accelerator = Accelerator::Idle;
                self.epochs.stepped();
            }
            Event::Front { place } => self.front_ends(place),
            Event::Made { device, life } => self.device_made(device, life),
            Event::Arrived { device, life } => self.arrived(device, life),
            Event::Leaves { device } => self.leaves(device),
            Event::Joins { device } => self.joins(device),
        }
    }

    fn slope_at(&self, batch: BatchIdx) -> f64 {
        if self.world.slope == 0.0 {
            return 1.0;
        }
        let place = f64::from(batch.0) / f64::from(self.world.n_batches.max(1));
        1.0 + self.world.slope * (2.0 * place - 1.0)
    }

    /// Whether so many batches are that many percent of the epoch.
    fn is_past(&self, batches: u32, percent: u32) -> bool {
        u64::from(batches) * 100 >= u64::from(self.world.n_batches) * u64::from(percent)
    }

    /// The epochs, as far as they came.
    fn into_over(self) -> Vec<Over> {
        self.epochs.into_over(self.now)
    }
}

fn device_idx(device: usize) -> DeviceIdx {
    DeviceIdx(u16::try_from(device).unwrap_or(u16::MAX))
}

fn seconds(ns: u64) -> f64 {
    float(ns) / 1e9
}

#[allow(clippy::cast_precision_loss, reason = "exact below 2^53 ns, which is 104 days")]
pub(crate) fn float(ns: u64) -> f64 {
    ns as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates; the factors are positive"
)]
pub(crate) fn scaled(ns: u64, factor: f64) -> u64 {
    (float(ns) * factor) as u64
}
