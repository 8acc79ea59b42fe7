//! Single rules of an epoch. `tests/schedules.rs` tests the promises under everything that can happen.

mod redone;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::objective::Objective;
use crate::select::MteConfig;

const MILLI: u64 = 1_000_000;
const D0: DeviceIdx = DeviceIdx(0);

fn config(strategy: StrategyConfig, n_batches: u32) -> EpochConfig {
    let device = DeviceConfig {
        slots: 2,
        buffer: 8,
        prior_ns: Some(4 * MILLI),
        shard: None,
        standing: Standing::New,
    };
    EpochConfig {
        n_batches,
        strategy,
        objective: Objective::Throughput,
        back_quota: None,
        shards: 1,
        front: FrontConfig { parallel: 1, quota: 2, prior_ns: Some(MILLI) },
        devices: vec![device],
        accelerator_ns: None,
        done: vec![],
        recovery: Recovery::On,
    }
}

fn at(milli: u64) -> Ns {
    Ns(milli * MILLI)
}

/// Lets the host make and the consumer take what they can, one batch each millisecond.
fn host_works(epoch: &mut EpochState, milli: std::ops::Range<u64>) -> Vec<u32> {
    let mut delivered = Vec::new();
    for milli in milli {
        if let Some(claim) = epoch.next_front(at(milli)) {
            epoch.finish(claim, MILLI, at(milli + 1));
        }
        while let Pick::Deliver(batch) = epoch.next_delivery(at(milli + 1)) {
            epoch.delivered(batch, at(milli + 1));
            delivered.push(batch.0);
        }
    }
    delivered
}

#[test]
fn a_dropped_claim_goes_back() {
    for (_, strategy) in StrategyConfig::all() {
        let mut epoch = EpochState::new(config(strategy, 1));
        let device = if strategy == StrategyConfig::Csd { Some(D0) } else { None };
        let mut claim = |now| match device {
            Some(device) => epoch.next_back(device, now),
            None => epoch.next_front(now),
        };
        drop(claim(at(0)).unwrap());
        assert_eq!(claim(at(1)).unwrap().batch(), BatchIdx(0));
        assert_eq!(epoch.counts().returned, 1);
    }
}

#[test]
fn a_device_takes_what_it_can_have_ready_in_time() {
    let mut epoch = EpochState::new(config(StrategyConfig::Ordered, 1_000));
    // 1.3 x 4 ms and a host batch of 1.1 ms take the host 7 batches; and two more.
    let first = epoch.next_back(D0, at(0)).unwrap();
    assert_eq!(first.batch(), BatchIdx(9));
    epoch.finish(first, 4 * MILLI, at(4));
    // The host has not begun: still nine are left to it.
    let second = epoch.next_back(D0, at(4)).unwrap();
    assert_eq!(second.batch(), BatchIdx(10));
    // One more in line: twice the time.
    assert_eq!(epoch.next_back(D0, at(4)).unwrap().batch(), BatchIdx(16));
}

#[test]
fn the_last_batch_is_a_quick_device_s_where_the_host_comes_to_it_later() {
    let mut config = config(StrategyConfig::Ordered, 3);
    config.front.prior_ns = Some(10 * MILLI);
    let last = |host_begins, now| {
        let mut epoch = EpochState::new(config.clone());
        let shown = epoch.next_back(D0, at(0)).unwrap();
        assert_eq!(shown.batch(), BatchIdx(2));
        epoch.finish(shown, 4 * MILLI, at(4));
        let _host = epoch.next_front(at(host_begins)).unwrap();
        let claim = epoch.next_back(D0, at(now));
        (claim.map(|claim| claim.batch()), epoch.is_claimed_out())
    };
    // It takes 4 ms, and nearly always less than 5.2; the host has a hand after 10.
    assert_eq!(last(4, 5), (Some(BatchIdx(1)), true));
    assert_eq!(last(4, 8), (Some(BatchIdx(1)), true));
    assert_eq!(last(4, 9), (None, false));
}

