//! A double of a Redis server, for what no real one says when it is asked to.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

mod script;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bothends_dataset::Storage as _;
use bothends_storage::{Options, StorageError, View};

use script::{one_line, open};

/// Answers each command with what `answer` gives for its number and words; closes where that is empty.
fn server(
    answer: impl Fn(usize, &[&str]) -> Vec<u8> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (answer, n_asked) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, n_asked) = (Arc::clone(&answer), Arc::clone(&n_asked));
            thread::spawn(move || serve(stream.unwrap(), &*answer, &n_asked));
        }
    });
    at
}

fn serve(
    stream: TcpStream,
    answer: &dyn Fn(usize, &[&str]) -> Vec<u8>,
    n_asked: &AtomicUsize,
) {
    let mut reading = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(words) = command(&mut reading) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let bytes = answer(n_asked.fetch_add(1, Ordering::SeqCst), &words);
        if bytes.is_empty() || stream.write_all(&bytes).is_err() {
            return;
        }
    }
}

fn command(reading: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut number = |kind: char| {
        let mut line = String::new();
        reading.read_line(&mut line).ok()?;
        let n = line.strip_prefix(kind)?.trim().parse::<usize>().ok()?;
        let mut text = vec![0; if kind == '$' { n + 2 } else { 0 }];
        reading.read_exact(&mut text).ok()?;
        text.truncate(n);
        Some((n, String::from_utf8(text).unwrap()))
    };
    let (n_words, _) = number('*')?;
    (0..n_words).map(|_| number('$').map(|(_, word)| word)).collect()
}

/// A database with the value `abcd` of one key; `cluster` answers to CLUSTER INFO, and `other` for the lengths of all
/// other keys.
fn database(
    cluster: impl Fn(usize) -> Vec<u8> + Send + Sync + 'static,
    other: &'static [u8],
) -> SocketAddr {
    let n_asked = AtomicUsize::new(0);
    server(move |_, words| match words {
        ["SCAN", ..] => b"*2\r\n$1\r\n0\r\n*1\r\n$5\r\nx/abc\r\n".to_vec(),
        ["CLUSTER", ..] => cluster(n_asked.fetch_add(1, Ordering::SeqCst)),
        ["STRLEN", "x/abc"] => b":4\r\n".to_vec(),
        ["STRLEN", key] if key.starts_with("x/") => other.to_vec(),
        _ => b"-ERR unexpected\r\n".to_vec(),
    })
}

fn listed(at: SocketAddr) -> Result<usize, StorageError> {
    let view =
        View::start(open(&format!("redis://{at}/0?prefix=x/"), &Options::default()))
            .unwrap();
    let listed = view.list("").map(|entries| entries.len());
    listed.map_err(|error| StorageError::of(&error).unwrap())
}

const NOPERM: &[u8] =
    b"-NOPERM User reader has no permissions to run the 'cluster|info' command\r\n";
const NONE: &[u8] = b":0\r\n";

/// Its keys were silently taken for the whole data set.
#[test]
fn a_node_of_a_cluster_is_refused_also_where_it_does_not_say_that_it_is_one() {
    let moved = b"-MOVED 3999 127.0.0.1:6381\r\n";
    for refusal in [NOPERM, b"-ERR no such thing\r\n", b"$3\r\nodd\r\n"] {
        let error = listed(database(move |_| refusal.to_vec(), moved)).unwrap_err();
        assert!(one_line(&error).contains("is part of a cluster"), "{error}");
    }
    let info = b"$37\r\ncluster_enabled:1\r\ncluster_size:3\r\n\r\n\r\n";
    for first in [&b""[..], b"-LOADING loading the dataset in memory\r\n"] {
        let cluster = move |number| if number < 2 { first } else { info }.to_vec();
        let error = listed(database(cluster, NONE)).unwrap_err();
        assert!(one_line(&error).contains("is part of a cluster"), "{error}");
    }
    let error = listed(database(|_| NOPERM.to_vec(), NOPERM)).unwrap_err();
    assert!(one_line(&error).contains("allow the user CLUSTER INFO"), "{error}");
}

#[test]
fn a_server_by_itself_is_listed_whatever_its_user_may_ask() {
    for answer in [
        NOPERM,
        b"-ERR This instance has cluster support disabled\r\n",
        b"-ERR unknown command 'CLUSTER', with args beginning with: 'INFO'\r\n",
        b"$16\r\ncluster_size:1\r\n\r\n",
    ] {
        assert_eq!(listed(database(move |_| answer.to_vec(), NONE)).unwrap(), 1);
    }
}
