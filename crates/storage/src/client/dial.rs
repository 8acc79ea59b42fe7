//! TCP connections: to whichever address of a host answers first.
//!
//! A large store is many front ends behind one name, and some of them may be out of order. Its addresses are looked up once
//! and used in turn; one that does not answer at once is left to itself while the next one is tried, and the others are
//! preferred to it for a while.
//!
//! A packet that opens a connection and is lost is sent again after a second (RFC 6298, 2.1), as the kernel does not know
//! the round trip yet. Whoever has connected before knows it: a single address is tried once more long before that.

use std::collections::{HashMap, VecDeque};
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
/// The only address of a host is tried again if it has not answered after twice as long as it took of late, and not
/// before this: a server that is asked too much loses such packets, too …
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// … and so often altogether.
const MOST_OF_ONE: usize = 3;
/// So many attempts are made at the same time, for one connection.
const MOST_ATTEMPTS: usize = 2;
/// Of so many addresses it is known how long they take.
const MOST_KNOWN: usize = 256;
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
    /// How long an address takes to connect: the least of late, which rises slowly.
    took: Mutex<HashMap<SocketAddr, Duration>>,
}

/// How an attempt ended, and how long it took.
type Ended = (SocketAddr, Duration, io::Result<TcpStream>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An attempt, and what became of it.
fn attempt(address: SocketAddr) -> BoxFuture<'static, Ended> {
    async move {
        let began = Instant::now();
        let connected = TcpStream::connect(address).await;
        (address, began.elapsed(), connected)
    }
    .boxed()
}

impl Dialer {
    pub(crate) fn new(spread: Spread) -> Self {
        let turn = RandomState::new().hash_one(0) % (1 << 16);
        Self {
            spread,
            turn: AtomicUsize::new(usize::try_from(turn).unwrap_or(0)),
            names: Names::of_system(),
            failed: Mutex::default(),
            took: Mutex::default(),
        }
    }

