//! Epochs that end in GPU memory, over the CPU twin of the kernels and over a driver that completes its
//! work as late as the test likes. What arrives is what the host delivers, byte for byte, whatever the
//! device and the consumer do meanwhile; nothing waits for the device, and nothing is left behind.
//!
//! That streams and events order the work is `bothends-gpu`'s to prove, over every interleaving of small
//! cases; a real GPU is asked by `scripts/check-gpu`.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bothends_core::digest::sample_digest;
use bothends_gpu::driver::fake::Fake;
use bothends_gpu::twin::Twin;
use bothends_runtime::{
    ConsumerStream, ErrorKind, GpuBatch, GpuDeal, GpuError, GpuPath, GpuPolled,
    GpuTarget, Loader, Row, RuntimeError,
};
use bothends_tests::loading::{
    DEADLINE, N_BATCHES, Taken, broken_images, ensure_permutation, ids,
    next as next_on_host, open, open_at, rest as rest_on_host, rows, whole,
};
use serde_json::{Value, json};

/// A device whose work runs bit by bit on a thread, in an order of its own, until it is dropped.
struct Device {
    fake: Arc<Fake>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Device {
    fn new(seed: usize) -> (Self, GpuTarget) {
        let fake = Arc::new(Fake::default());
        let target = GpuTarget::over(fake.clone()).unwrap();
        let stops = Arc::new(AtomicBool::new(false));
        let (works, told) = (Arc::clone(&fake), Arc::clone(&stops));
        let thread = thread::spawn(move || {
            let mut nth = seed;
            while !told.load(Ordering::Relaxed) {
                nth = nth.wrapping_mul(31).wrapping_add(7);
                let n = works.n_eligible();
                if n == 0 || !works.advance(nth % n) {
                    thread::sleep(Duration::from_micros(50));
                }
            }
        });
        (Self { fake, stops, thread: Some(thread) }, target)
    }

    /// Nothing was done that a real driver would answer with corruption.
    fn ensure_sound(&self) -> Result<()> {
        ensure!(self.fake.wrongs().is_empty(), "{:?}", self.fake.wrongs());
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

/// A device on which nothing runs until the test says.
fn still() -> (Arc<Fake>, GpuTarget) {
    let fake = Arc::new(Fake::default());
    (fake.clone(), GpuTarget::over(fake).unwrap())
}

/// The twin of the kernels, or `None` where no compiler can make it.
#[expect(clippy::print_stdout, reason = "a test says what it did not do")]
fn twin() -> Option<GpuTarget> {
    match Twin::compiled() {
        Err(GpuError::Unavailable { why }) => {
            println!("skipped: {why}");
            None
        }
        twin => Some(GpuTarget::over(Arc::new(twin.unwrap())).unwrap()),
    }
}

/// What a batch is, as its consumer's stream would see it.
fn taken(batch: &mut GpuBatch) -> Result<Taken> {
    batch.lend(ConsumerStream::DEFAULT)?;
    let bytes = batch.download(DEADLINE)?;
    ensure!(bytes.len() == batch.len());
    ensure!(
        batch.address().is_multiple_of(256)
            && batch.view_bytes().len() == batch.n_views()
    );
    let sample_bytes = batch.sample_bytes();
    let row = |(i, row): (usize, &Row)| {
        let bytes = &bytes[i * sample_bytes..][..sample_bytes];
        row.sample.map(|id| (id.0, sample_digest(id, row.label, bytes)))
    };
    let rows = batch.rows().iter().enumerate().map(row).collect();
    Ok(Taken { index: batch.index.0, rows })
}

fn next(deal: &GpuDeal, consumer: u32) -> Result<Option<GpuBatch>> {
    match deal.poll(consumer, DEADLINE)? {
        GpuPolled::Batch(batch) => Ok(Some(batch)),
        GpuPolled::End => Ok(None),
        GpuPolled::Pending => bail!("no batch for consumer {consumer} in {DEADLINE:?}"),
    }
}

fn take(deal: &GpuDeal, n: u32) -> Result<Vec<Taken>> {
    let one = |_| taken(&mut next(deal, 0)?.context("an end too early")?);
    (0..n).map(one).collect()
}

fn rest(deal: &GpuDeal, consumer: u32) -> Result<Vec<Taken>> {
    deal.batches(consumer).map(|batch| taken(&mut batch?)).collect()
}

/// Small samples, and some of each kind of op after the cut.
fn recipe(after_the_cut: &Value) -> Value {
    let mut ops = json!([
        {"op": "decode"}, {"op": "random_resized_crop", "size": [30, 21]},
        {"op": "random_horizontal_flip"},
        {"op": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
    ]);
    let more = after_the_cut.as_array().unwrap().iter().cloned();
    ops.as_array_mut().unwrap().extend(more);
    json!({"version": 1, "name": "t", "numerics": "exact", "ops": ops})
}

// ---- the same bytes ------------------------------------------------------------------------

#[test]
fn batches_on_the_gpu_are_the_hosts() -> Result<()> {
    let Some(target) = twin() else { return Ok(()) };
    let erasing = json!({"op": "random_erasing", "p": 0.5, "value": "random"});
    let mixing = json!({"op": "random_choice", "transforms": [
        {"op": "mixup", "alpha": 0.4}, {"op": "cutmix", "alpha": 1.0}]});
    let plain = recipe(&json!([]));
    let all = recipe(&json!([erasing, mixing]));
    let views = json!("dino");
    let cases = [
        (&plain, "u8", "nhwc", 2),
        (&plain, "u8", "nchw", 3),
        (&plain, "f32", "nchw", 2),
        (&all, "f32", "nchw", 5),
        (&all, "f32", "nhwc", 7),
        (&all, "f16", "nchw", 23),
        (&all, "bf16", "nhwc", 4),
        (&views, "bf16", "nchw", 5),
    ];
    for (recipe, output, layout, batch_size) in cases {
        let otherwise = json!({"recipe": recipe, "output": output, "layout": layout,
            "batch_size": batch_size, "workers": 2});
        let (mut on_host, mut loader) = (open(&otherwise)?, open(&otherwise)?);
        let (host, gpu) = (on_host.begin(1)?, loader.begin_on(&target, 1)?);
        let mut n = 0;
        for batch in host.batches(0) {
            let batch = batch?;
            let mut on_gpu = next(&gpu, 0)?.context("an end too early")?;
            let line = format!("{output} {layout}, batch {}", batch.index.0);
            ensure!(on_gpu.rows() == batch.rows(), "{line}: rows");
            ensure!(on_gpu.sample_bytes() == batch.sample_bytes());
            ensure!(on_gpu.view_bytes() == batch.view_bytes());
            ensure!(on_gpu.n_valid() == batch.n_valid());
            on_gpu.lend(ConsumerStream::DEFAULT)?;
            // Masked rows, too.
            ensure!(on_gpu.download(DEADLINE)? == batch.bytes(), "{line}: bytes");
            n += 1;
        }
        ensure!(n > 0 && next(&gpu, 0)?.is_none());
    }
    Ok(())
}

/// Batches of one, so that one of them is empty; and of two, so that one is short.
#[test]
fn skipped_samples_are_missing_there_too() -> Result<()> {
    let (device, plain) = Device::new(1);
    let folder = tempfile::tempdir()?;
    broken_images(folder.path())?;
    let rest_of = |target: &GpuTarget, otherwise: &Value| -> Result<()> {
        let mut on_host = open_at(folder.path(), otherwise)?;
        let expected = rest_on_host(&*on_host.begin(1)?, 0)?;
        let mut loader = open_at(folder.path(), otherwise)?;
        ensure!(rest(&*loader.begin_on(target, 1)?, 0)? == expected);
        let n_rows: usize = expected.iter().map(|batch| batch.rows.len()).sum();
        ensure!(n_rows < expected.len() * on_host.config().batch_size as usize);
        Ok(())
    };
    for batch_size in [1, 2] {
        let otherwise =
            json!({"on_bad": "skip", "batch_size": batch_size, "last": "drop"});
        rest_of(&plain, &otherwise)?;
        if let Some(twin) = twin() {
            let finished = json!({"on_bad": "skip", "batch_size": batch_size,
                "recipe": recipe(&json!([{"op": "mixup"}])), "output": "f32"});
            rest_of(&twin, &finished)?;
        }
    }
    device.ensure_sound()
}

#[test]
fn a_driver_that_lacks_something_says_so_and_the_host_goes_on() -> Result<()> {
    let (device, target) = Device::new(1);
    let mut loader = open(&json!({}))?;
    device.fake.fail_next("allocate");
    let error = loader.begin_on(&target, 1).err().context("without memory")?;
    ensure!(error.kind() == ErrorKind::Device && error.to_string().contains("told to"));
    // This one has no kernels at all.
    let mut loader = open(&json!({"output": "f32"}))?;
    let error = loader.begin_on(&target, 1).err().context("without a kernel")?;
    ensure!(error.kind() == ErrorKind::Device && error.to_string().contains("kernel"));
    // The loader goes on on the host.
    ensure!(rest_on_host(&*loader.begin(1)?, 0)? == whole(&json!({"output": "f32"}))?);
    device.ensure_sound()
}

/// A card on which no kernel runs gets batches that the host has finished.
#[test]
fn an_old_card_gets_what_the_host_has_finished() -> Result<()> {
    let target = GpuTarget::over(Arc::new(Fake::default().of_capability((7, 0))))?;
    let finished = json!({"output": "f32"});
    let mut loader = open(&finished)?;
    ensure!(rest(&*loader.begin_on(&target, 1)?, 0)? == whole(&finished)?);
    Ok(())
}

// ---- late devices, slow consumers ----------------------------------------------------------

#[test]
fn nothing_waits_for_a_device_that_is_late() -> Result<()> {
    let expected = whole(&json!({}))?;
    for seed in [1, 2, 3] {
        let (device, target) = Device::new(seed);
        let mut loader = open(&json!({"held_batches": 3}))?;
        let deal = loader.begin_on(&target, 1)?;
        let mut held: Vec<GpuBatch> = Vec::new();
        let mut seen = Vec::new();
        while let Some(mut batch) = next(&deal, 0)? {
            batch.lend(ConsumerStream::DEFAULT)?;
            held.push(batch);
            if held.len() > 2 {
                let oldest = held.remove(0);
                ensure!(device.fake.counts().waits == seen.len() as u64, "a wait");
                let mut oldest = oldest;
                seen.push(taken(&mut oldest)?);
            }
        }
        for mut batch in held {
            seen.push(taken(&mut batch)?);
        }
        ensure!(seen == expected, "seed {seed}");
        device.ensure_sound()?;
    }
    Ok(())
}

/// The device does nothing at all: batches are handed over all the same, until the host has no slot left. Then
/// it is the device that is blamed.
#[test]
fn a_device_that_hangs_is_told_of() -> Result<()> {
    let fake = Arc::new(Fake::default());
    let target = GpuTarget::over_within(fake.clone(), Duration::from_secs(1))?;
    let mut loader = open(&json!({"memory": 3}))?;
    let deal = loader.begin_on(&target, 1)?;
    let began = Instant::now();
    let mut n_given = 0;
    let error = loop {
        match deal.poll(0, Duration::from_millis(100)) {
            // It goes at once: what is missing in the end is a slot of the host's.
            Ok(GpuPolled::Batch(_)) => n_given += 1,
            Ok(GpuPolled::Pending) => ensure!(began.elapsed() < DEADLINE, "it hangs"),
            Ok(GpuPolled::End) => bail!("{n_given} batches, and none was copied"),
            Err(error) => break error,
        }
    };
    ensure!(n_given > 0, "nothing was uploaded");
    let is_late = matches!(&error, RuntimeError::Gpu { why: GpuError::Late { .. }, .. });
    ensure!(is_late, "{error}");
    ensure!(fake.counts().waits == 0);
    // A state is where the consumer is, not the device.
    let state = loader.state()?;
    drop((deal, loader));
    fake.run_all();
    ensure!(fake.wrongs().is_empty(), "{:?}", fake.wrongs());
    let mut again = open(&json!({}))?;
    again.load_state(&state)?;
    ensure!(rest_on_host(&*again.begin(1)?, 0)?.len() < N_BATCHES as usize);
    Ok(())
}

#[test]
fn a_consumer_that_keeps_every_batch_is_told_and_may_go_on() -> Result<()> {
    let (device, target) = Device::new(5);
    let mut loader = open(&json!({}))?;
    let deal = loader.begin_on(&target, 1)?;
    let mut held = Vec::new();
    let mut all = Vec::new();
    loop {
        match next(&deal, 0) {
            Ok(Some(mut batch)) => {
                all.push(taken(&mut batch)?);
                held.push(batch);
            }
            Ok(None) => break,
            Err(error) => {
                let error: RuntimeError = error.downcast()?;
                ensure!(error.kind() == ErrorKind::Starved, "{error}");
                ensure!(held.len() == 3, "three slots, and {} batches", held.len());
                held.clear();
            }
        }
    }
    ensure!(all == whole(&json!({}))?);
    device.ensure_sound()
}

// ---- breaking off ----------------------------------------------------------------------------

#[test]
fn whatever_is_broken_off_leaves_nothing_behind() -> Result<()> {
    for n_taken in [0, 1, 5] {
        for how in ["cancel", "close", "drop", "begin"] {
            let (device, target) = Device::new(n_taken as usize);
            let mut loader = open(&json!({}))?;
            let deal = loader.begin_on(&target, 1)?;
            take(&deal, n_taken)?;
            match how {
                "cancel" => {
                    deal.cancel();
                    ensure!(next(&deal, 0)?.is_none(), "nobody wants the rest");
                    let taken: Value = serde_json::from_str(&loader.state()?)?;
                    ensure!(taken["position"] == json!(2 * n_taken), "{taken}");
                    drop(loader);
                }
                "close" => {
                    drop(loader);
                    let error = next(&deal, 0).err().context("closed")?;
                    ensure!(matches!(error.downcast()?, RuntimeError::Closed));
                }
                "begin" => {
                    let second = loader.begin_on(&target, 1)?;
                    let error = next(&deal, 0).err().context("superseded")?;
                    ensure!(matches!(error.downcast()?, RuntimeError::Superseded));
                    ensure_permutation(ids(&rest(&second, 0)?))?;
                    drop((second, loader));
                }
                _ => drop(loader),
            }
            drop(deal);
            target.shut_down(DEADLINE)?;
            drop(target);
            let (fake, line) = (&device.fake, format!("{how} after {n_taken}"));
            ensure!(fake.n_alive() == [0; 4], "{line}: {:?}", fake.n_alive());
            device.ensure_sound().context(line)?;
        }
    }
    Ok(())
}

/// A deal of which one batch is uploaded and not handed over; how many were. On a device that does nothing all
/// uploads are pending, so they can be counted.
fn with_one_ahead(loader: &mut Loader) -> Result<(Arc<Fake>, Arc<GpuDeal>, usize)> {
    let began = Instant::now();
    while began.elapsed() < DEADLINE {
        let (fake, target) = still();
        loader.set_epoch(3);
        let deal = loader.begin_on(&target, 1)?;
        for n_given in 1..5 {
            next(&deal, 0)?.context("a batch")?;
            if fake.n_pending_uploads() == n_given + 1 {
                return Ok((fake, deal, n_given));
            }
            // The workers make the next one meanwhile.
            thread::sleep(Duration::from_millis(20));
        }
    }
    bail!("no batch was ready ahead in {DEADLINE:?}")
}

#[test]
fn a_batch_that_was_uploaded_and_never_handed_over_was_never_taken() -> Result<()> {
    for how in ["close", "begin", "cancel"] {
        let mut loader = open(&json!({}))?;
        let (fake, deal, n_given) = with_one_ahead(&mut loader)?;
        let position = |loader: &mut Loader| -> Result<Value> {
            Ok(serde_json::from_str::<Value>(&loader.state()?)?["position"].clone())
        };
        ensure!(position(&mut loader)? == json!(2 * n_given), "{how}: before");
        match how {
            "close" => {
                drop(loader);
                let error = next(&deal, 0).err().context("closed")?;
                ensure!(matches!(error.downcast()?, RuntimeError::Closed));
            }
            "begin" => {
                let second = loader.begin(1)?;
                let error = next(&deal, 0).err().context("superseded")?;
                ensure!(matches!(error.downcast()?, RuntimeError::Superseded));
                ensure_permutation(ids(&rest_on_host(&second, 0)?))?;
            }
            _ => {
                deal.cancel();
                ensure!(next(&deal, 0)?.is_none());
                ensure!(position(&mut loader)? == json!(2 * n_given), "{how}: after");
            }
        }
        fake.run_all();
        ensure!(fake.wrongs().is_empty(), "{how}: {:?}", fake.wrongs());
    }
    Ok(())
}

#[test]
fn a_driver_that_fails_ends_the_epoch_and_its_state_goes_on() -> Result<()> {
    let expected = whole(&json!({}))?;
    let (device, target) = Device::new(9);
    let mut loader = open(&json!({}))?;
    let deal = loader.begin_on(&target, 1)?;
    let mut all = take(&deal, 3)?;
    device.fake.fail_next("upload");
    let error = loop {
        match next(&deal, 0) {
            Ok(Some(mut batch)) => all.push(taken(&mut batch)?),
            Ok(None) => bail!("it never failed"),
            Err(error) => break error.downcast::<RuntimeError>()?,
        }
    };
    ensure!(error.kind() == ErrorKind::Device, "{error}");
    ensure!(error.to_string().contains("told to fail"), "{error}");
    let again = next(&deal, 0).err().context("it is not an end")?;
    ensure!(matches!(again.downcast()?, RuntimeError::EndedByError { consumer: 0 }));
    ensure!(all[..] == expected[..all.len()]);
    let mut other = open(&json!({}))?;
    other.load_state(&loader.state()?)?;
    let after = rest_on_host(&*other.begin(1)?, 0)?;
    ensure!(rows(&after) == rows(&expected[all.len()..]), "after {}", all.len());
    drop((loader, deal));
    device.ensure_sound()
}

// ---- states and epochs ---------------------------------------------------------------------

#[test]
fn a_state_is_exact_at_every_batch_though_the_next_is_uploaded() -> Result<()> {
    let (device, target) = Device::new(2);
    let expected = whole(&json!({}))?;
    let mut loader = open(&json!({}))?;
    let deal = loader.begin_on(&target, 1)?;
    for n_taken in 0..N_BATCHES {
        let state = loader.state()?;
        let stats = loader.stats();
        ensure!(stats.front_batches == u64::from(n_taken), "{stats:?}");
        ensure!(loader.epoch() == 0, "the epoch runs until its end is asked for");
        let mut other = open(&json!({"workers": 3}))?;
        other.load_state(&state)?;
        let after = match n_taken % 2 {
            0 => rest(&*other.begin_on(&target, 1)?, 0)?,
            _ => rest_on_host(&*other.begin(1)?, 0)?,
        };
        ensure!(rows(&after) == rows(&expected[n_taken as usize..]), "after {n_taken}");
        take(&deal, 1)?;
    }
    ensure!(loader.epoch() == 0 && next(&deal, 0)?.is_none() && loader.epoch() == 1);
    device.ensure_sound()
}

#[test]
fn epochs_follow_each_other_on_either_side() -> Result<()> {
    let (device, target) = Device::new(4);
    let (other, elsewhere) = Device::new(5);
    let mut alone = open(&json!({}))?;
    let mut loader = open(&json!({}))?;
    // Prefetched in the first four, and thrown away where the next one ends elsewhere.
    for end in [0, 0, 0, 1, 0, 2, 2, 1, 1] {
        let expected = rest_on_host(&*alone.begin(1)?, 0)?;
        let epoch = match end {
            0 => rest(&*loader.begin_on(&target, 1)?, 0)?,
            1 => rest_on_host(&*loader.begin(1)?, 0)?,
            _ => rest(&*loader.begin_on(&elsewhere, 1)?, 0)?,
        };
        ensure!(epoch == expected, "epoch {}", alone.epoch());
    }
    device.ensure_sound()?;
    other.ensure_sound()
}

#[test]
fn consumers_on_threads_of_their_own_get_what_one_would() -> Result<()> {
    let (device, target) = Device::new(6);
    let expected = whole(&json!({}))?;
    let mut loader = open(&json!({}))?;
    let deal = loader.begin_on(&target, 3)?;
    let consume = |consumer| {
        let deal = Arc::clone(&deal);
        thread::spawn(move || rest(&deal, consumer))
    };
    let threads: Vec<_> = (0..3).map(consume).collect();
    let mut all = Vec::new();
    for thread in threads {
        let taken = thread.join().unwrap()?;
        ensure!(taken.len() == expected.len() / 3);
        all.extend(taken);
    }
    all.sort_unstable_by_key(|batch| batch.index);
    ensure!(all == expected);
    device.ensure_sound()
}

// ---- slots and paths -----------------------------------------------------------------------

#[test]
fn slots_are_page_locked_or_a_line_says_why_not() -> Result<()> {
    let (device, target) = Device::new(7);
    let expected = whole(&json!({}))?;
    let mut loader = open(&json!({}))?;
    ensure!(loader.stats().path.context("a path")?.starts_with("host (not p2p: no GPU"));
    ensure!(rest(&*loader.begin_on(&target, 1)?, 0)? == expected);
    ensure!(loader.path().live == GpuPath::Pinned);
    ensure!(loader.stats().path.context("a path")?.starts_with("pinned (not p2p: "));
    ensure!(loader.notes().next().is_none());

    // The registration of the ring fails: batches go through two slots that are pinned.
    let mut loader = open(&json!({}))?;
    device.fake.fail_next("register");
    ensure!(rest(&*loader.begin_on(&target, 1)?, 0)? == expected);
    let note = loader.notes().next().context("a note")?;
    ensure!(note.contains("not pinned") && note.contains("told to fail"), "{note}");
    let path = loader.stats().path.context("a path")?;
    ensure!(path.starts_with("host (") && path.contains("told to fail"), "{path}");
    device.ensure_sound()
}

#[test]
fn host_batches_are_page_locked_and_kept_until_a_copy_has_passed() -> Result<()> {
    let (fake, target) = still();
    let expected = whole(&json!({}))?;
    let mut loader = open(&json!({}))?;
    loader.pin_memory(&target)?;
    let deal = loader.begin(1)?;
    ensure!(loader.path().live == GpuPath::Pinned);
    let mut seen = Vec::new();
    while let Some(batch) = next_on_host(&deal, 0)? {
        ensure!(batch.is_page_locked() && fake.is_registered(batch.base()));
        seen.push(Taken::new(&batch));
        let base = batch.base();
        target.keep_until(ConsumerStream::DEFAULT, batch)?;
        ensure!(target.sweep() == 1, "its copy has not passed");
        ensure!(fake.is_registered(base));
        fake.run_all();
        ensure!(target.sweep() == 0, "it has");
    }
    ensure!(seen == expected);
    // If it cannot be pinned there is a note, and the epoch is unchanged.
    let mut loader = open(&json!({}))?;
    fake.fail_next("register");
    loader.pin_memory(&target)?;
    let note = loader.notes().next().context("a note")?;
    ensure!(note.contains("told to fail"), "{note}");
    let deal = loader.begin(1)?;
    let first = next_on_host(&deal, 0)?.context("a batch")?;
    ensure!(!first.is_page_locked() && Taken::new(&first) == expected[0]);
    ensure!(fake.wrongs().is_empty(), "{:?}", fake.wrongs());
    Ok(())
}

/// A machine without NVIDIA's driver.
#[test]
fn without_a_gpu_one_line_says_so() -> Result<()> {
    let Err(error) = GpuTarget::cuda(0) else {
        println!("skipped: there is a GPU here");
        return Ok(());
    };
    ensure!(error.kind() == ErrorKind::Device);
    let line = error.to_string();
    let said = ["cuda:0: no usable GPU: ", "device \"cpu\""];
    ensure!(
        said.iter().all(|part| line.contains(part)) && !line.contains('\n'),
        "{line}"
    );
    let asked = open(&json!({"device": "cuda:0"})).err().context("no GPU")?;
    ensure!(asked.to_string() == line, "{asked}");
    // Pinning is a wish.
    let mut loader: Loader = open(&json!({"pin_memory": true}))?;
    ensure!(loader.gpu().is_none());
    let note = loader.notes().next().context("a note")?;
    ensure!(note.contains("not pinned: cuda:0: no usable GPU"), "{note}");
    ensure!(loader.stats().path.context("a path")?.contains("not pinned: cuda:0"));
    ensure!(rest_on_host(&*loader.begin(1)?, 0)? == whole(&json!({}))?);
    Ok(())
}
