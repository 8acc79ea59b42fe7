//! A loader and the consumers of an epoch, for Python.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bothends_core::ids::SampleId;
use bothends_core::order::{OrderConfig, Repeats};
use bothends_core::tensor::{Dtype, Layout};
use bothends_runtime::{
    Dealt, DecompressingWatch, Home, Loader, Notes, Polled, Ranks, Registration,
    RunConfig, RuntimeError,
};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::batch::{Batch, Form};
use crate::errors::{name, raised, stopped};
use crate::supplied::{self, Samples};

/// How long a wait lasts before Python's signals are checked.
const LOOK: Duration = Duration::from_millis(50);

/// The same while a GPU still uses returned memory, which may be what the wait needs.
const SHORT_LOOK: Duration = Duration::from_millis(1);

/// How long closing waits for a GPU to be done with what was given back, by whichever loader of the process, and how
/// often it asks. What takes longer is returned when another loader looks, or by the end of the process.
const RETURN_LIMIT: Duration = Duration::from_millis(200);
const RETURN_PAUSE: Duration = Duration::from_millis(2);

/// A loader, as `bothends.Loader` uses it. It is safe to use from many threads: one at a time
/// proceeds, and the others wait without the GIL.
#[pyclass(frozen, module = "bothends._native", name = "Loader")]
pub(crate) struct NativeLoader {
    /// `None` once it is closed.
    loader: Mutex<Option<Loader>>,
    /// Outside the lock, because every batch needs them.
    notes: Notes,
    form: Form,
    /// Lets other ranks on this machine count this one; dropped with the loader.
    registration: Mutex<Option<Registration>>,
    /// Set once, never reset: no consumer gets a batch any more.
    is_stopped: Arc<AtomicBool>,
}

/// Shows how far it is while shards are decompressed, on Python's standard error, which notebooks show, and lets
/// Python interrupt it; `interrupted` is what it raised then.
fn watched(interrupted: Arc<Mutex<Option<PyErr>>>) -> DecompressingWatch {
    let lines = DecompressingWatch::lines(|line| {
        Python::attach(|py| {
            // Nobody looks where there is no such stream.
            let written = py.import("sys").and_then(|sys| {
                sys.getattr("stderr")?
                    .call_method1("write", (format!("bothends: {line}\n"),))
            });
            drop(written);
        });
    });
    DecompressingWatch::new(move |progress| {
        let _ = lines.tell(progress);
        match Python::attach(|py| py.check_signals()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                let mut to = interrupted.lock().unwrap_or_else(PoisonError::into_inner);
                *to = Some(error);
                ControlFlow::Break(())
            }
        }
    })
}

#[pymethods]
impl NativeLoader {
    /// Opens a loader from its options (a JSON object), the samples if Python lists them, and a
    /// function that converts a record that the native decoders refuse to PNG; `parent` is the process
    /// that started this one as one of several. Blocks on the file system, on devices
    /// and on other ranks of the machine.
    #[new]
    #[pyo3(signature = (options, samples=None, redecode=None, parent=None))]
    fn new(
        py: Python<'_>,
        options: &str,
        samples: Option<&Samples>,
        redecode: Option<Py<PyAny>>,
        parent: Option<u32>,
    ) -> PyResult<Self> {
        let redecoder = redecode.map(supplied::redecoder);
        let interrupted = Arc::new(Mutex::new(None));
        let decompressing = watched(Arc::clone(&interrupted));
        let opened = py.detach(|| {
            let variable = |name: &str| std::env::var(name).ok();
            let (ranks, registration) = Ranks::here(variable, parent);
            let config = bothends_runtime::options_among(options, ranks)?;
            let supplied = samples.map(Samples::supplied).transpose()?;
            let config =
                RunConfig { supplied, redecoder, decompressing, names: name, ..config };
            let loader = Loader::open(config)?;
            Ok((loader, registration))
        });
        let (loader, registration) = opened.map_err(|error| {
            let mut interrupted =
                interrupted.lock().unwrap_or_else(PoisonError::into_inner);
            interrupted.take().unwrap_or_else(|| raised(py, &error))
        })?;
        let form = Form {
            views: loader.views().into(),
            output: loader.output(),
            held: Arc::new(AtomicUsize::new(0)),
            may_hold: loader.config().held_batches as usize,
            gpu: loader.gpu().cloned(),
            home: Home::here(),
            sources: loader.sources().cloned(),
        };
        let notes = loader.notes();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (loader, registration) = (Mutex::new(Some(loader)), Mutex::new(registration));
        Ok(Self { loader, notes, form, registration, is_stopped })
    }

    /// Begins the next epoch and returns its consumers; the previous epoch is cancelled.
    fn begin(&self, py: Python<'_>, consumers: u32) -> PyResult<Vec<Consumer>> {
        let dealt = self.with(py, |loader| loader.begin_as_told(consumers))?;
        let hand = Arc::new(Hand(dealt));
        let consumer = |number| self.consumer(Arc::clone(&hand), number);
        Ok((0..consumers).map(consumer).collect())
    }

