//! The stores over real servers: SeaweedFS speaks S3 and HTTP, Valkey the language of Redis. Where they are
//! not installed, a skip is printed.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "these functions are all tests; a panic is the report, and skips must be seen"
)]

#[path = "../../../tests/src/servers.rs"]
#[allow(dead_code, unreachable_pub, reason = "it serves other tests, too")]
mod servers;

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bothends_storage::conformance::{Marks, Subject, all};
use bothends_storage::{Fetch, Fetcher, Location, Objects, Options, StorageError, View};
use servers::{BUCKET, KEYS, WEAK_KEYS, put, redis, seaweedfs, valkey};

fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let encode = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(encode).collect()
}

fn options(endpoint: &str, keys: Option<(&str, &str)>) -> Options {
    let mut options = Options {
        endpoint: Some(endpoint.to_owned()),
        anonymous: keys.is_none(),
        ..Options::default()
    };
    if let Some((id, secret)) = keys {
        options.variables.insert("AWS_ACCESS_KEY_ID".into(), id.into());
        options.variables.insert("AWS_SECRET_ACCESS_KEY".into(), secret.into());
    }
    options
}

fn open(url: &str, options: &Options) -> Arc<dyn Objects> {
    Location::parse(url, options).unwrap().open().unwrap()
}

/// What asking for an identity fails with.
fn refusal(objects: Arc<dyn Objects>) -> StorageError {
    let view = View::start(objects).unwrap();
    let error = view.identity("a").unwrap_err();
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.contains("s3cret"), "{text}");
    error
}

#[test]
fn s3_keeps_the_contract_and_says_what_is_wrong() {
    let Some(server) = seaweedfs("S3 over SeaweedFS").unwrap() else { return };
    let (at, endpoint) = (server.at, format!("http://{}", server.at));
    for (folder, keys) in [("open", None), ("signed/deep", Some(KEYS))] {
        let objects = open(&format!("s3://{BUCKET}/{folder}"), &options(&endpoint, keys));
        let put = move |name: &str, bytes: &[u8]| {
            put(at, &format!("/{BUCKET}/{folder}/{}", encoded(name)), bytes).unwrap();
        };
        all(&Subject { objects, put: Box::new(put), marks: Marks::Versions });
    }
    let url = format!("s3://{BUCKET}/open");
    for (url, keys, words) in [
        (&*url, (KEYS.0, "s3cret wrong"), "SignatureDoesNotMatch); check the access key"),
        (&*url, ("nobody", "s3cret"), "InvalidAccessKeyId); check the access key"),
        (&*url, WEAK_KEYS, "AccessDenied); give these credentials the right"),
        (
            "s3://no-such-bucket/x",
            KEYS,
            "there is no bucket for `s3://no-such-bucket/x/a`",
        ),
        (&*url, KEYS, "there is no `s3://imgs/open/a`; is the location right"),
    ] {
        let error = refusal(open(url, &options(&endpoint, Some(keys)))).to_string();
        assert!(error.contains(words), "{error}");
    }
    drop(server);
    let error = refusal(open(&url, &options(&endpoint, None)));
    assert!(matches!(error, StorageError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&at.to_string()), "{error}");
}

#[test]
fn http_keeps_the_contract_with_a_file_that_names_the_others() {
    let Some(server) = seaweedfs("HTTP over SeaweedFS").unwrap() else { return };
    let at = server.at;
    let url = format!("http://{at}/{BUCKET}/web");
    let options = Options { list: Some("list.txt".to_owned()), ..Options::default() };
    let objects = open(&url, &options);
    let names = Mutex::new(std::collections::BTreeSet::new());
    let put = move |name: &str, bytes: &[u8]| {
        put(at, &format!("/{BUCKET}/web/{}", encoded(name)), bytes).unwrap();
        let mut names = names.lock().unwrap();
        names.insert(name.to_owned());
        let lines: Vec<_> = names.iter().cloned().collect();
        put(at, &format!("/{BUCKET}/web/list.txt"), lines.join("\n").as_bytes()).unwrap();
    };
    all(&Subject { objects, put: Box::new(put), marks: Marks::Versions });
    let view = View::start(open(&url, &Options::default())).unwrap();
    let error = bothends_dataset::Storage::list(&view, "").unwrap_err().to_string();
    assert!(
        error.contains("give the URL of a list (`.jsonl`) or of a single shard"),
        "{error}"
    );
}

