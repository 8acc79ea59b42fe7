//! The collector: one thread that asks `core` what to do and does it.
//!
//! Everything that is decided is decided by an [`EpochState`](bothends_core::epoch::EpochState);
//! everything that happens is heard from a producer. In between this module only carries
//! things: claims to the producers, made batches to the feed. It never waits for anybody but
//! its own bell, so no producer can hold it up. It outlives epochs: when all of one is being
//! made, producers start the next, in slots that the first cannot need any more. How it
//! ends is in `threads/shutdown.rs`.

use std::sync::Arc;
use std::time::Duration;

use bothends_core::claim::{Claim, ClaimKind};
use bothends_core::epoch::{Finish, Pick};
use bothends_core::ids::{BatchIdx, DeviceIdx, Prong};
use bothends_figures::What;
use bothends_slots::{
    Completion, Damaged, JobId, Outcome, Polled, Producer, Rejected, Rejection, Ring,
    Slot,
};
use crossbeam::channel::{Receiver, Sender};

use crate::collect::in_flight::{Brief, Collected, EpochNumber, Made, Underway};
use crate::collect::link::LinkWatch;
use crate::collect::producer::{Joined, Joins, Line, LineReport, place};
use crate::collect::stall::{Awaited, WaitClock};
use crate::collect::wakeup::Ear;
use crate::collect::work::Work;
use crate::error::RuntimeError;
use crate::read::lookahead::Ahead;
use crate::threads::shutdown::{PATIENCE, Stop};
use crate::threads::times::Meter;

/// Made batches the feed may hold before it has looked at them.
pub(crate) const FEED_ROOM: usize = 1;

/// Slots that what is made may still want on its way to the consumer: one to be converted in,
/// and one that is in nobody's hands for a moment.
const ON_THE_WAY: u32 = 2;

/// What the collector is asked to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Make this epoch, behind those that were begun before.
    Begin(Box<Brief>),
    /// Consumers want an epoch that was begun ahead of them.
    Want(EpochNumber),
    /// An epoch is over, or nobody wants the rest of it.
    End(EpochNumber, Sender<Collected>),
    /// The device of this line is there.
    Join(usize, Box<dyn Producer>, Joined),
    /// The member of a pool that has this line, if it is this one, is to finish what it has, and to go.
    Leave(usize, String),
    /// This device has lied: it takes part no longer.
    Expel(DeviceIdx, String),
}

/// Where batches are made: the front's slots have the output's form, a device's are at the cut.
#[derive(Debug, Clone)]
pub(crate) struct Rings {
    pub(crate) front: Ring,
    /// `None` where the cut is the output's form: devices fill the front's slots, too.
    pub(crate) back: Option<Ring>,
}

impl Rings {
    fn of(&self, prong: Prong) -> &Ring {
        match prong {
            Prong::Front => &self.front,
            Prong::Back(_) => self.back.as_ref().unwrap_or(&self.front),
        }
    }

    /// Whether what a prong makes wants a slot of the front's ring on its way, to be converted in.
    fn converts(&self, prong: Prong) -> bool {
        prong != Prong::Front && self.back.is_some()
    }
}

/// What the collector thread owns.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) commands: Receiver<Command>,
    pub(crate) rings: Rings,
    /// The host's workers first, then the devices in their order.
    pub(crate) lines: Vec<Line>,
    pub(crate) ear: Ear,
    pub(crate) waits: Arc<WaitClock>,
    /// Where it is said what the front makes next.
    pub(crate) ahead: Ahead,
    /// The link that the host's records come over.
    pub(crate) link: LinkWatch,
    pub(crate) meter: Meter,
    pub(crate) stop: Stop,
    pub(crate) work: Work,
}

