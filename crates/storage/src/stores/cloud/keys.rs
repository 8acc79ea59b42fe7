//! Keys of files that somebody else renews: they are read again when the files have changed.
//!
//! A thread of its own reads them: those that transfer do not wait for a file server that is silent.

use std::fmt::{self, Debug, Formatter};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use tokio::sync::watch;

use super::{Renewed, Secrets};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long a look is waited for.
const WAIT: Duration = Duration::from_secs(1);
/// How often it is asked whether it is over, by who cannot sleep until then.
const ASK: Duration = Duration::from_millis(1);
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
    /// When the last look began.
    looked: Instant,
    /// Closed once it is over; there is one at a time.
    look: Option<Look>,
    changed: Option<Instant>,
}

/// A look that is under way.
type Look = watch::Receiver<()>;

fn is_under_way(look: &Look) -> bool {
    look.has_changed().is_ok()
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
        let now = Now { keys, marks, looked: Instant::now(), look: None, changed: None };
        let (secrets, now) = (secrets.clone(), Mutex::new(now));
        Some(Arc::new(Self { files, read, secrets, now }))
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there may be news: a look is under way, or the last one was long ago.
    fn is_time(&self) -> bool {
        let now = self.now();
        now.look.as_ref().is_some_and(is_under_way) || now.looked.elapsed() >= LOOK
    }

    /// The look that is under way, or a new one, and when it began.
    fn look(self: Arc<Self>) -> (Look, Instant) {
        let mut now = self.now();
        if let Some(look) = now.look.as_ref().filter(|look| is_under_way(look)) {
            return (look.clone(), now.looked);
        }
        now.looked = Instant::now();
        let (over, look) = watch::channel(());
        now.look = Some(look.clone());
        let (began, keys) = (now.looked, Arc::clone(&self));
        drop(now);
        // Where there is no thread for it, the next look may have one.
        drop(thread::Builder::new().name("bothends-keys".to_owned()).spawn(move || {
            keys.read_again();
            drop(over);
        }));
        (look, began)
    }

    /// Takes what the files have, if they have changed. Files take their time: no lock is held meanwhile.
    fn read_again(&self) {
        let marks = marks(&self.files);
        if marks == self.now().marks {
            return;
        }
        // A file that is being written has none for a moment: the ones before count until it has.
        let Some(keys) = (self.read)() else { return };
        let mut now = self.now();
        now.marks = marks;
        if keys != *now.keys {
            self.secrets.add([keys.key_id.clone(), keys.secret_key.clone()]);
            self.secrets.add(keys.token.clone());
            now.keys = Arc::new(keys);
            now.changed = Some(Instant::now());
        }
    }
}

/// What a bucket is opened with.
#[derive(Debug)]
pub(crate) struct OfFiles(pub(crate) Arc<Keys>);

impl Renewed for OfFiles {
    fn is_renewed(&self) -> bool {
        let (look, began) = Arc::clone(&self.0).look();
        while is_under_way(&look) && began.elapsed() < WAIT {
            thread::sleep(ASK);
        }
        self.0.now().changed.is_some_and(|at| at.elapsed() < IN_FLIGHT)
    }
}

impl CredentialProvider for OfFiles {
    type Credential = AwsCredential;

    // Written out, as the trait's attribute macro would.
    fn get_credential<'s, 'f>(
        &'s self,
    ) -> BoxFuture<'f, object_store::Result<Arc<AwsCredential>>>
    where
        's: 'f,
        Self: 'f,
    {
        let keys = Arc::clone(&self.0);
        async move {
            if keys.is_time() {
                let (mut look, began) = Arc::clone(&keys).look();
                let left = WAIT.saturating_sub(began.elapsed());
                // It ends with an error, and the present keys are used while it lasts.
                let _ = tokio::time::timeout(left, look.changed()).await;
            }
            let present = Arc::clone(&keys.now().keys);
            Ok(present)
        }
        .boxed()
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
        let runtime = crate::fetcher::runtime().unwrap();
        let of = OfFiles(Arc::clone(&keys));
        let later = || {
            keys.now().looked -= LOOK;
            runtime.block_on(of.get_credential()).unwrap().key_id.clone()
        };
        assert!(later() == "one" && !of.is_renewed());
        write("");
        assert!(later() == "one" && !of.is_renewed());
        write("other");
        assert!(later() == "other" && of.is_renewed());
        assert_eq!(secrets.removed_from("by other with other-secret"), "by *** with ***");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(later(), "other");
        keys.now().changed = Some(Instant::now() - IN_FLIGHT);
        assert!(!of.is_renewed());
        write("third");
        assert!(of.is_renewed());
    }

    /// The thread that transfers waited for the file system, and with it all requests.
    #[test]
    fn present_keys_are_used_while_the_files_are_not_answered() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credentials");
        std::fs::write(&file, "one").unwrap();
        let is_first = std::sync::atomic::AtomicBool::new(true);
        let read = move || {
            if !is_first.swap(false, std::sync::atomic::Ordering::SeqCst) {
                thread::park_timeout(Duration::from_secs(60));
            }
            let (key_id, secret_key) = ("key".to_owned(), "secret".to_owned());
            Some(AwsCredential { key_id, secret_key, token: None })
        };
        let secrets = Secrets::of(Vec::new());
        let keys = Keys::of(vec![file.clone()], Box::new(read), &secrets).unwrap();
        std::fs::write(&file, "other").unwrap();
        let of = OfFiles(Arc::clone(&keys));
        let runtime = crate::fetcher::runtime().unwrap();
        keys.now().looked -= LOOK;
        let took = || {
            let began = Instant::now();
            runtime.block_on(of.get_credential()).unwrap();
            assert!(!of.is_renewed());
            began.elapsed()
        };
        let first = took();
        assert!(first < 20 * WAIT, "{first:?}");
        // On a busy machine, some take as long without having waited.
        let quickest = (0..5).map(|_| took()).min().unwrap();
        assert!(quickest < WAIT / 2, "{quickest:?}");
    }
}
