//! Where the bytes of a sample are, and what the bytes of a record mean.
//!
//! Every source is reduced to a [`Table`] of extents: file, offset, length, label. The encoded table is
//! the manifest, and the manifest is the only thing a device sees. This crate never opens a file (its
//! callers supply a [`Storage`]) and never decodes a pixel (`ops` does).
//!
//! Reading order: `storage` is the interface to the caller's files, and `path` says what a file there may
//! be called. `table` is the product, with its columns and its bytes, the manifest. `store` has the parts
//! of a packed data set, and `formats` the ways in which samples are stored in files, one file each.
//! `fields` has what samples hold besides.
//! `conformance` has what every format must guarantee. `side_index` is the form of what an earlier epoch
//! learned about the images, and `block_cache` the form of what was transcoded while a host was idle.
//!
//! A new format needs one file with a `parse` function, one variant of [`Format`], and one call of
//! `conformance::check`.

mod error;
mod fields;
mod path;
mod storage;

mod formats;
mod table;

pub mod block_cache;
pub mod conformance;
pub mod side_index;
pub mod store;

pub use bothends_core::recipe::RecordShape;
pub use error::DatasetError;
pub use fields::{
    Ask, Field, FieldKind, FieldPlace, FieldType, Fields, FieldsBuilder, NamedField,
    Number,
};
pub use formats::{
    Codec, Decompression, Format, Found, Step, Treatment, find, find_fields,
    is_listed_image,
};
pub use storage::{Entry, Kind, Storage, Version, n_at_once_here};
pub use table::{
    FileMark, JoinLabels, MANIFEST_VERSION, Piece, Table, TableBuilder, WrongChecksum,
};
