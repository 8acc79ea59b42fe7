//! The vocabulary of both sides: where a device is, what a job is, its bytes, and who may connect.

pub mod address;
pub mod admission;
pub mod job;
pub mod key;
pub mod member;
pub mod pool;
pub(crate) mod trust;
pub mod wire;
