//! One rank in one part of a schedule: what the runtime would do with an epoch, driven by bytes.
//!
//! A byte is an event: its low half says what happens, its high half to whom or for how long. Late,
//! reordered, stalled and forgotten results need no events, because they result from answers and time
//! coming in any order. `accounts.rs` checks each step.

use std::collections::VecDeque;

use crate::claim::Claim;
use crate::epoch::{EpochConfig, EpochState, Finish, Pick};
use crate::ids::{BatchIdx, DeviceIdx, Ns, Prong};
use crate::select::contract::accounts::Accounts;
use crate::select::contract::{Habit, Part};

const MILLI: u64 = 1_000_000;

/// Many times more than the calm end of the longest epoch of a schedule takes.
const MOST_ROUNDS: u32 = 100_000;

/// What a rank has done when it is stopped.
pub(super) struct Played {
    /// In the order of consumption.
    pub(super) consumed: Vec<BatchIdx>,
    /// All of the epoch, as half-open ranges.
    pub(super) done: Vec<(u32, u32)>,
}

/// Plays the part's events until `n_stop` batches are consumed, and then calmly until they
/// are.
pub(super) fn play(
    part: &Part,
    config: &EpochConfig,
    events: &[u8],
    n_stop: usize,
) -> Played {
    let mut rank = Rank {
        part,
        epoch: EpochState::new(config.clone()),
        accounts: Accounts::new(config),
        n_stop,
        now: Ns(0),
        front: Vec::new(),
        jobs: Vec::new(),
        n_jobs: 0,
        void: Vec::new(),
        feed: VecDeque::new(),
        lost: vec![false; part.devices.len()],
        leaving: vec![false; part.devices.len()],
    };
    for event in events {
        if rank.is_over() {
            break;
        }
        rank.happen(event & 15, event >> 4);
    }
    rank.go_on_calmly();
    rank.end(config)
}

/// A device's job, as the collector of the runtime keeps it.
struct Job {
    id: u32,
    device: DeviceIdx,
    claim: Claim,
}

struct Rank<'a> {
    part: &'a Part,
    epoch: EpochState,
    accounts: Accounts<'a>,
    n_stop: usize,
    now: Ns,
    front: Vec<Claim>,
    /// A completion that names no job in here is none.
    jobs: Vec<Job>,
    n_jobs: u32,
    /// Claims of devices that were lost with them.
    void: Vec<Claim>,
    /// Picked, and not consumed.
    feed: VecDeque<BatchIdx>,
    lost: Vec<bool>,
    /// They finish what they hold, and get nothing more.
    leaving: Vec<bool>,
}

// ---- events -------------------------------------------------------------------------------

