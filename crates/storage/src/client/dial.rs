//! TCP connections: to whichever address of a host answers first.
//!
//! A large store is many front ends behind one name, and some of them may be out of order. Its addresses are looked up once
//! and used in turn; one that does not answer at once is left to itself while the next one is tried, and the others are
//! preferred to it for a while.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Mutex as AsyncMutex;

use super::failure::is_open_files;

/// How long what a name stands for is known.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// The same where it cannot be looked up again.
const AT_MOST_KNOWN_FOR: Duration = Duration::from_secs(300);
/// After so long without an answer, the next address is tried, too.
const NEXT_AFTER: Duration = Duration::from_millis(300);
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
    known: Mutex<HashMap<(String, u16), Known>>,
    /// One looks up at a time: the others have its answer.
    looking: AsyncMutex<()>,
    failed: Mutex<HashMap<SocketAddr, Instant>>,
}

/// What a name stands for.
#[derive(Debug, Clone)]
struct Known {
    at: Instant,
    addresses: Arc<[SocketAddr]>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Dialer {
    pub(crate) fn new(spread: Spread) -> Self {
        let turn = RandomState::new().hash_one(0) % (1 << 16);
        Self {
            spread,
            turn: AtomicUsize::new(usize::try_from(turn).unwrap_or(0)),
            known: Mutex::default(),
            looking: AsyncMutex::default(),
            failed: Mutex::default(),
        }
    }

    /// A connection to the host. Whoever asks limits the time.
    pub(crate) async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let addresses = self.addresses(host, port).await?;
        let mut left = self.in_order(&addresses).into_iter().peekable();
        let mut attempts = FuturesUnordered::new();
        let (mut trying, mut failure) = (Vec::new(), None);
        loop {
            if let Some(address) = left.next() {
                trying.push(address);
                attempts
                    .push(async move { (address, TcpStream::connect(address).await) });
            } else if attempts.is_empty() {
                let none = || io::Error::new(io::ErrorKind::NotFound, "no address");
                return Err(failure.unwrap_or_else(none));
            }
            let has_next = left.peek().is_some();
            let next = async {
                match has_next {
                    true => tokio::time::sleep(NEXT_AFTER).await,
                    false => future::pending().await,
                }
            };
            let (address, connected) = tokio::select! {
                Some(ended) = attempts.next() => ended,
                () = next => continue,
            };
            match connected {
                Ok(stream) => {
                    // Those that were asked before it have not answered.
                    let earlier = trying.iter().take_while(|tried| **tried != address);
                    self.avoid(earlier.copied());
                    lock(&self.failed).remove(&address);
                    return Ok(stream);
                }
                // No address is to blame.
                Err(error) if is_open_files(&error) => return Err(error),
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

    /// What the name stands for.
    async fn addresses(&self, host: &str, port: u16) -> io::Result<Arc<[SocketAddr]>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok([SocketAddr::new(ip, port)].into());
        }
        let key = (host.to_owned(), port);
        let known = |time: Duration| {
            let known = lock(&self.known).get(&key).cloned();
            known.filter(|known| known.at.elapsed() < time).map(|known| known.addresses)
        };
        if let Some(addresses) = known(KNOWN_FOR) {
            return Ok(addresses);
        }
        let _looking = self.looking.lock().await;
        if let Some(addresses) = known(KNOWN_FOR) {
            return Ok(addresses);
        }
        match lookup_host((host, port)).await {
            Ok(found) => {
                let addresses: Arc<[SocketAddr]> = found.collect();
                let known =
                    Known { at: Instant::now(), addresses: Arc::clone(&addresses) };
                lock(&self.known).insert(key, known);
                Ok(addresses)
            }
            // A resolver that is out of order for a moment.
            Err(error) => known(AT_MOST_KNOWN_FOR).ok_or(error),
        }
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

    fn run(work: impl Future<Output = ()>) {
        crate::fetcher::runtime().unwrap().block_on(work);
    }

    fn knowing(spread: Spread, addresses: &[SocketAddr]) -> Dialer {
        let dialer = Dialer::new(spread);
        let known = Known { at: Instant::now(), addresses: addresses.into() };
        lock(&dialer.known).insert(("store".to_owned(), 1), known);
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

    #[test]
    fn an_address_that_refuses_or_is_silent_costs_little_and_is_avoided() {
        run(async {
            // It has room for two connections, and says nothing to a third one.
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let silent = socket.listen(1).unwrap();
            let silent_at = silent.local_addr().unwrap();
            let connecting = TcpStream::connect(silent_at);
            let _full = (connecting.await, TcpStream::connect(silent_at).await);
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
            let known =
                Known { at: Instant::now() - KNOWN_FOR, addresses: [there].into() };
            lock(&dialer.known).insert(key, known);
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
