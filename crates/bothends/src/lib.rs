//! Feeds a training loop from both ends of an epoch: host workers preprocess from the front,
//! devices next to the data from the back, and the loop gets one stream, the same bytes in the
//! same order, whoever made them.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let data = folder.path();
//! # let some = bothends_samples::GenerateConfig { n_images: 20, n_classes: 2, seed: 1 };
//! # bothends_samples::generate(data, &some, &mut |_, _| {})?;
//! let json = format!(
//!     r#"{{"data": {data:?}, "recipe": "imagenet-train", "batch_size": 8,
//!          "output": "f32", "layout": "nchw", "last": "pad"}}"#
//! );
//! let mut loader = bothends::Loader::open(bothends::options(&json)?)?;
//! for epoch in 0..2 {
//!     loader.set_epoch(epoch);
//!     let mut n_samples = 0;
//!     for batch in loader.begin(1)?.batches(0) {
//!         let batch = batch?;
//!         let (bytes, labels) = (batch.bytes(), batch.rows().iter().map(|row| row.label.0));
//!         assert_eq!(bytes.len(), labels.count() * 3 * 224 * 224 * 4);
//!         n_samples += batch.n_valid(); // train, then drop the batch: its memory is used again
//!     }
//!     assert_eq!(n_samples, 20);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! * **Options** are one JSON object, the same in Python and C; [`options`] lists the keys and
//!   turns them into a [`RunConfig`], which may also be written by hand.
//! * **Recipes** say what is done to every sample: a built-in name, a file, or an object
//!   ([`recipe`]).
//! * **Devices** are named in `csds`: a program next to the data (`tcp://nas:7070`) or an
//!   emulated one (`sim:newport`). The loop does not change, and its bytes do not.
//! * **A place in an epoch** is a text of at most 1 kB: [`Loader::state`] at any batch,
//!   [`Loader::load_state`] in another process, with other numbers of workers, devices, ranks.
//! * **Many consumers**: [`Loader::begin`] deals an epoch to as many as are asked for, each on
//!   a thread of its own if it likes ([`Deal`]).
//! * **Errors** are one enum, [`RuntimeError`]; each says in a line what happened and what
//!   helps, with the names that options have here.
//!
//! `examples/` next to this crate is a course in five small programs. What lies below, epochs
//! without a loader among it, is `bothends_runtime`'s; this crate holds no code.

pub use bothends_core::{digest, ids, objective, plan, recipe, select, tensor};
pub use bothends_runtime::{
    BadPolicy, Batch, Deal, DeviceSpec, DeviceStats, Loader, LoaderStats, Mixed, Notes,
    PageCacheUse, Polled, RankConfig, Ranks, ReadConfig, ReaderKind, Row, RunConfig,
    RuntimeError, SideIndexUse, Skipped, Stall, options, options_among,
};
