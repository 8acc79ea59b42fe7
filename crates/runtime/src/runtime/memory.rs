//! The memory that batches take on the host: how much they need, and who gets how many slots.
//!
//! Numbers alone: nothing is allocated here. `runtime`, which is to be read next, makes the
//! rings of these sizes, and `slots` holds them.

use bothends_ops::Finish;

use crate::config::run::{MemoryBudget, RunConfig};
use crate::error::RuntimeError;
use crate::handover::convert::MOST_RUNS;
use crate::make::front::front_depth;
use crate::read::fetching::room::{BatchBytes, FetchRoom};

/// Jobs a device holds at once: one being made, one waiting, so that it never idles while a
/// result travels.
pub(crate) const DEVICE_DEPTH: u32 = 2;

/// Feed, ready, and the one that is in nobody's hands for a moment; and the rescue slot outside
/// the front's quota. The consumer's come to them.
const OUTSIDE: u32 = 4;

/// The same where memory is tight and nobody is rescued: feed and ready.
const OUTSIDE_AT_LEAST: u32 = 2;

/// A device's batch that is being converted, and the next.
const CONVERTED: u32 = 2;

/// The fewest slots that the front works well with, and the most that it can use.
const FRONT: (u32, u32) = (3, 16);

/// Samples of each worker that wait, where nobody says how much memory there is and no device takes
/// part: some 100 ms of its work, at 1.5 ms for a photograph. A worker that is not scheduled, a record that comes from a disk
/// instead of the page cache, a step that is shorter than the others are over by then. More showed
/// no gain, and is touched whenever the accelerator is slower than the loader: in f32 16 batches of
/// 256 are 2.5 GB for each rank and loader.
const WAITING_BY_DEFAULT: u32 = 64;

/// The fewest that it makes progress with: one that is decoded, one that is read.
const FRONT_AT_LEAST: u32 = 2;

/// The part of the memory available to this process that batches may take where nobody says how
/// much: one in so many. Slots cost nothing until they are used.
const DEFAULT_PART: u64 = 8;

/// The least that they may take then, as long as it is within the most.
const DEFAULT_LEAST: usize = 160 << 20;

/// The most of it that they may take then, one in so many, unless they could make no progress:
/// ranks that share a machine leave it three quarters together.
const DEFAULT_MOST_PART: u64 = 4;

/// The most slots that a device can use.
pub(crate) const MOST_PER_DEVICE: u32 = 64;

/// The least that is fetched ahead of remote data: a batch of photographs, or one large record.
const FETCHED_LEAST: usize = 8 << 20;

/// The most, where nobody says how much memory there is: a gigabit over 300 ms four times over.
const FETCHED_MOST: usize = 128 << 20;

/// The part of a limit, and of the memory that is available, that fetches may take: one in so many.
const FETCHED_PART: (usize, u64) = (4, 32);

/// The part of a limit that is pinned for uploads to GPUs: one in so many.
const UPLOADS_PART: usize = 4;

/// What batches take, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    batch_size: u32,
    /// Batches that the consumer may hold.
    held: u32,
    /// One sample as a device makes it.
    cut: usize,
    /// One sample as the host's workers make it: in the output's form.
    output: usize,
    /// Whether these are one and the same, and a device's batches need not be converted.
    is_identity: bool,
    /// Bytes after the samples of a slot that is finished elsewhere: what is to be done to them.
    description: usize,
    /// What mixing keeps besides the batch it mixes.
    kept: usize,
    /// What is fetched ahead of remote data.
    fetched: usize,
    /// What GPUs that are devices pin for their uploads, where a limit is for that, too.
    uploads: usize,
    /// The most slots that the front takes where nobody says how much memory there is, and it is alone.
    front_by_default: u32,
}

/// The devices that memory is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Devices {
    pub(crate) n: u32,
    /// Slots that the one with the longest horizon can use, as far as rates are known.
    pub(crate) needed: u32,
}

/// Devices of which nothing is known.
impl From<u32> for Devices {
    fn from(n: u32) -> Self {
        Self { n, needed: DEVICE_DEPTH }
    }
}

