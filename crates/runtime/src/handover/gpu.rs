//! Batches that end in the memory of a GPU.
//!
//! ```text
//! deal ─ take ahead ─► batch in a pinned slot ─ feed: copy, finish ─► batch on the GPU ─ mark ─► consumer
//! ```
//!
//! A `target` is a GPU that batches can be delivered to. `deal` is what consumers ask: it takes batches from
//! the deal of the host ahead of them, one each, and counts a batch as taken only when it is
//! handed over. `feed` uploads and, where it can, finishes; `batch` is what is handed over.
//!
//! Nothing here waits for the device: work is ordered by events on it alone (`gpu::staging`). What is
//! delivered, in which order, is not decided here.

pub(crate) mod batch;
pub(crate) mod deal;
pub(crate) mod dealt;
pub(crate) mod feed;
pub(crate) mod target;
