//! Entropy-coded data without its stuffing, so that bits can be read eight bytes at a time.
//!
//! A file writes the byte FF as FF 00, and may put restart markers between (T.81 §B.1.1.5,
//! §F.1.2.3). [`ScanData`] drops both once, remembers where restarts were, and ends in zeros
//! that a reader may run into: whoever reads bits compares its position with the end once per
//! MCU, not once per symbol. Where the others were, the file says again ([`places`]): a note
//! of each would take eight times as many bytes. Read `lookup.rs` next.
#![allow(
    clippy::cast_possible_truncation,
    reason = "a place in memory fits a usize, a place in a byte 3 bits"
)]

use std::ops::Range;

use crate::error::SampleFault;
use crate::jpeg::damaged;

/// Zeros after the data. One MCU takes at most 10 blocks of 64 symbols of 31 bits, and a
/// read looks 8 bytes ahead.
const PADDING: usize = 10 * 64 * 31 / 8 + 16;

/// Entropy-coded data, unstuffed.
#[derive(Debug, Default)]
pub(crate) struct ScanData {
    /// The data, then [`PADDING`] zeros.
    bytes: Vec<u8>,
    /// Length of the data without the padding.
    len: usize,
    restarts: Vec<Restart>,
}

/// A restart marker that was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Restart {
    /// Its place in the unstuffed data.
    pub(crate) at: usize,
    /// 0 to 7.
    pub(crate) number: u8,
}

impl ScanData {
    /// Takes the entropy-coded data that begin at `from` in `file`, up to the first marker
    /// that is no restart. Returns the offset of that marker. Of more restarts than `due` the
    /// first one alone is remembered: it is the one that a reader meets where none belongs.
    pub(crate) fn set(
        &mut self,
        file: &[u8],
        from: usize,
        due: usize,
    ) -> Result<usize, SampleFault> {
        self.clear();
        let mut at = from;
        loop {
            let rest = file.get(at..).unwrap_or_default();
            let run = memchr::memchr(0xff, rest).ok_or_else(|| {
                damaged("it ends in the middle of its entropy-coded data")
            })?;
            self.bytes.extend_from_slice(&rest[..run]);
            at += run;
            // Fill bytes before a marker (§B.1.1.2). Before a zero they are a damage: libjpeg
            // takes them for one FF, or for a marker, depending on how far it reads ahead.
            let n_ff = file[at..].iter().take_while(|&&byte| byte == 0xff).count();
            match file.get(at + n_ff) {
                Some(0) if n_ff == 1 => self.bytes.push(0xff),
                Some(0) => return Err(damaged("stray bytes in its entropy-coded data")),
                Some(&marker @ 0xd0..=0xd7) => {
                    if self.restarts.len() <= due {
                        self.restarts
                            .push(Restart { at: self.bytes.len(), number: marker & 7 });
                    }
                }
                Some(_) => break,
                None => {
                    return Err(damaged(
                        "it ends in the middle of its entropy-coded data",
                    ));
                }
            }
            at += n_ff + 1;
        }
        self.seal();
        Ok(at)
    }

    /// Adds the data of one range of a file that [`Self::set`] has accepted as a whole.
    /// Returns where in [`Self::padded`] it begins and ends; `seal` when all are there.
    pub(crate) fn push_range(&mut self, range: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        let mut rest = range;
        while let Some(run) = memchr::memchr(0xff, rest) {
            self.bytes.extend_from_slice(&rest[..run]);
            rest = &rest[run..];
            let n_ff = rest.iter().take_while(|&&byte| byte == 0xff).count();
            match rest.get(n_ff) {
                None => self.bytes.push(0xff),
                Some(0) if n_ff == 1 => self.bytes.push(0xff),
                // No restart has the number 8: what the whole file is refused for is found here, too.
                Some(&marker) => {
                    let number =
                        if matches!(marker, 0xd0..=0xd7) { marker & 7 } else { 8 };
                    self.restarts.push(Restart { at: self.bytes.len(), number });
                }
            }
            rest = rest.get(n_ff + 1..).unwrap_or_default();
        }
        self.bytes.extend_from_slice(rest);
        start..self.bytes.len()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.restarts.clear();
        self.len = 0;
    }

    /// Adds the padding.
    pub(crate) fn seal(&mut self) {
        self.len = self.bytes.len();
        self.bytes.resize(self.len + PADDING, 0);
    }

    /// Gives the memory back if it is more than `keep_bytes`; the bytes that it keeps.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) -> usize {
        if self.capacity_bytes() > keep_bytes {
            *self = Self::default();
        }
        self.capacity_bytes()
    }

    fn capacity_bytes(&self) -> usize {
        self.bytes.capacity() + self.restarts.capacity() * size_of::<Restart>()
    }

    /// Data and padding.
    pub(crate) fn padded(&self) -> &[u8] {
        &self.bytes
    }

    /// Length of the data in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn restarts(&self) -> &[Restart] {
        &self.restarts
    }
}

/// Restart markers that are due among so many MCUs, of which `interval` stand between two; 0: none.
pub(crate) fn n_restarts(n_mcus: usize, interval: u32) -> usize {
    n_mcus.saturating_sub(1).checked_div(interval as usize).unwrap_or(0)
}

/// Where in `file` the bytes of the data lie that begin at `from` and that [`ScanData::set`] has taken.
/// The places asked for must not go back.
pub(crate) fn places(file: &[u8], from: usize) -> impl FnMut(usize) -> usize {
    let mut current = Run { ours: 0, theirs: from };
    let mut next = current.next(file);
    move |ours| {
        while let Some(run) = next.filter(|run| run.ours <= ours) {
            (current, next) = (run, run.next(file));
        }
        current.theirs + (ours - current.ours)
    }
}

