//! What became of requests: answers go to the reorder buffer, failures to a retry or to the caller.
//!
//! The other half of a [`FetchQueue`]: `fetch.rs` decides what is requested.

use crate::ids::Ns;

use super::config::FetchConfig;
use super::group::{Group, GroupId, Phase};
use super::{
    Failure, FetchQueue, HEDGE_COST, Item, MOST_HEDGES, Piece, RequestId, State, retry,
};

/// How often an answer may break off and still move its group's deadline on when parts of it come.
const MOST_BROKEN_OFF: u32 = 4;

impl FetchQueue {
    /// The position whose bytes are all that a request in flight brings; `None` where it brings those of several, or of
    /// none any more.
    #[must_use]
    pub fn only_position(&self, request: RequestId) -> Option<u64> {
        let group = self.groups.get(self.sent.get(request.0)?.group.0)?;
        let [position] = group.members[..] else { return None };
        let item = self.items.get(position)?;
        (item.range == group.range).then_some(position)
    }

    /// A request was answered in full. Which position has which part of the bytes; nobody has any of
    /// them where this is empty, as another request was first or the positions were withdrawn.
    pub fn arrived(&mut self, request: RequestId, now: Ns) -> &[Piece] {
        self.pieces.clear();
        let Some(sent) = self.forget(request) else { return &self.pieces };
        let Some(group) = self.groups.get_mut(sent.group.0) else { return &self.pieces };
        group.forget(request);
        let others = group.requests();
        group.phase = Phase::Here;
        for member in &group.members {
            let Some(item) = self.items.get_mut(*member) else { continue };
            if item.state == State::Asked(sent.group) {
                item.state = State::Here(sent.group);
                self.missing.remove(*member);
                let start = item.range.start - group.range.start;
                let bytes = start..item.range.end - group.range.start;
                self.pieces.push(Piece { position: *member, bytes });
            }
        }
        let latency_ns = now.since(sent.at);
        self.recent.push(latency_ns);
        self.answered_at = Some(now);
        self.window.answered(sent.len, latency_ns, now);
        self.hedge_credit = (self.hedge_credit + 1).min(HEDGE_COST * MOST_HEDGES);
        self.reordered_bytes += sent.len;
        self.counts.answered += 1;
        self.counts.bytes = self.counts.bytes.saturating_add(sent.len);
        self.counts.hedges_won += u64::from(sent.is_hedge);
        for other in others {
            if let Some(overtaken) = self.forget(other).filter(|_| sent.is_hedge) {
                self.recent.push(now.since(overtaken.at));
            }
            self.cancels.push_back(other);
            self.counts.cancelled += 1;
        }
        &self.pieces
    }

    /// A part of the answer has come: the link is slow and not dead, so the timeout of the request and the deadline
    /// of its group begin again. The caller says so for parts of some size: else a server that sends a byte now
    /// and then would never be given up.
    ///
    /// But a first request has at most its timeout, or as long as makes an answer slow among the recent ones: if
    /// others come quickly, its connection is slow and not the link, and another one is better. Each retry has
    /// twice as long as the attempt before, as the link may have become slow for all.
    pub fn heard(&mut self, request: RequestId, now: Ns) {
        let Some(sent) = self.sent.get(request.0).copied() else { return };
        self.answered_at = Some(now);
        let deadline_ns = self.deadline_ns();
        let slow_ns = self
            .recent
            .slow_ns()
            .map(|ns| self.for_bytes(ns, sent.len).max(self.config.timeout_ns));
        let Some(group) = self.groups.get_mut(sent.group.0) else { return };
        // An answer that has broken off again and again gets no further however long it is given.
        group.heard = group.heard.saturating_add(1);
        if group.broken_off <= MOST_BROKEN_OFF {
            group.deadline = group.deadline.max(now.plus(deadline_ns));
        }
        let later = now.plus(self.config.timeout_ns);
        let later = slow_ns.map_or(later, |slow_ns| {
            let doubled = 1_u64.checked_shl(group.failures).unwrap_or(u64::MAX);
            later.min(sent.at.plus(slow_ns.saturating_mul(doubled)))
        });
        if let Some(sent) = self.sent.get_mut(request.0).filter(|it| it.times_out < later)
        {
            self.timeouts.remove(&(sent.times_out, request));
            self.timeouts.insert((later, request));
            sent.times_out = later;
        }
    }

