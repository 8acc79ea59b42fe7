//! What earlier epochs left about the images of a data set, kept on disk: JPEG entry points, images
//! transcoded to the blocks of a store while a host was idle (the block cache), and records that were fetched
//! from a remote store (the record cache).
//!
//! Workers of the host and of devices look up what is known about a record, and keep what they
//! learned by decoding it. Results never depend on it: a note counts only for the exact bytes that it
//! was made from, or for the unchanged file that they were read from, and whatever goes wrong costs nothing but speed. This crate knows neither the
//! contents of a note (`ops` does) nor the layout of a segment (`dataset::side_index` does). Segments
//! of others are not believed.
//!
//! Reading order: `index` is what workers use, `blocks` the block cache and `records` that of fetched
//! records, `folder` is where segments are,
//! `key` what they are sealed with. `tables` keeps what walking through shards has found.

mod blocks;
mod folder;
mod index;
mod key;
mod records;
mod tables;

pub use blocks::{BlockCache, BlockCacheStats, CachedBlocks, Keeping, NewBlocks};
pub use folder::{Beside, CACHE_LIMIT_BYTES, Cache, Place, user_cache};
pub use index::{Name, SideIndex, SideIndexStats, Wait, is_at_rest};
pub use records::{CachedRecord, RecordCache};
pub use tables::find;
