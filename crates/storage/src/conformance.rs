//! The contract of [`Objects`] as functions to call, over any location that objects can be put to.
//!
//! The tests of a store call [`all`]; each function can also be used separately. A check that fails
//! panics.

#![allow(
    clippy::missing_panics_doc,
    reason = "a check that fails panics: that is its use"
)]

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::runtime::Runtime;

use crate::fetcher::{self, Fetch, Fetched, Fetcher, Returned};
use crate::{Identity, Listed, Objects, StorageError};

/// Longest wait for anything, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a store recognises that another object has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// By a mark of its version or the time of its last change.
    Versions,
    /// By the length alone.
    Lengths,
}

/// Adds or replaces an object.
pub type Put = Box<dyn Fn(&str, &[u8])>;

/// What to hold against the contract.
pub struct Subject {
    /// The objects; none at the start.
    pub objects: Arc<dyn Objects>,
    /// Adds or replaces an object.
    pub put: Put,
    /// How the store recognises changes.
    pub marks: Marks,
}

impl Debug for Subject {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("objects", &self.objects).finish_non_exhaustive()
    }
}

/// All checks. They leave objects behind.
pub fn all(subject: &Subject) {
    every_range_comes_once(subject);
    a_range_beyond_the_end_is_told(subject);
    what_is_missing_is_named(subject);
    a_listing_has_every_object_once(subject);
    an_identity_lasts_as_long_as_the_object(subject);
    what_is_dropped_is_over(subject);
    a_destination_comes_back_with_what_was_asked_for(subject);
}

