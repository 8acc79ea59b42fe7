//! Where objects lie, near or far: ranges of bytes in, bytes out in any order.
//!
//! A *location* is what a URL names, an *object* a named run of bytes there (a file, a key), and its
//! *identity* what it is recognised by. Local folders and every remote store implement one trait,
//! [`Objects`]. This crate decides no order and retries no fetch: whoever asks does. It knows no format.
//!
//! Reading order: `objects` is the trait, and `error` what can go wrong. `location` turns a URL into
//! objects, and `stores` has the implementations, one file each. `fetcher` is the face for threads and
//! `view` the one for formats. `conformance` has what every implementation must guarantee.

mod address;
mod around;
mod error;
mod objects;

mod client;
mod retry;

mod fetcher;
mod location;
mod stores;
mod view;

pub mod conformance;

pub use around::{around, is_url, without_secrets};
pub use bytes::Bytes;
pub use error::StorageError;
pub use fetcher::shared::{Pending, SharedFetcher};
pub use fetcher::{Destination, Fetch, Fetched, Fetcher, Returned, n_fetch_threads};
pub use futures_util::future::BoxFuture;
pub use futures_util::stream::BoxStream;
pub use location::{Location, Options};
pub use objects::upload::{Missing, Put, Upload, Uploaded, Uploader};
pub use objects::{Arrivals, Identity, Labelled, Listed, Objects};
pub use stores::answers::{is_redis_value, n_cql_answers};
pub use stores::double::{Answer, Asked, Double};
pub use stores::folder::Folder;
pub use stores::together::Together;
pub use view::View;
pub use view::listing::Identities;
