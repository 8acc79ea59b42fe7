//! The tasks that carry out the fetches of a thread. A task that has ended its fetch takes the next one: a task for each
//! fetch would take memory of some kilobytes, and fill it, for every record.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, AbortRegistration, Abortable};
use tokio::sync::mpsc as tasks;

use super::progress::Timer;
use super::{Fetch, Fetched, Lent, Shared, one};
use crate::{Objects, StorageError};

/// A fetch to carry out.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) serial: u64,
    pub(super) fetch: Fetch,
    pub(super) shared: Shared,
}

/// All tasks of a thread.
#[derive(Debug)]
pub(super) struct Runners {
    objects: Arc<dyn Objects>,
    answer: mpsc::Sender<(u64, Fetched)>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<tasks::UnboundedSender<Begun>>,
    /// What is under way, by serial.
    running: HashMap<u64, AbortHandle>,
}

/// A fetch that a task has.
#[derive(Debug)]
struct Begun {
    work: Work,
    told: Told,
    registration: AbortRegistration,
}

impl Runners {
    pub(super) fn new(
        objects: Arc<dyn Objects>,
        answer: mpsc::Sender<(u64, Fetched)>,
    ) -> Self {
        Self { objects, answer, state: Arc::default() }
    }

    /// Carries it out. For a thread's own runtime.
    pub(super) fn give(&mut self, work: Work) {
        let serial = work.serial;
        let (handle, registration) = AbortHandle::new_pair();
        let told = Told {
            answer: self.answer.clone(),
            serial,
            tag: work.fetch.tag,
            result: None,
            lent: work.shared.lent.clone(),
        };
        let mut state = inside(&self.state);
        state.running.insert(serial, handle);
        let runner = state.idle.pop();
        drop(state);
        let runner = runner.unwrap_or_else(|| self.another());
        // A task ends with its thread only, and what it has not taken is answered as it is dropped.
        let _ = runner.send(Begun { work, told, registration });
    }

    /// Ends it: of its answer, only the destination is heard.
    pub(super) fn cancel(&self, serial: u64) {
        if let Some(handle) = inside(&self.state).running.remove(&serial) {
            handle.abort();
        }
    }

    /// One more task.
    fn another(&self) -> tasks::UnboundedSender<Begun> {
        let (give, mut given) = tasks::unbounded_channel::<Begun>();
        let (objects, state) = (Arc::clone(&self.objects), Arc::clone(&self.state));
        let own = give.clone();
        drop(tokio::spawn(async move {
            let mut timer = Timer::new();
            while let Some(begun) = given.recv().await {
                let serial = begun.work.serial;
                carry_out(&*objects, begun, &mut timer).await;
                let mut state = inside(&state);
                state.running.remove(&serial);
                state.idle.push(own.clone());
            }
        }));
        give
    }
}

fn inside(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn carry_out(objects: &dyn Objects, begun: Begun, timer: &mut Timer) {
    let Begun { work: Work { fetch, shared, .. }, mut told, registration } = begun;
    let asked = async {
        let asked = one(objects, &fetch, &shared.progress, timer);
        match &shared.lent {
            Some(lent) => lent.during(asked).await,
            None => asked.await,
        }
    };
    let asked = Abortable::new(asked, registration);
    // What a panic leaves behind is dropped with the fetch, and its message has been printed.
    if let Ok(Ok(result)) = AssertUnwindSafe(asked).catch_unwind().await {
        told.result = Some(result);
    }
}

/// Answers when it is dropped, so that a fetch that panics or is cancelled is answered, too.
#[derive(Debug)]
struct Told {
    answer: mpsc::Sender<(u64, Fetched)>,
    serial: u64,
    tag: u64,
    result: Option<Result<bytes::Bytes, StorageError>>,
    lent: Option<Lent>,
}

impl Drop for Told {
    fn drop(&mut self) {
        let result = self.result.take().unwrap_or_else(|| Err(panicked()));
        let destination = self.lent.take().and_then(|lent| lent.take_back());
        // Nobody may be there any more to take it.
        let _ = self
            .answer
            .send((self.serial, Fetched { tag: self.tag, result, destination }));
    }
}

/// What there is to say of a fetch that has no result of its own.
fn panicked() -> StorageError {
    let why = "the fetch has panicked; this is a bug, please report it".to_owned();
    StorageError::Refused { place: "the store".to_owned(), why }
}
