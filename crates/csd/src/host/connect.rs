//! From an address to its transport.

use std::path::PathBuf;
use std::time::Duration;

use crate::host::remote::Link;
use crate::host::stream::Stream;
use crate::spool::Spool;
use crate::words::address::Address;
use crate::words::job::CONTROL_TIMEOUT;
use crate::words::key::Key;
use crate::{CsdError, Transport};

/// How to reach a device.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The key both sides share; required for TCP beyond this machine.
    pub key_file: Option<PathBuf>,
    /// How long connecting, and later each answer of the control plane, may take.
    pub timeout: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self { key_file: None, timeout: CONTROL_TIMEOUT }
    }
}

/// Reaches the device at `address`. The conversation starts with `Transport::hello`.
///
/// # Errors
/// [`CsdError::Unreachable`], [`CsdError::Unauthenticated`] when a key is needed or cannot
/// be read.
pub fn connect(
    address: &Address,
    options: &ConnectOptions,
) -> Result<Box<dyn Transport>, CsdError> {
    let key = options.key_file.as_deref().map(Key::from_file).transpose()?;
    match address {
        Address::Tcp { .. } | Address::Unix(_) => {
            Ok(Box::new(Stream::connect(address, key, options.timeout)?))
        }
        Address::Spool(dir) => Ok(Box::new(Spool::connect(dir, options.timeout)?)),
    }
}

/// As [`connect`], one layer below it: messages as they are, for who tests what a device does with
/// those that no host sends. The conversation starts with [`Link::greet`].
///
/// # Errors
/// As [`connect`].
pub fn link(
    address: &Address,
    options: &ConnectOptions,
) -> Result<Box<dyn Link>, CsdError> {
    let key = options.key_file.as_deref().map(Key::from_file).transpose()?;
    match address {
        Address::Tcp { .. } | Address::Unix(_) => {
            let stream = Stream::connect(address, key, options.timeout)?;
            Ok(Box::new(stream.into_link()))
        }
        Address::Spool(dir) => {
            Ok(Box::new(Spool::connect(dir, options.timeout)?.into_link()))
        }
    }
}
