//! How far an epoch has come: a small JSON text from which another process goes on.
//!
//! It holds what identifies the run (checked before anything is resumed), the position in
//! the plan, and the digests so far; at most 1 kB with strategy `ordered`. Nothing here
//! reads or writes a file.

use serde::{Deserialize, Serialize};

use crate::digest::{ContentDigest, StreamDigest};
use crate::ids::EpochIdx;
use crate::order::{OrderMark, RawMark};
use crate::plan::{LastPolicy, Shuffle};

/// The version of the text that this build reads and writes.
pub const RESUME_VERSION: u32 = 1;

/// What a run must have in common with the one that saved the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunIdentity {
    /// The seed.
    pub seed: u64,
    /// `Recipe::hash`.
    pub recipe_hash: u128,
    /// The extent table's hash.
    pub manifest_hash: u128,
    /// Samples of an epoch, repetitions included.
    pub n_samples: u64,
    /// Samples in a batch.
    pub batch_size: u32,
    /// The order.
    pub shuffle: Shuffle,
    /// What happens at the end.
    pub last: LastPolicy,
    /// Number of ranks. May change, unless [`Resume::done`] counts in its batches.
    pub world: u32,
    /// The strategy's name.
    pub strategy: String,
}

/// Where to go on.
#[derive(Debug, Clone)]
pub struct Resume {
    /// The run that stopped.
    pub run: RunIdentity,
    /// The epoch it was in.
    pub epoch: EpochIdx,
    /// Global positions delivered by all ranks: `PlanConfig::start` of the plan that goes
    /// on (`Plan::position_after`). Where `done` is not empty: the start of the plan whose
    /// batches it names.
    pub position: u64,
    /// Batches delivered beyond `position`, as half-open ranges in rising order; strategies
    /// that do not deliver in the plan's order need them. Empty with `ordered`.
    pub done: Vec<(u32, u32)>,
    /// The supplied order that the epoch followed, if it did; `position` counts its slots.
    pub order: Option<OrderMark>,
    /// Samples delivered in this epoch by the rank that saved.
    pub n_delivered: u64,
    /// That rank's stream digest so far.
    pub stream: StreamDigest,
    /// That rank's content digest so far.
    pub content: ContentDigest,
}

/// Why a run cannot go on from a text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// Not a resume state.
    #[error("the resume state cannot be read; give the file that --checkpoint wrote")]
    Json(#[source] serde_json::Error),
    /// Written by another release.
    #[error(
        "the resume state has version {got} and this build reads {RESUME_VERSION}; \
         use the release that wrote it"
    )]
    Version {
        /// As found.
        got: u32,
    },
    /// A field that no run writes.
    #[error("the resume state is damaged: `{key}` {why}; use an older checkpoint")]
    Damaged {
        /// The field.
        key: &'static str,
        /// What is wrong.
        why: &'static str,
    },
    /// The state belongs to another run.
    #[error(
        "the resume state was made with {key} {theirs} and this run has {ours}; \
         give the same, or start without --resume"
    )]
    Differs {
        /// What differs first.
        key: &'static str,
        /// In the text.
        theirs: String,
        /// In this run.
        ours: String,
    },
    /// The epoch follows another order.
    #[error(
        "the resume state is of the middle of an epoch, and {why}; give the sampler the seed \
         and epoch that it had, or begin the next epoch"
    )]
    Order {
        /// What differs.
        why: &'static str,
    },
}

