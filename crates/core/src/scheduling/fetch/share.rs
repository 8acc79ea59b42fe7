//! How much of the link the host's requests take while a device works whose results are smaller than the records.
//!
//! A device sends its results over one connection, and the host has requests on their way on dozens. Connections share
//! a full link about equally, so the device gets one part in dozens, though each of its bytes is worth more samples.
//! The host has nothing of so many requests: what is in flight beyond the bandwidth-delay product waits in a queue.
//! So it limits itself to that product and two records, with which it about fills the link alone. If the device stalls,
//! the host makes at least 0.6 of what it makes alone (`crates/simulate/tests/remote_device.rs`) until the limit is
//! lifted: after three times as long as a batch of the device took, or 30 seconds if none has come yet. Where both
//! together make less than the host alone did (losses want more connections), the limit is doubled, until there is none.
//! If that brings nothing, others have come to use the link, and it is judged again. At each minute of the wall clock half
//! of a doubled limit is tried again, by all hosts at once: one that did so by itself would only lose its part to the others.
//!
//! `round_trip` has how long it takes to the store and back. Nothing here reads a clock: whoever fetches says what it
//! saw. `docs/remote.md` has the arithmetic.

mod round_trip;

use std::collections::VecDeque;

pub use round_trip::Asked;
use round_trip::{Level, RoundTrip};

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
    /// What time the wall clock has now, in nanoseconds since 1970: hosts that share the link agree on it.
    pub wall_ns: u64,
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
/// Until a batch has come under a limit that was changed, a device counts as so many times as fast as before.
const MOST_FASTER: u64 = 4;
/// The limit is doubled so often at most: then there is none.
const MOST_DOUBLED: u32 = 8;
/// If twice as much in flight brings less than so many percent of what came before, then the link is full: others have
/// come to use it, and the limit was not the reason.
const GAINED_PERCENT: u64 = 110;
/// What the link carries is forgotten by one part in so many each second.
const FADES: u64 = 1024;

/// The rate of devices is that of so many batches.
const BATCHES: usize = 4;

/// A device of which nothing comes for so many times as long as its batches took is not waited for …
const PATIENCE: u64 = 3;
const LEAST_PATIENCE_NS: u64 = 4 * SECOND_NS;
/// … nor one that has said nothing yet for so long.
const FIRST_PATIENCE_NS: u64 = 30 * SECOND_NS;

/// A batch of a device.
#[derive(Debug, Clone, Copy)]
struct Made {
    samples: u64,
    /// Since the one before.
    ns: u64,
    /// The part of that in which there was the limit that there is now, and half of it at least.
    limited_ns: u64,
}

/// The limit of the host's bytes in flight, and what it follows from.
#[derive(Debug, Clone)]
pub(super) struct HostShare {
    bytes: SampleBytes,
    trip: RoundTrip,
    /// Bytes per second that the link carries, as far as is known; 0 at first.
    link: u64,
    /// What both made lately, in bytes per second of records.
    worth: u64,
    /// How often the limit is doubled.
    doubled: u32,
    /// What came each second before the limit was doubled, if that was the last change.
    tried: Option<u64>,
    /// What the host was seen to fetch since the link was last judged.
    seen: Seen,
    /// The devices' last batches.
    made: VecDeque<Made>,
    /// Batches of devices since the limit was set or changed, and how long ago that was.
    n_since: usize,
    since_ns: u64,
    /// Whether there was another limit before.
    is_changed: bool,
    /// The minute of the wall clock.
    minute: u64,
    /// Since a batch of a device last came, and since a device last had work.
    quiet_ns: u64,
    idle_ns: u64,
}

impl HostShare {
    pub(super) fn new(bytes: SampleBytes) -> Self {
        Self {
            bytes,
            trip: RoundTrip::new(),
            link: 0,
            worth: 0,
            doubled: 0,
            tried: None,
            seen: Seen::default(),
            made: VecDeque::new(),
            n_since: 0,
            since_ns: 0,
            is_changed: false,
            minute: u64::MAX,
            quiet_ns: 0,
            idle_ns: u64::MAX,
        }
    }

    /// A byte took so long there and back.
    pub(super) fn round_trip(&mut self, asked: Asked, ns: u64) {
        self.trip.took(asked, ns);
    }

    /// A byte that is to be requested now, so that this is measured.
    pub(super) fn ask_round_trip(&mut self) -> Option<Asked> {
        self.trip.ask()
    }

