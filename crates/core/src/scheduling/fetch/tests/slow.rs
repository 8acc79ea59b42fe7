//! Answers of which parts come slowly.

use super::*;

#[test]
fn as_long_as_its_answer_comes_a_request_is_waited_for_and_no_longer() {
    let mut queue = FetchQueue::new(plain());
    offer(&mut queue, 0..2);
    let sent = requests(&mut queue, ms(0));
    // For longer than any deadline; of the other one nothing comes.
    for second in 1..100 {
        queue.heard(sent[0].0, ms(1_000 * second));
        let (done, _) = steps(&mut queue, ms(1_000 * second));
        assert!(!done.contains(&FetchStep::Cancel { request: sent[0].0 }), "{second} s");
        if second < 50 {
            assert!(!done.contains(&FetchStep::GiveUp { position: 1 }), "{second} s");
        }
    }
    let (_, wake) = steps(&mut queue, ms(102_999));
    let (done, _) = steps(&mut queue, wake.unwrap());
    assert_eq!(wake, Some(ms(103_000)));
    assert!(done.contains(&FetchStep::Cancel { request: sent[0].0 }), "{done:?}");
    // Nothing comes of a request that nobody waits for any more.
    queue.heard(sent[0].0, ms(103_000));
    assert!(answer(&mut queue, sent[0].0, ms(103_000)).is_empty());
}

#[test]
fn among_quick_answers_each_attempt_at_a_slow_one_has_twice_the_time() {
    let (mut queue, sent) = warm(plain());
    for (request, _) in &sent[1..] {
        queue.arrived(*request, ms(200));
    }
    let (mut slow, mut began) = (sent[0].0, 100);
    let mut lasted = Vec::new();
    for now in (200..40_000).step_by(100) {
        queue.heard(slow, ms(now));
        for step in steps(&mut queue, ms(now)).0 {
            match step {
                FetchStep::Request { request, .. } => (slow, began) = (request, now),
                FetchStep::Cancel { .. } => lasted.push(now - began),
                step @ (FetchStep::GiveUp { .. }
                | FetchStep::WakeAt(_)
                | FetchStep::Idle) => panic!("{step:?}"),
            }
        }
    }
    // The first as long as if nothing had come of it: four times 100 ms are less than the timeout.
    assert_eq!(lasted, [4_000, 8_000, 16_000]);
    assert_eq!(answer(&mut queue, slow, ms(40_000)), [64]);
}
