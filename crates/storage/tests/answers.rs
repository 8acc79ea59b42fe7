//! What the user reads when a store does not give what it should: a server that answers from a script says what no
//! test server says.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

mod script;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use bothends_storage::{Fetch, Fetcher, Location, Options, StorageError, View};

use script::{
    Certified, ONE, answer, certified, fetch, one_line, open, options, s3_error, secured,
    server,
};

#[test]
fn what_a_store_refuses_is_one_line_with_the_remedy() {
    for (status, code, words) in [
        (
            "400 Bad Request",
            "ExpiredToken",
            "the credentials for `s3://data/x/a` have expired",
        ),
        (
            "301 Moved",
            "PermanentRedirect",
            "`s3://data/x/a` is in region eu-west-1; set the region",
        ),
        (
            "400 Bad",
            "AuthorizationHeaderMalformed",
            "is in region eu-west-1; set the region",
        ),
        ("403 Forbidden", "RequestTimeTooSkewed", "set this machine's clock"),
        ("403 Forbidden", "SignatureDoesNotMatch", "check the access key, its secret"),
        ("403 Forbidden", "AccessDenied", "give these credentials the right to read it"),
        ("404 Not Found", "NoSuchBucket", "there is no bucket for `s3://data/x/a`"),
        ("404 Not Found", "NoSuchKey", "there is no `s3://data/x/a`"),
        (
            "412 Precondition Failed",
            "PreconditionFailed",
            "`s3://data/x/a` changed while",
        ),
        ("416 Range", "InvalidRange", "`s3://data/x/a` ends before byte 6"),
        ("503 Slow Down", "SlowDown", "the store limits requests for `s3://data/x/a`"),
        (
            "500 Error",
            "InternalError",
            "broke off (the server answered 500 InternalError)",
        ),
        (
            "400 Bad",
            "KMS.ThrottlingException",
            "the store limits requests for `s3://data/x/a`",
        ),
        ("400 Bad", "RequestTimeout", "broke off (the server answered 400 RequestTimeo"),
    ] {
        let (at, asked) = server(move |_, line| s3_error(line, status, code));
        let objects = open("s3://data/x", &options(at));
        let error = one_line(&fetch(Arc::clone(&objects)).unwrap_err());
        assert!(error.contains(words), "{error}");
        // A fetch is one request: who asked decides whether it is made again.
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        let is_final = !status.starts_with('5')
            && !status.starts_with("416")
            && !["KMS.ThrottlingException", "RequestTimeout"].contains(&code);
        if is_final {
            let view = View::start(objects).unwrap();
            let error = one_line(&view.identity("a").unwrap_err());
            assert!(error.contains(words), "{error}");
        }
    }
}

#[test]
fn a_listing_and_an_identity_outlive_a_short_failure() {
    let (at, _) = server(|number, line| match number {
        0 => Vec::new(),
        1 => s3_error(line, "503 Slow Down", "SlowDown"),
        _ if line.starts_with("HEAD") => answer(
            "200 OK",
            "ETag: \"1\"\r\nLast-Modified: Thu, 01 Jan 1970 00:00:09 GMT\r\n",
            "",
        ),
        _ => answer(
            "200 OK",
            "",
            "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>x/a b</Key>\
             <LastModified>1970-01-01T00:00:09Z</LastModified><ETag>\"1\"</ETag><Size>4</Size>\
             </Contents></ListBucketResult>",
        ),
    });
    let view = View::start(open("s3://data/x", &options(at))).unwrap();
    let entries = bothends_dataset::Storage::list(&view, "").unwrap();
    assert_eq!(entries[0].name, "a b");
    let identity = view.identity("a b").unwrap();
    assert_eq!((identity.len, identity.etag.as_deref()), (4, Some("1")));
    assert_eq!(identity.modified, Some(Duration::from_secs(9)));
}

