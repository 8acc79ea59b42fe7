//! The exclusive right to the memory of a slot: the whole [`Slot`], or, for a [`HostSlot`], disjoint
//! [`Part`]s that several workers fill at once and a [`Joiner`] puts together again.
//!
//! It does not wait and does not know batches. It enforces one rule: at any moment every byte of a slot
//! has exactly one owner.
#![allow(
    unsafe_code,
    reason = "aligned memory split among threads at run-time bounds; `split_at_mut` would \
              borrow, and workers outlive any borrow"
)]

use std::fmt;
use std::iter;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

/// Counts who holds a slot in pieces; the model checker's own with `--cfg loom`.
#[cfg(loom)]
use loom::sync::Arc as Counted;
#[cfg(not(loom))]
use std::sync::Arc as Counted;

use crate::memory::Memory;
use crate::pool::Pool;

/// The exclusive owner of one slot, whatever its memory is. Dropping it puts the slot back
/// into its ring.
pub struct Slot {
    /// Some until `drop` gives it back.
    memory: Option<Memory>,
    pool: Arc<Pool>,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({} bytes of {} memory)", self.len(), self.kind())
    }
}

impl Slot {
    pub(crate) fn new(memory: Memory, pool: Arc<Pool>) -> Self {
        Self { memory: Some(memory), pool }
    }

    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory().len()
    }

    /// Whether it has none; a ring's slots have.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The kind of its memory, by name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.memory().kind()
    }

    /// Where the device finds the slot's bytes, for who enqueues work on that device; `None`
    /// of host memory. As with the bytes of a [`HostSlot`], only the slot's owner may use it.
    #[must_use]
    pub fn device_address(&self) -> Option<u64> {
        self.memory().device_address()
    }

    /// The slot for code that reads and writes its bytes.
    ///
    /// # Errors
    /// The slot itself, where the host cannot address its memory.
    pub fn host(self) -> Result<HostSlot, Self> {
        match self.memory().base() {
            Some(base) => Ok(HostSlot { base, slot: self }),
            None => Err(self),
        }
    }

    fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("a slot has its memory until it is dropped")
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.put_back(memory);
        }
    }
}

/// A slot whose bytes the host can address. It is the slot: dropping it gives that back.
#[derive(Debug)]
pub struct HostSlot {
    slot: Slot,
    /// Where the slot's bytes begin.
    base: NonNull<u8>,
}

// SAFETY: `base` is where `slot` has its bytes, which are its own, and a slot may move
// between threads.
unsafe impl Send for HostSlot {}

// SAFETY: a shared `HostSlot` gives read access only, as a `Box<[u8]>` would.
unsafe impl Sync for HostSlot {}

impl HostSlot {
    /// The slot for code that does not look into it.
    #[must_use]
    pub fn into_slot(self) -> Slot {
        self.slot
    }

    /// The kind of its memory, by name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.slot.kind()
    }

    /// Splits the slot's first `n * part_bytes` bytes into `n` pieces that can be filled by
    /// different threads at once. The slot comes back from [`Joiner::join`]; it goes back
    /// to the ring by itself once the joiner and every part are dropped.
    ///
    /// # Panics
    /// When `n` pieces of `part_bytes` do not fit into the slot: a mistake of the caller,
    /// who chose both sizes.
    #[must_use]
    pub fn into_parts(self, part_bytes: usize, n: usize) -> (Joiner, Vec<Part>) {
        let fits = n.checked_mul(part_bytes).is_some_and(|bytes| bytes <= self.len());
        assert!(fits, "{n} parts of {part_bytes} bytes in a slot of {}", self.len());
        self.into_runs(iter::repeat_n(part_bytes, n))
    }

    /// As [`Self::into_parts`], into pieces of these lengths, one after the other.
    ///
    /// # Panics
    /// When they do not fit into the slot.
    #[must_use]
    pub fn into_runs(self, lens: impl IntoIterator<Item = usize>) -> (Joiner, Vec<Part>) {
        let (base, slot_len) = (self.base, self.len());
        let slot = Counted::new(self);
        let mut first = 0;
        let part = |len: usize| {
            let fits = len <= slot_len - first;
            assert!(fits, "{len} bytes from {first} in a slot of {slot_len}");
            // SAFETY: `first + len` lies within the slot, as checked.
            let base = unsafe { base.add(first) };
            first += len;
            Part { base, len, _slot: Counted::clone(&slot) }
        };
        let parts = lens.into_iter().map(part).collect();
        (Joiner { slot }, parts)
    }

    /// Where the slot's bytes begin, for programs of other languages that the slot is lent
    /// to. It is the owner of the slot who may read and write there.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Deref for HostSlot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `Backing::of_host` promises `len` initialised bytes at `base` for as long
        // as the slot has its memory, and the slot, borrowed here, is their only owner.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.slot.len()) }
    }
}

impl DerefMut for HostSlot {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `self` is borrowed mutably, so nobody else looks.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.slot.len()) }
    }
}

