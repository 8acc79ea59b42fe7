//! The limits that this process has (open files, addresses): looked at before anything is missing
//! in the middle of an epoch, or memory in the middle of an allocation, which would be the end.
//!
//! Opens nothing itself; `io::Files` keeps as many open as is said here.

use std::fs;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::error::RuntimeError;
use crate::threads::process;

/// Files of the data that stay open where that many may.
const MOST_OPEN: u64 = 64;

/// Descriptors of a device: its socket, a child's pipes, a spool's files.
const OF_A_DEVICE: u64 = 8;

/// Descriptors for all else: the ring, a listing, the side index, a checkpoint, what the caller
/// opens beside us.
const SPARE: u64 = 16;

/// What a worker takes beside slots: its stack, and what it keeps from sample to sample.
const OF_A_WORKER_BYTES: u64 = 24 << 20;

/// What all else takes: the reader's buffers, the other threads, the list of samples.
const OF_ALL_ELSE_BYTES: u64 = 64 << 20;

/// Whether so many bytes of slots and so many workers have room among the addresses that this
/// process may have (`ulimit -v`).
///
/// # Errors
/// [`RuntimeError::Addresses`].
pub(crate) fn check_addresses(
    slot_bytes: u64,
    n_workers: u32,
) -> Result<(), RuntimeError> {
    let Ok((limit, _)) = getrlimit(Resource::RLIMIT_AS) else { return Ok(()) };
    let workers = OF_A_WORKER_BYTES.saturating_mul(n_workers.into());
    let more = slot_bytes.saturating_add(workers).saturating_add(OF_ALL_ELSE_BYTES);
    let need = process::address_bytes().unwrap_or(0).saturating_add(more);
    match need > limit {
        true => Err(RuntimeError::Addresses { limit, need }),
        false => Ok(()),
    }
}

/// Files of the data that may stay open.
#[derive(Debug)]
pub(crate) struct KeptOpen {
    pub(crate) n: usize,
    /// One line for the user, where they are fewer than the data have a use for.
    pub(crate) note: Option<String>,
}

/// How many of the data's `n_files` may stay open beside `depth` that are read from and what
/// devices need. Raises the limit of this process as far as that takes, and no further than it may.
///
/// # Errors
/// [`RuntimeError::OpenFiles`] when not even one may.
pub(crate) fn files_to_keep_open(
    n_files: usize,
    depth: u32,
    n_devices: usize,
) -> Result<KeptOpen, RuntimeError> {
    // Where the system does not say, an error at opening will.
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((u64::MAX, u64::MAX));
    let n_open = fs::read_dir("/proc/self/fd").map_or(SPARE, |open| open.count() as u64);
    let of_devices = OF_A_DEVICE.saturating_mul(n_devices as u64);
    let beside = n_open + u64::from(depth) + of_devices + SPARE;
    let want = (beside + MOST_OPEN).min(hard);
    let may_raise = soft < want && setrlimit(Resource::RLIMIT_NOFILE, want, hard).is_ok();
    let limit = if may_raise { want } else { soft };
    let left = limit.saturating_sub(beside).min(MOST_OPEN);
    if left == 0 {
        return Err(RuntimeError::OpenFiles { limit, need: beside + 1 });
    }
    let of_use = MOST_OPEN.min(n_files as u64);
    let note = (left < of_use).then(|| {
        format!(
            "at most {limit} files may be open, so {left} of the data's stay open instead of \
             {of_use}; raise the limit (ulimit -n {})",
            beside + of_use
        )
    });
    Ok(KeptOpen { n: usize::try_from(left).unwrap_or(1), note })
}
