//! The kernels as they are shipped: PTX for compute capability 7.5 and up, which the driver
//! compiles for its card. `kernels/README.md` tells how it is made; `twin` runs the same
//! sources without a GPU.

/// The text, to be given to the driver.
pub const PTX: &str = include_str!("../kernels/bothends.ptx");
