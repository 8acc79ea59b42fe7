//! Objects of a remote store near this device, as the host reads them over a longer way.
//!
//! The scouts say which records come next, and each of these is requested at once: many are on their way
//! while workers decode. What was asked for and not yet used is bounded by bytes and by number. Where that
//! is full the newest waits, for the oldest is needed first; what nobody takes is dropped after a while.
//! Credentials are those of this process's environment.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bothends_dataset::FileMark;
use bothends_side_index::{Beside, Cache, Place, SideIndex};
use bothends_storage::{
    self as storage, Bytes, Fetch, Location, Objects, Options, Pending, SharedFetcher,
    StorageError, is_url, without_secrets,
};
use twox_hash::XxHash3_64;

use super::{DataRoot, Identity, Store, StoreError, Wanted};

/// How long one request may take, and all attempts at a record together.
const ATTEMPT: Duration = Duration::from_secs(5);
const ATTEMPTS: Duration = Duration::from_secs(10);

/// The pause after the first attempt that fails; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Most bytes, and most records, that are requested ahead of the workers, of all hosts.
const MOST_AHEAD_BYTES: u64 = 64 << 20;
const MOST_AHEAD: usize = 256;

/// What was requested ahead and nobody has taken for so long, a host took back. The records of several batches may wait
/// here for a busy device, and dropping one that is needed means fetching it twice.
const TAKEN_WITHIN: Duration = Duration::from_secs(75);

/// Objects whose identity is remembered where hosts do not send it.
const MOST_KNOWN: usize = 4096;

/// The objects below a URL.
#[derive(Debug)]
pub struct ObjectStore {
    fetcher: SharedFetcher,
    objects: Arc<dyn Objects>,
    side_index: Option<SideIndex>,
    ahead: Mutex<Ahead>,
    known: Mutex<HashMap<String, storage::Identity>>,
}

/// The same before its thread runs, which must not be before the process is confined.
#[derive(Debug)]
pub struct ObjectRoot {
    objects: Arc<dyn Objects>,
    side_index: Option<SideIndex>,
}

/// A record. Hosts that listed different versions of an object want different records of it, wherever
/// these lie.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RecordAt {
    path: String,
    offset: u64,
    len: u32,
    expected: storage::Identity,
}

/// Records that were requested and that nobody has used yet.
#[derive(Debug, Default)]
struct Ahead {
    pending: HashMap<RecordAt, Pending<Bytes>>,
    /// The oldest first, with when it was requested.
    order: VecDeque<(RecordAt, Instant)>,
    n_bytes: u64,
}

impl Ahead {
    fn take(&mut self, at: &RecordAt) -> Option<Pending<Bytes>> {
        let pending = self.pending.remove(at)?;
        self.order.retain(|(known, _)| known != at);
        self.n_bytes -= u64::from(at.len);
        Some(pending)
    }

    /// Whether this record may be requested now, once those that nobody takes are dropped.
    fn has_room(&mut self, at: &RecordAt, now: Instant) -> bool {
        while let Some((oldest, since)) = self.order.front()
            && now.saturating_duration_since(*since) > TAKEN_WITHIN
        {
            let oldest = oldest.clone();
            drop(self.take(&oldest));
        }
        !self.pending.contains_key(at)
            && self.pending.len() < MOST_AHEAD
            && self.n_bytes + u64::from(at.len) <= MOST_AHEAD_BYTES
    }

    fn add(&mut self, at: RecordAt, pending: Pending<Bytes>, now: Instant) {
        self.n_bytes += u64::from(at.len);
        self.pending.insert(at.clone(), pending);
        self.order.push_back((at, now));
    }
}