/// How many free batches the host leaves to a device that has made `per_milli` batches in each of ten
/// milliseconds, next to sixteen workers that together make one per millisecond.
fn left_to_a_device_after(per_milli: u64) -> usize {
    let mut config = config(StrategyConfig::Ordered, 62 * 16);
    config.front = FrontConfig { parallel: 16, quota: 32, prior_ns: Some(MILLI) };
    config.devices[0].prior_ns = Some(MILLI / 8);
    config.devices[0].standing = Standing::Proven;
    let mut epoch = EpochState::new(config);
    let mut host: Vec<_> = (0..16).map(|_| epoch.next_front(at(0)).unwrap()).collect();
    for done in 1..=10 * per_milli {
        let now = Ns(done * MILLI / per_milli);
        let claim = epoch.next_back(D0, Ns(now.0 - MILLI / 8)).unwrap();
        epoch.finish(claim, MILLI / 8, now);
        while let Pick::Deliver(batch) = epoch.next_delivery(now) {
            epoch.delivered(batch, now);
        }
    }
    epoch.finish(host.remove(0), MILLI, at(10));
    let ahead = epoch.next_front(at(10)).unwrap().batch();
    epoch.books.ledger.free().count_below(ahead) as usize
}

#[test]
fn the_host_claims_ahead_with_what_the_devices_have_won() {
    // It makes 128 while a worker makes one, and half of its buffer of eight may be late.
    assert_eq!(left_to_a_device_after(8), 124);
    // It has won less than its failure would cost.
    assert_eq!(left_to_a_device_after(1), 0);
}

#[test]
fn a_device_nobody_knows_gets_one_batch_and_is_never_waited_for() {
    let mut config = config(StrategyConfig::Ordered, 200);
    config.devices[0].prior_ns = None;
    let mut epoch = EpochState::new(config);
    let _first = epoch.next_back(D0, at(0)).unwrap();
    assert!(epoch.next_back(D0, at(0)).is_none());
    let delivered = host_works(&mut epoch, 0..200);
    assert_eq!(delivered, (0..200).collect::<Vec<_>>());
    assert_eq!(epoch.counts().rescued, 1);
}

#[test]
fn a_silent_device_gets_nothing_more_until_it_answers() {
    let mut epoch = EpochState::new(config(StrategyConfig::Relaxed, 1_000));
    let first = epoch.next_back(D0, at(0)).unwrap();
    let wake = epoch.wake_at(at(0)).unwrap();
    assert!(wake <= Ns(4 * MILLI * 13 / 10));
    // Overdue, though the device was alone with it and has a free slot.
    epoch.finish(first, 4 * MILLI, at(4));
    let second = epoch.next_back(D0, at(4)).unwrap();
    assert!(epoch.next_back(D0, at(40)).is_none());
    // A link that is full for a moment is no answer.
    epoch.use_device(D0, DeviceUse::Rests, at(40));
    epoch.use_device(D0, DeviceUse::Claims, at(40));
    assert!(epoch.next_back(D0, at(40)).is_none());
    assert_eq!(epoch.finish(second, 36 * MILLI, at(40)), Finish::Committed);
    assert!(epoch.next_back(D0, at(40)).is_some());
    assert_eq!(epoch.counts().back[0].late, 1);
}

#[test]
fn the_late_result_of_a_rescued_batch_is_wasted() {
    let mut epoch = EpochState::new(config(StrategyConfig::Ordered, 20));
    let claim = epoch.next_back(D0, at(0)).unwrap();
    assert_eq!(host_works(&mut epoch, 0..40), (0..20).collect::<Vec<_>>());
    assert_eq!(epoch.finish(claim, 41 * MILLI, at(41)), Finish::Wasted);
    let counts = epoch.counts();
    assert_eq!((counts.rescued, counts.back[0].wasted, counts.back[0].late), (1, 1, 1));
}

