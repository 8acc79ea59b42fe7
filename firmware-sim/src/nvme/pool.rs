//! The threads that programs run on. A program may take long, and neither reads nor keep-alives wait for it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

type Work = Box<dyn FnOnce() + Send>;

/// Threads, and what waits for them: at most what the queues of all hosts may have in flight.
#[derive(Debug)]
pub(super) struct Pool {
    send: Option<Sender<Work>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of `n` threads.
    ///
    /// # Errors
    /// If the system starts none.
    pub(super) fn start(n: usize) -> std::io::Result<Self> {
        let (send, receive) = channel();
        let receive = Arc::new(Mutex::new(receive));
        let threads = (0..n.max(1))
            .map(|nth| {
                let receive = Arc::clone(&receive);
                thread::Builder::new()
                    .name(format!("csd-core-{nth}"))
                    .spawn(move || while next(&receive).map(|work| work()).is_some() {})
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { send: Some(send), threads })
    }

    /// Has it run.
    pub(super) fn run(&self, work: impl FnOnce() + Send + 'static) {
        if let Some(send) = &self.send {
            // The threads take work until this pool is dropped.
            let _ = send.send(Box::new(work));
        }
    }
}

fn next(receive: &Mutex<Receiver<Work>>) -> Option<Work> {
    receive.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

impl Drop for Pool {
    /// Waits for what runs.
    fn drop(&mut self) {
        self.send = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