    /// Begins the next epoch in the order of a sampler. `batches` are (records, ends): native
    /// i64, and native u64 that say where each batch ends among them; `part` is (rank, world) of
    /// whose part of an epoch it is, and how many batches to skip. `repeats` is "same" or "each": whether a record that
    /// comes again on another rank is the same sample there.
    fn begin_order(
        &self,
        py: Python<'_>,
        batches: (PyBackedBytes, PyBackedBytes),
        part: (u32, u32, u32),
        repeats: &str,
    ) -> PyResult<Consumer> {
        let repeats = match repeats {
            "each" => Repeats::OfEachRank,
            _ => Repeats::SameOnRanks,
        };
        let dealt = self.with(py, |loader| {
            let (rank, world, skip) = part;
            let config = OrderConfig { n_records: 0, rank, world, repeats, skip };
            let (records, ends) = &batches;
            let records: Vec<i64> = words(records).map(i64::from_ne_bytes).collect();
            let ends = words(ends).map(u64::from_ne_bytes).collect();
            let order = loader.order(config, &records, ends)?;
            loader.begin_order_as_told(Arc::new(order))
        })?;
        Ok(self.consumer(Arc::new(Hand(dealt)), 0))
    }

    /// Makes this process rank `rank` of `world` from the next epoch on.
    fn set_rank(&self, py: Python<'_>, rank: u32, world: u32) -> PyResult<()> {
        self.with(py, |loader| loader.set_rank(rank, world))
    }

    /// Chooses the next epoch.
    fn set_epoch(&self, py: Python<'_>, epoch: u32) -> PyResult<()> {
        self.with(py, |loader| {
            loader.set_epoch(epoch);
            Ok(())
        })
    }

    /// The current epoch; the next one after its end.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u32> {
        self.with(py, |loader| Ok(loader.epoch()))
    }

    /// The position of the consumers, as JSON.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, Loader::state)
    }

    /// Continues from a state; returns a line about it if its version is old.
    fn load_state(&self, py: Python<'_>, json: &str) -> PyResult<Option<&'static str>> {
        self.with(py, |loader| loader.load_state(json))
    }

    /// From now on every consumer, also one that waits, raises `Stopped` instead of returning a batch.
    /// This only sets a flag, so a signal handler may call it.
    fn stop(&self) {
        // Only a flag; nothing else is published with it.
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Whether it was told to stop.
    #[getter]
    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Ends the current epoch, its threads and devices, and waits for them. Tensors stay valid.
    fn close(&self, py: Python<'_>) {
        if self.form.home.is_here() {
            py.detach(|| {
                drop(self.loader().take());
                // Nobody else looks afterwards whether a GPU is done with memory that was returned.
                let end = Instant::now() + RETURN_LIMIT;
                while self.form.sweep() && Instant::now() < end {
                    std::thread::sleep(RETURN_PAUSE);
                }
            });
            let registration = self.registration.lock();
            drop(registration.unwrap_or_else(PoisonError::into_inner).take());
        }
    }

    /// The first of these samples, each a path ("" is any) and a label, for which the loader has
    /// another file or label; None if all are the same.
    fn first_difference(
        &self,
        py: Python<'_>,
        samples: Vec<(String, i64)>,
    ) -> PyResult<Option<usize>> {
        self.with(py, |loader| {
            let differs = |(i, (path, label)): (usize, &(String, i64))| {
                let own = loader.sample(SampleId(i as u64));
                let is_file = |file: &str| path.is_empty() || path.ends_with(file);
                own.is_none_or(|(file, own)| own.0 != *label || !is_file(&file))
            };
            Ok(samples.iter().enumerate().position(differs))
        })
    }

    /// The number of batches that each of this many consumers gets in a whole epoch.
    fn n_batches(&self, py: Python<'_>, consumers: u32) -> PyResult<u32> {
        self.with(py, |loader| loader.n_batches(consumers))
    }

    /// The number of samples in an epoch.
    #[getter]
    fn n_samples(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |loader| Ok(loader.n_samples()))
    }

    /// The hash of the table of samples: names, lengths, labels. Reads all of the table the first time.
    #[getter]
    fn table_hash(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |loader| Ok(loader.data_set().table_hash))
    }

    /// A sample's file, relative to the data set, and its label; None if there is no such sample.
    fn sample(&self, py: Python<'_>, sample: u64) -> PyResult<Option<(String, i64)>> {
        self.with(py, |loader| {
            let found = loader.sample(SampleId(sample));
            Ok(found.map(|(file, label)| (file, label.0)))
        })
    }

    /// The names of the classes by label; empty if the data have none.
    #[getter]
    fn class_names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |loader| {
            Ok(loader.class_names().into_iter().map(str::to_owned).collect())
        })
    }

    /// The names of the data sets, if several are mixed.
    #[getter]
    fn sources(&self) -> Vec<String> {
        let sources = self.form.sources.as_deref();
        sources.map_or_else(Vec::new, |sources| sources.names().to_vec())
    }

    /// Whether labels are shares of classes.
    #[getter]
    fn mixes(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |loader| Ok(loader.mixes()))
    }

    /// One line about how the data were read, or how much of the machine is used, if that may be
    /// surprising.
    #[getter]
    fn note(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with(py, |loader| Ok(loader.note()))
    }

    /// What has happened to devices since the last call, a line each. Does not block.
    fn notes(&self) -> Vec<String> {
        if !self.form.home.is_here() {
            // They belong to the parent process.
            return Vec::new();
        }
        std::iter::from_fn(|| self.notes.next()).collect()
    }

    /// Height, width and channels of each view of a sample.
    #[getter]
    fn view_shapes(&self) -> Vec<(u32, u32, u32)> {
        let views = self.form.views.iter();
        views.map(|shape| (shape.height, shape.width, shape.channels)).collect()
    }

    /// Element type: u8, f32, f16 or bf16.
    #[getter]
    fn output(&self) -> &'static str {
        match self.form.output.dtype {
            Dtype::U8 => "u8",
            Dtype::F32 => "f32",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
        }
    }

    /// nhwc or nchw.
    #[getter]
    fn layout(&self) -> &'static str {
        match self.form.output.layout {
            Layout::Nhwc => "nhwc",
            Layout::Nchw => "nchw",
        }
    }

    /// What the loader has done, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        let stats = self.with(py, |loader| Ok(loader.stats()))?;
        serde_json::to_string(&stats)
            .map_err(|error| pyo3::exceptions::PyRuntimeError::new_err(error.to_string()))
    }
}

