//! `perf_event_open(2)`: the kernel counts an event on one processor, for all that runs there.
//!
//! The only call for which no package has a safe wrapper. What an event means is the caller's
//! business.
#![allow(
    unsafe_code,
    reason = "perf_event_open takes the address of a structure and gives a bare descriptor"
)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, RawFd};

use super::{Count, Event};

/// `struct perf_event_attr` in its first and shortest form (`PERF_ATTR_SIZE_VER0`), which every
/// kernel accepts.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    /// Sampling, formats, flags: all off, so the event counts from now on.
    rest: [u64; 6],
}

const _: () = assert!(size_of::<Attributes>() == 64);

/// Not inherited by programs that are started later (`PERF_FLAG_FD_CLOEXEC`).
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// Any process, no group.
const NONE: libc::c_long = -1;

/// Starts to count.
pub(super) fn open(event: Event) -> io::Result<Box<dyn Count>> {
    let mut attributes =
        Attributes { kind: event.pmu, size: 64, config: event.config, rest: [0; 6] };
    let cpu = libc::c_long::from(event.cpu);
    // SAFETY: `attributes` is a structure of the 64 bytes that it states as its size, and lives
    // until the call returns; the other arguments are numbers.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw mut attributes,
            NONE,
            cpu,
            NONE,
            CLOSE_ON_EXEC,
        )
    };
    let descriptor = RawFd::try_from(descriptor).map_err(io::Error::other)?;
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for this call; nothing else owns it.
    let file = unsafe { File::from_raw_fd(descriptor) };
    Ok(Box::new(file))
}

impl Count for File {
    fn count(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kernel has the PMU of software events, so the call itself can be tested.
    #[test]
    fn the_kernel_counts() {
        let clock = Event { pmu: 1, config: 0, cpu: 0 };
        let mut count = match open(clock) {
            Ok(count) => count,
            Err(error) => {
                eprintln!("skipped: perf_event_open is not allowed here ({error})");
                return;
            }
        };
        let first = count.count().unwrap();
        let mut last = first;
        for _ in 0..1000 {
            let now = count.count().unwrap();
            assert!(now >= last, "a clock that goes back");
            last = now;
        }
        assert!(last > first, "a processor's clock that stands still");
    }

    #[test]
    fn what_is_no_event_is_refused() {
        let error = open(Event { pmu: u32::MAX, config: 0, cpu: 0 }).unwrap_err();
        assert!(error.raw_os_error().is_some(), "{error}");
    }
}
