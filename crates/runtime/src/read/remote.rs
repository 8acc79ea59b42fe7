//! Data that lie in a remote store: where they are, what each object was when it was listed, and
//! single reads of them.
//!
//! Records are brought by `fetching.rs`, far ahead and out of order. What is here is for the rest:
//! finding the data set, and reading one record on the calling thread where a row is made again. Who
//! speaks to a store is `storage`.

pub(crate) mod cache;
pub(crate) mod fetched_fields;
mod single;

use std::error::Error as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bothends_core::one_line;
use bothends_core::sample::{Extent, FileIdx};
use bothends_dataset::{DatasetError, FileMark, Found, Table};
use bothends_decompress::{DecompressError, Decompressed};
use bothends_side_index::Name;
use bothends_storage::{
    Fetch, Fetcher, Folder, Identities, Identity, Objects, Options, StorageError,
    Together, View, around, is_url,
};
use twox_hash::XxHash3_64;

use crate::config::cache::CacheSize;
use crate::config::run::{ReadConfig, RunConfig, SideIndexUse};
use crate::error::RuntimeError;
use crate::read::place::{Looking, root_and_target};
use crate::read::remote::cache::Kept;
use crate::read::remote::fetched_fields::FetchedFields;
use crate::read::supplied::{Failure, Unmade};
use crate::threads::shutdown::{PATIENCE, Stop};
use crate::threads::ulimits::requests_at_once;

/// How long the store may be silent during one attempt at a read, and during all of them together.
const ATTEMPT: Duration = Duration::from_secs(5);
const ATTEMPTS: Duration = Duration::from_secs(10);

/// Reads of one batch's fields that are under way at once, and their bytes: they share the link.
const MOST_AT_ONCE: usize = 64;
const MOST_BYTES_AT_ONCE: u64 = 8 << 20;

/// Bytes per second that a link brings at least.
const SLOWEST: u64 = 512 << 10;

/// The pause after the first attempt that fails; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// A time in whole seconds tells versions apart only where it is as old as this: an object may be changed twice
/// within a second, and clocks differ.
const SETTLED: Duration = Duration::from_secs(60);

/// The objects of a data set in a remote store.
#[derive(Debug)]
pub(crate) struct Remote {
    objects: Arc<dyn Objects>,
    /// What the files of the table were when they were listed, by their numbers.
    identities: Identities,
    /// Which of the files are of this machine; none where none is.
    are_local: Vec<bool>,
    /// When they were listed, since 1970.
    listed: Duration,
    /// What is kept of it on a local disk.
    cache: Option<Arc<Kept>>,
    /// The most requests in flight, where the user or the limit on open files bounds them.
    most_requests: Option<u32>,
    /// How long it may be gone.
    patience: Duration,
    pub(crate) fetched_fields: FetchedFields,
    /// For single reads: each thread takes one, and puts it back.
    fetchers: Mutex<Vec<Fetcher>>,
}

/// Where a data set was found.
#[derive(Debug)]
pub(crate) struct Place {
    view: View,
    is_local: bool,
    /// The folder of this machine that it was decompressed into, and in which it was found.
    pub(crate) decompressed: Option<Decompressed>,
}

/// The objects of several data sets, of which `table` has the files below the names of theirs.
///
/// # Errors
/// As [`Place::of_table`].
pub(crate) fn of_mix(
    places: Vec<(String, Place)>,
    table: &Table,
) -> Result<Remote, String> {
    let mut are_local = Vec::new();
    let identities = files(table).map(|path| {
        let (name, inside) = path.split_once('/').unwrap_or((&path, ""));
        let found = places.iter().find(|(known, _)| known == name);
        let (_, Place { view, is_local, .. }) =
            found.ok_or_else(|| format!("`{path}` is in no data set"))?;
        are_local.push(*is_local);
        view.identity(inside).map_err(|error| error.to_string())
    });
    let identities = identities.collect::<Result<_, _>>()?;
    let locations = places.into_iter().map(|(name, place)| (name, place.into()));
    let objects = Arc::new(Together::new(locations.collect()));
    Ok(Remote { are_local, ..Remote::new(objects, identities) })
}

/// The paths of a table's files.
fn files(table: &Table) -> impl Iterator<Item = String> + '_ {
    let n_files = u32::try_from(table.n_files()).unwrap_or(u32::MAX);
    (0..n_files).map(|file| table.file_path(FileIdx(file)))
}