    /// A device has made so many samples, which are here.
    pub(super) fn made(&mut self, samples: u64) {
        if self.made.len() == BATCHES {
            self.made.pop_front();
        }
        let ns = self.quiet_ns;
        // A batch that comes as soon as there is a limit says little of it.
        let limited_ns = ns.min(self.since_ns.max(ns / 2));
        self.made.push_back(Made { samples, ns, limited_ns });
        (self.quiet_ns, self.n_since) = (0, self.n_since.saturating_add(1));
        if self.n_since == 1 {
            self.worth = self.link;
        }
    }

    /// This was seen while no device had work, or the link had room: the host has all of it after a while.
    pub(super) fn rests(&mut self, seen: Seen) {
        self.idle_ns = self.idle_ns.saturating_add(seen.ns);
        if self.idle_ns > MOST_IDLE_NS {
            self.made.clear();
            self.quiet_ns = 0;
        }
        self.passes(seen);
        self.note(seen);
    }

    /// This was seen while devices had work and the link was the limit.
    pub(super) fn saw(&mut self, seen: Seen) {
        self.idle_ns = 0;
        self.quiet_ns = self.quiet_ns.saturating_add(seen.ns);
        self.passes(seen);
        self.note(seen);
    }

    /// Time has passed, with a limit or without one.
    fn passes(&mut self, seen: Seen) {
        self.since_ns = self.since_ns.saturating_add(seen.ns);
        let minute = round_trip::minute(seen.wall_ns);
        if self.minute != minute {
            self.minute = minute;
            self.limits(self.doubled.saturating_sub(1));
        }
        if self.full_limit().is_none() {
            (self.n_since, self.since_ns, self.is_changed) = (0, 0, false);
            self.trip.unlimited(seen.ns);
            return;
        }
        if self.since_ns == seen.ns {
            // What came before the limit says nothing of it.
            self.seen = Seen::default();
        }
        // A record at a time is requested in any case.
        let is_low = seen.in_flight_bytes <= self.drained_bytes().max(self.bytes.host);
        let level = if is_low { Level::Low } else { Level::High };
        self.trip.limited(seen.ns, seen.wall_ns, level);
    }

    /// The most bytes that the host is to have in flight.
    pub(super) fn limit(&self) -> Option<u64> {
        let full = self.full_limit()?;
        Some(if self.trip.is_draining() { full.min(self.drained_bytes()) } else { full })
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
        let bytes = u128::from(self.link) * u128::from(self.trip.least_ns()?);
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
        let ns = self.made.iter().fold(0, |sum: u64, made| sum.saturating_add(made.ns));
        ns.checked_div(self.made.len() as u64)
    }

