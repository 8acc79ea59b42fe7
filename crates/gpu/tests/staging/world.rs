//! A host that makes, lends and releases batches, and a device that works through its queues: one
//! step at a time, each chosen from outside.
#![allow(
    unsafe_code,
    reason = "launches kernels of the fake driver on slots that it has"
)]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bothends_gpu::driver::fake::Fake;
use bothends_gpu::driver::{Address, Driver, Launch, StreamId};
use bothends_gpu::kinds::PageLocked;
use bothends_gpu::owners::{ConsumerStream, Gpu, Stream};
use bothends_gpu::staging::{DeviceBatch, DeviceFeed, DeviceSlots, Filling};
use bothends_slots::{HostSlot, Ring, RingConfig};

use crate::naive::{Fault, NaiveBatch, NaiveFeed};

/// Bytes of a batch: a stamp of 8, over and over.
const LEN: usize = 16;

/// What is played.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) n_batches: u64,
    pub(crate) device_slots: u32,
    pub(crate) host_slots: u32,
    pub(crate) n_consumers: u32,
    pub(crate) maker: Maker,
}

/// Who brings batches to the device.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Maker {
    /// The feed.
    Feed,
    /// The feed and kernels on a stream of their own, in turns, in the same slots.
    FeedAndKernels,
    /// The feed into slots of its own, out of which a kernel makes the batches that are lent.
    Finished,
    /// A ring that is wrong.
    Naive(Fault),
}

enum Feed {
    Right { feed: DeviceFeed, kernels: Option<Stream> },
    Finished { feed: DeviceFeed, slots: DeviceSlots, kernels: Stream },
    Naive(NaiveFeed),
}

pub(crate) enum Batch {
    Right(DeviceBatch),
    Naive(NaiveBatch),
}

/// Stamps that consumers' kernels have read, each with whether every byte of it was there.
type Seen = Arc<Mutex<Vec<(u64, bool)>>>;

pub(crate) struct World {
    pub(crate) fake: Arc<Fake>,
    case: Case,
    /// Gone before the GPU: batches, then the feed, then the ring.
    made: Vec<(u64, Batch)>,
    lent: Vec<(u64, Batch)>,
    feed: Feed,
    ring: Ring,
    gpu: Gpu,
    consumers: Vec<StreamId>,
    seen: Seen,
    next: u64,
    /// What the host did, and what it saw.
    log: Vec<(u8, u64, u32)>,
}

/// A step of the host's.
#[derive(Debug, Clone, Copy)]
enum Step {
    Make,
    Lend,
    Release(usize),
}

