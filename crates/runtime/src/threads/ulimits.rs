//! The limits that this process has (open files, addresses): looked at before anything is missing
//! in the middle of an epoch, or memory in the middle of an allocation, which would be the end.
//!
//! Opens nothing itself; `io::Files` keeps as many open as is said here.

use std::fs;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::error::RuntimeError;
use crate::read::opener::MOST_FILES;
use crate::threads::process;

/// Files of the data that stay open where that many may.
const MOST_OPEN: u64 = 64;

/// Descriptors of a device: its socket, a child's pipes, a spool's files.
const OF_A_DEVICE: u64 = 8;

/// Descriptors for all else: the ring, a listing, the side index, a checkpoint, what the caller
/// opens besides.
const SPARE: u64 = 16;

/// Descriptors that remote data take besides requests: files of the record cache, listings, single reads.
const OF_REMOTE: u64 = 128;

/// Of so many requests, one may be made a second time.
const HEDGES: u32 = 50;

/// What a worker takes besides slots: its stack, and what it keeps from sample to sample.
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

/// Files of the data that may be open.
#[derive(Debug)]
pub(crate) struct KeptOpen {
    /// How many stay open.
    pub(crate) n: usize,
    /// How many may be on their way besides: being opened, or open and waiting for the reader.
    pub(crate) n_opening: usize,
    /// One line for the user, where they are fewer than the data can use.
    pub(crate) note: Option<String>,
}

/// How many of the data's `n_files` may stay open, and how many may be on their way to the reader,
/// besides `n_read` that are read from and what devices need. Raises the limit of this process as far as that takes, and no further than it may.
///
/// # Errors
/// [`RuntimeError::OpenFiles`] when not even one may.
pub(crate) fn files_to_keep_open(
    n_files: usize,
    n_read: u32,
    n_devices: usize,
) -> Result<KeptOpen, RuntimeError> {
    let beside = n_open_besides(n_devices) + u64::from(n_read);
    let limit = raised_to(beside + MOST_OPEN + MOST_FILES as u64);
    let of_use = MOST_OPEN.min(n_files as u64);
    let Some((kept, n_opening)) = divided(limit.saturating_sub(beside), of_use) else {
        return Err(RuntimeError::OpenFiles { limit, need: beside + 2 });
    };
    let note = (kept < of_use).then(|| {
        format!(
            "at most {limit} files may be open, so {kept} of the data's stay open instead of \
             {of_use}; raise the limit (ulimit -n {})",
            beside + 2 * of_use
        )
    });
    let few = |n: u64| usize::try_from(n).unwrap_or(1);
    Ok(KeptOpen { n: few(kept), n_opening: few(n_opening), note })
}

/// How many requests to remote data may be in flight at once, each on a connection of its own, if `wanted` are too many,
/// and one line for the user where that is so. Raises the limit of this process as far as `wanted` take, and no further
/// than it may.
///
/// # Errors
/// [`RuntimeError::OpenFiles`] when not even one may.
pub(crate) fn requests_at_once(
    wanted: u32,
    n_devices: usize,
) -> Result<Option<(u32, String)>, RuntimeError> {
    let beside = n_open_besides(n_devices);
    let limit = raised_to(of_requests(wanted).saturating_add(beside));
    let left = limit.saturating_sub(beside);
    let n = most_requests(left, wanted)
        .ok_or(RuntimeError::OpenFiles { limit, need: beside + of_requests(1) })?;
    Ok((n < wanted).then(|| {
        let note = format!(
            "at most {limit} files may be open, so at most {n} requests are in flight instead \
             of {wanted}; raise the limit (ulimit -n {})",
            beside.saturating_add(of_requests(wanted))
        );
        (n, note)
    }))
}

/// Descriptors that so many requests take, and all else that remote data need.
fn of_requests(n: u32) -> u64 {
    u64::from(n) + u64::from(n.div_ceil(HEDGES)) + OF_REMOTE
}

/// The most of `wanted` requests that have room in so many descriptors.
fn most_requests(left: u64, wanted: u32) -> Option<u32> {
    if of_requests(wanted) <= left {
        return Some(wanted);
    }
    let room = u32::try_from(left.saturating_sub(OF_REMOTE)).unwrap_or(u32::MAX);
    // One of so many is left to late records.
    let n = room - room.div_ceil(HEDGES + 1);
    (1..wanted).contains(&n).then_some(n)
}

/// Descriptors that are open now, and that devices and all else take.
fn n_open_besides(n_devices: usize) -> u64 {
    let n_open = fs::read_dir("/proc/self/fd").map_or(SPARE, |open| open.count() as u64);
    n_open.saturating_add(OF_A_DEVICE.saturating_mul(n_devices as u64)) + SPARE
}

/// The limit on descriptors, once it is raised to so many, or as far as it may be.
fn raised_to(want: u64) -> u64 {
    // Where the system does not say, an error at opening will.
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((u64::MAX, u64::MAX));
    let want = want.min(hard);
    let may_raise = soft < want && setrlimit(Resource::RLIMIT_NOFILE, want, hard).is_ok();
    if may_raise { want } else { soft }
}

/// Of so many descriptors for the data, how many files stay open and how many may be on their way
/// to the reader: as many of each as are of use, and one at least. Files that have been opened
/// and not read yet are descriptors like any other.
fn divided(left: u64, of_use: u64) -> Option<(u64, u64)> {
    if left < 2 {
        return None;
    }
    let most_opening = of_use.min(MOST_FILES as u64).max(1);
    let n_opening = (left / 2).min(most_opening);
    Some(((left - n_opening).min(MOST_OPEN), n_opening))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_on_their_way_are_counted_with_those_that_stay_open() {
        for left in 0..300 {
            for of_use in [0, 1, 5, 64] {
                let Some((kept, n_opening)) = divided(left, of_use) else {
                    assert!(left < 2);
                    continue;
                };
                assert!(kept + n_opening <= left, "{left}: {kept} and {n_opening}");
                assert!(kept >= 1 && n_opening >= 1, "{left}: {kept} and {n_opening}");
            }
        }
        assert_eq!(divided(128, 64), Some((64, 64)));
        assert_eq!(divided(64, 64), Some((32, 32)));
        assert_eq!(divided(64, 1), Some((63, 1)));
    }

    #[test]
    fn as_many_requests_are_in_flight_as_have_descriptors() {
        for left in 0..600 {
            for wanted in [1, 2, 50, 256, 4096] {
                match most_requests(left, wanted) {
                    Some(n) => {
                        assert!(of_requests(n) <= left, "{left}: {n}");
                        assert!((1..=wanted).contains(&n), "{left}: {n}");
                        let has_no_room = of_requests(n + 2) > left;
                        assert!(n == wanted || has_no_room, "{left}: {n} of {wanted}");
                    }
                    None => assert!(left < of_requests(1), "{left}"),
                }
            }
        }
    }
}
