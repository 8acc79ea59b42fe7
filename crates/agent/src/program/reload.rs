//! SIGHUP: the key file is read again. Hosts that come from then on must prove the new key; those that
//! are served stay. A file that cannot be used changes nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bothends_csd::key::Key;

use super::log::Form;
use crate::door::Keys;

/// From one look at the flags to the next.
const LOOK: Duration = Duration::from_millis(50);

/// What is read again, and when.
#[derive(Debug)]
pub(super) struct Reload {
    /// The file, and who is told what is in it.
    pub(super) keys: Option<(PathBuf, Keys)>,
    pub(super) asked: Arc<AtomicBool>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Reload {
    /// Waits for the signal on a thread of its own, until the program is to stop.
    pub(super) fn start(self, log: Form) -> std::io::Result<JoinHandle<()>> {
        let named = std::thread::Builder::new().name("be-reload".to_owned());
        named.spawn(move || {
            // Flags alone; nothing else is published with them.
            while !self.stop.load(Ordering::Relaxed) {
                if self.asked.swap(false, Ordering::Relaxed) {
                    self.read(log);
                }
                std::thread::sleep(LOOK);
            }
        })
    }

    fn read(&self, log: Form) {
        let Some((file, keys)) = &self.keys else {
            return log.note("there is no key file to read again");
        };
        match Key::from_file(file) {
            Ok(key) => {
                keys.replace(key);
                log.note(&format!("the key in {} is used from now on", file.display()));
            }
            Err(error) => log.warn(&format!("{error}; the key before it stays in use")),
        }
    }
}