#[test]
fn a_full_quota_does_not_lock_out_the_batch_that_delivery_waits_for() {
    let mut epoch = EpochState::new(config(StrategyConfig::Ordered, 20));
    let lost = epoch.next_front(at(0)).unwrap();
    let made = epoch.next_front(at(0)).unwrap();
    assert_eq!((lost.batch(), made.batch()), (BatchIdx(0), BatchIdx(1)));
    epoch.finish(made, MILLI, at(1));
    let third = epoch.next_front(at(1));
    assert!(third.is_none(), "the quota is two");
    epoch.give_back(lost, at(1));
    let second = epoch.next_front(at(1)).unwrap();
    assert_eq!(second.batch(), BatchIdx(0));
    assert!(epoch.next_front(at(1)).is_none());
    assert_eq!(epoch.counts().front.lost, 1);
}

#[test]
fn claims_of_a_lost_device_are_void_and_their_batches_free() {
    let mut epoch = EpochState::new(config(StrategyConfig::Csd, 3));
    let first = epoch.next_back(D0, at(0)).unwrap();
    assert_eq!(epoch.finish(first, 4 * MILLI, at(4)), Finish::Committed);
    let held = [epoch.next_back(D0, at(4)).unwrap(), epoch.next_back(D0, at(4)).unwrap()];
    assert!(epoch.next_front(at(5)).is_none());
    epoch.device_lost(D0, at(5));
    for claim in held {
        assert_eq!(epoch.finish(claim, MILLI, at(5)), Finish::Wasted);
    }
    assert_eq!(host_works(&mut epoch, 5..9), [2, 0, 1]);
    assert_eq!(epoch.counts().back[0].lost, 2);
    epoch.device_joined(D0, at(9));
    assert_eq!(epoch.next_delivery(at(9)), Pick::End);
}

#[test]
fn a_device_that_was_too_slow_before_gets_one_batch_to_show_what_it_is() {
    for strategy in [StrategyConfig::Relaxed, StrategyConfig::Ordered] {
        for work_ns in [4 * MILLI, MILLI / 2] {
            let mut epoch = EpochState::new(config(strategy, 4));
            let first = epoch.next_back(D0, at(0)).unwrap();
            assert!(epoch.next_back(D0, at(0)).is_none(), "{strategy}: one at a time");
            assert_eq!(host_works(&mut epoch, 0..1), [0]);
            epoch.finish(first, work_ns, at(1));
            let is_quick = work_ns < MILLI;
            assert_eq!(epoch.next_back(D0, at(1)).is_some(), is_quick, "{strategy}");
        }
    }
}

#[test]
fn a_device_that_comes_back_gets_one_batch_at_a_time_until_it_answers() {
    let mut epoch = EpochState::new(config(StrategyConfig::Ordered, 1_000));
    epoch.device_lost(D0, at(0));
    assert!(epoch.next_back(D0, at(0)).is_none());
    epoch.device_joined(D0, at(1));
    let claim = epoch.next_back(D0, at(1)).unwrap();
    assert!(epoch.next_back(D0, at(1)).is_none());
    epoch.finish(claim, 4 * MILLI, at(5));
    let _one = epoch.next_back(D0, at(5)).unwrap();
    assert!(epoch.next_back(D0, at(5)).is_some());
}

#[test]
fn without_recovery_the_published_schemes_wait_for_ever() {
    for name in ["mte", "wrr"] {
        let mut config = config(name.parse().unwrap(), 40);
        config.recovery = Recovery::Off;
        let mut epoch = EpochState::new(config);
        let _claim = epoch.next_back(D0, at(0)).unwrap();
        epoch.device_lost(D0, at(1));
        assert_eq!(host_works(&mut epoch, 1..10_000).len(), 39, "{name}");
        assert_eq!(epoch.next_delivery(at(1_000_000)), Pick::Wait);
    }
}

