//! Where hosts connect: one address, one host after the other.
//!
//! The transports are in `csd`. This file decides how long they are served and removes what was created
//! for them. It serves in the caller's thread and spawns nothing.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bothends_csd::listen::{Ended, Listener, Terms, serve_connection};
use bothends_csd::spool::{remove_directory, serve_directory};
use bothends_csd::{Address, CsdError, Security, Serve};

/// How often a door without a guest looks whether it shall close.
const LOOK: Duration = Duration::from_millis(50);

/// How many hosts are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visits {
    /// One; then the device ends.
    Once,
    /// One after the other until the device is stopped.
    Always,
}

/// An open address.
#[derive(Debug)]
pub struct Door {
    way: Way,
    security: Security,
    address: Address,
}

#[derive(Debug)]
enum Way {
    Socket(Listener),
    Spool(SpoolDir),
}

/// A spool directory; one that was made here is removed on drop, unless others have put
/// something into it.
#[derive(Debug)]
struct SpoolDir {
    path: PathBuf,
    is_ours: bool,
}

impl SpoolDir {
    fn open(path: PathBuf) -> Result<Self, CsdError> {
        let is_ours = match std::fs::create_dir(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(source) => {
                let (doing, place) = ("make the directory", path.display().to_string());
                return Err(CsdError::Place { doing, place, source });
            }
        };
        Ok(Self { path, is_ours })
    }
}

impl SpoolDir {
    fn remove(&mut self) -> Result<(), CsdError> {
        match std::mem::take(&mut self.is_ours) {
            true => remove_directory(&self.path),
            false => Ok(()),
        }
    }
}

impl Drop for SpoolDir {
    fn drop(&mut self) {
        // Who wants to know calls `Door::close`.
        drop(self.remove());
    }
}

impl Door {
    /// Opens `address`. A spool directory is made if it is not there.
    ///
    /// # Errors
    /// [`CsdError::Place`] when the address cannot be had, [`CsdError::Unauthenticated`] and
    /// [`CsdError::Untrusted`] where `security` lacks what it needs, or forbids it.
    pub fn open(address: &Address, security: Security) -> Result<Self, CsdError> {
        if let Address::Spool(path) = address {
            let way = Way::Spool(SpoolDir::open(path.clone())?);
            return Ok(Self { way, security, address: address.clone() });
        }
        let listener = Listener::bind(address, &security)?;
        let address = listener.address().clone();
        Ok(Self { way: Way::Socket(listener), security, address })
    }

    /// Closes the door, and removes what was made for it. Dropping it does the same in silence.
    ///
    /// # Errors
    /// [`CsdError::Foreign`] when a directory stays for what others have put into it.
    pub fn close(self) -> Result<(), CsdError> {
        match self.way {
            Way::Spool(mut dir) => dir.remove(),
            Way::Socket(_) => Ok(()),
        }
    }

    /// Where hosts come in; TCP port 0 has become the port that was given.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Serves hosts until `stop` is set or, with [`Visits::Once`], the first has left. Blocks
    /// for that long. `complain` hears why a host was not, or not any longer, served.
    ///
    /// # Errors
    /// The address is lost. With [`Visits::Once`], what `complain` would hear.
    pub fn serve(
        &self,
        serve: &mut dyn Serve,
        visits: Visits,
        stop: &AtomicBool,
        complain: &mut dyn FnMut(&CsdError),
    ) -> Result<(), CsdError> {
        // A flag alone; nothing else is published with it.
        while !stop.load(Ordering::Relaxed) {
            match (self.visit(serve, stop), visits) {
                (Ok(None), _) => {}
                (Ok(Some(Ended::Stopped)), _)
                | (Ok(Some(Ended::HostGone)), Visits::Once) => break,
                (Ok(Some(Ended::HostGone)), Visits::Always) => {}
                (Err(error @ (CsdError::Place { .. } | CsdError::Foreign { .. })), _)
                | (Err(error), Visits::Once) => return Err(error),
                (Err(error), Visits::Always) => complain(&error),
            }
        }
        Ok(())
    }

    /// Waits a little for a host and serves it; `None` when none came.
    fn visit(
        &self,
        serve: &mut dyn Serve,
        stop: &AtomicBool,
    ) -> Result<Option<Ended>, CsdError> {
        match &self.way {
            Way::Spool(dir) => serve_directory(&dir.path, serve, stop).map(Some),
            Way::Socket(listener) => match listener.accept(LOOK)? {
                None => Ok(None),
                Some(socket) => {
                    let terms = Terms { security: &self.security, stop };
                    serve_connection(socket, serve, terms).map(Some)
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_goes_with_the_door_unless_others_use_it() {
        let dir = tempfile::tempdir().unwrap();
        let spool = dir.path().join("spool");
        let address = Address::Spool(spool.clone());
        Door::open(&address, Security::default()).unwrap().close().unwrap();
        assert!(!spool.exists());
        let theirs = spool.join("results.csv");
        for close in [
            |door: Door| door.close().unwrap_err().to_string(),
            |door: Door| {
                drop(door);
                "results.csv".to_owned()
            },
        ] {
            let door = Door::open(&address, Security::default()).unwrap();
            std::fs::write(&theirs, "results").unwrap();
            let said = close(door);
            assert!(said.contains("results.csv"), "{said}");
            assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "results");
            std::fs::remove_dir_all(&spool).unwrap();
        }
        // One that was there before stays in any case.
        std::fs::create_dir(&spool).unwrap();
        Door::open(&address, Security::default()).unwrap().close().unwrap();
        assert!(spool.is_dir());
    }
}
