//! A file without a name until it is complete: it is published at once, or not at all.
//!
//! If the file system supports it (O_TMPFILE), an unfinished file has no name, so nothing is left when its
//! process is killed. Otherwise it has a hidden name, which is removed when the draft is dropped. A file
//! that replaces another is written next to it ([`replace`], or [`write_beside`] if that name
//! matters, or [`take_place`] if something else writes it). One that must not replace another is linked
//! ([`place_first`]). Only that one syncs: otherwise the writer syncs what must survive a power failure, or the reader
//! recognises an empty file. `draft/left.rs` removes what killed writers leave behind under hidden names, and
//! those of [`replace`].

mod left;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::unistd::linkat;

use crate::{Direct, IoError, OpenFile};

/// Names that are tried for a new file: others may be there, of processes with this number that were killed, or
/// that run in other containers.
const MOST_NAMES: u32 = 1000;

/// A file being written.
#[derive(Debug)]
pub struct Draft {
    file: File,
    folder: PathBuf,
    /// The name it has while it is unfinished, where it must have one.
    hidden: Option<PathBuf>,
}

impl Draft {
    /// Begins a file in `folder`, which is made if it is not there (its parent must be).
    ///
    /// # Errors
    /// [`IoError::Unreadable`], [`IoError::Failed`]: for example where nothing may be written.
    pub fn new(folder: &Path) -> Result<Self, IoError> {
        match std::fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(IoError::at(folder, "make", error));
            }
            Ok(()) | Err(_) => {}
        }
        let flags = OFlag::O_TMPFILE.bits();
        match draft_file().custom_flags(flags).open(folder) {
            Ok(file) => Ok(Self { file, folder: folder.to_owned(), hidden: None }),
            Err(_) => Self::hidden(folder),
        }
    }

    /// Begins a file that has a name at once: the file system knows none without.
    fn hidden(folder: &Path) -> Result<Self, IoError> {
        left::remove_drafts_once(folder);
        let hidden = left::hidden(folder, nanoseconds());
        let file = draft_file().create_new(true).open(&hidden);
        let file = file.map_err(|e| IoError::at(&hidden, "write", e))?;
        Ok(Self { file, folder: folder.to_owned(), hidden: Some(hidden) })
    }

    /// Writes `bytes` over those from `offset` on.
    ///
    /// # Errors
    /// [`IoError::Failed`], as when the disk is full.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), IoError> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|e| IoError::at(&self.folder, "write in", e))
    }

    /// What is written so far, to be read while it is unfinished and afterwards. Needs `/proc`.
    ///
    /// # Errors
    /// As [`OpenFile::open`].
    pub fn reading(&self, direct: Direct) -> Result<OpenFile, IoError> {
        OpenFile::again(&self.file, direct)
    }

    /// Ends the file at byte `len`.
    ///
    /// # Errors
    /// [`IoError::Failed`].
    pub fn cut(&self, len: u64) -> Result<(), IoError> {
        self.file.set_len(len).map_err(|e| IoError::at(&self.folder, "write in", e))
    }

    /// Gives the file a name that no other process chooses, beginning with `prefix` and ending
    /// in `.extension`; names rise with time.
    ///
    /// # Errors
    /// [`IoError::Failed`].
    pub fn publish(mut self, prefix: &str, extension: &str) -> Result<PathBuf, IoError> {
        let unique = format!("{:x}-{:x}", nanoseconds(), std::process::id());
        let name = format!("{prefix}{unique}.{extension}");
        let path = self.folder.join(name);
        let failed = |e: io::Error| IoError::at(&path, "write", e);
        match self.hidden.take() {
            Some(hidden) => std::fs::rename(&hidden, &path).map_err(|error| {
                // Still there: the next drop takes it away.
                self.hidden = Some(hidden);
                failed(error)
            })?,
            None => {
                let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                let follow = AtFlags::AT_SYMLINK_FOLLOW;
                linkat(AT_FDCWD, unnamed.as_str(), AT_FDCWD, &path, follow)
                    .map_err(|errno| failed(errno.into()))?;
            }
        }
        Ok(path)
    }

    /// Gives the file the name `name`, in place of what has it. Until then it has one as [`Self::publish`] gives it,
    /// by which others recognise what a killed process has left.
    ///
    /// # Errors
    /// [`IoError::Failed`]; nothing is left.
    pub fn publish_as(
        self,
        (prefix, extension): (&str, &str),
        name: &str,
    ) -> Result<PathBuf, IoError> {
        let path = self.folder.join(name);
        let beside = self.publish(prefix, extension)?;
        take_place(&beside, &path).map_err(|e| IoError::at(&path, "write", e))?;
        Ok(path)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            // If it cannot be removed, somebody else has.
            let _ = std::fs::remove_file(hidden);
        }
    }
}

