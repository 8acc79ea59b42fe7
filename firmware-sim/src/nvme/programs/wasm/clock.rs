//! A clock for programs that run: they look at the time whenever it ticks. It stands still while none runs.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use wasmtime::Engine;

/// Time between ticks.
const TICK: Duration = Duration::from_millis(20);

/// The clock, with its thread.
#[derive(Debug)]
pub(super) struct Clock {
    hand: Arc<Hand>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Hand {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    n_running: usize,
    has_ended: bool,
}

impl Clock {
    /// Starts a clock of this engine.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub(super) fn start(engine: &Engine) -> std::io::Result<Self> {
        let (hand, engine) = (Arc::new(Hand::default()), engine.clone());
        let own = Arc::clone(&hand);
        let tick = move || own.tick(&engine);
        let thread = thread::Builder::new().name("csd-clock".to_owned()).spawn(tick)?;
        Ok(Self { hand, thread: Some(thread) })
    }

    /// Lets it tick until what is returned is dropped.
    pub(super) fn running(&self) -> Running<'_> {
        self.hand.state().n_running += 1;
        self.hand.changed.notify_one();
        Running(&self.hand)
    }
}

impl Hand {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self, engine: &Engine) {
        let mut state = self.state();
        while !state.has_ended {
            if state.n_running == 0 {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout(state, TICK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            engine.increment_epoch();
        }
    }
}

/// Something runs.
#[derive(Debug)]
pub(super) struct Running<'a>(&'a Hand);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state().n_running -= 1;
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.hand.state().has_ended = true;
        self.hand.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
