//! What a process that was killed has left: next to a file that it replaced, or as a draft that had to have a name.
//!
//! Only a file is removed that has the name of such a one, is this user's own, was not written for an hour (a draft: for a
//! day), and whose process does not run. A process with the same number may run on another machine or in another container, where
//! nothing but the age tells: locks are not asked, which network file systems may wait for or not pass on.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::files::regular::belongs_to_user;

/// What the hidden names of drafts begin with.
const DRAFT: &str = ".draft-";

/// What stood for a number in the names of empty files by which earlier versions saw that they could write.
const PROBE: &str = "probe";

/// Names in a folder that are looked at: no run waits for a folder with more.
const MOST_NAMES: usize = 100_000;

/// No writer pauses for as long within a file, whatever its file system does.
const OLD: Duration = Duration::from_secs(3600);

/// A segment of a cache is a draft as long as it grows, and does not grow in an epoch that finds everything in the cache.
pub(super) const OLD_DRAFT: Duration = Duration::from_secs(24 * 3600);

/// The name in `folder` of a draft that must have one, told from others of this process by `nth`.
pub(super) fn hidden(folder: &Path, nth: u128) -> PathBuf {
    folder.join(format!("{DRAFT}{}-{nth}", std::process::id()))
}

/// The name next to `path` of a file that is to replace it, the `nth` of this process.
pub(super) fn beside(path: &Path, nth: u32) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}-{nth}.tmp", std::process::id()));
    beside.into()
}

/// Removes what others left next to `path`; once for each path, since a folder may be large.
pub(super) fn remove_once(path: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    if is_first_look(path) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let writer = |beside: &str| writer_of(beside, name);
        remove(folder.unwrap_or(Path::new(".")), OLD, writer);
    }
}

/// Removes drafts that others left in `folder`; once for each folder.
pub(super) fn remove_drafts_once(folder: &Path) {
    if is_first_look(folder) {
        remove(folder, OLD_DRAFT, writer_of_draft);
    }
}

/// Whether this process has not looked there yet.
fn is_first_look(path: &Path) -> bool {
    static LOOKED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut looked = LOOKED.lock().unwrap_or_else(PoisonError::into_inner);
    looked.insert(path.to_owned())
}

/// Removes the files of `folder` that `writer_of` knows the process of, and that were not written for so long.
fn remove(folder: &Path, old: Duration, writer_of: impl Fn(&str) -> Option<i32>) {
    let entries = fs::read_dir(folder).into_iter().flatten();
    for entry in entries.flatten().take(MOST_NAMES) {
        let writer = entry.file_name().to_str().and_then(&writer_of);
        if writer.is_some_and(|writer| !runs(writer)) {
            // It is in nobody's way: whatever fails here, the next process may do.
            let _ = remove_old(&entry.path(), old);
        }
    }
}

/// The process that a file next to `name` is of, by its own name.
fn writer_of(beside: &str, name: &str) -> Option<i32> {
    let own = beside.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".tmp")?;
    let (writer, nth) = own.split_once('-')?;
    process(writer).filter(|_| is_number(nth) || nth == PROBE)
}

/// The process that a draft is of, by its hidden name.
fn writer_of_draft(hidden: &str) -> Option<i32> {
    let (writer, nth) = hidden.strip_prefix(DRAFT)?.split_once('-')?;
    process(writer).filter(|_| is_number(nth))
}

fn process(text: &str) -> Option<i32> {
    let number = is_number(text).then(|| text.parse().ok()).flatten();
    number.filter(|number| *number > 0)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())
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

/// Removes a file of this user if it was not written for so long.
fn remove_old(path: &Path, old: Duration) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    let is_own = found.is_file() && found.nlink() == 1 && belongs_to_user(&found);
    // A time to come, from another machine's clock, is no age.
    let age = found.modified()?.elapsed().unwrap_or_default();
    if is_own && age > old {
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;
    use std::time::SystemTime;

    use super::*;
    use crate::replace;

    /// A process that has ended and was waited for.
    pub(in crate::draft) fn ended() -> u32 {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    /// Leaves a file there that was written so long ago.
    pub(in crate::draft) fn leave(path: &Path, age: Duration) {
        let mut file = File::create(path).unwrap();
        file.write_all(b"half").unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
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
            leave(&root.path().join(name), 2 * OLD);
        }
        let [link, shared, folder, new] =
            [21, 22, 23, 24].map(|nth| format!("state.json.{gone}-{nth}.tmp"));
        symlink(root.path().join("thesis.txt"), root.path().join(&link)).unwrap();
        leave(&root.path().join(&shared), 2 * OLD);
        let for_all = fs::Permissions::from_mode(0o666);
        fs::set_permissions(root.path().join(&shared), for_all).unwrap();
        fs::create_dir(root.path().join(&folder)).unwrap();
        // Perhaps of another container, where this number is that of a process that runs.
        leave(&root.path().join(&new), OLD / 2);
        for _ in 0..2 {
            replace(&path, |mut file| file.write_all(b"whole")).unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        let mut expected: BTreeSet<String> = kept.into_iter().collect();
        expected.extend([link, shared, folder, new]);
        expected.insert("state.json".to_owned());
        assert_eq!(names(root.path()), expected);
    }

    /// Ranks may share a folder and each be process 1 of a container.
    #[test]
    fn files_that_others_write_under_such_names_are_not_touched() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("state.json");
        // This process has counted up to here at most.
        let theirs: Vec<_> = (0..200).map(|nth| beside(&path, nth)).collect();
        theirs.iter().for_each(|path| fs::write(path, "theirs").unwrap());
        replace(&path, |mut file| file.write_all(b"whole")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        for path in theirs {
            assert_eq!(fs::read(path).unwrap(), b"theirs");
        }
    }
}
