//! Whether a device's batches are worth the link that the host's records come over.
//!
//! A device near a remote store sends batches where the host would fetch records, over one link. Where the
//! link is the limit, what counts is bytes, not time: with `h` bytes of records and `d` bytes of results for a
//! sample, and a link of `L` bytes per second, the host alone makes `L/h` samples per second, and a device
//! that makes `D` adds `D · (1 − d/h)`. With `d < h` every sample is a gain; with `d ≥ h` every one is a loss,
//! unless the link has room that the host cannot use. `docs/remote.md` has examples.
//!
//! Where a device works, `share.rs` decides how much of the link the host takes. Nothing here reads a clock: whoever
//! fetches says what it saw.

use super::share::HostShare;
pub use super::share::{Asked, SampleBytes, Seen};

/// What devices do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceUse {
    /// They claim batches.
    Claims,
    /// They rest: their results would take more of the link than the records do.
    Rests,
}

/// What is seen is averaged over about so long.
const MEMORY_NS: u64 = 1_000_000_000;

/// The link is the limit from so many percent of the time on in which workers starve …
const LIMIT_PERCENT: u64 = 50;
/// … and has room again below so many.
const ROOM_PERCENT: u64 = 20;

/// The link of a run.
#[derive(Debug, Clone)]
pub struct LinkShare {
    bytes: SampleBytes,
    /// Sums that fade.
    seen: Seen,
    is_limit: bool,
    /// Batches that devices have to make, if there are devices.
    at_devices: Option<usize>,
    host: HostShare,
}

impl LinkShare {
    /// A link of which nothing is known: it counts as the limit until it turns out to have room, so that
    /// results that are larger than records take nothing from them.
    #[must_use]
    pub fn new(bytes: SampleBytes) -> Self {
        let (seen, host) = (Seen::default(), HostShare::new(bytes));
        Self { bytes, seen, is_limit: true, at_devices: None, host }
    }

    /// Takes note of what was seen.
    pub fn saw(&mut self, seen: Seen) {
        let keep = |sum: u64, more: u64| {
            let left = u128::from(sum) * u128::from(MEMORY_NS)
                / u128::from(MEMORY_NS.saturating_add(seen.ns));
            u64::try_from(left).unwrap_or(u64::MAX).saturating_add(more)
        };
        self.seen = Seen {
            ns: keep(self.seen.ns, seen.ns),
            starved_ns: keep(self.seen.starved_ns, seen.starved_ns.min(seen.ns)),
            bytes: keep(self.seen.bytes, seen.bytes),
            in_flight_bytes: seen.in_flight_bytes,
            wall_ns: seen.wall_ns,
        };
        // A moment says little: the first requests are always waited for.
        if self.seen.ns >= MEMORY_NS / 4 {
            let percent = self.starved_percent();
            self.is_limit = match self.is_limit {
                true => percent >= ROOM_PERCENT,
                false => percent >= LIMIT_PERCENT,
            };
        }
        let is_known = self.seen.ns >= MEMORY_NS / 2;
        let works = self.at_devices.is_some_and(|n_batches| n_batches > 0);
        if is_known && self.is_limit && works && self.may_yield() {
            self.host.saw(seen);
        } else {
            self.host.rests(seen);
        }
    }

    /// Devices have so many batches to make now; `None` where there are no devices.
    pub fn devices_have(&mut self, n_batches: Option<usize>) {
        self.at_devices = n_batches;
    }

    /// A device has made so many samples, which are here.
    pub fn device_made(&mut self, samples: u64) {
        self.host.made(samples);
    }

    /// The most bytes that the host is to have in flight, so that the device has its share of the link; `None`
    /// where it may have all.
    #[must_use]
    pub fn host_limit_bytes(&self) -> Option<u64> {
        self.host.limit()
    }

    /// A request of one byte that is to be sent now, to measure how long it takes there and back: the host may have to
    /// limit itself. At most one is to be on its way.
    #[must_use]
    pub fn ask_round_trip(&mut self) -> Option<Asked> {
        let may = self.at_devices.is_some() && self.may_yield();
        may.then(|| self.host.ask_round_trip()).flatten()
    }