/// A slot in pieces: waits, without blocking, for its parts to be done with.
#[derive(Debug)]
pub struct Joiner {
    slot: Counted<HostSlot>,
}

impl Joiner {
    /// The whole slot again, with what the parts wrote, once every [`Part`] is dropped.
    ///
    /// # Errors
    /// Comes back itself while a part is still held. Never blocks.
    pub fn join(self) -> Result<HostSlot, Self> {
        Counted::try_unwrap(self.slot).map_err(|slot| Self { slot })
    }
}

/// The exclusive owner of one piece of a slot; dropping it says that the piece is done.
///
/// It keeps the slot's memory alive and out of the ring. It cannot be cloned, and the bytes
/// cannot be borrowed for longer than the part lives:
///
/// ```compile_fail,E0505
/// # use bothends_slots::{Ring, RingConfig};
/// # let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes: 8 }).unwrap();
/// let (_joiner, mut parts) =
///     ring.take(std::time::Duration::ZERO).unwrap().host().unwrap().into_parts(8, 1);
/// let mut part = parts.remove(0);
/// let bytes: &mut [u8] = &mut part;
/// drop(part);
/// bytes[0] = 1; // the slot may be somebody else's by now
/// ```
///
/// ```compile_fail,E0599
/// # use bothends_slots::{Ring, RingConfig};
/// # let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes: 8 }).unwrap();
/// let (_joiner, parts) =
///     ring.take(std::time::Duration::ZERO).unwrap().host().unwrap().into_parts(8, 1);
/// let alias = parts[0].clone(); // two owners of the same bytes
/// ```
#[derive(Debug)]
pub struct Part {
    base: NonNull<u8>,
    len: usize,
    /// Holds the memory; never looked into while parts live.
    _slot: Counted<HostSlot>,
}

// SAFETY: a part is the only owner of its bytes until it is dropped, and `_slot` can be
// used and dropped by any thread.
unsafe impl Send for Part {}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies in the slot that `_slot` keeps, its bytes are initialised,
        // and no other part and no `Slot` (it is inside the count, unread) reaches them.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Part {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `self` is borrowed mutably, so this is the only access.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ring, RingConfig, SLOT_ALIGN};
    use proptest::prelude::*;
    use std::time::Duration;

    fn slot(slot_bytes: usize) -> (Ring, HostSlot) {
        let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes }).unwrap();
        let slot = ring.take(Duration::ZERO).unwrap().host().unwrap();
        (ring, slot)
    }

    #[test]
    fn slots_are_aligned_and_begin_as_zeros() {
        for slot_bytes in [1, 4095, 4096, 4097, 150_528 * 64] {
            let (_ring, slot) = slot(slot_bytes);
            assert_eq!(slot.len(), slot_bytes);
            assert_eq!(slot.as_ptr().addr() % SLOT_ALIGN, 0);
            assert!(slot.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn a_joiner_waits_for_every_part() {
        let (ring, slot) = slot(12);
        let (mut joiner, mut parts) = slot.into_parts(4, 3);
        while let Some(part) = parts.pop() {
            joiner = joiner.join().expect_err("a part is held");
            drop(part);
        }
        assert_eq!(ring.free(), 0);
        drop(joiner.join().expect("all parts are dropped"));
        assert_eq!(ring.free(), 1);
    }

    #[test]
    fn parts_keep_a_slot_out_of_the_ring_after_their_joiner() {
        let (ring, slot) = slot(12);
        let (joiner, mut parts) = slot.into_parts(4, 3);
        drop(joiner);
        parts[2].fill(7);
        assert_eq!(ring.free(), 0, "a part outlived its slot");
        drop(parts);
        assert_eq!(ring.free(), 1);
        assert_eq!(ring.take(Duration::ZERO).unwrap().host().unwrap()[8..], [7; 4]);
    }

    #[test]
    fn no_parts_and_empty_parts_are_fine() {
        let (_ring, slot) = slot(12);
        let (joiner, parts) = slot.into_parts(4, 0);
        assert!(parts.is_empty());
        let (joiner, parts) = joiner.join().unwrap().into_parts(0, 5);
        assert!(parts.iter().all(|part| part.is_empty()));
        drop(parts);
        assert!(joiner.join().is_ok());
    }

    #[test]
    fn runs_of_any_length_lie_one_behind_the_other() {
        let (_ring, slot) = slot(12);
        let (joiner, mut runs) = slot.into_runs([5, 0, 3]);
        for (byte, run) in (1..).zip(&mut runs) {
            run.fill(byte);
        }
        drop(runs);
        let slot = joiner.join().unwrap();
        assert_eq!(slot[..], [1, 1, 1, 1, 1, 3, 3, 3, 0, 0, 0, 0]);
    }

    #[test]
    #[should_panic(expected = "7 bytes from 6 in a slot of 12")]
    fn runs_beyond_the_slot_are_refused() {
        let (_ring, slot) = slot(12);
        let _ = slot.into_runs([6, 7]);
    }

    #[test]
    #[should_panic(expected = "3 parts of 5 bytes in a slot of 12")]
    fn parts_beyond_the_slot_are_refused() {
        let (_ring, slot) = slot(12);
        let _ = slot.into_parts(5, 3);
    }

    #[test]
    #[should_panic(expected = "parts of")]
    fn a_product_that_overflows_is_refused() {
        let (_ring, slot) = slot(12);
        let _ = slot.into_parts(usize::MAX / 2, 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 200 }))]
        /// Threads fill parts of any size in any order, dealt at random: the joined slot
        /// holds each part's bytes in its place and the rest untouched.
        #[test]
        fn threads_fill_disjoint_parts(
            part_bytes in 1usize..300,
            owners in prop::collection::vec(0usize..4, 0..24),
            spare_bytes in 0usize..50,
        ) {
            let n = owners.len();
            let (_ring, mut slot) = slot(part_bytes * n + spare_bytes + 1);
            slot.fill(0xEE);
            let (joiner, parts) = slot.into_parts(part_bytes, n);
            let mut hands: [Vec<(usize, Part)>; 4] = Default::default();
            for (part, &owner) in parts.into_iter().enumerate().zip(&owners) {
                hands[owner].push(part);
            }
            let joiner = std::thread::scope(|scope| {
                for hand in hands {
                    scope.spawn(move || {
                        for (index, mut part) in hand.into_iter().rev() {
                            let byte = u8::try_from(index).unwrap();
                            part.iter_mut().for_each(|b| *b = byte);
                        }
                    });
                }
                // Joining early must fail or be right; it can never tear.
                match joiner.join() {
                    Ok(slot) => slot.into_parts(part_bytes, 0).0,
                    Err(joiner) => joiner,
                }
            });
            let slot = joiner.join().expect("all threads are done");
            let (filled, spare) = slot.split_at(part_bytes * n);
            for (index, part) in filled.chunks(part_bytes).enumerate() {
                prop_assert!(part.iter().all(|&b| usize::from(b) == index));
            }
            prop_assert!(spare.iter().all(|&b| b == 0xEE));
        }
    }
}