/// Bytes that differ from place to place.
fn bytes(len: usize) -> Vec<u8> {
    let mut state = len as u64 ^ 0x9E37_79B9_7F4A_7C15;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn runtime() -> Runtime {
    fetcher::runtime().expect("a runtime starts")
}

/// What came for each range.
fn get(
    subject: &Subject,
    object: &str,
    ranges: &[Range<u64>],
    expected: Option<&Identity>,
) -> Vec<Result<Bytes, StorageError>> {
    let mut came: Vec<Option<Result<Bytes, StorageError>>> = vec![None; ranges.len()];
    let arrivals = async {
        let mut arrivals = subject.objects.get_ranges(object, ranges, expected);
        while let Some((idx, result)) = arrivals.next().await {
            assert!(came[idx].replace(result).is_none(), "range {idx} came twice");
        }
    };
    runtime().block_on(async {
        tokio::time::timeout(PATIENCE, arrivals).await.expect("the ranges come");
    });
    came.into_iter().map(|one| one.expect("every range comes")).collect()
}

fn identify(subject: &Subject, object: &str) -> Result<Identity, StorageError> {
    runtime().block_on(async {
        let identified = tokio::time::timeout(PATIENCE, subject.objects.identify(object));
        identified.await.expect("an identity comes")
    })
}

fn list(subject: &Subject, prefix: &str) -> BTreeMap<String, Identity> {
    let mut found = BTreeMap::new();
    each_listed(&*subject.objects, prefix, &mut |one| {
        let Listed { name, identity, .. } = one.expect("it can be listed");
        assert!(found.insert(name.clone(), identity).is_none(), "{name} came twice");
    });
    found
}

/// Gives each result of a listing to `look`, as it comes.
pub fn each_listed(
    objects: &dyn Objects,
    prefix: &str,
    look: &mut dyn FnMut(Result<Listed, StorageError>),
) {
    let listing = async {
        let mut listed = objects.list(prefix);
        while let Some(one) = listed.next().await {
            look(one);
        }
    };
    runtime().block_on(async {
        tokio::time::timeout(PATIENCE, listing).await.expect("the listing ends");
    });
}

/// Ranges of all kinds, in one call and alone, with and without an expected identity.
pub fn every_range_comes_once(subject: &Subject) {
    let whole = bytes(300_007);
    (subject.put)("ranges/a", &whole);
    let expected = identify(subject, "ranges/a").expect("it is there");
    let len = whole.len() as u64;
    let mut ranges = vec![0..len, 0..1, len - 1..len, 0..0, 7..7, len..len, 100..250_000];
    ranges.extend((0..40).map(|at| at * 7000..at * 7000 + 5000 + at));
    for expected in [None, Some(&expected)] {
        let came = get(subject, "ranges/a", &ranges, expected);
        for (range, came) in ranges.iter().zip(came) {
            let came = came.expect("it is there");
            let place = |at: u64| usize::try_from(at).expect("a small number");
            assert!(came == whole[place(range.start)..place(range.end)], "{range:?}");
        }
        assert!(get(subject, "ranges/a", &[], expected).is_empty());
    }
    (subject.put)("ranges/empty", b"");
    let came = get(subject, "ranges/empty", std::slice::from_ref(&(0..0)), None);
    assert!(came[0].as_ref().expect("no byte is there").is_empty());
    assert_eq!(identify(subject, "ranges/empty").expect("it is there").len, 0);
}

/// Ranges that end after the object, start after it, or are as far away as can be.
pub fn a_range_beyond_the_end_is_told(subject: &Subject) {
    (subject.put)("short", &bytes(1000));
    let expected = identify(subject, "short").expect("it is there");
    let ranges =
        [0..1001, 999..1001, 1000..1001, 5000..6000, u64::MAX - 9..u64::MAX, 0..10];
    for expected in [None, Some(&expected)] {
        let came = get(subject, "short", &ranges, expected);
        for (range, came) in ranges.iter().zip(&came[..5]) {
            let error = came.as_ref().expect_err("it is too short");
            let is_told =
                matches!(error, StorageError::TooShort { end, .. } if *end == range.end);
            assert!(is_told, "{range:?}: {error}");
            assert_named(subject, error, "short");
        }
        assert!(came[5].is_ok(), "others are not affected: {:?}", came[5]);
    }
}

/// Objects that are not there, and names that lead up.
pub fn what_is_missing_is_named(subject: &Subject) {
    (subject.put)("there/a", b"0123");
    for name in
        ["gone", "there/gone", "there/a/b", "there", "../short", "there//a", "there/a/"]
    {
        let came = get(subject, name, std::slice::from_ref(&(0..1)), None);
        for error in [came[0].clone().map(drop), identify(subject, name).map(drop)] {
            let error = error.expect_err("it is not there");
            let is_missing = matches!(error, StorageError::NotFound { .. });
            // A folder of this machine is there and cannot be read.
            let is_folder =
                name == "there" && matches!(error, StorageError::Refused { .. });
            assert!(is_missing || is_folder, "{name}: {error:?}");
            assert_named(subject, &error, name);
            assert!(!error.is_transient(), "{error}");
        }
    }
}

fn assert_named(subject: &Subject, error: &StorageError, object: &str) {
    let text = error.to_string();
    assert!(text.contains(&subject.objects.shown(object)), "{text}");
    assert!(!text.contains('\n'), "{text}");
}

/// Odd names, names with a common start, more than one level.
pub fn a_listing_has_every_object_once(subject: &Subject) {
    let names = [
        "list/a.jpg",
        "list/a/b.jpg",
        "list/ab",
        "list/b c/d+e.jpg",
        "list/b c/\u{e4}\u{65e5}.jpg",
        "list/deep/er/and/deeper",
        "list/q*[x]?",
        "list/100%#1",
    ];
    for (idx, name) in names.iter().enumerate() {
        (subject.put)(name, &bytes(idx));
    }
    (subject.put)("lists", b"");
    for prefix in
        ["list/", "list/a", "list/a/", "list/b c/", "list/q*", "list/none", "list/deep/"]
    {
        let expected: Vec<_> =
            names.iter().filter(|name| name.starts_with(prefix)).collect();
        let found = list(subject, prefix);
        let mut found: Vec<_> = found.keys().collect();
        found.sort_by_key(|name| names.iter().position(|known| known == name));
        assert_eq!(found, expected, "{prefix}");
    }
    let everything = list(subject, "");
    assert!(everything.contains_key("lists"));
    for (idx, name) in names.iter().enumerate() {
        let listed = &everything[*name];
        let identity = identify(subject, name).expect("what is listed is there");
        assert_eq!(listed.len, idx as u64, "{name}");
        assert!(listed.matches(&identity), "{name}: {listed:?} is not {identity:?}");
        let came =
            get(subject, name, std::slice::from_ref(&(0..listed.len)), Some(listed));
        assert!(*came[0].as_ref().expect("it is there") == bytes(idx), "{name}");
    }
}

/// The same identity as long as the object is the same one; another object is noticed.
pub fn an_identity_lasts_as_long_as_the_object(subject: &Subject) {
    (subject.put)("changes", &bytes(5000));
    let first = identify(subject, "changes").expect("it is there");
    assert_eq!(identify(subject, "changes").expect("it is there"), first);
    let mut replaced = vec![bytes(5001), bytes(4999), bytes(50_000)];
    if subject.marks == Marks::Versions {
        replaced.push(bytes(5000).into_iter().rev().collect());
    }
    for bytes in replaced {
        if subject.marks == Marks::Versions {
            // Some stores keep times to the second or less.
            std::thread::sleep(Duration::from_millis(20));
        }
        (subject.put)("changes", &bytes);
        let ranges = [0..5000, 10..20, 4998..4999];
        for came in get(subject, "changes", &ranges, Some(&first)) {
            let error = came.expect_err("it is another object");
            assert!(matches!(error, StorageError::Changed { .. }), "{error}");
            assert_named(subject, &error, "changes");
        }
        let now = identify(subject, "changes").expect("it is there");
        assert!(!first.matches(&now));
        let came = get(subject, "changes", &ranges[1..2], Some(&now));
        assert!(*came[0].as_ref().expect("it is there") == bytes[10..20]);
    }
}

/// Streams that are dropped before they are read, or in the middle; what comes after works.
pub fn what_is_dropped_is_over(subject: &Subject) {
    let whole = bytes(100_000);
    (subject.put)("dropped", &whole);
    let ranges: Vec<_> = (0..20).map(|at| at * 5000..at * 5000 + 5000).collect();
    runtime().block_on(async {
        for n_taken in [0, 1, 7] {
            let mut arrivals = subject.objects.get_ranges("dropped", &ranges, None);
            for _ in 0..n_taken {
                let came = tokio::time::timeout(PATIENCE, arrivals.next()).await;
                came.expect("it comes").expect("a range").1.expect("it is there");
            }
            drop(arrivals);
            let mut listed = subject.objects.list("");
            let came = tokio::time::timeout(PATIENCE, listed.next()).await;
            came.expect("it comes").expect("an object").expect("it can be listed");
        }
    });
    let came = get(subject, "dropped", std::slice::from_ref(&(0..100_000)), None);
    assert!(*came[0].as_ref().expect("it is there") == whole);
}

/// A fetch with memory for its bytes has them there, or answers as one without; the memory comes back in any case.
pub fn a_destination_comes_back_with_what_was_asked_for(subject: &Subject) {
    let whole = bytes(70_000);
    (subject.put)("in-place/a", &whole);
    let end = whole.len() as u64;
    let identify = subject.objects.identify("in-place/a");
    let now = runtime().block_on(identify).expect("the object is there");
    let shorter = Identity { len: end - 1, modified: None, etag: None };
    let is_there = [(0..end, Some(now.clone())), (0..end, None), (5..66_000, Some(now))];
    let is_not = [(0..end - 1, Some(shorter)), (0..end + 1, None)];
    let objects = Arc::clone(&subject.objects);
    let mut fetcher = Fetcher::start(objects, NonZero::<usize>::MIN).expect("a thread");
    let mut fetch = |(tag, range): (u64, &Range<u64>), name: &str, expected| {
        let place = |at: u64| usize::try_from(at).expect("it is in memory");
        let memory: Vec<u8> = vec![0xEE; place(range.end - range.start)];
        let (object, range, timeout) = (name.into(), range.clone(), PATIENCE);
        let fetch = Fetch { tag, object, range, expected, timeout };
        fetcher.submit_into(fetch, Box::new(memory));
        let fetched = fetcher.poll(PATIENCE).expect("every fetch is answered");
        assert_eq!((fetched.tag, fetcher.in_flight()), (tag, 0));
        let Fetched { result, destination, .. } = fetched;
        (result, destination.expect("the memory comes back"))
    };
    // More than once, as later ones may find a connection there.
    for (tag, (range, expected)) in (0..).zip(is_there.iter().cycle().take(9)) {
        let (result, destination) = fetch((tag, range), "in-place/a", expected.clone());
        let own = result.expect("it is there");
        let got = match destination {
            Returned::Filled(mut memory) => {
                assert!(own.is_empty(), "there are bytes besides those in the memory");
                memory.bytes().to_vec()
            }
            Returned::Unused(_) => own.to_vec(),
        };
        let [start, end] =
            [range.start, range.end].map(|at| usize::try_from(at).expect("a place"));
        assert!(got == whole[start..end], "other bytes than were asked for");
    }
    let is_unused = |(result, destination): (Result<Bytes, StorageError>, Returned)| {
        assert!(result.is_err(), "what is not there was read");
        assert!(matches!(destination, Returned::Unused(_)));
    };
    for (tag, (range, expected)) in (100..).zip(is_not) {
        is_unused(fetch((tag, &range), "in-place/a", expected));
    }
    is_unused(fetch((200, &(0..end)), "in-place/b", None));
}
