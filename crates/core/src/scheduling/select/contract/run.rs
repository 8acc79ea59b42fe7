//! All ranks of a schedule through all its parts: what each delivers, what it saves, and what the next
//! part makes of that.
//!
//! The reference is arithmetic on global positions, and the content of a run of the host alone; it does
//! not use `plan.rs`. What happens within a part is in `contract/rank.rs`.

use crate::digest::{ContentDigest, StreamDigest, sample_digest};
use crate::epoch::{EpochConfig, Recovery};
use crate::ids::{EpochIdx, Label, SampleId};
use crate::permutation::Permutation;
use crate::plan::{LastPolicy, Plan, PlanConfig, Shuffle};
use crate::resume::{Resume, RunIdentity};
use crate::select::contract::rank::{self, Played};
use crate::select::contract::{Part, Schedule};

/// Plays a schedule; see [`Schedule::play`].
pub(super) fn play(schedule: &Schedule) {
    let mut run = Run::new(schedule);
    for (at, part) in schedule.parts.iter().enumerate() {
        run.enter(part.world);
        let next = schedule.parts.get(at + 1);
        let stops: Vec<_> =
            (0..run.world).map(|rank| run.n_stop(rank, part, next)).collect();
        for (rank, n_stop) in (0..).zip(stops) {
            run.play_rank(rank, part, n_stop);
        }
    }
    run.check_end();
}

struct Run<'a> {
    schedule: &'a Schedule,
    /// The sample at each position.
    order: Vec<SampleId>,
    world: u32,
    /// The position from which on there have been so many ranks; after the last where a
    /// larger number has wrapped.
    base: u64,
    /// Batches of each rank from the base to the end.
    n_steps: u32,
    /// Of every rank that there ever was.
    ranks: Vec<Progress>,
}

/// How far a rank has come.
struct Progress {
    /// Batches consumed since the base.
    n_consumed: u32,
    /// Samples delivered.
    delivered: Vec<SampleId>,
    /// Samples that should have been, in the plan's order.
    expected: Vec<SampleId>,
    saved: Resume,
}

