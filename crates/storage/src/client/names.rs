//! What the names of hosts stand for: looked up once for all that ask, and known for a while.
//!
//! A lookup cannot be ended, and a resolver out of order takes many seconds for one: nobody begins another one meanwhile, and
//! whoever knows what the name stood for a moment ago does not wait for it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// How long what a name stands for is known.
pub(super) const KNOWN_FOR: Duration = Duration::from_secs(5);
/// The same where it cannot be looked up again.
const AT_MOST_KNOWN_FOR: Duration = Duration::from_secs(300);
/// How long a lookup is waited for where something is known.
const WAIT: Duration = Duration::from_millis(500);
/// One that takes longer is not waited for: another one begins.
const LOOKED_UP_WITHIN: Duration = Duration::from_secs(30);

/// Host and port.
type Name = (String, u16);

/// Looks a name up, and takes its time.
type Look = dyn Fn(&Name) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// All names that have been asked for.
pub(super) struct Names {
    look: Arc<Look>,
    known: Arc<Mutex<HashMap<Name, Known>>>,
    looking: Mutex<HashMap<Name, Looking>>,
}

/// What a name stands for.
#[derive(Debug, Clone)]
struct Known {
    addresses: Arc<[SocketAddr]>,
    found: Instant,
    /// When it is looked up again.
    again: Instant,
}

/// What came of a lookup; errors cannot be cloned.
type Found = Result<Arc<[SocketAddr]>, (io::ErrorKind, Option<i32>, String)>;

/// A lookup that has begun.
#[derive(Debug, Clone)]
struct Looking {
    began: Instant,
    found: watch::Receiver<Option<Found>>,
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names").field("known", &self.known).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Names {
    /// Names as the system knows them.
    pub(super) fn of_system() -> Self {
        Self::of(Arc::new(|(host, port)| {
            Ok((host.as_str(), *port).to_socket_addrs()?.collect())
        }))
    }

    fn of(look: Arc<Look>) -> Self {
        Self { look, known: Arc::default(), looking: Mutex::default() }
    }

    /// What the name stands for. Whoever asks limits the time.
    pub(super) async fn addresses(
        &self,
        host: &str,
        port: u16,
    ) -> io::Result<Arc<[SocketAddr]>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok([SocketAddr::new(ip, port)].into());
        }
        let name = (host.to_owned(), port);
        let known = lock(&self.known).get(&name).cloned();
        let now = Instant::now();
        let known = known.filter(|known| now - known.found < AT_MOST_KNOWN_FOR);
        let Some(known) = known else {
            return found(self.look_up(&name)).await;
        };
        if now < known.again {
            return Ok(known.addresses);
        }
        match tokio::time::timeout(WAIT, found(self.look_up(&name))).await {
            Ok(Ok(addresses)) => Ok(addresses),
            // A resolver that is out of order for a moment: the others do not wait for it.
            Ok(Err(_)) | Err(_) => {
                if let Some(known) = lock(&self.known).get_mut(&name) {
                    known.again = known.again.max(Instant::now() + KNOWN_FOR);
                }
                Ok(known.addresses)
            }
        }
    }

    /// The lookup that is under way, or a new one. It is not a task: those of a runtime that nobody drives do not end.
    fn look_up(&self, name: &Name) -> watch::Receiver<Option<Found>> {
        let mut looking = lock(&self.looking);
        // The sender is gone where a runtime has ended before the lookup began.
        looking.retain(|_, it| {
            let is_open = it.found.borrow().is_none() && it.found.has_changed().is_ok();
            is_open && it.began.elapsed() < LOOKED_UP_WITHIN
        });
        if let Some(under_way) = looking.get(name) {
            return under_way.found.clone();
        }
        let (give, found) = watch::channel(None);
        let (began, look) = (Instant::now(), Arc::clone(&self.look));
        let under_way = Looking { began, found: found.clone() };
        looking.insert(name.clone(), under_way);
        let (name, known) = (name.clone(), Arc::clone(&self.known));
        drop(tokio::task::spawn_blocking(move || {
            let looked_up = look(&name).map(Arc::<[SocketAddr]>::from);
            if let Ok(addresses) = &looked_up {
                let (addresses, found) = (Arc::clone(addresses), Instant::now());
                let now = Known { addresses, found, again: found + KNOWN_FOR };
                lock(&known).insert(name, now);
            }
            let told = |error: io::Error| {
                (error.kind(), error.raw_os_error(), error.to_string())
            };
            give.send_replace(Some(looked_up.map_err(told)));
        }));
        found
    }

    /// That a name stands for these since then.
    #[cfg(test)]
    pub(super) fn know(&self, name: Name, addresses: &[SocketAddr], found: Instant) {
        let (addresses, again) = (addresses.into(), found + KNOWN_FOR);
        lock(&self.known).insert(name, Known { addresses, found, again });
    }
}

