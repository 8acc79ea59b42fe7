//! The functions of a loader, which call `runtime::Loader`.
#![allow(
    unsafe_code,
    reason = "exporting a name of C is unsafe: it may be taken already"
)]
#![allow(non_camel_case_types, reason = "C's names")]

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bothends_runtime::{Home, Loader, Ranks, Registration, RunConfig, options_among};

use crate::epoch::be_epoch;
use crate::held::Form;
use crate::memory::{given, hand_over, text};
use crate::status::{Refusal, answer, be_status, door, name};

/// Feeds a training loop with one epoch after another. Any thread may call any function on it.
#[derive(Debug)]
pub struct be_loader {
    /// In a fork, a thread that does not exist there may hold the lock forever.
    home: Home,
    loader: Mutex<Loader>,
    form: Arc<Form>,
    /// Lets other ranks on this machine count this one.
    _registration: Option<Registration>,
}

/// Opens the data, reserves memory, starts and connects devices. `options_json` is one object,
/// such as `{"data": "/data/train", "recipe": "imagenet-train"}`; blocks on the file system
/// and the network. An unknown key is an error. `data` and `recipe` are required; the others have their defaults in
/// parentheses:
///
/// * `data`: path or URL of the data set, or an object with several to mix. `recipe`: a built-in recipe's name, a
///   file, or the recipe itself as an object.
/// * `batch_size` (64), `seed` (0), `limit` (all samples), `repeat` (1).
/// * `shuffle` (true): false keeps the order of the data.
/// * `fields` (none): a list of names of further fields of the samples, see `be_batch_field`.
/// * `workers` (`"auto"`): a number of threads; `"auto"` is one per core, divided by the ranks on this machine.
/// * `strategy` (`"ordered"`): or `"relaxed"`, `"mte"`, `"wrr"`, `"cpu"`, `"csd"`.
/// * `objective` (`"throughput"`): or `"energy"`, `"host-cpu-cap=P"`.
/// * `csds` (none): a list of devices, each as `--csd` of `bothends run` takes it. `require_devices` (false),
///   `key_file`, `tls_ca`, `tls_cert`, `tls_key` (none) and `insecure` (false) are for reaching them.
/// * `job` (none), `priority` (0), `share` (1): the training job, for agents that several jobs share.
/// * `output` (`"u8"`): or `"f32"`, `"f16"`, `"bf16"`. `layout` (`"nhwc"`): or `"nchw"`.
/// * `rank` (0) of `world_size` (1): they are not detected, so give both if several processes share an epoch.
/// * `last` (`"drop"`): or `"pad"`, which is the default of `bothends run`, `"wrap"`, `"even"`.
/// * `on_bad` (`"raise"`): or `"skip"`, `"replace"`, `"zero"`.
/// * `audit` (1): the percentage of the devices' batches of which the host remakes rows and compares them.
/// * `memory` (as much as is useful, up to an eighth of what is available): MiB that batches may take.
/// * `held_batches` (1): batches that the caller may hold at once.
/// * `reader` (`"auto"`): or `"io_uring"`, `"pread"`. `page_cache` (`"auto"`): or `"through"`, `"past"`.
/// * `side_index` (`"auto"`): or `"beside"`, `"off"`.
/// * `cache_size` (`"auto"`): or `"off"`, or bytes, also with a unit as in `"50G"`.
/// * `cache` (none): a directory for records fetched from a remote store, and for shards that have to be
///   decompressed, during which the first call blocks for as long as it takes to read and write all data.
/// * `fetch_requests` (256), `fetch_reorder` (by memory): for remote data, the most requests in flight, and the most
///   bytes requested and not yet with the workers, also as in `"256M"`.
/// * `fetch_patience` (120): seconds for which a remote store that has answered before may be gone.
/// * `device` (`"cpu"`): `"cuda:0"` delivers batches in that GPU's memory, see `be_batch_device`.
/// * `pin_memory` (false): true pins batches in host memory for the caller's copies.
///
/// # Safety
/// `options_json` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn be_loader_open(
    options_json: *const c_char,
    out: Option<&mut MaybeUninit<Option<Box<be_loader>>>>,
) -> be_status {
    answer(|| {
        let out = given(out, "out")?.write(None);
        // SAFETY: the caller guarantees text that ends with a zero byte.
        let json = unsafe { text(options_json, "options_json") }?;
        let (ranks, registration) =
            Ranks::here(|variable| std::env::var(variable).ok(), None);
        let config = RunConfig { names: name, ..options_among(json, ranks)? };
        let loader = Loader::open(config)?;
        let form = Arc::new(Form::new(&loader));
        let loader = Mutex::new(loader);
        let (home, _registration) = (Home::here(), registration);
        *out = Some(Box::new(be_loader { home, loader, form, _registration }));
        Ok(be_status::BE_OK)
    })
}

/// Begins the next epoch for `consumers` consumers, each of which gets as many batches as the
/// others: the epoch that `be_loader_set_epoch` named, else the one after the last that
/// delivered a batch. An epoch that was begun before is cancelled. Does not wait for a batch.
#[unsafe(no_mangle)]
pub extern "C" fn be_loader_begin(
    loader: Option<&be_loader>,
    consumers: u32,
    out: Option<&mut MaybeUninit<Option<Box<be_epoch>>>>,
) -> be_status {
    answer(|| {
        let out = given(out, "out")?.write(None);
        let loader = given(loader, "loader")?;
        let dealt = loader.turn()?.begin_as_told(consumers)?;
        *out = Some(Box::new(be_epoch::new(dealt, consumers, Arc::clone(&loader.form))));
        Ok(be_status::BE_OK)
    })
}

