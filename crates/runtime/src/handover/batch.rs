//! A delivered batch: the end of a sample's walk through the house.

pub(crate) mod fields;
pub(crate) mod release;

use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use bothends_core::digest::{ContentDigest, StreamDigest};
use bothends_core::ids::{BatchIdx, Label, Prong, SampleId};
use bothends_core::recipe::Mixture;
use bothends_core::sample::SampleKey;
use bothends_gpu::kinds::PageLocked;
use bothends_slots::HostSlot;

use crate::error::RuntimeError;
use crate::handover::batch::fields::{FieldColumn, Further};
use crate::handover::batch::release::Release;

/// One row of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// The sample, or `None` in a masked row (policy `pad`): a black image, normalised as all are.
    pub sample: Option<SampleId>,
    /// Its class; -1 in a masked row.
    pub label: Label,
    /// What it was mixed with, where the recipe mixes (`mixup`, `cutmix`).
    pub mixed: Option<Mixed>,
}

/// The other half of a mixed row's label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mixed {
    /// The class of the sample it was mixed with.
    pub label: Label,
    /// The share that its own label has, 0 to 1; the rest is the other's.
    pub own_share: f64,
}

/// What is known of a batch besides its bytes, wherever these are. It holds no slot.
#[derive(Debug, Clone)]
pub struct BatchHeader {
    /// Its place in the plan.
    pub index: BatchIdx,
    /// Who made it. For accounts only: the bytes do not depend on it.
    pub prong: Prong,
    /// When its last byte was in place on the host; a GPU may be copying and finishing it still.
    pub ready: Instant,
    pub(crate) rows: Vec<Row>,
    pub(crate) sample_bytes: usize,
    pub(crate) view_bytes: Arc<[usize]>,
    /// Further fields, and where rows are that are of their own length.
    pub(crate) further: Option<Box<Further>>,
}

/// A batch in the consumer's hands. Dropping it gives its slot back to the ring.
#[derive(Debug)]
pub struct Batch {
    pub(crate) header: BatchHeader,
    pub(crate) slot: HostSlot,
    /// What is left for a GPU to do to it; `None` where the host has finished it.
    pub(crate) left: Option<Box<Left>>,
    /// Where digests are wanted.
    pub(crate) sums: Option<Box<Sums>>,
    /// Behind the slot: it tells of the slot's return, so it is dropped after it.
    pub(crate) release: Release,
}

/// What is left to be done to a batch whose samples are as they are at the cut.
#[derive(Debug)]
pub(crate) struct Left {
    /// Each row's numbers; `None` for a row without a sample.
    pub(crate) keys: Vec<Option<SampleKey>>,
    /// How the first so many rows, those that hold samples, are mixed.
    pub(crate) mixture: Option<(Mixture, usize)>,
}

/// The digests that a finished batch brings along.
#[derive(Debug)]
pub(crate) struct Sums {
    /// That of the stream until the end of the batch.
    pub(crate) stream: StreamDigest,
    /// Those of the batch's samples, added up.
    pub(crate) content: ContentDigest,
}

/// For what keeps batches together with something of its own.
impl AsMut<Self> for Batch {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

impl BatchHeader {
    /// The rows in order. Fewer than the batch size where bad samples were skipped.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Rows that hold a sample.
    #[must_use]
    pub fn n_valid(&self) -> u32 {
        let n = self.rows.iter().filter(|row| row.sample.is_some()).count();
        u32::try_from(n).unwrap_or(u32::MAX)
    }

    /// The further fields of the rows, those that were asked for in the order in which they were. They are in
    /// host memory.
    #[must_use]
    pub fn fields(&self) -> &[FieldColumn] {
        self.further.as_deref().map_or(&[], |further| &further.columns)
    }

    /// Bytes of one sample as delivered, from a row to the next; on average at most where each has its own
    /// ([`Self::row_starts`]).
    #[must_use]
    pub fn sample_bytes(&self) -> usize {
        self.sample_bytes
    }

    /// Where each row begins among [`Batch::bytes`], and where the last one ends: of files that are delivered as
    /// they are, each row of its own length. `None` where every row has [`Self::sample_bytes`].
    #[must_use]
    pub fn row_starts(&self) -> Option<&[usize]> {
        self.further.as_deref()?.starts.as_deref()
    }

    /// Number of views of each sample: 1 unless the recipe makes more (`multi_crop`,
    /// `five_crop`, `ten_crop`).
    #[must_use]
    pub fn n_views(&self) -> usize {
        self.view_bytes.len()
    }

