//! One epoch as discrete events: a heap of moments, and after each one everything that can
//! be done is done.
//!
//! The host's workers are a number of free hands, a device is a queue, the accelerator a
//! moment at which it is free. Who does what is asked of `EpochState`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use bothends_core::claim::Claim;
use bothends_core::epoch::{
    DeviceConfig, EpochConfig, EpochState, FrontConfig, Pick, ProngCounts,
};
use bothends_core::ids::{BatchIdx, DeviceIdx, Ns};

use crate::noise::Noise;
use crate::world::{Device, Fault, Slowdown, World};

/// How an epoch went.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Virtual seconds from the start to the end of the last step.
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
}

/// Plays one epoch.
#[must_use]
pub fn simulate(world: &World) -> Outcome {
    let mut play = Play::new(world);
    let most_events = 1_000 * (u64::from(world.n_batches) + 100);
    while !play.act() && play.advance() && play.n_events < most_events {}
    play.outcome()
}

/// Something that ends at a known moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A host worker has made a batch.
    Front { place: usize },
    /// A device has made the batch it was at.
    Back { device: usize },
    /// The accelerator has done a step.
    Step,
}

struct Play<'a> {
    world: &'a World,
    epoch: EpochState,
    now: Ns,
    events: BinaryHeap<Reverse<(Ns, u64, Event)>>,
    n_events: u64,
    front: FrontState,
    back: Vec<BackState>,
    /// Whether the accelerator is at a step.
    stepping: bool,
    busy_ns: u64,
    batches: u32,
    last: Option<BatchIdx>,
    out_of_order: u32,
}

struct FrontState {
    noise: Noise,
    made: u32,
    /// What each worker is at: the claim and its worker's time.
    workers: Vec<Option<(Claim, u64)>>,
}

struct BackState {
    noise: Noise,
    made: u32,
    queue: VecDeque<Claim>,
    /// Time of the batch it is at; `None` when idle.
    work_ns: Option<u64>,
    factor: f64,
    stalled_until: Ns,
    dead: bool,
    /// Faults whose moment has not come.
    pending: Vec<Fault>,
}

impl BackState {
    /// Whether it stalls for ever.
    fn is_silent(&self) -> bool {
        self.stalled_until == Ns(u64::MAX)
    }
}

impl<'a> Play<'a> {
    fn new(world: &'a World) -> Self {
        let devices = (1..).zip(&world.devices);
        let back = devices.clone().map(|(i, device)| BackState {
            noise: Noise::new(world.seed, i),
            made: 0,
            queue: VecDeque::new(),
            work_ns: None,
            factor: 1.0,
            stalled_until: Ns(0),
            dead: false,
            pending: device.faults.clone(),
        });
        let workers = world.host.parallel.max(1);
        Self {
            world,
            epoch: EpochState::new(epoch_config(world)),
            now: Ns(0),
            events: BinaryHeap::new(),
            n_events: 0,
            front: FrontState {
                noise: Noise::new(world.seed, 0),
                made: 0,
                workers: (0..workers).map(|_| None).collect(),
            },
            back: back.collect(),
            stepping: false,
            busy_ns: 0,
            batches: 0,
            last: None,
            out_of_order: 0,
        }
    }

    fn at(&mut self, moment: Ns, event: Event) {
        self.events.push(Reverse((moment, self.n_events, event)));
        self.n_events += 1;
    }

    /// Goes to the next moment; false when there is none.
    fn advance(&mut self) -> bool {
        let event_at = self.events.peek().map(|Reverse((at, ..))| *at);
        match (event_at, self.epoch.wake_at(self.now)) {
            (Some(at), Some(wake)) if wake < at => self.now = wake,
            (None, Some(wake)) => self.now = wake,
            (None, None) => return false,
            (Some(_), _) => {
                if let Some(Reverse((at, _, event))) = self.events.pop() {
                    self.now = at;
                    self.happen(event);
                }
            }
        }
        true
    }