/// S3 answers the question whether an object is there in two parts: HEAD without a word, then GET with the reason.
#[test]
fn that_an_object_is_not_there_is_learned_in_spite_of_a_short_failure() {
    let (at, asked) = server(|number, line| match number {
        0 => s3_error(line, "404 Not Found", "NoSuchKey"),
        1 | 2 => s3_error(line, "503 Slow Down", "SlowDown"),
        _ => s3_error(line, "404 Not Found", "NoSuchKey"),
    });
    let view = View::start(open("s3://data/x", &options(at))).unwrap();
    let error = view.identity("a").unwrap_err();
    assert!(error.to_string().contains("there is no `s3://data/x/a`"), "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), 4);
}

/// A page of a listing with these keys; `rest` says whether there are more.
fn page(keys: &[&str], rest: &str) -> Vec<u8> {
    let one = |key: &&str| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>1970-01-01T00:00:09Z</LastModified>\
             <ETag>\"1\"</ETag><Size>4</Size></Contents>"
        )
    };
    let keys: String = keys.iter().map(one).collect();
    answer("200 OK", "", &format!("<ListBucketResult>{rest}{keys}</ListBucketResult>"))
}

/// The names in a listing, or what is wrong with it.
fn listed(url: &str, options: &Options) -> Result<Vec<String>, StorageError> {
    let view = View::start(open(url, options)).unwrap();
    let listed = bothends_dataset::Storage::list(&view, "");
    let entries = listed.map_err(|error| StorageError::of(&error).unwrap())?;
    Ok(entries.into_iter().map(|entry| entry.name).collect())
}

/// The data set was silently what the first page had.
#[test]
fn a_listing_that_breaks_off_between_pages_is_refused() {
    let more = "<IsTruncated>true</IsTruncated>";
    let next = "<NextContinuationToken>2</NextContinuationToken>";
    for token in ["", "<NextContinuationToken></NextContinuationToken>"] {
        let (at, _) = server(move |number, _| match number {
            0 => page(&["x/a", "x/b"], &format!("{more}{next}")),
            _ => page(&["x/c"], &format!("{more}{token}")),
        });
        for url in ["s3://data/x", "gs://data/x"] {
            let options = Options { anonymous: true, ..options(at) };
            let error = listed(url, &options).unwrap_err();
            let text = one_line(&error);
            assert!(text.starts_with(&format!("cannot read `{url}`: the ")), "{text}");
            assert!(text.contains("(no NextContinuationToken); use a server"), "{text}");
        }
    }
    // An error that is said with 200, and a key that would be listed under another name.
    for (second, words) in [
        (
            answer("200 OK", "", "<Error><Code>InternalError</Code></Error>"),
            "is no page of a listing",
        ),
        (page(&["/x/1.jpg"], ""), "the key `/x/1.jpg` has an empty part in it"),
    ] {
        let (at, _) = server(move |number, _| match number {
            0 => page(&["x/a", "x/b"], &format!("{more}{next}")),
            _ => second.clone(),
        });
        let text = one_line(&listed("s3://data/x", &options(at)).unwrap_err());
        assert!(text.contains(words), "{text}");
    }
    let (at, _) = server(move |number, _| match number {
        0 => page(&["x/a", "x/b"], &format!("{more}{next}")),
        _ => page(&["x/c"], "<IsTruncated>false</IsTruncated>"),
    });
    assert_eq!(listed("s3://data/x", &options(at)).unwrap(), ["a", "b", "c"]);
}

/// Minutes of listing were lost when a store limited requests for ten seconds.
#[test]
fn a_listing_that_has_begun_outlives_a_longer_failure() {
    let began = Instant::now();
    let (at, _) = server(move |_, line| match line.contains("continuation-token=2") {
        false => {
            let more = "<IsTruncated>true</IsTruncated>";
            let next = "<NextContinuationToken>2</NextContinuationToken>";
            page(&["x/a", "x/b"], &format!("{more}{next}"))
        }
        true if began.elapsed() < Duration::from_secs(11) => {
            s3_error(line, "503 Slow Down", "SlowDown")
        }
        true => page(&["x/c"], "<IsTruncated>false</IsTruncated>"),
    });
    assert_eq!(listed("s3://data/x", &options(at)).unwrap(), ["a", "b", "c"]);
    let (at, _) = server(|_, line| s3_error(line, "503 Slow Down", "SlowDown"));
    let mut attempts_left = 4;
    loop {
        let began = Instant::now();
        let error = listed("s3://data/x", &options(at)).unwrap_err();
        let took = began.elapsed();
        let is_late = matches!(error, StorageError::TimedOut { .. });
        let is_throttled = matches!(error, StorageError::Throttled { .. });
        assert!(is_late || is_throttled, "{error}");
        if is_throttled && took < Duration::from_secs(10) {
            break;
        }
        // A busy machine may be late with the last answer, but not each time.
        attempts_left -= 1;
        assert!(attempts_left > 0, "{error}, after {took:?}");
    }
}

