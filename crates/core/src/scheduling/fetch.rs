//! Which ranges of remote objects are requested, when, and what is done about those that do not come.
//!
//! The plan of an epoch is known, so ranges are requested far ahead, in order of need, and may arrive in
//! any order: they wait in a reorder buffer that is bounded by bytes. Then the plan's order costs
//! almost nothing, even over a long link. The caller offers positions ([`FetchQueue::offer`]), carries
//! out the steps of [`FetchQueue::next`], says what came of them ([`FetchQueue::arrived`],
//! [`FetchQueue::failed`]), and takes positions in the order in which it needs them.
//!
//! Nothing here opens, waits or reads a clock; times are the caller's. The bytes themselves are the
//! caller's, too. What becomes of requests is in `answers`, and changes of the order in `demand`. Rules, each in its own file: `window` (how
//! many requests), `pending` (joining of neighbours), `recent` (when an answer is late), `retry` (waits
//! after failures).

mod answers;
mod config;
mod demand;
mod figures;
mod group;
mod item;
pub mod link;
mod pending;
mod recent;
mod retry;
mod share;
#[cfg(test)]
mod tests;
mod window;

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

pub use config::{FetchConfig, Growth, Hedge, MAX_GAP_BYTES};
use figures::{Cause, Waiting};
pub use figures::{FetchCounts, FetchFigures, FetchWaits};
use group::{Group, GroupId, Phase, Sent};
use item::{Item, State};
use pending::{Pending, Reach};
use recent::Recent;
use window::Window;

use crate::ids::Ns;
use crate::positions::{PositionMap, PositionSet};

/// A range that is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its place in the order of need; no two are equal.
    pub position: u64,
    /// The caller's number of the object.
    pub object: u32,
    /// Its bytes of the object.
    pub range: Range<u64>,
}

/// A request: never used twice by one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What the caller does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchStep {
    /// Request this range, and say what came of it.
    Request {
        /// The name under which to say it.
        request: RequestId,
        /// The caller's number of the object.
        object: u32,
        /// The bytes of the object.
        range: Range<u64>,
        /// The queue cancels it after so long without a part of the answer.
        timeout_ns: u64,
    },
    /// Nobody waits for this request any more; an answer to it is thrown away.
    Cancel {
        /// The request.
        request: RequestId,
    },
    /// Nothing answered in time, and the deadline has passed: the position has failed finally, and
    /// is not known any more.
    GiveUp {
        /// The position.
        position: u64,
    },
    /// Nothing to do before this time, or the next event.
    WakeAt(Ns),
    /// Nothing to do before the next event.
    Idle,
}

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The connection broke.
    Reset,
    /// The transport saw no answer in time.
    Timeout,
    /// The server is asked too much.
    Throttled {
        /// How long it wants to be left alone, if it says so.
        retry_after_ns: Option<u64>,
    },
    /// The server closed the connection before it looked at the request.
    GoAway,
    /// Nobody listens there, or the server has an internal error.
    Refused,
    /// It would fail again: not found, denied, changed.
    Final,
}

/// A position's part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The position.
    pub position: u64,
    /// Its bytes, counted from the first byte of the answer.
    pub bytes: Range<u64>,
}

