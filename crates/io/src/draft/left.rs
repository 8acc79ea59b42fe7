//! What a process that was killed while it replaced a file has left next to it.
//!
//! Only a file is removed that has the name of such a one, is this user's own, was not written for an hour, and whose
//! process does not run. A process with the same number may run on another machine or in another container, where
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

/// Names in a folder that are looked at: no run waits for a folder with more.
const MOST_NAMES: usize = 100_000;

/// No writer pauses for as long within a file, whatever its file system does.
const OLD: Duration = Duration::from_secs(3600);

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
            let _ = remove_old(&entry.path());
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

/// Removes a file of this user if it was not written lately.
fn remove_old(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    let is_own = found.is_file() && found.nlink() == 1 && belongs_to_user(&found);
    // A time to come, from another machine's clock, is no age.
    let age = found.modified()?.elapsed().unwrap_or_default();
    if is_own && age > OLD {
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;
    use std::time::SystemTime;

    use super::*;
    use crate::replace;

    /// A process that has ended and was waited for.
    fn ended() -> u32 {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    /// Leaves a file there that was written so long ago.
    fn leave(path: &Path, age: Duration) {
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