impl Resume {
    /// The text, one line.
    ///
    /// # Panics
    /// Never: strings, numbers and lists have a JSON form.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(&Raw::from(self))
            .expect("strings, numbers and lists have a JSON form")
    }

    /// Reads what [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// [`ResumeError::Json`], [`ResumeError::Version`], [`ResumeError::Damaged`].
    pub fn from_json(json: &str) -> Result<Self, ResumeError> {
        // The version first: another one may have other fields.
        let Version { version } =
            serde_json::from_str(json).map_err(ResumeError::Json)?;
        if version != RESUME_VERSION {
            return Err(ResumeError::Version { got: version });
        }
        let raw: Raw = serde_json::from_str(json).map_err(ResumeError::Json)?;
        let is_rising = raw.done.iter().all(|range| range.0 < range.1)
            && raw.done.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        if !is_rising {
            let why = "has ranges that are empty or not in rising order";
            return Err(ResumeError::Damaged { key: "done", why });
        }
        let order = raw.order.as_ref().map(mark).transpose()?;
        let n_slots = order.map(|order| {
            u64::from(order.n_batches).saturating_mul(raw.batch_size.into())
        });
        if raw.position > n_slots.unwrap_or(raw.n_samples) {
            let why = "is behind the last sample";
            return Err(ResumeError::Damaged { key: "position", why });
        }
        Ok(Self {
            run: RunIdentity {
                seed: raw.seed,
                recipe_hash: hash("recipe_hash", &raw.recipe_hash)?,
                manifest_hash: hash("manifest_hash", &raw.manifest_hash)?,
                n_samples: raw.n_samples,
                batch_size: raw.batch_size,
                shuffle: raw.shuffle,
                last: raw.last,
                world: raw.world,
                strategy: raw.strategy,
            },
            epoch: raw.epoch,
            position: raw.position,
            done: raw.done,
            order,
            n_delivered: raw.n_delivered,
            stream: StreamDigest::restore(&raw.stream).map_err(|_| {
                ResumeError::Damaged {
                    key: "stream",
                    why: "is not a saved stream digest",
                }
            })?,
            content: ContentDigest(hash("content", &raw.content)?),
        })
    }

    /// Whether `run` may go on from here.
    ///
    /// # Errors
    /// [`ResumeError::Differs`] names the first thing that differs.
    pub fn check(&self, run: &RunIdentity) -> Result<(), ResumeError> {
        let theirs = &self.run;
        same("--seed", theirs.seed, run.seed)?;
        same("recipe hash", hex(theirs.recipe_hash), hex(run.recipe_hash))?;
        same("data set hash", hex(theirs.manifest_hash), hex(run.manifest_hash))?;
        same("samples per epoch", theirs.n_samples, run.n_samples)?;
        same("--batch-size", theirs.batch_size, run.batch_size)?;
        same("shuffle", theirs.shuffle, run.shuffle)?;
        same("--last", theirs.last, run.last)?;
        same("--strategy", &theirs.strategy, &run.strategy)?;
        if !self.done.is_empty() {
            same("--world", theirs.world, run.world)?;
        }
        Ok(())
    }
}

