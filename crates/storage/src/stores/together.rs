//! Several locations as one: the objects of each below a folder with its name.
//!
//! It is for data sets that are mixed: one fetcher and one queue read from all stores, so that their
//! requests are bounded together. Reads, failures and identities are those of the location that has the
//! object.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::{self, BoxFuture, FutureExt};
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};

use crate::{Arrivals, Identity, Listed, Objects, StorageError};

/// Locations with their names, of which none has a `/`.
#[derive(Debug)]
pub struct Together(Vec<(String, Arc<dyn Objects>)>);

impl Together {
    /// These locations. Of two that have one name, the first counts.
    #[must_use]
    pub fn new(locations: Vec<(String, Arc<dyn Objects>)>) -> Self {
        Self(locations)
    }

    /// The location that an object is in, and its name there.
    fn split<'a>(&'a self, object: &'a str) -> Option<(&'a dyn Objects, &'a str)> {
        let (name, inside) = object.split_once('/')?;
        let found = self.0.iter().find(|(known, _)| known == name)?;
        Some((&*found.1, inside))
    }

    fn not_found(&self, object: &str) -> StorageError {
        StorageError::NotFound { place: self.shown(object) }
    }
}

impl Objects for Together {
    fn get_ranges<'a>(
        &'a self,
        object: &'a str,
        ranges: &'a [Range<u64>],
        expected: Option<&'a Identity>,
    ) -> Arrivals<'a> {
        if let Some((objects, inside)) = self.split(object) {
            return objects.get_ranges(inside, ranges, expected);
        }
        let error = self.not_found(object);
        stream::iter((0..ranges.len()).map(move |idx| (idx, Err(error.clone())))).boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxStream<'a, Result<Listed, StorageError>> {
        let listed = self.0.iter().filter_map(move |(name, objects)| {
            let inside = match prefix.split_once('/') {
                Some((first, inside)) => (first == name).then_some(inside),
                None => name.starts_with(prefix).then_some(""),
            };
            let listed = objects.list(inside?).map_ok(move |one| {
                let full = format!("{name}/{}", one.name);
                Listed { name: full, ..one }
            });
            Some(listed)
        });
        let all = stream::iter(listed).flatten();
        // After an error the stream ends.
        all.scan(false, |has_failed, one| {
            let next = (!*has_failed).then_some(one);
            *has_failed |= matches!(next, Some(Err(_)));
            future::ready(next)
        })
        .boxed()
    }

    fn identify<'a>(
        &'a self,
        object: &'a str,
    ) -> BoxFuture<'a, Result<Identity, StorageError>> {
        match self.split(object) {
            Some((objects, inside)) => objects.identify(inside),
            None => future::ready(Err(self.not_found(object))).boxed(),
        }
    }

    fn receives_in_place(&self) -> bool {
        self.0.iter().any(|(_, objects)| objects.receives_in_place())
    }

    fn shown(&self, object: &str) -> String {
        match self.split(object) {
            Some((objects, inside)) => objects.shown(inside),
            None if object.is_empty() => {
                let all = self.0.iter();
                let shown = all.map(|(name, it)| format!("{name}={}", it.shown("")));
                shown.collect::<Vec<_>>().join(", ")
            }
            None => object.to_owned(),
        }
    }
}
