//! Where segments of the side index are kept: in the user's cache directory, with a folder for each data
//! set, or next to the data on request. Those of the block cache are kept likewise in a directory of their
//! own, and never next to the data. Nothing is written into a user's folder without being asked.
//!
//! They are believed only if this user's key has sealed them, wherever they are (`key`).
//!
//! The cache directory is bounded. Before a segment is begun, segments of data sets that no longer
//! exist, and of those not written to for the longest time, make room for it.

use std::cmp::Reverse;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bothends_dataset::side_index::content;
use bothends_dataset::{block_cache, side_index};
use bothends_io::{Draft, IoError, open_own, read_regular, replace};

use crate::key::Key;

/// The folders in [`user_cache`] that have the data sets' folders: of the side index, of the block cache, of
/// what was found in shards.
const CACHE: &str = "index";
const BLOCKS: &str = "blocks";
const TABLES: &str = "tables";

/// The most bytes of all data sets together: seven times ImageNet (2.4 kB for each image).
pub const CACHE_LIMIT_BYTES: u64 = 20 << 30;

/// The most bytes of what was found in shards, of all data sets: two hundred million samples.
const TABLES_LIMIT_BYTES: u64 = 4 << 30;

/// The file in a data set's folder that names the data set.
const OWNER: &str = "data-set";

/// How long a data set may be missing (for example on a file system that is not mounted) before its
/// segments are removed.
const AWAY: Duration = Duration::from_secs(14 * 24 * 3600);

/// The data that an index describes, and where it may be kept.
#[derive(Debug, Clone)]
pub struct Place<'a> {
    /// The root of the data, or their name.
    pub data: &'a Path,
    /// Whether that is a folder.
    pub is_folder: bool,
    /// What is done with segments next to the data.
    pub beside: Beside,
    /// The directory for the segments of all data sets, if there is one.
    pub cache: Option<Cache>,
}

/// What is done with segments next to the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// They are ignored: anyone who may write there could decide what images look like.
    Ignored,
    /// They are read.
    Read,
    /// They are read, and new ones are written there if possible.
    Written,
}

/// A directory for the segments of many data sets, and the most bytes of all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// The directory; created when something is first kept in it.
    pub root: PathBuf,
    /// The most bytes of all data sets together.
    pub limit_bytes: u64,
}

impl Cache {
    /// `bothends/index` in the user's cache directory (XDG Base Directory Specification);
    /// `None` for a user without one.
    #[must_use]
    pub fn of_user() -> Option<Self> {
        let root = user_cache()?.join(CACHE);
        Some(Self { root, limit_bytes: CACHE_LIMIT_BYTES })
    }

    /// `bothends/tables` there, for what was found in shards: 20 bytes a sample.
    #[must_use]
    pub fn of_tables() -> Option<Self> {
        let root = user_cache()?.join(TABLES);
        Some(Self { root, limit_bytes: TABLES_LIMIT_BYTES })
    }

    /// `bothends/blocks` there, for at most so many bytes of blocks of all data sets.
    #[must_use]
    pub fn of_blocks(limit_bytes: u64) -> Option<Self> {
        Some(Self { root: user_cache()?.join(BLOCKS), limit_bytes })
    }
}

/// `bothends` in the user's cache directory (XDG Base Directory Specification), the folder for
/// everything that is kept from run to run. `None` for a user without one.
#[must_use]
pub fn user_cache() -> Option<PathBuf> {
    let cache = match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => Path::new(&std::env::var_os("HOME")?).join(".cache"),
    };
    cache.is_absolute().then(|| cache.join("bothends"))
}

/// Whether a file of this name is a segment, of the side index or of the block cache.
pub(crate) type IsSegment = fn(&str) -> bool;

/// The folder of one data set's blocks, or fetched records.
#[derive(Debug)]
pub(crate) struct BlocksFolder {
    pub(crate) path: PathBuf,
    limit_bytes: u64,
    owner: Vec<u8>,
    /// What segments are sealed with.
    pub(crate) key: Key,
}

impl BlocksFolder {
    /// For the data whose root is the folder `data`; `None` where nothing can be kept.
    pub(crate) fn of(data: &Path, cache: Cache) -> Option<Self> {
        let owner = data.canonicalize().ok()?.as_os_str().as_encoded_bytes().to_vec();
        Self::owned(owner, cache)
    }