    fn note(&mut self, seen: Seen) {
        let in_flight_bytes = seen.in_flight_bytes;
        if !self.trip.is_full() {
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
        let n = if self.n_since > 0 { self.n_since } else { BATCHES };
        let (mut samples, mut ns, mut count) = (0_u64, 0_u64, 0);
        for made in self.made.iter().rev().take(n) {
            samples = samples.saturating_add(made.samples);
            ns = ns.saturating_add(made.limited_ns);
            count += 1;
        }
        if count == 0 || ns == 0 {
            return 0;
        }
        // A batch that takes more than twice as long is the only one that counts.
        if self.quiet_ns / 2 > ns / count {
            (samples, ns) = (samples / count, self.quiet_ns);
        }
        per_s(samples.saturating_mul(bytes), ns)
    }

    fn judge(&mut self) {
        let mut ns = self.seen.ns;
        if self.link == 0 {
            ns -= self.trip.least_ns().unwrap_or(0).min(ns / 2);
        }
        let host = per_s(self.seen.bytes, ns);
        let carried = host.saturating_add(self.by_devices(self.bytes.device));
        let faster = if self.n_since == 0 && self.is_changed { MOST_FASTER } else { 1 };
        let by_devices = self.by_devices(self.bytes.host).saturating_mul(faster);
        let worth = host.saturating_add(by_devices);
        if self.link == 0 {
            (self.link, self.worth) = (carried, worth);
            return;
        }
        self.worth = self.worth / 2 + worth / 2;
        if carried > self.link {
            self.link += ((carried - self.link) / 4).min(self.link);
        } else if self.limit().is_none() {
            self.link -= (self.link - carried) / 4;
        } else if is_below(self.worth, self.link, self.least_percent()) {
            self.doubt(carried);
        } else {
            let seconds = (self.seen.ns / SECOND_NS).min(FADES / 4);
            self.link -= self.link / FADES * seconds;
        }
    }

    /// Both make less than the host did alone: either the limit is too low, or the link carries less than it did.
    fn doubt(&mut self, carried: u64) {
        match self.tried {
            Some(before) if is_below(carried, before, GAINED_PERCENT) => {
                self.link = self.link.min(carried);
                self.limits(self.doubled.saturating_sub(1));
            }
            Some(_) | None => {
                self.limits((self.doubled + 1).min(MOST_DOUBLED));
                self.tried = Some(carried);
            }
        }
    }

    /// How much of what the host made alone both are to make.
    fn least_percent(&self) -> u64 {
        if self.n_since > 0 || (self.is_changed && !self.made.is_empty()) {
            return ALONE_PERCENT;
        }
        // Nobody knows what a device makes under the first limit until a batch has come. One that always sends takes a
        // part of the link next to those of the host's records.
        let records = self.limit().unwrap_or(0) / self.bytes.host.max(1);
        ALONE_PERCENT.saturating_mul(records) / records.saturating_add(1)
    }

    /// From now on there is a limit that is doubled so often, and what is made under it is not yet known.
    fn limits(&mut self, doubled: u32) {
        (self.doubled, self.worth, self.tried) = (doubled, self.link, None);
        (self.n_since, self.since_ns, self.is_changed) = (0, 0, true);
    }
}

/// Whether it is less than so many percent of what it is compared with.
fn is_below(is: u64, of: u64, percent: u64) -> bool {
    u128::from(is) * 100 < u128::from(of) * u128::from(percent)
}

fn per_s(n: u64, ns: u64) -> u64 {
    let rate = u128::from(n) * u128::from(SECOND_NS) / u128::from(ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const MB: u64 = 1_000_000;
    const BYTES: SampleBytes = SampleBytes { host: MB, device: 150_528 };

    /// A host, and the wall clock's time.
    struct Host(HostShare, u64);

    impl Host {
        /// One that knows its link: 10 MB/s and 100 ms.
        fn new() -> Self {
            let mut host = Self(HostShare::new(BYTES), 60 * SECOND_NS + 2 * SECOND_NS);
            let asked = host.0.ask_round_trip().unwrap();
            host.0.round_trip(asked, 100 * MS);
            while host.0.link == 0 {
                host.seconds(1, |_| 10 * MB);
            }
            assert_eq!(host.0.link / MB, 10);
            host
        }

        fn seen(&mut self, per_s: u64) -> Seen {
            self.1 += 50 * MS;
            let ns = 50 * MS;
            Seen {
                ns,
                starved_ns: ns,
                bytes: per_s / 20,
                in_flight_bytes: 0,
                wall_ns: self.1,
            }
        }

        /// In which so much comes at a limit, and of the device no more than that it works.
        fn seconds(&mut self, n: u32, per_s: impl Fn(u64) -> u64) {
            for nth in 0..n * 20 {
                if nth % 20 == 0 {
                    self.0.made(0);
                }
                let per_s = per_s(self.0.limit().unwrap_or(u64::MAX));
                let seen = self.seen(per_s);
                self.0.saw(seen);
            }
        }
    }

    #[test]
    fn a_limit_that_was_not_the_reason_is_not_doubled_for_long() {
        let mut host = Host::new();
        let limit = host.0.limit().unwrap();
        // Others have come to use the link.
        host.seconds(6, |_| 5 * MB);
        let link = (host.0.link + MB / 2) / MB;
        assert_eq!((host.0.doubled, link), (0, 5));
        assert!(host.0.limit().unwrap() < limit);
    }

    #[test]
    fn a_limit_that_is_too_low_is_doubled_and_half_of_it_tried_again_with_the_minute() {
        let mut host = Host::new();
        let limit = host.0.limit().unwrap();
        let slow = |now: u64| (10 * MB).min(3 * MB * (now / (limit - 100_000)));
        host.seconds(20, slow);
        assert_eq!(host.0.doubled, 2);
        host.1 = 3 * 60 * SECOND_NS + 2 * SECOND_NS;
        host.seconds(1, slow);
        assert_eq!(host.0.doubled, 1);
        host.seconds(6, slow);
        assert_eq!(host.0.doubled, 2);
    }

    #[test]
    fn the_queue_goes_on_running_empty_while_devices_wait_for_their_next_batch() {
        let mut host = Host::new();
        host.1 = 2 * 60 * SECOND_NS;
        host.seconds(1, |_| 0);
        let drained = host.0.limit().unwrap();
        assert!(drained < MB, "{drained}");
        let seen = host.seen(0);
        host.0.rests(seen);
        assert_eq!(host.0.limit(), Some(drained));
        (0..20).for_each(|_| {
            let seen = host.seen(0);
            host.0.rests(seen);
        });
        assert_eq!(host.0.limit(), None, "no device has work any more");
    }
}
