//! Records that are delivered as they are, received straight into their rows: nobody copies them there.
//!
//! That takes a request for one row alone whose job has come: the first one that finds the row's part of the slot has it. A
//! hedge besides receives into memory of its own, as does what the record cache is to keep.

use std::any::Any;
use std::time::Instant;

use bothends_core::fetch::{Piece, RequestId};
use bothends_core::positions::PositionMap;
use bothends_slots::Part;
use bothends_storage::{Bytes, Fetch, Returned};

use crate::read::demand::LentBy;
use crate::read::orders::Orders;
use crate::read::source::Source;

use super::{FetchStage, Way, cut};

/// Parts of slots that requests have, by the tags of these.
#[derive(Debug, Default)]
pub(super) struct InPlace(PositionMap<LentBy>);

/// A part that has come back.
#[derive(Debug)]
pub(super) struct Back {
    lent: LentBy,
    part: Part,
    content: Content,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Record,
    Nothing,
}

impl InPlace {
    /// `None` where rows are not what is received.
    pub(super) fn of(source: &Source) -> Option<Self> {
        source.is_received_in_place().then(Self::default)
    }

    fn lend(&mut self, request: RequestId, orders: &mut Orders) -> Option<Part> {
        let position = orders.queue.only_position(request)?;
        let (part, lent) = orders.books.lend(position)?;
        self.0.insert(request.0, lent);
        Some(part)
    }

    fn came_back(&mut self, tag: u64, returned: Returned) -> Option<Back> {
        let content = match returned {
            Returned::Filled(_) => Content::Record,
            Returned::Unused(_) => Content::Nothing,
        };
        let lent = self.0.remove(tag)?;
        let memory: Box<dyn Any> = returned.memory();
        let part = *memory.downcast().ok()?;
        Some(Back { lent, part, content })
    }
}

impl Way {
    /// The part that a request had, if it had one.
    pub(super) fn came_back(
        &mut self,
        tag: u64,
        returned: Option<Returned>,
    ) -> Option<Back> {
        self.in_place.as_mut()?.came_back(tag, returned?)
    }
}

impl FetchStage {
    /// Sends a request, into the row that it is for where that is possible.
    pub(super) fn submit(&mut self, fetch: Fetch, way: &mut Way) {
        let in_place = way.in_place.as_mut();
        let request = RequestId(fetch.tag);
        match in_place.and_then(|it| it.lend(request, &mut way.orders)) {
            Some(part) => self.fetcher.submit_into(fetch, Box::new(part)),
            None => self.fetcher.submit(fetch),
        }
    }

    /// What a request brought for these positions is with their rows.
    pub(super) fn arrived(
        &self,
        pieces: &[Piece],
        (bytes, back, since): (&Bytes, Option<Back>, Instant),
        way: &mut Way,
    ) {
        if let Some(Back { lent, part, content: Content::Record }) = back {
            match pieces {
                [piece] if piece.position == lent.position() => {
                    way.orders.books.received(lent, part, since.elapsed());
                    way.orders.queue.taken(piece.position);
                }
                // Nobody wants it any more, or a hedge was first.
                _ => self.give_back(Back { lent, part, content: Content::Nothing }, way),
            }
            return;
        }
        for Piece { position, bytes: range } in pieces {
            self.fetched(*position, cut(bytes, range), way);
        }
        if let Some(back) = back {
            self.give_back(back, way);
        }
    }

    /// A part comes back without what it was lent for.
    pub(super) fn give_back(&self, back: Back, way: &mut Way) {
        if let Some(complete) = way.orders.books.given_back(back.lent, back.part) {
            self.complete(complete, way);
        }
    }

    /// Parts that cancelled requests had.
    pub(super) fn take_returned(&mut self, way: &mut Way) {
        while let Some((tag, memory)) = self.fetcher.returned() {
            if let Some(back) = way.came_back(tag, Some(Returned::Unused(memory))) {
                self.give_back(back, way);
            }
        }
    }
}
