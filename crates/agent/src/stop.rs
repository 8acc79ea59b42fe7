//! When a device program ends: on a signal, or when the process that started it is gone.
//!
//! Both only set a flag. The program then leaves its loop, drops what it has and so removes what it
//! created. If it has not ended some time after its parent went away, it is terminated.

use std::io::{Read, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How long an orderly end may take: within the two seconds after which nothing of a device may be
/// left.
const GRACE: Duration = Duration::from_millis(1500);

/// How often the flag is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// A flag that is set by SIGTERM, SIGINT and SIGHUP.
///
/// # Errors
/// The system does not let signals be handled.
pub fn on_signals() -> std::io::Result<Arc<AtomicBool>> {
    on([SIGTERM, SIGINT, SIGHUP])
}

/// For a service: a flag that is set by SIGTERM and SIGINT, which end it, and one that is set by
/// SIGHUP, which has it read again what may change while it runs.
///
/// # Errors
/// The system does not let signals be handled.
pub fn of_service() -> std::io::Result<[Arc<AtomicBool>; 2]> {
    Ok([on([SIGTERM, SIGINT])?, on([SIGHUP])?])
}

fn on<const N: usize>(signals: [i32; N]) -> std::io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Sets `stop` when standard input ends, which the kernel sees to when the starter dies. The
/// thread that waits for it lives as long as the program.
///
/// # Errors
/// The system has no thread for it.
pub fn with_input(stop: &Arc<AtomicBool>) -> std::io::Result<()> {
    let stop = Arc::clone(stop);
    std::thread::Builder::new().name("be-stdin".to_owned()).spawn(move || {
        let mut sink = [0; 256];
        // What comes is of no interest, and an error is as good as the end.
        while stdin().read(&mut sink).is_ok_and(|n| n > 0) {}
        // A flag alone; nothing else is published with it.
        stop.store(true, Ordering::Relaxed);
        std::thread::sleep(GRACE);
        end_now(1);
    })?;
    Ok(())
}

/// Sees to it that the program has ended two seconds after `stop` was set, whatever a worker is in the
/// middle of. The thread that waits lives as long as the program. Whoever calls this has nothing to
/// lose by a sudden end but what its doors left to remove, which they do first.
///
/// # Errors
/// The system has no thread for it.
pub fn in_time(stop: &Arc<AtomicBool>) -> std::io::Result<()> {
    let stop = Arc::clone(stop);
    std::thread::Builder::new().name("be-stop".to_owned()).spawn(move || {
        // A flag alone; nothing else is published with it.
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(GRACE);
        end_now(0);
    })?;
    Ok(())
}

/// For a program that goes on although it was asked to end.
#[allow(clippy::exit, reason = "it was asked to end and goes on")]
fn end_now(status: i32) {
    std::process::exit(status);
}
