//! Which members of a pool to attach, when to try one again, and which to let go.
//!
//! Membership is soft state. A source says which members there are, and may say something else a moment
//! later. The caller reports what the source says and what became of each try; this file keeps one state
//! for each member and decides. It does not know addresses, and it never decides about batches: a member
//! that comes, goes or lies changes who makes a batch, and `ledger` says which results count.
//!
//! Two bounds hold at every moment: no more members are attached than the limit, and no more are being
//! tried at once than [`MembersConfig::most_trying`]. A pool that comes back after a failure is thus not
//! met by all tries at the same time, and waits are drawn with jitter for the same reason. Hosts try the
//! members of a large pool in different orders, so that they do not all start with the first ones listed.

use std::collections::BTreeMap;

use crate::ids::Ns;
use crate::philox::{MEMBERS_DOMAIN, philox4x32_10, words};

/// A member of a pool, by a number that the caller gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

/// Limits and waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MembersConfig {
    /// Members attached at most (at least 1).
    pub most_attached: u32,
    /// Members tried at once at most (at least 1).
    pub most_trying: u32,
    /// The bound of the first wait after a failure, in nanoseconds; each further one is twice as long.
    pub first_wait_ns: u64,
    /// The longest wait, in nanoseconds.
    pub longest_wait_ns: u64,
    /// What this host's order of tries and its waits are drawn from.
    pub seed: u64,
}

impl Default for MembersConfig {
    fn default() -> Self {
        Self {
            most_attached: 64,
            most_trying: 8,
            first_wait_ns: 1_000_000_000,
            longest_wait_ns: 30_000_000_000,
            seed: 0,
        }
    }
}

/// Why a member is not attached, as far as that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It cannot be reached, or its connection was lost.
    Fault,
    /// It asks to be left alone for so many nanoseconds.
    Busy(u64),
    /// It answers, and the two sides do not fit: another key, version or copy of the data.
    Mistake,
}

/// What becomes of a member that was just reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Welcome {
    /// It takes part.
    Attached,
    /// The source no longer lists it, or it has lied: close the connection.
    Unwanted,
}

/// One member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    is_listed: bool,
    n_failures: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// May be tried from then on.
    Waits {
        until: Ns,
    },
    Trying,
    Attached {
        since: Ns,
    },
    /// It finishes what it has.
    Leaving,
    /// It has lied.
    Barred,
}

/// All members of one pool, as one host sees them. Every call takes the caller's time, which never goes back.
#[derive(Debug)]
pub struct Members {
    config: MembersConfig,
    limit: u32,
    members: BTreeMap<MemberId, Member>,
    n_trying: u32,
    n_attached: u32,
}

impl Members {
    /// A pool of which nothing is known.
    #[must_use]
    pub fn new(config: MembersConfig) -> Self {
        let limit = config.most_attached.max(1);
        Self { config, limit, members: BTreeMap::new(), n_trying: 0, n_attached: 0 }
    }

    /// Attached members, those that are leaving not among them.
    #[must_use]
    pub fn n_attached(&self) -> u32 {
        self.n_attached
    }

    /// Members that the source lists.
    #[must_use]
    pub fn n_listed(&self) -> usize {
        self.members.values().filter(|member| member.is_listed).count()
    }

    /// Whether anything is kept of a member; the caller may forget its number otherwise.
    #[must_use]
    pub fn knows(&self, id: MemberId) -> bool {
        self.members.contains_key(&id)
    }

    /// Whether a member was let go and has not finished what it had.
    #[must_use]
    pub fn is_leaving(&self, id: MemberId) -> bool {
        self.members.get(&id).is_some_and(|member| member.state == State::Leaving)
    }

    /// From now on so many members are wanted, within [`MembersConfig::most_attached`]: a consumer that is
    /// fed needs no more. What is too many is let go by [`Self::next_to_leave`].
    pub fn want(&mut self, n: u32) {
        self.limit = n.min(self.config.most_attached.max(1));
    }

    /// The source lists these, and no others.
    pub fn listed(&mut self, ids: impl IntoIterator<Item = MemberId>, now: Ns) {
        for member in self.members.values_mut() {
            member.is_listed = false;
        }
        for id in ids {
            let new = Member {
                is_listed: false,
                n_failures: 0,
                state: State::Waits { until: now },
            };
            self.members.entry(id).or_insert(new).is_listed = true;
        }
        // One that has lied stays known: another listing does not make it honest.
        self.members.retain(|_, member| {
            member.is_listed || !matches!(member.state, State::Waits { .. })
        });
    }
}

// ---- decisions ----------------------------------------------------------------------------

impl Members {
    /// The member to try now, which counts as being tried from here on; `None` where there is none.
    /// Say [`Self::attached`] or [`Self::failed`] when the try has ended.
    pub fn next_to_try(&mut self, now: Ns) -> Option<MemberId> {
        let is_due = |member: &Member| {
            let State::Waits { until } = member.state else { return false };
            member.is_listed && until <= now
        };
        if !self.may_try() {
            return None;
        }
        let due = self.members.iter().filter(|(_, member)| is_due(member));
        // Those that have not failed first; among these the order is this host's own.
        let key = |(id, member): &(&MemberId, &Member)| {
            (member.n_failures, draw(self.config.seed, **id, 0))
        };
        let id = *due.min_by_key(key)?.0;
        self.members.get_mut(&id)?.state = State::Trying;
        self.n_trying += 1;
        Some(id)
    }

