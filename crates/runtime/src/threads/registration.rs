//! Processes that share a machine find each other where no launcher says how many they are.
//!
//! A process that opens a loader puts a file into a private directory of its user and holds a lock
//! on it; files with a lock are counted. The kernel drops the lock when the process ends, however it
//! ends, so nobody is counted who is dead; whoever counts removes what the dead have left. Only
//! files of such a name are looked at. Whose processes belong together, and what is done with
//! their number, is `config/share.rs`'s; that is to be read first.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use bothends_io::open_regular;
use nix::unistd::geteuid;
use twox_hash::XxHash3_64;

use crate::config::share::{Group, Ranks};
use crate::threads::fork::Home;

/// For how long nobody must have come for the count to be taken, and for how long it is waited in
/// all: ranks of one job open their loaders at about the same time.
const QUIET: Duration = Duration::from_millis(300);
const MOST_WAIT: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);

/// Most loaders of a process that are registered.
const MOST_LOADERS: u32 = 1024;

const PREFIX: &str = "rank-";

/// This process's place among those of its group; it is given up when this is dropped.
#[derive(Debug)]
pub struct Registration {
    home: Home,
    dir: PathBuf,
    path: PathBuf,
    /// Holds the lock.
    _file: File,
    group: u64,
}

impl Ranks {
    /// This process among the ranks on its machine: as launchers' variables say, else as many as
    /// have registered with the same rendezvous, or with the same `parent` where the caller knows
    /// that it was started as one of several. `variable` gives the value of one. The registration
    /// is to be kept as long as the loader; where there is one to be made this waits up to three
    /// seconds for the others. Who comes later is counted by those who come later still.
    #[must_use]
    pub fn here(
        variable: impl Fn(&str) -> Option<String>,
        parent: Option<u32>,
    ) -> (Self, Option<Registration>) {
        let told = Self::told_by(&variable);
        let group = if told.are_told() { None } else { Group::of(&variable, parent) };
        let path = |name: &str| variable(name).filter(|path| path.starts_with('/'));
        let (runtime, temp) = (path("XDG_RUNTIME_DIR"), path("TMPDIR"));
        let temp = temp.unwrap_or_else(|| "/tmp".to_owned());
        let places = [
            runtime.map(|dir| Path::new(&dir).join("bothends")),
            Some(Path::new(&temp).join(format!("bothends-{}", geteuid()))),
        ];
        let mut places = places.into_iter().flatten();
        let Some(group) = group else { return (told, None) };
        let made = places.find_map(|dir| Registration::new(&group, dir).ok());
        // Without a place to register in, it is alone as far as anybody can say.
        let Some(registration) = made else { return (told, None) };
        let ranks = Self::counted(registration.settled()).with_gpu_of(told);
        (ranks, Some(registration))
    }
}

impl Registration {
    /// Registers this process in `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// The system's; [`ErrorKind::PermissionDenied`] for a directory that others may use, too.
    fn new(group: &Group, dir: PathBuf) -> io::Result<Self> {
        let group = XxHash3_64::oneshot(group.name().as_bytes());
        let own = std::process::id();
        for number in 0..MOST_LOADERS {
            make_private(&dir)?;
            let path = dir.join(format!("{PREFIX}{group:016x}-{own}-{number}"));
            let file = match File::create_new(&path) {
                Ok(file) => file,
                // Another loader of this process; or the directory went with its last file.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::AlreadyExists | ErrorKind::NotFound
                    ) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            // Who counts holds it for a moment at most.
            file.lock().inspect_err(|_| drop(fs::remove_file(&path)))?;
            // Who counted before there was a lock took the file for a dead one's.
            if file.metadata()?.nlink() > 0 {
                return Ok(Self { home: Home::here(), dir, path, _file: file, group });
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// How many there are once nobody comes any more.
    fn settled(&self) -> u32 {
        let began = Instant::now();
        let (mut n, mut since) = (self.n_processes(), began);
        while since.elapsed() < QUIET && began.elapsed() < MOST_WAIT {
            thread::sleep(LOOK);
            let now = self.n_processes();
            if now != n {
                (n, since) = (now, Instant::now());
            }
        }
        n
    }

    /// How many processes of the group are registered now, this one included.
    fn n_processes(&self) -> u32 {
        let mut alive = BTreeSet::from([std::process::id()]);
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some((group, process)) = name.to_str().and_then(parse) else { continue };
            let is_known = alive.contains(&process) && group == self.group;
            if !is_known && is_held(&entry.path()) && group == self.group {
                alive.insert(process);
            }
        }
        u32::try_from(alive.len()).unwrap_or(u32::MAX)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // In a fork it is the parent's.
        if self.home.is_here() {
            drop(fs::remove_file(&self.path));
            // It stays while others are registered.
            drop(fs::remove_dir(&self.dir));
        }
    }
}

/// Makes a directory that is this user's alone, or sees that it is.
fn make_private(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        done => return done,
    }
    // In a common directory anybody could have put it there, a link say.
    let found = fs::symlink_metadata(dir)?;
    let is_private =
        found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
    match is_private {
        true => Ok(()),
        false => Err(ErrorKind::PermissionDenied.into()),
    }
}

/// Whether somebody holds the lock; what nobody holds is removed.
fn is_held(path: &Path) -> bool {
    let Ok(file) = open_regular(path) else { return false };
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => true,
        Ok(()) => {
            drop(fs::remove_file(path));
            false
        }
        Err(TryLockError::Error(_)) => false,
    }
}

