//! The training jobs that sessions are of: their numbers, their weights, and what has been done for each.
//!
//! A job is a name among the hosts that have proved the same ([`Credential`]). It is remembered for a while
//! after its last session, so that what was counted for it can still be asked. Who is served next is
//! decided in `work/shares.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use bothends_csd::admission::Credential;
use bothends_csd::{JobTerms, Session};

use crate::work::shares::{JobNumber, WEIGHT_ONE};

/// Jobs that are remembered: beyond it those are forgotten that have no session, the oldest first.
const MOST_JOBS: usize = 256;

/// Among whom results are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// Hosts that have proved the same: they have one key, one certificate, or are of one user.
    #[default]
    Credential,
    /// All hosts that are admitted.
    Everybody,
}

/// What has been done for a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobCounts {
    /// Its name.
    pub name: String,
    /// Its sessions that are open.
    pub sessions: u32,
    /// Samples that its hosts got.
    pub samples: u64,
    /// Of these, copies of what was made for others, or for itself before.
    pub shared_samples: u64,
    /// Seconds that workers spent on it, all together.
    pub worker_seconds: f64,
}

/// All jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    sharing: Sharing,
    owners: BTreeMap<Credential, u64>,
    known: BTreeMap<JobNumber, Job>,
    n_ever: JobNumber,
}

#[derive(Debug)]
struct Job {
    owner: Option<u64>,
    counts: JobCounts,
    worked_ns: u64,
}

impl Jobs {
    pub(crate) fn share_with(&mut self, sharing: Sharing) {
        self.sharing = sharing;
    }

    /// Among whom the results of a host that has proved this are shared; `None`: it shares with nobody.
    pub(crate) fn owner(&mut self, credential: Option<Credential>) -> Option<u64> {
        match self.sharing {
            Sharing::Everybody => Some(0),
            Sharing::Credential => self.number_of(credential),
        }
    }

    fn number_of(&mut self, credential: Option<Credential>) -> Option<u64> {
        let next = self.owners.len() as u64 + 1;
        credential.map(|credential| *self.owners.entry(credential).or_insert(next))
    }

    /// Notes a session of a host that has proved this: the number of its job, and its weight.
    pub(crate) fn enter(
        &mut self,
        session: &Session,
        credential: Option<Credential>,
    ) -> (Option<JobNumber>, u64) {
        let Some(terms) = &session.job else { return (None, WEIGHT_ONE) };
        let owner = self.number_of(credential);
        let is_it = |job: &Job| job.owner == owner && job.counts.name == terms.name;
        let found = self.known.iter().find(|(_, job)| is_it(job)).map(|(at, _)| *at);
        let number = found.unwrap_or(self.n_ever);
        let job = self.known.entry(number).or_insert_with(|| {
            self.n_ever += 1;
            let counts = JobCounts { name: terms.name.clone(), ..JobCounts::default() };
            Job { owner, counts, worked_ns: 0 }
        });
        job.counts.sessions += 1;
        while self.known.len() > MOST_JOBS && self.forget_one() {}
        (Some(number), weight(terms))
    }

    fn forget_one(&mut self) -> bool {
        let over = self.known.iter().find(|(_, job)| job.counts.sessions == 0);
        let Some(number) = over.map(|(number, _)| *number) else { return false };
        self.known.remove(&number).is_some()
    }

    /// A session of the job has ended.
    pub(crate) fn leave(&mut self, job: Option<JobNumber>) {
        if let Some(job) = self.of(job) {
            job.counts.sessions = job.counts.sessions.saturating_sub(1);
        }
    }

    /// Workers spent so long on it.
    pub(crate) fn worked(&mut self, job: Option<JobNumber>, took_ns: u64) {
        if let Some(job) = self.of(job) {
            job.worked_ns = job.worked_ns.saturating_add(took_ns);
        }
    }

