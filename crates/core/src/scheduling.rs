//! Who makes which batch, and when: the half that `runtime` and `simulate` use.
//!
//! Nothing here knows what is in a sample; that is `preprocessing`, and neither half names the other.
//! Reading order: `permutation` is the shuffle, `plan` the order of an epoch, and `order` one supplied
//! by a sampler. `claim` and `ledger` say who has which batch, and `rates` how fast the prongs are.
//! `select` decides who claims what and what is delivered next, and `objective` what the epoch
//! optimises. `epoch` puts these together for one epoch, and `fetch` decides which bytes of remote
//! objects are requested for it, and whether a device's results are worth the link (`fetch::link`). `resume` and `digest` record how far an epoch
//! has come and what it delivered.

pub mod order;
pub mod permutation;
pub mod plan;

pub mod claim;
pub mod ledger;
pub mod objective;
pub mod rates;
pub mod select;

pub mod epoch;
pub mod fetch;

pub mod digest;
pub mod resume;
