//! Joining a thread that was told to end, for a bounded time.
//!
//! A thread may be in a system call that nothing ends: open(2) on a network file system whose server
//! is gone, a caller's function that waits for something. It owns what it works on and its ends of
//! queues, which nobody else needs any more, so it is left alone and ends when the call does. When
//! threads are told to end is in `threads/shutdown.rs`.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam::channel::Sender;

/// How long threads that were told to end are waited for: far longer than one that does not hang
/// takes, on a busy machine, too.
pub(crate) const LEAVE_AFTER: Duration = Duration::from_secs(5);

/// The pauses between two looks: an epoch's end does not wait for a long one.
const FIRST_PAUSE: Duration = Duration::from_micros(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// Joins a thread by then; `None` of one that has not ended, and is left alone.
pub(crate) fn join_by<T>(
    thread: JoinHandle<T>,
    by: Instant,
) -> Option<thread::Result<T>> {
    let mut pause = FIRST_PAUSE;
    while !thread.is_finished() {
        if Instant::now() > by {
            return None;
        }
        thread::sleep(pause);
        pause = LONGEST_PAUSE.min(pause * 2);
    }
    Some(thread.join())
}

/// Says that threads of this name were left alone.
pub(crate) fn note_left(notes: &Sender<String>, name: &str, n: usize) {
    let threads = if n == 1 { "thread" } else { "threads" };
    let note = format!(
        "{n} {threads} (be-{name}) did not end: a file system or a function of the caller's does \
         not answer; left alone until it does"
    );
    // Where nobody reads notes there is no room for more, and nobody misses it.
    let _ = notes.try_send(note);
}