    /// So many samples are done, of which so many are copies.
    pub(crate) fn made(&mut self, job: Option<JobNumber>, n_samples: u64, n_shared: u64) {
        if let Some(Job { counts, .. }) = self.of(job) {
            counts.samples += n_samples;
            counts.shared_samples += n_shared;
        }
    }

    fn of(&mut self, job: Option<JobNumber>) -> Option<&mut Job> {
        job.and_then(|job| self.known.get_mut(&job))
    }

    /// What was counted, by name: jobs of different owners may have the same one, and then count together.
    pub(crate) fn counts(&self) -> Vec<JobCounts> {
        let mut by_name: BTreeMap<&str, JobCounts> = BTreeMap::new();
        for Job { counts, worked_ns, .. } in self.known.values() {
            let all = by_name.entry(&counts.name).or_insert_with(|| JobCounts {
                name: counts.name.clone(),
                ..JobCounts::default()
            });
            all.sessions += counts.sessions;
            all.samples += counts.samples;
            all.shared_samples += counts.shared_samples;
            all.worker_seconds += Duration::from_nanos(*worked_ns).as_secs_f64();
        }
        by_name.into_values().collect()
    }
}

/// The weight of a job: its share, doubled for each step of its priority.
fn weight(terms: &JobTerms) -> u64 {
    let one = u64::from(terms.share.max(1)) * WEIGHT_ONE;
    let steps = u32::from(terms.priority.unsigned_abs()).min(4);
    if terms.priority < 0 { (one >> steps).max(1) } else { one << steps }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(name: &str, priority: i8, share: u8) -> Session {
        let job = Some(JobTerms { name: name.to_owned(), priority, share });
        let (recipe, manifest) = (String::new(), Vec::new());
        let (recipe_hash, seed, sample_bytes, max_batch) = (0, 0, 1, 1);
        Session {
            recipe,
            recipe_hash,
            seed,
            sample_bytes,
            max_batch,
            manifest,
            job,
            run: None,
        }
    }

    #[test]
    fn a_step_of_priority_doubles_the_weight_and_a_share_multiplies_it() {
        let mut jobs = Jobs::default();
        let mut weight =
            |priority, share| jobs.enter(&session("a", priority, share), None).1;
        assert_eq!([weight(0, 1), weight(1, 1), weight(-4, 1)], [16, 32, 1]);
        assert_eq!([weight(0, 3), weight(4, 100)], [48, 25_600]);
    }

    #[test]
    fn a_job_is_a_name_among_those_who_have_proved_the_same() {
        let mut jobs = Jobs::default();
        let [one, other] =
            ["1", "2"].map(|key| Some(Credential::of("key", key.as_bytes())));
        let mut enter = |name, of| jobs.enter(&session(name, 0, 1), of).0.unwrap();
        let first = enter("a", one);
        assert_eq!(enter("a", one), first);
        assert_ne!(enter("a", other), first);
        assert_ne!(enter("b", one), first);
        jobs.made(Some(first), 10, 3);
        let counts = jobs.counts();
        let a = counts.iter().find(|job| job.name == "a").unwrap();
        assert_eq!((a.sessions, a.samples, a.shared_samples), (3, 10, 3));
        assert!(jobs.owner(None).is_none() && jobs.owner(one) != jobs.owner(other));
        jobs.share_with(Sharing::Everybody);
        assert!(jobs.owner(None).is_some() && jobs.owner(one) == jobs.owner(None));
    }

    #[test]
    fn jobs_without_sessions_are_forgotten_when_there_are_many() {
        let mut jobs = Jobs::default();
        for n in 0..2 * MOST_JOBS {
            let (number, _) = jobs.enter(&session(&format!("job-{n}"), 0, 1), None);
            if n > 0 {
                jobs.leave(number);
            }
        }
        let counts = jobs.counts();
        assert!(counts.len() <= MOST_JOBS + 1, "{}", counts.len());
        assert!(counts.iter().any(|job| job.name == "job-0"), "it has a session");
    }
}
