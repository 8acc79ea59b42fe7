//! One sample made on this thread, with the same bytes as anybody else would make: for rows
//! that a prong could not make, and to see whether a device made what it should.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::rng::Draws;
use bothends_core::sample::{Encoding, Record, RecordPart, SampleKey};
use bothends_dataset::Piece;
use bothends_figures::Skipped;
use bothends_ops::{Damage, Finish, Scratch};

use crate::handover::account::FeedAccount;
use crate::handover::batch::Row;
use crate::read::source::Source;
use crate::read::supplied::{Redecoder, Unmade};
use crate::threads::shutdown::Stop;

/// The draw number of who replaces a bad sample: far from the recipe's ops, which count from 0.
const OP_REPLACE: u32 = 0xFFF1;

/// Samples tried in place of a bad one before its row is zeros.
const MOST_REPLACEMENTS: u32 = 16;

/// Makes samples one at a time. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Maker {
    pub(crate) source: Arc<Source>,
    pub(crate) epoch: EpochIdx,
    pub(crate) finish: Arc<Finish>,
    pub(crate) redecoder: Option<Redecoder>,
    pub(crate) account: Arc<Mutex<FeedAccount>>,
    /// Ends the attempts at what the machine fails to read.
    pub(crate) stop: Stop,
}

/// What a row holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A sample as devices make it.
    Cut,
    /// A sample as it is delivered.
    Output,
}

/// What is kept from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Bench {
    scratch: Scratch,
    /// A sample at the cut, on its way to the output.
    cut: Vec<u8>,
}

impl Maker {
    /// Bytes of a row of that form.
    pub(crate) fn row_bytes(&self, form: Form) -> usize {
        match form {
            Form::Cut => self.source.pipeline.sample_bytes(),
            Form::Output => self.finish.sample_bytes(),
        }
    }

    /// Where the rows of a batch begin in its slot, and where the last one ends.
    pub(crate) fn starts(&self, form: Form, rows: &[Row]) -> Vec<usize> {
        let every = self.row_bytes(form);
        let len = |row: &Row| match row.sample {
            Some(sample) => self.source.own_len(sample).unwrap_or(every),
            None if self.source.is_undecoded() => 0,
            None => every,
        };
        let ends = rows.iter().scan(0, |end, row| {
            *end += len(row);
            Some(*end)
        });
        [0].into_iter().chain(ends).collect()
    }

    /// The key of a sample in this epoch.
    pub(crate) fn key(&self, sample: SampleId) -> SampleKey {
        self.source.key(self.epoch, sample)
    }

    /// Makes one sample in that form; what is wrong with its record, where it is made all the
    /// same.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub(crate) fn make(
        &self,
        sample: SampleId,
        (form, out): (Form, &mut [u8]),
        bench: &mut Bench,
    ) -> Result<Option<Damage>, Unmade> {
        if self.source.is_undecoded() {
            let piece = self.source.piece(self.key(sample));
            let bytes = self.source.read_patiently(sample, piece, &self.stop)?;
            return Source::put_undecoded(&bytes, out)
                .map(|()| None)
                .map_err(Unmade::Bad);
        }
        match form {
            Form::Cut => self.cut(sample, &mut bench.scratch, out),
            Form::Output => {
                let Bench { scratch, cut } = bench;
                cut.resize(self.row_bytes(Form::Cut), 0);
                let damage = self.cut(sample, scratch, cut)?;
                self.finish.run(Some(self.key(sample)), cut, out);
                Ok(damage)
            }
        }
    }

    /// Makes what is delivered where there are zeros at the cut.
    pub(crate) fn zero(
        &self,
        sample: Option<SampleId>,
        (form, out): (Form, &mut [u8]),
        bench: &mut Bench,
    ) {
        match form {
            Form::Output if self.source.is_undecoded() => out.fill(0),
            Form::Cut => out.fill(0),
            Form::Output => {
                bench.cut.clear();
                bench.cut.resize(self.row_bytes(Form::Cut), 0);
                let key = sample.map(|sample| self.key(sample));
                self.finish.run(key, &bench.cut, out);
            }
        }
    }

    /// Fills a bad sample's row with another one, drawn with the bad sample's own numbers, so
    /// that every prong, rank and rerun takes the same; which one, and what is wrong with its
    /// record.
    ///
    /// # Errors
    /// The machine fails to read one of them: which it would have been is not known.
    pub(crate) fn replace(
        &self,
        bad: SampleId,
        (form, out): (Form, &mut [u8]),
        bench: &mut Bench,
    ) -> Result<Option<(SampleId, Option<Damage>)>, Unmade> {
        let key = SampleKey { seed: self.source.seed, epoch: self.epoch, sample: bad };
        let mut draws = Draws::new(key, OP_REPLACE);
        for _ in 0..MOST_REPLACEMENTS {
            let draw = u64::from(draws.next_u32()) << 32 | u64::from(draws.next_u32());
            let other = self.source.other(bad, draw);
            match self.make(other, (form, &mut *out), bench) {
                Ok(damage) => return Ok(Some((other, damage))),
                Err(Unmade::Bad(_)) => {}
                Err(unmade @ Unmade::Machine(_)) => return Err(unmade),
            }
        }
        Ok(None)
    }

    fn cut(
        &self,
        sample: SampleId,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<Option<Damage>, Unmade> {
        let key = self.key(sample);
        let piece = self.source.piece(key);
        let bytes = self.source.read_patiently(sample, piece, &self.stop)?;
        self.decode((sample, piece, &bytes), key, scratch, out).map_err(Unmade::Bad)
    }

    /// The caller's decoder helps where ours does not.
    fn decode(
        &self,
        (sample, piece, bytes): (SampleId, Piece, &[u8]),
        key: SampleKey,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<Option<Damage>, String> {
        let record = self.source.record(sample, piece, bytes)?;
        let is_file =
            record.part == RecordPart::Whole && record.encoding == Encoding::Image;
        let made = self.source.pipeline.run(scratch, key, record, out);
        let Err(why) = made.map_err(|e| e.to_string()) else {
            return Ok(scratch.damage());
        };
        let Some(redecoder) = self.redecoder.as_ref().filter(|_| is_file) else {
            return Err(why);
        };
        let png = redecoder.redecode(bytes).map_err(|also| format!("{why}; {also}"))?;
        let record = Record::new(&png, Encoding::Image);
        self.source.pipeline.run(scratch, key, record, out).map_err(|e| e.to_string())?;
        let file = self.source.file_name(sample);
        let policy = "redecoded".to_owned();
        let redecoded = Skipped { sample: sample.0, file, why, policy };
        self.account().redecoded.push(redecoded);
        Ok(None)
    }

    pub(crate) fn account(&self) -> MutexGuard<'_, FeedAccount> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
