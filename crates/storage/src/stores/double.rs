//! Objects in memory that answer as a test wants: late, never, with a failure, or as another version.
//!
//! It stands for a remote store in tests of what builds on `Objects`. Nothing in it draws a number: the
//! test's own function decides, from a seed if it likes.
//!
//! As some stores can and others cannot, it answers most fetches in their destinations, where they have one, and
//! every fourth one with bytes of its own. A failure there comes after half of the bytes.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, BoxStream, StreamExt};

use crate::fetcher::{destination, progress};
use crate::{Arrivals, Identity, Listed, Objects, StorageError};

/// A request as the double sees it.
#[derive(Debug, Clone)]
pub struct Asked {
    /// How many requests came before it, since the double was made.
    pub number: u64,
    /// The object.
    pub object: String,
    /// The range; `None` when the object is only identified, or the objects are listed (then `object` is the
    /// prefix).
    pub range: Option<Range<u64>>,
}

/// What becomes of a request.
#[derive(Debug, Clone)]
pub enum Answer {
    /// It is answered after this time.
    After(Duration),
    /// So many parts of 16 KiB of the answer come, each after this time.
    InParts(u32, Duration),
    /// It fails after this time.
    Fails(Duration, StorageError),
    /// It is never answered.
    Never,
}

type Answers = dyn Fn(&Asked) -> Answer + Send + Sync;
type Held = BTreeMap<String, (Bytes, Identity)>;

/// Objects in memory.
pub struct Double {
    held: Mutex<Held>,
    answers: Box<Answers>,
    asked: AtomicU64,
    filled: AtomicU64,
}

impl Debug for Double {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Double").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Double {
    /// No objects; every request is answered as soon as it is made.
    #[must_use]
    pub fn new() -> Self {
        Self::answering(|_| Answer::After(Duration::ZERO))
    }

    /// No objects; `answers` decides what becomes of each request.
    #[must_use]
    pub fn answering(answers: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let (held, asked, filled) =
            (Mutex::default(), AtomicU64::new(0), AtomicU64::new(0));
        Self { held, answers: Box::new(answers), asked, filled }
    }

    /// Adds or replaces an object. Its mark changes with every replacement.
    pub fn put(&self, name: &str, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let version = held.get(name).and_then(|(_, identity)| {
            identity.etag.as_deref().and_then(|etag| etag.parse::<u64>().ok())
        });
        let etag = version.map_or(0, |version| version + 1).to_string();
        let len = bytes.len() as u64;
        let identity = Identity { len, modified: None, etag: Some(etag.into()) };
        held.insert(name.to_owned(), (bytes, identity));
    }

    /// With one more object.
    #[must_use]
    pub fn with(self, name: &str, bytes: impl Into<Bytes>) -> Self {
        self.put(name, bytes);
        self
    }

    /// Removes an object.
    pub fn remove(&self, name: &str) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Requests so far.
    #[must_use]
    pub fn n_asked(&self) -> u64 {
        // A count alone: no other memory is published through it.
        self.asked.load(Ordering::Relaxed)
    }

    /// Answers so far whose bytes went to the destinations of their fetches.
    #[must_use]
    pub fn n_filled(&self) -> u64 {
        // See `n_asked`.
        self.filled.load(Ordering::Relaxed)
    }

    async fn answer(
        &self,
        object: &str,
        range: Option<Range<u64>>,
    ) -> Result<(), StorageError> {
        // See `n_asked`.
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let after = |after: Duration| async move {
            if !after.is_zero() {
                tokio::time::sleep(after).await;
            }
        };
        match (self.answers)(&Asked { number, object: object.to_owned(), range }) {
            Answer::After(time) => after(time).await,
            Answer::InParts(n_parts, time) => {
                for _ in 0..n_parts {
                    after(time).await;
                    progress::came(16 << 10);
                }
            }
            Answer::Fails(time, error) => {
                after(time).await;
                return Err(error);
            }
            Answer::Never => std::future::pending().await,
        }
        Ok(())
    }

    fn find(&self, object: &str) -> Result<(Bytes, Identity), StorageError> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let found = held.get(object).cloned();
        found.ok_or_else(|| StorageError::NotFound { place: self.shown(object) })
    }

    async fn one(
        &self,
        object: &str,
        range: Range<u64>,
        expected: Option<&Identity>,
    ) -> Result<Bytes, StorageError> {
        let len = range.end.saturating_sub(range.start);
        let in_place = self.n_asked() % 4 != 3;
        let mut destination = in_place.then(|| destination::borrowed(len)).flatten();
        if let Some(destination) = &mut destination {
            let half = destination.bytes().len() / 2;
            destination.bytes()[..half].fill(0xEE);
        }
        self.answer(object, Some(range.clone())).await?;
        let (bytes, now) = self.find(object)?;
        if expected.is_some_and(|expected| !expected.matches(&now)) {
            return Err(StorageError::Changed { place: self.shown(object) });
        }
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let (start, end) = (place(range.start), place(range.end));
        if start > end || end > bytes.len() {
            let place = self.shown(object);
            return Err(StorageError::TooShort { place, end: range.end });
        }
        let bytes = bytes.slice(start..end);
        let Some(mut destination) = destination else { return Ok(bytes) };
        destination.bytes().copy_from_slice(&bytes);
        destination.filled();
        // See `n_asked`.
        self.filled.fetch_add(1, Ordering::Relaxed);
        Ok(Bytes::new())
    }

    /// The first name after `last` that starts with `prefix`.
    fn next_name(&self, prefix: &str, last: Option<&str>) -> Option<Listed> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let from = last.map_or(Bound::Included(prefix), Bound::Excluded);
        let mut names = held.range::<str, _>((from, Bound::Unbounded));
        let (name, (_, identity)) = names.next()?;
        let is_listed = name.starts_with(prefix);
        is_listed.then(|| Listed::new(name.clone(), identity.clone()))
    }
}

impl Default for Double {
    fn default() -> Self {
        Self::new()
    }
}

impl Objects for Double {
    fn get_ranges<'a>(
        &'a self,
        object: &'a str,
        ranges: &'a [Range<u64>],
        expected: Option<&'a Identity>,
    ) -> Arrivals<'a> {
        let answers = ranges.iter().cloned().enumerate().map(move |(idx, range)| {
            self.one(object, range, expected).map(move |read| (idx, read))
        });
        answers.collect::<stream::FuturesUnordered<_>>().boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxStream<'a, Result<Listed, StorageError>> {
        let asked = self.answer(prefix, None);
        let listed = async move {
            match asked.await {
                Err(error) => stream::iter([Err(error)]).boxed(),
                Ok(()) => stream::unfold(None::<String>, move |last| async move {
                    let listed = self.next_name(prefix, last.as_deref())?;
                    let name = listed.name.clone();
                    Some((Ok(listed), Some(name)))
                })
                .boxed(),
            }
        };
        listed.flatten_stream().boxed()
    }

    fn identify<'a>(
        &'a self,
        object: &'a str,
    ) -> BoxFuture<'a, Result<Identity, StorageError>> {
        let identified = async move {
            self.answer(object, None).await?;
            self.find(object).map(|(_, identity)| identity)
        };
        identified.boxed()
    }

    fn receives_in_place(&self) -> bool {
        true
    }

    fn shown(&self, object: &str) -> String {
        format!("memory:{object}")
    }
}
