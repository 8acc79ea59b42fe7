//! Whose turn it is: of several processes that open the same shards, the first one walks through them, and the others wait
//! for the table that it writes.
//!
//! The turn is a lock on a file next to the table, so it ends with its process. It shows that the walk gets on by the
//! file's time. Whoever has waited and finds no table walks as well, without a turn: several then walk at the same time,
//! as they do where a file system has no locks. The result never depends on it. Read `tables.rs` first.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bothends_dataset::{Entry, Kind, Storage, Version};
use bothends_io::open_lock;

/// The file that is locked.
pub(super) const LOCK: &str = "shards.lock";

/// The first and the longest time between two looks at another's turn.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// How long a walk may read nothing before the others do not wait for it any longer. A read from a store that
/// has failed is tried again for less.
const PATIENCE: Duration = Duration::from_secs(300);

/// The right to walk while others wait.
#[derive(Debug)]
pub(super) struct Turn {
    file: File,
    path: PathBuf,
    began: Instant,
    /// Seconds after `began` at which others were told last.
    told_s: AtomicU64,
}

impl Turn {
    /// The turn, if nobody has it. Otherwise waits until it ends or does not get on any more, which gives none.
    pub(super) fn wait(folder: &Path) -> Option<Self> {
        Self::wait_for(folder, PATIENCE)
    }

    fn wait_for(folder: &Path, patience: Duration) -> Option<Self> {
        // What is wrong shows when the file is opened.
        let _ = folder.parent().map(fs::create_dir_all);
        let _ = fs::create_dir(folder);
        let path = folder.join(LOCK);
        let file = open_lock(&path).ok()?;
        match file.try_lock() {
            Ok(()) => {
                let (began, told_s) = (Instant::now(), AtomicU64::new(0));
                return Some(Self { file, path, began, told_s });
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(_)) => return None,
        }
        let (mut pause, mut since) = (FIRST_LOOK, Instant::now());
        let told = || file.metadata().and_then(|found| found.modified()).ok();
        let mut last = told();
        // Shared, so that those who wait do not hold each other up.
        while matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            let now = told();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() >= patience {
                return None;
            }
            thread::sleep(pause);
            pause = (2 * pause).min(LONGEST_LOOK);
        }
        None
    }

    /// Tells others, once in a second, that the walk gets on.
    fn tell(&self) {
        let now_s = self.began.elapsed().as_secs();
        if self.told_s.fetch_max(now_s, Ordering::Relaxed) < now_s {
            // Whoever is not told waits for less time.
            let _ = self.file.set_modified(SystemTime::now());
        }
    }
}

impl Drop for Turn {
    /// Whoever waits has the file open, and is told when it is closed.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        // A process that was forked meanwhile has the file open, too.
        let _ = self.file.unlock();
        // If nothing was kept in it.
        let _ = self.path.parent().map(fs::remove_dir);
    }
}

/// A storage whose reads show that the walk gets on.
#[derive(Debug)]
pub(super) struct Watched<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) turn: &'a Turn,
}

impl Storage for Watched<'_> {
    fn kind(&self, path: &str) -> io::Result<Kind> {
        self.storage.kind(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        self.storage.list(path)
    }

    fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()> {
        self.turn.tell();
        self.storage.read(path, offset, dst)
    }

    fn versions(&self, path: &str) -> io::Result<Option<Vec<Version>>> {
        self.storage.versions(path)
    }

    fn has_labels(&self) -> bool {
        self.storage.has_labels()
    }

    fn label(&self, path: &str) -> Option<u32> {
        self.storage.label(path)
    }

    fn local(&self, path: &str) -> Option<PathBuf> {
        self.storage.local(path)
    }

    fn n_at_once(&self) -> usize {
        self.storage.n_at_once()
    }

    fn shown(&self, path: &str) -> String {
        self.storage.shown(path)
    }
}

#[cfg(test)]
mod tests;