#[test]
fn redis_keeps_the_contract_and_says_what_is_wrong() {
    let Some(server) = valkey("Redis over Valkey").unwrap() else { return };
    let at = server.at;
    let url = format!("redis://{at}/0?prefix=train%2A/");
    let objects = open(&url, &Options::default());
    let put = move |name: &str, bytes: &[u8]| {
        redis(at, &[b"SET", format!("train*/{name}").as_bytes(), bytes]).unwrap();
    };
    put("numbers", b"0123");
    put("secret", b"0123");
    redis(at, &[b"LPUSH", b"train*/no-string", b"x"]).unwrap();
    redis(at, &[b"SET", b"trainer/of another prefix", b"x"]).unwrap();
    let subject = Subject { objects, put: Box::new(put), marks: Marks::Lengths };
    all(&subject);
    a_value_that_is_gone_is_not_found(at, &url);
    let view = View::start(subject.objects).unwrap();
    let error = view.identity("no-string").unwrap_err().to_string();
    assert!(
        error.contains("key train*/no-string`: the key does not hold a string"),
        "{error}"
    );
    redis(at, &[b"ACL", b"SETUSER", b"reader", b"on", b">own", b"~*", b"+@all"]).unwrap();
    redis(at, &[b"SWAPDB", b"0", b"1"]).unwrap();
    redis(at, &[b"CONFIG", b"SET", b"requirepass", b"right"]).unwrap();
    for login in ["", ":s3cret@", "user:s3cret@"] {
        let url = format!("redis://{login}{at}/0");
        let error = refusal(open(&url, &Options::default())).to_string();
        assert!(error.contains("give the password in REDISCLI_AUTH"), "{error}");
    }
    let mut options = Options::default();
    options.variables.insert("REDISCLI_AUTH".to_owned(), "right".to_owned());
    for login in ["", "reader:own@"] {
        let url = format!("redis://{login}{at}/1?prefix=train%2A/");
        let mut fetcher =
            Fetcher::start(open(&url, &options), NonZero::<usize>::MIN).unwrap();
        let (object, range) = ("secret".into(), 1..3);
        let timeout = Duration::from_secs(60);
        fetcher.submit(Fetch { tag: 1, object, range, expected: None, timeout });
        let fetched = fetcher.poll(timeout).unwrap();
        assert_eq!(fetched.result.unwrap(), "12", "{login}");
    }
    let error = refusal(open(&format!("redis://{at}/0"), &options));
    assert!(matches!(error, StorageError::NotFound { .. }), "{error}");
    drop(server);
    let error = refusal(open(&format!("redis://{at}/0"), &options));
    assert!(matches!(error, StorageError::Unreachable { .. }), "{error}");
}

/// It was listed, and is asked for as a whole.
fn a_value_that_is_gone_is_not_found(at: std::net::SocketAddr, url: &str) {
    redis(at, &[b"SET", b"train*/evicted", b"0123"]).unwrap();
    let objects = open(url, &Options::default());
    let view = View::start(objects.clone()).unwrap();
    let expected = Some(view.identity("evicted").unwrap());
    redis(at, &[b"DEL", b"train*/evicted"]).unwrap();
    let mut fetcher = Fetcher::start(objects, NonZero::<usize>::MIN).unwrap();
    let (object, range) = ("evicted".into(), 0..4);
    let timeout = Duration::from_secs(60);
    fetcher.submit(Fetch { tag: 1, object, range, expected, timeout });
    let error = fetcher.poll(timeout).unwrap().result.unwrap_err();
    assert!(matches!(error, StorageError::NotFound { .. }), "{error}");
}

/// As `bothends upload` writes a list next to the samples of shards.
#[test]
fn one_key_of_redis_is_named_by_a_prefix_that_is_its_name() {
    let Some(server) = valkey("one key of Redis").unwrap() else { return };
    let at = server.at;
    for (key, text) in
        [("set/a 1/samples.jsonl", "{}"), ("top.tar", "x"), ("img.d/1", "x")]
    {
        redis(at, &[b"SET", key.as_bytes(), text.as_bytes()]).unwrap();
    }
    for (prefix, file) in [
        ("set/a%201/samples.jsonl", "samples.jsonl"),
        ("top.tar", "top.tar"),
        ("img.d", ""),
        ("set/", ""),
    ] {
        let url = format!("redis://{at}/0?prefix={prefix}");
        let (view, found) = bothends_storage::around(&url, &Options::default()).unwrap();
        assert_eq!(found, file, "{prefix}");
        if !file.is_empty() {
            view.identity(file).unwrap();
        }
    }
}

