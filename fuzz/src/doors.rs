//! A program in C: the doors of `crates/capi` in any order, with any texts and numbers. Read
//! `lib.rs` first.
//!
//! It keeps what the header asks of a program (text ends, nothing is used after its release) and
//! nothing else: pointers are NULL wherever they may be, loaders go before their epochs and batches,
//! or behind them. What reaches beyond the fixtures, or only takes long, is tamed: this runs on
//! people's machines, for hours.

#![allow(unsafe_code, reason = "C's doors take texts and room by their addresses")]

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::path::{Component, Path, PathBuf};
use std::ptr::{null, null_mut};

use bothends_capi::batch::*;
use bothends_capi::device::{be_batch_device, be_batch_lend};
use bothends_capi::field::{be_batch_field, be_batch_n_fields, be_batch_row_offsets};
use bothends_capi::epoch::*;
use bothends_capi::loader::*;
use bothends_capi::memory::be_text_release;
use bothends_capi::status::be_status::*;
use bothends_capi::status::{be_abi_version, be_last_error, be_status, be_version};
use bothends_core::recipe::Recipe;
use bothends_runtime::DeviceSpec;
use serde_json::{Map, Value};

use crate::is_large;

/// Handles of a kind that are held at once; one more lets the first one go.
const MOST_HELD: usize = 3;

/// A C program: the bytes are options, a state, and calls, each with a number. No door panics, and
/// whatever fails says so in one line.
pub fn capi(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let [options, state, calls] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let text = |bytes: Vec<u8>| CString::new(bytes).expect("it was split at zeros");
    let mut program = Program {
        options: text(tamed(options)),
        state: text(state.to_vec()),
        ..Program::default()
    };
    for call in calls.chunks(2).take(32) {
        program.call(call[0], call.get(1).copied().unwrap_or_default());
    }
    program.end(calls.len() % 2 == 1);
}

/// What it holds.
#[derive(Default)]
struct Program {
    options: CString,
    state: CString,
    loaders: Vec<Box<be_loader>>,
    epochs: Vec<Box<be_epoch>>,
    batches: Vec<Box<be_batch>>,
}

/// One of them, or NULL.
fn one_of<T>(held: &[Box<T>], number: u8) -> Option<&T> {
    held.get(usize::from(number) % (held.len() + 1)).map(|handle| &**handle)
}

/// Takes one away from there, or NULL.
fn taken_of<T>(held: &mut Vec<Box<T>>, number: u8) -> Option<Box<T>> {
    let at = usize::from(number) % (held.len() + 1);
    (at < held.len()).then(|| held.remove(at))
}

/// No mistake of the library's, and a line for every other one.
fn checked(status: be_status) -> be_status {
    assert_ne!(status, BE_ERROR_BUG, "{}", last_error());
    if (status as i32) < 0 {
        let line = last_error();
        assert!(!line.is_empty() && !line.contains('\n'), "{status:?}: {line:?}");
    }
    status
}

fn last_error() -> String {
    // SAFETY: it ends, and is valid until the next call that fails.
    let line = unsafe { CStr::from_ptr(be_last_error()) };
    line.to_str().expect("text of ours").to_owned()
}

impl Program {
    fn call(&mut self, what: u8, number: u8) {
        let wild = [0, 1, 2, 3, 7, u32::MAX][usize::from(number % 6)];
        match what % 18 {
            0 => self.open(number),
            1 => self.begin(number, wild),
            2 => drop(checked(be_loader_set_epoch(self.loader(number), wild))),
            3 => self.ask(number, wild),
            4 => self.go_on_from_its_own_state(number),
            5 => self.load_state(number),
            6 => self.names(number),
            7 => self.stats(number),
            8..=10 => self.next(number, wild),
            11 => be_epoch_cancel(one_of(&self.epochs, number)),
            12 => self.cancelled_has_no_end_to_wait_for(number),
            13 => be_epoch_close(taken_of(&mut self.epochs, number)),
            14 => look(one_of(&self.batches, number), number),
            15 => soft_labels(one_of(&self.batches, number), wild, number),
            16 => be_batch_release(taken_of(&mut self.batches, number)),
            _ => be_loader_close(taken_of(&mut self.loaders, number)),
        }
    }

    fn loader(&self, number: u8) -> Option<&be_loader> {
        one_of(&self.loaders, number)
    }