impl ObjectRoot {
    /// The objects below the URL among these roots; `None` where all of them are folders. Asks the network
    /// for nothing and starts no thread.
    ///
    /// # Errors
    /// A URL that means nothing, or one among several roots.
    pub fn of(roots: &[DataRoot]) -> Result<Option<Self>, StoreError> {
        let is_remote = |root: &&DataRoot| root.path.to_str().is_some_and(is_url);
        let Some(root) = roots.iter().find(is_remote) else { return Ok(None) };
        let url = root.path.to_str().unwrap_or_default();
        let wrong = |source| StoreError { path: without_secrets(url).into(), source };
        if roots.len() > 1 || root.name.is_some() {
            let why =
                "a URL is the only data root, and has no name; start an agent for each";
            return Err(wrong(io::Error::new(ErrorKind::InvalidInput, why)));
        }
        let at = Location::parse(url, &Options::from_environment());
        let objects = at.and_then(|at| at.open());
        let objects = objects.map_err(|error| wrong(failed(error)))?;
        Ok(Some(Self { objects, side_index: None }))
    }

    /// The same objects, with what is known of their images kept in `cache`.
    #[must_use]
    pub fn with_cache(mut self, cache: Cache) -> Self {
        let name = self.objects.shown("");
        self.side_index = Some(SideIndex::open(Place {
            data: Path::new(&name),
            is_folder: false,
            beside: Beside::Ignored,
            cache: Some(cache),
        }));
        self
    }

    /// Starts the threads that speak to the store: one for every four workers.
    ///
    /// # Errors
    /// The system has no thread or no descriptors left.
    pub fn start(self, n_workers: u32) -> Result<ObjectStore, StoreError> {
        let Self { objects, side_index } = self;
        let n_threads = storage::n_fetch_threads(n_workers);
        let started = SharedFetcher::start(Arc::clone(&objects), n_threads);
        let wrong = |source| StoreError { path: objects.shown("").into(), source };
        let fetcher = started.map_err(wrong)?;
        Ok(ObjectStore {
            fetcher,
            objects,
            side_index,
            ahead: Mutex::default(),
            known: Mutex::default(),
        })
    }
}

impl ObjectStore {
    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, storage::Identity>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wrong(&self, path: &str, error: StorageError) -> StoreError {
        let path = PathBuf::from(self.objects.shown(path));
        StoreError { path, source: failed(error) }
    }

    fn ask(&self, at: &RecordAt) -> Pending<Bytes> {
        self.fetcher.fetch(Fetch {
            tag: 0,
            object: at.path.as_str().into(),
            range: at.offset..at.offset.saturating_add(u64::from(at.len)),
            expected: Some(at.expected.clone()),
            timeout: ATTEMPT,
        })
    }

    /// What the object must be: what the host was told when it listed it, or else what it is now, if it
    /// is not the one of which that is known.
    fn expected(&self, wanted: Wanted<'_>) -> Result<storage::Identity, StorageError> {
        if let Some(mark) = wanted.mark {
            return Ok(of_mark(mark));
        }
        if let Some(known) = self.known().get(wanted.path) {
            return Ok(known.clone());
        }
        self.identify(wanted.path)
    }

    fn identify(&self, path: &str) -> Result<storage::Identity, StorageError> {
        let identity = self.fetcher.identify(path).wait()?;
        self.learn(path, &identity);
        Ok(identity)
    }