impl Sizes {
    /// Of batches whose samples have `cut` bytes and leave through `finish`.
    pub(crate) fn new(config: &RunConfig, cut: usize, finish: &Finish) -> Self {
        let output = finish.sample_bytes();
        Self {
            batch_size: config.batch_size,
            held: config.held_batches,
            cut,
            output,
            is_identity: finish.is_identity(),
            description: 0,
            kept: if finish.mixes() {
                MOST_RUNS.saturating_mul(finish.distance()).saturating_mul(output)
            } else {
                0
            },
            fetched: 0,
            uploads: 0,
            front_by_default: front_by_default(config.workers, config.batch_size),
        }
    }

    /// The same with so much memory for what is fetched ahead.
    pub(crate) fn with_fetched(self, room: FetchRoom) -> Self {
        let fetched = usize::try_from(room.limited).unwrap_or(usize::MAX);
        Self { fetched, ..self }
    }

    /// The same with so many bytes that are pinned for uploads to GPUs that are devices, where a limit is for all.
    pub(crate) fn with_uploads(self, budget: MemoryBudget, bytes: usize) -> Self {
        let uploads = match budget {
            MemoryBudget::Total(_) => bytes,
            MemoryBudget::Auto | MemoryBudget::Slots(_) => 0,
        };
        Self { uploads, ..self }
    }

    /// The bytes that GPUs may pin for uploads, of those that they can use: what a limit leaves besides the slots
    /// that all make progress with, and no more than its part.
    pub(crate) fn uploads_within(
        self,
        budget: MemoryBudget,
        n_devices: u32,
        wanted: usize,
    ) -> usize {
        match budget {
            MemoryBudget::Total(limit) => {
                let for_devices = DEVICE_DEPTH.saturating_mul(n_devices);
                let slots = self.total(self.fewest_slots(for_devices));
                wanted.min(limit / UPLOADS_PART).min(limit.saturating_sub(slots))
            }
            MemoryBudget::Auto | MemoryBudget::Slots(_) => wanted,
        }
    }

    /// The bytes that may be fetched ahead of remote data within the budget, in addition to the slots that
    /// `n_devices` devices and the front need at least.
    pub(crate) fn fetched_within(
        self,
        budget: MemoryBudget,
        available: Option<u64>,
        n_devices: u32,
    ) -> usize {
        let (of_limit, of_available) = FETCHED_PART;
        match budget {
            MemoryBudget::Total(limit) => {
                let for_devices = DEVICE_DEPTH.saturating_mul(n_devices);
                let slots = self.total(self.fewest_slots(for_devices));
                (limit / of_limit).min(limit.saturating_sub(slots)).max(FETCHED_LEAST)
            }
            MemoryBudget::Auto | MemoryBudget::Slots(_) => {
                let most = FETCHED_MOST as u64;
                let bytes =
                    available.map_or(most, |bytes| bytes / of_available).min(most);
                usize::try_from(bytes).unwrap_or(FETCHED_MOST).max(FETCHED_LEAST)
            }
        }
    }

    /// The memory for remote data with such batches; `wanted` is what the user says.
    pub(crate) fn fetch_room(
        self,
        (budget, available, n_devices): (MemoryBudget, Option<u64>, u32),
        wanted: Option<u64>,
        bytes: BatchBytes,
    ) -> FetchRoom {
        let by_memory = || self.fetched_within(budget, available, n_devices) as u64;
        let front = match budget {
            MemoryBudget::Auto if n_devices == 0 => self.front_by_default,
            MemoryBudget::Auto | MemoryBudget::Slots(_) | MemoryBudget::Total(_) => {
                FRONT.1
            }
        };
        let n_batches = self.held.saturating_add(OUTSIDE).saturating_add(front);
        match (wanted, budget) {
            (Some(total), _) => FetchRoom::within(total, bytes, n_batches),
            (None, MemoryBudget::Total(_)) => {
                FetchRoom::within(by_memory(), bytes, n_batches)
            }
            (None, MemoryBudget::Auto | MemoryBudget::Slots(_)) => {
                FetchRoom::besides(by_memory(), available, (bytes, n_batches))
            }
        }
    }

    /// Whether so many devices have the slots that they make progress with, and the front works well with
    /// what is left, within what batches may take.
    pub(crate) fn is_for(
        self,
        budget: MemoryBudget,
        available: Option<u64>,
        n_devices: u32,
    ) -> bool {
        let bytes = match budget {
            MemoryBudget::Auto => by_default(available).wanted,
            MemoryBudget::Slots(bytes) | MemoryBudget::Total(bytes) => bytes,
        };
        let slots = self.slots(FRONT.0, DEVICE_DEPTH.saturating_mul(n_devices));
        self.total(slots) <= bytes
    }

