//! What walking through shards has found, kept in the user's cache directory: the next run reads one file instead
//! of a header for each sample.
//!
//! It is used only while every file that was looked at has the length, the times and the tag that it had
//! (`bothends_dataset::Version`), so it serves every format of shards and every storage that tells these. A file of
//! a kept table appears complete, replaces the one before, and is believed only with this user's seal; whatever is
//! wrong with it, or with writing it, costs another walk and nothing else. Of several processes that open a data set at
//! the same time, one walks, and the others wait for its table (`tables/turn.rs`).
//!
//! ```text
//! 0   "BETABLE1"
//! 8   SHA-256 of what it was found in (format, place, versions): 32 bytes
//! 40  seal of bytes 0 to 39 and of what follows, by a key of whoever wrote it: 32 bytes
//! 72  what was found, as `dataset` writes it (`Found::to_keep`)
//! ```

mod turn;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bothends_dataset::{DatasetError, Format, Found, Storage, Version};
use bothends_io::open_own;
use sha2::{Digest, Sha256};

use crate::folder::{Cache, draft_in, folder_name, make_room, mark_used};
use crate::key::{Key, Use};
use turn::{LOCK, Turn, Watched};

const MAGIC: &[u8; 8] = b"BETABLE1";
const SEAL_AT: usize = 40;
const HEADER_BYTES: usize = 72;

/// The file of a data set, and how the names of those begin and end that have not become it yet.
const FILE: &str = "shards.table";
const PREFIX: &str = "shards.";
const EXTENSION: &str = "table";

/// Walks that find fewer samples are over at once.
const LEAST_SAMPLES: u64 = 256;

/// A file that was changed so lately may change again without another time: clocks of file systems go in steps, of
/// which the longest in use are FAT's.
const STEP: Duration = Duration::from_secs(2);

/// A change of how formats are read that gives other tables from the same files takes another number.
const READING: u32 = 2;

/// Recognises and reads the data set at `target` as [`bothends_dataset::find`] does, or takes what an earlier walk
/// through the same shards found from `cache`. Blocks on the storage and on the file system, and on another process that
/// walks through the same shards, as long as it gets on.
///
/// # Errors
/// As [`bothends_dataset::find`].
pub fn find(
    storage: &dyn Storage,
    target: &str,
    cache: Option<Cache>,
) -> Result<Found, DatasetError> {
    let format = Format::detect(storage, target)?;
    let versions = || format.versions(storage, target).ok().flatten();
    let place = cache.and_then(|cache| {
        let versions = versions()?;
        let place = Place::new(cache, format, storage.shown(target), &versions)?;
        Some((place, versions))
    });
    let Some((place, before)) = place else { return format.parse(storage, target) };
    if let Some(found) = place.kept(format) {
        return Ok(found);
    }
    let turn = Turn::wait(&place.folder);
    // Somebody may have written it meanwhile.
    if let Some(found) = place.kept(format) {
        return Ok(found);
    }
    let began = SystemTime::now();
    let found = match &turn {
        Some(turn) => format.parse(&Watched { storage, turn }, target)?,
        None => format.parse(storage, target)?,
    };
    let is_kept = found.table.n_samples() >= LEAST_SAMPLES
        && is_settled(&before, began)
        && versions().is_some_and(|after| after == before);
    if let Some(bytes) = found.to_keep(&before).filter(|_| is_kept) {
        // What cannot be kept is found again.
        let _ = place.write(&bytes);
    }
    Ok(found)
}

/// Whether any later change of a file gives it another version.
fn is_settled(versions: &[Version], now: SystemTime) -> bool {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let limit = i128::try_from(now.saturating_sub(STEP).as_nanos()).unwrap_or(0);
    versions
        .iter()
        .filter_map(|version| version.changed_ns)
        .all(|changed| changed < limit)
}

/// Where the table of a data set is kept.
struct Place {
    folder: PathBuf,
    limit_bytes: u64,
    owner: String,
    /// Says what the table was found in.
    subject: [u8; 32],
    key: Key,
}

impl Place {
    fn new(
        cache: Cache,
        format: Format,
        shown: String,
        versions: &[Version],
    ) -> Option<Self> {
        // One name for a folder, whatever it is called from.
        let owner = fs::canonicalize(&shown)
            .ok()
            .and_then(|path| path.into_os_string().into_string().ok());
        let owner = owner.unwrap_or(shown);
        let mut subject = Sha256::new();
        let mut add = |bytes: &[u8]| {
            subject.update((bytes.len() as u64).to_le_bytes());
            subject.update(bytes);
        };
        add(&READING.to_le_bytes());
        add(format!("{format:?}").as_bytes());
        add(owner.as_bytes());
        for Version { name, len, changed_ns, tag } in versions {
            add(name.as_bytes());
            add(&len.to_le_bytes());
            add(format!("{changed_ns:?}").as_bytes());
            add(tag.as_bytes());
        }
        Some(Self {
            folder: cache.root.join(folder_name(owner.as_bytes())),
            limit_bytes: cache.limit_bytes,
            key: Key::of_user(Some(&cache.root))?,
            subject: subject.finalize().into(),
            owner,
        })
    }

    /// The table, if it is there and of these files.
    fn kept(&self, format: Format) -> Option<Found> {
        let found = self.read(format).ok()?;
        mark_used(&self.folder);
        Some(found)
    }

    fn read(&self, format: Format) -> io::Result<Found> {
        let other = || io::Error::other("it is of other data, or damaged");
        let mut file = open_own(&self.folder.join(FILE))?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header)?;
        let (begin, seal) = header.split_at(SEAL_AT);
        if !begin.starts_with(MAGIC) || begin[MAGIC.len()..] != self.subject {
            return Err(other());
        }
        let len = file.metadata()?.len().saturating_sub(HEADER_BYTES as u64);
        let len = usize::try_from(len.min(self.limit_bytes)).map_err(io::Error::other)?;
        let mut body = vec![0; len];
        file.read_exact(&mut body)?;
        let seal = seal.first_chunk().ok_or_else(other)?;
        if !self.key.fits(Use::Tables, [begin, &body], seal) {
            return Err(other());
        }
        Found::kept(format, &body).map_err(io::Error::other)
    }

    fn write(&self, body: &[u8]) -> io::Result<()> {
        let root = self.folder.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(root)?;
        let bounds = (self.limit_bytes, Duration::ZERO);
        let room_bytes = make_room(root, &self.folder, bounds, is_table);
        if (HEADER_BYTES + body.len()) as u64 > room_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut header = [&MAGIC[..], &self.subject].concat();
        let seal = self.key.seal(Use::Tables, [&header, body]);
        header.extend(seal);
        let draft = draft_in(&self.folder, self.owner.as_bytes());
        let draft = draft.map_err(io::Error::other)?;
        draft.write_at(&header, 0).map_err(io::Error::other)?;
        draft.write_at(body, HEADER_BYTES as u64).map_err(io::Error::other)?;
        draft.publish_as((PREFIX, EXTENSION), FILE).map_err(io::Error::other)?;
        // Those of a process that was killed here; one that was not comes too late, which it does not mind.
        for entry in fs::read_dir(&self.folder)?.flatten() {
            let name = entry.file_name();
            if name != FILE && name.to_str().is_some_and(is_table) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

/// Whether a file of this name has a table, or is the lock of a process that was killed.
fn is_table(name: &str) -> bool {
    let is_named = |rest: &str| rest.ends_with(EXTENSION);
    name == LOCK || name.strip_prefix(PREFIX).is_some_and(is_named)
}

#[cfg(test)]
mod tests;