    fn outcome(self) -> Outcome {
        let counts = self.epoch.counts();
        let wasted =
            counts.back.iter().map(|c| c.wasted).sum::<u32>() + counts.front.wasted;
        let seconds = float(self.now.0) / 1e9;
        Outcome {
            seconds,
            ended: self.batches == self.world.n_batches,
            batches: self.batches,
            out_of_order: self.out_of_order,
            front: counts.front,
            back: counts.back,
            rescued: counts.rescued,
            wasted,
            peak_waiting: counts.peak_waiting,
            idle: 1.0 - float(self.busy_ns) / float(self.now.0.max(1)),
        }
    }
}

fn epoch_config(world: &World) -> EpochConfig {
    let device = |device: &Device| DeviceConfig {
        slots: device.slots,
        buffer: device.buffer,
        prior_ns: device.known.then_some(device.batch_ns),
    };
    EpochConfig {
        n_batches: world.n_batches,
        strategy: world.strategy,
        front: FrontConfig {
            parallel: world.host.parallel,
            quota: world.host.quota,
            prior_ns: world.host.known.then_some(world.host.batch_ns),
        },
        devices: world.devices.iter().map(device).collect(),
        accelerator_ns: world.accelerator.known.then_some(world.accelerator.step_ns),
        done: Vec::new(),
        recovery: world.recovery,
    }
}

// ---- what is done -------------------------------------------------------------------------

impl Play<'_> {
    /// Does everything that can be done at this moment; true at the end of the epoch.
    fn act(&mut self) -> bool {
        // The accelerator takes one batch at a time.
        if !self.stepping {
            match self.epoch.next_delivery(self.now) {
                Pick::Deliver(batch) => self.step(batch),
                Pick::Wait => {}
                Pick::End => return true,
            }
        }
        self.act_front();
        for device in 0..self.back.len() {
            self.act_back(device);
        }
        false
    }

    fn step(&mut self, batch: BatchIdx) {
        self.epoch.delivered(batch, self.now);
        self.out_of_order += u32::from(self.last > Some(batch));
        self.last = Some(batch);
        self.batches += 1;
        self.stepping = true;
        self.busy_ns += self.world.accelerator.step_ns;
        self.at(self.now.plus(self.world.accelerator.step_ns), Event::Step);
    }

    fn act_front(&mut self) {
        while let Some(place) = self.front.workers.iter().position(Option::is_none) {
            let Some(claim) = self.epoch.next_front(self.now) else { return };
            let host = self.world.host;
            let slowdown = match host.slowdown {
                Some(Slowdown::After { percent, factor })
                    if self.is_past(self.front.made, percent) =>
                {
                    factor
                }
                Some(Slowdown::First { batches, factor })
                    if self.front.made < batches =>
                {
                    factor
                }
                Some(Slowdown::After { .. } | Slowdown::First { .. }) | None => 1.0,
            };
            let factor = slowdown
                * self.front.noise.factor(host.cv)
                * self.slope_at(claim.batch());
            let work_ns = scaled(host.batch_ns * u64::from(host.parallel.max(1)), factor);
            self.front.made += 1;
            self.front.workers[place] = Some((claim, work_ns));
            self.at(self.now.plus(work_ns), Event::Front { place });
        }
    }

    fn act_back(&mut self, device: usize) {
        while let Some(claim) = self.epoch.next_back(device_idx(device), self.now) {
            self.back[device].queue.push_back(claim);
        }
        self.strike(device);
        self.start_back(device);
    }

    /// An idle device starts on the next batch of its queue.
    fn start_back(&mut self, device: usize) {
        let config = &self.world.devices[device];
        let Some(batch) = self.back[device].queue.front().map(Claim::batch) else {
            return;
        };
        let slope = self.slope_at(batch);
        let back = &mut self.back[device];
        if back.dead || back.is_silent() || back.work_ns.is_some() {
            return;
        }
        let mut factor = back.factor * slope * back.noise.factor(config.cv);
        for fault in &config.faults {
            match fault {
                Fault::SlowStart { batches } if back.made < *batches => factor *= 2.0,
                Fault::Late { percent } if back.noise.happens(*percent) => factor *= 5.0,
                Fault::SlowStart { .. }
                | Fault::Late { .. }
                | Fault::Corrupt { .. }
                | Fault::Die { .. }
                | Fault::Stall { .. }
                | Fault::Throttle { .. } => {}
            }
        }
        let work_ns = scaled(config.batch_ns, factor);
        back.made += 1;
        back.work_ns = Some(work_ns);
        let end = self.now.max(back.stalled_until).plus(work_ns);
        self.at(end, Event::Back { device });
    }

    fn slope_at(&self, batch: BatchIdx) -> f64 {
        let place = f64::from(batch.0) / f64::from(self.world.n_batches.max(1));
        1.0 + self.world.slope * (2.0 * place - 1.0)
    }

    /// Whether so many batches are that many percent of the epoch.
    fn is_past(&self, batches: u32, percent: u32) -> bool {
        u64::from(batches) * 100 >= u64::from(self.world.n_batches) * u64::from(percent)
    }
}

