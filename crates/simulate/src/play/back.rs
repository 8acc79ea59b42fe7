//! The devices and their faults: each has a queue, makes one batch at a time, and sends it to the
//! host over its link.

use std::collections::VecDeque;

use bothends_core::ids::{Ns, Prong};

use super::epochs::Task;
use super::{Agenda, Event, Play, device_idx, float, scaled};
use crate::noise::Noise;
use crate::world::{Device, Fault, World};

#[derive(Debug)]
pub(super) struct Devices<'a> {
    each: Vec<DeviceState<'a>>,
    /// The devices that may take another batch.
    hungry: Vec<usize>,
    /// The devices with a fault that has not happened yet.
    doomed: Vec<usize>,
    /// When each link is free again.
    links: Vec<Ns>,
}

#[derive(Debug)]
struct DeviceState<'a> {
    config: &'a Device,
    noise: Noise,
    begun: u32,
    waiting: VecDeque<Task>,
    at_work: Option<(Task, u64)>,
    /// Made and in transit to the host.
    sent: VecDeque<Task>,
    /// Since when it has been working on the next batch to arrive, as seen by the host.
    busy_since: Ns,
    factor: f64,
    stalled_until: Ns,
    /// Counts its deaths: events from before are void.
    life: u32,
    presence: Presence,
    is_hungry: bool,
    /// Faults that have not happened yet.
    pending: Vec<Fault>,
}

/// Whether the device is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Here,
    Away,
}

impl DeviceState<'_> {
    /// Whether it stalls forever.
    fn is_silent(&self) -> bool {
        self.stalled_until == Ns(u64::MAX)
    }

    fn n_open(&self) -> usize {
        self.waiting.len() + usize::from(self.at_work.is_some()) + self.sent.len()
    }

    fn may_take(&self) -> bool {
        self.presence == Presence::Here
            && self.n_open() < self.config.slots.max(1) as usize
    }

    /// Whether it can begin on the next batch of its queue.
    fn may_begin(&self) -> bool {
        self.presence == Presence::Here
            && !self.is_silent()
            && self.at_work.is_none()
            && self.sent.len() < self.config.outputs.max(1) as usize
    }

    /// How much longer than its mean the next batch takes: noise, drift, throttling and other faults.
    fn factor(&mut self, now: Ns) -> f64 {
        let mut factor = self.factor * self.noise.factor(self.config.cv);
        if let Some(drift) = self.config.drift {
            let turns = float(now.0) / float(drift.period_ns.max(1));
            factor *= 1.0 + drift.amplitude * (turns * std::f64::consts::TAU).cos();
        }
        for fault in &self.config.faults {
            if matches!(fault, Fault::SlowStart { batches } if self.begun < *batches) {
                factor *= 2.0;
            }
            if matches!(fault, Fault::Late { percent } if self.noise.happens(*percent)) {
                factor *= 5.0;
            }
        }
        factor.max(0.01)
    }

    /// Whether the batch that arrives now is corrupt.
    fn is_corrupt(&mut self) -> bool {
        let noise = &mut self.noise;
        self.config.faults.iter().any(
            |fault| matches!(fault, Fault::Corrupt { percent } if noise.happens(*percent)),
        )
    }
}

impl<'a> Devices<'a> {
    pub(super) fn new(world: &'a World, agenda: &mut Agenda) -> Self {
        let of_moments = |faults: &[Fault]| {
            faults.iter().copied().filter(|fault| moment(fault).is_some()).collect()
        };
        let each: Vec<_> = (1..)
            .zip(&world.devices)
            .map(|(i, config)| DeviceState {
                config,
                noise: Noise::new(world.seed, i),
                begun: 0,
                waiting: VecDeque::new(),
                at_work: None,
                sent: VecDeque::new(),
                busy_since: Ns(0),
                factor: 1.0,
                stalled_until: Ns(0),
                life: 0,
                presence: Presence::Here,
                is_hungry: true,
                pending: of_moments(&config.faults),
            })
            .collect();
        for (device, state) in each.iter().enumerate() {
            if let Some(absence) = state.config.absence {
                agenda.at(Ns(absence.first_ns), Event::Leaves { device });
            }
        }
        let is_doomed = |device: &usize| !each[*device].pending.is_empty();
        Self {
            hungry: (0..each.len()).collect(),
            doomed: (0..each.len()).filter(is_doomed).collect(),
            links: vec![Ns(0); world.links.len()],
            each,
        }
    }

