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
//!         n_samples += batch.n_valid(); // train, then drop the batch: its memory is reused
//!     }
//!     assert_eq!(n_samples, 20);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! * **Options** are one JSON object, the same in C, with the names of Python's arguments and some
//!   other defaults. [`options`] lists the keys and turns them into a [`RunConfig`], which can also
//!   be written by hand.
//! * **Recipes** say what is done to every sample: a built-in name, a file, or an object
//!   ([`recipe`]).
//! * **Devices** are named in `csds`: a program next to the data (`tcp+noise://nas:7070`, with
//!   `key_file`) or an emulated one (`sim:newport`). Neither the loop nor its bytes change.
//! * **The position in an epoch** is a text of at most 1 kB: [`Loader::state`] after any batch,
//!   [`Loader::load_state`] in another process, with any number of workers, devices and ranks.
//! * **Several processes on one machine** divide its processors and memory if each is told of the others:
//!   [`Ranks::here`] reads the launcher's variables, or counts the processes that have registered, and
//!   [`options_among`] takes the result. Keep the [`Registration`] as long as the loader. [`options`] is
//!   for a process that is alone.
//! * **A GPU** receives the batches if [`Loader::begin_on`] names one ([`GpuTarget`]): the same bytes, in
//!   its memory, uploaded one batch ahead, and finished there if it has kernels for that.
//! * **Many consumers**: [`Loader::begin`] splits an epoch among as many as you ask for, each on
//!   its own thread if it likes ([`Deal`]).
//! * **Errors** are one enum, [`RuntimeError`]. Each says in one line what happened and what
//!   helps, with the option names of this crate.
//!
//! `examples/` in this crate is a course in five small programs. The layers below, such as epochs
//! without a loader, are in `bothends_runtime`; this crate contains no code.

// Whatever a signature or a public field of these types names is here too: an embedder depends on no
// other crate of ours. `tests/embedding.rs` says it all by name.
pub use bothends_core::{
    digest, ids, objective, order, plan, recipe, select, setting, tensor,
};
pub use bothends_runtime::{
    Audits, BadPolicy, Batch, BatchHeader, BlockCacheStats, CacheSize, Card, Consumer,
    ConsumerStream, Damaged, DamagedSample, Deal, Dealt, DecompressingWatch, Deliver,
    DeviceSpec, DeviceStats, Driver, ErrorKind, FetchBounds, FetchWaits, Fetches,
    FieldColumn, FieldKind, FieldType, GpuBatch, GpuDeal, GpuError, GpuPath, GpuPolled,
    GpuTarget, Gpus, Insecure, JobTerms, JoinLabels, Loader, LoaderStats, MemoryBudget,
    MixStop, Mixed, MixedData, MixedSource, Notes, Number, Objects, PageCacheUse,
    PathReport, Polled, RankConfig, Ranks, ReadConfig, ReaderKind, RecordCacheUse,
    Records, Redecode, Redecoder, Registration, Replacement, Row, RunConfig,
    RuntimeError, Share, SideIndexStats, SideIndexUse, Skipped, SourceSamples, Sources,
    Stall, Step, Supplied, SuppliedFile, TlsFiles, Unread, Usage, one_line_with, options,
    options_among,
};

/// The page that the registry shows; its program is tested with those above.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Page;
