//! The threads that programs run on. A program may take long, and neither reads nor keep-alives wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the end waits for what runs. A program that runs forever is left behind.
const TO_END: Duration = Duration::from_secs(5);

type Work = Box<dyn FnOnce() + Send>;

/// Threads, and what waits for them: at most what the queues of all hosts may have in flight.
#[derive(Debug)]
pub(super) struct Pool {
    send: Option<Sender<Work>>,
    stops: Arc<AtomicBool>,
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
        let stops = Arc::new(AtomicBool::new(false));
        let threads = (0..n.max(1))
            .map(|nth| {
                let (receive, stops) = (Arc::clone(&receive), Arc::clone(&stops));
                thread::Builder::new().name(format!("csd-core-{nth}")).spawn(move || {
                    while let Some(work) = next(&receive)
                        && !stops.load(Ordering::Acquire)
                    {
                        work();
                    }
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { send: Some(send), stops, threads })
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
    /// Waits a while for what runs; what has not begun does not.
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
        self.send = None;
        let by = Instant::now() + TO_END;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < by {
                thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}