    /// Notes whether a device may take another batch.
    fn look_at(&mut self, device: usize) {
        let state = &mut self.each[device];
        if state.may_take() && !state.is_hungry {
            state.is_hungry = true;
            self.hungry.push(device);
        }
    }
}

/// At what percentage of the epoch a fault happens; `None` if it happens to batches.
fn moment(fault: &Fault) -> Option<u32> {
    match *fault {
        Fault::Die { percent }
        | Fault::Stall { percent, .. }
        | Fault::Throttle { percent, .. } => Some(percent),
        Fault::SlowStart { .. } | Fault::Late { .. } | Fault::Corrupt { .. } => None,
    }
}

// ---- what is done -------------------------------------------------------------------------

impl Play<'_> {
    /// Assigns batches to every device and lets it begin.
    pub(super) fn act_back(&mut self) {
        if !self.devices.doomed.is_empty() {
            for device in std::mem::take(&mut self.devices.doomed) {
                self.strike(device);
            }
        }
        let mut hungry = std::mem::take(&mut self.devices.hungry);
        hungry.retain(|&device| {
            let is_hungry = self.feed(device);
            self.devices.each[device].is_hungry = is_hungry;
            is_hungry
        });
        self.devices.hungry.append(&mut hungry);
    }

    /// Whether the device could take another batch.
    fn feed(&mut self, device: usize) -> bool {
        while self.devices.each[device].may_take() {
            let prong = Prong::Back(device_idx(device));
            let Some(task) = self.epochs.next(prong, self.now) else { return true };
            let state = &mut self.devices.each[device];
            if state.n_open() == 0 {
                state.busy_since = self.now;
            }
            state.waiting.push_back(task);
            self.begin(device);
        }
        false
    }

    /// An epoch is over: devices forget the batches of it that they have not begun. A silent device also
    /// forgets its current one, or it would count as working and never be asked again.
    pub(super) fn revoke(&mut self) {
        for device in 0..self.devices.each.len() {
            let state = &mut self.devices.each[device];
            let is_unwanted = |task: &Task| !self.epochs.is_wanted(task);
            let waiting = std::mem::take(&mut state.waiting).into_iter();
            let (mut unwanted, kept): (VecDeque<_>, VecDeque<_>) =
                waiting.partition(is_unwanted);
            state.waiting = kept;
            if state.is_silent()
                && let Some((task, _)) =
                    state.at_work.take_if(|(task, _)| is_unwanted(task))
            {
                unwanted.push_back(task);
            }
            for task in unwanted {
                self.epochs.give_back(task, self.now);
            }
            self.devices.look_at(device);
        }
    }

    /// Lets a device begin the next batch of its queue, if it can.
    fn begin(&mut self, device: usize) {
        if !self.devices.each[device].may_begin() {
            return;
        }
        let Some(task) = self.devices.each[device].waiting.pop_front() else { return };
        let slope = self.slope_at(task.batch());
        let state = &mut self.devices.each[device];
        let work_ns =
            scaled(state.config.batch_ns, slope * state.factor(self.now)).max(1);
        state.begun += 1;
        state.at_work = Some((task, work_ns));
        let end = self.now.max(state.stalled_until).plus(work_ns);
        let life = state.life;
        self.agenda.at(end, Event::Made { device, life });
    }
}

// ---- what happens -------------------------------------------------------------------------

