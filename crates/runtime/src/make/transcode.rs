//! Transcoding JPEGs into the block cache, while there is time to spare.
//!
//! `idle.rs` decides; this file acts. A worker that has decoded a record from its file offers a copy of
//! its bytes; threads of their own take offers one by one. They run under `SCHED_IDLE` (sched(7)): they
//! get a processor that nobody else wants, and any thread that wakes, of the consumer or of another
//! program, takes it from them at once. So a batch waits for none of them, not even for the record that
//! one is at. Where the kernel refuses that, a batch waits for one record, 1 ms of a photograph.
//!
//! Since such a thread may stand still for long, holding what it has locked, workers and reader take
//! no lock that it takes: offers go through a queue without locks, and a cache that is locked counts
//! as empty.

use std::sync::Arc;
use std::time::Duration;

use bothends_core::ids::SampleId;
use bothends_ops::jpeg::{Exact, ExactPacker};
use bothends_ops::kernels::Level;
use bothends_side_index::{Keeping, Name, NewBlocks};
use crossbeam::channel::{Receiver, Sender, TryRecvError, bounded, unbounded};

use crate::collect::stall::WaitClock;
use crate::make::idle::Counts;
use crate::read::blocks::{BlockSource, Turn};
use crate::read::source::Source;
use crate::threads::shutdown::{PATIENCE, Stop};

/// The most threads: each may have a large image in memory.
const MOST_THREADS: u32 = 16;

/// The largest image: its coefficients take 24 MB at most, of each thread and rank.
const MOST_PIXELS: u64 = 4 << 20;

/// What a thread keeps from image to image.
const KEPT_BYTES: usize = 16 << 20;

/// How long one waits that had no time for an offer.
const PAUSE: Duration = Duration::from_millis(10);

/// How many threads transcode for so many workers.
pub(crate) fn n_threads(n_workers: u32) -> u32 {
    n_workers.min(MOST_THREADS)
}

/// What workers and transcoding threads share. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Transcoding(Arc<Desk>);

#[derive(Debug)]
struct Desk {
    source: Arc<Source>,
    waits: Arc<WaitClock>,
    counts: Counts,
    offers: (Sender<Offer>, Receiver<Offer>),
    /// A token for each worker without work.
    wake: (Sender<()>, Receiver<()>),
}

/// A record to be transcoded.
#[derive(Debug)]
struct Offer {
    turn: Turn,
    name: Name,
    bytes: Box<[u8]>,
}

/// A record that a worker has decoded from its file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoded<'a> {
    pub(crate) sample: SampleId,
    pub(crate) name: Name,
    pub(crate) bytes: &'a [u8],
    pub(crate) pixels: u64,
}

impl Transcoding {
    /// For so many workers; `None` for data without a cache that grows.
    pub(crate) fn new(
        source: &Arc<Source>,
        waits: &Arc<WaitClock>,
        n_workers: u32,
    ) -> Option<Self> {
        source.blocks().filter(|blocks| blocks.cache.takes_more())?;
        Some(Self(Arc::new(Desk {
            source: Arc::clone(source),
            waits: Arc::clone(waits),
            counts: Counts::new(n_workers),
            offers: unbounded(),
            wake: bounded(n_workers as usize),
        })))
    }

    /// A worker has nothing to do. Does not wait.
    pub(crate) fn idles(&self) {
        let Desk { counts, offers, wake, .. } = &*self.0;
        counts.idles();
        if !offers.1.is_empty() {
            // As many tokens as there can be are enough.
            let _ = wake.0.try_send(());
        }
    }

    /// Offers a record, if records are wanted; does not wait.
    pub(crate) fn offer(&self, decoded: &Decoded<'_>) {
        let Desk { source, counts, offers, .. } = &*self.0;
        let Decoded { sample, name, bytes, pixels } = *decoded;
        let wanted = counts.wants() && bytes.starts_with(&[0xff, 0xd8]);
        let Some(blocks) = source.blocks().filter(|_| wanted && pixels <= MOST_PIXELS)
        else {
            return;
        };
        if !blocks.cache.takes_more() {
            return;
        }
        let Some(turn) = blocks.turn(source.record_of(sample)) else { return };
        if counts.take_room(bytes.len() as u64) {
            // The receiver is here, too.
            let _ = offers.0.send(Offer { turn, name, bytes: bytes.into() });
        }
    }

    /// The loop of a transcoding thread.
    pub(crate) fn run(&self, stop: &Stop) {
        let Desk { source, waits, counts, offers, wake } = &*self.0;
        let Some(blocks) = source.blocks() else { return };
        let mut packer = ExactPacker::new(Level::of_process());
        while !stop.is_set() {
            blocks.tidy();
            if offers.1.is_empty() {
                let _ = wake.1.recv_timeout(PATIENCE);
                continue;
            }
            if !counts.begin(waits.n_busy()) {
                let _ = wake.1.recv_timeout(PAUSE);
                continue;
            }
            let offer = offers.1.try_recv();
            if let Ok(Offer { turn, name, bytes }) = offer {
                counts.give_room(bytes.len() as u64);
                transcode(blocks, &mut packer, turn, (name, &bytes));
            }
            counts.end();
        }
    }

    /// Wakes all transcoding threads, so that they see that they shall end.
    pub(crate) fn wake_all(&self) {
        while self.0.wake.0.try_send(()).is_ok() {}
        // What waits is not transcoded; another run may.
        while !matches!(
            self.0.offers.1.try_recv(),
            Err(TryRecvError::Empty | TryRecvError::Disconnected)
        ) {}
    }
}

/// Transcodes one record, and keeps it.
fn transcode(
    blocks: &BlockSource,
    packer: &mut ExactPacker,
    turn: Turn,
    (name, bytes): (Name, &[u8]),
) {
    if !blocks.cache.takes_more() {
        return;
    }
    if !blocks.cache.has(name)
        && let Some(Exact { profile, head, groups }) = packer.pack(bytes)
    {
        let new = NewBlocks { profile: &profile, head: &head, groups: &groups };
        if blocks.cache.keep(name, &new) == Keeping::Stopped {
            return;
        }
    }
    packer.release_above(KEPT_BYTES);
    turn.settle();
}
