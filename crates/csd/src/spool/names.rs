//! Names that appear in a directory of a network file system.
//!
//! An NFS client remembers that a name was not there until the directory's attributes expire: after half a minute, by
//! default. To open the directory makes it ask the server (close-to-open consistency, nfs(5)). On a local file
//! system that takes microseconds.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often the server is asked, at most.
const EVERY: Duration = Duration::from_millis(5);

/// When the names in a directory were last asked for.
#[derive(Debug, Default)]
pub(super) struct Names {
    asked: Option<Instant>,
}

impl Names {
    /// Has the file system ask again which names there are in `dir`, if it is time to. Call it where one that is waited
    /// for is not there.
    pub(super) fn refresh(&mut self, dir: &Path) {
        if self.asked.is_none_or(|asked| asked.elapsed() >= EVERY) {
            self.asked = Some(Instant::now());
            // One that cannot be opened has no names.
            drop(File::open(dir));
        }
    }
}
