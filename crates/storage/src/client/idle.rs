//! Connections that wait for the next request.
//!
//! A connection is driven by the runtime that opened it, so another runtime does not use it. Connections that a router
//! or a server has forgotten without a word are silent, and all of them at once: where one is, those that have been idle
//! for as long are not used, so that the next attempt has a new one.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Id};

/// A connection that was idle for longer is not used: servers close them.
const FOR: Duration = Duration::from_secs(30);

/// A connection that was silent for so long when it was given up tells of others.
const SILENT_FOR: Duration = Duration::from_secs(1);

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
        let now = Instant::now();
        let mut waiting = self.waiting();
        let connections = waiting.entry(key).or_default();
        // A few that are in use all the time would keep the others open below them.
        let is_old = |(since, _): &(Instant, C)| now.duration_since(*since) > FOR;
        let mut old = Vec::new();
        if connections.first().is_some_and(is_old) {
            let n_old = connections.partition_point(is_old);
            old.extend(connections.drain(..n_old));
        }
        connections.push((now, connection));
        drop(waiting);
        drop(old);
    }

    /// A connection to `server` is given up that has said nothing since then. As [`Wait`], for answers that have begun.
    pub(crate) fn gave_up(&self, server: K, since: Instant) {
        // Outside of any runtime, nobody asks again.
        if let Ok(handle) = Handle::try_current() {
            self.fell_silent(&(server, handle.id()), since);
        }
    }

    fn fell_silent(&self, key: &(K, Id), since: Instant) {
        if since.elapsed() < SILENT_FOR {
            return;
        }
        let mut waiting = self.waiting();
        let Some(connections) = waiting.get_mut(key) else { return };
        let n_old = connections.partition_point(|(kept, _)| *kept <= since);
        let old: Vec<_> = connections.drain(..n_old).collect();
        drop(waiting);
        drop(old);
    }

    /// That an answer on a kept connection to `server` is waited for from now on.
    pub(crate) fn wait(&self, server: K) -> Wait<'_, K, C> {
        let key = (server, Handle::current().id());
        Wait { idle: self, key: Some(key), since: Instant::now() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<K, C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who waits for an answer on a connection that was kept. If it is dropped before the answer has come, and that took a
/// while, all connections that were idle before are, too.
#[derive(Debug)]
pub(crate) struct Wait<'a, K: Eq + Hash, C> {
    idle: &'a Idle<K, C>,
    /// Nothing once there is an answer.
    key: Option<(K, Id)>,
    since: Instant,
}

impl<K: Eq + Hash, C> Wait<'_, K, C> {
    /// The server has said something.
    pub(crate) fn end(mut self) {
        self.key = None;
    }
}

impl<K: Eq + Hash, C> Drop for Wait<'_, K, C> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.idle.fell_silent(&key, self.since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(work: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work);
    }

    impl Idle<(), u32> {
        fn aged(&self, by: Duration) {
            for (since, _) in self.waiting().values_mut().flatten() {
                *since -= by;
            }
        }

        fn n(&self) -> usize {
            self.waiting().values().map(Vec::len).sum()
        }
    }

    #[test]
    fn connections_below_one_that_is_in_use_are_closed_in_the_end() {
        run(async {
            let idle = Idle::default();
            (0..3).for_each(|n| idle.keep((), n));
            idle.aged(2 * FOR);
            idle.keep((), 3);
            assert_eq!((idle.n(), idle.take(())), (1, Some(3)));
        });
    }

    #[test]
    fn one_that_is_silent_tells_of_those_that_were_idle_before() {
        run(async {
            let idle = Idle::default();
            (0..3).for_each(|n| idle.keep((), n));
            let waits = || Wait { since: Instant::now() - SILENT_FOR, ..idle.wait(()) };
            drop(idle.wait(()));
            waits().end();
            drop(waits());
            // Not long enough, answered, and idle for a shorter time.
            assert_eq!(idle.n(), 3);
            idle.aged(2 * SILENT_FOR);
            idle.keep((), 3);
            drop(waits());
            assert_eq!((idle.n(), idle.take(())), (1, Some(3)));
        });
    }
}
