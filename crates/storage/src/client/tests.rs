//! The cloud's own service: one that fails for a moment, and one that is not there.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use super::*;
use crate::StorageError;

/// Stands for the cloud's own address in these tests; see `failure::is_of_machine`.
const HOST: &str = "127.0.0.169";

/// Answers each connection with the next of these statuses, and then with the last one; closes at 0.
fn machine(statuses: &'static [u16]) -> SocketAddr {
    let listener = TcpListener::bind((HOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let status = statuses[number.min(statuses.len() - 1)];
            let answer = format!(
                "HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            if status != 0 && stream.read(&mut [0; 4096]).is_ok() {
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
    });
    at
}

/// An address at which nobody listens.
fn nothing() -> SocketAddr {
    TcpListener::bind((HOST, 0)).unwrap().local_addr().unwrap()
}

fn fresh() -> Client {
    Client::new(None, Proxies::none())
}

fn ask(client: &Client, at: SocketAddr) -> Result<(), Failure> {
    let request = Request::get(format!("http://{at}/"));
    send(client, &request.body(Full::default()).unwrap())
}

fn send(client: &Client, request: &Whole) -> Result<(), Failure> {
    let runtime = crate::fetcher::runtime().unwrap();
    runtime.block_on(client.again(request)).map(drop)
}

fn error(failure: &Failure) -> StorageError {
    failure.at("s3://b/a".to_owned(), 0)
}

/// What comes of this within so much time: a busy machine may add to it once, but not each time.
fn within<T>(limit: Duration, ask: impl Fn() -> T) -> T {
    let mut attempts_left = 4;
    loop {
        let began = Instant::now();
        let told = ask();
        let took = began.elapsed();
        if took < limit {
            return told;
        }
        attempts_left -= 1;
        assert!(attempts_left > 0, "{took:?}");
    }
}

#[test]
fn a_service_that_answers_is_asked_again_and_others_only_where_they_are_expected() {
    ask(&fresh(), machine(&[503, 429, 500, 200])).unwrap();
    let limit = Duration::from_secs(3);
    let failure = within(limit, || ask(&fresh(), nothing()).unwrap_err());
    assert!(error(&failure).to_string().contains("set the store's credentials"));
    let client = fresh();
    client.expect_machine();
    ask(&client, machine(&[0, 0, 200])).unwrap();
    // It has answered before.
    let client = fresh();
    ask(&client, machine(&[200])).unwrap();
    ask(&client, machine(&[0, 0, 503, 200])).unwrap();
}

#[test]
fn a_service_that_stays_away_is_told_within_ten_seconds() {
    let client = fresh();
    client.expect_machine();
    let failure =
        within(Duration::from_secs(10), || ask(&client, nothing()).unwrap_err());
    let told = error(&failure);
    assert!(told.to_string().contains("set the store's credentials"), "{told}");
    // What has been there comes back.
    ask(&client, machine(&[200])).unwrap();
    let told = error(&ask(&client, nothing()).unwrap_err());
    assert!(told.is_transient(), "{told}");
    assert!(told.to_string().contains("this machine's metadata service"), "{told}");
    let told = error(&ask(&client, machine(&[503])).unwrap_err());
    assert!(told.is_transient(), "{told}");
    // That is its word.
    let told = error(&ask(&client, machine(&[404])).unwrap_err());
    assert!(told.to_string().contains("metadata service answered 404"), "{told}");
}

/// That took eight seconds for each: whoever has no credentials heard of it after sixteen.
#[test]
fn a_service_with_a_name_and_an_address_is_told_within_ten_seconds_too() {
    let client = fresh();
    client.expect_machine();
    within(Duration::from_secs(10), || {
        for _ in 0..2 {
            let request = Request::get(format!("http://{}/", nothing()));
            let request = request.header("Metadata-Flavor", "Google");
            send(&client, &request.body(Full::default()).unwrap()).unwrap_err();
        }
    });
}