    /// The same with so many bytes after the samples of a slot of the output's form.
    pub(crate) fn with_description(self, bytes: usize) -> Self {
        Self { description: bytes, ..self }
    }

    /// A slot that a device fills.
    pub(crate) fn cut_slot(self) -> usize {
        self.cut.saturating_mul(self.batch_size as usize)
    }

    /// A slot that the host's workers fill.
    pub(crate) fn front_slot(self) -> usize {
        let samples = self.output.saturating_mul(self.batch_size as usize);
        samples.saturating_add(self.description)
    }

    /// The kind that devices fill.
    fn back_slot(self) -> usize {
        if self.is_identity { self.front_slot() } else { self.cut_slot() }
    }

    /// How many of each there are where the front may hold `front`, and devices `back`.
    fn slots(self, front: u32, back: u32) -> (u32, u32) {
        self.slots_beside(OUTSIDE, front, back)
    }

    /// The fewest that all make progress with.
    fn fewest_slots(self, back: u32) -> (u32, u32) {
        let outside = OUTSIDE_AT_LEAST + u32::from(back > 0);
        self.slots_beside(outside, FRONT_AT_LEAST, back)
    }

    /// With `outside` and the consumer's in no prong's quota.
    fn slots_beside(self, outside: u32, front: u32, back: u32) -> (u32, u32) {
        let front = self.held.saturating_add(outside).saturating_add(front);
        match (self.is_identity, back) {
            (true, _) => (front.saturating_add(back), 0),
            (false, 0) => (front, 0),
            (false, _) => (front, back.saturating_add(CONVERTED)),
        }
    }

    /// Bytes of so many.
    fn total(self, (front, back): (u32, u32)) -> usize {
        let front = self.front_slot().saturating_mul(front as usize);
        let back = self.cut_slot().saturating_mul(back as usize);
        let beside = self.beside();
        front.saturating_add(back).saturating_add(beside)
    }

    /// Bytes of what is not slots.
    fn beside(self) -> usize {
        self.kept.saturating_add(self.fetched).saturating_add(self.uploads)
    }

    /// The least limit with which each of `n_devices` devices has `per_device` slots, whatever
    /// the front takes of it, in bytes.
    pub(crate) fn limit_for(self, per_device: u32, n_devices: u32) -> usize {
        let least = self.slots(FRONT.0, DEVICE_DEPTH.saturating_mul(n_devices));
        let more = per_device.saturating_sub(DEVICE_DEPTH).saturating_mul(n_devices);
        let more = self.back_slot().saturating_mul(more as usize);
        // The front takes a third of what is spare, and no more than it can use.
        let most = self.front_slot().saturating_mul((FRONT.1 - FRONT.0) as usize);
        let for_front = more.div_ceil(2).min(most);
        self.total(least).saturating_add(more).saturating_add(for_front)
    }

    /// The largest batch of such samples that so many slots of fit into `budget`; 0 when none
    /// does.
    fn largest_batch(self, (front, back): (u32, u32), budget: usize) -> u32 {
        let front = self.output.saturating_mul(front as usize);
        let sample = front.saturating_add(self.cut.saturating_mul(back as usize));
        let beside = self.beside();
        let fits = budget.saturating_sub(beside) / sample.max(1);
        u32::try_from(fits).unwrap_or(u32::MAX)
    }
}

/// How many slots each prong may hold, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) front: u32,
    pub(crate) per_device: u32,
    /// Slots in the output's form.
    pub(crate) front_slots: u32,
    /// Slots at the cut; 0 where devices fill those in the output's form, too.
    pub(crate) back_slots: u32,
}