impl Rank<'_> {
    fn happen(&mut self, what: u8, which: u8) {
        match what {
            0 | 1 => {
                self.deliver();
            }
            2 => self.pick_or_consume(which),
            3 | 4 => {
                self.claim_front();
            }
            5 | 6 => {
                if let Some(device) = self.device(which) {
                    self.claim_back(device);
                }
            }
            7 | 8 => self.finish_front(usize::from(which)),
            9 | 10 => self.complete_one(which),
            11 => self.pass_time(which),
            12 => self.fail(which),
            13 => self.refuse_or_drop(which),
            14 => self.complete_again(which),
            _ if which < 4 => self.lose_or_join(which),
            _ if which < 8 => self.leave(which),
            _ => self.end_void(which),
        }
        self.now = self.now.plus(MILLI / 4);
    }

    fn device(&self, which: u8) -> Option<DeviceIdx> {
        let n_devices = u16::try_from(self.lost.len()).ok().filter(|n| *n > 0)?;
        Some(DeviceIdx(u16::from(which) % n_devices))
    }

    /// As the runtime does it: what is picked is consumed at once. Whether it was anything.
    fn deliver(&mut self) -> bool {
        self.pick();
        let mut is_any = false;
        while !self.is_over() && self.consume() {
            is_any = true;
        }
        is_any
    }

    /// A consumer that takes its time.
    fn pick_or_consume(&mut self, which: u8) {
        if which.is_multiple_of(2) {
            self.pick();
        } else {
            self.consume();
        }
    }

    fn pick(&mut self) {
        if let Pick::Deliver(batch) = self.epoch.next_delivery(self.now) {
            self.accounts.pick(batch);
            self.feed.push_back(batch);
        }
    }

    fn consume(&mut self) -> bool {
        let Some(batch) = self.feed.pop_front() else { return false };
        self.accounts.consume(batch);
        self.epoch.delivered(batch, self.now);
        true
    }

    fn claim_front(&mut self) -> bool {
        if self.accounts.making(Prong::Front) >= self.part.front.parallel {
            return false;
        }
        let Some(claim) = self.epoch.next_front(self.now) else { return false };
        assert_eq!(claim.prong(), Prong::Front);
        self.accounts.claim(&claim);
        self.front.push(claim);
        true
    }

    fn claim_back(&mut self, device: DeviceIdx) -> bool {
        let Some(claim) = self.epoch.next_back(device, self.now) else { return false };
        assert!(!self.lost[usize::from(device.0)], "a lost device works");
        assert!(!self.leaving[usize::from(device.0)], "one that leaves gets work");
        assert_eq!(claim.prong(), Prong::Back(device));
        self.accounts.claim(&claim);
        self.jobs.push(Job { id: self.n_jobs, device, claim });
        self.n_jobs += 1;
        true
    }

    fn finish_front(&mut self, which: usize) {
        if !self.front.is_empty() {
            let claim = self.front.remove(which % self.front.len());
            self.finish(claim, which as u64 * MILLI);
        }
    }

    /// Any of the jobs under way is answered: results come in any order.
    fn complete_one(&mut self, which: u8) {
        if !self.jobs.is_empty() {
            let job = self.jobs[usize::from(which) % self.jobs.len()].id;
            self.complete(job, u64::from(which) * 3 * MILLI);
        }
    }

    /// A completion of a job that was answered before, or is lost, or never was.
    fn complete_again(&mut self, which: u8) {
        let job = self.n_jobs.saturating_sub(u32::from(which / 4));
        if self.jobs.iter().all(|open| open.id != job) {
            self.complete(job, MILLI);
        }
    }

    fn complete(&mut self, job: u32, work_ns: u64) {
        if let Some(at) = self.jobs.iter().position(|open| open.id == job) {
            let claim = self.jobs.remove(at).claim;
            self.finish(claim, work_ns);
        }
    }

    fn finish(&mut self, claim: Claim, work_ns: u64) {
        let (batch, prong) = (claim.batch(), claim.prong());
        let finish = self.epoch.finish(claim, work_ns, self.now);
        self.accounts.finish(batch, prong, finish);
    }

    fn pass_time(&mut self, which: u8) {
        let at = self.epoch.wake_at(self.now);
        assert!(at.is_none_or(|at| at > self.now), "it would wake in the past");
        self.now = match at.filter(|_| which == 15) {
            Some(at) => at,
            None => self.now.plus(u64::from(which) * MILLI),
        };
    }

    /// Any claim under way; the devices' come first.
    fn take_any(&mut self, which: u8) -> Option<Claim> {
        let n_open = self.jobs.len() + self.front.len();
        let at = usize::from(which).checked_rem(n_open)?;
        if at < self.jobs.len() {
            return Some(self.jobs.remove(at).claim);
        }
        Some(self.front.remove(at - self.jobs.len()))
    }

    /// Its result is corrupt, or there is none.
    fn fail(&mut self, which: u8) {
        if let Some(claim) = self.take_any(which) {
            self.accounts.lose(claim.batch(), claim.prong());
            self.epoch.give_back(claim, self.now);
        }
    }

    /// Its prong had no room for it, or its thread died.
    fn refuse_or_drop(&mut self, which: u8) {
        let Some(claim) = self.take_any(which / 2) else { return };
        if which.is_multiple_of(2) {
            self.accounts.unclaim(claim.batch(), claim.prong());
            self.epoch.refused(claim, self.now);
        } else {
            self.accounts.drop(claim.batch(), claim.prong());
            drop(claim);
        }
    }

    fn lose_or_join(&mut self, which: u8) {
        // Only four are named by such an event; of more devices, each has its turn.
        let n_devices = u32::try_from(self.lost.len()).unwrap_or(u32::MAX);
        let turn = if n_devices > 4 { self.n_jobs % n_devices } else { 0 };
        let turn = u8::try_from(turn).unwrap_or(0);
        let Some(device) = self.device(which.wrapping_add(turn)) else { return };
        let at = usize::from(device.0);
        if !self.lost[at] {
            return self.lose(device);
        }
        self.lost[at] = false;
        match self.n_jobs % 3 {
            0 => self.epoch.device_replaced(device, None, self.now),
            1 => self.epoch.device_replaced(device, Some(MILLI), self.now),
            _ => self.epoch.device_joined(device, self.now),
        }
    }

    fn leave(&mut self, which: u8) {
        let Some(device) = self.device(which) else { return };
        if !self.lost[usize::from(device.0)] {
            self.leaving[usize::from(device.0)] = true;
            self.epoch.device_leaves(device, self.now);
        }
    }

    /// Those that are to leave and hold nothing have left; whether there were any.
    fn see_off(&mut self) -> bool {
        let is_idle =
            |device: DeviceIdx| self.jobs.iter().all(|job| job.device != device);
        let leaving =
            (0..).map(DeviceIdx).zip(&self.leaving).filter(|(_, leaves)| **leaves);
        let gone: Vec<_> = leaving.map(|(d, _)| d).filter(|d| is_idle(*d)).collect();
        gone.iter().for_each(|device| self.lose(*device));
        !gone.is_empty()
    }

    fn lose(&mut self, device: DeviceIdx) {
        let at = usize::from(device.0);
        (self.lost[at], self.leaving[at]) = (true, false);
        self.epoch.device_lost(device, self.now);
        for job in self.jobs.extract_if(.., |job| job.device == device) {
            self.accounts.lose(job.claim.batch(), job.claim.prong());
            self.void.push(job.claim);
        }
    }

    /// However a claim ends that was lost with its device, nothing comes of it.
    fn end_void(&mut self, which: u8) {
        let Some(at) = usize::from(which).checked_rem(self.void.len()) else { return };
        let claim = self.void.remove(at);
        let prong = claim.prong();
        match which % 4 {
            0 => drop(claim),
            1 => self.epoch.give_back(claim, self.now),
            2 => self.epoch.refused(claim, self.now),
            _ => {
                let finish = self.epoch.finish(claim, MILLI, self.now);
                assert_eq!(finish, Finish::Wasted, "a void claim counts");
                self.accounts.waste(prong);
            }
        }
    }
}

