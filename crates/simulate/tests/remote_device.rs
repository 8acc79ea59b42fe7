//! A device near a remote store: what counts where the link is the limit are bytes.
#![allow(clippy::unwrap_used, reason = "a test's own numbers")]

use bothends_core::ids::Ns;
use bothends_core::link::SampleBytes;
use bothends_core::select::StrategyConfig;
use bothends_simulate::remote::{BesideWorld, Hosts, Yields, beside};
use bothends_simulate::scenario;

/// How much faster each of these strategies is than the host alone.
fn speedups(name: &str) -> Vec<f64> {
    let scenario = scenario::find(name).unwrap();
    let strategies = [StrategyConfig::Ordered, StrategyConfig::Relaxed];
    let result = scenario.run(&strategies, &mut |_| {});
    let of =
        |(_, result): &(_, bothends_simulate::StrategyResult)| result.speedup.unwrap();
    result.strategies.iter().map(of).collect()
}

#[test]
fn with_large_records_a_device_pays_though_the_link_is_full() {
    let speedups = speedups("remote-large-records");
    assert!(speedups.iter().all(|speedup| *speedup >= 1.5), "{speedups:?}");
}

#[test]
fn with_records_that_are_smaller_than_results_it_rests() {
    let speedups = speedups("remote-small-records");
    assert!(speedups.iter().all(|speedup| *speedup >= 0.99), "{speedups:?}");
}

/// Photographs of 1 MB behind 100 Mb/s and 150 ms, and a device next to them that makes 20 a second.
const LARGE: BesideWorld = BesideWorld {
    rtt_ns: 150_000_000,
    bytes_per_s: 12.5e6,
    queue_bytes: 0,
    bytes: SampleBytes { host: 1_000_000, device: 150_528 },
    hosts: Hosts::ONE,
    window_bytes: 32 << 20,
    batch: 64,
    device_per_s: 20.0,
    stalled: None,
    does_yield: Yields::Yes,
};

/// How many times as many samples as the host alone makes: from the start, and once it has settled.
fn times_alone(world: &BesideWorld) -> [f64; 2] {
    let alone = beside(&BesideWorld { device_per_s: 0.0, ..*world }, 90);
    let both = beside(world, 90);
    [0..90, 30..90].map(|time| both.per_s(time.clone()) / alone.per_s(time))
}

fn world([rtt_ms, mbit, device_per_s]: [u32; 3]) -> BesideWorld {
    let (rtt_ns, mbit) = (u64::from(rtt_ms) * 1_000_000, f64::from(mbit));
    let (bytes_per_s, device_per_s) = (mbit * 125e3, f64::from(device_per_s));
    BesideWorld { rtt_ns, bytes_per_s, device_per_s, ..LARGE }
}

#[test]
fn a_device_gets_its_share_of_a_link_that_is_full_of_requests() {
    for (at, least, most_without) in [
        ([150, 100, 20], 2.1, 1.8),
        ([150, 100, 100], 3.0, 1.8),
        ([20, 100, 20], 2.1, 1.5),
        ([150, 20, 20], 2.5, 1.5),
    ] {
        let world = world(at);
        // On the slow link a batch of results takes long, so that little is seen of it in less time.
        let settled = 90..600;
        let alone = beside(&BesideWorld { device_per_s: 0.0, ..world }, 600);
        let times = |world: &BesideWorld| {
            beside(world, 600).per_s(settled.clone()) / alone.per_s(settled.clone())
        };
        let yields = times(&world);
        let without = times(&BesideWorld { does_yield: Yields::No, ..world });
        assert!(yields >= least, "{at:?}: {yields}");
        assert!(yields > without, "{at:?}: {yields} and {without}");
        assert!(without <= most_without, "{at:?}: why limit it at all? {without}");
    }
}

/// In a link with one queue, the host's own requests make the way there and back longer. A limit that followed from
/// that would grow with the queue that it makes.
#[test]
fn the_limit_does_not_follow_the_queue_that_the_host_makes_itself() {
    for (rtt_ms, ideal) in [(150, 4_812_500), (20, 2_375_000)] {
        // 0.6 seconds of the link.
        let world = BesideWorld { queue_bytes: 7_500_000, ..world([rtt_ms, 100, 20]) };
        let both = beside(&world, 15 * 60);
        let most = both.limits[10 * 60..].iter().map(|limit| limit.unwrap()).max();
        assert!(most.unwrap() <= 2 * ideal, "{rtt_ms} ms: {most:?}");
        let alone = beside(&BesideWorld { device_per_s: 0.0, ..world }, 90);
        let times = both.per_s(10 * 60..15 * 60) / alone.per_s(30..90);
        assert!(times >= 1.7, "{rtt_ms} ms: {times}");
    }
}

