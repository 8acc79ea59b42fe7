//! The drive's models against closed forms, in virtual time. `--nocapture` prints the table of
//! docs/firmware-sim.md.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]
#![allow(clippy::print_stdout, reason = "the table of docs/firmware-sim.md")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bothends_firmware_sim::config::DeviceConfig;
use bothends_firmware_sim::media::{Blocks, MediaConfig, NandConfig, transfer_ns};
use bothends_firmware_sim::power::{Busy, SleepConfig, ThermalConfig};
use bothends_firmware_sim::{Demand, Drive, preset};
use proptest::prelude::*;

/// 32 GiB of blocks.
const N_BLOCKS: u64 = 1 << 23;
/// Blocks of a flash page of both drives.
const PAGE: u64 = 8;

fn drive(name: &str) -> (Drive, DeviceConfig) {
    let config = preset::load(name).unwrap();
    (Drive::new(config.clone(), N_BLOCKS), config)
}

fn nand(config: &DeviceConfig) -> &NandConfig {
    let MediaConfig::Nand(nand) = &config.media else { panic!("{}", config.name) };
    nand
}

/// What a host sees.
struct Seen {
    mean_us: f64,
    per_s: f64,
}

/// Hosts with `depth` commands in flight at a time, `n` in all: each completion is followed by the next
/// command at once. The first tenth is not counted.
fn closed_loop(
    drive: &mut Drive,
    (depth, n): (u64, u64),
    mut command: impl FnMut(u64) -> Demand,
) -> Seen {
    let mut free: BinaryHeap<Reverse<u64>> = (0..depth).map(|_| Reverse(0)).collect();
    let (mut sum_ns, mut begin_ns, mut end_ns) = (0_u64, 0, 0);
    for nth in 0..n {
        let Reverse(at_ns) = free.pop().unwrap();
        let done_ns = drive.take(at_ns, &command(nth)).end_ns;
        free.push(Reverse(done_ns));
        if nth < n / 10 {
            begin_ns = begin_ns.max(at_ns);
        } else {
            sum_ns += done_ns - at_ns;
            end_ns = end_ns.max(at_ns);
        }
    }
    let counted = (n - n / 10) as f64;
    Seen {
        mean_us: sum_ns as f64 / counted / 1000.0,
        per_s: counted / ((end_ns - begin_ns) as f64 * 1e-9),
    }
}

/// 4-KiB reads, each of the next plane.
fn small(nth: u64) -> Demand {
    Demand::Read(Blocks { first: nth * PAGE % N_BLOCKS, n: 1 })
}

/// 1-MiB reads, in order.
fn large(nth: u64) -> Demand {
    Demand::Read(Blocks { first: nth * 256 % N_BLOCKS, n: 256 })
}

fn copied(nth: u64) -> Demand {
    Demand::ToMemory(vec![Blocks { first: nth * 256 % N_BLOCKS, n: 256 }], 0)
}

fn row(what: &str, got: f64, expected: f64, percent: f64) {
    println!(
        "| {what} | {expected:.4e} | {got:.4e} | {:+.2} % |",
        100.0 * (got / expected - 1.0)
    );
    assert!(
        (got / expected - 1.0).abs() <= percent / 100.0,
        "{what}: {got}, not {expected}"
    );
}

/// Times of the closed forms, in microseconds.
struct Times {
    firmware: f64,
    /// A die, with the transfer to the controller.
    die: f64,
    channel: f64,
    link: f64,
}

fn times_of_4_kib(config: &DeviceConfig, link_bytes_per_s: u64) -> Times {
    let nand = nand(config);
    let senses = [
        Some(nand.sense_small_lsb_ns),
        nand.sense_small_csb_ns,
        Some(nand.sense_small_msb_ns),
    ];
    let senses: Vec<f64> = senses.into_iter().flatten().map(|ns| ns as f64).collect();
    let sense = senses.iter().sum::<f64>() / senses.len() as f64;
    let channel = transfer_ns(4096, nand.channel_bytes_per_s) as f64;
    Times {
        firmware: nand.firmware_small_ns as f64 / 1000.0,
        die: (sense + channel) / 1000.0,
        channel: channel / 1000.0,
        link: transfer_ns(4096, link_bytes_per_s) as f64 / 1000.0,
    }
}