impl Room {
    /// Divides the budget; where it is left to us, of the `available` bytes that are this
    /// process's part of the machine's memory. Every prong gets what it needs to make progress.
    ///
    /// # Errors
    /// [`RuntimeError::Memory`] when that is more than the budget's limit.
    pub(crate) fn divide(
        budget: MemoryBudget,
        available: Option<u64>,
        sizes: Sizes,
        devices: impl Into<Devices>,
    ) -> Result<Self, RuntimeError> {
        let Devices { n: n_devices, needed } = devices.into();
        let for_devices = DEVICE_DEPTH.saturating_mul(n_devices);
        let fewest = sizes.fewest_slots(for_devices);
        let least = sizes.slots(FRONT.0, for_devices);
        let bytes = match budget {
            MemoryBudget::Auto => match by_default(available) {
                ByDefault { most, .. } if sizes.total(least) > most => {
                    return Ok(Self::fewest(fewest, n_devices));
                }
                // At least what the horizons take, as far as that is known.
                ByDefault { wanted, most } => {
                    wanted.max(sizes.limit_for(needed, n_devices).min(most))
                }
            },
            MemoryBudget::Slots(bytes) => bytes,
            MemoryBudget::Total(bytes) if sizes.total(fewest) > bytes => {
                return Err(RuntimeError::Memory {
                    batch_size: sizes.batch_size,
                    given_bytes: bytes,
                    least_bytes: sizes.total(fewest),
                    largest_batch: sizes.largest_batch(fewest, bytes),
                });
            }
            MemoryBudget::Total(bytes) if sizes.total(least) > bytes => {
                return Ok(Self::fewest(fewest, n_devices));
            }
            MemoryBudget::Total(bytes) => bytes,
        };
        // Of what is left above the least, a third is the front's, and the devices' the rest.
        let spare = bytes.saturating_sub(sizes.total(least));
        let for_front = if n_devices > 0 { spare / 3 } else { spare };
        let most = match budget {
            // With devices, what the host has made may wait for a batch of theirs, too.
            MemoryBudget::Auto if n_devices == 0 => sizes.front_by_default,
            MemoryBudget::Auto | MemoryBudget::Slots(_) | MemoryBudget::Total(_) => {
                FRONT.1
            }
        };
        let front = most.min(FRONT.0 + affords(for_front, sizes.front_slot()));
        let spare = spare - (front - FRONT.0) as usize * sizes.front_slot();
        let each = spare.checked_div(n_devices as usize).unwrap_or(0);
        let per_device =
            MOST_PER_DEVICE.min(DEVICE_DEPTH + affords(each, sizes.back_slot()));
        let per_device = if n_devices > 0 { per_device } else { 0 };
        let (front_slots, back_slots) =
            sizes.slots(front, per_device.saturating_mul(n_devices));
        Ok(Self { front, per_device, front_slots, back_slots })
    }

    /// The fewest slots that all make progress with.
    fn fewest((front_slots, back_slots): (u32, u32), n_devices: u32) -> Self {
        let per_device = if n_devices > 0 { DEVICE_DEPTH } else { 0 };
        Self { front: FRONT_AT_LEAST, per_device, front_slots, back_slots }
    }
}

/// Batches under way, and those that wait.
fn front_by_default(n_workers: u32, batch_size: u32) -> u32 {
    let waiting =
        WAITING_BY_DEFAULT.saturating_mul(n_workers).div_ceil(batch_size.max(1));
    let all = front_depth(n_workers, batch_size).saturating_add(waiting);
    all.clamp(FRONT.0, FRONT.1)
}

/// What batches may take where the user leaves it to us, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ByDefault {
    wanted: usize,
    most: usize,
}

/// Of the bytes that are this process's part of the machine's memory.
fn by_default(available: Option<u64>) -> ByDefault {
    let part = |divisor| {
        available.map(|bytes| usize::try_from(bytes / divisor).unwrap_or(usize::MAX))
    };
    let most = part(DEFAULT_MOST_PART).unwrap_or(usize::MAX);
    let wanted = part(DEFAULT_PART).unwrap_or(0).max(DEFAULT_LEAST.min(most));
    ByDefault { wanted, most }
}