    /// What these objects are, as far as nobody says and it is not known; they are asked for at once.
    fn identify_all(&self, wanted: &[Wanted<'_>]) {
        let unmarked = wanted.iter().filter(|wanted| wanted.mark.is_none());
        let mut paths: Vec<_> = unmarked.map(|wanted| wanted.path).collect();
        paths.sort_unstable();
        paths.dedup();
        {
            let known = self.known();
            paths.retain(|path| !known.contains_key(*path));
        }
        let asked: Vec<_> =
            paths.iter().map(|path| self.fetcher.identify(path)).collect();
        for (path, asked) in paths.iter().zip(asked) {
            // What goes wrong, the read says.
            if let Ok(identity) = asked.wait() {
                self.learn(path, &identity);
            }
        }
    }

    fn learn(&self, path: &str, identity: &storage::Identity) {
        let mut known = self.known();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(path.to_owned(), identity.clone());
    }

    /// The record's bytes, with more attempts while it is the network that fails.
    fn bytes(&self, at: &RecordAt) -> Result<Bytes, StorageError> {
        let deadline = Instant::now() + ATTEMPTS;
        let mut pause = FIRST_PAUSE;
        let asked = self.ahead().take(at);
        let mut pending = asked.unwrap_or_else(|| self.ask(at));
        loop {
            match pending.wait() {
                Err(error)
                    if error.is_transient() && Instant::now() + pause < deadline =>
                {
                    thread::sleep(
                        error.retry_after().unwrap_or(pause).min(LONGEST_PAUSE),
                    );
                    pause = LONGEST_PAUSE.min(pause * 2);
                    pending = self.ask(at);
                }
                ended => return ended,
            }
        }
    }
}

impl Store for ObjectStore {
    fn read(
        &self,
        wanted: Wanted<'_>,
        dst: &mut Vec<u8>,
    ) -> Result<Identity, StoreError> {
        let Wanted { path, offset, len, .. } = wanted;
        let wrong = |error| self.wrong(path, error);
        dst.clear();
        if len == 0 {
            // Whoever asks for nothing asks what the object is. Bytes of a marked one are read as those of
            // its mark or not at all, so the store need not be asked.
            if let Some(mark) = wanted.mark {
                return Ok(of_store(&of_mark(mark)));
            }
            return Ok(of_store(&self.identify(path).map_err(wrong)?));
        }
        let expected = self.expected(wanted).map_err(wrong)?;
        let at = RecordAt { path: path.to_owned(), offset, len, expected };
        let bytes = self.bytes(&at).map_err(|error| {
            self.known().remove(path);
            wrong(error)
        })?;
        dst.extend_from_slice(&bytes);
        Ok(of_store(&at.expected))
    }

    fn read_ahead(&self, wanted: Wanted<'_>) {
        let Wanted { path, offset, len, .. } = wanted;
        if len == 0 || u64::from(len) > MOST_AHEAD_BYTES {
            return;
        }
        let Ok(expected) = self.expected(wanted) else { return };
        let at = RecordAt { path: path.to_owned(), offset, len, expected };
        let (mut ahead, now) = (self.ahead(), Instant::now());
        if ahead.has_room(&at, now) {
            let pending = self.ask(&at);
            ahead.add(at, pending, now);
        }
    }

    fn read_all_ahead(&self, wanted: &[Wanted<'_>]) {
        self.identify_all(wanted);
        for wanted in wanted {
            self.read_ahead(*wanted);
        }
    }

    fn probe(&self, path: &str) -> Result<(), StoreError> {
        self.known().clear();
        self.identify(path).map(drop).map_err(|error| self.wrong(path, error))
    }

    fn compare(&self, path: &str, mark: &FileMark) -> Result<(), StoreError> {
        let wrong = |error| self.wrong(path, error);
        let now = self.fetcher.identify(path).wait().map_err(wrong)?;
        match of_mark(mark).matches(&now) {
            true => Ok(()),
            false => {
                let place = self.objects.shown(path);
                Err(wrong(StorageError::Changed { place }))
            }
        }
    }

    fn side_index(&self) -> Option<&SideIndex> {
        self.side_index.as_ref()
    }
}

fn of_mark(mark: &FileMark) -> storage::Identity {
    storage::Identity {
        len: mark.len,
        modified: mark.modified_ns.map(Duration::from_nanos),
        etag: mark.etag.as_deref().map(Arc::from),
    }
}

/// As a session compares it with what it read before, and the side index names it.
fn of_store(identity: &storage::Identity) -> Identity {
    let storage::Identity { len, modified, etag } = identity;
    let mark = match (etag, modified) {
        (Some(etag), _) => i128::from(XxHash3_64::oneshot(etag.as_bytes())),
        (None, Some(modified)) => i128::try_from(modified.as_nanos()).unwrap_or(0),
        (None, None) => 0,
    };
    Identity { place: (0, 0), age: (*len, mark), changed_ns: None }
}

/// What the store said, as an error of a store near the device.
fn failed(error: StorageError) -> io::Error {
    if let StorageError::Changed { place } = error {
        let why = format!(
            "`{place}` is not the object that the host has listed: it was changed since, or is in another \
             store; give --data-root the URL that the host reads, or start the run again"
        );
        return io::Error::new(ErrorKind::StaleNetworkFileHandle, why);
    }
    if matches!(error, StorageError::NotFound { .. }) {
        return io::Error::new(ErrorKind::NotFound, error);
    }
    if matches!(error, StorageError::TooShort { .. }) {
        return io::Error::new(ErrorKind::UnexpectedEof, error);
    }
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bothends_storage::{Answer, Double};

    use super::*;

    fn started(double: Double) -> ObjectStore {
        ObjectRoot { objects: Arc::new(double), side_index: None }.start(1).unwrap()
    }

    fn wanted(path: &str, offset: u64, len: u32) -> Wanted<'_> {
        Wanted { path, offset, len, mark: None }
    }

