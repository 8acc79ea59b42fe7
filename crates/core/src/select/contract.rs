//! What every strategy must hold, as callable checks: `epoch`'s promises under schedules
//! nobody would wish for.
//!
//! A check plays one epoch in virtual time against a seeded opponent: devices answer late,
//! never, or with rubbish, are lost and come back; workers drop their claims. (A completion
//! that comes twice is not among these: the claim it would finish is consumed.) What matters
//! is checked by accounts of its own, not by the ledger's. These are no measurements:
//! `bothends-simulate` has those.

use crate::claim::{Claim, ClaimKind};
use crate::epoch::{
    DeviceConfig, EpochConfig, EpochState, Finish, FrontConfig, Pick, Recovery,
};
use crate::ids::{BatchIdx, DeviceIdx, Ns, Prong};
use crate::objective::{Objective, Percent};
use crate::select::StrategyConfig;

/// How the devices of a check behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opponent {
    /// There are none.
    Absent,
    /// They take batches and never answer.
    Silent,
    /// They answer at once, and every answer is a failure.
    Failing,
    /// They answer in any order and at any time, or fail, stall, die, return; and workers of
    /// the host drop or give back claims too.
    Chaos,
}

/// Many times more than the longest epoch of a check takes.
const MOST_STEPS: u32 = 400_000;

const OPPONENTS: [Opponent; 4] =
    [Opponent::Absent, Opponent::Silent, Opponent::Failing, Opponent::Chaos];

/// All checks of this contract, for the seeds given.
///
/// # Panics
/// When the strategy breaks its contract; the message names the strategy and the seed.
pub fn all(strategy: StrategyConfig, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        for opponent in OPPONENTS {
            delivers_everything_once(strategy, opponent, seed);
        }
    }
}

/// Whatever the devices do: every batch is committed and delivered exactly once, in the
/// plan's order where the strategy says so, with no more batches held than the limits allow,
/// and in a bounded number of steps.
///
/// # Panics
/// When one of these does not hold.
pub fn delivers_everything_once(strategy: StrategyConfig, opponent: Opponent, seed: u64) {
    let mut trial = Trial::new(strategy, opponent, seed);
    let mut steps = 0;
    while !trial.ended {
        trial.step();
        steps += 1;
        assert!(steps < MOST_STEPS, "{}: hangs: {:?}", trial.name, trial.epoch.counts());
    }
    trial.check_end();
}

/// One epoch against an opponent.
struct Trial {
    name: String,
    epoch: EpochState,
    config: EpochConfig,
    opponent: Opponent,
    numbers: Numbers,
    now: Ns,
    open: Vec<Claim>,
    /// Who made the batches that wait for delivery.
    made: Vec<Option<Prong>>,
    /// Batches seen delivered, in order.
    delivered: Vec<BatchIdx>,
    lost: Vec<bool>,
    dropped: u32,
    ended: bool,
}

impl Trial {
    fn new(strategy: StrategyConfig, opponent: Opponent, seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let n_devices = if opponent == Opponent::Absent { 0 } else { numbers.below(4) };
        let shards = numbers.below(4);
        let devices = (0..n_devices).map(|_| DeviceConfig {
            slots: numbers.below(4) + 1,
            buffer: numbers.below(12) + 1,
            prior_ns: numbers.one_in(2).then(|| u64::from(numbers.below(50)) * MILLI),
            shard: numbers.shard(shards),
        });
        let devices = devices.collect();
        let n_batches = numbers.below(150);
        let from = numbers.below(n_batches + 1);
        let done = if numbers.one_in(4) { vec![(from, from + 20)] } else { vec![] };
        let config = EpochConfig {
            n_batches,
            strategy,
            objective: numbers.objective(),
            shards: u16::try_from(shards).unwrap_or(0),
            front: FrontConfig {
                parallel: numbers.below(4) + 1,
                quota: numbers.below(12) + 1,
                prior_ns: numbers.one_in(3).then_some(5 * MILLI),
            },
            devices,
            accelerator_ns: numbers.one_in(2).then_some(3 * MILLI),
            done,
            recovery: Recovery::On,
        };
        Self {
            name: format!("{strategy}, {opponent:?}, seed {seed}"),
            epoch: EpochState::new(config.clone()),
            opponent,
            numbers,
            now: Ns(0),
            open: Vec::new(),
            made: vec![None; n_batches as usize],
            delivered: Vec::new(),
            lost: vec![false; config.devices.len()],
            dropped: 0,
            ended: false,
            config,
        }
    }

