//! What a fetch queue is told before it starts: its bounds and its patience.
//!
//! Nothing here decides. The defaults suit both a fast link and a long one; `docs/remote.md` says when
//! to change them.

/// A millisecond in nanoseconds.
const MILLI: u64 = 1_000_000;

/// The gap between two ranges that one request still brings by default, in bytes.
pub const MAX_GAP_BYTES: u64 = 4 << 10;

/// The bounds and the patience of a [`FetchQueue`](super::FetchQueue). A bound of 0 counts as 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchConfig {
    /// Requests in flight at most, those that wait to be retried included.
    pub max_requests: u32,
    /// Bytes in flight at most.
    pub max_bytes: u64,
    /// Bytes that have been requested and not been taken at most: those in flight, and those that
    /// wait in the reorder buffer. Four times `max_bytes` costs nothing against unordered delivery.
    pub reorder_bytes: u64,
    /// Requests that may be in flight at first …
    pub first_requests: u32,
    /// … and answers after which it is one more; 0 begins with all. On cold connections an answer
    /// takes several round trips, so a ramp from one request on takes seconds over a long link.
    pub ramp: u32,
    /// Whether the window stops growing where throughput does.
    pub growth: Growth,
    /// Whether the oldest missing position is requested a second time when it is late.
    pub hedge: Hedge,
    /// A request without an answer is cancelled after so long, or after four times what almost all
    /// recent answers took, if that is longer; one that is being answered may take longer
    /// ([`heard`](super::FetchQueue::heard)).
    pub timeout_ns: u64,
    /// A position fails finally when so long has passed since it was first requested, or since a part of its
    /// answer was last heard of …
    pub deadline_ns: u64,
    /// … but so long, if that is longer, once the store has answered any request: then it is there, and will most
    /// likely be back.
    pub patience_ns: u64,
    /// The same while the server answers that it is asked too much, or is slow but answers others.
    pub throttled_deadline_ns: u64,
    /// The first retry comes after this at most; the bound doubles with each failure …
    pub retry_ns: u64,
    /// … up to this.
    pub most_retry_ns: u64,
    /// Neighbouring ranges are joined into requests of so many bytes at most; 0 joins none.
    pub most_joined_bytes: u64,
    /// Ranges with so many bytes between them are still neighbours.
    pub max_gap_bytes: u64,
    /// Of the waits before retries.
    pub seed: u64,
}

/// How many requests the window admits once the ramp is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Growth {
    /// As many as are allowed.
    Fixed,
    /// As many as raise throughput: towards the bandwidth-delay product.
    #[default]
    Adaptive,
}

/// Whether late positions are requested a second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hedge {
    /// Never.
    Off,
    /// The oldest missing one, once it is later than almost all recent answers were.
    #[default]
    On,
}

impl Default for FetchConfig {
    /// A gigabit over 150 ms is 19 MB in flight; 256 photographs of 110 kB are 28 MB.
    fn default() -> Self {
        Self {
            max_requests: 256,
            max_bytes: 32 << 20,
            reorder_bytes: 128 << 20,
            first_requests: 64,
            ramp: 1,
            growth: Growth::Adaptive,
            hedge: Hedge::On,
            timeout_ns: 4_000 * MILLI,
            deadline_ns: 10_000 * MILLI,
            patience_ns: 10_000 * MILLI,
            throttled_deadline_ns: 60_000 * MILLI,
            retry_ns: 50 * MILLI,
            most_retry_ns: 1_000 * MILLI,
            most_joined_bytes: 1 << 20,
            max_gap_bytes: MAX_GAP_BYTES,
            seed: 0,
        }
    }
}

impl FetchConfig {
    /// The defaults, with so many bytes of memory instead of theirs: all of it may be reordered, a quarter be in
    /// flight.
    #[must_use]
    pub fn within(reorder_bytes: u64) -> Self {
        let defaults = Self::default();
        let max_bytes = reorder_bytes / 4;
        let most_joined_bytes = defaults.most_joined_bytes.min(max_bytes / 8);
        Self { max_bytes, reorder_bytes, most_joined_bytes, ..defaults }
    }
}
