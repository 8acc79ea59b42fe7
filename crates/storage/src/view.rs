//! The face for formats: files as `dataset` sees them, over any objects.
//!
//! A listing is fetched once and kept: formats look into every folder anyway, and one listing of everything
//! costs a remote store fewer requests than one per folder. Small reads are served from windows that
//! grow while a file is read from front to back.

pub(crate) mod listing;

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bothends_dataset::{Entry, Kind, Storage, Version};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::runtime::Runtime;

use crate::fetcher::progress::{Progress, Timer};
use crate::objects::is_plain;
use crate::retry::{self, Pauses};
use crate::{Identity, Labelled, Listed, Objects, StorageError, fetcher};
use listing::{Building, Listing};

/// The first window of a file, and the longest one.
const WINDOW: u64 = 64 << 10;
const LONGEST_WINDOW: u64 = 8 << 20;
/// Files that are walked through at the same time: so many of a walk's small reads are under way at once.
const AT_ONCE: usize = 32;
/// Files whose last window is kept: two of each that is walked through, since it may leave one for the next.
const MOST_WINDOWS: usize = 2 * AT_ONCE;
/// Bytes of all windows together.
const MOST_WINDOW_BYTES: u64 = 64 << 20;
/// A read that brings less than this in a second, on average, is given up.
const SLOWEST: u64 = 128 << 10;
/// A connection that is silent for so long is not waited for: there is time for two more attempts on others.
const SILENT: Duration = Duration::from_secs(4);
/// How long a listing may bring no name: a store may have to look at a hundred million others first.
const NO_NAME: Duration = Duration::from_secs(600);
/// Files that are asked for one by one before folders are listed: a list may name a million.
const MOST_IDENTIFIED: u32 = 32;
/// Folders at the top whose files are looked for before everything is listed.
const MOST_FOLDERS: usize = 32;

/// Objects as files. Calls block and may come from any thread of the process that made the view.
#[derive(Debug)]
pub struct View {
    objects: Arc<dyn Objects>,
    /// Taken out by `drop`.
    runtime: Option<Runtime>,
    process: u32,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Folders with all of their objects; `""` is everything.
    folders: Vec<(String, Listing)>,
    /// Objects that were asked for one by one; `None` is a file that was looked for in vain.
    identified: BTreeMap<Box<str>, Option<Identity>>,
    /// What [`Storage::kind`] was asked for that no listing has.
    sought: Box<Sought>,
    windows: HashMap<String, Window>,
    /// Counts reads, to find the window that was not used for the longest time.
    n_reads: u64,
}

/// Single files that were looked for, and where.
#[derive(Debug, Default)]
struct Sought {
    n: u32,
    /// How many of them are in no folder.
    n_outside: u32,
    /// By the first part of their paths, the deepest folder that all of these are in.
    folders: BTreeMap<Box<str>, Box<str>>,
    /// The store cannot list.
    is_in_vain: bool,
}

impl Sought {
    /// The folder that is to be listed now that `path` is looked for, if there have been many: one that has all files of
    /// its part of the tree so far. What lies next to a list and is not in it may be much more than what is.
    fn folder(&mut self, path: &str) -> Option<String> {
        if self.is_in_vain {
            return None;
        }
        self.n = self.n.saturating_add(1);
        let Some((parent, _)) = path.rsplit_once('/') else {
            self.n_outside = self.n_outside.saturating_add(1);
            return (self.n_outside > MOST_IDENTIFIED).then(String::new);
        };
        let top = parent.split('/').next().unwrap_or(parent);
        if !self.folders.contains_key(top) && self.folders.len() >= MOST_FOLDERS {
            return (self.n > MOST_IDENTIFIED).then(String::new);
        }
        let folder = self.folders.entry(top.into()).or_insert_with(|| parent.into());
        while !is_below(folder, parent) {
            let above = folder.rsplit_once('/').map_or(top, |(above, _)| above);
            *folder = above.into();
        }
        (self.n > MOST_IDENTIFIED).then(|| folder.to_string())
    }
}

