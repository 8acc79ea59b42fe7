//! How far an epoch has come: a small JSON text from which another process can continue.
//!
//! It holds what identifies the run (checked before anything is resumed), the position in the plan, the
//! digests so far, and a checksum over all of it; at most 1 kB with strategy `ordered`. Nothing here
//! reads or writes a file.
//!
//! Each state has exactly one text: one line, with keys in alphabetical order and no whitespace. Any
//! other text with the same meaning is refused, so no bit can change unnoticed. A caller that holds the
//! state as a dictionary writes it in this form again.

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::digest::{ContentDigest, StreamDigest};
use crate::ids::EpochIdx;
use crate::order::{OrderMark, RawMark};
use crate::plan::{LastPolicy, Shuffle};
use crate::select::StrategyConfig;
use crate::setting::{Names, NamesSettings, Setting};

/// The version of the text that this build writes. It reads version 1, too.
pub const RESUME_VERSION: u32 = 2;

/// The first version; it has neither a checksum nor the plan's fingerprint.
const UNCHECKED_VERSION: u32 = 1;

/// What to tell whoever resumes from a state that is not [`Resume::is_checked`].
pub const UNCHECKED_NOTE: &str = "the resume state has version 1, which has no checksum: \
    damage to it may go unnoticed; states saved from here on have one";

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
    /// `PlanConfig::fingerprint`; a state of version 1 has none.
    pub plan: Option<u32>,
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
    /// The supplied order that the epoch followed, if it did; `position` counts the rows of its batches.
    pub order: Option<OrderMark>,
    /// Samples delivered in this epoch by the rank that saved.
    pub n_delivered: u64,
    /// That rank's stream digest so far.
    pub stream: StreamDigest,
    /// That rank's content digest so far.
    pub content: ContentDigest,
    /// What the digests are over, as a fingerprint that only equal bytes share; `None` where no digests
    /// were made.
    pub digest_of: Option<u32>,
}

/// Why a run cannot go on from a text.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.with_names(Setting::key))]
#[non_exhaustive]
pub enum ResumeError {
    /// Not a resume state.
    Json(#[source] serde_json::Error),
    /// Written by another release.
    Version {
        /// As found.
        got: u32,
    },
    /// A field that no run writes.
    Damaged {
        /// The field.
        key: &'static str,
        /// What is wrong.
        why: &'static str,
    },
    /// The state belongs to another run.
    Differs {
        /// What differs first.
        what: Compared,
        /// In the text.
        theirs: String,
        /// In this run.
        ours: String,
    },
    /// The epoch follows another order.
    Order {
        /// What differs.
        why: &'static str,
    },
}

/// What a state and a run are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// A setting, which the run can be given again.
    Setting(Setting),
    /// Something that follows from data and recipe.
    Property(&'static str),
}

impl NamesSettings for ResumeError {
    fn with_names(&self, name: Names) -> String {
        match self {
            Self::Json(_) => format!(
                "the resume state cannot be read; give what {} wrote",
                name(Setting::SaveState)
            ),
            Self::Version { got } => format!(
                "the resume state has version {got} and this build reads \
                 {UNCHECKED_VERSION} and {RESUME_VERSION}; use the release that wrote it"
            ),
            Self::Damaged { key, why } => {
                format!(
                    "the resume state is damaged: `{key}` {why}; use an older checkpoint"
                )
            }
            Self::Differs { what, theirs, ours } => {
                let what = match what {
                    Compared::Setting(setting) => name(*setting),
                    Compared::Property(property) => property,
                };
                format!(
                    "the resume state was made with {what} {theirs} and this run has \
                     {ours}; give the same, or start without {}",
                    name(Setting::LoadState)
                )
            }
            Self::Order { why } => format!(
                "the resume state is from the middle of an epoch, and {why}; give the sampler \
                 the seed and epoch that it had, or begin the next epoch"
            ),
        }
    }
}

impl Resume {
    /// The text, one line.
    ///
    /// # Panics
    /// Never: strings, numbers and lists have a JSON form.
    #[must_use]
    pub fn to_json(&self) -> String {
        let raw = Raw::from(self);
        let checksum = self.is_checked().then(|| raw.checksum());
        Raw { checksum, ..raw }.text()
    }

