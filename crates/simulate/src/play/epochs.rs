//! The epochs in progress: the accelerator's, and the next one, which begins when nothing is left to
//! claim in the first. It decides who gets a batch of which epoch by the rules of the runtime's
//! collector; `front.rs` and `back.rs` do the work.

use std::collections::VecDeque;

use bothends_core::claim::Claim;
use bothends_core::epoch::{
    DeviceConfig, EpochConfig, EpochState, Finish, FrontConfig, Pick, Standing,
};
use bothends_core::ids::{BatchIdx, DeviceIdx, Ns, Prong};
use bothends_core::link::DeviceUse;

use super::{Outcome, device_idx, float, scaled, seconds};
use crate::world::{Device, World};

/// Slots of the runtime's ring that are not in the quota of a prong: the consumer's, and those in
/// transit to it.
const OUTSIDE: u64 = 5;

/// Slots reserved for batches of an earlier epoch, besides one for each of its claims.
const ON_THE_WAY: u64 = 2;

/// Epochs in progress at once: the accelerator's and the next.
const AT_ONCE: u32 = 2;

/// A batch to make, of one of the epochs.
#[derive(Debug)]
pub(super) struct Task {
    epoch: u32,
    claim: Claim,
}

impl Task {
    pub(super) fn batch(&self) -> BatchIdx {
        self.claim.batch()
    }
}

#[derive(Debug)]
pub(super) struct Epochs<'a> {
    world: &'a World,
    /// How many epochs are played.
    n: u32,
    n_begun: u32,
    /// In order; the first is the accelerator's.
    underway: VecDeque<Underway>,
    over: Vec<Over>,
    /// Nanoseconds per batch as known so far: the host's, then each device's.
    known: Vec<Option<u64>>,
    /// Devices that are away.
    away: Vec<bool>,
    n_slots: u64,
    /// Slots with a batch that is being made, is waiting, or is being consumed.
    in_use: u64,
}

#[derive(Debug)]
struct Underway {
    number: u32,
    state: EpochState,
    /// The start of its clock.
    began: Ns,
    n_claims: u64,
    /// How many batches each prong has made of it, and in how many nanoseconds; the host first.
    made: Vec<(u64, u64)>,
    batches: u32,
    last: Option<BatchIdx>,
    out_of_order: u32,
    busy_ns: u64,
    host_ns: u64,
    device_ns: u64,
}

/// An epoch that has ended, or as far as it got.
#[derive(Debug)]
pub(super) struct Over {
    /// When its last step ended.
    pub(super) end: Ns,
    busy_ns: u64,
    outcome: Outcome,
}

impl Underway {
    fn since(&self, now: Ns) -> Ns {
        Ns(now.since(self.began))
    }

    fn over(self, world: &World, end: Ns) -> Over {
        let counts = self.state.counts();
        let by_back = counts.back.iter().map(|c| c.wasted).sum::<u32>();
        // Every batch was delivered exactly once.
        let distinct: u32 = counts.delivered.iter().map(|(from, to)| to - from).sum();
        let outcome = Outcome {
            seconds: 0.0,
            ended: self.batches == world.n_batches && distinct == world.n_batches,
            batches: self.batches,
            out_of_order: self.out_of_order,
            front: counts.front,
            wasted: by_back + counts.front.wasted,
            back: counts.back,
            rescued: counts.rescued,
            peak_waiting: counts.peak_waiting,
            idle: 0.0,
            host_cpu_s: seconds(self.host_ns),
            device_s: seconds(self.device_ns),
        };
        Over { end, busy_ns: self.busy_ns, outcome }
    }
}

impl Over {
    /// Its outcome, from the end of the previous epoch to its own.
    pub(super) fn outcome(self, from: Ns, to: Ns) -> Outcome {
        let lasted_ns = to.since(from);
        Outcome {
            seconds: seconds(lasted_ns),
            idle: 1.0 - float(self.busy_ns) / float(lasted_ns.max(1)),
            ..self.outcome
        }
    }
}

// ---- epochs -------------------------------------------------------------------------------

impl<'a> Epochs<'a> {
    pub(super) fn new(world: &'a World, n: u32) -> Self {
        let host = world.host.prior.map(|part| scaled(world.host.batch_ns, part));
        let devices = world.devices.iter();
        let prior =
            |device: &Device| device.prior.map(|part| scaled(device.batch_ns, part));
        let buffers: u64 = devices.clone().map(|device| u64::from(device.buffer)).sum();
        let mut epochs = Self {
            world,
            n: n.max(1),
            n_begun: 0,
            underway: VecDeque::new(),
            over: Vec::new(),
            known: [host].into_iter().chain(devices.map(prior)).collect(),
            away: vec![false; world.devices.len()],
            n_slots: OUTSIDE + u64::from(world.host.quota) + buffers,
            in_use: 0,
        };
        epochs.begin(Ns(0));
        epochs
    }

