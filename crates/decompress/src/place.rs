//! Where data sets are kept, and who may use a folder.
//!
//! ```text
//! <root>/<data set>-<its files as they are>/lock     locked by whoever uses it, exclusively by who makes it
//!                                           data/    the files
//!                                           about    one line for each file: length and path; written last
//! ```
//!
//! The folder's name changes with the files that the data set is made of. Folders of data that have changed, and of
//! data that nobody has opened for two weeks, make room for others as long as nobody uses them; whatever else lies
//! in the root is not touched.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bothends_dataset::{
    Codec, Decompression, Kind, Step, Storage as _, Treatment, Version,
};
use bothends_io::{Folder, free_bytes, is_own_folder, open_own};
use bothends_side_index::user_cache;
use twox_hash::XxHash3_64;

use crate::progress::{Progress, Stage};
use crate::{Compressed, DecompressError, Decompressed, Told};

/// The folder for decompressed data sets in a cache directory.
const FOLDER: &str = "decompressed";

const LOCK: &str = "lock";
const DATA: &str = "data";
const ABOUT: &str = "about";

/// The first line of `about`.
const MAGIC: &str = "bothends decompressed 1";

/// Longest list of files that is believed.
const MOST_ABOUT_BYTES: u64 = 1 << 28;

/// Unused data sets are kept for so long.
const KEPT: Duration = Duration::from_secs(14 * 24 * 3600);

/// What is always left of a disk.
pub(crate) const LEFT_BYTES: u64 = 512 << 20;

/// How often others' progress is looked at, and how long they may make none.
const LOOK: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(600);

/// Where data sets are decompressed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    root: PathBuf,
}

impl Place {
    /// A folder in this user's cache directory; `None` for a user without one.
    #[must_use]
    pub fn of_user() -> Option<Self> {
        Some(Self::in_cache(&user_cache()?))
    }

    /// A folder in a cache directory that the user has named.
    #[must_use]
    pub fn in_cache(cache: &Path) -> Self {
        Self { root: cache.join(FOLDER) }
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
}

/// A folder in use: nobody removes it.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    fn open(folder: &Path) -> Result<File, DecompressError> {
        let path = folder.join(LOCK);
        let mut options = OpenOptions::new();
        // For writing, since a file system on the network locks such files only.
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(&path).map_err(DecompressError::at("open", &path))
    }

    /// The folder that was made here is one to use, for others as well.
    pub(crate) fn share(self) -> Self {
        // Whoever removes it between the two, because its data have changed, is found out when it is opened.
        let _ = self.file.lock_shared();
        self
    }
}

/// Whether the file still has its name: who made room may have removed it before it was locked.
fn is_current(file: &File, folder: &Path) -> bool {
    let id = |found: Metadata| (found.dev(), found.ino());
    let named = fs::symlink_metadata(folder.join(LOCK)).map(id);
    named.is_ok_and(|named| file.metadata().map(id).is_ok_and(|open| open == named))
}

/// Whether somebody else has it.
fn is_busy(
    tried: Result<(), TryLockError>,
    folder: &Path,
) -> Result<bool, DecompressError> {
    match tried {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(source)) => {
            Err(DecompressError::NoLocks { folder: folder.to_owned(), source })
        }
    }
}

/// What is to be done with an entry.
pub(crate) enum Claim {
    /// Nothing: all is there.
    Made(Lock),
    /// It is made by whoever holds this.
    ToMake(Lock),
}

/// A data set's folder.
pub(crate) struct Entry {
    folder: PathBuf,
    /// The data set, as the first half of the folder's name.
    owner: String,
    root: PathBuf,
    /// The data as the user names them.
    shown: String,
    /// What the files are that it is made of, by the order of the plan's steps.
    pub(crate) versions: Vec<Version>,
}

impl Entry {
    pub(crate) fn of(
        data: Compressed<'_>,
        plan: &Decompression,
        place: &Place,
    ) -> Result<Self, DecompressError> {
        let versions = versions(data, plan)?;
        let shown = data.storage.shown(data.target);
        // One name for a folder, whatever it is called from.
        let owner = fs::canonicalize(&shown)
            .ok()
            .and_then(|path| path.into_os_string().into_string().ok());
        let owner = hash(owner.as_deref().unwrap_or(&shown).as_bytes());
        let subject = subject(plan, &versions);
        let folder = place.root.join(format!("{owner}-{subject}"));
        Ok(Self { folder, owner, root: place.root.clone(), shown, versions })
    }

