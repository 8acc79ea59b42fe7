//! Staging on the fake driver: every interleaving of small cases, random long ones, and rings
//! that are wrong on purpose, which the same checks must find out.
#![allow(clippy::unwrap_used, reason = "tests")]

mod naive;
mod threads;
mod world;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bothends_gpu::driver::Driver;
use bothends_gpu::driver::fake::Fake;
use bothends_gpu::kinds::PageLocked;
use bothends_gpu::owners::{ConsumerStream, Gpu, Stream};
use bothends_gpu::staging::{DeviceBatch, DeviceFeed, DeviceSlots, Refusal};
use bothends_slots::{Heap, Ring, RingConfig};

use naive::Fault;
use world::{Case, Maker, World};

/// What a search came to.
struct Searched {
    n_states: usize,
    n_ends: usize,
    /// The first interleaving in which a wrong byte was read.
    wrong: Option<Vec<usize>>,
}

/// Follows every choice of who acts next, the host or a stream, from the beginning. States that were
/// met before are not followed again: what the host has done (in order, with what it saw)
/// and the device's whole state say what can happen next.
fn search(case: Case, most_states: usize) -> Searched {
    let mut met = HashSet::new();
    let mut open = vec![Vec::new()];
    let (mut n_ends, mut wrong) = (0, None);
    while let Some(way) = open.pop() {
        let mut world = World::new(case);
        way.iter().for_each(|choice| world.choose(*choice));
        if world.is_wrong() {
            wrong = Some(way);
            break;
        }
        if !met.insert(world.fingerprint()) {
            continue;
        }
        assert!(met.len() <= most_states, "more than {most_states} states of {case:?}");
        let n_choices = world.n_choices();
        if n_choices == 0 {
            world.expect_end();
            n_ends += 1;
        }
        for choice in 0..n_choices {
            open.push(way.iter().copied().chain([choice]).collect());
        }
    }
    Searched { n_states: met.len(), n_ends, wrong }
}

fn case(n_batches: u64, device_slots: u32, host_slots: u32, maker: Maker) -> Case {
    Case { n_batches, device_slots, host_slots, n_consumers: 1, maker }
}

#[test]
fn no_interleaving_of_a_small_case_reads_a_wrong_byte() {
    let small = [
        case(3, 1, 1, Maker::Feed),
        case(3, 1, 2, Maker::Feed),
        case(3, 2, 1, Maker::Feed),
        case(3, 2, 2, Maker::Feed),
        Case { n_consumers: 2, ..case(3, 2, 2, Maker::Feed) },
        case(3, 1, 1, Maker::FeedAndKernels),
        case(3, 2, 1, Maker::FeedAndKernels),
        case(3, 1, 1, Maker::Finished),
        case(3, 1, 2, Maker::Finished),
        case(3, 2, 1, Maker::Finished),
    ];
    for case in small {
        let searched = search(case, 400_000);
        println!("{case:?}: {} states, {} ends", searched.n_states, searched.n_ends);
        assert_eq!(searched.wrong, None, "{case:?}");
        assert!(searched.n_states > 100 && searched.n_ends > 0, "{case:?}");
    }
}

#[test]
fn every_naive_ring_is_found_out_by_the_same_search() {
    for (fault, device_slots, host_slots) in [
        (Fault::DeviceSlotComesBackOnDrop, 1, 2),
        (Fault::HostSlotComesBackOnSubmit, 2, 1),
        (Fault::ConsumerDoesNotWait, 2, 2),
    ] {
        let case = case(3, device_slots, host_slots, Maker::Naive(fault));
        let searched = search(case, 400_000);
        assert!(searched.wrong.is_some(), "{fault:?} is not found out");
    }
}

/// A run whose choices are drawn; consumers run a piece only once in `slowness` turns.
fn run(case: Case, seed: u64, slowness: u64) -> World {
    let mut world = World::new(case);
    let mut state = seed;
    let mut draw = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut n_steps = 0_u64;
    loop {
        let n_choices = world.n_choices();
        if n_choices == 0 || world.is_wrong() {
            return world;
        }
        let choice = usize::try_from(draw(n_choices as u64)).unwrap();
        n_steps += 1;
        assert!(
            n_steps < case.n_batches * 200 * slowness,
            "the run does not come to an end"
        );
        if !world.is_consumer(choice) || draw(slowness) == 0 || n_choices == 1 {
            world.choose(choice);
        }
    }
}

#[test]
fn ten_thousand_batches_under_a_slow_consumer_are_all_right() {
    for (seed, n_consumers, maker) in
        [(1, 1, Maker::Feed), (2, 2, Maker::FeedAndKernels), (3, 2, Maker::Finished)]
    {
        let case = Case { n_consumers, ..case(10_000, 3, 4, maker) };
        let world = run(case, seed, 8);
        assert!(!world.is_wrong(), "{:?}", world.seen().iter().find(|(_, right)| !right));
        let fake = world.fake.clone();
        world.expect_end();
        let counts = fake.counts();
        assert_eq!(counts.waits, 0, "the host waited for the device");
        assert!(counts.events < 64, "{} events made for 10,000 batches", counts.events);
        assert!(counts.queries < 200_000, "{} queries", counts.queries);
    }
}

