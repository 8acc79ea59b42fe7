//! The accounts of one rank in one part, kept independently of the ledger's.
//!
//! They say who may claim and commit what, how much each prong holds, and what the counts must be in the
//! end. They decide nothing.

use crate::claim::{Claim, ClaimKind};
use crate::epoch::{Counts, EpochConfig, Finish, ProngCounts};
use crate::ids::{BatchIdx, DeviceIdx, Prong};

/// Where a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nobody has made it.
    Unmade,
    Made(Prong),
    Picked(Prong),
    Consumed,
}

/// A batch and who is making it.
#[derive(Debug, Clone, Copy)]
struct Batch {
    place: Place,
    front: bool,
    back: Option<DeviceIdx>,
}

/// What a prong has, and what its counts must be.
#[derive(Debug, Clone, Copy, Default)]
struct Prongs {
    making: u32,
    waiting: u32,
    counts: ProngCounts,
}

/// All of it.
#[derive(Debug)]
pub(super) struct Accounts<'a> {
    config: &'a EpochConfig,
    batches: Vec<Batch>,
    front: Prongs,
    back: Vec<Prongs>,
    rescued: u32,
    dropped: u32,
    peak_waiting: u32,
    /// In the order of consumption.
    pub(super) consumed: Vec<BatchIdx>,
}

impl<'a> Accounts<'a> {
    pub(super) fn new(config: &'a EpochConfig) -> Self {
        let fresh = Batch { place: Place::Unmade, front: false, back: None };
        let mut batches = vec![fresh; config.n_batches as usize];
        for &(from, to) in &config.done {
            for batch in &mut batches[from as usize..to as usize] {
                batch.place = Place::Consumed;
            }
        }
        Self {
            config,
            batches,
            front: Prongs::default(),
            back: vec![Prongs::default(); config.devices.len()],
            rescued: 0,
            dropped: 0,
            peak_waiting: 0,
            consumed: Vec::new(),
        }
    }

    /// A claim was given out: nobody has it already, its maker has the data, and the memory
    /// that it takes is there.
    pub(super) fn claim(&mut self, claim: &Claim) {
        let (at, prong) = (claim.batch(), claim.prong());
        let batch = &mut self.batches[at.0 as usize];
        assert_eq!(batch.place, Place::Unmade, "{at:?} is claimed and made already");
        let (own, others) = match prong {
            Prong::Front => (batch.front, batch.back.is_some()),
            Prong::Back(_) => (batch.back.is_some(), batch.front),
        };
        assert!(!own, "{at:?} is claimed twice");
        let is_rescue = claim.kind() == ClaimKind::Rescue;
        assert_eq!(others, is_rescue, "{at:?} is no {:?}", claim.kind());
        match prong {
            Prong::Front => batch.front = true,
            Prong::Back(device) => batch.back = Some(device),
        }
        self.rescued += u32::from(is_rescue && prong == Prong::Front);
        if let (Prong::Back(_), Some(quota)) = (prong, self.config.whole_back_quota()) {
            let used: u32 = self.back.iter().map(|it| it.making + it.waiting).sum();
            assert!(used < quota, "the devices hold {used} of {quota}");
        }
        let prongs = self.prongs(prong);
        prongs.making += 1;
        let (making, used) = (prongs.making, prongs.making + prongs.waiting);
        match prong {
            Prong::Front => {
                let front = self.config.front;
                let most = front.quota + front.parallel;
                assert!(used <= most, "the host holds {used} of {most}");
            }
            Prong::Back(device) => {
                let limits = self.config.devices[usize::from(device.0)];
                assert!(making <= limits.slots, "{device:?} has {making} jobs");
                assert!(used <= limits.buffer, "{device:?} holds {used}");
                let on = at.0 % u32::from(self.config.shards.max(1));
                let has_data = limits.shard.is_none_or(|shard| u32::from(shard) == on);
                assert!(has_data, "{device:?} has not the data of {at:?}");
            }
        }
    }