/// The fetches of one epoch of one rank. Takes events and questions with the caller's time, which
/// never goes back; never blocks.
///
/// # Contract
///
/// 1. Every offered position arrives once ([`Self::arrived`]), fails finally once ([`Self::failed`],
///    [`FetchStep::GiveUp`]), or is withdrawn.
/// 2. At most `max_requests` are in flight and `max_bytes` of them, and at most `reorder_bytes` are
///    held. Only the position that delivery waits for exceeds a bound, by itself: the lowest one
///    that has not been taken, and the one named with [`Self::awaits`]. So no bound can lock up, if a
///    position is taken once it has arrived; who takes several together names the one that is missing.
///    A hedge is one request more.
/// 3. A request without an answer is cancelled in time: nothing hangs.
#[derive(Debug)]
pub struct FetchQueue {
    config: FetchConfig,
    /// Offered, and neither taken, withdrawn nor failed.
    items: PositionMap<Item>,
    pending: Pending,
    /// Those of the items that have not arrived.
    missing: PositionSet,
    awaited: Option<u64>,
    /// By their names, like `sent`.
    groups: PositionMap<Group>,
    sent: PositionMap<Sent>,
    timeouts: BTreeSet<(Ns, RequestId)>,
    retries: BTreeSet<(Ns, GroupId)>,
    cancels: VecDeque<RequestId>,
    gave_up: VecDeque<u64>,
    window: Window,
    /// Bytes in flight at most, where that is less than the bound.
    limit_bytes: Option<u64>,
    recent: Recent,
    /// Answers that pay for hedges.
    hedge_credit: u32,
    throttled_at: Option<Ns>,
    /// When an answer, or a part of one, last came.
    answered_at: Option<Ns>,
    in_flight_bytes: u64,
    waiting_bytes: u64,
    reordered_bytes: u64,
    held_bytes: u64,
    committed_bytes: u64,
    /// Number and bytes of all that was offered.
    offered: (u64, u64),
    next_id: u64,
    counts: FetchCounts,
    waiting: Waiting,
    pieces: Vec<Piece>,
    failed: Vec<u64>,
}

/// Why a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    First,
    Again,
    Hedge,
}

/// A hedge is paid for by so many answers: two requests in a hundred at most are hedges.
const HEDGE_COST: u32 = 50;
/// So many hedges may be saved up.
const MOST_HEDGES: u32 = 8;

impl FetchQueue {
    /// A queue to which nothing has been offered.
    #[must_use]
    pub fn new(config: FetchConfig) -> Self {
        Self {
            config,
            items: PositionMap::default(),
            pending: Pending::default(),
            missing: PositionSet::default(),
            awaited: None,
            groups: PositionMap::default(),
            sent: PositionMap::default(),
            timeouts: BTreeSet::new(),
            retries: BTreeSet::new(),
            cancels: VecDeque::new(),
            gave_up: VecDeque::new(),
            window: Window::new(&config),
            limit_bytes: None,
            recent: Recent::new(),
            hedge_credit: HEDGE_COST * MOST_HEDGES,
            throttled_at: None,
            answered_at: None,
            in_flight_bytes: 0,
            waiting_bytes: 0,
            reordered_bytes: 0,
            held_bytes: 0,
            committed_bytes: 0,
            offered: (0, 0),
            next_id: 0,
            counts: FetchCounts::default(),
            waiting: Waiting::default(),
            pieces: Vec::new(),
            failed: Vec::new(),
        }
    }
}

// ---- what is wanted -----------------------------------------------------------------------

impl FetchQueue {
    /// A range is needed. Offer far ahead and in order of need; a position that is known already is
    /// ignored. A lower position than those offered before is requested before them.
    pub fn offer(&mut self, wanted: Wanted) {
        let Wanted { position, object, range } = wanted;
        if self.items.contains(position) {
            return;
        }
        let range = range.start..range.end.max(range.start);
        self.offered.0 += 1;
        self.offered.1 = self.offered.1.saturating_add(range.end - range.start);
        self.pending.insert(position, object, &range);
        self.missing.insert(position);
        self.items.insert(position, Item::new(object, range));
    }

    /// A position is not needed any more, as a device makes its batch: its request is cancelled, or
    /// what has come is to be dropped. It may be offered again.
    pub fn withdraw(&mut self, position: u64) {
        let Some(item) = self.items.remove(position) else { return };
        self.counts.withdrawn += 1;
        self.missing.remove(position);
        self.committed_bytes -= item.committed_bytes();
        match item.state {
            State::Pending => {
                self.pending.remove(position, item.object, item.range.start);
            }
            State::Asked(group) | State::Here(group) => self.leave(group),
        }
    }

    /// The bytes of a position that has arrived leave the reorder buffer. The bytes of ranges that
    /// were joined are counted until the last of them is taken: they are one buffer.
    pub fn taken(&mut self, position: u64) {
        let Some(Item { state: State::Here(group), .. }) = self.items.get(position)
        else {
            return;
        };
        let group = *group;
        self.items.remove(position);
        self.leave(group);
    }

