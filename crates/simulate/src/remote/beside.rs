//! A host and a device near the store that share a link, in virtual time: what it is worth that the host limits what
//! it has in flight.
//!
//! All connections share the link's rate equally while they have anything to send. The host has one for each record
//! that is on its way; a device has one for all its results, and sends a batch when it is made. Losses and slow start
//! are left out. The link may have one queue for all: then a request of one byte waits behind what is in it, and what the
//! host makes of that is seen in [`BesideOutcome::limits`]. The decisions are those of the runtime: `FetchQueue` and `LinkShare` of `bothends_core`.

use bothends_core::fetch::{
    FetchConfig, FetchQueue, FetchStep, Growth, Hedge, RequestId, Wanted,
};
use bothends_core::ids::Ns;
use bothends_core::link::{LinkShare, SampleBytes, Seen};

use super::{after, float, seconds};

/// How finely time passes.
const TICK_NS: u64 = 5_000_000;
/// How often the link is looked at.
const GLANCE_NS: u64 = 50_000_000;
/// The least time from one request of a byte to the next.
const PROBE_NS: u64 = 2_000_000_000;

/// A host and a device on one link.
#[derive(Debug, Clone, Copy)]
pub struct BesideWorld {
    /// The time there and back.
    pub rtt_ns: u64,
    /// What all connections share.
    pub bytes_per_s: f64,
    /// So many bytes wait at the link at most, in one queue that a request of one byte waits in, too; 0 where each
    /// connection has a queue of its own.
    pub queue_bytes: u64,
    /// Bytes of a record and of a result.
    pub bytes: SampleBytes,
    /// The most bytes that the host has in flight.
    pub window_bytes: u64,
    /// Samples of a batch.
    pub batch: u32,
    /// Samples that the device makes a second; 0 is no device.
    pub device_per_s: f64,
    /// From when to when the device does nothing, though it has work.
    pub stalled: Option<[Ns; 2]>,
    /// Whether the host limits what it has in flight.
    pub does_yield: Yields,
}

/// Whether the host limits what it has in flight while the device works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yields {
    /// As the runtime does.
    Yes,
    /// For comparison.
    No,
}

/// Samples that were made in each second.
#[derive(Debug, Clone, Default)]
pub struct BesideOutcome {
    /// By the host.
    pub host: Vec<f64>,
    /// By the device.
    pub device: Vec<f64>,
    /// The most bytes that the host was to have in flight, at the end of each second.
    pub limits: Vec<Option<u64>>,
}

impl BesideOutcome {
    /// Samples per second of both from one second to another.
    #[must_use]
    pub fn per_s(&self, seconds: std::ops::Range<usize>) -> f64 {
        let n = float(seconds.len() as u64);
        let of = |made: &[f64]| made[seconds.clone()].iter().sum::<f64>();
        (of(&self.host) + of(&self.device)) / n
    }
}

/// A record on its way.
struct Flow {
    request: RequestId,
    begins: Ns,
    left: f64,
}

struct Player<'a> {
    world: &'a BesideWorld,
    queue: FetchQueue,
    link: LinkShare,
    now: Ns,
    offered: u64,
    flows: Vec<Flow>,
    /// Samples of the batch that the device is making, and bytes of those that are made and not yet sent.
    making: f64,
    unsent: f64,
    seen: Seen,
    /// When a byte was last requested, and when it comes.
    probed: Option<[Ns; 2]>,
    is_probing: bool,
    outcome: BesideOutcome,
}

/// So many seconds of it.
#[must_use]
pub fn beside(world: &BesideWorld, seconds: usize) -> BesideOutcome {
    let config = FetchConfig {
        max_bytes: world.window_bytes,
        reorder_bytes: 4 * world.window_bytes,
        most_joined_bytes: 0,
        growth: Growth::Fixed,
        hedge: Hedge::Off,
        ..FetchConfig::default()
    };
    let mut player = Player {
        world,
        queue: FetchQueue::new(config),
        link: LinkShare::new(world.bytes),
        now: Ns(0),
        offered: 0,
        flows: Vec::new(),
        making: 0.0,
        unsent: 0.0,
        seen: Seen::default(),
        probed: None,
        is_probing: false,
        outcome: BesideOutcome {
            host: vec![0.0; seconds],
            device: vec![0.0; seconds],
            limits: vec![None; seconds],
        },
    };
    while let Some(second) = player.second().filter(|second| *second < seconds) {
        player.request();
        player.device_works();
        player.send(second);
        player.look();
        player.probe();
        player.outcome.limits[second] = player.link.host_limit_bytes();
        player.now = player.now.plus(TICK_NS);
    }
    player.outcome
}

