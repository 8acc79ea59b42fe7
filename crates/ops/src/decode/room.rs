//! How much memory decoding an image may take, known from its first bytes before any is allocated.
//!
//! There are two bounds. The bound for one image is a constant, counted in the same way for a file and for
//! what a store has of it, so whether a sample is bad does not depend on who makes it. A run with a memory
//! limit can lower it. What all workers take together is bounded by waiting: beyond a small allowance
//! each, they decode as many images at once as fit.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bothends_core::recipe::{MAX_DECODE_BYTES, SampleCost, Size};

use crate::error::SampleFault;

/// The most that a worker takes without asking: for JPEGs of up to 2.2 megapixels (4:2:0) that are cropped.
const MOST_ALLOWED: u64 = 16 << 20;

/// The largest buffer that a worker keeps for its next image.
pub(crate) const MOST_KEPT: usize = 64 << 20;

/// What a sample takes besides its image is at most as many times what decoding counts for that, unless a
/// recipe enlarges images. It is not looked at where not even that makes a worker ask.
const MOST_BESIDE: u64 = 15;

/// Whether an image may be decoded that needs so much at most, wherever it is.
pub(crate) fn check_room(size: Size, need_bytes: u64) -> Result<(), SampleFault> {
    match need_bytes {
        0..=MAX_DECODE_BYTES => Ok(()),
        _ => Err(SampleFault::TooMuchMemory { size, need_bytes }),
    }
}

/// What decoding may take: that of all workers of a pipeline and its clones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeRoom {
    /// All images that are decoded at the same time, in bytes. One that needs more waits until
    /// nobody else decodes a large one.
    pub together_bytes: u64,
    /// One image, in bytes; one that needs more is a bad sample.
    pub one_bytes: u64,
    /// Workers that share it. Each has a part of it, 16 MiB at most, for which it need not ask.
    pub n_workers: u32,
    /// Pixels of one image; one of more is refused before it is decoded.
    pub pixels: PixelLimit,
}

/// How many pixels an image may have that is decoded for others. Whoever asked for it can decode it
/// themselves, so this may differ from one device to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PixelLimit {
    /// Rows times columns.
    pub most: u64,
    /// Of an image of more than [`Self::FREE`] pixels, those for each byte of its file.
    pub per_byte: u64,
}

impl Default for PixelLimit {
    fn default() -> Self {
        Self::NONE
    }
}

impl PixelLimit {
    /// Whatever any decoder here accepts.
    pub const NONE: Self = Self { most: u64::MAX, per_byte: u64::MAX };

    /// Whatever its file's length, an image of four megapixels takes no longer than others.
    pub const FREE: u64 = 1 << 22;

    fn check(self, size: Size, file_bytes: Option<usize>) -> Result<(), SampleFault> {
        let pixels = u64::from(size.height).saturating_mul(size.width.into());
        let by_length = file_bytes.map_or(u64::MAX, |bytes| {
            self.per_byte.saturating_mul(bytes as u64).max(Self::FREE)
        });
        let most = self.most.min(by_length);
        match pixels > most {
            true => Err(SampleFault::BeyondPixels { size, most }),
            false => Ok(()),
        }
    }
}

impl Default for DecodeRoom {
    /// For one worker alone, and what is believed of any image.
    fn default() -> Self {
        Self {
            together_bytes: MAX_DECODE_BYTES,
            one_bytes: MAX_DECODE_BYTES,
            n_workers: 1,
            pixels: PixelLimit::NONE,
        }
    }
}

impl DecodeRoom {
    /// One worker's part of what it may take together, in bytes.
    fn part(self) -> u64 {
        self.together_bytes.checked_div(self.n_workers.into()).unwrap_or(u64::MAX)
    }

    /// What a worker may take without asking.
    fn allowance(self) -> u64 {
        self.part().min(MOST_ALLOWED)
    }

    /// What a worker keeps from image to image, in bytes.
    fn keep_bytes(self) -> usize {
        usize::try_from(self.part()).unwrap_or(usize::MAX)
    }
}

/// What images that are decoded at the same time take together. Clones share it.
#[derive(Debug, Clone)]
pub struct Room {
    limits: DecodeRoom,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    taken: Mutex<Taken>,
    changed: Condvar,
}

/// What is taken, and who may take next: images that fit do not pass a larger one that waits.
#[derive(Debug, Default)]
struct Taken {
    bytes: u64,
    /// The number of the next one to come, and that of the one whose turn it is.
    next: u64,
    turn: u64,
}

/// Memory that a large image may take until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Shared, u64);

impl Room {
    /// A room of which nothing is taken.
    #[must_use]
    pub fn new(limits: DecodeRoom) -> Self {
        Self { limits, shared: Arc::default() }
    }

    /// Its bounds.
    #[must_use]
    pub fn limits(&self) -> DecodeRoom {
        self.limits
    }