impl<'a> Run<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        let PlanConfig { n_samples, seed, epoch, shuffle, .. } = schedule.plan;
        let permutation = Permutation::new(n_samples, seed, epoch);
        let order = (0..n_samples).map(|position| match shuffle {
            Shuffle::None | Shuffle::Supplied => SampleId(position),
            Shuffle::Full => SampleId(permutation.at(position)),
        });
        let order = order.collect();
        Self { schedule, order, world: 1, base: 0, n_steps: 0, ranks: Vec::new() }
    }

    /// Begins a part, with a different number of ranks if what the ranks have saved allows it.
    fn enter(&mut self, world: u32) {
        for rank in self.ranks.iter_mut().take(self.world as usize) {
            let text = rank.saved.to_json();
            rank.saved = Resume::from_json(&text).expect("what was written is read");
        }
        if world != self.world && self.may_become(world) {
            if let Some(rank) = self.ranks.first() {
                let consumed = u64::from(rank.n_consumed) * self.step_size();
                self.base = self.end().min(self.base + consumed);
            }
            self.world = world;
            for rank in &mut self.ranks {
                rank.n_consumed = 0;
                rank.saved.position = self.base.min(self.schedule.plan.n_samples);
            }
        }
        let position = self.base.min(self.schedule.plan.n_samples);
        while self.ranks.len() < self.world as usize {
            self.ranks.push(Progress::new(self.identity(self.world), position));
        }
        let plan = Plan::new(self.plan(0, self.world, position));
        self.n_steps = plan.expect("it was one before").n_batches();
    }

    /// Whether there may be a different number of ranks: not where one counts in the batches of
    /// this number, and not for a plan that is none.
    fn may_become(&self, world: u32) -> bool {
        let wanted = self.identity(world);
        let active = || self.ranks.iter().take(self.world as usize);
        for rank in active() {
            let is_allowed = rank.saved.check(&wanted).is_ok();
            assert_eq!(is_allowed, rank.saved.done.is_empty(), "the number of ranks");
        }
        let start = self.ranks.first().map_or(0, |rank| rank.saved.position);
        active().all(|rank| rank.saved.done.is_empty() && rank.saved.position == start)
            && Plan::new(self.plan(0, world, start)).is_ok()
    }

    /// Batches of a rank after which it is stopped, from the base. Where the number of ranks
    /// is to change all stop together; else each where it is.
    fn n_stop(&self, rank: u32, part: &Part, next: Option<&Part>) -> u32 {
        let n_consumed = |rank: &Progress| rank.n_consumed;
        let n_stop = match next {
            None => self.n_steps,
            Some(next) if next.world == self.world => {
                self.ranks[rank as usize].n_consumed + part.stop_after / (rank + 1)
            }
            Some(_) => {
                let active = self.ranks.iter().take(self.world as usize);
                active.map(n_consumed).max().unwrap_or(0) + part.stop_after
            }
        };
        n_stop.min(self.n_steps)
    }

    fn play_rank(&mut self, rank: u32, part: &Part, n_stop: u32) {
        let keeps_order = self.schedule.strategy.keeps_order();
        let progress = &self.ranks[rank as usize];
        let plan = self.plan(rank, self.world, progress.saved.position);
        let plan = Plan::new(plan).expect("it was one without its rank");
        let n_before = if keeps_order { progress.n_consumed } else { 0 };
        assert_eq!(plan.n_batches(), self.n_steps - n_before, "batches to the end");
        let config = self.epoch(part, plan.n_batches(), &progress.saved.done);
        let n_each = part.events.len().div_ceil(self.world as usize).max(1);
        let events = part.events.chunks(n_each).nth(rank as usize).unwrap_or_default();
        let n_new = n_stop - progress.n_consumed;
        let Played { consumed, done } = rank::play(part, &config, events, n_new as usize);

        let steps = progress.n_consumed..n_stop;
        let expected: Vec<_> = steps.flat_map(|step| self.samples(rank, step)).collect();
        let identity = self.identity(self.world);
        let position = self.base + u64::from(n_stop) * self.step_size();
        let progress = &mut self.ranks[rank as usize];
        progress.expected.extend(expected);
        progress.n_consumed = n_stop;
        for sample in consumed.iter().flat_map(|batch| plan.samples(*batch)).flatten() {
            progress.deliver(sample);
        }
        progress.saved.run = identity;
        if keeps_order {
            progress.saved.position = plan.position_after(n_new);
            let most = self.schedule.plan.n_samples;
            assert_eq!(progress.saved.position, position.min(most), "position");
        } else {
            progress.saved.done = done;
        }
    }

    /// The samples that a rank delivers in a step from the base.
    fn samples(&self, rank: u32, step: u32) -> impl Iterator<Item = SampleId> + use<'_> {
        let first = self.base + u64::from(step) * self.step_size();
        let n_of_rank =
            (self.end() - first).min(self.step_size()) / u64::from(self.world);
        let first = first + u64::from(rank) * n_of_rank;
        let positions = first..first + n_of_rank;
        positions.filter_map(move |position| self.sample_at(position))
    }

    /// The position after the last of all ranks.
    fn end(&self) -> u64 {
        let left = self.schedule.plan.n_samples.saturating_sub(self.base);
        self.base
            + match self.schedule.plan.last {
                LastPolicy::Even => left.next_multiple_of(self.world.into()),
                LastPolicy::Drop | LastPolicy::Pad | LastPolicy::Wrap => {
                    u64::from(self.n_steps) * self.step_size()
                }
            }
    }

    fn sample_at(&self, position: u64) -> Option<SampleId> {
        let at = usize::try_from(position).ok()?;
        match self.schedule.plan.last {
            LastPolicy::Wrap | LastPolicy::Even => {
                self.order.get(at % self.order.len()).copied()
            }
            LastPolicy::Drop | LastPolicy::Pad => self.order.get(at).copied(),
        }
    }

    fn check_end(&self) {
        let mut content = ContentDigest::default();
        let mut counts = vec![0_i32; self.order.len()];
        for sample in (0..self.end()).filter_map(|position| self.sample_at(position)) {
            content.add(digest_of(sample));
            counts[place(sample)] += 1;
        }
        let mut delivered = ContentDigest::default();
        for rank in &self.ranks {
            rank.check(self.schedule);
            delivered.merge(rank.saved.content);
            for sample in &rank.delivered {
                counts[place(*sample)] -= 1;
            }
        }
        let wrong = counts.iter().position(|count| *count != 0);
        assert_eq!(wrong, None, "this sample is missing, or delivered too often");
        assert_eq!(delivered, content, "another content than the host's alone");
    }

    /// Positions that all ranks together deliver in a step.
    fn step_size(&self) -> u64 {
        u64::from(self.schedule.plan.batch_size) * u64::from(self.world)
    }

    fn plan(&self, rank: u32, world: u32, start: u64) -> PlanConfig {
        PlanConfig { rank, world, start, ..self.schedule.plan }
    }

    fn epoch(&self, part: &Part, n_batches: u32, done: &[(u32, u32)]) -> EpochConfig {
        EpochConfig {
            n_batches,
            strategy: self.schedule.strategy,
            front: part.front,
            objective: part.objective,
            devices: part.devices.iter().map(|device| device.config).collect(),
            back_quota: part.back_quota,
            shards: part.shards,
            accelerator_ns: part.accelerator_ns,
            done: done.to_vec(),
            recovery: Recovery::On,
        }
    }

    fn identity(&self, world: u32) -> RunIdentity {
        let PlanConfig { n_samples, batch_size, shuffle, seed, last, .. } =
            self.schedule.plan;
        let strategy = self.schedule.strategy.name().to_owned();
        let (recipe_hash, manifest_hash) = (1, 2);
        RunIdentity {
            seed,
            recipe_hash,
            manifest_hash,
            n_samples,
            batch_size,
            shuffle,
            last,
            world,
            strategy,
            plan: Some(7),
        }
    }
}

