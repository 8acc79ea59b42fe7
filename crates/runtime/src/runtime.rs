//! What lives longer than an epoch: the `host` with its data, devices and `memory`, and, longer than
//! a run, the `rates` it showed; `target` is where batches go (`retarget` has them go elsewhere), `connect` brings
//! devices, `horizon` says what they make of rates, and `epochs` joins an epoch's threads.

pub(crate) mod assembly;
pub(crate) mod connect;
pub(crate) mod engine;
pub(crate) mod epochs;
pub(crate) mod horizon;
pub(crate) mod host;
pub(crate) mod memory;
pub(crate) mod rates;
pub(crate) mod retarget;
pub(crate) mod target;
