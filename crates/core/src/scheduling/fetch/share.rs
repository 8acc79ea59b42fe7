//! How much of the link the host's requests take while a device works whose results are smaller than the records.
//!
//! A device sends its results over one connection, and the host has requests on their way on dozens. Connections share
//! a full link about equally, so the device gets one part in dozens, though each of its bytes is worth more samples.
//! The host has nothing of so many requests: what is in flight beyond the bandwidth-delay product waits in a queue.
//! So it limits itself to that product and two records, with which it about fills the link alone. If the device stalls,
//! the host makes at least 0.6 of what it makes alone (`crates/simulate/tests/remote_device.rs`) until the limit is
//! lifted: after three times as long as a batch of the device took, or 30 seconds if none has come yet. Where both
//! together make less than the host alone did (losses want more connections), the limit is doubled, until there is none.
//!
//! `way` has how long the way to the store and back takes. Nothing here reads a clock: whoever fetches says what it
//! saw. `docs/remote.md` has the arithmetic.

mod way;

use std::collections::VecDeque;

use way::{Level, Way};

/// Bytes that a sample takes on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleBytes {
    /// Its record, where the host makes it.
    pub host: u64,
    /// Its result, where a device makes it.
    pub device: u64,
}

/// What was seen of the link for a while.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// For how long.
    pub ns: u64,
    /// In how much of that the workers had nothing to do, and waited for records.
    pub starved_ns: u64,
    /// Bytes of records that arrived.
    pub bytes: u64,
    /// Bytes of records that are on their way now.
    pub in_flight_bytes: u64,
}

const SECOND_NS: u64 = 1_000_000_000;

/// The link is judged after so long, so many records, and what was in flight. The first time takes longer, as
/// nothing arrives in the first round trip.
const SPAN_NS: u64 = 2 * SECOND_NS;
const FIRST_SPAN_NS: u64 = 3 * SECOND_NS;
const MOST_SPAN_NS: u64 = 30 * SECOND_NS;
const SPAN_RECORDS: u64 = 8;

/// For so long without work of devices the limit stays: the next batch is on its way to them.
const MOST_IDLE_NS: u64 = SECOND_NS;

/// The limit is so many percent of the bandwidth-delay product, so that it grows with a link that was underestimated …
const GAIN_PERCENT: u64 = 150;
/// … and so many records, as records do not arrive bit by bit.
const SLACK_RECORDS: u64 = 2;

/// While the queue of the link runs empty, the limit is one part in so many of the product: that may have been estimated
/// too large, and devices have a part of the link, too.
const DRAINED_PART: u128 = 4;

/// Host and device are to make so many percent of what the host made alone.
const ALONE_PERCENT: u64 = 98;
/// The limit is doubled so often at most: then there is none.
const MOST_DOUBLED: u32 = 8;
/// After so many spans in which it was not, half of it is tried again.
const MOST_SPANS: u32 = 32;
/// What the link carries is forgotten by one part in so many each second.
const FADES: u64 = 1024;

/// The rate of devices is that of so many batches.
const BATCHES: usize = 4;

/// A device of which nothing comes for so many times as long as its batches took is not waited for …
const PATIENCE: u64 = 3;
const LEAST_PATIENCE_NS: u64 = 4 * SECOND_NS;
/// … nor one that has said nothing yet for so long.
const FIRST_PATIENCE_NS: u64 = 30 * SECOND_NS;

/// The limit of the host's bytes in flight, and what it follows from.
#[derive(Debug, Clone)]
pub(super) struct HostShare {
    bytes: SampleBytes,
    way: Way,
    /// Bytes per second that the link carries, as far as is known; 0 at first.
    link: u64,
    /// What both made lately, in bytes per second of records.
    worth: u64,
    /// How often the limit was doubled.
    doubled: u32,
    spans: u32,
    /// What the host was seen to fetch since the link was last judged.
    seen: Seen,
    /// Samples of the devices' last batches, and the time since the one before.
    made: VecDeque<(u64, u64)>,
    /// Since a batch of a device last came, and since a device last had work.
    quiet_ns: u64,
    idle_ns: u64,
}

impl HostShare {
    pub(super) fn new(bytes: SampleBytes) -> Self {
        Self {
            bytes,
            way: Way::new(),
            link: 0,
            worth: 0,
            doubled: 0,
            spans: 0,
            seen: Seen::default(),
            made: VecDeque::new(),
            quiet_ns: 0,
            idle_ns: u64::MAX,
        }
    }

    /// A byte took so long there and back.
    pub(super) fn round_trip(&mut self, ns: u64) {
        self.way.took(ns);
    }

    /// Whether that is to be measured now.
    pub(super) fn asks_round_trip(&self) -> bool {
        self.way.is_asked()
    }

    /// A device has made so many samples, which are here.
    pub(super) fn made(&mut self, samples: u64) {
        if self.made.len() == BATCHES {
            self.made.pop_front();
        }
        self.made.push_back((samples, self.quiet_ns));
        self.quiet_ns = 0;
    }

    /// This was seen while no device had work, or the link had room: the host has all of it after a while.
    pub(super) fn rests(&mut self, seen: Seen) {
        self.idle_ns = self.idle_ns.saturating_add(seen.ns);
        if self.idle_ns > MOST_IDLE_NS {
            self.made.clear();
            self.quiet_ns = 0;
        }
        self.way.unlimited(seen.ns);
        self.note(seen);
    }

