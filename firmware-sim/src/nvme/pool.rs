//! The threads that programs run on. A program may take long, and neither reads nor keep-alives wait for it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the end waits for what runs. A program that runs forever is left behind.
const TO_END: Duration = Duration::from_secs(5);
/// Tasks among which it does not pay to look for those that nobody wants any more.
const FEW: usize = 64;

/// What waits for a thread.
pub(super) trait Task: Send {
    /// Whether it still has something to do: a command that was aborted has not.
    fn is_wanted(&self) -> bool;

    /// Does it.
    fn run(self: Box<Self>);
}

/// Threads, and what waits for them: at most twice as many tasks as are wanted, and these are what the queues of all
/// hosts have in flight.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    line: Mutex<Line>,
    changed: Condvar,
}

#[derive(Default)]
struct Line {
    tasks: VecDeque<Box<dyn Task>>,
    /// With how many tasks those that nobody wants are next looked for.
    sweep_at: usize,
    has_ended: bool,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of `n` threads.
    ///
    /// # Errors
    /// If the system starts none.
    pub(super) fn start(n: usize) -> std::io::Result<Self> {
        let mut own = Self { shared: Arc::default(), threads: Vec::new() };
        for nth in 0..n.max(1) {
            let shared = Arc::clone(&own.shared);
            let builder = thread::Builder::new().name(format!("csd-core-{nth}"));
            // Without this one, those before it end with the pool.
            own.threads.push(builder.spawn(move || shared.work())?);
        }
        Ok(own)
    }

    /// Has it run.
    pub(super) fn run(&self, task: impl Task + 'static) {
        let mut line = self.shared.line();
        if line.tasks.len() >= line.sweep_at.max(FEW) {
            line.tasks.retain(|task| task.is_wanted());
            line.sweep_at = 2 * line.tasks.len();
        }
        line.tasks.push_back(Box::new(task));
        drop(line);
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(task) = self.next() {
            task.run();
        }
    }

    /// The next task; nothing at the end.
    fn next(&self) -> Option<Box<dyn Task>> {
        let mut line = self.line();
        while !line.has_ended {
            if let Some(task) = line.tasks.pop_front() {
                return Some(task);
            }
            line = self.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }
}

impl Drop for Pool {
    /// Waits a while for what runs; what has not begun does not.
    fn drop(&mut self) {
        let left = {
            let mut line = self.shared.line();
            line.has_ended = true;
            std::mem::take(&mut line.tasks)
        };
        drop(left);
        self.shared.changed.notify_all();
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is the report")]

    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Says that it runs, and then waits until it may end.
    struct Hold(Sender<()>, Receiver<()>);

    impl Task for Hold {
        fn is_wanted(&self) -> bool {
            true
        }

        fn run(self: Box<Self>) {
            self.0.send(()).unwrap();
            let _ = self.1.recv();
        }
    }

    struct Say(u32, Sender<u32>, Arc<AtomicBool>);

    impl Task for Say {
        fn is_wanted(&self) -> bool {
            self.2.load(Ordering::Acquire)
        }

        fn run(self: Box<Self>) {
            let _ = self.1.send(self.0);
        }
    }

    /// However often a host has something run and aborts it, while all threads are at work.
    #[test]
    fn what_nobody_wants_does_not_pile_up_and_the_rest_runs_in_order() {
        let pool = Pool::start(1).unwrap();
        let ((runs, is_running), (end, may_end)) = (channel(), channel());
        pool.run(Hold(runs, may_end));
        is_running.recv().unwrap();
        let (say, said) = channel();
        for n in 0..10_000 {
            let is_wanted = Arc::new(AtomicBool::new(true));
            pool.run(Say(n, say.clone(), Arc::clone(&is_wanted)));
            is_wanted.store(n % 1000 == 0, Ordering::Release);
        }
        assert!(pool.shared.line().tasks.len() <= FEW + 1);
        drop((say, end));
        let wanted: Vec<u32> = said.iter().filter(|n| n % 1000 == 0).collect();
        assert_eq!(wanted, (0..10).map(|n| n * 1000).collect::<Vec<_>>());
    }
}