/// A run of bytes of which none is left out: where it begins in the data, and where in the file.
#[derive(Debug, Clone, Copy)]
struct Run {
    ours: usize,
    theirs: usize,
}

impl Run {
    /// The run behind this one; none behind the last.
    fn next(self, file: &[u8]) -> Option<Self> {
        let Self { ours, theirs } = self;
        let rest = file.get(theirs..)?;
        let len = memchr::memchr(0xff, rest)?;
        let n_ff = rest[len..].iter().take_while(|&&byte| byte == 0xff).count();
        let theirs = theirs + len + n_ff + 1;
        match rest.get(len + n_ff)? {
            0 => Some(Self { ours: ours + len + 1, theirs }),
            0xd0..=0xd7 => Some(Self { ours: ours + len, theirs }),
            _ => None,
        }
    }
}

/// A place in padded data, with the bits that follow it at hand. Passed by value, so that it
/// stays in registers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bits {
    /// The next bits, left-aligned.
    pub(crate) next: u64,
    /// How many of `next` are valid.
    pub(crate) n_valid: u32,
    /// Where the byte behind them lies.
    at: usize,
}

impl Bits {
    /// Begins at bit `position`.
    #[inline(always)]
    pub(crate) fn new(padded: &[u8], position: u64) -> Self {
        let at = (position >> 3) as usize;
        let skipped = (position & 7) as u32;
        let first = u64::from(padded[at]) << 56 << skipped;
        Self { next: first, n_valid: 8 - skipped, at: at + 1 }.refill(padded)
    }

    /// Makes 56 or more bits valid. The caller stays within the padding.
    #[inline(always)]
    pub(crate) fn refill(mut self, padded: &[u8]) -> Self {
        let word: [u8; 8] = padded[self.at..self.at + 8].try_into().expect("eight bytes");
        self.next |= u64::from_be_bytes(word) >> self.n_valid;
        self.at += ((63 - self.n_valid) >> 3) as usize;
        self.n_valid |= 56;
        self
    }

    /// Takes `n` bits off; `n` of them are valid.
    #[inline(always)]
    pub(crate) fn take(&mut self, n: u32) {
        self.next <<= n & 63;
        self.n_valid -= n;
    }

    /// The number of the next bit.
    #[inline(always)]
    pub(crate) fn position(self) -> u64 {
        8 * self.at as u64 - u64::from(self.n_valid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stuffing_and_restarts_are_dropped_and_found_again() {
        let file = [9, 1, 0xff, 0, 2, 0xff, 0xd3, 3, 0xff, 0, 4, 0xff, 0xff, 0xd9];
        let mut data = ScanData::default();
        assert_eq!(data.set(&file, 1, 1).unwrap(), 11);
        assert_eq!(data.padded()[..data.len()], [1, 0xff, 2, 3, 0xff, 4]);
        assert!(data.padded()[data.len()..].iter().all(|&byte| byte == 0));
        assert_eq!(data.restarts(), [Restart { at: 3, number: 3 }]);
        let mut place = places(&file, 1);
        let places: Vec<usize> = (0..6).map(&mut place).collect();
        assert_eq!(places, [1, 2, 4, 7, 8, 10]);
    }

    #[test]
    fn of_restarts_that_are_not_due_the_first_is_remembered() {
        let mut file = vec![1, 0xff, 0xd3, 2];
        file.extend([0xff, 0xd4].repeat(1 << 16));
        file.extend([3, 0xff, 0, 0xff, 0xd9]);
        let mut data = ScanData::default();
        data.set(&file, 0, 1).unwrap();
        let first_and_next = [Restart { at: 1, number: 3 }, Restart { at: 2, number: 4 }];
        assert_eq!(data.restarts(), first_and_next);
        let mut place = places(&file, 0);
        let places: Vec<usize> = (0..4).map(&mut place).collect();
        assert_eq!(places, [0, 3, file.len() - 5, file.len() - 4]);
        data.set(&file, 0, 1 << 16).unwrap();
        data.release_above(1 << 18);
        assert!(data.padded().is_empty(), "restarts took more");
    }

    /// What libjpeg makes of them depends on how far it reads ahead.
    #[test]
    fn several_ff_before_a_zero_are_damaged() {
        assert!(
            ScanData::default().set(&[1, 0xff, 0xff, 0, 2, 0xff, 0xd9], 0, 0).is_err()
        );
    }

    #[test]
    fn data_without_an_end_are_damaged() {
        for file in [&[1, 2, 3][..], &[1, 0xff], &[1, 0xff, 0xff], &[]] {
            assert!(ScanData::default().set(file, 0, 0).is_err(), "{file:?}");
        }
    }

    #[test]
    fn bits_begin_anywhere_and_are_counted() {
        let bytes: Vec<u8> = (0..40_u8).map(|i| i.wrapping_mul(37) ^ 0x5a).collect();
        let bit = |i: u64| u64::from(bytes[(i / 8) as usize] >> (7 - i % 8) & 1);
        for start in 0..64 {
            let mut bits = Bits::new(&bytes, start);
            let mut at = start;
            for n in [1, 7, 12, 27, 3, 31, 2] {
                bits = bits.refill(&bytes);
                assert!(bits.n_valid >= 56 && bits.position() == at);
                let expected = (at..at + n).fold(0, |sum, i| sum << 1 | bit(i));
                assert_eq!(bits.next >> (64 - n), expected, "{n} bits at {at}");
                bits.take(n as u32);
                at += n;
            }
        }
    }
}