    /// From now on so many bytes may be in flight at most, if that is less than `max_bytes`: others use the link, too.
    /// What is on its way is not cancelled.
    pub fn limit_bytes(&mut self, limit: Option<u64>) {
        self.limit_bytes = limit;
    }

    /// The state, what has happened, and what was waited for.
    #[must_use]
    pub fn figures(&self) -> FetchFigures {
        FetchFigures {
            in_flight: count(self.sent.len()),
            in_flight_bytes: self.in_flight_bytes,
            waiting: count(self.retries.len()),
            window: self.window.limit(),
            reordered_bytes: self.reordered_bytes,
            held_bytes: self.held_bytes,
            offered: self.items.len() as u64,
            p99_ns: self.recent.p99_ns().unwrap_or(0),
            counts: self.counts,
            waits: self.waiting.waits,
        }
    }

    /// A member of a group is taken or withdrawn; the last one ends the group.
    fn leave(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(id.0) else { return };
        group.live = group.live.saturating_sub(1);
        if group.live == 0 {
            self.end(id);
        }
    }

    /// Forgets a group, and what is on its way for it.
    fn end(&mut self, id: GroupId) {
        let Some(group) = self.groups.remove(id.0) else { return };
        self.held_bytes -= group.len();
        for request in group.requests() {
            self.forget(request);
            self.cancels.push_back(request);
            self.counts.cancelled += 1;
        }
        match group.phase {
            Phase::Sent(..) => {}
            Phase::Waiting(at) => {
                self.retries.remove(&(at, id));
                self.waiting_bytes -= group.len();
            }
            Phase::Here => self.reordered_bytes -= group.len(),
        }
    }

    /// A request is no longer in flight; its group may be gone already.
    fn forget(&mut self, request: RequestId) -> Option<Sent> {
        let sent = self.sent.remove(request.0)?;
        self.timeouts.remove(&(sent.times_out, request));
        self.in_flight_bytes -= sent.len;
        Some(sent)
    }
}

// ---- what to do ---------------------------------------------------------------------------

impl FetchQueue {
    /// What to do next. Ask until it is [`FetchStep::WakeAt`] or [`FetchStep::Idle`], and again after
    /// each event.
    pub fn next(&mut self, now: Ns) -> FetchStep {
        self.waiting.end(now);
        self.expire(now);
        let due = self.due(now);
        if let Some(request) = self.cancels.pop_front() {
            return FetchStep::Cancel { request };
        }
        if let Some(position) = self.gave_up.pop_front() {
            return FetchStep::GiveUp { position };
        }
        if let Some(group) = due {
            return self.send(group, Why::Again, now);
        }
        if let Some(group) = self.late(now) {
            return self.send(group, Why::Hedge, now);
        }
        match self.begin(now) {
            Ok(group) => self.send(group, Why::First, now),
            Err(cause) => {
                if cause == Cause::Requests {
                    self.window.limits();
                }
                self.waiting.begin(self.booked_as(cause, now), now);
                self.wake_at(now).map_or(FetchStep::Idle, FetchStep::WakeAt)
            }
        }
    }

    /// Gives up requests that nothing answered in time.
    fn expire(&mut self, now: Ns) {
        while let Some((_, request)) =
            self.timeouts.first().copied().filter(|(at, _)| *at <= now)
        {
            self.counts.timed_out += 1;
            self.cancels.push_back(request);
            self.failed.clear();
            self.fail(request, Failure::Timeout, now);
            self.gave_up.extend(&self.failed);
        }
    }

    /// The position that everything waits for.
    fn oldest(&self) -> Option<u64> {
        let awaited = self.awaited.filter(|position| self.missing.contains(*position));
        awaited.or_else(|| self.missing.first())
    }

    /// The group of the oldest missing position, if that is requested.
    fn oldest_group(&self) -> Option<(GroupId, &Group)> {
        let item = self.items.get(self.oldest()?)?;
        let State::Asked(id) = item.state else { return None };
        Some((id, self.groups.get(id.0)?))
    }

