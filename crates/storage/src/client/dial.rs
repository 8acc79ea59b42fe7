//! TCP connections: to whichever address of a host answers first.
//!
//! A large store is many front ends behind one name, and some of them may be out of order. Its addresses are looked up once
//! and used in turn; one that does not answer at once is left to itself while the next one is tried, and the others are
//! preferred to it for a while.
//!
//! A packet that opens a connection and is lost is sent again after a second (RFC 6298, 2.1), as the kernel does not know
//! the round trip yet. Whoever has connected before knows it: a single address is tried again long before that.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{self, BoxFuture, FutureExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::failure::is_open_files;
use super::names::Names;

/// After so long without an answer, the next address is tried, too; then twice as long, and so on.
const NEXT_AFTER: Duration = Duration::from_millis(300);
/// The only address of a host is tried again if it has not answered after twice as long as it took of late, and not
/// before this: a server that is asked too much loses such packets, too …
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// … and so often altogether.
const MOST_OF_ONE: usize = 3;
/// So many attempts are made that way at the same time, for all connections: of those that are lost there are few, and a
/// server that is gone shall not take all open files.
const MOST_AGAIN: usize = 32;
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
    /// Has a permit for each further attempt at an only address.
    again: Semaphore,
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
            again: Semaphore::new(MOST_AGAIN),
        }
    }

    /// A connection to the host. Whoever asks limits the time.
    pub(crate) async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let addresses = self.names.addresses(host, port).await?;
        let mut attempts = Attempts::new(self, &addresses);
        let mut failure = None;
        loop {
            attempts.begin_next();
            if attempts.pending.is_empty() {
                let none = || io::Error::new(io::ErrorKind::NotFound, "no address");
                return Err(failure.unwrap_or_else(none));
            }
            let Some((address, took, connected)) = attempts.ended_or_time().await else {
                attempts.time_has_passed();
                continue;
            };
            match connected {
                Ok(stream) => {
                    // Those that were asked before it have not answered.
                    let tried = attempts.tried.iter();
                    let earlier = tried.take_while(|tried| **tried != address);
                    self.avoid(earlier.copied());
                    self.connected(address, took);
                    return Ok(stream);
                }
                // No address is to blame. One that has a socket already may connect yet.
                Err(error) if is_open_files(&error) => {
                    failure = failure.or(attempts.pending.is_empty().then_some(error));
                }
                Err(error) => {
                    attempts.tried.retain(|tried| *tried != address);
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

/// The attempts at one connection.
struct Attempts<'d> {
    dialer: &'d Dialer,
    began: Instant,
    /// Addresses that are to be tried, and those that were and have not failed.
    left: VecDeque<SocketAddr>,
    tried: Vec<SocketAddr>,
    pending: Vec<BoxFuture<'static, Ended>>,
    /// The host has no other.
    only: Option<SocketAddr>,
    /// Of the further attempts at that.
    permits: Vec<SemaphorePermit<'d>>,
    next_after: Duration,
}

impl<'d> Attempts<'d> {
    fn new(dialer: &'d Dialer, addresses: &[SocketAddr]) -> Self {
        Self {
            dialer,
            began: Instant::now(),
            left: dialer.in_order(addresses).into(),
            tried: Vec::new(),
            pending: Vec::new(),
            only: if let [only] = addresses { Some(*only) } else { None },
            permits: Vec::new(),
            next_after: NEXT_AFTER,
        }
    }

    /// Tries the next address, if there is one.
    fn begin_next(&mut self) {
        let Some(address) = self.left.pop_front() else { return };
        self.tried.push(address);
        // Each has a socket, and many connect at a time. Of an only address, any may be the one that is answered.
        if self.pending.len() == MOST_ATTEMPTS && self.only.is_none() {
            drop(self.pending.remove(0));
        }
        self.pending.push(attempt(address));
    }

    /// An attempt that has ended; `None` if it is time for another one.
    async fn ended_or_time(&mut self) -> Option<Ended> {
        let wait = match self.only {
            _ if !self.left.is_empty() => Some(self.next_after),
            // One that was refused is not tried again.
            Some(only) if !self.tried.is_empty() => self.again_in(only),
            Some(_) | None => None,
        };
        let time = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            biased;
            (ended, nth, _) = future::select_all(&mut self.pending) => {
                drop(self.pending.remove(nth));
                Some(ended)
            }
            () = time => None,
        }
    }

    fn again_in(&self, only: SocketAddr) -> Option<Duration> {
        self.dialer.again_in(only, self.tried.len(), self.began.elapsed())
    }

    fn time_has_passed(&mut self) {
        // So that an attempt has time enough before it is given up for others, however far the host is.
        self.next_after = self.next_after.saturating_mul(2);
        let Some(only) = self.only.filter(|_| self.left.is_empty()) else { return };
        let is_time = self.again_in(only).is_some_and(|wait| wait.is_zero());
        if !is_time {
            return;
        }
        match self.dialer.again.try_acquire() {
            Ok(permit) => {
                self.permits.push(permit);
                self.left.push_back(only);
            }
            // As many others are tried again, so the server is gone most likely.
            Err(_) => self.only = None,
        }
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
                assert!(began.elapsed() < 60 * NEXT_AFTER, "{:?}", began.elapsed());
                assert_eq!(dialer.in_order(&[bad, there]), [there, bad]);
                // On a busy machine, some take as long without having tried the bad one.
                let mut quickest = Duration::MAX;
                for _ in 0..5 {
                    let began = Instant::now();
                    assert_eq!(peer(&dialer).await, there);
                    quickest = quickest.min(began.elapsed());
                }
                assert!(quickest < NEXT_AFTER, "{quickest:?}");
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
            let seen_after = async |most: Duration| {
                let mut connecting = std::pin::pin!(dialer.connect("store", 1));
                let began = Instant::now();
                let mut n = 0;
                while n < MOST_OF_ONE && began.elapsed() < most {
                    let moment = Duration::from_millis(10);
                    tokio::time::timeout(moment, &mut connecting).await.unwrap_err();
                    n = n_unanswered(std::slice::from_ref(&silent));
                }
                n
            };
            assert_eq!(seen_after(2 * NEXT_AFTER).await, 1);
            // Known from another connection.
            dialer.connected(silent.at, Duration::from_millis(1));
            assert_eq!(seen_after(Duration::from_secs(10)).await, MOST_OF_ONE);
            // As many others are tried again.
            assert_eq!(dialer.again.available_permits(), MOST_AGAIN);
            dialer.again.forget_permits(MOST_AGAIN);
            assert_eq!(seen_after(2 * NEXT_AFTER).await, 1);
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
