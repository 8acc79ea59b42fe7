//! Stores: data sets packed for reading, made, taken apart again, and held against their
//! checksums.
//!
//! [`pack()`] turns the records of a [`Source`] into shards, [`unpack()`] makes the original files
//! of them, byte for byte, and [`verify()`] finds every byte that is not as it was written. The
//! format is `docs/store-format.md`; its parts are `dataset`'s to write and read, and what a
//! record becomes is `ops`'s to say. Nothing here makes a sample, prints, or measures time.
//!
//! Reading order: `source` is what is packed; `files` and `stored` below it are the two there are
//! (archives and remote stores would be others), `convert` makes a record of a file;
//! `shard` writes, `pack` puts it all together; then `unpack` and `verify`.

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

pub use convert::Converter;
pub use error::PackError;
pub use folder::check_outside;
pub use opened::{Contents, OpenStore, is_store};
pub use pack::{Destination, PackConfig, Packed, pack};
pub use record::{Item, Made};
pub use source::files::Files;
pub use source::stored::Stored;
pub use source::{Progress, Source};
pub use unpack::{Unpacked, unpack};
pub use verify::{Damage, Verified, verify};