impl Collector {
    /// The loop of the collector thread.
    pub(crate) fn run(mut self) {
        while !self.stop.is_set() {
            while let Ok(command) = self.commands.try_recv() {
                self.obey(command);
            }
            self.hear();
            self.see_off();
            self.give_up_cancelled();
            self.pump();
            self.foretell();
            self.meter.note();
            let wake = self.work.epochs.iter_mut().filter(|epoch| !epoch.has_ended());
            let wake_ns = wake.filter_map(|epoch| {
                let now = epoch.now();
                epoch.state.wake_at(now).map(|at| at.since(now))
            });
            let wake_ns = wake_ns.min().unwrap_or(u64::MAX).max(1);
            self.ear.listen(PATIENCE.min(Duration::from_nanos(wake_ns)));
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Begin(brief) => self.work.briefs.push_back(*brief),
            Command::Want(number) => {
                let briefs = self.work.briefs.iter_mut();
                for brief in briefs.filter(|brief| brief.number == number) {
                    brief.is_wanted = true;
                }
                if let Some(epoch) = self.work.of(number) {
                    epoch.want();
                }
            }
            Command::End(number, reply) => self.end(number, &reply),
            Command::Join(line, producer, joined) => self.join(line, producer, joined),
            Command::Leave(line, member) => self.leave(line, &member),
            Command::Expel(device, why) => self.lost(place(Prong::Back(device)), why),
        }
    }

    fn end(&mut self, number: EpochNumber, reply: &Sender<Collected>) {
        // One that was not begun is begun to be ended: it says of itself that it has nothing.
        if let Some(at) = self.work.briefs.iter().position(|b| b.number == number) {
            self.begin(at);
        }
        let claims = self.revoke_all(number);
        let at = self.work.epochs.iter().position(|epoch| epoch.number == number);
        let Some(epoch) = at.and_then(|at| self.work.epochs.remove(at)) else { return };
        let collected = epoch.end(claims);
        // Whoever asked may have stopped waiting.
        let _ = reply.send(collected);
    }

    /// Stops making epochs that were broken off: the next one may begin much later, or never.
    fn give_up_cancelled(&mut self) {
        for number in self.work.cancelled() {
            let claims = self.revoke_all(number);
            if let Some(epoch) = self.work.of(number) {
                epoch.cancel(claims);
            }
        }
    }

    /// Revokes all jobs of an epoch.
    fn revoke_all(&mut self, number: EpochNumber) -> Vec<Claim> {
        let claims = self.work.take_claims(|of, _| of == number);
        for (job, _, claim) in &claims {
            self.revoke_job(*job, claim.prong());
        }
        self.abandon_the_idle();
        claims.into_iter().map(|(_, _, claim)| claim).collect()
    }

    /// Has devices forget what nobody waits for any more: one that has lost a job's answer
    /// would keep a place for it, and be asked no more.
    fn abandon_the_idle(&mut self) {
        for line in 1..self.lines.len() {
            let prong = self.lines[line].prong();
            let is_waited_for =
                self.work.claims.values().any(|(_, claim)| claim.prong() == prong);
            if is_waited_for {
                continue;
            }
            if let Err(lost) = self.lines[line].abandon() {
                self.lost(line, lost.to_string());
            }
        }
    }

    /// Begins the brief number `at`.
    fn begin(&mut self, at: usize) {
        let Some(brief) = self.work.briefs.remove(at) else { return };
        // The epoch before may still be under way: it knows best.
        let latest = self.work.epochs.back().map(|epoch| epoch.reports.clone());
        if let Some(latest) = latest {
            self.know(&latest);
        }
        let before = self.work.epochs.back().map(|epoch| &epoch.state);
        let epoch = Underway::begin(brief, &self.lines, &self.work.known, before);
        self.work.epochs.push_back(epoch);
    }

    fn know(&mut self, reports: &[LineReport]) {
        self.work.known.resize(self.lines.len(), LineReport::default());
        for (known, report) in self.work.known.iter_mut().zip(reports) {
            if report.n_made > 0 {
                known.clone_from(report);
            }
        }
    }
}

// ---- what is decided, done ------------------------------------------------------------