    /// This was seen while devices had work and the link was the limit.
    pub(super) fn saw(&mut self, seen: Seen) {
        self.idle_ns = 0;
        self.quiet_ns = self.quiet_ns.saturating_add(seen.ns);
        match self.full_limit() {
            Some(_) => {
                // A record at a time is requested in any case.
                let is_low =
                    seen.in_flight_bytes <= self.drained_bytes().max(self.bytes.host);
                let level = if is_low { Level::Low } else { Level::High };
                self.way.limited(seen.ns, level);
            }
            None => self.way.unlimited(seen.ns),
        }
        self.note(seen);
    }

    /// The most bytes that the host is to have in flight.
    pub(super) fn limit(&self) -> Option<u64> {
        let full = self.full_limit()?;
        Some(if self.way.is_draining() { full.min(self.drained_bytes()) } else { full })
    }

    fn full_limit(&self) -> Option<u64> {
        let works = self.idle_ns <= MOST_IDLE_NS && !self.is_silent();
        let product = self.product().filter(|_| works && self.link > 0)?;
        let product = product * u128::from(GAIN_PERCENT) / 100;
        let limit = product + u128::from(self.bytes.host) * u128::from(SLACK_RECORDS);
        let limit = limit.checked_mul(1 << self.doubled)?;
        u64::try_from(limit).ok().filter(|_| self.doubled < MOST_DOUBLED)
    }

    /// The bandwidth-delay product.
    fn product(&self) -> Option<u128> {
        let bytes = u128::from(self.link) * u128::from(self.way.least_ns()?);
        Some(bytes / u128::from(SECOND_NS))
    }

    /// What is in flight at most while the queue of the link runs empty.
    fn drained_bytes(&self) -> u64 {
        let part = self.product().unwrap_or(0) / DRAINED_PART;
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    fn is_silent(&self) -> bool {
        let patience_ns = match self.every_ns() {
            Some(ns) => ns.saturating_mul(PATIENCE).max(LEAST_PATIENCE_NS),
            None => FIRST_PATIENCE_NS,
        };
        self.quiet_ns > patience_ns
    }

    /// How long devices took for a batch lately.
    fn every_ns(&self) -> Option<u64> {
        let ns = self.made.iter().fold(0, |sum: u64, (_, ns)| sum.saturating_add(*ns));
        ns.checked_div(self.made.len() as u64)
    }

    fn note(&mut self, seen: Seen) {
        let in_flight_bytes = seen.in_flight_bytes;
        if !self.way.is_full() {
            self.seen = Seen { in_flight_bytes, ..Seen::default() };
            return;
        }
        let sum = &mut self.seen;
        sum.ns = sum.ns.saturating_add(seen.ns);
        sum.bytes = sum.bytes.saturating_add(seen.bytes);
        sum.in_flight_bytes = sum.in_flight_bytes.max(seen.in_flight_bytes);
        let (ns, windows) =
            if self.link == 0 { (FIRST_SPAN_NS, 1) } else { (SPAN_NS, 2) };
        let least = SPAN_RECORDS.saturating_mul(self.bytes.host);
        let least = least.max(sum.in_flight_bytes.saturating_mul(windows));
        if (sum.ns >= ns && sum.bytes >= least) || sum.ns >= MOST_SPAN_NS {
            self.judge();
            self.seen = Seen { in_flight_bytes, ..Seen::default() };
        }
    }

    /// Samples per second of the devices, each counted as so many bytes.
    fn by_devices(&self, bytes: u64) -> u64 {
        let Some(every_ns) = self.every_ns().filter(|ns| *ns > 0) else { return 0 };
        let n = self.made.len() as u64;
        let samples =
            self.made.iter().fold(0, |sum: u64, (n, _)| sum.saturating_add(*n)) / n;
        // A batch that takes more than twice as long is the only one that counts.
        let is_late = self.quiet_ns / 2 > every_ns;
        let ns = if is_late { self.quiet_ns } else { every_ns };
        per_s(samples.saturating_mul(bytes), ns)
    }

    fn judge(&mut self) {
        let mut ns = self.seen.ns;
        if self.link == 0 {
            ns -= self.way.least_ns().unwrap_or(0).min(ns / 2);
        }
        let host = per_s(self.seen.bytes, ns);
        let carried = host.saturating_add(self.by_devices(self.bytes.device));
        let worth = host.saturating_add(self.by_devices(self.bytes.host));
        if self.link == 0 {
            (self.link, self.worth) = (carried, worth);
            return;
        }
        self.worth = self.worth / 2 + worth / 2;
        let least = u128::from(self.link) * u128::from(ALONE_PERCENT);
        if carried > self.link {
            self.link += ((carried - self.link) / 4).min(self.link);
        } else if self.limit().is_none() {
            self.link -= (self.link - carried) / 4;
        } else if u128::from(self.worth) * 100 < least {
            self.doubled = (self.doubled + 1).min(MOST_DOUBLED);
            (self.worth, self.spans) = (self.link, 0);
        } else {
            let seconds = (self.seen.ns / SECOND_NS).min(FADES / 4);
            self.link -= self.link / FADES * seconds;
        }
        self.spans += 1;
        if self.spans > MOST_SPANS {
            (self.doubled, self.spans) = (self.doubled.saturating_sub(1), 0);
        }
    }
}

fn per_s(n: u64, ns: u64) -> u64 {
    let rate = u128::from(n) * u128::from(SECOND_NS) / u128::from(ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}
