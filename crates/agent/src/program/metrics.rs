//! `--metrics`: what the device does, in Prometheus' text form, version 0.0.4. Numbers, the program's
//! version and the names of jobs, and nothing else of any host.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use bothends_csd::{RunId, Whose};
use bothends_scrape::{Bound, Scrape};

use crate::costs::Costs;
use crate::door::{Door, Refusals};
use crate::server::{Counts, JobCounts, RunCounts, Server};

/// The address where it will answer.
pub(super) fn bind(address: &str) -> Result<Bound> {
    let addresses = bothends_scrape::parse(address);
    let addresses = addresses.with_context(|| format!("`--metrics {address}`"))?;
    Bound::at(&addresses).with_context(|| {
        format!("cannot listen on `--metrics {address}`; is the port free?")
    })
}

/// Answers there about this server and these doors.
pub(super) fn start<C: Costs + 'static>(
    bound: Bound,
    server: &Arc<Server<C>>,
    doors: &[Door],
) -> Result<Scrape> {
    // The server ends with the program, whoever still asks.
    let refusals: Vec<_> = doors.iter().map(Door::refusals).collect();
    let server = Arc::downgrade(server);
    let counts = move || server.upgrade().map(|server| server.counts());
    let answer = move || counts().map_or_else(String::new, |it| text(&it, &refusals));
    bound.answer(answer).context("cannot start the thread of `--metrics`")
}

