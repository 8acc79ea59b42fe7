//! `preprocess_batch_v1`: what a host and the program that makes its batches say to each other in memory.
//!
//! The program is called with a set of three ranges, counted from 1:
//!
//! | range | holds | written by |
//! |---|---|---|
//! | 1 | records, each anywhere | the host, by copies from blocks |
//! | 2 | a [`Head`], the recipe, and a table of [`Item`]s | the host |
//! | 3 | [`Results`], a [`Made`] for each item, and the samples | the program |
//!
//! Parameter 1 is the number of items in its lower half and [`VERSION`] above it, parameter 2 the bytes of a
//! sample. The program returns how many items it has answered: all of them, or the status of the command says
//! why it did not begin. All numbers are little-endian; all places are bytes from the beginning of a range.
//! This is ours: no standard defines it. Nothing here allocates, reads a recipe or makes a sample.

use crate::field::Field;
use crate::status::Status;

/// The version of everything here.
pub const VERSION: u16 = 1;
/// The program's identifier in the list of programs: `batch-v1`.
pub const PROGRAM: u64 = u64::from_le_bytes(*b"batch-v1");
/// What a head begins with: `BEPB`.
const MAGIC: u32 = u32::from_le_bytes(*b"BEPB");
/// Most items of one execution.
pub const MOST_ITEMS: u32 = 1 << 16;
/// Most bytes of a recipe.
pub const MOST_RECIPE: u32 = 1 << 20;

/// Where the three parts are among the ranges of a set.
pub const RECORDS: usize = 1;
/// The range of head, recipe and items.
pub const TABLE: usize = 2;
/// The range of results and samples.
pub const RESULTS: usize = 3;

mod head {
    use super::Field;

    pub(super) const BYTES: usize = 96;
    pub(super) const MAGIC: Field<BYTES, u32> = Field::at(0);
    pub(super) const VERSION: Field<BYTES, u16> = Field::at(4);
    pub(super) const KIND: Field<BYTES, u16> = Field::at(6);
    pub(super) const N_ITEMS: Field<BYTES, u32> = Field::at(8);
    pub(super) const SAMPLE_BYTES: Field<BYTES, u32> = Field::at(12);
    pub(super) const SEED: Field<BYTES, u64> = Field::at(16);
    pub(super) const RECIPE_HASH: Field<BYTES, [u8; 16]> = Field::at(24);
    pub(super) const EPOCH: Field<BYTES, u32> = Field::at(40);
    pub(super) const RECIPE_AT: Field<BYTES, u32> = Field::at(44);
    pub(super) const RECIPE_BYTES: Field<BYTES, u32> = Field::at(48);
    pub(super) const ITEMS_AT: Field<BYTES, u32> = Field::at(52);
    pub(super) const RESULTS_AT: Field<BYTES, u32> = Field::at(56);
    pub(super) const CHANNELS: Field<BYTES, u32> = Field::at(60);
    pub(super) const HEIGHT: Field<BYTES, u32> = Field::at(64);
    pub(super) const WIDTH: Field<BYTES, u32> = Field::at(68);
}

mod item {
    use super::Field;

    pub(super) const BYTES: usize = 56;
    pub(super) const SAMPLE: Field<BYTES, u64> = Field::at(0);
    pub(super) const RECORD_AT: Field<BYTES, u32> = Field::at(8);
    pub(super) const RECORD_BYTES: Field<BYTES, u32> = Field::at(12);
    pub(super) const OUT_AT: Field<BYTES, u32> = Field::at(16);
    pub(super) const FLAGS: Field<BYTES, u32> = Field::at(20);
    pub(super) const CHECKSUM: Field<BYTES, u64> = Field::at(24);
    pub(super) const PROFILE_AT: Field<BYTES, u32> = Field::at(32);
    pub(super) const PROFILE_BYTES: Field<BYTES, u32> = Field::at(36);
    pub(super) const HEAD_AT: Field<BYTES, u32> = Field::at(40);
    pub(super) const HEAD_BYTES: Field<BYTES, u32> = Field::at(44);
    pub(super) const FIRST_GROUP: Field<BYTES, u32> = Field::at(48);

