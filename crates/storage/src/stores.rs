//! The implementations of `Objects`, one file each.

pub(crate) mod answers;
pub(crate) mod cloud;
pub(crate) mod cql;
pub(crate) mod double;
pub(crate) mod folder;
pub(crate) mod http;
pub(crate) mod redis;
pub(crate) mod together;