/// Slots that so many bytes are enough for.
fn affords(bytes: usize, slot_bytes: usize) -> u32 {
    u32::try_from(bytes / slot_bytes.max(1)).unwrap_or(u32::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::share::Ranks;

    /// 256 samples of DINO in f32: ten views, 522,240 bytes before they are converted.
    const DINO: Sizes = Sizes {
        batch_size: 256,
        held: 1,
        cut: 522_240,
        output: 4 * 522_240,
        is_identity: false,
        description: 0,
        kept: 0,
        fetched: 0,
        uploads: 0,
        front_by_default: FRONT.1,
    };

    #[test]
    fn memory_that_batches_cannot_do_with_is_refused_with_what_they_can() {
        let n_bytes = |n_samples: usize| n_samples * 4 * 522_240 * 5;
        let budget = MemoryBudget::Total(64 << 20);
        let refused = Room::divide(budget, None, DINO, 0).unwrap_err();
        let RuntimeError::Memory { least_bytes, largest_batch, .. } = refused else {
            panic!("{refused}")
        };
        assert_eq!((least_bytes, largest_batch), (n_bytes(256), 6));
        for (bytes, batch_size) in [(least_bytes, 256), (64 << 20, 6)] {
            let sizes = Sizes { batch_size, ..DINO };
            assert!(Room::divide(MemoryBudget::Total(bytes), None, sizes, 0).is_ok());
        }
        let budget = MemoryBudget::Total(least_bytes - 1);
        assert!(Room::divide(budget, None, DINO, 0).is_err());
    }

    #[test]
    fn without_a_limit_prongs_get_what_they_need() {
        let room = Room::divide(MemoryBudget::Slots(0), None, DINO, 3).unwrap();
        let (front_slots, back_slots) = (5 + 3, 6 + 2);
        let expected = Room { front: 3, per_device: 2, front_slots, back_slots };
        assert_eq!(room, expected);
        let one_kind = Sizes { output: DINO.cut, is_identity: true, ..DINO };
        let room = Room::divide(MemoryBudget::Slots(0), None, one_kind, 3).unwrap();
        let (front_slots, back_slots) = (5 + 3 + 6, 0);
        assert_eq!(room, Room { front: 3, per_device: 2, front_slots, back_slots });
    }

    /// A device eight times as fast as the host makes eight batches while that makes one.
    #[test]
    fn by_default_devices_of_big_machines_work_far_ahead() {
        let gib = |n: u64| Some(n << 30);
        // 256 samples of 224 x 224 in u8; a rank of eight on 1 TiB, a laptop, CI.
        for (available, at_least) in [(gib(128), 64), (gib(12), 20), (gib(4), 4)] {
            let cut = 224 * 224 * 3;
            let sizes = Sizes { cut, output: cut, is_identity: true, ..DINO };
            let room = Room::divide(MemoryBudget::Auto, available, sizes, 1).unwrap();
            assert!(room.per_device >= at_least, "{available:?}: {room:?}");
        }
        let unknown = ByDefault { wanted: DEFAULT_LEAST, most: usize::MAX };
        assert_eq!(by_default(None), unknown);
    }

    #[test]
    fn by_default_the_front_takes_what_hides_a_pause_and_no_more() {
        let sizes = |batch_size, n_workers| {
            let photograph = 224 * 224 * 3;
            let front_by_default = front_by_default(n_workers, batch_size);
            let cut = photograph;
            Sizes { batch_size, cut, output: 4 * cut, front_by_default, ..DINO }
        };
        let front = |batch_size, n_workers| {
            let sizes = sizes(batch_size, n_workers);
            let room = Room::divide(MemoryBudget::Auto, Some(1 << 40), sizes, 0).unwrap();
            room.front
        };
        assert_eq!([2, 8, 16, 64].map(|n_workers| front(256, n_workers)), [3, 4, 6, 16]);
        assert_eq!([2, 16].map(|n_workers| front(16, n_workers)), [10, 16]);
        // Who says how much there is may have more.
        let given = MemoryBudget::Total(8 << 30);
        assert_eq!(Room::divide(given, None, sizes(256, 8), 0).unwrap().front, FRONT.1);
    }

    #[test]
    fn a_horizon_that_is_known_gets_more_than_the_eighth_within_the_quarter() {
        let cut = 224 * 224 * 3;
        let sizes = Sizes { cut, output: cut, is_identity: true, ..DINO };
        let limit = sizes.limit_for(40, 1) as u64;
        let room = |available, needed| {
            let devices = Devices { n: 1, needed };
            Room::divide(MemoryBudget::Auto, Some(available), sizes, devices).unwrap()
        };
        assert!(room(5 * limit, 2).per_device < 40);
        assert!(room(5 * limit, 40).per_device >= 40);
        let tight = room(3 * limit, 40);
        let bytes = sizes.total((tight.front_slots, tight.back_slots)) as u64;
        assert!(tight.per_device < 40 && bytes <= 3 * limit / 4, "{tight:?}");
    }

    /// Every kind of machine, shared by ranks, and batches small and large.
    fn each_machine(mut check: impl FnMut(u64, u32, Sizes, u32)) {
        let photograph = 224 * 224 * 3;
        let forms = [(photograph, true), (4 * photograph, false)];
        let batch_sizes = (0..=12).map(|power| 1 << power).chain([3, 96, 1000, 4095]);
        let sizes = batch_sizes.flat_map(|batch_size| {
            forms.map(|(output, is_identity)| Sizes {
                batch_size,
                held: 1,
                cut: photograph,
                output,
                is_identity,
                description: 0,
                kept: 0,
                fetched: 0,
                uploads: 0,
                front_by_default: FRONT.1,
            })
        });
        for sizes in sizes {
            for (gib, ranks) in (2..=1024).flat_map(|n| (1..=16).map(move |r| (n, r))) {
                for n_devices in [0, 1, 8] {
                    check(gib << 30, ranks, sizes, n_devices);
                }
            }
        }
    }

    /// What a rank takes where nobody says how much.
    fn default_room(
        machine: u64,
        n_ranks: u32,
        sizes: Sizes,
        n_devices: u32,
    ) -> (u64, Room) {
        let ranks = n_ranks.to_string();
        let ranks =
            Ranks::told_by(|name| (name == "LOCAL_WORLD_SIZE").then(|| ranks.clone()));
        let part = ranks.part_of(machine);
        assert_eq!(part, machine / u64::from(n_ranks));
        let auto = MemoryBudget::Auto;
        (part, Room::divide(auto, Some(part), sizes, n_devices).unwrap())
    }

    #[test]
    fn all_ranks_together_take_a_quarter_of_a_machine_at_most() {
        each_machine(|machine, n_ranks, sizes, n_devices| {
            let (part, room) = default_room(machine, n_ranks, sizes, n_devices);
            let what = (machine, n_ranks, n_devices, sizes, room);
            let bytes = sizes.total((room.front_slots, room.back_slots)) as u64;
            let fewest = sizes.fewest_slots(DEVICE_DEPTH * n_devices);
            let is_least = (room.front_slots, room.back_slots) == fewest;
            assert!(bytes * u64::from(n_ranks) <= machine / 4 || is_least, "{what:?}");
            // What is more than an eighth is the least that a run works well with.
            let well = sizes.slots(FRONT.0, DEVICE_DEPTH * n_devices);
            let most = (part / 8).max(DEFAULT_LEAST as u64).max(sizes.total(well) as u64);
            assert!(bytes <= most || is_least, "{what:?}");
        });
    }

    #[test]
    fn a_device_has_its_horizon_where_the_machine_has_the_memory() {
        let horizons = [2, 5, 11, 26, MOST_PER_DEVICE];
        each_machine(|machine, n_ranks, sizes, n_devices| {
            let (part, room) = default_room(machine, n_ranks, sizes, n_devices);
            for needs in horizons.into_iter().filter(|_| n_devices > 0) {
                let limit = sizes.limit_for(needs, n_devices);
                let is_there = limit as u64 <= part / DEFAULT_PART;
                let has = room.per_device;
                assert!(!is_there || has >= needs, "{needs} on {machine} by {n_ranks}");
            }
        });
    }

    #[test]
    fn the_limit_for_a_horizon_gives_it_and_so_does_any_above_it() {
        for (output, is_identity) in [(100, true), (400, false), (50, false)] {
            let sizes = Sizes {
                batch_size: 32,
                held: 1,
                cut: 100,
                output,
                is_identity,
                description: 0,
                kept: 77,
                fetched: 0,
                uploads: 0,
                front_by_default: FRONT.1,
            };
            for (needs, n_devices) in
                (2..=MOST_PER_DEVICE).flat_map(|needs| [1, 2, 7].map(|n| (needs, n)))
            {
                let limit = sizes.limit_for(needs, n_devices);
                for bytes in (limit..limit + 200_000).step_by(991) {
                    let budget = MemoryBudget::Total(bytes);
                    let room = Room::divide(budget, None, sizes, n_devices).unwrap();
                    assert!(room.per_device >= needs, "{needs} of {bytes}: {room:?}");
                }
            }
        }
    }

    #[test]
    fn a_limit_is_held_and_nobody_starves() {
        let sizes = [(100, true, 0), (100, false, 0), (400, false, 3200)];
        let sizes = sizes.map(|(output, is_identity, kept)| Sizes {
            batch_size: 32,
            held: 1,
            cut: 100,
            output,
            is_identity,
            description: 0,
            kept,
            fetched: 0,
            uploads: 0,
            front_by_default: FRONT.1,
        });
        for (sizes, n_devices) in
            sizes.into_iter().flat_map(|s| (0..30).map(move |n| (s, n)))
        {
            for bytes in (0..2_000_000).step_by(997) {
                match Room::divide(MemoryBudget::Total(bytes), None, sizes, n_devices) {
                    Ok(room) => {
                        let slots = (room.front_slots, room.back_slots);
                        assert!(sizes.total(slots) <= bytes, "{room:?} of {bytes}");
                        assert!(room.front >= FRONT_AT_LEAST, "{room:?}");
                        assert!(n_devices == 0 || room.per_device >= DEVICE_DEPTH);
                    }
                    Err(RuntimeError::Memory { least_bytes, largest_batch, .. }) => {
                        assert!(least_bytes > bytes && largest_batch < 32);
                        let enough = MemoryBudget::Total(least_bytes);
                        assert!(Room::divide(enough, None, sizes, n_devices).is_ok());
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }

    #[test]
    fn what_is_fetched_ahead_is_within_the_limit() {
        for limit in [64_usize << 20, 400 << 20, 8 << 30] {
            for sizes in [DINO, Sizes { batch_size: 16, ..DINO }] {
                let budget = MemoryBudget::Total(limit);
                let fetched = sizes.fetched_within(budget, None, 1);
                assert!(fetched >= FETCHED_LEAST);
                assert!(fetched <= (limit / FETCHED_PART.0).max(FETCHED_LEAST));
                let with = Sizes { fetched, ..sizes };
                match Room::divide(budget, None, with, 1) {
                    Ok(room) => {
                        assert!(with.total((room.front_slots, room.back_slots)) <= limit);
                    }
                    Err(RuntimeError::Memory { least_bytes, .. }) => {
                        let enough = MemoryBudget::Total(least_bytes);
                        let fetched = sizes.fetched_within(enough, None, 1);
                        let with = Sizes { fetched, ..sizes };
                        assert!(Room::divide(enough, None, with, 1).is_ok());
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
        let large = DINO.fetched_within(MemoryBudget::Total(64 << 30), None, 0);
        assert_eq!(large, 16 << 30, "who gives memory may use it");
        let unasked = |available| DINO.fetched_within(MemoryBudget::Auto, available, 0);
        assert_eq!(unasked(None), FETCHED_MOST);
        assert_eq!(unasked(Some(1 << 30)), 32 << 20);
        assert_eq!(unasked(Some(1 << 20)), FETCHED_LEAST);
    }

    /// The slots are fewer by what a GPU pins, and it pins less where they would be too few.
    #[test]
    fn uploads_are_within_the_limit() {
        let wanted = 128 << 20;
        let u8s = Sizes { batch_size: 256, output: 150_528, cut: 150_528, ..DINO };
        let sizes = Sizes { is_identity: true, ..u8s };
        for limit in [512_usize << 20, 1 << 30, 4 << 30] {
            let budget = MemoryBudget::Total(limit);
            let pinned = sizes.uploads_within(budget, 1, wanted);
            assert!(pinned <= wanted && pinned <= limit / 4, "{pinned} of {limit}");
            let with = sizes.with_uploads(budget, pinned);
            let room = Room::divide(budget, None, with, 1).unwrap();
            let slots = sizes.total((room.front_slots, room.back_slots));
            assert!(slots + pinned <= limit, "{slots} + {pinned} of {limit}");
        }
        assert_eq!(sizes.uploads_within(MemoryBudget::Total(4 << 30), 1, wanted), wanted);
        // Whoever gets on without a GPU gets on with one.
        let least = sizes.total(sizes.fewest_slots(DEVICE_DEPTH));
        let budget = MemoryBudget::Total(least + 1000);
        let pinned = sizes.uploads_within(budget, 1, wanted);
        assert_eq!(pinned, 1000);
        assert!(
            Room::divide(budget, None, sizes.with_uploads(budget, pinned), 1).is_ok()
        );
        assert_eq!(sizes.uploads_within(MemoryBudget::Auto, 1, wanted), wanted);
    }
}
