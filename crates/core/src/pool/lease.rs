//! Which job a free agent works for next, decided for a whole pool at once.
//!
//! A job asks for an agent by saying when its consumer will want the batch. Jobs whose need is near are
//! *starving*; they share the agents by their weights (start-time fair queueing), so that none is pushed
//! below its share. While nobody starves, the earliest need comes first. A job that is fed asks for a batch
//! that is needed late, and so takes nothing from one that starves.
//!
//! An answer takes time logarithmic in the number of jobs. Nothing here knows agents, batches or clocks.

use std::collections::BTreeSet;

use crate::ids::Ns;

/// Cost is divided by weight; this keeps the digits after the point.
const SCALE: u64 = 256;

/// The order in which jobs are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// As they asked: what a queue without any rule does.
    FirstCome,
    /// By weight alone, whoever needs a batch when.
    Fair,
    /// Those that starve by weight, then by need.
    Need,
}

/// A job of a pool, in the order of [`Leases::add`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobIdx(pub u32);

/// What jobs ask of a pool.
#[derive(Debug, Clone)]
pub struct Leases {
    policy: Policy,
    /// A need as near as this cannot wait.
    urgent_ns: u64,
    jobs: Vec<Job>,
    /// By need, or by the order of asking; first come, first served, and jobs that do not starve.
    patient: BTreeSet<(u64, JobIdx)>,
    /// By start tag: what a job has received for its weight.
    starving: BTreeSet<(u64, JobIdx)>,
    /// The start tag of the job that was served last.
    clock: u64,
    /// Needs up to this one were near when an agent last asked.
    near: Ns,
    n_asked: u64,
}

#[derive(Debug, Clone, Copy)]
struct Job {
    weight: u64,
    /// What it has received for its weight, in starving times.
    received: u64,
    place: Place,
    /// The start tag it had when it was chosen, if it starved.
    charged: bool,
}

/// Where a job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    Patient(u64),
    Starving(u64),
}

impl Leases {
    /// Nobody asks yet. `urgent_ns` is about what an agent takes for a batch, transfer included.
    #[must_use]
    pub fn new(policy: Policy, urgent_ns: u64) -> Self {
        Self {
            policy,
            urgent_ns,
            jobs: Vec::new(),
            patient: BTreeSet::new(),
            starving: BTreeSet::new(),
            clock: 0,
            near: Ns(0),
            n_asked: 0,
        }
    }

    /// One more job, with its weight; 0 counts as 1.
    pub fn add(&mut self, weight: u32) -> JobIdx {
        let idx = JobIdx(u32::try_from(self.jobs.len()).unwrap_or(u32::MAX));
        self.jobs.push(Job {
            weight: u64::from(weight.max(1)),
            received: 0,
            place: Place::Nowhere,
            charged: false,
        });
        idx
    }

    /// The job asks for one batch, which its consumer will want at `need`. Asking again replaces the need.
    pub fn ask(&mut self, job: JobIdx, need: Ns) {
        let Some(state) = self.jobs.get(job.0 as usize).copied() else { return };
        let place = match (self.policy, state.place) {
            // It keeps its place in the queue, and its turn among the starving.
            (Policy::FirstCome, Place::Patient(_))
            | (Policy::Fair, Place::Starving(_)) => {
                return;
            }
            (Policy::FirstCome, _) => {
                self.n_asked += 1;
                Place::Patient(self.n_asked)
            }
            (Policy::Need, Place::Starving(_)) if need <= self.near => return,
            (Policy::Fair, _) => Place::Starving(state.received.max(self.clock)),
            (Policy::Need, _) => Place::Patient(need.0),
        };
        self.put(job, place);
    }

    /// The job asks for nothing any more.
    pub fn withdraw(&mut self, job: JobIdx) {
        if (job.0 as usize) < self.jobs.len() {
            self.put(job, Place::Nowhere);
        }
    }

