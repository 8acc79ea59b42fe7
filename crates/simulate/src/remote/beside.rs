//! Hosts and a device near the store that share a link, in virtual time: what it is worth that the hosts limit what
//! they have in flight.
//!
//! All connections share the link's rate equally while they have anything to send. A host has one for each record
//! that is on its way; the device has one for its results for each host, and sends a batch when it is made. Losses and
//! slow start are left out. The link may have one queue for all: then a request of one byte waits behind what is in it, and
//! what the hosts make of that is seen in [`BesideOutcome::limits`]. The decisions are those of the runtime: `FetchQueue`
//! and `LinkShare` of `bothends_core`.

use bothends_core::fetch::{
    FetchConfig, FetchQueue, FetchStep, Growth, Hedge, RequestId, Wanted,
};
use bothends_core::ids::Ns;
use bothends_core::link::{Asked, LinkShare, SampleBytes, Seen};

use super::{after, float, seconds};

/// How finely time passes.
const TICK_NS: u64 = 5_000_000;
/// How often the link is looked at.
const GLANCE_NS: u64 = 50_000_000;
/// The wall clock's time at the start: well into a minute.
const WALL_NS: u64 = 29_000_000 * 60_000_000_000 + 20_000_000_000;

/// Hosts and a device on one link.
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
    /// Those that share it.
    pub hosts: Hosts,
    /// The most bytes that a host has in flight.
    pub window_bytes: u64,
    /// Samples of a batch.
    pub batch: u32,
    /// Samples that the device makes a second, as many for each host; 0 is no device.
    pub device_per_s: f64,
    /// From when to when the device does nothing, though it has work.
    pub stalled: Option<[Ns; 2]>,
    /// Whether the hosts limit what they have in flight.
    pub does_yield: Yields,
}

/// Hosts that do the same, such as the ranks of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hosts {
    /// How many.
    pub n: u32,
    /// Each begins so much later than the one before.
    pub apart_ns: u64,
    /// Each one's wall clock is so much ahead of that of the one before.
    pub clocks_differ_ns: u64,
}

impl Hosts {
    /// One, which has the link for itself.
    pub const ONE: Self = Self { n: 1, apart_ns: 0, clocks_differ_ns: 0 };
}

/// Whether hosts limit what they have in flight while the device works.
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
    /// By the hosts.
    pub host: Vec<f64>,
    /// By the device.
    pub device: Vec<f64>,
    /// The most bytes that the hosts were to have in flight together, at the end of each second; `None` where one of them
    /// had no limit.
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
    host: usize,
    request: RequestId,
    begins: Ns,
    left: f64,
}

/// A host, and the device as far as it works for it.
struct Player {
    begins: Ns,
    wall_ns: u64,
    queue: FetchQueue,
    link: LinkShare,
    offered: u64,
    /// Samples of the batch that the device is making, and bytes of those that are made and not yet sent.
    making: f64,
    unsent: f64,
    seen: Seen,
    /// A byte that was requested, when that was, and when it comes.
    probe: Option<(Asked, [Ns; 2])>,
}

struct Play<'a> {
    world: &'a BesideWorld,
    now: Ns,
    players: Vec<Player>,
    /// In the order in which their first bytes come.
    flows: Vec<Flow>,
    outcome: BesideOutcome,
}

/// So many seconds of it.
#[must_use]
pub fn beside(world: &BesideWorld, seconds: usize) -> BesideOutcome {
    let players = (0..u64::from(world.hosts.n)).map(|nth| Player::new(world, nth));
    let mut play = Play {
        world,
        now: Ns(0),
        players: players.collect(),
        flows: Vec::new(),
        outcome: BesideOutcome {
            host: vec![0.0; seconds],
            device: vec![0.0; seconds],
            limits: vec![None; seconds],
        },
    };
    while let Some(second) = play.second().filter(|second| *second < seconds) {
        play.request();
        play.device_works();
        play.send(second);
        play.look();
        play.probe();
        let limits = play.players.iter().map(|player| player.link.host_limit_bytes());
        play.outcome.limits[second] = limits.sum();
        play.now = play.now.plus(TICK_NS);
    }
    play.outcome
}

impl Player {
    fn new(world: &BesideWorld, nth: u64) -> Self {
        let config = FetchConfig {
            max_bytes: world.window_bytes,
            reorder_bytes: 4 * world.window_bytes,
            most_joined_bytes: 0,
            growth: Growth::Fixed,
            hedge: Hedge::Off,
            ..FetchConfig::default()
        };
        Self {
            begins: Ns(nth * world.hosts.apart_ns),
            wall_ns: WALL_NS + nth * world.hosts.clocks_differ_ns,
            queue: FetchQueue::new(config),
            link: LinkShare::new(world.bytes),
            offered: 0,
            making: 0.0,
            unsent: 0.0,
            seen: Seen::default(),
            probe: None,
        }
    }

    fn sends(&mut self, bytes: f64, world: &BesideWorld) -> f64 {
        let batch = f64::from(world.batch);
        let batch_bytes = batch * float(world.bytes.device);
        let before = (self.unsent / batch_bytes).ceil();
        self.unsent = (self.unsent - bytes).max(0.0);
        if (self.unsent / batch_bytes).ceil() >= before {
            return 0.0;
        }
        self.link.device_made(world.batch.into());
        batch
    }
}