    /// Whether the text had a checksum, as all have since version 2. Where it had none,
    /// [`UNCHECKED_NOTE`] is what to say.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.run.plan.is_some()
    }

    /// Reads what [`Self::to_json`] wrote, byte for byte; a newline behind it is no harm. Of
    /// version 1 any text with the right fields.
    ///
    /// # Errors
    /// [`ResumeError::Json`], [`ResumeError::Version`], [`ResumeError::Damaged`].
    pub fn from_json(json: &str) -> Result<Self, ResumeError> {
        // The version first: another one may have other fields.
        let Version { version } =
            serde_json::from_str(json).map_err(ResumeError::Json)?;
        if version != RESUME_VERSION && version != UNCHECKED_VERSION {
            return Err(ResumeError::Version { got: version });
        }
        let mut raw: Raw = serde_json::from_str(json).map_err(ResumeError::Json)?;
        if version == RESUME_VERSION {
            raw.check(json.trim_ascii_end())?;
        } else if raw.has_later_fields() {
            return Err(damaged("version", "is not that of its fields"));
        }
        let order = raw.order.as_ref().map(mark).transpose()?;
        raw.check_place(order)?;
        let eight = |key, text: &Option<String>| {
            text.as_deref().map(|text| fingerprint(key, text)).transpose()
        };
        let (plan, digest_of) =
            (eight("plan", &raw.plan)?, eight("digest_of", &raw.digest_of)?);
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
                plan,
            },
            epoch: raw.epoch,
            position: raw.position,
            done: raw.done,
            order,
            n_delivered: raw.n_delivered,
            stream: StreamDigest::restore(&raw.stream)
                .map_err(|_| damaged("stream", "is not a saved stream digest"))?,
            content: ContentDigest(hash("content", &raw.content)?),
            digest_of,
        })
    }

    /// Whether `run` may go on from here.
    ///
    /// # Errors
    /// [`ResumeError::Differs`] names the first thing that differs.
    pub fn check(&self, run: &RunIdentity) -> Result<(), ResumeError> {
        let (setting, property) = (Compared::Setting, Compared::Property);
        let theirs = &self.run;
        same(setting(Setting::Seed), theirs.seed, run.seed)?;
        let [recipe, data] = [theirs.recipe_hash, theirs.manifest_hash].map(hex);
        same(property("recipe hash"), recipe, hex(run.recipe_hash))?;
        same(property("data set hash"), data, hex(run.manifest_hash))?;
        same(property("samples per epoch"), theirs.n_samples, run.n_samples)?;
        same(setting(Setting::BatchSize), theirs.batch_size, run.batch_size)?;
        same(property("shuffle"), theirs.shuffle, run.shuffle)?;
        same(setting(Setting::Last), theirs.last, run.last)?;
        same(setting(Setting::Strategy), &theirs.strategy, &run.strategy)?;
        if !self.done.is_empty() {
            same(setting(Setting::World), theirs.world, run.world)?;
        }
        match (theirs.plan, run.plan) {
            // The settings are the same, and still the samples would come in another order.
            (Some(theirs), Some(ours)) => {
                same(property("plan"), eight_digits(theirs), eight_digits(ours))
            }
            (_, _) => Ok(()),
        }
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
            "the sampler divides the epoch among a different number of ranks"
        }
        (Some(theirs), Some(ours)) if theirs.n_batches != ours.n_batches => {
            "the sampler gives a different number of batches"
        }
        (Some(theirs), Some(ours))
            if theirs.rank == ours.rank && theirs.digest != ours.digest =>
        {
            "the sampler gives a different order"
        }
        (Some(_), Some(_)) => return Ok(()),
    };
    Err(ResumeError::Order { why })
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// The JSON form: hashes are 32 hexadecimal digits, the checksum 16, fingerprints 8, a stream digest
/// its saved text. The fields stand in the order of the alphabet, as they are written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    batch_size: u32,
    /// XXH3-64 of the text without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
    content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest_of: Option<String>,
    done: Vec<(u32, u32)>,
    epoch: EpochIdx,
    last: LastPolicy,
    manifest_hash: String,
    n_delivered: u64,
    n_samples: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<RawMark>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<String>,
    position: u64,
    recipe_hash: String,
    seed: u64,
    shuffle: Shuffle,
    strategy: String,
    stream: String,
    version: u32,
    world: u32,
}

