//! Runs of small numbers: definition levels, and indices into a dictionary.
//!
//! Each run is a header, whose lowest bit says whether one number repeats or groups of eight follow with so
//! many bits each (`parquet-format`, "Run Length Encoding / Bit-Packing Hybrid").

/// What is said of bytes that are no such runs.
pub(super) const DAMAGED: &str = "a page is damaged; fetch the file again";

/// Reads the numbers one by one.
pub(super) struct Runs {
    bytes: Vec<u8>,
    at: usize,
    bits: u32,
    run: Run,
}

enum Run {
    Repeats {
        value: u32,
        n_left: u64,
    },
    /// The next bit, and the first that is not of this run.
    Packed {
        bit: u64,
        end: u64,
    },
}

impl Runs {
    /// Numbers of so many bits, at most 32.
    pub(super) fn new(bytes: Vec<u8>, bits: u32) -> Self {
        Self { bytes, at: 0, bits, run: Run::Repeats { value: 0, n_left: 0 } }
    }

    pub(super) fn next(&mut self) -> Result<u32, &'static str> {
        if self.bits == 0 {
            return Ok(0);
        }
        loop {
            match &mut self.run {
                Run::Repeats { value, n_left } if *n_left > 0 => {
                    *n_left -= 1;
                    return Ok(*value);
                }
                Run::Packed { bit, end } if *bit < *end => {
                    let first = usize::try_from(*bit / 8).map_err(|_| DAMAGED)?;
                    let shift = *bit % 8;
                    *bit += u64::from(self.bits);
                    let bytes = self.bytes.iter().skip(first).take(5);
                    let word = (0..).zip(bytes);
                    let word = word.fold(0, |word: u64, (nth, &byte)| {
                        word | u64::from(byte) << (8 * nth)
                    });
                    let value = word >> shift & ((1 << self.bits) - 1);
                    return u32::try_from(value).map_err(|_| DAMAGED);
                }
                Run::Repeats { .. } | Run::Packed { .. } => self.run = self.header()?,
            }
        }
    }

    /// The next run, not empty.
    fn header(&mut self) -> Result<Run, &'static str> {
        let mut header = 0;
        for shift in (0..35).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or(DAMAGED)?;
            self.at += 1;
            header |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return self.run(header);
            }
        }
        Err(DAMAGED)
    }

    fn run(&mut self, header: u64) -> Result<Run, &'static str> {
        let n = header >> 1;
        let is_packed = header & 1 == 1;
        let n_bytes = match is_packed {
            true => n * u64::from(self.bits),
            false => u64::from(self.bits.div_ceil(8)),
        };
        let n_bytes = usize::try_from(n_bytes).map_err(|_| DAMAGED)?;
        let start = self.at;
        let left = self.bytes.len() - start;
        if is_packed {
            // The last group may be cut short: what is missing is not of the page.
            self.at += n_bytes.min(left);
            let bit = 8 * start as u64;
            let end = bit + 8 * n_bytes.min(left) as u64;
            return Ok(Run::Packed {
                bit,
                end: end - end.abs_diff(bit) % u64::from(self.bits),
            });
        }
        let value = self.bytes.get(start..start + n_bytes).ok_or(DAMAGED)?;
        self.at += n_bytes;
        let value = value.iter().rev().fold(0, |sum, &byte| (sum << 8) | u32::from(byte));
        Ok(Run::Repeats { value, n_left: n })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(bytes: &[u8], bits: u32, n: usize) -> Result<Vec<u32>, &'static str> {
        let mut runs = Runs::new(bytes.to_vec(), bits);
        (0..n).map(|_| runs.next()).collect()
    }

    /// The example of the format's description: 0 to 7 in three bits each.
    #[test]
    fn runs_repeat_or_are_packed() {
        let packed = [0b11, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        assert_eq!(take(&packed, 3, 8).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
        let both = [&[6, 5][..], &packed].concat();
        assert_eq!(take(&both, 3, 4).unwrap(), [5, 5, 5, 0]);
        assert_eq!(take(&[4, 0x34, 0x12], 13, 2).unwrap(), [0x1234, 0x1234]);
        assert_eq!(take(&[3, 0xff, 0xff, 0xff, 0xff], 32, 1).unwrap(), [u32::MAX]);
        assert_eq!(take(&[], 0, 3).unwrap(), [0, 0, 0]);
    }

    #[test]
    fn runs_that_end_too_early_are_refused() {
        for (bytes, bits) in [(&[][..], 1), (&[2], 1), (&[0x80; 9], 3), (&[3], 4)] {
            assert_eq!(take(bytes, bits, 2), Err(DAMAGED), "{bytes:?}");
        }
        assert_eq!(take(&[0; 9], 1, 1), Err(DAMAGED), "empty runs lead to the end");
    }
}