    /// A claim was finished.
    pub(super) fn finish(&mut self, at: BatchIdx, prong: Prong, finish: Finish) {
        self.unclaim(at, prong);
        let place = &mut self.batches[at.0 as usize].place;
        match finish {
            Finish::Committed => {
                assert_eq!(*place, Place::Unmade, "{at:?} is committed twice");
                *place = Place::Made(prong);
                self.prongs(prong).waiting += 1;
                let waiting = self.back.iter().map(|back| back.waiting).sum();
                self.peak_waiting = self.peak_waiting.max(waiting);
            }
            Finish::Wasted => {
                assert_ne!(*place, Place::Unmade, "the only result of {at:?} is wasted");
                self.waste(prong);
            }
        }
    }

    /// A result did not count.
    pub(super) fn waste(&mut self, prong: Prong) {
        self.prongs(prong).counts.wasted += 1;
    }

    /// A claim came to nothing, through its maker's fault.
    pub(super) fn lose(&mut self, at: BatchIdx, prong: Prong) {
        self.unclaim(at, prong);
        self.prongs(prong).counts.lost += 1;
    }

    /// A claim was forgotten.
    pub(super) fn drop(&mut self, at: BatchIdx, prong: Prong) {
        self.unclaim(at, prong);
        self.dropped += 1;
    }

    /// A claim ended without a result.
    pub(super) fn unclaim(&mut self, at: BatchIdx, prong: Prong) {
        let batch = &mut self.batches[at.0 as usize];
        match prong {
            Prong::Front => batch.front = false,
            Prong::Back(_) => batch.back = None,
        }
        self.prongs(prong).making -= 1;
    }

    /// A batch is on its way to the consumer.
    pub(super) fn pick(&mut self, at: BatchIdx) {
        let place = &mut self.batches[at.0 as usize].place;
        let Place::Made(prong) = *place else {
            panic!("{at:?} is picked and is {place:?}");
        };
        *place = Place::Picked(prong);
    }

    /// The consumer has a batch.
    pub(super) fn consume(&mut self, at: BatchIdx) {
        let place = &mut self.batches[at.0 as usize].place;
        let Place::Picked(prong) = *place else {
            panic!("{at:?} is consumed and is {place:?}");
        };
        *place = Place::Consumed;
        self.consumed.push(at);
        let prongs = self.prongs(prong);
        prongs.waiting -= 1;
        prongs.counts.delivered += 1;
    }

    /// Batches of the host's, or of a device's, that are being made.
    pub(super) fn making(&self, prong: Prong) -> u32 {
        match prong {
            Prong::Front => self.front.making,
            Prong::Back(device) => self.back[usize::from(device.0)].making,
        }
    }

    /// Batches consumed in this part and before, as half-open ranges.
    pub(super) fn ranges(&self) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let consumed =
            (0..).zip(&self.batches).filter(|(_, b)| b.place == Place::Consumed);
        for (at, _) in consumed {
            match ranges.last_mut() {
                Some((_, end)) if *end == at => *end += 1,
                _ => ranges.push((at, at + 1)),
            }
        }
        ranges
    }

    /// The epoch's counts are these.
    pub(super) fn check(&self, counts: &Counts) {
        let is_same = |theirs: &ProngCounts, ours: &Prongs| {
            // When a claim is overdue is the rates' affair: `late` is theirs alone.
            ProngCounts { late: 0, ..*theirs } == ours.counts
        };
        assert!(is_same(&counts.front, &self.front), "{counts:?} but {self:?}");
        for (theirs, ours) in counts.back.iter().zip(&self.back) {
            assert!(is_same(theirs, ours), "{counts:?} but {self:?}");
        }
        assert_eq!(counts.rescued, self.rescued, "rescued");
        assert_eq!(counts.returned, self.dropped, "returned");
        assert_eq!(counts.peak_waiting, self.peak_waiting, "peak");
        assert_eq!(counts.delivered, self.ranges(), "delivered");
    }

    fn prongs(&mut self, prong: Prong) -> &mut Prongs {
        match prong {
            Prong::Front => &mut self.front,
            Prong::Back(DeviceIdx(device)) => &mut self.back[usize::from(device)],
        }
    }
}
