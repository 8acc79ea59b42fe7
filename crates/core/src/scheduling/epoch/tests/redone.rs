//! What one prong makes again of the other's.

use super::*;

#[test]
fn a_full_host_redoes_side_by_side_what_a_silent_device_holds() {
    let mut config = config(StrategyConfig::Ordered, 1_000);
    config.front = FrontConfig { parallel: 4, quota: 4, prior_ns: Some(4 * MILLI) };
    config.devices[0].slots = 4;
    config.devices[0].prior_ns = Some(MILLI);
    config.devices[0].standing = Standing::Proven;
    // So slow a consumer that no claim is urgent.
    config.accelerator_ns = Some(100 * MILLI);
    let mut epoch = EpochState::new(config);
    let silent: Vec<_> = (0..4).map(|_| epoch.next_back(D0, at(0)).unwrap()).collect();
    let host: Vec<_> = (0..4).map(|_| epoch.next_front(at(0)).unwrap()).collect();
    let [a, b, c, refused] = <[Claim; 4]>::try_from(silent).unwrap();
    let held = [&a, &b, &c].map(|claim| claim.batch());
    assert!(refused.batch() < host[3].batch());
    epoch.refused(refused, at(1));
    for claim in host {
        epoch.finish(claim, 4 * MILLI, at(16));
    }
    // Its quota is full. Were the free batch the first, one of the held ones would find no room.
    let redone = [(); 3].map(|()| epoch.next_front(at(20)).unwrap());
    assert_eq!(redone.map(|claim| claim.batch()), held);
}

/// A host of 100 ms for a batch has claimed both batches, 0 and 1, that are left besides that of a device of 10 ms, which
/// then has nothing to do.
fn host_with_a_claim_ahead() -> (EpochState, [Claim; 2], Claim) {
    let mut config = config(StrategyConfig::Ordered, 3);
    config.front = FrontConfig { parallel: 1, quota: 4, prior_ns: Some(100 * MILLI) };
    config.devices[0].slots = 1;
    config.devices[0].prior_ns = None;
    let mut epoch = EpochState::new(config);
    let own = [(); 2].map(|()| epoch.next_front(at(0)).unwrap());
    let last = epoch.next_back(D0, at(0)).unwrap();
    assert_eq!(last.batch(), BatchIdx(2));
    (epoch, own, last)
}

#[test]
fn a_claim_ahead_is_begun_when_the_one_before_it_is_made() {
    let (mut epoch, [first, _second], last) = host_with_a_claim_ahead();
    epoch.finish(first, 100 * MILLI, at(100));
    assert_eq!(epoch.next_delivery(at(100)), Pick::Deliver(BatchIdx(0)));
    epoch.delivered(BatchIdx(0), at(100));
    epoch.finish(last, 10 * MILLI, at(101));
    // It takes until 200 ms, though it was claimed 101 ms ago.
    let redone = epoch.next_back(D0, at(101)).unwrap();
    assert_eq!(redone.batch(), BatchIdx(1));
}

#[test]
fn an_idle_device_makes_what_no_worker_has_begun() {
    let (mut epoch, _own, last) = host_with_a_claim_ahead();
    epoch.finish(last, 10 * MILLI, at(90));
    // The first is made in 10 ms, the second in 110.
    let redone = epoch.next_back(D0, at(90)).unwrap();
    assert_eq!(redone.batch(), BatchIdx(1));
}
