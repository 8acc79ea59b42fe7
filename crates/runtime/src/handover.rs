//! From a made batch to whoever consumes it: `finish` completes it (it has bad samples made again
//! by `mend`, devices' batches brought into the output's form by `convert`, rows mixed by `finish/mix`, and
//! digests made by `digest`), a `batch` is what is handed over, an `epoch` all of them, a `deal`
//! divides it among consumers, and a `loader` has epochs one after another; `gpu` is how they end in GPU memory. `consumer` is who takes
//! them where the loop is ours (`consumer/conformance` checks one); `report` is what an epoch
//! was.

pub(crate) mod account;
pub(crate) mod batch;
pub(crate) mod consumer;
pub(crate) mod convert;
pub(crate) mod deal;
pub(crate) mod digest;
pub(crate) mod epoch;
pub(crate) mod finish;
pub(crate) mod gpu;
pub(crate) mod loader;
pub(crate) mod mend;
pub(crate) mod report;
