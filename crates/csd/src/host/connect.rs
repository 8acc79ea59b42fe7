//! From an address to its transport.

use std::path::PathBuf;
use std::time::Duration;

use crate::channel::security::Security;
use crate::host::nvme::Nvme;
use crate::host::remote::Link;
use crate::host::stream::Stream;
use crate::spool::Spool;
use crate::words::address::Address;
use crate::words::job::CONTROL_TIMEOUT;
use crate::words::trust::{Insecure, TlsFiles};
use crate::{CsdError, Transport};

/// How to reach a device.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The key both sides share; `tcp+noise://` requires one.
    pub key_file: Option<PathBuf>,
    /// The certificates for `tls://`.
    pub tls: Option<TlsFiles>,
    /// Whether `tcp://` may leave this machine.
    pub insecure: Insecure,
    /// The folder of the data set on this host: what an NVMe device's blocks are told by.
    pub folder: Option<PathBuf>,
    /// How long connecting, and later each answer of the control plane, may take.
    pub timeout: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            key_file: None,
            tls: None,
            insecure: Insecure::Refused,
            folder: None,
            timeout: CONTROL_TIMEOUT,
        }
    }
}

/// Reaches the device at `address`. The conversation starts with `Transport::hello`.
///
/// # Errors
/// [`CsdError::Unreachable`]; [`CsdError::Unauthenticated`] and [`CsdError::Untrusted`] when a key or
/// certificate is needed or cannot be read.
pub fn connect(
    address: &Address,
    options: &ConnectOptions,
) -> Result<Box<dyn Transport>, CsdError> {
    let ConnectOptions { key_file, tls, insecure, folder, timeout } = options;
    let security = Security::load(key_file.as_deref(), tls.as_ref(), *insecure)?;
    match address {
        Address::Tcp { .. }
        | Address::Noise { .. }
        | Address::Tls { .. }
        | Address::Unix(_) => Ok(Box::new(Stream::connect(address, security, *timeout)?)),
        Address::Spool(dir) => Ok(Box::new(Spool::connect(dir, *timeout)?)),
        Address::Nvme(target) => {
            Ok(Box::new(Nvme::connect(target, *timeout, folder.clone())?))
        }
        Address::Drive(drive) => {
            Ok(Box::new(Nvme::open(drive, *timeout, folder.clone())?))
        }
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
    let ConnectOptions { key_file, tls, insecure, timeout, .. } = options;
    let security = Security::load(key_file.as_deref(), tls.as_ref(), *insecure)?;
    match address {
        Address::Tcp { .. }
        | Address::Noise { .. }
        | Address::Tls { .. }
        | Address::Unix(_) => {
            let stream = Stream::connect(address, security, *timeout)?;
            Ok(Box::new(stream.into_link()))
        }
        Address::Spool(dir) => Ok(Box::new(Spool::connect(dir, *timeout)?.into_link())),
        Address::Nvme(_) | Address::Drive(_) => Err(address.is_no_socket()),
    }
}
