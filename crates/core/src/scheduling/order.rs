//! An order supplied by the caller (a PyTorch sampler, say) instead of the keyed permutation: which
//! records are in which batch of this rank, in one epoch.
//!
//! It knows batches and records, but not the positions of other ranks or where an epoch is resumed;
//! that is `plan.rs`. A record may occur more than once (sampling with replacement, repeated
//! augmentation). Every repetition is a separate sample with its own random numbers.

use serde::{Deserialize, Serialize};

use twox_hash::XxHash3_128;

use crate::ids::{BatchIdx, SampleId};

/// Most sample ids there are.
const MAX_ID: u64 = 1 << 63;

/// What an order is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderConfig {
    /// Records of the data set.
    pub n_records: u64,
    /// Whose part of the epoch it is.
    pub rank: u32,
    /// Of how many.
    pub world: u32,
    /// What the repetitions of a record have in common.
    pub repeats: Repeats,
    /// Batches at the beginning that are left out, as a resumed script skips them; their
    /// records count as repetitions all the same.
    pub skip: u32,
}

/// Which sample ids, and with them which random numbers, the repetitions of a record get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeats {
    /// The k-th time a rank delivers a record is the same sample on every rank. For orders
    /// that deal an epoch to ranks: who has a record makes no difference.
    SameOnRanks,
    /// Repetitions on different ranks are different samples. For samplers that spread the
    /// repetitions of a record over ranks, whose augmentations shall differ.
    OfEachRank,
}

/// A list of batches that is no order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// There is nothing in it.
    #[error("the order has no batch")]
    Empty,
    /// A batch of nothing.
    #[error("batch {batch} of the order has no sample; leave it out")]
    EmptyBatch {
        /// Its number.
        batch: usize,
    },
    /// Batches whose ends do not increase, or do not finish at the last record.
    #[error("the batch ends do not increase to the {n} samples of the order")]
    Ends {
        /// Samples that were given.
        n: usize,
    },
    /// A record that the data set does not have.
    #[error(
        "the order names sample {record} at position {place} and the data set has {n_records}: \
         its indices are 0 to {}", n_records.saturating_sub(1)
    )]
    NoSuchRecord {
        /// As given.
        record: i64,
        /// Where, from 0.
        place: usize,
        /// Records of the data set.
        n_records: u64,
    },
    /// More repetitions than sample ids can tell apart.
    #[error("sample {record} is repeated too often for a data set of {n_records}")]
    TooOften {
        /// The record.
        record: u64,
        /// Records of the data set.
        n_records: u64,
    },
    /// More batches than an index can name.
    #[error("the order has more than {} batches; use a larger batch size", u32::MAX)]
    TooManyBatches,
    /// A rank outside the world.
    #[error("rank {rank} of {world}: a rank is 0 or more and below the world")]
    RankOutside {
        /// As given.
        rank: u32,
        /// As given.
        world: u32,
    },
}

/// The batches of one rank for one epoch, as sample ids. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    ids: Vec<u64>,
    /// Where each batch ends in `ids`.
    ends: Vec<u64>,
    longest: u32,
    mark: OrderMark,
}

/// What a resume state says of the order it was saved in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderMark {
    /// XXH3-128 of ids and ends.
    pub digest: u128,
    /// The rank that saved.
    pub rank: u32,
    /// Of how many.
    pub world: u32,
    /// Batches of the order.
    pub n_batches: u32,
}

impl Order {
    /// Checks what a sampler gave: `records` one after the other, `ends` where each batch
    /// ends among them. Repetitions of a record get sample ids of their own.
    ///
    /// # Errors
    /// [`OrderError`]: each variant names the place.
    pub fn new(
        config: OrderConfig,
        records: &[i64],
        ends: Vec<u64>,
    ) -> Result<Self, OrderError> {
        let OrderConfig { rank, world, .. } = config;
        if rank >= world {
            return Err(OrderError::RankOutside { rank, world });
        }
        let longest = longest_batch(&ends, records.len())?;
        let (ids, ends) = behind(config.skip, numbered(config, records)?, ends)?;
        let n_batches =
            u32::try_from(ends.len()).map_err(|_| OrderError::TooManyBatches)?;
        let words = ids.iter().chain(&ends).flat_map(|word| word.to_le_bytes());
        let digest = XxHash3_128::oneshot(&words.collect::<Vec<u8>>());
        let mark = OrderMark { digest, rank, world, n_batches };
        Ok(Self { ids, ends, longest, mark })
    }