impl Collector {
    /// Does everything that can be done now.
    fn pump(&mut self) {
        if self.work.current().is_none() && !self.work.briefs.is_empty() {
            self.begin(0);
        }
        self.deliver();
        let to = self.link.devices();
        for line in 0..self.lines.len() {
            self.work.use_device(self.lines[line].prong(), to);
            if self.lines[line].tries_again() {
                self.work.joined(self.lines[line].prong(), Joins::Again);
            }
            while self.start(line) {}
        }
        // The first line is the front's.
        let has_devices = self.lines.len() > 1;
        self.link.devices_have(has_devices.then(|| self.work.n_at_devices()));
    }

    /// Says what the front makes next, behind the jobs that it has by now.
    fn foretell(&mut self) {
        let n = self.ahead.n_batches();
        if n > 0 {
            let soon = self.work.soon(n);
            self.ahead.say(soon);
        }
    }

    fn deliver(&mut self) {
        while let Some(at) = self.work.current() {
            if self.work.lacking_before(at) > 0 {
                // Its feed would convert in the slots that are left for those before it.
                return self.waits.awaits(Awaited::Finish);
            }
            let epoch = &mut self.work.epochs[at];
            if epoch.feed.as_ref().is_some_and(|feed| feed.len() >= FEED_ROOM) {
                return self.waits.awaits(Awaited::Finish);
            }
            match epoch.state.next_delivery(epoch.now()) {
                Pick::Deliver(batch) => self.hand_over(at, batch),
                Pick::Wait => return self.waits.awaits(self.awaited(at)),
                Pick::End => {
                    epoch.feed = None;
                    self.waits.awaits(Awaited::Finish);
                }
            }
        }
    }

    fn hand_over(&mut self, at: usize, batch: BatchIdx) {
        let epoch = &mut self.work.epochs[at];
        let Some(mut made) = epoch.made.remove(&batch) else {
            return self.fail(RuntimeError::Thread { thread: "collector" });
        };
        epoch.note(batch, made.prong, What::Delivered);
        epoch.state.delivered(batch, epoch.now());
        epoch.n_delivered += 1;
        if self.rings.converts(made.prong) {
            made.lacking = Some(epoch.lacking.one());
        }
        if let Some(feed) = &epoch.feed {
            // A feed that is gone means that the epoch is being cancelled.
            let _ = feed.send(Ok(made));
        }
    }

    /// Gives one producer one batch to make, of the first epoch that has one for it; false when
    /// there is none to give. An epoch is begun ahead of its time when nothing is left to claim
    /// of those before it.
    fn start(&mut self, line: usize) -> bool {
        if !self.lines[line].has_room() {
            return false;
        }
        let prong = self.lines[line].prong();
        let mut n_before = 0;
        let mut at = self.work.current().unwrap_or(self.work.epochs.len());
        // An epoch before may be with its feed, which has a batch to convert.
        let mut reserved = self.work.lacking_before(at);
        loop {
            if at == self.work.epochs.len() {
                if self.work.briefs.is_empty() {
                    return false;
                }
                self.begin(0);
            }
            let n_held = self.work.n_held_beside(at, prong);
            self.work.epochs[at].state.comes_after(prong, n_before, n_held);
            if self.start_of(at, line, reserved) {
                return true;
            }
            let epoch = &self.work.epochs[at];
            if !epoch.may_go_on(prong) {
                return false;
            }
            // What is being made may be lost, and is then made again by the host. What is left
            // to devices takes slots of theirs.
            n_before += epoch.state.n_unclaimed();
            reserved += self.work.n_claims(epoch.number) + ON_THE_WAY;
            at += 1;
        }
    }

    /// As [`Self::start`], of one epoch, leaving `reserved` slots of the front's ring free.
    fn start_of(&mut self, at: usize, line: usize, reserved: u32) -> bool {
        let prong = self.lines[line].prong();
        if reserved > 0 && self.rings.front.free() <= reserved {
            return false;
        }
        let Some(slot) = self.rings.of(prong).take(Duration::ZERO) else { return false };
        let epoch = &mut self.work.epochs[at];
        let now = epoch.now();
        let claim = match prong {
            Prong::Front => epoch.state.next_front(now),
            Prong::Back(device) => epoch.state.next_back(device, now),
        };
        let Some(claim) = claim else { return false };
        let batch = claim.batch();
        let what = match claim.kind() {
            ClaimKind::First => What::Claimed,
            ClaimKind::Rescue => What::Rescued,
        };
        self.work.next_id += 1;
        let id = JobId(self.work.next_id);
        let job = epoch.job(id, batch);
        let number = epoch.number;
        match self.lines[line].submit(job, slot) {
            Ok(()) => {
                epoch.note(batch, prong, what);
                self.work.claims.insert(id, (number, claim));
                true
            }
            Err(rejected) => {
                self.not_taken(line, (number, claim), *rejected);
                false
            }
        }
    }