    fn open(&mut self, number: u8) {
        let options = if number == 7 { null() } else { self.options.as_ptr() };
        let mut out = MaybeUninit::new(None);
        let to = (number != 8).then_some(&mut out);
        // SAFETY: text that ends, or NULL.
        let status = checked(unsafe { be_loader_open(options, to) });
        // SAFETY: there was a value before the call, too.
        let loader = unsafe { out.assume_init() };
        assert_eq!(loader.is_some(), status == BE_OK);
        self.loaders.extend(loader);
        if self.loaders.len() > MOST_HELD {
            be_loader_close(Some(self.loaders.remove(0)));
        }
    }

    fn begin(&mut self, number: u8, consumers: u32) {
        let mut out = MaybeUninit::new(None);
        let to = (number != 8).then_some(&mut out);
        let status = checked(be_loader_begin(self.loader(number / 8), consumers, to));
        // SAFETY: there was a value before the call, too.
        let epoch = unsafe { out.assume_init() };
        assert_eq!(epoch.is_some(), status == BE_OK);
        self.epochs.extend(epoch);
        if self.epochs.len() > MOST_HELD {
            be_epoch_close(Some(self.epochs.remove(0)));
        }
    }

    /// The numbers that a loader knows.
    fn ask(&self, number: u8, consumers: u32) {
        let loader = self.loader(number);
        checked(be_loader_epoch(loader, Some(&mut MaybeUninit::uninit())));
        let mut n_batches = MaybeUninit::new(0);
        let mut n_samples = MaybeUninit::new(0);
        let status =
            checked(be_loader_n_batches(loader, consumers, Some(&mut n_batches)));
        checked(be_loader_n_samples(loader, Some(&mut n_samples)));
        checked(be_loader_n_samples(loader, None));
        // SAFETY: there were values before the calls, too.
        let n_batches = unsafe { n_batches.assume_init() };
        // SAFETY: as above.
        let n_samples = unsafe { n_samples.assume_init() };
        // One more where the last one is not full.
        assert!(status != BE_OK || u64::from(n_batches) <= n_samples + 1);
    }

    fn go_on_from_its_own_state(&self, number: u8) {
        let loader = self.loader(number);
        let Some(state) = text_of(|out| be_loader_state(loader, out)) else { return };
        let state = CString::new(state).expect("text without a zero");
        // SAFETY: text that ends.
        let status = unsafe { be_loader_load_state(loader, state.as_ptr()) };
        assert_eq!(checked(status), BE_OK, "{state:?}: {}", last_error());
    }

    fn load_state(&self, number: u8) {
        let state = if number % 8 == 7 { null() } else { self.state.as_ptr() };
        // SAFETY: text that ends, or NULL.
        let status = unsafe { be_loader_load_state(self.loader(number / 8), state) };
        checked(status);
    }

    fn names(&self, number: u8) {
        let loader = self.loader(number);
        let mut n_classes = MaybeUninit::new(0);
        checked(be_loader_n_classes(loader, Some(&mut n_classes)));
        // SAFETY: there was a value before the call, too.
        let n_classes = unsafe { n_classes.assume_init() };
        for label in [0, usize::from(number), n_classes, usize::MAX] {
            let name = text_of(|out| be_loader_class_name(loader, label, out));
            assert_eq!(name.is_some(), label < n_classes);
        }
    }

    fn stats(&self, number: u8) {
        let loader = self.loader(number);
        if let Some(stats) = text_of(|out| be_loader_stats(loader, out)) {
            let stats: Value = serde_json::from_str(&stats).expect("JSON");
            assert!(stats["front_batches"].is_u64(), "{stats}");
        }
        checked(be_loader_stats(loader, None));
    }

    fn next(&mut self, number: u8, consumer: u32) {
        let timeout_ms = [20, 1, 0][usize::from(number / 6 % 3)];
        let mut out = MaybeUninit::new(None);
        let to = (number != 8).then_some(&mut out);
        let epoch = one_of(&self.epochs, number / 8);
        let status = checked(be_epoch_next(epoch, consumer, timeout_ms, to));
        // SAFETY: there was a value before the call, too.
        let batch = unsafe { out.assume_init() };
        assert_eq!(batch.is_some(), status == BE_BATCH);
        self.batches.extend(batch);
        if self.batches.len() > MOST_HELD {
            be_batch_release(Some(self.batches.remove(0)));
        }
    }