    #[test]
    fn what_was_requested_ahead_is_not_requested_again() {
        let n_asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&n_asked);
        let double = Double::answering(move |asked| {
            counted.fetch_add(usize::from(asked.range.is_some()), Ordering::Relaxed);
            Answer::After(Duration::ZERO)
        });
        double.put("a", "0123456789");
        let store = started(double);
        store.probe("a").unwrap();
        store.read_ahead(wanted("a", 2, 3));
        store.read_ahead(wanted("a", 2, 3));
        let mut bytes = b"old".to_vec();
        store.read(wanted("a", 2, 3), &mut bytes).unwrap();
        assert_eq!((&bytes[..], n_asked.load(Ordering::Relaxed)), (&b"234"[..], 1));
        store.read(wanted("a", 2, 3), &mut bytes).unwrap();
        assert_eq!(n_asked.load(Ordering::Relaxed), 2, "it was used");
        let ahead = store.ahead();
        assert_eq!((ahead.pending.len(), ahead.n_bytes), (0, 0));
    }

    /// One after the other, they took longer than a host waits.
    #[test]
    fn records_that_somebody_waits_for_are_requested_at_once() {
        const WAY: Duration = Duration::from_millis(500);
        let double = Double::answering(|_| Answer::After(WAY));
        let paths: Vec<_> = (0..40).map(|nth| nth.to_string()).collect();
        for path in &paths {
            double.put(path, "0123456789");
        }
        let (store, start) = (started(double), Instant::now());
        let all: Vec<_> = paths.iter().map(|path| wanted(path, 2, 3)).collect();
        store.read_all_ahead(&all);
        for one in all {
            let mut bytes = Vec::new();
            store.read(one, &mut bytes).unwrap();
            assert_eq!(bytes, b"234");
        }
        let took = start.elapsed();
        assert!(took < 20 * WAY, "{took:?}");
    }

