//! What becomes of memory when the driver fails or the device hangs: nothing is freed, unpinned or given
//! back that the device may still use, and nothing else is kept. On a driver that does nothing by itself.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::ffi::CStr;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_core::recipe::{Decision, Interpolation, Numerics};
use bothends_core::sample::FileIdx;
use bothends_gpu::GpuError;
use bothends_gpu::driver::fake::Fake;
use bothends_gpu::kinds::PageLocked;
use bothends_gpu::owners::Gpu;
use bothends_gpu_decode::{
    Batch, GpuProng, Limits, NotHere, Placed, ProngConfig, Reading, Source,
};
use bothends_ops::{Damage, Pipeline};
use bothends_slots::{Job, JobId, Polled, Producer, Ring, RingConfig};

use support::{Image, SMALL, fixtures, key, pipeline};

const KERNELS: [&CStr; 12] = [
    c"decode_axes",
    c"decode_store_front",
    c"decode_store_walk",
    c"decode_store_blocks",
    c"decode_jpeg_prepare",
    c"decode_jpeg_entropy",
    c"decode_jpeg_blocks",
    c"decode_rows_exact",
    c"decode_rows_wide",
    c"decode_columns_exact",
    c"decode_rows_planar",
    c"decode_columns_planar",
];

const LIMITS: Limits = Limits { input_bytes: 1 << 20, scratch_bytes: 8 << 20 };
const SAMPLES: u32 = 2;
const LONG: Duration = Duration::from_secs(60);

/// What is alive of a producer: scratch memory, and two of each lane; two lanes' pinned memory.
const MEMORY: [usize; 2] = [5, 2];

/// One picture again and again, in memory.
struct Picture {
    image: Image,
    pipeline: Pipeline,
}

impl fmt::Debug for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Picture")
    }
}

impl Picture {
    fn new() -> Self {
        let image = fixtures().iter().find_map(|(_, file)| Image::of(file)).unwrap();
        let pipeline = pipeline(SMALL, Numerics::Exact, Interpolation::Bilinear);
        Self { image, pipeline }
    }
}

impl Source for Picture {
    fn describe(
        &mut self,
        _: (EpochIdx, SampleId),
        row: u32,
        batch: &mut Batch,
    ) -> Result<Reading, NotHere> {
        let size = self.image.packed.size;
        let crop = self.pipeline.only_crop_of(key(1), size, &mut Decision::default());
        let crop = crop.unwrap().unwrap();
        let Placed { bytes, at, room } =
            batch.add_stored(row, self.image.blocks(), &crop)?;
        let len = usize::try_from(bytes.end - bytes.start).unwrap();
        Ok(Reading { file: FileIdx(0), offset: bytes.start, len, at, room })
    }

    fn read(&mut self, readings: &[Reading], _: &mut [u8]) -> Vec<Result<(), String>> {
        readings.iter().map(|_| Ok(())).collect()
    }

    fn make(
        &mut self,
        _: (EpochIdx, SampleId),
        out: &mut [u8],
    ) -> Result<Option<Damage>, String> {
        out.fill(7);
        Ok(None)
    }
}

/// A device that has the kernels, which do nothing.
fn device() -> Arc<Fake> {
    let fake = Fake::default();
    for name in KERNELS {
        fake.add_kernel(name, &[128], Box::new(|_, _| {}));
    }
    Arc::new(fake)
}

fn prong_on(fake: &Arc<Fake>) -> Result<GpuProng<Picture>, GpuError> {
    let (size, numerics) = (SMALL, Numerics::Exact);
    let config = ProngConfig { size, numerics, max_batch: SAMPLES, limits: LIMITS };
    GpuProng::new(Arc::clone(fake) as _, Picture::new(), config)
}

/// Pinned slots, and a handle that keeps the driver's side of them.
fn slots(fake: &Arc<Fake>) -> (Gpu, Ring) {
    let gpu = Gpu::new(Arc::clone(fake) as _).unwrap();
    let slot_bytes = (SAMPLES * 3 * SMALL.height * SMALL.width) as usize;
    let ring = Ring::of(&PageLocked::of(&gpu), RingConfig { n_slots: 2, slot_bytes });
    (gpu, ring.unwrap())
}

fn submit(prong: &mut GpuProng<Picture>, ring: &Ring, id: u64) {
    let samples = (0..SAMPLES.into()).map(SampleId).collect();
    let (epoch, batch) = (EpochIdx(0), BatchIdx(0));
    let job = Job { id: JobId(id), epoch, batch, samples, need_ns: 0 };
    prong.submit(job, ring.take(Duration::ZERO).unwrap()).unwrap();
}

/// A producer whose jobs, so many, are with the device.
fn under_way(fake: &Arc<Fake>, ring: &Ring, n_jobs: u64) -> GpuProng<Picture> {
    let mut prong = prong_on(fake).unwrap();
    (1..=n_jobs).for_each(|id| submit(&mut prong, ring, id));
    for _ in 0..1000 {
        let Polled::Nothing = prong.poll(Duration::ZERO).unwrap() else {
            panic!("an answer of a device that has done nothing")
        };
    }
    assert!(fake.n_pending() > 0, "nothing is enqueued");
    prong
}

