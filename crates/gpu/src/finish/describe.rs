//! What the finish does to each sample of a batch, as bytes for the device.
//!
//! A description is the rows, then the rectangles of all of them. It is written into memory of
//! the caller's (the slot that the samples go to the device in, say), so that one copy takes
//! both. Nothing here draws a number but [`erased`], which asks `core`.

use bothends_core::recipe::Size;
use bothends_core::recipe::draw::CropBox;
use bothends_core::recipe::erasing::view_stream;
use bothends_core::recipe::op::{ErasingValue, RandomErasing};
use bothends_core::rng::Noise;
use bothends_core::sample::SampleKey;
use bothends_core::tensor::SampleShape;

/// What is done to one sample of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FinishRow<'a> {
    /// Where the sample is, in bytes from [`FinishBatch::src`](super::FinishBatch::src); the same
    /// sample may be several rows. At a multiple of 16 it is fast.
    pub offset: u64,
    /// Whether left and right are exchanged.
    pub is_flipped: bool,
    /// What is erased, in this order.
    pub erased: &'a [Erased],
}

/// A rectangle with something else in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Erased {
    /// Where; lies inside the sample.
    pub area: CropBox,
    /// What is put there.
    pub value: ErasedValue,
}

/// What is put into a rectangle: values after `normalize`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ErasedValue {
    /// One per channel.
    Each([f32; 3]),
    /// Numbers of the normal distribution: the noise's key, and the second to fourth words of
    /// its counter.
    Noise([u32; 2], [u32; 3]),
}

/// What `op`, whose stream is `stream`, erases in view number `nth` of the sample of `key`;
/// `None` where chance spares it. The same as `ops::Finish` erases.
#[must_use]
pub fn erased(
    op: &RandomErasing,
    stream: u32,
    (key, nth): (SampleKey, u32),
    shape: SampleShape,
) -> Option<Erased> {
    let stream = view_stream(stream, nth);
    let size = Size { height: shape.height, width: shape.width };
    let area = op.decide(key, stream, size)?;
    let value = match &op.value {
        ErasingValue::All(value) => ErasedValue::Each([super::single(*value); 3]),
        ErasingValue::Each(values) => {
            let value = |nth: usize| super::single(values[nth % values.len()]);
            ErasedValue::Each(std::array::from_fn(value))
        }
        ErasingValue::Random(_) => {
            let (noise_key, counter) = Noise::new(key, stream).key_and_counter();
            ErasedValue::Noise(noise_key, [counter[1], counter[2], counter[3]])
        }
    };
    Some(Erased { area, value })
}

/// What was described: goes with the bytes to the launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// Samples of the batch.
    pub(super) n_rows: usize,
    /// Rectangles of all of them.
    pub(super) n_erased: usize,
}

/// Writes descriptions.
#[derive(Debug)]
pub struct Descriptions;

impl Descriptions {
    /// Bytes of the description of so many rows with so many rectangles together.
    #[must_use]
    pub fn bytes(n_rows: usize, n_erased: usize) -> usize {
        Self::erased_at(n_rows) + n_erased * size_of::<ErasedWords>()
    }

    /// Where the rectangles begin.
    pub(super) fn erased_at(n_rows: usize) -> usize {
        n_rows * size_of::<RowWords>()
    }

    /// Describes a batch of these rows in the first bytes of `into`, which go to the device, to a
    /// multiple of 8. `None` where `into` is shorter than [`Self::bytes`].
    pub fn write(rows: &[FinishRow<'_>], into: &mut [u8]) -> Option<Description> {
        let n_erased = rows.iter().map(|row| row.erased.len()).sum();
        let into = into.get_mut(..Self::bytes(rows.len(), n_erased))?;
        let (of_rows, of_erased) = into.split_at_mut(Self::erased_at(rows.len()));
        let mut first = 0;
        let (of_rows, _) = of_rows.as_chunks_mut::<{ size_of::<RowWords>() }>();
        for (to, row) in of_rows.iter_mut().zip(rows) {
            let n = u32::try_from(row.erased.len()).unwrap_or(u32::MAX);
            let offset = bothends_core::philox::words(row.offset);
            let words: RowWords =
                [offset[0], offset[1], row.is_flipped.into(), first, n, 0];
            put(&words, to);
            first += n;
        }
        let (of_erased, _) = of_erased.as_chunks_mut::<{ size_of::<ErasedWords>() }>();
        let all = rows.iter().flat_map(|row| row.erased);
        for (to, erased) in of_erased.iter_mut().zip(all) {
            put(&erased.words(), to);
        }
        Some(Description { n_rows: rows.len(), n_erased })
    }
}

/// Writes words as the device reads them.
fn put(words: &[u32], to: &mut [u8]) {
    for (word, to) in words.iter().zip(to.as_chunks_mut().0) {
        *to = word.to_le_bytes();
    }
}

/// `FinishRow` of `kernels/finish.cuh`: offset, flip, first rectangle, how many, unused.
pub(super) type RowWords = [u32; 6];
/// `FinishErased` there: top, left, bottom, right, values, noise, key, counter, unused.
pub(super) type ErasedWords = [u32; 14];

impl Erased {
    fn words(&self) -> ErasedWords {
        let CropBox { top, left, height, width } = self.area;
        let mut words = [0; 14];
        words[..4].copy_from_slice(&[top, left, top + height, left + width]);
        match self.value {
            ErasedValue::Each(values) => {
                words[4..7].copy_from_slice(&values.map(f32::to_bits));
            }
            ErasedValue::Noise(key, counter) => {
                words[7] = 1;
                words[8..10].copy_from_slice(&key);
                words[10..13].copy_from_slice(&counter);
            }
        }
        words
    }
}
