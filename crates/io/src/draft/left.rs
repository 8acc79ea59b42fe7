//! What a process that was killed while it replaced a file has left next to it.
//!
//! A writer has its unfinished file locked until that has its name. Only a file is removed that has the name of one,
//! is this user's own and not locked, and whose process does not run. A process with the same number may run on another
//! machine or in another container, where only the lock tells; if a file system may not pass locks on to other
//! machines, the file must also be old.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::kill;
use nix::sys::statfs::{
    BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, F2FS_SUPER_MAGIC, FsType, OVERLAYFS_SUPER_MAGIC,
    TMPFS_MAGIC, XFS_SUPER_MAGIC, fstatfs,
};
use nix::unistd::Pid;

use crate::files::regular::belongs_to_user;

/// Names in a folder that are looked at: no run waits for a folder with more.
const MOST_NAMES: usize = 100_000;

/// What no writer takes, whatever its file system does.
const OLD: Duration = Duration::from_secs(3600);

/// File systems that no other machine has mounted.
const LOCAL: [FsType; 6] = [
    EXT4_SUPER_MAGIC,
    XFS_SUPER_MAGIC,
    BTRFS_SUPER_MAGIC,
    F2FS_SUPER_MAGIC,
    TMPFS_MAGIC,
    OVERLAYFS_SUPER_MAGIC,
];

/// The name next to `path` of a file that is to replace it, the `nth` of this process.
pub(super) fn beside(path: &Path, nth: u32) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}-{nth}.tmp", std::process::id()));
    beside.into()
}

/// Removes what others left next to `path`; once for each path, since a folder may be large.
pub(super) fn remove_once(path: &Path) {
    static LOOKED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let is_first = {
        let mut looked = LOOKED.lock().unwrap_or_else(PoisonError::into_inner);
        looked.insert(path.to_owned())
    };
    if is_first {
        remove(path);
    }
}

fn remove(path: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten();
    for entry in entries.flatten().take(MOST_NAMES) {
        let writer = entry.file_name().to_str().and_then(|it| writer_of(it, name));
        if writer.is_some_and(|writer| !runs(writer)) {
            // It is in nobody's way: whatever fails here, the next process may do.
            let _ = remove_unlocked(&entry.path());
        }
    }
}

/// The process that a file next to `name` is of, by its own name.
fn writer_of(beside: &str, name: &str) -> Option<i32> {
    let own = beside.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".tmp")?;
    let (writer, nth) = own.split_once('-')?;
    let is_number =
        |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    // The probe is empty, and is there before anything is written.
    let is_ours = is_number(writer) && (is_number(nth) || nth == "probe");
    writer.parse().ok().filter(|writer| is_ours && *writer > 0)
}

/// Whether another process with this number runs, as far as can be seen from here. In a container, the one that was
/// killed often had the number that this one has.
fn runs(process: i32) -> bool {
    if u32::try_from(process) == Ok(std::process::id()) {
        return false;
    }
    // One that has ended and was not waited for is still there, `proc_pid_stat(5)`.
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    match state {
        Some(state) => !matches!(state, 'Z' | 'X'),
        None => kill(Pid::from_raw(process), None) != Err(Errno::ESRCH),
    }
}

/// Removes a file if nobody has it locked.
fn remove_unlocked(path: &Path) -> io::Result<()> {
    // For writing, since a file system on the network locks such files only.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags.bits())
        .open(path)?;
    let found = file.metadata()?;
    let is_own = found.is_file() && found.nlink() == 1 && belongs_to_user(&found);
    let is_local = fstatfs(&file).is_ok_and(|it| LOCAL.contains(&it.filesystem_type()));
    let is_old = || {
        let age = found.modified().ok().and_then(|written| written.elapsed().ok());
        age.is_some_and(|age| age > OLD)
    };
    if is_own && (is_local || is_old()) {
        file.try_lock()?;
        if has_name(&file, path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Locks a new file at `path` until the result is dropped; `None` if another process has removed it before.
pub(super) fn held(file: &File, path: &Path) -> io::Result<Option<File>> {
    let held = file.try_clone()?;
    match held.try_lock() {
        // It is being removed.
        Err(TryLockError::WouldBlock) => return Ok(None),
        // Without locks, nobody removes it.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    Ok(has_name(&held, path).then_some(held))
}

fn has_name(file: &File, path: &Path) -> bool {
    let named = fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()));
    let open = file.metadata().map(|found| (found.dev(), found.ino()));
    matches!((named, open), (Ok(named), Ok(open)) if named == open)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    use super::*;
    use crate::replace;

    /// A process that has ended and was waited for.
    fn ended() -> u32 {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    fn names(folder: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn what_a_killed_writer_left_goes_and_nothing_else_does() {
        let root = tempfile::tempdir().unwrap();
        let (gone, own) = (ended(), std::process::id());
        let path = root.path().join("state.json");
        let left = [
            format!("state.json.{gone}-0.tmp"),
            format!("state.json.{gone}-17.tmp"),
            format!("state.json.{gone}-probe.tmp"),
            // In a container, numbers come again.
            format!("state.json.{own}-4000000.tmp"),
        ];
        // Of one that runs, of another file, of no process, and whatever else there may be.
        let parent = std::os::unix::process::parent_id();
        let kept = [
            format!("state.json.{parent}-0.tmp"),
            format!("state.json.{gone}-0.tmp2"),
            format!("state.json.{gone}-x.tmp"),
            format!("state.json.{gone}.tmp"),
            format!("state.json.+{gone}-0.tmp"),
            format!("other.json.{gone}-0.tmp"),
            format!("a-state.json.{gone}-0.tmp"),
            "state.json.tmp".to_owned(),
            "state.json.99999999999999999999-0.tmp".to_owned(),
            "thesis.txt".to_owned(),
        ];
        for name in left.iter().chain(&kept) {
            fs::write(root.path().join(name), "half").unwrap();
        }
        let [link, shared, folder, locked] =
            [21, 22, 23, 24].map(|nth| format!("state.json.{gone}-{nth}.tmp"));
        symlink(root.path().join("thesis.txt"), root.path().join(&link)).unwrap();
        fs::write(root.path().join(&shared), "half").unwrap();
        let for_all = fs::Permissions::from_mode(0o666);
        fs::set_permissions(root.path().join(&shared), for_all).unwrap();
        fs::create_dir(root.path().join(&folder)).unwrap();
        // Somebody in another container, where this number is that of a process that runs.
        let writer = File::create(root.path().join(&locked)).unwrap();
        writer.lock().unwrap();
        for _ in 0..2 {
            replace(&path, |mut file| file.write_all(b"whole")).unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        let mut expected: BTreeSet<String> = kept.into_iter().collect();
        expected.extend([link, shared, folder, locked]);
        expected.insert("state.json".to_owned());
        assert_eq!(names(root.path()), expected);
    }

    #[test]
    fn what_is_being_written_is_not_removed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("state.json");
        replace(&path, |mut file| {
            file.write_all(b"whole")?;
            // As a process does that has the same number, in another container.
            remove(&path);
            file.sync_all()
        })
        .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(names(root.path()).len(), 1);
    }

    #[test]
    fn a_file_that_was_removed_before_it_was_locked_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        let file = File::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(held(&file, &path).unwrap().is_none());
        let file = File::create(&path).unwrap();
        let other = File::open(&path).unwrap();
        other.lock().unwrap();
        assert!(held(&file, &path).unwrap().is_none());
        other.unlock().unwrap();
        assert!(held(&file, &path).unwrap().is_some());
    }
}
