//! A bucket in S3, Google Cloud Storage or Azure, or in a store that speaks the language of one of them.
//!
//! Signing and listings are `object_store`'s; requests go through our own client, and its retries are
//! switched off.

pub(crate) mod keys;
pub(crate) mod lasting;

use std::fmt::{self, Debug, Formatter};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{self, BoxFuture, FutureExt};
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::{self, Path};
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, PutOptions};

use crate::client::failure::{Failure, TO_READ};
use crate::client::failure_in;
use crate::fetcher::destination::{Received, WrongLength};
use crate::objects::{arrivals, is_plain, unquoted};
use crate::retry::Pauses;
use crate::{Arrivals, Identity, Listed, Objects, Put, StorageError};

/// Objects in a bucket.
pub(crate) struct Cloud {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// What all names start with, without a `/` at its end.
    pub(crate) prefix: String,
    /// Scheme and bucket, as the user writes them.
    pub(crate) shown: String,
    /// Nothing of these may be in a message.
    pub(crate) secrets: Secrets,
    /// What else may have come of credentials that have expired.
    pub(crate) renewed: Option<Arc<dyn Renewed>>,
}

/// What is said of a request with the old ones.
const RENEWED: &str = "the credentials had expired, and have been renewed";

/// Credentials that may be renewed while they are used.
pub(crate) trait Renewed: Send + Sync {
    /// Whether there are others now than a moment ago, with which the store may not refuse a request as expired.
    fn is_renewed(&self) -> bool;
}

/// Credentials, to keep them out of messages. Clones have the same.
#[derive(Clone)]
pub(crate) struct Secrets(Arc<Mutex<Vec<String>>>);

impl Secrets {
    pub(crate) fn of(secrets: Vec<String>) -> Self {
        let known = Self(Arc::default());
        known.add(secrets);
        known
    }

    fn known(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So are these.
    pub(crate) fn add(&self, more: impl IntoIterator<Item = String>) {
        let mut known = self.known();
        // Shorter ones are no credentials, and may be parts of any word.
        for secret in more.into_iter().filter(|secret| secret.len() > 3) {
            // The longer ones first: none is a part of what is left.
            let at = known.partition_point(|other| other.len() >= secret.len());
            known.insert(at, secret);
        }
    }

    /// The text without them, and not longer than a line.
    pub(crate) fn removed_from(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.known().iter() {
            text = text.replace(secret.as_str(), "***");
        }
        text.lines().next().unwrap_or_default().chars().take(200).collect()
    }
}

/// Without the store, whose configuration holds credentials.
impl Debug for Cloud {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cloud").field(&self.shown("")).finish()
    }
}

impl Cloud {
    /// The name in the bucket.
    fn full(&self, name: &str) -> String {
        match &*self.prefix {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }

    fn path(&self, object: &str) -> Result<Path, StorageError> {
        if !is_plain(object) {
            return Err(StorageError::NotFound { place: self.shown(object) });
        }
        let why = "it has a name that cannot be requested; rename it".to_owned();
        let unusable = |_| StorageError::Refused { place: self.shown(object), why };
        Path::parse(self.full(object)).map_err(unusable)
    }

    fn error(&self, error: &object_store::Error, object: &str, end: u64) -> StorageError {
        let place = self.shown(object);
        if let Some(failure) = failure_in(error) {
            let error = failure.at(place, end);
            let is_expired = matches!(error, StorageError::Expired { .. });
            let renewed = self.renewed.as_ref().filter(|_| is_expired);
            if renewed.is_some_and(|renewed| renewed.is_renewed()) {
                return StorageError::Broken {
                    place: self.shown(object),
                    why: RENEWED.to_owned(),
                };
            }
            return error;
        }
        if let Some(why) = odd_key(error) {
            return StorageError::Refused { place, why };
        }
        let mut bottom: &dyn std::error::Error = error;
        while let Some(below) = bottom.source() {
            bottom = below;
        }
        StorageError::Refused {
            place,
            why: self.secrets.removed_from(&bottom.to_string()),
        }
    }

    async fn one(
        &self,
        object: &str,
        range: Range<u64>,
        expected: Option<&Identity>,
    ) -> Result<Bytes, StorageError> {
        let path = self.path(object)?;
        let too_short =
            || StorageError::TooShort { place: self.shown(object), end: range.end };
        if range.is_empty() {
            return if range.start > range.end {
                Err(too_short())
            } else {
                Ok(Bytes::new())
            };
        }
        let etag = expected.and_then(|expected| expected.etag.as_deref());
        // A weak mark never matches in a condition; the answer's is compared below.
        let if_match = etag.filter(|etag| !etag.starts_with("W/"));
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: if_match.map(|etag| format!("\"{etag}\"")),
            ..GetOptions::default()
        };
        let failed = |error| {
            self.error(&error, object, range.end)
                .or_changed(expected.map(|it| it.len), range.end)
        };
        let answer = self.store.get_opts(&path, options).await.map_err(failed)?;
        let now = identity(&answer.meta);
        if expected.is_some_and(|expected| !expected.matches(&now)) {
            return Err(StorageError::Changed { place: self.shown(object) });
        }
        if now.len < range.end {
            return Err(too_short());
        }
        let most = usize::try_from(range.end - range.start).map_err(|_| too_short())?;
        let mut body = answer.into_stream();
        let mut received = Received::of(most);
        let wrong = |wrong: WrongLength| wrong.at(self.shown(object));
        while let Some(part) = body.try_next().await.map_err(failed)? {
            received.add(&part).map_err(wrong)?;
        }
        received.whole().map_err(wrong)
    }