    /// Begins the next epoch; false if there is none or it must wait.
    fn begin(&mut self, now: Ns) -> bool {
        let ahead = if self.world.strategy.is_published() { 1 } else { AT_ONCE };
        if self.n_begun == self.n || self.underway.len() >= ahead as usize {
            return false;
        }
        if let Some(before) = self.underway.back() {
            learn(&mut self.known, &before.made);
        }
        let mut config = epoch_config(self.world, &self.known);
        if let Some(before) = self.underway.back() {
            for (device, config) in (0..).map(DeviceIdx).zip(&mut config.devices) {
                config.standing = before.state.standing(device);
            }
        }
        let mut state = EpochState::new(config);
        for (device, _) in (0..).zip(&self.away).filter(|(_, away)| **away) {
            state.device_lost(DeviceIdx(device), Ns(0));
        }
        self.underway.push_back(Underway {
            number: self.n_begun,
            state,
            began: now,
            n_claims: 0,
            made: vec![(0, 0); self.known.len()],
            batches: 0,
            last: None,
            out_of_order: 0,
            busy_ns: 0,
            host_ns: 0,
            device_ns: 0,
        });
        self.n_begun += 1;
        true
    }

    /// Ends the accelerator's epoch after its last step; false if there is no other.
    pub(super) fn next_epoch(&mut self, now: Ns) -> bool {
        if let Some(ended) = self.underway.pop_front() {
            learn(&mut self.known, &ended.made);
            self.over.push(ended.over(self.world, now));
        }
        !self.underway.is_empty() || self.begin(now)
    }

    /// All epochs that have ended and, if that is not all, the accelerator's as far as it got.
    pub(super) fn into_over(mut self, now: Ns) -> Vec<Over> {
        if let Some(stuck) = self.underway.pop_front() {
            self.over.push(stuck.over(self.world, now));
        }
        self.over
    }

    /// Whether the task's batch is still needed.
    pub(super) fn is_wanted(&self, task: &Task) -> bool {
        self.underway.iter().any(|epoch| epoch.number == task.epoch)
    }

    fn of(&mut self, number: u32) -> Option<&mut Underway> {
        self.underway.iter_mut().find(|epoch| epoch.number == number)
    }
}

/// The observed rates become the priors of the next epoch.
fn learn(known: &mut [Option<u64>], made: &[(u64, u64)]) {
    for (known, (n, total_ns)) in known.iter_mut().zip(made) {
        *known = total_ns.checked_div(*n).or(*known);
    }
}

fn epoch_config(world: &World, known: &[Option<u64>]) -> EpochConfig {
    let prior = |line: usize| known.get(line).copied().flatten();
    let device = |(line, device): (usize, &Device)| DeviceConfig {
        slots: device.slots,
        buffer: device.buffer,
        prior_ns: prior(line),
        shard: device.shard,
        standing: Standing::New,
    };
    EpochConfig {
        n_batches: world.n_batches,
        strategy: world.strategy,
        objective: world.objective,
        back_quota: None,
        shards: world.shards,
        front: FrontConfig {
            parallel: world.host.parallel,
            quota: world.host.quota,
            prior_ns: prior(0),
        },
        devices: (1..).zip(&world.devices).map(device).collect(),
        accelerator_ns: world.accelerator.known.then_some(world.accelerator.step_ns),
        done: Vec::new(),
        recovery: world.recovery,
    }
}

// ---- questions ----------------------------------------------------------------------------

impl Epochs<'_> {
    pub(super) fn next_delivery(&mut self, now: Ns) -> Pick {
        let Some(epoch) = self.underway.front_mut() else { return Pick::End };
        let own_now = epoch.since(now);
        epoch.state.next_delivery(own_now)
    }

    /// What a prong makes next: a batch of the first epoch that has one for it. A later epoch must leave
    /// the slots that the earlier one may still need.
    pub(super) fn next(&mut self, prong: Prong, now: Ns) -> Option<Task> {
        let n_batches = self.world.n_batches;
        let is_open = |epoch: &Underway| epoch.batches < n_batches;
        let mut at = self.underway.iter().position(is_open).unwrap_or(0);
        let n_held =
            self.underway.iter().map(|epoch| epoch.state.n_held(prong)).sum::<u32>();
        let (mut reserved, mut n_before) = (0, 0);
        loop {
            if at == self.underway.len() && !self.begin(now) {
                return None;
            }
            let n_free = self.n_slots.saturating_sub(self.in_use);
            if reserved > 0 && n_free <= reserved {
                return None;
            }
            let epoch = self.underway.get_mut(at)?;
            let own_now = epoch.since(now);
            let n_elsewhere = n_held.saturating_sub(epoch.state.n_held(prong));
            epoch.state.comes_after(prong, n_before, n_elsewhere);
            let claim = match prong {
                Prong::Front => epoch.state.next_front(own_now),
                Prong::Back(device) => epoch.state.next_back(device, own_now),
            };
            if let Some(claim) = claim {
                epoch.n_claims += 1;
                self.in_use += 1;
                return Some(Task { epoch: epoch.number, claim });
            }
            if !epoch.state.may_go_on(prong, own_now) {
                return None;
            }
            n_before += epoch.state.n_unclaimed();
            reserved +=
                epoch.n_claims + u64::from(epoch.state.n_unclaimed()) + ON_THE_WAY;
            at += 1;
        }
    }

    /// When to ask again even if nothing happens.
    pub(super) fn wake_at(&mut self, now: Ns) -> Option<Ns> {
        let each = self.underway.iter_mut().filter_map(|epoch| {
            let own_now = epoch.since(now);
            epoch.state.wake_at(own_now).map(|at| epoch.began.plus(at.0))
        });
        each.min()
    }
}

