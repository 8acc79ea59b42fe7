//! Epochs as discrete events: a heap of events, and after each one everything that can be done is
//! done.
//!
//! `epochs` has the epochs in progress, each with an `EpochState` that decides who does what; `front`
//! has the host's workers; `back` has the devices, which are queues that end in a link. This file has
//! the accelerator, the clock, and ranks that step together.

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

/// The outcome of an epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Virtual seconds from the start, or the end of the previous epoch, to the end of the last step.
    pub seconds: f64,
    /// Whether it ended. If not, nothing more would have happened, or the same thing forever, which is
    /// assumed after a thousand events per batch.
    pub ended: bool,
    /// Batches delivered.
    pub batches: u32,
    /// Batches delivered directly after a batch that is later in the plan.
    pub out_of_order: u32,
    /// The host's share.
    pub front: ProngCounts,
    /// Each device's share.
    pub back: Vec<ProngCounts>,
    /// Device claims that the host redid.
    pub rescued: u32,
    /// Batches made in vain, by all prongs.
    pub wasted: u32,
    /// The most device batches that waited for delivery at once.
    pub peak_waiting: u32,
    /// The fraction of the time in which the accelerator was idle.
    pub idle: f64,
    /// Seconds in which the host's workers worked on it, summed over the workers.
    pub host_cpu_s: f64,
    /// Seconds in which devices worked on it, summed over the devices.
    pub device_s: f64,
}

/// Plays one epoch.
#[must_use]
pub fn simulate(world: &World) -> Outcome {
    simulate_epochs(world, 1).remove(0)
}

/// Plays `n` successive epochs as the runtime does. The next begins when nothing is left to claim in
/// the current one, knows its rates, and uses the slots that it leaves; under `mte` and `wrr`, it
/// begins when the current one has ended. Faults count the batches of all epochs, and persist. An
/// epoch that hangs is the last.
#[must_use]
pub fn simulate_epochs(world: &World, n: u32) -> Vec<Outcome> {
    let mut play = Play::new(world, n);
    while play.arm() == Armed::Ready {
        play.step();
    }
    lined_up(vec![play]).into_iter().flatten().collect()
}

/// Plays one epoch of several ranks whose accelerators begin each step together, when all of them
/// have a batch. Every rank has the same number of batches.
#[must_use]
pub fn simulate_ranks(worlds: &[World]) -> Vec<Outcome> {
    simulate_epochs_of_ranks(worlds, 1).into_iter().flatten().collect()
}

/// Plays `n` epochs of several ranks; returns the outcome of every rank for each epoch.
#[must_use]
pub fn simulate_epochs_of_ranks(worlds: &[World], n: u32) -> Vec<Vec<Outcome>> {
    let mut ranks: Vec<_> = worlds.iter().map(|world| Play::new(world, n)).collect();
    loop {
        let armed: Vec<_> = ranks.iter_mut().map(Play::arm).collect();
        if armed.is_empty() || armed.iter().any(|armed| *armed != Armed::Ready) {
            break;
        }
        // Between two steps, the ranks do not affect each other.
        let begin = ranks.iter().map(|rank| rank.now).max().unwrap_or_default();
        for rank in &mut ranks {
            rank.pass_to(begin);
            rank.step();
        }
    }
    lined_up(ranks)
}

/// The outcome of every rank for each epoch, which ends when it has ended for all of them.
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

/// Something that happens at a known moment. `life` distinguishes events from before a device died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The accelerator has finished a step.
    Step,
    /// A host worker has made a batch.
    Front { place: usize },
    /// A device has finished its current batch.
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
    /// There are none left.
    Ended,
    /// There will never be one.
    Stuck,
}

/// The state of the accelerator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accelerator {
    Idle,
    /// It has a batch, but the step has not begun.
    Has(BatchIdx),
    Steps,
    Ended,
}

/// Future events.
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

    /// Continues until the next step can begin.
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

    /// Continues to a moment at which the step begins.
    fn pass_to(&mut self, moment: Ns) {
        // What comes and goes all the time until then would be played to its end: `arm` says that it is stuck.
        while self.agenda.n_events < self.most_events
            && self.next_moment().is_some_and(|at| at <= moment)
            && self.advance()
        {
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

    /// Whether there is still something to do at this moment: the host only now learns of the batches
    /// of a lost device.
    fn acts_again(&mut self) -> bool {
        self.act();
        let waits = matches!(self.accelerator, Accelerator::Idle | Accelerator::Steps);
        !waits || self.next_moment().is_some()
    }

    /// When something happens, or the state should be asked again.
    fn next_moment(&mut self) -> Option<Ns> {
        let waits =
            self.accelerator == Accelerator::Idle || !self.workers.idle.is_empty();
        let wake_at = if waits { self.epochs.wake_at(self.now) } else { None };
        [self.agenda.next_at(), wake_at].into_iter().flatten().min()
    }

    /// Advances to the next event; false if there is none.
    fn advance(&mut self) -> bool {
        let Some(at) = self.next_moment() else { return false };
        self.now = at;
        if self.agenda.next_at() == Some(at)
            && let Some((_, event)) = self.agenda.pop()
        {
            self.happen(event);
        } else {
            // Nothing happened, but it counts, so that endless wake-ups are noticed.
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

    /// Whether this many batches are at least this percentage of the epoch.
    fn is_past(&self, batches: u32, percent: u32) -> bool {
        u64::from(batches) * 100 >= u64::from(self.world.n_batches) * u64::from(percent)
    }

    /// The epochs, as far as they got.
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
