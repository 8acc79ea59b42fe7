//! Columns: files that hold a table, as Hugging Face's libraries and LitData write them.
//!
//! A row is a sample: one column is the image, one may be its class. Parquet and Arrow store the bytes of
//! each image in one piece, if nothing compressed them, so a walk over the headers gives the place of every
//! image. Only the column of classes is decoded. Read `choice.rs` first, then `arrow.rs`, then `parquet.rs`.

pub(crate) mod arrow;
mod choice;
pub(crate) mod litdata;
pub(crate) mod parquet;
mod rows;