/// Preset, published link in bytes per second, latency of one read in microseconds, dies, and large reads in bytes
/// per second as the host and as the device itself has them.
const DRIVES: [(&str, u64, f64, f64, f64, f64); 2] = [
    ("970-pro", 3_360_000_000, 63.6, 16.0, 3.36e9, 6.4e9),
    ("zn540", 3_050_000_000, 80.4, 32.0, 3.05e9, 3.6e9),
];

#[test]
fn reads_of_4_kib_have_the_published_latency_and_rate() {
    for (name, link, qd1_us, dies, _, _) in DRIVES {
        let (mut one, config) = drive(name);
        let times = times_of_4_kib(&config, link);
        let sum = times.firmware + times.die + times.link;
        row(
            &format!("{name}, closed form against the published constant, us"),
            sum,
            qd1_us,
            1.0,
        );
        let seen = closed_loop(&mut one, (1, 4800), small);
        row(&format!("{name}, QD1 latency, us"), seen.mean_us, qd1_us, 5.0);
        row(&format!("{name}, QD1, reads/s"), seen.per_s, 1e6 / qd1_us, 5.0);
        // With as many in flight as give it no idle die, the slowest part sets the rate; with fewer, the latency.
        for depth in [32_u64, 256] {
            let busiest = (times.die / dies).max(times.channel / 8.0).max(times.link);
            let latency = (busiest * depth as f64).max(sum);
            let seen = closed_loop(&mut drive(name).0, (depth, 48_000), small);
            row(&format!("{name}, QD{depth} latency, us"), seen.mean_us, latency, 5.0);
            row(
                &format!("{name}, QD{depth}, reads/s"),
                seen.per_s,
                1e6 * depth as f64 / latency,
                5.0,
            );
        }
    }
}

#[test]
fn large_reads_are_bound_by_the_link_and_copies_to_memory_by_the_channels() {
    for (name, _, _, _, link, channels) in DRIVES {
        let bytes = f64::from(1 << 20);
        let seen = closed_loop(&mut drive(name).0, (32, 3000), large);
        row(&format!("{name}, reads of 1 MiB, B/s"), seen.per_s * bytes, link, 5.0);
        let seen = closed_loop(&mut drive(name).0, (32, 3000), copied);
        row(
            &format!("{name}, copies of 1 MiB to memory, B/s"),
            seen.per_s * bytes,
            channels,
            5.0,
        );
    }
}

#[test]
fn writes_in_order_are_bound_by_programs_or_the_link() {
    for (name, _, _, dies, link, _) in DRIVES {
        let (mut own, config) = drive(name);
        let writes = config.writes.as_ref().unwrap();
        let unit = u64::from(writes.program_unit_bytes);
        let program_ns =
            writes.program_ns + transfer_ns(unit, nand(&config).channel_bytes_per_s);
        let programs = dies * unit as f64 / (program_ns as f64 * 1e-9);
        // What is written later than the buffer holds.
        let write = |nth: u64| Demand::Write(Blocks { first: nth * 32, n: 32 });
        let seen = closed_loop(&mut own, (32, 8000), write);
        let got = seen.per_s * 32.0 * 4096.0;
        // A write of 128 KiB is taken into the buffer in the firmware's time of its units, one after the other.
        row(&format!("{name}, writes of 128 KiB, B/s"), got, programs.min(link), 5.0);
        let one = drive(name).0.take(0, &Demand::Write(Blocks { first: 0, n: 1 })).end_ns;
        let expected = writes.firmware_ns + writes.buffer_unit_ns;
        let link_ns = one - expected;
        assert!((1200..1400).contains(&link_ns), "{name}: it is complete in the buffer");
    }
}

