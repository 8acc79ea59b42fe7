//! Counts how often each byte occurs in range 1, and writes the 256 counts to range 2, each as a little-endian number
//! of 64 bits.
//!
//! Parameter 1 is the byte of range 1 to begin with, parameter 2 the number of bytes; 0 is all that follow. It returns
//! how many it has counted. An execution ends with Invalid Field if they are not all in range 1, or if range 2 has
//! fewer than 2048 bytes.
#![cfg_attr(target_arch = "wasm32", no_std)]

use csd_program::Status;

csd_program::entry!(run);
csd_program::panics_trap!();

/// Bytes that are read at a time.
const PART: usize = 4096;

/// What an execution runs; for a device alone.
pub fn run(from: u64, bytes: u64) -> u64 {
    let all = csd_program::range_bytes(1).unwrap_or(0);
    let Some((mut at, end)) = span(all, from, bytes) else {
        csd_program::end(Status::INVALID_FIELD)
    };
    let n = end - at;
    let mut counts = [0; 256];
    let mut part = [0; PART];
    while at < end {
        let n = PART.min((end - at) as usize);
        csd_program::read(1, at, &mut part[..n]);
        count(&part[..n], &mut counts);
        at += n as u32;
    }
    for (value, count) in (0..).zip(counts) {
        csd_program::write(2, 8 * value, &count.to_le_bytes());
    }
    n.into()
}

/// First and last byte that are to be counted of a range of `all` bytes; `None` if they are not in it.
pub fn span(all: u32, from: u64, bytes: u64) -> Option<(u32, u32)> {
    let from = u32::try_from(from).ok().filter(|from| *from <= all)?;
    let end = match bytes {
        0 => all,
        _ => from.checked_add(u32::try_from(bytes).ok()?).filter(|end| *end <= all)?,
    };
    Some((from, end))
}

/// Adds `bytes` to the counts.
pub fn count(bytes: &[u8], counts: &mut [u64; 256]) {
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_counted() {
        let mut counts = [0; 256];
        count(&[1, 2, 2, 255], &mut counts);
        count(&[2], &mut counts);
        assert_eq!((counts[0], counts[1], counts[2], counts[255]), (0, 1, 3, 1));
        assert_eq!(counts.iter().sum::<u64>(), 5);
    }

    #[test]
    fn what_is_not_in_the_range_is_not_counted() {
        assert_eq!(span(10, 0, 0), Some((0, 10)));
        assert_eq!(span(10, 4, 6), Some((4, 10)));
        assert_eq!(span(10, 10, 0), Some((10, 10)));
        for (from, bytes) in [(11, 0), (4, 7), (u64::MAX, 1), (1, u64::MAX)] {
            assert_eq!(span(10, from, bytes), None, "{from} {bytes}");
        }
    }
}