    #[test]
    fn what_is_needed_next_is_not_dropped_for_what_is_needed_later() {
        let double = Double::answering(|_| Answer::After(Duration::from_secs(3600)));
        double.put("a", vec![0; 4096]);
        let store = started(double);
        let expected = storage::Identity { len: 4096, modified: None, etag: None };
        store.known().insert("a".to_owned(), expected.clone());
        for offset in 0..3 * MOST_AHEAD as u64 {
            store.read_ahead(wanted("a", offset, 1));
        }
        let at = |offset| RecordAt {
            path: "a".to_owned(),
            offset,
            len: 1,
            expected: expected.clone(),
        };
        let (mut ahead, most) = (store.ahead(), MOST_AHEAD as u64);
        assert_eq!((ahead.pending.len(), ahead.n_bytes), (MOST_AHEAD, most));
        assert!(ahead.pending.contains_key(&at(0)), "the first is needed first");
        let since = ahead.order[0].1;
        assert!(!ahead.has_room(&at(most), since));
        // What was used makes room, and so does what nobody takes.
        ahead.take(&at(5)).unwrap();
        assert!(ahead.has_room(&at(most), since));
        assert!(ahead.has_room(&at(most), since + Duration::from_secs(3600)));
        assert_eq!((ahead.pending.len(), ahead.order.len(), ahead.n_bytes), (0, 0, 0));
    }

    #[test]
    fn another_object_than_the_host_listed_is_named_with_the_remedy() {
        let double = Double::new().with("a", "0123456789");
        let store = started(double);
        let mark = FileMark { len: 11, modified_ns: None, etag: Some("other".into()) };
        let other = Wanted { mark: Some(&mark), ..wanted("a", 0, 3) };
        store.compare("a", &mark).unwrap_err();
        let error = store.read(other, &mut Vec::new()).unwrap_err();
        let line = bothends_core::one_line(&error);
        assert!(line.contains("listed") && line.contains("--data-root"), "{line}");
        assert!(error.is_of_machine());
        let missing = store.read(wanted("b", 0, 1), &mut Vec::new()).unwrap_err();
        assert!(!missing.is_of_machine(), "{missing:?}");
    }

    /// One host's answer was given to the worker of another one, with that one's mark.
    #[test]
    fn hosts_that_listed_different_versions_do_not_share_a_request() {
        let store = started(Double::new().with("a", "0123456789"));
        let now = store.identify("a").unwrap();
        let mark = |etag: Option<&str>| FileMark {
            len: now.len,
            modified_ns: None,
            etag: etag.map(Into::into),
        };
        let (new, old) = (mark(now.etag.as_deref()), mark(Some("old")));
        let of = |mark| Wanted { mark: Some(mark), ..wanted("a", 0, 3) };
        store.read_ahead(of(&new));
        let error = store.read(of(&old), &mut Vec::new()).unwrap_err();
        assert_eq!(error.source.kind(), ErrorKind::StaleNetworkFileHandle);
        store.read_ahead(of(&old));
        let mut bytes = Vec::new();
        store.read(of(&new), &mut bytes).unwrap();
        assert_eq!(bytes, b"012");
    }

    #[test]
    fn what_a_marked_object_is_costs_no_request() {
        let n_asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&n_asked);
        let double = Double::answering(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Answer::After(Duration::ZERO)
        });
        double.put("a", "0123456789");
        let store = started(double);
        let now = store.fetcher.identify("a").wait().unwrap();
        let modified_ns = now.modified.and_then(|it| u64::try_from(it.as_nanos()).ok());
        let etag = now.etag.as_deref().map(Into::into);
        let mark = FileMark { len: now.len, modified_ns, etag };
        let marked = |len| Wanted { mark: Some(&mark), ..wanted("a", 2, len) };
        let made = store.read(marked(3), &mut Vec::new()).unwrap();
        let before = n_asked.load(Ordering::Relaxed);
        let copied = store.read(marked(0), &mut Vec::new()).unwrap();
        assert_eq!((copied, n_asked.load(Ordering::Relaxed)), (made, before));
    }

    #[test]
    fn a_url_is_the_only_root() {
        let root = |text: &str| text.parse::<DataRoot>().unwrap();
        assert!(ObjectRoot::of(&[root("/data")]).unwrap().is_none());
        for roots in [&["s3://b/x", "/data"][..], &["a=s3://b/x"], &["http://"]] {
            let roots: Vec<_> = roots.iter().map(|text| root(text)).collect();
            ObjectRoot::of(&roots).unwrap_err();
        }
    }
}
