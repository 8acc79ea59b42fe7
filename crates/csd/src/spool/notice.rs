//! The two notices in a spool directory: which device serves it, and which host's run is served. Each
//! has a version and a fresh id, so leftovers of an earlier run are never taken for this one's. A file
//! with the name of a notice but without these belongs to somebody else and is neither replaced nor
//! removed. Read `pulse.rs` next.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::Instant;

use bothends_io::{place_first, read_regular};
use serde::{Deserialize, Serialize};

use super::NAPS;
use super::pulse::PATIENCE;
use crate::CsdError;

use crate::words::job::PROTOCOL_VERSION;
use crate::words::key;

/// A notice of one side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Notice {
    pub(super) protocol_version: u32,
    /// 32 hexadecimal digits.
    pub(super) id: String,
    /// A host's: the device it has found. Another one, even one started in its place,
    /// knows nothing of the run and leaves it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<String>,
}

/// Whether this is an id as a notice has it.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

impl Notice {
    /// A notice with a fresh id.
    pub(super) fn new(device: Option<String>) -> io::Result<Self> {
        let id = format!("{:032x}", u128::from_le_bytes(key::nonce()?));
        Ok(Self { protocol_version: PROTOCOL_VERSION, id, device })
    }

    /// The notice at `path`, if there is a whole one.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let notice: Self = serde_json::from_slice(&read_regular(path).ok()?).ok()?;
        is_id(&notice.id).then_some(notice)
    }

    /// What lies at `path`. A file that is no notice is given time to become one: where the file
    /// system has no links, its owner may still be writing it.
    ///
    /// # Errors
    /// [`CsdError::Foreign`] for what no spool has written.
    pub(super) fn find(path: &Path) -> Result<Option<Self>, CsdError> {
        let began = Instant::now();
        loop {
            if let Some(notice) = Self::read(path) {
                return Ok(Some(notice));
            }
            let looked = std::fs::symlink_metadata(path);
            if looked.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                return Ok(None);
            }
            if began.elapsed() > PATIENCE {
                let remedy = "move it away, or name another directory";
                let place = path.display().to_string();
                return Err(CsdError::Foreign { place, remedy });
            }
            std::thread::sleep(NAPS[1]);
        }
    }

    /// Puts the notice at `path` if nothing is there, else fails with `AlreadyExists`. It appears
    /// whole.
    pub(super) fn place(&self, path: &Path) -> io::Result<()> {
        let json = self.json()?;
        // Who holds the place may sweep the draft away.
        let draft = path.with_extension(format!("{}.{DRAFT}", self.id));
        match place_first(&draft, path, &json, MODE) {
            // The file system has no links.
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                write_new(path, &json)
            }
            placed => placed,
        }
    }

    /// Whether a file of this name is the draft of a notice for `place`.
    pub(super) fn is_draft(name: &str, place: &str) -> bool {
        let id = name
            .strip_prefix(place.trim_end_matches("json"))
            .and_then(|rest| rest.strip_suffix(DRAFT)?.strip_suffix('.'));
        id.is_some_and(is_id)
    }

    /// Removes the notice at `path` if it is the one with this id; another one stays.
    pub(super) fn remove(path: &Path, id: &str) -> io::Result<()> {
        if Self::read(path).is_none_or(|notice| notice.id != id) {
            return Ok(());
        }
        match std::fs::remove_file(path) {
            // Somebody was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// The same, at the end, when nobody is left to be told of an error.
    pub(super) fn remove_if(path: &Path, id: &str) {
        drop(Self::remove(path, id));
    }

    fn json(&self) -> io::Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(io::Error::other)
    }
}

const DRAFT: &str = "new";

/// Of a notice, before the umask: as [`write_new`] makes it.
const MODE: u32 = 0o666;

/// Writes a file that is not there yet; after an error it is not there either.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes).inspect_err(|_| drop(std::fs::remove_file(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_placed_once_and_its_draft_does_not_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host.json");
        let (one, other) = (Notice::new(None).unwrap(), Notice::new(None).unwrap());
        one.place(&path).unwrap();
        let error = other.place(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(Notice::read(&path), Some(one.clone()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        Notice::remove_if(&path, &other.id);
        assert_eq!(Notice::find(&path).unwrap(), Some(one.clone()));
        Notice::remove_if(&path, &one.id);
        assert_eq!(Notice::find(&path).unwrap(), None);
        let draft = format!("host.{}.new", one.id);
        assert!(Notice::is_draft(&draft, "host.json"));
        for name in ["host.new", "host.json", "host.abc.new", &draft.to_uppercase()] {
            assert!(!Notice::is_draft(name, "host.json"), "{name}");
        }
    }
}
