//! What is read, and how: `source` is a run's data, found or as the caller lists them
//!  (`supplied`, `redecode`); `side_index` keeps what is known of images; `reader` is the
//! thread that brings records.

pub(crate) mod reader;
pub(crate) mod redecode;
pub(crate) mod side_index;
pub(crate) mod source;
pub(crate) mod supplied;