// ---- what happens -------------------------------------------------------------------------

impl Play<'_> {
    fn happen(&mut self, event: Event) {
        match event {
            Event::Step => self.stepping = false,
            Event::Front { place } => {
                if let Some((claim, work_ns)) = self.front.workers[place].take() {
                    let share_ns = work_ns / u64::from(self.world.host.parallel.max(1));
                    self.epoch.finish(claim, share_ns, self.now);
                }
            }
            Event::Back { device } => self.back_ends(device),
        }
    }

    fn back_ends(&mut self, device: usize) {
        let back = &mut self.back[device];
        if back.is_silent() {
            return;
        }
        if self.now < back.stalled_until {
            // It stopped in the middle of this batch, which is done when it goes on.
            let until = back.stalled_until;
            self.at(until, Event::Back { device });
            return;
        }
        let Some(work_ns) = back.work_ns.take() else { return };
        let Some(claim) = back.queue.pop_front() else { return };
        let is_corrupt = self.world.devices[device].faults.iter().any(|fault| {
            matches!(fault, Fault::Corrupt { percent } if back.noise.happens(*percent))
        });
        if is_corrupt {
            self.epoch.give_back(claim, self.now);
        } else {
            self.epoch.finish(claim, work_ns, self.now);
        }
    }

    /// Lets the faults happen whose moment has come.
    fn strike(&mut self, device: usize) {
        let pending = std::mem::take(&mut self.back[device].pending);
        for fault in pending {
            match fault {
                Fault::Die { percent } if self.is_past(self.batches, percent) => {
                    self.die(device);
                }
                Fault::Stall { percent, ns } if self.is_past(self.batches, percent) => {
                    self.back[device].stalled_until = self.now.plus(ns);
                }
                Fault::Throttle { percent, factor }
                    if self.is_past(self.batches, percent) =>
                {
                    self.back[device].factor *= factor;
                }
                Fault::Die { .. } | Fault::Stall { .. } | Fault::Throttle { .. } => {
                    self.back[device].pending.push(fault);
                }
                Fault::SlowStart { .. } | Fault::Late { .. } | Fault::Corrupt { .. } => {}
            }
        }
    }

    fn die(&mut self, device: usize) {
        self.back[device].dead = true;
        self.back[device].work_ns = None;
        self.epoch.device_lost(device_idx(device), self.now);
        for claim in std::mem::take(&mut self.back[device].queue) {
            self.epoch.give_back(claim, self.now);
        }
    }
}

fn device_idx(device: usize) -> DeviceIdx {
    DeviceIdx(u16::try_from(device).unwrap_or(u16::MAX))
}

#[allow(clippy::cast_precision_loss, reason = "exact below 2^53 ns, which is 104 days")]
fn float(ns: u64) -> f64 {
    ns as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates; the factors are positive"
)]
fn scaled(ns: u64, factor: f64) -> u64 {
    (float(ns) * factor) as u64
}
