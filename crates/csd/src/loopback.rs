//! The reference transport: the device is a value in this process.

use crate::Serve;

/// A device in this process.
#[derive(Debug)]
pub struct Loopback {
    _serve: Box<dyn Serve>,
}

impl Loopback {
    /// A transport to `serve`.
    #[must_use]
    pub fn new(serve: Box<dyn Serve>) -> Self {
        Self { _serve: serve }
    }
}
