//! How much memory the batches of all sessions may take on the device: as many as fit may be under way,
//! waiting or being sent at once.
//!
//! It decides and allocates nothing. The loop in `csd` makes the ring of a session's slots, and counts a
//! batch that has not been sent yet as still occupying its slot.

use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bothends_core::recipe::MAX_DECODE_BYTES;
use bothends_csd::{Busy, Declined};
use bothends_ops::{DecodeRoom, PixelLimit};
use bothends_slots::available_bytes;

/// The largest batch that is made where nobody says how much memory there is for them, in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// The part of the memory available on the machine that `auto` is: one in so many. The rest is for
/// the page cache, from which the data are read, and for what the machine is there for.
const AUTO_PART: u64 = 4;

/// The part of what batches may take that results may where nobody says how much: one in so many.
const RESULTS_PART: u64 = 4;

/// When a host that found no room may ask again: sessions end when epochs or runs do.
pub(crate) const RETRY: Duration = Duration::from_secs(5);

/// For how long what the kernel said of available memory holds: it reads five files for it, which takes longer
/// than the rest of an opening that is refused.
const FRESH: Duration = Duration::from_millis(50);

/// What programs may still take on this machine, in bytes, as it was [`FRESH`] ago at most.
fn recently_available() -> Option<u64> {
    static LAST: Mutex<Option<(Instant, Option<u64>)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match *last {
        Some((at, bytes)) if at.elapsed() < FRESH => bytes,
        _ => {
            let bytes = available_bytes();
            *last = Some((Instant::now(), bytes));
            bytes
        }
    }
}

/// What results may take that are kept for several sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResultMemory {
    /// None are kept.
    Off,
    /// A quarter of what batches may take, and no more than these leave.
    #[default]
    Auto,
    /// So many bytes, and no more than batches leave.
    Bytes(u64),
}

impl FromStr for ResultMemory {
    type Err = String;

    /// `auto`, or MiB.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let bytes = text.parse::<u64>().ok().and_then(|mib| mib.checked_mul(1 << 20));
        match bytes {
            Some(0) => Ok(Self::Off),
            Some(bytes) => Ok(Self::Bytes(bytes)),
            None => Err("give MiB, 0 for none, or auto".to_owned()),
        }
    }
}

impl ResultMemory {
    /// What results may take where batches may take that much, and take `held` bytes; of `available`
    /// memory results take `kept` bytes by now.
    pub(crate) fn limit(self, memory: Memory, (held, kept): (u64, u64)) -> u64 {
        self.of(memory, recently_available, (held, kept))
    }

    fn of(
        self,
        memory: Memory,
        available: impl FnOnce() -> Option<u64>,
        (held, kept): (u64, u64),
    ) -> u64 {
        let taken = held.saturating_add(kept);
        let available = || available().map(|bytes| bytes.saturating_add(taken));
        let [most, largest] = memory.bounds(available);
        let wanted = match self {
            Self::Off => 0,
            // Where nothing bounds all batches together, the largest one is a bound.
            Self::Auto => most.min(largest) / RESULTS_PART,
            Self::Bytes(bytes) => bytes,
        };
        wanted.min(most.saturating_sub(held))
    }
}

/// What batches and lists of samples may take, those of all hosts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Memory {
    /// As many batches as there are slots.
    #[default]
    Slots,
    /// A quarter of what programs may still take on this machine when a host comes; one batch
    /// of one host always.
    Auto,
    /// So many bytes. A host whose batches are larger is refused.
    Bytes(u64),
}

/// What decoding may take besides batches: a quarter of the `available` bytes, and for one image what
/// the host allows it, since whether a sample is bad must not depend on who makes it.
pub(crate) fn decode_room(available: Option<u64>, n_workers: u32) -> DecodeRoom {
    let together = available.map_or(MAX_DECODE_BYTES, |bytes| bytes / AUTO_PART);
    let (one_bytes, pixels) = (MAX_DECODE_BYTES, PixelLimit::NONE);
    DecodeRoom { together_bytes: together, one_bytes, n_workers, pixels }
}

impl FromStr for Memory {
    type Err = String;

