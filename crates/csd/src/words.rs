//! What both sides say: where a device is, what a job is, every byte of it, and who may speak.

pub mod address;
pub mod job;
pub mod key;
pub mod wire;
