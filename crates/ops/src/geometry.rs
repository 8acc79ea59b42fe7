//! Ops that move pixels: crops, mirror images, resizes and warps.
//!
//! Nothing here decodes, or changes a value that it does not blend. Reading order: as the modules are
//! listed; `resize` is for images what `resample` is for planes.

pub mod crop;
pub mod flip;

pub mod resample;

pub mod resize;

pub(crate) mod gather;

pub mod warp;
