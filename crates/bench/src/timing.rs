//! Clocks, and statistics of their readings.

use std::fs;

/// CPU time of the calling thread in nanoseconds, user and system; `None` if the kernel does not
/// report it.
pub(crate) fn thread_cpu_ns() -> Option<u64> {
    on_cpu_ns("/proc/thread-self/schedstat")
}

/// CPU time of all current threads of this process, including the kernel's own for io_uring.
pub(crate) fn process_cpu_ns() -> Option<u64> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let tasks = tasks.filter_map(|task| Some(task.ok()?.path().join("schedstat")));
    // A thread may just have ended.
    Some(tasks.filter_map(|path| on_cpu_ns(path.to_str()?)).sum())
}

/// The first number of a `schedstat` file (kernel: Documentation/scheduler/sched-stats).
fn on_cpu_ns(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}

/// The median; of an even number, the mean of the two in the middle. 0 without any.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[upper],
        _ => f64::midpoint(sorted[upper - 1], sorted[upper]),
    }
}

/// Times of one contender: by pass and record, in microseconds.
#[derive(Debug)]
pub(crate) struct Times {
    best: Vec<f64>,
    passes: Vec<f64>,
}

impl Times {
    pub(crate) fn new(n_records: usize) -> Self {
        Self { best: vec![f64::INFINITY; n_records], passes: Vec::new() }
    }

    /// Adds a pass, record by record.
    pub(crate) fn pass(&mut self, times_us: &[f64]) {
        for (best, &time) in self.best.iter_mut().zip(times_us) {
            *best = best.min(time);
        }
        self.passes.push(mean(times_us));
    }

    /// The mean over the records of each one's shortest time.
    pub(crate) fn best_us(&self) -> f64 {
        mean(&self.best)
    }

    /// The median over the passes of the mean time of a record.
    pub(crate) fn median_us(&self) -> f64 {
        median(&self.passes)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), 3.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn the_best_is_of_each_record_and_the_median_of_whole_passes() {
        let mut times = Times::new(2);
        times.pass(&[1.0, 5.0]);
        times.pass(&[4.0, 2.0]);
        times.pass(&[4.0, 6.0]);
        assert_eq!(times.best_us(), 1.5);
        assert_eq!(times.median_us(), 3.0);
    }

    #[test]
    fn work_takes_processor_time() {
        let before = thread_cpu_ns().expect("schedstat");
        let mut sum = 0_u64;
        while thread_cpu_ns().expect("schedstat") < before + 2_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(process_cpu_ns().expect("schedstat") >= before + 2_000_000);
    }
}