fn text(counts: &Counts, refusals: &[Arc<Refusals>]) -> String {
    let mut text = String::new();
    let mut put = |name: &str, kind: &str, help: &str, values: &[(&str, f64)]| {
        let name = format!("bothends_agent_{name}");
        // Nothing fails that is written into memory.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let Counts { stats, results, .. } = counts;
    let version = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    put("info", "gauge", "The program.", &[(&version, 1.0)]);
    put("hosts", "gauge", "Hosts being served.", &[("", counts.hosts.into())]);
    put("sessions", "gauge", "Open sessions.", &[("", counts.sessions.into())]);
    let help = "Distinct sample lists of the open sessions.";
    put("tables", "gauge", help, &[("", counts.tables.into())]);
    put(
        "queue",
        "gauge",
        "Jobs accepted and not finished.",
        &[("", stats.queued.into())],
    );
    let help = "Memory that sessions may use for batches and lists of samples.";
    put("held_bytes", "gauge", help, &[("", float(counts.held_bytes))]);
    put("jobs_total", "counter", "Jobs answered.", &[("", float(stats.jobs))]);
    put("samples_total", "counter", "Samples delivered.", &[("", float(stats.samples))]);
    let help = "Samples left to the host because of --max-pixels.";
    put("refused_samples_total", "counter", help, &[("", float(counts.refused_samples))]);
    let help = "Bytes of records read.";
    put("read_bytes_total", "counter", help, &[("", float(stats.media_read_bytes))]);
    let help = "Seconds that workers spent on samples, summed over all workers.";
    put("worker_seconds_total", "counter", help, &[("", counts.worker_seconds)]);
    let seconds = stats.cpu_seconds.unwrap_or(f64::NAN);
    put("cpu_seconds_total", "counter", "CPU seconds of the program.", &[("", seconds)]);
    let sum = |of: fn(&Refusals) -> &AtomicU64| {
        float(refusals.iter().map(|door| of(door).load(Ordering::Relaxed)).sum())
    };
    let refused = [
        ("{why=\"busy\"}", sum(|door| &door.busy)),
        ("{why=\"crowded\"}", sum(|door| &door.crowded)),
        ("{why=\"failed\"}", sum(|door| &door.failed)),
    ];
    put("refused_total", "counter", "Connections that were not served.", &refused);
    put(
        "shared_samples_total",
        "counter",
        HELP_SHARED,
        &[("", float(stats.shared_samples))],
    );
    let help = "Memory for samples that several sessions want.";
    put("result_cache_bytes", "gauge", help, &[("", float(results.held_bytes))]);
    let help = "Memory that these may take now.";
    put("result_cache_limit_bytes", "gauge", help, &[("", float(results.limit_bytes))]);
    let help = "Samples not kept for other sessions, for lack of room.";
    put("result_cache_left_out_total", "counter", help, &[("", float(results.left_out))]);
    let help = "Kept samples that had changed in memory and were made again.";
    put("result_cache_corrupt_total", "counter", help, &[("", float(results.corrupt))]);
    let help = "Agents that have announced themselves to this one.";
    put("members", "gauge", help, &[("", float(counts.members))]);
    put_jobs(&counts.jobs, &mut put);
    put_runs(&counts.runs, &mut put);
    let label = |domain: &str| format!("{{domain=\"{domain}\"}}");
    let energy = stats.energy.iter();
    let energy: Vec<(String, f64)> =
        energy.map(|it| (label(&it.domain), float(it.energy_uj) / 1e6)).collect();
    let energy: Vec<(&str, f64)> =
        energy.iter().map(|(label, joules)| (label.as_str(), *joules)).collect();
    if !energy.is_empty() {
        put("energy_joules_total", "counter", "Energy by domain.", &energy);
    }
    text
}

const HELP_SHARED: &str =
    "Samples copied instead of made, because others wanted the same.";

/// What is written for each name: its kind, what it means, and values by their labels.
type Put<'a> = dyn FnMut(&str, &str, &str, &[(&str, f64)]) + 'a;

/// What was done for each job that has a name. A name needs no escapes.
fn put_jobs(jobs: &[JobCounts], put: &mut Put<'_>) {
    let mut each = |name: &str, kind: &str, help: &str, of: fn(&JobCounts) -> f64| {
        let label = |job: &JobCounts| format!("{{job=\"{}\"}}", job.name);
        let values: Vec<_> = jobs.iter().map(|job| (label(job), of(job))).collect();
        let values: Vec<_> =
            values.iter().map(|(label, n)| (label.as_str(), *n)).collect();
        if !values.is_empty() {
            put(name, kind, help, &values);
        }
    };
    let help = "Open sessions of a job.";
    each("job_sessions", "gauge", help, |job| job.sessions.into());
    let help = "Samples delivered to a job.";
    each("job_samples_total", "counter", help, |job| float(job.samples));
    each("job_shared_samples_total", "counter", HELP_SHARED, |job| {
        float(job.shared_samples)
    });
    let help = "Seconds that workers spent on a job's samples, summed over all workers.";
    each("job_worker_seconds_total", "counter", help, |job| job.worker_seconds);
}

/// The sessions of each run that has a name, and those of all others without one: a run may have any name.
/// A name needs no escapes.
fn put_runs(runs: &[RunCounts], put: &mut Put<'_>) {
    let label = |whose: &Whose| {
        let run = whose.run.as_ref().map_or("", RunId::as_str);
        let job = whose.job.as_deref().unwrap_or_default();
        format!("{{run=\"{run}\",job=\"{job}\"}}")
    };
    let values: Vec<(String, f64)> =
        runs.iter().map(|it| (label(&it.whose), it.sessions.into())).collect();
    let values: Vec<(&str, f64)> =
        values.iter().map(|(label, n)| (label.as_str(), *n)).collect();
    if !values.is_empty() {
        put("run_sessions", "gauge", "Open sessions of a run.", &values);
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "counters of this size have rounded for years"
)]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use bothends_csd::{DeviceStats, EnergyReading};

    use super::*;

    /// Every metric of agents that the dashboard shows is one, with the label by which agents are chosen.
    #[test]
    fn the_dashboard_shows_metrics_that_there_are() {
        const DASHBOARD: &str =
            include_str!("../../../../configs/dashboards/grafana.json");
        let text = text(&Counts::default(), &[Arc::new(Refusals::default())]);
        let families: Vec<&str> = text
            .lines()
            .filter_map(|line| {
                line.strip_prefix("# TYPE bothends_agent_")?.split(' ').next()
            })
            .collect();
        let mut n_shown = 0;
        for shown in DASHBOARD.split("bothends_agent_").skip(1) {
            let end = shown.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap();
            let (name, rest) = shown.split_at(end);
            assert!(families.contains(&name), "bothends_agent_{name} is no metric");
            let is_choice = name == "info" && rest.starts_with(", instance)");
            let is_chosen = rest.starts_with(r#"{instance=~\"$agent\"}"#);
            assert!(is_chosen || is_choice, "{name}{rest}");
            n_shown += 1;
        }
        assert!(n_shown >= 7, "{n_shown}");
    }

    #[test]
    fn every_number_has_a_name_a_kind_and_a_sentence() {
        let energy_uj = 2_500_000;
        let (domain, source) = ("device".to_owned(), "modelled(test)".to_owned());
        let energy = vec![EnergyReading { domain, energy_uj, source }];
        let stats =
            DeviceStats { jobs: 3, samples: 40, energy, ..DeviceStats::default() };
        let jobs = ["resnet", "vit"].map(|name| JobCounts {
            name: name.to_owned(),
            samples: 30,
            worker_seconds: 1.5,
            ..JobCounts::default()
        });
        let jobs = jobs.to_vec();
        let run = RunId::like("4711");
        let whose = Whose { run, job: Some("vit".to_owned()) };
        let others = Whose::default();
        let runs = [(whose, 2), (others, 1)]
            .map(|(whose, sessions)| RunCounts { whose, sessions })
            .to_vec();
        let counts = Counts { hosts: 2, stats, jobs, runs, ..Counts::default() };
        // Of two addresses.
        let refusals =
            [2, 3].map(|n| Arc::new(Refusals { busy: n.into(), ..Refusals::default() }));
        let text = text(&counts, &refusals);
        for line in [
            "bothends_agent_hosts 2",
            "bothends_agent_jobs_total 3",
            "bothends_agent_samples_total 40",
            "bothends_agent_refused_total{why=\"busy\"} 5",
            "bothends_agent_job_samples_total{job=\"vit\"} 30",
            "bothends_agent_job_worker_seconds_total{job=\"resnet\"} 1.5",
            "bothends_agent_run_sessions{run=\"4711\",job=\"vit\"} 2",
            "bothends_agent_run_sessions{run=\"\",job=\"\"} 1",
            "bothends_agent_result_cache_bytes 0",
            "bothends_agent_energy_joules_total{domain=\"device\"} 2.5",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
        let n_of = |start| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(n_of("# HELP "), n_of("# TYPE "));
        assert!(text.ends_with('\n'));
    }
}