    /// An attached member to let go: the source no longer lists it, or there are more than are wanted.
    /// It gets no further work, finishes what it has, and is then [`Self::left`]. `None` where there is none.
    pub fn next_to_leave(&mut self) -> Option<MemberId> {
        let is_surplus = self.n_attached > self.limit;
        let attached = self.members.iter().filter_map(|(id, member)| {
            let State::Attached { since } = member.state else { return None };
            (!member.is_listed || is_surplus).then_some((*id, member.is_listed, since))
        });
        // Those that are not listed first, then the newest: the others have proven themselves.
        let key = |(id, is_listed, since): &(MemberId, bool, Ns)| {
            (*is_listed, std::cmp::Reverse(*since), *id)
        };
        let (id, ..) = attached.min_by_key(key)?;
        self.members.get_mut(&id)?.state = State::Leaving;
        self.n_attached -= 1;
        Some(id)
    }

    /// When to ask for the next try though nothing happened; `None` where only an event brings one.
    #[must_use]
    pub fn wake_at(&self, now: Ns) -> Option<Ns> {
        if !self.may_try() {
            return None;
        }
        let waits = self.members.values().filter_map(|member| {
            let State::Waits { until } = member.state else { return None };
            member.is_listed.then_some(until.max(now))
        });
        waits.min()
    }

    fn may_try(&self) -> bool {
        self.n_trying < self.config.most_trying.max(1)
            && self.n_attached.saturating_add(self.n_trying) < self.limit
    }
}

// ---- events -------------------------------------------------------------------------------

impl Members {
    /// A member that was tried has been reached.
    pub fn attached(&mut self, id: MemberId, now: Ns) -> Welcome {
        let Some(member) = self.end_try(id) else { return Welcome::Unwanted };
        if !member.is_listed {
            self.forget(id);
            return Welcome::Unwanted;
        }
        member.state = State::Attached { since: now };
        self.n_attached += 1;
        Welcome::Attached
    }

    /// A try has failed.
    pub fn failed(&mut self, id: MemberId, why: Failure, now: Ns) {
        if self.end_try(id).is_some() {
            self.rests(id, why, now);
        }
    }

    /// The connection to an attached member, or to one that was leaving, is lost.
    pub fn lost(&mut self, id: MemberId, now: Ns) {
        let longest_ns = self.config.longest_wait_ns;
        let Some(member) = self.members.get_mut(&id) else { return };
        match member.state {
            State::Attached { since } => {
                // One that was well for long is not made to wait for how it was before.
                if now.since(since) > longest_ns {
                    member.n_failures = 0;
                }
                self.n_attached -= 1;
                self.rests(id, Failure::Fault, now);
            }
            State::Leaving => self.left(id, now),
            State::Waits { .. } | State::Trying | State::Barred => {}
        }
    }

    /// A member that was let go has finished what it had. It may be tried again if it is listed (again).
    pub fn left(&mut self, id: MemberId, now: Ns) {
        let Some(member) = self.members.get_mut(&id) else { return };
        if member.state == State::Leaving {
            member.state = State::Waits { until: now };
            if !member.is_listed {
                self.forget(id);
            }
        }
    }

    /// A member has lied: it is not tried again, whatever the source says.
    pub fn barred(&mut self, id: MemberId) {
        let Some(member) = self.members.get_mut(&id) else { return };
        match member.state {
            State::Attached { .. } => self.n_attached -= 1,
            State::Trying => self.n_trying -= 1,
            State::Waits { .. } | State::Leaving | State::Barred => {}
        }
        member.state = State::Barred;
    }

    fn end_try(&mut self, id: MemberId) -> Option<&mut Member> {
        let member = self.members.get_mut(&id)?;
        if member.state != State::Trying {
            return None;
        }
        self.n_trying -= 1;
        Some(member)
    }

    /// It waits after a failure, or is forgotten where nobody lists it.
    fn rests(&mut self, id: MemberId, why: Failure, now: Ns) {
        let MembersConfig { first_wait_ns, longest_wait_ns, seed, .. } = self.config;
        let Some(member) = self.members.get_mut(&id) else { return };
        if !member.is_listed {
            return self.forget(id);
        }
        let wait_ns = match why {
            Failure::Fault => {
                member.n_failures = member.n_failures.saturating_add(1);
                let doubled =
                    1_u64.checked_shl(member.n_failures - 1).unwrap_or(u64::MAX);
                let bound_ns = first_wait_ns.saturating_mul(doubled).min(longest_wait_ns);
                jittered(bound_ns, draw(seed, id, member.n_failures))
            }
            // One that says when to come back is there, and no harder to reach than before.
            Failure::Busy(ns) => ns.clamp(first_wait_ns, longest_wait_ns),
            Failure::Mistake => longest_wait_ns,
        };
        member.state = State::Waits { until: now.plus(wait_ns) };
    }

    fn forget(&mut self, id: MemberId) {
        self.members.remove(&id);
    }
}

/// A number of this host, this member and this failure; failure 0 is the order of the tries.
fn draw(seed: u64, id: MemberId, n_failures: u32) -> u32 {
    let [low, high] = words(id.0);
    let [draw, ..] = philox4x32_10([MEMBERS_DOMAIN, low, high, n_failures], words(seed));
    draw
}

/// Between half of the bound and the bound.
fn jittered(bound_ns: u64, draw: u32) -> u64 {
    let half = bound_ns / 2;
    let part = (u128::from(bound_ns - half) * u128::from(draw)) >> 32;
    half + u64::try_from(part).unwrap_or(0)
}

#[cfg(test)]
mod tests;
