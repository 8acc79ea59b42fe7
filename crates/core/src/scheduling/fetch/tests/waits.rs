//! Under which cause the time is booked in which nothing new is requested.

use super::*;

#[test]
fn what_a_store_refuses_is_booked_as_retries() {
    let mut queue = FetchQueue::new(plain());
    offer(&mut queue, 0..8);
    let sent = requests(&mut queue, ms(0));
    let throttled = Failure::Throttled { retry_after_ns: Some(3_000 * MILLI) };
    queue.failed(sent[0].0, throttled, ms(10));
    // The window is small now, and those in flight fill it.
    assert!(queue.figures().window <= queue.figures().in_flight);
    steps(&mut queue, ms(10));
    steps(&mut queue, ms(2_010));
    let waits = queue.figures().waits;
    assert_eq!((waits.retry_ns, waits.requests_ns), (2_000 * MILLI, 10 * MILLI));
    let mut queue = FetchQueue::new(plain());
    offer(&mut queue, 0..2);
    let sent = requests(&mut queue, ms(0));
    queue.arrived(sent[1].0, ms(5));
    queue.failed(sent[0].0, throttled, ms(10));
    steps(&mut queue, ms(10));
    steps(&mut queue, ms(2_010));
    let waits = queue.figures().waits;
    assert_eq!(waits.retry_ns, 2_000 * MILLI, "all else has been requested");
    assert_eq!(waits.offer_ns, 10 * MILLI, "as long as nothing had failed");
}
