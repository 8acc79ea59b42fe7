//! Requests that bring the bytes of one position alone.

use super::*;

#[test]
fn a_request_names_the_position_that_it_is_for_alone() {
    let mut queue = FetchQueue::new(plain());
    offer(&mut queue, 5..7);
    let first = requests(&mut queue, ms(0));
    let of = |queue: &FetchQueue, nth: usize| queue.only_position(first[nth].0);
    assert_eq!([of(&queue, 0), of(&queue, 1)], [Some(5), Some(6)]);
    answer(&mut queue, first[0].0, ms(1));
    queue.withdraw(6);
    assert_eq!([of(&queue, 0), of(&queue, 1)], [None, None], "they are over");
}

#[test]
fn a_request_for_several_positions_names_none() {
    let config = FetchConfig { most_joined_bytes: 4 * KIB, ..plain() };
    let mut queue = FetchQueue::new(config);
    for position in 0..2 {
        let start = position * KIB;
        queue.offer(Wanted { position, object: 0, range: start..start + KIB });
    }
    let asked = requests(&mut queue, ms(0));
    assert_eq!((asked.len(), queue.only_position(asked[0].0)), (1, None));
    // The bytes of the other one come all the same.
    queue.withdraw(1);
    assert_eq!(queue.only_position(asked[0].0), None);
}
