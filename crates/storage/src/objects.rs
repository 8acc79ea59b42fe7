//! The trait that local files and every remote store implement, and its words.
//!
//! Read `stores/folder.rs` next, the simplest implementation.

pub(crate) mod upload;

use std::fmt::Debug;
use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};

use crate::StorageError;

/// What an object is recognised by: any change of the object changes one of these, as far as its
/// store tells.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Length in bytes.
    pub len: u64,
    /// When it was last changed, since 1970.
    pub modified: Option<Duration>,
    /// The store's own mark of this version of the object.
    pub etag: Option<Arc<str>>,
}

impl Identity {
    /// Whether `now` may be the same object: what only one of them knows is not compared.
    #[must_use]
    pub fn matches(&self, now: &Self) -> bool {
        let etags = self.etag.as_ref().zip(now.etag.as_ref());
        let times = self.modified.as_ref().zip(now.modified.as_ref());
        // Stores give times of several precisions, so an etag decides where both have one.
        let is_same = match etags {
            Some((ours, theirs)) => ours == theirs,
            None => times.is_none_or(|(ours, theirs)| ours == theirs),
        };
        self.len == now.len && is_same
    }
}

/// One object of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Relative to the location, parts joined by `/`.
    pub name: String,
    /// What the listing says of it. A store may know more when it is asked for the one object.
    pub identity: Identity,
    /// Whether it is a sample of its own, and which label it has.
    pub label: Labelled,
}

impl Listed {
    /// An object of whose label the listing says nothing.
    #[must_use]
    pub fn new(name: String, identity: Identity) -> Self {
        Self { name, identity, label: Labelled::Elsewhere }
    }
}

/// What a listing says of an object's label.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Labelled {
    /// Nothing: names or other objects tell, as those of files do.
    #[default]
    Elsewhere,
    /// It is a sample, and has none.
    No,
    /// It is a sample with this one.
    As(u32),
}

/// Bytes as they come, each with the index of the range that was asked for.
pub type Arrivals<'a> = BoxStream<'a, (usize, Result<Bytes, StorageError>)>;

/// Objects at a location.
///
/// # Contract
///
/// 1. `get_ranges` answers every range exactly once, in any order, also empty ones, and each with as many
///    bytes as were asked for or with an error.
/// 2. A range that reaches beyond the object fails as [`StorageError::TooShort`].
/// 3. Where `expected` is given and the object is another one now, every range that holds a byte fails as
///    [`StorageError::Changed`].
/// 4. `list` gives every object whose name starts with `prefix` once, in any order; memory does not
///    grow with their number.
/// 5. No method retries, except that `list` and `identify` do within 10 s. Dropping a stream or a
///    future ends what it does.
/// 6. Names are relative, without `.`, `..` or empty parts; others fail as [`StorageError::NotFound`].
/// 7. No message shows a credential.
///
/// Streams and futures make progress only inside this crate's runtimes: poll them through
/// [`Fetcher`](crate::Fetcher) or [`View`](crate::View).
pub trait Objects: Send + Sync + Debug {
    /// The bytes in `ranges` of `object`.
    fn get_ranges<'a>(
        &'a self,
        object: &'a str,
        ranges: &'a [Range<u64>],
        expected: Option<&'a Identity>,
    ) -> Arrivals<'a>;

    /// All objects whose names start with `prefix`. After an error the stream ends.
    fn list<'a>(&'a self, prefix: &'a str)
    -> BoxStream<'a, Result<Listed, StorageError>>;

    /// What `object` is recognised by now.
    fn identify<'a>(
        &'a self,
        object: &'a str,
    ) -> BoxFuture<'a, Result<Identity, StorageError>>;

    /// Whether bytes may be received into the destinations of their fetches
    /// ([`Fetcher::submit_into`](crate::Fetcher::submit_into)).
    fn receives_in_place(&self) -> bool {
        false
    }

    /// Where the object is in a file system of this machine, if it is a file there.
    fn local(&self, object: &str) -> Option<PathBuf> {
        let _ = object;
        None
    }

    /// The object as the user would write it, without credentials; for messages.
    fn shown(&self, object: &str) -> String;
}

/// Requests of one call that are under way at the same time.
pub(crate) const DEPTH: usize = 16;

/// Reads ranges by one request each, several at the same time.
pub(crate) fn arrivals<'a, F>(
    ranges: &'a [Range<u64>],
    mut read: impl FnMut(Range<u64>) -> F + Send + 'a,
) -> Arrivals<'a>
where
    F: Future<Output = Result<Bytes, StorageError>> + Send + 'a,
{
    // As records are read: what keeps several requests takes 2 % of a record's CPU time.
    if let [range] = ranges {
        let read = read(range.clone());
        return stream::once(async move { (0, read.await) }).boxed();
    }
    let requests = ranges.iter().cloned().enumerate().map(move |(idx, range)| {
        let read = read(range);
        async move { (idx, read.await) }
    });
    stream::iter(requests).buffer_unordered(DEPTH).boxed()
}

/// Whether `name` may name an object: relative, without a way up.
pub(crate) fn is_plain(name: &str) -> bool {
    let is_part = |part: &str| !matches!(part, "" | "." | "..");
    !name.contains('\0') && name.split('/').all(is_part)
}

/// A time of the calendar since 1970: year, month and day, hours, minutes and seconds.
pub(crate) fn since_1970(
    (year, month, day): (u64, u64, u64),
    (hours, minutes, seconds): (u64, u64, u64),
) -> Option<Duration> {
    let is_date = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day);
    if !is_date {
        return None;
    }
    // Years from March on, so that a leap day ends one.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let before = 365 * year + leap_days + (153 * month + 2) / 5 + day - 1;
    // 719,468 days lie between 1 March of the year 0 and 1970.
    let days = before.checked_sub(719_468)?;
    let clock = hours.min(23) * 3600 + minutes.min(59) * 60 + seconds.min(60);
    Some(Duration::from_secs(days * 86_400 + clock))
}

/// An etag without its quotes, which some stores leave out in some answers.
pub(crate) fn unquoted(etag: &str) -> &str {
    let bare = etag.strip_prefix('"').and_then(|etag| etag.strip_suffix('"'));
    bare.unwrap_or(etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_compared_by_what_both_know() {
        let of = |len, modified: Option<u64>, etag: Option<&str>| Identity {
            len,
            modified: modified.map(Duration::from_secs),
            etag: etag.map(Arc::from),
        };
        let full = of(1, Some(5), Some("a"));
        for same in [of(1, None, None), of(1, Some(6), Some("a")), of(1, Some(5), None)] {
            assert!(full.matches(&same) && same.matches(&full), "{same:?}");
        }
        for other in
            [of(2, Some(5), Some("a")), of(1, Some(5), Some("b")), of(1, Some(6), None)]
        {
            assert!(!full.matches(&other) && !other.matches(&full), "{other:?}");
        }
    }

    #[test]
    fn names_have_no_way_up() {
        for good in ["a", "a/b.jpg", "...", "a b/\u{e4}"] {
            assert!(is_plain(good), "{good}");
        }
        for bad in ["", "/a", "a//b", "a/", "./a", "a/../b", "a\0b"] {
            assert!(!is_plain(bad), "{bad:?}");
        }
    }
}