    /// `auto`, or MiB.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let bytes = text.parse::<u64>().ok().and_then(|mib| mib.checked_mul(1 << 20));
        let bytes = bytes.filter(|bytes| *bytes > 0);
        bytes.map(Self::Bytes).ok_or_else(|| "give MiB, 1 or more, or auto".to_owned())
    }
}

impl Memory {
    /// The largest batch that is made now, in bytes.
    pub(crate) fn largest_batch_bytes(self) -> u64 {
        self.bounds(recently_available)[1]
    }

    /// What batches may take together, and the largest one, in bytes. `available` is asked only where it matters.
    fn bounds(self, available: impl FnOnce() -> Option<u64>) -> [u64; 2] {
        match self {
            Self::Slots => [u64::MAX, MOST_BYTES],
            Self::Auto => {
                let part = available().map_or(MOST_BYTES, |bytes| bytes / AUTO_PART);
                [part, part.max(MOST_BYTES)]
            }
            Self::Bytes(bytes) => [bytes, bytes],
        }
    }

    /// How many of `slots` batches of this size a session may have, at least 1, where the sessions
    /// of other hosts have `held`.
    ///
    /// # Errors
    /// Not even one: never, or not as long as others have what they have.
    pub(crate) fn slots_of(self, want: Want, slots: u32) -> Result<u32, Declined> {
        self.divided(recently_available, want, slots)
    }

    fn divided(
        self,
        available: impl FnOnce() -> Option<u64>,
        want: Want,
        slots: u32,
    ) -> Result<u32, Declined> {
        let Want { batch_bytes, list_bytes, held_bytes, kept_bytes } = want;
        // What is held is not available any more, but was when it was given.
        let taken_bytes = held_bytes.saturating_add(kept_bytes);
        let available = || available().map(|bytes| bytes.saturating_add(taken_bytes));
        let [most_bytes, largest_bytes] = self.bounds(available);
        let (beside, remedy) = match self {
            Self::Bytes(_) => (list_bytes, ", or give the device more with --memory"),
            Self::Slots | Self::Auto => (0, ""),
        };
        let largest_bytes = largest_bytes.saturating_sub(beside);
        if batch_bytes > largest_bytes {
            return Err(Declined::Refused(format!(
                "a batch takes {batch_bytes} bytes and this device prepares at most \
                 {largest_bytes}; use a smaller batch size{remedy}"
            )));
        }
        let free_bytes = most_bytes.saturating_sub(held_bytes).saturating_sub(list_bytes);
        let fitting = free_bytes / batch_bytes.max(1);
        if fitting == 0 && held_bytes > 0 {
            let reason = format!(
                "a batch takes {batch_bytes} bytes and other hosts leave {free_bytes} of the \
                 device's {most_bytes}"
            );
            return Err(Declined::Busy(Busy { retry: RETRY, reason }));
        }
        let fitting = u32::try_from(fitting).unwrap_or(u32::MAX);
        Ok(fitting.clamp(1, slots.max(1)))
    }
}