    /// The checksum is one.
    pub(super) const HAS_CHECKSUM: u32 = 1;
    /// The record is row groups of a store.
    pub(super) const HAS_GROUPS: u32 = 1 << 1;
}

mod results {
    use super::Field;

    pub(super) const BYTES: usize = 32;
    pub(super) const N_ITEMS: Field<BYTES, u32> = Field::at(0);
    pub(super) const N_FAILED: Field<BYTES, u32> = Field::at(4);
    pub(super) const CHECKSUM: Field<BYTES, u64> = Field::at(8);
    pub(super) const CODED_BYTES: Field<BYTES, u64> = Field::at(16);
    pub(super) const PIXELS: Field<BYTES, u64> = Field::at(24);
}

mod made {
    use super::Field;

    pub(super) const BYTES: usize = 16;
    pub(super) const OUTCOME: Field<BYTES, u32> = Field::at(0);
    pub(super) const PIXELS: Field<BYTES, u64> = Field::at(8);
}

/// How the bytes of all records of an execution are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Image files, told apart by their first bytes; or row groups, where an item says so.
    Image,
    /// Bytes in planes of a known size.
    Planar {
        /// Planes.
        channels: u32,
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
    },
    /// Bytes that nothing looks into.
    Opaque,
}

/// A part of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Its first byte.
    pub at: u32,
    /// How many it has.
    pub bytes: u32,
}

impl Part {
    /// The part in `range`; `None` where it is not all there.
    #[must_use]
    pub fn of(self, range: &[u8]) -> Option<&[u8]> {
        range.get(self.span()?)
    }

    fn span(self) -> Option<std::ops::Range<usize>> {
        let at = usize::try_from(self.at).ok()?;
        Some(at..at.checked_add(usize::try_from(self.bytes).ok()?)?)
    }

    /// The first byte behind it; `None` where no place has that number.
    #[must_use]
    pub fn end(self) -> Option<u32> {
        self.at.checked_add(self.bytes)
    }
}

/// What all items of an execution have in common: the first bytes of range 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// How records are to be read.
    pub kind: Kind,
    /// How many items there are.
    pub n_items: u32,
    /// Bytes of each sample.
    pub sample_bytes: u32,
    /// The run's seed.
    pub seed: u64,
    /// The epoch.
    pub epoch: u32,
    /// What the host has for the hash of the recipe, so that nobody makes samples by another one.
    pub recipe_hash: u128,
    /// The recipe as JSON, in range 2.
    pub recipe: Part,
    /// Where the items begin, in range 2.
    pub items_at: u32,
    /// Where the results begin, in range 3.
    pub results_at: u32,
}

impl Head {
    /// Bytes of it.
    pub const BYTES: usize = head::BYTES;

    /// As it is in memory.
    #[must_use]
    pub fn bytes(&self) -> [u8; head::BYTES] {
        let mut own = [0; head::BYTES];
        let (kind, planes) = match self.kind {
            Kind::Image => (0, [0; 3]),
            Kind::Planar { channels, height, width } => (1, [channels, height, width]),
            Kind::Opaque => (2, [0; 3]),
        };
        head::MAGIC.put(&mut own, MAGIC);
        head::VERSION.put(&mut own, VERSION);
        head::KIND.put(&mut own, kind);
        head::N_ITEMS.put(&mut own, self.n_items);
        head::SAMPLE_BYTES.put(&mut own, self.sample_bytes);
        head::SEED.put(&mut own, self.seed);
        head::RECIPE_HASH.put(&mut own, self.recipe_hash.to_le_bytes());
        head::EPOCH.put(&mut own, self.epoch);
        head::RECIPE_AT.put(&mut own, self.recipe.at);
        head::RECIPE_BYTES.put(&mut own, self.recipe.bytes);
        head::ITEMS_AT.put(&mut own, self.items_at);
        head::RESULTS_AT.put(&mut own, self.results_at);
        head::CHANNELS.put(&mut own, planes[0]);
        head::HEIGHT.put(&mut own, planes[1]);
        head::WIDTH.put(&mut own, planes[2]);
        own
    }