#[test]
fn a_key_that_cannot_be_a_files_name_is_named() {
    for (key, shown, what) in [
        ("x/cat//1.jpg", "x/cat//1.jpg", "an empty part, `.` or `..`"),
        ("x/../1.jpg", "x/../1.jpg", "an empty part, `.` or `..`"),
        ("x/a&#10;b.jpg", "x/a\\nb.jpg", "a control character"),
        ("x/cat/", "x/cat/", "ends in `/` and has bytes"),
    ] {
        let (at, _) = server(move |_, _| page(&["x/cat/0.jpg", key, "x/dog/0.jpg"], ""));
        let text = one_line(&listed("s3://data/x", &options(at)).unwrap_err());
        let what = if what.starts_with("ends") {
            what.to_owned()
        } else {
            format!("has {what} in it")
        };
        let named = format!("`s3://data/x`: the key `{shown}` {what}, so");
        assert!(text.contains(&named), "{text}");
        assert!(text.contains("; rename or remove this object, or give the"), "{text}");
    }
}

#[test]
fn a_broken_answer_is_told_and_not_repeated() {
    let head = "HTTP/1.1 206 Cut\r\nContent-Range: bytes 2-5/9\r\nETag: \"1\"\r\n\
                Last-Modified: Thu, 01 Jan 1970 00:00:09 GMT\r\nContent-Length: 4\r\n\r\nab";
    let (at, asked) = server(move |_, _| head.as_bytes().to_vec());
    for url in ["s3://data/x".to_owned(), format!("http://{at}/x")] {
        let before = asked.load(Ordering::SeqCst);
        let error = fetch(open(&url, &options(at))).unwrap_err();
        assert!(matches!(error, StorageError::Broken { .. }), "{error}");
        assert!(error.is_transient());
        assert!(one_line(&error).contains("/x/a` broke off"), "{error}");
        assert_eq!(asked.load(Ordering::SeqCst) - before, 1);
    }
}

#[test]
fn an_answer_of_another_length_than_it_says_is_no_short_object() {
    for (range, body, is_expected) in [
        ("2-5/9", "ab", (|e| matches!(e, StorageError::Broken { .. })) as fn(&_) -> bool),
        ("2-5/9", "abcdef", |e| matches!(e, StorageError::Refused { .. })),
        ("2-2/3", "a", |e| matches!(e, StorageError::TooShort { end: 6, .. })),
    ] {
        let headers = format!(
            "Content-Range: bytes {range}\r\nETag: \"1\"\r\n\
             Last-Modified: Thu, 01 Jan 1970 00:00:09 GMT\r\n"
        );
        let (at, _) = server(move |_, _| answer("206 Partial", &headers, body));
        for url in ["s3://data/x".to_owned(), format!("http://{at}/x")] {
            let error = fetch(open(&url, &options(at))).unwrap_err();
            assert!(is_expected(&error), "{url}, {range}, {body}: {error}");
        }
    }
}

#[test]
fn a_list_that_is_not_there_is_named() {
    let (at, asked) = server(|_, line| match line.contains("/a%20b.jsonl ") {
        true => answer("200 OK", "", "0123"),
        false => answer("404 Not Found", "", ""),
    });
    let url = format!("http://{at}/x/mistyped.jsonl");
    let error = bothends_storage::around(&url, &Options::default()).unwrap_err();
    assert!(one_line(&error).contains(&format!("there is no `{url}`")), "{error}");
    let url = format!("http://{at}/x/a%20b.jsonl");
    let (_, file) = bothends_storage::around(&url, &Options::default()).unwrap();
    assert_eq!((&*file, asked.load(Ordering::SeqCst)), ("a b.jsonl", 2));
}

