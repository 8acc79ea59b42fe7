//! TCP connections: to whichever address of a host answers first.
//!
//! A large store is many front ends behind one name, and some of them may be out of order. Its addresses are looked up once
//! and used in turn; one that does not answer at once is left to itself while the next one is tried, and the others are
//! preferred to it for a while.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{self, BoxFuture, FutureExt};
use tokio::net::TcpStream;

use super::failure::is_open_files;
use super::names::Names;

/// After so long without an answer, the next address is tried, too; then twice as long, and so on.
const NEXT_AFTER: Duration = Duration::from_millis(300);
/// So many attempts are made at the same time, for one connection.
const MOST_ATTEMPTS: usize = 2;
/// An address that failed comes last for so long.
const AVOIDED_FOR: Duration = Duration::from_secs(10);

/// Which address is tried first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Each in turn, for names of many front ends.
    InTurn,
    /// The first one, as a name stands for one server.
    Steady,
}

/// Connects to hosts, and remembers what it has learnt of their addresses.
#[derive(Debug)]
pub(crate) struct Dialer {
    spread: Spread,
    /// The first one is as random as a process: many that start together do not all begin with one address. It stands
    /// alone: no other memory is published through it.
    turn: AtomicUsize,
    names: Names,
    failed: Mutex<HashMap<SocketAddr, Instant>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An attempt, and what became of it.
fn attempt(
    address: SocketAddr,
) -> BoxFuture<'static, (SocketAddr, io::Result<TcpStream>)> {
    async move { (address, TcpStream::connect(address).await) }.boxed()
}

impl Dialer {
    pub(crate) fn new(spread: Spread) -> Self {
        let turn = RandomState::new().hash_one(0) % (1 << 16);
        Self {
            spread,
            turn: AtomicUsize::new(usize::try_from(turn).unwrap_or(0)),
            names: Names::of_system(),
            failed: Mutex::default(),
        }
    }