/// Every interleaving of threads that fill parts and one that joins them. Run with
/// `RUSTFLAGS="--cfg loom"`.
#[cfg(loom)]
#[cfg(test)]
mod loom_models {
    use std::time::Duration;

    use loom::cell::UnsafeCell;
    use loom::thread::{self, JoinHandle};

    use super::*;
    use crate::{Ring, RingConfig};

    const N_PARTS: usize = 2;

    /// Stands for the bytes of one part: unlike plain memory, the checker complains of it
    /// when a read is not ordered after the write.
    struct Witness(UnsafeCell<u8>);

    // SAFETY: whether this holds is what the models check.
    unsafe impl Sync for Witness {}
    // SAFETY: a byte may move between threads.
    unsafe impl Send for Witness {}

    impl Witness {
        fn write(&self, byte: u8) {
            // SAFETY: the writer holds the part that this witness stands for.
            self.0.with_mut(|place| unsafe { *place = byte });
        }

        fn read(&self) -> u8 {
            // SAFETY: the reader has joined the parts.
            self.0.with(|place| unsafe { *place })
        }
    }

    struct Filling {
        ring: Ring,
        joiner: Joiner,
        witnesses: Arc<[Witness; N_PARTS]>,
        fillers: Vec<JoinHandle<()>>,
    }

    /// A slot whose parts are each being filled by a thread of its own.
    fn filling() -> Filling {
        let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes: N_PARTS }).unwrap();
        let slot = ring.take(Duration::ZERO).unwrap().host().unwrap();
        let (joiner, parts) = slot.into_parts(1, N_PARTS);
        let witness = || Witness(UnsafeCell::new(0));
        let witnesses = Arc::new([witness(), witness()]);
        let fill = |(index, part): (usize, Part)| {
            let witnesses = Arc::clone(&witnesses);
            thread::spawn(move || {
                witnesses[index].write(7);
                drop(part);
            })
        };
        let fillers = parts.into_iter().enumerate().map(fill).collect();
        Filling { ring, joiner, witnesses, fillers }
    }

    #[test]
    fn a_joined_slot_shows_what_every_part_wrote() {
        loom::model(|| {
            let Filling { ring, joiner, witnesses, fillers } = filling();
            let see_all = || assert!(witnesses.iter().all(|witness| witness.read() == 7));
            // Not one thread has been waited for: only the count says that they are done.
            let joined = joiner.join().inspect(|_| see_all());
            for filler in fillers {
                filler.join().unwrap();
            }
            let slot = joined.or_else(Joiner::join).expect("all parts are dropped");
            see_all();
            assert_eq!(ring.free(), 0);
            drop(slot);
            assert_eq!(ring.free(), 1);
        });
    }

    #[test]
    fn a_slot_goes_back_once_whoever_is_last() {
        loom::model(|| {
            let Filling { ring, joiner, fillers, .. } = filling();
            drop(joiner);
            for filler in fillers {
                filler.join().unwrap();
            }
            assert_eq!(ring.free(), 1);
        });
    }
}
