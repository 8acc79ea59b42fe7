//! Keys of files that somebody else renews: they are read again when the files have changed.

use std::fmt::{self, Debug, Formatter};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{self, BoxFuture, FutureExt};
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;

use super::{Renewed, Secrets};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// A request that was signed with the keys before is answered within this time.
pub(crate) const IN_FLIGHT: Duration = Duration::from_secs(30);

/// By what a version of a file is told from others; `None` of a file that is not there.
type Mark = Option<(u64, i64, i64, u64)>;

/// What reads the files: their keys, if they have some now.
type Read = dyn Fn() -> Option<AwsCredential> + Send + Sync;

/// Keys, as the files have them.
pub(crate) struct Keys {
    files: Vec<PathBuf>,
    read: Box<Read>,
    /// Learn all keys, so that no message has any.
    secrets: Secrets,
    now: Mutex<Now>,
}

struct Now {
    keys: Arc<AwsCredential>,
    marks: Vec<Mark>,
    looked: Instant,
    changed: Option<Instant>,
}

/// Without the keys.
impl Debug for Keys {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Keys {
    /// The keys that `read` finds in the files; nothing if there are none.
    pub(crate) fn of(
        files: Vec<PathBuf>,
        read: Box<Read>,
        secrets: &Secrets,
    ) -> Option<Arc<Self>> {
        // Before they are read: what is written meanwhile is read again.
        let marks = marks(&files);
        let keys = Arc::new(read()?);
        let now = Now { keys, marks, looked: Instant::now(), changed: None };
        let (secrets, now) = (secrets.clone(), Mutex::new(now));
        Some(Arc::new(Self { files, read, secrets, now }))
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, now: &mut Now) {
        now.looked = Instant::now();
        let marks = marks(&self.files);
        if marks == now.marks {
            return;
        }
        // A file that is being written has none for a moment: the ones before count until it has.
        let Some(keys) = (self.read)() else { return };
        now.marks = marks;
        if keys != *now.keys {
            self.secrets.add([keys.key_id.clone(), keys.secret_key.clone()]);
            self.secrets.add(keys.token.clone());
            now.keys = Arc::new(keys);
            now.changed = Some(Instant::now());
        }
    }
}

impl Renewed for Keys {
    fn is_renewed(&self) -> bool {
        let mut now = self.now();
        self.look(&mut now);
        now.changed.is_some_and(|at| at.elapsed() < IN_FLIGHT)
    }
}

impl CredentialProvider for Keys {
    type Credential = AwsCredential;

    // Written out, as the trait's attribute macro would.
    fn get_credential<'s, 'f>(
        &'s self,
    ) -> BoxFuture<'f, object_store::Result<Arc<AwsCredential>>>
    where
        's: 'f,
        Self: 'f,
    {
        let mut now = self.now();
        if now.looked.elapsed() >= LOOK {
            self.look(&mut now);
        }
        future::ready(Ok(Arc::clone(&now.keys))).boxed()
    }
}

fn marks(files: &[PathBuf]) -> Vec<Mark> {
    let mark = |file: &PathBuf| {
        let found = std::fs::metadata(file).ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
    };
    files.iter().map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_that_the_file_has_now() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credentials");
        let write = |key: &str| std::fs::write(&file, key).unwrap();
        write("one");
        let of = file.clone();
        let read = move || {
            let key = std::fs::read_to_string(&of).ok().filter(|key| !key.is_empty())?;
            let (key_id, secret_key) = (key.clone(), format!("{key}-secret"));
            Some(AwsCredential { key_id, secret_key, token: None })
        };
        let secrets = Secrets::of(Vec::new());
        let keys = Keys::of(vec![file.clone()], Box::new(read), &secrets).unwrap();
        let later = || {
            keys.now().looked -= LOOK;
            keys.get_credential().now_or_never().unwrap().unwrap().key_id.clone()
        };
        assert!(later() == "one" && !keys.is_renewed());
        write("");
        assert!(later() == "one" && !keys.is_renewed());
        write("other");
        assert!(later() == "other" && keys.is_renewed());
        assert_eq!(secrets.removed_from("by other with other-secret"), "by *** with ***");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(later(), "other");
        keys.now().changed = Some(Instant::now() - IN_FLIGHT);
        assert!(!keys.is_renewed());
        write("third");
        assert!(keys.is_renewed());
    }
}
