//! Connections that are kept: closed by the server, forgotten on the way, used for long.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

mod script;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use bothends_storage::{Fetch, Fetcher, Options, StorageError, View};

use script::{ONE, PATIENCE, answer, open};

/// A server may close a connection at any time: what is asked on it then is asked on another one.
#[test]
fn a_connection_to_redis_that_was_closed_is_opened_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/0", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        for _ in 0..3 {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut request, mut byte) = (Vec::new(), [0]);
            while !request.ends_with(b"\r\n1\r\n") {
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            stream.write_all(b"$2\r\nab\r\n").unwrap();
        }
    });
    let mut fetcher = Fetcher::start(open(&url, &Options::default()), ONE).unwrap();
    for tag in 0..3 {
        let (object, range) = ("a".into(), 0..2);
        let timeout = PATIENCE;
        fetcher.submit(Fetch { tag, object, range, expected: None, timeout });
        assert_eq!(fetcher.poll(PATIENCE).unwrap().result.unwrap(), "ab");
    }
    server.join().unwrap();
}

/// A server of `GET` or `GETRANGE`, whose connections are forgotten whenever the number changes that is returned: what is
/// asked on them then is not answered. The first `n_first` requests are answered once all of them have come.
fn forgetful(
    end: &'static [u8],
    answer: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
    n_first: usize,
) -> Forgetful {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let epoch = Arc::new(AtomicUsize::new(0));
    let (now, answer) = (Arc::clone(&epoch), Arc::new(answer));
    thread::spawn(move || {
        let first = Arc::new(Barrier::new(n_first));
        for stream in listener.incoming() {
            let (mut stream, now) = (stream.unwrap(), Arc::clone(&now));
            let (answer, first) = (Arc::clone(&answer), Arc::clone(&first));
            let epoch = now.load(Ordering::SeqCst);
            thread::spawn(move || {
                let (mut request, mut byte, mut n) = (Vec::new(), [0], 0);
                while stream.read(&mut byte).is_ok_and(|n| n == 1) {
                    request.push(byte[0]);
                    let is_known = now.load(Ordering::SeqCst) == epoch;
                    if request.ends_with(end) && is_known {
                        if epoch == 0 && n == 0 {
                            first.wait();
                        }
                        stream.write_all(&answer(&request)).unwrap();
                        request.clear();
                        n += 1;
                    }
                }
            });
        }
    });
    (at, epoch)
}

type Forgetful = (SocketAddr, Arc<AtomicUsize>);

fn forgetful_http(n_first: usize) -> (String, Arc<AtomicUsize>) {
    let about = "ETag: \"1\"\r\nContent-Range: bytes 2-5/6\r\n";
    let answer = |request: &[u8]| match request.starts_with(b"HEAD") {
        true => b"HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 6\r\n\r\n".to_vec(),
        false => answer("206 Partial Content", about, "2345"),
    };
    let (at, epoch) = forgetful(b"\r\n\r\n", answer, n_first);
    (format!("http://{at}/x"), epoch)
}

/// Each retry met the next of the dead connections.
#[test]
fn connections_that_were_forgotten_are_tried_once() {
    const N: usize = 4;
    let redis = || {
        let (at, epoch) = forgetful(b"\r\n5\r\n", |_| b"$4\r\n2345\r\n".to_vec(), N);
        (format!("redis://{at}/0"), epoch)
    };
    for (url, epoch) in [forgetful_http(N), redis()] {
        let mut fetcher = Fetcher::start(open(&url, &Options::default()), ONE).unwrap();
        let fetch = |tag, timeout| {
            let (object, range) = ("a".into(), 2..6);
            Fetch { tag, object, range, expected: None, timeout }
        };
        for tag in 0..N as u64 {
            fetcher.submit(fetch(tag, PATIENCE));
        }
        for _ in 0..N {
            assert_eq!(fetcher.poll(PATIENCE).unwrap().result.unwrap(), "2345");
        }
        epoch.fetch_add(1, Ordering::SeqCst);
        fetcher.submit(fetch(0, Duration::from_millis(1500)));
        let error = fetcher.poll(PATIENCE).unwrap().result.unwrap_err();
        assert!(matches!(error, StorageError::TimedOut { .. }), "{error}");
        fetcher.submit(fetch(0, PATIENCE / 10));
        assert_eq!(fetcher.poll(PATIENCE).unwrap().result.unwrap(), "2345", "{url}");
    }
}