impl From<Place> for Arc<dyn Objects> {
    fn from(place: Place) -> Self {
        Self::clone(place.view.objects())
    }
}

impl Place {
    /// The objects of `table`, which was made of what was found here.
    ///
    /// # Errors
    /// One line: what the store says of one that was not listed.
    pub(crate) fn of_table(self, table: &Table) -> Result<Remote, String> {
        let identities = files(table).map(|path| self.view.identity(&path));
        let identities = identities.collect::<Result<_, _>>();
        let identities = identities.map_err(|error: StorageError| error.to_string())?;
        Ok(Remote::new(self.into(), identities))
    }
}

/// The path or URL for messages and for what is written down: without a user and a password.
pub(crate) fn without_secrets(data: &Path) -> PathBuf {
    data.to_str().map_or_else(
        || data.to_owned(),
        |text| bothends_storage::without_secrets(text).into(),
    )
}

/// Lists the data set in `objects`, or at the URL `data`, or takes what is known of it from the tables; `None`
/// if it is not a URL. Blocks on the network.
///
/// # Errors
/// One line: what is wrong, where, and what helps.
pub(crate) fn find(
    data: &Path,
    objects: Option<&Arc<dyn Objects>>,
    looking: Looking,
) -> Result<Option<(Found, Place)>, String> {
    let url = data.to_str().filter(|text| is_url(text));
    let (view, target, looking) = match (objects, url) {
        (Some(objects), _) => {
            let view = View::start(Arc::clone(objects)).map_err(|e| e.to_string())?;
            // Nobody knows whether what the caller calls them is theirs alone.
            (view, String::new(), Looking { tables: None, decompressed: None, ..looking })
        }
        (None, Some(url)) => {
            let found = around(url, &Options::from_environment());
            let (view, target) = found.map_err(|e| e.to_string())?;
            (view, target, looking)
        }
        (None, None) => return Ok(None),
    };
    in_view(view, &target, looking).map(Some)
}

/// The same of a data set of this machine that is mixed with remote ones: its files are objects, too.
///
/// # Errors
/// As [`find`].
pub(crate) fn find_local(
    data: &Path,
    looking: Looking,
) -> Result<(Found, Place), String> {
    let (root, target) = root_and_target(data)?;
    let view = View::start(Arc::new(Folder(root))).map_err(|e| e.to_string())?;
    let (found, place) = in_view(view, &target, looking)?;
    Ok((found, Place { is_local: true, ..place }))
}

fn in_view(view: View, target: &str, looking: Looking) -> Result<(Found, Place), String> {
    let found = looking.find(&view, target);
    let (found, decompressed) = found.map_err(|error| {
        if let DecompressError::Dataset(error) = &error {
            return said(error);
        }
        error.to_string()
    })?;
    Ok((found, Place { view, is_local: false, decompressed }))
}

/// What the store said where it is the store that failed: it names the place itself.
pub(crate) fn said(error: &DatasetError) -> String {
    let source =
        error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    match source.and_then(StorageError::of) {
        Some(error) => error.to_string(),
        None => one_line(error),
    }
}

/// What of the settings for reading remote data do without, in one line, where it was asked for.
pub(crate) fn note(read: &ReadConfig, cache: Option<&Path>) -> Option<String> {
    let blocks = match matches!(read.cache_size, CacheSize::Bytes(_)) && cache.is_none() {
        true => Some(
            "there is no block cache for remote data; name a directory for fetched records (`cache`)",
        ),
        false => None,
    };
    let index = match read.side_index {
        SideIndexUse::Beside => Some(
            "the side index of remote data is kept in the cache directory, and not next to them",
        ),
        SideIndexUse::Auto | SideIndexUse::Off => None,
    };
    match (blocks, index) {
        (Some(one), Some(other)) => Some(format!("{one}; {other}")),
        (one, other) => one.or(other).map(str::to_owned),
    }
}

impl Remote {
    fn new(objects: Arc<dyn Objects>, identities: Identities) -> Self {
        Self {
            objects,
            identities,
            are_local: Vec::new(),
            listed: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            cache: None,
            most_requests: None,
            patience: ATTEMPTS,
            fetched_fields: FetchedFields::default(),
            fetchers: Mutex::default(),
        }
    }

