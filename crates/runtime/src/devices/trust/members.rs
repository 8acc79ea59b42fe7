//! What has been delivered of each program that makes batches, whichever place of a pool it has.
//!
//! Members change places, so what one of them has done is counted for it and for no other: one that comes
//! and lies ends no run in which it has delivered nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The members of a pool, or the one device. Clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Delivered(Arc<Mutex<HashMap<Arc<str>, Member>>>);

/// What is known of a member's honesty in this run.
#[derive(Debug, Clone, Copy, Default)]
struct Member {
    /// Batches delivered of which the host did not make every row again.
    n_doubtful: u64,
    has_lied: bool,
}

impl Delivered {
    /// A batch of this member's is delivered, not all of which the host has made again.
    pub(super) fn doubtful(&self, member: &Arc<str>) {
        self.members().entry(Arc::clone(member)).or_default().n_doubtful += 1;
    }

    /// This member has lied. Gives how many of its batches may be wrong.
    pub(super) fn lied(&self, member: &Arc<str>) -> u64 {
        let mut members = self.members();
        let member = members.entry(Arc::clone(member)).or_default();
        member.has_lied = true;
        member.n_doubtful
    }

    /// Whether this member has lied.
    pub(super) fn has_lied(&self, member: &str) -> bool {
        self.members().get(member).is_some_and(|member| member.has_lied)
    }

    /// How many batches of all members may be wrong.
    pub(super) fn n_doubtful(&self) -> u64 {
        self.members().values().map(|member| member.n_doubtful).sum()
    }

    fn members(&self) -> MutexGuard<'_, HashMap<Arc<str>, Member>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