/// Writes a file at `beside` and gives it the name `path`, in place of what had it: who looks at
/// `path` sees the old one or the new one, whole. After an error nothing is left at `beside`.
///
/// # Errors
/// Those of `write`, and what the system says.
pub fn write_beside<T>(
    beside: &Path,
    path: &Path,
    write: impl FnOnce(File) -> io::Result<T>,
) -> io::Result<T> {
    named(beside, path, create_anew(beside).and_then(write))
}

/// Gives the complete file at `beside` the name `path`, in place of what had it. After an error nothing is left
/// at `beside`.
///
/// # Errors
/// What the system says.
pub fn take_place(beside: &Path, path: &Path) -> io::Result<()> {
    named(beside, path, Ok(()))
}

/// Gives the file at `beside` the name `path`, or removes it where it was not written.
fn named<T>(beside: &Path, path: &Path, written: io::Result<T>) -> io::Result<T> {
    let done = written.and_then(|done| std::fs::rename(beside, path).map(|()| done));
    if done.is_err() {
        // It may not even have been made; the first error is the one to tell.
        let _ = std::fs::remove_file(beside);
    }
    done
}

/// Writes `bytes` into a new file at `beside`, of this mode before the umask, and gives it the name `path` if
/// nothing has that: of several that do so at once, one succeeds. The file appears whole, and nothing is left at
/// `beside`. A file that others sweep away before it has its name is written again.
///
/// # Errors
/// `AlreadyExists` if something has the name; `Unsupported` where the file system does not link files; and
/// whatever else the system says.
pub fn place_first(
    beside: &Path,
    path: &Path,
    bytes: &[u8],
    mode: u32,
) -> io::Result<()> {
    loop {
        let file = new_file().mode(mode).open(beside)?;
        // A name that is linked may be there after a power failure without the bytes, and stays.
        let written = file.write_all_at(bytes, 0).and_then(|()| file.sync_data());
        let placed = written
            .and_then(|()| std::fs::hard_link(beside, path).map_err(without_links));
        let removed = std::fs::remove_file(beside);
        match placed {
            // Whoever had the place may have left it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound && removed.is_err() => {
            }
            placed => return placed,
        }
    }
}

/// Where a file system does not link files, vfat says `EPERM`, others that they do not support it.
fn without_links(error: io::Error) -> io::Error {
    match error.kind() == io::ErrorKind::PermissionDenied {
        true => io::ErrorKind::Unsupported.into(),
        false => error,
    }
}

/// A new file at `path`. What a writer that was killed left there goes; what is behind a link that
/// somebody put there is not touched.
fn create_anew(path: &Path) -> io::Result<File> {
    match new_file().open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(path)?;
            new_file().open(path)
        }
        created => created,
    }
}

/// Writes a file in place of the one that is called `path`, as [`write_beside`] does, under a name
/// that no other thread and no other process chooses until then: `path`, and behind it the number of
/// the process, one that is counted up, and `.tmp`. The first time, it removes what processes that were
/// killed more than an hour ago left there under such names.
///
/// # Errors
/// As [`write_beside`].
pub fn replace<T>(
    path: &Path,
    write: impl FnOnce(File) -> io::Result<T>,
) -> io::Result<T> {
    left::remove_once(path);
    let (beside, file) = create_beside(path)?;
    named(&beside, path, write(file))
}

/// Makes sure that [`replace`] can write a file called `path`, before there is one to lose. What has that name
/// stays as it is.
///
/// # Errors
/// What the system says.
pub fn check_replaceable(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let (beside, _) = create_beside(path)?;
    // Another process with this number in another container may have removed it.
    let _ = std::fs::remove_file(&beside);
    Ok(())
}

/// A new file that is to replace `path`. What has a name already is somebody else's.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut last = io::ErrorKind::AlreadyExists.into();
    for _ in 0..MOST_NAMES {
        // Distinct values are all that is asked of the counter.
        let beside = left::beside(path, NEXT.fetch_add(1, Ordering::Relaxed));
        match new_file().open(&beside) {
            Ok(file) => return Ok((beside, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Whatever the umask: what others may write is not believed later.
fn draft_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o644);
    options
}

/// As readable for others, and as closed to them, as a draft.
fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o644);
    options
}