/// A node of a cluster of so many; it has a key.
fn node(n_nodes: usize) -> std::net::SocketAddr {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let info = format!("cluster_state:ok\r\ncluster_size:{n_nodes}\r\n");
    let serve = move |mut stream: std::net::TcpStream| {
        for line in BufReader::new(stream.try_clone().unwrap()).lines() {
            let answer = match line.unwrap_or_default().as_str() {
                "INFO" => format!("${}\r\n{info}\r\n", info.len()),
                "SCAN" => "*2\r\n$1\r\n0\r\n*1\r\n$1\r\na\r\n".to_owned(),
                "STRLEN" => ":4\r\n".to_owned(),
                _ => continue,
            };
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream.unwrap()));
        }
    });
    at
}

#[test]
fn a_part_of_a_cluster_is_not_taken_for_the_data_set() {
    let open_node =
        |n_nodes| open(&format!("redis://{}/0", node(n_nodes)), &Options::default());
    let view = View::start(open_node(2)).unwrap();
    let error = bothends_dataset::Storage::list(&view, "").unwrap_err().to_string();
    assert!(error.contains("is part of a cluster, which is not supported"), "{error}");
    let view = View::start(open_node(1)).unwrap();
    assert_eq!(bothends_dataset::Storage::list(&view, "").unwrap().len(), 1);
}

/// Answers with the length of a value on none but the second connection.
fn half_dead() -> std::net::SocketAddr {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let serve = |number: usize, stream: std::net::TcpStream| {
        let mut stream = stream;
        for line in BufReader::new(stream.try_clone().unwrap()).lines() {
            let answer: &[u8] = match line.unwrap_or_default().as_str() {
                "STRLEN" if number > 0 => b":4\r\n",
                _ => b"",
            };
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    };
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            std::thread::spawn(move || serve(number, stream.unwrap()));
        }
    });
    at
}

#[test]
fn a_connection_to_redis_that_is_silent_is_replaced() {
    let url = format!("redis://{}/0", half_dead());
    let view = View::start(open(&url, &Options::default())).unwrap();
    assert_eq!(view.identity("a").unwrap().len, 4);
}

/// An HTTP server that answers the first request of each connection, and no other: as behind a router that has
/// forgotten a connection. And how many connections it had.
fn forgetful() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let serve = |mut stream: std::net::TcpStream| {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut ends = lines.filter(|line| line.as_ref().is_ok_and(String::is_empty));
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: \"1\"\r\n\r\n";
        if ends.next().is_some() && stream.write_all(head.as_bytes()).is_ok() {
            ends.for_each(drop);
        }
    };
    let n_connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&n_connections);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || serve(stream.unwrap()));
        }
    });
    (at, n_connections)
}

#[test]
fn a_kept_connection_over_http_that_is_silent_is_replaced() {
    let (at, n_connections) = forgetful();
    let objects = open(&format!("http://{at}/data/"), &Options::default());
    let view = View::start(objects).unwrap();
    assert_eq!(view.identity("a").unwrap().len, 4);
    assert_eq!(n_connections.load(Ordering::SeqCst), 1);
    assert_eq!(view.identity("b").unwrap().len, 4);
    assert_eq!(n_connections.load(Ordering::SeqCst), 2);
}

#[test]
fn a_redis_server_that_is_not_ready_is_not_said_to_want_fewer_requests() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut request = [0; 512];
        while stream.read(&mut request).is_ok_and(|n| n > 0) {
            let loading = b"-LOADING Redis is loading the dataset in memory\r\n";
            stream.write_all(loading).unwrap();
        }
    });
    let objects = open(&format!("redis://{at}/0"), &Options::default());
    let mut fetcher = Fetcher::start(objects, NonZero::<usize>::MIN).unwrap();
    let (object, timeout) = ("a".into(), Duration::from_secs(60));
    fetcher.submit(Fetch { tag: 1, object, range: 0..4, expected: None, timeout });
    let error = fetcher.poll(timeout).unwrap().result.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    assert!(error.to_string().contains("LOADING: it is not ready"), "{error}");
}