    /// A connection to the host. Whoever asks limits the time.
    pub(crate) async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let addresses = self.names.addresses(host, port).await?;
        let mut left = self.in_order(&addresses).into_iter().peekable();
        let (mut attempts, mut next_after) = (Vec::new(), NEXT_AFTER);
        let (mut trying, mut failure) = (Vec::new(), None);
        loop {
            if let Some(address) = left.next() {
                trying.push(address);
                // Each has a socket, and many connect at a time.
                if attempts.len() == MOST_ATTEMPTS {
                    drop(attempts.remove(0));
                }
                attempts.push(attempt(address));
            } else if attempts.is_empty() {
                let none = || io::Error::new(io::ErrorKind::NotFound, "no address");
                return Err(failure.unwrap_or_else(none));
            }
            let has_next = left.peek().is_some();
            let next = async {
                match has_next {
                    true => tokio::time::sleep(next_after).await,
                    false => future::pending().await,
                }
            };
            let (address, connected) = tokio::select! {
                (ended, nth, _) = future::select_all(&mut attempts) => {
                    drop(attempts.remove(nth));
                    ended
                }
                () = next => {
                    // So that an attempt has time enough before it is given up for others, however far the host is.
                    next_after *= 2;
                    continue;
                }
            };
            match connected {
                Ok(stream) => {
                    // Those that were asked before it have not answered.
                    let earlier = trying.iter().take_while(|tried| **tried != address);
                    self.avoid(earlier.copied());
                    lock(&self.failed).remove(&address);
                    return Ok(stream);
                }
                // No address is to blame. One that has a socket already may connect yet.
                Err(error) if is_open_files(&error) => failure = Some(error),
                Err(error) => {
                    trying.retain(|tried| *tried != address);
                    self.avoid([address]);
                    failure.get_or_insert(error);
                }
            }
        }
    }

    fn avoid(&self, addresses: impl IntoIterator<Item = SocketAddr>) {
        let now = Instant::now();
        let mut failed = lock(&self.failed);
        failed.retain(|_, at| now.duration_since(*at) < AVOIDED_FOR);
        failed.extend(addresses.into_iter().map(|address| (address, now)));
    }

    /// The addresses as they are tried: by turns those of the system's preferred kind and the others, and at the end those
    /// that have failed.
    fn in_order(&self, addresses: &[SocketAddr]) -> Vec<SocketAddr> {
        let turn = match self.spread {
            Spread::InTurn => self.turn.fetch_add(1, Ordering::Relaxed),
            Spread::Steady => 0,
        };
        let is_preferred =
            |address: &SocketAddr| address.is_ipv6() == addresses[0].is_ipv6();
        let (mut preferred, mut others): (Vec<_>, Vec<_>) =
            addresses.iter().copied().partition(is_preferred);
        for kind in [&mut preferred, &mut others] {
            let n = kind.len().max(1);
            kind.rotate_left(turn % n);
        }
        let mut ordered = Vec::with_capacity(addresses.len());
        let (mut preferred, mut others) = (preferred.into_iter(), others.into_iter());
        while ordered.len() < addresses.len() {
            ordered.extend(preferred.next());
            ordered.extend(others.next());
        }
        let failed = lock(&self.failed);
        let is_avoided = |address: &SocketAddr| {
            failed.get(address).is_some_and(|at| at.elapsed() < AVOIDED_FOR)
        };
        ordered.sort_by_key(is_avoided);
        ordered
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;
    use crate::client::names::KNOWN_FOR;

    fn run(work: impl Future<Output = ()>) {
        crate::fetcher::runtime().unwrap().block_on(work);
    }

    fn knowing(spread: Spread, addresses: &[SocketAddr]) -> Dialer {
        let dialer = Dialer::new(spread);
        dialer.names.know(("store".to_owned(), 1), addresses, Instant::now());
        dialer
    }

    async fn peer(dialer: &Dialer) -> SocketAddr {
        dialer.connect("store", 1).await.unwrap().peer_addr().unwrap()
    }

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        (listener, at)
    }

    #[test]
    fn connections_are_spread_over_all_addresses_or_go_to_the_first() {
        run(async {
            let ((_a, a), (_b, b), (_c, c)) =
                (listener().await, listener().await, listener().await);
            let (in_turn, steady) = (
                knowing(Spread::InTurn, &[a, b, c]),
                knowing(Spread::Steady, &[a, b, c]),
            );
            let mut counts = HashMap::new();
            for _ in 0..9 {
                *counts.entry(peer(&in_turn).await).or_insert(0) += 1;
                assert_eq!(peer(&steady).await, a);
            }
            assert_eq!(counts, HashMap::from([(a, 3), (b, 3), (c, 3)]));
        });
    }

    /// It has room for two connections, and says nothing to a third one.
    struct Silent {
        at: SocketAddr,
        _there: (TcpListener, [TcpStream; 2]),
    }

    impl Silent {
        async fn new() -> Self {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let listener = socket.listen(1).unwrap();
            let at = listener.local_addr().unwrap();
            let connect = || async { TcpStream::connect(at).await.unwrap() };
            let full = [connect().await, connect().await];
            Self { at, _there: (listener, full) }
        }
    }

    /// Each of 256 requests had a socket for each address of a store that was out of reach, and there were not as many.
    #[test]
    fn few_addresses_are_tried_at_the_same_time() {
        run(async {
            let silent = [Silent::new().await, Silent::new().await, Silent::new().await];
            let to_silent = || {
                let tables = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
                let ports =
                    silent.each_ref().map(|it| format!(":{:04X} 02", it.at.port()));
                tables
                    .lines()
                    .filter(|line| ports.iter().any(|it| line.contains(it)))
                    .count()
            };
            let dialer = knowing(Spread::Steady, &silent.each_ref().map(|it| it.at));
            let mut connecting = std::pin::pin!(dialer.connect("store", 1));
            let mut most = 0;
            for _ in 0..30 {
                let moment = Duration::from_millis(50);
                tokio::time::timeout(moment, &mut connecting).await.unwrap_err();
                most = most.max(to_silent());
            }
            assert_eq!(most, MOST_ATTEMPTS);
        });
    }

    #[test]
    fn an_address_that_refuses_or_is_silent_costs_little_and_is_avoided() {
        run(async {
            let silent = Silent::new().await;
            let silent_at = silent.at;
            let (gone, refuses) = listener().await;
            drop(gone);
            let (_there, there) = listener().await;
            for bad in [silent_at, refuses] {
                let dialer = knowing(Spread::Steady, &[bad, there]);
                let began = Instant::now();
                assert_eq!(peer(&dialer).await, there);
                assert!(began.elapsed() < 5 * NEXT_AFTER, "{:?}", began.elapsed());
                assert_eq!(dialer.in_order(&[bad, there]), [there, bad]);
                let began = Instant::now();
                assert_eq!(peer(&dialer).await, there);
                assert!(began.elapsed() < NEXT_AFTER, "{:?}", began.elapsed());
            }
            let dialer = knowing(Spread::InTurn, &[refuses]);
            let error = dialer.connect("store", 1).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        });
    }

    #[test]
    fn a_name_that_cannot_be_looked_up_again_stands_for_what_it_did() {
        run(async {
            let (_there, there) = listener().await;
            let dialer = Dialer::new(Spread::InTurn);
            let key = ("no-such-host.invalid".to_owned(), 1);
            dialer.names.know(key, &[there], Instant::now() - KNOWN_FOR);
            dialer.connect("no-such-host.invalid", 1).await.unwrap();
            let error = dialer.connect("no-such-host.invalid", 2).await.unwrap_err();
            assert!(error.to_string().contains("lookup"), "{error}");
            let (_local, local) = listener().await;
            dialer.connect("localhost", local.port()).await.unwrap();
        });
    }

    #[test]
    fn both_kinds_of_addresses_are_tried_by_turns() {
        let [a, b, c, d] = ["[::1]:1", "[::2]:1", "1.1.1.1:1", "1.1.1.2:1"]
            .map(|text| text.parse::<SocketAddr>().unwrap());
        let dialer = Dialer::new(Spread::Steady);
        assert_eq!(dialer.in_order(&[a, b, c, d]), [a, c, b, d]);
        assert_eq!(dialer.in_order(&[c, a, d]), [c, a, d]);
        dialer.avoid([a]);
        assert_eq!(dialer.in_order(&[a, b, c, d]), [c, b, d, a]);
        assert_eq!(dialer.in_order(&[]), []);
    }
}
