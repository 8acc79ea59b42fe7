//! Who makes which batch, and when: the part that `runtime` and `simulate` use.
//!
//! Nothing here knows what is in a sample; that is `preprocessing`, and neither part names the other.
//! Reading order: `permutation` is the shuffle, `plan` the order of an epoch, and `order` one supplied
//! by a sampler. `claim` and `ledger` say who has which batch, and `rates` how fast the prongs are.
//! `select` decides who claims what and what is delivered next, and `objective` what the epoch
//! optimises. `epoch` puts these together for one epoch, `members` decides which members of a pool take
//! part in it, and `fetch` which bytes of remote objects are requested for it, and whether a device's results are
//! worth the link (`fetch::link`). `resume` and `digest` record how far an epoch
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
pub use epoch::members;

pub mod digest;
pub mod resume;