impl Raw {
    fn text(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and lists have a JSON form")
    }

    /// Whether it has what no state of version 1 has.
    fn has_later_fields(&self) -> bool {
        self.checksum.is_some() || self.plan.is_some() || self.digest_of.is_some()
    }

    /// Of a form that has none yet.
    fn checksum(&self) -> String {
        format!("{:016x}", XxHash3_64::oneshot(self.text().as_bytes()))
    }

    /// Whether this is what `text` says, and nothing has changed it.
    fn check(&mut self, text: &str) -> Result<(), ResumeError> {
        let is_as_written = self.text() == text;
        let theirs = self.checksum.take();
        if theirs.as_deref() != Some(&self.checksum()) {
            return Err(damaged("checksum", "is not that of the rest"));
        }
        if !is_as_written {
            return Err(damaged(
                "checksum",
                "is from the same state, written differently",
            ));
        }
        match self.plan {
            Some(_) => Ok(()),
            None => Err(damaged("plan", "is missing")),
        }
    }

    /// Whether a run can stop there.
    fn check_place(&self, order: Option<OrderMark>) -> Result<(), ResumeError> {
        if self.batch_size == 0 || self.world == 0 {
            return Err(damaged("batch_size", "or `world` is 0"));
        }
        // What is delivered from here on is added to it.
        if self.n_delivered > u64::MAX / 2 {
            return Err(damaged("n_delivered", "is more than any epoch has"));
        }
        if self.epoch.0 == u32::MAX {
            return Err(damaged("epoch", "cannot be reached by any run"));
        }
        let is_rising = self.done.iter().all(|range| range.0 < range.1)
            && self.done.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        if !is_rising {
            return Err(damaged(
                "done",
                "has ranges that are empty or not in rising order",
            ));
        }
        let strategy = self.strategy.parse::<StrategyConfig>();
        if !self.done.is_empty() && strategy.is_ok_and(StrategyConfig::keeps_order) {
            return Err(damaged(
                "done",
                "names batches and the strategy keeps the order",
            ));
        }
        let batch_size = u64::from(self.batch_size);
        let end = match order {
            Some(order) => u64::from(order.n_batches).saturating_mul(batch_size),
            None => self.n_samples,
        };
        if self.position > end {
            return Err(damaged("position", "is after the last sample"));
        }
        if self.position != end && !self.position.is_multiple_of(batch_size) {
            return Err(damaged("position", "is in the middle of a batch"));
        }
        Ok(())
    }
}

impl From<&Resume> for Raw {
    fn from(resume: &Resume) -> Self {
        let run = &resume.run;
        Self {
            version: match run.plan {
                Some(_) => RESUME_VERSION,
                None => UNCHECKED_VERSION,
            },
            checksum: None,
            plan: run.plan.map(eight_digits),
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
            // Whoever made a state of version 1 does not know of it.
            digest_of: run.plan.and(resume.digest_of).map(eight_digits),
            stream: resume.stream.save(),
        }
    }
}

