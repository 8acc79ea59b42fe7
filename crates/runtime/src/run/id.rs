//! What a run is called wherever it leaves traces: in its events, spans and metrics, and on the devices that work
//! for it.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use bothends_csd::RunId;

/// Where launchers say which job the ranks of a machine, or of several, belong to.
const JOBS: [&str; 2] = ["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"];

/// The launcher's job, which all its ranks share; else when this process first asked, in seconds since 1970, and
/// its number. It is the same for as long as the process lives.
pub fn run_id() -> &'static RunId {
    static ID: OnceLock<RunId> = OnceLock::new();
    ID.get_or_init(|| of(|variable| std::env::var(variable).ok()))
}

fn of(told: impl Fn(&str) -> Option<String>) -> RunId {
    // torchrun writes `none` unless it was given a name.
    let job = JOBS.iter().find_map(|job| told(job).filter(|name| name != "none"));
    job.and_then(|job| RunId::like(&job)).or_else(own).expect("a number is a name")
}

/// Of a process that nobody has launched with others.
fn own() -> Option<RunId> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    RunId::like(&format!("{}-{}", now.as_secs(), std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranks_of_a_job_have_one_run() {
        let slurm = |variable: &str| match variable {
            "SLURM_JOB_ID" => Some("4711".to_owned()),
            _ => Some("none".to_owned()),
        };
        assert_eq!(of(slurm).as_str(), "4711");
        let alone = of(|_| None);
        let process = format!("-{}", std::process::id());
        assert!(alone.as_str().ends_with(&process), "{alone:?}");
        assert_eq!(run_id(), run_id());
    }
}
