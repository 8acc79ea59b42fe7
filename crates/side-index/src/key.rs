//! The key that segments are sealed with: 32 bytes of this user's, in a file that nobody else reads.
//!
//! Anybody who can write a file next to the data, or who packs one into an archive, could otherwise decide what
//! images look like. A segment is therefore believed only if it was sealed with this key. It is made at first use, and
//! may be deleted: then what was learned is learned again.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use bothends_io::{open_own, place_first};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The key's file in the user's folder.
const FILE: &str = "index.key";

/// Its name in a cache directory, for a user without a folder.
const HIDDEN: &str = ".index.key";

const KEY_BYTES: usize = 32;

/// What a seal is for: one of notes is none of blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Use {
    /// A segment of the side index.
    Notes,
    /// A segment of the block cache.
    Blocks,
    /// A segment of fetched records.
    Records,
    /// What was found in shards.
    Tables,
}

/// What seals segments. Its `Debug` does not show it.
#[derive(Clone)]
pub(crate) struct Key([u8; KEY_BYTES]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// This user's: in the user's state directory (XDG Base Directory Specification), or in `cache`
    /// where that cannot be. `None` where nothing can be kept.
    pub(crate) fn of_user(cache: Option<&Path>) -> Option<Self> {
        let state = user_state().map(|folder| folder.join(FILE));
        let cached = cache.map(|folder| folder.join(HIDDEN));
        state.into_iter().chain(cached).find_map(|path| Self::at(&path).ok())
    }

    /// The key at `path`, made there if there is none.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        match Self::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Self::make(path),
            read => read,
        }
    }

    fn read(path: &Path) -> io::Result<Self> {
        let mut file = open_own(path)?;
        if file.metadata()?.mode() & 0o077 != 0 {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let mut key = [0; KEY_BYTES];
        file.read_exact(&mut key)?;
        Ok(Self(key))
    }

    /// Another process may be making one, too: the first counts.
    fn make(path: &Path) -> io::Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut key = [0; KEY_BYTES];
        fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
        let unique = u64::from_le_bytes(*key.first_chunk().unwrap_or(&[0; 8]));
        // Those bytes were seen in a name.
        fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
        let beside = path.with_extension(format!("{unique:016x}.new"));
        match place_first(&beside, path, &key, 0o600) {
            Ok(()) => Ok(Self(key)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Self::read(path),
            Err(error) => Err(error),
        }
    }

    /// What only an owner of the key can say of these bytes, for this use of it.
    pub(crate) fn seal(&self, sealed: Use, parts: [&[u8]; 2]) -> [u8; 32] {
        self.mac(sealed, parts).finalize().into_bytes().into()
    }

    /// Whether `seal` is this key's of these bytes; takes the same time for every wrong one.
    pub(crate) fn fits(&self, sealed: Use, parts: [&[u8]; 2], seal: &[u8; 32]) -> bool {
        self.mac(sealed, parts).verify_slice(seal).is_ok()
    }

    fn mac(&self, sealed: Use, parts: [&[u8]; 2]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0)
            .expect("HMAC takes a key of any length");
        mac.update(match sealed {
            Use::Notes => &b"bothends side index 2\0"[..],
            Use::Blocks => b"bothends block cache 1\0",
            Use::Records => b"bothends record cache 1\0",
            Use::Tables => b"bothends table of shards 1\0",
        });
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

/// `bothends` in the user's state directory; `None` for a user who has none.
fn user_state() -> Option<PathBuf> {
    let state = match std::env::var_os("XDG_STATE_HOME") {
        Some(state) => PathBuf::from(state),
        None => Path::new(&std::env::var_os("HOME")?).join(".local/state"),
    };
    state.is_absolute().then(|| state.join("bothends"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_is_this_users_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/key");
        let key = Key::at(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(&dir.path().join("a/b"))), (0o600, 0o700));
        assert_eq!(fs::read_dir(dir.path().join("a/b")).unwrap().count(), 1);
        let parts: [&[u8]; 2] = [b"header", b"lines"];
        let seal = key.seal(Use::Notes, parts);
        assert!(Key::at(&path).unwrap().fits(Use::Notes, parts, &seal));
        assert!(!key.fits(Use::Notes, [b"header", b"line"], &seal));
        assert!(!key.fits(Use::Blocks, parts, &seal), "of another use");
        let other = Key::at(&dir.path().join("other")).unwrap();
        assert!(!other.fits(Use::Notes, parts, &seal));
        assert!(!format!("{key:?}").contains(&key.0[0].to_string()));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        Key::at(&path).unwrap_err();
        fs::write(dir.path().join("short"), "short").unwrap();
        Key::at(&dir.path().join("short")).unwrap_err();
        std::os::unix::fs::symlink("other", dir.path().join("link")).unwrap();
        Key::at(&dir.path().join("link")).unwrap_err();
    }
}