#[derive(Debug, Clone)]
struct Window {
    at: u64,
    bytes: Bytes,
    used: u64,
}

impl Known {
    /// The listing that has `path` if it is anywhere.
    fn listing(&self, path: &str) -> Option<&Listing> {
        let covers = |folder: &str| folder.is_empty() || is_below(folder, path);
        let found = self.folders.iter().find(|(folder, _)| covers(folder));
        found.map(|(_, listing)| listing)
    }

    fn is_listed(&self, path: &str) -> bool {
        self.listing(path).is_some()
    }

    /// What is known of a file.
    fn identity(&self, path: &str) -> Option<Identity> {
        let listed = self.listing(path).and_then(|listing| listing.get(path));
        let listed = listed.map(|known| known.identity);
        listed.or_else(|| self.identified.get(path).cloned().flatten())
    }

    /// The length of a file that was asked for by itself, and not listed.
    fn identified(&self, path: &str) -> Option<u64> {
        let identity = self.identified.get(path).filter(|_| !self.is_listed(path));
        identity?.as_ref().map(|identity| identity.len)
    }

    /// Whether the windows are within their bounds.
    fn has_room(&self) -> bool {
        let bytes = self.windows.values().map(|window| window.bytes.len() as u64);
        self.windows.len() <= MOST_WINDOWS && bytes.sum::<u64>() <= MOST_WINDOW_BYTES
    }

    /// Whether it was looked for in vain, and is not listed since.
    fn is_missing(&self, path: &str) -> bool {
        matches!(self.identified.get(path), Some(None)) && self.identity(path).is_none()
    }
}

