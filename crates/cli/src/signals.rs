//! Signals that ask a run to end: SIGINT, SIGTERM and SIGHUP.
//!
//! The first lets the run finish its step and write its state; before the first epoch there is
//! nothing to finish, and it ends the program. The second does what it does to any program, unless
//! it comes with the first: `timeout` sends each signal to a program and to its process group.
//! Only `bothends run` looks at signals; what a stopped run does is `runtime::drive`'s.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use bothends_runtime::{Observer, Progress, StopRequest};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use crate::say;

/// What comes so soon after the first signal is the same request.
const TOGETHER: Duration = Duration::from_millis(200);

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
    /// Whether a signal ends the process.
    is_last: Arc<AtomicBool>,
}

impl Received {
    /// Handles signals from now on; `stop` is asked when one comes while epochs run.
    pub(crate) fn watch(stop: StopRequest) -> io::Result<Self> {
        let (first, has_begun) = (AtomicI32::new(0), AtomicBool::new(false));
        // Until the first one is waited for, each does what it does to any program.
        let is_last = Arc::new(AtomicBool::new(true));
        let state = Arc::new(State { first, has_begun, stop, is_last });
        let ignored = ignored_signals();
        // What is ignored stays so: `nohup`, a shell's background jobs.
        let is_ours = |signal: &i32| ignored & (1 << (signal - 1)) == 0;
        let ours: Vec<i32> =
            [SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_ours).collect();
        for &signal in &ours {
            // Within the handler: the thread may be waiting for its turn, and takes two for one. Before the thread
            // hears of it, or the first one might be the last.
            flag::register_conditional_default(signal, Arc::clone(&state.is_last))?;
        }
        let mut signals = Signals::new(ours)?;
        state.is_last.store(false, Ordering::SeqCst);
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
        let first = &self.first;
        if first.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_err()
        {
            return;
        }
        self.let_next_end();
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

    /// Soon, the next signal ends the process, whatever that is in the middle of.
    fn let_next_end(&self) {
        let is_last = Arc::clone(&self.is_last);
        let thread = std::thread::Builder::new().name("be-signals".to_owned());
        let soon = thread.spawn(move || {
            std::thread::sleep(TOGETHER);
            is_last.store(true, Ordering::SeqCst);
        });
        if soon.is_err() {
            self.is_last.store(true, Ordering::SeqCst);
        }
    }
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
