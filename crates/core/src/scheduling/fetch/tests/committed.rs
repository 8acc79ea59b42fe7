//! What will be needed for certain, and has not been requested.

use super::*;

#[test]
fn committed_bytes_are_counted_until_they_are_requested_or_not_wanted_any_more() {
    let mut queue = FetchQueue::new(FetchConfig { max_requests: 2, ..plain() });
    offer(&mut queue, 0..6);
    assert_eq!(queue.committed_bytes(), 0, "they may be needed, and that is all");
    // Twice is once, and what nobody offered does not count.
    [1, 2, 3, 3, 4, 9].into_iter().for_each(|at| queue.commit(at));
    assert_eq!(queue.committed_bytes(), 4 * KIB);
    assert!(queue.renumber(4, 8));
    queue.withdraw(3);
    assert_eq!(queue.committed_bytes(), 3 * KIB);
    let asked = requests(&mut queue, ms(0));
    assert_eq!(objects(&asked), [0, 1]);
    queue.commit(1);
    assert_eq!(queue.committed_bytes(), 2 * KIB, "what is on its way has its room");
    // It is offered again as one that may be needed.
    queue.withdraw(2);
    queue.offer(Wanted { position: 2, object: 2, range: 0..KIB });
    assert_eq!(queue.committed_bytes(), KIB);
    queue.withdraw_all();
    assert_eq!(queue.committed_bytes(), 0);
}