    /// Results that are more than half as large as records gain little.
    fn may_yield(&self) -> bool {
        self.bytes.device <= self.bytes.host / 2
    }

    /// That request took so long.
    pub fn round_trip(&mut self, asked: Asked, ns: u64) {
        self.host.round_trip(asked, ns);
    }

    fn starved_percent(&self) -> u64 {
        let percent =
            u128::from(self.seen.starved_ns) * 100 / u128::from(self.seen.ns.max(1));
        u64::try_from(percent).unwrap_or(100)
    }

    /// Whether the workers wait for records, most of the time.
    #[must_use]
    pub fn is_limit(&self) -> bool {
        self.is_limit
    }

    /// What devices are to do.
    #[must_use]
    pub fn devices(&self) -> DeviceUse {
        match self.is_limit && self.bytes.device >= self.bytes.host {
            true => DeviceUse::Rests,
            false => DeviceUse::Claims,
        }
    }

    /// How long the host takes for so many samples: as long as its workers do, or as their records take
    /// over the link where that is the limit. A device that is asked for what it can have ready in time is
    /// asked for more where the host is held up.
    #[must_use]
    pub fn host_ns(&self, work_ns: u64, n_samples: u64) -> u64 {
        if !self.is_limit || self.seen.bytes == 0 {
            return work_ns;
        }
        let bytes = u128::from(n_samples) * u128::from(self.bytes.host);
        let ns = bytes.saturating_mul(self.seen.ns.into()) / u128::from(self.seen.bytes);
        work_ns.max(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// Samples per second that host and device make at best over a link of `bytes_per_s`, where each alone
/// and without a limit makes as many as `rates` says, the host first.
#[must_use]
pub fn best_rates(bytes: SampleBytes, bytes_per_s: f64, rates: [f64; 2]) -> [f64; 2] {
    let [host, device] = [bytes.host, bytes.device].map(per_sample);
    // Whoever needs fewer bytes for a sample goes first.
    match device < host {
        true => {
            let by_device = rates[1].min(bytes_per_s / device);
            let left = (bytes_per_s - by_device * device).max(0.0);
            [rates[0].min(left / host), by_device]
        }
        false => {
            let by_host = rates[0].min(bytes_per_s / host);
            let left = (bytes_per_s - by_host * host).max(0.0);
            [by_host, rates[1].min(left / device)]
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a model; no record has 2^53 bytes")]
fn per_sample(bytes: u64) -> f64 {
    bytes.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: SampleBytes = SampleBytes { host: 1_000_000, device: 150_528 };
    const SMALL: SampleBytes = SampleBytes { host: 110_000, device: 150_528 };
    const MS: u64 = 1_000_000;

    fn saw(link: &mut LinkShare, starved_percent: u64, n: u32) {
        for _ in 0..n {
            let (ns, bytes) = (50 * MS, 500_000);
            let starved_ns = ns / 100 * starved_percent;
            link.saw(Seen { ns, starved_ns, bytes, ..Seen::default() });
        }
    }

    #[test]
    fn results_that_are_larger_than_records_need_room_on_the_link() {
        let mut link = LinkShare::new(SMALL);
        assert_eq!(link.devices(), DeviceUse::Rests, "nothing is known");
        saw(&mut link, 100, 2);
        saw(&mut link, 0, 100);
        assert_eq!(link.devices(), DeviceUse::Claims, "the processors are the limit");
        saw(&mut link, 30, 100);
        assert_eq!(link.devices(), DeviceUse::Claims, "between the two");
        saw(&mut link, 90, 100);
        assert_eq!(link.devices(), DeviceUse::Rests);
        saw(&mut link, 30, 100);
        assert_eq!(link.devices(), DeviceUse::Rests, "between the two");
    }

    #[test]
    fn results_that_are_smaller_are_always_worth_it() {
        let mut link = LinkShare::new(LARGE);
        for percent in [100, 0, 100] {
            assert_eq!(link.devices(), DeviceUse::Claims);
            saw(&mut link, percent, 100);
        }
        let equal = SampleBytes { host: 5, device: 5 };
        assert_eq!(LinkShare::new(equal).devices(), DeviceUse::Rests);
    }

    #[test]
    fn where_the_link_is_the_limit_the_host_is_as_fast_as_it() {
        let mut link = LinkShare::new(LARGE);
        assert_eq!(link.host_ns(7, 64), 7, "nothing is known");
        // Ten megabytes per second: ten samples, 100 ms each.
        saw(&mut link, 100, 100);
        let ns = link.host_ns(7, 64);
        assert!((6_300 * MS..6_500 * MS).contains(&ns), "{ns}");
        assert_eq!(link.host_ns(u64::MAX, 64), u64::MAX, "the workers are slower");
        saw(&mut link, 0, 100);
        assert_eq!(link.host_ns(7, 64), 7);
        // What cannot be is no reason to break.
        let most = u64::MAX;
        link.devices_have(Some(1));
        let in_flight_bytes = most;
        let seen = Seen {
            ns: most,
            starved_ns: most,
            bytes: most,
            in_flight_bytes,
            wall_ns: most,
        };
        link.saw(seen);
        link.device_made(most);
        link.saw(Seen { starved_ns: 5, ..Seen::default() });
        let _ = link.host_ns(u64::MAX, u64::MAX);
    }

    #[test]
    fn the_host_limits_itself_while_a_device_has_work_and_says_something() {
        // The wall clock is past the start of a minute.
        let mut wall_ns = 2000 * MS;
        let mut see = |link: &mut LinkShare, seconds: u32| {
            for _ in 0..seconds * 20 {
                wall_ns += 50 * MS;
                let (ns, bytes) = (50 * MS, 625_000);
                let in_flight_bytes = link.host_limit_bytes().unwrap_or(16_000_000);
                link.saw(Seen { ns, starved_ns: ns, bytes, in_flight_bytes, wall_ns });
                if let Some(asked) = link.ask_round_trip() {
                    link.round_trip(asked, 150 * MS);
                }
            }
            link.host_limit_bytes()
        };
        let mut link = LinkShare::new(LARGE);
        link.devices_have(Some(0));
        assert_eq!(see(&mut link, 20), None, "no device has work");
        assert_eq!(link.ask_round_trip(), None, "it was, before the link was full");
        link.devices_have(Some(1));
        // 12.5 MB/s over 150 ms, half of it more, and two records.
        let limit = see(&mut link, 1).unwrap();
        assert!((4_700_000..5_000_000).contains(&limit), "{limit}");
        assert_eq!(see(&mut link, 31), None, "nothing comes of it");
        link.device_made(64);
        assert!(see(&mut link, 1).is_some());
        link.devices_have(Some(0));
        assert_eq!(see(&mut link, 2), None);
        // Results that are nearly as large as records gain little.
        let mut link = LinkShare::new(SampleBytes { host: 200_000, ..LARGE });
        link.devices_have(Some(1));
        assert_eq!(link.ask_round_trip(), None);
        assert_eq!(see(&mut link, 20), None);
        // Without devices nobody asks.
        assert_eq!(LinkShare::new(LARGE).ask_round_trip(), None);
    }

    #[test]
    fn the_arithmetic_of_the_page_about_remote_data() {
        let close = |[host, device]: [f64; 2], expected: [f64; 2]| {
            let is =
                (host - expected[0]).abs() < 0.1 && (device - expected[1]).abs() < 0.1;
            assert!(is, "{host} and {device}, not {expected:?}");
        };
        let link = 12.5e6;
        close(best_rates(LARGE, link, [300.0, 0.0]), [12.5, 0.0]);
        close(best_rates(LARGE, link, [300.0, 20.0]), [9.5, 20.0]);
        close(best_rates(LARGE, link, [300.0, 500.0]), [0.0, 83.0]);
        close(best_rates(SMALL, link, [300.0, 500.0]), [113.6, 0.0]);
        // The processors are the limit: the device gets what the host leaves of the link.
        close(best_rates(SMALL, link, [50.0, 500.0]), [50.0, 46.5]);
    }
}
