//! The conformance suite over every transport of this crate, with the device on a thread.

#![allow(clippy::unwrap_used, reason = "tests")]

mod peers;

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bothends_csd::address::Address;
use bothends_csd::conformance::{self, EchoServe, Subject};
use bothends_csd::connect::{ConnectOptions, connect};
use bothends_csd::listen::{Listener, Terms, serve_connection};
use bothends_csd::loopback::Loopback;
use bothends_csd::security::Security;
use bothends_csd::spool::serve_directory;
use bothends_csd::stream::Stream;

use peers::{Trust, write};

#[test]
fn loopback() {
    conformance::all(&mut |serve| {
        let transport = Loopback::new(Box::new(serve));
        let plug = transport.plug();
        Subject {
            transport: Box::new(transport),
            end_device: Box::new(move || plug.pull()),
        }
    });
}

#[test]
fn unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let address = Address::Unix(dir.path().join("agent.sock"));
    conformance::all(&mut |serve| over_listener(&address, serve));
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "a socket file is left"
    );
}

#[test]
fn tcp() {
    let address = "tcp://127.0.0.1:0".parse().unwrap();
    conformance::all(&mut |serve| over_listener(&address, serve));
}

#[test]
fn noise() {
    let address = "tcp+noise://127.0.0.1:0".parse().unwrap();
    conformance::all(&mut |serve| over_listener(&address, serve));
}

#[test]
fn tls() {
    let address = "tls://localhost:0".parse().unwrap();
    conformance::all(&mut |serve| over_listener(&address, serve));
}

#[test]
fn socket_pair() {
    conformance::all(&mut |mut serve| {
        let (host, device) = UnixStream::pair().unwrap();
        let end_device = on_thread(move |stop| {
            serve_connection(
                device,
                &mut serve,
                Terms { security: &Security::default(), stop },
            )
            .ok();
        });
        let timeout = Duration::from_secs(60);
        let transport = Stream::over_socket(
            host.into(),
            "a pair".into(),
            Security::default(),
            timeout,
        );
        Subject { transport: Box::new(transport.unwrap()), end_device }
    });
}

#[test]
fn spool() {
    conformance::all(&mut |mut serve| {
        let dir = tempfile::tempdir().unwrap();
        let address = Address::Spool(dir.path().to_owned());
        let end_device = on_thread(move |stop| {
            serve_directory(dir.path(), &mut serve, stop).ok();
        });
        let transport = connect(&address, &ConnectOptions::default()).unwrap();
        Subject { transport, end_device }
    });
}

fn over_listener(address: &Address, mut serve: EchoServe) -> Subject {
    let trust = Trust::new();
    let key_file = trust.path("key");
    write(&key_file, "a key of 16 bytes");
    let options = ConnectOptions {
        key_file: Some(key_file),
        tls: Some(trust.files("localhost", |_| {})),
        ..ConnectOptions::default()
    };
    let security = trust.security();
    let listener = Listener::bind(address, &security).unwrap();
    let address = listener.address().clone();
    let end_device = on_thread(move |stop| {
        let socket = listener.accept(Duration::from_secs(60)).unwrap().unwrap();
        drop(listener);
        serve_connection(socket, &mut serve, Terms { security: &security, stop }).ok();
    });
    let transport = connect(&address, &options).unwrap();
    Subject { transport, end_device }
}

/// Runs a device on a thread; the answer ends it and waits for its end.
fn on_thread(device: impl FnOnce(&AtomicBool) + Send + 'static) -> Box<dyn FnOnce()> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let thread = thread::spawn(move || device(&seen));
    Box::new(move || {
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
    })
}
