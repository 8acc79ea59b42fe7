//! Answers that say one thing and mean another: an object that was replaced, a redirect, a range that no object has.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

mod script;

use bothends_storage::{Fetch, Fetcher, Identity, Options, StorageError};

use script::{ONE, PATIENCE, answer, fetch, one_line, open, options, server};

/// Whatever stands before a store, such as what wants HTTPS, knows nothing of regions.
#[test]
fn a_redirect_without_a_region_is_no_matter_of_regions() {
    for status in ["301 Moved Permanently", "308 Permanent Redirect"] {
        let (at, _) = server(move |_, _| {
            answer(status, "Location: https://elsewhere/data/x\r\n", "")
        });
        for url in ["s3://data/x", "gs://data/x"] {
            let options = Options { anonymous: true, ..options(at) };
            let error = one_line(&fetch(open(url, &options)).unwrap_err());
            assert!(error.contains("; give that one as the endpoint"), "{error}");
        }
    }
}

/// Its server keeps no mark that a request could name.
#[test]
fn an_object_that_was_long_enough_when_it_was_listed_has_changed() {
    let (at, _) = server(|_, _| answer("416 Range", "Content-Range: bytes */3\r\n", ""));
    for url in ["s3://data/x".to_owned(), format!("http://{at}/x")] {
        for (len, has_changed) in [(9, true), (6, true), (5, false)] {
            let expected = Identity { len, modified: None, etag: None };
            let mut fetcher = Fetcher::start(open(&url, &options(at)), ONE).unwrap();
            let (object, range, timeout) = ("a".into(), 2..6, PATIENCE);
            let expected = Some(expected);
            fetcher.submit(Fetch { tag: 1, object, range, expected, timeout });
            let error = fetcher.poll(PATIENCE).unwrap().result.unwrap_err();
            let is_changed = matches!(error, StorageError::Changed { .. });
            assert_eq!(is_changed, has_changed, "{url}, {len}: {error}");
        }
    }
}

#[test]
fn a_range_that_no_object_has_is_no_panic() {
    let last = u64::MAX;
    let headers = format!("Content-Range: bytes 2-{last}/9\r\nETag: \"1\"\r\n");
    let (at, _) = server(move |_, _| answer("206 Partial", &headers, "2345"));
    let error = one_line(&fetch(open("s3://data/x", &options(at))).unwrap_err());
    assert!(error.contains("`s3://data/x/a`") && !error.contains("bug"), "{error}");
}
