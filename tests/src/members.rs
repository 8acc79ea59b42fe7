//! Agents in this process that may come, go and be held up while a run goes on.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bothends_agent::door::{Door, Visits};
use bothends_agent::{
    FileStore, Identity, NoCosts, Server, ServerConfig, Store, StoreError, Wanted,
};
use bothends_csd::Security;

/// What takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// An agent of this process, which stops serving when it is dropped: its connections end as those of a
/// process that was killed do.
#[derive(Debug)]
pub struct Member {
    address: String,
    files: Files,
    stop: Arc<AtomicBool>,
    serves: Option<JoinHandle<()>>,
}

/// The files of an agent: they count what is read, and keep readers waiting while they are held.
#[derive(Debug, Clone)]
struct Files {
    store: Arc<FileStore>,
    n_read: Arc<AtomicU64>,
    held: Arc<(Mutex<bool>, Condvar)>,
}

impl Store for Files {
    fn read(
        &self,
        wanted: Wanted<'_>,
        dst: &mut Vec<u8>,
    ) -> Result<Identity, StoreError> {
        self.n_read.fetch_add(1, Ordering::Relaxed);
        let (is_held, changed) = &*self.held;
        let held = is_held.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_timeout_while(held, DEADLINE, |is_held| *is_held));
        self.store.read(wanted, dst)
    }

    fn probe(&self, path: &str) -> Result<(), StoreError> {
        self.store.probe(path)
    }
}

impl Member {
    /// Serves this data at a socket in a folder; another of this name may have been there before.
    pub fn start(data: &Path, socket: &Path) -> Result<Self> {
        // What a stopped one has left would be in the way.
        drop(std::fs::remove_file(socket));
        Self::start_at(data, &address(socket))
    }

    /// Serves this data at an address.
    pub fn start_at(data: &Path, address: &str) -> Result<Self> {
        let files = Files {
            store: Arc::new(FileStore::new(data)?),
            n_read: Arc::default(),
            held: Arc::default(),
        };
        let name = address.to_owned();
        let config = ServerConfig { name, emulated: false, n_workers: 1, n_slots: 2 };
        let server = Server::start(config, files.clone(), NoCosts)?;
        let door = Door::open(&address.parse()?, Security::default())?;
        let address = door.address().to_string();
        let stop = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stop);
        let serves = std::thread::spawn(move || {
            // What is complained of shows in the run that the test judges.
            drop(door.serve(&server, Visits::Always, &stops, &|_| ()));
        });
        Ok(Self { address, files, stop, serves: Some(serves) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Records that it has read.
    #[must_use]
    pub fn n_read(&self) -> u64 {
        self.files.n_read.load(Ordering::Relaxed)
    }

    /// From now on whoever reads waits, until [`Self::lets_go`].
    pub fn holds(&self) {
        *self.files.held.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Nobody waits any longer.
    pub fn lets_go(&self) {
        let (held, changed) = &*self.files.held;
        *held.lock().unwrap_or_else(PoisonError::into_inner) = false;
        changed.notify_all();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.lets_go();
        self.stop.store(true, Ordering::Relaxed);
        if let Some(serves) = self.serves.take() {
            drop(serves.join());
        }
    }
}

/// The address of a socket.
#[must_use]
pub fn address(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

/// Replaces a list of members as a whole.
pub fn replace_list(path: &Path, members: &[&str]) -> Result<()> {
    let new: PathBuf = path.with_extension("new");
    std::fs::write(&new, members.join("\n"))?;
    std::fs::rename(&new, path).context("the list is replaced")
}

/// Waits for what other threads do.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    let began = Instant::now();
    while !holds() {
        ensure!(began.elapsed() < DEADLINE, "it never came to that: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