#[test]
fn a_job_goes_through_on_this_device() {
    let fake = device();
    let (gpu, ring) = slots(&fake);
    let mut prong = under_way(&fake, &ring, 2);
    fake.run_all();
    for _ in 0..2 {
        let polled = prong.poll(LONG).unwrap();
        let Polled::Completion(done) = polled else { panic!("{polled:?}") };
        // The kernels wrote no status: all are flagged, and the host's.
        assert!(done.slot.host().unwrap().iter().all(|byte| *byte == 7));
    }
    drop((prong, ring, gpu));
    assert_eq!(fake.n_alive(), [0; 4], "memory, registrations, streams, events");
    assert_eq!(fake.wrongs(), Vec::<String>::new());
}

/// Whichever call of the set-up fails: no memory of the device is left allocated, and none of the host's that
/// is freed is left pinned, where the next allocation at its address could not be used.
#[test]
fn a_set_up_that_fails_halfway_leaves_nothing_behind() {
    for call in ["create_stream", "register", "allocate", "create_timed_event"] {
        let mut n_before = 0;
        loop {
            let fake = device();
            fake.fail_after(call, n_before);
            let Err(error) = prong_on(&fake) else { break };
            assert!(error.to_string().contains("told to fail"), "{error}");
            let line = format!("{call} after {n_before}");
            assert_eq!(fake.n_alive(), [0; 4], "{line}: memory, registrations, …");
            assert_eq!(fake.wrongs(), Vec::<String>::new(), "{line}");
            n_before += 1;
        }
        assert!(n_before > 0, "{call} is not called");
    }
}

/// An error says nothing about what the device does: kernels and copies may still run.
#[test]
fn a_slot_is_not_given_back_after_an_error_that_says_nothing_of_its_copy() {
    let fake = device();
    let (gpu, ring) = slots(&fake);
    let mut prong = under_way(&fake, &ring, 1);
    fake.fail_next("is_reached");
    fake.fail_next("wait_for");
    prong.poll(Duration::ZERO).unwrap_err();
    assert_eq!(ring.free(), 1, "the device still writes to the other");
    drop(prong);
    fake.run_all();
    let [memory, registered, ..] = fake.n_alive();
    assert_eq!([memory, registered - 2], MEMORY, "all of it is left alone");
    assert_eq!(fake.wrongs(), Vec::<String>::new());
    drop((ring, gpu));
}

/// What was enqueued before the event that could not be recorded runs all the same.
#[test]
fn a_slot_is_not_given_back_where_nothing_says_when_its_work_ends() {
    let fake = device();
    let (gpu, ring) = slots(&fake);
    let mut prong = prong_on(&fake).unwrap();
    submit(&mut prong, &ring, 1);
    // Behind those round the kernels.
    fake.fail_after("record", 2);
    let lost = loop {
        match prong.poll(Duration::ZERO) {
            Ok(Polled::Nothing) => {}
            Ok(polled) => panic!("{polled:?}"),
            Err(lost) => break lost,
        }
    };
    assert!(lost.to_string().contains("told to fail"), "{lost}");
    assert_eq!(ring.free(), 1);
    drop(prong);
    assert_eq!(fake.wrongs(), Vec::<String>::new());
    drop((ring, gpu));
}

/// Freeing memory waits for the device, for which there is no end.
#[test]
fn nothing_is_freed_of_a_device_that_hangs() {
    for n_jobs in [1, 2] {
        let fake = device();
        let (gpu, ring) = slots(&fake);
        let mut prong = under_way(&fake, &ring, n_jobs);
        fake.hang();
        prong.abandon().unwrap_err();
        let before = fake.n_alive();
        drop(prong);
        assert_eq!(fake.n_alive(), before, "{n_jobs} jobs");
        assert_eq!(fake.wrongs(), Vec::<String>::new(), "{n_jobs} jobs");
        drop((ring, gpu));
    }
}

#[test]
fn a_device_that_hangs_is_lost_and_not_waited_for_again() {
    let fake = device();
    let (gpu, ring) = slots(&fake);
    let mut prong = under_way(&fake, &ring, 2).with_patience(Duration::from_millis(50));
    fake.hang();
    let began = Instant::now();
    let lost = loop {
        assert!(began.elapsed() < LONG, "it is waited for without end");
        match prong.poll(Duration::from_millis(5)) {
            Ok(Polled::Nothing) => {}
            Ok(polled) => panic!("{polled:?}"),
            Err(lost) => break lost,
        }
    };
    assert!(lost.to_string().contains("did not complete a batch within"), "{lost}");
    assert_eq!(ring.free(), 0);
    drop(prong);
    assert_eq!(fake.wrongs(), Vec::<String>::new());
    drop((ring, gpu));
}
