//! How long a store may be gone.

use super::*;

fn patient() -> FetchConfig {
    FetchConfig {
        max_requests: 2,
        deadline_ns: 10_000 * MILLI,
        patience_ns: 120_000 * MILLI,
        ..plain()
    }
}

/// All requests are refused at once from `from` on. When the first position is given up.
fn gives_up(queue: &mut FetchQueue, from: Ns) -> Ns {
    let mut now = from;
    loop {
        match queue.next(now) {
            FetchStep::Request { request, .. } => {
                if !queue.failed(request, Failure::Refused, now).is_empty() {
                    return now;
                }
            }
            FetchStep::Cancel { .. } => {}
            FetchStep::GiveUp { .. } => return now,
            FetchStep::WakeAt(at) => now = at.max(now.plus(1)),
            FetchStep::Idle => panic!("nothing happens any more"),
        }
    }
}

#[test]
fn a_store_that_was_never_there_is_given_up_soon() {
    let mut queue = FetchQueue::new(patient());
    offer(&mut queue, 0..2);
    let at = gives_up(&mut queue, ms(0));
    assert!((ms(8_000)..=ms(10_000)).contains(&at), "{at:?}");
}

#[test]
fn one_that_has_answered_is_waited_for_and_asked_less_and_less_often() {
    let mut queue = FetchQueue::new(patient());
    offer(&mut queue, 0..4);
    // The second one began before the first answer.
    let asked = requests(&mut queue, ms(0));
    answer(&mut queue, asked[0].0, ms(1_000));
    assert!(queue.failed(asked[1].0, Failure::Reset, ms(2_000)).is_empty());
    let before = queue.figures().counts.requested;
    let at = gives_up(&mut queue, ms(2_000));
    assert!((ms(100_000)..=ms(120_000)).contains(&at), "{at:?}");
    let n = queue.figures().counts.requested - before;
    assert!((40..400).contains(&n), "{n} requests of two positions in two minutes");
}
