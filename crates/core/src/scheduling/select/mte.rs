//! `mte`: Moving Towards Each other, as far as its authors have published it.
//!
//! Both prongs take batches freely from their ends until each has made a few. Their mean times then
//! split the rest once and for all, `p_front / p_back = t_back / t_front` (arXiv 2407.00005). The host's
//! part is delivered first and in order, then the devices', last batch first; the order depends on
//! one ratio only.
//!
//! Two rules are ours: an idle host redoes a batch that is overdue or whose device is lost, and the
//! devices' part is never larger than what may wait for delivery.

use crate::ids::{BatchIdx, DeviceIdx, Prong};
use crate::select::view::{batches, float};
use crate::select::{Strategy, View, follower};

/// What `mte` can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MteConfig {
    /// Batches each side makes before the split is fixed.
    pub calibration: u32,
    /// What the measured time of a batch contains.
    pub time: MteTime,
}

/// What `mte` counts as the time of a batch. The published text can be read either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MteTime {
    /// Preprocessing only.
    Preprocess,
    /// Preprocessing and the accelerator's step.
    WithStep,
}

impl Default for MteConfig {
    fn default() -> Self {
        Self { calibration: 10, time: MteTime::Preprocess }
    }
}

/// Moving towards each other.
#[derive(Debug)]
pub struct Mte {
    config: MteConfig,
    front: Calibration,
    back: Calibration,
    /// First batch of the devices' part, once it is known.
    split: Option<BatchIdx>,
}

#[derive(Debug, Default)]
struct Calibration {
    n: u32,
    sum_ns: u64,
}

impl Calibration {
    fn add(&mut self, work_ns: u64, up_to: u32) {
        if self.n < up_to {
            self.n += 1;
            self.sum_ns = self.sum_ns.saturating_add(work_ns);
        }
    }

    /// The mean time, once there are enough of them.
    fn mean_ns(&self, enough: u32) -> Option<f64> {
        (self.n >= enough.max(1)).then(|| float(self.sum_ns) / float(u64::from(self.n)))
    }
}

impl Mte {
    /// At the start of an epoch.
    #[must_use]
    pub fn new(config: MteConfig) -> Self {
        Self {
            config,
            front: Calibration::default(),
            back: Calibration::default(),
            split: None,
        }
    }

    /// Whether a batch is delivered in the first part. A split that is not fixed does not
    /// count: what it would be now may be gone a moment later, and with it the batch for
    /// which the host's last room was used.
    fn is_front_part(&self, batch: BatchIdx) -> bool {
        self.split.is_none_or(|split| batch < split)
    }

    /// Fixes the split when it can be known.
    fn settle(&mut self, view: &View<'_>) {
        if self.split.is_none() {
            self.split = self.split_now(view);
        }
    }

    /// The split by the ratio, or where both sides have met; nothing that is claimed already
    /// changes sides.
    fn split_now(&self, view: &View<'_>) -> Option<BatchIdx> {
        let free = view.ledger.free();
        let Some((lowest, highest)) = free.first().zip(free.last()) else {
            return view.next().filter(|next| view.ledger.is_of_back(*next));
        };
        let split = view.ledger.n_batches().saturating_sub(self.back_part(view)?);
        Some(BatchIdx(split.clamp(lowest.0, highest.0 + 1)))
    }

    /// The batch that delivery waits for, if nobody makes it (somebody gave it up) and no
    /// device can: what fills them is delivered after it.
    fn stuck(&self, view: &View<'_>) -> Option<BatchIdx> {
        let awaited = self.awaited(view)?;
        (view.ledger.is_free(awaited) && !view.has_room_for(awaited)).then_some(awaited)
    }

    /// Batches of the devices' part, once both sides have been timed.
    fn back_part(&self, view: &View<'_>) -> Option<u32> {
        let step = match self.config.time {
            MteTime::Preprocess => 0.0,
            MteTime::WithStep => float(view.accelerator_ns.unwrap_or(0)),
        };
        let n_devices = float(u64::from(view.n_present().max(1)));
        let front = self.front.mean_ns(self.config.calibration)? + step;
        let back = self.back.mean_ns(self.config.calibration)? / n_devices + step;
        let part = f64::from(view.ledger.n_batches()) * front / (front + back);
        let may_wait =
            view.back.iter().map(|back| back.config.buffer).fold(0, u32::saturating_add);
        let may_wait = may_wait.min(view.sum.quota().unwrap_or(u32::MAX));
        Some(batches(part.round()).min(may_wait))
    }
}

impl Strategy for Mte {
    fn front(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        self.settle(view);
        let lowest = view.lowest_free()?;
        if self.is_front_part(lowest) {
            return Some(lowest);
        }
        let failed = || view.ledger.host_only().last();
        if let Some(batch) = self.stuck(view).or_else(failed) {
            return Some(batch);
        }
        // The host's part grows, one batch at a time: a device may only be slow.
        let orphan = view.lowest_orphan()?;
        if orphan == lowest {
            self.split = Some(BatchIdx(lowest.0 + 1));
        }
        Some(orphan)
    }

    fn front_after(&self, view: &View<'_>, after: Option<BatchIdx>) -> Option<BatchIdx> {
        let split = self.split.or_else(|| self.split_now(view));
        let next = view.lowest_free_from(follower(after));
        next.filter(|batch| split.is_none_or(|split| *batch < split))
    }

    fn rescue(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        self.settle(view);
        let has_own = view.lowest_free().is_some_and(|lowest| self.is_front_part(lowest));
        let awaited = self.awaited(view);
        let overdue = view
            .back_claims()
            .filter(|claim| claim.overdue && (!has_own || Some(claim.batch) == awaited));
        // The devices' part is delivered from its end.
        overdue.map(|claim| claim.batch).max()
    }

    fn back(&mut self, view: &View<'_>, device: DeviceIdx) -> Option<BatchIdx> {
        self.settle(view);
        view.free_for(device).last().filter(|highest| Some(*highest) >= self.split)
    }

    fn deliver(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        self.settle(view);
        self.awaited(view).filter(|batch| view.is_ready(*batch))
    }

    fn awaited(&self, view: &View<'_>) -> Option<BatchIdx> {
        let next = view.next()?;
        if self.is_front_part(next) { Some(next) } else { view.ledger.unpicked().last() }
    }

    /// The host's part upwards, then the devices' part downwards, ready or not.
    fn before(&self, view: &View<'_>, batch: BatchIdx) -> u32 {
        let unpicked = view.ledger.unpicked();
        let below = unpicked.count_below(batch);
        if self.is_front_part(batch) {
            return below;
        }
        unpicked.len().saturating_sub(below + 1)
    }

    fn observe(&mut self, prong: Prong, work_ns: u64) {
        let side = match prong {
            Prong::Front => &mut self.front,
            Prong::Back(_) => &mut self.back,
        };
        side.add(work_ns, self.config.calibration.max(1));
    }
}