    fn not_taken(
        &mut self,
        line: usize,
        (number, claim): (EpochNumber, Claim),
        rejected: Rejected,
    ) {
        match rejected.why {
            Rejection::Lost(lost) => {
                if let Some(epoch) = self.work.of(number) {
                    epoch.state.give_back(claim, epoch.now());
                }
                self.lost(line, lost.to_string());
            }
            Rejection::Full => {
                if let Some(epoch) = self.work.of(number) {
                    epoch.state.refused(claim, epoch.now());
                }
                if let Some(why) = self.lines[line].was_full() {
                    self.give_up(line, why);
                }
            }
            Rejection::Impossible(why) => self.broken(line, (number, claim), why),
        }
    }

    /// What the next batch to be passed on waits for.
    fn awaited(&self, at: usize) -> Awaited {
        let epoch = &self.work.epochs[at];
        let wanted = epoch.wanted_batch();
        let under = |is_front: bool| {
            let claims = self.work.claims.values();
            let own = claims.filter(|(of, _)| *of == epoch.number);
            own.filter(move |(_, claim)| (claim.prong() == Prong::Front) == is_front)
        };
        let has = |is_front: bool| {
            under(is_front)
                .any(|(_, claim)| wanted.is_none_or(|batch| claim.batch() == batch))
        };
        let idle =
            under(true).next().is_none() && !self.lines.iter().any(|line| line.owes());
        // Whoever makes the next batch holds the consumer, whatever else is made by then.
        let is_being_made = wanted.is_some() && (has(true) || has(false));
        // What is made and not delivered waits for another batch, which nobody has a slot for.
        if idle && self.rings.front.free() == 0 {
            Awaited::Consumer
        } else if !is_being_made && !epoch.made.is_empty() {
            Awaited::Turn
        } else if has(false) && !has(true) {
            Awaited::Device
        } else {
            Awaited::Front
        }
    }

    /// The epoch that delivers ends with an error.
    fn fail(&mut self, error: RuntimeError) {
        if let Some(at) = self.work.current()
            && let Some(feed) = self.work.epochs[at].feed.take()
        {
            let _ = feed.send(Err(error));
        }
    }
}

// ---- what happened --------------------------------------------------------------------

impl Collector {
    /// Takes in what the producers say.
    fn hear(&mut self) {
        for line in 0..self.lines.len() {
            while self.lines[line].is_up() {
                match self.lines[line].poll() {
                    Ok(Polled::Completion(completion)) => self.answered(line, completion),
                    Ok(Polled::Extra) => {
                        let prong = self.lines[line].prong();
                        let at = self.work.current();
                        if let Some(epoch) = at.map(|at| &mut self.work.epochs[at]) {
                            epoch.report(prong).extra += 1;
                        }
                    }
                    Ok(Polled::Nothing) => break,
                    Err(lost) => self.lost(line, lost.to_string()),
                }
            }
        }
    }

    fn answered(&mut self, line: usize, completion: Completion) {
        let Completion { job, slot, outcome, work_ns, lateness_ns } = completion;
        // Of an epoch that is over nobody waits for anything.
        let Some((number, claim)) = self.work.claims.remove(&job) else { return };
        match outcome {
            Outcome::NotBegun => {
                if let Some(epoch) = self.work.of(number) {
                    epoch.state.refused(claim, epoch.now());
                }
            }
            Outcome::Failed { reason } => {
                self.lines[line].worked(work_ns);
                if let Some(epoch) = self.work.of(number) {
                    epoch.note(claim.batch(), claim.prong(), What::Lost);
                }
                self.broken(line, (number, claim), reason);
            }
            Outcome::Made { bad, damaged } => {
                let work_ns = self.lines[line].worked(work_ns);
                if let Some(epoch) = self.work.of(number) {
                    epoch.report(claim.prong()).behind.add(lateness_ns);
                }
                self.made(line, (number, claim), (slot, bad, damaged), work_ns);
            }
        }
    }