pub(crate) fn gpu() -> (Arc<Fake>, Gpu) {
    let fake = Arc::new(Fake::default());
    fake.add_kernel(
        c"fill",
        &[8, 8],
        Box::new(|memory, arguments| {
            let [at, stamp] = [0, 1].map(|nth| number(&arguments[nth]));
            let bytes = memory.get_mut(Address(at), LEN).unwrap();
            bytes.copy_from_slice(&stamped(stamp));
        }),
    );
    fake.add_kernel(
        c"finish",
        &[8, 8],
        Box::new(|memory, arguments| {
            let [from, to] = [0, 1].map(|nth| number(&arguments[nth]));
            let bytes = memory.get(Address(from), LEN).unwrap().to_vec();
            memory.get_mut(Address(to), LEN).unwrap().copy_from_slice(&bytes);
        }),
    );
    let gpu = Gpu::new(fake.clone()).unwrap();
    (fake, gpu)
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

fn stamped(stamp: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat(LEN / 8)
}

/// Enqueues a kernel that fills a slot with a stamp.
pub(crate) fn fill(driver: &dyn Driver, filling: &Filling, stamp: u64) {
    launch(driver, c"fill", filling.stream().id(), [filling.address().0, stamp]);
}

fn launch(
    driver: &dyn Driver,
    kernel: &'static std::ffi::CStr,
    stream: StreamId,
    [first, second]: [u64; 2],
) {
    let kernel = driver.kernel(kernel).unwrap();
    let arguments = [(&raw const first).cast(), (&raw const second).cast()];
    let launch = Launch { grid: [1; 3], block: 1, shared_bytes: 0 };
    // SAFETY: the kernels of these tests take two numbers, and stay within the slot.
    unsafe { driver.launch(kernel, launch, stream, &arguments) }.unwrap();
}

impl World {
    pub(crate) fn new(case: Case) -> Self {
        let (fake, gpu) = gpu();
        let seen = Seen::default();
        let sees = Arc::clone(&seen);
        fake.add_kernel(
            c"read",
            &[8, 8],
            Box::new(move |memory, arguments| {
                let [at, stamp] = [0, 1].map(|nth| number(&arguments[nth]));
                let is_right = memory.get(Address(at), LEN).unwrap() == stamped(stamp);
                sees.lock().unwrap().push((stamp, is_right));
            }),
        );
        let sized = |n_slots| RingConfig { n_slots, slot_bytes: LEN };
        let ring = Ring::of(&PageLocked::of(&gpu), sized(case.host_slots)).unwrap();
        let slots = || DeviceSlots::new(&gpu, sized(case.device_slots)).unwrap();
        let feed = || DeviceFeed::with_slots(&gpu, slots());
        let feed = match case.maker {
            Maker::Feed => Feed::Right { feed: feed(), kernels: None },
            Maker::FeedAndKernels => {
                Feed::Right { feed: feed(), kernels: Some(gpu.stream().unwrap()) }
            }
            Maker::Finished => Feed::Finished {
                feed: feed(),
                slots: slots(),
                kernels: gpu.stream().unwrap(),
            },
            Maker::Naive(fault) => {
                Feed::Naive(NaiveFeed::new(&gpu, fault, case.device_slots, LEN))
            }
        };
        let streams = (0..case.n_consumers).map(|_| fake.create_stream().unwrap());
        let consumers = streams.collect();
        let (made, lent, log) = (Vec::new(), Vec::new(), Vec::new());
        Self { fake, case, made, lent, feed, ring, gpu, consumers, seen, next: 1, log }
    }

    pub(crate) fn n_choices(&self) -> usize {
        self.steps().len() + self.fake.n_eligible()
    }

    /// Whether a choice is a piece of work on the last of the eligible streams, which is a
    /// consumer's where those have any.
    pub(crate) fn is_consumer(&self, choice: usize) -> bool {
        choice + 1 == self.n_choices() && choice >= self.steps().len()
    }

    pub(crate) fn choose(&mut self, choice: usize) {
        let steps = self.steps();
        match steps.get(choice) {
            Some(Step::Make) => self.make(),
            Some(Step::Lend) => self.lend(),
            Some(Step::Release(nth)) => {
                let (stamp, _batch) = self.lent.remove(*nth);
                self.log.push((2, stamp, 0));
            }
            None => assert!(self.fake.advance(choice - steps.len()), "no such choice"),
        }
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.next <= self.case.n_batches && self.may_make() {
            steps.push(Step::Make);
        }
        if !self.made.is_empty() {
            steps.push(Step::Lend);
        }
        steps.extend((0..self.lent.len()).map(Step::Release));
        steps
    }

    /// Whether there is a slot on either side, as far as one can tell without asking the driver:
    /// a host slot may be back once the device has nothing to copy.
    fn may_make(&self) -> bool {
        let n_taken = self.made.len() + self.lent.len();
        let has_device_slot = n_taken < self.case.device_slots as usize;
        let may_have_host_slot =
            self.ring.free() > 0 || self.fake.n_eligible() == 0 || self.has_copied();
        has_device_slot && may_have_host_slot
    }

    /// Whether the device has passed a copy whose host slot is still out. Looks past the driver's
    /// doors, so that a step that would change nothing is not a choice.
    fn has_copied(&self) -> bool {
        let n_out = self.case.host_slots - self.ring.free();
        self.fake.n_pending_uploads() < n_out as usize
    }

    /// Brings the next batch to the device, if there is a slot for it.
    fn make(&mut self) {
        let stamp = self.next;
        let free_before = self.ring.free();
        let by_kernel = stamp.is_multiple_of(2);
        let batch = match &mut self.feed {
            Feed::Right { feed, kernels: Some(stream) } if by_kernel => {
                let free = feed.slots().take(Duration::ZERO).unwrap();
                let filling = free.begin(stream).unwrap();
                fill(&*self.fake, &filling, stamp);
                Some(Batch::Right(filling.finish(LEN).unwrap()))
            }
            Feed::Right { feed, .. } => {
                feed.poll().unwrap();
                let host = host_slot(&self.ring, stamp);
                host.map(|host| Batch::Right(feed.submit(host, LEN).unwrap()))
            }
            Feed::Finished { feed, slots, kernels } => {
                feed.poll().unwrap();
                let host = host_slot(&self.ring, stamp);
                host.map(|host| {
                    let mut staged = feed.submit(host, LEN).unwrap();
                    let filling = slots.take(Duration::ZERO).unwrap();
                    let filling = filling.begin(kernels).unwrap();
                    staged.read_on(kernels).unwrap();
                    let ends = [staged.address().0, filling.address().0];
                    launch(&*self.fake, c"finish", kernels.id(), ends);
                    Batch::Right(filling.finish(LEN).unwrap())
                })
            }
            Feed::Naive(feed) => {
                feed.poll();
                let host = host_slot(&self.ring, stamp);
                host.map(|host| Batch::Naive(feed.submit(host)))
            }
        };
        // A host slot that came back is seen; a try without one changes nothing.
        if let Some(batch) = batch {
            self.log.push((0, stamp, (self.ring.free() + 1).saturating_sub(free_before)));
            self.made.push((stamp, batch));
            self.next += 1;
        }
    }

    /// Lends the oldest batch to a consumer, whose kernel reads it.
    fn lend(&mut self) {
        let (stamp, mut batch) = self.made.remove(0);
        let nth = usize::try_from(stamp).unwrap() % self.consumers.len();
        let stream = self.consumers[nth];
        let address = match &mut batch {
            Batch::Right(batch) => {
                batch.lend(consumer(stream)).unwrap();
                batch.address()
            }
            Batch::Naive(batch) => {
                batch.lend(stream);
                batch.address()
            }
        };
        launch(&*self.fake, c"read", stream, [address.0, stamp]);
        self.log.push((1, stamp, 0));
        self.lent.push((stamp, batch));
    }

    /// What reads batches, for a thread of its own.
    pub(crate) fn reader(&self) -> Reader {
        let (fake, seen) = (Arc::clone(&self.fake), Arc::clone(&self.seen));
        Reader { fake, seen, stream: self.consumers[0] }
    }

    /// What feeds, for a thread of its own.
    pub(crate) fn into_parts(self) -> Feeder {
        match self.feed {
            Feed::Right { feed, .. } => Feeder { feed, ring: self.ring },
            Feed::Finished { .. } | Feed::Naive(_) => panic!("a plain feed only"),
        }
    }

    /// Whether a wrong byte was read.
    pub(crate) fn is_wrong(&self) -> bool {
        assert_eq!(self.fake.wrongs(), Vec::<String>::new());
        self.seen.lock().unwrap().iter().any(|(_, is_right)| !is_right)
    }

    pub(crate) fn seen(&self) -> Vec<(u64, bool)> {
        self.seen.lock().unwrap().clone()
    }

    /// Everything that decides what can happen next.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut digest = DefaultHasher::new();
        (self.fake.fingerprint(), &self.log, self.ring.free()).hash(&mut digest);
        self.seen.lock().unwrap().hash(&mut digest);
        digest.finish()
    }

    /// All batches were read, and everything is given back.
    pub(crate) fn expect_end(self) {
        let Self { fake, case, made, lent, feed, ring, gpu, consumers, seen, .. } = self;
        let mut stamps: Vec<u64> = seen.lock().unwrap().iter().map(|(s, _)| *s).collect();
        stamps.sort_unstable();
        assert_eq!(stamps, (1..=case.n_batches).collect::<Vec<_>>(), "batches read");
        drop((made, lent, feed));
        fake.run_all();
        gpu.sweep();
        assert_eq!(ring.free(), case.host_slots, "host slots that came back");
        drop((ring, gpu));
        let is_naive = matches!(case.maker, Maker::Naive(_));
        let n_alive = fake.n_alive();
        assert!(is_naive || n_alive == [0, 0, consumers.len(), 0], "{n_alive:?}");
        assert_eq!(fake.counts().waits, 0, "the host waited for the device");
    }
}