    /// The same with the bounds of the settings and, where they name one, a cache of fetched records; one line
    /// for the user where it cannot be what was asked for. Blocks on the file system.
    pub(crate) fn with_cache(mut self, config: &RunConfig) -> (Self, Option<String>) {
        self.most_requests = config.read.fetch.requests;
        self.patience = config.read.fetch.patience().max(ATTEMPTS);
        let (kept, note) = Kept::open(config, &self.objects.shown(""));
        let has_versions = self.identities.has_versions();
        let Some(kept) = kept.filter(|_| has_versions) else {
            let nothing = "the store gives no version of its objects (no ETag and no time), so \
            none of their records are kept in the cache";
            let note = note.or_else(|| config.cache.as_ref().map(|_| nothing.to_owned()));
            return (self, note);
        };
        self.cache = Some(Arc::new(kept));
        (self, note)
    }

    /// Leaves connections a descriptor each, of those that this process may have; one line for the user where these are
    /// too few for all requests.
    ///
    /// # Errors
    /// [`RuntimeError::OpenFiles`].
    pub(crate) fn bound_requests(
        &mut self,
        config: &RunConfig,
    ) -> Result<Option<String>, RuntimeError> {
        let wanted = config.read.fetch.most_requests();
        let bound = requests_at_once(wanted, config.devices.len())?;
        let Some((n, note)) = bound else { return Ok(None) };
        self.most_requests = Some(n);
        Ok(Some(note))
    }

    /// The most requests in flight, where the user or the limit on open files bounds them.
    pub(crate) fn most_requests(&self) -> Option<u32> {
        self.most_requests
    }

    /// The cache of fetched records.
    pub(crate) fn cache(&self) -> Option<&Arc<Kept>> {
        self.cache.as_ref()
    }

    /// What the cache knows a record by that has this key and lies in `file`; `None` where it could not
    /// tell one version of that object from another, or where the file is of this machine anyway.
    pub(crate) fn cache_name(&self, key: u64, file: FileIdx) -> Option<Name> {
        if self.is_local(file) {
            return None;
        }
        let identity = self.identity(file).filter(|it| is_settled(it, self.listed))?;
        let Identity { len, modified, etag } = identity;
        let modified = modified.map(|since| i128::try_from(since.as_nanos()));
        let modified = modified.map(|ns| ns.unwrap_or(i128::MAX));
        Name::of_object(key, (len, etag.as_deref(), modified))
    }

    /// Whether a file is of this machine: in a mix, such files are read as if they were remote.
    pub(crate) fn is_local(&self, file: FileIdx) -> bool {
        let is_local = usize::try_from(file.0).ok().and_then(|at| self.are_local.get(at));
        is_local == Some(&true)
    }

    /// Who speaks to the store.
    pub(crate) fn objects(&self) -> &Arc<dyn Objects> {
        &self.objects
    }

    /// The object as the user would write it.
    pub(crate) fn shown(&self, object: &str) -> String {
        self.objects.shown(object)
    }

    /// What the file was when it was listed.
    pub(crate) fn identity(&self, file: FileIdx) -> Option<Identity> {
        self.identities.get(file.0.into())
    }

    /// The same as devices are told it.
    pub(crate) fn mark(&self, file: FileIdx) -> Option<FileMark> {
        let Identity { len, modified, etag } = self.identity(file)?;
        let ns = |modified: &Duration| u64::try_from(modified.as_nanos()).ok();
        let modified_ns = modified.as_ref().and_then(ns);
        Some(FileMark { len, modified_ns, etag: etag.as_deref().map(Box::from) })
    }

    /// What the side index knows a record by that has this key and lies in `file`.
    pub(crate) fn name(&self, key: u64, file: FileIdx) -> Name {
        let Some(Identity { len, modified, etag }) = self.identity(file) else {
            return Name::without_file(key);
        };
        let mark = match (etag, modified) {
            (Some(etag), _) => i128::from(XxHash3_64::oneshot(etag.as_bytes())),
            (None, Some(modified)) => {
                i128::try_from(modified.as_nanos()).unwrap_or(i128::MAX)
            }
            (None, None) => return Name::without_file(key),
        };
        Name::new(key, (len, mark))
    }

