//! One epoch of records fetched over a link: the queue decides, the network answers, and the consumer
//! takes what it may at once.

use std::collections::BTreeSet;

use bothends_core::fetch::{
    FetchConfig, FetchCounts, FetchQueue, FetchStep, RequestId, Wanted,
};
use bothends_core::ids::Ns;

use super::network::{Answer, Connections};
use super::{Delivery, RemoteWorld, float};
use crate::noise::Noise;

/// What became of an epoch.
#[derive(Debug, Clone)]
pub struct RemoteOutcome {
    /// When the last record was delivered.
    pub ended: Ns,
    /// Records delivered; the others failed.
    pub n_delivered: u32,
    /// The longest time without a delivery, the first excluded.
    pub longest_gap_ns: u64,
    /// The positions in the order of their delivery.
    pub delivered: Vec<u64>,
    /// What the queue did.
    pub counts: FetchCounts,
    /// Requests that might be in flight at the end.
    pub window: u32,
    /// The latency that few recent answers exceeded at the end.
    pub p99_ns: u64,
}

/// Fetches all records of an epoch.
#[must_use]
pub fn fetch(world: &RemoteWorld) -> RemoteOutcome {
    let mut player = Player::new(world);
    player.offer(world);
    while let Some(at) = player.carry_out() {
        player.now = player.now.max(at);
        while player.network.next_at().is_some_and(|at| at <= player.now) {
            if let Some(answer) = player.network.step() {
                player.hear(answer);
            }
        }
    }
    let figures = player.queue.figures();
    RemoteOutcome {
        ended: player.delivered_at,
        n_delivered: u32::try_from(player.delivered.len()).unwrap_or(u32::MAX),
        longest_gap_ns: player.longest_gap_ns,
        delivered: player.delivered,
        counts: figures.counts,
        window: figures.window,
        p99_ns: figures.p99_ns,
    }
}

struct Player {
    queue: FetchQueue,
    network: Connections,
    delivery: Delivery,
    now: Ns,
    /// Those that have arrived and wait for their turn.
    here: BTreeSet<u64>,
    failed: BTreeSet<u64>,
    /// Of the plan's order.
    next: u64,
    delivered: Vec<u64>,
    delivered_at: Ns,
    longest_gap_ns: u64,
}

impl Player {
    fn new(world: &RemoteWorld) -> Self {
        let window = u64::from(world.requests).saturating_mul(world.record_bytes);
        let reorder_bytes = match world.delivery {
            Delivery::Ordered(factor) => window.saturating_mul(factor.into()),
            Delivery::Unordered => u64::MAX,
        };
        let config = FetchConfig {
            max_requests: world.requests,
            max_bytes: u64::MAX,
            reorder_bytes,
            ramp: world.ramp,
            growth: world.growth,
            most_joined_bytes: 0,
            hedge: world.hedge,
            seed: world.seed,
            ..FetchConfig::default()
        };
        Self {
            queue: FetchQueue::new(config),
            network: Connections::new(world.network.clone(), world.seed),
            delivery: world.delivery,
            now: Ns(0),
            here: BTreeSet::new(),
            failed: BTreeSet::new(),
            next: 0,
            delivered: Vec::new(),
            delivered_at: Ns(0),
            longest_gap_ns: 0,
        }
    }

    /// The plan is known: all of it.
    fn offer(&mut self, world: &RemoteWorld) {
        let mut noise = Noise::new(world.seed, 0x72);
        for position in 0..u64::from(world.n_records) {
            let len = rounded(float(world.record_bytes) * noise.factor(world.cv));
            self.queue.offer(Wanted { position, object: 0, range: 0..len });
        }
    }

    /// Carries out what the queue wants; when to go on, if there is anything left.
    fn carry_out(&mut self) -> Option<Ns> {
        loop {
            match self.queue.next(self.now) {
                FetchStep::Request { request, range, .. } => {
                    self.network.request(request, range.end - range.start, self.now);
                }
                FetchStep::Cancel { request } => self.network.cancel(request),
                FetchStep::GiveUp { position } => self.fails(&[position]),
                FetchStep::WakeAt(at) => {
                    let answer = self.network.next_at();
                    return Some(answer.map_or(at, |answer| answer.min(at)));
                }
                FetchStep::Idle => return None,
            }
        }
    }

    fn hear(&mut self, answer: Answer) {
        match answer {
            Answer::Arrived(request) => self.arrives(request),
            Answer::Part(request) => self.queue.heard(request, self.now),
            Answer::Failed(request, failure) => {
                let failed = self.queue.failed(request, failure, self.now).to_vec();
                self.fails(&failed);
            }
        }
    }

    fn arrives(&mut self, request: RequestId) {
        let pieces = self.queue.arrived(request, self.now);
        self.here.extend(pieces.iter().map(|piece| piece.position));
        self.deliver();
    }

    fn fails(&mut self, positions: &[u64]) {
        self.failed.extend(positions);
        self.deliver();
    }

    /// The consumer takes what it may.
    fn deliver(&mut self) {
        loop {
            while self.failed.contains(&self.next) {
                self.next += 1;
            }
            let ready = match self.delivery {
                Delivery::Ordered(_) => {
                    Some(self.next).filter(|it| self.here.contains(it))
                }
                Delivery::Unordered => self.here.first().copied(),
            };
            let Some(position) = ready else { return };
            self.here.remove(&position);
            self.queue.taken(position);
            if !self.delivered.is_empty() {
                let gap_ns = self.now.since(self.delivered_at);
                self.longest_gap_ns = self.longest_gap_ns.max(gap_ns);
            }
            self.delivered.push(position);
            self.delivered_at = self.now;
            self.next = self.next.max(position + 1);
        }
    }
}

/// The one in the middle; 0 of none.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let at = figures.len() / 2;
    match figures.get(at) {
        Some(upper) if figures.len().is_multiple_of(2) => {
            f64::midpoint(figures[at - 1], *upper)
        }
        Some(middle) => *middle,
        None => 0.0,
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and no length is below 0"
)]
fn rounded(bytes: f64) -> u64 {
    bytes.round().max(1.0) as u64
}
