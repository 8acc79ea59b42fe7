//! Files that are open already: the one that was opened last, for containers, which are read record by record, and
//! those that scouts have opened ahead of the workers, so that each is opened once.
//!
//! It keeps, and opens nothing. Whether a file still has its name is for whoever takes it to find out.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Identity, Numbers};

/// Most files that are opened ahead: as many as scouts are ahead of the workers in one session. Of more
/// sessions at once, some are opened twice.
const MOST_AHEAD: usize = 64;

/// A file with what it was when it was opened.
#[derive(Debug, Clone)]
pub(super) struct OpenFile {
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
    pub(super) numbers: Numbers,
    pub(super) identity: Identity,
}

impl OpenFile {
    /// The same file as it is now; `None` where it has no name any more, or none can say.
    pub(super) fn refreshed(self) -> Option<Self> {
        let now = self.file.metadata().ok().filter(|now| now.nlink() > 0)?;
        let identity = Identity::of(&now, self.numbers);
        Some(Self { identity, ..self })
    }
}

/// Files that are open.
#[derive(Debug, Default)]
pub(super) struct Opened {
    last: Option<OpenFile>,
    /// Those that nobody has read from yet, the oldest first.
    ahead: VecDeque<OpenFile>,
}

impl Opened {
    /// The file that was opened last, if it is this one.
    pub(super) fn last(&self, path: &Path) -> Option<OpenFile> {
        self.last.as_ref().filter(|open| open.path == path).cloned()
    }

    /// It has been opened just now.
    pub(super) fn opened(&mut self, open: OpenFile) {
        self.last = Some(open);
    }

    /// It has been opened for somebody who will read it soon.
    pub(super) fn opened_ahead(&mut self, open: OpenFile) {
        if self.ahead.len() == MOST_AHEAD {
            // Its job was taken back, or a worker was quicker.
            self.ahead.pop_front();
        }
        self.ahead.push_back(open);
    }

    /// The file that was opened ahead, if it is this one; the next one opens its own.
    pub(super) fn take_ahead(&mut self, path: &Path) -> Option<OpenFile> {
        let at = self.ahead.iter().position(|open| open.path == path)?;
        self.ahead.remove(at)
    }

    /// No file is kept.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> OpenFile {
        let file = File::open(path).unwrap();
        let identity = Identity::of(&file.metadata().unwrap(), Numbers::Kept);
        let path = path.to_owned();
        OpenFile { path, file: Arc::new(file), numbers: Numbers::Kept, identity }
    }

    #[test]
    fn what_is_opened_ahead_is_taken_once_and_the_oldest_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let paths = (0..=MOST_AHEAD).map(|nth| dir.path().join(nth.to_string()));
        let paths: Vec<_> = paths.collect();
        let mut opened = Opened::default();
        for path in &paths {
            std::fs::write(path, b"x").unwrap();
            opened.opened_ahead(open(path));
        }
        assert!(opened.take_ahead(&paths[0]).is_none(), "it has made room");
        assert!(paths[1..].iter().all(|path| opened.take_ahead(path).is_some()));
        assert!(paths.iter().all(|path| opened.take_ahead(path).is_none()));
    }

    #[test]
    fn a_file_that_has_lost_its_name_is_not_used_and_one_that_grew_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, b"old").unwrap();
        let (before, grown) = (open(&path), open(&path));
        std::fs::write(&path, b"longer").unwrap();
        let now = grown.refreshed().unwrap();
        assert!(now.identity.age.0 == 6 && before.identity.age.0 == 3);
        std::fs::remove_file(&path).unwrap();
        assert!(before.refreshed().is_none());
    }
}