/// What a session takes, and what is there already, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    pub(crate) batch_bytes: u64,
    /// Of its list of samples, unless another session has the same, and of what it notes of its files.
    pub(crate) list_bytes: u64,
    /// Of the batches and lists of other sessions.
    pub(crate) held_bytes: u64,
    /// Of results, which make room for batches.
    pub(crate) kept_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    /// 256 samples of 224 x 224 in three bytes.
    const BATCH: u64 = 256 * 224 * 224 * 3;

    /// Sixty-four workers with photographs of 24 megapixels, each of which is counted with 103 MiB:
    /// where there are 64 GiB, they need not take turns.
    #[test]
    fn large_photographs_are_decoded_side_by_side_where_there_is_memory() {
        let room = decode_room(Some(64 << 30), 64);
        assert!(room.together_bytes >= 64 * (103 << 20));
        assert_eq!(room.one_bytes, decode_room(None, 1).one_bytes);
    }

    #[test]
    fn what_is_typed_is_read_or_named() {
        assert_eq!("auto".parse(), Ok(Memory::Auto));
        assert_eq!("512".parse(), Ok(Memory::Bytes(512 << 20)));
        for wrong in ["", "0", "-1", "1.5", "512M", "18446744073709551615"] {
            assert!(wrong.parse::<Memory>().is_err(), "{wrong}");
        }
    }

    fn divided(
        memory: Memory,
        available: Option<u64>,
        batch_bytes: u64,
    ) -> Result<u32, String> {
        let want = Want { batch_bytes, list_bytes: 0, held_bytes: 0, kept_bytes: 0 };
        memory.divided(|| available, want, 4).map_err(|declined| match declined {
            Declined::Refused(reason) => reason,
            Declined::Busy(busy) => panic!("nobody else is here: {busy:?}"),
        })
    }

    #[test]
    fn as_many_batches_as_fit_and_no_more_than_slots() {
        let of = |memory, bytes| divided(memory, Some(8 * GIB), bytes);
        assert_eq!(of(Memory::Slots, BATCH), Ok(4));
        assert_eq!(of(Memory::Bytes(2 * BATCH), BATCH), Ok(2));
        assert_eq!(of(Memory::Bytes(3 * BATCH - 1), BATCH), Ok(2));
        assert_eq!(of(Memory::Bytes(BATCH), BATCH), Ok(1));
        assert_eq!(of(Memory::Bytes(GIB), BATCH), Ok(4));
        let refused = of(Memory::Bytes(BATCH - 1), BATCH).unwrap_err();
        assert!(refused.contains("smaller batch size, or give the device more"));
        assert!(refused.contains(&format!("at most {}", BATCH - 1)), "{refused}");
    }

    #[test]
    fn auto_suits_big_batches_on_big_machines_and_one_on_any() {
        let of = |available, bytes| divided(Memory::Auto, available, bytes);
        // In four bytes for each value.
        assert_eq!(of(Some(64 * GIB), 4 * BATCH), Ok(4));
        assert_eq!(of(Some(64 * GIB), 2 * GIB), Ok(4));
        assert_eq!(of(Some(GIB), 4 * BATCH), Ok(1));
        assert_eq!(of(Some(0), GIB), Ok(1), "as before there was a bound");
        assert!(of(Some(0), GIB + 1).is_err());
        assert_eq!(of(None, BATCH), Ok(4));
    }

    #[test]
    fn results_take_what_batches_leave() {
        assert_eq!("auto".parse(), Ok(ResultMemory::Auto));
        assert_eq!("0".parse(), Ok(ResultMemory::Off));
        assert_eq!("8".parse(), Ok(ResultMemory::Bytes(8 << 20)));
        assert!("-1".parse::<ResultMemory>().is_err());
        let of = |results: ResultMemory, memory, held| {
            results.of(memory, || Some(8 * GIB), (held, 0))
        };
        let memory = Memory::Bytes(2 * GIB);
        assert_eq!(of(ResultMemory::Off, memory, 0), 0);
        assert_eq!(of(ResultMemory::Auto, memory, 0), GIB / 2);
        assert_eq!(of(ResultMemory::Auto, memory, 2 * GIB - 5), 5);
        assert_eq!(of(ResultMemory::Bytes(3 * GIB), memory, GIB), GIB);
        assert_eq!(of(ResultMemory::Auto, memory, 3 * GIB), 0);
        assert_eq!(of(ResultMemory::Auto, Memory::Auto, 0), GIB / 2);
        assert_eq!(of(ResultMemory::Auto, Memory::Slots, 0), MOST_BYTES / 4);
    }

    #[test]
    fn what_others_have_is_not_given_twice() {
        let of = |held_bytes, list_bytes| {
            let batch_bytes = BATCH;
            let want = Want { batch_bytes, list_bytes, held_bytes, kept_bytes: 0 };
            Memory::Bytes(4 * BATCH).divided(|| None, want, 4)
        };
        assert_eq!(of(0, 0), Ok(4));
        assert_eq!(of(2 * BATCH, 0), Ok(2));
        assert_eq!(of(0, 1), Ok(3), "a list of samples counts");
        assert_eq!(of(3 * BATCH, 0), Ok(1));
        let Err(Declined::Busy(busy)) = of(3 * BATCH, 1) else { panic!("no room") };
        assert_eq!(busy.retry, RETRY);
        let expected = format!("leave {} of the device's {}", BATCH - 1, 4 * BATCH);
        assert!(busy.reason.contains(&expected), "{}", busy.reason);
    }
}