    /// Where its files are.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join(DATA)
    }

    /// What is told, without numbers.
    pub(crate) fn progress(&self, stage: Stage) -> Progress {
        Progress {
            stage,
            data: self.shown.clone(),
            folder: self.data(),
            files: (0, 0),
            read_bytes: (0, 0),
            written_bytes: 0,
        }
    }

    /// The entry, if it has been made.
    pub(crate) fn made(&self) -> Result<Option<Lock>, DecompressError> {
        if !self.folder.join(ABOUT).exists() {
            return Ok(None);
        }
        self.check_own()?;
        let file = Lock::open(&self.folder)?;
        let is_made =
            !is_busy(file.try_lock_shared(), &self.folder)? && self.bytes().is_some();
        Ok(is_made.then_some(Lock { file }))
    }

    /// Waits for whoever makes it, if anybody does.
    pub(crate) fn claim(&self, watch: &mut Told<'_>) -> Result<Claim, DecompressError> {
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            if let Some(claim) = self.try_claim()? {
                return Ok(claim);
            }
            let written = bytes_below(&self.data());
            if written != seen {
                (seen, since) = (written, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                let (folder, seconds) = (self.folder.clone(), PATIENCE.as_secs());
                return Err(DecompressError::Stalled { folder, seconds });
            }
            let progress = self.progress(Stage::Waiting);
            if watch(&Progress { written_bytes: written, ..progress }).is_break() {
                return Err(DecompressError::Cancelled);
            }
            thread::sleep(LOOK);
        }
    }

    /// `None` while another process makes it.
    fn try_claim(&self) -> Result<Option<Claim>, DecompressError> {
        let mut directory = DirBuilder::new();
        directory.recursive(true).mode(0o700);
        let made = directory.create(&self.folder);
        made.map_err(DecompressError::at("make", &self.folder))?;
        self.check_own()?;
        let file = Lock::open(&self.folder)?;
        if !is_busy(file.try_lock_shared(), &self.folder)? && self.bytes().is_some() {
            return Ok(Some(Claim::Made(Lock { file })));
        }
        // Two that share it and want to make it would wait for each other.
        let _ = file.unlock();
        if is_busy(file.try_lock(), &self.folder)? || !is_current(&file, &self.folder) {
            return Ok(None);
        }
        let lock = Lock { file };
        Ok(Some(match self.bytes() {
            Some(_) => Claim::Made(lock.share()),
            None => Claim::ToMake(lock),
        }))
    }

    fn check_own(&self) -> Result<(), DecompressError> {
        for folder in [&self.root, &self.folder] {
            match is_own_folder(folder) {
                Ok(true) => {}
                Ok(false) => {
                    return Err(DecompressError::NotOwn { folder: folder.clone() });
                }
                Err(error) => return Err(DecompressError::at("open", folder)(error)),
            }
        }
        Ok(())
    }

    /// Its bytes, if all of its files are there as they were written.
    fn bytes(&self) -> Option<u64> {
        let mut text = String::new();
        let about = open_own(&self.folder.join(ABOUT)).ok()?;
        about.take(MOST_ABOUT_BYTES).read_to_string(&mut text).ok()?;
        let (magic, rest) = text.split_once('\n')?;
        let mut total = 0_u64;
        // The last line is the data's name, for people.
        let (files, _) = rest.trim_end().rsplit_once('\n')?;
        for line in files.lines() {
            let (len, path) = line.split_once(' ')?;
            let len: u64 = len.parse().ok()?;
            let found = fs::metadata(self.data().join(path)).ok()?;
            (found.is_file() && found.len() == len).then_some(())?;
            total = total.checked_add(len)?;
        }
        (magic == MAGIC).then_some(total)
    }

    /// Removes files that were complete once and are not what they were. Those of a run that was cut short stay.
    pub(crate) fn remove_damaged(&self) -> Result<(), DecompressError> {
        let about = self.folder.join(ABOUT);
        if about.exists() {
            // In this order: without `about`, what is there would be taken for what a run that was cut short has made.
            let failed = DecompressError::at("remove", &self.folder);
            fs::remove_dir_all(self.data()).map_err(failed)?;
            let failed = DecompressError::at("remove", &about);
            fs::remove_file(&about).map_err(failed)?;
        }
        Ok(())
    }

    /// All of its files are there.
    pub(crate) fn finish(&self, files: &[(u64, String)]) -> Result<(), DecompressError> {
        let mut text = format!("{MAGIC}\n");
        for (len, path) in files {
            text.push_str(&format!("{len} {path}\n"));
        }
        text.push_str(&format!("of {}\n", self.shown.escape_debug()));
        let path = self.folder.join(ABOUT);
        let failed = DecompressError::at("write", &path);
        bothends_io::replace(&path, |mut file| {
            io::Write::write_all(&mut file, text.as_bytes())?;
            file.sync_all()
        })
        .map_err(failed)
    }

    /// The data set, ready.
    pub(crate) fn open(
        &self,
        lock: Lock,
        target: String,
    ) -> Result<Decompressed, DecompressError> {
        let bytes = self.bytes().ok_or_else(|| DecompressError::Failed {
            doing: "find what was decompressed in",
            path: self.folder.clone(),
            source: io::ErrorKind::NotFound.into(),
        })?;
        // The time of the last use.
        let _ = lock.file.set_modified(SystemTime::now());
        Ok(Decompressed { root: self.data(), target, bytes, _lock: lock })
    }

    /// Why no more can be written.
    pub(crate) fn not_written(&self, error: io::Error) -> DecompressError {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        if !full.contains(&error.kind()) {
            return DecompressError::at("write in", &self.data())(error);
        }
        // Of a quota, nothing else tells.
        DecompressError::NoRoom {
            folder: self.root.clone(),
            free_bytes: 0,
            needed_bytes: LEFT_BYTES,
        }
    }

    /// That there is room for so many bytes.
    pub(crate) fn check_room(&self, needed_bytes: u64) -> Result<(), DecompressError> {
        // Where the system does not tell, writing does.
        let free = |folder: &Path| free_bytes(folder).unwrap_or(u64::MAX);
        if !fits(needed_bytes, free(&self.root)) {
            self.make_room();
        }
        let free_bytes = free(&self.root);
        match fits(needed_bytes, free_bytes) {
            true => Ok(()),
            false => Err(DecompressError::NoRoom {
                folder: self.root.clone(),
                free_bytes,
                needed_bytes: needed_bytes.saturating_add(LEFT_BYTES),
            }),
        }
    }

    /// Removes what was made of this data set when its files were others, and what nobody has used for long.
    pub(crate) fn make_room(&self) {
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let (name, folder) = (entry.file_name(), entry.path());
            let owner = name.to_str().and_then(owner_of);
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let Some(owner) = owner.filter(|_| is_folder && folder != self.folder) else {
                continue;
            };
            let used = fs::metadata(folder.join(LOCK)).and_then(|lock| lock.modified());
            let unused = used.ok().and_then(|used| used.elapsed().ok());
            let is_old = unused.is_some_and(|unused| unused > KEPT);
            if owner == self.owner || is_old {
                remove(&folder);
            }
        }
    }
}