    fn cancelled_has_no_end_to_wait_for(&self, number: u8) {
        let epoch = one_of(&self.epochs, number);
        be_epoch_cancel(epoch);
        let mut out = MaybeUninit::new(None);
        let status = checked(be_epoch_next(epoch, 0, BE_FOREVER, Some(&mut out)));
        assert!(status == BE_STOPPED || (epoch.is_none() && status == BE_ERROR_ARGUMENT));
    }

    /// Lets all go: loaders first, or last.
    fn end(self, loaders_first: bool) {
        let Self { loaders, epochs, batches, .. } = self;
        let mut late = Vec::new();
        for loader in loaders {
            if loaders_first {
                be_loader_close(Some(loader));
            } else {
                late.push(loader);
            }
        }
        epochs.into_iter().for_each(|epoch| be_epoch_close(Some(epoch)));
        for batch in batches {
            look(Some(&*batch), 0);
            be_batch_release(Some(batch));
        }
        late.into_iter().for_each(|loader| be_loader_close(Some(loader)));
        be_loader_close(None);
        be_epoch_close(None);
        be_batch_release(None);
        // SAFETY: NULL is nothing to do.
        unsafe { be_text_release(null_mut()) };
        assert_eq!(be_abi_version(), bothends_capi::status::BE_ABI_VERSION);
        // SAFETY: text of the library's, which stays.
        assert!(!unsafe { CStr::from_ptr(be_version()) }.is_empty());
    }
}

/// The text that a door hands over; `None` where it fails.
fn text_of(
    door: impl FnOnce(Option<&mut MaybeUninit<*mut c_char>>) -> be_status,
) -> Option<String> {
    let mut out = MaybeUninit::new(null_mut());
    let status = checked(door(Some(&mut out)));
    // SAFETY: there was a value before the call, too.
    let text = unsafe { out.assume_init() };
    assert_eq!(text.is_null(), status != BE_OK);
    if text.is_null() {
        return None;
    }
    // SAFETY: it ends, and is ours until it is released.
    let owned = unsafe { CStr::from_ptr(text) }.to_str().expect("UTF-8").to_owned();
    // SAFETY: a door handed it over, and it is not used again.
    unsafe { be_text_release(text) };
    Some(owned)
}

/// What a batch says of itself agrees, and its memory is there.
fn look(batch: Option<&be_batch>, number: u8) {
    let n_rows = be_batch_n_rows(batch);
    let (len, each) = (be_batch_len_bytes(batch), be_batch_sample_bytes(batch));
    let n_valid = be_batch_n_valid(batch);
    let mut field = MaybeUninit::uninit();
    let status = checked(be_batch_field(batch, usize::from(number), Some(&mut field)));
    assert_eq!(status == BE_OK, usize::from(number) < be_batch_n_fields(batch));
    if !be_batch_row_offsets(batch).is_null() {
        // Rows are files, and none of the rest is the same for all.
        return assert!(each == 0 && be_batch_n_views(batch) == 0);
    }
    assert!(len == n_rows * each && n_valid <= n_rows);
    let mut view = MaybeUninit::uninit();
    let n_views = be_batch_n_views(batch);
    for nth in [usize::from(number), n_views, usize::MAX] {
        let status = checked(be_batch_view(batch, nth, Some(&mut view)));
        assert_eq!(status == BE_OK, nth < n_views);
    }
    checked(be_batch_view(batch, 0, None));
    let mut device = MaybeUninit::uninit();
    let status = checked(be_batch_device(batch, Some(&mut device)));
    assert_eq!(status == BE_OK, batch.is_some());
    // SAFETY: the default stream is always there, and a batch in host memory needs none.
    checked(unsafe { be_batch_lend(batch, null_mut()) });
    let codes = [be_batch_dtype(batch), be_batch_layout(batch), be_batch_prong(batch)];
    let data = be_batch_data(batch).cast::<u8>();
    if batch.is_none() {
        assert_eq!(codes, [BE_ERROR_ARGUMENT as i32; 3]);
        return assert!(data.is_null() && n_views == 0);
    }
    assert!(codes.iter().all(|code| *code >= 0), "{codes:?}");
    // SAFETY: so many bytes are there until the batch is released.
    let data = unsafe { std::slice::from_raw_parts(data, len) };
    // SAFETY: one for each row, as long.
    let mask = unsafe { std::slice::from_raw_parts(be_batch_mask(batch), n_rows) };
    // SAFETY: as above.
    let ids = unsafe { std::slice::from_raw_parts(be_batch_sample_ids(batch), n_rows) };
    // SAFETY: as above.
    let labels = unsafe { std::slice::from_raw_parts(be_batch_labels(batch), n_rows) };
    assert_eq!(mask.iter().filter(|is| **is == 1).count(), n_valid);
    let is_black = |row: &[u8]| row.iter().all(|byte| *byte == 0);
    for row in n_valid..n_rows {
        assert_eq!((mask[row], ids[row], labels[row]), (0, u64::MAX, -1));
        let bytes = &data[row * each..][..each];
        assert!(codes[0] != be_dtype::BE_U8 as i32 || is_black(bytes));
    }
}

