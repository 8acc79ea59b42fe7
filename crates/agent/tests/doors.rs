//! Who counts as a host, and from when it has a place.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bothends_agent::conformance::Exercise;
use bothends_agent::door::{Door, Visits};
use bothends_agent::{FileStore, NoCosts, Server, ServerConfig};
use bothends_csd::{Address, ConnectOptions, CsdError, Security, Transport, connect};

/// Nothing here takes longer; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn server(exercise: &Exercise) -> Server<NoCosts> {
    let config =
        ServerConfig { name: "test".into(), emulated: false, n_workers: 1, n_slots: 1 };
    let store = FileStore::new(exercise.root()).unwrap();
    Server::start(config, store, NoCosts).unwrap().with_sessions(1)
}

fn host(at: &Address) -> Result<Box<dyn Transport>, CsdError> {
    let options = ConnectOptions { timeout: PATIENCE, ..ConnectOptions::default() };
    let mut host = connect(at, &options)?;
    host.hello()?;
    Ok(host)
}

fn door(address: Address) -> Door {
    Door::open(&address, Security::default()).unwrap()
}

#[test]
fn a_directory_takes_the_place_of_no_host_until_there_is_one_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let server = server(&Exercise::prepare(&data).unwrap());
    let socket = door(Address::Unix(dir.path().join("socket")));
    let spool = door(Address::Spool(dir.path().join("spool")));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serves = [&socket, &spool].map(|door| {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || door.serve(server, Visits::Always, stop, &|_| ()))
        });
        let ends = Ends(&stop);
        let first = host(socket.address()).unwrap();
        assert_eq!(server.counts().hosts, 1);
        // It has no room, and says so: it is not silent, as one that is dead.
        let refused = host(spool.address()).unwrap_err();
        assert!(matches!(refused, CsdError::Busy { .. }), "{refused:?}");
        drop(first);
        let began = std::time::Instant::now();
        let second = loop {
            match host(spool.address()) {
                Ok(second) => break second,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
            }
        };
        drop((second, ends));
        serves.into_iter().for_each(|it| it.join().unwrap().unwrap());
    });
}

/// Stops the doors also where a test fails, which waits for their threads.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn who_knocks_and_leaves_is_not_the_one_host_that_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let server = server(&Exercise::prepare(&data).unwrap());
    let path = dir.path().join("socket");
    let socket = door(Address::Unix(path.clone()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serves = scope.spawn(|| socket.serve(&server, Visits::Once, &stop, &|_| ()));
        let ends = Ends(&stop);
        for _ in 0..2 {
            drop(UnixStream::connect(&path).unwrap());
        }
        let first = host(socket.address()).unwrap();
        assert!(!serves.is_finished());
        drop(first);
        serves.join().unwrap().unwrap();
        drop(ends);
    });
}
