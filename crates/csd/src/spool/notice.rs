//! The two notices in a spool directory: which device serves it, and which host's run it
//! serves. Each names a version and a fresh id, so that what an earlier run left behind is
//! never taken for this one's.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use bothends_io::write_beside;
use serde::{Deserialize, Serialize};

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
        let notice: Self = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        is_id(&notice.id).then_some(notice)
    }

    /// Puts the notice at `path`, whatever is there.
    pub(super) fn replace(&self, path: &Path) -> io::Result<()> {
        let json = self.json()?;
        write_beside(&path.with_extension("new"), path, |mut file| file.write_all(&json))
    }

    /// Puts the notice at `path` if none is there, else fails with `AlreadyExists`.
    pub(super) fn place(&self, path: &Path) -> io::Result<()> {
        File::create_new(path)?.write_all(&self.json()?)
    }

    /// Removes the notice at `path` if it is the one with this id.
    pub(super) fn remove_if(path: &Path, id: &str) {
        if Self::read(path).is_some_and(|notice| notice.id == id) {
            // Somebody was faster.
            drop(std::fs::remove_file(path));
        }
    }

    fn json(&self) -> io::Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(io::Error::other)
    }
}