/// Reads of a host and copies of the device itself, at the same time on the same dies and channels.
#[test]
fn a_host_that_reads_and_the_device_itself_contend() {
    for (name, _, _, _, link, channels) in DRIVES {
        let bytes = f64::from(1 << 20);
        let alone = closed_loop(&mut drive(name).0, (16, 3000), large).per_s * bytes;
        let device_alone =
            closed_loop(&mut drive(name).0, (16, 3000), copied).per_s * bytes;
        let mut own = drive(name).0;
        let mut n_reads = 0_u32;
        let both = closed_loop(&mut own, (32, 6000), |nth| {
            // Each keeps its own number in flight: here as many of one as of the other.
            if nth % 2 == 0 {
                n_reads += 1;
                large(nth)
            } else {
                copied(nth)
            }
        });
        let sum = both.per_s * bytes;
        println!(
            "| {name}: host alone {:.2} GB/s, device alone {:.2}, together {:.2} each |",
            alone / 1e9,
            device_alone / 1e9,
            sum / 2e9
        );
        assert_eq!(n_reads, 3000);
        assert!(sum <= channels * 1.01, "{name}: {sum} is more than the channels carry");
        assert!(
            sum / 2.0 < device_alone * 0.95,
            "{name}: the device is as fast as alone"
        );
        assert!(sum > link.min(alone), "{name}: together they move more than the link");
    }
}

#[test]
fn a_host_that_reads_alone_waits_for_the_copies_of_the_device() {
    for (name, ..) in DRIVES {
        let alone = closed_loop(&mut drive(name).0, (1, 1000), small).mean_us;
        let mut own = drive(name).0;
        let mut at_ns = 0;
        let mut sum_ns = 0;
        for nth in 0..1000 {
            own.take(at_ns, &copied(nth));
            let done_ns = own.take(at_ns, &small(nth * 3)).end_ns;
            sum_ns += done_ns - at_ns;
            at_ns = done_ns;
        }
        let with = sum_ns as f64 / 1e6;
        println!(
            "| {name}: a 4-KiB read takes {alone:.1} us alone, {with:.1} us behind a copy of 1 MiB |"
        );
        assert!(with > 1.5 * alone, "{name}: {with} us, {alone} us alone");
    }
}

/// Random writes cost more energy and time than those in order: their collections occupy the dies.
#[test]
fn random_writes_wait_for_garbage_collection() {
    let config = preset::load("970-pro").unwrap();
    // 1 GiB, so that it is soon written over.
    let n_blocks = 1 << 18;
    let rate = |random: bool| {
        let mut own = Drive::new(config.clone(), n_blocks);
        let mut seed = 7_u64;
        let seen = closed_loop(&mut own, (32, 400_000), |nth| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let first = if random { (seed >> 33) % n_blocks } else { nth % n_blocks };
            Demand::Write(Blocks { first, n: 1 })
        });
        seen.per_s
    };
    let (ordered, random) = (rate(false), rate(true));
    println!("| 4-KiB writes/s: {ordered:.0} in order, {random:.0} at random |");
    assert!(random < ordered / 2.0, "{random}, {ordered} in order");
}

#[test]
fn programs_share_the_cores() {
    use bothends_firmware_sim::compute::Effort;
    let (mut own, config) = drive("newport");
    let work = config.work.unwrap();
    let effort = Effort { fuel: 52_363_729, ..Effort::default() };
    let one_ns = transfer_ns(effort.fuel, work.fuel_per_s);
    let ends: Vec<u64> =
        (0..8).map(|_| own.take(0, &Demand::Execute(effort)).end_ns).collect();
    let latency_ns = 100_000;
    assert!(ends[..4].iter().all(|end| *end == one_ns + latency_ns), "{ends:?}");
    assert!(ends[4..].iter().all(|end| *end == 2 * one_ns + latency_ns), "{ends:?}");
}

/// What a preset knows of itself only between ends is computed at both.
#[test]
fn results_have_the_ends_of_the_constants() {
    use bothends_firmware_sim::compute::Effort;
    use bothends_firmware_sim::config::Bound;
    let images = Effort { coded_bytes: 70_000, pixels: 187_500, ..Effort::default() };
    let us = |bound| {
        let config = preset::load_at("newport", bound).unwrap();
        let mut own = Drive::new(config, N_BLOCKS);
        own.take(0, &Demand::Execute(images)).end_ns as f64 / 1000.0
    };
    // 70 kB at 7.2 MB/s (6 to 9) or 187,500 pixels at 19 Mpx/s (16 to 24), and the link's 100 us.
    row("newport, an image, us", us(Bound::Middle), 9868.4 + 100.0, 0.1);
    row("newport at its best, us", us(Bound::Best), 7812.5 + 100.0, 0.1);
    row("newport at its worst, us", us(Bound::Worst), 11_718.8 + 100.0, 0.1);
}

