//! Where bytes come from: the first interface of the agent.
//!
//! [`FileStore`] is the files under a data root, or under several of which each has a name. Paths come from the host's extent table, so every one is
//! opened beneath the root, whatever the table itself checked. A file that got the name of another one is
//! another file, and a root that got the name of another is looked at when a session begins. `remote` has the
//! objects of a store on the network. Nothing here knows a format or a sample.

mod decompressed;
mod opened;
mod remote;

use std::convert::Infallible;
use std::fmt::Debug;
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bothends_core::sample::FileIdx;
use bothends_csd::{
    Beneath, Links, RefusedLink, is_of_machine, keeps_its_number, will_need,
};
use bothends_dataset::FileMark;
use bothends_side_index::{Beside, Cache, Place, SideIndex};
use bothends_storage::{Location, Options, StorageError, is_url};
use twox_hash::XxHash3_64;

pub use self::decompressed::ReadyRoots;
use self::opened::{OpenFile, Opened};
pub use self::remote::{ObjectRoot, ObjectStore};

/// Bytes that could not be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {} on the device", path.display())]
pub struct StoreError {
    /// The file, as this machine names it.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl StoreError {
    /// Whether it says nothing about what the file holds: another attempt, or another machine, may read it.
    #[must_use]
    pub fn is_of_machine(&self) -> bool {
        let kind = self.source.kind();
        is_of_machine(&self.source)
            || kind == io::ErrorKind::StaleNetworkFileHandle
            || StorageError::of(&self.source).is_some_and(|_| {
                !matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
            })
    }
}

impl StoreError {
    /// Whether a store on the network did not give what is there: it refused, or did not answer.
    pub(crate) fn is_of_network(&self) -> bool {
        self.is_of_machine() && StorageError::of(&self.source).is_some()
    }
}

/// How long a file is, in bytes, and when it was last changed, in nanoseconds since 1970: what
/// the side index tells a changed file by.
pub type Age = (u64, i128);

/// What tells a file from another one of its name, and from itself before it was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The file system, and the number of the file in it; 0 where files do not keep theirs.
    pub place: (u64, u64),
    /// Its length and last change.
    pub age: Age,
    /// When its inode was last changed, in nanoseconds since 1970: what no program sets back. `None` of an object
    /// of a remote store.
    pub changed_ns: Option<i128>,
}

/// Whether a file system's files keep their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbers {
    Kept,
    Changing,
}

impl Identity {
    fn of(metadata: &Metadata, numbers: Numbers) -> Self {
        let modified_ns = i128::from(metadata.mtime()) * 1_000_000_000
            + i128::from(metadata.mtime_nsec());
        let number = match numbers {
            Numbers::Kept => metadata.ino(),
            Numbers::Changing => 0,
        };
        let place = (metadata.dev(), number);
        let changed_ns = i128::from(metadata.ctime()) * 1_000_000_000
            + i128::from(metadata.ctime_nsec());
        let changed_ns = Some(changed_ns);
        Self { place, age: (metadata.len(), modified_ns), changed_ns }
    }

    /// A hash of its place and its age; never 0.
    pub(crate) fn mark(&self) -> u64 {
        let (dev, ino) = self.place;
        let (len, modified_ns) = self.age;
        let mut bytes = [0; 40];
        for (at, word) in bytes.chunks_exact_mut(8).zip([dev, ino, len]) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes[24..].copy_from_slice(&modified_ns.to_le_bytes());
        XxHash3_64::oneshot(&bytes).max(1)
    }
}

/// Which files a session has read from, so that no two files of one name are mixed in it. Eight bytes
/// for each of its files.
#[derive(Debug)]
pub(crate) struct Seen(Box<[AtomicU64]>);