#[test]
fn mte_does_not_wait_for_a_device_that_is_full_of_what_comes_later() {
    let mut config = config("mte".parse().unwrap(), 2);
    config.devices[0].buffer = 1;
    let mut epoch = EpochState::new(config);
    let failed = epoch.next_back(D0, at(0)).unwrap();
    epoch.give_back(failed, at(1));
    let later = epoch.next_back(D0, at(1)).unwrap();
    epoch.finish(later, 4 * MILLI, at(5));
    // Both sides have met: both batches are the devices' part, the failed one its first.
    let failed = epoch.next_front(at(5)).unwrap();
    assert_eq!(failed.batch(), BatchIdx(1));
    epoch.give_back(failed, at(6));
    assert!(epoch.next_back(D0, at(6)).is_none(), "its buffer is full");
    assert_eq!(host_works(&mut epoch, 6..8), [1, 0]);
}

#[test]
fn with_objective_energy_the_host_makes_what_is_delivered_before_all_that_is_ready() {
    for name in ["mte", "wrr"] {
        let mut config = config(name.parse().unwrap(), 12);
        config.objective = Objective::Energy;
        config.accelerator_ns = Some(3 * MILLI);
        let mut epoch = EpochState::new(config);
        for milli in 0..6 {
            let claim = epoch.next_back(D0, at(milli)).unwrap();
            epoch.finish(claim, MILLI, at(milli + 1));
        }
        assert_eq!(epoch.next_delivery(at(6)), Pick::Wait, "{name} begins at the front");
        assert!(epoch.next_front(at(6)).is_some(), "{name} waits for the host");
    }
}

#[test]
fn mte_redoes_the_late_batch_that_delivery_waits_for_before_it_makes_its_own() {
    let mut config = config("mte".parse().unwrap(), 20);
    config.objective = Objective::Energy;
    config.accelerator_ns = Some(3 * MILLI);
    config.front.quota = 20;
    config.shards = 20;
    config.devices.push(config.devices[0]);
    config.devices[0].shard = Some(0);
    let mut epoch = EpochState::new(config);
    let late = epoch.next_back(D0, at(0)).unwrap();
    assert_eq!(late.batch(), BatchIdx(0));
    // The other device is fast enough for the accelerator, so the host is not needed for long.
    let delivered = host_works(&mut epoch, 0..20);
    assert_eq!(delivered.first(), Some(&0), "delivery waits for the silent device");
}

#[test]
fn mte_makes_what_delivery_waits_for_before_what_a_device_has_failed_on() {
    let strategy = MteConfig { calibration: 1, ..MteConfig::default() };
    let mut config = config(StrategyConfig::Mte(strategy), 20);
    config.objective = Objective::Energy;
    config.accelerator_ns = Some(3 * MILLI);
    config.shards = 2;
    config.devices[0].shard = Some(0);
    config.devices[0].buffer = 10;
    let mut epoch = EpochState::new(config);
    let own = epoch.next_front(at(0)).unwrap();
    epoch.finish(own, MILLI, at(1));
    for milli in 1..5 {
        let claim = epoch.next_back(D0, at(milli)).unwrap();
        epoch.finish(claim, MILLI, at(milli + 1));
    }
    let failed = epoch.next_back(D0, at(5)).unwrap();
    assert_eq!(failed.batch(), BatchIdx(10));
    epoch.give_back(failed, at(6));
    // The device's part is 10 to 19, of which it has not the data of 19: that comes first.
    let delivered = host_works(&mut epoch, 6..60);
    assert_eq!(delivered, (0..10).chain((10..20).rev()).collect::<Vec<_>>());
}

/// `mte` with three batches: a device holds the first, the host's quota is full with the
/// second, and only the host may make the third.
fn mte_with_a_full_host() -> (EpochState, Claim) {
    let mut config = config("mte".parse().unwrap(), 3);
    config.front.quota = 1;
    config.shards = 2;
    config.devices[0].shard = Some(0);
    let mut epoch = EpochState::new(config);
    let third = epoch.next_back(D0, at(0)).unwrap();
    epoch.give_back(third, at(1));
    let first = epoch.next_back(D0, at(1)).unwrap();
    let second = epoch.next_front(at(1)).unwrap();
    epoch.finish(second, MILLI, at(2));
    (epoch, first)
}