impl Player<'_> {
    fn second(&self) -> Option<usize> {
        usize::try_from(self.now.0 / 1_000_000_000).ok()
    }

    fn request(&mut self) {
        let bytes = self.world.bytes.host;
        while self.offered < self.queue.figures().counts.answered + 1024 {
            let position = self.offered;
            self.queue.offer(Wanted { position, object: 0, range: 0..bytes });
            self.offered += 1;
        }
        while let FetchStep::Request { request, .. } = self.queue.next(self.now) {
            let begins = self.now.plus(self.world.rtt_ns);
            self.flows.push(Flow { request, begins, left: float(bytes) });
        }
    }

    fn is_stalled(&self) -> bool {
        self.world.stalled.is_some_and(|[from, to]| from <= self.now && self.now < to)
    }

    /// It is a batch ahead of its connection at most.
    fn device_works(&mut self) {
        let batch = f64::from(self.world.batch);
        let batch_bytes = batch * float(self.world.bytes.device);
        if self.is_stalled() || self.unsent > batch_bytes {
            return;
        }
        self.making += self.world.device_per_s * float(TICK_NS) / 1e9;
        if self.making >= batch {
            self.making -= batch;
            self.unsent += batch_bytes;
        }
    }

    /// All that have anything to send do, and share the link.
    fn send(&mut self, second: usize) {
        let mut room = self.world.bytes_per_s * float(TICK_NS) / 1e9;
        let now = self.now;
        let is_sending = |flow: &&mut Flow| flow.begins <= now && flow.left > 0.0;
        let n_flows = self.flows.iter_mut().filter(is_sending).count() as u64;
        let does_device = self.unsent > 0.0 && !self.is_stalled();
        let is_one_queue = self.world.queue_bytes > 0;
        let mut n = n_flows + u64::from(does_device);
        if does_device {
            let share = (room / float(n)).min(self.unsent);
            self.device_sends(share, second);
            (room, n) = (room - share, n - 1);
        }
        for flow in self.flows.iter_mut().filter(is_sending) {
            // In one queue, what was sent first comes first.
            let part = if is_one_queue { room } else { room / float(n) };
            let share = part.min(flow.left);
            flow.left -= share;
            (room, n) = (room - share, n - 1);
        }
        let here = self.flows.extract_if(.., |flow| flow.left <= 0.0);
        for flow in here.collect::<Vec<_>>() {
            let pieces = self.queue.arrived(flow.request, now).to_vec();
            pieces.iter().for_each(|piece| self.queue.taken(piece.position));
            self.seen.bytes += self.world.bytes.host;
            self.outcome.host[second] += 1.0;
        }
    }

    fn device_sends(&mut self, bytes: f64, second: usize) {
        let batch = f64::from(self.world.batch);
        let batch_bytes = batch * float(self.world.bytes.device);
        let before = (self.unsent / batch_bytes).ceil();
        self.unsent -= bytes;
        let after = (self.unsent.max(0.0) / batch_bytes).ceil();
        if after < before {
            self.outcome.device[second] += batch;
            self.link.device_made(self.world.batch.into());
        }
        self.unsent = self.unsent.max(0.0);
    }

    fn look(&mut self) {
        self.seen.ns += TICK_NS;
        if self.seen.ns < GLANCE_NS {
            return;
        }
        self.seen.starved_ns = self.seen.ns;
        self.seen.in_flight_bytes = self.queue.figures().in_flight_bytes;
        self.link.devices_have((self.world.device_per_s > 0.0).then_some(1));
        self.link.saw(std::mem::take(&mut self.seen));
        if self.world.does_yield == Yields::Yes {
            self.queue.limit_bytes(self.link.host_limit_bytes());
        }
    }

    /// A request of a byte, if one is asked for, or its answer.
    fn probe(&mut self) {
        if let Some([asked, comes]) = self.probed.filter(|_| self.is_probing) {
            if comes <= self.now {
                self.link.round_trip(comes.since(asked));
                self.is_probing = false;
            }
            return;
        }
        let is_due = self.probed.is_none_or(|[at, _]| self.now.since(at) >= PROBE_NS);
        if is_due && self.link.asks_round_trip() {
            let waits_s = self.queued_bytes() / self.world.bytes_per_s;
            let comes = after(self.now.plus(self.world.rtt_ns), waits_s);
            (self.probed, self.is_probing) = (Some([self.now, comes]), true);
        }
    }

    /// What waits at the link. Of the device it is one bandwidth-delay product at most: its connection has a window.
    fn queued_bytes(&self) -> f64 {
        let has_begun = |flow: &&Flow| flow.begins <= self.now;
        let host: f64 = self.flows.iter().filter(has_begun).map(|flow| flow.left).sum();
        let window = self.world.bytes_per_s * seconds(self.world.rtt_ns);
        (host + self.unsent.min(window)).min(float(self.world.queue_bytes))
    }
}