    async fn head(&self, path: &Path, object: &str) -> Result<Identity, StorageError> {
        let mut pauses = Pauses::new();
        let options = GetOptions { head: true, ..GetOptions::default() };
        let error = match self.store.get_opts(path, options).await {
            Ok(answer) => return Ok(identity(&answer.meta)),
            Err(error) => error,
        };
        // The answer to HEAD has no text, and only the text says why.
        let is_mute =
            matches!(failure_in(&error), Some(Failure::Status(s)) if s.code.is_none());
        if !is_mute {
            return Err(self.error(&error, object, 0));
        }
        loop {
            let range = Some(GetRange::Bounded(0..1));
            let options = GetOptions { range, ..GetOptions::default() };
            // That is one attempt without a deadline of its own. If it is late, the answer to HEAD counts.
            let asked = self.store.get_opts(path, options);
            let told = match tokio::time::timeout(pauses.left(), asked).await {
                Err(_) => break,
                Ok(Ok(answer)) => return Ok(identity(&answer.meta)),
                Ok(Err(error)) => self.error(&error, object, 0),
            };
            // That is an object without a first byte.
            if matches!(told, StorageError::TooShort { .. }) {
                break;
            }
            if !told.is_transient() || !pauses.wait(told.retry_after()).await {
                return Err(told);
            }
        }
        Err(self.error(&error, object, 0))
    }
}

impl Objects for Cloud {
    fn get_ranges<'a>(
        &'a self,
        object: &'a str,
        ranges: &'a [Range<u64>],
        expected: Option<&'a Identity>,
    ) -> Arrivals<'a> {
        arrivals(ranges, move |range| self.one(object, range, expected))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxStream<'a, Result<Listed, StorageError>> {
        let full = if prefix.is_empty() && !self.prefix.is_empty() {
            format!("{}/", self.prefix)
        } else {
            self.full(prefix)
        };
        // The store lists whole folders.
        let folder = full.rsplit_once('/').map(|(folder, _)| folder.to_owned());
        let folder = match folder.map(Path::parse).transpose() {
            Ok(folder) => folder,
            Err(_) => return stream::empty().boxed(),
        };
        let skip = if self.prefix.is_empty() { 0 } else { self.prefix.len() + 1 };
        let listed = self.store.list(folder.as_ref());
        let listed = listed.map_err(move |error| self.error(&error, prefix, 0));
        let listed = listed.try_filter_map(move |meta| {
            let name =
                Some(meta.location.as_ref()).filter(|name| name.starts_with(&full));
            let name =
                name.and_then(|name| name.get(skip..)).filter(|name| !name.is_empty());
            let name = name.map(str::to_owned);
            let listed = name.map(|name| Listed::new(name, identity(&meta)));
            std::future::ready(Ok(listed))
        });
        // After an error the stream ends.
        let listed = listed.scan(false, |has_failed, one| {
            let next = (!*has_failed).then_some(one);
            *has_failed |= matches!(next, Some(Err(_)));
            std::future::ready(next)
        });
        listed.boxed()
    }

    fn identify<'a>(
        &'a self,
        object: &'a str,
    ) -> BoxFuture<'a, Result<Identity, StorageError>> {
        let identified = async move {
            let path = self.path(object)?;
            match self.head(&path, object).await {
                // Other failures have been tried again.
                Err(StorageError::Broken { why, .. }) if why == RENEWED => {
                    self.head(&path, object).await
                }
                identified => identified,
            }
        };
        identified.boxed()
    }

    fn receives_in_place(&self) -> bool {
        true
    }

    fn shown(&self, object: &str) -> String {
        let full =
            if object.is_empty() { self.prefix.clone() } else { self.full(object) };
        format!("{}/{full}", self.shown)
    }
}

impl Put for Cloud {
    fn prepare(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        future::ready(Ok(())).boxed()
    }

    fn put<'a>(
        &'a self,
        object: &'a str,
        bytes: Bytes,
        _: Option<u32>,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        let put = async move {
            let path = self.path(object)?;
            let done =
                self.store.put_opts(&path, bytes.into(), PutOptions::default()).await;
            done.map(drop).map_err(|error| {
                let mut error = self.error(&error, object, 0);
                if let StorageError::Denied { remedy, .. } = &mut error
                    && *remedy == TO_READ
                {
                    *remedy = "give these credentials the right to write it";
                }
                error
            })
        };
        put.boxed()
    }
}

/// Which key in a listing cannot be the name of a file, and what to do. With one such key, `object_store` refuses the
/// whole page.
fn odd_key(error: &object_store::Error) -> Option<String> {
    let object_store::Error::InvalidPath { source } = error else { return None };
    let (path::Error::EmptySegment { path } | path::Error::BadSegment { path, .. }) =
        source
    else {
        return None;
    };
    let what = match path.contains(|letter: char| letter.is_ascii_control()) {
        true => "a control character",
        false => "an empty part, `.` or `..`",
    };
    Some(format!(
        "the key `{}` has {what} in it, so it cannot be the name of a file; rename or remove \
         this object, or give the URL of a folder without it",
        path.escape_debug()
    ))
}

fn identity(meta: &ObjectMeta) -> Identity {
    let seconds = u64::try_from(meta.last_modified.timestamp()).ok();
    let modified = seconds.map(|seconds| {
        Duration::new(
            seconds,
            meta.last_modified.timestamp_subsec_nanos() % 1_000_000_000,
        )
    });
    let etag = meta.e_tag.as_deref().map(unquoted);
    Identity { len: meta.size, modified, etag: etag.map(Arc::from) }
}