    /// A connection to the host. Whoever asks limits the time.
    pub(crate) async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let addresses = self.names.addresses(host, port).await?;
        let (began, mut next_after) = (Instant::now(), NEXT_AFTER);
        let mut left = VecDeque::from(self.in_order(&addresses));
        let (mut attempts, mut trying, mut failure) = (Vec::new(), Vec::new(), None);
        loop {
            if let Some(address) = left.pop_front() {
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
            let wait = match (left.is_empty(), &trying[..]) {
                (false, _) => Some(next_after),
                (true, [only, ..]) if addresses.len() == 1 => {
                    self.again_in(*only, trying.len(), began.elapsed())
                }
                (true, _) => None,
            };
            let next = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => future::pending().await,
                }
            };
            let (address, took, connected) = tokio::select! {
                            biased;
                            (ended, nth, _) = future::select_all(&mut attempts) => {
                                drop(attempts.remove(nth));
                                ended
                            }
                            () = next => {
                                if !left.is_empty() {
                                    // So that an attempt has time enough before it is given up for others, however far the host is.
                                    next_after *= 2;
                                } else {
                                    let (n_tried, waited) = (trying.len(), began.elapsed());
            let again = self.again_in(addresses[0], n_tried, waited);
                                    left.extend(again.filter(Duration::is_zero).map(|_| addresses[0]));
                                }
                                continue;
                            }
                        };
            match connected {
                Ok(stream) => {
                    // Those that were asked before it have not answered.
                    let earlier = trying.iter().take_while(|tried| **tried != address);
                    self.avoid(earlier.copied());
                    self.connected(address, took);
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

    /// In what time an only address is tried again, after so many attempts and such a wait. Where nobody
    /// knows how far it is, another look is taken after a while.
    fn again_in(
        &self,
        address: SocketAddr,
        n_tried: usize,
        waited: Duration,
    ) -> Option<Duration> {
        if n_tried >= MOST_OF_ONE {
            return None;
        }
        let Some(took) = lock(&self.took).get(&address).copied() else {
            return Some(NEXT_AFTER);
        };
        let n_waits = u32::try_from(n_tried).unwrap_or(1);
        let after = (took * 2).max(AGAIN_AFTER) * n_waits;
        Some(after.saturating_sub(waited))
    }

    fn connected(&self, address: SocketAddr, took: Duration) {
        lock(&self.failed).remove(&address);
        let mut all = lock(&self.took);
        // Names of large stores stand for new addresses again and again.
        if all.len() >= MOST_KNOWN && !all.contains_key(&address) {
            all.clear();
        }
        let least = all.entry(address).or_insert(took);
        *least = took.min(*least + took.saturating_sub(*least) / 8);
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

    /// Connections that have asked one of them and have no answer.
    fn n_unanswered(silent: &[Silent]) -> usize {
        let tables = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let is_to =
            |line: &str, it: &Silent| line.contains(&format!(":{:04X} 02", it.at.port()));
        let asked = tables.lines().filter(|line| silent.iter().any(|it| is_to(line, it)));
        // The table changes while it is read, and has some of them twice then.
        let local = asked.map(|line| line.split_whitespace().nth(1).unwrap());
        local.collect::<std::collections::HashSet<_>>().len()
    }

    /// Each of 256 requests had a socket for each address of a store that was out of reach, and there were not as many.
    #[test]
    fn few_addresses_are_tried_at_the_same_time() {
        run(async {
            let silent = [Silent::new().await, Silent::new().await, Silent::new().await];
            let dialer = knowing(Spread::Steady, &silent.each_ref().map(|it| it.at));
            let mut connecting = std::pin::pin!(dialer.connect("store", 1));
            let mut most = 0;
            for _ in 0..30 {
                let moment = Duration::from_millis(50);
                tokio::time::timeout(moment, &mut connecting).await.unwrap_err();
                most = most.max(n_unanswered(&silent));
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

    /// A second passed before the kernel sent a lost packet again, seven round trips of a long link.
    #[test]
    fn the_only_address_is_tried_again_once_it_is_known_how_far_it_is() {
        run(async {
            let silent = Silent::new().await;
            let dialer = knowing(Spread::Steady, &[silent.at]);
            let mut connecting = std::pin::pin!(dialer.connect("store", 1));
            let mut seen_after = async |most: Duration| {
                let began = Instant::now();
                let mut n = 0;
                while n < 2 && began.elapsed() < most {
                    let moment = Duration::from_millis(10);
                    tokio::time::timeout(moment, &mut connecting).await.unwrap_err();
                    n = n_unanswered(std::slice::from_ref(&silent));
                }
                n
            };
            assert_eq!(seen_after(2 * NEXT_AFTER).await, 1);
            // Known from another connection.
            dialer.connected(silent.at, Duration::from_millis(1));
            assert_eq!(seen_after(Duration::from_secs(10)).await, 2);
        });
    }

    #[test]
    fn the_least_time_of_an_address_rises_slowly() {
        let dialer = Dialer::new(Spread::Steady);
        let at: SocketAddr = "1.1.1.1:1".parse().unwrap();
        let ms = Duration::from_millis;
        let again_in = |n, waited| dialer.again_in(at, n, ms(waited));
        assert_eq!(again_in(1, 0), Some(NEXT_AFTER));
        for (took, least) in [(160, 160), (80, 80), (1040, 200), (40, 40)] {
            dialer.connected(at, ms(took));
            assert_eq!(lock(&dialer.took)[&at], ms(least));
        }
        assert_eq!([again_in(1, 0), again_in(1, 120)], [Some(AGAIN_AFTER), Some(ms(0))]);
        dialer.connected(at, ms(1000));
        let [first, second] = [again_in(1, 100), again_in(2, 320)];
        assert_eq!([first, second], [Some(ms(220)), Some(ms(320))]);
        assert_eq!(again_in(MOST_OF_ONE, 0), None);
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
