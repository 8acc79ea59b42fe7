//! Signs of life between two processes that share only a directory.
//!
//! A pulse is a small file, locked by its owner, with a counter that the owner increments while it works.
//! A held lock proves life immediately and at no cost. Where locks do not reach the other side (some
//! network shares), an increasing counter does. No threads and no process ids are used. Read `device.rs`
//! next.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bothends_io::{open_regular, write_beside};
use nix::fcntl::OFlag;

use super::names::Names;

/// How often the counter rises.
const BEAT: Duration = Duration::from_millis(250);
/// How often a watcher looks at it.
const LOOK: Duration = Duration::from_millis(100);
/// An unlocked pulse that stands still for this long is a dead owner's. With the time
/// between two looks it stays below the 2 s in which a death must be noticed.
pub(super) const PATIENCE: Duration = Duration::from_millis(1500);

/// This side's sign of life. Its file is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Pulse {
    /// With the lock.
    _file: File,
    path: PathBuf,
    count: u64,
    last: Instant,
}

impl Pulse {
    /// Starts a pulse at `path`; one that is there is replaced.
    pub(super) fn start(path: PathBuf) -> io::Result<Self> {
        let file = write_beside(&path.with_extension("new"), &path, |file| {
            // Without locks (`Unsupported`) the counter alone must do.
            drop(file.try_lock());
            file.write_all_at(&0_u64.to_le_bytes(), 0)?;
            Ok(file)
        })?;
        Ok(Self { _file: file, path, count: 0, last: Instant::now() })
    }

    /// Raises the counter when it is time. Call it in every loop that waits.
    pub(super) fn beat(&mut self) {
        if self.last.elapsed() >= BEAT {
            self.last = Instant::now();
            self.count += 1;
            // A pulse that cannot be written stands still, which says what is the matter.
            drop(self.write());
        }
    }

    /// The file that holds the lock stays open, and an NFS client sends what is written when a file is closed. To sync it
    /// would have local disks flush four times per second.
    fn write(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits());
        options.open(&self.path)?.write_all_at(&self.count.to_le_bytes(), 0)
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        // Who removed it before us has judged us dead.
        drop(std::fs::remove_file(&self.path));
    }
}

/// What a look at a pulse says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Alive,
    /// No proof of life yet, and not long enough without it.
    Unsure,
    Gone,
}

/// The watch over the other side's pulse.
#[derive(Debug)]
pub(super) struct Watch {
    path: PathBuf,
    count: Option<u64>,
    verdict: Life,
    /// When the pulse last gave a sign; only time in which we looked is counted.
    last_sign: Instant,
    last_look: Option<Instant>,
    names: Names,
}

impl Watch {
    pub(super) fn over(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            count: None,
            verdict: Life::Unsure,
            last_sign: Instant::now(),
            last_look: None,
            names: Names::default(),
        }
    }

    /// Looks, if it is time to, and says what is known. Reads one small file.
    pub(super) fn look(&mut self) -> Life {
        let now = Instant::now();
        let since = self.last_look.map(|last| now.duration_since(last));
        if since.is_some_and(|since| since < LOOK) {
            return self.verdict;
        }
        if since.is_some_and(|since| since > 5 * LOOK) {
            // We were away; the other side may have been looked at by nobody.
            self.last_sign = now;
        }
        self.last_look = Some(now);
        self.verdict = match self.sign() {
            Sign::Life => {
                self.last_sign = now;
                Life::Alive
            }
            Sign::Removed => Life::Gone,
            Sign::None if now.duration_since(self.last_sign) > PATIENCE => Life::Gone,
            Sign::None if self.verdict == Life::Alive => Life::Alive,
            Sign::None => Life::Unsure,
        };
        self.verdict
    }

    /// Looks until it is sure; at most a little longer than [`PATIENCE`].
    pub(super) fn judge(&mut self) -> Life {
        loop {
            match self.look() {
                Life::Unsure => std::thread::sleep(LOOK / 10),
                sure @ (Life::Alive | Life::Gone) => return sure,
            }
        }
    }

    fn sign(&mut self) -> Sign {
        let Ok(mut file) = open_regular(&self.path) else {
            self.path.parent().into_iter().for_each(|dir| self.names.refresh(dir));
            return if self.count.is_some() { Sign::Removed } else { Sign::None };
        };
        let mut count = [0; 8];
        let before = self.count;
        if file.read_exact(&mut count).is_ok() {
            self.count = Some(u64::from_le_bytes(count));
        }
        let is_locked = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        if is_locked || (before.is_some() && before != self.count) {
            Sign::Life
        } else {
            Sign::None
        }
    }
}

enum Sign {
    Life,
    None,
    Removed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_alive_at_once_and_gone_when_it_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pulse");
        let pulse = Pulse::start(path.clone()).unwrap();
        let mut watch = Watch::over(&path);
        assert_eq!(watch.look(), Life::Alive);
        drop(pulse);
        assert!(!path.exists());
        watch.last_look = None;
        assert_eq!(watch.look(), Life::Gone);
    }

    #[test]
    fn without_locks_a_rising_counter_is_life_and_a_still_one_death() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pulse");
        let write = |count: u64| std::fs::write(&path, count.to_le_bytes()).unwrap();
        write(0);
        let mut watch = Watch::over(&path);
        assert_eq!(watch.look(), Life::Unsure);
        for count in 1..3 {
            write(count);
            watch.last_look = None;
            assert_eq!(watch.look(), Life::Alive);
        }
        let sign = watch.last_sign;
        watch.verdict = Life::Unsure;
        assert_eq!(watch.judge(), Life::Gone);
        assert!(sign.elapsed() >= PATIENCE);
    }

    #[test]
    fn the_counter_that_a_watcher_without_locks_reads_rises() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pulse");
        let mut pulse = Pulse::start(path.clone()).unwrap();
        let count =
            || u64::from_le_bytes(std::fs::read(&path).unwrap().try_into().unwrap());
        assert_eq!(count(), 0);
        pulse.last = Instant::now().checked_sub(BEAT).unwrap();
        pulse.beat();
        assert_eq!(count(), 1);
        // A link in its place is not followed.
        let other = dir.path().join("other");
        std::fs::write(&other, "mine").unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        pulse.last = Instant::now().checked_sub(BEAT).unwrap();
        pulse.beat();
        assert_eq!(std::fs::read(&other).unwrap(), b"mine");
    }

    #[test]
    fn a_watcher_that_was_away_begins_its_patience_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pulse");
        std::fs::write(&path, 7_u64.to_le_bytes()).unwrap();
        let mut watch = Watch::over(&path);
        watch.look();
        let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        (watch.last_look, watch.last_sign) = (Some(long_ago), long_ago);
        assert_eq!(watch.look(), Life::Unsure);
    }
}
