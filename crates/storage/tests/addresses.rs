//! Addresses and settings that mean nothing are refused before anything is asked, and without their credentials.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

use bothends_storage::{Location, Options, StorageError};

fn one_line(error: &StorageError) -> String {
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.contains("s3cret"), "{text}");
    text
}

#[test]
fn addresses_that_mean_nothing_are_told_without_their_logins() {
    for (url, words) in [
        ("s3://", "names no bucket; write it as scheme://bucket/prefix"),
        (
            "s3://key:s3cret@bucket/x",
            "`s3://bucket/x` has a login in it; credentials belong",
        ),
        ("s3://key:s3/cret@bucket/x", "`s3://bucket/x` has a login in it"),
        ("s3://bucket/x?key=s3cret", "`s3://bucket/x` has a query"),
        ("https://me:s3cret@host/x", "`https://host/x` has a login in it"),
        ("https://host/x?sig=s3cret", "`https://host/x` has a query"),
        ("http://me:s3/cret@host/x", "`http://host/x` has a login in it"),
        ("http://me:12/s3cret@host/x", "`http://host/x` has a login in it"),
        ("http://me:s3cret/x", "`http://me` has a port that is not a number"),
        (
            "redis://:s3#cret@host/0",
            "`redis://host/0` is not the address of a Redis server",
        ),
        ("redis://:s3?cret@host/0", "`redis://host/0` has an option that is not known"),
        ("file://x", "names no folder of this machine; write file:///path"),
        ("ftp://host/x", "has a scheme that is not known; use s3://, gs://, az://"),
        (
            "cql://host/x",
            "`cql://host/x` names no table; write it as cql://host:9042/keyspace",
        ),
        (
            "rediss://:s3cret@host/zero",
            "`rediss://host/zero` is not the address of a Redis server",
        ),
        (
            "redis://:s3cret@host/0?pre=x",
            "`redis://host/0` has an option that is not known",
        ),
        (
            "redis://:s3cret@host/zero",
            "`redis://host/zero` is not the address of a Redis server",
        ),
    ] {
        let opened =
            Location::parse(url, &Options::default()).and_then(|found| found.open());
        let error = one_line(&opened.unwrap_err());
        assert!(error.contains(words) && !error.contains("cret"), "{url}: {error}");
    }
    let options = Options { endpoint: Some("host:1".to_owned()), ..Options::default() };
    let found = Location::parse("s3://bucket/x", &options).unwrap();
    let error = one_line(&found.open().unwrap_err());
    assert!(
        error.contains("`host:1` is not an endpoint; write it as http://host:port"),
        "{error}"
    );
    let found = Location::parse("az://box/x", &Options::default()).unwrap();
    assert!(
        one_line(&found.open().unwrap_err()).contains("set AZURE_STORAGE_ACCOUNT_NAME")
    );
}

/// The same are refused where a request would panic, and where they come from the environment.
#[test]
fn settings_that_no_request_can_carry_are_told_by_name() {
    let endpoints = [
        "localhost:9000",
        "http://",
        "s3.example.com",
        "https://host:99999",
        "http://[::1",
        "http://10.0.0.999:9000",
        "http://me:s3cret@host",
        "http://ho st",
    ];
    let endpoints =
        endpoints.map(|text| ("AWS_ENDPOINT_URL", text, "is not an endpoint"));
    let others = [
        ("AWS_ENDPOINT_URL_S3", "localhost:9000", "is not an endpoint"),
        ("AWS_REGION", "eu\nwest", "is not a region"),
        ("AWS_ACCESS_KEY_ID", "s3cret\nid", "has a line break"),
        ("AWS_SESSION_TOKEN", "s3cr\u{e4}t", "has a line break"),
    ];
    for (name, value, words) in endpoints.into_iter().chain(others) {
        let mut options = Options::default();
        let keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
        options.variables =
            keys.map(|name| (name.to_owned(), "s3cret".to_owned())).into();
        options.variables.insert(name.to_owned(), value.to_owned());
        let error = Location::parse("s3://data/x", &options).unwrap().open().unwrap_err();
        let error = one_line(&error);
        assert!(error.starts_with(&format!("`{name}` {words}")), "{value}: {error}");
    }
}
