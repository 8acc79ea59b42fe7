//! How fair a pool was: the fair share of each job, and one number for how evenly the shares were met.

/// What each job is entitled to of `capacity`: its demand if that is below its share by weight, and else
/// its share of what such jobs leave (weighted max-min fairness). Items are (demand, weight).
#[must_use]
pub fn entitled(jobs: &[(f64, f64)], capacity: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    let level = |at: &usize| jobs[*at].0 / jobs[*at].1;
    order.sort_by(|a, b| level(a).total_cmp(&level(b)));
    let mut weight: f64 = jobs.iter().map(|job| job.1).sum();
    let mut left = capacity;
    let mut shares = vec![0.0; jobs.len()];
    for at in order {
        let (demand, own) = jobs[at];
        let share = demand.min(left * own / weight.max(f64::MIN_POSITIVE));
        shares[at] = share;
        left -= share;
        weight -= own;
    }
    shares
}

/// Jain's index of fairness: 1 if all are equal, 1/n if one has everything. Of none it is 1.
#[must_use]
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares <= 0.0 {
        return 1.0;
    }
    #[allow(clippy::cast_precision_loss, reason = "there are not so many jobs")]
    let n = shares.len() as f64;
    sum * sum / (n * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_small_jobs_leave_is_shared_by_weight() {
        let jobs = [(1.0, 1.0), (100.0, 1.0), (100.0, 2.0)];
        let shares = entitled(&jobs, 10.0);
        for (share, expected) in shares.iter().zip([1.0, 3.0, 6.0]) {
            assert!((share - expected).abs() < 1e-9, "{shares:?}");
        }
        assert_eq!(entitled(&jobs, 1e6), [1.0, 100.0, 100.0]);
        assert!(entitled(&[], 1.0).is_empty());
    }

    #[test]
    fn jains_index_is_one_where_all_are_equal() {
        assert!((jain(&[0.3; 7]) - 1.0).abs() < 1e-12);
        assert!((jain(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert!((jain(&[]) - 1.0).abs() < 1e-12);
    }
}