impl Seen {
    /// Of a session over so many files, none of which it has read from.
    pub(crate) fn nothing(n_files: usize) -> Self {
        Self((0..n_files).map(|_| AtomicU64::new(0)).collect())
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    /// Whether it is the file that was read first by this number; the first is.
    pub(crate) fn is_same(&self, file: FileIdx, identity: &Identity) -> bool {
        let Some(seen) = self.0.get(file.0 as usize) else { return false };
        // A number alone; nothing else is published with it.
        let (mark, relaxed) = (identity.mark(), Ordering::Relaxed);
        let first = seen.compare_exchange(0, mark, relaxed, relaxed);
        first.map_or_else(|seen| seen == mark, |_| true)
    }
}

/// Bytes of a file.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The file, relative to the store's root.
    pub path: &'a str,
    /// Where they begin.
    pub offset: u64,
    /// How many.
    pub len: u32,
    /// What the file was when the host listed it, if the host says. Files of a folder are told by the bytes
    /// of some of their records instead: two copies have no mark in common.
    pub mark: Option<&'a FileMark>,
}

/// Which part of what is wanted is enough where it lies in this file; `None`: all of it is needed.
pub type Choose<'a> = &'a mut dyn FnMut(&Identity) -> Option<Range<u32>>;

/// A place that holds the files of a data set, and what is known of its images.
///
/// # Contract
///
/// `path` is relative to the store's root. `read` replaces the content of `dst` by exactly
/// `len` bytes of the file that has this name now, or fails; it blocks, and workers call it side
/// by side. A length is checked against the file before memory is taken for it.
pub trait Store: Send + Sync + Debug {
    /// Reads what is wanted into `dst`; which file it was.
    ///
    /// # Errors
    /// The file is missing, unreadable, or ends before the last byte; or it is not the one of the mark, in
    /// a store that can tell.
    fn read(&self, wanted: Wanted<'_>, dst: &mut Vec<u8>)
    -> Result<Identity, StoreError>;

    /// As [`Self::read`], except that `choose` may name a part of what is wanted as soon as it is known which
    /// file it is: only that is read then. Also which part it was; a store may read all of it
    /// without asking.
    ///
    /// # Errors
    /// As of [`Self::read`].
    fn read_part(
        &self,
        wanted: Wanted<'_>,
        _choose: Choose<'_>,
        dst: &mut Vec<u8>,
    ) -> Result<(Identity, Option<Range<u32>>), StoreError> {
        Ok((self.read(wanted, dst)?, None))
    }

    /// Has these bytes brought nearer, if that can be done without waiting for them: they will be read
    /// soon. May wait for the file to open. What goes wrong is for `read` to say.
    fn read_ahead(&self, _wanted: Wanted<'_>) {}

    /// The same of several records that somebody waits for, where each alone would take a way over a network.
    fn read_all_ahead(&self, _wanted: &[Wanted<'_>]) {}

    /// Checks that the file `path` is there and can be opened: a session begins. What lies at the
    /// store's root now is what is read from now on.
    ///
    /// # Errors
    /// It is not.
    fn probe(&self, path: &str) -> Result<(), StoreError>;

    /// Checks that a file is the one of its mark, in a store that can tell.
    ///
    /// # Errors
    /// It is another one, or nobody can say.
    fn compare(&self, _path: &str, _mark: &FileMark) -> Result<(), StoreError> {
        Ok(())
    }

    /// What earlier epochs left to know of the images here; `None` where nothing is kept. An
    /// emulated device keeps nothing: what its models say must not depend on who ran before.
    fn side_index(&self) -> Option<&SideIndex> {
        None
    }
}

/// Of a longer record no more is read ahead: the page cache is there for others, too.
const MOST_AHEAD_BYTES: u64 = 8 << 20;

/// A data root, as it is given: a folder, or `NAME=DIR` for one of several, whose files hosts call
/// `NAME/…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataRoot {
    /// Its name among several.
    pub name: Option<String>,
    /// The folder.
    pub path: PathBuf,
}

/// A name is one part of a path; a folder whose own path has an `=` in its first part is given as
/// `./…`.
impl FromStr for DataRoot {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let named = text.split_once('=').filter(|(name, path)| {
            !name.is_empty() && !name.contains('/') && !path.is_empty()
        });
        Ok(match named {
            Some((name, path)) => {
                Self { name: Some(name.to_owned()), path: path_of(path) }
            }
            None => Self { name: None, path: path_of(text) },
        })
    }
}

/// `file:///data` is the folder `/data`, and its links are those of a folder.
fn path_of(text: &str) -> PathBuf {
    let at = is_url(text).then(|| Location::parse(text, &Options::default()));
    let local = at.as_ref().and_then(|at| at.as_ref().ok()?.local());
    local.map_or_else(|| text.into(), Path::to_owned)
}

/// A data root in use.
#[derive(Debug)]
struct Root {
    name: Option<String>,
    /// As it was named, without symbolic links.
    path: PathBuf,
    /// The folder that had that name when the last session began.
    beneath: RwLock<Arc<Beneath>>,
}

impl Root {
    fn beneath(&self) -> Arc<Beneath> {
        Arc::clone(&self.beneath.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes sure that it is the folder that has its name now.
    fn renew(&self) -> io::Result<()> {
        if let Some(now) = self.beneath().renewed()? {
            let mut beneath =
                self.beneath.write().unwrap_or_else(PoisonError::into_inner);
            *beneath = Arc::new(now);
        }
        Ok(())
    }
}

/// The files under a data root or several, read with `pread`.
#[derive(Debug)]
pub struct FileStore {
    /// One without a name, or several with one each.
    roots: Vec<Root>,
    side_index: Option<SideIndex>,
    opened: Mutex<Opened>,
}

/// How a file was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// Just now.
    New,
    /// For a record before this one.
    Again,
}

impl FileStore {
    /// The files under `root`, which must be a folder, and may be a symbolic link to one. Those
    /// below it are refused.
    ///
    /// # Errors
    /// `root` does not exist or is no folder.
    pub fn new(root: &Path) -> Result<Self, StoreError> {
        Self::with_links(root, Links::Refused)
    }

    /// The same, and what is done with symbolic links below `root`.
    ///
    /// # Errors
    /// As [`FileStore::new`].
    pub fn with_links(root: &Path, links: Links) -> Result<Self, StoreError> {
        Self::of(&[DataRoot { name: None, path: root.to_owned() }], links)
    }

    /// The files under one root, or under several with different names: what a host calls `NAME/…`
    /// is looked for under the root of that name.
    ///
    /// # Errors
    /// As [`FileStore::new`], and for several roots without names or with the same one.
    pub fn of(roots: &[DataRoot], links: Links) -> Result<Self, StoreError> {
        let open = |(nth, root): (usize, &DataRoot)| {
            let DataRoot { name, path } = root;
            let wrong = |source| StoreError { path: path.clone(), source };
            let is_again = roots[..nth].iter().any(|other| other.name == *name);
            if is_again || (name.is_none() && roots.len() > 1) {
                let why = "each of several data roots needs its own name: NAME=DIR";
                return Err(wrong(io::Error::new(io::ErrorKind::InvalidInput, why)));
            }
            let beneath = Beneath::new(path, links).map_err(wrong)?;
            let path = beneath.path().to_owned();
            let beneath = RwLock::new(Arc::new(beneath));
            Ok(Root { name: name.clone(), path, beneath })
        };
        let roots = roots.iter().enumerate().map(open).collect::<Result<_, _>>()?;
        Ok(Self { roots, side_index: None, opened: Mutex::default() })
    }

    /// The same files, with what is known of their images kept in `cache`: read now, added to
    /// when an epoch ends and when the store is dropped. Segments next to the data are not
    /// looked at: a device serves others, and whoever may write there could say what they see.
    #[must_use]
    pub fn with_cache(mut self, cache: Cache) -> Self {
        let shown = |root: &Root| match &root.name {
            Some(name) => format!("{name}={}", root.path.display()),
            None => root.path.display().to_string(),
        };
        let names: Vec<String> = self.roots.iter().map(shown).collect();
        let names = names.join(",");
        let place = match &self.roots[..] {
            [Root { name: None, path, .. }] => Place {
                data: path,
                is_folder: true,
                beside: Beside::Ignored,
                cache: Some(cache),
            },
            _ => Place {
                data: Path::new(&names),
                is_folder: false,
                beside: Beside::Ignored,
                cache: Some(cache),
            },
        };
        self.side_index = Some(SideIndex::open(place));
        self
    }

    /// The data roots, without symbolic links.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().map(|root| root.path.as_path())
    }

    /// The root of a file, and the file's path below it.
    fn root_of<'a>(&self, path: &'a str) -> Result<(&Root, &'a str), StoreError> {
        if let [root @ Root { name: None, .. }] = &self.roots[..] {
            return Ok((root, path));
        }
        let (name, rest) = path.split_once('/').unwrap_or((path, ""));
        let found = self.roots.iter().find(|root| root.name.as_deref() == Some(name));
        found.map(|root| (root, rest)).ok_or_else(|| {
            let why = format!(
                "no data root is called `{name}`; start the agent with --data-root {name}=DIR"
            );
            let source = io::Error::new(io::ErrorKind::NotFound, why);
            StoreError { path: PathBuf::from(path), source }
        })
    }

    /// Makes sure that a file's root is the folder that has its name now, and that no file opened
    /// earlier is kept.
    fn renew(&self) -> Result<(), StoreError> {
        self.forget();
        self.roots.iter().try_for_each(|root| {
            root.renew().map_err(|source| StoreError { path: root.path.clone(), source })
        })
    }

    fn forget(&self) {
        self.opened().forget();
    }

    /// Nobody leaves it half changed.
    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file to read from: the one that a scout has opened, if it still has its name.
    fn open_to_read(&self, path: &str) -> Result<OpenFile, StoreError> {
        let (root, below) = self.root_of(path)?;
        let ahead = self.opened().take_ahead(&root.path.join(below));
        match ahead.and_then(OpenFile::refreshed) {
            Some(open) => Ok(open),
            None => self.open(path).map(|(open, _)| open),
        }
    }

    fn open(&self, path: &str) -> Result<(OpenFile, Opening), StoreError> {
        let (root, path) = self.root_of(path)?;
        let full = root.path.join(path);
        let wrong = |error| StoreError { path: full.clone(), source: of_agent(error) };
        let beneath = root.beneath();
        let last = self.opened().last(&full);
        if let Some(open) = last {
            // Another file may have been given its name.
            let now = beneath.metadata(path).map_err(|error| {
                self.forget();
                wrong(error)
            })?;
            if open.identity == Identity::of(&now, open.numbers) {
                return Ok((open, Opening::Again));
            }
        }
        let file = beneath.open(path).map_err(wrong)?;
        let keeps = keeps_its_number(&file);
        let numbers = if keeps { Numbers::Kept } else { Numbers::Changing };
        let identity = Identity::of(&file.metadata().map_err(wrong)?, numbers);
        let (path, file) = (full.clone(), Arc::new(file));
        let open = OpenFile { path, file, numbers, identity };
        self.opened().opened(open.clone());
        Ok((open, Opening::New))
    }
}

impl Store for FileStore {
    fn read(
        &self,
        wanted: Wanted<'_>,
        dst: &mut Vec<u8>,
    ) -> Result<Identity, StoreError> {
        self.read_part(wanted, &mut |_| None, dst).map(|(identity, _)| identity)
    }