/// Whether `path` is `folder` or lies below it.
fn is_below(folder: &str, path: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl View {
    /// A view of all objects. Asks for nothing yet.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn start(objects: Arc<dyn Objects>) -> io::Result<Self> {
        let runtime = Some(fetcher::runtime()?);
        let process = std::process::id();
        Ok(Self { objects, runtime, process, known: Mutex::default() })
    }

    /// The objects.
    #[must_use]
    pub fn objects(&self) -> &Arc<dyn Objects> {
        &self.objects
    }

    /// What the file at `path` is recognised by: from the listing, if there was one. A file that
    /// [`Storage::kind`] looked for in vain has no bytes: it may be in a list nonetheless.
    ///
    /// # Errors
    /// The store's.
    pub fn identity(&self, path: &str) -> Result<Identity, StorageError> {
        if self.known().is_missing(path) {
            return Ok(Identity { len: 0, modified: None, etag: None });
        }
        self.identified(path)
    }

    fn identified(&self, path: &str) -> Result<Identity, StorageError> {
        if let Some(identity) = self.known().identity(path) {
            return Ok(identity);
        }
        let identity = self.wait(self.objects.identify(path))??;
        self.known().identified.insert(path.into(), Some(identity.clone()));
        Ok(identity)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<T: Send>(
        &self,
        future: impl Future<Output = T> + Send,
    ) -> Result<T, StorageError> {
        let runtime = self.runtime.as_ref();
        let runtime = runtime.filter(|_| self.process == std::process::id());
        let runtime = runtime.ok_or(StorageError::Forked)?;
        if tokio::runtime::Handle::try_current().is_err() {
            return Ok(runtime.block_on(future));
        }
        // A thread that drives a runtime of the caller's cannot drive ours.
        std::thread::scope(|scope| {
            let work = || runtime.block_on(future);
            let thread = std::thread::Builder::new().spawn_scoped(scope, work);
            let thread = thread.map_err(|error| StorageError::Refused {
                place: self.shown(""),
                why: format!("no thread to wait on: {error}"),
            })?;
            thread.join().map_err(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Fetches the listing of all that lies below `path`, if it is not known.
    fn learn(&self, path: &str) -> Result<(), StorageError> {
        if self.known().is_listed(path) {
            return Ok(());
        }
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let listing = self.wait(async {
            let (mut building, mut again) = (Building::default(), Again::default());
            let mut stream = self.objects.list(&prefix);
            let broken = |why| StorageError::Broken { place: self.shown(path), why };
            let late = |_| broken(format!("no name came for {} s", NO_NAME.as_secs()));
            while let Some(one) =
                tokio::time::timeout(NO_NAME, stream.next()).await.map_err(late)?
            {
                let Listed { name, identity, label } = one?;
                if again.is_endless(&name) {
                    return Err(broken(format!("it lists `{name}` again and again")));
                }
                building.push(&name, listing::Known { identity, label });
            }
            Ok::<_, StorageError>(building.end())
        })??;
        let mut known = self.known();
        // What is below is in it, too.
        known.folders.retain(|(folder, _)| !path.is_empty() && !is_below(path, folder));
        known.folders.push((path.to_owned(), listing));
        Ok(())
    }

    fn has_below(&self, path: &str) -> Result<bool, StorageError> {
        self.learn(path)?;
        let known = self.known();
        let prefix = format!("{path}/");
        Ok(known.listing(path).is_some_and(|listing| {
            listing
                .from(&prefix)
                .next()
                .is_some_and(|(full, _)| full.starts_with(&prefix))
        }))
    }

    /// Whether the listing says what `path` is. A few files are asked for one by one; of many, the folder
    /// is listed, where the store can list.
    fn is_listed(&self, path: &str) -> Result<bool, StorageError> {
        let folder = {
            let mut known = self.known();
            if known.is_listed(path) {
                return Ok(true);
            }
            match known.sought.folder(path) {
                Some(folder) => folder,
                None => return Ok(false),
            }
        };
        match self.learn(&folder) {
            Ok(()) => Ok(true),
            Err(error) if error.is_transient() => Err(error),
            Err(_) => {
                self.known().sought.is_in_vain = true;
                Ok(false)
            }
        }
    }

    /// One range, tried again while the failure may pass: as long as a listing is.
    fn fetch(
        &self,
        path: &str,
        range: Range<u64>,
        expected: &Identity,
    ) -> Result<Bytes, StorageError> {
        let ranges = [range];
        // What a file of this machine has not in its time, it has not a moment later.
        let is_local = self.objects.local(path).is_some();
        self.wait(async {
            // They begin with the first failure: a long read that breaks off is tried again, too.
            let mut pauses = None;
            loop {
                let error = match self.fetch_once(path, &ranges, expected).await {
                    Err(error) if error.is_transient() => error,
                    done => return done,
                };
                let is_late = matches!(error, StorageError::TimedOut { .. });
                let pauses = pauses.get_or_insert_with(Pauses::new);
                if is_late && is_local || !pauses.wait(error.retry_after()).await {
                    return Err(error);
                }
            }
        })?
    }

    async fn fetch_once(
        &self,
        path: &str,
        ranges: &[Range<u64>],
        expected: &Identity,
    ) -> Result<Bytes, StorageError> {
        let mut arrivals = self.objects.get_ranges(path, ranges, Some(expected));
        let wanted: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let after = retry::WITHIN + Duration::from_secs(wanted / SLOWEST);
        let timed_out = |after| StorageError::TimedOut { place: self.shown(path), after };
        let (progress, mut timer) = (Progress::default(), Timer::new());
        // A file of this machine is read by one call, which says nothing until it is over.
        let is_local = self.objects.local(path).is_some();
        let silent = if is_local { after } else { SILENT };
        let arrived = progress.unless_silent(&mut timer, silent, arrivals.next());
        let arrived = tokio::time::timeout(after, arrived).await;
        match arrived.map_err(|_| timed_out(after))?.ok_or_else(|| timed_out(silent))? {
            Some((_, result)) => result,
            None => Err(StorageError::Refused {
                place: self.shown(path),
                why: "the store gave no answer; this is a bug, please report it"
                    .to_owned(),
            }),
        }
    }

    /// The bytes from a window that is there, or how long the next window of the file should be.
    fn look_in_window(&self, path: &str, at: u64, dst: &mut [u8]) -> Result<(), u64> {
        let known = &mut *self.known();
        known.n_reads += 1;
        let Some(window) = known.windows.get_mut(path) else { return Err(WINDOW) };
        window.used = known.n_reads;
        let len = window.bytes.len() as u64;
        let skipped = at.checked_sub(window.at);
        let found = skipped.and_then(|skipped| {
            let from = usize::try_from(skipped).ok()?;
            window.bytes.get(from..from.checked_add(dst.len())?)
        });
        if let Some(found) = found {
            dst.copy_from_slice(found);
            return Ok(());
        }
        // Who reads on soon after the last window reads from front to back.
        let is_onward = skipped.is_some_and(|skipped| skipped <= 4 * len);
        let share = MOST_WINDOW_BYTES / known.windows.len().min(AT_ONCE) as u64;
        let longest = LONGEST_WINDOW.min(share);
        Err(if is_onward { (2 * len).clamp(WINDOW, longest) } else { WINDOW })
    }

    fn keep(&self, path: &str, at: u64, bytes: Bytes) {
        let known = &mut *self.known();
        let window = Window { at, bytes, used: known.n_reads };
        known.windows.insert(path.to_owned(), window);
        while !known.has_room() {
            let others = known.windows.iter().filter(|(other, _)| *other != path);
            let oldest = others.min_by_key(|(_, window)| window.used);
            let Some(oldest) = oldest.map(|(path, _)| path.clone()) else { return };
            known.windows.remove(&oldest);
        }
    }

    fn read_at(&self, path: &str, at: u64, dst: &mut [u8]) -> Result<(), StorageError> {
        let window = match self.look_in_window(path, at, dst) {
            Ok(()) => return Ok(()),
            Err(window) => window,
        };
        let wanted = dst.len() as u64;
        let expected = self.identified(path)?;
        let end = expected.len;
        let is_inside = at.checked_add(wanted).is_some_and(|until| until <= end);
        if !is_inside {
            let place = self.shown(path);
            return Err(StorageError::TooShort { place, end: at.saturating_add(wanted) });
        }
        let bytes =
            self.fetch(path, at..at + window.max(wanted).min(end - at), &expected)?;
        let too_few = || StorageError::cut_short(self.shown(path));
        dst.copy_from_slice(bytes.get(..dst.len()).ok_or_else(too_few)?);
        // What is longer than any window was no small read.
        if wanted < LONGEST_WINDOW {
            self.keep(path, at, bytes);
        }
        Ok(())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Storage for View {
    fn kind(&self, path: &str) -> io::Result<Kind> {
        if path.is_empty() {
            return Ok(Kind::Folder);
        }
        if !is_plain(path) {
            return Err(ErrorKind::NotFound.into());
        }
        if let Some(len) = self.known().identified(path) {
            return Ok(Kind::File { len });
        }
        if !self.is_listed(path).map_err(system)? {
            match self.wait(self.objects.identify(path)).flatten() {
                Ok(identity) => {
                    let len = identity.len;
                    self.known().identified.insert(path.into(), Some(identity));
                    return Ok(Kind::File { len });
                }
                Err(StorageError::NotFound { .. }) => {}
                Err(error) => return Err(system(error)),
            }
        }
        match self.has_below(path) {
            Ok(true) => return Ok(Kind::Folder),
            // It is not a file, and a store that cannot list has no folders.
            Ok(false) | Err(StorageError::Refused { .. }) => {}
            Err(error) => return Err(system(error)),
        }
        let mut known = self.known();
        match known.identity(path) {
            Some(identity) => Ok(Kind::File { len: identity.len }),
            None => {
                known.identified.insert(path.into(), None);
                Err(system(StorageError::NotFound { place: self.shown(path) }))
            }
        }
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        self.learn(path).map_err(system)?;
        let known = self.known();
        let mut entries = Vec::new();
        let Some(listing) = known.listing(path) else { return Ok(entries) };
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let mut cursor = listing.from(&prefix);
        while let Some((full, found)) = cursor.next() {
            let Some(rest) = full.strip_prefix(&prefix) else { break };
            let Some((folder, _)) = rest.split_once('/') else {
                let kind = Kind::File { len: found.identity.len };
                entries.push(Entry { name: rest.to_owned(), kind });
                continue;
            };
            // All that lies below it is skipped: `0` comes after `/`.
            let past = format!("{prefix}{folder}0");
            entries.push(Entry { name: folder.to_owned(), kind: Kind::Folder });
            cursor = listing.from(&past);
        }
        Ok(without_markers(entries))
    }

    fn has_labels(&self) -> bool {
        self.known().folders.iter().any(|(_, listing)| listing.is_labelled())
    }

    fn label(&self, path: &str) -> Option<u32> {
        match self.known().listing(path)?.get(path)?.label {
            Labelled::As(label) => Some(label),
            Labelled::No | Labelled::Elsewhere => None,
        }
    }

    fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()> {
        self.read_at(path, offset, dst).map_err(system)
    }

    fn local(&self, path: &str) -> Option<PathBuf> {
        self.objects.local(path)
    }

    fn versions(&self, path: &str) -> io::Result<Option<Vec<Version>>> {
        let mut versions = Vec::new();
        let mut add = |name: &str, path: &str| {
            let identity = self.identity(path).map_err(system)?;
            // Length and time alone do not tell an object from one that replaced it within a second.
            let version = identity.etag.map(|etag| Version {
                name: name.to_owned(),
                len: identity.len,
                changed_ns: identity
                    .modified
                    .and_then(|modified| i128::try_from(modified.as_nanos()).ok()),
                tag: etag.as_ref().to_owned(),
            });
            let is_known = version.is_some();
            versions.extend(version);
            Ok::<_, io::Error>(is_known)
        };
        if let Kind::File { .. } = self.kind(path)? {
            let name = path.rsplit('/').next().unwrap_or(path);
            return Ok(add(name, path)?.then_some(versions));
        }
        for Entry { name, kind } in self.list(path)? {
            let full =
                if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            if kind != Kind::Folder && !add(&name, &full)? {
                return Ok(None);
            }
        }
        Ok(Some(versions))
    }

    fn n_at_once(&self) -> usize {
        AT_ONCE
    }

    fn shown(&self, path: &str) -> String {
        self.objects.shown(path)
    }
}

/// Finds out that names come round and round, without keeping them: by one that is exchanged for the present one whenever
/// their number has doubled (Brent's method).
#[derive(Debug, Default)]
struct Again {
    known: String,
    times: u32,
    n: u64,
}

impl Again {
    /// How often a listing may have a name.
    const MOST_TIMES: u32 = 3;

    fn is_endless(&mut self, name: &str) -> bool {
        self.n += 1;
        if self.n.is_power_of_two() {
            name.clone_into(&mut self.known);
            self.times = 0;
        }
        self.times += u32::from(self.known == name);
        self.times > Self::MOST_TIMES
    }
}

/// Some tools keep an empty object with a folder's name, which is not a file of its own.
fn without_markers(entries: Vec<Entry>) -> Vec<Entry> {
    let is_folder = |entry: &&Entry| entry.kind == Kind::Folder;
    let folders = entries.iter().filter(is_folder).map(|entry| entry.name.clone());
    let folders: std::collections::HashSet<String> = folders.collect();
    let is_marker = |entry: &Entry| {
        entry.kind == Kind::File { len: 0 } && folders.contains(&entry.name)
    };
    entries.into_iter().filter(|entry| !is_marker(entry)).collect()
}

/// The same for callers of `dataset`, who look at its kind.
fn system(error: StorageError) -> io::Error {
    let kinds = [
        (matches!(error, StorageError::NotFound { .. }), ErrorKind::NotFound),
        (matches!(error, StorageError::TooShort { .. }), ErrorKind::UnexpectedEof),
        (matches!(error, StorageError::Denied { .. }), ErrorKind::PermissionDenied),
        (matches!(error, StorageError::TimedOut { .. }), ErrorKind::TimedOut),
    ];
    let kind = kinds.into_iter().find_map(|(is_so, kind)| is_so.then_some(kind));
    let kind = kind.unwrap_or(ErrorKind::Other);
    io::Error::new(kind, error)
}