    /// Batches in it.
    #[must_use]
    pub fn n_batches(&self) -> u32 {
        self.mark.n_batches
    }

    /// Samples of its longest batch.
    #[must_use]
    pub fn longest(&self) -> u32 {
        self.longest
    }

    /// What a resume state keeps of it.
    #[must_use]
    pub fn mark(&self) -> OrderMark {
        self.mark
    }

    /// The samples of a batch; none of one after the last.
    pub(crate) fn samples(
        &self,
        batch: BatchIdx,
    ) -> impl ExactSizeIterator<Item = SampleId> + '_ {
        let batch = batch.0 as usize;
        let end = self.ends.get(batch).copied().unwrap_or(0);
        let start = batch
            .checked_sub(1)
            .map_or(0, |before| self.ends.get(before).copied().unwrap_or(end).min(end));
        let index = |at| usize::try_from(at).unwrap_or(usize::MAX);
        self.ids[index(start)..index(end)].iter().map(|&id| SampleId(id))
    }
}

/// The length of the longest batch, if the ends are those of batches.
fn longest_batch(ends: &[u64], n: usize) -> Result<u32, OrderError> {
    if ends.is_empty() {
        return Err(OrderError::Empty);
    }
    if ends.last() != Some(&(n as u64)) {
        return Err(OrderError::Ends { n });
    }
    let (mut start, mut longest) = (0, 0);
    for (batch, &end) in ends.iter().enumerate() {
        let len = end.checked_sub(start).ok_or(OrderError::Ends { n })?;
        if len == 0 {
            return Err(OrderError::EmptyBatch { batch });
        }
        longest = longest.max(len);
        start = end;
    }
    u32::try_from(longest).map_err(|_| OrderError::Ends { n })
}

/// What is left of an order after its first `skip` batches.
fn behind(
    skip: u32,
    mut ids: Vec<u64>,
    ends: Vec<u64>,
) -> Result<(Vec<u64>, Vec<u64>), OrderError> {
    let skip = skip as usize;
    let Some(&first) = skip.checked_sub(1).and_then(|last| ends.get(last)) else {
        return if skip == 0 { Ok((ids, ends)) } else { Err(OrderError::Empty) };
    };
    ids.drain(..usize::try_from(first).unwrap_or(ids.len()));
    let ends: Vec<u64> = ends[skip..].iter().map(|end| end - first).collect();
    if ends.is_empty() { Err(OrderError::Empty) } else { Ok((ids, ends)) }
}

/// Records as sample ids: those that come again lie n records apart.
fn numbered(config: OrderConfig, records: &[i64]) -> Result<Vec<u64>, OrderError> {
    let OrderConfig { n_records, rank, world, repeats, .. } = config;
    let n = usize::try_from(n_records).unwrap_or(usize::MAX);
    let mut seen = vec![0_u32; n];
    let number = |(place, &record): (usize, &i64)| {
        let outside = || OrderError::NoSuchRecord { record, place, n_records };
        let row = usize::try_from(record).map_err(|_| outside())?;
        let times = seen.get_mut(row).ok_or_else(outside)?;
        let repetition = match repeats {
            Repeats::SameOnRanks => u64::from(*times),
            Repeats::OfEachRank => u64::from(*times) * u64::from(world) + u64::from(rank),
        };
        *times = times.saturating_add(1);
        let record = row as u64;
        let id = repetition.checked_mul(n_records).and_then(|id| id.checked_add(record));
        id.filter(|&id| id < MAX_ID).ok_or(OrderError::TooOften { record, n_records })
    };
    records.iter().enumerate().map(number).collect()
}

