//! The global heap, where arrays of varying length lie: collections of objects, each with a number.

use std::collections::HashMap;

use super::super::Window;
use super::{number, read};
use crate::error::DatasetError;

/// An element that varies in length: its length, the address of a collection, the number of an object.
pub(super) const REFERENCE_BYTES: u64 = 16;

/// Before the objects of a collection, and before the bytes of an object.
const COLLECTION_BYTES: u64 = 16;
const OBJECT_BYTES: u64 = 16;

const DAMAGED: &str =
    "an image is not in the heap where the dataset says; fetch the file again";

/// Collections that have been looked at.
#[derive(Debug, Default)]
pub(super) struct Heap {
    /// Where the bytes of an object are, and how many, by collection and number.
    objects: HashMap<(u64, u64), (u64, u64)>,
    known: HashMap<u64, ()>,
    /// How many objects were looked at, also those with the number of another.
    n_looked: u64,
}

impl Heap {
    /// Where the bytes are that the element at `at` of `rows` refers to, and how many.
    pub(super) fn object(
        &mut self,
        heap: &mut Window<'_>,
        rows: &mut Window<'_>,
        at: u64,
    ) -> Result<(u64, u64), DatasetError> {
        let reference = rows.bytes(at, 16)?;
        let (len, collection) = (number(&reference[..4]), number(&reference[4..12]));
        let nth = number(&reference[12..]);
        if len == 0 || nth == 0 {
            let why = "an image has no bytes: its row was never written; write all rows";
            return Err(rows.broken(at, why));
        }
        if self.known.insert(collection, ()).is_none() {
            self.collection(heap, collection)?;
        }
        match self.objects.get(&(collection, nth)) {
            Some(&(start, held)) if len <= held => Ok((start, len)),
            _ => Err(rows.broken(at, DAMAGED)),
        }
    }

    /// Looks at every object of a collection.
    fn collection(
        &mut self,
        heap: &mut Window<'_>,
        start: u64,
    ) -> Result<(), DatasetError> {
        let is_one = heap.bytes(start, 4)? == b"GCOL";
        let end = start.checked_add(read(heap, start + 8, 8)?);
        let end = end.filter(|end| is_one && *end <= heap.len());
        let end = end.ok_or_else(|| heap.broken(start, DAMAGED))?;
        let mut at = start + COLLECTION_BYTES;
        while at + OBJECT_BYTES <= end {
            let head = heap.bytes(at, 16)?;
            let (nth, len) = (number(&head[..2]), number(&head[8..]));
            // The rest is free.
            if nth == 0 {
                break;
            }
            let data = at + OBJECT_BYTES;
            let next =
                data.checked_add(len).and_then(|next| next.checked_next_multiple_of(8));
            at = next
                .filter(|next| *next <= end)
                .ok_or_else(|| heap.broken(at, DAMAGED))?;
            self.objects.insert((start, nth), (data, len));
            // Collections that lie in each other would be looked at again and again.
            self.n_looked += 1;
            if self.n_looked > heap.len() / OBJECT_BYTES {
                return Err(heap.broken(start, DAMAGED));
            }
        }
        Ok(())
    }
}
