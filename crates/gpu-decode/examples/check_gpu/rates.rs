//! How fast: copies, the finish, decoding, and the producer round it; and what an image takes of energy and
//! of the host.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_core::recipe::{Numerics, Recipe, RecordShape, Size};
use bothends_core::tensor::{Dtype, Layout, Output, SampleShape, Views};
use bothends_energy::{Meter, NvmlMeter};
use bothends_gpu::GpuError;
use bothends_gpu::finish::describe::{Description, Descriptions, FinishRow};
use bothends_gpu::finish::{FinishBatch, FinishPlan, Finisher};
use bothends_gpu::owners::DeviceBuffer;
use bothends_gpu_decode::{GpuProng, Limits, Memory, ProngConfig, Source, TableSource};
use bothends_io::{Direct, Files, Folder, ReaderConfig, open_reader};
use bothends_ops::{Finish, Pipeline};
use bothends_side_index::{Beside, Place, SideIndex};
use bothends_slots::{Job, JobId, Polled, Producer, Ring};

use crate::device::Device;
use crate::pictures::{Form, Pictures};
use crate::said::{Bar, Said};
use crate::{Extent, Failed};

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// Samples of a batch.
    batch: usize,
    /// Rows and columns of a sample.
    side: u32,
    /// Bytes of a copy within the device.
    copied: usize,
    /// How long a rate is measured, about.
    lasting: Duration,
    /// Batches that the producer makes.
    n_jobs: u64,
}

impl Sizes {
    fn of(extent: Extent) -> Self {
        let whole = Self {
            batch: 256,
            side: 224,
            copied: 1 << 30,
            lasting: Duration::from_secs(1),
            n_jobs: 100,
        };
        let brief = Duration::from_millis(200);
        match extent {
            Extent::Whole => whole,
            Extent::Quick => Self { lasting: brief, n_jobs: 4, ..whole },
            Extent::Twin => Self {
                batch: 4,
                side: 40,
                copied: 1 << 20,
                lasting: Duration::ZERO,
                n_jobs: 2,
            },
        }
    }

    fn sample_bytes(self) -> usize {
        3 * (self.side * self.side) as usize
    }
}

/// So many of what a trial did `n` of in `took` as last long enough.
fn enough(n: u32, took: Duration, extent: Extent) -> u32 {
    let each = took.as_secs_f64() / f64::from(n);
    let wanted = Sizes::of(extent).lasting.as_secs_f64() / each.max(1e-9);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped before"
    )]
    let wanted = wanted.clamp(4.0, 100_000.0) as u32;
    wanted
}

/// Plain copies, and copies within the device.
pub fn copies(device: &Device, extent: Extent, said: &mut Said) -> Result<(), Failed> {
    eprintln!("copies");
    let sizes = Sizes::of(extent);
    let bytes = sizes.batch * sizes.sample_bytes();
    let slot = device.page_locked(bytes)?;
    let (rate, longest) = device.plain_upload_rate(&slot, 50)?;
    said.figure("plain copies from pinned memory", (rate / 1e9, "GB/s"), Bar::None);
    let microseconds = longest.as_secs_f64() * 1e6;
    said.figure("longest plain copy's call", (microseconds, "µs"), Bar::AtMost(50.0));
    let fed = feed_rate(device, bytes, extent)?;
    let least = Bar::AtLeast(0.95);
    said.figure("batches through the feed ÷ plain copies", (fed / rate, ""), least);
    let within = device.copy_rate(sizes.copied, 20)?;
    said.figure("copies within the device", (within / 1e9, "GB/s"), Bar::None);
    Ok(())
}

/// Bytes per second of batches that go to the device one after the other.
fn feed_rate(device: &Device, bytes: usize, extent: Extent) -> Result<f64, Failed> {
    let ring: Ring = device.page_locked_ring(4, bytes)?;
    let config = bothends_slots::RingConfig { n_slots: 4, slot_bytes: bytes };
    let mut feed = bothends_gpu::staging::DeviceFeed::new(&device.gpu, config)?;
    let n = if extent == Extent::Whole { 1000 } else { 50 };
    let began = Instant::now();
    for _ in 0..n {
        let host = loop {
            feed.poll()?;
            match ring.take(Duration::ZERO) {
                Some(slot) => break slot.host().map_err(|_| "no host slot")?,
                None => std::thread::yield_now(),
            }
        };
        drop(feed.submit(host, bytes)?);
    }
    while feed.poll()? > 0 {
        std::thread::yield_now();
    }
    Ok(bytes as f64 * f64::from(n) / began.elapsed().as_secs_f64())
}