/// The JSON form of an [`OrderMark`]; its fields in the order of the alphabet.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawMark {
    pub(crate) batches: u32,
    pub(crate) digest: String,
    pub(crate) rank: u32,
    pub(crate) world: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config(n_records: u64) -> OrderConfig {
        OrderConfig {
            n_records,
            rank: 0,
            world: 1,
            repeats: Repeats::SameOnRanks,
            skip: 0,
        }
    }

    fn batches(order: &Order) -> Vec<Vec<u64>> {
        (0..order.n_batches())
            .map(|batch| order.samples(BatchIdx(batch)).map(|id| id.0).collect())
            .collect()
    }

    #[test]
    fn batches_come_as_they_were_given_and_repetitions_are_samples_of_their_own() {
        let order = Order::new(config(5), &[4, 0, 4, 4, 1], vec![2, 3, 5]).unwrap();
        assert_eq!(batches(&order), [vec![4, 0], vec![9], vec![14, 1]]);
        assert_eq!((order.n_batches(), order.longest()), (3, 2));
        assert_eq!(order.samples(BatchIdx(3)).len(), 0);
        assert_eq!(order.samples(BatchIdx(u32::MAX)).len(), 0);
    }

    #[test]
    fn skipped_batches_count_as_repetitions() {
        let order = |skip| {
            let config = OrderConfig { skip, ..config(5) };
            Order::new(config, &[4, 0, 4, 4, 1], vec![2, 3, 5])
        };
        let whole = batches(&order(0).unwrap());
        assert_eq!(batches(&order(1).unwrap()), whole[1..]);
        assert_eq!(batches(&order(2).unwrap()), whole[2..]);
        for skip in [3, 4, u32::MAX] {
            assert_eq!(order(skip), Err(OrderError::Empty));
        }
    }

    #[test]
    fn a_record_on_two_ranks_is_one_sample_or_two() {
        let ids = |rank, repeats| {
            let config = OrderConfig { rank, world: 2, repeats, ..config(10) };
            batches(&Order::new(config, &[3, 3], vec![2]).unwrap()).concat()
        };
        assert_eq!(ids(0, Repeats::SameOnRanks), ids(1, Repeats::SameOnRanks));
        let apart = [ids(0, Repeats::OfEachRank), ids(1, Repeats::OfEachRank)].concat();
        assert_eq!(apart, [3, 23, 13, 33]);
    }

    #[test]
    fn what_is_no_order_is_refused_by_its_place() {
        let line = |records: &[i64], ends: &[u64]| {
            Order::new(config(5), records, ends.to_vec()).unwrap_err().to_string()
        };
        assert_eq!(line(&[], &[]), "the order has no batch");
        assert_eq!(
            line(&[1, 5], &[2]),
            "the order names sample 5 at position 1 and the data set has 5: its indices are 0 to 4"
        );
        assert!(line(&[-1], &[1]).contains("sample -1 at position 0"));
        assert!(line(&[1, 2], &[2, 2]).contains("batch 1 of the order has no sample"));
        assert!(line(&[1, 2], &[1]).contains("do not increase to the 2 samples"));
        assert!(line(&[1, 2], &[2, 1, 2]).contains("do not increase"));
        assert!(line(&[1], &[u64::MAX]).contains("do not increase"));
        let outside = OrderConfig { rank: 2, world: 2, ..config(5) };
        let line = Order::new(outside, &[1], vec![1]).unwrap_err().to_string();
        assert!(line.starts_with("rank 2 of 2"), "{line}");
        let huge = OrderConfig { rank: u32::MAX - 1, world: u32::MAX, ..config(5) };
        let huge = OrderConfig { repeats: Repeats::OfEachRank, ..huge };
        assert!(Order::new(huge, &[1], vec![1]).is_ok());
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_id_comes_twice(
            records in prop::collection::vec(0_i64..20, 1..200),
            cuts in prop::collection::vec(1_usize..9, 1..200),
        ) {
            let mut ends: Vec<u64> = cuts
                .iter()
                .scan(0, |end, cut| { *end += cut; Some(*end as u64) })
                .take_while(|&end| end < records.len() as u64)
                .collect();
            ends.push(records.len() as u64);
            let order = Order::new(config(20), &records, ends).unwrap();
            let ids = batches(&order).concat();
            let back: Vec<i64> = ids.iter().map(|id| i64::try_from(id % 20).unwrap()).collect();
            prop_assert_eq!(&back, &records);
            let mut distinct = ids.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), ids.len());
        }
    }
}