fn mark(raw: &RawMark) -> Result<OrderMark, ResumeError> {
    if raw.rank >= raw.world {
        return Err(damaged("order", "has a rank that is not below the world"));
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

fn eight_digits(fingerprint: u32) -> String {
    format!("{fingerprint:08x}")
}

fn hash(key: &'static str, text: &str) -> Result<u128, ResumeError> {
    let ContentDigest(hash) =
        text.parse().map_err(|_| damaged(key, "is not 32 hexadecimal digits"))?;
    Ok(hash)
}

fn fingerprint(key: &'static str, text: &str) -> Result<u32, ResumeError> {
    let digits = Some(text).filter(|text| text.len() == 8);
    let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    number.ok_or_else(|| damaged(key, "is not 8 hexadecimal digits"))
}

fn damaged(key: &'static str, why: &'static str) -> ResumeError {
    ResumeError::Damaged { key, why }
}

fn same<T: PartialEq + ToString>(
    what: Compared,
    theirs: T,
    ours: T,
) -> Result<(), ResumeError> {
    if theirs == ours {
        return Ok(());
    }
    let (theirs, ours) = (theirs.to_string(), ours.to_string());
    Err(ResumeError::Differs { what, theirs, ours })
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
            plan: Some(u32::MAX),
        }
    }

    /// The text of a state of version 1: nothing but its fields is checked.
    fn unchecked(there: &Resume) -> String {
        let run = RunIdentity { plan: None, ..there.run.clone() };
        Resume { run, ..there.clone() }.to_json()
    }

    fn refusal(text: &str) -> String {
        Resume::from_json(text).unwrap_err().to_string()
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
            digest_of: Some(1 << 31),
        }
    }

    #[test]
    fn the_text_brings_everything_back() {
        let mut there = resume();
        there.run.strategy = "mte".into();
        there.done = vec![(0, 3), (3, 4), (9, 10)];
        let back = Resume::from_json(&there.to_json()).unwrap();
        assert_eq!(back.run, there.run);
        assert_eq!(back.done, there.done);
        assert_eq!((back.epoch, back.position), (EpochIdx(3), 2_048));
        assert_eq!((back.n_delivered, back.content), (256, there.content));
        assert_eq!(back.digest_of, there.digest_of);
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
        let table: [(Change, &str); 10] = [
            (|run| run.seed = 8, "made with seed 7 and this run has 8; give the same"),
            (|run| run.recipe_hash = 0, "recipe hash 0000001000"),
            (|run| run.manifest_hash = 0, "data set hash ffff"),
            (|run| run.n_samples = 9, "samples per epoch 1281167 and this run has 9"),
            (|run| run.batch_size = 9, "batch_size 256 and this run has 9"),
            (|run| run.shuffle = Shuffle::None, "shuffle full and this run has none"),
            (|run| run.last = LastPolicy::Pad, "last drop and this run has pad"),
            (|run| run.strategy = "mte".into(), "strategy ordered and this run has mte"),
            (|run| run.world = 3, "world_size 8 and this run has 3"),
            (|run| run.plan = Some(1), "plan ffffffff and this run has 00000001"),
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
        let behind = unchecked(&there).replace("1280000", "1280001");
        let line = refusal(&behind);
        assert!(line.contains("`position` is after"), "{line}");
        let line = |theirs, ours| match check_order(theirs, ours) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        let of_rank_0 = OrderMark { digest: 1, rank: 0, ..MARK };
        assert_eq!(line(None, None), "");
        assert_eq!(line(Some(MARK), Some(MARK)), "");
        assert_eq!(line(Some(of_rank_0), Some(MARK)), "", "a state of another rank");
        let other = OrderMark { digest: 2, ..MARK };
        assert!(line(Some(MARK), Some(other)).contains("gives a different order"));
        let other = OrderMark { world: 9, ..of_rank_0 };
        assert!(line(Some(MARK), Some(other)).contains("a different number of ranks"));
        let other = OrderMark { n_batches: 9, ..of_rank_0 };
        assert!(line(Some(MARK), Some(other)).contains("a different number of batches"));
        assert!(line(None, Some(MARK)).contains("the one that was saved did not"));
        assert!(line(Some(MARK), None).contains("this one does not"));
    }

    #[test]
    fn a_damaged_text_is_refused_by_its_field() {
        let text = unchecked(&resume());
        let table = [
            (
                r#""version":1"#,
                r#""version":3"#,
                "has version 3 and this build reads 1 and 2",
            ),
            (r#""version":1"#, r#""version":2"#, "`checksum` is not that of the rest"),
            (r#""seed":7"#, r#""seed":-7"#, "cannot be read"),
            (r#""seed":7"#, r#""seed":7,"sed":7"#, "cannot be read"),
            (
                r#""position":2048"#,
                r#""position":1281168"#,
                "`position` is after the last",
            ),
            (r#""position":2048"#, r#""position":2049"#, "is in the middle of a batch"),
            (r#""epoch":3"#, r#""epoch":4294967295"#, "`epoch` cannot be reached"),
            (r#""batch_size":256"#, r#""batch_size":0"#, "`batch_size` or `world` is 0"),
            (r#""done":[]"#, r#""done":[[2,3]]"#, "names batches and the strategy keeps"),
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
            ("{", "", "cannot be read; give what Loader::state wrote"),
        ];
        for (old, new, part) in table {
            assert!(text.contains(old), "{text}");
            let line =
                Resume::from_json(&text.replacen(old, new, 1)).unwrap_err().to_string();
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn every_change_of_a_bit_is_refused() {
        let order = Some(MARK);
        let relaxed = RunIdentity { strategy: "relaxed".into(), ..run() };
        let states = [
            resume(),
            Resume { order, position: 1_280_000, ..resume() },
            Resume { run: relaxed, done: vec![(0, 4), (9, 10)], ..resume() },
        ];
        for state in states {
            let text = state.to_json();
            assert!(Resume::from_json(&format!("{text}\n")).unwrap().is_checked());
            for bit in 0..8 * text.len() {
                let mut bytes = text.clone().into_bytes();
                bytes[bit / 8] ^= 1 << (bit % 8);
                // Another kind of text is refused by whoever reads it.
                let Ok(changed) = String::from_utf8(bytes) else { continue };
                let refused = Resume::from_json(&changed);
                assert!(refused.is_err(), "bit {bit}: {changed}");
                assert!(!refusal(&changed).contains('\n'), "{}", refusal(&changed));
            }
        }
    }

    #[test]
    fn the_same_state_written_otherwise_is_refused() {
        let text = resume().to_json();
        let line = refusal(&text.replacen(',', ", ", 1));
        assert!(line.contains("is from the same state, written differently"), "{line}");
        // As whoever holds it as a dictionary writes it.
        let held: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&text).unwrap();
        let mut pairs: Vec<_> = held.iter().collect();
        pairs.sort_by_key(|(key, _)| key.as_str());
        let pairs: Vec<_> = pairs.iter().map(|(k, v)| format!("\"{k}\":{v}")).collect();
        assert_eq!(format!("{{{}}}", pairs.join(",")), text, "in alphabetical order");
    }

    #[test]
    fn version_1_is_read_and_known_as_unchecked() {
        let old = concat!(
            r#"{"version":1,"seed":7,"recipe_hash":"00000000000000000000000000000001","#,
            r#""manifest_hash":"00000000000000000000000000000002","n_samples":23,"#,
            r#""batch_size":4,"shuffle":"full","last":"drop","world":1,"#,
            r#""strategy":"ordered","epoch":1,"position":8,"done":[],"n_delivered":8,"#,
            r#""content":"00000000000000000000000000000003","stream":"0-"}"#
        );
        let there = Resume::from_json(old).unwrap();
        assert!(!there.is_checked());
        assert_eq!((there.epoch, there.position), (EpochIdx(1), 8));
        let ours = RunIdentity { plan: Some(9), ..there.run.clone() };
        there.check(&ours).unwrap();
        assert!(Resume { run: ours, ..there }.to_json().contains("\"version\":2"));
        // What has a checksum is not made older than it is.
        let text = resume().to_json().replace("\"version\":2", "\"version\":1");
        assert!(refusal(&text).contains("`version` is not that of its fields"));
        let text = old.replacen('{', r#"{"digest_of":"00000001","#, 1);
        assert!(refusal(&text).contains("`version` is not that of its fields"));
    }

    proptest! {
        #[test]
        fn at_most_one_kilobyte_whatever_the_numbers(
            numbers: (u64, u128, u128, u64, u32, u32, u32, u64, u128),
            n_bytes in prop_oneof![0..300_usize, 0..5_000_usize],
            is_supplied: bool,
        ) {
            let (seed, recipe_hash, manifest_hash, n_samples, batch_size, ..) = numbers;
            let (.., world, epoch, n_delivered, content) = numbers;
            // No run has none of these, or is in an epoch without a next one.
            let (batch_size, world) = (batch_size.max(1), world.max(1));
            let epoch = epoch.min(u32::MAX - 1);
            let n_delivered = n_delivered / 2;
            // Training loops supply orders and count no digests, whole runs the other way round.
            let mut stream = StreamDigest::new();
            if !is_supplied {
                stream.update(&vec![0xAB; n_bytes]);
            }
            let mark = OrderMark { world: u32::MAX, n_batches: u32::MAX, ..MARK };
            let position = match is_supplied {
                true => u64::from(batch_size) * u64::from(u32::MAX),
                false => n_samples,
            };
            let there = Resume {
                run: RunIdentity {
                    seed, recipe_hash, manifest_hash, n_samples, batch_size, world, ..run()
                },
                epoch: EpochIdx(epoch),
                n_delivered,
                content: ContentDigest(content),
                stream,
                digest_of: (!is_supplied).then_some(u32::MAX),
                order: is_supplied.then_some(mark),
                position,
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
