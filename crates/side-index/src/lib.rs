//! What earlier epochs left to know about a data set's images, kept on disk: JPEG entry points.
//!
//! The host's workers and a device's look up here what is known of a record, and keep what
//! decoding it taught. Nothing here is needed for a right result: a note is believed only of
//! the very bytes that it was made from, and whatever goes wrong costs speed alone. This crate
//! does not know what a note says (`ops` does), and it does not lay out a segment
//! (`dataset::side_index` does). What others have made is not believed.
//!
//! Reading order: `index` is what workers ask, `folder` where its segments lie, `key` what they are
//! sealed with.

mod folder;
mod index;
mod key;

pub use folder::{Beside, CACHE_LIMIT_BYTES, Cache, Place, user_cache};
pub use index::{Name, SideIndex, SideIndexStats};