    /// For data of this name, which are in no folder of this machine.
    pub(crate) fn named(name: &str, cache: Cache) -> Option<Self> {
        Self::owned(name.as_bytes().to_vec(), cache)
    }

    fn owned(owner: Vec<u8>, cache: Cache) -> Option<Self> {
        let path = cache.root.join(folder_name(&owner));
        let key = Key::of_user(Some(&cache.root))?;
        mark_used(&path);
        Some(Self { path, limit_bytes: cache.limit_bytes, owner, key })
    }

    /// The most bytes of all data sets.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// How many more bytes fit here, after what is stale, or of data sets that nobody has used for two
    /// weeks, has made room. Blocks take an epoch to make, so those in use stay.
    pub(crate) fn make_room(&self) -> u64 {
        let root = self.path.parent().unwrap_or(Path::new("/"));
        make_room(root, &self.path, (self.limit_bytes, AWAY), block_cache::is_segment)
    }

    /// A new segment.
    pub(crate) fn begin(&self) -> Result<Draft, IoError> {
        // What is wrong shows when the draft is made.
        let _ = self.path.parent().map(fs::create_dir_all);
        draft_in(&self.path, &self.owner)
    }
}

/// The folders of one data set's segments.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    /// The data set's own folder, and the most bytes of all data sets.
    cache: Option<(PathBuf, u64)>,
    beside: Option<PathBuf>,
    wants_beside: bool,
    /// The data set of the cache folder, as in its owner file.
    owner: Vec<u8>,
    /// What segments are sealed with; without it none is read or written.
    key: Option<Key>,
}

impl Folders {
    pub(crate) fn of(place: Place<'_>) -> Self {
        let data = match place.is_folder {
            true => place.data.canonicalize().ok(),
            false => Some(place.data.to_owned()),
        };
        let owner = data.map(|data| data.as_os_str().as_encoded_bytes().to_vec());
        let owner = owner.unwrap_or_default();
        let name = folder_name(&owner);
        let cache = place.cache.filter(|_| !owner.is_empty());
        let key = Key::of_user(cache.as_ref().map(|cache| cache.root.as_path()));
        let is_read = place.is_folder && place.beside != Beside::Ignored;
        Self {
            cache: cache.map(|cache| (cache.root.join(name), cache.limit_bytes)),
            beside: is_read.then(|| place.data.to_owned()),
            wants_beside: place.beside == Beside::Written,
            owner,
            key,
        }
    }

    /// This user's key.
    pub(crate) fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Where segments are looked for.
    pub(crate) fn to_read(&self) -> impl Iterator<Item = &Path> {
        let cache = self.cache.iter().map(|(folder, _)| folder);
        self.beside.iter().chain(cache).map(PathBuf::as_path)
    }

    /// A new segment in the first folder that can be written, and how many bytes it may have.
    pub(crate) fn begin(&self) -> Option<(Draft, u64)> {
        self.key.as_ref()?;
        let beside = self.beside.as_deref().filter(|_| self.wants_beside);
        let beside = beside.and_then(|folder| Draft::new(folder).ok());
        match beside {
            Some(draft) => Some((draft, u64::MAX)),
            None => self.begin_in_cache(),
        }
    }

    fn begin_in_cache(&self) -> Option<(Draft, u64)> {
        let (folder, limit_bytes) = self.cache.as_ref()?;
        let root = folder.parent()?;
        fs::create_dir_all(root).ok()?;
        // An index is made again in an epoch that nobody waits longer for.
        let bounds = (*limit_bytes, Duration::ZERO);
        let room_bytes = make_room(root, folder, bounds, side_index::is_segment);
        Some((draft_in(folder, &self.owner).ok()?, room_bytes))
    }

    /// Where new segments are written if possible, for people.
    pub(crate) fn shown(&self) -> Option<&Path> {
        let beside = self.beside.as_deref().filter(|_| self.wants_beside);
        beside.or(self.cache.as_ref().map(|(folder, _)| folder.as_path()))
    }

    /// The most bytes of all data sets in the cache directory.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.cache.as_ref().map_or(CACHE_LIMIT_BYTES, |(_, limit_bytes)| *limit_bytes)
    }
}

/// Data that a run opens are in use, also where nothing is written.
pub(crate) fn mark_used(folder: &Path) {
    // In a directory of several users, anyone may put something else in its place.
    let mark = open_own(&folder.join(OWNER));
    let _ = mark.and_then(|mark| mark.set_modified(SystemTime::now()));
}