    /// What a worker keeps from image to image, in bytes; no buffer of more than [`MOST_KEPT`].
    pub(crate) fn keep_bytes(&self) -> usize {
        self.limits.keep_bytes()
    }

    /// The same room, for images of so many pixels.
    #[must_use]
    pub fn with_pixels(&self, pixels: PixelLimit) -> Self {
        let limits = DecodeRoom { pixels, ..self.limits };
        Self { limits, shared: Arc::clone(&self.shared) }
    }

    /// Whether an image of that size is decoded at all, from a file of that length if it is known.
    pub(crate) fn admits(
        &self,
        size: Size,
        file_bytes: Option<usize>,
    ) -> Result<(), SampleFault> {
        self.limits.pixels.check(size, file_bytes)
    }

    /// Whether an image of that size is made on the way to a sample: where images are decoded for others,
    /// at most what a recipe may ask for in figures, or what may be decoded if that is more.
    pub(crate) fn admits_made(&self, size: Size) -> Result<(), SampleFault> {
        let most = self.limits.pixels.most.max(SampleCost::MOST_PIXELS);
        PixelLimit { most, per_byte: u64::MAX }.check(size, None)
    }

    /// Waits until so much is free, and what the sample takes besides, which is as long as other images
    /// are being decoded, each in its turn; one that needs more than there is gets it when nobody else has
    /// any. `None` for what a worker need not ask for. Whether an image is refused depends on `need_bytes` alone.
    pub(crate) fn take(
        &self,
        size: Size,
        need_bytes: u64,
        beside: impl FnOnce() -> u64,
    ) -> Result<Option<Turn<'_>>, SampleFault> {
        let DecodeRoom { together_bytes, one_bytes, .. } = self.limits;
        let allowance = self.limits.allowance();
        // What nobody may decode is refused by the decoder, in its own words.
        let is_refused = need_bytes > MAX_DECODE_BYTES;
        if need_bytes.saturating_mul(1 + MOST_BESIDE) <= allowance || is_refused {
            return Ok(None);
        }
        if need_bytes > one_bytes && need_bytes > allowance {
            let most_bytes = one_bytes;
            return Err(SampleFault::BeyondBudget { size, need_bytes, most_bytes });
        }
        let need_bytes = need_bytes.saturating_add(beside());
        if need_bytes <= allowance {
            return Ok(None);
        }
        let shared = &*self.shared;
        let mut taken = shared.taken();
        let number = taken.next;
        taken.next = number.wrapping_add(1);
        let must_wait = |taken: &mut Taken| {
            let has_room = taken.bytes.saturating_add(need_bytes) <= together_bytes;
            taken.turn != number || taken.bytes > 0 && !has_room
        };
        let taken = shared.changed.wait_while(taken, must_wait);
        let mut taken = taken.unwrap_or_else(PoisonError::into_inner);
        taken.bytes = taken.bytes.saturating_add(need_bytes);
        taken.turn = number.wrapping_add(1);
        shared.changed(taken);
        Ok(Some(Turn(shared, need_bytes)))
    }
}