    fn read_part(
        &self,
        Wanted { path, offset, len, .. }: Wanted<'_>,
        choose: Choose<'_>,
        dst: &mut Vec<u8>,
    ) -> Result<(Identity, Option<Range<u32>>), StoreError> {
        let open = self.open_to_read(path)?;
        let wrong = |source| StoreError { path: open.path.clone(), source };
        let end = offset.checked_add(u64::from(len));
        let (file_bytes, _) = open.identity.age;
        if end.is_none_or(|end| end > file_bytes) {
            let why = format!(
                "it has {file_bytes} bytes, but the data set says that {len} bytes lie at \
                 {offset}; is it the same copy of the data?",
            );
            return Err(wrong(io::Error::new(io::ErrorKind::UnexpectedEof, why)));
        }
        let part = choose(&open.identity);
        let Range { start, end } = part.clone().unwrap_or(0..len);
        dst.resize(end.saturating_sub(start) as usize, 0);
        open.file.read_exact_at(dst, offset + u64::from(start)).map_err(wrong)?;
        Ok((open.identity, part))
    }

    /// Into the page cache, which the kernel does on its own. A file that is opened for it stays open for the
    /// worker.
    fn read_ahead(&self, Wanted { path, offset, len, .. }: Wanted<'_>) {
        let Ok((open, opening)) = self.open(path) else { return };
        will_need(&open.file, offset, u64::from(len).min(MOST_AHEAD_BYTES));
        if opening == Opening::New {
            self.opened().opened_ahead(open);
        }
    }

