//! What is to be read for a batch: gathered while its samples are described, then read many at a time.
//!
//! As many as keep storage busy, and so few that a poll still ends near its timeout. Nothing is on its way
//! between two calls, so a batch can be given up at any time. Read `prong.rs` next.

use crate::{Reading, Source};

/// Samples whose bytes are read together: four times the usual depth of a reader, so that its
/// queue is seldom short.
const MOST_READINGS: usize = 64;

/// Bytes that are read together, about: 8 ms of a disk of 1 GB/s.
const MOST_BYTES: usize = 8 << 20;

/// Samples that are described and not read yet.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    rows: Vec<u32>,
    readings: Vec<Reading>,
    len_bytes: usize,
}

impl Readings {
    /// Forgets them, keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.readings.clear();
        self.len_bytes = 0;
    }

    /// Adds what is to be read for a row, after all that were added before.
    pub(crate) fn add(&mut self, row: u32, reading: Reading) {
        self.len_bytes += reading.len;
        self.rows.push(row);
        self.readings.push(reading);
    }

    /// Whether it is time to read.
    pub(crate) fn are_enough(&self) -> bool {
        self.readings.len() >= MOST_READINGS || self.len_bytes >= MOST_BYTES
    }

    /// Reads all of them into `upload` and forgets them; the rows whose bytes cannot be read. Blocks
    /// on storage.
    pub(crate) fn read(
        &mut self,
        source: &mut impl Source,
        upload: &mut [u8],
    ) -> Vec<u32> {
        if self.readings.is_empty() {
            return Vec::new();
        }
        let ended = source.read(&self.readings, upload);
        let failed = self.rows.iter().zip(ended).filter(|(_, ended)| ended.is_err());
        let failed = failed.map(|(row, _)| *row).collect();
        self.clear();
        failed
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::ids::{EpochIdx, SampleId};
    use bothends_core::sample::FileIdx;
    use bothends_ops::Damage;

    use super::*;
    use crate::{Batch, NotHere};

    /// Remembers how many were read together; every tenth fails.
    #[derive(Debug, Default)]
    struct Counting {
        calls: Vec<usize>,
    }

    impl Source for Counting {
        fn describe(
            &mut self,
            _: (EpochIdx, SampleId),
            _: u32,
            _: &mut Batch,
        ) -> Result<Reading, NotHere> {
            Err(NotHere::OtherForm)
        }

        fn read(
            &mut self,
            readings: &[Reading],
            _: &mut [u8],
        ) -> Vec<Result<(), String>> {
            self.calls.push(readings.len());
            let fails = |reading: &Reading| match reading.offset % 10 {
                0 => Err("it cannot be read".to_owned()),
                _ => Ok(()),
            };
            readings.iter().map(fails).collect()
        }

        fn make(
            &mut self,
            _: (EpochIdx, SampleId),
            _: &mut [u8],
        ) -> Result<Option<Damage>, String> {
            Ok(None)
        }
    }

    /// Reads so many samples of so many bytes, as the prong does: how many at a time, and which rows
    /// failed.
    fn read(n: u32, len: usize) -> (Vec<usize>, Vec<u32>) {
        let (mut source, mut readings) = (Counting::default(), Readings::default());
        let mut failed = Vec::new();
        for row in 0..n {
            let (file, offset) = (FileIdx(0), u64::from(row));
            readings.add(row, Reading { file, offset, len, at: row, room: row..row });
            if readings.are_enough() || row + 1 == n {
                failed.extend(readings.read(&mut source, &mut []));
            }
        }
        assert!(readings.read(&mut source, &mut []).is_empty(), "they are forgotten");
        (source.calls, failed)
    }

    #[test]
    fn so_many_are_read_together_and_those_that_fail_are_named() {
        let (calls, failed) = read(150, 1000);
        assert_eq!(calls, [64, 64, 22]);
        assert_eq!(failed, (0..150).step_by(10).collect::<Vec<_>>());
        assert_eq!(read(3, 5 << 20).0, [2, 1], "large ones");
    }
}
