//! The queue's rules one by one. All of them together, under whatever arrives, are in
//! `crates/core/tests/fetch.rs`.

use super::*;

const MILLI: u64 = 1_000_000;
const KIB: u64 = 1 << 10;
const NONE: [u32; 0] = [];

fn ms(n: u64) -> Ns {
    Ns(n * MILLI)
}

/// Four requests of 1 KiB at once, no hedge, nothing joined.
fn plain() -> FetchConfig {
    FetchConfig {
        max_requests: 4,
        ramp: 0,
        growth: Growth::Fixed,
        hedge: Hedge::Off,
        most_joined_bytes: 0,
        ..FetchConfig::default()
    }
}

/// Records of 1 KiB, each in an object of its own.
fn offer(queue: &mut FetchQueue, positions: Range<u64>) {
    for position in positions {
        let object = u32::try_from(position).unwrap();
        queue.offer(Wanted { position, object, range: 0..KIB });
    }
}

/// The requests that the queue makes now, with the object of each.
fn requests(queue: &mut FetchQueue, now: Ns) -> Vec<(RequestId, u32)> {
    let steps = std::iter::from_fn(|| match queue.next(now) {
        FetchStep::Request { request, object, .. } => Some((request, object)),
        FetchStep::Cancel { .. }
        | FetchStep::GiveUp { .. }
        | FetchStep::WakeAt(_)
        | FetchStep::Idle => None,
    });
    steps.collect()
}

fn objects(requests: &[(RequestId, u32)]) -> Vec<u32> {
    requests.iter().map(|(_, object)| *object).collect()
}

fn answer(queue: &mut FetchQueue, request: RequestId, now: Ns) -> Vec<u64> {
    queue.arrived(request, now).iter().map(|piece| piece.position).collect()
}

#[test]
fn the_window_is_filled_in_order_of_need_and_refilled_by_answers_in_any_order() {
    let mut queue = FetchQueue::new(plain());
    offer(&mut queue, 0..8);
    let first = requests(&mut queue, ms(0));
    assert_eq!(objects(&first), [0, 1, 2, 3]);
    assert_eq!(answer(&mut queue, first[2].0, ms(10)), [2]);
    assert_eq!(objects(&requests(&mut queue, ms(10))), [4]);
    assert_eq!(queue.figures().reordered_bytes, KIB);
    assert_eq!(answer(&mut queue, first[2].0, ms(11)), [] as [u64; 0], "answered once");
}

#[test]
fn a_full_reorder_buffer_waits_for_the_consumer_and_lets_the_lowest_position_through() {
    let config = FetchConfig { reorder_bytes: 3 * KIB, ..plain() };
    let mut queue = FetchQueue::new(config);
    offer(&mut queue, 5..10);
    let first = requests(&mut queue, ms(0));
    assert_eq!(objects(&first), [5, 6, 7]);
    for (request, _) in &first {
        queue.arrived(*request, ms(10));
    }
    assert_eq!(objects(&requests(&mut queue, ms(10))), NONE);
    // A device gave its claim back: this is needed first.
    offer(&mut queue, 2..4);
    assert_eq!(objects(&requests(&mut queue, ms(20))), [2]);
    queue.taken(5);
    assert_eq!(objects(&requests(&mut queue, ms(20))), NONE, "still one too many");
    queue.taken(6);
    assert_eq!(objects(&requests(&mut queue, ms(20))), [3]);
    assert_eq!(queue.figures().waits.reorder_ns, 20 * MILLI);
}

#[test]
fn what_the_caller_awaits_goes_first_whatever_is_full() {
    let config = FetchConfig { max_requests: 1, ..plain() };
    let mut queue = FetchQueue::new(config);
    offer(&mut queue, 0..9);
    assert_eq!(objects(&requests(&mut queue, ms(0))), [0]);
    queue.awaits(7);
    assert_eq!(objects(&requests(&mut queue, ms(0))), [7]);
    assert_eq!(queue.figures().counts.urgent, 1);
}

#[test]
fn what_a_device_takes_is_cancelled_or_dropped_and_may_be_offered_again() {
    let mut queue = FetchQueue::new(plain());
    offer(&mut queue, 0..6);
    let first = requests(&mut queue, ms(0));
    queue.arrived(first[1].0, ms(5));
    queue.withdraw(0);
    queue.withdraw(1);
    queue.withdraw(5);
    assert_eq!(queue.next(ms(5)), FetchStep::Cancel { request: first[0].0 });
    assert_eq!(objects(&requests(&mut queue, ms(5))), [4]);
    assert_eq!(answer(&mut queue, first[0].0, ms(6)), [] as [u64; 0]);
    assert_eq!(queue.figures().reordered_bytes, 0);
    offer(&mut queue, 0..1);
    queue.arrived(first[2].0, ms(7));
    assert_eq!(objects(&requests(&mut queue, ms(7))), [0]);
}

#[test]
fn the_ramp_reaches_depth_p_at_answer_k_times_p_minus_1() {
    for (k, p) in [(1, 8), (4, 32), (3, 5)] {
        let config = FetchConfig { max_requests: p, ramp: k, ..plain() };
        let mut queue = FetchQueue::new(config);
        offer(&mut queue, 0..2_000);
        let mut in_flight = VecDeque::new();
        for n_answers in 0..k * (p - 1) + 3 {
            in_flight.extend(requests(&mut queue, ms(n_answers.into())));
            // Step s of the sheet is the one in which answer s is waited for.
            assert_eq!(in_flight.len(), (n_answers / k + 1).min(p) as usize);
            let (request, object) = in_flight.pop_front().unwrap();
            queue.arrived(request, ms(u64::from(n_answers) + 1));
            queue.taken(object.into());
        }
        assert_eq!(queue.figures().window, p);
    }
}
