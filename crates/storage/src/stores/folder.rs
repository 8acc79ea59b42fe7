//! A folder of this machine as objects.
//!
//! The runtime reads local data sets with a `Reader` of `bothends-io`; this is the same folder behind the
//! trait of remote stores, for comparing and for tests. Its reads are `pread` on helper threads.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bothends_dataset::Kind;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, BoxStream, StreamExt};

use crate::objects::is_plain;
use crate::{Arrivals, Identity, Listed, Objects, StorageError};

/// Reads of one call that are under way at the same time.
const DEPTH: usize = 8;

/// The files below a folder. Links are followed.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    fn path(&self, object: &str) -> Result<PathBuf, StorageError> {
        if is_plain(object) {
            return Ok(self.0.join(object));
        }
        Err(StorageError::NotFound { place: self.shown(object) })
    }

    async fn open(
        &self,
        object: &str,
        expected: Option<&Identity>,
    ) -> Result<Arc<File>, StorageError> {
        let path = self.path(object)?;
        let shown = self.shown(object);
        let (file, now) = blocking(move || {
            let file = open_object(&path)?;
            let identity = identity(&file)?;
            Ok((Arc::new(file), identity))
        })
        .await
        .map_err(|error| failed(shown, &error))?;
        match expected {
            Some(expected) if !expected.matches(&now) => {
                Err(StorageError::Changed { place: self.shown(object) })
            }
            _ => Ok(file),
        }
    }

    async fn read(
        &self,
        object: &str,
        file: Arc<File>,
        range: Range<u64>,
    ) -> Result<Bytes, StorageError> {
        let too_short =
            || StorageError::TooShort { place: self.shown(object), end: range.end };
        let len = range.end.checked_sub(range.start).ok_or_else(too_short)?;
        let read = blocking(move || {
            // A range beyond the end must not take memory.
            if range.end > file.metadata()?.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let len = usize::try_from(len).map_err(io::Error::other)?;
            let mut bytes = vec![0; len];
            file.read_exact_at(&mut bytes, range.start)?;
            Ok(Bytes::from(bytes))
        });
        read.await.map_err(|error| {
            let ends_early = error.kind() == io::ErrorKind::UnexpectedEof;
            if ends_early { too_short() } else { failed(self.shown(object), &error) }
        })
    }
}

impl Objects for Folder {
    fn get_ranges<'a>(
        &'a self,
        object: &'a str,
        ranges: &'a [Range<u64>],
        expected: Option<&'a Identity>,
    ) -> Arrivals<'a> {
        let arrivals = async move {
            let file = match self.open(object, expected).await {
                Ok(file) => file,
                Err(error) => {
                    let failed =
                        (0..ranges.len()).map(move |idx| (idx, Err(error.clone())));
                    return stream::iter(failed).boxed();
                }
            };
            let reads = ranges.iter().cloned().enumerate().map(move |(idx, range)| {
                self.read(object, Arc::clone(&file), range).map(move |read| (idx, read))
            });
            stream::iter(reads).buffer_unordered(DEPTH).boxed()
        };
        arrivals.flatten_stream().boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxStream<'a, Result<Listed, StorageError>> {
        // Only the folder that the prefix names can hold names that start with it.
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        if !folder.is_empty() && !is_plain(folder) {
            return stream::empty().boxed();
        }
        let walk = Walk { ahead: vec![folder.to_owned()], found: Vec::new() };
        let listed = stream::try_unfold(walk, move |mut walk| async move {
            loop {
                if let Some(listed) = walk.found.pop() {
                    return Ok(Some((listed, walk)));
                }
                let Some(folder) = walk.ahead.pop() else { return Ok(None) };
                self.list_one(&mut walk, &folder, prefix).await?;
            }
        });
        listed.boxed()
    }

    fn identify<'a>(
        &'a self,
        object: &'a str,
    ) -> BoxFuture<'a, Result<Identity, StorageError>> {
        let identified = async move {
            let path = self.path(object)?;
            let found = blocking(move || identity(&open_object(&path)?));
            found.await.map_err(|error| failed(self.shown(object), &error))
        };
        identified.boxed()
    }

    fn local(&self, object: &str) -> Option<PathBuf> {
        Some(self.0.join(object))
    }

    fn shown(&self, object: &str) -> String {
        self.0.join(object).display().to_string()
    }
}

/// Folders still to be listed, and what was found in the last one.
struct Walk {
    ahead: Vec<String>,
    found: Vec<Listed>,
}

impl Folder {
    async fn list_one(
        &self,
        walk: &mut Walk,
        folder: &str,
        prefix: &str,
    ) -> Result<(), StorageError> {
        let path = self.0.join(folder);
        let names = path.clone();
        let entries = blocking(move || match bothends_io::list(&names) {
            Ok(entries) => Ok(entries),
            Err(error) => Err(io::Error::other(error)),
        });
        // A prefix that nothing starts with is no mistake, a location that is missing is one.
        if !folder.is_empty() && !path.exists() {
            return Ok(());
        }
        let entries = entries.await.map_err(|error| StorageError::Refused {
            place: path.display().to_string(),
            why: error.to_string(),
        })?;
        for entry in entries {
            let name = match folder {
                "" => entry.name,
                folder => format!("{folder}/{}", entry.name),
            };
            let is_on_the_way = name.starts_with(prefix) || prefix.starts_with(&name);
            match entry.kind {
                Kind::Folder if is_on_the_way => walk.ahead.push(name),
                Kind::File { len } if name.starts_with(prefix) => {
                    let modified = modified(&self.0.join(&name));
                    let identity = Identity { len, modified, etag: None };
                    walk.found.push(Listed::new(name, identity));
                }
                Kind::Folder | Kind::File { .. } => {}
            }
        }
        Ok(())
    }
}

fn modified(path: &Path) -> Option<Duration> {
    let modified = path.metadata().and_then(|found| found.modified()).ok()?;
    modified.duration_since(UNIX_EPOCH).ok()
}

fn identity(file: &File) -> io::Result<Identity> {
    let found = file.metadata()?;
    let modified = found.modified()?.duration_since(UNIX_EPOCH).ok();
    Ok(Identity { len: found.len(), modified, etag: None })
}

fn failed(place: String, error: &io::Error) -> StorageError {
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        StorageError::NotFound { place }
    } else if kind == io::ErrorKind::PermissionDenied {
        let why = "no permission".to_owned();
        StorageError::Denied {
            place,
            why,
            remedy: "give this user permission to read it",
        }
    } else {
        StorageError::Refused { place, why: error.to_string() }
    }
}

fn open_object(path: &Path) -> io::Result<File> {
    bothends_io::open_regular(path).map_err(|error| {
        // A folder is no object; anything else that is not a file cannot be read.
        if path.is_dir() { io::ErrorKind::NotFound.into() } else { error }
    })
}

/// Runs what may block on a helper thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