/// A program of half a minute uses its energy in half a minute: nothing is throttled for what has not been used.
#[test]
fn energy_is_used_while_work_is_done() {
    use bothends_firmware_sim::compute::Effort;
    let mut config = preset::load("newport").unwrap();
    let (idle_mw, compute_mw) = (config.power.idle_mw, config.power.compute_mw);
    let cooled_mw = idle_mw + compute_mw;
    config.thermal =
        Some(ThermalConfig { cooled_mw, reservoir_mj: 10, slowdown_milli: 2000 });
    config.sleep = None;
    let fuel = 30 * config.work.as_ref().unwrap().fuel_per_s;
    let mut own = Drive::new(config, N_BLOCKS);
    own.take(0, &Demand::Execute(Effort { fuel, ..Effort::default() }));
    for second in 1..=40 {
        let vitals = own.vitals(second * 1_000_000_000);
        let worked = if second <= 30 { compute_mw } else { 0 };
        assert_eq!(vitals.microwatts, (idle_mw + worked) * 1000, "in second {second}");
        assert!(!vitals.is_hot, "in second {second}");
    }
    assert_eq!(own.vitals(40_000_000_000).most_microwatts, cooled_mw * 1000);
}

/// A drive is told of a program when it has run, but does not sleep while it does.
#[test]
fn a_drive_is_awake_while_a_program_runs() {
    use bothends_firmware_sim::compute::Effort;
    let mut config = preset::load("newport").unwrap();
    let idle_mw = config.power.idle_mw;
    config.sleep =
        Some(SleepConfig { power_mw: 0, after_ns: 5_000_000, wake_ns: 90_000 });
    let sleeping = |at_ns, config: &DeviceConfig| {
        Drive::new(config.clone(), N_BLOCKS).take(at_ns, &Demand::Fill(0)).end_ns - at_ns
    };
    let (awake_ns, woken_ns) = (sleeping(0, &config), sleeping(1_000_000_000, &config));
    assert_eq!(woken_ns, awake_ns + 90_000);
    let mut own = Drive::new(config, N_BLOCKS);
    assert_eq!(own.begin(0), 0);
    let later_ns = 1_000_000_000;
    assert_eq!(own.take(later_ns, &Demand::Fill(0)).end_ns - later_ns, awake_ns);
    assert_eq!(own.total_pj(later_ns), u128::from(idle_mw * later_ns));
    let effort = Effort { bytes: 1, ..Effort::default() };
    own.take(0, &Demand::Execute(effort));
    // Asleep again, the next program wakes it.
    let again_ns = 2 * later_ns;
    assert_eq!(own.begin(again_ns), again_ns + 90_000);
}

/// Or a command would have arrived when somebody read the log, and not be late.
#[test]
fn who_looks_at_a_drive_moves_no_command() {
    let config = {
        let mut config = preset::load("970-pro").unwrap();
        config.sleep =
            Some(SleepConfig { power_mw: 0, after_ns: 5_000_000, wake_ns: 90_000 });
        config
    };
    let reads = |looked: bool| {
        let mut own = Drive::new(config.clone(), N_BLOCKS);
        let first = own.take(0, &small(0)).end_ns;
        if looked {
            own.vitals(200_000_000);
        }
        [first, own.take(0, &small(1)).end_ns, own.take(100, &small(2)).end_ns]
    };
    assert_eq!(reads(true), reads(false));
}

