//! How long a failed request waits before it is sent again: exponential back-off with full jitter.
//!
//! Requests that failed together must not come back together, so each wait is drawn uniformly from zero
//! up to its bound. The draws are a pure function of the seed, the position and the attempt: a run
//! in virtual time repeats exactly.

use crate::philox::{FETCH_DOMAIN, philox4x32_10, words};

use super::config::FetchConfig;

/// Nanoseconds to wait before attempt `attempt + 1` of a position, `attempt` being at least 1.
pub(super) fn wait_ns(config: &FetchConfig, position: u64, attempt: u32) -> u64 {
    let doubled = 1_u64.checked_shl(attempt.saturating_sub(1)).unwrap_or(u64::MAX);
    let bound_ns = config.retry_ns.saturating_mul(doubled).min(config.most_retry_ns);
    let [low, high] = words(position);
    let counter = [FETCH_DOMAIN, low, high, attempt];
    let [draw, ..] = philox4x32_10(counter, words(config.seed));
    scaled(bound_ns, draw)
}

/// The part `draw / 2^32` of `bound_ns`.
fn scaled(bound_ns: u64, draw: u32) -> u64 {
    let product = u128::from(bound_ns) * u128::from(draw);
    u64::try_from(product >> 32).unwrap_or(bound_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    #[test]
    fn waits_fill_the_range_up_to_a_bound_that_doubles_to_the_most() {
        let config = FetchConfig::default();
        for (attempt, bound_ms) in [(1, 50), (2, 100), (3, 200), (5, 800), (6, 1_000)] {
            let bound_ns = bound_ms * MILLI;
            let waits = (0..4_000).map(|position| wait_ns(&config, position, attempt));
            let waits: Vec<u64> = waits.collect();
            assert!(waits.iter().all(|ns| *ns < bound_ns), "attempt {attempt}");
            let mean_ns = waits.iter().sum::<u64>() / 4_000;
            assert!(mean_ns.abs_diff(bound_ns / 2) < bound_ns / 50, "{mean_ns}");
            let tenth = |n: &&u64| **n < bound_ns / 10;
            assert!((300..500).contains(&waits.iter().filter(tenth).count()));
        }
        assert!(wait_ns(&config, 1, u32::MAX) < 1_000 * MILLI);
    }

    #[test]
    fn the_same_seed_position_and_attempt_wait_equally_long() {
        let config = FetchConfig::default();
        assert_eq!(wait_ns(&config, 7, 2), wait_ns(&config, 7, 2));
        assert_ne!(wait_ns(&config, 7, 2), wait_ns(&config, 8, 2));
        assert_ne!(wait_ns(&config, 7, 2), wait_ns(&config, 7, 3));
        let other = FetchConfig { seed: 1, ..config };
        assert_ne!(wait_ns(&config, 7, 2), wait_ns(&other, 7, 2));
    }
}
