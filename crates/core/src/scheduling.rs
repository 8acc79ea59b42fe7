//! Who makes which batch, and when: the half that `runtime` and `simulate` live by.
//!
//! Nothing here knows what is in a sample: that is `preprocessing`, and neither half names the
//! other. Reading order: `permutation` is the shuffle, `plan` the order of an epoch, `order`
//! one that a sampler supplies; `claim` and `ledger` say who has which batch, `rates` how fast
//! the prongs are; `select` is who claims what and what is delivered next; `objective` what
//! the epoch is run for; `epoch` puts these together for one epoch; `resume` and `digest` say
//! how far an epoch has come and what it was.

pub mod order;
pub mod permutation;
pub mod plan;

pub mod claim;
pub mod ledger;
pub mod objective;
pub mod rates;
pub mod select;

pub mod epoch;

pub mod digest;
pub mod resume;