impl Play<'_> {
    pub(super) fn device_made(&mut self, device: usize, life: u32) {
        let state = &mut self.devices.each[device];
        if state.life != life || state.is_silent() {
            return;
        }
        if self.now < state.stalled_until {
            // It stalled in the middle of this batch, which ends when the stall does.
            let until = state.stalled_until;
            self.agenda.at(until, Event::Made { device, life });
            return;
        }
        let Some((task, work_ns)) = state.at_work.take() else { return };
        self.epochs.device_worked(&task, work_ns);
        state.sent.push_back(task);
        let mut at_host = self.now;
        let config = state.config;
        if let Some(link) = config.link {
            at_host = self.crosses(link, self.world.batch_bytes);
        }
        let at_host = at_host.plus(config.latency_ns);
        if at_host == self.now {
            self.arrived(device, life);
        } else {
            self.agenda.at(at_host, Event::Arrived { device, life });
            self.begin(device);
        }
    }

    /// When so many bytes have crossed a link, after all that is on it.
    pub(super) fn crosses(&mut self, link: usize, bytes: u64) -> Ns {
        let Some(free_at) = self.devices.links.get_mut(link) else { return self.now };
        let bytes_per_s = self.world.links[link].bytes_per_s.max(1);
        let crossing = float(bytes) / float(bytes_per_s);
        *free_at = (*free_at).max(self.now).plus(scaled(1_000_000_000, crossing));
        *free_at
    }

    pub(super) fn arrived(&mut self, device: usize, life: u32) {
        let state = &mut self.devices.each[device];
        if state.life != life {
            return;
        }
        let Some(task) = state.sent.pop_front() else { return };
        let work_ns = self.now.since(state.busy_since);
        state.busy_since = self.now;
        if state.is_corrupt() {
            self.epochs.give_back(task, self.now);
        } else {
            self.epochs.finish(task, work_ns, self.now);
        }
        self.devices.look_at(device);
        self.begin(device);
    }

    /// Triggers the faults that are due.
    fn strike(&mut self, device: usize) {
        let pending = std::mem::take(&mut self.devices.each[device].pending);
        for fault in pending {
            if !moment(&fault).is_some_and(|percent| self.is_past(self.batches, percent))
            {
                self.devices.each[device].pending.push(fault);
                continue;
            }
            let state = &mut self.devices.each[device];
            match fault {
                Fault::Die { .. } => self.depart(device),
                Fault::Stall { ns, .. } => state.stalled_until = self.now.plus(ns),
                Fault::Throttle { factor, .. } => state.factor *= factor,
                // These happen to batches, not at a moment.
                Fault::SlowStart { .. } | Fault::Late { .. } | Fault::Corrupt { .. } => {}
            }
        }
        if !self.devices.each[device].pending.is_empty() {
            self.devices.doomed.push(device);
        }
    }

    pub(super) fn leaves(&mut self, device: usize) {
        let Some(absence) = self.devices.each[device].config.absence else { return };
        self.depart(device);
        let back = self.now.plus(absence.for_ns.max(1));
        self.agenda.at(back, Event::Joins { device });
        let again = self.now.plus(absence.every_ns.max(absence.for_ns.saturating_add(1)));
        self.agenda.at(again, Event::Leaves { device });
    }

    pub(super) fn joins(&mut self, device: usize) {
        self.devices.each[device].presence = Presence::Here;
        self.epochs.device_joined(device_idx(device), self.now);
        self.devices.look_at(device);
    }

    /// The device is gone, with all its batches.
    fn depart(&mut self, device: usize) {
        let state = &mut self.devices.each[device];
        state.presence = Presence::Away;
        state.life += 1;
        let at_work = state.at_work.take().map(|(task, _)| task);
        let waiting = std::mem::take(&mut state.waiting);
        let sent = std::mem::take(&mut state.sent);
        self.epochs.device_lost(device_idx(device), self.now);
        for task in sent.into_iter().chain(at_work).chain(waiting) {
            self.epochs.give_back(task, self.now);
        }
    }
}