/// Since 1970.
fn nanoseconds() -> u128 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_published_is_whole_and_a_dropped_draft_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("new");
        let draft = Draft::new(&folder).unwrap();
        draft.write_at(b"2345", 2).unwrap();
        draft.write_at(b"01", 0).unwrap();
        assert!(names(&folder).is_empty() || draft.hidden.is_some());
        let path = draft.publish("a-", "test").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"012345");
        drop(Draft::new(&folder).unwrap());
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(names(&folder), [name]);
        assert!(name.starts_with("a-") && name.ends_with(".test"));
    }

    /// As on NFS, and wherever else a file cannot be without a name.
    #[test]
    fn what_killed_processes_left_under_hidden_names_goes() {
        let root = tempfile::tempdir().unwrap();
        let gone = left::tests::ended();
        let parent = std::os::unix::process::parent_id();
        let old = [format!(".draft-{gone}-1"), format!(".draft-{gone}-1764478830123")];
        // Of one that runs, of no process, and a file of somebody.
        let kept = [
            format!(".draft-{parent}-1"),
            format!(".draft-{gone}-x"),
            format!(".draft-{gone}"),
            format!("draft-{gone}-1"),
            ".draft".to_owned(),
        ];
        for name in old.iter().chain(&kept) {
            left::tests::leave(&root.path().join(name), 2 * left::OLD_DRAFT);
        }
        // Perhaps a segment of another machine, which grows again with its next epoch.
        let new = format!(".draft-{gone}-2");
        left::tests::leave(&root.path().join(&new), left::OLD_DRAFT / 2);
        let draft = Draft::hidden(root.path()).unwrap();
        draft.write_at(b"whole", 0).unwrap();
        assert!(draft.hidden.as_ref().is_some_and(|path| path.exists()));
        let published = draft.publish("a-", "test").unwrap();
        assert_eq!(std::fs::read(&published).unwrap(), b"whole");
        std::fs::remove_file(published).unwrap();
        drop(Draft::hidden(root.path()).unwrap());
        let mut expected = [&kept[..], &[new]].concat();
        expected.sort();
        assert_eq!(names(root.path()), expected);
    }

    #[test]
    fn what_is_written_beside_takes_the_place_or_leaves_it() {
        let root = tempfile::tempdir().unwrap();
        let [beside, path] = ["new", "file"].map(|name| root.path().join(name));
        for text in ["first", "second"] {
            write_beside(&beside, &path, |mut file| file.write_all(text.as_bytes()))
                .unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), text.as_bytes());
            replace(&path, |mut file| file.write_all(b"second")).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"second");
        }
        let full = |mut file: File| {
            file.write_all(b"th")?;
            Err::<(), _>(io::ErrorKind::StorageFull.into())
        };
        for error in [write_beside(&beside, &path, full), replace(&path, full)] {
            assert_eq!(error.unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
        assert_eq!(
            (names(root.path()), std::fs::read(&path).unwrap()),
            (vec!["file".to_owned()], b"second".to_vec())
        );
    }

    #[test]
    fn a_draft_takes_the_place_of_what_has_its_name() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        for begin in [Draft::new, Draft::hidden] {
            std::fs::write(&path, "a longer one").unwrap();
            let draft = begin(root.path()).unwrap();
            draft.write_at(b"whole", 0).unwrap();
            assert_eq!(draft.publish_as(("a-", "test"), "file").unwrap(), path);
            assert_eq!(std::fs::read(&path).unwrap(), b"whole");
            assert_eq!(names(root.path()), ["file"]);
        }
        let folder = root.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        let draft = Draft::new(root.path()).unwrap();
        let error = draft.publish_as(("a-", "test"), "folder").unwrap_err();
        assert!(error.to_string().contains("folder"), "{error}");
        std::fs::write(folder.join("new"), "by something else").unwrap();
        take_place(&folder.join("new"), &folder).unwrap_err();
        take_place(&folder.join("new"), &path).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert!(names(&folder).is_empty());
        assert_eq!(names(root.path()), ["file", "folder"]);
    }

    #[test]
    fn the_first_file_under_a_name_stays() {
        use std::os::unix::fs::PermissionsExt;

        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        let place = |nth: u8| {
            let beside = root.path().join(format!("{nth}.new"));
            place_first(&beside, &path, &[nth; 9], 0o600).map(|()| nth)
        };
        let placed: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|nth| scope.spawn(move || place(nth))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let (first, others): (Vec<_>, Vec<_>) =
            placed.into_iter().partition(Result::is_ok);
        let [Ok(first)] = first[..] else { panic!("{first:?}") };
        for other in others {
            assert_eq!(other.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(std::fs::read(&path).unwrap(), [first; 9]);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!((mode & 0o777, names(root.path())), (0o600, vec!["file".to_owned()]));
        let missing = root.path().join("no/file");
        let error = place_first(&missing, &path, b"", 0o600).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let refused = without_links(io::ErrorKind::PermissionDenied.into());
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn whether_a_file_can_be_replaced_is_known_before() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        check_replaceable(&path).unwrap();
        assert!(names(root.path()).is_empty());
        std::fs::write(&path, "kept").unwrap();
        check_replaceable(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
        assert_eq!(names(root.path()), ["file"]);
        let error = check_replaceable(root.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        let error = check_replaceable(&root.path().join("no/file")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn where_nothing_can_be_written_is_said() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("file"), "").unwrap();
        for folder in ["file", "no/where"] {
            let error = Draft::new(&root.path().join(folder)).unwrap_err();
            assert!(error.to_string().contains(folder), "{error}");
        }
    }
}