/// A new segment in a folder of the cache directory.
pub(crate) fn draft_in(folder: &Path, owner: &[u8]) -> Result<Draft, IoError> {
    let draft = Draft::new(folder)?;
    // Without it, the folder is never recognised as stale.
    let path = folder.join(OWNER);
    match read_regular(&path).is_ok_and(|known| known == owner) {
        true => mark_used(folder),
        // Under its name, there may be a link or a pipe.
        false => drop(replace(&path, |mut file| file.write_all(owner))),
    }
    Ok(draft)
}

/// Why a cache was not written, in one line.
pub(crate) fn unwritten(error: &IoError) -> String {
    let why = match (error, error.source()) {
        // What a reader says of these is about data that somebody has.
        (IoError::Missing { path }, _) => {
            format!("`{}` cannot be made; name a folder that can be", path.display())
        }
        (IoError::Unreadable { path }, _) => {
            format!("this user may not write `{}`", path.display())
        }
        (_, Some(source)) => format!("{error}: {source}"),
        (_, None) => error.to_string(),
    };
    format!("the cache cannot be written ({why})")
}

/// The name of a data set's folder in the cache directory.
pub(crate) fn folder_name(owner: &[u8]) -> String {
    format!("{:016x}", content(owner))
}

/// Whether it may be the name of one. Whatever else lies in the directory is not looked into.
fn is_folder_name(name: &str) -> bool {
    name.len() == 16 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// A data set's folder in the cache directory.
struct Kept {
    folder: PathBuf,
    len_bytes: u64,
    /// Since it was written to, or its data were opened.
    unused: Duration,
    is_stale: bool,
}

/// Removes other data sets' segments, of those that were unused for so long, until the rest take three
/// quarters of the limit. Returns how many more bytes `own` may take.
pub(crate) fn make_room(
    root: &Path,
    own: &Path,
    (limit_bytes, unused): (u64, Duration),
    is_segment: IsSegment,
) -> u64 {
    let mut kept: Vec<Kept> = fs::read_dir(root)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let is_ours = entry.file_name().to_str().is_some_and(is_folder_name);
            // A link is not ours, and what it leads to even less.
            let is_folder = entry.file_type().ok()?.is_dir();
            look(&entry.path(), is_segment).filter(|_| is_ours && is_folder)
        })
        .collect();
    kept.sort_by_key(|kept| (!kept.is_stale, Reverse(kept.unused)));
    let mut total: u64 = kept.iter().map(|kept| kept.len_bytes).sum();
    for kept in kept.iter().filter(|kept| kept.folder != own) {
        if kept.is_stale || total > limit_bytes / 4 * 3 && kept.unused >= unused {
            remove(&kept.folder, is_segment);
            total = total.saturating_sub(kept.len_bytes);
        }
    }
    limit_bytes.saturating_sub(total)
}

fn look(folder: &Path, is_segment: IsSegment) -> Option<Kept> {
    let (mut len_bytes, mut used) = (0, SystemTime::UNIX_EPOCH);
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let name = entry.file_name();
        let is_segment = name.to_str().is_some_and(is_segment);
        let is_ours = is_segment || name == OWNER;
        let Some(metadata) = entry.metadata().ok().filter(|_| is_ours) else { continue };
        len_bytes += if is_segment { metadata.len() } else { 0 };
        used = used.max(metadata.modified().unwrap_or(used));
    }
    let unused = SystemTime::now().duration_since(used).unwrap_or_default();
    let is_stale = unused > AWAY && is_gone(folder);
    Some(Kept { folder: folder.to_owned(), len_bytes, unused, is_stale })
}

/// Whether the folder is for data in a folder that no longer exists.
fn is_gone(folder: &Path) -> bool {
    let owner = read_regular(&folder.join(OWNER)).ok();
    let owner = owner.and_then(|owner| String::from_utf8(owner).ok());
    owner.is_some_and(|owner| {
        Path::new(&owner).is_absolute() && !Path::new(&owner).exists()
    })
}