#[test]
fn a_server_that_ignores_ranges_or_redirects_is_named() {
    let (at, _) = server(|_, _| answer("200 OK", "", "0123456789"));
    let error = one_line(
        &fetch(open(&format!("http://{at}/x"), &Options::default())).unwrap_err(),
    );
    assert!(
        error.contains("does not serve ranges of a file; use one that does"),
        "{error}"
    );
    let (at, _) =
        server(|_, _| answer("302 Found", "Location: http://elsewhere/\r\n", ""));
    let error = one_line(
        &fetch(open(&format!("http://{at}/x"), &Options::default())).unwrap_err(),
    );
    assert!(error.contains("redirects to another address; give that one"), "{error}");
    let packed = "Content-Encoding: gzip\r\nContent-Range: bytes 2-5/9\r\n";
    let (at, _) = server(move |_, _| answer("206 Partial", packed, "2345"));
    let error = one_line(
        &fetch(open(&format!("http://{at}/x"), &Options::default())).unwrap_err(),
    );
    assert!(error.contains("compresses it (Content-Encoding); switch"), "{error}");
}

#[test]
fn no_host_and_no_trust_are_told() {
    let options = Options { anonymous: true, ..Options::default() };
    let error = fetch(open("http://no-such-host.invalid/x", &options)).unwrap_err();
    let text = one_line(&error);
    assert!(
        text.starts_with("cannot reach no-such-host.invalid:80 for `http://no"),
        "{text}"
    );
    let Certified { key, folder, ca_file } = certified("localhost");
    let at = secured(&key);
    let url = format!("https://localhost:{}/x", at.port());
    let error = one_line(&fetch(open(&url, &options)).unwrap_err());
    let start = format!("no trusted TLS connection with localhost:{} for", at.port());
    assert!(error.starts_with(&start) && error.contains("UnknownIssuer"), "{error}");
    assert!(error.contains("or give the server's CA certificate"), "{error}");
    let trusting = Options { ca_file: Some(ca_file), ..options.clone() };
    assert_eq!(fetch(open(&url, &trusting)).unwrap(), "2345");
    // As `openssl req -x509` makes it.
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let signing_key = rcgen::KeyPair::generate().unwrap();
    let cert = params.self_signed(&signing_key).unwrap();
    let ca_file = folder.path().join("as-ca.pem");
    std::fs::write(&ca_file, cert.pem()).unwrap();
    let at = secured(&rcgen::CertifiedKey { cert, signing_key });
    let url_of_ca = format!("https://localhost:{}/x", at.port());
    let trusting = Options { ca_file: Some(ca_file), ..options.clone() };
    let error = one_line(&fetch(open(&url_of_ca, &trusting)).unwrap_err());
    assert!(error.contains("is that of a CA; make one with"), "{error}");
    let gone = Options { ca_file: Some(folder.path().join("gone")), ..options };
    let error = one_line(&fetch(open(&url, &gone)).unwrap_err());
    assert!(error.contains("cannot use the CA file"), "{error}");
}

#[test]
fn a_tls_handshake_that_breaks_off_may_be_tried_again() {
    // Closes as soon as the first bytes of a handshake have come.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().read(&mut [0; 4096]);
        }
    });
    let url = format!("https://127.0.0.1:{port}/x");
    let error = fetch(open(&url, &Options::default())).unwrap_err();
    assert!(error.is_transient(), "{error}");
    let text = one_line(&error);
    assert!(text.contains("(the TLS handshake broke off: "), "{text}");
}

#[test]
fn a_line_break_at_the_end_of_a_setting_does_not_count() {
    let found = "HTTP/1.1 206 Part\r\nContent-Range: bytes 2-5/9\r\nContent-Length: 4\r\n\
                 Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n2345";
    let (at, _) = server(move |_, _| found.as_bytes().to_vec());
    let mut options = options(at);
    options.variables.insert("AWS_REGION".to_owned(), "eu-west-1".to_owned());
    for value in options.variables.values_mut() {
        value.push('\n');
    }
    assert_eq!(fetch(open("s3://data/x", &options)).unwrap(), "2345");
}

