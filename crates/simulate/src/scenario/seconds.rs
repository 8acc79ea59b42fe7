//! Seconds as people write them, and the world's nanoseconds.

/// Seconds as whole nanoseconds; `None` outside 0 to 1e9 seconds.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0 to 1e18, as checked"
)]
pub(super) fn nanoseconds(seconds: f64) -> Option<u64> {
    (0.0..=1e9).contains(&seconds).then(|| (seconds * 1e9).round() as u64)
}