#[test]
fn mte_does_not_use_the_host_s_last_room_for_a_split_that_is_not_fixed() {
    let (mut epoch, first) = mte_with_a_full_host();
    let one_more = epoch.next_front(at(2)).unwrap();
    epoch.finish(one_more, MILLI, at(3));
    epoch.give_back(first, at(3));
    assert_eq!(host_works(&mut epoch, 3..9), [0, 1, 2]);
}

#[test]
fn a_batch_that_the_host_makes_too_is_not_where_the_devices_part_begins() {
    let (mut epoch, _kept) = mte_with_a_full_host();
    let first = epoch.next_front(at(2)).unwrap();
    assert_eq!((first.batch(), first.kind()), (BatchIdx(0), ClaimKind::Rescue));
    assert_eq!(epoch.next_delivery(at(2)), Pick::Wait);
    epoch.finish(first, MILLI, at(3));
    assert_eq!(host_works(&mut epoch, 3..9), [0, 1, 2]);
}

#[test]
fn a_device_that_keeps_a_batch_made_elsewhere_still_gets_its_one_to_try() {
    let mut epoch = EpochState::new(config(StrategyConfig::Csd, 10));
    let first = epoch.next_back(D0, at(0)).unwrap();
    epoch.finish(first, 4 * MILLI, at(4));
    let _kept = epoch.next_back(D0, at(4)).unwrap();
    let failed = epoch.next_back(D0, at(4)).unwrap();
    let rescue = epoch.next_front(at(40)).unwrap();
    epoch.finish(rescue, MILLI, at(41));
    epoch.give_back(failed, at(41));
    // Were it given nothing, it could not be late, and nobody would make what is its part.
    let _tried = epoch.next_back(D0, at(41)).unwrap();
    assert_eq!(host_works(&mut epoch, 41..100).len(), 10);
}

#[test]
fn that_a_device_is_silent_is_noticed_though_the_host_has_made_its_batch() {
    let mut config = config(StrategyConfig::Ordered, 200);
    config.devices[0].prior_ns = None;
    let mut epoch = EpochState::new(config);
    let _kept = epoch.next_back(D0, at(0)).unwrap();
    host_works(&mut epoch, 0..100);
    assert_eq!(epoch.counts().rescued, 1);
    assert_eq!(epoch.wake_at(at(100)), Some(at(2_000)));
}

#[test]
fn an_epoch_without_batches_is_at_its_end() {
    for (_, strategy) in StrategyConfig::all() {
        let mut epoch = EpochState::new(config(strategy, 0));
        assert!(epoch.next_front(at(0)).is_none());
        assert!(epoch.next_back(D0, at(0)).is_none());
        assert_eq!(epoch.next_delivery(at(0)), Pick::End);
    }
}

#[test]
fn mte_splits_by_the_ratio_of_the_measured_times() {
    let mut config = config("mte".parse().unwrap(), 100);
    config.devices[0] = DeviceConfig {
        slots: 1,
        buffer: 100,
        prior_ns: Some(4 * MILLI),
        shard: None,
        standing: Standing::New,
    };
    config.front.quota = 100;
    let mut epoch = EpochState::new(config);
    for i in 0..10 {
        let claim = epoch.next_front(at(i)).unwrap();
        epoch.finish(claim, MILLI, at(i + 1));
        let claim = epoch.next_back(D0, at(i)).unwrap();
        epoch.finish(claim, 4 * MILLI, at(i + 1));
    }
    let mut back = 10;
    while let Some(claim) = epoch.next_back(D0, at(20)) {
        epoch.finish(claim, 4 * MILLI, at(20));
        back += 1;
    }
    assert_eq!(back, 20);
    while let Some(claim) = epoch.next_front(at(21)) {
        epoch.finish(claim, MILLI, at(21));
    }
    let mut order = Vec::new();
    while let Pick::Deliver(batch) = epoch.next_delivery(at(22)) {
        order.push(batch.0);
    }
    assert_eq!(order, (0..80).chain((80..100).rev()).collect::<Vec<_>>());
}