    fn made(
        &mut self,
        line: usize,
        (number, claim): (EpochNumber, Claim),
        (slot, bad, damaged): (Slot, Vec<u32>, Vec<Damaged>),
        work_ns: u64,
    ) {
        let (batch, prong) = (claim.batch(), claim.prong());
        let Some(epoch) = self.work.of(number) else { return };
        let rows: Vec<_> = epoch.plan.samples(batch).collect();
        let n_valid = rows.iter().flatten().count();
        if let Some(why) = self.not_an_answer(prong, &slot, (&bad, &damaged), n_valid) {
            return self.broken(line, (number, claim), why.to_owned());
        }
        // A few bad samples are the data's fault; mostly bad ones are the device's.
        if prong != Prong::Front && bad.len() * 2 > n_valid {
            let n_bad = bad.len();
            let why = format!(
                "it could not preprocess {n_bad} of {n_valid} samples; does it have the data?"
            );
            return self.broken(line, (number, claim), why);
        }
        self.lines[line].made();
        let Some(epoch) = self.work.of(number) else { return };
        let (time_ns, n_rows) = epoch.report(prong).learn(work_ns, (n_valid, rows.len()));
        epoch.note(batch, prong, What::Made);
        let cost_ns = self.link.cost_ns(prong, time_ns, n_rows);
        if prong != Prong::Front {
            self.link.device_made(n_valid);
        }
        self.work.learn(number, prong, cost_ns);
        let Some(epoch) = self.work.of(number) else { return };
        if matches!(epoch.state.finish(claim, cost_ns, epoch.now()), Finish::Committed) {
            let made = Made {
                batch,
                prong,
                connection: self.lines[line].connection(),
                rows,
                slot,
                bad,
                damaged,
                lacking: None,
            };
            epoch.made.insert(batch, made);
            self.revoke(number, batch);
        }
    }