// ---- events -------------------------------------------------------------------------------

impl Epochs<'_> {
    /// The accelerator begins a step of this length.
    pub(super) fn delivered(&mut self, batch: BatchIdx, step_ns: u64, now: Ns) {
        let Some(epoch) = self.underway.front_mut() else { return };
        let own_now = epoch.since(now);
        epoch.state.delivered(batch, own_now);
        epoch.out_of_order += u32::from(epoch.last > Some(batch));
        epoch.last = Some(batch);
        epoch.batches += 1;
        epoch.busy_ns = epoch.busy_ns.saturating_add(step_ns);
    }

    /// The accelerator has finished a batch.
    pub(super) fn stepped(&mut self) {
        self.in_use = self.in_use.saturating_sub(1);
    }

    /// A host worker has worked this long, for a batch or in vain.
    pub(super) fn host_worked(&mut self, task: &Task, work_ns: u64) {
        if let Some(epoch) = self.charged(task.epoch) {
            epoch.host_ns = epoch.host_ns.saturating_add(work_ns);
        }
    }

    pub(super) fn device_worked(&mut self, task: &Task, work_ns: u64) {
        if let Some(epoch) = self.charged(task.epoch) {
            epoch.device_ns = epoch.device_ns.saturating_add(work_ns);
        }
    }

    /// Work for an epoch that has ended is charged to the current one.
    fn charged(&mut self, number: u32) -> Option<&mut Underway> {
        let at = self.underway.iter().position(|epoch| epoch.number == number);
        self.underway.get_mut(at.unwrap_or(0))
    }

    /// A batch has been made; batches of an epoch that has ended are not needed.
    pub(super) fn finish(&mut self, task: Task, work_ns: u64, now: Ns) {
        let line = match task.claim.prong() {
            Prong::Front => 0,
            Prong::Back(device) => 1 + usize::from(device.0),
        };
        for epoch in self.underway.iter_mut().filter(|epoch| epoch.number > task.epoch) {
            let own_now = epoch.since(now);
            epoch.state.learn(task.claim.prong(), work_ns, own_now);
        }
        let finished = self.of(task.epoch).map(|epoch| {
            epoch.n_claims -= 1;
            if let Some((n, total_ns)) = epoch.made.get_mut(line) {
                *n += 1;
                *total_ns = total_ns.saturating_add(work_ns);
            }
            let own_now = epoch.since(now);
            epoch.state.finish(task.claim, work_ns, own_now)
        });
        if finished != Some(Finish::Committed) {
            self.stepped();
        }
    }

    /// A batch could not be made.
    pub(super) fn give_back(&mut self, task: Task, now: Ns) {
        self.stepped();
        if let Some(epoch) = self.of(task.epoch) {
            epoch.n_claims -= 1;
            let own_now = epoch.since(now);
            epoch.state.give_back(task.claim, own_now);
        }
    }

    /// All devices take part, or rest.
    pub(super) fn use_devices(&mut self, to: DeviceUse, now: Ns) {
        for epoch in &mut self.underway {
            let own_now = epoch.since(now);
            for device in 0..self.world.devices.len() {
                epoch.state.use_device(device_idx(device), to, own_now);
            }
        }
    }

    pub(super) fn device_lost(&mut self, device: DeviceIdx, now: Ns) {
        self.away[usize::from(device.0)] = true;
        for epoch in &mut self.underway {
            let own_now = epoch.since(now);
            epoch.state.device_lost(device, own_now);
        }
    }

    pub(super) fn device_joined(&mut self, device: DeviceIdx, now: Ns) {
        self.away[usize::from(device.0)] = false;
        for epoch in &mut self.underway {
            let own_now = epoch.since(now);
            epoch.state.device_joined(device, own_now);
        }
    }
}
