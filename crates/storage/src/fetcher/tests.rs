//! What becomes of fetches that nobody carries out, and of their destinations.

use futures_util::FutureExt;

use super::destination::{Received, WrongLength};
use super::*;
use crate::{Answer, Double};

const MINUTE: Duration = Duration::from_secs(60);

fn fetcher(double: Double) -> Fetcher {
    Fetcher::start(Arc::new(double), NonZero::<usize>::MIN).unwrap()
}

fn fetch(tag: u64) -> Fetch {
    fetch_of("a", tag)
}

fn fetch_of(object: &str, tag: u64) -> Fetch {
    let (object, range) = (object.into(), 0..4);
    Fetch { tag, object, range, expected: None, timeout: MINUTE }
}

fn memory() -> Box<dyn Destination> {
    Box::new(vec![0; 4])
}

/// The next destination of a cancelled fetch.
fn returned(fetcher: &mut Fetcher) -> u64 {
    let until = Instant::now() + MINUTE;
    loop {
        if let Some((tag, memory)) = fetcher.returned() {
            let memory: Box<dyn std::any::Any> = memory;
            assert!(memory.is::<Vec<u8>>());
            return tag;
        }
        assert!(Instant::now() < until, "it does not come back");
        assert!(fetcher.poll(Duration::from_millis(1)).is_none());
    }
}

#[test]
fn in_another_process_every_fetch_fails_at_once() {
    let mut fetcher = fetcher(Double::new().with("a", "0123"));
    fetcher.crew.leave();
    for tag in [1, 2] {
        fetcher.submit_into(fetch(tag), memory());
    }
    fetcher.cancel(1);
    assert_eq!(fetcher.returned().unwrap().0, 1);
    let fetched = fetcher.poll(Duration::MAX).unwrap();
    assert_eq!((fetched.tag, fetched.result), (2, Err(StorageError::Forked)));
    assert!(matches!(fetched.destination, Some(Returned::Unused(_))));
    assert!(fetcher.poll(Duration::MAX).is_none());
    (3..6).for_each(|tag| fetcher.submit(fetch(tag)));
    let mut answers = Vec::new();
    while fetcher.in_flight() > 0 {
        let n_before = answers.len();
        fetcher.poll_all(MINUTE, &mut answers);
        assert!(answers.len() > n_before, "they do not fail at once");
    }
    let is_forked =
        |fetched: &Fetched| matches!(fetched.result, Err(StorageError::Forked));
    assert!(answers.len() == 3 && answers.iter().all(is_forked), "{answers:?}");
    fetcher.crew.come_back();
}

#[test]
fn all_answers_that_are_there_are_taken_together() {
    let mut fetcher = fetcher(Double::new().with("a", "0123"));
    let mut answers = Vec::new();
    fetcher.poll_all(MINUTE, &mut answers);
    assert!(answers.is_empty(), "nothing is in flight");
    (0..40).for_each(|tag| fetcher.submit(fetch(tag)));
    fetcher.cancel(7);
    let until = Instant::now() + MINUTE;
    while fetcher.in_flight() > 0 {
        assert!(Instant::now() < until, "{answers:?}");
        fetcher.poll_all(MINUTE, &mut answers);
    }
    let mut tags: Vec<u64> = answers.iter().map(|fetched| fetched.tag).collect();
    tags.sort_unstable();
    assert!(tags.into_iter().eq((0..40).filter(|tag| *tag != 7)));
    assert!(answers.iter().all(|fetched| fetched.result.as_deref() == Ok(b"0123")));
}

#[test]
fn the_destination_of_a_cancelled_fetch_comes_back() {
    let silent = |asked: &crate::Asked| match &*asked.object {
        "silent" => Answer::Never,
        _ => Answer::After(Duration::ZERO),
    };
    let double = Double::answering(silent);
    double.put("a", "0123");
    let mut fetcher = fetcher(double);
    // One that is under way, and one that is cancelled before it can begin.
    fetcher.submit_into(fetch_of("silent", 1), memory());
    assert!(fetcher.poll(Duration::from_millis(20)).is_none());
    fetcher.cancel(1);
    assert_eq!(fetcher.in_flight(), 1, "it is still out");
    assert_eq!(returned(&mut fetcher), 1);
    fetcher.submit_into(fetch_of("silent", 2), memory());
    fetcher.cancel(2);
    assert_eq!(returned(&mut fetcher), 2);
    assert_eq!(fetcher.in_flight(), 0);
    // Another fetch of the same tag has its own.
    fetcher.submit_into(fetch(3), memory());
    fetcher.submit_into(fetch(3), memory());
    let mut answered = None;
    let until = Instant::now() + MINUTE;
    while fetcher.in_flight() > 0 && Instant::now() < until {
        answered = fetcher.poll(MINUTE).or(answered);
    }
    let answered = answered.unwrap();
    assert!(answered.result.is_ok() && answered.destination.is_some());
    assert_eq!(fetcher.returned().unwrap().0, 3);
    assert!(fetcher.returned().is_none());
}

#[test]
fn a_fetch_that_panics_gives_its_destination_back() {
    let double = Double::answering(|_| panic!("as a bug would"));
    let mut fetcher = fetcher(double.with("a", "0123"));
    fetcher.submit_into(fetch(1), memory());
    let fetched = fetcher.poll(MINUTE).unwrap();
    assert!(fetched.result.unwrap_err().to_string().contains("this is a bug"));
    assert!(matches!(fetched.destination, Some(Returned::Unused(_))));
}

/// What is received of an answer in `parts`, for which four bytes are asked; with memory for them or without.
fn received(parts: &[&str], lent: Option<&Lent>) -> Result<Bytes, WrongLength> {
    let receive = async {
        let mut received = Received::of(4);
        for part in parts {
            received.add(part.as_bytes())?;
        }
        received.whole()
    };
    let receive = async {
        match lent {
            Some(lent) => lent.during(receive).await,
            None => receive.await,
        }
    };
    receive.now_or_never().unwrap()
}

#[test]
fn an_answer_in_parts_is_put_together_in_its_destination_or_in_its_own_memory() {
    for (parts, wrong) in [
        (&["0123"][..], None),
        (&["0", "", "12", "3"], None),
        (&["01", "2"], Some(WrongLength::CutShort)),
        (&[], Some(WrongLength::CutShort)),
        (&["01", "234"], Some(WrongLength::TooLong { most: 4 })),
        (&["0123", "4"], Some(WrongLength::TooLong { most: 4 })),
    ] {
        let own = wrong.map_or_else(|| Ok(Bytes::from("0123")), Err);
        assert_eq!(received(parts, None), own, "{parts:?}");
        let lent = Lent::new(memory());
        let told = wrong.map_or_else(|| Ok(Bytes::new()), Err);
        assert_eq!(received(parts, Some(&lent)), told, "{parts:?}");
        match (lent.take_back().unwrap(), wrong) {
            (Returned::Filled(mut memory), None) => {
                assert_eq!(memory.bytes(), b"0123", "{parts:?}");
            }
            (Returned::Unused(_), Some(_)) => {}
            (returned, _) => panic!("{parts:?}: {returned:?}"),
        }
    }
    // Memory for another length is not touched.
    let lent = Lent::new(Box::new(vec![0; 3]));
    assert_eq!(received(&["0123"], Some(&lent)), Ok(Bytes::from("0123")));
    assert!(matches!(lent.take_back(), Some(Returned::Unused(_))));
}