/// Removes segments and the owner file, but not what others may have put there. The folder stays if
/// it has anything else in it.
fn remove(folder: &Path, is_segment: IsSegment) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| is_segment(name) || name == OWNER);
        if is_ours {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use super::*;
    use bothends_dataset::side_index::{EXTENSION, PREFIX, is_segment};

    fn keep(root: &Path, name: &str, len: usize, age: Duration, owner: &str) -> PathBuf {
        let folder = root.join(folder_name(name.as_bytes()));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(OWNER), owner).unwrap();
        let segment = folder.join(format!("{PREFIX}1.{EXTENSION}"));
        fs::write(&segment, vec![0; len]).unwrap();
        let file = fs::File::options().write(true).open(&segment).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
        let mark = fs::File::options().write(true).open(folder.join(OWNER)).unwrap();
        mark.set_modified(SystemTime::now() - age).unwrap();
        folder
    }

    #[test]
    fn the_cache_stays_within_its_limit_and_the_oldest_go_first() {
        let root = tempfile::tempdir().unwrap();
        let (root, hour) = (root.path(), Duration::from_secs(3600));
        let old = keep(root, "a", 400, 9 * hour, "/");
        let newer = keep(root, "b", 400, hour, "/");
        let own = keep(root, "c", 100, 99 * hour, "/");
        assert_eq!(make_room(root, &own, (1000, Duration::ZERO), is_segment), 500);
        assert!(!old.exists() && newer.exists() && own.exists());
        assert_eq!(
            make_room(root, &own, (1000, Duration::ZERO), is_segment),
            500,
            "there is room now"
        );
        assert_eq!(make_room(root, &own, (50, Duration::ZERO), is_segment), 0);
        assert!(own.exists(), "its own are not removed");
    }

    /// In a directory that several users share, anyone may put something under the name of the owner file.
    #[test]
    fn nothing_is_written_through_a_link_and_no_pipe_is_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let (theirs, folder) = (root.path().join("theirs"), root.path().join("set"));
        fs::create_dir(&folder).unwrap();
        fs::write(&theirs, "kept").unwrap();
        let name = folder.join(OWNER);
        std::os::unix::fs::symlink(&theirs, &name).unwrap();
        let before = fs::metadata(&theirs).unwrap().modified().unwrap();
        mark_used(&folder);
        drop(draft_in(&folder, b"/data").unwrap());
        assert_eq!(fs::read(&theirs).unwrap(), b"kept");
        assert_eq!(fs::metadata(&theirs).unwrap().modified().unwrap(), before);
        assert_eq!(fs::read(&name).unwrap(), b"/data");
        fs::remove_file(&name).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&name).status().unwrap();
        assert!(made.success());
        mark_used(&folder);
        drop(draft_in(&folder, b"/data").unwrap());
        assert_eq!(fs::read(&name).unwrap(), b"/data");
    }

    /// Another data set's segments that a run has used lately stay, however full the cache is; opening the
    /// data is a use.
    #[test]
    fn what_is_in_use_makes_no_room() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let used = keep(root, "used", 400, AWAY / 2, "/");
        let unused = keep(root, "unused", 400, AWAY * 2, "/");
        let opened = keep(root, "opened", 400, AWAY * 2, "/");
        let mark = fs::File::options().write(true).open(opened.join(OWNER)).unwrap();
        mark.set_modified(SystemTime::now()).unwrap();
        let left = make_room(root, &root.join("own"), (1000, AWAY), is_segment);
        assert!(used.exists() && opened.exists() && !unused.exists());
        assert_eq!(left, 200);
    }

    #[test]
    fn data_that_are_long_gone_leave_nothing_and_foreign_files_stay() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let gone = keep(root, "gone", 10, AWAY * 2, "/no/such/folder");
        let away = keep(root, "away", 10, AWAY / 2, "/no/such/folder");
        let there = keep(root, "there", 10, AWAY * 2, "/");
        let named = keep(root, "named", 10, AWAY * 2, "not a path");
        let mixed = keep(root, "mixed", 10, AWAY * 2, "/no/such/folder");
        fs::write(mixed.join("mine.txt"), "x").unwrap();
        // What others call theirs, the same files in it.
        let theirs = root.join("results");
        fs::rename(keep(root, "theirs", 10, AWAY * 2, "/no/such/folder"), &theirs)
            .unwrap();
        make_room(root, &root.join("own"), (1 << 20, Duration::ZERO), is_segment);
        assert!(!gone.exists() && away.exists() && there.exists() && named.exists());
        assert_eq!(fs::read_dir(mixed).unwrap().count(), 1);
        make_room(root, &root.join("own"), (0, Duration::ZERO), is_segment);
        assert!(!there.exists());
        assert_eq!(fs::read_dir(theirs).unwrap().count(), 2);
    }
}