    fn step(&mut self) {
        let pause = u64::from(self.numbers.below(4)) * MILLI;
        self.now = self.now.plus(pause);
        match self.numbers.below(8) {
            0 | 1 => self.deliver(),
            2 | 3 => self.claim_front(),
            4 => self.claim_back(),
            5 => self.end_front(),
            6 if self.opponent == Opponent::Chaos => self.disturb(),
            6 => {}
            _ => self.sleep(),
        }
        self.check_limits();
    }

    /// As a caller would that has nothing to do: straight to the moment it is told.
    fn sleep(&mut self) {
        if let Some(at) = self.epoch.wake_at(self.now) {
            assert!(at > self.now, "{}: wakes in the past", self.name);
            if self.numbers.one_in(10) {
                self.now = at;
            }
        }
    }

    fn deliver(&mut self) {
        match self.epoch.next_delivery(self.now) {
            Pick::Deliver(batch) => {
                let maker = self.made[batch.0 as usize].take();
                assert!(maker.is_some(), "{}: {batch:?} is not made", self.name);
                self.delivered.push(batch);
                self.epoch.delivered(batch, self.now);
            }
            Pick::Wait => {}
            Pick::End => self.ended = true,
        }
    }

    fn claim_front(&mut self) {
        let front =
            self.open.iter().filter(|claim| claim.prong() == Prong::Front).count();
        if front < self.config.front.parallel as usize
            && let Some(claim) = self.epoch.next_front(self.now)
        {
            self.take(claim, Prong::Front);
        }
    }

    fn claim_back(&mut self) {
        let Some(device) = self.numbers.device(self.lost.len()) else { return };
        if let Some(claim) = self.epoch.next_back(device, self.now) {
            assert!(
                !self.lost[usize::from(device.0)],
                "{}: a lost device works",
                self.name
            );
            let shard = self.config.devices[usize::from(device.0)].shard;
            let on = claim.batch().0 % u32::from(self.config.shards.max(1));
            assert!(
                shard.is_none_or(|shard| u32::from(shard) == on),
                "{}: {device:?} has not the data of {:?}",
                self.name,
                claim.batch()
            );
            if self.opponent == Opponent::Failing {
                self.epoch.give_back(claim, self.now);
            } else {
                self.take(claim, Prong::Back(device));
            }
        }
    }

    fn take(&mut self, claim: Claim, prong: Prong) {
        assert_eq!(claim.prong(), prong, "{}", self.name);
        let same: Vec<_> =
            self.open.iter().filter(|c| c.batch() == claim.batch()).collect();
        match claim.kind() {
            ClaimKind::First => assert!(same.is_empty(), "{}: claimed twice", self.name),
            ClaimKind::Rescue => {
                let of_device = same.len() == 1 && same[0].prong() != Prong::Front;
                assert!(of_device, "{}: rescued {same:?}", self.name);
            }
        }
        self.open.push(claim);
    }

    fn end_front(&mut self) {
        if let Some(at) = self.open.iter().position(|claim| claim.prong() == Prong::Front)
        {
            let claim = self.open.remove(at);
            self.finish(claim);
        }
    }

    fn finish(&mut self, claim: Claim) {
        let (batch, prong) = (claim.batch(), claim.prong());
        let work_ns = u64::from(self.numbers.below(40)) * MILLI;
        if self.epoch.finish(claim, work_ns, self.now) == Finish::Committed {
            let is_new =
                self.made[batch.0 as usize].is_none() && !self.delivered.contains(&batch);
            assert!(is_new, "{}: {batch:?} committed twice", self.name);
            self.made[batch.0 as usize] = Some(prong);
        }
    }

