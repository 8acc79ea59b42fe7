//! The implementations of `Objects`, one file each.

pub(crate) mod double;
pub(crate) mod folder;
