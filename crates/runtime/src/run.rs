//! A whole run: `drive` is a training loop round a loader, told by an `observer`, and its result.
//! `checkpoint` is where it stands, with its `digests`; `energy` and `usage` what it used, `faults` what went wrong
//! because it was to, and `id` what it is called.

pub(crate) mod checkpoint;
pub(crate) mod digests;
pub(crate) mod drive;
pub(crate) mod energy;
pub(crate) mod faults;
pub(crate) mod id;
pub(crate) mod observer;
pub(crate) mod part;
pub(crate) mod prepare;
pub(crate) mod settings;
pub(crate) mod shares;
pub(crate) mod usage;
