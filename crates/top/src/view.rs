//! Rows from two looks: counters become rates, and the ranks of a job are added up. Pure.

use std::collections::{BTreeMap, BTreeSet};

use bothends_scrape::samples;

use crate::look::{Answer, Look};

/// Every rate is of the time between the two looks, and unknown without an earlier one.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct View {
    pub(crate) jobs: Vec<Job>,
    pub(crate) ranks: Vec<Rank>,
    pub(crate) agents: Vec<Agent>,
    pub(crate) absent: Vec<Absent>,
}

/// A rank of a run, or all of them in `Job`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fed {
    /// Samples per second.
    pub(crate) rate: Option<f64>,
    /// The part of these that devices made.
    pub(crate) by_devices: Option<f64>,
    /// The part of the time in which the training loop had no batch.
    pub(crate) stalled: Option<f64>,
    /// What was waited for most.
    pub(crate) cause: Option<&'static str>,
    /// Samples per second that the training loop would take if it never waited.
    pub(crate) need: Option<f64>,
}

/// One run, with all its ranks that answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Job {
    pub(crate) run: String,
    pub(crate) n_ranks: usize,
    pub(crate) fed: Fed,
}

/// One rank of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rank {
    pub(crate) endpoint: String,
    pub(crate) run: String,
    pub(crate) rank: String,
    pub(crate) epoch: u64,
    /// The part of the epoch that is delivered.
    pub(crate) done: f64,
    /// Batches that are finished and not delivered.
    pub(crate) waiting: u64,
    pub(crate) fed: Fed,
}

/// One agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Agent {
    pub(crate) endpoint: String,
    /// The runs with open sessions that have names, sorted.
    pub(crate) runs: Vec<String>,
    pub(crate) hosts: u64,
    pub(crate) queue: u64,
    /// Samples per second.
    pub(crate) rate: Option<f64>,
    /// Workers that were at samples, on average.
    pub(crate) workers: Option<f64>,
    /// Bytes of records read per second.
    pub(crate) read: Option<f64>,
    /// Connections that were not served so far.
    pub(crate) refused: u64,
}

/// Who gave no metrics of bothends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Absent {
    pub(crate) endpoint: String,
    pub(crate) why: String,
}

/// Why a training loop waits, as the metrics name it.
const CAUSES: [&str; 7] =
    ["order", "read", "decode", "device", "finish", "copy", "consumer"];

/// A loop that has waited longer than this part of the time has shown little of what it would take.
const MOST_STALLED: f64 = 0.95;

/// The metrics of one answer: values by name and one label.
#[derive(Debug, Default)]
struct Numbers {
    values: BTreeMap<(String, String), f64>,
    /// Of a rank its own, of an agent those of its hosts.
    runs: BTreeSet<String>,
    rank: String,
}

/// Labels that tell samples of a metric apart.
const PARTS: [&str; 6] = ["side", "who", "stage", "why", "path", "what"];

impl Numbers {
    fn of(text: &str) -> Self {
        let mut numbers = Self::default();
        for sample in samples(text) {
            let Some(name) = sample.name.strip_prefix("bothends_") else { continue };
            let part =
                PARTS.iter().find_map(|part| sample.label(part)).unwrap_or_default();
            numbers.values.insert((name.to_owned(), part.to_owned()), sample.value);
            if let Some(run) = sample.label("run").filter(|run| !run.is_empty()) {
                numbers.runs.insert(run.to_owned());
            }
            if let Some(rank) = sample.label("rank") {
                rank.clone_into(&mut numbers.rank);
            }
        }
        numbers
    }

    fn get(&self, name: &str, part: &str) -> f64 {
        let key = (name.to_owned(), part.to_owned());
        self.values.get(&key).copied().filter(|value| value.is_finite()).unwrap_or(0.0)
    }

    fn has(&self, name: &str) -> bool {
        self.values.keys().any(|(is, _)| is == name)
    }