    /// A failed group that is to be sent again; those whose deadline passed while they waited for
    /// room are given up.
    fn due(&mut self, now: Ns) -> Option<GroupId> {
        loop {
            let id = self.has_room_again(now)?;
            if self.is_in_time(id, now) {
                return Some(id);
            }
            self.failed.clear();
            self.give_up(id);
            self.gave_up.extend(&self.failed);
        }
    }

    /// A failed group whose wait is over, and for which there is room.
    fn has_room_again(&self, now: Ns) -> Option<GroupId> {
        let (_, first) = *self.retries.first().filter(|(at, _)| *at <= now)?;
        let group = self.groups.get(first.0)?;
        let has_room = count(self.sent.len()) < self.window.limit()
            && self.in_flight_bytes.saturating_add(group.len()) <= self.config.max_bytes;
        if has_room {
            return Some(first);
        }
        let is_due =
            |group: &Group| matches!(group.phase, Phase::Waiting(at) if at <= now);
        self.oldest_group().filter(|(_, group)| is_due(group)).map(|(id, _)| id)
    }

    /// The group of the oldest missing position, if its answer is late and a second request may
    /// be sent.
    fn late(&self, now: Ns) -> Option<GroupId> {
        let (id, at) = self.hedge_at()?;
        (at <= now).then_some(id)
    }

    /// When the oldest missing position is requested a second time.
    fn hedge_at(&self) -> Option<(GroupId, Ns)> {
        if self.config.hedge == Hedge::Off || self.hedge_credit < HEDGE_COST {
            return None;
        }
        let p99_ns = self.recent.p99_ns()?;
        let (id, group) = self.oldest_group()?;
        let Phase::Sent(Some(request), None) = group.phase else { return None };
        let sent = self.sent.get(request.0).filter(|_| !group.was_hedged)?;
        // Equal latencies are no reason: a little later than almost all.
        let late_ns = p99_ns.saturating_add(p99_ns / 8).saturating_add(1);
        let late_ns = self.for_bytes(late_ns, sent.len);
        let late = sent.at.plus(late_ns);
        // A server that is asked too much is not asked twice.
        let calm = self.throttled_at.map(|at| at.plus(self.config.timeout_ns));
        Some((id, calm.map_or(late, |calm| calm.max(late))))
    }

    /// As much time as a mean answer gets, or more: what is longer than others may take longer.
    fn for_bytes(&self, ns: u64, len: u64) -> u64 {
        let mean = (self.counts.bytes / self.counts.answered.max(1)).max(1);
        let longer = u128::from(ns) * u128::from(len) / u128::from(mean);
        ns.max(u64::try_from(longer).unwrap_or(u64::MAX))
    }

    /// Begins a group with the position that is needed first, and its neighbours.
    fn begin(&mut self, now: Ns) -> Result<GroupId, Cause> {
        let awaited = self.awaited.filter(|position| self.pending.contains(*position));
        let position = awaited.or_else(|| self.pending.first()).ok_or(Cause::Offer)?;
        let is_urgent = awaited.is_some() || self.items.first() == Some(position);
        let item = self.items.get(position).ok_or(Cause::Offer)?;
        let (object, mut range) = (item.object, item.range.clone());
        let blocked = self.blocks(range.end - range.start);
        if let Some(cause) = blocked {
            if !is_urgent {
                return Err(cause);
            }
            self.counts.urgent += 1;
        }
        self.pending.remove(position, object, range.start);
        let mut members = vec![position];
        if blocked.is_none() && self.config.most_joined_bytes > 0 {
            let reach = self.reach(position);
            self.pending.take_neighbours(object, &mut range, reach, &mut members);
        }
        let id = GroupId(self.new_id());
        for member in &members {
            if let Some(item) = self.items.get_mut(*member) {
                self.committed_bytes -= item.committed_bytes();
                item.state = State::Asked(id);
            }
        }
        self.counts.joined += members.len() as u64 - 1;
        self.held_bytes += range.end - range.start;
        let group = Group {
            object,
            range,
            live: members.len(),
            members,
            phase: Phase::Sent(None, None),
            failures: 0,
            gone_away: 0,
            broken_off: 0,
            heard: 0,
            was_hedged: false,
            began: now,
            deadline: now.plus(self.deadline_ns()),
        };
        self.groups.insert(id.0, group);
        Ok(id)
    }

