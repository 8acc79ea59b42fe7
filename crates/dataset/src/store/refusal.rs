//! Why bytes are refused as a part of a store.
//!
//! It names no file; `DatasetError::Store` does.

use std::fmt;

/// The version this build writes and reads.
pub const VERSION: u32 = 1;

/// Why bytes are not taken as a part of a store, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// They are damaged, or never were a part of a store.
    #[error(
        "{0}; restore the file from a copy, or pack the data again; \
         verifying the store shows what else is damaged"
    )]
    Damaged(String),
    /// They are of another version.
    #[error(
        "it has version {0}, this build reads version {VERSION}; use a newer release"
    )]
    Version(u64),
    /// They need something that this build does not know.
    #[error("it needs {0}, which this build does not know; use a newer release")]
    Feature(String),
}

impl Refusal {
    pub(crate) fn damaged(what: impl fmt::Display) -> Self {
        Self::Damaged(what.to_string())
    }
}