impl NativeLoader {
    /// Does something with the loader while other Python threads continue.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Loader) -> Result<T, RuntimeError> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| {
            // In a fork, a thread that does not exist there may hold the lock forever.
            self.form.home.check()?;
            let mut loader = self.loader();
            work(loader.as_mut().ok_or_else(closed)?)
        });
        done.map_err(|error| raised(py, &error))
    }

    fn consumer(&self, hand: Arc<Hand>, number: u32) -> Consumer {
        let is_stopped = Arc::clone(&self.is_stopped);
        Consumer { hand, form: self.form.clone(), number, is_stopped }
    }

    fn loader(&self) -> MutexGuard<'_, Option<Loader>> {
        self.loader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of this process's GPU among those that it sees: its local rank according to the
/// launcher's variables, or else 0.
#[pyfunction]
pub(crate) fn own_gpu() -> u32 {
    Ranks::told_by(|name| std::env::var(name).ok()).gpu()
}

/// The path or URL of a data set for messages: without a user and a password.
#[pyfunction]
pub(crate) fn without_secrets(data: &str) -> String {
    bothends_runtime::without_secrets(data)
}

/// Words of eight bytes.
fn words(bytes: &[u8]) -> impl Iterator<Item = [u8; 8]> + '_ {
    bytes.chunks_exact(8).map(|word| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        bytes
    })
}

fn closed() -> RuntimeError {
    RuntimeError::Options("the loader is closed; make another one".to_owned())
}

/// An epoch, owned by its consumers; it is cancelled when none of them is left.
struct Hand(Dealt);

impl Drop for Hand {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// One consumer of an epoch: an iterator over its batches.
#[pyclass(frozen, module = "bothends._native")]
pub(crate) struct Consumer {
    hand: Arc<Hand>,
    form: Form,
    number: u32,
    is_stopped: Arc<AtomicBool>,
}

#[pymethods]
impl Consumer {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// The next batch. Waits without the GIL; a signal (Ctrl-C) and the loader's `stop` end the wait.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        loop {
            if self.is_stopped.load(Ordering::Relaxed) {
                return Err(stopped(py));
            }
            // Making it may need a copy, which must not block other threads either.
            let polled = py.detach(|| self.poll());
            match polled.map_err(|error| raised(py, &error))? {
                Polled::Batch(batch) => return Ok(Some(batch)),
                Polled::End => return Ok(None),
                Polled::Pending => py.check_signals()?,
            }
        }
    }
}

impl Consumer {
    fn poll(&self) -> Result<Polled<Batch>, RuntimeError> {
        // In a fork, a thread that does not exist there may hold the GPU's locks forever.
        self.form.home.check()?;
        let patience = if self.form.sweep() { SHORT_LOOK } else { LOOK };
        Ok(match &self.hand.0 {
            Dealt::Host(deal) => {
                deal.poll(self.number, patience)?.map(|batch| self.form.batch(batch))
            }
            Dealt::Gpu(deal) => {
                deal.poll(self.number, patience)?.map(|batch| self.form.gpu_batch(batch))
            }
        })
    }
}
