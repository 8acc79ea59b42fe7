//! Connections that wait for the next request.
//!
//! A connection is driven by the runtime that opened it, so another runtime does not use it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Id};

/// A connection that was idle for longer is not used: servers close them.
const FOR: Duration = Duration::from_secs(30);

/// By server and runtime: since when which connections are idle, oldest first.
type Waiting<K, C> = HashMap<(K, Id), Vec<(Instant, C)>>;

/// Idle connections `C` to servers `K`.
#[derive(Debug)]
pub(crate) struct Idle<K, C>(Mutex<Waiting<K, C>>);

impl<K, C> Default for Idle<K, C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, C> Idle<K, C> {
    /// The connection that was used last, if it can be used still.
    pub(crate) fn take(&self, server: K) -> Option<C> {
        let key = (server, Handle::current().id());
        let mut waiting = self.waiting();
        let (since, connection) = waiting.get_mut(&key)?.pop()?;
        // The last one put back is the first one taken: behind an old one are only older ones.
        if since.elapsed() > FOR {
            waiting.remove(&key);
            return None;
        }
        Some(connection)
    }

    /// The runtime that calls is the one that drives the connection.
    pub(crate) fn keep(&self, server: K, connection: C) {
        let key = (server, Handle::current().id());
        self.waiting().entry(key).or_default().push((Instant::now(), connection));
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<K, C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