impl Play<'_> {
    fn second(&self) -> Option<usize> {
        usize::try_from(self.now.0 / 1_000_000_000).ok()
    }

    /// Those that have begun.
    fn players(&mut self) -> impl Iterator<Item = (usize, &mut Player)> {
        let now = self.now;
        self.players.iter_mut().enumerate().filter(move |(_, it)| it.begins <= now)
    }

    fn request(&mut self) {
        let (bytes, now) = (self.world.bytes.host, self.now);
        let begins = now.plus(self.world.rtt_ns);
        let mut flows = std::mem::take(&mut self.flows);
        for (host, player) in self.players() {
            while player.offered < player.queue.figures().counts.answered + 1024 {
                let position = player.offered;
                player.queue.offer(Wanted { position, object: 0, range: 0..bytes });
                player.offered += 1;
            }
            while let FetchStep::Request { request, .. } = player.queue.next(now) {
                flows.push(Flow { host, request, begins, left: float(bytes) });
            }
        }
        self.flows = flows;
    }

    fn is_stalled(&self) -> bool {
        self.world.stalled.is_some_and(|[from, to]| from <= self.now && self.now < to)
    }

    /// It is a batch ahead of each connection at most.
    fn device_works(&mut self) {
        if self.is_stalled() {
            return;
        }
        let world = self.world;
        let batch = f64::from(world.batch);
        let batch_bytes = batch * float(world.bytes.device);
        let made = world.device_per_s / f64::from(world.hosts.n) * float(TICK_NS) / 1e9;
        for (_, player) in self.players() {
            if player.unsent > batch_bytes {
                continue;
            }
            player.making += made;
            if player.making >= batch {
                player.making -= batch;
                player.unsent += batch_bytes;
            }
        }
    }

    /// All that have anything to send do, and share the link.
    fn send(&mut self, second: usize) {
        let (world, now) = (self.world, self.now);
        let mut room = world.bytes_per_s * float(TICK_NS) / 1e9;
        let is_sending = |flow: &&mut Flow| flow.begins <= now && flow.left > 0.0;
        let n_flows = self.flows.iter_mut().filter(is_sending).count() as u64;
        let does_device = !self.is_stalled();
        let sends = |player: &&mut Player| player.unsent > 0.0 && does_device;
        let mut n = n_flows + self.players.iter_mut().filter(sends).count() as u64;
        for player in self.players.iter_mut().filter(sends) {
            let share = (room / float(n)).min(player.unsent);
            self.outcome.device[second] += player.sends(share, world);
            (room, n) = (room - share, n - 1);
        }
        let is_one_queue = world.queue_bytes > 0;
        for flow in self.flows.iter_mut().filter(is_sending) {
            // In one queue, what was sent first comes first.
            let part = if is_one_queue { room } else { room / float(n) };
            let share = part.min(flow.left);
            flow.left -= share;
            (room, n) = (room - share, n - 1);
            if share > 0.0 {
                self.players[flow.host].queue.heard(flow.request, now);
            }
        }
        for flow in self.flows.extract_if(.., |flow| flow.left <= 0.0) {
            let Player { queue, seen, .. } = &mut self.players[flow.host];
            let pieces = queue.arrived(flow.request, now).to_vec();
            pieces.iter().for_each(|piece| queue.taken(piece.position));
            seen.bytes += world.bytes.host;
            self.outcome.host[second] += 1.0;
        }
    }

    fn look(&mut self) {
        let (world, now) = (self.world, self.now);
        for (_, player) in self.players() {
            player.seen.ns += TICK_NS;
            if player.seen.ns < GLANCE_NS {
                continue;
            }
            player.seen.starved_ns = player.seen.ns;
            player.seen.in_flight_bytes = player.queue.figures().in_flight_bytes;
            player.seen.wall_ns = player.wall_ns + now.0;
            player.link.devices_have((world.device_per_s > 0.0).then_some(1));
            player.link.saw(std::mem::take(&mut player.seen));
            if world.does_yield == Yields::Yes {
                player.queue.limit_bytes(player.link.host_limit_bytes());
            }
        }
    }

    /// Requests of a byte, where one is asked for, or their answers.
    fn probe(&mut self) {
        let waits_s = self.queued_bytes() / self.world.bytes_per_s;
        let now = self.now;
        let comes = after(now.plus(self.world.rtt_ns), waits_s);
        for (_, player) in self.players() {
            if let Some((asked, [at, comes])) = player.probe.take() {
                if comes <= now {
                    player.link.round_trip(asked, comes.since(at));
                } else {
                    player.probe = Some((asked, [at, comes]));
                }
            } else if let Some(asked) = player.link.ask_round_trip() {
                player.probe = Some((asked, [now, comes]));
            }
        }
    }

    /// What waits at the link. Of the device it is one bandwidth-delay product at most: its connections have windows.
    fn queued_bytes(&self) -> f64 {
        let has_begun = |flow: &&Flow| flow.begins <= self.now;
        let host: f64 = self.flows.iter().filter(has_begun).map(|flow| flow.left).sum();
        let product = self.world.bytes_per_s * seconds(self.world.rtt_ns);
        let window = product / f64::from(self.world.hosts.n);
        let device: f64 = self.players.iter().map(|it| it.unsent.min(window)).sum();
        (host + device).min(float(self.world.queue_bytes))
    }
}