/// The finish of a batch: whether it is the host's, and its rate against a copy within the device, by bytes
/// read and written.
pub fn finish(device: &Device, extent: Extent, said: &mut Said) -> Result<(), Failed> {
    eprintln!("the finish");
    let sizes = Sizes::of(extent);
    let copy = device.copy_rate(sizes.copied, 20)?;
    // Bytes of no pattern that a transposition would leave as it is.
    let bytes = (0..sizes.batch * sizes.sample_bytes())
        .map(|at| ((at * at) >> 7).to_le_bytes()[0]);
    let samples: Vec<u8> = bytes.collect();
    for (dtype, least) in [(Dtype::F32, 0.9), (Dtype::F16, 0.8), (Dtype::Bf16, 0.8)] {
        let name = format!("{dtype:?}").to_lowercase();
        let finishing = Finishing::new(device, sizes, (dtype, &samples))?;
        let n_different = finishing.n_different(device, &samples)?;
        let detail = format!("{n_different} of {} samples differ", sizes.batch);
        let seen = if n_different == 0 { Ok(detail) } else { Err(detail) };
        said.right(&format!("finish to {name} is the host's"), seen);
        let trial = finishing.time(device, 20)?;
        let n = enough(20, trial, extent);
        let took = finishing.time(device, n)?.as_secs_f64();
        let moved = sizes.batch * (sizes.sample_bytes() + finishing.sample_bytes());
        let part = moved as f64 * f64::from(n) / took / copy;
        let check = format!("finish to {name} ÷ a copy within the device");
        said.figure(&check, (part, ""), Bar::AtLeast(least));
        // So few bytes cannot be copied at the rate of a large copy.
        let as_much = device.copy_rate(moved / 2, 50)?;
        let check = format!("finish to {name} ÷ a copy of as many bytes");
        said.figure(&check, (part * copy / as_much, ""), Bar::None);
    }
    Ok(())
}

/// A batch that is finished again and again, every other sample mirrored.
struct Finishing {
    sizes: Sizes,
    host: Finish,
    finisher: Finisher,
    description: Description,
    batch: FinishBatch,
    out: DeviceBuffer,
    /// What the batch's addresses are of.
    _kept: [DeviceBuffer; 3],
}

impl Finishing {
    fn new(
        device: &Device,
        sizes: Sizes,
        (dtype, samples): (Dtype, &[u8]),
    ) -> Result<Self, Failed> {
        let shape = SampleShape { height: sizes.side, width: sizes.side, channels: 3 };
        let recipe = Recipe::builtin("imagenet-train").ok_or("no recipe")?;
        let output = Output { dtype, layout: Layout::Nchw };
        let host = Finish::new(&recipe, &Views::from(shape), output)?;
        let (values, scales) = (host.values(), host.scales());
        let plan = FinishPlan { shape, output, values, scales, has_noise: false };
        let rows: Vec<_> = (0..sizes.batch as u64)
            .map(|row| FinishRow {
                offset: row * sizes.sample_bytes() as u64,
                is_flipped: row % 2 == 1,
                erased: &[],
            })
            .collect();
        let mut words = vec![0; Descriptions::bytes(sizes.batch, 0)];
        let description =
            Descriptions::write(&rows, &mut words).ok_or("no description")?;
        let keep = |bytes: &[u8]| -> Result<DeviceBuffer, Failed> {
            let kept = device.gpu.allocate(bytes.len())?;
            device.upload(kept.address(), bytes)?;
            Ok(kept)
        };
        let kept = [keep(&plan.constants())?, keep(&words)?, keep(samples)?];
        let finisher = Finisher::new(&*device.driver, plan, kept[0].address())?;
        let out = device.gpu.allocate(sizes.batch * host.sample_bytes())?;
        let batch = FinishBatch {
            src: kept[2].address(),
            dst: out.address(),
            dst_stride: host.sample_bytes() as u64,
            description: kept[1].address(),
            mixture: None,
            distance: 0,
        };
        Ok(Self { sizes, host, finisher, description, batch, out, _kept: kept })
    }

    fn sample_bytes(&self) -> usize {
        self.host.sample_bytes()
    }

    fn time(&self, device: &Device, n: u32) -> Result<Duration, Failed> {
        Ok(device.time_finish(&self.finisher, (&self.description, &self.batch), n)?)
    }

    fn n_different(&self, device: &Device, samples: &[u8]) -> Result<usize, Failed> {
        self.time(device, 1)?;
        let mut got = vec![0; self.out.len()];
        device.download(&mut got, self.out.address())?;
        let mut need = vec![0; self.sample_bytes()];
        let line = 3 * self.sizes.side as usize;
        let mirrored = |sample: &[u8]| -> Vec<u8> {
            let lines = sample.chunks(line);
            lines.flat_map(|line| line.chunks(3).rev().flatten()).copied().collect()
        };
        let rows = samples.chunks(self.sizes.sample_bytes());
        let rows = rows.zip(got.chunks(self.sample_bytes())).enumerate();
        let is_different = |(row, (sample, got)): (usize, (&[u8], &[u8]))| {
            let sample = if row % 2 == 1 { mirrored(sample) } else { sample.to_vec() };
            self.host.run(None, &sample, &mut need);
            need != got
        };
        Ok(rows.map(is_different).filter(|is| *is).count())
    }
}

