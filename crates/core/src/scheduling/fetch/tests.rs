//! The queue's rules one by one. All of them together, under whatever arrives, are in
//! `crates/core/tests/fetch.rs`.

mod alone;
mod committed;
mod patience;
mod slow;
mod waits;

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
        first_requests: 1,
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
fn a_limit_of_the_bytes_in_flight_holds_from_the_next_request_on_and_until_it_is_lifted()
{
    let mut queue = FetchQueue::new(plain());
    offer(&mut queue, 0..16);
    let first = requests(&mut queue, ms(0));
    assert_eq!(first.len(), 4);
    queue.limit_bytes(Some(2 * KIB));
    for (request, _) in &first[..3] {
        queue.arrived(*request, ms(10));
    }
    // Nothing was cancelled, and one is left of the four.
    assert_eq!(objects(&requests(&mut queue, ms(10))), [4]);
    assert_eq!(queue.figures().in_flight_bytes, 2 * KIB);
    // What delivery waits for gets through a limit that is smaller than it.
    queue.limit_bytes(Some(0));
    queue.awaits(9);
    assert_eq!(objects(&requests(&mut queue, ms(20))), [9]);
    queue.limit_bytes(None);
    assert_eq!(objects(&requests(&mut queue, ms(30))), [5]);
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

/// What the queue does now, up to the time it wants to be woken at.
fn steps(queue: &mut FetchQueue, now: Ns) -> (Vec<FetchStep>, Option<Ns>) {
    let mut steps = Vec::new();
    loop {
        match queue.next(now) {
            FetchStep::WakeAt(at) => return (steps, Some(at)),
            FetchStep::Idle => return (steps, None),
            step @ (FetchStep::Request { .. }
            | FetchStep::Cancel { .. }
            | FetchStep::GiveUp { .. }) => steps.push(step),
        }
    }
}

/// A queue that has had 64 answers after 100 ms each, and has requested the positions 64 to 67 at
/// 100 ms.
fn warm(config: FetchConfig) -> (FetchQueue, Vec<(RequestId, u32)>) {
    let mut queue = FetchQueue::new(FetchConfig { max_requests: 64, ..config });
    offer(&mut queue, 0..64);
    for (request, object) in requests(&mut queue, ms(0)) {
        queue.arrived(request, ms(100));
        queue.taken(object.into());
    }
    offer(&mut queue, 64..68);
    let sent = requests(&mut queue, ms(100));
    assert_eq!(objects(&sent), [64, 65, 66, 67]);
    (queue, sent)
}

#[test]
fn only_the_oldest_missing_position_is_requested_twice_and_only_after_p99() {
    let (mut queue, sent) = warm(FetchConfig { hedge: Hedge::On, ..plain() });
    assert_eq!(queue.figures().p99_ns, 100 * MILLI);
    let (nothing, wake) = steps(&mut queue, ms(200));
    assert_eq!(nothing, []);
    let wake = wake.unwrap();
    assert!(ms(200) < wake && wake < ms(220), "{wake:?}");
    let hedge = requests(&mut queue, wake);
    assert_eq!(
        objects(&hedge),
        [64],
        "the others are as late, and nobody waits for them"
    );
    assert_eq!(requests(&mut queue, ms(900)), [], "one hedge at most");
    // The hedge wins: the other one is cancelled, and the next oldest may be hedged.
    assert_eq!(answer(&mut queue, hedge[0].0, ms(900)), [64]);
    let (next, _) = steps(&mut queue, ms(900));
    assert_eq!(next[0], FetchStep::Cancel { request: sent[0].0 });
    assert!(matches!(next[1], FetchStep::Request { object: 65, .. }), "{next:?}");
    assert_eq!(answer(&mut queue, sent[0].0, ms(901)), [] as [u64; 0]);
    let counts = queue.figures().counts;
    assert_eq!((counts.hedged, counts.hedges_won), (2, 1));
    // The first request may be first, too.
    assert_eq!(answer(&mut queue, sent[1].0, ms(905)), [65]);
    assert_eq!(queue.figures().counts.hedges_won, 1);
}

#[test]
fn a_hedge_that_fails_is_not_sent_again() {
    let (mut queue, sent) = warm(FetchConfig { hedge: Hedge::On, ..plain() });
    let hedge = requests(&mut queue, ms(220));
    assert_eq!(objects(&hedge), [64]);
    assert_eq!(queue.failed(hedge[0].0, Failure::Reset, ms(300)), [] as [u64; 0]);
    assert_eq!(objects(&requests(&mut queue, ms(900))), NONE);
    assert_eq!(
        answer(&mut queue, sent[0].0, ms(950)),
        [64],
        "the first is still waited for"
    );
}

#[test]
fn a_black_holed_connection_costs_one_hedge_and_not_the_timeout() {
    let (mut queue, sent) = warm(FetchConfig { hedge: Hedge::On, ..plain() });
    for (request, _) in &sent[1..] {
        queue.arrived(*request, ms(200));
    }
    let (_, wake) = steps(&mut queue, ms(200));
    let hedge = requests(&mut queue, wake.unwrap());
    assert_eq!(answer(&mut queue, hedge[0].0, ms(320)), [64]);
    assert_eq!(queue.figures().counts.timed_out, 0);
}

#[test]
fn hedges_are_at_most_two_in_a_hundred_answers() {
    let (mut queue, _) = warm(FetchConfig { hedge: Hedge::On, ..plain() });
    offer(&mut queue, 68..1_000);
    // Nothing but hedges is answered: the worst case for a burst of them.
    let mut now = ms(100);
    while now < ms(4_000) {
        match queue.next(now) {
            FetchStep::WakeAt(at) => now = at,
            FetchStep::Request { request, object, .. } => {
                if queue.figures().counts.requested > 64 + 64 {
                    queue.arrived(request, now);
                    queue.taken(object.into());
                }
            }
            FetchStep::Cancel { .. } | FetchStep::GiveUp { .. } | FetchStep::Idle => {}
        }
    }
    let counts = queue.figures().counts;
    let most = u64::from(MOST_HEDGES) + counts.answered / u64::from(HEDGE_COST);
    assert!(counts.hedged > 4 && counts.hedged <= most, "{counts:?}");
}

#[test]
fn what_is_ten_times_as_long_is_hedged_ten_times_as_late() {
    let (mut queue, sent) = warm(FetchConfig { hedge: Hedge::On, ..plain() });
    for (request, object) in sent {
        queue.arrived(request, ms(200));
        queue.taken(object.into());
    }
    queue.offer(Wanted { position: 70, object: 70, range: 0..10 * KIB });
    assert_eq!(objects(&requests(&mut queue, ms(200))), [70]);
    let (_, wake) = steps(&mut queue, ms(200));
    assert!((ms(1_200)..ms(1_400)).contains(&wake.unwrap()), "{wake:?}");
}

#[test]
fn a_slow_link_is_waited_for_longer_than_the_timeout() {
    let (mut queue, _) = warm(FetchConfig { timeout_ns: 200 * MILLI, ..plain() });
    offer(&mut queue, 68..69);
    let FetchStep::Request { timeout_ns, .. } = queue.next(ms(100)) else {
        panic!("nothing is requested")
    };
    assert_eq!(timeout_ns, 400 * MILLI);
}

#[test]
fn what_failed_comes_again_within_its_bound_and_its_deadline() {
    let mut queue = FetchQueue::new(plain());
    offer(&mut queue, 0..1);
    let (mut now, mut bound) = (ms(0), 50 * MILLI);
    let mut n_attempts = 0;
    loop {
        let sent = requests(&mut queue, now);
        assert_eq!(objects(&sent), [0]);
        n_attempts += 1;
        assert!(n_attempts < 100, "it is retried forever");
        if !queue.failed(sent[0].0, Failure::Refused, now).is_empty() {
            break;
        }
        let (nothing, wake) = steps(&mut queue, now);
        if nothing.is_empty() {
            let wake = wake.unwrap();
            assert!(
                wake.since(now) < bound,
                "attempt {n_attempts}: {:?}",
                wake.since(now)
            );
            now = wake;
        }
        bound = (2 * bound).min(1_000 * MILLI);
    }
    // A second at most before the deadline it is tried for the last time.
    assert!(ms(9_000) < now && now < ms(10_000), "{now:?}");
    assert!(n_attempts > 12, "{n_attempts}");
    assert_eq!(queue.figures().offered, 0);
}

/// A proxy that cuts every answer short was asked forever.
#[test]
fn an_answer_that_always_breaks_off_is_given_up() {
    let mut queue = FetchQueue::new(plain());
    offer(&mut queue, 0..1);
    let mut now = ms(0);
    loop {
        for request in requests(&mut queue, now).iter().map(|sent| sent.0) {
            now = now.plus(50 * MILLI);
            queue.heard(request, now);
            if !queue.failed(request, Failure::Reset, now).is_empty() {
                assert!(ms(10_000) < now && now < ms(20_000), "{now:?}");
                return;
            }
        }
        now = steps(&mut queue, now).1.unwrap();
        assert!(now < ms(60_000), "it is retried forever");
    }
}

#[test]
fn a_server_that_is_gone_for_two_seconds_costs_retries_and_nothing_else() {
    let mut queue = FetchQueue::new(plain());
    offer(&mut queue, 0..12);
    let mut arrived = Vec::new();
    let mut now = ms(0);
    while arrived.len() < 12 {
        while let FetchStep::Request { request, object, .. } = queue.next(now) {
            if now < ms(2_000) {
                assert_eq!(queue.failed(request, Failure::Refused, now), [] as [u64; 0]);
            } else {
                arrived.extend(answer(&mut queue, request, now));
                queue.taken(object.into());
            }
        }
        if let FetchStep::WakeAt(at) = queue.next(now) {
            now = at;
        }
    }
    assert!(now < ms(3_000), "{now:?}");
    let counts = queue.figures().counts;
    // What failed keeps its place: of the others none is tried in vain.
    assert!(counts.retried < 4 * 20, "{counts:?}");
    assert_eq!(counts.failed, 0);
}

#[test]
fn what_a_closed_connection_did_not_look_at_is_sent_again_at_once_but_not_for_ever() {
    let mut queue = FetchQueue::new(plain());
    offer(&mut queue, 0..1);
    let first = requests(&mut queue, ms(0));
    queue.failed(first[0].0, Failure::GoAway, ms(1));
    let second = requests(&mut queue, ms(1));
    assert_eq!(objects(&second), [0]);
    queue.failed(second[0].0, Failure::GoAway, ms(2));
    assert_eq!(objects(&requests(&mut queue, ms(2))), NONE, "that is a habit");
    assert!(matches!(queue.next(ms(2)), FetchStep::WakeAt(at) if at < ms(52)));
}

#[test]
fn what_is_final_fails_at_once_with_all_that_was_joined() {
    let config = FetchConfig { most_joined_bytes: 1 << 20, ..plain() };
    let mut queue = FetchQueue::new(config);
    for position in 0..3 {
        let range = position * KIB..(position + 1) * KIB;
        queue.offer(Wanted { position, object: 0, range });
    }
    let sent = requests(&mut queue, ms(0));
    assert_eq!(sent.len(), 1);
    assert_eq!(queue.failed(sent[0].0, Failure::Final, ms(1)), [0, 1, 2]);
    assert_eq!(queue.figures().held_bytes, 0);
}

#[test]
fn throttling_halves_the_window_once_per_round_and_it_grows_again() {
    let mut queue = FetchQueue::new(FetchConfig { max_requests: 16, ..plain() });
    offer(&mut queue, 0..400);
    let sent = requests(&mut queue, ms(0));
    let throttled = Failure::Throttled { retry_after_ns: Some(500 * MILLI) };
    for (request, _) in &sent[..4] {
        queue.failed(*request, throttled, ms(10));
    }
    assert_eq!(queue.figures().window, 8, "all four were in flight together");
    let (_, wake) = steps(&mut queue, ms(10));
    assert!(wake.unwrap() >= ms(510), "{wake:?}: the server wants to be left alone");
    for (request, object) in &sent[4..] {
        queue.arrived(*request, ms(20));
        queue.taken((*object).into());
    }
    assert_eq!(queue.figures().window, 9, "one more after each round");
    let again = requests(&mut queue, ms(600));
    queue.failed(again[0].0, throttled, ms(610));
    assert_eq!(queue.figures().window, 4);
    assert_eq!(queue.figures().counts.throttled, 5);
}

#[test]
fn a_server_that_wants_to_be_left_alone_for_long_is_asked_again_when_it_may_be() {
    for (retry_after_s, waits) in [(5, true), (30, true), (70, false)] {
        let mut queue = FetchQueue::new(plain());
        offer(&mut queue, 0..1);
        let sent = requests(&mut queue, ms(0));
        let retry_after_ns = Some(retry_after_s * 1_000 * MILLI);
        let throttled = Failure::Throttled { retry_after_ns };
        let failed = queue.failed(sent[0].0, throttled, ms(10)).len();
        assert_eq!(failed == 0, waits, "{retry_after_s} s");
        if waits {
            let (_, wake) = steps(&mut queue, ms(10));
            let wake = wake.unwrap();
            assert!(wake >= ms(10 + 1_000 * retry_after_s), "{wake:?}");
            let again = requests(&mut queue, wake);
            assert_eq!(queue.arrived(again[0].0, wake).len(), 1);
        }
    }
}

/// A link of `latency` that carries one record per millisecond, and what the window becomes.
fn window_over_a_link(latency_ms: u64, n: u64) -> u32 {
    let config =
        FetchConfig { max_requests: 256, ramp: 1, growth: Growth::Adaptive, ..plain() };
    let mut queue = FetchQueue::new(config);
    let mut on_the_way: VecDeque<(Ns, RequestId, u32)> = VecDeque::new();
    let (mut now, mut offered, mut link_free) = (ms(0), 0, ms(0));
    while now < ms(n) {
        offer(&mut queue, offered..offered + 20);
        offered += 20;
        for (request, object) in requests(&mut queue, now) {
            link_free = link_free.max(now.plus(latency_ms * MILLI)).plus(MILLI);
            on_the_way.push_back((link_free, request, object));
        }
        let Some((at, request, object)) = on_the_way.pop_front() else { break };
        now = at;
        queue.arrived(request, now);
        queue.taken(object.into());
    }
    queue.figures().window
}

#[test]
fn the_window_grows_to_the_bandwidth_delay_product_and_not_to_the_bound() {
    // 20 and 60 records fill the link. The window doubles in a round, so it may be found to be wide
    // enough when it is some times as wide.
    for (latency_ms, least, most) in [(20, 20, 80), (60, 60, 240)] {
        let window = window_over_a_link(latency_ms, 5_000);
        assert!((least..=most).contains(&window), "{latency_ms} ms: {window}");
    }
    // Nothing limits but latency: it takes what it may.
    assert_eq!(window_over_a_link(2_000, 60_000), 256);
}

#[test]
fn neighbours_come_in_one_request_and_each_has_its_part() {
    let config = FetchConfig { most_joined_bytes: 4 * KIB, max_gap_bytes: 16, ..plain() };
    let mut queue = FetchQueue::new(config);
    for (position, start) in [(0, 1_000), (1, 9_000), (2, 0), (3, 2_010)] {
        queue.offer(Wanted { position, object: 3, range: start..start + 1_000 });
    }
    let FetchStep::Request { request, range, .. } = queue.next(ms(0)) else {
        panic!("nothing is requested")
    };
    assert_eq!(range, 0..3_010);
    let mut pieces = queue.arrived(request, ms(1)).to_vec();
    pieces.sort_by_key(|piece| piece.position);
    let parts: Vec<_> = pieces.into_iter().map(|it| (it.position, it.bytes)).collect();
    assert_eq!(parts, [(0, 1_000..2_000), (2, 0..1_000), (3, 2_010..3_010)]);
    queue.taken(0);
    queue.taken(2);
    assert_eq!(queue.figures().reordered_bytes, 3_010, "they are one buffer");
    queue.taken(3);
    assert_eq!(queue.figures().reordered_bytes, 0);
    assert_eq!(queue.figures().counts.joined, 2);
}

#[test]
fn what_was_withdrawn_from_a_joined_request_and_offered_again_comes_with_its_own() {
    let config = FetchConfig { most_joined_bytes: 1 << 20, ..plain() };
    let mut queue = FetchQueue::new(config);
    for position in 0..2 {
        queue.offer(Wanted {
            position,
            object: 0,
            range: position * KIB..(position + 1) * KIB,
        });
    }
    let joined = requests(&mut queue, ms(0));
    queue.withdraw(1);
    queue.offer(Wanted { position: 1, object: 9, range: 0..KIB });
    let own = requests(&mut queue, ms(1));
    assert_eq!((joined.len(), objects(&own)), (1, vec![9]));
    assert_eq!(answer(&mut queue, joined[0].0, ms(2)), [0]);
    assert_eq!(answer(&mut queue, own[0].0, ms(3)), [1]);
}

#[test]
fn more_memory_is_more_in_flight() {
    let within = FetchConfig::within(4 << 30);
    assert_eq!((within.reorder_bytes, within.max_bytes), (4 << 30, 1 << 30));
    assert_eq!(within.most_joined_bytes, FetchConfig::default().most_joined_bytes);
}

#[test]
fn a_record_larger_than_every_bound_comes_when_it_is_needed() {
    let config = FetchConfig { max_bytes: 10, reorder_bytes: 20, ..plain() };
    let mut queue = FetchQueue::new(config);
    offer(&mut queue, 0..2);
    let first = requests(&mut queue, ms(0));
    assert_eq!(objects(&first), [0]);
    queue.arrived(first[0].0, ms(1));
    assert_eq!(objects(&requests(&mut queue, ms(1))), NONE);
    queue.taken(0);
    assert_eq!(objects(&requests(&mut queue, ms(1))), [1]);
}

#[test]
fn a_position_that_is_needed_sooner_keeps_what_is_on_its_way_and_what_has_come() {
    let mut queue = FetchQueue::new(FetchConfig { max_requests: 2, ..plain() });
    offer(&mut queue, 10..14);
    let sent = requests(&mut queue, ms(0));
    assert_eq!(answer(&mut queue, sent[0].0, ms(1)), [10]);
    // One that is here, one that is on its way, and one that is not requested.
    for (from, to) in [(10, 3), (11, 4), (13, 5)] {
        assert!(queue.renumber(from, to));
    }
    assert!(!queue.renumber(13, 6) && !queue.renumber(12, 4), "not known; known already");
    assert_eq!(objects(&requests(&mut queue, ms(2))), [13], "before the twelfth");
    assert_eq!(answer(&mut queue, sent[1].0, ms(3)), [4]);
    queue.taken(3);
    queue.taken(4);
    assert_eq!(queue.figures().reordered_bytes, 0);
    assert!(queue.is_missing(5) && !queue.is_missing(13));
}

#[test]
fn what_waits_for_room_beyond_its_deadline_is_sent_with_time_or_not_at_all() {
    let throttled = Failure::Throttled { retry_after_ns: None };
    for failure in [throttled, Failure::Reset] {
        let mut queue = FetchQueue::new(plain());
        offer(&mut queue, 0..3);
        let sent = requests(&mut queue, ms(0));
        for (request, _) in &sent[1..] {
            queue.failed(*request, failure, ms(1));
        }
        let is_alive = failure == throttled;
        if is_alive {
            assert_eq!(answer(&mut queue, sent[0].0, ms(9_900)), [0]);
        }
        // Nobody asked meanwhile: their deadlines are over.
        let (steps, _) = steps(&mut queue, ms(10_500));
        let n_given_up =
            steps.iter().filter(|it| matches!(it, FetchStep::GiveUp { .. })).count();
        let timeouts = steps.iter().filter_map(|step| match step {
            FetchStep::Request { timeout_ns, .. } => Some(*timeout_ns),
            FetchStep::Cancel { .. }
            | FetchStep::GiveUp { .. }
            | FetchStep::WakeAt(_)
            | FetchStep::Idle => None,
        });
        let timeouts: Vec<_> = timeouts.collect();
        if is_alive {
            assert!(!timeouts.is_empty() && n_given_up == 0, "{steps:?}");
            assert!(timeouts.iter().all(|ns| *ns == 4_000 * MILLI), "{timeouts:?}");
        } else {
            assert_eq!((timeouts, n_given_up), (vec![], 3), "{steps:?}");
        }
        let counts = queue.figures().counts;
        assert_eq!(counts.timed_out, u64::from(!is_alive), "{counts:?}");
    }
}
