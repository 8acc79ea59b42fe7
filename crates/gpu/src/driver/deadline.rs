//! Foreign code that may never return, called on a thread of its own.
//!
//! A library that hangs when it is opened must not take the run with it. The thread that hangs
//! cannot be ended, so it is left behind: do this only once per process and library.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// What `call` returns, or `None` where it has not returned within `limit`, has panicked, or
/// could get no thread. Blocks for `limit` at most; a call that is late goes on in the
/// background and what it returns is dropped there.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    name: &str,
    call: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (send, receive) = mpsc::sync_channel(1);
    let body = move || drop(send.send(call()));
    thread::Builder::new().name(name.to_owned()).spawn(body).ok()?;
    receive.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_never_returns_is_left_behind() {
        assert_eq!(within(Duration::from_secs(60), "prompt", || 7), Some(7));
        let (_keep, never) = mpsc::channel::<()>();
        let limit = Duration::from_millis(20);
        assert_eq!(within(limit, "late", move || never.recv().is_ok()), None);
        let panics = || -> u32 { panic!("expected by this test") };
        assert_eq!(within(Duration::from_secs(60), "panics", panics), None);
    }
}