/// A program is told of when it has run, and other commands come meanwhile.
#[test]
fn a_drive_is_busy_while_a_program_runs() {
    use bothends_firmware_sim::compute::Effort;
    let (mut own, config) = drive("newport");
    let fuel = 2 * config.work.unwrap().fuel_per_s;
    own.begin(0);
    own.vitals(1_000_000_000);
    own.take(1_990_000_000, &small(0));
    let seen = own.vitals(1_990_000_000).busy_ns;
    assert!((1_990_000_000..2_000_000_000).contains(&seen), "{seen} ns while it runs");
    let end_ns =
        own.take(0, &Demand::Execute(Effort { fuel, ..Effort::default() })).end_ns;
    assert_eq!(own.vitals(3_000_000_000).busy_ns, end_ns, "and no more than that");
}

fn demand() -> impl Strategy<Value = Demand> {
    let blocks = || (0_u64..1000, 1_u64..40).prop_map(|(first, n)| Blocks { first, n });
    prop_oneof![
        blocks().prop_map(Demand::Read),
        blocks().prop_map(Demand::Write),
        Just(Demand::Flush),
        (0_u64..1 << 20).prop_map(Demand::ReadMemory),
        (0_u64..1 << 20).prop_map(Demand::WriteMemory),
        (0_u64..1 << 20).prop_map(Demand::Fill),
        prop::collection::vec(blocks(), 0..4).prop_map(|own| Demand::ToMemory(own, 4096)),
        prop::collection::vec(blocks(), 0..4).prop_map(Demand::ToBlocks),
        (0_u64..1 << 24).prop_map(|fuel| {
            let effort = bothends_firmware_sim::compute::Effort::default();
            Demand::Execute(bothends_firmware_sim::compute::Effort { fuel, ..effort })
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever a drive is asked, its energy is the power of each state times the time in it, no command
    /// ends before it began, and the same commands end at the same times again.
    #[test]
    fn energy_is_conserved_and_replays_are_equal(
        commands in prop::collection::vec((0_u64..40_000_000, demand()), 0..60),
    ) {
        let mut config = preset::load("newport").unwrap();
        config.sleep = Some(SleepConfig { power_mw: 700, after_ns: 5_000_000, wake_ns: 90_000 });
        config.thermal =
            Some(ThermalConfig { cooled_mw: 5500, reservoir_mj: 1, slowdown_milli: 2000 });
        let mut own = Drive::new(config.clone(), 1000);
        let mut again = Drive::new(config.clone(), 1000);
        let mut at_ns = 0;
        let mut sum = Busy::default();
        let (mut idle_from_ns, mut slept_ns) = (0_u64, 0_u64);
        let mut slept = |at_ns: u64, idle_from_ns: u64| {
            slept_ns += at_ns.saturating_sub(idle_from_ns + 5_000_000);
            slept_ns
        };
        for (later_ns, demand) in &commands {
            at_ns += later_ns;
            slept(at_ns, idle_from_ns);
            let passage = own.take(at_ns, demand);
            prop_assert!(passage.end_ns >= at_ns);
            prop_assert_eq!(passage, again.take(at_ns, demand));
            let flushed_ns = own.busy_until();
            idle_from_ns = idle_from_ns.max(flushed_ns);
            sum.media_ns += passage.busy.media_ns;
            sum.program_ns += passage.busy.program_ns;
            sum.erase_ns += passage.busy.erase_ns;
            sum.compute_ns += passage.busy.compute_ns;
            sum.link_ns += passage.busy.link_ns;
        }
        // What was begun has used all its energy then.
        at_ns = at_ns.max(own.busy_until()) + 100_000_000;
        let asleep_ns = slept(at_ns, idle_from_ns);
        let vitals = own.vitals(at_ns);
        let power = &config.power;
        let parts = [
            (power.idle_mw, at_ns - asleep_ns),
            (700, asleep_ns),
            (power.media_mw, sum.media_ns + sum.program_ns + sum.erase_ns),
            (power.compute_mw, sum.compute_ns),
            (power.link_mw, sum.link_ns),
        ];
        let expected: f64 = parts.iter().map(|(mw, ns)| *mw as f64 * *ns as f64).sum();
        let got = own.total_pj(at_ns) as f64;
        prop_assert!((got / expected - 1.0).abs() < 1e-9, "{} pJ, not {}", got, expected);
        prop_assert!((vitals.microjoules as f64 - expected / 1e6).abs() <= 1.0);
    }
}
