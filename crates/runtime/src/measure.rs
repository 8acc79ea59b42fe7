//! What this machine and this run can do: each prong `alone`, an accelerator `fed`, the `machine`
//! itself, its `gpu` and its `load` meanwhile, the data (`survey`), and samples to `look` at.

pub(crate) mod alone;
pub(crate) mod fed;
pub(crate) mod gpu;
pub(crate) mod load;
pub(crate) mod look;
pub(crate) mod machine;
pub(crate) mod survey;
