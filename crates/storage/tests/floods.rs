//! Servers that answer without end: whoever asked holds little of it, and says what is wrong.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

use std::alloc::System;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use bothends_dataset::Storage;
use bothends_storage::{Location, Objects, Options, StorageError, View};
use cap::Cap;

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// As much is sent as would be noticed, and not more: a test must end that fails.
const FLOOD: usize = 256 << 20;

/// Answers whatever is asked first with `head`, and then with `part` again and again.
fn flood(head: &'static [u8], part: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let part = Arc::new(part);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let part = Arc::clone(&part);
            thread::spawn(move || send(stream.unwrap(), head, &part));
        }
    });
    at
}

fn send(mut stream: TcpStream, head: &[u8], part: &[u8]) {
    let mut request = [0; 4096];
    if stream.read(&mut request).is_ok_and(|n| n > 0) && stream.write_all(head).is_ok() {
        let mut left = FLOOD;
        while left > 0 && stream.write_all(part).is_ok() {
            left = left.saturating_sub(part.len());
        }
    }
}

fn view(at: SocketAddr) -> View {
    let url = format!("redis://{at}/0?prefix=train/");
    let found: Arc<dyn Objects> =
        Location::parse(&url, &Options::default()).unwrap().open().unwrap();
    View::start(found).unwrap()
}

fn one_line(error: &StorageError) -> String {
    let text = error.to_string();
    assert!(!text.contains('\n') && !error.is_transient(), "{text}");
    text
}

/// As Redis 7 has it.
const PROTECTED: &[u8] = b"-DENIED Redis is running in protected mode because protected mode is enabled and no \
    password is set for the default user. In this mode connections are only accepted from the loopback interface. \
    If you want to connect from external computers to Redis you may adopt one of the following solutions: 1) Just \
    disable protected mode sending the command 'CONFIG SET protected-mode no' from the loopback interface by \
    connecting to Redis from the same host the server is running, however MAKE SURE Redis is not publicly \
    accessible from internet if you do so. Use CONFIG REWRITE to make this change permanent. 2) Alternatively you \
    can just disable the protected mode by editing the Redis configuration file, and setting the protected mode \
    option to 'no', and then restarting the server. 3) If you started the server manually just for testing, restart \
    it with the '--protected-mode no' option. 4) Set up an authentication password for the default user. NOTE: You \
    only need to do one of the above things in order for the server to start accepting connections from the \
    outside.\r\n";

/// It held 2.2 GB of an answer that was given up after eight seconds.
#[test]
fn little_is_held_of_an_answer_of_redis_that_does_not_end() {
    let lines = |line: &[u8]| line.repeat((64 << 10) / line.len());
    let key = [b"$1000\r\n", &[b'k'; 1000][..], b"\r\n"].concat();
    let head = &b"*2\r\n$1\r\n0\r\n*4000000000\r\n"[..];
    let list: fn(&View) -> StorageError =
        |view| StorageError::of(&view.list("").unwrap_err()).unwrap();
    let identify: fn(&View) -> StorageError = |view| view.identity("a").unwrap_err();
    let too_long = "has more than 8388608 bytes; check that it is a Redis server";
    let no_value =
        "the answer is not one to this request; check that it is a Redis server";
    for (ask, head, part, words) in [
        (list, head, lines(&key), too_long),
        (list, head, lines(b"$0\r\n\r\n"), too_long),
        (list, head, lines(b"*1\r\n"), no_value),
        (list, &b"*2\r\n$4000000000\r\n"[..], lines(b"0"), too_long),
        (list, &b"*4000000000\r\n"[..], lines(b":1\r\n"), no_value),
        (list, &b""[..], lines(b"x"), no_value),
        (identify, &b":"[..], lines(b"1"), "has more than 4096 bytes; check that"),
        // What Redis answers to other machines unless it is told otherwise.
        (list, PROTECTED, lines(b"x"), "is in protected mode); set a password"),
        // As much of it may come at once.
        (
            identify,
            &b"$4000000000\r\n"[..],
            lines(b"x"),
            "check that it is a Redis server",
        ),
    ] {
        let view = view(flood(head, part));
        let before = MEMORY.allocated();
        let text = one_line(&ask(&view));
        assert!(text.contains(" `redis://127.0.0.1:"), "{text}");
        assert!(text.contains(words), "{text}");
        // That of the whole program, of which nothing else takes as much: measured were 51 MB, for keys without bytes.
        let most = MEMORY.max_allocated().saturating_sub(before);
        assert!(most < 64 << 20, "{most} bytes: {text}");
    }
}