    /// How long a position is tried.
    fn deadline_ns(&self) -> u64 {
        let Some(_) = self.answered_at else { return self.config.deadline_ns };
        self.config.patience_ns.max(self.config.deadline_ns)
    }

    /// What keeps so many bytes from being requested.
    fn blocks(&self, len: u64) -> Option<Cause> {
        let in_flight = count(self.sent.len());
        let limit = self.window.limit();
        // What failed keeps its place: a server that is gone is not asked more and more.
        if in_flight.saturating_add(count(self.retries.len())) >= limit {
            return Some(if in_flight < limit { Cause::Retry } else { Cause::Requests });
        }
        if len > self.room_in_flight() {
            return Some(Cause::Bytes);
        }
        (len > self.room_held()).then_some(Cause::Reorder)
    }

    fn room_in_flight(&self) -> u64 {
        let placed = self.in_flight_bytes.saturating_add(self.waiting_bytes);
        let most = self.config.max_bytes.min(self.limit_bytes.unwrap_or(u64::MAX));
        most.max(1).saturating_sub(placed)
    }

    fn room_held(&self) -> u64 {
        self.config.reorder_bytes.max(1).saturating_sub(self.held_bytes)
    }

    /// What may come with a position: what is needed before the reorder buffer would be full.
    fn reach(&self, position: u64) -> Reach {
        let room = self.room_in_flight().min(self.room_held());
        let mean = self.offered.1 / self.offered.0.max(1);
        let ahead = self.config.reorder_bytes / mean.max(1);
        Reach {
            most_bytes: self.config.most_joined_bytes.min(room),
            max_gap_bytes: self.config.max_gap_bytes,
            from: position,
            ahead,
            taken: 0,
        }
    }

    fn send(&mut self, id: GroupId, why: Why, now: Ns) -> FetchStep {
        let request = RequestId(self.new_id());
        let is_first = self.sent.is_empty();
        let Some(group) = self.groups.get_mut(id.0) else { return FetchStep::Idle };
        match (why, group.phase) {
            (Why::Hedge, Phase::Sent(first, _)) => {
                group.phase = Phase::Sent(first, Some(request));
                group.was_hedged = true;
                self.hedge_credit -= HEDGE_COST;
                self.counts.hedged += 1;
            }
            (_, Phase::Waiting(at)) => {
                self.retries.remove(&(at, id));
                self.waiting_bytes -= group.len();
                group.phase = Phase::Sent(Some(request), None);
                self.counts.retried += 1;
            }
            (_, _) => group.phase = Phase::Sent(Some(request), None),
        }
        let slow_ns = self.recent.slow_ns().unwrap_or(0);
        if slow_ns > self.config.timeout_ns {
            group.is_borne(&self.config, slow_ns, now);
        }
        let patience_ns = self.config.timeout_ns.max(slow_ns);
        let timeout_ns = patience_ns.min(group.deadline.since(now)).max(1);
        let (object, range, len) = (group.object, group.range.clone(), group.len());
        let times_out = now.plus(timeout_ns);
        let is_hedge = why == Why::Hedge;
        let sent = Sent { group: id, at: now, len, times_out, is_hedge };
        self.sent.insert(request.0, sent);
        self.timeouts.insert((times_out, request));
        self.in_flight_bytes += len;
        self.counts.requested += 1;
        self.counts.most_in_flight =
            self.counts.most_in_flight.max(count(self.sent.len()));
        if is_first {
            self.window.begins(now);
        }
        FetchStep::Request { request, object, range, timeout_ns }
    }

    /// When to ask again though nothing happened.
    fn wake_at(&self, now: Ns) -> Option<Ns> {
        let times_out = self.timeouts.first().map(|(at, _)| *at);
        // One that is due already has no room, and gets it with an event.
        let retry =
            self.retries.range((now.plus(1), GroupId(0))..).next().map(|(at, _)| *at);
        let hedge = self.hedge_at().map(|(_, at)| at).filter(|at| *at > now);
        [times_out, retry, hedge].into_iter().flatten().min()
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
