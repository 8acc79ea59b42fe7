//! Where a sample's bytes lie, and what a record's bytes mean.
//!
//! Every source reduces to a [`Table`] of extents: file, offset, length, label. The table,
//! encoded, is the manifest, and the manifest is the only thing a device sees. This crate
//! never opens a file (its callers bring a [`Storage`]) and never decodes a pixel (`ops`
//! does).
//!
//! Reading order: `storage` is the interface to the caller's files, `path` what a file there may be
//! called; `table` is the product, with the columns that it is made of and its bytes, the
//! manifest; `store` the parts of a packed data set; `formats` the ways in which samples lie in
//! files, one file each; `conformance` holds what every format must keep. `side_index` is the
//! form of what an earlier epoch left to know about the images.
//!
//! A new format is one file with a `parse` function, one line in [`Format`], and one call
//! of `conformance::check`.

mod error;
mod path;
mod storage;

mod formats;
mod table;

pub mod conformance;
pub mod side_index;
pub mod store;

pub use bothends_core::recipe::RecordShape;
pub use error::DatasetError;
pub use formats::{Format, Found, find};
pub use storage::{Entry, Kind, Storage};
pub use table::{MANIFEST_VERSION, Piece, Table, TableBuilder, WrongChecksum};
