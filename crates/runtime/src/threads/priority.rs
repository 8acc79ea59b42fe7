//! An epoch's threads make way for the one that trains.
//!
//! A thread that hands a batch over is woken by the consumer that takes the one before, and the
//! kernel likes to run it at once, in the consumer's place: seen here as 4 to 12 ms of waiting
//! for a batch that the consumer had in its hands, at most steps of an epoch. Under
//! `SCHED_BATCH` (sched(7)) a woken thread never takes the place of one that runs; its share of
//! the processor stays the same.
//!
//! The threads that drain a device's socket are the exception: a sender that has filled the socket
//! stands still until its reader has run, so these run as soon as they are woken
//! (`runtime/engine.rs`).
//!
//! Threads that transcode go further (`SCHED_IDLE`): they run where nobody else would.
//!
//! A wish, as pins are: where the kernel refuses it, nothing changes; whoever gave the whole
//! process another policy keeps it.

#![allow(unsafe_code, reason = "two system calls that no library here has")]

use nix::libc::{
    SCHED_BATCH, SCHED_IDLE, SCHED_OTHER, sched_getscheduler, sched_param,
    sched_setscheduler,
};

/// The calling thread makes way from now on.
pub(crate) fn make_way() {
    take(SCHED_BATCH);
}

/// The calling thread runs only where no other wants to, from now on.
pub(crate) fn stand_back() {
    take(SCHED_IDLE);
}

fn take(wanted: i32) {
    // SAFETY: 0 is the calling thread; no memory is involved.
    let policy = unsafe { sched_getscheduler(0) };
    if policy == SCHED_OTHER {
        let priority = sched_param { sched_priority: 0 };
        // SAFETY: 0 is the calling thread, and the kernel only reads `priority`, which
        // outlives the call.
        unsafe { sched_setscheduler(0, wanted, &raw const priority) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_makes_way_and_the_others_do_not() {
        // SAFETY: 0 is the calling thread; no memory is involved.
        let policy = || unsafe { sched_getscheduler(0) };
        let before = policy();
        for (take, policy_after) in
            [(make_way as fn(), SCHED_BATCH), (stand_back, SCHED_IDLE)]
        {
            let after = std::thread::spawn(move || {
                take();
                policy()
            });
            let expected = if before == SCHED_OTHER { policy_after } else { before };
            assert_eq!(after.join().unwrap(), expected);
            assert_eq!(policy(), before);
        }
    }
}
