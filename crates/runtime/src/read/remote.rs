//! Data that lie in a remote store: where they are, what each object was when it was listed, and
//! single reads of them.
//!
//! Records are brought by `fetching.rs`, far ahead and out of order. What is here is for the rest:
//! finding the data set, and reading one record on the calling thread where a row is made again. Who
//! speaks to a store is `storage`.

pub(crate) mod cache;

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bothends_core::sample::{Extent, FileIdx};
use bothends_dataset::{DatasetError, FileMark, Found, Table};
use bothends_side_index::{Cache, Name};
use bothends_storage::{
    Bytes, Fetch, Fetcher, Identity, Objects, Options, StorageError, View, around, is_url,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::config::cache::CacheSize;
use crate::config::run::{ReadConfig, RunConfig, SideIndexUse};
use crate::read::remote::cache::Kept;
use crate::read::supplied::{Failure, Unmade};
use crate::threads::shutdown::{PATIENCE, Stop};

/// How long one attempt at a single read may take, and all of them together.
const ATTEMPT: Duration = Duration::from_secs(5);
const ATTEMPTS: Duration = Duration::from_secs(10);

/// The pause behind the first attempt that fails; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The objects of a data set in a remote store.
#[derive(Debug)]
pub(crate) struct Remote {
    objects: Arc<dyn Objects>,
    /// What the files of the table were when they were listed, by their numbers.
    identities: Vec<Identity>,
    /// What is kept of it on a local disk.
    cache: Option<Arc<Kept>>,
    /// For single reads: each thread takes one, and puts it back.
    fetchers: Mutex<Vec<Fetcher>>,
}

/// Where a data set was found.
#[derive(Debug)]
pub(crate) struct Place(View);

impl Place {
    /// The objects of `table`, which was made of what was found here.
    ///
    /// # Errors
    /// One line: what the store says of one that was not listed.
    pub(crate) fn of_table(self, table: &Table) -> Result<Remote, String> {
        let n_files = u32::try_from(table.n_files()).unwrap_or(u32::MAX);
        let paths = (0..n_files).map(|file| table.file_path(FileIdx(file)));
        let identities = paths.map(|path| self.0.identity(&path));
        let identities = identities.collect::<Result<_, _>>();
        let identities = identities.map_err(|error: StorageError| error.to_string())?;
        let (objects, fetchers) = (Arc::clone(self.0.objects()), Mutex::default());
        Ok(Remote { objects, identities, cache: None, fetchers })
    }
}

/// The path or URL for messages and for what is written down: without a user and a password.
pub(crate) fn without_secrets(data: &Path) -> PathBuf {
    data.to_str().map_or_else(
        || data.to_owned(),
        |text| bothends_storage::without_secrets(text).into(),
    )
}

/// Lists the data set in `objects`, or at the URL `data`, or takes what is known of it from `tables`; `None`
/// where it is no URL. Blocks on the network.
///
/// # Errors
/// One line: what is wrong, where, and what helps.
pub(crate) fn find(
    data: &Path,
    objects: Option<&Arc<dyn Objects>>,
    tables: Option<Cache>,
) -> Result<Option<(Found, Place)>, String> {
    let url = data.to_str().filter(|text| is_url(text));
    let (view, target, tables) = match (objects, url) {
        (Some(objects), _) => {
            let view = View::start(Arc::clone(objects)).map_err(|e| e.to_string())?;
            // Nobody knows whether what the caller calls them is theirs alone.
            (view, String::new(), None)
        }
        (None, Some(url)) => {
            let found = around(url, &Options::from_environment());
            let (view, target) = found.map_err(|e| e.to_string())?;
            (view, target, tables)
        }
        (None, None) => return Ok(None),
    };
    let found = bothends_side_index::find(&view, &target, tables);
    let found = found.map_err(|error| said(&error))?;
    Ok(Some((found, Place(view))))
}

/// What the store said where it is the store that failed: it names the place itself.
fn said(error: &DatasetError) -> String {
    let source =
        error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    match source.and_then(StorageError::of) {
        Some(error) => error.to_string(),
        None => error.to_string(),
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
    /// The same with a cache of fetched records, where the settings name one; one line for the user where
    /// it cannot be what was asked for. Blocks on the file system.
    pub(crate) fn with_cache(mut self, config: &RunConfig) -> (Self, Option<String>) {
        let (kept, note) = Kept::open(config, &self.objects.shown(""));
        let has_versions = self
            .identities
            .iter()
            .any(|identity| identity.etag.is_some() || identity.modified.is_some());
        let Some(kept) = kept.filter(|_| has_versions) else {
            let nothing = "the store tells no version of its objects (no ETag and no time), so none of their records are kept in the cache";
            let note = note.or_else(|| config.cache.as_ref().map(|_| nothing.to_owned()));
            return (self, note);
        };
        self.cache = Some(Arc::new(kept));
        (self, note)
    }

    /// The cache of fetched records.
    pub(crate) fn cache(&self) -> Option<&Arc<Kept>> {
        self.cache.as_ref()
    }

    /// What the cache knows a record by that has this key and lies in `file`; `None` where it could not
    /// tell one version of that object from another.
    pub(crate) fn cache_name(&self, key: u64, file: FileIdx) -> Option<Name> {
        let Identity { len, modified, etag } = self.identity(file)?;
        let modified = modified.map(|since| i128::try_from(since.as_nanos()));
        let modified = modified.map(|ns| ns.unwrap_or(i128::MAX));
        Name::of_object(key, (*len, etag.as_deref(), modified))
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
    pub(crate) fn identity(&self, file: FileIdx) -> Option<&Identity> {
        self.identities.get(file.0 as usize)
    }

    /// The same as devices are told it.
    pub(crate) fn mark(&self, file: FileIdx) -> Option<FileMark> {
        let Identity { len, modified, etag } = self.identity(file)?;
        let ns = |modified: &Duration| u64::try_from(modified.as_nanos()).ok();
        let modified_ns = modified.as_ref().and_then(ns);
        Some(FileMark { len: *len, modified_ns, etag: etag.as_deref().map(Box::from) })
    }

    /// What the side index knows a record by that has this key and lies in `file`.
    pub(crate) fn name(&self, key: u64, file: FileIdx) -> Name {
        let Some(Identity { len, modified, etag }) = self.identity(file) else {
            return Name::without_file(key);
        };
        let mark = match (etag, modified) {
            (Some(etag), _) => i128::from(xxh3_64(etag.as_bytes())),
            (None, Some(modified)) => {
                i128::try_from(modified.as_nanos()).unwrap_or(i128::MAX)
            }
            (None, None) => return Name::without_file(key),
        };
        Name::new(key, (*len, mark))
    }

    /// Reads a part of an object on the calling thread, with more attempts while it is the network
    /// that fails, unless `stop` is set.
    ///
    /// # Errors
    /// [`Unmade`], after ten seconds at most.
    pub(crate) fn read(
        &self,
        object: &str,
        extent: Extent,
        stop: Option<&Stop>,
    ) -> Result<Vec<u8>, Unmade> {
        let deadline = Instant::now() + ATTEMPTS;
        let is_over = || stop.is_some_and(Stop::is_set) || Instant::now() >= deadline;
        let mut pause = FIRST_PAUSE;
        let mut fetcher = match self.fetcher() {
            Ok(fetcher) => fetcher,
            Err(source) => {
                let path = self.shown(object).into();
                return Err(Unmade::Machine(Failure::Local { path, source }));
            }
        };
        let end = loop {
            match self.attempt(&mut fetcher, object, extent, &is_over) {
                Ok(bytes) => break Ok(bytes.to_vec()),
                Err(error) if error.is_transient() && !is_over() => {
                    thread::sleep(pause);
                    pause = PATIENCE.min(pause * 2);
                }
                Err(error) => break Err(unmade(&error)),
            }
        };
        let mut fetchers = self.fetchers.lock().unwrap_or_else(PoisonError::into_inner);
        fetchers.push(fetcher);
        end
    }

    fn fetcher(&self) -> std::io::Result<Fetcher> {
        let mut fetchers = self.fetchers.lock().unwrap_or_else(PoisonError::into_inner);
        match fetchers.pop() {
            Some(fetcher) => Ok(fetcher),
            None => Fetcher::start(Arc::clone(&self.objects)),
        }
    }

    fn attempt(
        &self,
        fetcher: &mut Fetcher,
        object: &str,
        Extent { file, offset, len }: Extent,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Bytes, StorageError> {
        let tag = 0;
        fetcher.submit(Fetch {
            tag,
            object: object.into(),
            range: offset..offset.saturating_add(u64::from(len)),
            expected: self.identity(file).cloned(),
            timeout: ATTEMPT,
        });
        loop {
            if let Some(fetched) = fetcher.poll(PATIENCE) {
                return fetched.result;
            }
            if is_over() {
                fetcher.cancel(tag);
                return Err(StorageError::TimedOut {
                    place: self.shown(object),
                    after: ATTEMPTS,
                });
            }
        }
    }
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