#[test]
fn what_a_device_may_take_of_the_link_never_makes_both_slower_than_the_host_alone() {
    for rtt_ms in [5, 150] {
        for mbit in [100, 1000] {
            for device_per_s in [1, 20, 200] {
                for host in [400_000, 1_000_000] {
                    let bytes = SampleBytes { host, ..LARGE.bytes };
                    let world = world([rtt_ms, mbit, device_per_s]);
                    let times = times_alone(&BesideWorld { bytes, batch: 16, ..world });
                    let at = (rtt_ms, mbit, device_per_s, host);
                    // Until the device's first batch has come, nobody knows what it is worth.
                    let is_slower = times[0] < 0.9 || times[1] < 0.95;
                    assert!(!is_slower, "{at:?}: {times:?}");
                }
            }
        }
    }
}

#[test]
fn while_a_device_stalls_the_host_has_all_of_the_link() {
    let stalled = Some([Ns(40_000_000_000), Ns(80_000_000_000)]);
    let both = beside(&BesideWorld { stalled, ..LARGE }, 90);
    let alone = beside(&BesideWorld { device_per_s: 0.0, ..LARGE }, 90);
    let times = |seconds: std::ops::Range<usize>| {
        both.per_s(seconds.clone()) / alone.per_s(seconds)
    };
    // It is waited for, for three times as long as its batches took.
    assert!(times(41..52) >= 0.6, "{}", times(41..52));
    assert!(times(52..80) >= 0.97, "{}", times(52..80));
    assert!(times(82..90) >= 1.8, "{}", times(82..90));
}

/// How many times as much as alone ranks make together on 1 Gb/s with one queue of 0.6 seconds, where the device makes
/// 200 a second: with clocks that agree, at least, and with clocks that do not, at most.
#[expect(clippy::print_stdout, reason = "the figures of docs/remote.md")]
fn ranks(rtt_ms: u32, n: u32) -> [f64; 2] {
    let per_s = |world: BesideWorld| beside(&world, 900).per_s(300..900);
    let world = BesideWorld { queue_bytes: 75_000_000, ..world([rtt_ms, 1000, 200]) };
    let [mut least, mut most_apart] = [f64::INFINITY, 0.0_f64];
    for apart_ms in [0, 100, 300, 500] {
        let apart_ns = apart_ms * 1_000_000;
        let hosts = Hosts { n, apart_ns, clocks_differ_ns: 2_000_000 };
        let world = BesideWorld { hosts, ..world };
        let alone = per_s(BesideWorld { device_per_s: 0.0, ..world });
        let together = per_s(world) / alone;
        // Each of them at another moment of the minute.
        let hosts = Hosts { clocks_differ_ns: 60_000_000_000 / u64::from(n), ..hosts };
        let apart = per_s(BesideWorld { hosts, ..world }) / alone;
        let without = per_s(BesideWorld { does_yield: Yields::No, ..world }) / alone;
        println!(
            "{rtt_ms} ms, {n} hosts {apart_ms} ms apart: no limit {without:.2}, \
             clocks that differ {apart:.2}, that agree {together:.2}"
        );
        assert!(together >= apart && together >= without);
        (least, most_apart) = (least.min(together), most_apart.max(apart));
    }
    [least, most_apart]
}

#[test]
fn hosts_that_let_the_queue_run_empty_at_the_same_moment_leave_the_device_its_share() {
    for (n, expected) in [(2, 1.6), (4, 1.6), (8, 1.3)] {
        let [least, _] = ranks(150, n);
        assert!(least >= expected, "{n} hosts: {least}");
    }
}

/// The shorter the way, the more of the time is the queue.
#[test]
fn hosts_that_do_so_at_different_moments_do_not() {
    for (n, expected) in [(2, 2.2), (4, 2.2), (8, 1.8)] {
        let [least, most_apart] = ranks(20, n);
        assert!(least >= expected, "{n} hosts: {least}");
        assert!(most_apart <= 1.3, "{n} hosts: why at the same moment? {most_apart}");
    }
}
