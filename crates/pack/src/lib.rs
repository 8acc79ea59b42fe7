//! Stores, which are data sets packed for reading: packing, unpacking and verification.
//!
//! [`pack()`] turns the records of a [`Source`] into shards, [`unpack()`] restores the original
//! files byte for byte, and [`verify()`] finds every byte that has changed. The format is
//! `docs/store-format.md`; `dataset` writes and reads its parts, and `ops` converts records. Nothing
//! here makes a sample, prints, or measures time.
//!
//! Reading order: `source` is what is packed, with two implementations in `files` and `stored`
//! (archives and remote stores would be others); `convert` makes a record of a file; `shard` writes
//! it; `pack` puts everything together. Then `unpack` and `verify`. `export` writes the samples of any source in
//! another tool's format.

mod error;

mod folder;
mod opened;

mod convert;
mod record;
mod source;

mod shard;

mod pack;

mod unpack;
mod verify;

mod export;

pub use bothends_storage::{Missing, Objects, Put, Uploaded};
pub use convert::Converter;
pub use error::PackError;
pub use export::export;
pub use export::upload::{LIST, upload, write_to};
pub use folder::check_outside;
pub use opened::{Contents, OpenStore, is_store};
pub use pack::{Destination, PackConfig, Packed, pack};
pub use record::{Item, Made};
pub use source::files::Files;
pub use source::stored::Stored;
pub use source::{Progress, Source};
pub use unpack::{Unpacked, unpack};
pub use verify::{Damage, Verified, verify};