#[test]
fn wrr_alternates_while_both_sides_have_something_ready() {
    let mut epoch = EpochState::new(config("wrr".parse().unwrap(), 10));
    for _ in 0..2 {
        let claim = epoch.next_front(at(0)).unwrap();
        epoch.finish(claim, MILLI, at(0));
        let claim = epoch.next_back(D0, at(0)).unwrap();
        epoch.finish(claim, MILLI, at(0));
    }
    let mut order = Vec::new();
    while let Pick::Deliver(batch) = epoch.next_delivery(at(1)) {
        order.push(batch.0);
    }
    assert_eq!(order, [0, 9, 1, 8]);
}

#[test]
fn names_of_strategies_are_read_back() {
    for (name, strategy) in StrategyConfig::all() {
        assert_eq!(name.parse(), Ok(strategy));
        assert_eq!(strategy.to_string(), name);
    }
    let error = "fast".parse::<StrategyConfig>().unwrap_err();
    assert!(error.to_string().contains("`fast` is not a strategy; use cpu"));
}

proptest! {
    /// Devices hold batches, give some back and fail on others: then what the host is foreseen to
    /// claim is what it claims, up to its first rescue.
    #[test]
    fn what_is_upcoming_is_what_the_host_claims_next(
        n_batches in 1_u32..80,
        n_before in 0_usize..12,
        turns in vec(0_u8..5, 0..20),
    ) {
        for (name, strategy) in StrategyConfig::all() {
            let mut config = config(strategy, n_batches);
            config.front.quota = u32::MAX;
            let mut epoch = EpochState::new(config);
            let mut held: Vec<Claim> = Vec::new();
            held.extend((0..n_before).map_while(|_| epoch.next_front(at(0))));
            for turn in &turns {
                match turn {
                    0 => held.pop().map(|claim| epoch.give_back(claim, at(0))),
                    1 => held.pop().map(|claim| epoch.refused(claim, at(0))),
                    _ => epoch.next_back(D0, at(0)).map(|claim| held.push(claim)),
                };
            }
            let foreseen = epoch.upcoming(30, at(0));
            prop_assert_eq!(&foreseen, &epoch.upcoming(30, at(0)), "it claims nothing");
            for batch in foreseen {
                match epoch.next_front(at(0)) {
                    Some(claim) if claim.kind() == ClaimKind::First => {
                        prop_assert_eq!(claim.batch(), batch, "{}", name);
                        held.push(claim);
                    }
                    // A rescue is not foreseen.
                    Some(claim) => { held.push(claim); break; }
                    None => prop_assert!(false, "{name} does not claim {batch:?}"),
                }
            }
        }
    }
}

#[test]
fn all_that_is_free_is_upcoming_to_a_host_alone_whatever_its_quota_is() {
    let mut alone = config(StrategyConfig::Ordered, 6);
    alone.devices.clear();
    let mut epoch = EpochState::new(alone);
    let _held = [epoch.next_front(at(0)), epoch.next_front(at(0))];
    let upcoming = epoch.upcoming(10, at(0));
    assert_eq!(upcoming, [2, 3, 4, 5].map(BatchIdx));
    assert_eq!(epoch.upcoming(2, at(0)), upcoming[..2]);
}