    /// The sum over all samples of a metric.
    fn sum(&self, name: &str) -> f64 {
        let of_it = self.values.iter().filter(|((is, _), _)| is == name);
        of_it.map(|(_, value)| value).filter(|value| value.is_finite()).sum()
    }

    fn count(&self, name: &str) -> u64 {
        whole(self.get(name, ""))
    }
}

/// What an endpoint said before and says now.
#[derive(Debug)]
struct Change<'a> {
    before: Option<&'a Numbers>,
    now: &'a Numbers,
    seconds: f64,
}

impl Change<'_> {
    /// By how much a counter grew per second; `None` without an earlier look or after a restart.
    fn rate(&self, name: &str, part: &str) -> Option<f64> {
        let grown = self.now.get(name, part) - self.before?.get(name, part);
        (self.seconds > 0.0 && grown >= 0.0).then(|| grown / self.seconds)
    }

    fn fed(&self) -> Fed {
        let sides = ["front", "back"].map(|side| self.rate("samples_total", side));
        let [Some(front), Some(back)] = sides else { return Fed::default() };
        let waits =
            CAUSES.map(|who| self.rate("stall_seconds_total", who).unwrap_or(0.0));
        let stalled = waits.iter().sum::<f64>().clamp(0.0, 1.0);
        let most = CAUSES.iter().zip(waits).max_by(|(_, a), (_, b)| a.total_cmp(b));
        let rate = front + back;
        Fed {
            rate: Some(rate),
            by_devices: (rate > 0.0).then(|| back / rate),
            stalled: Some(stalled),
            cause: most.filter(|(_, wait)| *wait > 0.0).map(|(who, _)| *who),
            need: Some(rate / (1.0 - stalled.min(MOST_STALLED))),
        }
    }
}

impl View {
    /// From a look and an earlier one at the same endpoints.
    pub(crate) fn of(before: Option<&Look>, now: &Look) -> Self {
        let mut view = Self::default();
        let seconds = before.map_or(0.0, |before| now.at_s - before.at_s);
        for (nth, answer) in now.answers.iter().enumerate() {
            let earlier = before.and_then(|look| look.answers.get(nth));
            let earlier = earlier.and_then(|answer| answer.text.as_deref().ok());
            let earlier = earlier.map(Numbers::of);
            view.add(answer, earlier.as_ref(), seconds);
        }
        view.jobs = jobs(&view.ranks);
        view
    }

    fn add(&mut self, answer: &Answer, before: Option<&Numbers>, seconds: f64) {
        let endpoint = answer.endpoint.clone();
        let now = match &answer.text {
            Ok(text) => Numbers::of(text),
            Err(why) => return self.absent.push(Absent { endpoint, why: why.clone() }),
        };
        let change = Change { before, now: &now, seconds };
        if now.has("agent_info") {
            self.agents.push(agent(endpoint, &change));
        } else if now.has("samples_total") {
            self.ranks.push(rank(endpoint, &change));
        } else {
            let why = "it has no metrics of bothends".to_owned();
            self.absent.push(Absent { endpoint, why });
        }
    }
}

fn agent(endpoint: String, change: &Change<'_>) -> Agent {
    let now = change.now;
    Agent {
        endpoint,
        runs: now.runs.iter().cloned().collect(),
        hosts: now.count("agent_hosts"),
        queue: now.count("agent_queue"),
        rate: change.rate("agent_samples_total", ""),
        workers: change.rate("agent_worker_seconds_total", ""),
        read: change.rate("agent_read_bytes_total", ""),
        refused: whole(now.sum("agent_refused_total")),
    }
}

fn rank(endpoint: String, change: &Change<'_>) -> Rank {
    let now = change.now;
    let waiting = ["front_waiting", "back_waiting"].map(|of| now.get("queue_depth", of));
    let of_epoch = now.get("epoch_batches", "");
    Rank {
        endpoint,
        run: now.runs.last().cloned().unwrap_or_default(),
        rank: now.rank.clone(),
        epoch: now.count("epoch"),
        done: match of_epoch > 0.0 {
            true => (now.get("epoch_delivered", "") / of_epoch).clamp(0.0, 1.0),
            false => 0.0,
        },
        waiting: whole(waiting.iter().sum()),
        fed: change.fed(),
    }
}