#[test]
fn ten_thousand_batches_show_that_naive_rings_are_wrong() {
    for fault in [
        Fault::DeviceSlotComesBackOnDrop,
        Fault::HostSlotComesBackOnSubmit,
        Fault::ConsumerDoesNotWait,
    ] {
        let world = run(case(10_000, 3, 4, Maker::Naive(fault)), 1, 8);
        assert!(world.is_wrong(), "{fault:?} is not found out");
    }
}

const TWO: RingConfig = RingConfig { n_slots: 2, slot_bytes: 64 };

#[test]
fn a_consumer_that_keeps_every_batch_is_told_so() {
    let (fake, gpu) = world::gpu();
    let ring = Ring::of(&PageLocked::of(&gpu), RingConfig { n_slots: 4, ..TWO }).unwrap();
    let mut feed = DeviceFeed::new(&gpu, TWO).unwrap();
    let host = || ring.take(Duration::ZERO).unwrap().host().unwrap();
    let mut kept: Vec<_> = (0..2).map(|_| feed.submit(host(), 64).unwrap()).collect();
    let refused = feed.submit(host(), 64).unwrap_err();
    assert_eq!(refused.why, Refusal::Full { lent: 0, slots: 2 });
    assert!(!refused.why.is_starved(), "the runtime still has them");
    kept.iter_mut().for_each(|batch| batch.lend(ConsumerStream::DEFAULT).unwrap());
    let refused = feed.submit(refused.host.unwrap(), 64).unwrap_err();
    assert!(refused.why.is_starved(), "{refused}");
    drop(kept.pop());
    feed.submit(refused.host.unwrap(), 64)
        .expect("a slot at once, however busy the device");
    assert!(fake.n_pending() > 0);
}

#[test]
fn batches_that_cannot_be_copied_come_back() {
    let (_fake, gpu) = world::gpu();
    let mut feed = DeviceFeed::new(&gpu, TWO).unwrap();
    let ring = |kind: &dyn bothends_slots::Kind, slot_bytes| {
        let ring = Ring::of(kind, RingConfig { n_slots: 1, slot_bytes }).unwrap();
        ring.take(Duration::ZERO).unwrap().host().unwrap()
    };
    let refused = feed.submit(ring(&Heap, 64), 64).unwrap_err();
    assert_eq!(refused.why, Refusal::NotPageLocked { kind: "host" });
    assert_eq!(refused.host.unwrap().len(), 64);
    let refused = feed.submit(ring(&PageLocked::of(&gpu), 65), 65).unwrap_err();
    assert_eq!(refused.why, Refusal::TooLong { bytes: 65, slot_bytes: 64 });
    let batch = feed.submit(refused.host.unwrap(), 3).unwrap();
    assert_eq!(batch.len(), 3);
}

#[test]
fn a_driver_that_fails_costs_slots_and_no_bytes() {
    for (call, host_is_back, retired) in
        [("is_reached", true, 0), ("upload", false, 0), ("record", false, 0)]
    {
        let (fake, gpu) = world::gpu();
        let ring = Ring::of(&PageLocked::of(&gpu), TWO).unwrap();
        let mut feed = DeviceFeed::new(&gpu, TWO).unwrap();
        let host = || ring.take(Duration::ZERO).unwrap().host().unwrap();
        let first = feed.submit(host(), 64).unwrap();
        fake.fail_next(call);
        let refused = feed.submit(host(), 64).unwrap_err();
        assert!(matches!(refused.why, Refusal::Gpu(_)), "{call}: {refused}");
        assert_eq!(refused.host.is_some(), host_is_back, "{call}");
        assert_eq!(feed.slots().retired(), retired, "{call}");
        drop((refused, first));
        fake.run_all();
        drop(feed);
        gpu.sweep();
        assert_eq!(ring.free(), if host_is_back { 2 } else { 1 }, "{call}");
        drop((ring, gpu));
        assert_eq!(fake.wrongs(), Vec::<String>::new(), "{call}");
    }
}

#[test]
fn a_slot_whose_end_is_not_recorded_comes_back_when_the_device_is_idle() {
    let (fake, gpu) = world::gpu();
    let slots = DeviceSlots::new(&gpu, TWO).unwrap();
    let stream = gpu.stream().unwrap();
    fails_to_record(&fake, &slots, &stream);
    assert_eq!((slots.returning(), slots.retired()), (2, 0));
    assert_eq!((slots.ring().free(), slots.lent()), (0, 0));
    gpu.sweep();
    assert_eq!(slots.ring().free(), 0, "the device has not passed the work yet");
    fake.run_all();
    gpu.sweep();
    assert_eq!((slots.ring().free(), slots.returning()), (2, 0));
    assert_eq!(fake.wrongs(), Vec::<String>::new());
}