#[test]
fn a_device_that_rests_finishes_what_it_has_and_gets_nothing_more() {
    let mut epoch = EpochState::new(config(StrategyConfig::Ordered, 40));
    let held = epoch.next_back(D0, at(0)).unwrap();
    epoch.use_device(D0, DeviceUse::Rests, at(0));
    assert!(epoch.next_back(D0, at(0)).is_none());
    assert_eq!(epoch.finish(held, 4 * MILLI, at(1)), Finish::Committed);
    assert!(epoch.next_back(D0, at(1)).is_none(), "it answered, and rests");
    let first = host_works(&mut epoch, 1..20);
    epoch.use_device(D0, DeviceUse::Claims, at(20));
    assert!(epoch.next_back(D0, at(20)).is_some(), "it is asked again");
    epoch.use_device(D0, DeviceUse::Rests, at(20));
    let rest = host_works(&mut epoch, 20..80);
    let all: Vec<u32> = first.into_iter().chain(rest).collect();
    assert_eq!(all, (0..40).collect::<Vec<_>>());
}

#[test]
fn a_device_without_which_nothing_is_made_never_rests() {
    for (_, strategy) in StrategyConfig::all() {
        let mut epoch = EpochState::new(config(strategy, 40));
        epoch.use_device(D0, DeviceUse::Rests, at(0));
        let rests = epoch.next_back(D0, at(0)).is_none();
        let must_work = strategy.is_published() || strategy == StrategyConfig::Csd;
        assert_eq!(rests, !must_work, "{strategy}");
    }
    let mut epoch = EpochState::new(config(StrategyConfig::Ordered, 40));
    epoch.device_lost(D0, at(0));
    epoch.use_device(D0, DeviceUse::Claims, at(0));
    assert!(epoch.next_back(D0, at(0)).is_none(), "what is lost does not come back so");
}

#[test]
fn a_batch_is_needed_when_the_consumer_comes_to_it_and_the_host_does_not() {
    let mut fed = config(StrategyConfig::Ordered, 1_000);
    fed.accelerator_ns = Some(10 * MILLI);
    let need = |config: &EpochConfig, batch| {
        EpochState::new(config.clone()).need_ns(BatchIdx(batch), at(0))
    };
    assert_eq!(need(&fed, 0), 0, "the consumer waits for it");
    // The host makes 20 in 20 ms and this one in the next; the consumer comes to it after 200.
    assert_eq!(need(&fed, 20), 179 * MILLI);
    let starving = EpochConfig { accelerator_ns: Some(MILLI), ..fed.clone() };
    assert_eq!(need(&starving, 999), 0, "the host alone is never through in time");
    let unknown = EpochConfig { accelerator_ns: None, ..fed.clone() };
    assert_eq!(need(&unknown, 999), 0, "who knows nothing asks for all");
    let front = FrontConfig { prior_ns: None, ..fed.front };
    assert_eq!(need(&EpochConfig { front, ..fed.clone() }, 20), 200 * MILLI);
    let mut epoch = EpochState::new(fed);
    let made = epoch.next_back(D0, at(0)).unwrap();
    let before = epoch.need_ns(BatchIdx(20), at(0));
    epoch.finish(made, MILLI, at(1));
    assert_eq!(epoch.need_ns(BatchIdx(20), at(1)), before + MILLI);
}

proptest! {
    /// Later batches of an epoch in plan order are needed later, and a slower consumer needs all later.
    #[test]
    fn need_grows_with_the_distance_and_with_the_consumer_s_step(
        step_ns in 0..20 * MILLI,
        host_ns in 1..20 * MILLI,
        batch in 0..998_u32,
    ) {
        let mut config = config(StrategyConfig::Ordered, 1_000);
        config.accelerator_ns = Some(step_ns);
        config.front.prior_ns = Some(host_ns);
        let need = |config: &EpochConfig, batch| {
            EpochState::new(config.clone()).need_ns(BatchIdx(batch), at(0))
        };
        let own = need(&config, batch);
        prop_assert!(own <= need(&config, batch + 1) || step_ns < host_ns);
        config.accelerator_ns = Some(step_ns + MILLI);
        prop_assert!(own <= need(&config, batch));
    }
}