/// The runs, and what all their ranks get together.
fn jobs(ranks: &[Rank]) -> Vec<Job> {
    let mut by_run: BTreeMap<&str, Vec<&Fed>> = BTreeMap::new();
    for rank in ranks {
        by_run.entry(&rank.run).or_default().push(&rank.fed);
    }
    let job = |(run, ranks): (&str, Vec<&Fed>)| Job {
        run: run.to_owned(),
        n_ranks: ranks.len(),
        fed: together(&ranks),
    };
    by_run.into_iter().map(job).collect()
}

/// Rates are added. Ranks wait for each other, so the one that waited most for its data says how
/// long all did.
fn together(ranks: &[&Fed]) -> Fed {
    let sum = |of: fn(&Fed) -> Option<f64>| {
        ranks.iter().filter_map(|fed| of(fed)).reduce(|a, b| a + b)
    };
    let rate = sum(|fed| fed.rate);
    let back = sum(|fed| Some(fed.rate? * fed.by_devices?));
    let waits = |fed: &Fed| fed.stalled.unwrap_or(-1.0);
    let slowest = ranks.iter().max_by(|a, b| waits(a).total_cmp(&waits(b)));
    Fed {
        rate,
        by_devices: back.zip(rate).map(|(back, rate)| back / rate),
        stalled: slowest.and_then(|fed| fed.stalled),
        cause: slowest.and_then(|fed| fed.cause),
        need: sum(|fed| fed.need),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from float ends at the ends of the integer"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A rank after so many samples of host and devices, and seconds of waiting for `decode`.
    pub(crate) fn rank_text(rank: u32, [front, back]: [u64; 2], decode_s: f64) -> String {
        format!(
            "bothends_samples_total{{side=\"front\",rank=\"{rank}\",run=\"job-7\"}} {front}\n\
             bothends_samples_total{{side=\"back\",rank=\"{rank}\",run=\"job-7\"}} {back}\n\
             bothends_stall_seconds_total{{who=\"decode\",rank=\"{rank}\",run=\"job-7\"}} {decode_s}\n\
             bothends_stall_seconds_total{{who=\"device\",rank=\"{rank}\",run=\"job-7\"}} 0.25\n\
             bothends_queue_depth{{stage=\"front_waiting\",rank=\"{rank}\",run=\"job-7\"}} 3\n\
             bothends_queue_depth{{stage=\"back_waiting\",rank=\"{rank}\",run=\"job-7\"}} 2\n\
             bothends_epoch{{rank=\"{rank}\",run=\"job-7\"}} 4\n\
             bothends_epoch_batches{{rank=\"{rank}\",run=\"job-7\"}} 80\n\
             bothends_epoch_delivered{{rank=\"{rank}\",run=\"job-7\"}} 20\n"
        )
    }

    pub(crate) fn agent_text(samples: u64, worker_s: f64) -> String {
        format!(
            "bothends_agent_info{{version=\"0\"}} 1\nbothends_agent_hosts 2\n\
             bothends_agent_queue 5\nbothends_agent_samples_total {samples}\n\
             bothends_agent_worker_seconds_total {worker_s}\n\
             bothends_agent_read_bytes_total {}\n\
             bothends_agent_refused_total{{why=\"busy\"}} 1\n\
             bothends_agent_refused_total{{why=\"failed\"}} 2\n\
             bothends_agent_run_sessions{{run=\"job-7\",job=\"vit\"}} 2\n\
             bothends_agent_run_sessions{{run=\"\",job=\"\"}} 1\n",
            samples * 1000
        )
    }

    pub(crate) fn look(at_s: f64, texts: &[Result<String, &str>]) -> Look {
        let answer = |(nth, text): (usize, &Result<String, &str>)| Answer {
            endpoint: format!("node{nth}:9100"),
            text: text.clone().map_err(str::to_owned),
        };
        Look { at_s, answers: texts.iter().enumerate().map(answer).collect() }
    }

    #[test]
    fn counters_become_rates_and_ranks_become_jobs() {
        let before = look(
            10.0,
            &[
                Ok(rank_text(0, [100, 50], 1.0)),
                Ok(rank_text(1, [0, 0], 0.0)),
                Ok(agent_text(1000, 3.0)),
            ],
        );
        let now = look(
            12.0,
            &[
                Ok(rank_text(0, [300, 250], 2.0)),
                Ok(rank_text(1, [400, 0], 0.2)),
                Ok(agent_text(1200, 6.0)),
            ],
        );
        let view = View::of(Some(&before), &now);
        let first = &view.ranks[0];
        assert_eq!((first.run.as_str(), first.rank.as_str()), ("job-7", "0"));
        assert_eq!((first.epoch, first.done, first.waiting), (4, 0.25, 5));
        let fed = Fed {
            rate: Some(200.0),
            by_devices: Some(0.5),
            stalled: Some(0.5),
            cause: Some("decode"),
            need: Some(400.0),
        };
        assert_eq!(first.fed, fed);
        let [job] = &view.jobs[..] else { panic!("{view:?}") };
        assert_eq!((job.run.as_str(), job.n_ranks), ("job-7", 2));
        assert_eq!((job.fed.rate, job.fed.by_devices), (Some(400.0), Some(0.25)));
        assert_eq!((job.fed.stalled, job.fed.cause), (Some(0.5), Some("decode")));
        let [agent] = &view.agents[..] else { panic!("{view:?}") };
        assert_eq!((agent.hosts, agent.queue, agent.refused), (2, 5, 3));
        assert_eq!((agent.rate, agent.workers), (Some(100.0), Some(1.5)));
        assert_eq!(agent.read, Some(100_000.0));
        assert_eq!(agent.runs, ["job-7"]);
    }

    #[test]
    fn without_an_earlier_look_or_after_a_restart_there_are_no_rates() {
        let now = look(12.0, &[Ok(rank_text(0, [10, 0], 0.0)), Ok(agent_text(10, 0.0))]);
        let more = look(10.0, &[Ok(rank_text(0, [20, 0], 0.0)), Ok(agent_text(20, 0.0))]);
        for before in [None, Some(&more), Some(&look(12.0, &[]))] {
            let view = View::of(before, &now);
            assert_eq!(view.ranks[0].fed, Fed::default());
            assert_eq!((view.jobs[0].fed.rate, view.agents[0].rate), (None, None));
            assert_eq!(view.agents[0].hosts, 2);
        }
    }

    #[test]
    fn who_gives_no_metrics_is_named() {
        let now = look(1.0, &[Err("refused"), Ok("go_goroutines 8\n".to_owned())]);
        let view = View::of(None, &now);
        let absent = |nth: usize| {
            (view.absent[nth].endpoint.as_str(), view.absent[nth].why.as_str())
        };
        assert_eq!(absent(0), ("node0:9100", "refused"));
        assert_eq!(absent(1), ("node1:9100", "it has no metrics of bothends"));
        assert!(view.jobs.is_empty() && view.agents.is_empty());
    }

    #[test]
    fn a_loop_that_only_waited_needs_no_endless_rate() {
        let before = look(0.0, &[Ok(rank_text(0, [0, 0], 0.0))]);
        let now = look(2.0, &[Ok(rank_text(0, [100, 0], 2.0))]);
        let fed = View::of(Some(&before), &now).ranks[0].fed.clone();
        assert_eq!(fed.stalled, Some(1.0));
        assert!((fed.need.unwrap() - 1000.0).abs() < 1e-6, "{fed:?}");
        let odd =
            look(4.0, &[Ok("bothends_samples_total{side=\"front\"} NaN\n".to_owned())]);
        assert_eq!(View::of(Some(&now), &odd).ranks[0].fed, Fed::default());
    }
}