#[test]
fn nothing_shows_a_credential() {
    let (at, _) = server(|_, line| s3_error(line, "400 Bad", "Odd"));
    let options = options(at);
    for url in ["s3://data/x", "redis://:s3cret@host/0", "gs://data/x"] {
        let found = Location::parse(url, &options).unwrap();
        let shown = format!("{found:?} {:?} {options:?}", found.open());
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}

#[test]
fn a_location_is_split_at_its_last_name() {
    for (url, above, name) in [
        ("s3://data/x/list.jsonl", "s3://data/x/a", "list.jsonl"),
        ("s3://data/list.jsonl", "s3://data/a", "list.jsonl"),
        ("http://host/x/list.jsonl", "http://host/x/a", "list.jsonl"),
        ("http://host/x/a%20b%40c.jsonl", "http://host/x/a", "a b@c.jsonl"),
        ("/data/list.jsonl", "/data/a", "list.jsonl"),
    ] {
        let found = Location::parse(url, &Options::default()).unwrap();
        let (around, last) = found.around().unwrap();
        assert_eq!((&*around.open().unwrap().shown("a"), &*last), (above, name));
    }
    for url in ["s3://data", "http://host", "redis://host/0"] {
        let found = Location::parse(url, &Options::default()).unwrap();
        assert!(found.around().is_none(), "{url}");
    }
}

/// Bytes of a slow answer, and of one part of it.
const SLOW: usize = 30 * PART;
const PART: usize = 16 << 10;

/// Once a request ends in `end`, answers `head`, then a part every 250 ms, the first `n_parts` of 30: then it says
/// nothing more.
fn slow_server(end: &'static [u8], head: String, n_parts: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut request, mut byte) = (Vec::new(), [0]);
        while !request.ends_with(end) {
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        stream.write_all(head.as_bytes()).unwrap();
        for _ in 0..n_parts {
            thread::sleep(Duration::from_millis(250));
            stream.write_all(&[7; PART]).unwrap();
        }
        if n_parts * PART == SLOW && end == REDIS_END {
            stream.write_all(b"\r\n").unwrap();
        }
        // Until whoever asks has gone.
        let _ = stream.read(&mut byte);
    });
    at
}

/// The last byte of the range, with which the request ends.
const REDIS_END: &[u8] = b"\r\n491519\r\n";

fn slow_http(n_parts: usize) -> String {
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-{}/{SLOW}\r\n\
         ETag: \"1\"\r\nContent-Length: {SLOW}\r\n\r\n",
        SLOW - 1
    );
    format!("http://{}/x", slow_server(b"\r\n\r\n", head, n_parts))
}

fn slow_redis(n_parts: usize) -> String {
    let head = format!("${SLOW}\r\n");
    format!("redis://{}/0", slow_server(REDIS_END, head, n_parts))
}

#[test]
fn a_slow_answer_is_waited_for_and_one_that_stops_is_not() {
    thread::scope(|scope| {
        for (n_parts, timeout) in [(30, 5), (3, 3)] {
            let timeout = Duration::from_secs(timeout);
            for url in [slow_http(n_parts), slow_redis(n_parts)] {
                scope.spawn(move || ask_slow_server(&url, n_parts, timeout));
            }
        }
    });
}

fn ask_slow_server(url: &str, n_parts: usize, timeout: Duration) {
    let mut fetcher = Fetcher::start(open(url, &Options::default()), ONE).unwrap();
    let (object, range) = ("a".into(), 0..SLOW as u64);
    fetcher.submit(Fetch { tag: 1, object, range, expected: None, timeout });
    let (mut heard, mut n_times) = (0, 0);
    let fetched = loop {
        if let Some(fetched) = fetcher.poll(Duration::from_millis(20)) {
            break fetched;
        }
        let parts = fetcher.heard(1);
        n_times += usize::from(parts > heard);
        heard = parts;
    };
    let is_part = heard <= n_parts as u64;
    assert!(n_times > 0 && is_part, "{url}: {n_times} times, {heard} parts");
    match fetched.result {
        Ok(bytes) => assert_eq!((n_parts, &bytes[..]), (30, &[7; SLOW][..])),
        Err(error) => {
            assert!(matches!(error, StorageError::TimedOut { .. }), "{error}");
            assert_eq!(n_parts, 3, "{error}");
        }
    }
}

/// Somebody else's connections, or ours: fewer requests at a time, and not the end of the run.
#[test]
fn a_redis_server_with_too_many_clients_is_asked_less() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/0", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"-ERR max number of clients reached\r\n").unwrap();
        // Closed at once, the answer might be lost with what has not been read.
        let _ = stream.read(&mut [0; 256]);
    });
    let error = fetch(open(&url, &Options::default())).unwrap_err();
    assert!(matches!(error, StorageError::Throttled { .. }), "{error}");
    server.join().unwrap();
}
