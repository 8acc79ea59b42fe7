//! The program that runs next to the data, as a library: it serves batches to a host.
//!
//! [`Server`] is the device's end of the conversation defined in `csd`. Its caller supplies two
//! interfaces: a [`Store`] says where bytes come from, and [`Costs`] what a job costs. The command line
//! (`program`) combines it with the files of this machine and no costs at all; `firmware-sim` combines the
//! same server with models. This crate never models anything, imports nothing from the host's side, and runs
//! nothing from the wire but the declared ops of a recipe.
//!
//! Reading order: `store` and `costs` are the interfaces. `session` is what was agreed with a host,
//! `session/limits.rs` what it may cost, and `memory` how much of all that is held at once. `work` makes
//! one sample, with a job under way (`work/batch.rs`), the jobs of a session (`work/line.rs`), the
//! sessions' shares of the workers (`work/shares.rs`) and the results that several want
//! (`work/results.rs`). `server` says who works, `server/jobs.rs` for which training jobs,
//! `server/guest.rs` when jobs are answered, and `server/registry.rs` which agents have announced
//! themselves. `door` is where hosts connect, `stop` when a device program ends, and `program` is the
//! command line. `program/sandbox.rs` confines the process before it serves.

pub mod costs;
pub mod store;

mod memory;
mod session;
mod work;

mod cpu;
pub mod server;

pub mod door;
pub mod stop;

pub mod conformance;
pub mod program;

pub use costs::{Cost, Costs, Hold, NoCosts, SampleWork, ThreadClock, Work};
pub use memory::{Memory, ResultMemory};
pub use server::{
    Counts, Guest, JobCounts, Kept, Registry, RunCounts, SESSIONS, Server, ServerConfig,
    Sharing,
};
pub use session::epoch_batches;
pub use store::{
    Age, DataRoot, FileStore, Identity, ObjectRoot, ObjectStore, ReadyRoots, Store,
    StoreError, Wanted,
};
// What a `FileStore` does with symbolic links.
pub use bothends_csd::Links;
// Where compressed shards go, and who is told.
pub use bothends_decompress::{Place as DecompressedPlace, Watch as DecompressingWatch};
