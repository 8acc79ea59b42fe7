//! What is requested as one range, and the requests that are on their way for it.
//!
//! A group begins when its positions are requested and ends when the last of them is taken, withdrawn or
//! has failed: so long its bytes are held. Plain state; `fetch.rs` decides.

use std::ops::Range;

use crate::ids::Ns;

use super::RequestId;
use super::config::FetchConfig;

/// A group, counted in the order in which they are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupId(pub(super) u64);

/// Positions that are requested together.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) object: u32,
    pub(super) range: Range<u64>,
    /// All that it began with; those that left it are not removed.
    pub(super) members: Vec<u64>,
    /// Members that are neither taken, withdrawn nor failed.
    pub(super) live: usize,
    pub(super) phase: Phase,
    /// Failures so far, of which some may not count against it.
    pub(super) failures: u32,
    /// Connections that the server closed before it looked at the request.
    pub(super) gone_away: u32,
    /// How often an answer has broken off of which parts had come, and the parts of the present one.
    pub(super) broken_off: u32,
    pub(super) heard: u32,
    pub(super) was_hedged: bool,
    pub(super) began: Ns,
    /// When it fails finally.
    pub(super) deadline: Ns,
}

/// Where a group is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Requests are in flight: the first one, and its hedge.
    Sent(Option<RequestId>, Option<RequestId>),
    /// It failed and is sent again at this time.
    Waiting(Ns),
    /// Its bytes are in the reorder buffer.
    Here,
}

impl Group {
    /// The bytes of the range, gaps included.
    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Its requests in flight.
    pub(super) fn requests(&self) -> impl Iterator<Item = RequestId> + use<> {
        let requests = match self.phase {
            Phase::Sent(first, hedge) => [first, hedge],
            Phase::Waiting(_) | Phase::Here => [None, None],
        };
        requests.into_iter().flatten()
    }

    /// It needs time, and not a server: its deadline is moved, so that it has `needs_ns` at least.
    pub(super) fn is_borne(&mut self, config: &FetchConfig, needs_ns: u64, now: Ns) {
        let most = self.began.plus(config.throttled_deadline_ns);
        let later = now.plus(config.deadline_ns.max(needs_ns)).min(most);
        self.deadline = self.deadline.max(later);
    }

    /// One of its requests is no longer in flight.
    pub(super) fn forget(&mut self, request: RequestId) {
        if let Phase::Sent(first, hedge) = &mut self.phase {
            *first = first.filter(|known| *known != request);
            *hedge = hedge.filter(|known| *known != request);
        }
    }
}

/// A request in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) group: GroupId,
    pub(super) at: Ns,
    /// Bytes of its range.
    pub(super) len: u64,
    pub(super) times_out: Ns,
    pub(super) is_hedge: bool,
}