#[test]
fn where_nothing_tells_that_it_is_idle_such_a_slot_is_retired() {
    let fake = Arc::new(Fake::default().without_record_all());
    let gpu = Gpu::new(fake.clone()).unwrap();
    let slots = DeviceSlots::new(&gpu, TWO).unwrap();
    fails_to_record(&fake, &slots, &gpu.stream().unwrap());
    assert_eq!((slots.returning(), slots.retired()), (0, 2));
    assert_eq!((slots.ring().free(), slots.lent()), (0, 0));
}

/// The driver fails to record the end of the filling of one slot, and of the use of another.
fn fails_to_record(fake: &Fake, slots: &DeviceSlots, stream: &Stream) {
    let begin = || slots.take(Duration::ZERO).unwrap().begin(stream);
    fake.fail_next("record");
    begin().unwrap().finish(64).unwrap_err();
    let mut batch = begin().unwrap().finish(64).unwrap();
    batch.lend(ConsumerStream::DEFAULT).unwrap();
    fake.fail_next("record");
    drop(batch);
}

/// What consumers have given back is not theirs, and no stream of theirs is asked about it: it may have ended.
#[test]
fn a_batch_that_is_given_back_until_the_device_is_idle_is_not_lent_any_more() {
    let (fake, gpu) = world::gpu();
    let ring = Ring::of(&PageLocked::of(&gpu), RingConfig { n_slots: 3, ..TWO }).unwrap();
    let mut feed = DeviceFeed::new(&gpu, TWO).unwrap();
    let host = || ring.take(Duration::ZERO).unwrap().host().unwrap();
    let mut both = [(); 2].map(|()| feed.submit(host(), 64).unwrap());
    both.iter_mut().for_each(|batch| batch.lend(ConsumerStream::DEFAULT).unwrap());
    let n_enqueued = fake.counts().enqueued;
    both.into_iter().for_each(DeviceBatch::release_when_idle);
    assert_eq!(fake.counts().enqueued, n_enqueued, "no driver is called");
    let slots = feed.slots().clone();
    assert_eq!((slots.lent(), slots.returning()), (0, 2));
    let refused = feed.submit(host(), 64).unwrap_err();
    assert_eq!(refused.why, Refusal::Full { lent: 0, slots: 2 });
    assert!(!refused.why.is_starved(), "they come by themselves");
    fake.run_all();
    gpu.sweep();
    assert_eq!((slots.ring().free(), slots.returning()), (2, 0));
    assert_eq!(fake.wrongs(), Vec::<String>::new());
}

#[test]
fn an_abandoned_filling_is_waited_for() {
    let (fake, gpu) = world::gpu();
    let one = RingConfig { n_slots: 1, ..TWO };
    let slots = DeviceSlots::new(&gpu, one).unwrap();
    let [first, second] = [gpu.stream().unwrap(), gpu.stream().unwrap()];
    let filling = slots.take(Duration::ZERO).unwrap().begin(&first).unwrap();
    world::fill(&*fake, &filling, 1);
    drop(filling);
    let filling = slots.take(Duration::ZERO).unwrap().begin(&second).unwrap();
    world::fill(&*fake, &filling, 2);
    let at = filling.address();
    drop(filling);
    assert_eq!(fake.n_eligible(), 1, "the second stream waits for the first");
    fake.run_all();
    assert_eq!(fake.bytes(at, 8).unwrap(), 2_u64.to_le_bytes());
}

#[test]
fn slots_may_take_another_way_and_only_into_their_own_ring() {
    let (_fake, gpu) = world::gpu();
    let slots = DeviceSlots::new(&gpu, TWO).unwrap();
    let others = DeviceSlots::new(&gpu, TWO).unwrap();
    let slot = slots.ring().take(Duration::ZERO).unwrap();
    let slot = others.adopt(slot).expect_err("another ring's");
    let free = slots.adopt(slot).unwrap();
    assert_ne!(free.address().0, 0);
    drop(free);
    let plain = Ring::new(TWO).unwrap().take(Duration::ZERO).unwrap();
    slots.adopt(plain).expect_err("host memory");
    assert_eq!(slots.ring().free(), 2);
}

#[test]
fn a_feed_that_ends_leaves_its_copies_their_slots() {
    let (fake, gpu) = world::gpu();
    let ring = Ring::of(&PageLocked::of(&gpu), TWO).unwrap();
    let mut feed = DeviceFeed::new(&gpu, TWO).unwrap();
    let host = ring.take(Duration::ZERO).unwrap().host().unwrap();
    let batch = feed.submit(host, 64).unwrap();
    assert_eq!(feed.n_copying(), 1);
    drop((batch, feed));
    assert_eq!((gpu.sweep() > 0, ring.free()), (true, 1));
    gpu.shut_down(Duration::from_secs(60)).unwrap();
    assert_eq!((gpu.n_buried(), ring.free()), (0, 2));
    drop((ring, gpu));
    assert_eq!(fake.wrongs(), Vec::<String>::new());
    assert_eq!(fake.n_alive(), [0; 4]);
    assert_eq!(fake.card().driver, "fake");
}