// ---- the calm end -------------------------------------------------------------------------

impl Rank<'_> {
    fn is_over(&self) -> bool {
        self.accounts.consumed.len() == self.n_stop
    }

    fn go_on_calmly(&mut self) {
        let mut rounds = 0;
        while !self.is_over() {
            if self.calm_round() {
                self.now = self.now.plus(MILLI);
            } else if !self.is_over() {
                // Nothing more happens at this moment: only time can help, if it says when.
                let at = self.epoch.wake_at(self.now);
                self.now =
                    at.unwrap_or_else(|| panic!("waits forever: {:?}", self.accounts));
            }
            rounds += 1;
            assert!(rounds < MOST_ROUNDS, "does not end: {:?}", self.accounts);
        }
    }

    /// Everything that can be done now; whether it was anything.
    fn calm_round(&mut self) -> bool {
        let mut moved = self.see_off();
        while !self.is_over() && self.deliver() {
            moved = true;
        }
        while self.claim_front() {
            moved = true;
        }
        for (device, of) in (0..).map(DeviceIdx).zip(&self.part.devices) {
            while self.claim_back(device) {
                moved = true;
            }
            moved |= self.answer(device, of.habit);
        }
        if !self.front.is_empty() {
            self.finish_front(0);
            moved = true;
        }
        moved
    }

    /// The device's oldest job, as is its habit; whether it was answered.
    fn answer(&mut self, device: DeviceIdx, habit: Habit) -> bool {
        let Some(at) = self.jobs.iter().position(|job| job.device == device) else {
            return false;
        };
        match habit {
            Habit::Keep => return false,
            Habit::Answer => self.complete(self.jobs[at].id, 2 * MILLI),
            Habit::Fail => {
                let claim = self.jobs.remove(at).claim;
                self.accounts.lose(claim.batch(), claim.prong());
                self.epoch.give_back(claim, self.now);
            }
        }
        true
    }

    /// The part is over: what is still under way is nobody's any more.
    fn end(mut self, config: &EpochConfig) -> Played {
        let done = self.accounts.ranges();
        let n_done: u32 = done.iter().map(|(from, to)| to - from).sum();
        if n_done == config.n_batches {
            assert_eq!(self.epoch.next_delivery(self.now), Pick::End);
            assert!(!self.claim_front(), "the host makes what is done");
            for device in (0..).map(DeviceIdx).take(self.lost.len()) {
                assert!(!self.claim_back(device), "{device:?} makes what is done");
            }
        }
        for claim in self.front.drain(..).chain(self.jobs.drain(..).map(|job| job.claim))
        {
            self.accounts.unclaim(claim.batch(), claim.prong());
            self.epoch.refused(claim, self.now);
        }
        self.accounts.check(&self.epoch.counts());
        Played { consumed: self.accounts.consumed, done }
    }
}
