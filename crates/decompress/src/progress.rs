//! How far it is, for whoever waits.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

/// What is going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Files are made.
    Making,
    /// Another process makes them.
    Waiting,
    /// All are there. The last that is told, and only after one of the others.
    Done,
}

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Who makes the files.
    pub stage: Stage,
    /// The data as the user names them.
    pub data: String,
    /// Where they are decompressed to.
    pub folder: PathBuf,
    /// Files that are complete, of so many; 0 while another process makes them.
    pub files: (usize, usize),
    /// Bytes read, of so many; 0 likewise.
    pub read_bytes: (u64, u64),
    /// Bytes written.
    pub written_bytes: u64,
}

/// For people, in one line.
impl Display for Progress {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { data, files: (done, all), read_bytes: (read, total), .. } = self;
        let mib = |bytes: u64| bytes >> 20;
        match self.stage {
            Stage::Making => write!(
                f,
                "decompressing {data}: {done} of {all} files, {} of {} MiB, {} MiB written",
                mib(*read),
                mib(*total),
                mib(self.written_bytes)
            ),
            Stage::Done => {
                write!(f, "decompressed {data} into {}", self.folder.display())
            }
            Stage::Waiting => write!(
                f,
                "waiting for another process that decompresses {data}: {} MiB written",
                mib(self.written_bytes)
            ),
        }
    }
}