/// Group and process of a file's name.
fn parse(name: &str) -> Option<(u64, u32)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let group = parts.next().filter(|group| group.len() == 16)?;
    let (group, process) =
        (u64::from_str_radix(group, 16).ok()?, parts.next()?.parse().ok()?);
    let number: Option<u32> = parts.next()?.parse().ok();
    (number.is_some() && parts.next().is_none()).then_some((group, process))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(parent: u32) -> Group {
        Group::of(|_| None, Some(parent)).expect("a parent makes a group")
    }

    /// A file that some other process would hold.
    fn other(dir: &Path, of: &Registration, process: u32) -> File {
        let name = format!("{PREFIX}{:016x}-{process}-0", of.group);
        let file = File::create_new(dir.join(name)).unwrap();
        file.lock().unwrap();
        file
    }

    #[test]
    fn processes_are_counted_while_they_live() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("bothends");
        let first = Registration::new(&group(7), dir.clone()).unwrap();
        let second = Registration::new(&group(7), dir.clone()).unwrap();
        let elsewhere = Registration::new(&group(8), dir.clone()).unwrap();
        assert_eq!(first.n_processes(), 1, "loaders of one process are one rank");
        let others = [4_000_001, 4_000_002].map(|process| other(&dir, &first, process));
        let theirs = other(&dir, &elsewhere, 4_000_003);
        assert_eq!((first.n_processes(), elsewhere.n_processes()), (3, 2));
        // The kernel unlocks what the dead held.
        drop(others);
        assert_eq!((second.n_processes(), elsewhere.n_processes()), (1, 2));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 4, "leftovers are removed");
        fs::write(dir.join("rank-notes.txt"), "notes").unwrap();
        drop((first, second, elsewhere, theirs));
        let last = Registration::new(&group(7), dir.clone()).unwrap();
        assert_eq!(last.n_processes(), 1);
        drop(last);
        let left: Vec<_> = fs::read_dir(&dir).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0].file_name(), "rank-notes.txt");
        fs::remove_file(left[0].path()).unwrap();
        drop(Registration::new(&group(7), dir.clone()).unwrap());
        assert!(!dir.exists(), "an empty directory stays");
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_not_used() {
        use std::os::unix::fs::PermissionsExt as _;
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("bothends");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        let refused = Registration::new(&group(7), dir.clone()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        let link = temp.path().join("link");
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        let refused = Registration::new(&group(7), link).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        let temp = temp.path().display().to_string();
        // What a launcher says is not counted; without a group nobody registers.
        let variable = |name: &str| match name {
            "TMPDIR" => Some(temp.clone()),
            "LOCAL_WORLD_SIZE" => Some("4".to_owned()),
            _ => None,
        };
        let (ranks, registration) = Ranks::here(variable, Some(7));
        assert!(ranks.n() == 4 && registration.is_none());
        let (ranks, registration) = Ranks::here(|_| None, None);
        assert!(ranks == Ranks::ALONE && registration.is_none());
    }

    #[test]
    fn names_are_read_and_others_left_alone() {
        assert_eq!(parse("rank-00000000000000ff-12-0"), Some((255, 12)));
        for name in [
            "rank-ff-12-0",
            "rank-00000000000000ff-12",
            "rank-00000000000000ff-12-0-1",
            "rank-00000000000000ff-x-0",
            "notes",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
