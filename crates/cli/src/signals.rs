//! Signals that ask a run to end: SIGINT, SIGTERM and SIGHUP.
//!
//! The first lets the run finish its step and write its state; before the first epoch there is
//! nothing to finish, and it ends the program. The second does what it does to any program.
//! Only `bothends run` looks at signals; what a stopped run does is `runtime::drive`'s.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use bothends_runtime::{Observer, Progress, StopRequest};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use crate::say;

/// A signal that ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signal(i32);

impl Signal {
    pub(crate) fn name(self) -> &'static str {
        signal_name(self.0).unwrap_or("a signal")
    }

    /// As shells have it of a program that a signal ended: 130 for SIGINT, 143 for SIGTERM.
    pub(crate) fn status(self) -> u8 {
        u8::try_from(128 + self.0).unwrap_or(u8::MAX)
    }
}

/// What has been received. Told by the run when its first epoch begins.
#[derive(Debug, Clone)]
pub(crate) struct Received(Arc<State>);

#[derive(Debug)]
struct State {
    /// 0 until there was one.
    first: AtomicI32,
    has_begun: AtomicBool,
    stop: StopRequest,
}

impl Received {
    /// Handles signals from now on; `stop` is asked when one comes while epochs run.
    pub(crate) fn watch(stop: StopRequest) -> io::Result<Self> {
        let (first, has_begun) = (AtomicI32::new(0), AtomicBool::new(false));
        let state = Arc::new(State { first, has_begun, stop });
        let ignored = ignored_signals();
        // What is ignored stays so: `nohup`, a shell's background jobs.
        let is_ours = |signal: &i32| ignored & (1 << (signal - 1)) == 0;
        let ours: Vec<i32> =
            [SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_ours).collect();
        second_ends_at_once(&ours)?;
        let mut signals = Signals::new(ours)?;
        let its = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("be-signals".to_owned());
        thread
            .spawn(move || signals.forever().for_each(|signal| its.received(signal)))?;
        Ok(Self(state))
    }

    /// The first signal, if there was one.
    pub(crate) fn first(&self) -> Option<Signal> {
        let first = self.0.first.load(Ordering::SeqCst);
        (first != 0).then_some(Signal(first))
    }
}

impl State {
    fn received(&self, signal: i32) {
        self.first.store(signal, Ordering::SeqCst);
        if self.has_begun.load(Ordering::SeqCst) {
            self.stop.ask();
            return;
        }
        let signal = Signal(signal);
        say::note(&format!(
            "{} before the first epoch: nothing was begun",
            signal.name()
        ));
        std::process::exit(signal.status().into());
    }
}

/// Has the second of `signals` do what it does to any program, within its handler: the thread that
/// waits for them may not have run since the first one, and would see the two as one.
fn second_ends_at_once(signals: &[i32]) -> io::Result<()> {
    let has_come = Arc::new(AtomicBool::new(false));
    for &signal in signals {
        // In the order of their registration: the first finds the flag clear, and sets it.
        flag::register_conditional_default(signal, Arc::clone(&has_come))?;
        flag::register(signal, Arc::clone(&has_come))?;
    }
    Ok(())
}

impl Observer for Received {
    fn begin(&mut self, _: Progress) {
        self.0.has_begun.store(true, Ordering::SeqCst);
    }
}

/// Signals that this process was started to ignore, bit by bit from signal 1.
fn ignored_signals() -> u64 {
    // proc_pid_status(5): a mask in hexadecimal.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