/// Reads batches by the kernel, on a stream.
pub(crate) struct Reader {
    fake: Arc<Fake>,
    seen: Seen,
    stream: StreamId,
}

impl Reader {
    pub(crate) fn read(&self, stamp: u64, batch: &mut DeviceBatch) {
        batch.lend(consumer(self.stream)).unwrap();
        launch(&*self.fake, c"read", self.stream, [batch.address().0, stamp]);
    }

    pub(crate) fn seen(&self) -> Vec<(u64, bool)> {
        self.seen.lock().unwrap().clone()
    }
}

/// Stamps host slots and submits them.
pub(crate) struct Feeder {
    feed: DeviceFeed,
    ring: Ring,
}

impl Feeder {
    /// Submits a batch, and passes it on; what is missing, where a slot is.
    pub(crate) fn submit(
        &mut self,
        stamp: u64,
        to: &SyncSender<(u64, DeviceBatch)>,
    ) -> Result<(), String> {
        self.feed.poll().unwrap();
        let host = host_slot(&self.ring, stamp).ok_or("no host slot")?;
        let submitted = self.feed.submit(host, LEN);
        let batch = submitted.map_err(|refused| refused.to_string())?;
        to.send((stamp, batch)).map_err(|_| "nobody consumes".to_owned())
    }
}

fn host_slot(ring: &Ring, stamp: u64) -> Option<HostSlot> {
    let mut host = ring.take(Duration::ZERO)?.host().unwrap();
    host.copy_from_slice(&stamped(stamp));
    Some(host)
}

fn consumer(stream: StreamId) -> ConsumerStream {
    // SAFETY: the fake's streams of these tests are never destroyed.
    unsafe { ConsumerStream::of_handle(stream.0) }
}