    /// Reads parts of objects all at once, so that they take a round trip together, with more attempts at those
    /// that fail for the network's sake, until none has come for as long as the store may be gone and what a slow link
    /// takes for those under way. In the order in which they were named.
    pub(crate) fn read_all(
        &self,
        parts: &[(String, Extent)],
        stop: &Stop,
    ) -> Vec<Result<Vec<u8>, Unmade>> {
        let mut fetcher = match self.fetcher() {
            Ok(fetcher) => fetcher,
            Err(_) => {
                let read = |(object, extent): &(String, Extent)| {
                    self.read(object, *extent, Some(stop))
                };
                return parts.iter().map(read).collect();
            }
        };
        let mut values: Vec<_> = parts.iter().map(|_| None).collect();
        self.bring(parts, &mut fetcher, stop, &mut values);
        // One with answers under way would take them for those of its next reader.
        if fetcher.in_flight() == 0 {
            let mut fetchers =
                self.fetchers.lock().unwrap_or_else(PoisonError::into_inner);
            fetchers.push(fetcher);
        }
        let late = |object: &str| {
            let place = self.shown(object);
            Err(StorageError::TimedOut { place, after: self.patience })
        };
        let values = values.into_iter().zip(parts).map(|(value, (object, _))| {
            value.unwrap_or_else(|| late(object)).map_err(|error| unmade(&error))
        });
        values.collect()
    }

    /// What came of each part; of one that still fails, why it did last.
    fn bring(
        &self,
        parts: &[(String, Extent)],
        fetcher: &mut Fetcher,
        stop: &Stop,
        values: &mut [Option<Result<Vec<u8>, StorageError>>],
    ) {
        let most = self.most_requests.map_or(MOST_AT_ONCE, |most| most as usize);
        let most = most.clamp(1, MOST_AT_ONCE);
        let n_of = |nth: usize| u64::from(parts[nth].1.len);
        let mut waiting: Vec<usize> = (0..parts.len()).rev().collect();
        let all: u64 = waiting.iter().map(|&nth| n_of(nth)).sum();
        let most_bytes = MOST_BYTES_AT_ONCE.min(all);
        let (mut again, mut pause, mut n_bytes) = (Vec::new(), FIRST_PAUSE, 0);
        let mut came = Instant::now();
        while came.elapsed() < self.patience + on_slowest(n_bytes) && !stop.is_set() {
            while fetcher.in_flight() < most
                && let Some(nth) = waiting.pop_if(|nth| {
                    n_bytes == 0 || n_bytes + n_of(*nth) <= MOST_BYTES_AT_ONCE
                })
            {
                n_bytes += n_of(nth);
                let (object, Extent { file, offset, len }) = &parts[nth];
                fetcher.submit(Fetch {
                    tag: nth as u64,
                    object: object.as_str().into(),
                    range: *offset..offset.saturating_add(u64::from(*len)),
                    expected: self.identity(*file),
                    // Others that are under way take their part of the link.
                    timeout: ATTEMPT + on_slowest(n_of(nth).max(most_bytes)),
                });
            }
            if fetcher.in_flight() == 0 {
                if again.is_empty() {
                    break;
                }
                thread::sleep(pause);
                pause = PATIENCE.min(pause * 2);
                waiting.append(&mut again);
                continue;
            }
            let Some(fetched) = fetcher.poll(PATIENCE) else { continue };
            let Ok(nth) = usize::try_from(fetched.tag) else { continue };
            n_bytes -= n_of(nth);
            match &fetched.result {
                Ok(_) => (came, pause) = (Instant::now(), FIRST_PAUSE),
                Err(error) if error.is_transient() => again.push(nth),
                Err(_) => {}
            }
            values[nth] = Some(fetched.result.map(|bytes| bytes.to_vec()));
        }
    }

    fn fetcher(&self) -> std::io::Result<Fetcher> {
        let mut fetchers = self.fetchers.lock().unwrap_or_else(PoisonError::into_inner);
        match fetchers.pop() {
            Some(fetcher) => Ok(fetcher),
            None => Fetcher::start(Arc::clone(&self.objects), NonZero::<usize>::MIN),
        }
    }
}

/// What the slowest link takes for so many bytes.
fn on_slowest(n_bytes: u64) -> Duration {
    Duration::from_secs(n_bytes / SLOWEST)
}

/// Whether each later version of an object that was listed then is told from this one.
fn is_settled(Identity { modified, etag, .. }: &Identity, listed: Duration) -> bool {
    let is_coarse_and_new = |modified: &Duration| {
        modified.subsec_nanos() == 0 && modified.saturating_add(SETTLED) > listed
    };
    etag.is_some() || !modified.as_ref().is_some_and(is_coarse_and_new)
}