impl Progress {
    fn new(run: RunIdentity, position: u64) -> Self {
        let saved = Resume {
            run,
            epoch: EpochIdx(0),
            position,
            done: Vec::new(),
            order: None,
            n_delivered: 0,
            stream: StreamDigest::new(),
            content: ContentDigest::default(),
            digest_of: None,
        };
        Self { n_consumed: 0, delivered: Vec::new(), expected: Vec::new(), saved }
    }

    fn deliver(&mut self, sample: SampleId) {
        self.delivered.push(sample);
        self.saved.n_delivered += 1;
        self.saved.stream.add(sample, LABEL, &bytes_of(sample));
        self.saved.content.add(digest_of(sample));
    }

    /// In the plan's order where the strategy says so, else in any; and what was carried
    /// through the saved states is what one run would have.
    fn check(&self, schedule: &Schedule) {
        let mut stream = StreamDigest::new();
        for sample in &self.delivered {
            stream.add(*sample, LABEL, &bytes_of(*sample));
        }
        assert_eq!(self.saved.stream.digest(), stream.digest(), "stream digest");
        assert_eq!(self.saved.n_delivered, self.delivered.len() as u64, "samples");
        if schedule.strategy.keeps_order() {
            assert_eq!(self.delivered, self.expected, "not the plan's order");
        } else {
            let mut sorted = [self.delivered.clone(), self.expected.clone()];
            sorted.iter_mut().for_each(|samples| samples.sort_unstable());
            assert_eq!(sorted[0], sorted[1], "not this rank's samples");
        }
    }
}

const LABEL: Label = Label(3);

/// A sample's content depends on its id alone.
fn bytes_of(sample: SampleId) -> [u8; 8] {
    sample.0.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()
}

fn digest_of(sample: SampleId) -> u128 {
    sample_digest(sample, LABEL, &bytes_of(sample))
}

fn place(sample: SampleId) -> usize {
    usize::try_from(sample.0).unwrap_or(usize::MAX)
}