/// Bars of decoding: the form, the batch, whether the data are uploaded each time, images a second.
pub const N_DECODING: usize = 8;
const BARS: [(Form, usize, bool, f64); N_DECODING] = [
    (Form::Store, 256, false, 750_000.0),
    (Form::Store, 1024, false, 900_000.0),
    (Form::Store, 256, true, 420_000.0),
    (Form::Store, 1024, true, 420_000.0),
    (Form::Jpeg, 256, false, 300_000.0),
    (Form::Jpeg, 1024, false, 550_000.0),
    (Form::Jpeg, 256, true, 480_000.0),
    (Form::Jpeg, 1024, true, 480_000.0),
];

/// Lanes that share the bus and the processors, where data are uploaded.
const LANES: usize = 4;

/// Decoding of one batch again and again; one of [`BARS`] or all.
pub fn decoding(
    device: &Device,
    (pictures, which): (&Pictures, Option<usize>),
    extent: Extent,
    said: &mut Said,
) -> Result<(), Failed> {
    let is_wanted = |nth: usize| which.is_none_or(|which| which == nth);
    let wanted = BARS.into_iter().enumerate().filter(|(nth, _)| is_wanted(*nth));
    for (_, (form, n, is_uploaded, least)) in wanted {
        let from = if is_uploaded { "from pinned memory" } else { "resident" };
        let check = format!("{} decoding, {n} at a time, {from}", form.name());
        eprintln!("{check}");
        let began = Instant::now();
        let n_crops = if extent == Extent::Twin { Sizes::of(extent).batch } else { n };
        let crops = pictures.crops((form, Numerics::Exact), 0..4 * n_crops, n_crops)?;
        if crops.batch.is_empty() {
            return Err("none of the pictures has kernels".into());
        }
        let describing = began.elapsed().as_secs_f64() * 1e6 / crops.batch.len() as f64;
        let mut upload = device.page_locked(crops.upload.len())?;
        upload.copy_from_slice(&crops.upload);
        let n_lanes = if is_uploaded { LANES } else { 1 };
        let memory = (&upload[..], pictures.sample_bytes());
        let lanes = (0..n_lanes).map(|_| device.lane(&crops.batch, memory));
        let mut lanes = match lanes.collect::<Result<Vec<_>, _>>() {
            Ok(lanes) => lanes,
            Err(GpuError::OutOfMemory { bytes }) => {
                let why = format!("the GPU has no {} MB left", bytes >> 20);
                said.skipped(&check, &why);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let what = (&crops.batch, is_uploaded.then_some(&upload[..]));
        let began = Instant::now();
        device.rate(&mut lanes, what, 8)?;
        // Four more to warm up.
        let n_batches = enough(12, began.elapsed(), extent);
        let mut meter = NvmlMeter::open(OsStr::new("libnvidia-ml.so.1")).ok();
        let before = meter.as_mut().and_then(|meter| meter.read().ok());
        let began = Instant::now();
        let rate = device.rate(&mut lanes, what, n_batches)?;
        let after = meter.as_mut().and_then(|meter| meter.read().ok());
        let images = rate * began.elapsed().as_secs_f64();
        said.figure(&check, (rate, "images/s"), Bar::AtLeast(least));
        if n == 1024 && !is_uploaded {
            let check = format!("{}: copying and describing a crop", form.name());
            said.figure(&check, (describing, "µs of one core"), Bar::None);
            let alone = crops.describing.as_secs_f64() * 1e6 / crops.batch.len() as f64;
            let check = format!("{}: describing a crop", form.name());
            said.figure(&check, (alone, "µs of one core"), Bar::AtMost(5.0));
            let check = format!("{}: bytes over the bus for a crop", form.name());
            said.figure(&check, (crops.bytes_per_crop() / 1e3, "kB"), Bar::None);
        }
        let energy = before.zip(after).and_then(|(before, after)| {
            Some(after.first()?.energy_uj.checked_sub(before.first()?.energy_uj)? as f64)
        });
        let check = format!("energy of {check}");
        let bar = if form == Form::Store { Bar::AtMost(0.8) } else { Bar::None };
        match energy.filter(|_| extent == Extent::Whole) {
            Some(energy) => said.figure(&check, (energy / 1e3 / images, "mJ/image"), bar),
            None => said.skipped(&check, "no energy counter, or too short a time"),
        }
    }
    Ok(())
}

/// The producer over a data set, batch by batch, through the page cache or past it: images a second, and what an
/// image takes of the host's processor.
pub fn prong(
    device: &Device,
    (what, folder, direct): (&str, &Path, Direct),
    extent: Extent,
    said: &mut Said,
) -> Result<(), Failed> {
    eprintln!("the producer over a folder, {what}");
    let kept = tempfile::tempdir()?;
    let Sizes { batch, side, n_jobs, .. } = Sizes::of(extent);
    let mut source = source((folder, direct), kept.path(), side)?;
    let n_samples = source.table.n_samples();
    let sample_bytes = source.pipeline.sample_bytes();
    // As the first epoch does: through the host, which leaves notes.
    let mut out = vec![0; sample_bytes];
    for sample in (0..n_samples).map(SampleId) {
        // A bad one is bad in every epoch.
        let _ = source.make((EpochIdx(0), sample), &mut out);
    }
    if let Some(index) = &source.side_index {
        index.publish();
    }
    let config = ProngConfig {
        size: Size { height: side, width: side },
        numerics: Numerics::Exact,
        max_batch: u32::try_from(batch)?,
        limits: Limits { input_bytes: 128 << 20, scratch_bytes: 1 << 30 },
    };
    let mut prong = GpuProng::new(Arc::clone(&device.driver), source, config)?;
    let ring = device.page_locked_ring(3, batch * sample_bytes)?;
    let run = |prong: &mut GpuProng<TableSource>, n_jobs: u64| -> Result<(), Failed> {
        let (mut n_submitted, mut n_answered) = (0, 0);
        while n_answered < n_jobs {
            if n_submitted < n_jobs
                && prong.n_jobs() < 2
                && let Some(slot) = ring.take(Duration::ZERO)
            {
                let first = n_submitted * batch as u64;
                let ids =
                    (first..first + batch as u64).map(|id| SampleId(id % n_samples));
                let job = Job {
                    id: JobId(n_submitted),
                    epoch: EpochIdx(u32::try_from(1 + first / n_samples)?),
                    batch: BatchIdx(0),
                    samples: ids.collect(),
                    need_ns: 0,
                };
                prong.submit(job, slot)?;
                n_submitted += 1;
            }
            let polled = prong.poll(Duration::from_millis(20))?;
            n_answered += u64::from(matches!(polled, Polled::Completion(_)));
        }
        Ok(())
    };
    run(&mut prong, n_jobs.min(4))?;
    let (before, kernels) = (prong.counts(), prong.kernel_time());
    let (began, cpu) = (Instant::now(), thread_cpu_ns());
    run(&mut prong, n_jobs)?;
    let n = (n_jobs * batch as u64) as f64;
    let rate = n / began.elapsed().as_secs_f64();
    said.figure(&format!("producer over {what}"), (rate, "images/s"), Bar::None);
    // It naps while the GPU works, and its CPU time is without that.
    if let Some(used) = thread_cpu_ns().zip(cpu).map(|(after, before)| after - before) {
        let each = used as f64 / 1e3 / n;
        let check = format!("producer over {what}: the host's processor");
        let most = if direct == Direct::Off { 35.0 } else { 5.0 };
        said.figure(&check, (each, "µs/image"), Bar::AtMost(most));
    }
    let seconds = (prong.kernel_time() - kernels).as_secs_f64();
    let check = format!("producer over {what}: kernels");
    said.figure(&check, (seconds * 1e6 / n, "µs/image"), Bar::None);
    let by_host = (prong.counts().host - before.host) as f64 / n;
    let check = format!("producer over {what}: made by the host");
    said.figure(&check, (by_host * 100.0, "%"), Bar::None);
    Ok(())
}

fn source(
    (folder, direct): (&Path, Direct),
    kept: &Path,
    side: u32,
) -> Result<TableSource, Failed> {
    let (Folder(root), target) = Folder::around(folder)?;
    let found = bothends_dataset::find(&Folder(root.clone()), &target)?;
    let recipe = Recipe::builtin("imagenet-train").ok_or("no recipe")?;
    let mut recipe = serde_json::to_value(recipe)?;
    recipe["ops"][1]["size"] = serde_json::json!([side, side]);
    let recipe = Recipe::from_json(&recipe.to_string())?;
    let pipeline = Pipeline::new(&recipe, recipe.views(RecordShape::Image)?);
    let place =
        Place { data: kept, is_folder: true, beside: Beside::Written, cache: None };
    Ok(TableSource {
        table: Arc::new(found.table),
        files: Arc::new(Files::new(&root, 1024, direct)),
        reader: open_reader(&ReaderConfig::default())?,
        side_index: Some(Arc::new(SideIndex::open(place))),
        pipeline,
        seed: 1,
        memory: Memory::default(),
    })
}

/// Nanoseconds of processor that this thread has had.
fn thread_cpu_ns() -> Option<u64> {
    let said = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    said.split_whitespace().next()?.parse().ok()
}