    /// A request failed. The positions that have failed finally with it; they are not known any
    /// more. All others are retried.
    pub fn failed(&mut self, request: RequestId, failure: Failure, now: Ns) -> &[u64] {
        self.failed.clear();
        self.fail(request, failure, now);
        &self.failed
    }

    /// Plans a retry, or adds to `failed`.
    pub(super) fn fail(&mut self, request: RequestId, failure: Failure, now: Ns) {
        let Some(sent) = self.forget(request) else { return };
        if matches!(failure, Failure::Throttled { .. }) {
            self.counts.throttled += 1;
            self.throttled_at = Some(now);
            self.window.throttled(sent.at, now);
        }
        if failure == Failure::Timeout {
            self.window.timed_out(sent.at, now);
        }
        let is_alive = self.answered_at.is_some_and(|at| at >= sent.at);
        let deadline_ns = self.deadline_ns();
        let Some(group) = self.groups.get_mut(sent.group.0) else { return };
        // It may have begun before the store's first answer.
        group.deadline = group.deadline.max(group.began.plus(deadline_ns));
        let heard = std::mem::take(&mut group.heard);
        group.broken_off += u32::from(failure == Failure::Reset && heard > 0);
        group.forget(request);
        if failure == Failure::Final {
            return self.give_up(sent.group);
        }
        if group.requests().next().is_some() {
            return;
        }
        match retry_at(&self.config, group, (failure, is_alive), now) {
            Some(at) => {
                group.phase = Phase::Waiting(at);
                self.waiting_bytes += group.len();
                self.retries.insert((at, sent.group));
            }
            None => self.give_up(sent.group),
        }
    }

    /// Whether there is time for a group that waited for room: where the server has answered anyone
    /// within a deadline, be it that it is asked too much, time is what the group is given.
    pub(super) fn is_in_time(&mut self, id: GroupId, now: Ns) -> bool {
        let Some(group) = self.groups.get_mut(id.0) else { return false };
        let heard = self.answered_at.max(self.throttled_at);
        let is_alive = heard.is_some_and(|at| at.plus(self.config.deadline_ns) > now);
        if group.deadline <= now && is_alive {
            group.is_borne(&self.config, 0, now);
        }
        now < group.deadline
    }

    /// All that is left of a group fails finally.
    pub(super) fn give_up(&mut self, id: GroupId) {
        let Some(group) = self.groups.get(id.0) else { return };
        for member in &group.members {
            let asked = |item: &Item| item.state == State::Asked(id);
            if self.items.get(*member).is_some_and(asked) {
                self.items.remove(*member);
                self.missing.remove(*member);
                self.failed.push(*member);
            }
        }
        self.counts.failed += self.failed.len() as u64;
        self.end(id);
    }
}

/// When a group is sent again; `None` if its deadline passes before.
fn retry_at(
    config: &FetchConfig,
    group: &mut Group,
    (failure, is_alive): (Failure, bool),
    now: Ns,
) -> Option<Ns> {
    let mut least_ns = 0;
    match failure {
        // The server never looked at it: no reason to wait, unless that becomes a habit.
        Failure::GoAway if group.gone_away == 0 => {
            group.gone_away = 1;
            return (now < group.deadline).then_some(now);
        }
        Failure::Throttled { retry_after_ns } => {
            least_ns = retry_after_ns.unwrap_or(0);
            // What the server asks for takes nothing of the time that the next attempt has.
            let needs_ns = least_ns.saturating_add(config.deadline_ns);
            group.is_borne(config, needs_ns, now);
        }
        // The link is slow rather than dead.
        Failure::Timeout if is_alive => group.is_borne(config, 0, now),
        Failure::GoAway
        | Failure::Reset
        | Failure::Timeout
        | Failure::Refused
        | Failure::Final => {}
    }
    group.failures = group.failures.saturating_add(1);
    let position = group.members.first().copied().unwrap_or(0);
    // A store that has been gone for a while is asked less often: many ranks wait for it.
    let most_retry_ns = config.most_retry_ns.max(now.since(group.began) / 16);
    let config = FetchConfig { most_retry_ns, ..*config };
    let wait_ns = retry::wait_ns(&config, position, group.failures);
    let at = now.plus(least_ns.saturating_add(wait_ns));
    (at < group.deadline).then_some(at)
}