/// Whether an epoch with the order `ours` may go on from a state saved with `theirs`: the same
/// order where the same rank goes on; of another rank's order only the number of ranks and
/// of batches can be compared.
///
/// # Errors
/// [`ResumeError::Order`].
pub fn check_order(
    theirs: Option<OrderMark>,
    ours: Option<OrderMark>,
) -> Result<(), ResumeError> {
    let why = match (theirs, ours) {
        (None, None) => return Ok(()),
        (Some(_), None) => {
            "the epoch that was saved followed a sampler and this one does not"
        }
        (None, Some(_)) => {
            "this epoch follows a sampler and the one that was saved did not"
        }
        (Some(theirs), Some(ours)) if theirs.world != ours.world => {
            "the sampler deals the epoch to another number of ranks"
        }
        (Some(theirs), Some(ours)) if theirs.n_batches != ours.n_batches => {
            "the sampler gives another number of batches"
        }
        (Some(theirs), Some(ours))
            if theirs.rank == ours.rank && theirs.digest != ours.digest =>
        {
            "the sampler gives another order"
        }
        (Some(_), Some(_)) => return Ok(()),
    };
    Err(ResumeError::Order { why })
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// The JSON form: hashes are 32 hexadecimal digits, a stream digest its saved text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    version: u32,
    seed: u64,
    recipe_hash: String,
    manifest_hash: String,
    n_samples: u64,
    batch_size: u32,
    shuffle: Shuffle,
    last: LastPolicy,
    world: u32,
    strategy: String,
    epoch: EpochIdx,
    position: u64,
    done: Vec<(u32, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<RawMark>,
    n_delivered: u64,
    content: String,
    stream: String,
}

impl From<&Resume> for Raw {
    fn from(resume: &Resume) -> Self {
        let run = &resume.run;
        Self {
            version: RESUME_VERSION,
            seed: run.seed,
            recipe_hash: hex(run.recipe_hash),
            manifest_hash: hex(run.manifest_hash),
            n_samples: run.n_samples,
            batch_size: run.batch_size,
            shuffle: run.shuffle,
            last: run.last,
            world: run.world,
            strategy: run.strategy.clone(),
            epoch: resume.epoch,
            position: resume.position,
            done: resume.done.clone(),
            order: resume.order.map(|order| RawMark {
                digest: hex(order.digest),
                rank: order.rank,
                world: order.world,
                batches: order.n_batches,
            }),
            n_delivered: resume.n_delivered,
            content: resume.content.to_string(),
            stream: resume.stream.save(),
        }
    }
}

fn mark(raw: &RawMark) -> Result<OrderMark, ResumeError> {
    if raw.rank >= raw.world {
        let why = "has a rank that is not below the world";
        return Err(ResumeError::Damaged { key: "order", why });
    }
    Ok(OrderMark {
        digest: hash("order", &raw.digest)?,
        rank: raw.rank,
        world: raw.world,
        n_batches: raw.batches,
    })
}

fn hex(hash: u128) -> String {
    format!("{hash:032x}")
}

fn hash(key: &'static str, text: &str) -> Result<u128, ResumeError> {
    let ContentDigest(hash) = text
        .parse()
        .map_err(|_| ResumeError::Damaged { key, why: "is not 32 hexadecimal digits" })?;
    Ok(hash)
}

fn same<T: PartialEq + ToString>(
    key: &'static str,
    theirs: T,
    ours: T,
) -> Result<(), ResumeError> {
    if theirs == ours {
        return Ok(());
    }
    let (theirs, ours) = (theirs.to_string(), ours.to_string());
    Err(ResumeError::Differs { key, theirs, ours })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run() -> RunIdentity {
        RunIdentity {
            seed: 7,
            recipe_hash: 1 << 100,
            manifest_hash: u128::MAX,
            n_samples: 1_281_167,
            batch_size: 256,
            shuffle: Shuffle::Full,
            last: LastPolicy::Drop,
            world: 8,
            strategy: "ordered".into(),
        }
    }

    fn resume() -> Resume {
        let mut stream = StreamDigest::new();
        stream.update(&[7; 1_000]);
        Resume {
            run: run(),
            epoch: EpochIdx(3),
            position: 2_048,
            done: Vec::new(),
            order: None,
            n_delivered: 256,
            stream,
            content: ContentDigest(5),
        }
    }

    #[test]
    fn the_text_brings_everything_back() {
        let mut there = resume();
        there.done = vec![(0, 3), (3, 4), (9, 10)];
        let back = Resume::from_json(&there.to_json()).unwrap();
        assert_eq!(back.run, there.run);
        assert_eq!(back.done, there.done);
        assert_eq!((back.epoch, back.position), (EpochIdx(3), 2_048));
        assert_eq!((back.n_delivered, back.content), (256, there.content));
        assert_eq!(back.stream.digest(), there.stream.digest());
        assert_eq!(back.to_json(), there.to_json());
    }

    type Change = fn(&mut RunIdentity);

    #[test]
    fn the_first_difference_is_named() {
        let differs = |change: Change, done: &[(u32, u32)]| {
            let mut run = run();
            change(&mut run);
            let resume = Resume { done: done.to_vec(), ..resume() };
            resume.check(&run).map_err(|error| error.to_string())
        };
        assert_eq!(differs(|_| (), &[(0, 1)]), Ok(()));
        assert_eq!(differs(|run| run.world = 3, &[]), Ok(()));
        let table: [(Change, &str); 9] = [
            (|run| run.seed = 8, "made with --seed 7 and this run has 8; give the same"),
            (|run| run.recipe_hash = 0, "recipe hash 0000001000"),
            (|run| run.manifest_hash = 0, "data set hash ffff"),
            (|run| run.n_samples = 9, "samples per epoch 1281167 and this run has 9"),
            (|run| run.batch_size = 9, "--batch-size 256 and this run has 9"),
            (|run| run.shuffle = Shuffle::None, "shuffle full and this run has none"),
            (|run| run.last = LastPolicy::Pad, "--last drop and this run has pad"),
            (
                |run| run.strategy = "mte".into(),
                "--strategy ordered and this run has mte",
            ),
            (|run| run.world = 3, "--world 8 and this run has 3"),
        ];
        for (change, part) in table {
            let line = differs(change, &[(0, 1)]).unwrap_err();
            assert!(line.contains(part), "{line}");
        }
    }

    const MARK: OrderMark =
        OrderMark { digest: u128::MAX, rank: 1, world: 8, n_batches: 5_000 };

    #[test]
    fn a_supplied_order_is_known_again() {
        // A sampler may give more than the data set has.
        let there = Resume { order: Some(MARK), position: 1_280_000, ..resume() };
        let there = Resume { run: RunIdentity { n_samples: 9, ..run() }, ..there };
        let back = Resume::from_json(&there.to_json()).unwrap();
        assert_eq!((back.order, back.position), (Some(MARK), 1_280_000));
        let behind = there.to_json().replace("1280000", "1280001");
        let line = Resume::from_json(&behind).unwrap_err().to_string();
        assert!(line.contains("`position` is behind"), "{line}");
        let line = |theirs, ours| match check_order(theirs, ours) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        let of_rank_0 = OrderMark { digest: 1, rank: 0, ..MARK };
        assert_eq!(line(None, None), "");
        assert_eq!(line(Some(MARK), Some(MARK)), "");
        assert_eq!(line(Some(of_rank_0), Some(MARK)), "", "a state of another rank");
        let other = OrderMark { digest: 2, ..MARK };
        assert!(line(Some(MARK), Some(other)).contains("gives another order"));
        let other = OrderMark { world: 9, ..of_rank_0 };
        assert!(line(Some(MARK), Some(other)).contains("another number of ranks"));
        let other = OrderMark { n_batches: 9, ..of_rank_0 };
        assert!(line(Some(MARK), Some(other)).contains("another number of batches"));
        assert!(line(None, Some(MARK)).contains("the one that was saved did not"));
        assert!(line(Some(MARK), None).contains("this one does not"));
    }

    #[test]
    fn a_damaged_text_is_refused_by_its_field() {
        let text = resume().to_json();
        let table = [
            (r#""version":1"#, r#""version":2"#, "has version 2 and this build reads 1"),
            (r#""seed":7"#, r#""seed":-7"#, "cannot be read"),
            (r#""seed":7"#, r#""seed":7,"sed":7"#, "cannot be read"),
            (
                r#""position":2048"#,
                r#""position":1281168"#,
                "`position` is behind the last",
            ),
            (r#""done":[]"#, r#""done":[[2,2]]"#, "`done` has ranges that are empty"),
            (r#""done":[]"#, r#""done":[[2,4],[3,5]]"#, "`done` has ranges"),
            (
                r#""content":"0"#,
                r#""content":"x"#,
                "`content` is not 32 hexadecimal digits",
            ),
            (
                r#""stream":"1000-"#,
                r#""stream":"1001-"#,
                "`stream` is not a saved stream digest",
            ),
            ("{", "", "cannot be read; give the file that --checkpoint wrote"),
        ];
        for (old, new, part) in table {
            assert!(text.contains(old), "{text}");
            let line =
                Resume::from_json(&text.replacen(old, new, 1)).unwrap_err().to_string();
            assert!(line.contains(part), "{line}");
        }
    }

    proptest! {
        #[test]
        fn at_most_one_kilobyte_whatever_the_numbers(
            numbers: (u64, u128, u128, u64, u32, u32, u32, u64, u128),
            n_bytes in prop_oneof![0..300_usize, 0..5_000_usize],
        ) {
            let (seed, recipe_hash, manifest_hash, n_samples, batch_size, ..) = numbers;
            let (.., world, epoch, n_delivered, content) = numbers;
            let mut stream = StreamDigest::new();
            stream.update(&vec![0xAB; n_bytes]);
            let there = Resume {
                run: RunIdentity {
                    seed, recipe_hash, manifest_hash, n_samples, batch_size, world, ..run()
                },
                epoch: EpochIdx(epoch),
                n_delivered,
                content: ContentDigest(content),
                stream,
                order: Some(OrderMark { world: u32::MAX, n_batches: u32::MAX, ..MARK }),
                position: u64::from(batch_size.min(1)),
                ..resume()
            };
            let text = there.to_json();
            prop_assert!(text.len() <= 1_000, "{} bytes", text.len());
            prop_assert_eq!(Resume::from_json(&text).unwrap().to_json(), text);
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            prop_assert!(Resume::from_json(&text).is_err());
        }
    }
}
