//! What the user may say of fetching remote data: how much of it at once, and how long a store may be gone.
//!
//! Decides nothing: `core::fetch` does, within these bounds. `docs/remote.md` says when to set them.

use std::time::Duration;

use bothends_core::fetch::FetchConfig;

use crate::config::cache::bytes_of;

/// Bounds of what is fetched of remote data; what nobody says is left to the memory that there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FetchBounds {
    /// The most requests in flight, from 1 to [`MOST_REQUESTS`](Self::MOST_REQUESTS).
    pub requests: Option<u32>,
    /// The most bytes that have been requested and are not yet with the workers, at least
    /// [`LEAST_REORDER`](Self::LEAST_REORDER); a quarter of them may be in flight, or all where `requests`
    /// bounds those, too.
    pub reorder_bytes: Option<u64>,
    /// How long a store that has answered before may be gone before the run ends;
    /// [`PATIENCE_S`](Self::PATIENCE_S) seconds by default.
    pub patience_s: Option<u32>,
}

impl FetchBounds {
    /// More requests would be more connections than stores, and limits of open files, allow.
    pub const MOST_REQUESTS: u32 = 4096;
    /// The least that holds a few photographs.
    pub const LEAST_REORDER: u64 = 1 << 20;
    /// Longer than a server takes to start again or another one to take its place, and shorter than ranks wait for each
    /// other: collectives of PyTorch give up after ten minutes.
    pub const PATIENCE_S: u32 = 120;
    /// A day.
    pub const MOST_PATIENCE_S: u32 = 86_400;
    /// More than any machine has.
    const MOST_REORDER: u64 = 1 << 44;

    /// Reads a number of bytes, such as `67108864` or `64M`.
    ///
    /// # Errors
    /// One line: what is expected.
    pub fn reorder_of(text: &str) -> Result<u64, String> {
        let range = Self::LEAST_REORDER..=Self::MOST_REORDER;
        bytes_of(text).filter(|bytes| range.contains(bytes)).ok_or_else(|| {
            format!(
                "`{text}` is not a size of a reorder buffer; use at least 1M in bytes, or with \
                 K, M or G, such as 256M"
            )
        })
    }

    /// Checks a number of requests.
    ///
    /// # Errors
    /// One line: what is expected.
    pub fn requests_of(n: u64) -> Result<u32, String> {
        let n_requests = u32::try_from(n).ok();
        n_requests.filter(|n| (1..=Self::MOST_REQUESTS).contains(n)).ok_or_else(|| {
            let most = Self::MOST_REQUESTS;
            format!("{n} requests cannot be in flight; use a number from 1 to {most}")
        })
    }

    /// Checks a number of seconds for which a store may be gone.
    ///
    /// # Errors
    /// One line: what is expected.
    pub fn patience_of(seconds: u64) -> Result<u32, String> {
        let most = Self::MOST_PATIENCE_S;
        let fits = u32::try_from(seconds).ok().filter(|s| (1..=most).contains(s));
        fits.ok_or_else(|| {
            format!("{seconds} s is not a patience; use 1 to {most} seconds")
        })
    }

    /// How long a store that has answered before may be gone.
    pub(crate) fn patience(self) -> Duration {
        Duration::from_secs(self.patience_s.unwrap_or(Self::PATIENCE_S).into())
    }

    /// The most requests in flight.
    pub(crate) fn most_requests(self) -> u32 {
        self.requests.unwrap_or(FetchConfig::default().max_requests)
    }

    /// What the queue is told that has so many bytes of memory.
    pub(crate) fn within(self, room_bytes: u64, seed: u64) -> FetchConfig {
        let patience_ns = u64::try_from(self.patience().as_nanos()).unwrap_or(u64::MAX);
        let config = FetchConfig { seed, patience_ns, ..FetchConfig::within(room_bytes) };
        let Some(n) = self.requests else { return config };
        let is_all_told = self.reorder_bytes.is_some();
        FetchConfig {
            max_requests: n,
            first_requests: config.first_requests.min(n),
            max_bytes: if is_all_told { room_bytes } else { config.max_bytes },
            ..config
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_bounds_the_queue_and_the_rest_is_as_it_was() {
        let defaults = FetchBounds::default().within(64 << 20, 3);
        let config = FetchConfig::within(64 << 20);
        let patience_ns = 120_000_000_000;
        assert_eq!(defaults, FetchConfig { seed: 3, patience_ns, ..config });
        let bounds = FetchBounds { patience_s: Some(7), ..FetchBounds::default() };
        assert_eq!(bounds.within(64 << 20, 3).patience_ns, 7_000_000_000);
        let bounds = FetchBounds { requests: Some(8), ..FetchBounds::default() };
        let config = bounds.within(64 << 20, 3);
        assert_eq!((config.max_requests, config.first_requests), (8, 8));
        let both = FetchBounds { reorder_bytes: Some(64 << 20), ..bounds };
        assert_eq!(both.within(64 << 20, 3).max_bytes, 64 << 20);
        assert_eq!(
            FetchConfig { max_requests: 256, first_requests: 64, ..config },
            defaults
        );
    }

    #[test]
    fn sizes_and_numbers_out_of_range_are_told() {
        assert_eq!(FetchBounds::reorder_of("256M"), Ok(256 << 20));
        assert_eq!(FetchBounds::reorder_of("1048576"), Ok(1 << 20));
        for text in ["", "1K", "1048575", "-1", "32T", "M", "1e9"] {
            let line = FetchBounds::reorder_of(text).unwrap_err();
            assert!(
                line.starts_with(&format!("`{text}` is not a size of a reorder")),
                "{line}"
            );
        }
        assert_eq!(FetchBounds::requests_of(4096), Ok(4096));
        for n in [0, 4097, u64::MAX] {
            assert!(FetchBounds::requests_of(n).unwrap_err().contains("from 1 to 4096"));
        }
        assert_eq!(FetchBounds::patience_of(86_400), Ok(86_400));
        for n in [0, 86_401, u64::MAX] {
            assert!(FetchBounds::patience_of(n).unwrap_err().contains("use 1 to 86400"));
        }
    }
}