    /// The head that `table`, range 2, begins with, for an execution with these parameters.
    ///
    /// # Errors
    /// Invalid Field for another version, for numbers beyond their limits, and for a head that is not of these parameters.
    pub fn read(table: &[u8], parameters: Parameters) -> Result<Self, Status> {
        let own = table.first_chunk::<{ head::BYTES }>().ok_or(Status::INVALID_FIELD)?;
        let kind = match head::KIND.get(own) {
            0 => Kind::Image,
            1 => Kind::Planar {
                channels: head::CHANNELS.get(own),
                height: head::HEIGHT.get(own),
                width: head::WIDTH.get(own),
            },
            2 => Kind::Opaque,
            _ => return Err(Status::INVALID_FIELD),
        };
        let read = Self {
            kind,
            n_items: head::N_ITEMS.get(own),
            sample_bytes: head::SAMPLE_BYTES.get(own),
            seed: head::SEED.get(own),
            epoch: head::EPOCH.get(own),
            recipe_hash: u128::from_le_bytes(head::RECIPE_HASH.get(own)),
            recipe: Part {
                at: head::RECIPE_AT.get(own),
                bytes: head::RECIPE_BYTES.get(own),
            },
            items_at: head::ITEMS_AT.get(own),
            results_at: head::RESULTS_AT.get(own),
        };
        let is_ours = head::MAGIC.get(own) == MAGIC
            && head::VERSION.get(own) == VERSION
            && read.parameters() == parameters
            && read.n_items <= MOST_ITEMS
            && read.recipe.bytes <= MOST_RECIPE;
        if is_ours { Ok(read) } else { Err(Status::INVALID_FIELD) }
    }

    /// What the program is called with.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        Parameters(
            u64::from(self.n_items) | u64::from(VERSION) << 32,
            self.sample_bytes.into(),
        )
    }

    /// Where item `n` is, in range 2.
    #[must_use]
    pub fn item(&self, n: u32) -> Option<Part> {
        place(self.items_at, n, Item::BYTES)
    }

    /// Where the answer for item `n` is, in range 3.
    #[must_use]
    pub fn made(&self, n: u32) -> Option<Part> {
        let results = u32::try_from(Results::BYTES).ok()?;
        place(self.results_at.checked_add(results)?, n, Made::BYTES)
    }
}

/// The part of the `n`th of things of so many bytes.
fn place(first: u32, n: u32, bytes: usize) -> Option<Part> {
    let bytes = u32::try_from(bytes).ok()?;
    Some(Part { at: first.checked_add(n.checked_mul(bytes)?)?, bytes })
}

/// The two parameters of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters(pub u64, pub u64);

/// One sample that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// Its number.
    pub sample: u64,
    /// Its record, in range 1.
    pub record: Part,
    /// Where the sample goes, in range 3.
    pub out_at: u32,
    /// XXH3-64 of the record, where it is known.
    pub checksum: Option<u64>,
    /// Of a record that is row groups of a store: what is known of them.
    pub groups: Option<Groups>,
}

/// What is known of row groups of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Groups {
    /// The image's profile, in range 2.
    pub profile: Part,
    /// The image's head, in range 2.
    pub head: Part,
    /// The first group in the record.
    pub first: u32,
}

impl Item {
    /// Bytes of it.
    pub const BYTES: usize = item::BYTES;

    /// As it is in memory.
    #[must_use]
    pub fn bytes(&self) -> [u8; item::BYTES] {
        let mut own = [0; item::BYTES];
        let mut flags = 0;
        item::SAMPLE.put(&mut own, self.sample);
        item::RECORD_AT.put(&mut own, self.record.at);
        item::RECORD_BYTES.put(&mut own, self.record.bytes);
        item::OUT_AT.put(&mut own, self.out_at);
        if let Some(checksum) = self.checksum {
            flags |= item::HAS_CHECKSUM;
            item::CHECKSUM.put(&mut own, checksum);
        }
        if let Some(groups) = self.groups {
            flags |= item::HAS_GROUPS;
            item::PROFILE_AT.put(&mut own, groups.profile.at);
            item::PROFILE_BYTES.put(&mut own, groups.profile.bytes);
            item::HEAD_AT.put(&mut own, groups.head.at);
            item::HEAD_BYTES.put(&mut own, groups.head.bytes);
            item::FIRST_GROUP.put(&mut own, groups.first);
        }
        item::FLAGS.put(&mut own, flags);
        own
    }

