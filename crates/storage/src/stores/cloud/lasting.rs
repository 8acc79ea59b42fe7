//! Credentials outlive a failure of the service that renews them.
//!
//! `object_store` renews credentials some minutes before they expire, and fails if that fails, although the old ones are
//! still good. Here these are used in the meantime.

use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use object_store::CredentialProvider;

/// How long credentials are good after they were last given: those of less than 4 minutes (Google) or 5 are renewed.
const GOOD_FOR: Duration = Duration::from_secs(230);
/// While there are good ones, new ones are not waited for longer than a request has time for.
const WAIT: Duration = Duration::from_millis(2500);
/// After a failure, the service is not asked again for so long.
const PAUSE: Duration = Duration::from_secs(5);

/// A provider whose failures are bridged.
pub(crate) struct Lasting<C> {
    of: Arc<dyn CredentialProvider<Credential = C>>,
    /// One asks at a time; the others take what there is.
    asking: tokio::sync::Mutex<()>,
    last: Mutex<Option<Last<C>>>,
}

/// What was given last.
struct Last<C> {
    credential: Arc<C>,
    given: Instant,
    failed: Option<Instant>,
}

impl<C> Last<C> {
    fn if_good(&self) -> Option<Arc<C>> {
        (self.given.elapsed() < GOOD_FOR).then(|| Arc::clone(&self.credential))
    }
}

/// Without the credentials.
impl<C> Debug for Lasting<C> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lasting").finish_non_exhaustive()
    }
}

impl<C> Lasting<C> {
    pub(crate) fn around(of: &Arc<dyn CredentialProvider<Credential = C>>) -> Arc<Self> {
        let (asking, last) = (tokio::sync::Mutex::default(), Mutex::default());
        Arc::new(Self { of: Arc::clone(of), asking, last })
    }

    fn last(&self) -> MutexGuard<'_, Option<Last<C>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn good(&self) -> Option<Arc<C>> {
        self.last().as_ref().and_then(Last::if_good)
    }

    /// The last ones, if the service has failed a moment ago.
    fn after_failure(&self) -> Option<Arc<C>> {
        let last = self.last();
        let last = last.as_ref()?;
        last.failed.filter(|at| at.elapsed() < PAUSE).and_then(|_| last.if_good())
    }
}

impl<C: Send + Sync> Lasting<C> {
    async fn get(&self) -> object_store::Result<Arc<C>> {
        if let Some(good) = self.after_failure() {
            return Ok(good);
        }
        let guard = match self.asking.try_lock() {
            Ok(guard) => guard,
            Err(_) => match self.good() {
                Some(good) => return Ok(good),
                None => self.asking.lock().await,
            },
        };
        // Who waited for another one's question has its answer.
        if let Some(good) = self.after_failure() {
            return Ok(good);
        }
        let asked = self.of.get_credential();
        let given = match self.good() {
            None => Some(asked.await),
            Some(_) => tokio::time::timeout(WAIT, asked).await.ok(),
        };
        drop(guard);
        if let Some(Ok(credential)) = given {
            let (given, failed) = (Instant::now(), None);
            let last = Last { credential: Arc::clone(&credential), given, failed };
            *self.last() = Some(last);
            return Ok(credential);
        }
        if let Some(last) = self.last().as_mut() {
            last.failed = Some(Instant::now());
        }
        match (self.good(), given) {
            (Some(good), _) => Ok(good),
            (None, Some(given)) => given,
            // They have just ceased to be good.
            (None, None) => self.of.get_credential().await,
        }
    }
}

impl<C: Send + Sync> CredentialProvider for Lasting<C> {
    type Credential = C;

    // Written out, as the trait's attribute macro would.
    fn get_credential<'s, 'f>(&'s self) -> BoxFuture<'f, object_store::Result<Arc<C>>>
    where
        's: 'f,
        Self: 'f,
    {
        self.get().boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::client::failure::Failure;

    /// Gives the number of the question, or fails where that is not in `good`.
    #[derive(Debug)]
    struct Script {
        good: std::ops::Range<u32>,
        n_asked: AtomicU32,
    }

    impl CredentialProvider for Script {
        type Credential = u32;

        fn get_credential<'s, 'f>(
            &'s self,
        ) -> BoxFuture<'f, object_store::Result<Arc<u32>>>
        where
            's: 'f,
            Self: 'f,
        {
            let n = self.n_asked.fetch_add(1, Ordering::SeqCst);
            let failure = Failure::Broken("test".to_owned());
            let source = Box::new(failure);
            let failed = object_store::Error::Generic { store: "test", source };
            let given =
                if self.good.contains(&n) { Ok(Arc::new(n)) } else { Err(failed) };
            std::future::ready(given).boxed()
        }
    }

    fn lasting(good: std::ops::Range<u32>) -> (Arc<Script>, Arc<Lasting<u32>>) {
        let script = Arc::new(Script { good, n_asked: AtomicU32::new(0) });
        let of: Arc<dyn CredentialProvider<Credential = u32>> =
            Arc::<Script>::clone(&script);
        (script, Lasting::around(&of))
    }

    fn get(lasting: &Lasting<u32>) -> object_store::Result<Arc<u32>> {
        let runtime = crate::fetcher::runtime().unwrap();
        let within = Duration::from_secs(30);
        runtime.block_on(async {
            tokio::time::timeout(within, lasting.get()).await.unwrap()
        })
    }

    fn aged(lasting: &Lasting<u32>, by: Duration) {
        let mut last = lasting.last();
        let last = last.as_mut().unwrap();
        last.given -= by;
        last.failed = last.failed.map(|at| at - by);
    }

    #[test]
    fn old_credentials_are_used_while_they_are_good_and_new_ones_are_not_given() {
        let (script, lasting) = lasting(0..2);
        for n in 0..2 {
            assert_eq!(*get(&lasting).unwrap(), n);
        }
        // It is asked once, and not again at once.
        for _ in 0..3 {
            assert_eq!(*get(&lasting).unwrap(), 1);
        }
        assert_eq!(script.n_asked.load(Ordering::SeqCst), 3);
        aged(&lasting, PAUSE);
        assert_eq!(*get(&lasting).unwrap(), 1);
        assert_eq!(script.n_asked.load(Ordering::SeqCst), 4);
        aged(&lasting, GOOD_FOR);
        assert!(get(&lasting).is_err());
    }

    #[test]
    fn a_failure_before_there_are_any_is_told() {
        let (_, lasting) = lasting(1..2);
        assert!(get(&lasting).is_err());
        assert_eq!(*get(&lasting).unwrap(), 1);
    }

    #[test]
    fn who_comes_while_another_one_asks_takes_what_there_is() {
        let (script, lasting) = lasting(0..9);
        get(&lasting).unwrap();
        let _asking = lasting.asking.try_lock().unwrap();
        assert_eq!(*get(&lasting).unwrap(), 0);
        assert_eq!(script.n_asked.load(Ordering::SeqCst), 1);
        aged(&lasting, GOOD_FOR);
        assert!(lasting.get().now_or_never().is_none());
    }
}