/// Whether so many bytes may be written where so many are free.
pub(crate) fn fits(needed_bytes: u64, free_bytes: u64) -> bool {
    free_bytes >= needed_bytes.saturating_add(LEFT_BYTES)
}

/// Removes an entry that nobody uses.
fn remove(folder: &Path) {
    // Only what has a lock is one of ours, and only who has it may remove it. A link leads elsewhere.
    if !is_own_folder(folder).unwrap_or(false) {
        return;
    }
    let lock = OpenOptions::new().read(true).write(true).open(folder.join(LOCK));
    let Ok(lock) = lock else { return };
    if lock.try_lock().is_err() {
        return;
    }
    // Files that are left, if any, are whole ones.
    if fs::remove_file(folder.join(ABOUT)).is_ok() || !folder.join(ABOUT).exists() {
        let _ = fs::remove_dir_all(folder.join(DATA));
        let _ = fs::remove_file(folder.join(LOCK));
        let _ = fs::remove_dir(folder);
    }
}

/// The data set that a folder with this name is of.
fn owner_of(name: &str) -> Option<&str> {
    let is_hash = |text: &str| {
        text.len() == 16
            && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let (owner, subject) = name.split_once('-')?;
    (is_hash(owner) && is_hash(subject)).then_some(owner)
}

fn hash(bytes: &[u8]) -> String {
    format!("{:016x}", XxHash3_64::oneshot(bytes))
}

/// A name for what comes of these files: field by field, so that a name in the code may change.
fn subject(plan: &Decompression, versions: &[Version]) -> String {
    let mut text = String::new();
    for (Step { from, to, treatment }, version) in plan.steps.iter().zip(versions) {
        let treatment = match treatment {
            Treatment::Copied => "copied",
            Treatment::Plain => "plain",
            Treatment::Decompressed(Codec::Gzip) => "gzip",
            Treatment::Decompressed(Codec::Zlib) => "zlib",
            Treatment::Decompressed(Codec::Zstd) => "zstd",
            Treatment::Decompressed(Codec::Snappy) => "snappy",
        };
        let Version { name: _, len, changed_ns, tag } = version;
        let changed = changed_ns.unwrap_or_default();
        // Nothing in between is in a path.
        text.push_str(&format!("{from}\0{to}\0{treatment}\0{len}\0{changed}\0{tag}\0"));
    }
    let mut bytes = text.into_bytes();
    // Made of an index that is no step.
    for (to, text) in &plan.texts {
        bytes.extend_from_slice(format!("{to}\0{}\0", text.len()).as_bytes());
        bytes.extend_from_slice(text);
    }
    hash(&bytes)
}

/// The files of the plan as they are now.
pub(crate) fn versions(
    data: Compressed<'_>,
    plan: &Decompression,
) -> Result<Vec<Version>, DecompressError> {
    let Compressed { storage, target } = data;
    let is_file = matches!(storage.kind(target), Ok(Kind::File { .. }));
    let places: BTreeSet<&str> = match is_file {
        true => BTreeSet::from([target]),
        false => plan.steps.iter().map(|step| parent(&step.from)).collect(),
    };
    let mut known = HashMap::new();
    for place in places {
        for version in versions_at(data, place)? {
            // Of one file, it is the only one, whatever it is called.
            let path = match (is_file, place) {
                (true, _) => target.to_owned(),
                (false, "") => version.name.clone(),
                (false, folder) => format!("{folder}/{}", version.name),
            };
            known.insert(path, version);
        }
    }
    let versions = plan.steps.iter().map(|step| {
        let version = known.get(&step.from).cloned();
        let path = PathBuf::from(storage.shown(&step.from));
        let missing = DecompressError::at("open", &path);
        version
            .map(|version| Version { name: step.from.clone(), ..version })
            .ok_or_else(|| missing(io::ErrorKind::NotFound.into()))
    });
    versions.collect()
}

/// The folder of a file; `""` at the root.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The versions of the files in a folder, or of one file.
fn versions_at(
    Compressed { storage, target }: Compressed<'_>,
    place: &str,
) -> Result<Vec<Version>, DecompressError> {
    let shown = PathBuf::from(storage.shown(place));
    let failed = DecompressError::at("list", &shown);
    if let Some(versions) = storage.versions(place).map_err(&failed)? {
        return Ok(versions);
    }
    // Files of this machine that are taken for objects have no tags, and times that are finer.
    let local = storage.local(place).map(|path| {
        let (folder, target) = Folder::around(&path)?;
        folder.versions(&target)
    });
    let local = local.transpose().map_err(&failed)?.flatten();
    local.ok_or_else(|| DecompressError::Unversioned { data: storage.shown(target) })
}

/// Bytes of the files below a folder.
fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => bytes_below(&entry.path()),
        Ok(_) => entry.metadata().map_or(0, |found| found.size()),
        Err(_) => 0,
    });
    bytes.sum()
}