/// Chooses the next epoch.
#[unsafe(no_mangle)]
pub extern "C" fn be_loader_set_epoch(
    loader: Option<&be_loader>,
    epoch: u32,
) -> be_status {
    answer(|| {
        given(loader, "loader")?.turn()?.set_epoch(epoch);
        Ok(be_status::BE_OK)
    })
}

/// The current epoch; the next one after its end.
#[unsafe(no_mangle)]
pub extern "C" fn be_loader_epoch(
    loader: Option<&be_loader>,
    out: Option<&mut MaybeUninit<u32>>,
) -> be_status {
    tell(loader, out, |loader| Ok(loader.epoch()))
}

/// The position of the consumers, as text of at most 1 kB (with strategy `ordered`): batches that
/// were taken count, batches that are ready do not. Release it with `be_text_release`.
#[unsafe(no_mangle)]
pub extern "C" fn be_loader_state(
    loader: Option<&be_loader>,
    out: Option<&mut MaybeUninit<*mut c_char>>,
) -> be_status {
    tell_text(loader, out, |loader| Ok(loader.state()?))
}

/// Continues from a state of this or another process, also with a different number of workers,
/// devices or ranks. The current epoch is cancelled. The text must be as `be_loader_state` wrote it, byte
/// for byte; damage to one of version 1, which has no checksum, may go unnoticed.
///
/// # Safety
/// `state` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn be_loader_load_state(
    loader: Option<&be_loader>,
    state: *const c_char,
) -> be_status {
    answer(|| {
        let loader = given(loader, "loader")?;
        // SAFETY: the caller guarantees text that ends with a zero byte.
        let state = unsafe { text(state, "state") }?;
        loader.turn()?.load_state(state)?;
        Ok(be_status::BE_OK)
    })
}

/// The number of batches that each of `consumers` gets in a whole epoch.
#[unsafe(no_mangle)]
pub extern "C" fn be_loader_n_batches(
    loader: Option<&be_loader>,
    consumers: u32,
    out: Option<&mut MaybeUninit<u32>>,
) -> be_status {
    tell(loader, out, |loader| Ok(loader.n_batches(consumers)?))
}

/// The number of samples of the data set, repetitions included.
#[unsafe(no_mangle)]
pub extern "C" fn be_loader_n_samples(
    loader: Option<&be_loader>,
    out: Option<&mut MaybeUninit<u64>>,
) -> be_status {
    tell(loader, out, |loader| Ok(loader.n_samples()))
}

/// The number of named classes: labels are below it. 0 if the data have none.
#[unsafe(no_mangle)]
pub extern "C" fn be_loader_n_classes(
    loader: Option<&be_loader>,
    out: Option<&mut MaybeUninit<usize>>,
) -> be_status {
    tell(loader, out, |loader| Ok(loader.class_names().len()))
}

/// The name of a class by its label. Release it with `be_text_release`.
#[unsafe(no_mangle)]
pub extern "C" fn be_loader_class_name(
    loader: Option<&be_loader>,
    label: usize,
    out: Option<&mut MaybeUninit<*mut c_char>>,
) -> be_status {
    tell_text(loader, out, |loader| {
        let names = loader.class_names();
        let no_class = || {
            let line = format!("`label` is {label}; there are {} classes", names.len());
            Refusal::argument(line)
        };
        Ok((*names.get(label).ok_or_else(no_class)?).to_owned())
    })
}

/// Counters as a JSON object: of the epochs that are over, and the batches that the running one
/// has delivered. Release it with `be_text_release`.
#[unsafe(no_mangle)]
pub extern "C" fn be_loader_stats(
    loader: Option<&be_loader>,
    out: Option<&mut MaybeUninit<*mut c_char>>,
) -> be_status {
    tell_text(loader, out, |loader| {
        serde_json::to_string(&loader.stats()).map_err(|e| Refusal::bug(&e))
    })
}

/// Ends the current epoch, the devices and the threads, and releases the loader. NULL is
/// ignored. Its batches and epochs may be released later.
#[unsafe(no_mangle)]
pub extern "C" fn be_loader_close(loader: Option<Box<be_loader>>) {
    let _ = door(|| {
        drop(loader);
        Ok(())
    });
}

/// A function that asks the loader for one value.
fn tell<T>(
    loader: Option<&be_loader>,
    out: Option<&mut MaybeUninit<T>>,
    what: impl FnOnce(&mut Loader) -> Result<T, Refusal>,
) -> be_status {
    answer(|| {
        let out = given(out, "out")?;
        out.write(what(&mut *given(loader, "loader")?.turn()?)?);
        Ok(be_status::BE_OK)
    })
}

/// The same for text; `out` is NULL after an error.
fn tell_text(
    loader: Option<&be_loader>,
    out: Option<&mut MaybeUninit<*mut c_char>>,
    what: impl FnOnce(&mut Loader) -> Result<String, Refusal>,
) -> be_status {
    answer(|| {
        let out = given(out, "out")?;
        out.write(std::ptr::null_mut());
        hand_over(what(&mut *given(loader, "loader")?.turn()?)?, out);
        Ok(be_status::BE_OK)
    })
}

impl be_loader {
    /// The loader, for one thread at a time.
    fn turn(&self) -> Result<MutexGuard<'_, Loader>, Refusal> {
        self.home.check()?;
        Ok(self.loader.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