/// What comes of a lookup.
async fn found(
    mut looking: watch::Receiver<Option<Found>>,
) -> io::Result<Arc<[SocketAddr]>> {
    let ended = looking.wait_for(Option::is_some).await;
    match ended.ok().and_then(|found| found.clone()) {
        Some(Ok(addresses)) => Ok(addresses),
        Some(Err((_, Some(code), _))) => Err(io::Error::from_raw_os_error(code)),
        Some(Err((kind, None, text))) => Err(io::Error::new(kind, text)),
        None => Err(io::Error::other("the lookup was not carried out")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};

    use futures_util::FutureExt as _;

    use super::*;

    /// Nothing takes longer but a resolver that does not answer.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn run(work: impl Future<Output = ()>) {
        let runtime = crate::fetcher::runtime().unwrap();
        runtime.block_on(work);
        runtime.shutdown_background();
    }

    const AT: &str = "127.0.0.1:9";

    /// A resolver that answers once the last is dropped, and how often it was asked.
    fn silent() -> (Names, Arc<AtomicUsize>, Sender<()>) {
        let n_asked = Arc::new(AtomicUsize::new(0));
        let n = Arc::clone(&n_asked);
        let (answers, silence) = channel();
        let silence = Mutex::new(silence);
        let names = Names::of(Arc::new(move |_| {
            n.fetch_add(1, Ordering::SeqCst);
            // Nothing is ever sent.
            let _ = lock(&silence).recv_timeout(4 * PATIENCE);
            Ok(vec![AT.parse().unwrap()])
        }));
        (names, n_asked, answers)
    }

    /// Waits until the resolver was asked so often: threads of its own do that.
    async fn is_asked(n_asked: &AtomicUsize, n: usize) {
        let began = Instant::now();
        while n_asked.load(Ordering::SeqCst) < n {
            assert!(began.elapsed() < PATIENCE, "it was not asked {n} times");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(n_asked.load(Ordering::SeqCst), n);
    }

    /// The lookup took the connection's time, and the addresses that were known were never tried.
    #[test]
    fn who_knows_what_a_name_stood_for_hardly_waits_for_a_silent_resolver() {
        run(async {
            let (mut n_left, mut took) = (4, Duration::MAX);
            // A busy machine may add to the wait, but not each time.
            while took >= 4 * WAIT {
                assert!(n_left > 0, "{took:?}");
                n_left -= 1;
                let began = Instant::now();
                asks_a_silent_resolver().await;
                took = began.elapsed();
            }
        });
    }

    async fn asks_a_silent_resolver() {
        let (names, n_asked, _answers) = silent();
        let (name, old) = (("store".to_owned(), 1), "127.0.0.1:1".parse().unwrap());
        names.know(name.clone(), &[old], Instant::now() - 2 * KNOWN_FOR);
        let asked = names.addresses("store", 1);
        let found = tokio::time::timeout(PATIENCE, asked).await.unwrap().unwrap();
        assert_eq!(*found, [old]);
        // The next one does not wait at all.
        let found = names.addresses("store", 1).now_or_never().unwrap().unwrap();
        assert_eq!(*found, [old]);
        is_asked(&n_asked, 1).await;
        // It does not keep other names from being looked up.
        let other = tokio::time::timeout(WAIT, names.addresses("other", 1)).await;
        assert!(other.is_err());
        is_asked(&n_asked, 2).await;
    }

    #[test]
    fn who_gives_up_leaves_the_lookup_to_the_next_one() {
        run(async {
            let (names, n_asked, answers) = silent();
            for _ in 0..5 {
                let moment = Duration::from_millis(20);
                let asked = names.addresses("store", 1);
                tokio::time::timeout(moment, asked).await.unwrap_err();
            }
            drop(answers);
            let both = futures_util::future::join(
                names.addresses("store", 1),
                names.addresses("store", 1),
            );
            let (one, other) = both.await;
            assert!(*one.unwrap() == [AT.parse().unwrap()] && other.is_ok());
            assert_eq!(n_asked.load(Ordering::SeqCst), 1);
        });
    }

    #[test]
    fn a_lookup_that_was_never_carried_out_is_begun_again() {
        let (names, n_asked, answers) = silent();
        drop(answers);
        let (_, gone) = watch::channel(None);
        let under_way = Looking { began: Instant::now(), found: gone };
        lock(&names.looking).insert(("store".to_owned(), 1), under_way);
        run(async {
            names.addresses("store", 1).await.unwrap();
        });
        assert_eq!(n_asked.load(Ordering::SeqCst), 1);
    }
}