    /// The item in `bytes`; `None` where they are not one.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let own: &[u8; item::BYTES] = bytes.try_into().ok()?;
        let flags = item::FLAGS.get(own);
        if flags & !(item::HAS_CHECKSUM | item::HAS_GROUPS) != 0 {
            return None;
        }
        let part = |at, bytes| Part { at, bytes };
        Some(Self {
            sample: item::SAMPLE.get(own),
            record: part(item::RECORD_AT.get(own), item::RECORD_BYTES.get(own)),
            out_at: item::OUT_AT.get(own),
            checksum: (flags & item::HAS_CHECKSUM != 0).then(|| item::CHECKSUM.get(own)),
            groups: (flags & item::HAS_GROUPS != 0).then(|| Groups {
                profile: part(item::PROFILE_AT.get(own), item::PROFILE_BYTES.get(own)),
                head: part(item::HEAD_AT.get(own), item::HEAD_BYTES.get(own)),
                first: item::FIRST_GROUP.get(own),
            }),
        })
    }
}

/// What an execution has come to: in range 3, before the answers of its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Results {
    /// Items that are answered.
    pub n_items: u32,
    /// Those whose sample was not made.
    pub n_failed: u32,
    /// XXH3-64 of all samples, concatenated in the order of the items.
    pub checksum: u64,
    /// Bytes of all records.
    pub coded_bytes: u64,
    /// Pixels of all images that were decoded.
    pub pixels: u64,
}

impl Results {
    /// Bytes of it.
    pub const BYTES: usize = results::BYTES;

    /// As they are in memory.
    #[must_use]
    pub fn bytes(&self) -> [u8; results::BYTES] {
        let mut own = [0; results::BYTES];
        results::N_ITEMS.put(&mut own, self.n_items);
        results::N_FAILED.put(&mut own, self.n_failed);
        results::CHECKSUM.put(&mut own, self.checksum);
        results::CODED_BYTES.put(&mut own, self.coded_bytes);
        results::PIXELS.put(&mut own, self.pixels);
        own
    }

    /// The results that `bytes` begin with.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let own = bytes.first_chunk::<{ results::BYTES }>()?;
        Some(Self {
            n_items: results::N_ITEMS.get(own),
            n_failed: results::N_FAILED.get(own),
            checksum: results::CHECKSUM.get(own),
            coded_bytes: results::CODED_BYTES.get(own),
            pixels: results::PIXELS.get(own),
        })
    }
}

/// What has become of one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// How it ended.
    pub outcome: Outcome,
    /// Pixels of the image that was decoded for it, or that was refused.
    pub pixels: u64,
}

/// How an item ended. A sample that was not made is zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The sample is made.
    Made,
    /// It is made in spite of a damaged record.
    Damaged,
    /// The record is no such sample.
    Bad,
    /// The item is wrong: a place that is not in its range, or a different checksum than the record has.
    Wrong,
    /// The image has more pixels than this device decodes.
    Beyond,
    /// The program broke on it.
    Broke,
}

impl Outcome {
    const ALL: [Self; 6] =
        [Self::Made, Self::Damaged, Self::Bad, Self::Wrong, Self::Beyond, Self::Broke];

    /// Whether there is a sample.
    #[must_use]
    pub fn is_made(self) -> bool {
        matches!(self, Self::Made | Self::Damaged)
    }

    fn code(self) -> u32 {
        self as u32
    }
}

impl Made {
    /// Bytes of it.
    pub const BYTES: usize = made::BYTES;

    /// As it is in memory.
    #[must_use]
    pub fn bytes(&self) -> [u8; made::BYTES] {
        let mut own = [0; made::BYTES];
        made::OUTCOME.put(&mut own, self.outcome.code());
        made::PIXELS.put(&mut own, self.pixels);
        own
    }

    /// The answer in `bytes`; `None` where they are not one.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let own: &[u8; made::BYTES] = bytes.try_into().ok()?;
        let code = made::OUTCOME.get(own);
        let outcome = Outcome::ALL.into_iter().find(|known| known.code() == code)?;
        Some(Self { outcome, pixels: made::PIXELS.get(own) })
    }
}