    fn probe(&self, path: &str) -> Result<(), StoreError> {
        self.renew()?;
        self.open(path).map(drop)
    }

    fn side_index(&self) -> Option<&SideIndex> {
        self.side_index.as_ref()
    }
}

/// What was said of a file, with the flag of an agent that helps where a link is refused.
fn of_agent(error: io::Error) -> io::Error {
    let inner = error.get_ref();
    match inner.and_then(|inner| inner.downcast_ref::<RefusedLink>()) {
        Some(link) => {
            let words = format!(
                "{} is a symbolic link; give --follow-links to follow those that stay below the \
                 data root",
                link.path.display()
            );
            io::Error::new(error.kind(), words)
        }
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn wanted(path: &str, offset: u64, len: u32) -> Wanted<'_> {
        Wanted { path, offset, len, mark: None }
    }

    fn store_with(name: &str, bytes: &[u8]) -> (tempfile::TempDir, FileStore) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(name), bytes).unwrap();
        let store = FileStore::new(dir.path()).unwrap();
        (dir, store)
    }

    #[test]
    fn of_several_roots_a_path_names_its_own() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(one.path().join("x"), b"one").unwrap();
        std::fs::write(two.path().join("x"), b"two").unwrap();
        let given = |text: String| text.parse::<DataRoot>().unwrap();
        let roots = [
            given(format!("a={}", one.path().display())),
            given(format!("b={}", two.path().display())),
        ];
        let store = FileStore::of(&roots, Links::Refused).unwrap();
        let mut bytes = Vec::new();
        for (path, expected) in [("a/x", b"one"), ("b/x", b"two"), ("a/x", b"one")] {
            store.probe(path).unwrap();
            store.read(wanted(path, 0, 3), &mut bytes).unwrap();
            assert_eq!(bytes, expected);
        }
        for path in ["c/x", "x", "a", "a/../b/x", ""] {
            assert!(store.probe(path).is_err(), "{path}");
        }
        let error = store.probe("c/x").unwrap_err();
        assert!(
            error.source.to_string().contains("--data-root c=DIR"),
            "{}",
            error.source
        );
        let plain = given(one.path().display().to_string());
        assert_eq!(plain.name, None);
        for wrong in
            [[plain.clone(), roots[0].clone()], [roots[0].clone(), roots[0].clone()]]
        {
            let error = FileStore::of(&wrong, Links::Refused).unwrap_err();
            assert!(error.source.to_string().contains("NAME=DIR"), "{}", error.source);
        }
        assert_eq!(given("./x=y".to_owned()).name, None);
        // Else links would be followed out of it.
        assert_eq!(given("file:///data".to_owned()), given("/data".to_owned()));
        assert_eq!(given("a=file:///data".to_owned()), given("a=/data".to_owned()));
        assert_eq!(given("s3://b/x".to_owned()).path, Path::new("s3://b/x"));
    }

    #[test]
    fn a_part_of_what_is_wanted_is_chosen_by_the_file() {
        let (dir, store) = store_with("a", b"0123456789");
        let (mut dst, mut age) = (Vec::new(), None);
        let mut choose = |identity: &Identity| {
            age = Some(identity.age);
            Some(1..3)
        };
        let (identity, part) =
            store.read_part(wanted("a", 2, 6), &mut choose, &mut dst).unwrap();
        assert_eq!((&dst[..], part), (&b"34"[..], Some(1..3)));
        assert_eq!(age, Some(identity.age));
        let metadata = std::fs::metadata(dir.path().join("a")).unwrap();
        let changed_ns = i128::from(metadata.ctime()) * 1_000_000_000;
        assert_eq!(
            identity.changed_ns,
            Some(changed_ns + i128::from(metadata.ctime_nsec()))
        );
        let all = store.read_part(wanted("a", 2, 6), &mut |_| None, &mut dst).unwrap();
        assert_eq!((&dst[..], all), (&b"234567"[..], (identity, None)));
    }

    #[test]
    fn reads_exactly_the_bytes_asked_for() {
        let (_dir, store) = store_with("a", b"0123456789");
        let mut dst = vec![9; 100];
        store.read(wanted("a", 3, 4), &mut dst).unwrap();
        assert_eq!(dst, b"3456");
        store.read(wanted("a", 10, 0), &mut dst).unwrap();
        assert!(dst.is_empty());
    }

    #[test]
    fn a_file_that_takes_the_place_of_another_is_the_one_that_is_read() {
        let (dir, store) = store_with("a", b"old");
        let mut dst = Vec::new();
        let age = store.read(wanted("a", 0, 3), &mut dst).unwrap();
        assert_eq!(store.read(wanted("a", 0, 3), &mut dst).unwrap(), age);
        std::fs::write(dir.path().join("b"), b"new").unwrap();
        std::fs::rename(dir.path().join("b"), dir.path().join("a")).unwrap();
        store.read(wanted("a", 0, 3), &mut dst).unwrap();
        assert_eq!(dst, b"new");
        std::fs::remove_file(dir.path().join("a")).unwrap();
        store.read(wanted("a", 0, 3), &mut dst).unwrap_err();
    }

    #[test]
    fn a_file_is_opened_once_for_scout_and_worker_unless_another_got_its_name() {
        let (dir, store) = store_with("a", b"old");
        let path = store.roots().next().unwrap().join("a");
        let mut dst = Vec::new();
        store.read_ahead(wanted("a", 0, 3));
        let is_ahead = store.opened().take_ahead(&path).is_some();
        assert!(is_ahead, "the worker finds it open");
        store.read_ahead(wanted("a", 0, 3));
        assert!(store.opened().take_ahead(&path).is_none(), "it was open");
        store.forget();
        store.read_ahead(wanted("a", 0, 3));
        let old = store.read(wanted("a", 0, 3), &mut dst).unwrap();
        assert!(store.opened().take_ahead(&path).is_none(), "the worker has it");
        store.forget();
        store.read_ahead(wanted("a", 0, 3));
        std::fs::write(dir.path().join("b"), b"new").unwrap();
        std::fs::rename(dir.path().join("b"), dir.path().join("a")).unwrap();
        assert_ne!(store.read(wanted("a", 0, 3), &mut dst).unwrap(), old);
        assert_eq!(dst, b"new");
        store.forget();
        store.read_ahead(wanted("a", 0, 3));
        std::fs::remove_file(dir.path().join("a")).unwrap();
        store.read(wanted("a", 0, 3), &mut dst).unwrap_err();
    }

    #[test]
    fn a_file_that_is_too_short_is_named_before_memory_is_taken() {
        let (_dir, store) = store_with("a", b"0123");
        let mut dst = Vec::new();
        for (offset, len) in [(0, u32::MAX), (u64::MAX, 1), (4, 1)] {
            let error = store.read(wanted("a", offset, len), &mut dst).unwrap_err();
            assert!(error.to_string().contains("/a on the device"), "{error}");
            assert!(
                error.source.to_string().contains("it has 4 bytes"),
                "{}",
                error.source
            );
        }
        assert_eq!(dst.capacity(), 0);
    }

    #[test]
    fn no_path_leaves_the_root() {
        let (dir, store) = store_with("a", b"x");
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let inner_store = FileStore::new(&inner).unwrap();
        for path in ["../a", "/etc/passwd", "x/../../a", ""] {
            assert!(inner_store.probe(path).is_err(), "{path}");
        }
        assert!(store.probe("inner").is_err(), "a folder is no file");
        store.probe("a").unwrap();
    }

    #[test]
    fn a_pipe_is_refused_and_nobody_waits_for_its_writer() {
        let (dir, store) = store_with("a", b"x");
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let error = store.read(wanted("pipe", 0, 1), &mut Vec::new()).unwrap_err();
        assert_eq!(error.source.to_string(), "it is not a regular file");
        assert!(store.probe("pipe").is_err());
    }

    /// An agent gave out `/etc/passwd` to whoever could put a link below its root.
    #[test]
    fn what_is_behind_a_symbolic_link_is_not_given_out() {
        let (dir, store) = store_with("a", b"inside");
        std::fs::write(dir.path().join("b"), b"other").unwrap();
        let secret = tempfile::tempdir().unwrap();
        std::fs::write(secret.path().join("key"), b"secret").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(secret.path().join("key"), &link).unwrap();
        let mut dst = Vec::new();
        let error = store.read(wanted("link", 0, 6), &mut dst).unwrap_err();
        let line = format!(
            "{} is a symbolic link; give --follow-links to follow those that stay below the data root",
            store.roots().next().unwrap().join("link").display()
        );
        assert_eq!(error.source.to_string(), line);
        assert!(store.probe("link").is_err() && dst.is_empty());
        let following = FileStore::with_links(dir.path(), Links::Beneath).unwrap();
        let error = following.read(wanted("link", 0, 6), &mut dst).unwrap_err();
        assert!(error.source.to_string().contains("data root"), "{}", error.source);
        // The file that is open is not believed either once its name is a link.
        following.read(wanted("a", 0, 6), &mut dst).unwrap();
        std::fs::rename(&link, dir.path().join("a")).unwrap();
        following.read(wanted("a", 0, 6), &mut dst).unwrap_err();
        std::os::unix::fs::symlink("b", &link).unwrap();
        following.read(wanted("link", 0, 5), &mut dst).unwrap();
        assert_eq!(dst, b"other");
    }

    /// On file systems that renumber files, a session would end with the first of them.
    #[test]
    fn where_numbers_change_length_and_time_tell_files_apart() {
        let (dir, _store) = store_with("a", b"0123");
        std::fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
        std::fs::write(dir.path().join("c"), b"0123").unwrap();
        let of = |name: &str, numbers| {
            let path = dir.path().join(name);
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            Identity::of(&file.metadata().unwrap(), numbers).mark()
        };
        assert_eq!(of("a", Numbers::Kept), of("b", Numbers::Kept));
        assert_ne!(of("a", Numbers::Kept), of("c", Numbers::Kept));
        assert_eq!(of("a", Numbers::Changing), of("c", Numbers::Changing));
        std::fs::write(dir.path().join("c"), b"01234").unwrap();
        assert_ne!(of("a", Numbers::Changing), of("c", Numbers::Changing));
    }

    #[test]
    fn a_root_that_takes_the_place_of_another_is_read_from_the_next_session_on() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let fill = |bytes: &[u8]| {
            std::fs::create_dir(&root).unwrap();
            std::fs::write(root.join("a"), bytes).unwrap();
        };
        fill(b"old");
        let store = FileStore::new(&root).unwrap();
        let mut dst = Vec::new();
        let old = store.read(wanted("a", 0, 3), &mut dst).unwrap();
        std::fs::rename(&root, dir.path().join("away")).unwrap();
        fill(b"new");
        assert_eq!(store.read(wanted("a", 0, 3), &mut dst).unwrap(), old);
        assert_eq!(dst, b"old", "a session's files are not mixed");
        store.probe("a").unwrap();
        let new = store.read(wanted("a", 0, 3), &mut dst).unwrap();
        assert_eq!(dst, b"new");
        assert!(new != old && new.mark() != old.mark());
    }

    #[test]
    fn a_missing_root_is_named() {
        let error = FileStore::new(Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert_eq!(error, "cannot read /nowhere/at/all on the device");
    }
}
