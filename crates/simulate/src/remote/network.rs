//! A model of connections over a long link: what makes the answers of equal requests unequally late.
//!
//! A connection takes one request at a time, as HTTP/1.1 does. It opens with one round trip, and sends
//! what its congestion window admits in a round trip. The window begins with ten segments and
//! doubles up to a bound; it is kept while the connection is idle. A window's bytes are paced over the
//! round trip, and all connections share the link's rate, first come first served. A lost packet delays
//! the rest of an answer: by one round trip, by two if it is one of the last three, and by
//! doubling timeouts if it is lost again. Loss does not shrink the window, as with BBR.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use bothends_core::fetch::{Failure, RequestId};
use bothends_core::ids::Ns;

use super::{after, float};
use crate::noise::Noise;

/// Bytes of a packet.
const SEGMENT: u64 = 1_448;
/// Segments of a new connection's window.
const FIRST_SEGMENTS: u64 = 10;
/// So many packets after a lost one say that it is lost.
const DUPLICATES: f64 = 3.0;
/// The least time after which a packet is sent again without such a sign, beyond a round trip.
const LEAST_TIMEOUT_S: f64 = 0.2;

/// What is between a caller and its records.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// The time there and back.
    pub rtt_ns: u64,
    /// What all connections share.
    pub bytes_per_s: f64,
    /// The part of the packets that is lost.
    pub loss: f64,
    /// The most that one connection has on its way.
    pub window_bytes: u64,
    /// What goes wrong.
    pub fault: Fault,
}

/// What goes wrong with a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing but loss.
    None,
    /// The server is gone from the first time to the second: connections break, new ones are refused.
    Gone(Ns, Ns),
    /// The connection that takes the first request after this time never answers it.
    BlackHole(Ns),
}

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Arrived(RequestId),
    /// A part of its answer was acknowledged.
    Part(RequestId),
    Failed(RequestId, Failure),
}

#[derive(Debug, Clone)]
struct Connection {
    opened: Ns,
    window: u64,
    /// Bytes of the answer, and those that the server has not sent.
    asked: u64,
    left: u64,
    request: RequestId,
    /// When all that was sent has arrived.
    arrives: Ns,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    /// The server sends what the window admits.
    Send,
    Arrive,
    Break,
}

/// Connections in use, and idle ones.
#[derive(Debug)]
pub(super) struct Connections {
    network: Network,
    noise: Noise,
    busy: BTreeMap<RequestId, Connection>,
    idle: Vec<Connection>,
    moments: BinaryHeap<Reverse<(Ns, RequestId, Moment)>>,
    link_free: Ns,
    has_black_hole: bool,
}

impl Connections {
    pub(super) fn new(network: Network, seed: u64) -> Self {
        Self {
            network,
            noise: Noise::new(seed, 0x71),
            busy: BTreeMap::new(),
            idle: Vec::new(),
            moments: BinaryHeap::new(),
            link_free: Ns(0),
            has_black_hole: false,
        }
    }

    /// A request for so many bytes leaves.
    pub(super) fn request(&mut self, request: RequestId, bytes: u64, now: Ns) {
        let rtt_ns = self.network.rtt_ns;
        let broken_at = match self.network.fault {
            Fault::Gone(from, _) if from <= now => Some(from),
            Fault::Gone(..) | Fault::None | Fault::BlackHole(_) => None,
        };
        let known = std::iter::from_fn(|| self.idle.pop())
            .find(|it| broken_at.is_none_or(|at| it.opened > at));
        let begins = if known.is_some() { now } else { now.plus(rtt_ns) };
        let mut connection = known.unwrap_or(Connection {
            opened: now,
            window: FIRST_SEGMENTS * SEGMENT,
            asked: 0,
            left: 0,
            request,
            arrives: now,
        });
        (connection.asked, connection.left, connection.request) = (bytes, bytes, request);
        self.busy.insert(request, connection);
        if let Fault::BlackHole(from) = self.network.fault
            && from <= now
            && !self.has_black_hole
        {
            self.has_black_hole = true;
            return;
        }
        self.push(begins.plus(rtt_ns / 2), request, Moment::Send);
    }

    /// A request is not waited for any more: its connection is closed, as half an answer is in it.
    pub(super) fn cancel(&mut self, request: RequestId) {
        self.busy.remove(&request);
    }

    /// When something happens next.
    pub(super) fn next_at(&self) -> Option<Ns> {
        self.moments.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Something happens; what came of a request with it, if anything did.
    pub(super) fn step(&mut self) -> Option<Answer> {
        let Reverse((now, request, moment)) = self.moments.pop()?;
        match moment {
            Moment::Send => {
                let is_first = |it: &Connection| it.left == it.asked;
                let is_first = self.busy.get(&request).is_none_or(is_first);
                self.send(request, now);
                (!is_first).then_some(Answer::Part(request))
            }
            Moment::Arrive => {
                let connection = self.busy.remove(&request)?;
                self.idle.push(connection);
                Some(Answer::Arrived(request))
            }
            Moment::Break => {
                self.busy.remove(&request)?;
                Some(Answer::Failed(request, Failure::Reset))
            }
        }
    }

    fn push(&mut self, at: Ns, request: RequestId, moment: Moment) {
        self.moments.push(Reverse((at, request, moment)));
    }

    /// One window of an answer.
    fn send(&mut self, request: RequestId, now: Ns) {
        let (rtt_ns, cap) = (self.network.rtt_ns, self.network.window_bytes);
        let Some(mut connection) = self.busy.remove(&request) else { return };
        if let Fault::Gone(from, to) = self.network.fault
            && from <= now
            && (now < to || connection.opened < from)
        {
            self.busy.insert(request, connection);
            self.push(now.plus(rtt_ns / 2), request, Moment::Break);
            return;
        }
        let burst = connection.left.min(connection.window);
        let paced_s =
            float(rtt_ns) / 1e9 * float(burst) / float(connection.window.max(1));
        let begins = self.link_free.max(now);
        self.link_free = after(begins, float(burst) / self.network.bytes_per_s);
        let last = self.link_free.max(after(now, paced_s)).plus(rtt_ns / 2);
        let arrives = last.plus(self.recovery_ns(burst));
        connection.arrives = connection.arrives.max(arrives);
        connection.left -= burst;
        connection.window = (connection.window + burst).min(cap);
        if connection.left == 0 {
            self.push(connection.arrives, request, Moment::Arrive);
        } else {
            self.push(begins.plus(rtt_ns), request, Moment::Send);
        }
        self.busy.insert(request, connection);
    }

    /// How much later the last of so many bytes is there because packets were lost.
    fn recovery_ns(&mut self, bytes: u64) -> u64 {
        let (loss, rtt_ns) = (self.network.loss, self.network.rtt_ns);
        let packets = float(bytes.div_ceil(SEGMENT));
        if loss <= 0.0 || self.noise.uniform() < (1.0 - loss).powf(packets) {
            return 0;
        }
        let is_tail = self.noise.uniform() < DUPLICATES / packets;
        let mut late_ns = if is_tail { 2 * rtt_ns } else { rtt_ns };
        let mut timeout_ns = after(Ns(rtt_ns), LEAST_TIMEOUT_S).0;
        // What is sent again may be lost as well.
        while self.noise.uniform() < loss {
            late_ns = late_ns.saturating_add(timeout_ns);
            timeout_ns = timeout_ns.saturating_mul(2);
        }
        late_ns
    }
}