    /// Bytes of each view of a sample, in order; a sample's views lie one after the other. Shapes,
    /// element type and layout are the loader's ([`crate::Loader::views`], [`crate::Loader::output`]).
    #[must_use]
    pub fn view_bytes(&self) -> &[usize] {
        &self.view_bytes
    }

    /// Writes a soft label for each row into `out`, rows × `n_classes`: 1 at its class, or
    /// the shares of the two classes it was mixed of (their sum where they are one). Masked
    /// rows and rows without a label (-1) get zeros.
    ///
    /// # Errors
    /// [`RuntimeError::Options`] when a label is no class of these.
    ///
    /// # Panics
    /// When `out` is not as long as that.
    pub fn soft_labels(
        &self,
        n_classes: usize,
        out: &mut [f32],
    ) -> Result<(), RuntimeError> {
        soft_labels(&self.rows, n_classes, out)
    }
}

impl Deref for Batch {
    type Target = BatchHeader;

    fn deref(&self) -> &Self::Target {
        &self.header
    }
}

impl Batch {
    /// The bytes of row `i`; empty when there is no such row.
    #[must_use]
    pub fn sample(&self, i: usize) -> &[u8] {
        match i < self.rows.len() {
            true => self.slot.get(self.range(i)).unwrap_or(&[]),
            false => &[],
        }
    }

    /// Where row `i` is in the slot.
    pub(crate) fn range(&self, i: usize) -> Range<usize> {
        match self.row_starts() {
            Some(starts) => {
                let start = |i: usize| starts.get(i).copied().unwrap_or(0);
                start(i)..start(i + 1)
            }
            None => i * self.sample_bytes..(i + 1) * self.sample_bytes,
        }
    }

    /// The bytes of view `view` of row `i`; empty when there is no such view or row. A
    /// sample's views lie one after the other, so view v of all rows is every
    /// [`BatchHeader::sample_bytes`] from where it is in the first.
    #[must_use]
    pub fn view(&self, i: usize, view: usize) -> &[u8] {
        if self.row_starts().is_some() && view == 0 {
            return self.sample(i);
        }
        let Some(&len) = self.view_bytes.get(view) else { return &[] };
        let start: usize = self.view_bytes[..view].iter().sum();
        self.sample(i).get(start..start + len).unwrap_or(&[])
    }

    /// Where [`Self::bytes`] begin, for programs of other languages that the batch is lent to:
    /// whoever owns the batch may read and write there.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.slot.base()
    }

    /// Whether its memory is pinned, so that a GPU copies from it while others go on
    /// ([`crate::Loader::pin_memory`]). A copy that may still run when the batch is dropped needs
    /// [`crate::GpuTarget::keep_until`].
    #[must_use]
    pub fn is_page_locked(&self) -> bool {
        self.slot.kind() == PageLocked::NAME
    }

    /// All rows' bytes, one after the other, in the machine's byte order. The first is at a multiple of 4096, so
    /// they may be taken for a slice of the elements.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let own = self.row_starts().and_then(|starts| starts.last().copied());
        &self.slot[..own.unwrap_or(self.rows.len() * self.sample_bytes)]
    }
}

/// As [`BatchHeader::soft_labels`], for rows whose batch has been given back.
///
/// # Errors
/// As there.
///
/// # Panics
/// As there.
pub fn soft_labels(
    rows: &[Row],
    n_classes: usize,
    out: &mut [f32],
) -> Result<(), RuntimeError> {
    assert_eq!(out.len(), rows.len() * n_classes, "a row for each sample");
    out.fill(0.0);
    for (i, row) in rows.iter().enumerate() {
        let classes = &mut out[i * n_classes..(i + 1) * n_classes];
        let own_share = row.mixed.map_or(1.0, |mixed| mixed.own_share);
        add_share(classes, row.label, own_share)?;
        if let Some(mixed) = row.mixed {
            add_share(classes, mixed.label, 1.0 - own_share)?;
        }
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest f32")]
fn add_share(classes: &mut [f32], label: Label, share: f64) -> Result<(), RuntimeError> {
    let Ok(class) = usize::try_from(label.0) else { return Ok(()) };
    let n_classes = classes.len();
    let Some(place) = classes.get_mut(class) else {
        return Err(RuntimeError::Options(format!(
            "label {class} is not one of {n_classes} classes; give num_classes {} or more",
            class.saturating_add(1)
        )));
    };
    *place += share as f32;
    Ok(())
}