    /// Something happens to any claim, or to any device.
    fn disturb(&mut self) {
        let what = self.numbers.below(12);
        if what >= 10 {
            self.lose_or_join();
        } else if !self.open.is_empty() {
            let at = self.numbers.below(u32::try_from(self.open.len()).unwrap_or(1));
            let claim = self.open.swap_remove(at as usize);
            match what {
                0 => self.epoch.give_back(claim, self.now),
                1 => self.epoch.refused(claim, self.now),
                2 => {
                    self.dropped += 1;
                    drop(claim);
                }
                _ => self.finish(claim),
            }
        }
    }

    fn lose_or_join(&mut self) {
        let Some(device) = self.numbers.device(self.lost.len()) else { return };
        let is_lost = &mut self.lost[usize::from(device.0)];
        *is_lost = !*is_lost;
        if !*is_lost {
            self.epoch.device_joined(device, self.now);
            return;
        }
        self.epoch.device_lost(device, self.now);
        let of_device = |claim: &mut Claim| claim.prong() == Prong::Back(device);
        for claim in self.open.extract_if(.., of_device).collect::<Vec<_>>() {
            // Void already: neither of these may change anything.
            match self.numbers.below(3) {
                0 => drop(claim),
                1 => self.epoch.give_back(claim, self.now),
                _ => {
                    let finish = self.epoch.finish(claim, MILLI, self.now);
                    assert_eq!(finish, Finish::Wasted, "{}", self.name);
                }
            }
        }
    }

    fn check_limits(&self) {
        let used = |prong: Prong| {
            let open = self.open.iter().filter(|claim| claim.prong() == prong).count();
            open + self.made.iter().filter(|maker| **maker == Some(prong)).count()
        };
        let most = (self.config.front.quota + self.config.front.parallel) as usize;
        assert!(used(Prong::Front) <= most, "{}: the host holds too much", self.name);
        for (device, config) in (0..).map(DeviceIdx).zip(&self.config.devices) {
            let prong = Prong::Back(device);
            assert!(used(prong) <= config.buffer as usize, "{}: {prong:?}", self.name);
        }
    }

    fn check_end(&self) {
        let is_done = |batch: &u32| {
            self.config.done.iter().any(|(from, to)| (*from..*to).contains(batch))
        };
        let expected: Vec<_> =
            (0..self.config.n_batches).filter(|b| !is_done(b)).map(BatchIdx).collect();
        let mut delivered = self.delivered.clone();
        if !self.config.strategy.keeps_order() {
            delivered.sort_unstable();
        }
        assert_eq!(delivered, expected, "{}", self.name);
        let counts = self.epoch.counts();
        let by_prong: u32 =
            counts.back.iter().chain([&counts.front]).map(|c| c.delivered).sum();
        assert_eq!(by_prong as usize, expected.len(), "{}", self.name);
        let covered: u32 = counts.delivered.iter().map(|(from, to)| to - from).sum();
        assert_eq!(covered, self.config.n_batches, "{}", self.name);
        assert!(counts.returned <= self.dropped, "{}", self.name);
    }
}

const MILLI: u64 = 1_000_000;

/// The opponent's dice (`SplitMix64`): good enough to be unpredictable to a strategy.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u32) -> u32 {
        u32::try_from(((self.next() >> 32) * u64::from(n)) >> 32).unwrap_or(0)
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    fn shard(&mut self, shards: u32) -> Option<u16> {
        let has_one = shards > 1 && self.one_in(2);
        has_one.then(|| u16::try_from(self.below(shards)).unwrap_or(0))
    }

    fn objective(&mut self) -> Objective {
        match self.below(4) {
            0 => Objective::Energy,
            1 => Percent::new(30).map_or(Objective::Throughput, Objective::HostCpuCap),
            _ => Objective::Throughput,
        }
    }

    fn device(&mut self, n_devices: usize) -> Option<DeviceIdx> {
        let n = u32::try_from(n_devices).ok().filter(|n| *n > 0)?;
        u16::try_from(self.below(n)).ok().map(DeviceIdx)
    }
}