fn soft_labels(batch: Option<&be_batch>, n_classes: u32, number: u8) {
    let n_classes = n_classes as usize;
    let len = be_batch_n_rows(batch).saturating_mul(n_classes).min(1 << 16);
    let mut room = vec![f32::NAN; len];
    let out = if number == 8 { null_mut() } else { room.as_mut_ptr() };
    // SAFETY: there is place for `len` floats, or NULL.
    let status = unsafe { be_batch_soft_labels(batch, n_classes, out, len) };
    if checked(status) == BE_OK {
        assert!(room.iter().all(|share| (0.0..=1.0).contains(share)), "{room:?}");
    }
}

// ---- options ----------------------------------------------------------------------------

/// The options as they are, except for what reaches beyond the fixtures (paths, devices, the cache) or
/// only takes long (threads, large batches and samples). Text that is no object is refused as it is.
/// None at all are good ones.
fn tamed(options: &[u8]) -> Vec<u8> {
    let options = match options {
        [] => br#"{"data": "small", "recipe": "imagenet-eval", "batch_size": 2}"#,
        _ => options,
    };
    let Ok(Value::Object(mut keys)) = serde_json::from_slice(options) else {
        return options.to_vec();
    };
    for key in ["data", "key_file"] {
        if let Some(Value::String(path)) = keys.get_mut(key) {
            *path = in_fixtures(path);
        }
    }
    match keys.get_mut("recipe") {
        Some(Value::String(name)) if Recipe::builtin(name).is_none() => {
            *name = in_fixtures(name);
        }
        Some(Value::Object(recipe))
            if is_large(&Value::from(recipe.clone()).to_string()) =>
        {
            recipe.clear();
        }
        _ => {}
    }
    if let Some(Value::Array(devices)) = keys.get_mut("csds") {
        devices.truncate(3);
        devices.iter_mut().for_each(out_of_reach);
    }
    keys.entry("workers").or_insert(1.into());
    keys.entry("side_index").or_insert("off".into());
    if ["auto", "beside"].iter().any(|place| keys["side_index"] == *place) {
        keys.insert("side_index".to_owned(), "off".into());
    }
    if keys["workers"] == "auto" {
        keys.insert("workers".to_owned(), 2.into());
    }
    for (key, most) in
        [("workers", 3), ("batch_size", 16), ("held_batches", 4), ("repeat", 99)]
    {
        at_most(&mut keys, key, most);
    }
    Value::from(keys).to_string().into_bytes()
}

/// A path from the fixtures on, and not out of them.
fn in_fixtures(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/stream");
    let parts = Path::new(path).components();
    let inside: PathBuf =
        parts.filter(|part| matches!(part, Component::Normal(_))).collect();
    root.join(inside).display().to_string()
}

/// A device that can be meant becomes one that is not there.
fn out_of_reach(device: &mut Value) {
    if device.as_str().is_some_and(|spec| spec.parse::<DeviceSpec>().is_ok()) {
        *device = "unix:///nowhere/device".into();
    }
}

/// A number that means something means no more than that.
fn at_most(keys: &mut Map<String, Value>, key: &str, most: u64) {
    if let Some(value) = keys.get_mut(key)
        && let Some(number) = value.as_u64().filter(|n| (1..=u32::MAX.into()).contains(n))
    {
        *value = (1 + (number - 1) % most).into();
    }
}