/// The same of one that falls silent in the middle of its answer.
#[test]
fn an_answer_that_breaks_off_without_a_word_tells_of_other_connections() {
    let (listener, first) = (TcpListener::bind("127.0.0.1:0").unwrap(), Barrier::new(3));
    let (at, first) = (listener.local_addr().unwrap(), Arc::new(first));
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (mut stream, first) = (stream.unwrap(), Arc::clone(&first));
            thread::spawn(move || {
                let (mut request, mut byte, mut n) = (Vec::new(), [0], 0);
                while stream.read(&mut byte).is_ok_and(|n| n == 1) {
                    request.push(byte[0]);
                    if !request.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    let about = "ETag: \"1\"\r\nContent-Range: bytes 2-5/6\r\n";
                    let answer = answer("206 Partial Content", about, "2345");
                    if number < 3 && n == 0 {
                        first.wait();
                    }
                    // Each of the first three answers once, begins a second answer, and is mute.
                    let is_cut = number < 3 && n == 1;
                    let n_bytes = answer.len() - if is_cut { 2 } else { 0 };
                    let is_mute = number < 3 && n > 1;
                    if !is_mute {
                        stream.write_all(&answer[..n_bytes]).unwrap();
                    }
                    request.clear();
                    n += 1;
                }
            });
        }
    });
    let objects = open(&format!("http://{at}/x"), &Options::default());
    let mut fetcher = Fetcher::start(objects, ONE).unwrap();
    let fetch = |tag, timeout| {
        let (object, range) = ("a".into(), 2..6);
        Fetch { tag, object, range, expected: None, timeout }
    };
    for tag in 0..3 {
        fetcher.submit(fetch(tag, PATIENCE));
    }
    for _ in 0..3 {
        assert_eq!(fetcher.poll(PATIENCE).unwrap().result.unwrap(), "2345");
    }
    fetcher.submit(fetch(0, Duration::from_millis(1500)));
    let error = fetcher.poll(PATIENCE).unwrap().result.unwrap_err();
    assert!(matches!(error, StorageError::TimedOut { .. }), "{error}");
    fetcher.submit(fetch(0, PATIENCE / 10));
    assert_eq!(fetcher.poll(PATIENCE).unwrap().result.unwrap(), "2345");
}

/// A shard's header on a connection that a router had forgotten was the end of the run.
#[test]
fn a_late_read_of_a_view_is_tried_again_on_a_new_connection() {
    let (url, epoch) = forgetful_http(1);
    let view = View::start(open(&url, &Options::default())).unwrap();
    view.identity("a").unwrap();
    epoch.fetch_add(1, Ordering::SeqCst);
    let mut bytes = [0; 4];
    bothends_dataset::Storage::read(&view, "a", 2, &mut bytes).unwrap();
    assert_eq!(&bytes, b"2345");
}

/// All requests of a run stayed with the front ends that its first ones had found.
#[test]
fn a_connection_is_replaced_after_many_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let n_connections = Arc::new(AtomicUsize::new(0));
    let n = Arc::clone(&n_connections);
    thread::spawn(move || {
        for stream in listener.incoming() {
            n.fetch_add(1, Ordering::SeqCst);
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let (mut request, mut some) = (Vec::new(), [0; 4096]);
                while let Ok(n @ 1..) = stream.read(&mut some) {
                    request.extend(&some[..n]);
                    if request.ends_with(b"\r\n\r\n") {
                        request.clear();
                        let about = "ETag: \"1\"\r\nContent-Range: bytes 2-5/6\r\n";
                        let answer = answer("206 Partial Content", about, "2345");
                        stream.write_all(&answer).unwrap();
                    }
                }
            });
        }
    });
    let objects = open(&format!("http://{at}/x"), &Options::default());
    let mut fetcher = Fetcher::start(objects, ONE).unwrap();
    for tag in 0..1300 {
        let (object, range, timeout) = ("a".into(), 2..6, PATIENCE);
        fetcher.submit(Fetch { tag, object, range, expected: None, timeout });
        assert_eq!(fetcher.poll(PATIENCE).unwrap().result.unwrap(), "2345");
    }
    let n_connections = n_connections.load(Ordering::SeqCst);
    assert!((2..=4).contains(&n_connections), "{n_connections}");
}