    /// Whether any job asks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patient.is_empty() && self.starving.is_empty()
    }

    /// The job for which a free agent works next. It has its agent, and must ask again for another one.
    pub fn next(&mut self, now: Ns) -> Option<JobIdx> {
        if self.policy == Policy::Need {
            self.find_starving(now);
        }
        let (job, charged) = match self.starving.first() {
            Some((tag, job)) => {
                self.clock = self.clock.max(*tag);
                (*job, true)
            }
            None => (self.patient.first()?.1, false),
        };
        self.put(job, Place::Nowhere);
        self.jobs[job.0 as usize].charged = charged;
        Some(job)
    }

    /// What the batch cost that the job was chosen for last, in agent time. Only what a job takes while
    /// others go without counts against it.
    pub fn charge(&mut self, job: JobIdx, cost_ns: u64) {
        let clock = self.clock;
        if let Some(state) = self.jobs.get_mut(job.0 as usize).filter(|it| it.charged) {
            let cost = cost_ns.saturating_mul(SCALE) / state.weight;
            state.received = state.received.max(clock).saturating_add(cost);
        }
    }

    /// Moves the jobs whose need has come near.
    fn find_starving(&mut self, now: Ns) {
        let near = now.plus(self.urgent_ns);
        self.near = near;
        while let Some(&(need, job)) = self.patient.first() {
            if need > near.0 {
                return;
            }
            let tag = self.jobs[job.0 as usize].received.max(self.clock);
            self.put(job, Place::Starving(tag));
        }
    }

    fn put(&mut self, job: JobIdx, place: Place) {
        let state = &mut self.jobs[job.0 as usize];
        match std::mem::replace(&mut state.place, place) {
            Place::Nowhere => {}
            Place::Patient(key) => {
                self.patient.remove(&(key, job));
            }
            Place::Starving(tag) => {
                self.starving.remove(&(tag, job));
            }
        }
        match place {
            Place::Nowhere => {}
            Place::Patient(key) => {
                self.patient.insert((key, job));
            }
            Place::Starving(tag) => {
                self.starving.insert((tag, job));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COST: u64 = 1_000;
    const FAR: Ns = Ns(1_000_000);

    fn pool(policy: Policy, weights: &[u32]) -> (Leases, Vec<JobIdx>) {
        let mut leases = Leases::new(policy, COST);
        let jobs = weights.iter().map(|weight| leases.add(*weight)).collect();
        (leases, jobs)
    }

    /// Serves `n` batches to jobs that always ask; how many each got.
    fn serve(leases: &mut Leases, needs: &[(JobIdx, Ns)], n: u32) -> Vec<u32> {
        let mut got = vec![0; needs.len()];
        for (job, need) in needs {
            leases.ask(*job, *need);
        }
        for _ in 0..n {
            let job = leases.next(Ns(0)).unwrap();
            leases.charge(job, COST);
            got[job.0 as usize] += 1;
            leases.ask(job, needs[job.0 as usize].1);
        }
        got
    }

    #[test]
    fn a_fed_job_takes_nothing_from_one_that_starves() {
        let (mut leases, jobs) = pool(Policy::Need, &[1, 1]);
        let needs = [(jobs[0], Ns(0)), (jobs[1], FAR)];
        assert_eq!(serve(&mut leases, &needs, 100), [100, 0]);
        // And is served once nobody starves.
        leases.withdraw(jobs[0]);
        assert_eq!(leases.next(Ns(0)), Some(jobs[1]));
        assert_eq!(leases.next(Ns(0)), None);
        assert!(leases.is_empty());
    }

    #[test]
    fn while_nobody_starves_the_earliest_need_comes_first() {
        let (mut leases, jobs) = pool(Policy::Need, &[1, 100, 1]);
        for (job, need) in jobs.iter().zip([30_000, 20_000, 10_000]) {
            leases.ask(*job, Ns(need));
        }
        leases.ask(jobs[1], Ns(9_000)); // asked again
        let order: Vec<_> = std::iter::from_fn(|| leases.next(Ns(0))).collect();
        assert_eq!(order, [jobs[1], jobs[2], jobs[0]]);
    }

    #[test]
    fn a_job_that_was_away_has_no_credit() {
        let (mut leases, jobs) = pool(Policy::Need, &[1, 1]);
        serve(&mut leases, &[(jobs[0], Ns(0))], 1_000);
        let both = [(jobs[0], Ns(0)), (jobs[1], Ns(0))];
        let got = serve(&mut leases, &both, 100);
        assert!(got.iter().all(|n| (49..=51).contains(n)), "{got:?}");
    }

    #[test]
    fn without_a_rule_the_one_that_asked_first_comes_first() {
        let (mut leases, jobs) = pool(Policy::FirstCome, &[1, 9]);
        let needs = [(jobs[0], FAR), (jobs[1], Ns(0))];
        assert_eq!(serve(&mut leases, &needs, 100), [50, 50]);
    }

    #[test]
    fn a_job_that_is_none_changes_nothing() {
        let (mut leases, _) = pool(Policy::Need, &[1]);
        leases.ask(JobIdx(7), Ns(0));
        leases.charge(JobIdx(7), 1);
        leases.withdraw(JobIdx(7));
        assert_eq!(leases.next(Ns(0)), None);
    }

    proptest! {
        #[test]
        fn those_that_starve_share_by_weight(
            weights in prop::collection::vec(1_u32..20, 1..40),
            policy in prop::sample::select(vec![Policy::Fair, Policy::Need]),
        ) {
            let (mut leases, jobs) = pool(policy, &weights);
            let needs: Vec<_> = jobs.iter().map(|job| (*job, Ns(0))).collect();
            let sum: u32 = weights.iter().sum();
            let got = serve(&mut leases, &needs, sum * 20);
            for (weight, got) in weights.iter().zip(got) {
                let due = weight * 20;
                prop_assert!(got.abs_diff(due) <= 2, "{got} and not {due}");
            }
        }

        #[test]
        fn nobody_starves_forever(
            weights in prop::collection::vec(1_u32..100, 1..20),
            needs in prop::collection::vec(0_u64..5_000, 20),
        ) {
            let (mut leases, jobs) = pool(Policy::Need, &weights);
            let needs: Vec<_> =
                jobs.iter().zip(needs).map(|(job, need)| (*job, Ns(need))).collect();
            let near = needs.iter().map(|(_, need)| need.0 <= COST).collect::<Vec<_>>();
            let got = serve(&mut leases, &needs, 2_000);
            for (got, near) in got.iter().zip(&near) {
                prop_assert!(*got > 0 || !*near, "{got:?}");
            }
        }
    }
}
