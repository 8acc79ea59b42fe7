//! Objects that remember what each one was when it was listed or asked for, for readers that must notice
//! when it becomes another.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{BoxStream, StreamExt};

use crate::{Arrivals, Identity, Listed, Objects, StorageError};

/// Other objects, and what was said of them.
#[derive(Debug)]
pub struct Noted {
    objects: Arc<dyn Objects>,
    seen: Mutex<HashMap<String, Identity>>,
}

impl Noted {
    /// Remembers nothing yet.
    #[must_use]
    pub fn new(objects: Arc<dyn Objects>) -> Self {
        Self { objects, seen: Mutex::default() }
    }

    /// What these objects were when they were first seen, in their order, and forgets all others.
    pub fn take(
        &self,
        names: impl Iterator<Item = String>,
    ) -> Vec<Option<Identity>> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = names.map(|name| seen.get(&name).cloned()).collect();
        *seen = HashMap::new();
        taken
    }

    fn note(&self, name: &str, identity: &Identity) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.contains_key(name) {
            seen.insert(name.to_owned(), identity.clone());
        }
    }
}

impl Objects for Noted {
    fn get_ranges<'a>(
        &'a self,
        object: &'a str,
        ranges: &'a [Range<u64>],
        expected: Option<&'a Identity>,
    ) -> Arrivals<'a> {
        self.objects.get_ranges(object, ranges, expected)
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxStream<'a, Result<Listed, StorageError>> {
        let listed = self.objects.list(prefix);
        let noted = listed.inspect(|listed| {
            if let Ok(Listed { name, identity }) = listed {
                self.note(name, identity);
            }
        });
        noted.boxed()
    }

    fn identify<'a>(
        &'a self,
        object: &'a str,
    ) -> BoxFuture<'a, Result<Identity, StorageError>> {
        let identified = async move {
            let identity = self.objects.identify(object).await?;
            self.note(object, &identity);
            Ok(identity)
        };
        identified.boxed()
    }

    fn shown(&self, object: &str) -> String {
        self.objects.shown(object)
    }
}
