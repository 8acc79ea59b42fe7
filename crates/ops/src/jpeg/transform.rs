//! Coefficients become samples (`idct`), and samples coefficients (`forward`).
//!
//! Both are libjpeg-turbo's "islow" in every bit. Read `idct.rs` next.

pub(crate) mod forward;
pub(crate) mod idct;
