//! What is read, and how: `source` is a run's data, found or as the caller lists them (`supplied`), or
//! several data sets (`sources`), each at its `place`; `blocks` is its block cache; `reader` is the thread
//! that brings records, and `opener` opens files for it.

pub(crate) mod blocks;
pub(crate) mod demand;
pub(crate) mod fetching;
pub(crate) mod lookahead;
pub(crate) mod opener;
pub(crate) mod orders;
pub(crate) mod place;
pub(crate) mod reader;
pub(crate) mod remote;
pub(crate) mod source;
pub(crate) mod sources;
pub(crate) mod supplied;
