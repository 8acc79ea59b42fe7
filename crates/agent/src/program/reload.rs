//! SIGHUP: the key file and the certificates are read again. Hosts that come from then on must prove what
//! is new; those that are served stay. Files that cannot be used change nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bothends_core::setting::NamesSettings as _;
use bothends_csd::{CsdError, Insecure, Security, TlsFiles};

use super::Args;
use super::flags::flag;
use super::log::Form;
use crate::door::Trust;

/// From one look at the flags to the next.
const LOOK: Duration = Duration::from_millis(50);

/// The files by which this agent proves who it is, and by which it knows hosts.
#[derive(Debug)]
pub(super) struct Proofs {
    key_file: Option<PathBuf>,
    tls: Option<TlsFiles>,
    insecure: Insecure,
}

impl Proofs {
    /// Those of the command line.
    pub(super) fn of(args: &Args) -> anyhow::Result<Self> {
        let files = [&args.tls_ca, &args.tls_cert, &args.tls_key].map(Clone::clone);
        let [ca, cert, key] = files;
        let tls = TlsFiles::of(ca, cert, key).map_err(anyhow::Error::msg)?;
        Ok(Self { key_file: args.key_file.clone(), tls, insecure: args.insecure })
    }

    /// What is in them now.
    pub(super) fn load(&self) -> Result<Security, CsdError> {
        Security::load(self.key_file.as_deref(), self.tls.as_ref(), self.insecure)
    }

    /// Their names.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let tls = self.tls.iter().flat_map(|tls| [&tls.ca, &tls.cert, &tls.key]);
        self.key_file.iter().chain(tls).map(PathBuf::as_path)
    }
}

/// What is read again, and when.
#[derive(Debug)]
pub(super) struct Reload {
    proofs: Proofs,
    trusts: Vec<Trust>,
    asked: Arc<AtomicBool>,
    /// The program is to end.
    pub(super) stop: Arc<AtomicBool>,
}

impl Reload {
    /// Of these files, for these doors, when the second of the signals asks for it; the first ends it.
    pub(super) fn new(
        proofs: Proofs,
        trusts: Vec<Trust>,
        [stop, asked]: [Arc<AtomicBool>; 2],
    ) -> Self {
        Self { proofs, trusts, asked, stop }
    }

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
        let names: Vec<_> =
            self.proofs.files().map(|file| file.display().to_string()).collect();
        if names.is_empty() {
            return log.note("there is no key file to read again");
        }
        match self.proofs.load() {
            Ok(security) => {
                for trust in &self.trusts {
                    trust.replace(security.clone());
                }
                log.note(&format!("used from now on: {}", names.join(", ")));
            }
            Err(error) => {
                let why = error.with_names(flag);
                log.warn(&format!("{why}; what was read before stays in use"));
            }
        }
    }
}