/// What a record is whose bytes the store does not give: one that is not there, or ends too soon, is
/// bad; whatever else fails tells nothing about it.
fn unmade(error: &StorageError) -> Unmade {
    let is_of_object =
        matches!(error, StorageError::NotFound { .. } | StorageError::TooShort { .. });
    match is_of_object {
        true => Unmade::Bad(error.to_string()),
        false => Unmade::Machine(Failure::Remote(error.to_string())),
    }
}

#[cfg(test)]
impl Remote {
    /// A store in which this many files, the first ones, are of this machine.
    pub(crate) fn of_double(objects: Arc<dyn Objects>, n_local: usize) -> Self {
        let are_local = vec![true; n_local];
        Self { are_local, ..Self::new(objects, Identities::default()) }
    }
}

#[cfg(test)]
mod tests {
    use bothends_dataset::JoinLabels;
    use bothends_storage::{Answer, Double};

    use super::*;

    #[test]
    fn what_fails_to_the_end_says_why() {
        let stop = Stop::default();
        let set = stop.clone();
        let double = Double::answering(move |asked| {
            if asked.number == 2 {
                set.set();
            }
            let (place, why) = ("a".to_owned(), "reset by peer".to_owned());
            Answer::Fails(Duration::ZERO, StorageError::Broken { place, why })
        });
        let remote = Remote::new(Arc::new(double), Identities::default());
        let part = Extent { file: FileIdx(0), offset: 0, len: 1 };
        let found = remote.read_all(&[("a".to_owned(), part)], &stop);
        let [Err(Unmade::Machine(Failure::Remote(why)))] = &found[..] else {
            panic!("{found:?}")
        };
        assert!(why.contains("reset by peer"), "{why}");
    }

    #[test]
    fn all_are_brought_within_the_bounds_in_their_order() {
        let double = Double::new().with("a", vec![7; 9 << 20]).with("b", "0123");
        let mut remote = Remote::new(Arc::new(double), Identities::default());
        remote.most_requests = Some(2);
        let part = |object: &str, offset, len| {
            (object.to_owned(), Extent { file: FileIdx(0), offset, len })
        };
        // The first is longer than all that may be under way together.
        let parts =
            [part("a", 0, 9 << 20), part("b", 1, 2), part("b", 0, 0), part("b", 3, 1)];
        let found = remote.read_all(&parts, &Stop::default());
        let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
        assert_eq!(found[0].len(), 9 << 20);
        assert_eq!(found[1..], [b"12".to_vec(), Vec::new(), b"3".to_vec()]);
    }

    #[test]
    fn a_version_that_a_later_one_may_look_like_is_not_kept() {
        let of = |modified: Option<f64>, etag: Option<&str>| Identity {
            len: 1,
            modified: modified.map(Duration::from_secs_f64),
            etag: etag.map(Arc::from),
        };
        let listed = Duration::from_millis(1_000_500);
        for (modified, etag, expected) in [
            (Some(1000.0), None, false),
            (Some(1001.0), None, false),
            (Some(900.0), None, true),
            (Some(1000.25), None, true),
            (Some(1000.0), Some("a"), true),
        ] {
            assert_eq!(is_settled(&of(modified, etag), listed), expected, "{modified:?}");
        }
    }

    #[test]
    fn files_of_this_machine_are_not_kept_a_second_time() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("cat")).unwrap();
        std::fs::write(folder.path().join("cat/1.jpg"), "01").unwrap();
        let looking = Looking::default;
        let local = find_local(folder.path(), looking()).unwrap();
        let objects: Arc<dyn Objects> = Arc::new(Double::new().with("cat/1.jpg", "01"));
        let remote = find(Path::new("x"), Some(&objects), looking()).unwrap().unwrap();
        let tables = [("a", &local.0.table), ("b", &remote.0.table)];
        let table = Table::joined(&tables, JoinLabels::Merge).unwrap();
        let names = ["a", "b"].map(str::to_owned).into_iter();
        let mix = of_mix(names.zip([local.1, remote.1]).collect(), &table).unwrap();
        let kept = [0, 1].map(|file| mix.cache_name(7, FileIdx(file)).is_some());
        assert_eq!(kept, [false, true]);
        assert_eq!([0, 1].map(|file| mix.is_local(FileIdx(file))), [true, false]);
        let expected = format!("a={}/, b=memory:", folder.path().display());
        assert_eq!(mix.shown(""), expected);
    }
}
