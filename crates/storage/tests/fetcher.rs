//! The fetcher's contract, over the double.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bothends_storage::{Answer, Double, Fetch, Fetcher, StorageError};

const PATIENCE: Duration = Duration::from_secs(60);
const ONE: NonZero<usize> = NonZero::<usize>::MIN;

fn fetch(tag: u64, object: &str, range: std::ops::Range<u64>) -> Fetch {
    Fetch { tag, object: object.into(), range, expected: None, timeout: PATIENCE }
}

#[test]
fn every_fetch_is_answered_once_in_any_order() {
    let bytes: Vec<u8> = (0..=255).collect();
    // The earlier it is asked for, the later it comes.
    let late = |asked: &bothends_storage::Asked| {
        Answer::After(Duration::from_millis(20_u64.saturating_sub(asked.number)))
    };
    let double = Double::answering(late).with("a", bytes.clone());
    let mut fetcher = Fetcher::start(Arc::new(double), ONE).unwrap();
    assert!(fetcher.poll(Duration::MAX).is_none(), "nothing in flight means no wait");
    for tag in 0..20 {
        fetcher.submit(fetch(tag, "a", tag..2 * tag));
    }
    fetcher.submit(fetch(20, "gone", 0..1));
    fetcher.submit(fetch(21, "a", 200..257));
    assert_eq!(fetcher.in_flight(), 22);
    let mut tags = Vec::new();
    while let Some(fetched) = fetcher.poll(PATIENCE) {
        let tag = usize::try_from(fetched.tag).unwrap();
        match fetched.result {
            Ok(got) => assert_eq!(got, bytes[tag..2 * tag]),
            Err(StorageError::NotFound { place }) => {
                assert_eq!((tag, &*place), (20, "memory:gone"));
            }
            Err(StorageError::TooShort { end, .. }) => assert_eq!((tag, end), (21, 257)),
            Err(other) => panic!("{other}"),
        }
        tags.push(tag);
    }
    tags.sort_unstable();
    assert_eq!(tags, (0..22).collect::<Vec<_>>());
    assert_eq!(fetcher.in_flight(), 0);
}

#[test]
fn fetches_are_spread_over_the_threads() {
    let asked_on = Arc::new(Mutex::new(HashMap::new()));
    let noted = Arc::clone(&asked_on);
    let double = Double::answering(move |_| {
        *noted.lock().unwrap().entry(thread::current().id()).or_insert(0) += 1;
        Answer::After(Duration::from_millis(50))
    });
    let three = NonZero::new(3).unwrap();
    let mut fetcher = Fetcher::start(Arc::new(double.with("a", "0123")), three).unwrap();
    for tag in 0..30 {
        fetcher.submit(fetch(tag, "a", 0..4));
    }
    // What is cancelled makes its thread the one with the fewest.
    for tag in [1, 4, 7] {
        fetcher.cancel(tag);
        fetcher.submit(fetch(tag + 100, "a", 0..4));
    }
    let mut tags = Vec::new();
    while let Some(fetched) = fetcher.poll(PATIENCE) {
        assert_eq!(fetched.result.unwrap(), "0123");
        tags.push(fetched.tag);
    }
    tags.sort_unstable();
    let expected = (0..30).filter(|tag| ![1, 4, 7].contains(tag)).chain([101, 104, 107]);
    assert_eq!(tags, expected.collect::<Vec<_>>());
    let asked_on = asked_on.lock().unwrap();
    assert_eq!(asked_on.len(), 3);
    assert!(asked_on.values().all(|n| (10..=13).contains(n)), "{asked_on:?}");
}

#[test]
fn a_cancelled_fetch_is_not_answered_and_its_tag_is_free() {
    let answers = |asked: &bothends_storage::Asked| match &*asked.object {
        "stuck" => Answer::Never,
        _ => Answer::After(Duration::ZERO),
    };
    let double = Double::answering(answers).with("a", "0123").with("stuck", "x");
    let mut fetcher = Fetcher::start(Arc::new(double), ONE).unwrap();
    fetcher.submit(fetch(1, "stuck", 0..1));
    fetcher.submit(fetch(2, "stuck", 0..1));
    fetcher.cancel(1);
    fetcher.cancel(99);
    fetcher.submit(fetch(1, "a", 1..3));
    let fetched = fetcher.poll(PATIENCE).unwrap();
    assert_eq!((fetched.tag, &*fetched.result.unwrap()), (1, &b"12"[..]));
    assert_eq!(fetcher.in_flight(), 1);
    // With one that is never answered in flight: dropping does not wait for it.
    assert!(fetcher.poll(Duration::ZERO).is_none());
}

#[test]
fn what_is_late_fails_with_its_place() {
    let double = Double::answering(|_| Answer::Never).with("a", "0123");
    let mut fetcher = Fetcher::start(Arc::new(double), ONE).unwrap();
    fetcher.submit(Fetch { timeout: Duration::from_millis(1500), ..fetch(1, "a", 0..1) });
    let error = fetcher.poll(PATIENCE).unwrap().result.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no answer for `memory:a` within 1.5 s; check the server and the network"
    );
    assert!(error.is_transient());
}

#[test]
fn a_replaced_object_is_named() {
    let double = Arc::new(Double::new().with("a", "0123"));
    let mut fetcher = Fetcher::start(Arc::<Double>::clone(&double), ONE).unwrap();
    let expected = Some(bothends_storage::Identity {
        len: 4,
        modified: None,
        etag: Some("0".into()),
    });
    fetcher.submit(Fetch { expected: expected.clone(), ..fetch(1, "a", 0..4) });
    fetcher.poll(PATIENCE).unwrap().result.unwrap();
    double.put("a", "4567");
    fetcher.submit(Fetch { expected, ..fetch(2, "a", 0..4) });
    let error = fetcher.poll(PATIENCE).unwrap().result.unwrap_err();
    assert!(matches!(error, StorageError::Changed { .. }), "{error}");
    assert!(!error.is_transient());
}

#[test]
fn a_fetch_that_panics_is_answered() {
    let double = Double::answering(|asked| match &*asked.object {
        "bad" => panic!("as a bug in a store would"),
        _ => Answer::After(Duration::ZERO),
    });
    let double = double.with("a", "0123").with("bad", "x");
    let mut fetcher = Fetcher::start(Arc::new(double), ONE).unwrap();
    fetcher.submit(fetch(1, "bad", 0..1));
    let error = fetcher.poll(PATIENCE).unwrap().result.unwrap_err();
    assert!(error.to_string().contains("the fetch has panicked"), "{error}");
    fetcher.submit(fetch(2, "a", 1..3));
    assert_eq!(fetcher.poll(PATIENCE).unwrap().result.unwrap(), "12");
}