impl Shared {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who wait for their turn, if anybody does.
    fn changed(&self, taken: MutexGuard<'_, Taken>) {
        let somebody_waits = taken.next != taken.turn;
        drop(taken);
        if somebody_waits {
            self.changed.notify_all();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Self(shared, bytes) = self;
        let mut taken = shared.taken();
        taken.bytes = taken.bytes.saturating_sub(*bytes);
        shared.changed(taken);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const MIB: u64 = 1 << 20;
    const SIZE: Size = Size { height: 1, width: 1 };

    fn limits(together: u64, one: u64, n_workers: u32) -> DecodeRoom {
        let (together_bytes, one_bytes) = (together << 20, one << 20);
        DecodeRoom { together_bytes, one_bytes, n_workers, ..DecodeRoom::default() }
    }

    /// A device's: 64 megapixels, and 512 for each byte.
    const PIXELS: PixelLimit = PixelLimit { most: 64_000_000, per_byte: 512 };

    #[test]
    fn photographs_and_scans_are_decoded_and_bombs_are_not() {
        let check = |height, width, file_bytes| {
            PIXELS.check(Size { height, width }, Some(file_bytes))
        };
        // Of a phone, of a camera, and a page in two colours at 600 dpi.
        check(3000, 4000, 2_000_000).unwrap();
        check(6336, 9504, 30_000_000).unwrap();
        check(7016, 4960, 70_000).unwrap();
        // A drawing in one colour is small enough whatever its length.
        check(2048, 2048, 100).unwrap();
        let large = check(12_000, 12_000, 10_000_000).unwrap_err().to_string();
        assert!(large.contains("12000x12000 pixels is not made here"), "{large}");
        assert!(large.contains("at most 64000000"), "{large}");
        let folded = check(5000, 5000, 24_000).unwrap_err().to_string();
        assert!(folded.contains("at most 12288000"), "{folded}");
        check(u32::MAX, u32::MAX, usize::MAX).unwrap_err();
        let none = PixelLimit::NONE;
        none.check(Size { height: u32::MAX, width: u32::MAX }, Some(1)).unwrap();
        // A part of a store's record.
        PIXELS.check(Size { height: 7000, width: 9000 }, None).unwrap();
    }

    #[test]
    #[cfg_attr(target_family = "wasm", ignore = "it starts threads")]
    fn large_images_take_turns_and_one_beyond_all_room_gets_it_alone() {
        let room = Room::new(limits(600, 1024, 8));
        let small = room.take(SIZE, MOST_ALLOWED, || 0).unwrap();
        assert!(small.is_none(), "most images wait for nobody");
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|threads| {
            for need in [300 * MIB, 300 * MIB, 900 * MIB, 290 * MIB, 310 * MIB] {
                let (room, now, most) = (room.clone(), &now, &most);
                threads.spawn(move || {
                    for _ in 0..50 {
                        let _turn = room.take(SIZE, need, || 0).unwrap().unwrap();
                        let taken = now.fetch_add(need, Ordering::SeqCst) + need;
                        most.fetch_max(taken, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(need, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 900 * MIB, "never two that are too much together");
        assert_eq!(room.shared.taken().bytes, 0);
    }

    /// Smaller images found room again and again, and a large one none.
    #[test]
    #[cfg_attr(target_family = "wasm", ignore = "it starts threads")]
    fn images_that_fit_do_not_pass_a_larger_one_that_waits() {
        let room = Room::new(limits(100, 100, 8));
        let wait_until_there_are = |n: u64| {
            while room.shared.taken().next < n {
                std::thread::yield_now();
            }
        };
        let order = Mutex::new(Vec::new());
        let first = room.take(SIZE, 60 * MIB, || 0).unwrap().unwrap();
        std::thread::scope(|threads| {
            for (n_before, need) in [(1, 90), (2, 30)] {
                let (room, order) = (&room, &order);
                threads.spawn(move || {
                    let turn = room.take(SIZE, need * MIB, || 0).unwrap().unwrap();
                    order.lock().unwrap().push(need);
                    drop(turn);
                });
                wait_until_there_are(n_before + 1);
            }
            assert!(order.lock().unwrap().is_empty(), "both wait");
            drop(first);
        });
        assert_eq!(order.into_inner().unwrap(), [90, 30]);
        assert_eq!(room.shared.taken().bytes, 0);
    }

    /// Sixty-four workers with an image of 256 MiB each took 16 GiB.
    #[test]
    fn all_workers_together_stay_within_the_room() {
        for (together, n_workers) in [(64, 64), (1024, 64), (4096, 16), (8, 2)] {
            let limits = limits(together, together, n_workers);
            let all = |each: u64| each * u64::from(n_workers);
            assert!(all(limits.allowance()) <= together * MIB, "{limits:?}");
            assert!(all(limits.keep_bytes() as u64) <= together * MIB, "{limits:?}");
        }
    }

    /// 24 megapixels, 4:2:0, on eight workers with 2 GiB.
    #[test]
    fn photographs_of_cameras_are_decoded_side_by_side() {
        let room = Room::new(limits(2048, 1024, 8));
        let need = 24_000_000 / 2 * 3 * 3;
        let turns: Vec<_> =
            (0..8).map(|_| room.take(SIZE, need, || 0).unwrap().unwrap()).collect();
        assert_eq!(room.shared.taken().bytes, 8 * need);
        drop(turns);
    }

    /// An image of 13,000 x 13,000 pixels took 1.5 GB, and 0.5 were counted.
    #[test]
    fn what_a_sample_takes_besides_its_image_is_waited_for() {
        let room = Room::new(limits(2048, 1024, 8));
        let turn = room.take(SIZE, 10 * MIB, || 40 * MIB).unwrap();
        assert_eq!(room.shared.taken().bytes, 50 * MIB);
        drop(turn);
        assert!(room.take(SIZE, 10 * MIB, || 6 * MIB).unwrap().is_none());
        assert!(room.take(SIZE, MIB, || unreachable!("it is small")).unwrap().is_none());
    }

    #[test]
    fn an_image_beyond_what_one_may_take_says_what_it_needs() {
        let room = Room::new(limits(64, 64, 2));
        let size = Size { height: 12_000, width: 10_000 };
        let fault = room.take(size, 540_000_000, || 0).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "an image of 12000x10000 pixels may need 515 MiB to be decoded, and this run may \
             take 64 MiB for that; give it as much memory, or store the image with fewer pixels"
        );
        assert!(room.take(size, 64 * MIB, || MIB).unwrap().is_some());
    }
}
