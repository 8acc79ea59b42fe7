//! What this machine and this run can do: each prong `alone`, an accelerator's `utilisation`, the `machine`
//! itself, its `gpu` and its `load` meanwhile, the data (`survey`), and samples to look at (`preview`).
//!
//! A measurement owns its epochs: it starts them on the runtime, not through a `Loader`, whose epochs are those
//! that a training loop asks for, one after another. It breaks them off once it has seen enough, has nothing made
//! ahead behind them, and waits until devices have finished. `run` measures before its first epoch, which a
//! loader would then take for its second. They repeat the data so as not to end, and have a number
//! (`EpochIdx::MEASURED`) that no state names and by which an emulated device's faults spare them, except those
//! of a mix that is too long for that. A look takes the first batch of each epoch, and no more.

pub(crate) mod alone;
pub(crate) mod gpu;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod preview;
pub(crate) mod survey;
pub(crate) mod utilisation;
