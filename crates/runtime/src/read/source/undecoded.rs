//! Files that are delivered as they are, each of its own length: a recipe without ops over images.
//!
//! The rows of a batch lie one after the other without gaps, in the lengths that the table has. So who makes
//! a row knows its place, and nobody has to say it.

use bothends_core::ids::SampleId;
use bothends_core::plan::{LastPolicy, Shuffle};
use bothends_core::recipe::RecordShape;
use bothends_core::sample::Encoding;
use bothends_core::tensor::Dtype;
use bothends_dataset::{Format, Table};

use super::{Source, lens};
use crate::config::deliver::Deliver;
use crate::config::run::{BadPolicy, RunConfig};

/// The shape that memory is reserved for, a batch divided evenly among its rows, where files are delivered as
/// they are; `None` where they are not. A slot has room for the longest rows that can come together.
pub(super) fn shape(
    config: &RunConfig,
    table: &Table,
    format: Format,
) -> Result<Option<RecordShape>, String> {
    let is_undecoded = config.recipe.before_cut().is_empty();
    if !is_undecoded || table.encoding() != Encoding::Image {
        return Ok(None);
    }
    let why_not = [
        (
            format == Format::Store,
            "a store keeps JPEGs in its own form; unpack it, or use a recipe that decodes",
        ),
        (
            config.supplied.as_ref().is_some_and(|given| given.records.is_some()),
            "the samples are given by a function, and their lengths are not known before; use a recipe that \
             decodes, or read the bytes yourself",
        ),
        (
            !config.devices.is_empty(),
            "only the host makes batches of unmodified files; leave out the devices, or use a \
            recipe that \
             decodes",
        ),
        (
            !config.recipe.after_cut().is_empty() || config.output.dtype != Dtype::U8,
            "unmodified files are delivered as bytes; give output `u8`, and a recipe without ops",
        ),
        (
            matches!(config.deliver, Deliver::Gpu(_)),
            "unmodified files are delivered in host memory; leave out the device, or use a recipe \
            that decodes",
        ),
        (
            config.on_bad == BadPolicy::Replace,
            "a file cannot replace another one of a different length; use raise, skip or zero",
        ),
    ];
    if let Some((_, why)) = why_not.iter().find(|(is_so, _)| *is_so) {
        return Err(format!("the recipe `{}`: {why}", config.recipe.name()));
    }
    let sum = longest_sum(config, table);
    let each = sum.div_ceil(u64::from(config.batch_size.max(1))).max(1);
    let len_bytes = u32::try_from(each).map_err(|_| {
        format!(
            "a batch of {} files takes {sum} bytes; use smaller batches",
            config.batch_size
        )
    })?;
    Ok(Some(RecordShape::Opaque { len_bytes }))
}

/// Bytes that no batch exceeds.
fn longest_sum(config: &RunConfig, table: &Table) -> u64 {
    let n_rows = u64::from(config.batch_size);
    let comes_once = config.repeat == 1
        && config.mix.is_none()
        && config.shuffle != Shuffle::Supplied
        && config.recipe.repeated_augment() == 1
        && matches!(config.rank.last, LastPolicy::Drop | LastPolicy::Pad);
    if !comes_once {
        return lens(table).max().unwrap_or(0).saturating_mul(n_rows);
    }
    let mut longest: Vec<u64> = lens(table).collect();
    let n = (config.batch_size as usize).min(longest.len());
    if n < longest.len() && n > 0 {
        longest.select_nth_unstable_by(n - 1, |a, b| b.cmp(a));
    }
    longest[..n].iter().sum()
}

impl Source {
    /// Bytes of the sample's row where files are delivered as they are; `None` where all rows are as long.
    pub(crate) fn own_len(&self, sample: SampleId) -> Option<usize> {
        self.is_undecoded.then(|| self.table.extent(sample).len as usize)
    }

    /// Whether files are delivered as they are, each row of its own length.
    #[must_use]
    pub fn is_undecoded(&self) -> bool {
        self.is_undecoded
    }

    /// Whether records are received straight into their rows: what the record cache is to keep is not.
    pub(crate) fn is_received_in_place(&self) -> bool {
        let Some(remote) = self.remote().filter(|_| self.is_undecoded) else {
            return false;
        };
        remote.objects().receives_in_place() && remote.cache().is_none()
    }

    /// Puts a file's bytes into its row.
    ///
    /// # Errors
    /// That the file is not what it was.
    pub(crate) fn put_undecoded(record: &[u8], out: &mut [u8]) -> Result<(), String> {
        if record.len() != out.len() {
            let (got, need) = (record.len(), out.len());
            return Err(format!("it has {got} bytes, and had {need} when it was listed"));
        }
        out.copy_from_slice(record);
        Ok(())
    }
}
