//! What a run is called wherever it leaves traces, in its events, spans and metrics; and when it began.

/// Where launchers say which job the ranks of a machine, or of several, belong to.
const JOBS: [&str; 2] = ["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"];

/// The launcher's job, which all its ranks share; else when this process began, and its number.
pub(crate) fn run_id() -> String {
    of(|variable| std::env::var(variable).ok())
}

fn of(told: impl Fn(&str) -> Option<String>) -> String {
    // torchrun writes `none` unless it was given a name.
    let job = JOBS.iter().find_map(|job| told(job).filter(|name| name != "none"));
    job.unwrap_or_else(|| format!("{}-{}", now(), std::process::id()))
}

/// The date and time in UTC, from the kernel's clock.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%MZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_a_date() {
        let now = now();
        assert!(now.len() == 17 && now.starts_with("20") && now.ends_with('Z'), "{now}");
    }

    #[test]
    fn the_ranks_of_a_job_have_one_run() {
        let slurm = |variable: &str| match variable {
            "SLURM_JOB_ID" => Some("4711".to_owned()),
            _ => Some("none".to_owned()),
        };
        assert_eq!(of(slurm), "4711");
        let alone = of(|_| None);
        assert!(alone.ends_with(&format!("-{}", std::process::id())), "{alone}");
    }
}
