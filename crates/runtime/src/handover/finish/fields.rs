//! The further fields of a batch that is being finished.

use bothends_core::ids::{BatchIdx, Prong};
use bothends_figures::Skipped;

use super::Feed;
use crate::config::run::BadPolicy;
use crate::error::RuntimeError;
use crate::handover::batch::Row;
use crate::handover::batch::fields::FieldColumn;
use crate::read::supplied::Failure;

impl Feed {
    /// The fields of these rows, and the rows that are to be left out because one of theirs is bad: the policy
    /// is that for bad samples, and a value of another sample or of zeros stands for it as little as possible.
    pub(super) fn fields(
        &self,
        (prong, batch): (Prong, BatchIdx),
        rows: &[Row],
    ) -> Result<(Vec<FieldColumn>, Vec<usize>), RuntimeError> {
        let source = &self.maker.source;
        let samples: Vec<_> = rows.iter().map(|row| row.sample).collect();
        let batch = (self.maker.epoch, batch);
        let found = source
            .row_fields((batch, &samples), &self.chores, &self.stop)
            .map_err(Failure::into_error)?;
        let mut gone = Vec::new();
        for (row, why) in found.bad {
            let Some(sample) = rows[row].sample else { continue };
            let file = source.file_name(sample);
            match self.on_bad {
                // Another sample's field next to this one's image would be wrong without a word.
                BadPolicy::Raise | BadPolicy::Replace => {
                    let found_by = self.name(prong);
                    return Err(RuntimeError::BadSample { sample, file, why, found_by });
                }
                BadPolicy::Skip => gone.push(row),
                BadPolicy::Zero => {}
            }
            let policy = self.on_bad.name().to_owned();
            let skipped = Skipped { sample: sample.0, file, why, policy };
            self.maker.account().skipped.push(skipped);
        }
        let columns = found.columns;
        let columns = match gone.is_empty() {
            true => columns,
            false => columns.iter().map(|column| column.without(&gone)).collect(),
        };
        Ok((columns, gone))
    }
}