    /// What no sound producer answers with: whoever comes after this counts on it.
    fn not_an_answer(
        &self,
        prong: Prong,
        slot: &Slot,
        (bad, damaged): (&[u32], &[Damaged]),
        n_valid: usize,
    ) -> Option<&'static str> {
        if slot.len() != self.rings.of(prong).slot_bytes() {
            return Some("it answered with a slot that it was not given");
        }
        let is_within =
            |last: Option<u32>| last.is_none_or(|row| (row as usize) < n_valid);
        if !is_within(bad.last().copied()) || !bad.is_sorted_by(|a, b| a < b) {
            return Some("it named bad rows that do not exist");
        }
        let are_rows = is_within(damaged.last().map(|it| it.row))
            && damaged.is_sorted_by(|a, b| a.row < b.row);
        let is_bad = |it: &Damaged| bad.binary_search(&it.row).is_ok();
        (!are_rows || damaged.iter().any(is_bad))
            .then_some("it named damaged rows that it has not made")
    }

    /// A batch is made that others may still be busy with.
    fn revoke(&mut self, number: EpochNumber, batch: BatchIdx) {
        let claims = self.work.claims.iter();
        let late =
            claims.filter(|(_, (of, claim))| *of == number && claim.batch() == batch);
        let late: Vec<_> = late.map(|(job, (_, claim))| (*job, claim.prong())).collect();
        for (job, prong) in late {
            self.revoke_job(job, prong);
        }
    }

    fn revoke_job(&mut self, job: JobId, prong: Prong) {
        if let Some(line) = self.lines.iter().position(|line| line.prong() == prong)
            && let Err(lost) = self.lines[line].revoke(job)
        {
            self.lost(line, lost.to_string());
        }
    }

    /// A claim came to nothing through its producer's fault.
    fn broken(
        &mut self,
        line: usize,
        (number, claim): (EpochNumber, Claim),
        why: String,
    ) {
        let failed = self.lines[line].failed(&why);
        if let Some(epoch) = self.work.of(number) {
            epoch.report(claim.prong()).last_failure = Some(why);
            epoch.state.give_back(claim, epoch.now());
        }
        if let Some(why) = failed {
            self.lines[line].see_off();
            self.lost(line, why);
        }
    }

    /// A producer is gone. Without the host's own workers there is no epoch.
    pub(super) fn lost(&mut self, line: usize, why: String) {
        let prong = self.lines[line].prong();
        if prong == Prong::Front {
            return self.fail(RuntimeError::Thread { thread: "worker" });
        }
        self.lines[line].close();
        self.give_up(line, why);
    }

    /// A device takes part no longer, and what it had goes back to the plans.
    fn give_up(&mut self, line: usize, why: String) {
        let prong = self.lines[line].prong();
        let mut claims = self.work.take_claims(|_, claim| claim.prong() == prong);
        for epoch in &mut self.work.epochs {
            let own = claims.extract_if(.., |(_, of, _)| *of == epoch.number);
            let own = own.map(|(_, _, claim)| claim).collect();
            epoch.lost(prong, own);
        }
        let at = self.work.current().unwrap_or(self.work.epochs.len().saturating_sub(1));
        if let Some(epoch) = self.work.epochs.get_mut(at) {
            epoch.report(prong).lost = Some(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bothends_core::epoch::{DeviceConfig, EpochConfig, FrontConfig, Recovery};
    use bothends_core::ids::EpochIdx;
    use bothends_core::objective::Objective;
    use bothends_core::plan::{LastPolicy, Plan, PlanConfig, Shuffle};
    use bothends_core::select::StrategyConfig;
    use bothends_slots::{Job, Lost, RingConfig};
    use crossbeam::channel::{bounded, unbounded};

    use super::*;
    use crate::collect::log::EventLog;
    use crate::collect::producer::device_idx;
    use crate::collect::wakeup::bell;
    use crate::threads::times::{Ends, ThreadTimes};

    /// Has every job made as soon as it is asked.
    #[derive(Debug, Default)]
    struct Prompt(VecDeque<Completion>);

    impl Producer for Prompt {
        fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>> {
            let (job, outcome) =
                (job.id, Outcome::Made { bad: Vec::new(), damaged: Vec::new() });
            let work_ns = None;
            self.0.push_back(Completion {
                job,
                slot,
                outcome,
                work_ns,
                lateness_ns: Some(0),
            });
            Ok(())
        }

        fn poll(&mut self, _: Duration) -> Result<Polled, Lost> {
            Ok(self.0.pop_front().map_or(Polled::Nothing, Polled::Completion))
        }

        fn revoke(&mut self, _: JobId) -> Result<(), Lost> {
            Ok(())
        }

        fn abandon(&mut self) -> Result<(), Lost> {
            Ok(())
        }
    }

    /// Over a prompt host, a prompt device and so many slots of either kind.
    fn collector(n_front: u32, n_back: u32) -> Collector {
        let ring = |n_slots| Ring::new(RingConfig { n_slots, slot_bytes: 8 }).unwrap();
        let line = |prong| Line::new(prong, Some(Box::new(Prompt::default())), 2);
        Collector {
            commands: unbounded().1,
            rings: Rings { front: ring(n_front), back: Some(ring(n_back)) },
            lines: vec![line(Prong::Front), line(Prong::Back(device_idx(0)))],
            ear: bell().1,
            waits: Arc::default(),
            link: LinkWatch::default(),
            ahead: Ahead::default(),
            meter: ThreadTimes::new(1).meter(Ends::Both),
            stop: Stop::default(),
            work: Work::default(),
        }
    }

    impl Collector {
        /// Begins an epoch of so many batches; where its feed gets them.
        fn told_of(
            &mut self,
            number: EpochNumber,
            n_batches: u32,
            strategy: StrategyConfig,
        ) -> Receiver<Result<Made, RuntimeError>> {
            let (epoch, (feed, made)) = (EpochIdx(0), bounded(FEED_ROOM + 1));
            let plan = Plan::new(PlanConfig {
                n_samples: u64::from(n_batches),
                batch_size: 1,
                shuffle: Shuffle::Full,
                seed: 1,
                epoch,
                rank: 0,
                world: 1,
                last: LastPolicy::Wrap,
                consumers: 1,
                start: 0,
                repetitions: 1,
            });
            let device = DeviceConfig {
                slots: 2,
                buffer: 2,
                prior_ns: None,
                shard: None,
                standing: bothends_core::epoch::Standing::New,
            };
            let config = EpochConfig {
                n_batches,
                strategy,
                objective: Objective::default(),
                back_quota: None,
                shards: 1,
                front: FrontConfig { parallel: 1, quota: 2, prior_ns: None },
                devices: vec![device],
                accelerator_ns: None,
                done: Vec::new(),
                recovery: Recovery::On,
            };
            let (plan, log) = (Arc::new(plan.unwrap()), EventLog::watched(unbounded().0));
            let is_wanted = true;
            let stop = Stop::default();
            let brief = Brief { number, config, plan, epoch, feed, log, is_wanted, stop };
            self.obey(Command::Begin(Box::new(brief)));
            made
        }

        /// All that can happen, happens.
        fn goes_on(&mut self) {
            for _ in 0..50 {
                self.hear();
                self.give_up_cancelled();
                self.pump();
            }
        }
    }

    /// The feed of an epoch is at its last batch, which a device made: it mends or audits it, and
    /// wants a slot to convert it in when that is done.
    #[test]
    fn a_prefetched_epoch_leaves_the_feed_before_it_the_slot_it_wants() {
        let mut collector = collector(5, 2);
        let first = collector.told_of(1, 3, StrategyConfig::Csd);
        let second = collector.told_of(2, 20, StrategyConfig::Cpu);
        let convert = |collector: &Collector| {
            collector.rings.front.take(Duration::ZERO).expect("a slot to convert in")
        };
        // The consumer has all that it may hold.
        let mut held = Vec::new();
        while held.len() < 2 {
            collector.goes_on();
            drop(first.try_recv().expect("a batch of the device's").unwrap());
            held.push(convert(&collector));
        }
        collector.goes_on();
        let last = first.try_recv().expect("the last batch").unwrap();
        collector.goes_on();
        assert!(first.try_recv().is_err(), "the epoch has been handed over");
        assert_eq!(collector.rings.front.free(), 1, "the next one is prefetched");
        assert!(second.is_empty(), "its feed would convert, too");
        held.push(convert(&collector));
        drop(last);
        collector.goes_on();
        assert_eq!((collector.rings.front.free(), second.len()), (0, FEED_ROOM));
    }

    /// Its feed was gone, so its queue was never full, and all of it was made and thrown away.
    #[test]
    fn an_epoch_that_nobody_wants_any_more_is_made_no_further() {
        let mut collector = collector(5, 2);
        let made = collector.told_of(1, 1000, StrategyConfig::Relaxed);
        let stop = collector.work.briefs.back().unwrap().stop.clone();
        collector.goes_on();
        drop(made.try_recv().expect("a batch").unwrap());
        stop.set();
        drop(made);
        let n_jobs = collector.work.next_id;
        collector.goes_on();
        assert_eq!(collector.work.next_id, n_jobs);
        assert!(collector.work.claims.is_empty());
        let back = collector.rings.back.as_ref().unwrap();
        assert_eq!((collector.rings.front.free(), back.free()), (5, 2));
        // The next one is, as if nothing had been.
        let next = collector.told_of(2, 3, StrategyConfig::Cpu);
        let mut n_made = 0;
        while n_made < 3 {
            collector.goes_on();
            drop(next.try_recv().expect("a batch of the next epoch").unwrap());
            n_made += 1;
        }
    }
}
